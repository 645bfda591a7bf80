"""Where each gpu of a plan lives: on a device of its own, beside others, or as data only.

A plan for more gpus than there are devices can still run: some of its gpus compute, the others only
hold the data that those read, on a device or in pinned host memory. What such a run shows is labelled
as emulated.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ficco_sim.errors import ScenarioError

__all__ = ["HOST", "Placement", "parse_placement"]

HOST = -1
"""Pinned memory of the host, as the number of a place."""

MAX_DEVICES = 64
ENTRY = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?=(?:dev([0-9]{1,5})(:shard|:link)?|host(:link)?)")
GRAMMAR = (
    "GPUS=PLACE, comma-separated: '0=dev0,1-7=host' or '0=dev0,1-7=dev1:shard' or '0-7=dev0'; "
    "':link' in place of ':shard', or after 'host', gives each of these gpus a link of its own"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The place of each gpu of a plan.

    Parameters
    ----------
    places
        For each gpu the number of its device, or `HOST`.
    computing
        The gpus that run their tasks; the others only hold what those read.
    linked
        Those of the others that are read as if each had a link of its own, see `hw_validate.links`.
    """

    places: tuple[int, ...]
    computing: frozenset[int]
    linked: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if not self.computing:
            raise ScenarioError(
                "--map: no gpu computes; give at least one a device without ':shard' or ':link'"
            )
        for gpu in self.computing:
            if self.places[gpu] == HOST:
                raise ScenarioError(f"--map: gpu {gpu} cannot compute in host memory")
        if self.linked and len(self.computing) > 1:
            raise ScenarioError(
                f"--map: with ':link' one gpu computes, but {len(self.computing)} do: they would share "
                "what plays its links"
            )

    @property
    def num_gpus(self) -> int:
        """Gpus of the plans that this placement fits."""
        return len(self.places)

    @property
    def devices(self) -> tuple[int, ...]:
        """Devices in use, in order."""
        return tuple(sorted({place for place in self.places if place != HOST}))

    @property
    def is_emulated(self) -> bool:
        """Whether any gpu has no device of its own."""
        return bool(self.labels)

    @property
    def labels(self) -> tuple[str, ...]:
        """What is not what it stands for; empty where every gpu has a device of its own."""
        found = []
        for place in (*self.devices, HOST):
            here = [gpu for gpu, at in enumerate(self.places) if at == place]
            holding = [gpu for gpu in here if gpu not in self.computing]
            working = [gpu for gpu in here if gpu in self.computing]
            if len(working) > 1:
                found.append(f"emulated: {_gpus(working)} compute on device {place} together")
            if holding:
                where = "pinned host memory" if place == HOST else f"the memory of device {place}"
                hold = "holds" if len(holding) == 1 else "hold"
                found.append(f"emulated: {_gpus(holding)} only {hold} data, in {where}")
            links = self.num_links(place)
            if links:
                theirs = _gpus(sorted(self.linked & set(here)))
                found.append(
                    f"emulated: a link of its own to each of {theirs}, all by one that moves at a time "
                    "what they would carry at the same time"
                )
        return tuple(found)

    def num_links(self, place: int) -> int:
        """Links of their own that gpus at a place have, which share its rate."""
        return sum(1 for gpu in self.linked if self.places[gpu] == place)

    def describe(self) -> str:
        """The text from which `parse_placement` makes an equal placement."""
        parts = []
        for first, last, at in self._runs():
            gpus = f"{first}" if first == last else f"{first}-{last}"
            parts.append(f"{gpus}={at}")
        return ",".join(parts)

    def _runs(self) -> Iterable[tuple[int, int, str]]:
        start = 0
        for gpu in range(1, self.num_gpus + 1):
            here = self._at(start)
            if gpu == self.num_gpus or self._at(gpu) != here:
                yield start, gpu - 1, here
                start = gpu

    def _at(self, gpu: int) -> str:
        place = "host" if self.places[gpu] == HOST else f"dev{self.places[gpu]}"
        if gpu in self.linked:
            return f"{place}:link"
        return place if gpu in self.computing or place == "host" else f"{place}:shard"

    @staticmethod
    def own_devices(num_gpus: int) -> "Placement":
        """Every gpu computes on the device of its number."""
        return Placement(places=tuple(range(num_gpus)), computing=frozenset(range(num_gpus)))


def parse_placement(text: str | None, num_gpus: int) -> Placement:
    """Read the value of ``--map``; without one every gpu has a device of its own.

    Examples
    --------
    >>> parse_placement("0=dev0,1-3=host", 4).labels
    ('emulated: gpus 1 to 3 only hold data, in pinned host memory',)
    >>> parse_placement("0=dev0,1-3=dev1:shard", 4).describe()
    '0=dev0,1-3=dev1:shard'

    Raises
    ------
    ScenarioError
        If the text does not follow the grammar, or a gpu is placed twice or not at all.
    """
    if text is None:
        return Placement.own_devices(num_gpus)
    places: dict[int, int] = {}
    computing, linked = set(), set()
    for entry in text.split(","):
        match = ENTRY.fullmatch(entry.strip())
        if match is None:
            raise ScenarioError(f"--map: {entry.strip()[:40]!r} does not follow {GRAMMAR}")
        first = int(match[1])
        last = int(match[2] or match[1])
        if not first <= last < num_gpus:
            raise ScenarioError(
                f"--map: {entry.strip()!r}: gpus must be from 0 to {num_gpus - 1}, in order"
            )
        place = HOST if match[3] is None else int(match[3])
        if place >= MAX_DEVICES:
            raise ScenarioError(f"--map: {entry.strip()!r}: devices are 0 to {MAX_DEVICES - 1}")
        for gpu in range(first, last + 1):
            if gpu in places:
                raise ScenarioError(f"--map: gpu {gpu} is placed twice")
            places[gpu] = place
            if ":link" in (match[4], match[5]):
                linked.add(gpu)
            elif place != HOST and not match[4]:
                computing.add(gpu)
    missing = [gpu for gpu in range(num_gpus) if gpu not in places]
    if missing:
        raise ScenarioError(f"--map: no place for {_gpus(missing)} of {num_gpus}")
    return Placement(
        places=tuple(places[gpu] for gpu in range(num_gpus)),
        computing=frozenset(computing),
        linked=frozenset(linked),
    )


def _gpus(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"gpu {numbers[0]}"
    if numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"gpus {numbers[0]} to {numbers[-1]}"
    return f"gpus {', '.join(map(str, numbers))}"

"""What a suite of microbenchmarks covers: shapes, places, directions and sizes."""

import re
from dataclasses import dataclass, field
from typing import Literal

from ficco_sim.errors import ScenarioError
from ficco_sim.units import GB, KIB, MIB
from ficco_sim.workload import DTYPE_BYTES, Workload
from hw_validate.peaks import Peaks
from hw_validate.placement import HOST

__all__ = ["Flow", "Setup", "Sizes", "default_directions", "parse_direction", "place_name"]

FLOW = re.compile(r"(?:dev(\d+)|host)>(?:dev(\d+)|host)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """From one place to another: numbers of devices, or `HOST`."""

    src: int
    dst: int

    @property
    def device(self) -> int:
        """The device that copies: the one that receives, as in a plan, unless that is the host."""
        return self.src if self.dst == HOST else self.dst

    @property
    def family(self) -> Literal["host", "peer", "same"]:
        """What the copy crosses."""
        if HOST in (self.src, self.dst):
            return "host"
        return "same" if self.src == self.dst else "peer"


def place_name(place: int) -> str:
    """A place as it is written in records: ``dev0``, ``host``."""
    return "host" if place == HOST else f"dev{place}"


def parse_direction(text: str) -> tuple[Flow, ...]:
    """Read a direction: ``host>dev0``, or two at once, ``host>dev0+dev0>host``.

    Raises
    ------
    ScenarioError
        If the text does not follow this grammar.

    Examples
    --------
    >>> parse_direction("dev1>dev0")
    (Flow(src=1, dst=0),)
    """
    flows = []
    for part in text.split("+"):
        match = FLOW.fullmatch(part.strip())
        if match is None or match[1] is match[2] is None:
            raise ScenarioError(
                f"--directions: {text[:40]!r} must be SRC>DST, or two such joined by '+'; "
                "places are host, dev0, dev1, ..."
            )
        src, dst = (HOST if number is None else int(number) for number in match.groups())
        flows.append(Flow(src=src, dst=dst))
    if len(flows) > 2:
        raise ScenarioError(f"--directions: {text[:60]!r}: at most two at once")
    return tuple(flows)


def default_directions(devices: tuple[int, ...]) -> tuple[str, ...]:
    """All directions between the host and the first two devices, and within the first.

    Examples
    --------
    >>> default_directions((0,))
    ('host>dev0', 'dev0>host', 'host>dev0+dev0>host', 'dev0>dev0')
    """
    here = place_name(devices[0])
    found = [f"host>{here}", f"{here}>host", f"host>{here}+{here}>host"]
    if len(devices) > 1:
        peer = place_name(devices[1])
        found += [f"{peer}>{here}", f"{here}>{peer}", f"{peer}>{here}+{here}>{peer}"]
    return (*found, f"{here}>{here}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes of the cases; the defaults are for gpus, tests take tiny ones.

    Parameters
    ----------
    copy_bytes
        Contiguous copies.
    strided_bytes, row_bytes, pitch_rows
        Copies of rows, ``pitch_rows`` times as far apart as they are long; the largest also in two
        directions at once.
    counts, count_bytes, streams
        Several copies, spread over streams.
    core_bytes, blocks
        Copies by the copy kernel, and how many blocks it has.
    local_bytes, local_pieces, local_row_bytes
        Copies within a device by one kernel.
    random_shapes
        Number of GEMM shapes drawn off the grid; 0 also leaves out the skinny ones.
    queues, queued_gemms
        GEMMs side by side: numbers of queues, and of GEMMs spread over them.
    large_gemm
        M, N, K of a GEMM that fills all compute units.
    contention_pieces
        How many further shapes, pieces of the workloads, are run beside copies.
    contention_s, contention_bytes, contention_blocks
        How long the GEMMs beside copies take together, and those copies.
    chain
        Operator whose plan is submitted as a graph and step by step.
    kernels
        Lengths of chains of tiny kernels.
    """

    copy_bytes: tuple[int, ...] = tuple(4 * KIB * 4**i for i in range(9))
    strided_bytes: tuple[int, ...] = (MIB, 16 * MIB, 256 * MIB)  # the last exceeds CPU caches
    row_bytes: tuple[int, ...] = (512, 2 * KIB, 8 * KIB)
    pitch_rows: tuple[int, ...] = (2, 8)
    counts: tuple[int, ...] = (1, 8, 56)
    count_bytes: tuple[int, ...] = (4 * KIB, MIB)
    streams: tuple[int, ...] = (1, 4, 7)
    core_bytes: tuple[int, ...] = (256 * KIB, 4 * MIB, 64 * MIB)
    blocks: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    local_bytes: tuple[int, ...] = tuple(64 * KIB * 4**i for i in range(7))
    local_pieces: tuple[int, ...] = (1, 7, 56)
    local_row_bytes: tuple[int, ...] = (KIB, 4 * KIB)
    random_shapes: int = 40
    queues: tuple[int, ...] = (1, 2, 4)
    queued_gemms: int = 8
    large_gemm: tuple[int, int, int] = (8192, 8192, 8192)
    contention_pieces: int = 3
    contention_s: float = 3e-3
    contention_bytes: int = 16 * MIB
    contention_blocks: tuple[int, ...] = (1, 4, 16, 64)
    chain: Workload = field(
        default=Workload(name="chain", pattern="all_gather_gemm", m=2048, n=1024, k=1024)
    )
    kernels: tuple[int, ...] = (8, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What to measure, and where.

    Parameters
    ----------
    workloads
        Operators whose whole GEMMs and pieces are timed.
    num_gpus, num_chunks
        Of the plans that cut them into pieces; an all-to-all has as many gpus as its tokens say.
    devices
        Numbers of the devices in use; the first one computes.
    directions
        See `parse_direction`; None takes `default_directions`.
    dtypes
        Element types of the GEMMs, whatever the workloads say.
    init
        ``randn``, or ``zeros`` to see what they do to clocks and power.
    budget_bytes
        Most memory that a group takes on any place.
    peaks
        What a device cannot exceed.
    seed
        Of the matrices and of the shapes off the grid.

    Raises
    ------
    ScenarioError
        If a list that is needed is empty, or a value is out of range.
    """

    workloads: tuple[Workload, ...] = ()
    num_gpus: int = 8
    num_chunks: tuple[int, ...] = (2, 4, 8)
    devices: tuple[int, ...] = (0,)
    directions: tuple[str, ...] | None = None
    dtypes: tuple[str, ...] = ("bf16",)
    init: Literal["randn", "zeros"] = "randn"
    budget_bytes: int = 40 * GB
    peaks: Peaks = field(default_factory=Peaks)
    seed: int = 0
    sizes: Sizes = field(default_factory=Sizes)

    def __post_init__(self) -> None:
        if not self.devices:
            raise ScenarioError("devices: none given")
        for dtype in self.dtypes:
            if dtype not in DTYPE_BYTES:
                raise ScenarioError(f"--dtype: {dtype!r} is unknown; one of {', '.join(DTYPE_BYTES)}")
        if self.budget_bytes < 1:
            raise ScenarioError(f"budget_bytes: {self.budget_bytes} must be more than 0")
        for text in self.directions or ():
            for flow in parse_direction(text):
                for place in (flow.src, flow.dst):
                    if place not in (*self.devices, HOST):
                        raise ScenarioError(
                            f"--directions: {text!r}: device {place} is not one of those in use"
                        )

    @property
    def device(self) -> int:
        """The device that computes."""
        return self.devices[0]

    @property
    def all_directions(self) -> tuple[str, ...]:
        """The directions to measure."""
        return default_directions(self.devices) if self.directions is None else self.directions

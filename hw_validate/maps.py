"""Maps by name: where the gpus of a plan live, which may depend on how a schedule uses links.

With two devices or one, one place can stand for a single link of a full mesh and another for all of
them at once; shard-level schedules then read from the first, all others from the second.
"""

from dataclasses import dataclass

from ficco_sim.errors import ScenarioError
from hw_validate.placement import Placement, parse_placement

__all__ = ["MAP_NAMES", "Map", "find_map"]

ONE_LINK_AT_A_TIME = ("shard-p2p", "shard-ring")
"""Schedules that keep one link of a gpu busy; the others use all of them at once."""

BETWEEN = "|"


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    """A placement for shard-level schedules and one for the others.

    Parameters
    ----------
    name
        As it was asked for; tells maps apart in records.
    shard, fine
        Texts for `parse_placement`; None gives every gpu a device of its own.
    """

    name: str
    shard: str | None
    fine: str | None

    def placement(self, schedule: str, num_gpus: int) -> Placement:
        """Where the gpus live for a schedule."""
        return parse_placement(self.shard if schedule in ONE_LINK_AT_A_TIME else self.fine, num_gpus)

    @property
    def labels(self) -> tuple[str, ...]:
        """What a map that depends on the schedule stands for."""
        if self.shard == self.fine:
            return ()
        return (
            "emulated: a full mesh, by one place for a single link (shard-level schedules) and another "
            "for all links at once",
        )


def find_map(name: str, num_gpus: int) -> Map:
    """A map by its name, or by its text.

    Parameters
    ----------
    name
        ``own``: a device each. ``switch``: gpu 0 computes, the others' data is on device 1.
        ``mesh``: likewise, but shard-level schedules read from pinned host memory, whose rate is that
        of about one link. ``host``: all data in pinned host memory, as gpus on PCIe switches have it.
        ``host-mesh``: likewise, each gpu by a link of its own, a full mesh of slow links.
        ``peer-mesh``: so with the data on device 1. ``self``: all data on the device that computes.
        ``together``: all gpus compute on device 0. ``core-mesh``: a mesh with one device: single links
        are host memory, all links at once the device's own. Else a text as for `parse_placement`, or
        two with a bar between: the first for shard-level schedules.

    Raises
    ------
    ScenarioError
        If it is neither; the message lists the names.
    """
    last = num_gpus - 1
    peers = f"1-{last}" if last > 1 else "1"
    host = f"0=dev0,{peers}=host"
    peer = f"0=dev0,{peers}=dev1:shard"
    own = f"0=dev0,{peers}=dev0:shard"
    named: dict[str, tuple[str | None, str | None]] = {
        "own": (None, None),
        "switch": (peer, peer),
        "mesh": (host, peer),
        "host": (host, host),
        "host-mesh": (f"{host}:link", f"{host}:link"),
        "peer-mesh": (f"0=dev0,{peers}=dev1:link", f"0=dev0,{peers}=dev1:link"),
        "self": (own, own),
        "together": (f"0-{last}=dev0", f"0-{last}=dev0"),
        "core-mesh": (host, own),
    }
    if name in named:
        if num_gpus < 2 and name != "own":
            raise ScenarioError(f"--map: {name} needs plans for 2 gpus or more")
        shard, fine = named[name]
        return Map(name=name, shard=shard, fine=fine)
    if "=" not in name:
        raise ScenarioError(f"--map: {name[:40]!r} is unknown; one of {', '.join(named)}, or a text")
    parts = name.split(BETWEEN)
    if len(parts) > 2:
        raise ScenarioError(f"--map: {name[:60]!r}: at most two placements, with one bar between")
    for part in parts:
        parse_placement(part, num_gpus)
    return Map(name=name, shard=parts[0], fine=parts[-1])


MAP_NAMES = ("own", "switch", "mesh", "host", "host-mesh", "peer-mesh", "self", "together", "core-mesh")

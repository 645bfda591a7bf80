"""Lower bounds on communication from the cuts of a machine's graph."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ficco_sim.errors import MachineError
from ficco_sim.machine import Machine

__all__ = ["CutBound", "all_gather_bound"]

MAX_EXACT_GPUS = 14  # all cuts are tried up to here


@dataclass(frozen=True, slots=True, kw_only=True)
class CutBound:
    """The tightest cut found: a group of gpus cannot receive what it lacks in less time.

    Parameters
    ----------
    time_s
        Bytes that the group must receive over the bandwidth of the links into it.
    gpus
        The group.
    exact
        Whether all cuts were tried; else single gpus, all but one, and hop balls around each.
    """

    time_s: float
    gpus: tuple[int, ...]
    exact: bool


def all_gather_bound(machine: Machine, shard_bytes: Sequence[float]) -> CutBound:
    """The cut bound of an all-gather: every shard must enter every group that lacks it, once.

    Parameters
    ----------
    shard_bytes
        Bytes of each gpu's shard.

    Raises
    ------
    MachineError
        If a group that lacks bytes has no links into it, or the machine has switches.
    """
    if machine.switches:
        raise MachineError(f"{machine.name}: cut bounds are for machines without switches")
    num_gpus = machine.num_gpus
    shards = np.asarray(shard_bytes, dtype=np.float64)
    groups, exact = _groups(machine)
    best = CutBound(time_s=0.0, gpus=(), exact=exact)
    for chunk in np.array_split(groups, max(1, len(groups) // 2048)):
        lacking = (~chunk * shards).sum(axis=1)
        into = np.zeros(len(chunk))
        for link in machine.links:
            into += (~chunk[:, link.src] & chunk[:, link.dst]) * link.usable_bytes_per_s
        cut_off = np.flatnonzero((into == 0) & (lacking > 0))
        if len(cut_off):
            gpus = [g for g in range(num_gpus) if chunk[cut_off[0], g]]
            raise MachineError(f"{machine.name}: no link leads into gpus {gpus}")
        times = np.divide(lacking, into, out=np.zeros(len(chunk)), where=lacking > 0)
        at = int(times.argmax()) if len(times) else 0
        if len(times) and times[at] > best.time_s:
            gpus_in = tuple(g for g in range(num_gpus) if chunk[at, g])
            best = CutBound(time_s=float(times[at]), gpus=gpus_in, exact=exact)
    return best


def _groups(machine: Machine) -> tuple[np.ndarray, bool]:
    """Rows of truth values, one per group of gpus to try; never none or all of them."""
    num_gpus = machine.num_gpus
    if num_gpus <= MAX_EXACT_GPUS:
        numbers = np.arange(1, 2**num_gpus - 1)
        return (numbers[:, None] >> np.arange(num_gpus) & 1).astype(bool), True
    import networkx as nx

    graph = machine.graph().reverse(copy=False)
    rows: dict[tuple[bool, ...], None] = {}
    for gpu in range(num_gpus):
        hops = nx.single_source_shortest_path_length(graph, gpu)
        for radius in range(max(hops.values())):
            ball = [hops.get(g, num_gpus) <= radius for g in range(num_gpus)]
            for row in (ball, [not x for x in ball]):
                if any(row) and not all(row):
                    rows[tuple(row)] = None
    return np.array(list(rows), dtype=bool), False

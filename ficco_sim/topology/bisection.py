"""Bisection bandwidth: the least that crosses between two halves of the gpus, one direction."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from ficco_sim.machine import Machine

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

__all__ = ["Bisection", "bisection"]

MAX_EXACT_GPUS = 16
MAX_EXACT_CASES = 2_000_000  # halves times sides of the switches
CHUNK = 50_000


@dataclass(frozen=True, slots=True)
class Bisection:
    """Bytes/s that cross between two halves of the gpus, in the worse direction.

    ``exact`` is False for machines too large to try all halves: the value is then that of the worst
    half tried, an upper bound.
    """

    bytes_per_s: float
    exact: bool
    half: tuple[int, ...]


def bisection(machine: Machine) -> Bisection | None:
    """The worst cut into halves, by data-sheet bandwidth; None for fewer than two gpus.

    Switches lie on the side that lets least through, which is the most that can flow through them.
    """
    num_gpus = machine.num_gpus
    if num_gpus < 2:
        return None
    rates = _rates(machine)
    num_switches = len(rates) - num_gpus
    exact = num_gpus <= MAX_EXACT_GPUS
    halves = list(_all_halves(num_gpus) if exact else _likely_halves(num_gpus))
    if len(halves) << num_switches <= MAX_EXACT_CASES:
        value, half = _try_all(rates, halves, num_gpus)
    else:
        if len(halves) > 64:  # too many switches to place for every half
            halves, exact = list(_likely_halves(num_gpus)), False
        value, half = min((_flow(rates, half, num_gpus), half) for half in halves)
    return Bisection(value, exact, half)


def _rates(machine: Machine) -> "Matrix":
    """Bytes/s from each node to each other; switches that only pass on are taken out."""
    size = machine.num_gpus + len(machine.switches)
    rates = np.zeros((size, size))
    for link in machine.links:
        rates[link.src, link.dst] = link.bandwidth_bytes_per_s
    keep = list(range(size))
    for switch in range(size - 1, machine.num_gpus - 1, -1):
        peers = np.flatnonzero((rates[switch] > 0) | (rates[:, switch] > 0))
        if len(peers) > 2:
            continue
        if len(peers) == 2:
            for a, b in (peers, peers[::-1]):
                rates[a, b] += min(rates[a, switch], rates[switch, b])
        rates[switch] = rates[:, switch] = 0.0
        keep.remove(switch)
    return rates[np.ix_(keep, keep)]


def _all_halves(num_gpus: int) -> Iterator[tuple[int, ...]]:
    """Every half that holds gpu 0; both directions are looked at, so the rest need not be."""
    size = num_gpus // 2
    for others in combinations(range(1, num_gpus), size - 1):
        yield (0, *others)
    if num_gpus % 2:
        for others in combinations(range(1, num_gpus), size):
            yield (0, *others)


def _likely_halves(num_gpus: int) -> Iterator[tuple[int, ...]]:
    """Halves along the dimensions of regular machines: runs of gpus, and every other block."""
    seen = set()
    half = num_gpus // 2
    tries = [
        tuple(sorted((start + i) % num_gpus for i in range(half))) for start in range(min(half, 32))
    ]
    block = 1
    while 2 * block <= num_gpus:
        if num_gpus % (2 * block) == 0:
            tries.append(tuple(g for g in range(num_gpus) if g // block % 2 == 0))
        block += 1
    for gpus in tries:
        if gpus not in seen:
            seen.add(gpus)
            yield gpus


def _try_all(
    rates: "Matrix", halves: list[tuple[int, ...]], num_gpus: int
) -> tuple[float, tuple[int, ...]]:
    num_switches = len(rates) - num_gpus
    sides = np.array(
        [[s >> bit & 1 for bit in range(num_switches)] for s in range(1 << num_switches)],
        dtype=np.float64,
    ).reshape(1 << num_switches, num_switches)
    least, at = np.inf, 0
    step = max(CHUNK // len(sides), 1)
    for start in range(0, len(halves), step):
        part = halves[start : start + step]
        gpus = np.zeros((len(part), num_gpus))
        for row, half in enumerate(part):
            gpus[row, list(half)] = 1.0
        inside = np.hstack([np.repeat(gpus, len(sides), axis=0), np.tile(sides, (len(part), 1))])
        outside = 1.0 - inside
        out = ((inside @ rates) * outside).sum(axis=1)
        back = ((outside @ rates) * inside).sum(axis=1)
        crossing = np.minimum(out, back)
        best = int(np.argmin(crossing))
        if crossing[best] < least:
            least, at = float(crossing[best]), start + best // len(sides)
    return least, halves[at]


def _flow(rates: "Matrix", half: tuple[int, ...], num_gpus: int) -> float:
    """Least cut between a half and the rest through the switches, in the worse direction."""
    import networkx as nx

    graph: nx.DiGraph[Any] = nx.DiGraph()
    graph.add_nodes_from(["one", "other"])
    for a, b in np.argwhere(rates > 0).tolist():
        graph.add_edge(a, b, capacity=float(rates[a, b]))
    for gpu in range(num_gpus):  # no capacity: without limit
        side = "one" if gpu in half else "other"
        graph.add_edge(side, gpu)
        graph.add_edge(gpu, side)
    out = nx.maximum_flow_value(graph, "one", "other")
    back = nx.maximum_flow_value(graph, "other", "one")
    return float(min(out, back))

"""Which links a transfer crosses.

Hardware routes along shortest paths, counted in links; traffic spreads evenly over the paths that
are equally short. Bytes cut through: they cross all links of a path at one rate, each link adding its
latency to the first byte.
"""

from collections import defaultdict
from dataclasses import dataclass

from ficco_sim.errors import MachineError
from ficco_sim.machine import Machine

__all__ = ["Route", "Routes"]


@dataclass(frozen=True, slots=True)
class Route:
    """Links between two gpus, as indices into ``machine.links``.

    Parameters
    ----------
    links, shares
        The links of all equally short paths, and the part of the bytes that crosses each, 0 to 1.
    latency_s
        Time of the first byte over the slowest of the paths.
    """

    links: tuple[int, ...]
    shares: tuple[float, ...]
    latency_s: float


class Routes:
    """Finds the route between two gpus, each pair once.

    Examples
    --------
    >>> from ficco_sim.machine import load_machine
    >>> machine = load_machine("h200_2")
    >>> [machine.node_name(machine.links[i].dst) for i in Routes(machine)(0, 1).links]
    ['nvswitch', 'gpu 1']
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._direct = {(link.src, link.dst): i for i, link in enumerate(machine.links)}
        self._after: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for link in sorted(machine.links, key=lambda each: (each.src, each.dst)):
            self._after[link.src].append((link.dst, link.latency_s))
        self._known: dict[tuple[int, int], Route] = {}

    def __call__(self, src: int, dst: int) -> Route:
        """The direct link if there is one, else the shortest paths that the hardware offers.

        Raises
        ------
        MachineError
            If no link joins the two gpus and the hardware does not route between them.
        """
        route = self._known.get((src, dst))
        if route is None:
            direct = self._direct.get((src, dst))
            if direct is None:
                route = self._shortest(src, dst)
            else:
                route = Route((direct,), (1.0,), self._machine.links[direct].latency_s)
            self._known[src, dst] = route
        return route

    def direct(self, src: int, dst: int) -> bool:
        """Whether data gets from one gpu to another without any gpu in between."""
        try:
            self(src, dst)
        except MachineError:
            return False
        return True

    def _shortest(self, src: int, dst: int) -> Route:
        """Count shortest paths from the source outwards, then their shares back from the end."""
        machine = self._machine
        # of each node reached: hops, number of shortest paths, latency of the slowest of them
        reached: dict[int, tuple[int, int, float]] = {src: (0, 1, 0.0)}
        steps: list[tuple[int, int]] = []
        level = [src]
        while level and dst not in reached:
            found: dict[int, tuple[int, int, float]] = {}
            for u in level:
                hops, paths, latency_s = reached[u]
                for v, link_latency_s in self._after[u]:
                    if v in reached or (v != dst and not self._passes_on(v)):
                        continue
                    steps.append((u, v))
                    _, others, slowest_s = found.get(v, (0, 0, 0.0))
                    slowest_s = max(slowest_s, latency_s + link_latency_s)
                    found[v] = (hops + 1, paths + others, slowest_s)
            reached |= found
            level = list(found)
        if dst not in reached:
            raise MachineError(
                f"{machine.name}: no link joins gpu {src} to gpu {dst}, and its hardware does not "
                "route between gpus"
            )
        onward = {dst: 1}
        used = []
        for u, v in reversed(steps):
            if v in onward:
                onward[u] = onward.get(u, 0) + onward[v]
                used.append((u, v))
        _, total, latency_s = reached[dst]
        used.reverse()
        links = tuple(self._direct[u, v] for u, v in used)
        shares = tuple(reached[u][1] * onward[v] / total for u, v in used)
        return Route(links, shares, latency_s)

    def _passes_on(self, node: int) -> bool:
        return self._machine.hardware_routing or node >= self._machine.num_gpus

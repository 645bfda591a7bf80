"""Which links a transfer crosses.

Hardware routes along shortest paths, counted in links; traffic spreads evenly over the paths that
are equally short. Bytes cut through: they cross all links of a path at one rate, each link adding its
latency to the first byte.
"""

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
        import networkx as nx

        machine = self._machine
        graph = machine.graph()
        if not machine.hardware_routing:  # switches pass on, gpus do not
            graph.remove_nodes_from(g for g in range(machine.num_gpus) if g not in (src, dst))
        try:
            length = int(nx.shortest_path_length(graph, src, dst))
        except (nx.NetworkXNoPath, nx.NodeNotFound):
            raise MachineError(
                f"{machine.name}: no link joins gpu {src} to gpu {dst}, and its hardware does not "
                "route between gpus"
            ) from None
        from_src = nx.single_source_shortest_path_length(graph, src, cutoff=length)
        to_dst = nx.single_source_shortest_path_length(graph.reverse(copy=False), dst, cutoff=length)
        # number of shortest paths, and slowest of them, from src to each node and from it to dst
        ahead = {src: (1, 0.0)}
        steps: list[tuple[int, int]] = []
        for u in sorted(from_src, key=lambda node: (from_src[node], node)):
            if u not in ahead:
                continue
            for v in sorted(graph.successors(u)):
                if from_src.get(v) == from_src[u] + 1 and from_src[v] + to_dst.get(v, length) == length:
                    steps.append((u, v))
                    paths, latency_s = ahead.get(v, (0, 0.0))
                    via_s = ahead[u][1] + graph.edges[u, v]["latency_s"]
                    ahead[v] = (paths + ahead[u][0], max(latency_s, via_s))
        behind = {dst: 1}
        for u, v in reversed(steps):
            behind[u] = behind.get(u, 0) + behind[v]
        total, latency_s = ahead[dst]
        links = tuple(self._direct[u, v] for u, v in steps)
        shares = tuple(ahead[u][0] * behind[v] / total for u, v in steps)
        return Route(links, shares, latency_s)

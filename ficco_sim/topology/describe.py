"""What a machine's links amount to: distances, degrees, cuts, paths, and what looks odd."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ficco_sim.errors import MachineError
from ficco_sim.machine import Link, Machine
from ficco_sim.routing import Routes
from ficco_sim.topology.bisection import bisection

__all__ = ["Description", "Path", "describe", "direct_components", "find_path", "widest_path"]

KINDS = {"full_mesh": "mesh", "links": "links"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """A way from one gpu to another.

    Parameters
    ----------
    nodes
        Names of the gpus and switches that it passes, ends included.
    bandwidth_bytes_per_s
        Of its narrowest link.
    hops
        Gpus that it reaches, the last included: a path through switches alone has one.
    """

    nodes: tuple[str, ...]
    bandwidth_bytes_per_s: float
    hops: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectedLink:
    """A link by the names of its ends, gpus as numbers."""

    src: int | str
    dst: int | str
    bandwidth_bytes_per_s: float
    usable_bytes_per_s: float
    latency_s: float
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What a machine's links amount to.

    Parameters
    ----------
    num_links, num_physical_links
        Directed links; and counting each of several parallel ones.
    num_direct_pairs
        Pairs of gpus with a direct link, in either direction.
    kind
        switch, mesh, ring, torus, hypercube or links.
    diameter
        Most hops between two gpus on their shortest paths; a hop ends at a gpu, so that a path
        through switches alone is one hop. None if some gpu cannot reach another.
    degree
        Direct links out of each gpu to gpus or switches, parallel ones counted one by one.
    egress_bytes_per_s
        Out of each gpu, all its links together.
    bisection_bytes_per_s, bisection_exact
        See `ficco_sim.topology.bisection`.
    direct_components
        Groups of gpus that direct links join, switches left out.
    """

    name: str
    gpu: str
    num_gpus: int
    num_switches: int
    num_links: int
    num_physical_links: int
    num_direct_pairs: int
    links: tuple[DirectedLink, ...]
    kind: str
    diameter: int | None
    degree: tuple[int, ...]
    egress_bytes_per_s: tuple[float, ...]
    bisection_bytes_per_s: float | None
    bisection_exact: bool
    direct_components: tuple[tuple[int, ...], ...]
    hardware_routing: bool
    warnings: tuple[str, ...]


def describe(machine: Machine) -> Description:
    """Describe a machine's links; bandwidths are those of the data sheet, per direction."""
    degree = [0] * machine.num_gpus
    egress = [0.0] * machine.num_gpus
    for link in machine.links:
        if link.src < machine.num_gpus:
            degree[link.src] += link.width
            egress[link.src] += link.bandwidth_bytes_per_s
    after = _successors(machine)
    reached = [_hops(after, machine.num_gpus, gpu) for gpu in range(machine.num_gpus)]
    known = [hops for row in reached for hops in row if hops is not None]
    diameter = max(known) if len(known) == machine.num_gpus**2 else None
    cut = bisection(machine)
    components = direct_components(machine)
    return Description(
        name=machine.name,
        gpu=machine.gpu.name,
        num_gpus=machine.num_gpus,
        num_switches=len(machine.switches),
        num_links=len(machine.links),
        num_physical_links=sum(link.width for link in machine.links),
        num_direct_pairs=len(_direct_pairs(machine)),
        links=tuple(_named(machine, link) for link in machine.links),
        kind=_kind(machine),
        diameter=diameter,
        degree=tuple(degree),
        egress_bytes_per_s=tuple(egress),
        bisection_bytes_per_s=None if cut is None else cut.bytes_per_s,
        bisection_exact=cut is not None and cut.exact,
        direct_components=components,
        hardware_routing=machine.hardware_routing,
        warnings=tuple(_warnings(machine, reached, components)),
    )


def _named(machine: Machine, link: Link) -> DirectedLink:
    def end(node: int) -> int | str:
        return node if node < machine.num_gpus else machine.node_name(node)

    return DirectedLink(
        src=end(link.src),
        dst=end(link.dst),
        bandwidth_bytes_per_s=link.bandwidth_bytes_per_s,
        usable_bytes_per_s=link.usable_bytes_per_s,
        latency_s=link.latency_s,
        width=link.width,
    )


def _direct_pairs(machine: Machine) -> set[tuple[int, int]]:
    num_gpus = machine.num_gpus
    return {
        (min(link.src, link.dst), max(link.src, link.dst))
        for link in machine.links
        if link.src < num_gpus and link.dst < num_gpus
    }


def _kind(machine: Machine) -> str:
    """The family; lists of links that amount to a mesh or one switch are called so."""
    if machine.family != "links":
        return KINDS.get(machine.family, machine.family)
    num_gpus, alike = machine.num_gpus, len({link.bandwidth_bytes_per_s for link in machine.links}) == 1
    pairs = {(link.src, link.dst) for link in machine.links}
    if not machine.switches and alike and len(pairs) == num_gpus * (num_gpus - 1):
        return "mesh"
    ports = {p for g in range(num_gpus) for p in ((g, num_gpus), (num_gpus, g))}
    return "switch" if len(machine.switches) == 1 and alike and pairs == ports else "links"


def _successors(machine: Machine) -> list[list[int]]:
    after: list[list[int]] = [[] for _ in range(machine.num_gpus + len(machine.switches))]
    for link in machine.links:
        after[link.src].append(link.dst)
    return after


def _hops(after: list[list[int]], num_gpus: int, gpu: int) -> list[int | None]:
    """Hops to each gpu, None where no path leads; entering a switch costs nothing."""
    if sum(peer < num_gpus for peer in after[gpu]) == num_gpus - 1:
        return [int(other != gpu) for other in range(num_gpus)]  # large meshes need no search
    hops: list[int | None] = [None] * len(after)
    hops[gpu] = 0
    queue = deque([gpu])
    while queue:
        node = queue.popleft()
        at = hops[node]
        assert at is not None
        for peer in after[node]:
            new = at + (peer < num_gpus)
            known = hops[peer]
            if known is None or new < known:
                hops[peer] = new
                # nodes at the same distance come before farther ones
                (queue.append if peer < num_gpus else queue.appendleft)(peer)
    return hops[:num_gpus]


def direct_components(machine: Machine) -> tuple[tuple[int, ...], ...]:
    """Groups of gpus that direct links join, either direction, in ascending order."""
    peers: dict[int, list[int]] = {g: [] for g in range(machine.num_gpus)}
    for i, j in _direct_pairs(machine):
        peers[i].append(j)
        peers[j].append(i)
    groups = []
    left = set(peers)
    while left:
        group, stack = set(), [min(left)]
        while stack:
            gpu = stack.pop()
            if gpu not in group:
                group.add(gpu)
                stack += peers[gpu]
        left -= group
        groups.append(tuple(sorted(group)))
    return tuple(groups)


def _warnings(
    machine: Machine, reached: list[list[int | None]], components: tuple[tuple[int, ...], ...]
) -> list[str]:
    found = []
    for gpu, row in enumerate(reached):
        missing = [other for other, hops in enumerate(row) if hops is None]
        if missing:
            found.append(
                f"gpu {gpu} cannot reach gpu {missing[0]}"
                + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")
            )
    if len(found) > 4:
        found = [*found[:4], f"{len(found) - 4} more gpus cannot reach all others"]
    far = sum(1 for row in reached for hops in row if hops is not None and hops > 1)
    if far and not machine.hardware_routing:
        found.append(
            f"{far} ordered pairs of gpus are more than one hop apart and hardware does not route "
            "between gpus: plans have to relay"
        )
    if machine.switches and 1 < len(components) < machine.num_gpus:
        found.append(
            f"direct links join {len(components)} separate groups of gpus; between groups traffic "
            "takes the switches"
        )
    used = {node for link in machine.links for node in (link.src, link.dst)}
    idle = [n for i, n in enumerate(machine.switches) if machine.num_gpus + i not in used]
    if idle:
        found.append(f"switches without links: {', '.join(idle[:8])}")
    return found


def widest_path(machine: Machine, src: int, dst: int) -> Path:
    """The path whose narrowest link is widest, of those the one with the fewest links.

    Raises
    ------
    MachineError
        If a gpu does not exist, both are the same or no path joins them.
    """
    _check_ends(machine, src, dst)
    rates = sorted({link.bandwidth_bytes_per_s for link in machine.links}, reverse=True)
    low, high = 0, len(rates)  # least width that still joins them, by halving
    while low < high:
        middle = (low + high) // 2
        if _shortest(machine, src, dst, rates[middle]) is None:
            low = middle + 1
        else:
            high = middle
    if low == len(rates):
        raise MachineError(f"{machine.name}: no path from gpu {src} to gpu {dst}")
    nodes = _shortest(machine, src, dst, rates[low])
    assert nodes is not None
    return _path(machine, nodes)


def find_path(machine: Machine, src: int, dst: int) -> tuple[Path, bool]:
    """The path that a transfer takes, and whether hardware routes it; else the shortest to relay by.

    Of equally short paths that hardware spreads traffic over, the first is given.

    Raises
    ------
    MachineError
        If a gpu does not exist, both are the same or no path joins them.
    """
    _check_ends(machine, src, dst)
    try:
        route = Routes(machine)(src, dst)
    except MachineError:
        nodes = _shortest(machine, src, dst, 0.0)
        if nodes is None:
            raise
        return _path(machine, nodes), False
    after = {machine.links[i].src: machine.links[i].dst for i in reversed(route.links)}
    nodes = [src]
    while nodes[-1] != dst:
        nodes.append(after[nodes[-1]])
    return _path(machine, nodes), True


def _check_ends(machine: Machine, src: int, dst: int) -> None:
    for gpu in (src, dst):
        if not 0 <= gpu < machine.num_gpus:
            raise MachineError(f"{machine.name}: gpu {gpu} must be from 0 to {machine.num_gpus - 1}")
    if src == dst:
        raise MachineError(f"{machine.name}: a route needs two different gpus, not gpu {src} twice")


def _shortest(machine: Machine, src: int, dst: int, least: float) -> list[int] | None:
    """Nodes of a path with the fewest links, none narrower than ``least``; ties to low numbers."""
    after: dict[int, list[int]] = {}
    for link in machine.links:
        if link.bandwidth_bytes_per_s >= least:
            after.setdefault(link.src, []).append(link.dst)
    came_from = {src: src}
    queue = deque([src])
    while queue:
        node = queue.popleft()
        if node == dst:
            nodes = [dst]
            while nodes[-1] != src:
                nodes.append(came_from[nodes[-1]])
            return nodes[::-1]
        for peer in sorted(after.get(node, ())):
            if peer not in came_from:
                came_from[peer] = node
                queue.append(peer)
    return None


def _path(machine: Machine, nodes: Sequence[int]) -> Path:
    rates = {(link.src, link.dst): link.bandwidth_bytes_per_s for link in machine.links}
    return Path(
        nodes=tuple(machine.node_name(node) for node in nodes),
        bandwidth_bytes_per_s=min(rates[a, b] for a, b in pairwise(nodes)),
        hops=sum(node < machine.num_gpus for node in nodes[1:]),
    )

"""Paths between gpus over PCIe, as links to switches: a bridge per group, a host per NUMA node."""

from collections.abc import Iterable
from itertools import combinations

from ficco_sim.machine import LinkEntry
from ficco_sim.readers.known import KnownGpu, known_file, known_source
from ficco_sim.readers.types import Matrix, Notes, Pair
from ficco_sim.units import GB

__all__ = ["components", "host_links"]

BRIDGE_PATHS = ("PIX", "PXB")
SOCKET_PATHS = ("SYS", "SOC")


def host_links(
    matrix: Matrix, typed: tuple[str, KnownGpu], notes: Notes, *, by_slot: bool
) -> tuple[list[str], list[LinkEntry]]:
    """Names of the host's switches, and links from gpus to them and between them.

    Parameters
    ----------
    by_slot
        Give each gpu a slot of its own before its bridge, so that a path over PCIe is never as
        short as one over a switch of the gpus and hardware does not prefer it.
    """
    name, gpu = typed
    host = known_file().host
    first_of = {group: g for g, group in reversed(list(enumerate(matrix.host_groups))) if group}
    near = [(g, first_of[group]) for g, group in enumerate(matrix.host_groups) if group]
    near += [pair for pair, path in matrix.pcie.items() if path not in SOCKET_PATHS]
    bridged = [pair for pair, path in matrix.pcie.items() if path in BRIDGE_PATHS]
    parts = components(matrix.num_gpus, near)
    links: list[LinkEntry] = []

    def join(a: int | str, b: int | str, rate: float) -> None:
        links.append(LinkEntry(src=a, dst=b, bandwidth_bytes_per_s=rate, latency_s=host.latency_s))

    host_of = {g: f"host{i}" for i, part in enumerate(parts) for g in part}
    names = [f"host{i}" for i in range(len(parts))]
    for group in components(matrix.num_gpus, bridged):
        top = host_of[group[0]]
        if len(group) > 1:
            names.append(f"pcie{group[0]}")
            join(names[-1], top, gpu.pcie_bytes_per_s)
            top = names[-1]
        for g in group:
            if by_slot:
                names.append(f"slot{g}")
                join(g, names[-1], gpu.pcie_bytes_per_s)
            join(names[-1] if by_slot else g, top, gpu.pcie_bytes_per_s)
    for i, j in combinations(range(len(parts)), 2):
        join(f"host{i}", f"host{j}", host.socket_bytes_per_s)
    _note((name, gpu), len(parts), notes)
    return names, links


def _note(typed: tuple[str, KnownGpu], num_hosts: int, notes: Notes) -> None:
    name, gpu = typed
    notes.facts["num_hosts"] = num_hosts
    notes.assume(
        f"PCIe: {gpu.pcie_bytes_per_s / GB:g} GB/s per gpu and direction "
        f"({known_source(f'gpus.{name}.pcie_bytes_per_s')}), shared by all peers that it reaches so; "
        "--no-pcie leaves it out"
    )
    if num_hosts > 1:
        host = known_file().host
        notes.assume(
            f"{num_hosts} parts of the host, {host.socket_bytes_per_s / GB:g} GB/s between each two "
            f"({known_source('host.socket_bytes_per_s')})"
        )


def components(num_gpus: int, pairs: Iterable[Pair]) -> list[tuple[int, ...]]:
    """Groups of gpus that the pairs join, each in ascending order."""
    import networkx as nx

    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(range(num_gpus))
    graph.add_edges_from(pairs)
    return sorted(tuple(sorted(group)) for group in nx.connected_components(graph))

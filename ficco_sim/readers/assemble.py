"""From a matrix of link types to a machine: switch or mesh, rates, and paths over PCIe."""

from collections.abc import Iterable
from itertools import combinations
from pathlib import PurePath

from ficco_sim.errors import MachineError
from ficco_sim.machine import LinkEntry, MachineFile, Topology
from ficco_sim.readers.host import components, host_links
from ficco_sim.readers.known import KnownGpu, choose_gpu, known_source
from ficco_sim.readers.types import Matrix, Notes, Options, Pair, Reading
from ficco_sim.units import GB, format_seconds

__all__ = ["assemble", "list_pairs", "make_file", "note_usable"]

SHOWN_PAIRS = 16


def assemble(matrix: Matrix, options: Options, notes: Notes, where: str) -> Reading:
    """Make the machine that a matrix describes, noting each assumption.

    Raises
    ------
    MachineError
        If the links contradict the gpu type, or are not what ``options.interpret`` says.
    """
    num_gpus = matrix.num_gpus
    notes.facts = {"num_gpus": num_gpus, **notes.facts}
    notes.facts["num_direct_pairs"] = len(matrix.direct)
    notes.facts["num_direct_links"] = sum(d.width for d in matrix.direct.values())
    name, gpu = choose_gpu(matrix, options, notes, where)
    rate, rate_source = _rate(matrix, options, notes, name, gpu)
    latency_s = _latency(options, notes, name, gpu)
    share = note_usable(options, notes, name, gpu)
    groups = [g for g in components(num_gpus, matrix.direct) if len(g) > 1]
    notes.facts["num_direct_components"] = len(components(num_gpus, matrix.direct))
    readings = {g: _reading(matrix, g, options, notes, (name, gpu), where) for g in groups}
    apart = [p for p in combinations(range(num_gpus), 2) if p not in matrix.direct]
    whole = len(groups) == 1 and not apart
    connected = len(groups) == 1 and len(groups[0]) == num_gpus
    pcie = not connected if options.pcie is None else options.pcie
    _note_apart(matrix, apart, notes, connected=connected, pcie=pcie)
    pcie = pcie and num_gpus > 1

    def link(i: int | str, j: int | str, width: int, total: float) -> LinkEntry:
        return LinkEntry(
            src=i,
            dst=j,
            bandwidth_bytes_per_s=total,
            usable_bytes_per_s=total * share if share < 1 else None,
            latency_s=latency_s,
            width=width,
        )

    totals = {p: d.bandwidth_bytes_per_s or d.width * rate for p, d in matrix.direct.items()}
    if options.bandwidth_bytes_per_s is not None:
        totals = {p: d.width * rate for p, d in matrix.direct.items()}
    kind = "links"
    if whole and not pcie and len(set(totals.values())) == 1:
        kind = readings[groups[0]]
        total = next(iter(totals.values()))
        topology = Topology(
            family="full_mesh" if kind == "mesh" else "switch",
            bandwidth_bytes_per_s=total,
            usable_bytes_per_s=total * share if share < 1 else None,
            latency_s=latency_s,
        )
        return Reading(file=make_file(where, name, num_gpus, topology, rate_source, notes), kind=kind)
    links: list[LinkEntry] = []
    switches: list[str] = []
    for group, reading in readings.items():
        pairs = [p for p in totals if p[0] in group]
        if reading == "switch":
            switches.append(f"nvswitch{len(switches)}")
            width = matrix.direct[pairs[0]].width
            links += [link(g, switches[-1], width, totals[pairs[0]]) for g in sorted(group)]
        else:
            links += [link(i, j, matrix.direct[i, j].width, totals[i, j]) for i, j in sorted(pairs)]
    if pcie:
        hosts, paths = host_links(matrix, (name, gpu), notes, by_slot=bool(switches))
        switches += hosts
        links += paths
    topology = Topology(family="links", switches=tuple(switches), links=tuple(links))
    return Reading(file=make_file(where, name, num_gpus, topology, rate_source, notes), kind=kind)


def _rate(
    matrix: Matrix, options: Options, notes: Notes, name: str, gpu: KnownGpu
) -> tuple[float, str]:
    """Bytes/s of one link and direction, and where it is from."""
    if options.bandwidth_bytes_per_s is not None:
        return options.bandwidth_bytes_per_s, "estimated: link rate as given on import"
    if matrix.link_bytes_per_s is not None:
        notes.facts["link_bytes_per_s"] = matrix.link_bytes_per_s
        return matrix.link_bytes_per_s, "stated: link rate as printed by the tool that was read"
    rate = gpu.bandwidth_bytes_per_s
    source = known_source(f"gpus.{name}.bandwidth_bytes_per_s")
    if matrix.direct:
        notes.assume(
            f"{rate / GB:g} GB/s per {matrix.link_name} link and direction ({source}); "
            "--bandwidth changes it"
        )
    return rate, source


def _latency(options: Options, notes: Notes, name: str, gpu: KnownGpu) -> float:
    if options.latency_s is not None:
        return options.latency_s
    source = known_source(f"gpus.{name}.latency_s")
    notes.assume(
        f"latency of {format_seconds(gpu.latency_s)} per link ({source}); --latency changes it"
    )
    return gpu.latency_s


def note_usable(options: Options, notes: Notes, name: str, gpu: KnownGpu) -> float:
    """The usable share of links; 1 unless asked for, saying so where less was measured."""
    if options.usable_share is not None:
        return options.usable_share
    if gpu.usable_bytes_per_s is not None:
        share = gpu.usable_bytes_per_s / gpu.bandwidth_bytes_per_s
        source = known_source(f"gpus.{name}.usable_bytes_per_s")
        notes.assume(
            f"links carry their full rate, though {share:.0%} of it was seen on {name} ({source}); "
            f"--usable-share {share:.2f} counts that"
        )
    return 1.0


def _reading(
    matrix: Matrix,
    group: tuple[int, ...],
    options: Options,
    notes: Notes,
    typed: tuple[str, KnownGpu],
    where: str,
) -> str:
    """Whether the links of a group of gpus go through a switch or straight to each peer, and why."""
    name, gpu = typed
    inside = set(group)
    widths = {p: d.width for p, d in matrix.direct.items() if p[0] in inside}
    peers = len(group) - 1
    used = {g: sum(w for p, w in widths.items() if g in p) for g in group}
    has = matrix.links_per_gpu or gpu.num_links
    whose = "the text lists" if matrix.links_per_gpu else f"{name} gpus have"
    uniform = len(widths) == len(group) * peers // 2 and len(set(widths.values())) == 1
    width = max(widths.values())
    # groups that are alike are told of once
    of = "all gpus" if len(group) == matrix.num_gpus else f"each group of {len(group)} gpus"
    if options.interpret is not None:
        if options.interpret == "switch" and not uniform:
            raise MachineError(
                f"{where}: interpret: switch needs the same number of links between all gpus of a "
                "group; these differ"
            )
        notes.facts["reading"] = options.interpret
        notes.assume(f"{matrix.link_name} links of {of}: {options.interpret}, as asked")
        if max(used.values()) > has and options.interpret == "mesh":
            notes.warn(f"a mesh needs {max(used.values())} links of a gpu; {whose} {has}")
        return options.interpret
    busiest = max(group, key=lambda g: used[g])
    if used[busiest] <= has:
        if uniform:
            notes.facts["reading"] = "mesh"
            notes.assume(
                f"mesh, not switch: {width} links x {peers} peers = {width * peers} of the {has} links "
                f"{whose}, so {of} have links of their own to each peer; --interpret switch if not"
            )
        return "mesh"
    if uniform and width <= has:
        notes.facts["reading"] = "switch"
        notes.assume(
            f"switch, not mesh: {width} links x {peers} peers = {width * peers} > the {has} links "
            f"{whose}, so {of} share {width} links to a switch with all peers; "
            "--interpret mesh if not"
        )
        return "switch"
    line = max((d for p, d in matrix.direct.items() if busiest in p), key=lambda d: d.width).line
    raise MachineError(
        f"{where}: line {line}: gpu {busiest} uses {used[busiest]} {matrix.link_name} links, "
        f"{whose} {has}; another --gpu, or --interpret, may be right"
    )


def list_pairs(pairs: Iterable[Pair]) -> str:
    """Pairs as ``0-5, 0-6``, the first of them if they are many."""
    every = [f"{i}-{j}" for i, j in pairs]
    more = len(every) - SHOWN_PAIRS
    return ", ".join(every[:SHOWN_PAIRS]) + (f" and {more} more" if more > 0 else "")


def _note_apart(
    matrix: Matrix, apart: list[Pair], notes: Notes, *, connected: bool, pcie: bool
) -> None:
    if apart:
        notes.warn(
            f"{len(apart)} pairs have no direct {matrix.link_name} link ({list_pairs(apart)}): what "
            "they exchange is relayed by other gpus or goes over the host"
        )
    if connected and not pcie and apart:
        notes.assume(
            f"paths over PCIe left out, since {matrix.link_name} connects all gpus; --pcie adds them"
        )
    elif not connected and not pcie and matrix.num_gpus > 1:
        notes.warn("without PCIe not all gpus can reach each other")


def make_file(
    where: str,
    gpu: str,
    num_gpus: int,
    topology: Topology,
    source: str,
    notes: Notes,
) -> MachineFile:
    """The machine file of an import, named after the file that was read."""
    stem = PurePath(where).name.partition(".")[0]
    name = "".join(c if c.isalnum() else "_" for c in stem).strip("_") or "imported"
    reading = notes.facts.get("reading")
    shape = f" ({reading})" if reading else ""
    return MachineFile(
        format_version=1,
        name=name[:60],
        description=f"{num_gpus} {gpu} gpus{shape}, imported from {PurePath(where).name[:80]}",
        num_gpus=num_gpus,
        gpu=gpu,
        topology=topology,
        sources={
            "topology": "; ".join([source, *(f"assumed on import: {a}" for a in notes.assumptions)])
        },
    )

"""Graphs: GraphML and networkx's node-link JSON, with rates and latencies on the edges."""

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ficco_sim import io
from ficco_sim.errors import FileError
from ficco_sim.machine import LinkEntry, Topology
from ficco_sim.readers.assemble import make_file
from ficco_sim.readers.known import default_gpu, known_source
from ficco_sim.readers.text import shown
from ficco_sim.readers.types import MAX_GPUS, MAX_LISTED_LINKS, Notes, Options, Reading
from ficco_sim.units import GB, GIB, format_seconds

__all__ = ["is_graphml", "is_node_link", "read_graphml", "read_node_link"]

RATE_UNITS: dict[str, float] = {
    "GBps": GB, "GB/s": GB, "GB_per_s": GB, "GiBps": GIB, "GiB/s": GIB, "GiB_per_s": GIB, "MBps": 10**6,
    "MB/s": 10**6, "Bps": 1, "B/s": 1, "bytes_per_s": 1, "Gbps": GB / 8, "Gbit/s": GB / 8,
    "Gbit_per_s": GB / 8,
}  # fmt: skip
PER_SECOND: dict[str, float] = {"s": 1, "ms": 1e3, "us": 1e6, "ns": 1e9}
SWITCH_WORD = re.compile(r"(?i)(nv)?switch|leaf|spine|host|nic|sw\d|pcie|network")
ENTITY = re.compile(r"(?i)<!\s*(DOCTYPE|ENTITY)")
TRAILING_NUMBER = re.compile(r"(.*?)(\d{1,9})\Z", re.DOTALL)
MOST_PARALLEL = 1024


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge between two nodes, by their ids in the file."""

    src: str
    dst: str
    attributes: dict[str, Any]

    @property
    def name(self) -> str:
        """For error messages."""
        return f"edge {shown(self.src)} to {shown(self.dst)}"


def is_graphml(text: str) -> bool:
    """Whether the text is XML."""
    return text.lstrip("\ufeff \t\r\n").startswith("<")


def is_node_link(text: str) -> bool:
    """Whether the text is a JSON object with nodes."""
    return text.lstrip().startswith("{") and '"nodes"' in text


def read_graphml(text: str, where: str, options: Options, notes: Notes) -> Reading:
    """Read GraphML; edges carry attributes such as ``bandwidth_GBps`` and ``latency_us``.

    Raises
    ------
    FileError
        If the text is not GraphML, defines entities (which can grow without bound), or an edge has no
        rate, joins unknown nodes or a node to itself.
    """
    import networkx as nx

    if match := ENTITY.search(text):
        line = text.count("\n", 0, match.start()) + 1
        raise FileError(f"{where}: line {line}: a document type or entity is defined; it is not read")
    from xml.etree.ElementTree import ParseError, fromstring

    try:
        root = fromstring(text)  # noqa: S314 - entities are refused above, the size is bounded
        declared = [node.get("id") for node in root.iterfind(".//{*}graph/{*}node")]
        with warnings.catch_warnings(record=True) as odd:
            warnings.simplefilter("always")
            parsed = nx.parse_graphml(text, node_type=str, force_multigraph=True)
    except ParseError as error:
        raise FileError(f"{where}: line {error.position[0]}: not XML: {error.msg}") from error
    except (nx.NetworkXError, ValueError, KeyError, TypeError, AttributeError, LookupError) as error:
        raise FileError(f"{where}: not GraphML: {shown(str(error))}") from error
    for message in dict.fromkeys(str(warning.message) for warning in odd):
        notes.warn(message[:200])
    return _read(parsed, [str(node) for node in declared], where, options, notes)


def read_node_link(text: str, where: str, options: Options, notes: Notes) -> Reading:
    """Read networkx's node-link JSON; edges lie under ``links`` or ``edges``.

    Raises
    ------
    FileError
        As for `read_graphml`.
    """
    import networkx as nx

    document = io.parse_json(text, where)
    key = next((k for k in ("links", "edges") if isinstance(document, dict) and k in document), None)
    if key is None or not isinstance(document.get("nodes"), list):
        raise FileError(f"{where}: node-link JSON needs the lists nodes and links (or edges)")
    for name, needed in (("nodes", ("id",)), (key, ("source", "target"))):
        entries = document[name]
        if not isinstance(entries, list):
            raise FileError(f"{where}: {name}: must be a list")
        for position, entry in enumerate(entries):
            for part in needed:
                value = entry.get(part) if isinstance(entry, dict) else None
                if not isinstance(value, (int, str)) or isinstance(value, bool):
                    raise FileError(
                        f"{where}: {name}[{position}].{part}: {shown(value)} must be text or a number"
                    )
    # parallel edges get numbers of our own; those in the file may be missing or repeat
    plain: dict[str, Any] = {
        "directed": document.get("directed") is True,
        "multigraph": True,
        "nodes": [{**node, "id": str(node["id"])} for node in document["nodes"]],
        "edges": [
            {**edge, "source": str(edge["source"]), "target": str(edge["target"]), "key": number}
            for number, edge in enumerate(document[key])
        ],
    }
    try:
        parsed = nx.node_link_graph(plain, edges="edges")
    except (nx.NetworkXError, ValueError, KeyError, TypeError) as error:
        raise FileError(f"{where}: not node-link JSON: {shown(str(error))}") from error
    return _read(parsed, [node["id"] for node in plain["nodes"]], where, options, notes)


def _read(parsed: Any, declared: list[str], where: str, options: Options, notes: Notes) -> Reading:
    if len(set(declared)) < len(declared):
        twice = next(node for node in declared if declared.count(node) > 1)
        raise FileError(f"{where}: the node {shown(twice)} occurs twice")
    edges = [Edge(str(u), str(v), dict(data)) for u, v, data in parsed.edges(data=True)]
    if len(edges) > MAX_LISTED_LINKS:
        raise FileError(f"{where}: {len(edges):,} edges are more than {MAX_LISTED_LINKS:,}")
    for edge in edges:
        for node in (edge.src, edge.dst):
            if node not in set(declared):
                raise FileError(f"{where}: {edge.name}: there is no node {shown(node)}")
        if edge.src == edge.dst:
            raise FileError(f"{where}: {edge.name}: a node has no link to itself")
    switches = [n for n in declared if _is_switch(n, parsed.nodes[n], where)]
    gpus = _in_order([n for n in declared if n not in set(switches)], where, notes)
    if not 1 <= len(gpus) <= MAX_GPUS:
        raise FileError(f"{where}: {len(gpus):,} gpus; from 1 to {MAX_GPUS} can be read")
    gpu, known = default_gpu(options, notes)
    latency_s = options.latency_s
    if latency_s is None and not all(_has(edge, "latency", PER_SECOND) for edge in edges):
        latency_s = known.latency_s
        notes.assume(
            f"latency of {format_seconds(latency_s)} for edges without one "
            f"({known_source(f'gpus.{gpu}.latency_s')}); --latency changes it for all"
        )
    names: dict[str, int | str] = {node: index for index, node in enumerate(gpus)}
    names |= {node: node for node in switches}
    both_ways = not parsed.is_directed()
    links = tuple(_links(edges, names, options, latency_s, where, both_ways=both_ways))
    notes.facts |= {
        "num_gpus": len(gpus),
        "num_switches": len(switches),
        "num_edges": len(edges),
        "num_parallel_edges": len(edges) - len(links),
        "directed": not both_ways,
    }
    if [str(i) for i in range(len(gpus))] != gpus:
        notes.facts["gpus"] = gpus
    topology = Topology(family="links", switches=tuple(switches), links=links)
    source = "stated: the graph that was read"
    return Reading(file=make_file(where, gpu, len(gpus), topology, source, notes), kind="links")


def _is_switch(node: str, attributes: dict[str, Any], where: str) -> bool:
    kind = attributes.get("kind", attributes.get("type"))
    if kind is None:
        return SWITCH_WORD.match(node) is not None
    if kind not in ("gpu", "switch"):
        raise FileError(f"{where}: node {shown(node)}: kind {shown(kind)} must be gpu or switch")
    return bool(kind == "switch")


def _in_order(nodes: list[str], where: str, notes: Notes) -> list[str]:
    """Gpus by the number at the end of their names, else as the file lists them."""
    matches = [TRAILING_NUMBER.match(node) for node in nodes]
    prefixes = {match.group(1) if match else None for match in matches}
    if None in prefixes or len(prefixes) > 1:
        notes.assume("gpus are numbered in the order of the file: their names are not numbers")
        return nodes
    numbers = {node: int(match.group(2)) for node, match in zip(nodes, matches, strict=True) if match}
    if len(set(numbers.values())) < len(numbers):
        raise FileError(f"{where}: two nodes have the same number, such as 1 and 01")
    return sorted(nodes, key=numbers.__getitem__)


def _has(edge: Edge, what: str, units: dict[str, float]) -> bool:
    return any(key == f"{what}_{unit}" for key in edge.attributes for unit in units)


def _value(edge: Edge, what: str, units: dict[str, float], where: str) -> float | None:
    """The attribute in SI units; None if the edge has none; one without a unit is refused."""
    found = [(k, u) for k in edge.attributes for u in units if k in (f"{what}_{u}", f"{what} [{u}]")]
    bare = [k for k in edge.attributes if k.lower().startswith(what) and k not in dict(found)]
    if len(found) > 1 or bare:
        keys = [k for k, _ in found] + bare
        raise FileError(
            f"{where}: {edge.name}: {', '.join(keys)}: one attribute with a unit is needed, such as "
            f"{what}_{next(iter(units))}; units are {', '.join(units)}"
        )
    if not found:
        return None
    key, unit = found[0]
    raw = edge.attributes[key]
    try:
        value = float(raw)
    except (TypeError, ValueError, OverflowError):
        value = float("nan")
    if isinstance(raw, bool) or not 0 <= value <= 1e18:
        raise FileError(f"{where}: {edge.name}: {key}: {shown(raw)} must be a number, 0 or more")
    return value / units[unit] if what == "latency" else value * units[unit]


def _links(
    edges: list[Edge],
    names: dict[str, int | str],
    options: Options,
    latency_s: float | None,
    where: str,
    *,
    both_ways: bool,
) -> Iterator[LinkEntry]:
    """A link for each pair of nodes and latency, parallel edges summed."""
    sums: dict[tuple[int | str, int | str, float], tuple[float, int]] = {}
    for edge in edges:
        src, dst = names[edge.src], names[edge.dst]
        if both_ways and (isinstance(src, str), src if isinstance(src, int) else 0, str(src)) > (
            isinstance(dst, str), dst if isinstance(dst, int) else 0, str(dst),
        ):  # fmt: skip
            src, dst = dst, src
        width = edge.attributes.get("width", 1)
        if isinstance(width, bool) or not isinstance(width, int) or not 1 <= width <= MOST_PARALLEL:
            raise FileError(f"{where}: {edge.name}: width: {shown(width)} must be a whole number")
        rate = options.bandwidth_bytes_per_s
        total = rate * width if rate else _value(edge, "bandwidth", RATE_UNITS, where)
        if not total:
            raise FileError(
                f"{where}: {edge.name}: no bandwidth; give an attribute such as bandwidth_GBps, or "
                f"--bandwidth for all (it has {', '.join(edge.attributes) or 'none'})"
            )
        own = None if options.latency_s is not None else _value(edge, "latency", PER_SECOND, where)
        delay = own if own is not None else latency_s
        assert delay is not None
        before = sums.get((src, dst, delay), (0.0, 0))
        sums[src, dst, delay] = (before[0] + total, before[1] + width)
    share = options.usable_share or 1.0
    for (src, dst, delay), (total, width) in sums.items():
        yield LinkEntry(
            src=src,
            dst=dst,
            bandwidth_bytes_per_s=total,
            usable_bytes_per_s=total * share if share < 1 else None,
            latency_s=delay,
            both_ways=both_ways,
            width=width,
        )

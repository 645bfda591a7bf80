"""A machine: gpus and the links between them, read from a file of data."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from ficco_sim import io
from ficco_sim.errors import MachineError
from ficco_sim.families import MAX_GPUS, Family, Pair, family_pairs
from ficco_sim.gemm_table import read_gemm_table
from ficco_sim.profile import MAX_LATENCY_S, MAX_VALUE, Gpu, GpuFile, Profile, check_numbers

if TYPE_CHECKING:
    import networkx as nx

__all__ = [
    "Family",
    "Link",
    "LinkEntry",
    "Machine",
    "MachineFile",
    "Topology",
    "load_machine",
    "load_machine_file",
    "named_machines",
]

STRICT = {"extra": "forbid", "strict": True}
MAX_LINKS = 1_100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A directed link between two nodes; nodes from ``num_gpus`` up are switches.

    Parameters
    ----------
    bandwidth_bytes_per_s
        Data-sheet rate of this direction.
    usable_bytes_per_s
        What protocol and encoding leave of it; the simulator uses this one.
    latency_s
        Time of the first byte over the link.
    width
        Physical links that make up this one; the bandwidth is that of all together.
    """

    src: int
    dst: int
    bandwidth_bytes_per_s: float
    usable_bytes_per_s: float
    latency_s: float
    width: int = 1

    def __post_init__(self) -> None:
        # large machines have a million links: look closer only at a bad one
        if not (
            0 < self.usable_bytes_per_s <= self.bandwidth_bytes_per_s <= MAX_VALUE
            and 0 <= self.latency_s <= MAX_LATENCY_S
        ):
            check_numbers(self, may_be_zero=("src", "dst", "latency_s"))
            _check_usable(self.bandwidth_bytes_per_s, self.usable_bytes_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkEntry:
    """A link in a file; ``src`` and ``dst`` are gpu numbers or names of switches.

    ``width`` is the number of physical links that the bandwidth is the sum of. Entries between the
    same two nodes are parallel links: they count as one link with the sum of their bandwidths.
    """

    __pydantic_config__: ClassVar = STRICT
    src: int | str
    dst: int | str
    bandwidth_bytes_per_s: float
    latency_s: float
    usable_bytes_per_s: float | None = None
    both_ways: bool = True
    width: int = 1

    def __post_init__(self) -> None:
        check_numbers(self, may_be_zero=("src", "dst", "latency_s"))
        _check_usable(self.bandwidth_bytes_per_s, self.usable_bytes_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The links of a machine: a family with one kind of link, or a list.

    Parameters
    ----------
    family
        ``full_mesh``: a link from every gpu to every other. ``ring``: to the next and (if
        ``both_ways``) the previous. ``torus``: neighbours along each of ``extents``. ``hypercube``:
        gpus whose numbers differ in one bit. ``switch``: one port to and one from a switch per gpu,
        so all peers share it. ``links``: as listed.
    bandwidth_bytes_per_s, usable_bytes_per_s, latency_s
        Of each link or port, per direction; usable is the bandwidth unless given.
    """

    __pydantic_config__: ClassVar = STRICT
    family: Family
    bandwidth_bytes_per_s: float | None = None
    usable_bytes_per_s: float | None = None
    latency_s: float | None = None
    extents: tuple[int, ...] | None = None
    both_ways: bool = True
    switches: tuple[str, ...] = ()
    links: tuple[LinkEntry, ...] | None = None

    def __post_init__(self) -> None:
        check_numbers(self, may_be_zero=("latency_s",))
        if self.family == "links":
            if self.links is None:
                raise MachineError("links: needed for the family links")
            for key in ("bandwidth_bytes_per_s", "usable_bytes_per_s", "latency_s", "extents"):
                if getattr(self, key) is not None:
                    raise MachineError(f"{key}: belongs to each link in the family links")
            return
        if self.links is not None or self.switches:
            raise MachineError(f"links, switches: only for the family links, not {self.family}")
        if self.bandwidth_bytes_per_s is None:
            raise MachineError(f"bandwidth_bytes_per_s: needed for the family {self.family}")
        if self.latency_s is None:
            raise MachineError(f"latency_s: needed for the family {self.family}")
        _check_usable(self.bandwidth_bytes_per_s, self.usable_bytes_per_s)
        if (self.extents is not None) != (self.family == "torus"):
            raise MachineError("extents: needed for the family torus and for no other")
        if self.extents is not None and not all(1 <= e <= MAX_GPUS for e in self.extents):
            raise MachineError(f"extents: {list(self.extents)} must be from 1 to {MAX_GPUS} each")


def _check_usable(bandwidth: float, usable: float | None) -> None:
    if usable is not None and usable > bandwidth:
        raise MachineError(
            f"usable_bytes_per_s: {usable:g} must not exceed bandwidth_bytes_per_s, {bandwidth:g}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFile:
    """The content of a machine file; ``gpu`` is the name of a file in ``gpus`` or its content."""

    __pydantic_config__: ClassVar = STRICT
    format_version: Literal[1]
    name: str
    description: str
    num_gpus: int
    gpu: str | GpuFile
    topology: Topology
    hardware_routing: bool = False
    sources: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 1 <= self.num_gpus <= MAX_GPUS:
            raise MachineError(f"num_gpus: {self.num_gpus} must be from 1 to {MAX_GPUS}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Gpus of one type, their profile, and directed links between them and switches.

    A transfer uses a direct link if there is one, else a path through switches, or through other
    gpus too if ``hardware_routing``.
    """

    name: str
    description: str
    num_gpus: int
    gpu: Gpu
    profile: Profile
    links: tuple[Link, ...]
    switches: tuple[str, ...] = ()
    family: Family = "links"
    extents: tuple[int, ...] | None = None
    hardware_routing: bool = False
    sources: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        num_nodes = self.num_gpus + len(self.switches)
        seen: set[Pair] = set()
        for link in self.links:
            pair = (link.src, link.dst)
            if link.src == link.dst:
                raise MachineError(f"{self.name}: a link from {self.node_name(link.src)} to itself")
            for node in pair:
                if not 0 <= node < num_nodes:
                    raise MachineError(
                        f"{self.name}: link {link.src} -> {link.dst}: gpu {node} does not exist; "
                        f"gpus are 0 to {self.num_gpus - 1}"
                    )
            if pair in seen:
                raise MachineError(
                    f"{self.name}: two links {self.node_name(link.src)} -> "
                    f"{self.node_name(link.dst)}; give one with the sum of their bandwidths"
                )
            seen.add(pair)

    def node_name(self, node: int) -> str:
        """``gpu 3`` or the name of a switch."""
        if 0 <= node - self.num_gpus < len(self.switches):
            return self.switches[node - self.num_gpus]
        return f"gpu {node}"

    def graph(self) -> "nx.DiGraph[int]":
        """Nodes and directed links; edges carry index, ``usable_bytes_per_s`` and ``latency_s``."""
        import networkx as nx

        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from(range(self.num_gpus + len(self.switches)))
        for index, link in enumerate(self.links):
            graph.add_edge(
                link.src,
                link.dst,
                index=index,
                usable_bytes_per_s=link.usable_bytes_per_s,
                latency_s=link.latency_s,
            )
        return graph

    def with_links(self, *, scale: float = 1.0, usable_bytes_per_s: float | None = None) -> "Machine":
        """The same machine with faster or slower links, for what-if questions.

        Parameters
        ----------
        scale
            Factor on the bandwidth of every link.
        usable_bytes_per_s
            A bandwidth for every link, raw and usable, instead of the present one.

        Raises
        ------
        MachineError
            If a link would have no bandwidth, or an impossible one.
        """
        links = []
        for link in self.links:
            bandwidth, usable = link.bandwidth_bytes_per_s, link.usable_bytes_per_s
            if usable_bytes_per_s is not None:
                bandwidth = usable = usable_bytes_per_s
            links.append(
                replace(
                    link, bandwidth_bytes_per_s=bandwidth * scale, usable_bytes_per_s=usable * scale
                )
            )
        return replace(self, links=tuple(links))


@functools.cache
def named_machines() -> tuple[str, ...]:
    """Names of the machines that come with the package."""
    return tuple(sorted(path.stem for path in io.data_folder().glob("*.yaml")))


def load_machine(name: str) -> Machine:
    """Read a named machine, or a machine file.

    Parameters
    ----------
    name
        A name from `named_machines`, or a path that ends in .yaml, .yml or .json.

    Raises
    ------
    MachineError, FileError
        If the name is unknown or the file is wrong; the message names file, key, value and rule.
    """
    path = _machine_path(name)
    return build_machine(io.load(path, MachineFile), str(path))


def load_machine_file(name: str) -> tuple[MachineFile, GpuFile]:
    """The content of a machine's file and of its gpu's, as they are written.

    Raises
    ------
    MachineError, FileError
        As `load_machine`.
    """
    path = _machine_path(name)
    file = io.load(path, MachineFile)
    build_machine(file, str(path))  # refuses what no machine can be
    if isinstance(file.gpu, str):
        return file, io.load(io.data_folder() / "gpus" / f"{file.gpu}.yaml", GpuFile)
    return file, file.gpu


def _machine_path(name: str) -> Path:
    if name.endswith((".yaml", ".yml", ".json")):
        return Path(name)
    if name in named_machines():
        return io.data_folder() / f"{name}.yaml"
    raise MachineError(f"machine {name!r} is unknown; one of: {', '.join(named_machines())}")


def build_machine(file: MachineFile, where: str) -> Machine:
    """Make a machine from the content of its file; ``where`` names the file in errors."""
    if isinstance(file.gpu, str):
        gpu_file = _load_gpu(file.gpu, where)
    else:
        gpu_file = _with_table(file.gpu, Path(where).parent, where)
    sources = {f"gpu.{key}": text for key, text in gpu_file.sources.items()} | file.sources
    try:
        switches, links = _make_links(file.topology, file.num_gpus)
        return Machine(
            name=file.name,
            description=file.description,
            num_gpus=file.num_gpus,
            gpu=gpu_file.gpu,
            profile=gpu_file.profile,
            links=links,
            switches=switches,
            family=file.topology.family,
            extents=file.topology.extents,
            hardware_routing=file.hardware_routing,
            sources=sources,
        )
    except MachineError as error:
        raise MachineError(f"{where}: topology: {error}") from error


def _load_gpu(name: str, where: str) -> GpuFile:
    folder = io.data_folder() / "gpus"
    known = sorted(path.stem for path in folder.glob("*.yaml"))
    if name not in known:
        raise MachineError(f"{where}: gpu: {name!r} is unknown; one of: {', '.join(known)}")
    path = folder / f"{name}.yaml"
    return _with_table(io.load(path, GpuFile), folder, str(path))


def _with_table(file: GpuFile, folder: Path, where: str) -> GpuFile:
    """A gpu with the measured shapes of its table, a file beside its own."""
    name = file.profile.gemm.measured_file
    if not name:
        return file
    if Path(name).name != name:
        raise MachineError(f"{where}: measured_file: {name!r} must be a file name without folders")
    gemm = file.profile.gemm
    measured = (*gemm.measured, *read_gemm_table(folder / name))
    gemm = replace(gemm, measured=measured, measured_file="")
    return replace(file, profile=replace(file.profile, gemm=gemm))


def _make_links(topology: Topology, num_gpus: int) -> tuple[tuple[str, ...], tuple[Link, ...]]:
    if topology.family == "links":
        return topology.switches, _merged(topology, num_gpus)
    bandwidth, latency_s = topology.bandwidth_bytes_per_s, topology.latency_s
    assert bandwidth is not None
    assert latency_s is not None
    switches, pairs = family_pairs(
        topology.family, num_gpus, topology.extents, both_ways=topology.both_ways
    )
    links = tuple(
        Link(
            src=src,
            dst=dst,
            bandwidth_bytes_per_s=bandwidth,
            usable_bytes_per_s=topology.usable_bytes_per_s or bandwidth,
            latency_s=latency_s,
        )
        for src, dst in pairs
    )
    return switches, links


def _merged(topology: Topology, num_gpus: int) -> tuple[Link, ...]:
    """The listed links, parallel ones made one: bytes spread over them as over one of their sum."""
    links: dict[Pair, Link] = {}
    for link in _listed_links(topology, num_gpus):
        pair = (link.src, link.dst)
        other = links.get(pair)
        if other is None:
            links[pair] = link
            continue
        if other.latency_s != link.latency_s:
            src, dst = (
                f"gpu {node}" if node < num_gpus else topology.switches[node - num_gpus]
                for node in pair
            )
            raise MachineError(
                f"links: parallel links {src} -> {dst} have latencies {other.latency_s:g} s and "
                f"{link.latency_s:g} s; they must be equal"
            )
        links[pair] = replace(
            other,
            bandwidth_bytes_per_s=other.bandwidth_bytes_per_s + link.bandwidth_bytes_per_s,
            usable_bytes_per_s=other.usable_bytes_per_s + link.usable_bytes_per_s,
            width=other.width + link.width,
        )
    return tuple(links.values())


def _listed_links(topology: Topology, num_gpus: int) -> Iterator[Link]:
    assert topology.links is not None
    names = {name: num_gpus + i for i, name in enumerate(topology.switches)}
    if len(names) < len(topology.switches):
        raise MachineError(f"switches: {list(topology.switches)}: a name occurs twice")
    if len(topology.links) > MAX_LINKS:
        raise MachineError(f"links: {len(topology.links):,} are more than {MAX_LINKS:,}")
    both_ways: dict[tuple[int, int], int] = {}
    for position, entry in enumerate(topology.links):
        nodes = []
        for key in ("src", "dst"):
            node = getattr(entry, key)
            if isinstance(node, str):
                if node not in names:
                    raise MachineError(
                        f"links[{position}].{key}: no switch {node!r}; switches are {list(names)}"
                    )
                nodes.append(names[node])
            elif not 0 <= node < num_gpus:
                raise MachineError(
                    f"links[{position}].{key}: gpu {node} must be from 0 to {num_gpus - 1}"
                )
            else:
                nodes.append(node)
        link = Link(
            src=nodes[0],
            dst=nodes[1],
            bandwidth_bytes_per_s=entry.bandwidth_bytes_per_s,
            usable_bytes_per_s=entry.usable_bytes_per_s or entry.bandwidth_bytes_per_s,
            latency_s=entry.latency_s,
            width=entry.width,
        )
        yield link
        if entry.both_ways:
            other = both_ways.get((link.dst, link.src))
            if other is not None:
                raise MachineError(
                    f"links[{position}]: links[{other}] is the same link from its other end and counts "
                    "both ways; leave one out, or set both_ways: false on each"
                )
            both_ways[link.src, link.dst] = position
            yield replace(link, src=link.dst, dst=link.src)

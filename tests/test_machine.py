"""Machines from files: families, links, routes, and every way to get them wrong. Layer: data."""

import copy
import dataclasses
import functools
import json
import math
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim_strategies import LINK, machine_of
from strategies import examples

from ficco_sim import io
from ficco_sim.errors import FiccoError, FileError, MachineError
from ficco_sim.machine import (
    Link,
    LinkEntry,
    Machine,
    MachineFile,
    Topology,
    build_machine,
    load_machine,
    named_machines,
)
from ficco_sim.routing import Routes

INF = math.inf


@functools.cache
def gpu_document() -> dict[str, Any]:
    document = io.read_document(io.data_folder() / "gpus" / "mi300x.yaml")
    return document | {"sources": {"gpu": "estimated: a test"}}


def mesh_document() -> dict[str, Any]:
    """A machine file with its gpu written out, so that every number of the schema is in it."""
    return {
        "format_version": 1,
        "name": "mesh",
        "description": "made for a test",
        "num_gpus": 4,
        "gpu": copy.deepcopy(gpu_document()),
        "topology": {"family": "full_mesh", **LINK},
    }


def links_document() -> dict[str, Any]:
    """Two pairs of gpus, each behind a switch of its own, and a trunk between the switches."""
    port = {"bandwidth_bytes_per_s": 100e9, "usable_bytes_per_s": 90e9, "latency_s": 1e-6}
    links = [{"src": gpu, "dst": f"leaf{gpu // 2}", **port} for gpu in range(4)]
    links.append({"src": "leaf0", "dst": "leaf1", **port, "bandwidth_bytes_per_s": 200e9})
    return {
        "format_version": 1,
        "name": "leaves",
        "description": "made for a test",
        "num_gpus": 4,
        "gpu": "h200",
        "topology": {"family": "links", "switches": ["leaf0", "leaf1"], "links": links},
    }


def load(tmp_path: Path, document: Any, name: str = "machine.json") -> Machine:
    path = tmp_path / name
    path.write_text(json.dumps(document))
    return load_machine(str(path))


def set_at(document: Any, path: tuple[str | int, ...], value: Any) -> Any:
    """A copy of the document with one value replaced."""
    document = copy.deepcopy(document)
    node = document
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return document


def numbers_in(node: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Paths to all numbers of a document but those of fits; of a list the first stands for all."""
    if isinstance(node, dict):
        parts = ((key, value) for key, value in node.items() if key != "fits")
        return [p for key, value in parts for p in numbers_in(value, (*path, key))]
    if isinstance(node, list):
        return numbers_in(node[0], (*path, 0)) if node else []
    is_number = isinstance(node, (int, float)) and not isinstance(node, bool)
    return [path] if is_number and path[-1] != "format_version" else []


def undirected(machine: Machine) -> set[frozenset[int]]:
    return {frozenset((link.src, link.dst)) for link in machine.links}


# machines that come with the package


@pytest.mark.parametrize("name", named_machines())
def test_every_named_machine_loads(name: str) -> None:
    machine = load_machine(name)
    assert machine.name == name
    assert machine.description
    assert machine.links
    graph = machine.graph()
    assert nx.is_strongly_connected(graph)
    assert graph.number_of_edges() == len(machine.links)


def test_the_named_machines_are_those_of_the_folder() -> None:
    assert named_machines() == tuple(sorted(p.stem for p in io.data_folder().glob("*.yaml")))
    assert {"mi300x_8", "h100_8", "h200_8", "h200_2", "ring_8", "torus_4x4"} <= set(named_machines())


def test_a_machine_file_by_path_is_the_machine_by_name() -> None:
    assert load_machine(str(io.data_folder() / "mi300x_8.yaml")) == load_machine("mi300x_8")


def test_an_unknown_machine_is_answered_with_the_known_ones() -> None:
    with pytest.raises(MachineError, match="machine 'mi300x_9' is unknown") as caught:
        load_machine("mi300x_9")
    for name in named_machines():
        assert name in str(caught.value)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(FileError, match=r"nowhere/machine\.yaml: no such file"):
        load_machine("nowhere/machine.yaml")


# families


@pytest.mark.parametrize("num_gpus", [1, 2, 3, 8, 9])
@pytest.mark.parametrize("family", ["full_mesh", "ring", "switch"])
def test_families_give_every_gpu_the_same_number_of_links(family: str, num_gpus: int) -> None:
    machine = machine_of(family, num_gpus)
    degree = {"full_mesh": num_gpus - 1, "ring": min(num_gpus - 1, 2), "switch": 1}[family]
    for gpu in range(num_gpus):
        assert sum(link.src == gpu for link in machine.links) == degree
        assert sum(link.dst == gpu for link in machine.links) == degree
    assert len(machine.switches) == (family == "switch")
    assert len(machine.links) == num_gpus * degree * (2 if family == "switch" else 1)
    assert {link.usable_bytes_per_s for link in machine.links} <= {46.5e9, 394e9}


def test_a_ring_of_two_has_one_link_each_way() -> None:
    """Both neighbours are the same gpu; it isn't joined twice."""
    machine = machine_of("ring", 2)
    assert [(link.src, link.dst) for link in machine.links] == [(0, 1), (1, 0)]
    assert machine.links == machine_of("ring", 2, both_ways=False).links


def test_a_one_way_ring_leads_to_the_next_gpu_only() -> None:
    machine = machine_of("ring", 5, both_ways=False)
    assert {(link.src, link.dst) for link in machine.links} == {(i, (i + 1) % 5) for i in range(5)}


@pytest.mark.parametrize(
    ("extents", "num_edges", "degree"),
    [
        pytest.param((4, 4), 32, 4, id="4x4"),
        pytest.param((4, 8), 64, 4, id="4x8"),
        pytest.param((3, 3, 3), 81, 6, id="3x3x3"),
        # along a dimension of 2 both neighbours are the same gpu
        pytest.param((2, 2, 2), 12, 3, id="cube"),
        pytest.param((2, 4), 12, 3, id="2x4"),
        pytest.param((1, 5), 5, 2, id="one-row"),
        pytest.param((1,), 0, 0, id="one-gpu"),
    ],
)
def test_torus(extents: tuple[int, ...], num_edges: int, degree: int) -> None:
    machine = machine_of("torus", math.prod(extents), extents=extents)
    assert len(undirected(machine)) == num_edges
    assert len(machine.links) == 2 * num_edges
    graph = machine.graph()
    assert set(dict(graph.out_degree()).values()) == {degree}
    assert nx.diameter(graph) == sum(extent // 2 for extent in extents)
    grid = nx.convert_node_labels_to_integers(
        nx.grid_graph(list(reversed(extents)), periodic=True), ordering="sorted"
    )
    grid.remove_edges_from(list(nx.selfloop_edges(grid)))
    assert undirected(machine) == {frozenset(edge) for edge in grid.edges}


@pytest.mark.parametrize("dimensions", [0, 1, 3, 4])
def test_hypercube(dimensions: int) -> None:
    machine = machine_of("hypercube", 2**dimensions)
    assert undirected(machine) == {
        frozenset((i, i ^ (1 << bit))) for i in range(2**dimensions) for bit in range(dimensions)
    }
    assert len(machine.links) == dimensions * 2**dimensions


def test_a_hypercube_needs_a_power_of_two(tmp_path: Path) -> None:
    document = set_at(mesh_document(), ("topology", "family"), "hypercube") | {"num_gpus": 6}
    with pytest.raises(FiccoError, match=r"machine\.json: .*num_gpus: 6"):
        load(tmp_path, document)


def test_a_one_way_torus_has_half_of_the_links() -> None:
    machine = machine_of("torus", 12, extents=(3, 4), both_ways=False)
    assert len(machine.links) == 24
    assert nx.is_strongly_connected(machine.graph())


def test_usable_bandwidth_is_the_bandwidth_unless_given(tmp_path: Path) -> None:
    document = mesh_document()
    del document["topology"]["usable_bytes_per_s"]
    assert {link.usable_bytes_per_s for link in load(tmp_path, document).links} == {64e9}


def test_listed_links_between_gpus_and_switches(tmp_path: Path) -> None:
    machine = load(tmp_path, links_document())
    assert machine.switches == ("leaf0", "leaf1")
    assert len(machine.links) == 10  # each is both ways
    assert machine.node_name(1) == "gpu 1"
    assert machine.node_name(5) == "leaf1"
    assert machine.links[0] == Link(
        src=0, dst=4, bandwidth_bytes_per_s=100e9, usable_bytes_per_s=90e9, latency_s=1e-6
    )
    trunks = [link for link in machine.links if {link.src, link.dst} == {4, 5}]
    assert [link.bandwidth_bytes_per_s for link in trunks] == [200e9, 200e9]


def test_a_listed_link_may_be_one_way(tmp_path: Path) -> None:
    document = links_document()
    document["topology"]["links"][0]["both_ways"] = False
    machine = load(tmp_path, document)
    assert len(machine.links) == 9
    with pytest.raises(MachineError, match="no link joins gpu 3 to gpu 0"):
        Routes(machine)(3, 0)


def test_the_graph_has_bandwidth_and_latency_on_its_edges() -> None:
    graph = machine_of("full_mesh", 3).graph()
    assert graph.edges[0, 2] == {"index": 1, "usable_bytes_per_s": 46.5e9, "latency_s": 0.5e-6}


# what-if questions


def test_links_can_be_scaled_and_set() -> None:
    machine = machine_of("full_mesh", 2)
    (link, _) = machine.with_links(scale=2.0).links
    assert (link.bandwidth_bytes_per_s, link.usable_bytes_per_s) == (128e9, 93e9)
    (link, _) = machine.with_links(usable_bytes_per_s=10e9, scale=3.0).links
    assert (link.bandwidth_bytes_per_s, link.usable_bytes_per_s) == (30e9, 30e9)
    assert link.latency_s == machine.links[0].latency_s


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, INF, 1e40])
def test_links_cannot_be_scaled_or_set_to_nonsense(bad: float) -> None:
    machine = machine_of("full_mesh", 2)
    with pytest.raises(MachineError, match="bandwidth_bytes_per_s"):
        machine.with_links(scale=bad)
    with pytest.raises(MachineError, match="bandwidth_bytes_per_s"):
        machine.with_links(usable_bytes_per_s=bad)


# routes


def crossed(machine: Machine, src: int, dst: int) -> list[tuple[str, str]]:
    links = [machine.links[i] for i in Routes(machine)(src, dst).links]
    return [(machine.node_name(link.src), machine.node_name(link.dst)) for link in links]


def test_a_direct_link_is_the_route() -> None:
    assert crossed(machine_of("full_mesh", 8), 5, 2) == [("gpu 5", "gpu 2")]


def test_a_switch_passes_on(tmp_path: Path) -> None:
    assert crossed(machine_of("switch", 8), 5, 2) == [("gpu 5", "nvswitch"), ("nvswitch", "gpu 2")]
    machine = load(tmp_path, links_document())
    assert crossed(machine, 0, 1) == [("gpu 0", "leaf0"), ("leaf0", "gpu 1")]
    assert crossed(machine, 0, 3) == [("gpu 0", "leaf0"), ("leaf0", "leaf1"), ("leaf1", "gpu 3")]
    assert Routes(machine)(0, 3).latency_s == pytest.approx(3e-6)


def test_a_gpu_passes_nothing_on_unless_the_hardware_routes() -> None:
    with pytest.raises(MachineError, match=r"ring-8-mi300x: no link joins gpu 2 to gpu 5"):
        Routes(machine_of("ring", 8))(2, 5)
    route = Routes(machine_of("ring", 8, hardware_routing=True))(2, 5)
    assert len(route.links) == 3
    assert route.shares == (1.0, 1.0, 1.0)
    assert route.latency_s == pytest.approx(1.5e-6)


def test_equally_short_paths_share_the_traffic() -> None:
    """Opposite gpus of a ring of four, and of a 4 x 4 torus one step away in both dimensions."""
    route = Routes(machine_of("ring", 4, hardware_routing=True))(0, 2)
    assert len(route.links) == 4
    assert set(route.shares) == {0.5}
    machine = machine_of("torus", 16, extents=(4, 4), hardware_routing=True)
    route = Routes(machine)(0, 5)
    assert sorted(crossed(machine, 0, 5)) == [
        ("gpu 0", "gpu 1"), ("gpu 0", "gpu 4"), ("gpu 1", "gpu 5"), ("gpu 4", "gpu 5"),
    ]  # fmt: skip
    assert set(route.shares) == {0.5}


@pytest.mark.parametrize("extents", [(8,), (4, 4), (3, 5), (2, 2, 2)])
def test_routes_are_shortest_and_carry_everything_once(extents: tuple[int, ...]) -> None:
    """What leaves the source and what reaches the destination is all; in between nothing is lost."""
    machine = machine_of("torus", math.prod(extents), extents=extents, hardware_routing=True)
    graph = machine.graph()
    for dst in range(1, machine.num_gpus):
        route = Routes(machine)(0, dst)
        balance = [0.0] * machine.num_gpus
        for i, share in zip(route.links, route.shares, strict=True):
            assert 0 < share <= 1
            balance[machine.links[i].src] += share
            balance[machine.links[i].dst] -= share
        expected = [0.0] * machine.num_gpus
        expected[0], expected[dst] = 1.0, -1.0
        assert balance == pytest.approx(expected)
        hops = nx.shortest_path_length(graph, 0, dst)
        assert sum(route.shares) == pytest.approx(hops)
        assert route.latency_s == pytest.approx(hops * 0.5e-6)


# bad numbers

NEVER = [-1, -0.5, math.nan, INF, -INF, 10**30, 1e30, "12", True, [1]]
MAY_BE_ZERO = {
    "setup_s", "completion_s", "startup_s", "wave_s", "split_s", "queue_gap_s", "event_wait_s",
    "graph_submit_s", "eager_submit_s", "latency_s", "edge_elements", "wave_rounding",
    "stream_overlap", "row_overhead_bytes", "dma_in", "dma_out", "core_in", "core_out", "src", "dst",
}  # fmt: skip


def shown(value: Any) -> str:
    return {"nan": "nan", "inf": "inf", "-inf": "-inf"}.get(str(value), str(value))


def assert_refused(tmp_path: Path, document: Any, path: tuple[str | int, ...], value: Any) -> None:
    """The error names the file, the key and the value."""
    with pytest.raises(FiccoError) as caught:
        load(tmp_path, set_at(document, path, value))
    message = str(caught.value)
    assert str(tmp_path / "machine.json") in message
    assert str([key for key in path if isinstance(key, str)][-1]) in message
    if not isinstance(value, list):
        assert shown(value) in message


@pytest.mark.parametrize("path", numbers_in(mesh_document()), ids=lambda p: ".".join(map(str, p)))
def test_bad_numbers_are_refused_with_file_key_and_value(tmp_path: Path, path) -> None:
    for value in NEVER:
        assert_refused(tmp_path, mesh_document(), path, value)


@pytest.mark.parametrize("path", numbers_in(mesh_document()), ids=lambda p: ".".join(map(str, p)))
def test_zero_is_refused_where_it_makes_no_sense(tmp_path: Path, path) -> None:
    if path[-1] in MAY_BE_ZERO:
        load(tmp_path, set_at(mesh_document(), path, 0))
    else:
        assert_refused(tmp_path, mesh_document(), path, 0)


LINK_PATHS = [p for p in numbers_in(links_document()) if "links" in p]


@pytest.mark.parametrize("path", LINK_PATHS, ids=lambda p: ".".join(map(str, p)))
def test_bad_numbers_of_listed_links_are_refused(tmp_path: Path, path) -> None:
    for value in NEVER:
        if not (path[-1] == "src" and isinstance(value, str)):  # may be the name of a switch
            assert_refused(tmp_path, links_document(), path, value)
    if path[-1] not in MAY_BE_ZERO:
        assert_refused(tmp_path, links_document(), path, 0)


@pytest.mark.parametrize("path", [("hardware_routing",), ("topology", "both_ways")])
def test_truth_values_are_not_numbers_or_text(tmp_path: Path, path) -> None:
    document = mesh_document() | {"hardware_routing": False}
    for value in (1, 0, "yes", 1.0):
        assert_refused(tmp_path, document, path, value)


def test_whole_numbers_are_not_fractions(tmp_path: Path) -> None:
    for path in (
        ("num_gpus",),
        ("gpu", "gpu", "num_compute_units"),
        ("gpu", "gpu", "num_dma_engines"),
        ("gpu", "profile", "core_copy", "compute_units"),
        ("gpu", "profile", "gemm", "splits", 0),
    ):
        assert_refused(tmp_path, mesh_document(), path, 2.5)


# bad structure


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("bandwith",), 1, "bandwith: unknown key"),
        (("topology", "latency_us"), 1, "topology.latency_us: unknown key"),
        (("gpu", "gpu", "cores"), 1, "gpu.gpu.cores: unknown key"),
        (("gpu", "profile", "copy", "rate"), 1, "gpu.profile.copy.rate: unknown key"),
        (("gpu",), "mi500", "gpu: 'mi500' is unknown; one of: .*h100, h200, .*mi300x"),
        (("format_version",), 2, "format_version: 2"),
        (("format_version",), "1", "format_version: '1'"),
        (("gpu", "format_version"), 0, "gpu.format_version: 0"),
        (("topology", "family"), "dragonfly", "topology.family: 'dragonfly'"),
        (("topology", "extents"), [2, 2], "extents: needed for the family torus and for no other"),
        (("topology", "switches"), ["s"], "switches: only for the family links, not full_mesh"),
        (("topology", "links"), [], "links, switches: only for the family links, not full_mesh"),
        (("topology", "bandwidth_bytes_per_s"), None, "bandwidth_bytes_per_s: needed"),
        (("topology", "latency_s"), None, "latency_s: needed"),
        (("topology", "usable_bytes_per_s"), 65e9, r"usable_bytes_per_s: 6.5e\+10 must not exceed"),
        (("num_gpus",), 1025, "num_gpus: 1025 must be from 1 to 1024"),
        (("gpu", "profile", "core_copy", "compute_units"), 304, "core_copy.compute_units: 304"),
        (("gpu", "profile", "core_copy", "slowdown_beside_gemm"), 0.9, "slowdown_beside_gemm: 0.9"),
        (("gpu", "profile", "gemm", "rates", "bf16", "wave_rounding"), 1.1, "wave_rounding: 1.1"),
        (("gpu", "profile", "gemm", "rates", "bf16", "stream_overlap"), 1.1, "stream_overlap: 1.1"),
        (("gpu", "profile", "gemm", "splits"), [2, 4], r"splits: \[2, 4\] must hold 1"),
        (("gpu", "profile", "gemm", "splits"), [], r"splits: \[\] must hold 1"),
        (("gpu", "profile", "gemm", "tiles"), [], "tiles: at least one"),
        (("gpu", "profile", "gemm", "tiles"), [[64]], "tiles"),
        (("gpu", "profile", "gemm", "rates"), {}, "rates: no element type is given"),
        (("gpu", "gpu", "peak_flops_per_s"), {"bf61": 1e15}, "peak_flops_per_s: 'bf61' is unknown"),
        (("gpu", "profile", "regime"), "hot", "profile.regime: 'hot'"),
        (("gpu", "profile"), None, "gpu.profile"),
        (("sources",), {"a": 1}, "sources.a: 1"),
    ],
)
def test_bad_structure_is_refused_with_file_key_and_value(tmp_path: Path, path, value, message) -> None:
    with pytest.raises(FiccoError, match=rf"machine\.json: .*{message}"):
        load(tmp_path, set_at(mesh_document(), path, value))


@pytest.mark.parametrize("key", ["format_version", "name", "num_gpus", "gpu", "topology"])
def test_missing_keys_are_named(tmp_path: Path, key: str) -> None:
    document = mesh_document()
    del document[key]
    with pytest.raises(FileError, match=rf"machine\.json: {key}: missing"):
        load(tmp_path, document)


@pytest.mark.parametrize("document", [None, [], 3, "mesh", {}, [[]]])
def test_a_document_that_is_no_machine_is_refused(tmp_path: Path, document) -> None:
    with pytest.raises(FileError, match=r"machine\.json"):
        load(tmp_path, document)


@pytest.mark.parametrize(
    ("extents", "message"),
    [
        ([4, 4], r"extents: \[4, 4\] make 16 gpus, num_gpus is 8"),
        ([2, 2], r"extents: \[2, 2\] make 4 gpus, num_gpus is 8"),
        ([], r"extents: \[\] make"),
        ([8, 0], r"extents: \[8, 0\] must be from 1 to 1024 each"),
        ([-2, -4], r"extents: \[-2, -4\] must be from 1 to 1024 each"),
    ],
)
def test_extents_must_multiply_to_the_number_of_gpus(tmp_path: Path, extents, message) -> None:
    document = mesh_document() | {"num_gpus": 8}
    document["topology"] |= {"family": "torus", "extents": extents}
    with pytest.raises(FiccoError, match=rf"machine\.json: .*{message}"):
        load(tmp_path, document)


def test_a_torus_needs_extents(tmp_path: Path) -> None:
    document = set_at(mesh_document(), ("topology", "family"), "torus")
    with pytest.raises(FiccoError, match=r"machine\.json: .*extents: needed for the family torus"):
        load(tmp_path, document)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"src": 4}, r"links\[0\].src: gpu 4 must be from 0 to 3"),
        ({"dst": "leaf7"}, r"links\[0\].dst: no switch 'leaf7'; switches are \['leaf0', 'leaf1'\]"),
        ({"dst": 0}, "a link from gpu 0 to itself"),
        ({"src": "leaf0"}, "a link from leaf0 to itself"),
        ({"src": 1, "latency_s": 2e-6}, "parallel links gpu 1 -> leaf0 have latencies"),
        ({"width": 0}, "width: 0 must be more than 0"),
        ({"usable_bytes_per_s": 101e9}, "usable_bytes_per_s: 1.01e[+]11 must not exceed"),
        ({"bandwidth_bytes_per_s": None}, "bandwidth_bytes_per_s"),
        ({"speed": 1}, r"topology.links\[0\].speed: unknown key"),
    ],
)
def test_bad_links_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    document = links_document()
    document["topology"]["links"][0] |= change
    with pytest.raises(FiccoError, match=rf"machine\.json: .*{message}"):
        load(tmp_path, document)


def test_parallel_links_are_one_link_of_their_sum(tmp_path: Path) -> None:
    document = links_document()
    document["topology"]["links"].append(document["topology"]["links"][0] | {"width": 3})
    machine = load(tmp_path, document)
    assert len(machine.links) == 10
    assert machine.links[0] == Link(
        src=0, dst=4, bandwidth_bytes_per_s=200e9, usable_bytes_per_s=180e9, latency_s=1e-6, width=4
    )


def test_a_family_of_listed_links_takes_no_common_values(tmp_path: Path) -> None:
    for key, value in (("bandwidth_bytes_per_s", 1e9), ("latency_s", 1e-6), ("extents", [4])):
        document = set_at(links_document(), ("topology", key), value)
        with pytest.raises(FiccoError, match=f"{key}: belongs to each link in the family links"):
            load(tmp_path, document)
    document = links_document()
    del document["topology"]["links"]
    with pytest.raises(FiccoError, match="links: needed for the family links"):
        load(tmp_path, document)


def test_two_switches_of_one_name_are_refused(tmp_path: Path) -> None:
    document = set_at(links_document(), ("topology", "switches"), ["leaf0", "leaf1", "leaf0"])
    with pytest.raises(FiccoError, match=r"switches: .*a name occurs twice"):
        load(tmp_path, document)


def test_all_faults_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    document = mesh_document() | {"colour": "red"}
    document = set_at(document, ("topology", "latency_s"), "fast")
    with pytest.raises(FileError) as caught:
        load(tmp_path, document)
    assert "colour: unknown key" in str(caught.value)
    assert "topology.latency_s: 'fast'" in str(caught.value)


def test_scientific_numbers_of_yaml_are_numbers(tmp_path: Path) -> None:
    """YAML 1.1 reads 64e9 as text; a machine file means the number."""
    path = tmp_path / "machine.yaml"
    text = (io.data_folder() / "ring_8.yaml").read_text()
    assert "64e9" in text
    path.write_text(text)
    assert {link.bandwidth_bytes_per_s for link in load_machine(str(path)).links} == {64e9}


# broken text

PIECES = st.sampled_from(
    [
        "", " ", "\n", "\t", ":", ": ", "- ", "[", "]", "{", "}", "&a ", "*a ", "!!int ", "!!float ",
        "!!timestamp ", "!!binary ", "!!set ", "!!omap ", "!!pairs ", "!x ", "? ", "|\n", ">\n", "#",
        "%YAML 1.1\n---\n", "---\n", "...\n", "'", '"', "\\", "\x00", "\x85", "\ufeff", "\ud7ff",
        "0x", "0o", "1_0", "1:30", "2026-11-30", "2026-13-45", ".inf", ".nan", "~", "null", "1e999",
        "<<: ", "<<: *a", "=", "64e9", "-64e9", "9" * 40, "true", "yes", "2_0e3", "{a: b}: c", "[a]: b",
    ]
)  # fmt: skip
TEXT = (
    'format_version: 1\nname: t\ndescription: d\ngpu: mi300x\nnum_gpus: 4\ntopology:\n  family: torus\n'
    '  extents: [2, 2]\n  bandwidth_bytes_per_s: 64e9\n  latency_s: 0.5e-6\nhardware_routing: false\n'
    'sources:\n  topology.latency_s: "estimated: a test"\n'
)  # fmt: skip


@st.composite
def broken_texts(draw: st.DrawFn) -> str:
    """The text of a machine file with pieces cut out, put in, doubled or overwritten."""
    text = TEXT
    for _ in range(draw(st.integers(1, 4))):
        i, j = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
        match draw(st.sampled_from(["insert", "cut", "replace", "double", "truncate", "line"])):
            case "insert":
                text = text[:i] + draw(PIECES) + text[i:]
            case "cut":
                text = text[:i] + text[min(j, i + 20) :]
            case "replace":
                text = text[:i] + draw(PIECES | st.text(max_size=3)) + text[i + 1 :]
            case "double":
                text = text[:j] + text[i:]
            case "truncate":
                text = text[:i]
            case "line":
                lines = text.splitlines(keepends=True) or [""]
                lines[draw(st.integers(0, len(lines) - 1))] = draw(PIECES) + "\n"
                text = "".join(lines)
    return text


@examples(300)
@given(broken_texts())
def test_broken_text_raises_nothing_but_our_errors(tmp_path_factory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "broken.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        machine = load_machine(str(path))
    except FiccoError as error:
        message = str(error)
    else:
        assert machine.num_gpus >= 1
        return
    assert str(path) in message
    assert len(message) < 10_000


@examples(100)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_nothing_but_our_errors(tmp_path_factory, data: bytes) -> None:
    for suffix in ("yaml", "json"):
        path = tmp_path_factory.getbasetemp() / f"bytes.{suffix}"
        path.write_bytes(data)
        with pytest.raises(FileError, match=rf"bytes\.{suffix}"):
            load_machine(str(path))


# machines made in Python

GOOD = {"src": 0, "dst": 1, "bandwidth_bytes_per_s": 2e9, "usable_bytes_per_s": 1e9, "latency_s": 0.0}


def machine_with(*links: Link) -> Machine:
    base = load_machine("mi300x_8")
    return Machine(
        name="made", description="", num_gpus=2, gpu=base.gpu, profile=base.profile, links=links
    )


def test_links_made_in_python_are_checked_too() -> None:
    assert machine_with(Link(**GOOD)).num_gpus == 2
    for change in (
        {"bandwidth_bytes_per_s": 0.0},
        {"usable_bytes_per_s": 3e9},
        {"usable_bytes_per_s": -1.0},
        {"usable_bytes_per_s": math.nan},
        {"latency_s": -1e-9},
        {"latency_s": INF},
    ):
        (key,) = change
        with pytest.raises(MachineError, match=key):
            Link(**GOOD | change)
    with pytest.raises(MachineError, match="gpu 2 does not exist"):
        machine_with(Link(**GOOD | {"dst": 2}))
    with pytest.raises(MachineError, match="gpu -1 does not exist"):
        machine_with(Link(**GOOD | {"src": -1}))
    with pytest.raises(MachineError, match="a link from gpu 0 to itself"):
        machine_with(Link(**GOOD | {"dst": 0}))
    with pytest.raises(MachineError, match="two links gpu 0 -> gpu 1"):
        machine_with(Link(**GOOD), Link(**GOOD))


def test_a_machine_file_made_in_python_gives_the_machine_of_the_file(tmp_path: Path) -> None:
    document = mesh_document()
    file = io.decode(document, MachineFile, "test")
    assert build_machine(file, "test") == load(tmp_path, document)
    assert io.to_plain(file)["topology"]["family"] == "full_mesh"


def test_a_link_listed_from_both_ends_is_not_counted_twice():
    entry = LinkEntry(src=0, dst=1, bandwidth_bytes_per_s=1e9, latency_s=0.0)
    back = dataclasses.replace(entry, src=1, dst=0)
    with pytest.raises(MachineError, match=r"links\[1\]: links\[0\] is the same link"):
        listed(entry, back)
    one_way = [dataclasses.replace(e, both_ways=False) for e in (entry, back)]
    assert {(x.src, x.dst, x.bandwidth_bytes_per_s) for x in listed(*one_way).links} == {
        (0, 1, 1e9),
        (1, 0, 1e9),
    }
    # the same end twice is two parallel links
    assert {x.bandwidth_bytes_per_s for x in listed(entry, entry).links} == {2e9}


def listed(*entries):
    topology = Topology(family="links", links=entries)
    file = MachineFile(
        format_version=1, name="m", description="", num_gpus=2, gpu="h200", topology=topology
    )
    return build_machine(file, "test")

"""Layer: machines and topologies. Families, merged links, distances, cuts, paths, pictures, verbs."""

import io as text_io
import itertools
import json
import math
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reader_support import case_file, case_text

from ficco_sim import io
from ficco_sim.cli import main
from ficco_sim.errors import FileError, MachineError
from ficco_sim.machine import (
    LinkEntry,
    Machine,
    MachineFile,
    Topology,
    build_machine,
    load_machine,
    named_machines,
)
from ficco_sim.topology import bisection, describe, draw, find_path, make_machine_file, widest_path


def listed(num_gpus: int, *links: LinkEntry, switches: tuple[str, ...] = (), **more) -> Machine:
    file = MachineFile(
        format_version=1,
        name="listed",
        description="",
        num_gpus=num_gpus,
        gpu="h200",
        topology=Topology(family="links", switches=switches, links=links),
        **more,
    )
    return build_machine(file, "listed")


def entry(src, dst, gb_per_s: float = 50, **more) -> LinkEntry:
    return LinkEntry(src=src, dst=dst, bandwidth_bytes_per_s=gb_per_s * 1e9, latency_s=1e-6, **more)


def made(family: str, num_gpus: int | None = None, **more) -> Machine:
    file = make_machine_file(
        family, gpu="mi300x", num_gpus=num_gpus, bandwidth_bytes_per_s=64e9, latency_s=1e-6, **more
    )
    return build_machine(file, "made")


# links


def test_parallel_links_are_one_of_their_sum():
    machine = listed(
        2, entry(0, 1, 50, usable_bytes_per_s=40e9), entry(0, 1, 25, width=2, usable_bytes_per_s=20e9)
    )
    assert len(machine.links) == 2
    for link in machine.links:
        assert link.bandwidth_bytes_per_s == 75e9
        assert link.usable_bytes_per_s == 60e9
        assert link.width == 3


def test_parallel_links_may_be_listed_from_either_end_and_differ_by_direction():
    machine = listed(2, entry(0, 1, 50), entry(1, 0, 50, both_ways=False))
    rates = {(link.src, link.dst): (link.bandwidth_bytes_per_s, link.width) for link in machine.links}
    assert rates == {(0, 1): (50e9, 1), (1, 0): (100e9, 2)}


def test_parallel_links_with_different_latencies_are_refused():
    slow = LinkEntry(src=0, dst="leaf", bandwidth_bytes_per_s=1e9, latency_s=2e-6)
    with pytest.raises(MachineError, match="gpu 0 -> leaf have latencies 1e-06 s and 2e-06 s"):
        listed(2, entry(0, "leaf"), slow, entry(1, "leaf"), switches=("leaf",))


def test_a_width_below_one_is_refused():
    with pytest.raises(MachineError, match="width: 0"):
        entry(0, 1, width=0)


# families


@pytest.mark.parametrize(
    ("family", "num_gpus", "more", "links", "degree", "diameter"),
    [
        ("full_mesh", 5, {}, 20, 4, 1),
        ("switch", 6, {}, 12, 1, 1),
        ("ring", 7, {}, 14, 2, 3),
        ("ring", 7, {"both_ways": False}, 7, 1, 6),
        ("ring", 2, {}, 2, 1, 1),
        ("torus", None, {"extents": (4, 4)}, 64, 4, 4),
        ("torus", None, {"extents": (2, 4)}, 24, 3, 3),
        ("torus", None, {"extents": (1, 5)}, 10, 2, 2),
        ("torus", None, {"extents": (2, 2, 2)}, 24, 3, 3),
        ("torus", None, {"extents": (3, 1, 2, 4)}, 24 * 5, 5, 4),
        ("torus", None, {"extents": (3, 3), "both_ways": False}, 18, 2, 4),
        ("hypercube", 1, {}, 0, 0, 0),
        ("hypercube", 2, {}, 2, 1, 1),
        ("hypercube", 16, {}, 64, 4, 4),
    ],
)
def test_families(family, num_gpus, more, links, degree, diameter):
    told = describe(made(family, num_gpus, **more))
    assert told.num_links == links
    assert set(told.degree) == {degree}
    assert told.diameter == diameter
    assert told.kind == {"full_mesh": "mesh"}.get(family, family)


@pytest.mark.parametrize("num_gpus", [3, 6, 12, 1000])
def test_a_hypercube_needs_a_power_of_two(num_gpus):
    with pytest.raises(MachineError, match=f"num_gpus: {num_gpus} must be a power of 2"):
        made("hypercube", num_gpus)


@settings(max_examples=40)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4).filter(lambda e: math.prod(e) <= 64))
def test_a_torus_is_the_product_of_its_rings(extents):
    machine = made("torus", extents=tuple(extents))
    rings = [nx.cycle_graph(e) if e > 2 else nx.path_graph(e) for e in extents]
    product = rings[0]
    for ring in rings[1:]:
        product = nx.convert_node_labels_to_integers(
            nx.cartesian_product(product, ring), ordering="sorted"
        )
    assert {(link.src, link.dst) for link in machine.links} == {
        pair for a, b in product.edges for pair in ((a, b), (b, a))
    }


@pytest.mark.parametrize(
    ("family", "more", "words"),
    [
        ("links", {"num_gpus": 4}, "'links'"),
        ("tree", {"num_gpus": 4}, "'tree'"),
        ("ring", {}, "num_gpus: needed"),
        ("ring", {"num_gpus": 4, "extents": (4,)}, "extents"),
        ("torus", {"num_gpus": 4}, "extents"),
        ("torus", {"num_gpus": 5, "extents": (2, 2)}, "num_gpus: 5"),
        ("ring", {"num_gpus": 0}, "num_gpus: 0"),
        ("torus", {"extents": (0, 4)}, "extents"),
        ("ring", {"num_gpus": 2000}, "num_gpus: 2000"),
    ],
)
def test_impossible_machines(family, more, words):
    with pytest.raises(MachineError, match=words):
        made(family, **more)


@pytest.mark.parametrize("name", named_machines())
def test_every_machine_is_connected_and_its_file_survives_writing(name, tmp_path):
    machine = load_machine(name)
    told = describe(machine)
    assert told.diameter is not None
    assert told.num_gpus == machine.num_gpus
    from ficco_sim.io import data_folder

    file = io.load(data_folder() / f"{name}.yaml", MachineFile)
    path = tmp_path / "again.yaml"
    path.write_text(io.dump_yaml(file))
    assert load_machine(str(path)) == machine


@pytest.mark.parametrize(
    ("name", "pairs", "diameter", "egress_gb_per_s", "bisection_gb_per_s"),
    [
        ("dgx1_v100", 16, 2, 150, 150),
        ("mi250x_8gcd", 12, 2, None, 300),
        ("a100_4", 6, 1, 300, 400),
        ("mi210_4", 6, 1, 150, 200),
        ("a40_8_pairs", 4, 1, 87.75, 20.8),
        ("h200_2x8", 0, 1, 513, 400),  # 8 NICs of 50 GB/s between the boxes
        ("switch_tree_16", 0, 1, 450, 1800),
        ("ring_8_oneway", 8, 7, 64, 64),
        ("torus_2x4", 12, 3, 192, 256),
        ("torus_4x4x4", 192, 6, 384, 2048),
        ("hypercube_8", 12, 3, 192, 256),
        ("mi300x_8", 28, 1, 448, 1024),
        ("h200_8", 0, 1, 450, 1800),
    ],
)
def test_figures_of_machines(name, pairs, diameter, egress_gb_per_s, bisection_gb_per_s):
    told = describe(load_machine(name))
    assert told.num_direct_pairs == pairs
    assert told.diameter == diameter
    if egress_gb_per_s is not None:
        assert set(told.egress_bytes_per_s) == {egress_gb_per_s * 1e9}
    assert told.bisection_bytes_per_s == pytest.approx(bisection_gb_per_s * 1e9)


def test_traffic_within_a_box_stays_off_the_network():
    machine = load_machine("h200_2x8")
    assert find_path(machine, 0, 7)[0].nodes == ("gpu 0", "nvswitch0", "gpu 7")
    between = find_path(machine, 0, 8)
    assert between[1]
    assert between[0].nodes == ("gpu 0", "nic0", "network", "nic8", "gpu 8")
    assert between[0].bandwidth_bytes_per_s == 50e9
    assert between[0].hops == 1


# description


def test_listed_meshes_and_switches_are_called_so():
    mesh = [entry(i, j) for i, j in itertools.combinations(range(3), 2)]
    assert describe(listed(3, *mesh)).kind == "mesh"
    assert describe(listed(3, *mesh[:2])).kind == "links"
    ports = [entry(g, "s") for g in range(3)]
    assert describe(listed(3, *ports, switches=("s",))).kind == "switch"


def test_what_cannot_be_reached_is_told():
    told = describe(listed(4, entry(0, 1), entry(2, 3)))
    assert told.diameter is None
    assert told.direct_components == ((0, 1), (2, 3))
    assert told.bisection_bytes_per_s == 0
    assert any("gpu 0 cannot reach gpu 2 and 1 more" in text for text in told.warnings)
    lonely = describe(listed(1))
    assert lonely.diameter == 0
    assert lonely.bisection_bytes_per_s is None
    idle = describe(listed(2, entry(0, 1), switches=("s",)))
    assert any("switches without links: s" in text for text in idle.warnings)


@st.composite
def machines(draw) -> Machine:
    num_gpus = draw(st.integers(2, 6))
    names = tuple(f"s{i}" for i in range(draw(st.integers(0, 3))))
    nodes = [*range(num_gpus), *names]
    pairs = draw(st.lists(st.sampled_from(list(itertools.permutations(nodes, 2))), max_size=16))
    links = []
    both = set()
    for a, b in pairs:
        # a link that counts both ways may not be listed from its other end as well
        ways = (b, a) not in both and draw(st.booleans())
        both |= {(a, b)} if ways else set()
        links.append(entry(a, b, draw(st.integers(1, 9)), both_ways=ways))
    return listed(num_gpus, *links, switches=names)


@settings(max_examples=40)
@given(machines())
def test_bisection_is_the_least_maximum_flow_between_halves(machine):
    graph = nx.DiGraph()
    graph.add_nodes_from(range(machine.num_gpus + len(machine.switches)))
    for link in machine.links:
        graph.add_edge(link.src, link.dst, capacity=link.bandwidth_bytes_per_s)
    least = math.inf
    for half in itertools.combinations(range(machine.num_gpus), machine.num_gpus // 2):
        rest = set(range(machine.num_gpus)) - set(half)
        for sources, sinks in ((set(half), rest), (rest, set(half))):
            flow = graph.copy()
            flow.add_edges_from(("source", g) for g in sources)
            flow.add_edges_from((g, "sink") for g in sinks)
            least = min(least, nx.maximum_flow_value(flow, "source", "sink"))
    cut = bisection(machine)
    assert cut.exact
    assert cut.bytes_per_s == pytest.approx(least)


@settings(max_examples=40)
@given(machines(), st.data())
def test_widest_path_is_the_widest_of_all_paths(machine, data):
    ends = st.sampled_from(list(itertools.permutations(range(machine.num_gpus), 2)))
    src, dst = data.draw(ends)
    rates = {(link.src, link.dst): link.bandwidth_bytes_per_s for link in machine.links}
    graph = nx.DiGraph(list(rates))
    graph.add_nodes_from(range(machine.num_gpus))
    paths = list(nx.all_simple_paths(graph, src, dst))
    if not paths:
        with pytest.raises(MachineError, match=f"no path from gpu {src} to gpu {dst}"):
            widest_path(machine, src, dst)
        return
    widest = max(min(rates[pair] for pair in itertools.pairwise(path)) for path in paths)
    found = widest_path(machine, src, dst)
    assert found.bandwidth_bytes_per_s == widest
    shortest = min(
        len(path) for path in paths if min(rates[pair] for pair in itertools.pairwise(path)) == widest
    )
    assert len(found.nodes) == shortest
    assert found.hops == sum(name.startswith("gpu") for name in found.nodes[1:])


@settings(max_examples=40)
@given(machines())
def test_diameter_counts_gpus_on_the_way(machine):
    graph = nx.DiGraph()
    graph.add_nodes_from(range(machine.num_gpus))
    for link in machine.links:
        graph.add_edge(link.src, link.dst, cost=int(link.dst < machine.num_gpus))
    far = dict(nx.all_pairs_dijkstra_path_length(graph, weight="cost"))
    lengths = [far[a].get(b) for a, b in itertools.product(range(machine.num_gpus), repeat=2)]
    assert describe(machine).diameter == (None if None in lengths else max(lengths))


def test_large_machines_are_described_in_seconds():
    mesh = describe(made("full_mesh", 256))
    assert mesh.diameter == 1
    assert mesh.bisection_bytes_per_s == 128 * 128 * 64e9
    assert not mesh.bisection_exact
    torus = describe(made("torus", extents=(8, 8, 8)))
    assert torus.diameter == 12
    assert torus.bisection_bytes_per_s == 2 * 64 * 64e9


def test_many_switches_are_cut_by_flow():
    """17 gpus, each behind a leaf of its own with two spines: too many switches to place by trying."""
    leaves = tuple(f"leaf{g}" for g in range(17))
    links = [entry(g, leaf) for g, leaf in enumerate(leaves)]
    links += [entry(leaf, spine, 25) for leaf in leaves for spine in ("spine0", "spine1")]
    told = describe(listed(17, *links, switches=(*leaves, "spine0", "spine1")))
    assert told.bisection_bytes_per_s == pytest.approx(8 * 50e9)
    assert not told.bisection_exact


@pytest.mark.parametrize(("src", "dst", "words"), [(0, 8, "gpu 8"), (-1, 0, "gpu -1"), (3, 3, "twice")])
def test_routes_need_two_gpus(src, dst, words):
    for ask in (find_path, widest_path):
        with pytest.raises(MachineError, match=words):
            ask(load_machine("mi300x_8"), src, dst)


# pictures


@pytest.mark.parametrize("name", ["ring_8_oneway", "h200_2x8", "torus_4x4x4", "dgx1_v100"])
def test_pictures_are_repeatable(name, tmp_path):
    machine = load_machine(name)
    for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<?xml")):
        first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
        draw(machine, first)
        draw(machine, second)
        assert first.read_bytes().startswith(start)
        assert first.read_bytes() == second.read_bytes()


def test_a_machine_of_one_gpu_can_be_drawn(tmp_path):
    draw(listed(1), tmp_path / "one.png")
    with pytest.raises(FileError, match="picture"):
        draw(listed(1), tmp_path / "one.bmp")


# verbs


@pytest.fixture
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(capsys, *arguments: str) -> str:
    code = main(["topology", *arguments])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    assert captured.err == ""
    return captured.out


KEYS = {"num_gpus", "num_links", "links", "kind", "diameter", "warnings"}


@pytest.mark.usefixtures("_folder")
def test_show(capsys):
    out = run(capsys, "show", "dgx1_v100", "--route", "0,5", "--plot", "m.png")
    for text in ("8 x V100", "32 directed links (48 physical)", "diameter 2", "egress 150 GB/s"):
        assert text in out
    for text in (
        "bisection 150.0 GB/s",
        "worst of all halves",
        "for plans to relay along",
        "gpu 0 -> gpu 1",
    ):
        assert text in out
    assert Path("m.png").read_bytes().startswith(b"\x89PNG")
    document = json.loads(run(capsys, "show", "mi250x_8gcd", "--route", "0,7", "--json", "-"))
    assert set(document) >= KEYS
    assert document["num_links"] == len(document["links"]) == 24
    assert set(document["links"][0]) >= {"src", "dst", "bandwidth_bytes_per_s", "latency_s"}
    assert document["route"]["widest_path"]["nodes"] == ["gpu 0", "gpu 6", "gpu 7"]
    switched = json.loads(run(capsys, "show", "h200_8", "--json", "-"))
    assert switched["kind"] == "switch"
    assert {switched["links"][0]["src"], switched["links"][0]["dst"]} == {0, "nvswitch"}


@pytest.mark.usefixtures("_folder")
def test_import_says_what_it_read_and_assumed(capsys):
    out = run(capsys, "import", case_file("B01"), "--out", "mine.yaml", "--plot", "p.svg")
    for text in (
        "read as topo_m",
        "num_nics 4",
        "assumed: switch, not mesh",
        "126",
        "--interpret mesh",
    ):
        assert text in out
    assert "wrote mine.yaml" in out
    machine = load_machine("mine.yaml")
    assert machine.num_gpus == 8
    document = json.loads(run(capsys, "import", case_file("B01"), "--json", "-"))
    assert set(document) >= KEYS | {"facts", "assumptions", "format"}
    assert document["kind"] == "switch"
    assert document["num_gpus"] == 8
    assert describe(machine).links == describe(load_machine("mine.yaml")).links


@pytest.mark.usefixtures("_folder")
def test_import_with_everything_given(capsys):
    document = json.loads(
        run(
            capsys, "import", case_file("B04"), "--format", "topo_m", "--gpu", "a100", "--bandwidth",
            "20GB/s", "--latency", "250ns", "--usable-share", "0.5", "--interpret", "switch",
            "--no-pcie", "--json", "-",
        )
    )  # fmt: skip
    assert document["kind"] == "switch"
    link = document["links"][0]
    assert link["bandwidth_bytes_per_s"] == 80e9
    assert link["usable_bytes_per_s"] == 40e9
    assert link["latency_s"] == 250e-9
    gib = json.loads(run(capsys, "import", case_file("B42"), "--gib", "--json", "-"))
    assert gib["links"][0]["bandwidth_bytes_per_s"] == 50 * 2**30


@pytest.mark.usefixtures("_folder")
def test_import_reads_the_standard_input(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", text_io.StringIO(case_text("B08")))
    out = run(capsys, "import", "-")
    assert "8 x MI300X, mesh" in out
    assert "--out FILE.yaml keeps it" in out


@pytest.mark.usefixtures("_folder")
def test_make(capsys):
    out = run(
        capsys, "make", "torus", "--extents", "2,4", "--bandwidth", "64GB", "--latency", "0.5us",
        "--out", "t.yaml",
    )  # fmt: skip
    assert "torus" in out
    machine = load_machine("t.yaml")
    assert machine.num_gpus == 8
    assert machine.links[0].latency_s == 0.5e-6
    one_way = json.loads(
        run(
            capsys, "make", "ring", "--num-gpus", "5", "--gpu", "h200", "--bandwidth", "100GB",
            "--latency", "1us", "--one-way", "--name", "loop", "--json", "-",
        )
    )  # fmt: skip
    assert one_way["name"] == "loop"
    assert one_way["num_links"] == 5
    assert one_way["diameter"] == 4


RATE = ["--bandwidth", "64GB", "--latency", "1us"]


@pytest.mark.usefixtures("_folder")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "mi300"], ["'mi300'", "mi300x_8"]),
        (["show", "mi300x_8", "--route", "0"], ["--route", "'0'", "two gpus"]),
        (["show", "mi300x_8", "--route", "0,x"], ["--route", "0,x"]),
        (["show", "mi300x_8", "--route", "0,9"], ["gpu 9", "0 to 7"]),
        (["show", "mi300x_8", "--route", "1,1"], ["gpu 1 twice"]),
        (["show", "mi300x_8", "--plot", "x.bmp"], ["x.bmp", ".png"]),
        (["import", "none.txt"], ["none.txt", "no such file"]),
        (["import", "."], ["folder"]),
        (["import", "B06"], ["line 2", "Failed to run topology matrix"]),
        (["import", "B07"], ["P2P status table, not a link matrix"]),
        (["import", "B13"], ["line 5", "bandwidth[0]", "'tbd'", "line 6", "latency[0]"]),
        (["import", "B14"], ["line 3", "bandwidth has 1 value"]),
        (["import", "B21"], ["GPU2", "'NV2'", "'NV1'"]),
        (["import", "B08", "--bandwidth", "fast"], ["--bandwidth", "'fast'"]),
        (["import", "B08", "--bandwidth", "-3GB"], ["--bandwidth"]),
        (["import", "B08", "--latency", "1"], ["--latency", "'1'", "0.5us"]),
        (["import", "B08", "--latency", "nans"], ["--latency", "nan"]),
        (["import", "B08", "--latency", "5s"], ["--latency", "0 to 1 s"]),
        (["import", "B08", "--usable-share", "0"], ["usable_share: 0"]),
        (["import", "B08", "--usable-share", "nan"], ["usable_share: nan"]),
        (["import", "B08", "--interpret", "ring"], ["--interpret", "ring"]),
        (["import", "B08", "--format", "pdf"], ["--format", "pdf"]),
        (["import", "B08", "--gpu", "mi999"], ["'mi999'", "mi300x"]),
        (["import", "B08", "--out", "x.txt"], ["x.txt", ".yaml"]),
        (["import", "B08", "--out", "no/x.yaml"], ["no/x.yaml", "no folder"]),
        (["import", "B08", "--json", "no/x.json"], ["no/x.json", "no folder"]),
        (["make", "ring", *RATE], ["num_gpus", "ring"]),
        (["make", "tree", *RATE], ["tree", "hypercube"]),
        (["make", "hypercube", "--num-gpus", "6", *RATE], ["num_gpus: 6", "power of 2"]),
        (["make", "torus", "--extents", "4,x", *RATE], ["--extents", "4,x"]),
        (["make", "torus", "--extents", "0,4", *RATE], ["extents: [0, 4]", "1 to 1024"]),
        (["make", "ring", "--num-gpus", "99999", *RATE], ["num_gpus: 99999", "1024"]),
        (["make", "ring", "--num-gpus", "4", "--bandwidth", "64GB"], ["latency"]),
        (["make", "ring", "--num-gpus", "4", "--gpu", "x", *RATE], ["'x'", "mi300x"]),
    ],
)
def test_bad_input_gets_one_clear_error(capsys, arguments, words):
    if arguments[0] == "import" and arguments[1].startswith("B"):
        arguments = ["import", case_file(arguments[1]), *arguments[2:]]
    code = main(["topology", *arguments])
    captured = capsys.readouterr()
    assert code == 2, captured
    assert captured.out == ""
    assert all(line.startswith("ficco: error: ") for line in captured.err.splitlines())
    assert "internal" not in captured.err
    for word in words:
        assert word in captured.err
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("verb", ["show", "import", "make"])
def test_every_verb_has_help(capsys, verb):
    assert "Usage: ficco topology" in run(capsys, verb, "--help")

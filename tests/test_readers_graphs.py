"""Layer: readers. ASTRA-sim network files, GraphML, node-link JSON and our own YAML."""

import json
import math

import pytest
from reader_support import all_gather_s, case_text, describe_case, machine_of, rates, read_case

from ficco_sim.errors import FiccoError, FileError, MachineError
from ficco_sim.io import dump_yaml
from ficco_sim.machine import load_machine
from ficco_sim.readers import FORMATS, read_topology
from ficco_sim.topology import describe, make_machine_file


def astra(topology: list[str], sizes: list[int], rate: object = 50.0, delay: object = 500.0) -> str:
    lists = {
        "topology": topology,
        "npus_count": sizes,
        "bandwidth": rate if isinstance(rate, list) else [rate] * len(sizes),
        "latency": delay if isinstance(delay, list) else [delay] * len(sizes),
    }
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in lists.items())


def read(text: str, where: str = "net.yml", **options):
    return read_topology(text, where, **options)


# ASTRA-sim


def test_b13_values_that_are_no_numbers():
    with pytest.raises(FileError) as caught:
        read_case("B13")
    message = str(caught.value)
    assert "B13_astra_tbd_values.yml: line 5: bandwidth[0]: 'tbd'" in message
    assert "line 6: latency[0]: 'tbd'" in message


def test_b14_lists_of_different_lengths():
    with pytest.raises(FileError, match=r"B14.*line 3: bandwidth has 1 value, topology has 2 dims"):
        read_case("B14")


def test_b15_a_dimension_of_one():
    imported = read_case("B15")
    assert any("npus_count[1] = 1" in text for text in imported.warnings)
    alone = read(astra(["Ring"], [8]))
    assert imported.file.topology == alone.file.topology
    assert imported.kind == alone.kind == "ring"
    told = describe(machine_of(imported))
    assert told.num_gpus == 8
    assert told.num_direct_pairs == 8


def test_b16_a_ring_of_two_has_one_link_each_way():
    told = describe_case("B16")
    assert told.num_gpus == 8
    assert told.num_direct_pairs == 12
    assert told.num_links == 24
    assert told.degree == (3,) * 8
    assert told.diameter == 3
    assert set(rates(told).values()) == {25.0}


def test_b17_data_win_over_comments():
    told = describe_case("B17")
    assert told.num_gpus == 32
    assert told.num_direct_pairs == 64
    assert told.degree == (4,) * 32
    assert told.diameter == 6
    assert set(rates(told).values()) == {80.0}
    assert {link.latency_s for link in told.links} == {1e-6}
    assert told.bisection_bytes_per_s == 640e9
    assert not told.bisection_exact  # too many halves to try; the bound is met


def test_b42_what_a_gb_is():
    ours, old = read_case("B42"), read_case("B42", gib=True)
    assert all_gather_s(ours, 2**20) == pytest.approx(20.972e-6, rel=1e-4)
    assert all_gather_s(old, 2**20) == pytest.approx(19.531e-6, rel=1e-4)
    for imported, unit in ((ours, "10**9"), (old, "2**30")):
        (text,) = (t for t in imported.assumptions if "1 GB/s" in t)
        assert unit in text
        assert "7.4 %" in text


@pytest.mark.parametrize(
    ("topology", "sizes", "kind", "links"),
    [
        (["Ring"], [2], "ring", 2),
        (["Ring"], [3], "ring", 6),
        (["FullyConnected"], [4], "mesh", 12),
        (["Switch"], [5], "switch", 10),
        (["Ring", "Ring"], [2, 3], "torus", 6 + 12),
        (["Ring", "FullyConnected"], [4, 2], "torus", 16 + 8),
        (["FullyConnected", "Ring"], [3, 4], "links", 12 * 2 + 12 * 2),
        (["Ring", "Switch"], [4, 2], "links", 16 + 16),
        (["Switch", "Switch"], [4, 2], "links", 16 + 16),
    ],
)
def test_products_of_dimensions(topology, sizes, kind, links):
    imported = read(astra(topology, sizes))
    assert imported.kind == kind
    machine = machine_of(imported)
    assert machine.num_gpus == math.prod(sizes)
    assert len(machine.links) == links
    assert describe(machine).diameter is not None


def test_the_first_dimension_counts_fastest():
    machine = machine_of(read(astra(["Ring", "Ring"], [3, 2], [10.0, 20.0])))
    rate = {(link.src, link.dst): link.bandwidth_bytes_per_s for link in machine.links}
    assert rate[0, 1] == rate[1, 2] == rate[0, 2] == 10e9
    assert rate[0, 3] == rate[2, 5] == 20e9
    torus = machine_of(read(astra(["Ring", "Ring"], [4, 8])))
    pairs = {(link.src, link.dst) for link in torus.links}
    assert {(0, 1), (0, 3), (0, 4), (0, 28)} <= pairs


BLOCKS = "topology: [ Ring ]\nnpus_count:\n  - 8\nbandwidth:\n  - x\nlatency: [ 1 ]\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (astra(["Ring"], [8]).replace("npus_count", "npus"), ["npus_count is missing"]),
        (astra(["Mesh"], [8]), ["line 1", "topology[0]: 'Mesh'", "FullyConnected"]),
        (astra(["Ring"], [0]), ["line 2", "npus_count[0]: 0"]),
        (astra(["Ring"], [-4]), ["npus_count[0]: -4"]),
        (astra(["Ring"], [2.5]), ["npus_count[0]: 2.5"]),
        (astra(["Ring"], [True]), ["npus_count[0]: True"]),
        (astra(["Ring"], [1]), ["line 2", "one gpu"]),
        (astra(["Ring"] * 3, [64, 64, 64]), ["line 2", "262,144"]),
        (astra(["Ring"], [8], 0.0), ["line 3", "bandwidth[0]: 0"]),
        (astra(["Ring"], [8], -1), ["bandwidth[0]: -1"]),
        (astra(["Ring"], [8], "50"), ["bandwidth[0]: '50'"]),
        (astra(["Ring"], [8], 50, None), ["line 4", "latency[0]: None"]),
        (astra(["Ring"], [8]).replace("[50.0]", ".nan"), ["bandwidth", "list"]),
        (astra(["Ring"], [8]).replace("50.0", ".nan"), ["bandwidth[0]: nan"]),
        (astra(["Ring"], [8]).replace("50.0", ".inf"), ["bandwidth[0]: inf"]),
        (BLOCKS.replace("- x", "- 50\n  # next\n  - x"), ["line 4", "bandwidth has 2 values"]),
        (BLOCKS, ["line 5", "bandwidth[0]: 'x'"]),
        ("topology: [ Ring\nnpus_count: [ 2 ]\n", ["not YAML"]),
    ],
)  # fmt: skip
def test_bad_network_files(text, words):
    with pytest.raises(FileError) as caught:
        read(text)
    for word in ["net.yml", *words]:
        assert word in str(caught.value)


def test_keys_that_are_not_read_are_told_of():
    assert any("colour" in text for text in read(astra(["Ring"], [8]) + "colour: red\n").warnings)


# GraphML and node-link JSON


def test_b18_ids_are_numbers_and_parallel_edges_add_up():
    imported = read_case("B18")
    assert imported.facts["gpus"] == ["0", "1", "2", "10"]
    assert imported.facts["num_parallel_edges"] == 1
    told = describe(machine_of(imported))
    assert told.num_gpus == 4
    assert {p: r for p, r in rates(told).items() if p[0] < p[1]} == {
        (0, 1): 100.0,
        (1, 2): 50.0,
        (2, 3): 50.0,
        (0, 3): 50.0,
    }
    assert [link.width for link in told.links if (link.src, link.dst) == (0, 1)] == [2]
    assert {link.latency_s for link in told.links} == {1e-6}


def graphml(nodes: str, edges: str, *, edgedefault: str = "undirected", keys: str = "") -> str:
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="d0" for="edge" attr.name="bandwidth_GBps" attr.type="double"/>{keys}
  <graph edgedefault="{edgedefault}">{nodes}{edges}</graph>
</graphml>"""


def node(name: str) -> str:
    return f'<node id="{name}"/>'


def edge(src: str, dst: str, rate: object = 50) -> str:
    return f'<edge source="{src}" target="{dst}"><data key="d0">{rate}</data></edge>'


def test_switches_and_directions_of_a_graph():
    names = ["gpu10", "gpu2", "switch0"]
    text = graphml(
        "".join(map(node, names)),
        "".join(edge(g, "switch0") + edge("switch0", g) for g in names[:2]),
        edgedefault="directed",
    )
    machine = machine_of(read(text, "g.graphml"))
    assert machine.num_gpus == 2
    assert machine.switches == ("switch0",)
    assert len(machine.links) == 4
    assert read(text, "g.graphml").facts["gpus"] == ["gpu2", "gpu10"]


PAIR = node("0") + node("1")
BOMB = """<?xml version="1.0"?>
<!DOCTYPE lolz [<!ENTITY lol "lol"><!ENTITY lol2 "&lol;&lol;&lol;">]>
<graphml><graph><node id="&lol2;"/></graph></graphml>"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BOMB, ["line 2", "entity"]),
        (BOMB.replace("<!DOCTYPE", "<!doctype"), ["line 2", "entity"]),
        (graphml(PAIR, '<edge source="0" target="1"/>'), ["'0' to '1'", "no bandwidth"]),
        (graphml(PAIR, edge("0", "2")), ["'2'", "no node"]),
        (graphml(PAIR, edge("0", "0")), ["'0'", "itself"]),
        (graphml(node("0") + node("1") * 2, edge("0", "1")), ["'1'", "twice"]),
        (graphml(node("1") + node("01"), edge("1", "01")), ["same number"]),
        (graphml(PAIR, edge("0", "1", "fast")), ["g.graphml"]),
        (graphml(PAIR, edge("0", "1", -5)), ["bandwidth_GBps", "-5"]),
        (graphml(PAIR, edge("0", "1", "nan")), ["bandwidth_GBps", "nan"]),
        (graphml(PAIR, edge("0", "1").replace("d0", "d9")), ["d9"]),
        (graphml("", ""), ["0 gpus"]),
        (graphml(PAIR, edge("0", "1")).replace("_GBps", ""), ["bandwidth", "unit", "GBps"]),
        (graphml(PAIR, edge("0", "1")).replace("_GBps", "_gbps"), ["bandwidth_gbps", "unit"]),
        (graphml(node("0"), "")[:-12], ["line", "not XML"]),
        ("<html></html>", ["GraphML"]),
    ],
)  # fmt: skip
def test_bad_graphs(text, words):
    with pytest.raises(FileError) as caught:
        read(text, "g.graphml")
    for word in ["g.graphml", *words]:
        assert word in str(caught.value)


def test_units_of_graph_attributes():
    base = graphml(PAIR, edge("0", "1", 400))
    for unit, rate in (("GBps", 400.0), ("Gbps", 50.0), ("MBps", 0.4), ("GiBps", 400 * 2**30 / 1e9)):
        told = describe(machine_of(read(base.replace("_GBps", f"_{unit}"), "g.graphml")))
        assert rates(told)[0, 1] == pytest.approx(rate)


def test_a_bandwidth_for_all_edges_can_be_given():
    text = graphml(PAIR, '<edge source="0" target="1"/>')
    imported = read(text, "g.graphml", bandwidth_bytes_per_s=25e9, latency_s=0.0)
    assert set(rates(describe(machine_of(imported))).values()) == {25.0}


def test_parallel_edges_with_different_latencies_are_refused():
    key = '<key id="d1" for="edge" attr.name="latency_us" attr.type="double"/>'
    edges = "".join(
        f'<edge source="0" target="1"><data key="d0">50</data><data key="d1">{us}</data></edge>'
        for us in (1, 2)
    )
    with pytest.raises(MachineError, match="gpu 0 -> gpu 1 have latencies 1e-06 s and 2e-06 s"):
        read(graphml(PAIR, edges, keys=key), "g.graphml")


def node_link(**changes: object) -> str:
    document = {
        "directed": False,
        "multigraph": False,
        "nodes": [{"id": 0}, {"id": 1}, {"id": 2}],
        "links": [
            {"source": 0, "target": 1, "bandwidth_GBps": 50, "latency_ns": 500},
            {"source": 1, "target": 0, "bandwidth_GBps": 50, "latency_ns": 500},
            {"source": 1, "target": 2, "bandwidth_GBps": 50, "latency_ns": 500},
        ],
    }
    return json.dumps(document | changes)


def test_node_link_json_keeps_parallel_edges_even_if_it_says_it_has_none():
    told = describe(machine_of(read(node_link(), "g.json")))
    assert rates(told) == {(0, 1): 100.0, (1, 0): 100.0, (1, 2): 50.0, (2, 1): 50.0}
    by_other_name = json.loads(node_link())
    by_other_name["edges"] = by_other_name.pop("links")
    assert rates(describe(machine_of(read(json.dumps(by_other_name), "g.json")))) == rates(told)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nodes": 3}, ["nodes"]),
        ({"links": None}, ["links"]),
        ({"links": [{"source": 0}]}, ["links[0].target", "None"]),
        ({"links": [{"source": 0, "target": 9}]}, ["'9'", "no node"]),
        ({"nodes": [{"id": []}]}, ["nodes[0].id"]),
        ({"nodes": [{"id": 0}, {"id": "0"}]}, ["'0'", "twice"]),
        ({"nodes": [{"id": 0, "kind": "fridge"}, {"id": 1}, {"id": 2}]}, ["'fridge'", "gpu or switch"]),
    ],
)
def test_bad_node_link_json(changes, words):
    with pytest.raises(FileError) as caught:
        read(node_link(**changes), "g.json")
    for word in ["g.json", *words]:
        assert word in str(caught.value)


# our own YAML, and all formats


def test_b20_numbers_people_write():
    text = dump_yaml(
        make_machine_file(
            "full_mesh", gpu="mi300x", num_gpus=8, bandwidth_bytes_per_s=1.0, latency_s=0.5
        )
    )
    text = text.replace("bandwidth_bytes_per_s: 1.0", "bandwidth_bytes_per_s: 64e9")
    text = text.replace("latency_s: 0.5", "latency_s: 1e-6").replace(
        "latency_s: 500.0e-3", "latency_s: 1e-6"
    )
    imported = read(text, "m.yaml")
    assert imported.format == "ficco"
    told = describe(machine_of(imported))
    assert set(rates(told).values()) == {64.0}
    assert {link.latency_s for link in told.links} == {1e-6}
    with pytest.raises(FileError, match=r"m.yaml: topology.bandwidth_bytes_per_s: '64e9'"):
        read(text.replace("64e9", "'64e9'"), "m.yaml")
    with pytest.raises(FileError, match=r"B20.*: kind: unknown key"):
        read_case("B20")


@pytest.mark.parametrize(
    "case", ["B01", "B02", "B03", "B04", "B08", "B09", "B11", "B15", "B16", "B17", "B18"]
)
@pytest.mark.parametrize("options", [{}, {"usable_share": 0.7}])
def test_what_is_read_is_written_and_read_again(case, options, tmp_path):
    """Import, YAML, load_machine: an equal machine, by name and through the reader of our own files."""
    imported = read_case(case, **options)
    path = tmp_path / "machine.yaml"
    path.write_text(dump_yaml(imported.file))
    assert load_machine(str(path)) == machine_of(imported)
    again = read_topology(path.read_text(), str(path))
    assert again.file == imported.file
    for key, text in imported.file.sources.items():
        assert key == "topology"
        assert text.split(": ")[0] in ("stated", "estimated", "measured", "derived")
    if options:
        told = describe(machine_of(imported))
        direct = [
            link for link in told.links if isinstance(link.src, int) and isinstance(link.dst, int)
        ]
        assert all(
            link.usable_bytes_per_s == pytest.approx(0.7 * link.bandwidth_bytes_per_s)
            for link in direct
        )


def test_options_change_our_own_files_too():
    text = dump_yaml(read_case("B02").file)
    imported = read(
        text, "m.yaml", gpu="a100", bandwidth_bytes_per_s=10e9, latency_s=1e-6, usable_share=0.5
    )
    assert imported.file.gpu == "a100"
    told = describe(machine_of(imported))
    assert set(rates(told).values()) == {10.0, 20.0}
    assert {link.usable_bytes_per_s for link in told.links} == {5e9, 10e9}


@pytest.mark.parametrize(
    ("case", "options", "words"),
    [
        ("B16", {"interpret": "mesh"}, ["interpret", "astra_sim"]),
        ("B18", {"pcie": True}, ["pcie", "graphml"]),
        ("B08", {"gib": True}, ["gib"]),
        ("B08", {"gpu": "mi999"}, ["'mi999'", "mi300x"]),
        ("B08", {"bandwidth_bytes_per_s": -1.0}, ["bandwidth_bytes_per_s: -1"]),
        ("B08", {"bandwidth_bytes_per_s": math.nan}, ["bandwidth_bytes_per_s: nan"]),
        ("B08", {"latency_s": -1.0}, ["latency_s: -1"]),
        ("B08", {"usable_share": 1.5}, ["usable_share: 1.5"]),
        ("B08", {"format": "topo_m"}, ["header"]),
        ("B08", {"format": "graphml"}, ["not XML"]),
    ],
)
def test_options_that_do_not_fit(case, options, words):
    with pytest.raises(FiccoError) as caught:
        read_case(case, **options)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("text", ["", "   \n", "hello world", "[1, 2]"])
def test_text_of_no_format_lists_the_formats(text):
    with pytest.raises(FileError, match="none of the formats") as caught:
        read(text, "x.txt")
    for name in FORMATS:
        assert name in str(caught.value)


def test_size_is_bounded():
    with pytest.raises(FileError, match="at most"):
        read("x" * (5 * 2**20))


def test_a_file_name_becomes_a_machine_name():
    assert read(case_text("B16"), "/some/where/my net-1.yml").file.name == "my_net_1"

"""Layer: readers. rocm-smi --showtopo and --shownodesbw as public reports have them, and variations."""

from itertools import combinations

import pytest
from reader_support import all_gather_s, case_text, machine_of, rates, read_case

from ficco_sim.errors import FileError
from ficco_sim.readers import read_topology
from ficco_sim.topology import describe, find_path, widest_path

TITLES = {
    "weight": "Weight between two GPUs",
    "hops": "Hops between two GPUs",
    "type": "Link Type between two GPUs",
    "bandwidth": "Bandwidth between two GPUs",
}


def table(name: str, num_gpus: int, word, self_word: str = "0") -> str:
    gpus = [f"GPU{i}" for i in range(num_gpus)]
    lines = [f"=============== {TITLES[name]} ===============", "       " + "  ".join(gpus)]
    for i in range(num_gpus):
        cells = [self_word if i == j else word(i, j) for j in range(num_gpus)]
        lines.append("   ".join([gpus[i], *cells]))
    return "\n".join([*lines, ""]) + "\n"


def numa(num_gpus: int, node) -> str:
    return "".join(f"GPU[{g}]\t\t: (Topology) Numa Node: {node(g)}\n" for g in range(num_gpus))


def read(*parts: str, **options):
    head = "============ ROCm System Management Interface ============\n"
    return read_topology(head + "".join(parts), "rocm.txt", **options)


def test_b08_full_mesh():
    imported = read_case("B08", latency_s=0.0)
    assert imported.format == "rocm_smi"
    assert imported.kind == "mesh"
    assert imported.file.gpu == "mi300x"
    assert imported.facts["pairs"] == {"XGMI": 28}
    told = describe(machine_of(imported))
    assert told.degree == (7,) * 8
    assert told.num_direct_pairs == 28
    assert any("64 GB/s per xGMI link" in text and "48" in text for text in imported.assumptions)
    assert all_gather_s(imported, 2**26) == pytest.approx(2**26 / 64e9, rel=1e-6)  # 1.049 ms
    slower = read_case("B08", latency_s=0.0, bandwidth_bytes_per_s=48e9)
    assert all_gather_s(slower, 2**26) == pytest.approx(1.398e-3, rel=1e-3)
    assert not any("64 GB/s" in text for text in slower.assumptions if "--bandwidth" in text)


def test_b08_numa_nodes_place_gpus_on_hosts():
    machine = machine_of(read_case("B08", pcie=True))
    hosts = {
        link.src: machine.node_name(link.dst) for link in machine.links if link.dst >= 8 > link.src
    }
    assert hosts == {g: f"host{g // 4}" for g in range(8)}


def test_b09_links_of_several_widths():
    imported = read_case("B09")
    told = describe(machine_of(imported))
    expected = {(0, 1): 4, (2, 3): 4, (4, 5): 4, (6, 7): 4, (0, 6): 2, (2, 4): 2}
    expected |= dict.fromkeys([(0, 2), (1, 3), (1, 5), (3, 7), (4, 6), (5, 7)], 1)
    assert {(k.src, k.dst): k.width for k in told.links if k.src < k.dst} == expected
    assert {p: r for p, r in rates(told).items() if p[0] < p[1]} == {
        p: 50.0 * width for p, width in expected.items()
    }
    assert told.num_direct_pairs == 12
    assert imported.facts["num_direct_links"] == 26
    assert imported.facts["pairs_by_width"] == {"4": 4, "2": 2, "1": 6, "0": 16}
    assert told.diameter == 2
    assert imported.file.gpu == "mi250x"
    widest = widest_path(machine_of(imported), 0, 7)
    assert widest.nodes == ("gpu 0", "gpu 6", "gpu 7")
    assert widest.bandwidth_bytes_per_s == 100e9
    assert any("16 pairs have no direct" in text for text in imported.warnings)


def test_b09_bandwidths_win_over_types():
    types = table("type", 8, lambda *_: "XGMI")
    hops = table("hops", 8, lambda *_: "1")
    imported = read_topology(case_text("B09") + hops + types, "both.txt")
    assert describe(machine_of(imported)).num_direct_pairs == 12
    assert any("16 pairs are XGMI by type but 0-0" in text for text in imported.warnings)


def test_b11_two_hives_are_joined_over_the_host():
    imported = read_case("B11")
    assert imported.facts["pairs"] == {"XGMI": 12, "PCIE": 16}
    assert imported.facts["num_direct_components"] == 2
    machine = machine_of(imported)
    told = describe(machine)
    assert told.num_direct_pairs == 12
    assert told.direct_components == ((0, 1, 2, 3), (4, 5, 6, 7))
    path, by_hardware = find_path(machine, 0, 5)
    assert by_hardware
    assert path.nodes == ("gpu 0", "host0", "host1", "gpu 5")
    assert path.bandwidth_bytes_per_s < 50e9
    assert told.bisection_bytes_per_s == path.bandwidth_bytes_per_s  # one path, shared by 16 pairs
    assert any("no direct xGMI" in text for text in imported.warnings)
    alone = machine_of(read_case("B11", pcie=False))
    assert describe(alone).diameter is None


@pytest.mark.parametrize("num_gpus", [2, 3, 4, 8])
def test_meshes_of_other_sizes(num_gpus):
    imported = read(table("type", num_gpus, lambda *_: "XGMI"), gpu="mi300x")
    told = describe(machine_of(imported))
    assert told.num_links == num_gpus * (num_gpus - 1)
    assert told.kind == "mesh"


def test_xgmi_over_several_hops_is_no_link():
    ring = {(0, 1), (1, 2), (2, 3), (0, 3)}
    hops = table("hops", 4, lambda i, j: "1" if (min(i, j), max(i, j)) in ring else "2")
    imported = read(hops, table("type", 4, lambda *_: "XGMI"))
    told = describe(machine_of(imported))
    assert told.num_direct_pairs == 4
    assert told.diameter == 2
    assert any("2 pairs are XGMI over several hops" in text for text in imported.warnings)


def test_the_card_named_in_the_text_wins():
    cards = "".join(f"GPU[{g}]\t\t: Card Series: \t\tAMD Instinct MI300X OAM\n" for g in range(4))
    imported = read(table("type", 4, lambda *_: "XGMI"), cards)
    assert imported.file.gpu == "mi300x"
    assert imported.facts["gpu"] == "mi300x"


def test_pcie_across_numa_nodes_takes_both_hosts():
    text = [
        table("hops", 4, lambda *_: "2"),
        table("type", 4, lambda *_: "PCIE"),
        numa(4, lambda g: g // 2),
    ]
    machine = machine_of(read(*text))
    assert machine.switches == ("host0", "host1")
    assert find_path(machine, 0, 3)[0].nodes == ("gpu 0", "host0", "host1", "gpu 3")
    one_host = machine_of(read(*text[:2]))
    assert one_host.switches == ("host0",)


@pytest.mark.parametrize(
    ("words", "rate", "width"),
    [("50000-50000", 50.0, 1), ("64000-128000", 128.0, 2), ("48000-48000", 48.0, 1)],
)
def test_bandwidths_are_mb_per_s(words, rate, width):
    imported = read(table("bandwidth", 4, lambda *_: words, "N/A"), "Format: min-max; Units: mps\n")
    told = describe(machine_of(imported))
    assert set(rates(told).values()) == {rate}
    assert imported.facts["num_direct_links"] == 6 * width


def test_the_unit_that_is_missing_is_an_assumption():
    imported = read(table("bandwidth", 4, lambda *_: "50000-50000", "N/A"))
    assert any("MB/s" in text for text in imported.assumptions)


GOOD_TYPES = table("type", 4, lambda *_: "XGMI")
GOOD_RATES = table("bandwidth", 4, lambda *_: "50000-50000", "N/A") + "Format: min-max; Units: mps\n"


@pytest.mark.parametrize(
    ("text", "old", "new", "words"),
    [
        (GOOD_TYPES, "GPU1   XGMI", "GPU1   NVLINK", ["line 5", "GPU0-GPU1", "'NVLINK'"]),
        (GOOD_TYPES, "GPU2   XGMI   XGMI   0   XGMI\n", "", ["no GPU2 row"]),
        (GOOD_TYPES, "0   XGMI\n", "0\n", ["line 6", "row GPU2 has 3 values", "4 columns"]),
        (GOOD_TYPES, "GPU3   XGMI", "GPU2   XGMI", ["GPU2 again"]),
        (GOOD_TYPES, "Link Type", "Link Tpye", ["neither", "Link Type between two GPUs"]),
        (GOOD_TYPES, "GPU0  GPU1  GPU2  GPU3", "", ["without a header"]),
        (GOOD_TYPES, "GPU0  GPU1  GPU2  GPU3", "GPU0  GPU1  GPU2", ["row GPU3", "does not name"]),
        (GOOD_RATES, "mps", "gbps", ["line 9", "'gbps'", "mps"]),
        (GOOD_RATES, "50000-50000", "50000-20000", ["GPU0-GPU1", "50000-20000"]),
        (GOOD_RATES, "50000-50000", "0-50000", ["0-50000"]),
        (GOOD_RATES, "GPU1   50000-50000", "GPU1   50000-100000", ["GPU0-GPU1", "one way", "line 4"]),
        (GOOD_RATES, "50000-50000", "fast", ["'fast'"]),
    ],
)  # fmt: skip
def test_damage_names_line_and_value(text, old, new, words):
    assert old in text
    with pytest.raises(FileError) as caught:
        read(text.replace(old, new, 1))
    for word in ["rocm.txt", *words]:
        assert word in str(caught.value)


def test_tables_of_different_sizes_are_refused():
    with pytest.raises(FileError, match="4 gpus, another 8"):
        read(table("hops", 8, lambda *_: "1"), GOOD_TYPES)
    with pytest.raises(FileError, match=r"GPU\[5\], but the tables have 4 gpus"):
        read(GOOD_TYPES, numa(6, lambda _: 0))


def test_all_pairs_of_b08_are_direct():
    told = describe(machine_of(read_case("B08")))
    assert {(i, j) for i, j in rates(told) if i < j} == set(combinations(range(8), 2))

"""Layer: readers. nvidia-smi topo -m as public reports have it, and variations of each kind."""

import re
from itertools import combinations

import pytest
from reader_support import all_gather_s, case_text, describe_case, machine_of, rates, read_case

from ficco_sim.errors import FiccoError, FileError, MachineError
from ficco_sim.readers import read_topology
from ficco_sim.topology import describe

LEGEND = "\nLegend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n"


def matrix(
    num_gpus: int, word, *, nics: tuple[str, ...] = (), tabs: bool = True, numa: bool = True
) -> str:
    """A matrix as the tool prints it; ``word(i, j)`` fills it."""
    gap = "\t" if tabs else "    "
    gpus = [f"GPU{i}" for i in range(num_gpus)]
    more = ["CPU Affinity", "NUMA Affinity"] if numa else []
    lines = [gap + gap.join([*gpus, *nics, *more])]
    for i in range(num_gpus):
        cells = [" X " if i == j else word(i, j) for j in range(num_gpus)]
        node = 2 * i // num_gpus
        affinity = [f"{16 * node}-{16 * node + 15}", str(node)] if numa else []
        lines.append(gap.join([gpus[i], *cells, *("SYS" for _ in nics), *affinity]))
    lines += [
        gap.join([n, *("SYS" for _ in gpus), *("X" if n == m else "SYS" for m in nics)]) for n in nics
    ]
    return "\n".join(lines) + "\n" + LEGEND


def read(text: str, **options):
    return read_topology(text, "topo.txt", **options)


def test_b01_a_switch_is_not_taken_for_a_mesh():
    imported = read_case("B01", latency_s=0.0)
    assert imported.format == "topo_m"
    assert imported.kind == "switch"
    assert imported.facts["num_gpus"] == 8
    assert imported.facts["num_nics"] == 4
    assert imported.facts["pairs"] == {"NV18": 28}
    told = describe(machine_of(imported))
    assert told.kind == "switch"
    assert told.egress_bytes_per_s == (450e9,) * 8
    assert told.diameter == 1
    assert any("18 links x 7 peers = 126 > the 18 links" in text for text in imported.assumptions)
    assert all_gather_s(imported, 64 * 2**20) == pytest.approx(
        469_762_048 / 450e9, rel=1e-6
    )  # 1.044 ms
    mesh = read_case("B01", latency_s=0.0, interpret="mesh")
    assert mesh.kind == "mesh"
    assert any("126 links" in text for text in mesh.warnings)
    assert all_gather_s(mesh, 64 * 2**20) == pytest.approx(0.149e-3, rel=1e-2)


def test_b02_hybrid_cube_mesh():
    imported = read_case("B02")
    assert imported.kind == "links"
    assert imported.facts["num_gpus"] == 8
    assert imported.facts["num_nics"] == 1
    assert imported.facts["pairs"] == {"NV1": 8, "NV2": 8, "SYS": 12}
    assert imported.facts["num_direct_links"] == 24
    told = describe(machine_of(imported))
    assert told.num_direct_pairs == 16
    assert told.num_links == 32
    assert told.num_physical_links == 48
    assert told.degree == (6,) * 8
    assert told.diameter == 2
    assert told.direct_components == (tuple(range(8)),)
    assert {link.bandwidth_bytes_per_s for link in told.links if link.width == 1} == {25e9}
    assert {link.bandwidth_bytes_per_s for link in told.links if link.width == 2} == {50e9}
    assert not {(0, 5), (0, 6), (0, 7)} & set(rates(told))
    (apart,) = (text for text in imported.warnings if "no direct" in text)
    named = {tuple(map(int, pair.split("-"))) for pair in re.findall(r"\d-\d", apart)}
    assert named == {p for p in combinations(range(8), 2) if p not in rates(told)}
    assert len(named) == 12
    assert imported.file.gpu == "v100"
    with pytest.raises(MachineError, match="no link joins"):
        all_gather_s(imported, 2**20)


def test_b03_bridge_pairs_by_the_printed_link_rate():
    imported = read_case("B03")
    assert imported.facts["pairs"] == {"NV4": 4, "NODE": 8, "SYS": 16}
    assert imported.facts["gpu"] == "a40"
    told = describe(machine_of(imported))
    assert told.direct_components == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert rates(told)[0, 1] == pytest.approx(56.25, rel=1e-3)
    assert told.diameter == 1  # over the host
    assert told.num_switches == 2
    assert any("PCIe: 31.5 GB/s" in text for text in imported.assumptions)
    alone = read_case("B03", pcie=False)
    told = describe(machine_of(alone))
    assert told.num_links == 8
    assert told.diameter is None
    assert any("without PCIe" in text for text in alone.warnings)


def test_b03_without_the_pasted_status_the_rate_is_that_of_the_gpu():
    text = case_text("B03").partition("$ nvidia-smi")[0]
    imported = read(text)
    assert imported.file.gpu == "a40"  # 4 links
    assert rates(describe(machine_of(imported)))[0, 1] == pytest.approx(56.25)
    assert any("14.0625 GB/s" in text for text in imported.assumptions)


def test_b04_a_mesh_is_not_taken_for_a_switch():
    imported = read_case("B04", latency_s=0.0)
    assert imported.kind == "mesh"
    assert imported.facts["pairs"] == {"NV4": 6}
    assert imported.facts["num_nics"] == 4
    assert any("4 links x 3 peers = 12 of the 12 links" in text for text in imported.assumptions)
    told = describe(machine_of(imported))
    assert told.egress_bytes_per_s == (300e9,) * 4
    assert set(rates(told).values()) == {100.0}
    assert all_gather_s(imported, 10**9) == pytest.approx(10.0e-3, rel=1e-6)
    measured = read_case("B04", latency_s=0.0, usable_share=0.72)
    assert all_gather_s(measured, 10**9) == pytest.approx(13.9e-3, rel=1e-2)
    shared = read_case("B04", latency_s=0.0, interpret="switch")
    assert shared.kind == "switch"
    assert all_gather_s(shared, 10**9) == pytest.approx(30e-3, rel=1e-6)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("B06", ["B06_topo_m_failed.txt: line 2", "no matrix", "Failed to run topology matrix"]),
        ("B07", ["B07_topo_p2p_status.txt: line 2", "P2P status table, not a link matrix"]),
        (
            "B21",
            ["line 1: the header names GPU2 but no GPU2 row", "GPU0-GPU3", "'NV2'", "'NV1'", "line 4"],
        ),
    ],
)  # fmt: skip
def test_what_is_no_whole_matrix_is_refused(case, words):
    with pytest.raises(FileError) as caught:
        read_case(case)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("tabs", [True, False])
@pytest.mark.parametrize(
    "nics", [(), ("NIC0", "NIC1"), ("mlx5_0",), ("hfi1_0", "bnxt_re1", "rocep1s0")]
)
@pytest.mark.parametrize("numa", [True, False])
def test_layouts_and_nic_names(tabs, nics, numa):
    imported = read(matrix(4, lambda *_: "NV4", nics=nics, tabs=tabs, numa=numa))
    assert imported.facts["num_gpus"] == 4
    assert imported.facts["num_nics"] == len(nics)
    assert imported.kind == "mesh"


@pytest.mark.parametrize(
    ("num_gpus", "links", "gpu", "kind", "egress_gb_per_s"),
    [
        (2, 18, "h200", "mesh", 450),
        (4, 6, "h200", "mesh", 450),
        (4, 18, "h200", "switch", 450),
        (8, 12, "a100", "switch", 300),
        (16, 6, "v100", "switch", 150),
        (4, 2, "v100", "mesh", 150),
    ],
)
def test_switch_or_mesh_by_the_links_that_a_gpu_has(num_gpus, links, gpu, kind, egress_gb_per_s):
    imported = read(matrix(num_gpus, lambda *_: f"NV{links}"))
    assert imported.file.gpu == gpu
    assert imported.kind == kind
    told = describe(machine_of(imported))
    assert told.egress_bytes_per_s == (egress_gb_per_s * 1e9,) * num_gpus
    assert any(gpu in text for text in imported.assumptions)


def test_two_switch_groups_over_the_host():
    text = matrix(8, lambda i, j: "NV18" if i // 4 == j // 4 else "SYS")
    imported = read(text)
    machine = machine_of(imported)
    told = describe(machine)
    assert told.diameter == 1
    assert [n for n in machine.switches if n.startswith("nvswitch")] == ["nvswitch0", "nvswitch1"]
    assert imported.facts["num_hosts"] == 2
    # hardware prefers the switch of the gpus: the way over PCIe is longer
    from ficco_sim.topology import find_path

    assert find_path(machine, 0, 1)[0].nodes == ("gpu 0", "nvswitch0", "gpu 1")
    assert "host1" in find_path(machine, 0, 7)[0].nodes


def test_pcie_only_machine():
    def word(i, j):
        if i // 2 == j // 2:
            return "PIX"
        return "NODE" if i // 4 == j // 4 else "SYS"

    imported = read(matrix(8, word), gpu="a40")
    machine = machine_of(imported)
    assert machine.switches == ("host0", "host1", "pcie0", "pcie2", "pcie4", "pcie6")
    assert describe(machine).diameter == 1
    assert all_gather_s(imported, 2**20) > 0


def test_the_gpu_named_in_the_text_wins_and_disagreement_is_told():
    listing = "".join(f"GPU {i}: NVIDIA H100 80GB HBM3 (UUID: GPU-{i})\n" for i in range(8))
    imported = read(case_text("B01") + "\n" + listing)
    assert imported.file.gpu == "h100"
    assert not any("gpu type" in text for text in imported.assumptions)
    other = read(case_text("B01") + "\n" + listing, gpu="h200")
    assert other.file.gpu == "h200"
    assert any("names a h100" in text for text in other.warnings)
    mixed = listing.replace("GPU 3: NVIDIA H100", "GPU 3: NVIDIA A100")
    with pytest.raises(MachineError, match="several types"):
        read(case_text("B01") + "\n" + mixed)
    unknown = listing.replace("H100 80GB HBM3", "RTX 6000 Ada")
    assert any("RTX 6000" in text for text in read(case_text("B01") + unknown).warnings)


def test_bandwidth_and_latency_can_be_given():
    imported = read_case("B02", bandwidth_bytes_per_s=20e9, latency_s=2e-6)
    told = describe(machine_of(imported))
    assert set(rates(told).values()) == {20.0, 40.0}
    assert {link.latency_s for link in told.links} == {2e-6}


def test_pcie_can_be_added_to_a_connected_machine():
    machine = machine_of(read_case("B02", pcie=True))
    assert describe(machine).diameter == 1
    assert machine.switches == ("host0", "host1")


BASE = matrix(4, lambda *_: "NV4", tabs=False)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("GPU1    NV4     X ", "GPU1    NV4    NV4", ["line 3", "GPU1-GPU1", "'NV4'", "X marks"]),
        ("GPU1    NV4", "GPU1    X", ["line 3", "GPU1-GPU0", "'X'"]),
        ("GPU2    NV4", "GPU2    NV0", ["line 4", "GPU2-GPU0", "'NV0'"]),
        ("GPU2    NV4", "GPU2    NVX", ["line 4", "GPU2-GPU0", "'NVX'", "PIX"]),
        ("GPU2    NV4", "GPU2    SYS", ["line 4", "GPU0-GPU2", "'NV4'", "'SYS'"]),
        ("GPU2    NV4", "GPU1    NV4", ["GPU1 again", "line 1", "no GPU2 row"]),
        ("GPU3    NV4", "GPU7    NV4", ["line 5: row GPU7", "no GPU3 row"]),
        ("GPU0    GPU1", "GPU0    GPU0", ["line 1", "some twice"]),
        ("NV4    NV4    NV4     X     16-31    1", "NV4", ["line 5", "1 values", "4 columns"]),
        ("\nLegend", "\n    GPU0    GPU1\nLegend", ["line 7", "second header"]),
    ],
)
def test_damage_names_line_and_value(old, new, words):
    assert old in BASE
    with pytest.raises(FileError) as caught:
        read(BASE.replace(old, new, 1))
    for word in words:
        assert word in str(caught.value)


def test_links_that_contradict_the_gpu_are_refused():
    irregular = case_text("B02").replace("NV2", "NV9")
    with pytest.raises(MachineError, match=r"topo.txt: line \d+: gpu \d uses 20 NVLink links"):
        read(irregular)
    with pytest.raises(MachineError, match=r"gpu \d uses 6 NVLink links, a40 gpus have 4"):
        read(case_text("B02"), gpu="a40")
    huge = matrix(2, lambda *_: "NV99")
    with pytest.raises(FiccoError, match="99 NVLink links"):
        read(huge)
    with pytest.raises(FileError, match="lists 4 active links"):
        read(case_text("B03").replace("NV4", "NV5"))
    with pytest.raises(MachineError, match="interpret: switch needs"):
        read_case("B02", interpret="switch")


def test_inactive_links_are_told_of():
    text = case_text("B03").replace("NV4", "NV3")
    text = re.sub(r"Link 3: .*", "Link 3: <inactive>", text)
    imported = read(text)
    assert rates(describe(machine_of(imported)))[0, 1] == pytest.approx(3 * 14.062)
    assert any("8 links are inactive" in text for text in imported.warnings)


def test_a_gpu_more_than_the_matrix_has_is_refused():
    with pytest.raises(FileError, match=r"line \d+: GPU 8, but the matrix has 8 gpus"):
        read(case_text("B03") + "GPU 8: NVIDIA A40 (UUID: x)\n")


def test_describe_case_counts_links_of_a_board():
    assert describe_case("B04").num_links == 12

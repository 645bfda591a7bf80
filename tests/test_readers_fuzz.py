"""Layer: readers. Any text gives a machine or one clear error, never a smaller machine in silence."""

import contextlib
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reader_support import case_text

from ficco_sim.errors import FiccoError
from ficco_sim.io import dump_json, dump_yaml
from ficco_sim.machine import build_machine
from ficco_sim.readers import FORMATS, read_topology
from ficco_sim.topology import make_machine_file

NODE_LINK = dump_json(
    {
        "directed": False,
        "multigraph": False,
        "nodes": [{"id": i} for i in range(4)],
        "links": [
            {"source": i, "target": (i + 1) % 4, "bandwidth_GBps": 50, "latency_us": 1}
            for i in range(4)
        ],
    }
)
OWN = dump_yaml(
    make_machine_file("ring", gpu="mi300x", num_gpus=6, bandwidth_bytes_per_s=64e9, latency_s=1e-6)
)
# format, a text of it, and its number of gpus
GOOD = {
    **{
        case: ("topo_m", case_text(case), 4 if case == "B04" else 8)
        for case in ("B01", "B02", "B03", "B04")
    },
    **{case: ("rocm_smi", case_text(case), 8) for case in ("B08", "B09", "B11")},
    "B16": ("astra_sim", case_text("B16"), 8),
    "B17": ("astra_sim", case_text("B17"), 32),
    "B18": ("graphml", case_text("B18"), 4),
    "node-link": ("node_link", NODE_LINK, 4),
    "own": ("ficco", OWN, 6),
}
NO_HEADER = ("B18", "node-link")  # nothing in a graph says how many nodes there should be
FUZZ = settings(max_examples=settings().max_examples // 2, suppress_health_check=[HealthCheck.too_slow])

TITLES = ("== Link Type between two GPUs ==", "== Bandwidth between two GPUs ==")
PIECES = """
GPU0 GPU1 GPU X NV1 NV18 NV99999 SYS PIX NIC0 CPU Affinity Legend: ==== XGMI PCIE 0-0 1-0 N/A : - mps
50000-100000 GPU[0] topology: npus_count: bandwidth: latency: [Ring] [2] [8,2] [nan] [-1] [1e999] {
<graphml> <node/> } [] 0 1 &a *a Units: Link between two GPUs Type Bandwidth "nodes": GB/s 25
"""
WORDS = st.sampled_from([*PIECES.split(), "\n", "\t", "\x00", "\x1b[4m", *TITLES])


def read(text: str, name: str | None = None):
    imported = read_topology(text, "file", format=name)
    build_machine(imported.file, "file")
    return imported


@FUZZ
@given(
    text=st.one_of(st.text(max_size=300), st.lists(WORDS, max_size=40).map(" ".join)),
    name=st.sampled_from([None, *FORMATS]),
)
def test_any_text_gives_a_machine_or_an_error(text, name):
    with contextlib.suppress(FiccoError):
        read(text, name)


@pytest.mark.parametrize("case", GOOD)
@FUZZ
@given(data=st.data())
def test_a_truncated_file_is_no_smaller_machine(case, data):
    name, text, num_gpus = GOOD[case]
    end = data.draw(st.integers(0, len(text)))
    forced = data.draw(st.sampled_from([None, name]))
    with contextlib.suppress(FiccoError):
        assert read(text[:end], forced).file.num_gpus == num_gpus


@pytest.mark.parametrize("case", GOOD)
@FUZZ
@given(data=st.data())
def test_a_file_without_some_lines_is_no_smaller_machine(case, data):
    name, text, num_gpus = GOOD[case]
    lines = text.splitlines(keepends=True)
    most = 1 if case in NO_HEADER else 4
    gone = data.draw(st.sets(st.integers(0, len(lines) - 1), min_size=1, max_size=most))
    left = "".join(line for i, line in enumerate(lines) if i not in gone)
    with contextlib.suppress(FiccoError):
        imported = read(left, name)
        assert imported.file.num_gpus == num_gpus


@pytest.mark.parametrize("case", GOOD)
@FUZZ
@given(data=st.data())
def test_a_damaged_file_gives_a_machine_or_an_error(case, data):
    name, text, _ = GOOD[case]
    at = data.draw(st.integers(0, len(text)))
    until = at + data.draw(st.integers(0, 12))
    new = data.draw(st.one_of(st.text(max_size=8), WORDS))
    with contextlib.suppress(FiccoError):
        read(text[:at] + new + text[until:], name)


@pytest.mark.parametrize("case", GOOD)
def test_each_line_missing_on_its_own(case):
    """Every single line of every file: the same number of gpus, or an error."""
    name, text, num_gpus = GOOD[case]
    lines = text.splitlines(keepends=True)
    for i in range(len(lines)):
        with contextlib.suppress(FiccoError):
            assert read("".join(lines[:i] + lines[i + 1 :]), name).file.num_gpus == num_gpus


@pytest.mark.parametrize("case", GOOD)
def test_line_ends_and_marks_of_other_systems(case):
    name, text, num_gpus = GOOD[case]
    imported = read("\ufeff" + text.replace("\n", "\r\n"))
    assert imported.format == name
    assert imported.file.num_gpus == num_gpus
    assert imported.file.topology == read(text).file.topology


SIZE = 200_000
LONG = {
    "blank": "\n" * SIZE + "!",
    "spaces": " " * SIZE + "x",
    "title": "=" * SIZE + " x",
    "colours": "\x1b[" * SIZE,
    "tags": "<!" * SIZE,
    "nested": "<graphml>" + "<graph>" * (SIZE // 10),
    "brackets": '{"nodes":' + "[" * SIZE,
    "header": "\t" + "\t".join(f"GPU{i}" for i in range(SIZE // 10)),
    "rows": "\tGPU0\tGPU1\n" + "GPU0\tX\tNV1\n" * (SIZE // 10),
    "name": "\tGPU0\nGPU0 X\nGPU 0: a" + " " * SIZE + "(x",
    "digits": "\tGPU0\tGPU1\nGPU0\tX\tNV" + "1" * SIZE + "\nGPU1\tNV1\tX\n",
    "values": "npus_count: [" + "1," * SIZE + "1]",
}


@pytest.mark.parametrize("kind", LONG)
def test_long_text_takes_no_long_time(kind):
    start_s = time.process_time()
    with contextlib.suppress(FiccoError):
        read(LONG[kind])
    assert time.process_time() - start_s < 5

"""Layer: command line, in process. What it prints and writes, and one clear error for bad input."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli_support import fail, run

from ficco_sim.cli import main
from ficco_sim.plan import load_plan
from ficco_sim.trace import load_trace

SMALL = ["--gemm", "512,256,256"]
LIGHT_MACHINE = "h200_2"


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_compare_prints_a_table_and_a_sentence(capsys):
    out = run(capsys, "compare", "--workload", "llama3-70b-tp8-gate-up-256")
    for word in ("speed-up", "makespan", "exposed", "held back by", "hetero-unfused-1d", "shard-p2p"):
        assert word in out
    assert "Overlap does not pay here" in out
    assert "simulated" in out
    assert "emulated" in out


def test_compare_every_shows_all_knobs(capsys):
    few = run(capsys, "compare", "--machine", LIGHT_MACHINE, *SMALL)
    many = run(capsys, "compare", "--machine", LIGHT_MACHINE, *SMALL, "--every")
    assert few.count("hetero-unfused-1d ") == 1
    assert many.count("hetero-unfused-1d ") == 4  # 2 and 4 chunks, 1 and 4 queues


def test_compare_writes_what_is_asked_for(capsys):
    out = run(
        capsys, "compare", "--machine", LIGHT_MACHINE, *SMALL, "--json", "r.json", "--trace", "t.json",
        "--plot", "p.png",
    )  # fmt: skip
    assert "p.png" in out
    assert "t.json" in out
    result = json.loads(Path("r.json").read_text())
    assert result["machine"] == LIGHT_MACHINE
    assert result["best"] == result["results"][0]["schedule"]
    trace = json.loads(Path("t.json").read_text())
    assert {event["ph"] for event in trace["traceEvents"]} >= {"M", "X"}
    assert Path("p.png").read_bytes().startswith(b"\x89PNG")


def test_json_on_standard_output_is_the_whole_output(capsys):
    result = json.loads(run(capsys, "compare", "--machine", LIGHT_MACHINE, *SMALL, "--json", "-"))
    assert result["serial_s"] > 0
    assert json.loads(run(capsys, "list", "machines", "--json", "-"))
    row = json.loads(
        run(capsys, "simulate", "hetero-fused-1d", "--machine", LIGHT_MACHINE, *SMALL, "--json", "-")
    )
    assert row["schedule"] == "hetero-fused-1d"
    assert row["num_tasks"] > 0
    assert row["wall_s"] > 0


def test_same_input_same_output(capsys):
    args = ("compare", "--machine", LIGHT_MACHINE, *SMALL, "--json", "-")
    assert run(capsys, *args) == run(capsys, *args)


def test_plan_check_simulate_through_a_file(capsys):
    out = run(
        capsys, "plan", "uniform-fused-2d", "--gemm", "40,8,16", "--num-gpus", "2", "--num-chunks", "3",
        "--json", "plan.json",
    )  # fmt: skip
    assert "dma 0" in out
    assert "compute 0" in out
    assert "legal and complete" in run(capsys, "check", "plan.json")
    assert "exact in 3 orders" in run(capsys, "check", "plan.json", "--evaluate")
    by_file = json.loads(
        run(capsys, "simulate", "--plan", "plan.json", "--machine", "h200_2", "--json", "-")
    )
    direct = json.loads(
        run(
            capsys, "simulate", "uniform-fused-2d", "--gemm", "40,8,16", "--num-chunks", "3",
            "--machine", "h200_2", "--json", "-",
        )
    )  # fmt: skip
    assert by_file["makespan_s"] == direct["makespan_s"]


def test_simulate_writes_its_spans(capsys):
    run(capsys, "plan", "uniform-fused-1d", *SMALL, "--num-gpus", "2", "--json", "plan.json")
    given = ["simulate", "--plan", "plan.json", "--machine", LIGHT_MACHINE]
    row = json.loads(run(capsys, *given, "--spans", "spans.json", "--json", "-"))
    trace = load_trace(Path("spans.json"))
    plan = load_plan(Path("plan.json"))
    assert trace.source == "sim"
    assert trace.plan_fingerprint == plan.fingerprint
    assert [span.task_id for span in trace.spans] == [task.id for task in plan.tasks]
    assert trace.makespan_s == row["makespan_s"]
    assert "spans.json" in run(capsys, *given, "--spans", "spans.json")
    assert "no folder" in fail(capsys, *given, "--spans", "absent/spans.json")


def test_check_names_the_racing_tasks_of_a_damaged_plan(capsys):
    run(capsys, "plan", "serial", "--gemm", "40,8,16", "--num-gpus", "2", "--json", "plan.json")
    document = json.loads(Path("plan.json").read_text())
    gemm = next(t for t in document["tasks"] if t["kind"] == "gemm")
    dropped = gemm["deps"]
    gemm["deps"] = []
    Path("plan.json").write_text(json.dumps(document))
    error = fail(capsys, "check", "plan.json")
    assert gemm["id"] in error
    assert dropped[0] in error
    fail(capsys, "simulate", "--plan", "plan.json", "--machine", "h200_2")


def test_list(capsys):
    assert "shard-ring" in run(capsys, "list", "schedules")
    assert "torus_4x4" in run(capsys, "list", "machines")
    out = run(capsys, "list", "workloads")
    for word in ("llama3-405b-tp8-qkv-8k", "16384", "bf16", "TFLOP", "MiB", "GEMM/comm", "on mi300x_8"):
        assert word in out


def test_named_workloads_span_the_ratios_asked_for(capsys):
    rows = json.loads(run(capsys, "list", "workloads", "--json", "-"))
    assert len(rows) >= 20
    assert all(row["gemm_to_comm"] > 0 for row in rows)
    ratios = [row["gemm_to_comm"] for row in rows if row["pattern"] == "all_gather_gemm"]
    assert min(ratios) <= 0.35
    assert 7 <= max(ratios) <= 9
    # the ratio is the machine's: faster links, larger ratio
    other = json.loads(run(capsys, "list", "workloads", "--machine", "h200_8", "--json", "-"))
    assert other != rows


def test_cost(capsys):
    out = run(capsys, "cost", "--gemm", "8192,8192,8192")
    assert "measured" in out
    row = json.loads(run(capsys, "cost", "--gemm", "8192,8192,8192", "--json", "-"))
    assert 0.4 < row["share_of_peak"] < 0.55  # FACTS: sustained bf16 is 46 to 50 % of peak
    fewer = json.loads(
        run(capsys, "cost", "--gemm", "8192,8192,8192", "--compute-units", "272", "--json", "-")
    )
    assert fewer["time_s"] > row["time_s"]
    copy = json.loads(run(capsys, "cost", "--copy", "64MiB", "--json", "-"))
    assert copy["time_s"] == pytest.approx(2**26 / 46.5e9 + 6.85e-6, rel=1e-3)
    local = json.loads(run(capsys, "cost", "--local-copy", "1GB", "--json", "-"))
    assert local["time_s"] == pytest.approx(2e9 / 3.5e12, rel=0.01)


def test_cost_of_a_csv_file_keeps_its_columns(capsys):
    Path("in.csv").write_text("name,M,N,K,dtype\nx,4096,4096,4096,bf16\ny,1,1,1,fp8\n")
    rows = list(csv.DictReader(io.StringIO(run(capsys, "cost", "--csv", "in.csv"))))
    assert [row["name"] for row in rows] == ["x", "y"]
    alone = json.loads(run(capsys, "cost", "--gemm", "4096,4096,4096", "--json", "-"))["time_s"]
    assert float(rows[0]["predicted_s"]) == alone
    run(capsys, "cost", "--csv", "in.csv", "--out", "out.csv")
    assert "predicted_s" in Path("out.csv").read_text()


WORKLOAD_FILE = """format_version: 1
workloads:
  - {name: mine, pattern: all_gather_gemm, m: 512, n: 256, k: 256}
"""
MACHINE_FILE = """format_version: 1
name: mine
description: two gpus
gpu: h200
num_gpus: 2
topology: {family: full_mesh, bandwidth_bytes_per_s: 50e9, latency_s: 1e-6}
"""


def test_files_of_ones_own(capsys):
    Path("w.yaml").write_text(WORKLOAD_FILE)
    Path("m.yaml").write_text(MACHINE_FILE)
    out = run(capsys, "compare", "--machine", "m.yaml", "--workload", "w.yaml")
    assert "mine on mine" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", *SMALL, "--machine", "mi300"], ["'mi300'", "mi300x_8", "torus_4x4"]),
        (["compare", "--workload", "llama"], ["'llama'", "llama3-70b-tp8-qkv-8k"]),
        (["compare"], ["--workload", "--gemm"]),
        (["compare", *SMALL, "--workload", "llama3-70b-tp8-qkv-8k"], ["--workload", "--gemm"]),
        (["compare", "--gemm", "1,2"], ["--gemm", "1,2", "M,N,K"]),
        (["compare", "--gemm", "0,2,3"], ["--gemm", "m: 0", "1 to"]),
        (["compare", "--gemm", "5,-2,3"], ["--gemm", "n: -2", "1 to"]),
        (["compare", "--gemm", "5,2,nan"], ["--gemm", "K = 'nan'", "whole number"]),
        (["compare", "--gemm", "5,2.5,3"], ["--gemm", "N = '2.5'", "whole number"]),
        (["compare", "--gemm", "9" * 30 + ",2,3"], ["--gemm", "m: 9999", "1 to"]),
        (["compare", "--gemm", "9" * 5000 + ",2,3"], ["--gemm", "M = "]),
        (["compare", *SMALL, "--dtype", "int8"], ["--dtype", "'int8'", "bf16"]),
        (["compare", *SMALL, "--costs", "free"], ["--costs", "free", "ideal"]),
        (["compare", *SMALL, "--engine", "rdma"], ["--engine", "rdma", "core"]),
        (["compare", *SMALL, "--plot", "x.bmp"], ["x.bmp", ".png"]),
        (["compare", *SMALL, "--plot", "no/x.png"], ["no/x.png", "no folder"]),
        (["compare", *SMALL, "--json", "no/x.json"], ["no/x.json", "no folder"]),
        (["compare", *SMALL, "--trace", "."], ["folder"]),
        (["compare", *SMALL, "--machine", "none.yaml"], ["none.yaml", "no such file"]),
        (["compare", "--workload", "deepseek-v3-ep8-gate-up-4k", "--machine", "h200_2"],
         ["deepseek-v3-ep8-gate-up-4k", "8 gpus, not 2"]),
        (["compare", *SMALL, "--nonsense"], ["--nonsense"]),
        (["simulate"], ["schedule", "--plan"]),
        (["simulate", "fastest", *SMALL], ["'fastest'", "hetero-fused-1d"]),
        (["simulate", "serial", *SMALL, "--num-chunks", "2"], ["serial", "num_chunks", "engine"]),
        (["simulate", "hetero-fused-1d", *SMALL, "--num-chunks", "0"], ["num_chunks: 0", "1 to"]),
        (["simulate", "hetero-fused-1d", *SMALL, "--num-chunks", "nan"], ["--num-chunks", "nan"]),
        (["simulate", "hetero-fused-1d", *SMALL, "--compute-queues", "-1"], ["compute_queues: -1"]),
        (["simulate", "--plan", "none.json"], ["none.json", "no such file"]),
        (["plan", "serial", *SMALL, "--num-gpus", "0"], ["num_gpus: 0", "1 to"]),
        (["plan", "serial", *SMALL, "--num-gpus", "100000"], ["num_gpus: 100000"]),
        (["plan", "hetero-fused-1d", *SMALL, "--num-gpus", "1024", "--num-chunks", "4096"],
         ["num_chunks: 4096", "transfers"]),
        (["plan", "serial", *SMALL, "--gpu", "9"], ["gpu: 9", "0 to 7"]),
        (["check", "."], ["."]),
        (["list", "gpus"], ["gpus", "machines"]),
        (["cost"], ["--gemm", "--csv"]),
        (["cost", "--gemm", "1,1,1", "--copy", "1"], ["--gemm and --copy"]),
        (["cost", "--copy", "-3"], ["--copy", "-3"]),
        (["cost", "--copy", "3 bananas"], ["--copy", "bananas"]),
        (["cost", "--copy", "nan"], ["--copy", "nan"]),
        (["cost", "--gemm", "1,1,1", "--compute-units", "0"], ["compute_units: 0", "304"]),
        (["cost", "--gemm", "1,1,1", "--compute-units", "305"], ["compute_units: 305", "304"]),
        (["bogus"], ["bogus", "compare"]),
    ],
)  # fmt: skip
def test_bad_input_gets_one_clear_error(capsys, arguments, words):
    error = fail(capsys, *arguments)
    for word in words:
        assert word in error


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["in.csv", "line 1", "M"]),
        ("M,N,K\n1,1,1\n", ["line 1", "dtype"]),
        ("M,N,K,dtype\n", ["no rows"]),
        ("M,N,K,dtype\n1,1,1,bf16\n1,x,1,bf16\n", ["line 3", "N", "'x'"]),
        ("M,N,K,dtype\n1,1,0,bf16\n", ["line 2", "k: 0"]),
        ("M,N,K,dtype\n1,1,nan,bf16\n", ["line 2", "K", "nan"]),
        ("M,N,K,dtype\n1,1,1e3,bf16\n", ["line 2", "K", "1e3"]),
        ("M,N,K,dtype\n1,1,1,int4\n", ["line 2", "dtype", "int4"]),
        ("M,N,K,dtype\n1,1,1\n", ["line 2"]),
        ("M,N,K,dtype\n1,1,1,bf16,9\n", ["line 2"]),
        ('M,N,K,dtype\n1,1,1,"bf16\n', ["line 2"]),
    ],
)
def test_bad_csv_names_file_and_line(capsys, text, words):
    Path("in.csv").write_text(text)
    Path("out.csv").write_text("precious")
    error = fail(capsys, "cost", "--csv", "in.csv", "--out", "out.csv")
    for word in words:
        assert word in error
    assert Path("out.csv").read_text() == "precious"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("m: 512", "m: 0", ["w.yaml", "workloads[0]", "m: 0"]),
        ("m: 512", "m: .nan", ["w.yaml", "workloads[0].m", "nan"]),
        ("m: 512", "m: many", ["w.yaml", "workloads[0].m", "'many'"]),
        ("m: 512", "rows: 512", ["w.yaml", "workloads[0].rows", "unknown key"]),
        ("n: 256, ", "", ["w.yaml", "workloads[0].n", "missing"]),
        ("format_version: 1", "format_version: 2", ["w.yaml", "format_version"]),
        ("workloads:", "workloads: [", ["w.yaml", "line", "not YAML"]),
    ],
)
def test_bad_workload_file_names_file_key_and_value(capsys, old, new, words):
    Path("w.yaml").write_text(WORKLOAD_FILE.replace(old, new))
    error = fail(capsys, "compare", "--workload", "w.yaml")
    for word in words:
        assert word in error


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("50e9", "-50e9", ["m.yaml", "topology", "bandwidth_bytes_per_s", "-5"]),
        ("50e9", "0", ["m.yaml", "topology", "bandwidth_bytes_per_s", "0"]),
        ("50e9", ".inf", ["m.yaml", "topology.bandwidth_bytes_per_s", "inf"]),
        ("50e9", "1e30", ["m.yaml", "topology", "bandwidth_bytes_per_s", "1e+30"]),
        ("50e9", "fast", ["m.yaml", "topology.bandwidth_bytes_per_s", "'fast'"]),
        ("1e-6", "1e6", ["m.yaml", "topology", "latency_s", "1000000"]),
        ("num_gpus: 2", "num_gpus: 2.5", ["m.yaml", "num_gpus", "2.5"]),
        ("num_gpus: 2", "num_gpus: true", ["m.yaml", "num_gpus"]),
        ("full_mesh", "mesh", ["m.yaml", "topology.family", "'mesh'", "full_mesh"]),
        ("gpu: h200", "gpu: h300", ["m.yaml", "gpu", "'h300'", "mi300x"]),
        ("name: mine", "name: mine\nname: yours", ["m.yaml", "line 3", "name"]),
        ("description: two gpus", "colour: red", ["m.yaml", "colour", "unknown key"]),
        (", latency_s: 1e-6", "", ["m.yaml", "topology", "latency_s"]),
    ],
)
def test_bad_machine_file_names_file_key_and_value(capsys, old, new, words):
    Path("m.yaml").write_text(MACHINE_FILE.replace(old, new))
    error = fail(capsys, "compare", *SMALL, "--machine", "m.yaml")
    for word in words:
        assert word in error


def test_an_error_leaves_existing_output_alone(capsys):
    Path("r.json").write_text("precious")
    fail(capsys, "compare", *SMALL, "--machine", "nowhere", "--json", "r.json")
    assert Path("r.json").read_text() == "precious"
    assert [p.name for p in Path().iterdir()] == ["r.json"]


def test_our_own_fault_exits_with_1_and_no_traceback(capsys, monkeypatch):
    def broken(*_: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("ficco_sim.catalogue.schedules", broken)
    assert main(["list", "schedules"]) == 1
    captured = capsys.readouterr()
    assert "internal error" in captured.err
    assert "Traceback" not in captured.err


def test_help_imports_nothing_heavy():
    heavy = ["numpy", "pandas", "networkx", "matplotlib", "simpy", "pydantic", "ruamel"]
    code = (
        "import sys; from ficco_sim.cli import main; code = main(['--help']); "
        f"sys.exit(code or sum(m in sys.modules for m in {heavy}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for verb in ("compare", "simulate", "plan", "check", "list", "cost"):
        assert verb in done.stdout


@pytest.mark.parametrize("verb", ["compare", "simulate", "plan", "check", "list", "cost"])
def test_every_verb_has_help(capsys, verb):
    assert "Usage: ficco" in run(capsys, verb, "--help")


def test_compare_relays_where_gpus_forward(capsys):
    row = json.loads(
        run(capsys, "simulate", "hetero-fused-1d", "--machine", "ring_8", *SMALL, "--json", "-")
    )
    assert row["makespan_s"] > 0
    # forwarded in pieces, the tasks are others than those of the schedule's plan
    run(
        capsys, "simulate", "serial", "--machine", "ring_8", "--gemm", "65536,256,4096",
        "--plot", "p.svg", "--trace", "t.json",
    )  # fmt: skip
    assert ".p0" in Path("t.json").read_text()
    out = run(capsys, "compare", "--machine", "ring_8", "--gemm", "4096,256,256")
    assert "shard-ring" in out


def test_skew(capsys):
    args = ("simulate", "serial", "--workload", "mixtral-8x7b-ep8-gate-up-2k", "--json", "-")
    even = json.loads(run(capsys, *args))
    tilted = json.loads(run(capsys, *args, "--skew", "1"))
    assert tilted["makespan_s"] > 2 * even["makespan_s"]


def test_collective(capsys):
    out = run(capsys, "collective", "all_gather", "--bytes", "512MiB", "--links")
    assert "busbw" in out
    assert out.count(" -> ") == 56 + 1
    result = json.loads(
        run(
            capsys, "collective", "all_reduce", "--bytes", "64MiB", "--algorithm", "ring", "--json", "-"
        )
    )
    assert {"time_s", "algbw_bytes_per_s", "busbw_bytes_per_s", "busiest_link"} <= set(result)
    assert "no bytes" in run(capsys, "collective", "all_gather", "--bytes", "0")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["all_gather"], ["--bytes"]),
        (["broadcast", "--bytes", "1"], ["broadcast", "all_gather"]),
        (["all_gather", "--bytes", "-1"], ["--bytes", "-1"]),
        (["all_gather", "--bytes", "lots"], ["--bytes", "lots"]),
        (["all_gather", "--bytes", "1", "--algorithm", "tree"], ["--algorithm", "tree"]),
        (["all_to_all", "--bytes", "1", "--algorithm", "ring"], ["all_to_all", "ring", "direct"]),
        (["all_reduce", "--bytes", "1", "--algorithm", "hierarchical"], ["extents"]),
        (["all_reduce", "--bytes", "1", "--algorithm", "hierarchical", "--extents", "2,x"], ["2,x"]),
        (["all_reduce", "--bytes", "1", "--algorithm", "hierarchical", "--extents", "3,3"], ["[3, 3]"]),
        (["all_gather", "--bytes", "1", "--num-chunks", "0"], ["num_chunks: 0"]),
        (["all_gather", "--bytes", "1", "--dtype", "int8"], ["int8"]),
        (["all_gather", "--bytes", "1", "--machine", "moon"], ["'moon'"]),
    ],
)
def test_bad_collective_input(capsys, arguments, words):
    error = fail(capsys, "collective", *arguments)
    for word in words:
        assert word in error


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("tp: 8", "tp: 0", ["w.yaml", "operators[0]", "tp: 0"]),
        ("tp: 8", "ep: 8, tp: 8", ["w.yaml", "operators[0]", "tp, ep"]),
        ("tp: 8", "degree: 8", ["w.yaml", "operators[0].degree", "unknown key"]),
        ("n: 28672", "n: -1", ["w.yaml", "operators[0]", "n:"]),
        ("tp: 8", "ep: 8, skew: -1", ["w.yaml", "operators[0]", "skew"]),
    ],
)
def test_bad_operator_files(capsys, old, new, words):
    text = "format_version: 1\noperators:\n  - {name: up, whole: {m: 512, n: 28672, k: 256}, tp: 8}\n"
    Path("w.yaml").write_text(text)
    assert "up on mi300x_8" in run(capsys, "compare", "--workload", "w.yaml")
    Path("w.yaml").write_text(text.replace(old, new))
    error = fail(capsys, "compare", "--workload", "w.yaml")
    for word in words:
        assert word in error

"""Layer: plan and simulator. Schedules of the user's: proved, compared beside ours, their errors."""

import importlib.util
import itertools
import json
from pathlib import Path

import pytest
from cli_support import fail, run
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples, right_in_every_order, routed, workload_for

from ficco_sim.check import check_plan
from ficco_sim.comparison import compare
from ficco_sim.errors import FileError, ScenarioError
from ficco_sim.grid import Grid
from ficco_sim.machine import load_machine
from ficco_sim.plan import Gemm, Transfer
from ficco_sim.schedules import load_schedule, make_plan, own_plan
from ficco_sim.sim import simulate
from ficco_sim.workload import Workload, get_workload

FILE = Path(__file__).parent.parent / "docs" / "examples" / "tapered.py"
TAPERED = f"{FILE}:tapered"
SMALL = ("--gemm", "512,128,256", "--machine", "mi210_4")


def load():
    spec = importlib.util.spec_from_file_location("tapered", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.tapered


tapered = load()


@examples(60)
@given(
    m=st.integers(1, 60),
    num_gpus=st.integers(1, 6),
    num_chunks=st.integers(1, 6),
    taper=st.integers(1, 100),
    exchange=st.booleans(),
)
def test_the_example_computes_its_workload_in_every_order(m, num_gpus, num_chunks, taper, exchange):
    workload = workload_for("serial", m=m)
    if exchange:
        workload = routed(workload, num_gpus, "all_to_all_gemm")
    plan = tapered(workload, num_gpus, num_chunks=num_chunks, taper=taper)
    check_plan(plan)
    assert right_in_every_order(plan)


@examples(20)
@given(m=st.integers(8, 400), num_gpus=st.integers(2, 6), taper=st.integers(30, 100))
def test_chunks_of_the_example_become_smaller(m, num_gpus, taper):
    plan = tapered(workload_for("serial", m=m), num_gpus, num_chunks=3, taper=taper)
    for src in range(1, num_gpus):
        rows = [
            t.dst.shape[0]
            for t in plan.tasks
            if isinstance(t, Transfer) and (t.dst.gpu, t.src.gpu) == (0, src)
        ]
        assert all(after <= before + 1 for before, after in itertools.pairwise(rows))


def test_without_a_taper_the_example_takes_as_long_as_hetero_batched():
    workload = Workload(name="w", pattern="all_gather_gemm", m=4096, n=512, k=1024)
    machine = load_machine("mi300x_8")
    ours = simulate(make_plan("hetero-batched-1d", workload, 8, {"num_chunks": 4}), machine)
    same = simulate(tapered(workload, 8, num_chunks=4, taper=100), machine)
    assert same.makespan_s == ours.makespan_s
    assert simulate(tapered(workload, 8, num_chunks=4), machine).makespan_s != ours.makespan_s


def test_compare_tries_it_beside_ours_with_the_knobs_that_it_takes():
    workload, machine = get_workload("llama3-8b-tp8-qkv-8k"), load_machine("mi300x_8")
    grid = Grid(schedules=("hetero-batched-1d",), num_chunks=(2, 4), engines=("dma", "core"))
    alone = compare(workload, machine, grid=grid, intervals=False)
    both = compare(workload, machine, grid=grid, schedules=[tapered], intervals=False)
    own = [r for r in both.results if r.schedule == "hetero-tapered-1d"]
    assert {(r.num_chunks, r.engine) for r in own} == {(c, e) for c in (2, 4) for e in ("dma", "core")}
    assert [r for r in both.results if r not in own] == list(alone.results)
    makespans = [r.makespan_s for r in both.results]
    assert makespans == sorted(makespans)
    assert both.serial_s == alone.serial_s
    assert "hetero-tapered-1d with 4 chunks" in {r.title for r in own}


def test_a_best_one_of_the_users_has_its_trace_and_interval():
    def quick(workload, num_gpus, *, num_chunks=4):
        return tapered(workload, num_gpus, num_chunks=num_chunks)

    workload, machine = get_workload("llama3-8b-tp8-qkv-8k"), load_machine("mi300x_8")
    both = compare(workload, machine, grid=Grid(schedules=("serial",)), schedules=[quick])
    assert both.best == "hetero-tapered-1d"
    plan, trace = both.traces["best"]
    assert plan.schedule == "hetero-tapered-1d"
    low, high = both.results[0].interval_s
    assert low <= trace.makespan_s <= high


def test_a_schedule_that_races_is_refused():
    def racing(workload, num_gpus):
        plan = tapered(workload, num_gpus)
        from dataclasses import replace

        tasks = tuple(replace(t, deps=()) if isinstance(t, Gemm) else t for t in plan.tasks)
        return replace(plan, schedule="racing", tasks=tasks)

    with pytest.raises(ValueError, match=r"gemm\.g\d\.c0.*xfer|xfer.*gemm\.g\d\.c0"):
        compare(
            Workload(name="w", pattern="all_gather_gemm", m=64, n=8, k=16),
            load_machine("mi210_4"),
            schedules=[racing],
        )


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda *_: {}, "returned a dict, not a Plan"),
        (lambda w, p: make_plan("serial", w, p), "its plan is named 'serial'"),
        (lambda w, p: tapered(w, p + 1), "on 5 gpus, not"),
        (lambda _, p: tapered(workload_for("serial"), p), "its plan is for 'drawn'"),
    ],
)
def test_what_is_no_plan_for_the_workload_is_refused(make, words):
    workload = Workload(name="w", pattern="all_gather_gemm", m=64, n=8, k=16)
    with pytest.raises(ScenarioError, match=words):
        own_plan(make, workload, 4)


def test_unknown_knobs_are_named():
    with pytest.raises(ScenarioError, match="no knob 'gather'; it has num_chunks, taper, engine"):
        own_plan(load_schedule(TAPERED), workload_for("serial"), 2, {"gather": "copy"})


def test_the_command_line_takes_the_file(capsys, tmp_path):
    told = json.loads(run(capsys, "compare", *SMALL, "--schedule", TAPERED, "--json", "-"))
    assert {"serial", "hetero-tapered-1d"} <= {row["schedule"] for row in told["results"]}
    one = json.loads(run(capsys, "simulate", TAPERED, *SMALL, "--num-chunks", "4", "--json", "-"))
    (row,) = [
        r for r in told["results"] if (r["schedule"], r["num_chunks"]) == ("hetero-tapered-1d", 4)
    ]
    assert one["makespan_s"] == row["makespan_s"]
    file = tmp_path / "plan.json"
    run(capsys, "plan", TAPERED, "--gemm", "64,8,16", "--num-gpus", "4", "--json", str(file))
    assert "numbers exact in 3 orders" in " ".join(
        run(capsys, "check", str(file), "--evaluate").split()
    )


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("x = 1\n", "f", "own.py:f: the file defines no function 'f'"),
        ("import nothing_here\n", "f", "own.py: line 1: ModuleNotFoundError: No module named"),
        ("def f(:\n", "f", "own.py: line 1: SyntaxError"),
        ("def f(w, p):\n    return w.rows\n", "f", "own.py:f: line 2: AttributeError"),
        ("def f(w, p):\n    return None\n", "f", "own.py:f': returned a NoneType, not a Plan"),
        ("def f(w, p):\n    raise SystemExit(0)\n", "f", "own.py:f: line 2: SystemExit: 0"),
        ("f = max\n", "f", "own.py:f: its arguments cannot be told"),
        ("f = 3\n", "f", "the file defines no function 'f'"),
        ("def f():\n    return None\n", "f", "own.py:f: TypeError: f() takes 0 positional"),
    ],
)
def test_errors_in_the_file_are_told_with_their_line(capsys, tmp_path, text, name, words):
    file = tmp_path / "own.py"
    file.write_text(text)
    for verb in (["simulate", f"{file}:{name}"], ["compare", "--schedule", f"{file}:{name}"]):
        assert words in fail(capsys, *verb, *SMALL)


def test_names_of_ours_and_missing_files_are_told(capsys, tmp_path):
    assert "'serial': must be FILE.py:FUNCTION" in fail(
        capsys, "compare", *SMALL, "--schedule", "serial"
    )
    with pytest.raises(FileError, match="no such file"):
        load_schedule(f"{tmp_path / 'none.py'}:f")


def test_a_file_never_runs_because_data_names_it(tmp_path):
    """Names of schedules come from records and tables too: only an option runs code."""
    file = tmp_path / "own.py"
    file.write_text("raise SystemExit\n")
    with pytest.raises(ScenarioError, match="is unknown; one of"):
        make_plan(f"{file}:f", workload_for("serial"), 2)

"""Layer: simulator. Sweeps: the same table whatever is killed, in whatever order it was made."""

import csv
import doctest
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples
from sweep_support import die_on_three, die_once, double, note_process

from ficco_sim import sweep as sweep_package
from ficco_sim.cli import main
from ficco_sim.cli import sweep as sweep_command_module
from ficco_sim.comparison import compare
from ficco_sim.costs import CostModel
from ficco_sim.errors import FileError, HardwareError, ScenarioError
from ficco_sim.grid import Grid
from ficco_sim.machine import load_machine
from ficco_sim.scenarios import random_models
from ficco_sim.sweep import COLUMNS, SweepSummary, read_sweep, run_sweep
from ficco_sim.sweep.journal import Journal
from ficco_sim.sweep.workers import Died, run_tasks
from ficco_sim.workload import Workload, get_workload

MACHINE = "a100_4"
QUICK = Grid(schedules=("hetero-fused-1d", "uniform-unfused-1d"), num_chunks=(2,))


def shape(m, n=256, k=512, name=""):
    return Workload(name=name or f"m{m}", pattern="all_gather_gemm", m=m, n=n, k=k)


WORKLOADS = tuple(shape(512 * i) for i in range(1, 7))
EXCHANGE = get_workload("mixtral-8x7b-ep8-gate-up-2k")  # for 8 gpus


@pytest.fixture(scope="module")
def machine():
    return load_machine(MACHINE)


@pytest.fixture(scope="module")
def calm(machine, tmp_path_factory):
    """The table of an undisturbed sweep, and its journal as it was just before the end."""
    out = tmp_path_factory.mktemp("calm") / "t.csv"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "remove", Journal.close)
        quick(out, machine)
    return out.read_bytes(), out.with_name("t.csv.part").read_bytes()


def quick(out, *machines, workloads=WORKLOADS, **options):
    return run_sweep(workloads, machines, out, grid=QUICK, makespans_only=True, **options)


def part_of(out):
    return out.with_name(f"{out.name}.part")


def test_rows_are_the_results_of_compare(machine, tmp_path):
    out = tmp_path / "t.csv"
    workload = shape(4096, 1792, 2048)
    summary = run_sweep([workload], [machine], out)
    (group,) = read_sweep(out).groups
    found = compare(workload, machine, intervals=False)
    assert summary.num_rows == len(found.results) == len(group.rows)
    for name in ("serial_s", "ideal_s", "gemm_s", "comm_s", "machine", "workload"):
        assert getattr(group, name) == getattr(found, name)
    shared = {f.name for f in fields(found.results[0])} & set(COLUMNS) - {"ideal_s"}
    assert len(shared) == 13
    for row, result in zip(group.rows, found.results, strict=True):
        assert {n: getattr(row, n) for n in shared} == {n: getattr(result, n) for n in shared}
        assert (row.m, row.n, row.k, row.dtype, row.num_gpus) == (4096, 1792, 2048, "bf16", 4)
        assert row.gather == ("direct" if "fused" in row.schedule or "batched" in row.schedule else "")
    assert group.best.schedule == found.best


def test_ideal_costs_are_those_of_compare(machine, tmp_path):
    run_sweep(WORKLOADS[:2], [machine], tmp_path / "t.csv", costs="ideal", grid=QUICK)
    for group in read_sweep(tmp_path / "t.csv").groups:
        workload = next(w for w in WORKLOADS if w.name == group.workload)
        costs = CostModel(machine, "ideal")
        found = compare(workload, machine, costs=costs, grid=QUICK, intervals=False)
        assert [r.makespan_s for r in group.rows] == [r.makespan_s for r in found.results]
        assert group.costs == "ideal"


def test_makespans_only_gives_the_same_makespans(machine, tmp_path):
    quick(tmp_path / "few.csv", machine)
    run_sweep(WORKLOADS, [machine], tmp_path / "all.csv", grid=QUICK)
    few, both = (read_sweep(tmp_path / name) for name in ("few.csv", "all.csv"))
    assert few.workloads == both.workloads == tuple(w.name for w in WORKLOADS)
    for a, b in zip(few.groups, both.groups, strict=True):
        assert replace(a, rows=()) == replace(b, rows=())
        assert [(r.plan, r.makespan_s, r.speedup) for r in a.rows] == [
            (r.plan, r.makespan_s, r.speedup) for r in b.rows
        ]
        assert all(r.cause is None and r.gemm_dil is None for r in a.rows)
        assert all(r.cause and r.gemm_dil for r in b.rows)


def test_the_table_does_not_depend_on_jobs(machine, tmp_path, calm):
    summary = quick(tmp_path / "t.csv", machine, jobs=2)
    assert (tmp_path / "t.csv").read_bytes() == calm[0]
    assert [p.name for p in tmp_path.iterdir()] == ["t.csv"]
    assert summary.num_scenarios == len(WORKLOADS)
    assert summary.num_resumed == summary.num_failed == 0


@given(cut=st.floats(0, 1), shift=st.integers(-3, 3))
@examples(20)
def test_a_journal_cut_off_anywhere_is_continued(machine, tmp_path_factory, calm, cut, shift):
    table, journal = calm
    ends = [i + 1 for i, byte in enumerate(journal) if byte == ord("\n")]
    # anywhere, and at or close to the end of a line
    at = int(cut * len(journal)) if shift == 3 else ends[int(cut * (len(ends) - 1))] + shift
    at = max(0, min(len(journal), at))
    out = tmp_path_factory.mktemp("cut") / "t.csv"
    part_of(out).write_bytes(journal[:at])
    summary = quick(out, load_machine(MACHINE), resume=True)
    assert out.read_bytes() == table
    assert not part_of(out).exists()
    assert summary.num_resumed == max(0, sum(end <= at for end in ends) - 1)


def test_the_order_in_the_journal_does_not_matter(machine, tmp_path, calm):
    table, journal = calm
    header, *lines = journal.splitlines(keepends=True)
    lines.sort(key=lambda line: line[::-1])
    part_of(tmp_path / "t.csv").write_bytes(b"".join([header, *lines[:4]]))
    quick(tmp_path / "t.csv", machine, resume=True)
    assert (tmp_path / "t.csv").read_bytes() == table


def sweep_command(out, *more):
    return [
        sys.executable, "-m", "ficco_sim.cli", "sweep", "set.json", "--machine", MACHINE,
        "--schedule", "hetero-fused-1d,uniform-unfused-1d,shard-p2p", "--makespans-only",
        "--out", out, *more,
    ]  # fmt: skip


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_killed_at_random_moments_and_resumed_gives_the_same_table(tmp_path, jobs):
    random_models(count=120, seed=3, num_gpus=2).save(tmp_path / "set.json")
    subprocess.run(sweep_command("calm.csv"), cwd=tmp_path, check=True, capture_output=True)
    rng = random.Random(int(jobs))  # noqa: S311 - no secret
    for _ in range(4):
        run = subprocess.Popen(
            sweep_command("killed.csv", "--resume", "--jobs", jobs),
            cwd=tmp_path,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
        )
        before = part_size(tmp_path)
        # once it writes, so that some of each run is kept
        while run.poll() is None and part_size(tmp_path) <= before:
            time.sleep(0.005)
        time.sleep(rng.random() * 0.1)
        assert run.poll() is None
        (os.kill if rng.random() < 0.5 else os.killpg)(run.pid, signal.SIGKILL)
        run.wait()
    last = sweep_command("killed.csv", "--resume", "--jobs", jobs)
    subprocess.run(last, cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "killed.csv").read_bytes() == (tmp_path / "calm.csv").read_bytes()
    assert not (tmp_path / "killed.csv.part").exists()


def part_size(folder):
    part = folder / "killed.csv.part"
    return part.stat().st_size if part.exists() else 0


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_an_interrupt_leaves_a_sweep_to_resume_and_says_how(tmp_path, jobs):
    random_models(count=400, seed=3, num_gpus=2).save(tmp_path / "set.json")
    run = subprocess.Popen(
        sweep_command("killed.csv", "--jobs", jobs),
        cwd=tmp_path,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # whoever runs the tests in the background ignores interrupts, and children inherit that
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no threads
    )
    while run.poll() is None and part_size(tmp_path) < 5000:
        time.sleep(0.01)
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does: all of them
    out, err = run.communicate(timeout=60)
    assert run.returncode == 130
    assert out == ""
    assert err.splitlines() == [
        "unfinished: what is done is in killed.csv.part; --resume continues it",
        "ficco: error: interrupted",
    ]
    assert part_size(tmp_path) >= 5000
    deadline_s = time.monotonic() + 20
    while group_exists(run.pid):  # no worker is left; what multiprocessing started ends soon after
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def group_exists(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_unfinished_or_finished_sweep_is_not_overwritten(machine, tmp_path, calm):
    out = tmp_path / "t.csv"
    part_of(out).write_bytes(calm[1])
    with pytest.raises(FileError, match="an unfinished sweep; resume it"):
        quick(out, machine)
    out.write_text("mine")
    part_of(out).write_bytes(calm[1][: len(calm[1]) // 2])
    with pytest.raises(FileError, match="exists already, but its sweep is unfinished"):
        quick(out, machine, resume=True)
    part_of(out).unlink()
    for resume, message in ((True, "a finished sweep, nothing to resume"), (False, "exists already")):
        with pytest.raises(FileError, match=message):
            quick(out, machine, resume=resume)
    assert out.read_text() == "mine"


def test_a_kill_between_the_table_and_the_end_is_mended(machine, tmp_path, calm):
    out = tmp_path / "t.csv"
    part_of(out).write_bytes(calm[1])
    out.write_bytes(calm[0])
    quick(out, machine, resume=True)
    assert out.read_bytes() == calm[0]
    assert not part_of(out).exists()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"workloads": WORKLOADS[:-1]}, "scenarios: 6 with digest .* 5 with digest"),
        ({"workloads": (*WORKLOADS[:-1], replace(WORKLOADS[-1], n=128))}, "scenarios: 6 with digest"),
        ({"machine": {"name": "other"}}, "machines: {.a100_4.: "),
        ({"machine": {"hardware_routing": True}}, "machines: {.a100_4.: "),
        ({"grid": replace(QUICK, num_chunks=(4,))}, "grid: "),
        ({"costs": "ideal"}, "costs: profile in the unfinished sweep, ideal now"),
        ({"submission": "eager"}, "submission: graph in the unfinished sweep, eager now"),
        ({"makespans_only": False}, "makespans_only: True in the unfinished sweep, False now"),
    ],
)
def test_another_sweep_is_not_continued(machine, tmp_path, calm, change, named):
    out = tmp_path / "t.csv"
    part_of(out).write_bytes(calm[1][:-40])
    options = {"workloads": WORKLOADS, "grid": QUICK, "makespans_only": True} | change
    place = replace(machine, **options.pop("machine", {}))
    with pytest.raises(FileError, match=named) as caught:
        run_sweep(options.pop("workloads"), [place], out, resume=True, **options)
    assert "it cannot be resumed; choose another name" in str(caught.value)
    assert part_of(out).read_bytes() == calm[1][:-40]


def damaged(journal):
    header, *lines = journal.splitlines(keepends=True)
    entry = json.loads(lines[0])

    def with_entry(**change):
        return b"".join([header, json.dumps(entry | change).encode(), b"\n", *lines[1:]])

    rows = entry["rows"]
    return {
        "foreign": (b"workload,machine\nx,y\n", "not a journal of a sweep; choose another name"),
        "binary": (b"\x00" * 500, "not a journal of a sweep"),
        "beginning": (b'{"record": "session"', "not a journal of a sweep"),
        "version": (header.replace(b'version": 1', b'version": 2') + lines[0], "must be 1"),
        "middle": (header + lines[0][:90] + b"\n" + b"".join(lines[1:]), "line 2: .*not JSON"),
        "zeros": (header + b"\x00" * 80 + b"\n", "line 2: .*not JSON"),
        "text": (header + b"\xff\xfe\n", r"line 2: not UTF-8 text \(byte 0\)"),
        "list": (header + b"[]\n", "line 2: must be a JSON object"),
        "twice": (header + lines[0] + lines[0], "line 3: index: 0 occurs twice"),
        "far": (with_entry(index=99), "line 2: index: 99 must be from 0 to 5"),
        "word": (with_entry(index="0"), "line 2: index: '0' must be from 0 to 5"),
        "other": (with_entry(workload="x"), "line 2: workload, machine: .* must be"),
        "record": (with_entry(record="row"), "line 2: record: 'row' must be 'scenario'"),
        "no rows": (with_entry(rows=[]), "line 2: rows: must be a list that is not empty"),
        "short row": (with_entry(rows=[rows[0][1:]]), "line 2: rows: each must be a list of 28"),
        "value": (with_entry(rows=[[*rows[0][:15], "fast", *rows[0][16:]]]), "makespan_s: 'fast'"),
        "stranger": (with_entry(rows=[["x", *rows[0][1:]]]), "rows: one is of another scenario"),
        "error": (with_entry(error=3), "line 2: error: must be text"),
    }


@pytest.mark.parametrize("name", list(damaged(b'{}\n{"rows": [[]]}\n')))
def test_damaged_and_foreign_journals_are_refused_and_kept(machine, tmp_path, calm, name):
    data, message = damaged(calm[1])[name]
    out = tmp_path / "t.csv"
    part_of(out).write_bytes(data)
    with pytest.raises(FileError, match=message):
        quick(out, machine, resume=True)
    assert part_of(out).read_bytes() == data


def test_two_processes_do_not_write_one_sweep(machine, tmp_path, calm):
    out = tmp_path / "t.csv"

    def try_another(done, total, words):
        with pytest.raises(FileError, match="another process writes it"):
            quick(out, machine, resume=True)

    quick(out, machine, progress=try_another)
    assert out.read_bytes() == calm[0]


def test_progress_tells_how_far_how_fast_and_how_long(machine, tmp_path):
    told = []
    quick(tmp_path / "t.csv", machine, progress=lambda *a: told.append(a))
    assert [done for done, _, _ in told] == list(range(7))
    assert told[0] == (0, 6, "0 of 6")
    words = told[-1][2]
    assert words.startswith("6 of 6, ")
    assert words.endswith("/s, 0:00 left")


def test_an_interrupt_in_this_process_keeps_what_is_done(machine, tmp_path, calm):
    out = tmp_path / "t.csv"

    def interrupt(done, total, words):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quick(out, machine, progress=interrupt)
    assert quick(out, machine, resume=True).num_resumed == 3
    assert out.read_bytes() == calm[0]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_bad_scenario_is_reported_and_not_fatal(machine, tmp_path, calm, jobs):
    out = tmp_path / "t.csv"
    large = shape(512, name="collective")
    bad = replace(large, pattern="gemm")
    summary = quick(out, machine, workloads=(EXCHANGE, *WORKLOADS, bad), jobs=jobs)
    assert summary.num_failed == 2
    assert [(e.workload, e.machine) for e in summary.errors] == [
        (EXCHANGE.name, MACHINE),
        ("collective", MACHINE),
    ]
    assert "8" in summary.errors[0].error
    assert "nothing to compare for the pattern gemm" in summary.errors[1].error
    assert out.read_bytes() == calm[0]  # good ones are as if the bad ones were not there
    rows = list(csv.reader(Path(summary.errors_file).read_text().splitlines()))
    assert rows[0] == ["workload", "machine", "error"]
    assert [row[0] for row in rows[1:]] == [EXCHANGE.name, "collective"]


def test_a_failed_scenario_is_kept_when_resumed(machine, tmp_path):
    out = tmp_path / "t.csv"

    def interrupt(done, total, words):
        if done == 2:
            raise KeyboardInterrupt

    workloads = (EXCHANGE, *WORKLOADS[:2])
    with pytest.raises(KeyboardInterrupt):
        quick(out, machine, workloads=workloads, progress=interrupt)
    summary = quick(out, machine, workloads=workloads, resume=True)
    assert (summary.num_resumed, summary.num_failed) == (2, 1)


def test_machines_are_beside_each_other(machine, tmp_path):
    out = tmp_path / "t.csv"
    other = replace(machine.with_links(scale=0.5), name="slower")
    quick(out, machine, other, workloads=WORKLOADS[:2])
    table = read_sweep(out)
    assert table.machines == (MACHINE, "slower")
    assert [(g.workload, g.machine) for g in table.groups] == [
        (w.name, name) for w in WORKLOADS[:2] for name in (MACHINE, "slower")
    ]
    assert table.group("m512", "slower").comm_s > table.group("m512", MACHINE).comm_s
    assert [g.machine for g in table.on("slower")] == ["slower"] * 2
    assert len(table.to_frame()) == sum(len(g.rows) for g in table.groups)
    with pytest.raises(ScenarioError, match="the sweep has no 'x' on"):
        table.group("x", MACHINE)


def test_nothing_but_failures_leaves_no_file(machine, tmp_path):
    out = tmp_path / "t.csv"
    with pytest.raises(ScenarioError, match="no scenario of 1 could be simulated\nmixtral"):
        quick(out, machine, workloads=(EXCHANGE,))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workloads": ()}, "a sweep needs at least one workload"),
        ({"workloads": (*WORKLOADS, WORKLOADS[0])}, "two workloads are called 'm512'"),
        ({"jobs": 0}, "jobs: 0 must be from 1 to 1024"),
    ],
)
def test_impossible_sweeps_are_refused(machine, tmp_path, options, message):
    with pytest.raises(ScenarioError, match=message):
        quick(tmp_path / "t.csv", machine, **options)
    with pytest.raises(ScenarioError, match="two machines are called"):
        quick(tmp_path / "t.csv", machine, machine)
    with pytest.raises(ScenarioError, match="at least one machine"):
        quick(tmp_path / "t.csv")
    assert not list(tmp_path.iterdir())


def test_names_of_tables_say_their_format(machine, tmp_path, monkeypatch):
    with pytest.raises(FileError, match=r"ends in \.csv or \.parquet"):
        quick(tmp_path / "t.txt", machine)
    with pytest.raises(FileError, match="no folder"):
        quick(tmp_path / "none" / "t.csv", machine)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(HardwareError, match=r"pip install 'ficco\[parquet\]'"):
        quick(tmp_path / "t.parquet", machine)
    assert not list(tmp_path.iterdir())


def test_parquet_holds_the_same(machine, tmp_path, calm):
    pytest.importorskip("pyarrow")
    quick(tmp_path / "t.parquet", machine)
    (tmp_path / "t.csv").write_bytes(calm[0])
    assert read_sweep(tmp_path / "t.parquet") == read_sweep(tmp_path / "t.csv")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 but no more")
    with pytest.raises(FileError, match="not Parquet"):
        read_sweep(tmp_path / "bad.parquet")


HEAD = ",".join(COLUMNS)


def changed(table, **values):
    """The first row of a table with other values."""
    names, first = list(csv.reader(table.decode().splitlines()[:2]))
    row = dict(zip(names, first, strict=True)) | values
    return ",".join(row[name] for name in names)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda _: "", "line 1: no column 'workload'"),
        (lambda _: HEAD.replace("comm_s", "x"), "line 1: no column 'exposed_comm_s'"),
        (lambda _: HEAD + ",extra", "line 1: column 'extra' is unknown or there twice"),
        (lambda _: HEAD, "no row in it"),
        (lambda _: f"{HEAD}\na,b", "line 2: 2 values; 28 are needed"),
        (lambda t: f"{HEAD}\n{changed(t, m='x')}", "line 2: m: 'x' must be a whole number"),
        (lambda t: f"{HEAD}\n{changed(t, m='')}", "line 2: m: '' must be a whole number"),
        (lambda t: f"{HEAD}\n{changed(t, makespan_s='nan')}", "line 2: makespan_s: nan must be finite"),
        (lambda t: f"{HEAD}\n{changed(t, makespan_s='0')}", "line 2: makespan_s: 0.0 must be above 0"),
        (lambda t: f"{HEAD}\n{changed(t, ideal_s='-1')}", "line 2: ideal_s: -1.0 must be finite"),
        (lambda t: f"{HEAD}\n{changed(t)}\n{changed(t)}", "the plan occurs twice"),
        (
            lambda t: f"{HEAD}\n{changed(t)}\n{changed(t, num_chunks='9', serial_s='5')}",
            "serial_s: .* and 5.0; it must be the same for all plans",
        ),
        (lambda _: f'{HEAD}\n"open', "line 2: not CSV"),
    ],
)
def test_tables_that_contradict_themselves_are_refused(tmp_path, calm, make, message):
    path = tmp_path / "t.csv"
    path.write_text(make(calm[0]))
    with pytest.raises(FileError, match=message):
        read_sweep(path)


def test_tables_of_others_are_bounded(tmp_path, calm, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_bytes(calm[0])
    monkeypatch.setattr(sweep_package.files, "MAX_ROWS", 3)
    with pytest.raises(FileError, match="more than 3 rows are not read"):
        read_sweep(path)
    monkeypatch.setattr(sweep_package.files, "MAX_TABLE_BYTES", 100)
    with pytest.raises(FileError, match="at most 100 are read"):
        read_sweep(path)


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_workers_do_every_task_once(jobs):
    found = dict(run_tasks(double, 10, range(7), jobs))
    assert found == {i: 10 * i for i in range(7)}
    assert dict(run_tasks(double, 10, [], jobs)) == {}


def test_a_task_that_kills_its_worker_is_reported_and_others_are_done():
    found = dict(run_tasks(die_on_three, None, range(6), 2))
    died = found.pop(3)
    assert isinstance(died, Died)
    assert died.reason == "its worker process died twice, killed by SIGKILL, perhaps out of memory"
    assert found == {i: i for i in range(6) if i != 3}


def test_a_worker_that_is_killed_once_costs_nothing(tmp_path):
    assert dict(run_tasks(die_once, str(tmp_path / "mark"), range(5), 2)) == {i: i for i in range(5)}


def test_a_scenario_whose_workers_died_is_among_the_failed(machine, tmp_path, monkeypatch):
    def without_third(make, setting, tasks, jobs):
        for task, result in run_tasks(make, setting, tasks, jobs):
            yield task, Died("its worker process died twice") if task.index == 2 else result

    monkeypatch.setattr(sweep_package.run, "run_tasks", without_third)
    summary = quick(tmp_path / "t.csv", machine)
    assert [e.workload for e in summary.errors] == [WORKLOADS[2].name]
    assert "worker process died" in Path(summary.errors_file).read_text()


def test_workers_that_cannot_start_are_no_endless_loop(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\n"
        "from ficco_sim.machine import load_machine\n"
        "from ficco_sim.sweep import run_sweep\n"
        "from ficco_sim.workload import Workload\n"
        "w = [Workload(name=str(i), pattern='all_gather_gemm', m=64, n=64, k=i) for i in (1, 2)]\n"
        f"run_sweep(w, [load_machine('{MACHINE}')], Path('t.csv'), jobs=2)\n"
    )
    run = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 1
    assert "a worker process ended before it could begin" in run.stderr
    assert "if __name__ == '__main__'" in run.stderr


def test_workers_are_gone_when_their_results_are_not_wanted(tmp_path):
    results = run_tasks(note_process, str(tmp_path), range(10), 2)
    next(results)
    results.close()
    for mark in tmp_path.iterdir():
        with pytest.raises(ProcessLookupError):
            os.kill(int(mark.name), 0)


def test_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options = [
        "--machine", MACHINE, "--num-chunks", "2", "--compute-queues", "1,2", "--engine", "dma,core",
        "--schedule", "uniform-unfused-1d",
    ]  # fmt: skip
    shapes = ["--gemm", "512,256,256", "--gemm", "1024,256,256"]
    assert main(["sweep", *shapes, *options, "--out", "t.csv", "--json", "-"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    summary = json.loads(captured.out)
    assert list(summary) == [f.name for f in fields(SweepSummary)]
    for key in ("num_scenarios", "num_rows", "num_failed", "seconds", "scenarios_per_s", "file"):
        assert key in summary
    # serial with each engine, and two numbers of queues with each
    assert (summary["num_scenarios"], summary["num_rows"]) == (2, 2 * (2 + 4))
    plans = {row.plan for row in read_sweep(Path("t.csv")).groups[0].rows}
    assert ("uniform-unfused-1d", 2, 2, "core") in plans
    assert ("serial", 1, 1, "dma") in plans


def test_command_line_takes_sets_and_several_machines(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    random_models(count=3, num_gpus=4, max_tokens=4096).save(Path("set.yaml"))
    places = ["--machine", MACHINE, "--machine", "mi210_4"]
    options = ["--schedule", "serial", "--jobs", "2", "--out", "t.csv"]
    monkeypatch.setattr(sweep_command_module, "LINE_EVERY_S", 0.0)
    assert main(["sweep", "set.yaml", *places, *options]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("6 scenarios, 6 rows in ")
    assert captured.err.splitlines()[-1].startswith("6 of 6, ")  # no terminal: lines, not a bar
    assert read_sweep(Path("t.csv")).machines == (MACHINE, "mi210_4")


def test_command_line_says_what_failed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = ["--workload", EXCHANGE.name, "--gemm", "512,256,256", "--schedule", "serial"]
    assert main(["sweep", *names, "--machine", MACHINE, "--out", "t.csv"]) == 0
    out = capsys.readouterr().out
    assert "2 scenarios, 1 rows in " in out
    assert f"1 failed: t.csv.errors.csv\n  {EXCHANGE.name} on {MACHINE}: " in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give a set of scenarios, or --workload or --gemm"),
        (("named", "--gemm", "1,2,3"), "give a set of scenarios, or --workload and --gemm, not both"),
        (("absent.yaml",), "absent.yaml: no such file"),
        (("--gemm", "1,2"), "--gemm: '1,2' must be three sizes"),
        (("named", "--machine", "x"), "machine 'x' is unknown"),
        (("named", "--schedule", "x"), "schedules: 'x' is unknown"),
        (("named", "--num-chunks", "x"), "--num-chunks: 'x' must be whole numbers"),
        (("named", "--num-chunks", "0"), "num_chunks: 0 must be a whole number from 1"),
        (("named", "--compute-queues", "1,1"), "compute_queues: 1 occurs twice"),
        (("named", "--engine", "cpu"), "engines: 'cpu' is unknown; one of: dma, core"),
        (("named", "--jobs", "0"), "jobs: 0 must be from 1"),
        (("named", "--out", "x.txt"), "x.txt: the table of a sweep ends in .csv or .parquet"),
        (("--workload", EXCHANGE.name, "--machine", MACHINE), "no scenario of 1 could be simulated"),
    ],
)
def test_command_line_refuses(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    out = [] if "--out" in arguments else ["--out", "t.csv"]
    assert main(["sweep", *arguments, *out]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert not list(tmp_path.iterdir())


def test_the_page_about_sweeps_names_every_column_and_key():
    page = (Path(__file__).parent.parent / "docs" / "sweeps.md").read_text()
    words = set(re.findall(r"\b[a-z_]+\b", page))
    assert set(COLUMNS) | {f.name for f in fields(SweepSummary)} <= words
    assert doctest.testfile(str(Path("..") / "docs" / "sweeps.md")).failed == 0

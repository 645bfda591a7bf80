"""Layer: CPU torch. The verb run from start to end: what is measured, refused, resumed and recorded."""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from ficco_sim.errors import ScenarioError
from ficco_sim.measured_plans import plan_of
from ficco_sim.records import Sensors, Session, read_records
from ficco_sim.schedules import FICCO, make_plan
from ficco_sim.workload import Workload
from hw_validate import campaign, cpu, plan_runs
from hw_validate.__main__ import main
from hw_validate.campaign import Group, run_campaign
from hw_validate.cpu import CpuBackend
from hw_validate.evidence import Evidence, Examiner
from hw_validate.executor import bind
from hw_validate.maps import find_map
from hw_validate.measure import Settings, Subject, measure_group
from hw_validate.peaks import Peaks
from hw_validate.placement import parse_placement
from hw_validate.plan_runs import COMPARED, PlanSettings, plan_groups
from hw_validate.program import Run
from hw_validate.recorder import Recorder, part_path
from hw_validate.straight import prepare_straight

SHAPE = (64, 16, 32)
TINY = Workload(name="gemm-64x16x32", pattern="all_gather_gemm", m=64, n=16, k=32)
BASE = ["run", "--device", "cpu", "--num-gpus", "4", "--rounds", "3"]
GEMM = ["--gemm", "64,16,32"]
FEW = ["--schedule", "serial,shard-p2p,hetero-fused-1d", "--num-chunks", "2"]
UNKNOWN = Sensors(sm_clock_hz=None, power_w=None, temperature_c=None)
SESSION = Session(
    session="s",
    started="2026-01-01T00:00:00Z",
    regime="burst",
    init="randn",
    command="",
    environment={"device": "cpu"},
)


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _one_thread():
    """Matrices are tiny; threads that wait for busy cores would take longer than the work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out.jsonl"


def hw(capsys, *arguments, code=0):
    """Run the command line; its outputs, without a traceback on either."""
    try:
        found = main([str(argument) for argument in arguments])
    except SystemExit as exited:  # how interrupted commands end
        found = exited.code
    captured = capsys.readouterr()
    assert found == code, captured
    for text in (captured.out, captured.err):
        assert "Traceback" not in text
        assert "internal error" not in text
    return captured


def keys_of(path):
    return [m.key for m in read_records(path).measurements]


def plan_name(m):
    return m.params["schedule"]


def exchange_file(tmp_path, num_gpus=4):
    """A workload file with a skewed all-to-all; the last gpu sends nothing to the first."""
    tokens = [[src + dst + 1 for dst in range(num_gpus)] for src in range(num_gpus)]
    tokens[-1][0] = 0
    busiest = max(map(sum, zip(*tokens, strict=True)))
    entry = {
        "name": "exchange",
        "pattern": "all_to_all_gemm",
        "m": busiest,
        "n": 8,
        "k": 16,
        "tokens": tokens,
    }
    path = tmp_path / "exchange.json"
    path.write_text(json.dumps({"format_version": 1, "workloads": [entry]}))
    return path


# what is measured


def test_every_schedule_and_knob_is_measured_and_verified_once(capsys, out, monkeypatch):
    verified = Counter()
    verify = plan_runs.verify

    def counting(plan, *args):
        verified[plan.fingerprint] += 1
        return verify(plan, *args)

    monkeypatch.setattr(plan_runs, "verify", counting)
    knobs = ["--num-chunks", "2,4", "--compute-queues", "1,4", "--copy-queues", "peer,1"]
    hw(capsys, *BASE, *GEMM, *knobs, "--engine", "dma,core", "--out", out)
    records = read_records(out)
    settings = PlanSettings(
        num_gpus=4,
        num_chunks=(2, 4),
        compute_queues=(1, 4),
        copy_queues=(0, 1),
        engines=("dma", "core"),
    )
    (group,) = plan_groups([TINY], [find_map("own", 4)], settings)
    assert [m.key for m in records.measurements] == list(group.keys)

    expected = Counter()
    for engine in ("dma", "core"):
        for name in COMPARED:
            if name not in FICCO:
                expected[name, None, None, None, engine] = 1
                continue
            for chunks in (2, 4):
                for queues in (1, 4) if "unfused" in name else (1,):
                    for copies in (3, 1):  # a queue a peer of four gpus, or one in all
                        expected[name, chunks, queues, copies, engine] = 1
    axes = ("schedule", "num_chunks", "compute_queues", "copy_queues", "engine")
    assert Counter(tuple(m.params[axis] for axis in axes) for m in records.measurements) == expected
    assert sum(expected.values()) == 2 * (3 + 4 * 8 + 6 * 4)

    for m in records.measurements:
        assert m.usable
        assert len(m.samples_s) == 3
        assert any(label.startswith("emulated: all gpus on the CPU") for label in m.labels)
        assert "not examined" in m.evidence[0]
        assert (m.params["core_blocks"] is None) == (m.params["engine"] == "dma")
        assert len(m.series["host_submit_s"]) == 3
        assert m.spans is not None
    fingerprints = {plan_of(m).fingerprint for m in records.measurements}
    assert set(verified) == fingerprints
    assert set(verified.values()) == {1}


def test_several_workloads_and_maps_are_groups_of_their_own(capsys, out):
    maps = ["--map", "own", "--map", "0=dev0,1-3=host"]
    hw(capsys, *BASE, *GEMM, "--gemm", "32,16,32", *maps, *FEW, "--out", out)
    measured = read_records(out).measurements
    cases = Counter((m.params["workload"], m.params["emulates"]) for m in measured)
    assert set(cases.values()) == {3}
    assert len(cases) == 4
    held = [m for m in measured if m.params["emulates"] != "own"]
    assert all("emulated: gpus 1 to 3 only hold data, in pinned host memory" in m.labels for m in held)
    # what a gpu does that only holds data is not run
    assert all({task.split(".")[1] for task in m.spans.task_ids} == {"g0"} for m in held)


def test_a_map_may_let_other_gpus_compute_for_other_schedules(capsys, out):
    for name in ("0=dev0,1-3=host|0-3=dev0", "0-3=dev0|0=dev0,1-3=host"):
        hw(capsys, *BASE, *GEMM, *FEW, "--map", name, "--out", out.with_suffix(f".{name[:3]}"))
    measured = read_records(out.with_suffix(".0-3")).measurements
    assert all(m.usable for m in measured)
    assert {m.params["map"] for m in measured} == {"0-3=dev0", "0=dev0,1-3=host"}


def test_eight_gpus_on_eight_devices(capsys, out, tmp_path):
    """Measured, microbenchmarks too, and summed up; no label claims that a gpu is shared."""
    eight = ["--device", "cpu", "--num-gpus", "8", "--rounds", "2"]
    hw(capsys, "run", *eight, *GEMM, *FEW, "--engine", "dma,core", "--out", out)
    measured = read_records(out).measurements
    assert len(measured) == 6
    assert all(m.usable for m in measured)
    assert {m.params["map"] for m in measured} == {
        ",".join(f"{gpu}=dev{gpu}" for gpu in range(8)),
    }
    assert {label for m in measured for label in m.labels} == set(CpuBackend.labels)
    assert "gemm-64x16x32" in hw(capsys, "summary", out).out
    parts = tmp_path / "parts.jsonl"
    hw(capsys, "microbench", *eight, "--devices", "8", "--sets", "launch", "--out", parts)
    assert all(m.usable for m in read_records(parts).measurements)


def test_eager_and_graph_are_measured_apart(capsys, out):
    hw(capsys, *BASE, *GEMM, *FEW, "--submission", "graph,eager", "--out", out)
    measured = read_records(out).measurements
    assert Counter(m.params["submission"] for m in measured) == {"graph": 3, "eager": 3}
    assert len({m.key for m in measured}) == 6
    assert all((m.spans is not None) == (m.params["submission"] == "graph") for m in measured)


def test_numbers_that_are_given_twice_count_once(capsys, out):
    twice = ["--num-chunks", "2,2", "--copy-queues", "1,1", "--schedule", "hetero-fused-1d"]
    hw(capsys, *BASE, *GEMM, *GEMM, *twice, "--out", out)
    assert len(read_records(out).measurements) == 1


def test_an_all_to_all_runs_without_the_ring(capsys, out, tmp_path):
    hw(capsys, *BASE, "--workload", exchange_file(tmp_path), "--num-chunks", "2", "--out", out)
    measured = read_records(out).measurements
    assert all(m.usable for m in measured)
    assert {plan_name(m) for m in measured} == set(COMPARED) - {"shard-ring"}


def test_straight_versions_are_where_they_apply(capsys, out, tmp_path):
    host = ["--map", "0=dev0,1-3=host"]
    plans = ["--num-chunks", "2", "--schedule", "serial,shard-p2p,hetero-unfused-1d", "--straight"]
    hw(capsys, *BASE, *GEMM, *host, *plans, "--engine", "dma,core", "--out", out)
    measured = read_records(out).measurements
    straight = [m for m in measured if m.kind == "straight"]
    assert all(m.usable for m in straight)  # their results were compared as well
    assert Counter(plan_name(m) for m in straight) == {"serial": 1, "hetero-unfused-1d": 2}
    assert {m.params["engine"] for m in straight} == {"dma"}
    plans_too = [m.params for m in measured if m.kind == "plan"]
    assert all(m.params in plans_too for m in straight)
    both = tmp_path / "both.jsonl"
    hw(capsys, *BASE, *GEMM, *host, *plans, "--tensor-copies", "--out", both)
    kinds = Counter(m.kind for m in read_records(both).measurements if m.usable)
    assert kinds == {"plan": 4, "straight": 3, "straight_tensor_copy": 3}
    for number, other in enumerate(
        (
            [*GEMM, "--map", "own"],
            ["--workload", str(exchange_file(tmp_path)), *host],
            [*GEMM, *host, "--dtype", "fp8"],
        )
    ):
        path = tmp_path / f"{number}.jsonl"
        hw(capsys, *BASE, *other, *plans, "--out", path)
        assert {m.kind for m in read_records(path).measurements} == {"plan"}


@pytest.mark.parametrize(
    ("schedule", "dtype", "where", "reason"),
    [
        ("uniform-fused-1d", "bf16", "0=dev0,1-3=host", "no straight version"),
        ("serial", "fp8", "0=dev0,1-3=host", "fp8"),
        ("serial", "bf16", None, "gpu 0 alone"),
    ],
)
def test_what_has_no_straight_version_is_refused(schedule, dtype, where, reason):
    plan = make_plan(schedule, replace(TINY, dtype=dtype), 4, {})
    bound = bind(plan, parse_placement(where, 4), CpuBackend())
    with pytest.raises(ScenarioError, match=reason):
        prepare_straight(bound)


def test_fp8_without_accumulation_is_recorded_as_unusable(capsys, out):
    text = hw(capsys, *BASE, *GEMM, "--dtype", "fp8", "--num-chunks", "2", "--out", out).out
    assert "cannot accumulate" in text
    for m in read_records(out).measurements:
        assert m.usable == ("2d" not in plan_name(m))
        assert m.usable or (
            "fp8 GEMMs cannot accumulate" in m.unusable[0] and "take bf16" in m.unusable[0]
        )
        assert bool(m.samples_s) == m.usable


def test_everything_is_measured_once_a_pass(capsys, out):
    groups = ["--gemm", "32,16,32", "--passes", "2"]
    hw(capsys, *BASE, *GEMM, *groups, *FEW, "--out", out)
    keys = keys_of(out)
    assert len(set(keys)) == 6
    assert keys == 2 * keys[:6]  # the whole list, then the whole list again
    assert [m.sequence for m in read_records(out).measurements] == list(range(12))


def test_results_as_json(capsys, out, tmp_path):
    document = json.loads(hw(capsys, *BASE, *GEMM, *FEW, "--out", out, "--json", "-").out)
    row = document["measurements"][0]
    assert set(row) == {
        "kind", "key", "params", "usable", "median_s", "spread", "warnings", "unusable", "labels",
    }  # fmt: skip
    assert [r["key"] for r in document["measurements"]] == keys_of(out)
    path = tmp_path / "r.json"
    text = hw(capsys, *BASE, *GEMM, *FEW, "--out", tmp_path / "b.jsonl", "--json", path).out
    assert "3 measurements taken" in text
    assert len(json.loads(path.read_text())["measurements"]) == 3


# before anything runs


def test_a_dry_run_needs_no_gpu_and_writes_nothing(capsys, out, monkeypatch, tmp_path):
    def refuse(*_):
        raise AssertionError("touched")

    for name in ("_lazy_init", "is_available", "device_count", "synchronize", "get_device_name"):
        monkeypatch.setattr(torch.cuda, name, refuse)
    text = hw(capsys, "run", *GEMM, *FEW, "--map", "mesh", "--out", out, "--dry-run").out
    assert "gemm-64x16x32 on mesh: 3 measurements" in text
    assert "nothing was run" in text
    hw(capsys, "run", *GEMM, "--dry-run")  # not even a file is needed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "--workload"),
        ([*GEMM, "--schedule", "fastest"], "--schedule: 'fastest'"),
        ([*GEMM, "--schedule", ","], "--schedule"),
        ([*GEMM, "--num-chunks", "0"], "--num-chunks: '0'"),
        ([*GEMM, "--num-chunks", "two"], "--num-chunks: 'two'"),
        ([*GEMM, "--copy-queues", "65"], "--copy-queues: '65'"),
        ([*GEMM, "--engine", "sdma"], "--engine: 'sdma'"),
        ([*GEMM, "--map", "ring"], "--map: 'ring'"),
        ([*GEMM, "--map", "0=dev0"], "--map: no place for gpus 1 to 7"),
        ([*GEMM, "--rounds", "0"], "--rounds: 0"),
        ([*GEMM, "--passes", "101"], "--passes: 101"),
        ([*GEMM, "--budget", "soon"], "--budget: 'soon'"),
        ([*GEMM, "--core-blocks", "0"], "--core-blocks: 0"),
        ([*GEMM, "--num-gpus", "65"], "--num-gpus: 65"),
        ([*GEMM, "--regime", "cold"], "--regime"),
        (["--gemm", "64,16"], "--gemm"),
        (["--workload", "unheard-of"], "unheard-of"),
        (["--workload", "absent.yaml"], "absent.yaml"),
    ],
)
def test_bad_options_are_refused_by_name(capsys, out, arguments, named):
    captured = hw(capsys, *BASE[:3], *arguments, "--out", out, code=2)
    assert captured.out == ""
    assert captured.err.startswith("hw_validate: error: ")
    assert named in captured.err
    assert not part_path(out).exists()


def test_a_file_for_the_records_is_needed(capsys):
    assert "--out" in hw(capsys, *BASE, *GEMM, code=2).err


def test_two_workloads_of_one_name_are_refused(capsys, out, tmp_path):
    first = exchange_file(tmp_path)
    second = tmp_path / "second.json"
    second.write_text(first.read_text().replace('"n": 8', '"n": 24'))
    both = ["--workload", first, "--workload", second]
    assert "'exchange'" in hw(capsys, *BASE, *both, "--out", out, code=2).err


@pytest.mark.parametrize("finished", [True, False])
def test_an_existing_file_is_left_alone(capsys, out, finished):
    path = out if finished else part_path(out)
    path.write_text("mine\n")
    error = hw(capsys, *BASE, *GEMM, *FEW, "--out", out, code=2).err
    assert str(path) in error
    assert path.read_text() == "mine\n"
    hw(capsys, *BASE, *GEMM, *FEW, "--out", out, "--resume", code=2)
    assert path.read_text() == "mine\n"


# budgets, kills and resumed runs

TWO_GROUPS = [*BASE, *GEMM, "--gemm", "32,16,32", *FEW]


@pytest.fixture
def undisturbed(capsys, tmp_path):
    path = tmp_path / "undisturbed.jsonl"
    hw(capsys, *TWO_GROUPS, "--out", path)
    keys = keys_of(path)
    assert len(keys) == 6
    return keys


def set_clock(monkeypatch, step_s):
    """A clock that moves a step whenever the campaign looks at it."""
    times = iter(range(1000))
    clock = SimpleNamespace(perf_counter=lambda: next(times) * step_s)
    monkeypatch.setattr(campaign, "time", clock)


def test_what_the_budget_leaves_out_is_completed_by_resume(capsys, out, undisturbed, monkeypatch):
    with monkeypatch.context() as context:
        set_clock(context, 2.0)
        text = hw(capsys, *TWO_GROUPS, "--budget", "6s", "--out", out).out
    assert "the budget of 6s left out 1 groups (gemm-32x16x32 on own); go on with --resume" in text
    assert not out.exists()
    assert keys_of(part_path(out)) == undisturbed[:3]
    text = hw(capsys, *TWO_GROUPS, "--out", out, "--resume").out
    assert "1 groups were there already" in text
    assert "3 measurements taken, 6 in " in text
    assert keys_of(out) == undisturbed
    assert not part_path(out).exists()
    hw(capsys, *TWO_GROUPS, "--out", out, "--resume", code=2)  # finished


def test_a_budget_for_nothing_at_all_says_so(capsys, out, undisturbed):
    text = hw(capsys, *TWO_GROUPS, "--budget", "1s", "--out", out).out
    assert "left out 2 groups" in text
    hw(capsys, *TWO_GROUPS, "--out", out, "--resume")
    assert keys_of(out) == undisturbed


class Interrupted(CpuBackend):
    """The user loses patience in the middle of the second group's rounds."""

    def __init__(self):
        super().__init__()
        self.flushed = 0

    def flush(self):
        self.flushed += 1
        if self.flushed == 3 * (2 + 3 + 3) + 7:  # plans x (warm, plain and instrumented rounds)
            raise KeyboardInterrupt


def test_an_interrupted_run_resumes_with_nothing_lost_or_doubled(capsys, out, undisturbed, monkeypatch):
    with monkeypatch.context() as context:
        context.setattr(cpu, "CpuBackend", Interrupted)
        captured = hw(capsys, *TWO_GROUPS, "--out", out, code=130)
    assert f"what was measured is in {part_path(out)}; go on with --resume" in captured.err
    assert keys_of(part_path(out)) == undisturbed[:3]
    hw(capsys, *TWO_GROUPS, "--out", out, code=2)  # not without --resume
    hw(capsys, *TWO_GROUPS, "--out", out, "--resume")
    records = read_records(out)
    assert [m.key for m in records.measurements] == undisturbed
    assert len(records.sessions) == 2
    assert [m.session for m in records.measurements] == [
        session.session for session in records.sessions for _ in range(3)
    ]


def test_a_run_interrupted_in_its_second_pass_goes_on_there(capsys, out, undisturbed, monkeypatch):
    class Later(Interrupted):
        def __init__(self):
            super().__init__()
            self.flushed = -2 * 3 * (2 + 3 + 3)

    with monkeypatch.context() as context:
        context.setattr(cpu, "CpuBackend", Later)
        hw(capsys, *TWO_GROUPS, "--passes", "2", "--out", out, code=130)
    assert keys_of(part_path(out)) == [*undisturbed, *undisturbed[:3]]
    hw(capsys, *TWO_GROUPS, "--passes", "2", "--out", out, "--resume")
    assert keys_of(out) == 2 * undisturbed


KILLED = """
import os, signal, sys
from hw_validate.__main__ import main

write, groups = os.write, 0

def dying(handle, data):
    global groups
    groups += b'"record": "measurement"' in bytes(data)
    if groups < 2:
        return write(handle, data)
    write(handle, bytes(data)[: len(data) // 2])  # torn, as by a full disk or a lost machine
    os.kill(os.getpid(), signal.SIGKILL)

os.write = dying
main(sys.argv[1:])
"""


def test_a_killed_run_resumes_with_nothing_lost_or_doubled(capsys, out, undisturbed):
    command = [sys.executable, "-c", KILLED, *TWO_GROUPS, "--out", str(out)]
    done = subprocess.run(command, check=False, capture_output=True, env=dict(os.environ))
    assert done.returncode == -signal.SIGKILL, done.stderr
    part = part_path(out)
    torn = read_records(part, allow_torn=True)
    assert [m.key for m in torn.measurements] == undisturbed[:3]
    assert not part.read_bytes().endswith(b"\n")
    hw(capsys, *TWO_GROUPS, "--out", out, "--resume")
    assert keys_of(out) == undisturbed


def stop_at_once(*_, **__):
    raise KeyboardInterrupt


def test_resume_without_a_file_starts_one(capsys, out):
    hw(capsys, *BASE, *GEMM, *FEW, "--out", out, "--resume")
    assert len(keys_of(out)) == 3


def test_resume_under_other_conditions_is_refused_with_both_values(capsys, out, monkeypatch):
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING", raising=False)
    with monkeypatch.context() as context:
        set_clock(context, 2.0)
        hw(capsys, *TWO_GROUPS, "--budget", "5s", "--out", out)
    part = part_path(out)
    before = part.read_bytes()
    error = hw(capsys, *TWO_GROUPS, "--regime", "sustained", "--out", out, "--resume", code=2).err
    assert "regime: 'burst' and 'sustained'" in error
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    error = hw(capsys, *TWO_GROUPS, "--out", out, "--resume", code=2).err
    assert "environment.env_cuda_launch_blocking: absent and '1'" in error
    assert part.read_bytes() == before


def test_resume_with_another_init_is_refused_with_both_values(capsys, out, monkeypatch):
    sets = ["microbench", "--device", "cpu", "--sets", "gemm", *GEMM, "--rounds", "3", "--out", out]
    monkeypatch.setattr(campaign, "run_campaign", stop_at_once)
    hw(capsys, *sets, code=130)
    error = hw(capsys, *sets, "--init", "zeros", "--resume", code=2).err
    assert "init: 'randn' and 'zeros'" in error


# wrong data and missing access


def spoil(monkeypatch, schedule, kind, spoiled):
    """Replace what the first task of a kind of one schedule does."""
    bind = plan_runs.bind

    def wrong(plan, *args):
        bound = bind(plan, *args)
        if plan.schedule != schedule:
            return bound
        first = next(step for step in bound.steps if step.id.startswith(kind))
        return replace(
            bound,
            steps=tuple(
                replace(step, launch=spoiled(bound, step)) if step is first else step
                for step in bound.steps
            ),
        )

    monkeypatch.setattr(plan_runs, "bind", wrong)


def lost(_, __):
    return lambda _: None


def doubled(bound, step):
    def launch(stream):
        step.launch(stream)
        bound.memory.whole(step.lane.gpu, "c").mul_(2)

    return launch


@pytest.mark.parametrize(
    ("schedule", "kind", "spoiled"),
    [("hetero-fused-1d", "xfer.", lost), ("serial", "xfer.", lost), ("shard-p2p", "gemm.", doubled)],
)
def test_wrong_data_spoils_that_plan_and_no_other(capsys, out, monkeypatch, schedule, kind, spoiled):
    spoil(monkeypatch, schedule, kind, spoiled)
    text = hw(capsys, *BASE, *GEMM, *FEW, "--out", out).out
    assert f"unusable (1x): {schedule}: gpu 0 c: row" in text
    for m in read_records(out).measurements:
        assert m.usable == (plan_name(m) != schedule)
        assert m.usable or ("is wrong by" in m.unusable[0] and "written by" in m.unusable[0])
        assert bool(m.samples_s) == m.usable  # no time of a wrong plan can be taken by accident


def test_a_file_without_a_usable_measurement_is_an_error(capsys, out, monkeypatch):
    spoil(monkeypatch, "serial", "xfer.", lost)
    captured = hw(capsys, *BASE, *GEMM, "--schedule", "serial", "--out", out, code=2)
    assert "no usable measurement" in captured.err
    assert "is wrong by" in captured.out
    assert len(read_records(out).measurements) == 1  # the reason is kept


def test_without_peer_access_plans_are_unusable_and_name_the_pair(capsys, out, monkeypatch):
    dead = functools.partial(CpuBackend, dead_peers=[(0, 2)])
    monkeypatch.setattr(cpu, "CpuBackend", dead)
    hw(capsys, *BASE, *GEMM, "--num-chunks", "2", "--out", out)
    for m in read_records(out).measurements:
        assert m.usable == (plan_name(m) == "shard-ring")  # reads from its neighbour alone
        assert m.usable or "device 0 has no peer access to device 2" in m.unusable[0]
    path = out.with_name("serial.jsonl")
    captured = hw(capsys, *BASE, *GEMM, "--schedule", "serial", "--out", path, code=2)
    assert "no peer access" in captured.out
    assert "no usable measurement" in captured.err


def test_a_gpu_without_memory_for_a_plan_spoils_that_plan_alone(capsys, out, monkeypatch):
    prepare = plan_runs.Bound.prepare

    def full(bound, **how):
        if bound.plan.schedule == "shard-p2p":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has")
        return prepare(bound, **how)

    monkeypatch.setattr(plan_runs.Bound, "prepare", full)
    hw(capsys, *BASE, *GEMM, *FEW, "--out", out)
    unusable = [m for m in read_records(out).measurements if not m.usable]
    assert [plan_name(m) for m in unusable] == ["shard-p2p"]
    assert unusable[0].unusable == ("not enough memory: CUDA out of memory",)


def test_faster_than_the_peak_is_refused(tmp_path):
    settings = PlanSettings(num_gpus=4, schedules=("serial", "hetero-fused-2d"), num_chunks=(2,))
    for peak, usable in ((1.0, False), (1e18, True), (None, True)):
        groups = plan_groups(
            [TINY], [find_map("own", 4)], settings, peak_flops_per_s={"bf16": peak}.get
        )
        with Recorder.open(tmp_path / f"{peak}.jsonl", SESSION) as recorder:
            outcome = run_campaign(
                groups,
                CpuBackend(),
                Settings(rounds=3),
                recorder,
                read_sensors=lambda: UNKNOWN,
            )
        assert [m.usable for m in outcome.measured] == [usable, usable]
        assert usable or all("above the peak" in m.unusable[0] for m in outcome.measured)


def test_the_peak_of_the_device_is_the_one_that_counts(capsys, out, monkeypatch):
    """The CPU plays a gpu of a name with a known, low peak."""

    class Claimed(CpuBackend):
        kind = "gpu"

    random_inputs = plan_runs.random_inputs
    monkeypatch.setattr(cpu, "CpuBackend", Claimed)
    monkeypatch.setattr(
        plan_runs,
        "random_inputs",
        lambda *args, **how: random_inputs(*args, **(how | {"device": "cpu"})),
    )
    monkeypatch.setattr(
        Examiner, "of_plan", lambda *_: Evidence(texts=("examined",), warnings=("slow",))
    )
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"Abacus {device}")
    asked = []

    def peaks_of(name):
        asked.append(name)
        return Peaks(name="abacus", flops_per_s={"bf16": 1.0})

    monkeypatch.setattr("hw_validate.peaks.peaks_of", peaks_of)
    captured = hw(capsys, *BASE, *GEMM, *FEW, "--out", out, code=2)
    assert asked == ["Abacus 0"]
    assert "above the peak" in captured.out
    for m in read_records(out).measurements:
        assert m.evidence == ("examined",)
        assert m.warnings[0] == "slow"
        assert "above the peak of" in m.unusable[0]


# how it is timed


class Scripted:
    """Prepared steps that take known times and note when they run."""

    def __init__(self, name, log, times=None):
        self.name = name
        self.log = log
        self.times = iter(times or [])

    def run(self):
        self.log.append(self.name)
        return Run(makespan_s=next(self.times, 1e-3), host_s=1e-6)

    def close(self):
        raise AssertionError("not the job of who measures")


class Logged(CpuBackend):
    def __init__(self, log):
        super().__init__()
        self.log = log

    def flush(self):
        self.log.append("flush")

    def heat(self, seconds):
        self.log.append(("heat", seconds))


def scripted(log, names="abc", times=None):
    return [
        Subject(
            kind="plan",
            params={"name": name},
            prepared=Scripted(name, log, times),
            spanned=Scripted(f"{name}+", log),
        )
        for name in names
    ]


def timed(subjects, log, **settings):
    """Measurements, and what happened in which order; the n-th reading of the sensors says n."""
    count = 0

    def read_sensors():
        nonlocal count
        count += 1
        log.append(("sensors", count))
        return Sensors(sm_clock_hz=1e9, power_w=float(count), temperature_c=None)

    return measure_group(
        subjects, Logged(log), Settings(**settings), read_sensors=read_sensors, first_sequence=5
    )


def rounds_of(log, size):
    runs = [entry for entry in log if isinstance(entry, str) and entry != "flush"]
    assert len(runs) % size == 0
    return [runs[i : i + size] for i in range(0, len(runs), size)]


def test_every_round_has_each_subject_once_in_an_order_of_its_own():
    logs = {}
    for run, seed in (("first", 1), ("again", 1), ("other", 2)):
        log = logs[run] = []
        timed(scripted(log, "abcdef"), log, rounds=10, warm_up=2, seed=seed)
    rounds = rounds_of(logs["first"], 6)
    assert len(rounds) == 2 + 10 + 5
    for members in rounds:
        assert sorted(name.rstrip("+") for name in members) == list("abcdef")
        assert len({name.endswith("+") for name in members}) == 1  # instrumented ones are apart
    assert len({tuple(name.rstrip("+") for name in members) for members in rounds}) > 10
    assert logs["first"] == logs["again"]
    assert logs["first"] != logs["other"]


def test_instrumented_rounds_are_spread_among_the_others():
    log = []
    timed(scripted(log), log, rounds=10, warm_up=2)
    kinds = "".join("+" if members[0].endswith("+") else "." for members in rounds_of(log, 3))
    assert kinds == ".." + "..+" * 5


def test_warm_up_is_not_a_sample():
    log = []
    slow_first = [9.0, 9.0, 1.0, 1.1, 1.05]
    (found,) = timed(scripted(log, "a", slow_first), log, rounds=3, warm_up=2)
    assert found.samples_s == (1.0, 1.1, 1.05)
    assert found.sequence == 5


def test_sensors_are_read_right_before_the_first_and_after_the_last_sample():
    log = []
    found = timed(scripted(log), log, rounds=4, warm_up=2)
    for m in found:
        runs = [i for i, entry in enumerate(log) if entry == m.params["name"]]
        first, last = runs[2], runs[-1]  # two of warm-up
        assert log[first - 1] == ("sensors", m.before.power_w)
        assert log[last + 1] == ("sensors", m.after.power_w)


def test_sustained_runs_are_heated_before_each_and_burst_runs_are_not():
    log = []
    timed(scripted(log), log, rounds=4, regime="sustained", heat_s=0.25)
    steps = [entry for entry in log if not (isinstance(entry, tuple) and entry[0] == "sensors")]
    assert len(steps) % 3 == 0
    for i in range(0, len(steps), 3):
        assert steps[i : i + 2] == [("heat", 0.25), "flush"]
        assert steps[i + 2][0] in "abc"
    log = []
    timed(scripted(log), log, rounds=4)
    assert not any(isinstance(entry, tuple) and entry[0] == "heat" for entry in log)


def test_the_regime_of_the_command_line_reaches_the_runs(capsys, out, monkeypatch):
    log = []
    monkeypatch.setattr(cpu, "CpuBackend", functools.partial(Logged, log))
    hw(capsys, *BASE, *GEMM, *FEW, "--regime", "sustained", "--out", out)
    assert sum(isinstance(entry, tuple) for entry in log) == log.count("flush") == 3 * (2 + 3 + 3)
    assert read_records(out).sessions[0].regime == "sustained"


@pytest.mark.parametrize(
    ("times", "warned"),
    [([1.0, 1.0, 1.04, 1.04, 1.04], False), ([1.0, 1.0, 1.0, 1.3, 1.3], True), ([1.0] * 5, False)],
)
def test_samples_that_spread_are_warned_of(times, warned):
    log = []
    (found,) = timed(scripted(log, "a", times), log, rounds=5, warm_up=0)
    assert found.usable
    assert bool(found.warnings) == warned
    assert not warned or "samples spread by 30%" in found.warnings[0]


def test_a_stalled_sample_is_warned_of_and_kept():
    log = []
    (found,) = timed(scripted(log, "a", [1.0] * 8 + [5.0, 1.0]), log, rounds=10, warm_up=0)
    assert found.usable
    assert found.samples_s[8] == 5.0
    assert any("steps 8 of 10 stalled" in text for text in found.warnings)


def test_copies_faster_than_the_memory_are_refused():
    log = []
    for rate, usable in ((1e9, False), (3e9, True)):
        (subject,) = scripted(log, "a", [1.0] * 3)
        subject = replace(subject, nbytes=2 * 10**9, peak_bytes_per_s=rate)
        (found,) = timed([subject], log, rounds=3, warm_up=0)
        assert found.usable == usable
        assert usable or "2.0 GB/s is above the 1.0 GB/s" in found.unusable[0]


def test_memory_that_grows_while_nothing_is_made_is_warned_of():
    class Leaks(Logged):
        held = 0.0

        def reserved_bytes(self):
            self.held += 2**30
            return self.held

    log = []
    for backend, warned in ((Leaks(log), True), (Logged(log), False)):
        found = measure_group(scripted(log), backend, Settings(rounds=4), read_sensors=lambda: UNKNOWN)
        assert all(bool(m.warnings) == warned for m in found)


def test_no_time_at_all_is_refused():
    log = []
    (found,) = timed(scripted(log, "a", [1.0, 0.0, 0.0, 1.0]), log, rounds=4, warm_up=0)
    assert found.unusable == ("2 samples of no time at all: nothing was run",)
    assert found.samples_s == (1.0, 1.0)
    (found,) = timed(scripted(log, "a", [0.0] * 4), log, rounds=4, warm_up=0)
    assert not found.usable
    assert found.samples_s == ()


def test_spans_are_those_of_the_instrumented_run_with_the_median_makespan():
    class Spanned(Scripted):
        def run(self):
            makespan_s = next(self.times)
            spans = {"first": (0.0, makespan_s / 2), "second": (makespan_s / 2, makespan_s)}
            return Run(makespan_s=makespan_s, host_s=0.0, spans=spans)

    log = []
    (subject,) = scripted(log, "a")
    subject = replace(subject, spanned=Spanned("a+", log, [4e-6, 1e-6, 3e-6, 2e-6, 5e-6]))
    (found,) = timed([subject], log, rounds=5, warm_up=0)
    assert found.series["instrumented_s"] == (4e-6, 1e-6, 3e-6, 2e-6, 5e-6)
    assert found.spans.task_ids == ("first", "second")
    assert found.spans.start_ns == (0, 1500)
    assert found.spans.end_ns == (1500, 3000)


def test_what_cannot_run_is_recorded_beside_what_can():
    log = []
    good, bad = scripted(log, "ab")
    bad = replace(bad, prepared=None, spanned=None, unusable=("broken",))
    found = timed([good, bad], log, rounds=3)
    assert [m.usable for m in found] == [True, False]
    assert found[1].unusable == ("broken",)
    assert found[1].before == found[1].after == UNKNOWN
    assert {entry for entry in log if isinstance(entry, str)} == {"a", "a+", "flush"}


# time budgets


def timed_groups(monkeypatch, tmp_path, taken_s, budget_s, count=6):
    """Groups that are thought to take 10 s each, and do take something else."""
    now = [0.0]
    monkeypatch.setattr(campaign, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    @contextlib.contextmanager
    def opened(_, subjects):
        now[0] += taken_s
        yield subjects

    groups = []
    for number in range(count):
        subjects = scripted([], [str(number)])
        groups.append(
            Group(
                name=str(number),
                keys=tuple(subject.key for subject in subjects),
                estimate_s=10.0,
                open=functools.partial(opened, subjects=subjects),
            )
        )
    with Recorder.open(tmp_path / "out.jsonl", SESSION) as recorder:
        return run_campaign(
            groups,
            CpuBackend(),
            Settings(),
            recorder,
            read_sensors=lambda: UNKNOWN,
            budget_s=budget_s,
        )


@pytest.mark.parametrize(
    ("taken_s", "budget_s", "done"),
    [
        (10.0, None, 6),
        (10.0, 60.0, 6),
        (10.0, 59.0, 5),
        (20.0, 65.0, 3),  # the first shows that all take twice as long
        (1.0, 12.0, 6),  # or far less
        (10.0, 9.0, 0),
    ],
)
def test_the_budget_holds_and_estimates_follow_what_groups_took(
    monkeypatch, tmp_path, taken_s, budget_s, done
):
    outcome = timed_groups(monkeypatch, tmp_path, taken_s, budget_s)
    assert len(outcome.measured) == done
    assert outcome.left == tuple(str(number) for number in range(done, 6))

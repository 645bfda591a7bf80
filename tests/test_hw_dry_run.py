"""Layer: CPU torch. Dry runs: small shapes stand for large ones; what is wrong or too much is said."""

import json
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples

from ficco_sim.errors import FileError, PlanError
from ficco_sim.schedules import make_plan
from ficco_sim.units import GIB
from ficco_sim.workload import Workload, get_workload
from hw_validate import plan_runs, rehearsal
from hw_validate.__main__ import main
from hw_validate.allowance import judge
from hw_validate.dry_run import DryRun, GroupEstimate, Rehearsal
from hw_validate.maps import find_map
from hw_validate.plan_runs import COMPARED, PlanSettings, fits, plan_groups
from hw_validate.rehearsal import LIBRARIES_BYTES, needed_bytes, rehearse, scaled_down

BIG = Workload(name="big", pattern="all_gather_gemm", m=8192, n=1280, k=8192)
FEW = PlanSettings(
    num_gpus=4,
    schedules=("serial", "hetero-unfused-1d", "uniform-fused-2d"),
    num_chunks=(2,),
    compute_queues=(1,),
    collectives=True,
)
OWN = find_map("own", 4)


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def hw(capsys, *arguments, code=0):
    assert main([str(argument) for argument in arguments]) == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.out + captured.err
    return captured


# small shapes


def structure(plan):
    return [(t.id, t.kind, t.queue, t.deps) for t in plan.tasks]


@examples(60)
@given(
    name=st.sampled_from(COMPARED),
    num_gpus=st.integers(2, 8),
    chunks=st.sampled_from([2, 3, 4, 8]),
    m=st.integers(1, 5000),
    n=st.integers(1, 5000),
    k=st.integers(1, 5000),
)
def test_small_shapes_keep_every_task(name, num_gpus, chunks, m, n, k):
    big = replace(BIG, m=m, n=n, k=k)
    small = scaled_down(big, num_gpus, (chunks,))
    assert small.m <= m
    assert small.m < 3 * num_gpus * chunks
    knobs = {"num_chunks": chunks} if name in plan_runs.FICCO else {}
    try:
        plan = make_plan(name, big, num_gpus, knobs)
    except ValueError as error:  # refused for both, for the same reason
        with pytest.raises(type(error)):
            make_plan(name, small, num_gpus, knobs)
        return
    assert structure(plan) == structure(make_plan(name, small, num_gpus, knobs))


@pytest.mark.parametrize("name", [name for name in COMPARED if name != "shard-ring"])
@pytest.mark.parametrize("workload", ["mixtral-8x7b-ep8-gate-up-2k", "deepseek-v3-ep8-gate-up-4k"])
def test_small_exchanges_keep_every_task(name, workload):
    big = get_workload(workload)
    assert not fits("shard-ring", big)
    small = scaled_down(big, 8, (2, 4, 8))
    assert small.m < 300
    assert structure(make_plan(name, big, 8, {})) == structure(make_plan(name, small, 8, {}))


# the rehearsal


def test_every_plan_is_checked_and_verified():
    found = rehearse([BIG, replace(BIG, name="odd", m=8199)], [OWN], FEW)
    groups = plan_groups([BIG, replace(BIG, name="odd", m=8199)], [OWN], FEW)
    assert found.plans == found.checked == sum(len(group.keys) for group in groups)
    # parts of unequal size are what NCCL cannot gather; all else is right
    assert found.plans - found.verified == len(found.failures) == 3
    assert all(failure.startswith("odd on own: nccl-") for failure in found.failures)
    assert found.shapes == ("big: 16, 32, 32", "odd: 23, 32, 32")


def test_an_illegal_plan_is_named(monkeypatch):
    check = rehearsal.check_plan

    def fails(plan):
        if plan.schedule == "hetero-unfused-1d" and plan.workload.m == BIG.m:
            raise PlanError("a race of x and y")
        return check(plan)

    monkeypatch.setattr(rehearsal, "check_plan", fails)
    found = rehearse([BIG], [OWN], FEW)
    assert found.checked == found.plans - 1
    (failure,) = found.failures
    assert failure.startswith("big on own: hetero-unfused-1d")
    assert "a race of x and y" in failure


def test_small_plans_that_are_other_plans_show_nothing(monkeypatch):
    monkeypatch.setattr(rehearsal, "scaled_down", lambda workload, *_: replace(workload, m=1, n=8, k=8))
    found = rehearse([BIG], [OWN], replace(FEW, collectives=False))
    assert found.checked < found.plans
    assert any("scaled down it has other tasks" in failure for failure in found.failures)


def test_wrong_numbers_are_named(monkeypatch):
    bind = plan_runs.bind

    def lost(plan, *args):
        bound = bind(plan, *args)
        first = next(s for s in bound.steps if s.id.startswith("xfer"))
        if plan.schedule != "uniform-fused-2d":
            return bound
        steps = [replace(s, launch=lambda _: None) if s is first else s for s in bound.steps]
        return replace(bound, steps=tuple(steps))

    monkeypatch.setattr(plan_runs, "bind", lost)
    found = rehearse([BIG], [OWN], FEW)
    assert (found.checked, found.verified) == (found.plans, found.plans - 1)
    (failure,) = found.failures
    assert failure.startswith("big on own: uniform-fused-2d c2: ")
    assert "is wrong by" in failure


def test_memory_of_a_plan_is_what_its_matrices_take():
    m, n, k = BIG.m, BIG.n, BIG.k
    (serial, *_) = plan_runs.plan_runs(BIG, OWN, replace(FEW, schedules=("serial",), collectives=False))
    found = needed_bytes([serial])
    buffers = 2 * (m * k + k * n + m * n)
    assert found[3] == buffers + LIBRARIES_BYTES
    assert found[0] == buffers + LIBRARIES_BYTES + 2 * (m * k + 4 * k * n) + 4 * 4 * m * n
    emulated = replace(FEW, num_gpus=8, schedules=("serial",), collectives=False)
    (serial, *_) = plan_runs.plan_runs(BIG, find_map("switch", 8), emulated)
    assert needed_bytes([serial])[1] == 2 * m * k + LIBRARIES_BYTES  # peers hold A once


def test_too_little_memory_is_said(capsys):
    found = rehearse([BIG], [OWN], FEW, memory_bytes=7 * GIB)
    assert found.failures == ()
    assert LIBRARIES_BYTES < found.most_bytes < 7 * GIB
    arguments = ["--gemm", "8192,1280,8192", "--num-gpus", "2", "--schedule", "serial", "--dry-run"]
    error = hw(capsys, "run", *arguments, "--rehearse", "--memory", "6GiB", code=2).err
    assert "on dev0, which has 6.0 GiB" in error
    assert "--rehearse: only with --dry-run" in (
        hw(capsys, "run", *arguments[:-1], "--out", "x", "--rehearse", code=2).err
    )
    assert "--memory: " in hw(capsys, "run", *arguments, "--memory", "6GiB", code=2).err
    assert "--memory: 'much'" in (
        hw(capsys, "run", *arguments, "--rehearse", "--memory", "much", code=2).err
    )


def test_more_devices_and_more_tasks_take_longer():
    def seconds(num_gpus, **how):
        settings = replace(FEW, num_gpus=num_gpus, collectives=False, **how)
        (group,) = plan_groups([BIG], [find_map("own", num_gpus)], settings)
        return group.estimate_s

    assert seconds(2) < seconds(4) < seconds(8)
    assert seconds(4) < seconds(4, num_chunks=(8,))
    assert seconds(4) < seconds(4, estimate_rounds=40)


# the allowance


def dry(seconds, **changed):
    told = {"command": "run", "start_s": 10.0, "passes": 2}
    groups = (GroupEstimate(name="g", measurements=5, estimate_s=(seconds - 10) / 2),)
    return DryRun(**{**told, "groups": groups, **changed})


TRIED = Rehearsal(
    plans=5,
    checked=5,
    verified=4,
    shapes=("w: 1, 1, 1",),
    most_bytes=10,
    most_bytes_at="dev0",
    memory_bytes=None,
    failures=("w on own: serial: wrong",),
)


def test_dry_runs_are_added_up():
    found = judge({"a": dry(100), "b": dry(200), "c": dry(50, groups=())}, 400, 200)
    assert found.problems == ()
    assert [row.estimate_s for row in found.rows] == [100, 200, 10]
    assert found.estimate_s == 310
    assert [row.measurements for row in found.rows] == [10, 10, 0]
    assert (found.plans, found.checked, found.verified) == (0, 0, 0)
    tried = judge({"a": dry(100, rehearsal=TRIED), "b": dry(100, rehearsal=TRIED)}, 400, 200)
    assert (tried.plans, tried.checked, tried.verified) == (10, 10, 8)
    assert tried.problems == ("a: w on own: serial: wrong", "b: w on own: serial: wrong")


def test_too_much_time_is_refused_each_and_in_all():
    over = judge({"a": dry(150), "b": dry(90)}, 180, 120)
    assert len(over.problems) == 2
    assert over.problems[0] == "a: 2.5 min are more than the 2.0 min of one command"
    assert over.problems[1] == "4.0 min in all are more than the allowance of 3.0 min"


def test_the_allowance_of_written_dry_runs(capsys, tmp_path):
    names = []
    for name, options in (("a", ["--rounds", "3"]), ("b", ["--passes", "3", "--rehearse"])):
        path = tmp_path / f"{name}.json"
        plans = ["--num-gpus", "2", "--schedule", "serial,shard-p2p", "--collectives"]
        gemm = ["--gemm", "64,16,32", "--num-chunks", "2"]
        assert hw(capsys, "run", *gemm, *plans, *options, "--dry-run", "--json", path).out
        names.append(path)
    for verb in (["doctor", "--devices", "8"], ["microbench", "--sets", "launch"]):
        path = tmp_path / f"{verb[0]}.json"
        hw(capsys, *verb, "--dry-run", "--json", path)
        names.append(path)
    text = hw(capsys, "allowance", *names).out
    assert "of 30.0 min" in text
    document = json.loads(hw(capsys, "allowance", *names, "--json", "-").out)
    assert [row["name"] for row in document["rows"]] == ["a", "b", "doctor", "microbench"]
    assert [row["plans"] for row in document["rows"]] == [None, 5, None, None]
    assert [row["measurements"] for row in document["rows"]][:3] == [5, 15, 0]
    assert document["rows"][2]["estimate_s"] > 60  # eight devices get hot, and read from all others
    error = hw(capsys, "allowance", *names, "--most", "10s", code=2).err
    assert "in all are more than the allowance of 0.2 min" in error


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{", "bad.json"),
        ('{"command": "run"}', "start_s"),
        ('{"command": "run", "start_s": -1.0}', "start_s: -1.0 must be finite"),
        ('{"command": "run", "start_s": 1.0, "more": 1}', "more"),
    ],
)
def test_files_that_are_no_dry_runs_are_refused(capsys, tmp_path, text, named):
    path = tmp_path / "bad.json"
    path.write_text(text)
    error = hw(capsys, "allowance", path, code=2).err
    assert named in error
    assert "bad.json" in error


def test_an_allowance_must_be_a_duration(capsys, tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"command": "run", "start_s": 1.0}')
    for option in ("--most", "--most-each"):
        error = hw(capsys, "allowance", path, option, "soon", code=2).err
        assert f"{option}: 'soon' must be like" in error


def test_times_must_be_times():
    with pytest.raises(FileError, match="start_s"):
        dry(100, start_s=float("nan"))

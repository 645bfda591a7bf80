"""Layer: harness without a gpu. What records of plans say: winners, gains, losses, repeats, traces."""

import json
from dataclasses import fields, replace
from io import StringIO

import pytest
from rich.console import Console

from ficco_sim import io
from ficco_sim.cli import main as ficco
from ficco_sim.errors import ScenarioError
from ficco_sim.measured_plans import plan_of, trace_of_measurement
from ficco_sim.plan import Gemm, Transfer
from ficco_sim.records import (
    Measurement,
    Sensors,
    Session,
    SpanSeries,
    measurement_key,
    read_records,
)
from ficco_sim.schedules import knobs_of, make_plan
from ficco_sim.trace import load_trace
from ficco_sim.workload import Workload, get_workload
from hw_validate.__main__ import main
from hw_validate.compare import compare_traces
from hw_validate.recorder import Recorder
from hw_validate.summary import (
    TABLE_WIDTH,
    PlanRow,
    RepeatRow,
    plan_rows,
    plan_table,
    repeat_rows,
    straight_rows,
)

MS = 1e-3
SESSION = Session(
    session="first",
    started="2026-01-01T00:00:00Z",
    regime="burst",
    init="randn",
    command="hw_validate run",
    environment={"device": "NVIDIA H200", "driver": "580.1"},
)
SPANS = ("xfer.g0.s1", "xfer.g0.s2", "gemm.g0")


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def plan(schedule, *samples_ms, kind="plan", sequence=0, spans=None, clock_hz=None, **params):
    """A measurement of a plan of a tiny operator of four gpus, one of which computes."""
    knobs = {"num_chunks": None, "compute_queues": None, "copy_queues": None}
    if "num_chunks" in knobs_of(schedule):
        knobs = {"num_chunks": 2, "compute_queues": 1, "copy_queues": 3}
    told = {
        "workload": "gemm-64x16x32",
        "pattern": "all_gather_gemm",
        "m": 64,
        "n": 16,
        "k": 32,
        "dtype": "bf16",
        "num_gpus": 4,
        "schedule": schedule,
        **knobs,
        "engine": "dma",
        "gather": "direct" if knobs["num_chunks"] else None,
        "map": "0=dev0,1-3=host",
        "emulates": "host",
        "submission": "graph",
        "core_blocks": None,
    } | params
    return Measurement(
        kind=kind,
        key=measurement_key(kind, told),
        params=told,
        samples_s=tuple(MS * sample for sample in samples_ms),
        spans=spans,
        before=Sensors(sm_clock_hz=clock_hz, power_w=500.0, temperature_c=None),
        after=Sensors(sm_clock_hz=None, power_w=None, temperature_c=None),
        labels=("emulated: by hand",),
        unusable=() if samples_ms else ("wrong",),
        sequence=sequence,
    )


def serial(*samples_ms, gemm_ms=6, comm_ms=4, **params):
    """The serial plan, whose spans say how long its parts take."""
    ends = [round(1e6 * end) for end in (comm_ms / 2, comm_ms, comm_ms + gemm_ms)]
    starts = [0, 0, ends[1]]
    series = SpanSeries(task_ids=SPANS, start_ns=tuple(starts), end_ns=tuple(ends))
    return plan("serial", *samples_ms, spans=series, **params)


def write(path, measurements, session=SESSION):
    with Recorder.open(path, session) as recorder:
        recorder.write_group([replace(m, sequence=i) for i, m in enumerate(measurements)])
        recorder.finish()
    return str(path)


def hw(capsys, *arguments, code=0):
    assert main([str(argument) for argument in arguments]) == code
    return capsys.readouterr()


# a row for each case


def test_the_winner_and_its_gain():
    (row,) = plan_rows(
        [
            serial(9, 10, 30),
            plan("shard-p2p", 12),
            plan("shard-ring", 9.5),
            plan("hetero-fused-1d", 8, 8, 9),
            plan("hetero-unfused-1d", 11, compute_queues=4),
            plan("uniform-fused-2d", 10),
        ]
    )
    assert (row.workload, row.m, row.n, row.k, row.dtype) == ("gemm-64x16x32", 64, 16, 32, "bf16")
    assert (row.emulates, row.engine, row.submission) == ("host", "dma", "graph")
    assert row.serial_s == pytest.approx(10 * MS)  # medians
    assert (row.best, row.best_s) == ("hetero-fused-1d c2", pytest.approx(8 * MS))
    assert row.speedup == pytest.approx(10 / 8)
    assert row.shard_speedup == pytest.approx(10 / 9.5)
    assert row.ficco_speedup == pytest.approx(10 / 8)
    assert (row.gemm_s, row.comm_s) == (pytest.approx(6 * MS), pytest.approx(4 * MS))
    assert row.ideal_s == pytest.approx(6 * MS)
    assert row.fraction_of_ideal == pytest.approx((10 / 8 - 1) / (10 / 6 - 1))
    assert (row.num_plans, row.num_losing) == (5, 2)  # as fast as serial is no loss


def test_serial_wins_where_nothing_is_faster():
    (row,) = plan_rows([serial(10), plan("shard-p2p", 12), plan("hetero-fused-1d", 10)])
    assert (row.best, row.best_s, row.speedup) == ("serial", row.serial_s, 1)
    assert row.ficco_speedup == pytest.approx(1)
    assert row.fraction_of_ideal == pytest.approx(0)
    (alone,) = plan_rows([serial(10)])
    assert (alone.best, alone.num_plans, alone.num_losing) == ("serial", 0, 0)
    assert alone.shard_speedup is alone.ficco_speedup is None


@pytest.mark.parametrize(("best_ms", "wins"), [(9.95, False), (9.85, True)])
def test_a_gain_within_noise_is_no_win(best_ms, wins):
    (row,) = plan_rows([serial(10), plan("hetero-fused-1d", best_ms)])
    assert row.best == ("hetero-fused-1d c2" if wins else "serial")
    assert row.speedup == pytest.approx(10 / best_ms if wins else 1)
    assert row.ficco_speedup == pytest.approx(10 / best_ms)


@pytest.mark.parametrize(("serial_ms", "known"), [(10.4, False), (10.6, True)])
def test_a_fraction_needs_something_to_gain(serial_ms, known):
    (row,) = plan_rows([serial(serial_ms, gemm_ms=10), plan("hetero-fused-1d", 10.2)])
    assert (row.fraction_of_ideal is not None) == known


def test_the_ideal_is_the_longer_part():
    (row,) = plan_rows([serial(10, gemm_ms=2, comm_ms=7)])
    assert row.ideal_s == row.comm_s == pytest.approx(7 * MS)


def test_without_spans_there_is_no_ideal():
    (row,) = plan_rows([plan("serial", 10), plan("shard-p2p", 8)])
    assert row.gemm_s is row.comm_s is row.ideal_s is row.fraction_of_ideal is None
    assert row.speedup == pytest.approx(10 / 8)


def test_parts_are_those_of_the_gpu_that_takes_longest():
    series = SpanSeries(
        task_ids=("xfer.g0.s1", "gemm.g0", "xfer.g1.s0", "gemm.g1"),
        start_ns=(0, 3_000_000, 0, 4_000_000),
        end_ns=(3_000_000, 8_000_000, 4_000_000, 5_000_000),
    )
    (row,) = plan_rows([plan("serial", 9, spans=series, map="0-3=dev0", emulates="together")])
    assert row.gemm_s == pytest.approx(5 * MS)
    assert row.comm_s == pytest.approx(4 * MS)


def test_unusable_plans_and_cases_without_serial_do_not_count():
    rows = plan_rows([serial(10), plan("hetero-fused-1d"), plan("shard-p2p", 9, emulates="self")])
    assert [(row.emulates, row.num_plans) for row in rows] == [("host", 0)]


OTHERS = [
    {"workload": "another"},
    {"emulates": "mesh"},
    {"engine": "core", "core_blocks": 16},
    {"submission": "eager"},
    {"dtype": "fp8"},  # --gemm gives both types the same name
    {"num_gpus": 8},
    {"m": 128},
]


@pytest.mark.parametrize("other", OTHERS)
def test_only_like_is_compared_with_like(other):
    rows = plan_rows(
        [
            serial(10),
            plan("shard-p2p", 8),
            serial(20, **other),
            plan("shard-p2p", 5, **other),
        ]
    )
    assert [row.serial_s for row in rows] == [pytest.approx(10 * MS), pytest.approx(20 * MS)]
    assert [row.speedup for row in rows] == [pytest.approx(10 / 8), pytest.approx(20 / 5)]


def test_core_driven_copies_by_another_number_of_blocks_are_another_case():
    core = [
        m
        for blocks, ms in ((8, 8), (16, 5))
        for m in (
            serial(10, engine="core", core_blocks=blocks),
            plan("shard-p2p", ms, engine="core", core_blocks=blocks),
        )
    ]
    assert [row.best_s for row in plan_rows(core)] == [pytest.approx(8 * MS), pytest.approx(5 * MS)]


def test_names_of_plans_tell_all_knobs_apart():
    found = [
        plan("hetero-unfused-1d", 1, num_chunks=c, compute_queues=q, copy_queues=copies)
        for c in (2, 4)
        for q in (1, 4)
        for copies in (1, 3)
    ]
    (row,) = plan_rows([serial(10), *found])
    assert row.num_plans == 8
    (best,) = plan_rows([serial(10), plan("hetero-unfused-1d", 1, compute_queues=4, copy_queues=1)])
    assert best.best == "hetero-unfused-1d c2 q4 in 1"


def test_passes_are_put_together_and_their_differences_shown():
    found = [
        serial(10, clock_hz=1.9e9),
        plan("shard-p2p", 8, 8.2, 8.1, clock_hz=1.9e9),
        serial(10.5, clock_hz=1.8e9),
        plan("shard-p2p", 9, 9.1, 9.2, clock_hz=1.7e9),
        plan("hetero-fused-1d", 8),
    ]
    (row,) = plan_rows(found)
    assert row.serial_s == pytest.approx(10.25 * MS)
    assert row.num_plans == 2
    first, second = repeat_rows(found)
    assert (first.plan, second.plan) == ("serial", "shard-p2p")
    assert second.medians_s == (pytest.approx(8.1 * MS), pytest.approx(9.1 * MS))
    assert second.difference == pytest.approx(9.1 / 8.1 - 1)
    assert second.sm_clock_hz == (1.9e9, 1.7e9)
    assert second.power_w == (500.0, 500.0)


def test_straight_versions_stand_beside_their_plans():
    found = [
        serial(10),
        plan("serial", 9.9, kind="straight"),
        plan("hetero-unfused-1d", 8, compute_queues=4),
        plan("hetero-unfused-1d", 8.4, kind="straight", compute_queues=4),
        plan("hetero-unfused-1d", 7, kind="straight"),  # no plan with one queue
        plan("hetero-unfused-1d", kind="straight", num_chunks=4),
        plan("hetero-unfused-1d", 7, num_chunks=4),
    ]
    rows = straight_rows(found)
    assert [(row[0], row[1], row[2]) for row in rows] == [
        ("gemm-64x16x32", "host", "serial"),
        ("gemm-64x16x32", "host", "hetero-unfused-1d c2 q4"),
    ]
    assert [row[3:] for row in rows] == [
        (pytest.approx(10 * MS), pytest.approx(9.9 * MS)),
        (pytest.approx(8 * MS), pytest.approx(8.4 * MS)),
    ]


def test_the_table_says_what_the_rows_say():
    console = Console(width=TABLE_WIDTH, file=StringIO())
    rows = plan_rows([serial(10), plan("hetero-fused-1d", 7.5), plan("shard-p2p", 20)])
    console.print(plan_table(rows))
    text = console.file.getvalue()
    for word in ("1.33x", "0.50x", "50%", "hetero-fused-1d c2", "1 of 2", "10.000 ms", "7.500 ms"):
        assert word in text


# plans and traces of measurements


def test_the_plan_is_made_again_with_its_knobs():
    found = plan_of(plan("hetero-unfused-1d", 1, num_chunks=4, compute_queues=2, copy_queues=1))
    assert found.schedule == "hetero-unfused-1d"
    assert found.num_gpus == 4
    assert (found.knobs["num_chunks"], found.knobs["compute_queues"]) == (4, 2)
    assert found.knobs["copy_queues"] == 1
    workload = Workload(name="gemm-64x16x32", pattern="all_gather_gemm", m=64, n=16, k=32)
    assert found.workload == workload


def measured_of(operator, **changed):
    shape = {key: getattr(operator, key) for key in ("pattern", "m", "n", "k", "dtype")}
    params = {"workload": operator.name, "num_gpus": 8, **shape} | changed
    return plan("serial", 1, **params)


def test_named_workloads_are_looked_up():
    for name in ("llama3-70b-tp8-qkv-4k", "mixtral-8x7b-ep8-gate-up-2k"):
        workload = get_workload(name)
        assert plan_of(measured_of(workload)).workload == workload


def test_a_name_alone_makes_no_workload():
    """A file may use the name of another workload, or that may have changed since."""
    gather = get_workload("llama3-70b-tp8-qkv-4k")
    assert plan_of(measured_of(gather, n=64)).workload.n == 64
    exchange = get_workload("mixtral-8x7b-ep8-gate-up-2k")
    for changed in ({"n": 64}, {"workload": "from-a-file"}):
        with pytest.raises(ScenarioError, match="all_to_all_gemm"):
            plan_of(measured_of(exchange, **changed))


def test_what_is_no_plan_has_none():
    params = {"m": 1, "n": 1, "k": 1}
    gemm = replace(plan("serial", 1), kind="gemm", params=params, key=measurement_key("gemm", params))
    with pytest.raises(ScenarioError, match="no measurement of a plan"):
        plan_of(gemm)


def with_spans(schedule, **params):
    """A measured plan whose tasks on gpu 0 take a microsecond each, one after another."""
    m = plan(schedule, 1, **params)
    tasks = [task.id for task in plan_of(m).tasks if task.queue.gpu == 0]
    starts = tuple(1000 * i for i in range(len(tasks)))
    ends = tuple(start + 1000 for start in starts)
    return replace(m, spans=SpanSeries(task_ids=tuple(tasks), start_ns=starts, end_ns=ends))


def test_a_trace_has_the_tasks_of_the_plan_with_their_work():
    m = with_spans("hetero-fused-1d")
    made = plan_of(m)
    trace = trace_of_measurement(m, "NVIDIA H200")
    assert (trace.source, trace.machine) == ("gpu", "NVIDIA H200")
    assert trace.plan_fingerprint == made.fingerprint
    assert trace.labels == ("emulated: by hand",)
    tasks = {task.id: task for task in made.tasks if task.queue.gpu == 0}
    assert {span.task_id for span in trace.spans} == set(tasks)
    for span in trace.spans:
        task = tasks[span.task_id]
        assert (span.kind, span.queue) == (task.kind, task.queue)
        assert span.end_s - span.start_s == pytest.approx(1e-6)
        assert span.flops == (task.flops if isinstance(task, Gemm) else 0)
        if isinstance(task, Transfer):
            assert span.nbytes == 2 * task.dst.num_elements
        assert (span.nbytes == 0) == isinstance(task, Gemm)


def test_tasks_of_another_version_are_refused():
    m = with_spans("hetero-fused-1d")
    renamed = replace(m.spans, task_ids=("gemm.old", *m.spans.task_ids[1:]))
    with pytest.raises(ScenarioError, match=r"'gemm\.old' is not in the plan .* another version"):
        trace_of_measurement(replace(m, spans=renamed), "x")
    with pytest.raises(ScenarioError, match="without spans"):
        trace_of_measurement(replace(m, spans=None), "x")


def test_a_measured_plan_is_laid_beside_the_same_plan_simulated(capsys, tmp_path):
    """From both command lines to the comparison, task by task."""
    shape = ["--gemm", "64,16,32", "--num-chunks", "2"]
    simulate = ["simulate", "hetero-fused-1d", "--machine", "h200_2", *shape, "--spans", "sim.json"]
    assert ficco(simulate) == 0
    schedules = ["--schedule", "serial,hetero-fused-1d"]
    cpu = ["--device", "cpu", "--num-gpus", 2, "--rounds", 3]
    hw(capsys, "run", *cpu, *shape, *schedules, "--out", "run.jsonl")
    key = read_records(tmp_path / "run.jsonl").measurements[1].key
    text = hw(capsys, "summary", "run.jsonl", "--spans", "gpu.json", "--key", key[:9]).out
    assert f"spans of hetero-fused-1d ({key}): gpu.json" in text
    document = json.loads(hw(capsys, "compare", "sim.json", "gpu.json", "--json", "-").out)
    plan = make_plan(
        "hetero-fused-1d",
        Workload(name="gemm-64x16x32", pattern="all_gather_gemm", m=64, n=16, k=32),
        2,
        {"num_chunks": 2},
    )
    assert {row["task_id"] for row in document["tasks"]} == {task.id for task in plan.tasks}
    assert document["only_measured"] == document["only_simulated"] == []
    assert document["plan_fingerprint"] == plan.fingerprint
    assert document["gpus"] == [0, 1]
    measured = load_trace(tmp_path / "gpu.json")
    assert document["measured_makespan_s"] == pytest.approx(max(s.end_s for s in measured.spans))


def test_gpus_that_only_hold_data_are_left_out_of_the_comparison():
    measured = trace_of_measurement(with_spans("hetero-fused-1d"), "x")
    everywhere = with_spans("hetero-fused-1d")
    made = plan_of(everywhere)
    count = len(made.tasks)
    series = SpanSeries(
        task_ids=tuple(task.id for task in made.tasks),
        start_ns=tuple(range(count)),
        end_ns=tuple(range(1, count + 1)),
    )
    simulated = replace(trace_of_measurement(replace(everywhere, spans=series), "y"), source="sim")
    comparison = compare_traces(simulated, measured)
    assert comparison.gpus == (0,)
    assert [only.gpu for only in comparison.only_simulated] == [1, 2, 3]


# the verb


MEASURED = [
    serial(10),
    plan("hetero-fused-1d", 8),
    plan("shard-p2p"),
    plan("serial", 9.5, kind="straight"),
]


def test_keys_of_the_json_are_stable(capsys, tmp_path):
    path = write(tmp_path / "a.jsonl", [*MEASURED, serial(10.1)])
    document = json.loads(hw(capsys, "summary", path, "--json", "-").out)
    assert list(document) == ["rows", "repeats", "straight", "collectives"]
    (row,) = document["rows"]
    assert list(row) == [
        "workload", "m", "n", "k", "dtype", "emulates", "engine", "submission", "serial_s", "gemm_s",
        "comm_s", "ideal_s", "best", "best_s", "speedup", "shard_speedup", "ficco_speedup",
        "fraction_of_ideal", "num_plans", "num_losing",
    ]  # fmt: skip
    assert list(row) == [field.name for field in fields(PlanRow)]
    (repeat,) = document["repeats"]
    assert list(repeat) == [
        "workload", "emulates", "plan", "medians_s", "difference", "sm_clock_hz", "power_w",
    ]  # fmt: skip
    assert list(repeat) == [field.name for field in fields(RepeatRow)]
    (straight,) = document["straight"]
    assert list(straight) == ["workload", "emulates", "plan", "plan_s", "straight_s"]
    assert straight["straight_s"] == pytest.approx(9.5 * MS)


def test_the_text_shows_winners_straight_versions_repeats_and_what_is_unusable(capsys, tmp_path):
    path = write(tmp_path / "a.jsonl", [*MEASURED, serial(10.2), plan("hetero-fused-1d", 8.8)])
    text = hw(capsys, "summary", path).out
    assert "hetero-fused-1d c2" in text
    assert "serial: 10.200 ms, straight in torch 9.500 ms (+7.4%)" in text
    assert "repeated: 1 of 2 plans within 3 %; worst hetero-fused-1d c2" in text
    assert "with 10.0%" in text
    assert "unusable: plan" in text


def test_files_under_equal_conditions_are_merged(capsys, tmp_path):
    first = write(tmp_path / "a.jsonl", [serial(10)])
    second = write(
        tmp_path / "b.jsonl", [plan("hetero-fused-1d", 8)], replace(SESSION, session="second")
    )
    document = json.loads(hw(capsys, "summary", first, second, "--json", "-").out)
    assert document["rows"][0]["best"] == "hetero-fused-1d c2"


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"regime": "sustained"}, "regime: 'burst' and 'sustained'"),
        ({"init": "zeros"}, "init: 'randn' and 'zeros'"),
        (
            {"environment": {"device": "NVIDIA H200", "driver": "570.2"}},
            "environment.driver: '580.1' and '570.2'",
        ),
        ({"environment": {"device": "NVIDIA H200"}}, "environment.driver: '580.1' and absent"),
    ],
)
def test_files_under_other_conditions_are_refused(capsys, tmp_path, other, named):
    first = write(tmp_path / "a.jsonl", [serial(10)])
    second = write(tmp_path / "b.jsonl", [serial(9)], replace(SESSION, session="second", **other))
    error = hw(capsys, "summary", first, second, code=2).err
    assert named in error
    assert "a.jsonl" in error
    assert "b.jsonl" in error


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--spans", "t.json"], "--spans and --key belong together"),
        (["--key", "ab"], "--spans and --key belong together"),
        (["--spans", "t.json", "--key", "nothing"], "'nothing' is the beginning of 0"),
        (["--spans", "t.json", "--key", ""], "is the beginning of 4"),
    ],
)
def test_a_key_must_be_of_one_measurement(capsys, tmp_path, arguments, named):
    path = write(tmp_path / "a.jsonl", MEASURED)
    assert named in hw(capsys, "summary", path, *arguments, code=2).err
    assert not (tmp_path / "t.json").exists()


def test_files_that_say_nothing_are_refused(capsys, tmp_path):
    path = write(tmp_path / "a.jsonl", [plan("shard-p2p", 9)])
    assert "serial" in hw(capsys, "summary", path, code=2).err
    assert "no such file" in hw(capsys, "summary", "absent.jsonl", code=2).err
    (tmp_path / "torn.jsonl").write_text(io.dump_json(SESSION, indent=None))
    assert "torn.jsonl" in hw(capsys, "summary", "torn.jsonl", code=2).err

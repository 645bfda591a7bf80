"""Layer: simulator. Metrics of traces: parts add up, and each cause is named where it holds."""

import math
from dataclasses import replace

import pytest

from ficco_sim.comparison import evaluate_plan
from ficco_sim.costs import CostModel
from ficco_sim.machine import load_machine
from ficco_sim.metrics import Alone, compute_waits, copy_rates_beside_gemms, summarize
from ficco_sim.plan import Gemm, Plan, Queue, Region, Transfer
from ficco_sim.schedules import FICCO, make_plan
from ficco_sim.trace import Span, Trace
from ficco_sim.workload import Workload, get_workload


@pytest.fixture(scope="module")
def mesh():
    return load_machine("mi300x_8")


def hand_made_run() -> tuple[Plan, Trace]:
    """One gpu waits 1 s for a transfer, multiplies 2 s, waits 3 s for the host, multiplies 4 s."""
    workload = Workload(name="w", pattern="all_gather_gemm", m=2, n=1, k=1)
    compute = Queue(gpu=0, engine="compute", index=0)
    dma = Queue(gpu=0, engine="dma", index=0)

    def row(gpu: int, buffer: str, r: int) -> Region:
        return Region(gpu=gpu, buffer=buffer, rows=(r, r + 1), cols=(0, 1))

    b = Region(gpu=0, buffer="b", rows=(0, 1), cols=(0, 1))
    tasks = (
        Transfer(id="x", queue=dma, src=row(1, "a", 1), dst=row(0, "a", 1)),
        Gemm(id="g1", queue=compute, a=(row(0, "a", 1),), b=b, c=(row(0, "c", 1),), deps=("x",)),
        Gemm(id="g2", queue=compute, a=(row(0, "a", 0),), b=b, c=(row(0, "c", 0),)),
    )
    plan = Plan(
        schedule="by-hand",
        knobs={},
        workload=workload,
        num_gpus=2,
        buffers=(),
        inputs=(),
        outputs=(),
        tasks=tasks,
    )
    common = {"nbytes": 0, "flops": 2}
    spans = (
        Span(task_id="x", kind="transfer", queue=dma, start_s=0.25, end_s=1, **common),
        Span(task_id="g1", kind="gemm", queue=compute, start_s=1, end_s=3, lost_s=0.5, **common),
        Span(task_id="g2", kind="gemm", queue=compute, start_s=6, end_s=10, submitted_s=6, **common),
    )
    return plan, Trace(source="sim", schedule="by-hand", workload="w", machine="m", spans=spans)


def test_rate_of_copies_counts_where_a_gemm_begins_before_the_last_has_ended():
    _, trace = hand_made_run()
    copy, first, second = trace.spans
    copy = replace(copy, nbytes=300)
    assert copy_rates_beside_gemms([copy, first, second]) == []
    beside = replace(first, start_s=0.5)
    assert copy_rates_beside_gemms([copy, beside]) == [pytest.approx(300 / 0.75)]
    later = replace(copy, start_s=1.5, end_s=1.75)  # the pause between them counts
    assert copy_rates_beside_gemms([later, copy, first]) == [pytest.approx(600 / 1.5)]
    other = replace(beside, queue=replace(beside.queue, gpu=1))
    assert copy_rates_beside_gemms([copy, other]) == []


def test_closed_form_of_a_hand_made_run():
    plan, trace = hand_made_run()
    alone = Alone(
        gemm_whole_s=4.0, gemm_parts_s=5.5, comm_whole_s=0.5, comm_parts_s=0.75, comm_bytes_s=0.5
    )
    metrics = summarize(plan, trace, alone, serial_s=5.0)
    assert metrics.makespan_s == 10
    assert metrics.ideal_s == 4
    assert metrics.speedup == 0.5
    # half the speed of serial, where a quarter more was to be had
    assert metrics.fraction_of_ideal == pytest.approx(-2)
    assert metrics.exposed_comm_s == pytest.approx(1)
    assert metrics.gemm_dil == pytest.approx(5.5 / 4)
    assert metrics.comm_dil == pytest.approx(1.5)
    # 6 s of GEMMs, 0.5 s of them lost
    assert metrics.gemm_cil == pytest.approx(6 / 5.5)
    assert metrics.comm_cil == 1
    assert metrics.breakdown.submission_s == pytest.approx(3)
    assert metrics.breakdown.contention_s == pytest.approx(0.5)
    assert metrics.breakdown.decomposition_s == pytest.approx(10 - 4 - 0.5 - 1 - 3)
    assert metrics.cause == "submission"


def test_waits_name_what_they_wait_for():
    plan, trace = hand_made_run()
    waits = [(w.task_id, w.cause, w.start_s, w.end_s) for w in compute_waits(plan, trace)]
    assert waits == [("g1", "transfer", 0, 1), ("g2", "host", 3, 6)]


def test_nothing_to_gain_has_no_fraction():
    plan, trace = hand_made_run()
    alone = Alone(
        gemm_whole_s=5.0, gemm_parts_s=5, comm_whole_s=0.5, comm_parts_s=0.5, comm_bytes_s=0.5
    )
    assert summarize(plan, trace, alone, serial_s=5.0).fraction_of_ideal is None
    assert summarize(plan, trace, alone).speedup is None


@pytest.mark.parametrize("submission", ["graph", "eager"])
@pytest.mark.parametrize("schedule", ["serial", "shard-p2p", *FICCO])
def test_breakdown_adds_up_to_the_makespan(mesh, schedule, submission):
    workload = get_workload("llama3-70b-tp8-qkv-4k")
    plan = make_plan(schedule, workload, 8)
    result = evaluate_plan(plan, mesh, CostModel(mesh, submission=submission)).result
    parts = result.breakdown
    total = (
        parts.gemm_s
        + parts.decomposition_s
        + parts.contention_s
        + parts.exposed_comm_s
        + parts.submission_s
    )
    assert total == pytest.approx(result.makespan_s, rel=1e-12)
    assert parts.exposed_comm_s >= 0
    assert parts.contention_s >= 0
    assert parts.submission_s >= 0


def test_serial_exposes_all_communication_and_loses_nothing_else(mesh):
    costs = CostModel(mesh)
    workload = get_workload("llama3-70b-tp8-qkv-8k")
    result = evaluate_plan(make_plan("serial", workload, 8), mesh, costs).result
    assert result.speedup == 1
    assert result.fraction_of_ideal == 0
    assert result.gemm_dil == result.comm_dil == result.gemm_cil == result.comm_cil == 1
    expected = costs.whole_gemm(workload).time_s + result.exposed_comm_s + costs.event_wait_s
    assert result.makespan_s == pytest.approx(expected, rel=1e-12)
    assert result.cause == "link-bound"


@pytest.mark.parametrize(
    ("workload", "schedule", "knobs", "machine", "submission", "cause"),
    [
        # nearly all hidden behind a long GEMM
        ("llama3-405b-tp8-gate-up-128k", "hetero-batched-1d", {"num_chunks": 2}, "mi300x_8", "graph",
         "compute-bound"),
        # six of seven links idle
        ("llama3-70b-tp8-qkv-32k", "shard-p2p", {}, "mi300x_8", "graph", "link-bound"),
        # 32 rows a GEMM
        ("llama3-70b-tp8-gate-up-256", "uniform-unfused-1d", {}, "mi300x_8", "graph", "decomposition"),
        # 113 tasks a gpu from Python
        ("llama3-70b-tp8-qkv-8k", "hetero-unfused-1d", {}, "h200_8", "eager", "submission"),
    ],
)  # fmt: skip
def test_cause(workload, schedule, knobs, machine, submission, cause):
    place = load_machine(machine)
    plan = make_plan(schedule, get_workload(workload), 8, knobs)
    result = evaluate_plan(plan, place, CostModel(place, submission=submission)).result
    assert result.cause == cause


def test_cause_is_contention_where_copies_slow_the_gemm_most(mesh):
    slopes = replace(mesh.profile.contention, dma_in=8.0, dma_out=8.0)
    slow = replace(mesh, profile=replace(mesh.profile, contention=slopes))
    plan = make_plan("hetero-batched-1d", get_workload("llama3-70b-tp8-qkv-32k"), 8, {"num_chunks": 4})
    result = evaluate_plan(plan, slow, CostModel(slow)).result
    assert result.cause == "contention"
    assert result.gemm_cil > 1.5


def test_no_compute_means_all_time_is_exposed(mesh):
    workload = Workload(name="ag", pattern="all_gather", m=4096, n=1, k=4096)
    run = evaluate_plan(make_plan("all-gather", workload, 8), mesh, CostModel(mesh))
    trace, result = run.trace, run.result
    assert result.exposed_comm_s == trace.makespan_s > 0
    assert result.gemm_dil == 1
    assert math.isfinite(result.speedup)

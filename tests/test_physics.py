"""What no schedule can beat and none should exceed, on machines of 1 to 9 gpus. Layer: simulator."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sim_strategies import (
    Bounds,
    Case,
    cases,
    gemm,
    hand_plan,
    machine_of,
    quiet,
    transfer,
    with_measured,
    with_peak,
    without_contention,
    workloads,
)
from strategies import examples

from ficco_sim.costs import CostModel
from ficco_sim.machine import Machine
from ficco_sim.plan import Plan, Transfer
from ficco_sim.schedules import FICCO, make_plan
from ficco_sim.sim import communication_only, simulate
from ficco_sim.trace import Trace
from ficco_sim.workload import Workload, split

CLOSE = 1e-9
MB = 10**6
MS = 1e-3
FACTORS = st.sampled_from([1.01, 1.3, 2.0, 7.0])


def simulated(case: Case) -> tuple[Trace, Bounds]:
    machine = case.machine
    costs = case.costs(machine)
    plan = case.plan
    return simulate(plan, machine, costs), Bounds(plan, costs)


# bounds


@examples(60)
@given(cases())
def test_no_run_is_quicker_than_its_parts_allow(case: Case) -> None:
    """Longest queue, busiest link, busiest engines, critical path: from costs, not from the trace."""
    trace, bounds = simulated(case)
    makespan_s = trace.makespan_s * (1 + CLOSE)
    assert makespan_s >= bounds.longest_queue_s()
    assert makespan_s >= bounds.busiest_link_s()
    assert makespan_s >= bounds.engines_s()
    assert makespan_s >= bounds.critical_path_s()


@examples(60)
@given(cases())
def test_no_run_is_slower_than_one_task_after_another(case: Case) -> None:
    """At every instant the tasks in progress together do the work of at least one of them alone.

    The sum has each task's time alone, a gap before each kernel, a wait where a task waits for
    another queue, and the submission of all tasks of a gpu. On one gpu it is sharp.
    """
    trace, bounds = simulated(case)
    assert trace.makespan_s <= bounds.serial_sum_s() * (1 + CLOSE)


@examples(40)
@given(cases())
def test_no_task_is_quicker_than_alone_and_none_starts_before_its_time(case: Case) -> None:
    """But for the rounding of sums of floats."""
    trace, bounds = simulated(case)
    plan, costs = bounds.plan, bounds.costs
    span_of = {span.task_id: span for span in trace.spans}
    for task, alone_s in zip(plan.tasks, bounds.alone_s, strict=True):
        span = span_of[task.id]
        start_s = span.start_s * (1 + CLOSE)
        assert span.duration_s >= alone_s * (1 - CLOSE) - 1e-15
        assert 0 <= span.lost_s <= span.duration_s
        assert start_s >= span.submitted_s
        for dep in task.deps:
            wait_s = 0.0 if span_of[dep].queue == span.queue else costs.event_wait_s
            assert start_s >= span_of[dep].end_s + wait_s
    for members in bounds.index.queues.values():
        for i, j in pairwise(members):
            assert trace.spans[j].start_s * (1 + CLOSE) >= trace.spans[i].end_s


@pytest.mark.parametrize("kind", ["profile", "ideal"])
def test_the_bounds_are_reached(kind: str) -> None:
    """Each bound is the answer somewhere, so none is out of reach of the tests above."""
    workload = Workload(name="w", pattern="all_gather_gemm", m=8192, n=1024, k=4096)

    def answer(machine: Machine, plan: Plan) -> tuple[float, Bounds]:
        costs = CostModel(machine, kind)
        return simulate(plan, machine, costs).makespan_s, Bounds(plan, costs)

    mesh, switch = machine_of("full_mesh", 8), machine_of("switch", 8, "h200")
    shards = communication_only(make_plan("shard-p2p", workload, 8))
    makespan_s, bounds = answer(mesh, shards)
    assert makespan_s == pytest.approx(bounds.longest_queue_s())
    makespan_s, bounds = answer(without_contention(mesh), make_plan("serial", workload, 8))
    assert makespan_s == pytest.approx(bounds.critical_path_s())
    makespan_s, bounds = answer(
        switch, make_plan("all-gather", replace(workload, pattern="all_gather"), 8)
    )
    if kind == "profile":
        busy_s = bounds.engines_s() + 6 * bounds.costs.queue_s
        assert makespan_s == pytest.approx(busy_s + bounds.costs.known_after_s(busy_s))
    else:
        latency_s = 2 * switch.links[0].latency_s
        assert makespan_s == pytest.approx(bounds.busiest_link_s() + latency_s)
    one = machine_of("full_mesh", 1)
    makespan_s, bounds = answer(one, make_plan("uniform-unfused-1d", workload, 1, {"num_chunks": 8}))
    gap_s = bounds.costs.queue_gap_s  # the first kernel has none before it
    assert makespan_s == pytest.approx(bounds.serial_sum_s() - gap_s)


# more of a resource

OWN_LINK_AND_ENGINE = {"families": ("full_mesh",), "gpus": ("mi300x",), "engines": ("dma",)}
ONE_QUEUE = {"queues": (1,)}


def makespans(case: Case, machine: Machine, better: Machine) -> tuple[float, float]:
    plan = case.plan
    return tuple(simulate(plan, m, case.costs(m)).makespan_s for m in (machine, better))


@examples(60)
@given(cases(**OWN_LINK_AND_ENGINE, **ONE_QUEUE), FACTORS, st.sampled_from([0.05, 0.3, 1.0]))
def test_faster_links_never_hurt(case: Case, factor: float, scale: float) -> None:
    """Each transfer has a link and an engine of its own, GEMMs are on one queue, HBM is ample.

    Exceptions, each a real effect of something shared that is used at another moment:

    - HBM: `test_faster_links_cost_at_most_the_contention_that_moves`.
    - `compute_queues` over 1: GEMMs of two queues hide each other's start-up and fill each other's
      last waves. Data that comes earlier can bring them into step, so that both start up at the same
      time and nothing fills the gap. Up to 1 % found (5 % with GEMMs bound by HBM).
    - Core-driven copies hold compute units: the GEMM that runs just then is slowed, and another one
      may lose more by whole waves. Up to 0.2 % found.
    - Engines shared by copies that wait for different things: `test_a_shared_engine_...` below.
    """
    slow = without_contention(case.machine).with_links(scale=scale)
    before_s, after_s = makespans(case, slow, slow.with_links(scale=factor))
    assert after_s <= before_s * (1 + CLOSE)


@examples(40)
@given(cases(engines=("dma",), queues=(1,)), FACTORS)
def test_faster_links_never_hurt_where_ports_and_engines_are_shared_evenly(
    case: Case, factor: float
) -> None:
    """The plans of our schedules ask for engines and ports in the same order at any speed."""
    slow = without_contention(case.machine)
    before_s, after_s = makespans(case, slow, slow.with_links(scale=factor))
    assert after_s <= before_s * (1 + 10 * CLOSE)


@examples(60)
@given(cases(**OWN_LINK_AND_ENGINE, **ONE_QUEUE), FACTORS)
def test_a_faster_main_loop_never_hurts(case: Case, factor: float) -> None:
    """Peak of all compute units, GEMMs on one queue, HBM contention and all.

    Exception: with more `compute_queues` shorter GEMMs can come into step, see above. Up to 9 %
    found, with GEMMs of 12 us whose start-up of 4 us was hidden before and is not any more.
    """
    before_s, after_s = makespans(case, case.machine, with_peak(case.machine, factor))
    assert after_s <= before_s * (1 + CLOSE)


def most_contention_s(plan: Plan, machine: Machine) -> float:
    """The most that DMA traffic can cost the kernels of a gpu.

    Traffic x (of HBM) stretches a GEMM by ``1 + slope x`` and takes x from what kernels can use. In
    time dt this costs at most ``(slope + 1) x dt``, over a run ``(slope + 1) bytes / HBM rate``.
    """
    slopes = machine.profile.contention
    costs = Bounds(plan, CostModel(machine))
    return max(
        (came * (slopes.dma_in + 1) + left * (slopes.dma_out + 1)) / machine.gpu.hbm_bytes_per_s
        for came, left in costs.gpu_bytes()
    )


@examples(60)
@given(cases(**OWN_LINK_AND_ENGINE, **ONE_QUEUE, kinds=("profile",)), FACTORS)
def test_faster_links_cost_at_most_the_contention_that_moves(case: Case, factor: float) -> None:
    """With HBM contention faster links can hurt a little, up to 0.06 % found, for a real reason.

    Slow copies run partly while the gpu waits between kernels and slow nothing; quick ones may fall
    into the first long GEMM altogether. The loss cannot exceed all that the traffic can cost.
    """
    machine = case.machine.with_links(scale=0.3)
    before_s, after_s = makespans(case, machine, machine.with_links(scale=factor))
    assert after_s <= before_s * (1 + CLOSE) + most_contention_s(case.plan, machine)


def test_a_shared_engine_can_make_faster_links_hurt() -> None:
    """One engine, first come, first served: with faster links another copy comes first.

    Into gpu 0 go x (then a GEMM of 10 ms) after a GEMM of 2 ms elsewhere, and y (nothing after it)
    after a transfer of 24 MB. At 10 GB/s y asks at 2.4 ms, after x: 2 + 1 + 10 = 13 ms. At 20 GB/s
    it asks at 1.2 ms, and x gets the engine when y of 40 MB is through: 1.2 + 2 + 0.5 + 10 = 13.7 ms.
    """
    mesh = machine_of("full_mesh", 4, "h200", bandwidth_bytes_per_s=10e9, usable_bytes_per_s=10e9,
                      latency_s=0)  # fmt: skip
    machine = with_measured(quiet(mesh), (512, 256, 256, 2 * MS), (1024, 256, 256, 10 * MS))
    plan = hand_plan(
        4,
        gemm("before-x", 1, 512, 256, 256),
        transfer("before-y", 3, 2, 24 * MB),
        transfer("x", 1, 0, 10 * MB, queue=0, deps=("before-x",)),
        transfer("y", 2, 0, 40 * MB, queue=1, deps=("before-y",)),
        gemm("after-x", 0, 1024, 256, 256, deps=("x",)),
    )
    assert simulate(plan, machine).makespan_s == pytest.approx(13 * MS)
    assert simulate(plan, machine.with_links(scale=2)).makespan_s == pytest.approx(13.7 * MS)


@examples(60)
@given(cases(kinds=("profile",)), st.sampled_from(["setup_s", "completion_s"]))
def test_a_copy_that_costs_more_to_set_up_never_helps_communication(case: Case, part: str) -> None:
    assume(case.knobs["engine"] == "dma")
    plan, machine = communication_only(case.plan), case.machine
    copy = replace(machine.profile.copy, **{part: 50e-6})
    slower = replace(machine, profile=replace(machine.profile, copy=copy))
    before_s, after_s = (simulate(plan, m, CostModel(m)).makespan_s for m in (machine, slower))
    assert after_s >= before_s * (1 - CLOSE)


# symmetry


@examples(50)
@given(cases(even=True))
def test_all_gpus_of_a_symmetric_machine_are_equal(case: Case) -> None:
    """Equal shards: what one gpu does when, all do; the plan lists their tasks in the same order."""
    trace, _ = simulated(case)
    by_gpu = [[span for span in trace.spans if span.queue.gpu == gpu] for gpu in range(case.num_gpus)]
    for spans in by_gpu[1:]:
        assert len(spans) == len(by_gpu[0])
        for span, first in zip(spans, by_gpu[0], strict=True):
            assert (span.kind, span.nbytes, span.flops) == (first.kind, first.nbytes, first.flops)
            assert span.start_s == pytest.approx(first.start_s, rel=CLOSE, abs=1e-15)
            assert span.end_s == pytest.approx(first.end_s, rel=CLOSE, abs=1e-15)
            assert span.lost_s == pytest.approx(first.lost_s, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("family", ["full_mesh", "switch"])
@pytest.mark.parametrize("schedule", ["uniform-fused-1d", "uniform-fused-2d", "uniform-batched-1d"])
def test_one_chunk_is_the_serial_schedule(schedule: str, family: str) -> None:
    """Whole shards at once and one GEMM after them; also, no two gpus begin with the same peer.

    Behind a switch, where an engine serves one peer after another, gpus that all began with gpu 0
    would share its port and leave the others idle.
    """
    workload = Workload(name="w", pattern="all_gather_gemm", m=8192, n=1024, k=4096)
    machine = machine_of(family, 8, "h200" if family == "switch" else "mi300x")
    serial, one_chunk = (
        simulate(make_plan(name, workload, 8, knobs), machine).makespan_s
        for name, knobs in (("serial", {}), (schedule, {"num_chunks": 1}))
    )
    if schedule == "uniform-batched-1d":  # its entries share no tile
        assert one_chunk == pytest.approx(serial, rel=0.05)
    else:
        assert one_chunk == pytest.approx(serial)


# bytes


def bytes_between(trace: Trace) -> dict[tuple[str, str], int]:
    return {(load.src, load.dst): load.nbytes for load in trace.links}


@examples(50)
@given(cases(families=("full_mesh", "switch"), schedules=("serial", "shard-p2p", *FICCO)))
def test_bytes_on_links_of_direct_schedules(case: Case) -> None:
    """Every gpu gets each shard from its owner, once: on the mesh one shard a link."""
    trace, _ = simulated(case)
    moved = bytes_between(trace)
    workload, num_gpus = case.workload, case.num_gpus
    row_bytes = workload.k * workload.element_bytes
    shards = [(hi - lo) * row_bytes for lo, hi in split(workload.m, num_gpus)]
    for gpu in range(num_gpus):
        if case.family == "full_mesh":
            for peer in range(num_gpus):
                if peer != gpu:
                    assert moved[f"gpu {gpu}", f"gpu {peer}"] == shards[gpu]
        else:
            assert moved[f"gpu {gpu}", "nvswitch"] == shards[gpu] * (num_gpus - 1)
            assert moved["nvswitch", f"gpu {gpu}"] == sum(shards) - shards[gpu]


@examples(40)
@given(workloads(), st.integers(2, 9), st.sampled_from(["full_mesh", "ring"]))
def test_bytes_on_links_of_the_ring_schedule(workload: Workload, num_gpus: int, family: str) -> None:
    """Shards come from the next gpu: all but the own one over that link, nothing elsewhere."""
    machine = machine_of(family, num_gpus)
    trace = simulate(make_plan("shard-ring", workload, num_gpus), machine)
    row_bytes = workload.k * workload.element_bytes
    shards = [(hi - lo) * row_bytes for lo, hi in split(workload.m, num_gpus)]
    for (src, dst), nbytes in bytes_between(trace).items():
        gpu, source = int(dst.removeprefix("gpu ")), int(src.removeprefix("gpu "))
        expected = sum(shards) - shards[gpu] if source == (gpu + 1) % num_gpus else 0
        assert nbytes == expected


@examples(60)
@given(cases())
def test_loads_of_links_are_those_of_the_plan(case: Case) -> None:
    trace, bounds = simulated(case)
    for load, nbytes, link in zip(trace.links, bounds.link_bytes(), bounds.machine.links, strict=True):
        assert load.nbytes == pytest.approx(nbytes, abs=1)  # parts of bytes on equally short paths
        assert load.min_busy_s == pytest.approx(nbytes / link.usable_bytes_per_s)
        assert load.min_busy_s <= trace.makespan_s * (1 + CLOSE)


@examples(60)
@given(cases())
def test_flow_of_bytes_is_conserved(case: Case) -> None:
    """Spans of transfers hold as many bytes as their regions, and all GEMMs the whole operation."""
    plan = case.plan
    machine = case.machine
    trace = simulate(plan, machine, case.costs(machine))
    for task, span in zip(plan.tasks, trace.spans, strict=True):
        if isinstance(task, Transfer):
            assert span.nbytes == task.src.num_elements * case.workload.element_bytes
    flops = sum(span.flops for span in trace.spans)
    assert flops == case.num_gpus * case.workload.flops

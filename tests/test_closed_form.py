"""Layer: heuristics. Makespans in closed form against the simulator, and the rule on them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ficco_sim import catalogue
from ficco_sim.comparison import compare
from ficco_sim.costs import CostModel
from ficco_sim.costs.gemm import GemmShape
from ficco_sim.grid import COMPARED, Grid
from ficco_sim.heuristics import Decision, decide, find_rule
from ficco_sim.heuristics.estimate import estimate_makespans
from ficco_sim.heuristics.timeline import Overlap
from ficco_sim.machine import Machine, load_machine
from ficco_sim.workload import Workload, get_workload

SHAPES = [
    (8192, 7168, 8192),
    (2048, 4608, 12288),
    (16384, 1024, 2048),
    (131072, 4096, 128),
    (256, 7168, 8192),
]
times = st.floats(0, 1e3)
pieces = st.lists(st.tuples(times, times), max_size=12)


def of_shape(shape: tuple[int, int, int], dtype: str = "bf16") -> Workload:
    m, n, k = shape
    return Workload(name="shape", pattern="all_gather_gemm", m=m, n=n, k=k, dtype=dtype)


# the recurrence


@given(times, pieces, times)
def test_without_slowdown_the_end_is_the_longest_path(first_s, found, comm_end_s):
    work = [w for _, w in found]
    starts = [0.0 + first_s + sum(work)]
    starts += [arrival + sum(work[j:]) for j, (arrival, _) in enumerate(found)]
    overlap = Overlap(comm_end_s=comm_end_s, slowdown=1.0)
    assert overlap.end_s(first_s, found) == pytest.approx(max(starts))


@given(times, pieces, times, st.floats(1, 3))
def test_slowed_work_takes_longer_but_no_longer_than_slowed_throughout(first_s, found, end_s, slowdown):
    free = Overlap(comm_end_s=end_s, slowdown=1.0).end_s(first_s, found)
    slowed = Overlap(comm_end_s=end_s, slowdown=slowdown).end_s(first_s, found)
    throughout = Overlap(comm_end_s=math.inf, slowdown=slowdown).end_s(first_s, found)
    assert free <= slowed * (1 + 1e-9)
    assert slowed <= throughout * (1 + 1e-9)


# against the simulator


@pytest.mark.parametrize("name", ["mi300x_8", "h200_8"])
@pytest.mark.parametrize("shape", SHAPES[:3], ids=str)
def test_estimates_are_what_the_simulator_says_where_nothing_is_forwarded(name, shape):
    machine = load_machine(name)
    workload = of_shape(shape)
    simulated = {
        (r.schedule, r.num_chunks, r.compute_queues): r.makespan_s
        for r in compare(workload, machine, intervals=False).results
    }
    found = estimate_makespans(workload, machine)
    assert len(found) == len(simulated)
    for e in found:
        exact = simulated[e.schedule, e.num_chunks or 1, e.compute_queues or 1]
        side_by_side = (e.compute_queues or 1) > 1
        assert e.makespan_s == pytest.approx(exact, rel=0.15 if side_by_side else 0.06), e
    best = min(found, key=lambda e: e.makespan_s)
    picked_s = simulated[best.schedule, best.num_chunks or 1, best.compute_queues or 1]
    assert picked_s <= 1.03 * min(simulated.values())


@pytest.mark.parametrize("name", ["ring_8", "torus_2x4"])
def test_where_gpus_forward_the_choice_is_near_the_best(name):
    machine = load_machine(name)
    workload = of_shape(SHAPES[0])
    grid = Grid(num_chunks=(2, 4))
    simulated = {
        (r.schedule, r.num_chunks, r.compute_queues): r.makespan_s
        for r in compare(workload, machine, intervals=False, grid=grid).results
    }
    tried = [
        e for e in estimate_makespans(workload, machine)
        if (e.schedule, e.num_chunks or 1, e.compute_queues or 1) in simulated
    ]  # fmt: skip
    best = min(tried, key=lambda e: e.makespan_s)
    picked_s = simulated[best.schedule, best.num_chunks or 1, best.compute_queues or 1]
    assert picked_s <= 1.05 * min(simulated.values())


@pytest.mark.parametrize("name", ["mi300x_8", "h200_8", "a100_4"])
def test_costs_of_many_shapes_are_those_of_each(name):
    machine = load_machine(name)
    dtype = "fp16" if name == "a100_4" else "bf16"
    shapes = [
        GemmShape((rows,) * entries, 4096, k, dtype, accumulate)
        for rows in (128, 1000, 8192)
        for entries in (1, 7)
        for k in (128, 8192)
        for accumulate in (False, True)
    ]
    together = CostModel(machine).gemm_model.costs(shapes)
    one_by_one = [CostModel(machine).gemm_model.cost(shape) for shape in shapes]
    for a, b in zip(together, one_by_one, strict=True):
        assert a.time_s == pytest.approx(b.time_s, rel=1e-9)
        assert a.busy == b.busy


# the rule


def machines() -> list[Machine]:
    return [load_machine(str(row["name"])) for row in catalogue.machines() if row["num_gpus"] <= 16]


@pytest.mark.parametrize("machine", machines(), ids=lambda machine: machine.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_rule_picks_what_can_be_run_anywhere(machine, shape):
    workload = of_shape(shape, "fp16")  # which all gpus have
    rule = find_rule("closed-form")
    decision = decide(rule, workload, machine)
    assert isinstance(decision, Decision)
    assert decision == decide(rule, workload, machine)
    found = estimate_makespans(workload, machine)
    assert {e.schedule for e in found} <= set(COMPARED[workload.pattern])
    assert all(math.isfinite(e.makespan_s) and e.makespan_s > 0 for e in found)


def test_an_exchange_is_estimated_without_a_ring():
    workload = get_workload("mixtral-8x7b-ep8-gate-up-2k")
    machine = load_machine("mi300x_8")
    schedules = {e.schedule for e in estimate_makespans(workload, machine)}
    assert schedules == set(COMPARED["all_to_all_gemm"])
    assert isinstance(decide(find_rule("closed-form"), workload, machine), Decision)


def test_parameters_correct_the_choice():
    machine, workload = load_machine("h200_8"), of_shape(SHAPES[0])
    rule = find_rule("closed-form")
    never = rule.with_parameters(worth_it=100.0).pick(workload, machine)
    assert never.schedule == "serial"
    assert "1.00x of serial" in never.reason
    cheap = rule.with_parameters(side_by_side=0.1).pick(workload, machine)
    assert cheap.compute_queues == max(Grid().compute_queues)


def test_256_tokens_lose_with_every_overlap_on_h200():
    """Measured: 86 of 86 plans lose (docs/hardware.md)."""
    decision = find_rule("closed-form").pick(of_shape((256, 7168, 8192)), load_machine("h200_8"))
    assert decision.schedule == "serial"

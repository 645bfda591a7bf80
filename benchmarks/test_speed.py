"""How quick planning, checking, the GEMM model and the simulator are; run by ``make bench``.

Nothing here fails for being slow: medians are for reading, and to compare before and after a change
on one machine. Other work on the machine shows in the ratio to plain SimPy too, so that ratio is the
better figure to compare between machines.
"""

from time import perf_counter

import pytest
import simpy

from ficco_sim.check import check_plan
from ficco_sim.costs import CostModel, GemmShape
from ficco_sim.costs.gemm import GemmModel
from ficco_sim.machine import load_machine
from ficco_sim.plan import Plan
from ficco_sim.schedules import FICCO, make_plan
from ficco_sim.sim import simulate
from ficco_sim.workload import get_workload

WORKLOAD = get_workload("llama3-70b-tp8-qkv-32k")
LARGEST = "uniform-unfused-1d"  # 8 gpus x 8 chunks: 448 transfers and 512 GEMMs
NUM_SHAPES = 200


def plan_of(schedule: str) -> Plan:
    return make_plan(schedule, WORKLOAD, 8, {"num_chunks": 8})


def show(capsys, benchmark, text: str) -> None:
    """Print the median; in milliseconds, whatever unit the table chooses."""
    if benchmark.stats is not None:  # none with --benchmark-disable
        with capsys.disabled():
            median_ms = benchmark.stats.stats.median * 1e3
            print(f"\n{benchmark.name}: median {median_ms:.3f} ms{text}")  # noqa: T201


@pytest.mark.parametrize("schedule", sorted(FICCO))
@pytest.mark.benchmark(group="simulate an 8-gpu schedule on mi300x_8")
def test_simulate(benchmark, capsys, schedule: str) -> None:
    plan, machine = plan_of(schedule), load_machine("mi300x_8")
    check_plan(plan)
    # a new cost model each time, so that nothing is kept from run to run
    trace = benchmark(lambda: simulate(plan, machine, CostModel(machine)))
    assert len(trace.spans) == len(plan.tasks)
    benchmark.extra_info["num_tasks"] = len(plan.tasks)
    show(capsys, benchmark, f" for {len(plan.tasks)} tasks")


@pytest.mark.parametrize("machine_name", ["mi300x_8", "h200_8"])
@pytest.mark.parametrize("engine", ["dma", "core"])
@pytest.mark.benchmark(group="simulate the largest schedule by machine and engine")
def test_simulate_largest(benchmark, capsys, machine_name: str, engine: str) -> None:
    plan = make_plan(LARGEST, WORKLOAD, 8, {"num_chunks": 8, "compute_queues": 4, "engine": engine})
    machine = load_machine(machine_name)
    check_plan(plan)
    benchmark(lambda: simulate(plan, machine, CostModel(machine)))
    show(capsys, benchmark, "")


def simpy_timeouts(count: int) -> None:
    """As many timeouts as a plan has tasks, in eight processes, and nothing else."""
    env = simpy.Environment()

    def process(number: int) -> simpy.events.ProcessGenerator:
        for _ in range(number):
            yield env.timeout(1.0)

    for _ in range(8):
        env.process(process(count // 8))
    env.run()


@pytest.mark.benchmark(group="tasks and timeouts")
def test_tasks_beside_plain_simpy(benchmark, capsys) -> None:
    """Time of the largest schedule over that of as many plain SimPy timeouts, taken in turns."""
    plan, machine = plan_of(LARGEST), load_machine("mi300x_8")
    count = len(plan.tasks)
    plain_s: list[float] = []

    def plain_first() -> None:
        start_s = perf_counter()
        simpy_timeouts(count)
        plain_s.append(perf_counter() - start_s)

    benchmark.pedantic(
        lambda: simulate(plan, machine, CostModel(machine)), setup=plain_first, rounds=30
    )
    if benchmark.stats is None:
        return
    median_plain_s = sorted(plain_s)[len(plain_s) // 2]
    median_s = benchmark.stats.stats.median
    benchmark.extra_info["tasks_per_s"] = round(count / median_s)
    benchmark.extra_info["simpy_timeouts_per_s"] = round(count / median_plain_s)
    benchmark.extra_info["ratio_to_simpy"] = round(median_s / median_plain_s, 1)
    info = ", ".join(f"{key} {value}" for key, value in benchmark.extra_info.items())
    show(capsys, benchmark, f", {info}")


@pytest.mark.parametrize("schedule", [LARGEST, "hetero-fused-1d"])
@pytest.mark.benchmark(group="make a plan")
def test_make_plan(benchmark, capsys, schedule: str) -> None:
    benchmark(plan_of, schedule)
    show(capsys, benchmark, "")


@pytest.mark.parametrize("schedule", [LARGEST, "hetero-fused-1d"])
@pytest.mark.benchmark(group="check a plan")
def test_check_plan(benchmark, capsys, schedule: str) -> None:
    plan = plan_of(schedule)
    benchmark(check_plan, plan)
    show(capsys, benchmark, "")


@pytest.mark.parametrize("machine_name", ["mi300x_8", "h200_8"])
@pytest.mark.benchmark(group="gemm model, new shapes")
def test_gemm_model(benchmark, capsys, machine_name: str) -> None:
    """Time per shape that was not asked for before; the bar is 1 ms a shape."""
    machine = load_machine(machine_name)
    shapes = [
        GemmShape((1000 + 37 * i,), 1024 + 64 * (i % 50), 4096, "bf16") for i in range(NUM_SHAPES)
    ]

    def all_shapes() -> float:
        model = GemmModel(machine.profile.gemm, machine.gpu.num_compute_units, machine.gpu.name)
        return sum(model.cost(shape).time_s for shape in shapes)

    assert benchmark(all_shapes) > 0
    if benchmark.stats is not None:
        per_shape_us = benchmark.stats.stats.median / NUM_SHAPES * 1e6
        benchmark.extra_info["us_per_shape"] = round(per_shape_us, 1)
        show(capsys, benchmark, f", {per_shape_us:.1f} us a shape")

"""Hand-made plans with answers in closed form, ties, stuck runs. Layer: simulator."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim_strategies import (
    cases,
    gemm,
    hand_plan,
    local_copy,
    machine_of,
    quiet,
    transfer,
    with_measured,
    with_profile,
)
from strategies import examples

from ficco_sim.catalogue import copy_cost
from ficco_sim.costs import CostModel, GemmShape
from ficco_sim.errors import MachineError, ScenarioError, SimulationError
from ficco_sim.machine import Machine, load_machine
from ficco_sim.plan import Plan, Task, Transfer
from ficco_sim.schedules import make_plan
from ficco_sim.sim import communication_only, simulate
from ficco_sim.trace import Trace
from ficco_sim.workload import Workload, get_workload

MB = 10**6
GB_PER_S = 1e9
MS = 1e-3
US = 1e-6


def quiet_mesh(num_gpus: int, bandwidth: float = 10 * GB_PER_S, **parts) -> Machine:
    """A mesh without latency, fixed costs or contention, on which bytes are all that takes time."""
    mesh = machine_of("full_mesh", num_gpus, "h200", bandwidth_bytes_per_s=bandwidth,
                      usable_bytes_per_s=bandwidth, latency_s=0)  # fmt: skip
    many = replace(mesh, gpu=replace(mesh.gpu, num_dma_engines=64))
    return quiet(many, **parts)


def ends(trace: Trace) -> dict[str, float]:
    return {span.task_id: span.end_s for span in trace.spans}


def run(machine: Machine, *tasks: Task, workload: Workload | None = None) -> Trace:
    return simulate(hand_plan(machine.num_gpus, *tasks, workload=workload), machine)


# flows on links


def test_a_flow_gets_half_of_a_link_once_another_joins() -> None:
    """10 MB take 1 ms alone. The second joins at 0.5 ms: 0.5 ms alone, 1 ms shared, 0.5 ms alone."""
    trace = run(
        quiet_mesh(3),
        transfer("first", 0, 1, 10 * MB),
        transfer("before", 2, 1, 5 * MB, queue=1),
        transfer("second", 0, 1, 10 * MB, queue=2, deps=("before",)),
    )
    assert ends(trace) == pytest.approx({"first": 1.5 * MS, "before": 0.5 * MS, "second": 2 * MS})
    assert trace.spans[2].start_s == pytest.approx(0.5 * MS)


def test_a_flow_speeds_up_when_a_shorter_one_ends() -> None:
    """4 + 10 MB from the start: 0.8 ms shared, then 6 MB alone in 0.6 ms."""
    trace = run(quiet_mesh(2), transfer("a", 0, 1, 4 * MB), transfer("b", 0, 1, 10 * MB, queue=1))
    assert ends(trace) == pytest.approx({"a": 0.8 * MS, "b": 1.4 * MS})


def test_three_flows_join_one_by_one() -> None:
    """Rates 10, 5, 10/3 GB/s: progress is kept through every change.

    a: 0.3 ms alone (3 of 9 MB), 0.3 ms by two (4.5 MB), then by three until its last 4.5 MB are
    through at 1.95 ms. b has by then 1.5 + 4.5 of 9 MB, c 4.5 of 9 MB; b ends 0.6 ms later with
    half of the link each, c has 1.5 MB left, 0.15 ms alone.
    """
    trace = run(
        quiet_mesh(3),
        transfer("a", 0, 1, 9 * MB),
        transfer("w1", 2, 1, 3 * MB, queue=1),
        transfer("b", 0, 1, 9 * MB, queue=1),
        transfer("w2", 1, 2, 6 * MB, queue=2),
        transfer("c", 0, 1, 9 * MB, queue=3, deps=("w2",)),
    )
    expected = {"a": 1.95, "w1": 0.3, "b": 2.55, "w2": 0.6, "c": 2.7}
    assert ends(trace) == pytest.approx({task: ms * MS for task, ms in expected.items()})


def test_links_of_a_mesh_do_not_disturb_each_other() -> None:
    tasks = [transfer(f"{a}{b}", a, b, 10 * MB, queue=a) for a in range(4) for b in range(4) if a != b]
    assert ends(run(quiet_mesh(4), *tasks)) == pytest.approx({task.id: MS for task in tasks})


def quiet_switch(num_gpus: int, bandwidth: float = 10 * GB_PER_S, latency_s: float = 0.0) -> Machine:
    machine = machine_of("switch", num_gpus, "h200", bandwidth_bytes_per_s=bandwidth,
                         usable_bytes_per_s=bandwidth, latency_s=latency_s)  # fmt: skip
    return quiet(replace(machine, gpu=replace(machine.gpu, num_dma_engines=64)))


def test_flows_from_one_port_and_into_one_port_share_it() -> None:
    into = [transfer(f"t{src}", src, 0, 10 * MB, queue=src) for src in (1, 2, 3)]
    assert run(quiet_switch(4), *into).makespan_s == pytest.approx(3 * MS)
    out_of = [transfer(f"t{dst}", 0, dst, 10 * MB) for dst in (1, 2, 3)]
    assert run(quiet_switch(4), *out_of).makespan_s == pytest.approx(3 * MS)


def test_the_bottleneck_of_a_flow_may_move() -> None:
    """a, b into gpu 0 at 5 GB/s each; c leaves gpu 1 beside a and gets the 5 GB/s that a leaves.

    b (4 MB) ends at 0.8 ms; nothing changes for a, still held by c at gpu 1. c (5 MB) ends at 1 ms;
    a has 5 of 10 MB left and 10 GB/s.
    """
    trace = run(
        quiet_switch(4),
        transfer("a", 1, 0, 10 * MB),
        transfer("b", 2, 0, 4 * MB, queue=1),
        transfer("c", 1, 3, 5 * MB),
    )
    assert ends(trace) == pytest.approx({"a": 1.5 * MS, "b": 0.8 * MS, "c": 1 * MS})


def test_bytes_cut_through_a_switch() -> None:
    """Two links at one rate and both latencies; a store-and-forward switch would take 2 ms."""
    assert run(quiet_switch(2, latency_s=3 * US), transfer("t", 1, 0, 10 * MB)).makespan_s == (
        pytest.approx(MS + 6 * US)
    )


def test_an_engine_slower_than_its_link_leaves_the_rest_to_others() -> None:
    """Engines of 4 GB/s on a link of 10: two do not disturb each other, three get a third each."""
    machine = quiet_mesh(2, copy={"engine_bytes_per_s": 4 * GB_PER_S})
    two = [transfer(f"t{i}", 0, 1, 4 * MB, queue=i) for i in range(2)]
    assert run(machine, *two).makespan_s == pytest.approx(1 * MS)
    three = [transfer(f"t{i}", 0, 1, 4 * MB, queue=i) for i in range(3)]
    assert run(machine, *three).makespan_s == pytest.approx(1.2 * MS)


def test_hardware_that_routes_spreads_over_equally_short_paths() -> None:
    """Opposite corners of a ring of four: two paths of two links, twice the rate of a link."""
    ring = machine_of("ring", 4, hardware_routing=True, bandwidth_bytes_per_s=10 * GB_PER_S,
                      usable_bytes_per_s=10 * GB_PER_S, latency_s=2 * US)  # fmt: skip
    trace = run(quiet(ring), transfer("t", 0, 2, 10 * MB))
    assert trace.makespan_s == pytest.approx(0.5 * MS + 4 * US)
    assert sorted((load.src, load.dst, load.nbytes) for load in trace.links if load.nbytes) == [
        ("gpu 0", "gpu 1", 5 * MB),
        ("gpu 0", "gpu 3", 5 * MB),
        ("gpu 1", "gpu 2", 5 * MB),
        ("gpu 3", "gpu 2", 5 * MB),
    ]


def test_a_missing_link_is_an_error_that_names_both_gpus() -> None:
    ring = load_machine("ring_8")
    workload = get_workload("llama3-8b-tp8-qkv-2k")
    with pytest.raises(MachineError, match=r"ring_8: no link joins gpu \d to gpu \d, and its hard"):
        simulate(make_plan("shard-p2p", workload, 8), ring)
    assert simulate(make_plan("shard-ring", workload, 8), ring).makespan_s > 0


# DMA engines


def test_engines_are_fewer_than_transfers() -> None:
    """Two engines and five copies of 3, 1, 1, 2, 1 ms: whoever asked first gets the next free one."""
    base = quiet_mesh(6)
    machine = replace(base, gpu=replace(base.gpu, num_dma_engines=2))
    sizes = [3, 1, 1, 2, 1]
    tasks = [transfer(f"t{i}", i + 1, 0, ms * 10 * MB, queue=i) for i, ms in enumerate(sizes)]
    trace = run(machine, *tasks)
    starts = {span.task_id: span.start_s for span in trace.spans}
    assert starts == pytest.approx({"t0": 0, "t1": 0, "t2": MS, "t3": 2 * MS, "t4": 3 * MS})
    expected = {"t0": 3 * MS, "t1": MS, "t2": 2 * MS, "t3": 4 * MS, "t4": 4 * MS}
    assert ends(trace) == pytest.approx(expected)


def test_an_engine_is_taken_from_set_up_to_completion() -> None:
    machine = quiet_mesh(4, copy={"setup_s": 3 * US, "completion_s": 2 * US})
    machine = replace(machine, gpu=replace(machine.gpu, num_dma_engines=1))
    tasks = [transfer(f"t{i}", i, 0, 10**4, queue=i) for i in (1, 2, 3)]
    assert run(machine, *tasks).makespan_s == pytest.approx(3 * (3 + 1 + 2) * US)


def test_who_waits_for_a_copy_knows_of_its_end_later_but_the_engine_goes_on() -> None:
    machine = quiet_mesh(4, copy={"signal_s": 10 * US})
    machine = replace(machine, gpu=replace(machine.gpu, num_dma_engines=1))
    copies = [transfer(f"t{i}", i, 0, 10 * MB, queue=0) for i in (1, 2)]
    after = transfer("after", 0, 3, 10 * MB, deps=("t1",))
    trace = run(machine, *copies, after)
    starts = {span.task_id: span.start_s for span in trace.spans}
    assert starts == pytest.approx({"t1": 0, "t2": MS, "after": MS + 10 * US})
    assert ends(trace)["t1"] == pytest.approx(MS)  # more copies follow on its queue
    assert ends(trace)["t2"] == pytest.approx(2 * MS + 10 * US)  # the host must know of the last
    ideal = simulate(hand_plan(4, *copies, after), machine, CostModel(machine, "ideal"))
    assert ideal.makespan_s == pytest.approx(2 * MS)


TICKS = {
    "setup_s": 2 * US,
    "completion_s": 0.4 * US,
    "signal_s": 6 * US,
    "tick_s": 9 * US,
    "first_tick_s": 3.5 * US,
}


def ticking(num_engines: int = 1) -> Machine:
    machine = quiet_mesh(4, copy=TICKS)
    return replace(machine, gpu=replace(machine.gpu, num_dma_engines=num_engines))


@pytest.mark.parametrize(
    ("bytes_us", "known_us"),
    # ends at 2.4 us and its bytes; ticks at 3.5, 12.5, 21.5, ...
    [(0.1, 9.5), (1.1, 9.5), (1.2, 18.5), (10.1, 18.5), (10.2, 27.5), (91.1, 99.5), (1000, 1008.5)],
)
def test_a_copy_alone_is_known_at_the_next_tick(bytes_us, known_us) -> None:
    machine, nbytes = ticking(), round(bytes_us * 10**4)
    trace = run(machine, transfer("t", 1, 0, nbytes))
    assert trace.makespan_s == pytest.approx(known_us * US)
    assert copy_cost(nbytes, machine, "dma")["time_s"] == pytest.approx(known_us * US)


def test_ticks_of_a_burst_begin_with_it_and_those_of_the_next_with_the_next() -> None:
    machine = ticking()
    # two of 3.4 us in a row, without a pause
    first, second = (transfer(f"t{i}", i, 0, 10**4) for i in (1, 2))
    told = transfer("told", 0, 3, 10**4, deps=("t1",))
    later = transfer("later", 3, 0, 2 * 10**4, queue=1, deps=("told",))
    trace = run(machine, first, second, told, later)
    spans = {span.task_id: span for span in trace.spans}
    assert spans["t2"].start_s == pytest.approx(3.4 * US)
    assert spans["told"].start_s == pytest.approx((3.5 + 6) * US)
    # it ends at 6.8 us, after the tick at 3.5
    assert spans["t2"].end_s == pytest.approx((12.5 + 6) * US)
    # the engine has been idle: 2 us longer than 2.4 us is after the first tick again
    start_s = (3.5 + 6 + 3.5 + 6) * US
    assert spans["later"].start_s == pytest.approx(start_s)
    assert spans["later"].end_s == pytest.approx(start_s + (12.5 + 6) * US)


def test_each_engine_has_bursts_of_its_own() -> None:
    """Three copies of 10, 1 and 1 us of bytes on two engines: the third follows the second."""
    copies = [transfer(f"t{i}", i, 0, us * 10**4, queue=i) for i, us in ((1, 10), (2, 1), (3, 1))]
    known = {"t1": 12.5 + 6, "t2": 3.5 + 6, "t3": 12.5 + 6}  # they end at 12.4, 3.4 and 6.8
    expected = {name: us * US for name, us in known.items()}
    assert ends(run(ticking(2), *copies)) == pytest.approx(expected)


def test_without_ticks_an_end_is_known_after_the_signal_and_with_ideal_costs_at_once() -> None:
    none = with_profile(ticking(), copy={"tick_s": 0.0, "first_tick_s": 0.0})
    assert CostModel(none).known_after_s(1 / 3) == 6 * US
    assert CostModel(ticking(), "ideal").known_after_s(1 / 3) == 0
    with pytest.raises(MachineError, match=r"first_tick_s: .* must be 0 where tick_s is 0"):
        with_profile(ticking(), copy={"tick_s": 0.0})


def test_an_engine_changes_over_to_each_further_queue_once() -> None:
    machine = quiet_mesh(4, copy={"queue_s": 100 * US})
    machine = replace(machine, gpu=replace(machine.gpu, num_dma_engines=1))
    tasks = [transfer(f"t{j}{i}", i, 0, 10**4, queue=i) for j in range(3) for i in (1, 2, 3)]
    assert run(machine, *tasks).makespan_s == pytest.approx((9 + 2 * 100) * US)


def test_engines_are_those_of_the_receiving_gpu() -> None:
    base = quiet_mesh(4)
    machine = replace(base, gpu=replace(base.gpu, num_dma_engines=1))
    tasks = [transfer(f"t{dst}", 0, dst, 10 * MB) for dst in (1, 2, 3)]
    assert run(machine, *tasks).makespan_s == pytest.approx(MS)


@pytest.mark.parametrize("order", list(permutations(range(4))), ids=str)
def test_who_asks_at_the_same_instant_is_served_in_the_order_of_the_plan(order) -> None:
    """One engine, four copies on four queues, all ready at time 0."""
    base = quiet_mesh(5)
    machine = replace(base, gpu=replace(base.gpu, num_dma_engines=1))
    tasks = [transfer(f"t{i}", i + 1, 0, (i + 1) * MB, queue=i) for i in order]
    trace = run(machine, *tasks)
    served = sorted(trace.spans, key=lambda span: span.start_s)
    assert [span.task_id for span in served] == [f"t{i}" for i in order]
    assert all(a.end_s == b.start_s for a, b in pairwise(served))


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_the_order_of_the_plan_decides_later_ties_too(order) -> None:
    """Three queues become ready at one instant, when a task elsewhere ends."""
    base = quiet_mesh(5)
    machine = replace(base, gpu=replace(base.gpu, num_dma_engines=1))
    first = transfer("first", 0, 4, 10 * MB)
    tasks = [transfer(f"t{i}", i + 1, 0, MB, queue=i, deps=("first",)) for i in order]
    served = sorted(run(machine, first, *tasks).spans, key=lambda span: span.start_s)
    assert [span.task_id for span in served] == ["first", *(f"t{i}" for i in order)]


def test_who_asked_earlier_is_served_before_who_comes_first_in_the_plan() -> None:
    """At 1 ms the engine is free: "late", first in the plan, asked at 0.5 ms, "early" at 0."""
    base = quiet_mesh(4)
    machine = replace(base, gpu=replace(base.gpu, num_dma_engines=1))
    trace = run(
        machine,
        transfer("late", 1, 0, 10 * MB, queue=1, deps=("wait",)),
        transfer("now", 2, 0, 10 * MB, queue=2),
        transfer("early", 3, 0, 10 * MB, queue=3),
        transfer("wait", 1, 2, 5 * MB),
    )
    assert ends(trace) == pytest.approx(
        {"now": 1 * MS, "early": 2 * MS, "late": 3 * MS, "wait": 0.5 * MS}
    )


# kernels


def timed_gemm(*shapes: tuple[int, float]) -> tuple[tuple[int, int, int, float], ...]:
    """Measured times in ms of GEMMs [m, 256, 256]."""
    return tuple((m, 256, 256, ms * MS) for m, ms in shapes)


def work(task_id: str, gpu: int, m: int, **more) -> Task:
    return gemm(task_id, gpu, m, 256, 256, **more)


def test_a_gemm_is_slowed_only_while_copies_run() -> None:
    """Half of a GEMM of 2 ms beside 48 GB/s into its gpu, 1 % of HBM: 10 times that is a tenth.

    Copies take 1.1 ms, in which the GEMM does 1 ms of its work at 1 / 1.1 of its pace.
    """
    machine = with_measured(
        quiet_mesh(2, 48 * GB_PER_S, contention={"dma_in": 10.0}), *timed_gemm((512, 2.0))
    )
    copies = transfer("t", 1, 0, int(1.1e-3 * 48e9))
    trace = run(machine, work("g", 0, 512), copies)
    assert ends(trace) == pytest.approx({"g": 2.1 * MS, "t": 1.1 * MS})
    assert trace.spans[0].lost_s == pytest.approx(0.1 * MS)
    assert trace.spans[1].lost_s == 0


def test_traffic_out_and_traffic_in_add_up() -> None:
    """5 % by what comes in, 10 % by what goes out, for the whole of the GEMM: 1.15 times as long."""
    machine = with_measured(
        quiet_mesh(2, 48 * GB_PER_S, contention={"dma_in": 5.0, "dma_out": 10.0}),
        *timed_gemm((512, 1.0)),
    )
    there = transfer("there", 0, 1, 96 * MB)
    back = transfer("back", 1, 0, 96 * MB)
    trace = run(machine, work("g0", 0, 512), there, back)
    assert ends(trace)["g0"] == pytest.approx(1.15 * MS)
    trace = run(machine, work("g0", 0, 512), work("g1", 1, 512), there)
    assert ends(trace)["g0"] == pytest.approx(1.10 * MS)
    assert ends(trace)["g1"] == pytest.approx(1.05 * MS)


def test_a_copy_that_starts_late_slows_the_rest_of_a_gemm() -> None:
    """0.5 ms alone, then to the end at half the pace: slowed 1 + 100 x 1 %."""
    machine = with_measured(
        quiet_mesh(3, 48 * GB_PER_S, contention={"dma_in": 100.0}), *timed_gemm((512, 1.0))
    )
    wait = transfer("wait", 1, 2, 24 * MB)
    late = transfer("late", 1, 0, 480 * MB, deps=("wait",))
    trace = run(machine, work("g", 0, 512), wait, late)
    assert ends(trace)["g"] == pytest.approx(1.5 * MS)
    assert trace.spans[0].lost_s == pytest.approx(0.5 * MS)


def one_gpu(**changes) -> Machine:
    return quiet(machine_of("full_mesh", 1, "h200"), **changes)


ONE_TILE = {"tiles": ((128, 128),), "splits": (1,)}


def filled(rounding: float, *shapes: tuple[int, float]) -> Machine:
    """A gpu of 8 units whose only tile is 128 x 128: [m, 128] has m / 128 work-groups."""
    machine = one_gpu()
    rates = {d: replace(r, wave_rounding=rounding) for d, r in machine.profile.gemm.rates.items()}
    machine = with_profile(machine, gemm={**ONE_TILE, "rates": rates}, core_copy={"compute_units": 1})
    machine = replace(machine, gpu=replace(machine.gpu, num_compute_units=8, hbm_bytes_per_s=1e18))
    return with_measured(machine, *((m, 128, 256, ms * MS) for m, ms in shapes))


def tall(task_id: str, m: int, queue: int, **more) -> Task:
    return gemm(task_id, 0, m, 128, 256, queue=queue, **more)


def test_two_gemms_that_fill_the_gpu_take_turns() -> None:
    """1 and 3 ms, each of one full wave: half the pace for both until 2 ms, then the rest alone."""
    machine = filled(1.0, (1024, 1.0), (8 * 1024, 3.0))
    trace = run(machine, tall("a", 1024, 0), tall("b", 8 * 1024, 1))
    assert ends(trace) == pytest.approx({"a": 2 * MS, "b": 4 * MS})


def test_two_gemms_that_fit_side_by_side_do_not_disturb_each_other() -> None:
    """3 and 5 of 8 units."""
    trace = run(filled(1.0, (384, 1.0), (640, 2.0)), tall("a", 384, 0), tall("b", 640, 1))
    assert ends(trace) == pytest.approx({"a": 1 * MS, "b": 2 * MS})


def test_the_waves_that_count_are_those_of_the_sum() -> None:
    """Two of 12 work-groups on 8 units: 2 waves each alone, 3 together; both last 1.5 times as long."""
    trace = run(filled(1.0, (1536, 2.0)), tall("a", 1536, 0), tall("b", 1536, 1))
    assert ends(trace) == pytest.approx({"a": 3 * MS, "b": 3 * MS})
    # no whole waves: nothing to fill, each takes half of the gpu
    trace = run(filled(0.0, (1536, 2.0)), tall("a", 1536, 0), tall("b", 1536, 1))
    assert ends(trace) == pytest.approx({"a": 4 * MS, "b": 4 * MS})


def test_a_gemm_that_joins_later_shares_from_then_on() -> None:
    """a runs 1 of 3 ms alone, b of 1 ms joins at half the pace, to 3 ms; a needs 1 ms more."""
    machine = filled(1.0, (1024, 1.0), (8 * 1024, 3.0))
    wait = tall("wait", 1024, 1)
    alone = run(machine, tall("a", 8 * 1024, 0), replace(wait, id="b"))
    assert ends(alone) == pytest.approx({"b": 2 * MS, "a": 4 * MS})
    # "first" and "a" share until 2 ms (1 ms of each done), then "a" and "b" until 4 ms
    trace = run(machine, tall("a", 8 * 1024, 0), wait, tall("b", 1024, 1))
    assert ends(trace) == pytest.approx({"wait": 2 * MS, "b": 4 * MS, "a": 5 * MS})


@given(
    st.sampled_from(["mi300x", "h100", "h200"]),
    st.lists(st.tuples(st.integers(1, 9000), st.integers(1, 9000)), min_size=2, max_size=4),
    st.integers(1, 4096),
)
def test_gemms_side_by_side_take_no_longer_than_one_after_another(gpu, shapes, k) -> None:
    """And no less than the longest alone."""
    machine = machine_of("full_mesh", 1, gpu)
    costs = CostModel(machine)
    tasks = [gemm(f"g{i}", 0, m, n, k, queue=i) for i, (m, n) in enumerate(shapes)]
    alone_s = [costs.gemm_model.cost(GemmShape((m,), n, k, "bf16")).time_s for m, n in shapes]
    together_s = run(machine, *tasks).makespan_s
    assert max(alone_s) * (1 - 1e-9) <= together_s <= sum(alone_s) * (1 + 1e-9)


def test_kernels_share_the_memory_bandwidth() -> None:
    """Two copies of 3.2 TB/s on 4.8 TB/s: each at three quarters of its pace."""
    nbytes = int(1.6e9)  # 1 ms alone
    trace = run(one_gpu(), local_copy("a", 0, nbytes), local_copy("b", 0, nbytes, queue=1))
    assert ends(trace) == pytest.approx({"a": 4 / 3 * MS, "b": 4 / 3 * MS})


def test_transfers_take_memory_bandwidth_from_kernels() -> None:
    """2.4 of 4.8 TB/s go to a transfer for 1 ms: 0.75 ms of a copy of 3.2 TB/s are done by then."""
    machine = quiet_mesh(2, 2400 * GB_PER_S, local_copy={"bytes_per_s": 3.2e12})
    trace = run(machine, local_copy("c", 0, int(1.6e9)), transfer("t", 1, 0, int(2.4e9)))
    assert ends(trace) == pytest.approx({"t": 1 * MS, "c": 1.25 * MS})
    assert trace.spans[0].lost_s == pytest.approx(0.25 * MS)


# core-driven copies


def test_a_core_copy_and_a_gemm_slow_each_other_until_one_ends() -> None:
    """The GEMM has 6 of 8 units: 2 waves in place of 1, twice as long. The copy: 2 times as long.

    GEMM of 1 ms: beside the copy until 2 ms. The copy of 3 ms at 8 GB/s has by then done 1 ms of
    its work and needs 2 ms more.
    """
    machine = machine_of("full_mesh", 2, "h200", bandwidth_bytes_per_s=10 * GB_PER_S,
                         usable_bytes_per_s=10 * GB_PER_S, latency_s=0)  # fmt: skip
    core = {"compute_units": 2, "bytes_per_s": 8 * GB_PER_S, "slowdown_beside_gemm": 2.0}
    gpu = replace(machine.gpu, num_compute_units=8, hbm_bytes_per_s=1e18)
    machine = quiet(replace(machine, gpu=gpu), core_copy=core, gemm=ONE_TILE)
    rates = {
        d: replace(r, wave_rounding=1.0, wave_s=0.0, input_bytes_per_s=1e18, output_bytes_per_s=1e18)
        for d, r in machine.profile.gemm.rates.items()
    }
    machine = with_measured(with_profile(machine, gemm={"rates": rates}), (1024, 128, 256, MS))
    copy = transfer("t", 1, 0, 24 * MB, engine="core")
    trace = run(machine, gemm("g", 0, 1024, 128, 256), copy)
    assert ends(trace) == pytest.approx({"g": 2 * MS, "t": 4 * MS})
    assert [span.lost_s for span in trace.spans] == pytest.approx([1 * MS, 1 * MS])
    # on the gpu that sends, the GEMM keeps its units
    trace = run(machine, gemm("g", 1, 1024, 128, 256), copy)
    assert ends(trace) == pytest.approx({"g": 1 * MS, "t": 3 * MS})


def test_core_copies_into_a_gpu_share_their_kernel() -> None:
    """Links of 10 GB/s from each peer, and 15 GB/s for all that the kernel receives."""
    machine = quiet_mesh(4, core_copy={"bytes_per_s": 15 * GB_PER_S})
    tasks = [transfer(f"t{i}", i, 0, 10 * MB, queue=i, engine="core") for i in (1, 2, 3)]
    assert run(machine, *tasks).makespan_s == pytest.approx(2 * MS)


# time between tasks


def test_gaps_and_waits() -> None:
    """A gap between kernels of a queue; a wait for a task of another queue; the later one counts."""
    launch = {"queue_gap_s": 1 * US, "event_wait_s": 3 * US}
    machine = with_measured(quiet_mesh(2, launch=launch), *timed_gemm((512, 0.010)))
    trace = run(
        machine,
        work("a", 0, 512),
        work("b", 0, 512, deps=("a",)),  # same queue: the gap only
        work("c", 0, 512, queue=1, deps=("a",)),
        transfer("t", 1, 0, 10**5, deps=("b",)),  # 10 us
        work("d", 0, 512, deps=("t",)),
        work("e", 0, 512, queue=1, deps=("a",)),  # the gap after c is later than the wait after a
        transfer("u", 1, 0, 10**5),  # no gap between copies
    )
    starts = {span.task_id: span.start_s / US for span in trace.spans}
    b_end = ends(trace)["b"] / US
    t_end = ends(trace)["t"] / US
    assert starts["b"] == pytest.approx(11)
    assert starts["c"] == pytest.approx(13)
    assert starts["t"] == pytest.approx(b_end + 3)
    assert starts["d"] == pytest.approx(t_end + 3)
    assert starts["e"] == pytest.approx(ends(trace)["c"] / US + 1)
    assert starts["u"] == pytest.approx(t_end)


def test_a_task_starts_no_earlier_than_it_is_submitted() -> None:
    """Each gpu has a host thread of its own that submits its tasks in the order of the plan."""
    machine = with_profile(quiet_mesh(2), launch={"eager_submit_s": 100 * US})
    costs = CostModel(machine, submission="eager")
    tasks = [transfer(f"t{gpu}{i}", 1 - gpu, gpu, 10**5, queue=i) for i in range(3) for gpu in (0, 1)]
    trace = simulate(hand_plan(2, *tasks), machine, costs)
    for i in range(3):
        for gpu in (0, 1):
            (span,) = (s for s in trace.spans if s.task_id == f"t{gpu}{i}")
            assert span.start_s == span.submitted_s == pytest.approx((i + 1) * 100 * US)


# stuck runs


def test_a_cycle_is_told_with_what_each_task_waits_for() -> None:
    with pytest.raises(SimulationError) as caught:
        run(
            quiet_mesh(2),
            transfer("a", 1, 0, MB, deps=("b",)),
            transfer("b", 0, 1, MB, deps=("a",)),
            transfer("fine", 0, 1, MB, queue=1),
        )
    message = str(caught.value)
    assert message.startswith("by-hand: stuck at 0.0001 s: ")
    assert "a waits for b" in message
    assert "b waits for a" in message
    assert "fine" not in message


def test_a_queue_in_the_wrong_order_is_told() -> None:
    """x waits for y, which stands behind x on the queue."""
    with pytest.raises(SimulationError) as caught:
        run(quiet_mesh(2), transfer("x", 1, 0, MB, deps=("y",)), transfer("y", 1, 0, MB))
    assert "x waits for y" in str(caught.value)
    assert "y waits for x before it on queue g0.dma0" in str(caught.value)


def test_a_task_that_waits_for_itself_is_told() -> None:
    with pytest.raises(SimulationError, match="x waits for x"):
        run(quiet_mesh(2), transfer("x", 1, 0, MB, deps=("x",)))


def test_a_long_list_of_stuck_tasks_is_cut() -> None:
    tasks = [
        transfer(f"t{i}", 1, 0, MB, queue=i, deps=(f"t{(i + 1) % 20}",)) for i in range(20)
    ]  # fmt: skip
    with pytest.raises(SimulationError, match="and 12 more tasks"):
        run(quiet_mesh(2), *tasks)


def test_a_plan_for_another_number_of_gpus_is_refused() -> None:
    plan = make_plan("serial", get_workload("llama3-8b-tp8-qkv-2k"), 4)
    with pytest.raises(ScenarioError, match="the plan is for 4 gpus, machine mi300x_8 has 8"):
        simulate(plan, load_machine("mi300x_8"))


def test_a_plan_without_tasks_takes_no_time() -> None:
    trace = run(quiet_mesh(2))
    assert trace.makespan_s == 0
    assert trace.spans == ()


# traces


def test_communication_only_keeps_transfers_and_what_orders_them() -> None:
    plan = make_plan("shard-ring", get_workload("llama3-8b-tp8-qkv-2k"), 8)
    only = communication_only(plan)
    assert [t.id for t in only.tasks] == [t.id for t in plan.tasks if isinstance(t, Transfer)]
    by_id = {task.id: task for task in plan.tasks}
    assert all(task.deps == by_id[task.id].deps for task in only.tasks)
    mixed = hand_plan(
        2,
        work("g", 0, 512),
        transfer("t", 1, 0, MB, deps=("g",)),
        transfer("u", 0, 1, MB, deps=("t", "g")),
    )
    assert [task.deps for task in communication_only(mixed).tasks] == [(), ("t",)]


def test_spans_tell_bytes_and_operations() -> None:
    plan = make_plan(
        "uniform-fused-1d", Workload(name="w", pattern="all_gather_gemm", m=64, n=16, k=32), 4
    )
    trace = simulate(plan, machine_of("full_mesh", 4))
    assert [span.task_id for span in trace.spans] == [task.id for task in plan.tasks]
    gemms = [span for span in trace.spans if span.kind == "gemm"]
    assert sum(span.flops for span in gemms) == 4 * plan.workload.flops
    moved = [span for span in trace.spans if span.kind == "transfer"]
    assert sum(span.nbytes for span in moved) == 4 * 3 * 16 * 32 * 2
    assert all(span.flops == 0 for span in moved)
    assert all(span.nbytes > 0 for span in trace.spans if span.kind == "local_copy")


CASE = ("hetero-unfused-1d", {"num_chunks": 3, "compute_queues": 2, "engine": "core"})
SCRIPT = """
import sys
from ficco_sim.machine import load_machine
from ficco_sim.schedules import make_plan
from ficco_sim.sim import simulate
from ficco_sim.workload import get_workload
for machine in ("mi300x_8", "h200_8"):
    plan = make_plan({0!r}, get_workload("llama3-8b-tp8-qkv-2k"), 8, {1!r})
    sys.stdout.write(simulate(plan, load_machine(machine)).to_json())
"""


def test_a_fresh_process_with_another_hash_seed_gives_the_same_bytes() -> None:
    texts = []
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT.format(*CASE)],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        texts.append(done.stdout)
    plan: Plan = make_plan(CASE[0], get_workload("llama3-8b-tp8-qkv-2k"), 8, CASE[1])
    here = [simulate(plan, load_machine(name)).to_json() for name in ("mi300x_8", "h200_8")]
    assert texts[0] == texts[1] == "".join(here)
    assert json.loads(here[0])["machine"] == "mi300x_8"


@examples(25)
@given(cases())
def test_two_runs_give_the_same_bytes(case) -> None:
    """Also with a plan that went through a file, and with costs that were used before."""
    machine = case.machine
    costs = case.costs(machine)
    text = simulate(case.plan, machine, costs).to_json()
    assert simulate(case.plan, machine, costs).to_json() == text
    again = Plan.from_json(case.plan.to_json())
    assert simulate(again, case.machine, case.costs(machine)).to_json() == text

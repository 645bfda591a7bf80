"""Layer: CPU torch. Plans on places give right numbers and traces; what is wrong is found and named."""

import re
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from hw_strategies import lane, placements, programs, step
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import (
    COLLECTIVES,
    EVERY_SCHEDULE,
    EXCHANGES,
    examples,
    operator_inputs,
    plan_of,
    plans,
    workload_for,
)

from ficco_sim.errors import HardwareError, PlanError, ScenarioError
from ficco_sim.machine import Link, load_machine
from ficco_sim.plan import Gemm, LocalCopy, Transfer
from ficco_sim.routing import relay
from ficco_sim.schedules import FICCO
from hw_validate.cpu import CpuBackend
from hw_validate.executor import bind, run_plan, trace_of
from hw_validate.memory import Arena, inputs_from_arrays, random_inputs
from hw_validate.operations import gemm, num_kernels
from hw_validate.placement import HOST, Placement
from hw_validate.program import by_demand, gpu_groups, in_order
from hw_validate.verify import tolerance, verify

ALL = (*EVERY_SCHEDULE, *EXCHANGES, *COLLECTIVES)
backends = st.booleans().map(lambda threads: CpuBackend(threads=threads))


def fits_torch(plan):
    """Whether torch can run a plan: fp8 has neither sums nor GEMMs of sizes that 16 does not divide."""
    return plan.workload.dtype != "fp8" or not any(
        isinstance(task, Gemm) or (isinstance(task, LocalCopy) and task.accumulate)
        for task in plan.tasks
    )


def any_plan(**limits):
    return (
        st.sampled_from(ALL)
        .flatmap(lambda name: plans(name, **limits))
        .filter(lambda plan: plan.tasks and fits_torch(plan))
    )


def alone(gpu, num_gpus, others):
    """One gpu computes on device 0; the others hold data in one place."""
    places = tuple(0 if g == gpu else others for g in range(num_gpus))
    return Placement(places=places, computing=frozenset({gpu}))


def together(num_gpus):
    return Placement(places=(0,) * num_gpus, computing=frozenset(range(num_gpus)))


def differences(plan, outputs, wanted, computing):
    """The rows of outputs that are not exactly the oracle's, in the order of the plan's outputs."""
    found = []
    for region in plan.outputs:
        key = (region.gpu, region.buffer)
        if region.gpu in computing:
            rows = slice(*region.rows)
            same = outputs[key].double().numpy()[rows] == wanted[key][rows]
            wrong = np.flatnonzero(~same.all(axis=1))
            found += [(*key, region.rows[0] + int(row)) for row in wrong]
    return found


def run_exactly(plan, placement, backend, *, graph=True):
    """Run a plan with small whole numbers, of which no type rounds any sum; the oracle must agree."""
    arrays, wanted = operator_inputs(plan, integers=True)
    outputs, trace = run_plan(
        plan, inputs_from_arrays(plan, arrays), placement=placement, backend=backend, graph=graph
    )
    assert differences(plan, outputs, wanted, placement.computing) == []
    assert {gpu for gpu, _ in outputs} <= placement.computing
    assert {key for key in wanted if key[0] in placement.computing} <= set(outputs)
    return trace


def check_trace(plan, placement, trace):
    tasks = [task for task in plan.tasks if task.queue.gpu in placement.computing]
    assert [span.task_id for span in trace.spans] == [task.id for task in tasks]
    assert trace.plan_fingerprint == plan.fingerprint
    assert trace.source == "gpu"
    assert trace.schedule == plan.schedule
    assert trace.workload == plan.workload.name
    assert trace.environment["map"] == placement.describe()
    assert trace.labels[:-1] == placement.labels
    assert trace.labels[-1] == "emulated: all gpus on the CPU; times stand for nothing"
    spans = {span.task_id: span for span in trace.spans}
    queue_free = {}
    for task in tasks:
        span = spans[task.id]
        assert (span.kind, span.queue) == (task.kind, task.queue)
        assert queue_free.get(task.queue, 0.0) <= span.start_s <= span.end_s
        queue_free[task.queue] = span.end_s
        assert all(spans[dep].end_s <= span.start_s for dep in task.deps if dep in spans)
        assert span.flops == (task.flops if isinstance(task, Gemm) else 0)
        if isinstance(task, Transfer):
            assert span.nbytes == task.dst.num_elements * plan.workload.element_bytes


@examples(60)
@given(plan=any_plan(), backend=backends, graph=st.booleans())
def test_every_plan_computes_its_operator(plan, backend, graph):
    placement = Placement.own_devices(plan.num_gpus)
    trace = run_exactly(plan, placement, backend, graph=graph)
    check_trace(plan, placement, trace)
    assert trace.environment["submission"] == ("graph" if graph else "eager")


@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_each_schedule_on_one_device_and_on_many(name, threads):
    plan = plan_of(name, workload_for(name, dtype="fp16"), 5, num_chunks=3, compute_queues=2)
    for placement in (Placement.own_devices(5), together(5)):
        check_trace(plan, placement, run_exactly(plan, placement, CpuBackend(threads=threads)))


@examples(60)
@given(plan=any_plan(), backend=backends, data=st.data())
def test_gpus_that_only_hold_data_change_no_number(plan, backend, data):
    placement = data.draw(placements(plan.num_gpus))
    computing = placement.computing
    assume(any(region.gpu in computing for region in plan.outputs))
    assume(any(task.queue.gpu in computing for task in plan.tasks))
    try:
        trace = run_exactly(plan, placement, backend)
    except PlanError as error:
        if "one link cannot play several" in str(error) or "is by a copy kernel" in str(error):
            assert placement.linked
            return
        assert "only holds data" in str(error)  # noqa: PT017 - other errors must come through
        assert plan.schedule.startswith(("all-reduce", "reduce-scatter-ring"))
    else:
        check_trace(plan, placement, trace)


@pytest.mark.parametrize(("gpu", "others"), [(0, HOST), (5, 0), (7, 1)])
@pytest.mark.parametrize("name", [*EVERY_SCHEDULE, *EXCHANGES, "reduce_scatter direct"])
def test_one_gpu_computes_beside_seven_that_hold_data(name, gpu, others):
    plan = plan_of(name, workload_for(name, m=41), 8, num_chunks=3)
    placement = alone(gpu, 8, others)
    trace = run_exactly(plan, placement, CpuBackend())
    check_trace(plan, placement, trace)
    assert "only hold data, in" in trace.labels[0]


@pytest.mark.parametrize(
    "name",
    ["reduce_scatter ring", "all_reduce direct", "all_reduce ring", "all_reduce ring-two-way-split"],
)
def test_sums_that_nobody_makes_are_refused(name):
    """A gpu that only holds its part would hand it on without what it had to add."""
    plan = plan_of(name, workload_for(name), 4)
    placement = alone(0, 4, HOST)
    inputs = random_inputs(plan, placement)
    with pytest.raises(PlanError, match=r"gpu \d only holds data, but gpu \d part\[.*let it compute"):
        run_plan(plan, inputs, placement=placement, backend=CpuBackend())


@examples(40)
@given(plan=any_plan(), backend=backends, seed=st.integers(0, 99))
def test_rounding_of_normal_numbers_is_within_the_tolerance(plan, backend, seed):
    placement = Placement.own_devices(plan.num_gpus)
    inputs = random_inputs(plan, placement, seed)
    before = {key: tensor.clone() for key, tensor in (inputs.shared | inputs.own).items()}
    outputs, _ = run_plan(plan, inputs, placement=placement, backend=backend)
    assert verify(plan, placement, inputs, outputs, {}) <= tolerance(plan)
    for key, tensor in (inputs.shared | inputs.own).items():
        assert torch.equal(tensor.float(), before[key].float())


@examples(30)
@given(plan=any_plan(max_gpus=5))
def test_single_precision_is_close_to_the_oracle(plan):
    assume(plan.workload.dtype == "fp32")
    arrays, wanted = operator_inputs(plan)
    placement = Placement.own_devices(plan.num_gpus)
    outputs, _ = run_plan(
        plan, inputs_from_arrays(plan, arrays), placement=placement, backend=CpuBackend()
    )
    for region in plan.outputs:
        key, rows = (region.gpu, region.buffer), slice(*region.rows)
        assert np.allclose(outputs[key].numpy()[rows], wanted[key][rows], rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("name", [n for n in (*EVERY_SCHEDULE, *EXCHANGES) if "2d" not in n])
def test_fp8_where_torch_has_it(name):
    plan = plan_of(name, workload_for(name, m=19, n=16, k=32, dtype="fp8"), 3)
    placement = Placement.own_devices(3)
    inputs = random_inputs(plan, placement)
    for bound in (placement, alone(0, 3, HOST)):
        run_plan(plan, inputs, placement=bound, backend=CpuBackend())


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("serial", (16, 24), r"gemm\.g0: K = 24 on one gpu must be a multiple of 16 for fp8"),
        ("serial", (8, 32), r"gemm\.g0: N = 8 on one gpu must be a multiple of 16 for fp8"),
        ("uniform-fused-2d", (16, 64), r"gemm\.g0\.c1: fp8 GEMMs cannot accumulate.*take bf16"),
        ("reduce_scatter ring", (16, 16), r"add\.\S+: fp8 numbers cannot be summed.*take bf16"),
    ],
)
def test_fp8_where_torch_lacks_it_is_refused(name, sizes, message):
    n, k = sizes
    plan = plan_of(name, workload_for(name, n=n, k=k, dtype="fp8"), 3, num_chunks=2)
    with pytest.raises(ScenarioError, match=message):
        bind(plan, Placement.own_devices(3), CpuBackend())


# wrong data


def run_damaged(bound, inputs, damage):
    """As `run_plan` does, with the steps of some tasks replaced."""
    steps = tuple(
        replace(step, launch=damage[step.id]) if step.id in damage else step for step in bound.steps
    )
    bound.memory.load(inputs)
    prepared = replace(bound, steps=steps).prepare()
    prepared.run()
    prepared.close()
    return bound.outputs()


def skip(task, bound):
    return {task.id: lambda _: None}


def corrupt(task, bound):
    launch = next(step.launch for step in bound.steps if step.id == task.id)

    def wrong(stream):
        launch(stream)
        view = bound.memory.view(task.writes[-1])
        view[-1:, -1:] = 2 - view[-1:, -1:]

    return {task.id: wrong}


def swap(task, bound):
    """Two transfers of equal shape into one gpu bring each other's data; {} if there are none."""
    partners = [
        other
        for other in bound.plan.tasks
        if isinstance(other, Transfer)
        and isinstance(task, Transfer)
        and other.id != task.id
        and other.queue.gpu == task.queue.gpu
        and other.src.shape == task.src.shape
    ]
    if not partners:
        return {}
    view = bound.memory.view

    def copy(src, dst):
        return lambda _: view(dst).copy_(view(src))

    other = partners[0]
    return {task.id: copy(other.src, task.dst), other.id: copy(task.src, other.dst)}


@examples(60)
@given(name=st.sampled_from(ALL), data=st.data())
def test_wrong_data_is_found_and_its_row_and_writers_named(name, data):
    num_gpus = data.draw(st.integers(2, 4))
    workload = workload_for(name, m=data.draw(st.integers(4, 30)), n=3, k=9, dtype="fp32")
    plan = plan_of(name, workload, num_gpus, num_chunks=data.draw(st.integers(1, 9)))
    placement = Placement.own_devices(num_gpus)
    bound = bind(plan, placement, CpuBackend())
    arrays, wanted = operator_inputs(plan, seed=data.draw(st.integers(0, 9)), integers=True)
    inputs = inputs_from_arrays(plan, arrays)
    kind = data.draw(st.sampled_from([skip, corrupt, swap]))
    task = data.draw(st.sampled_from(plan.tasks))
    damage = kind(task, bound)
    assume(damage)
    outputs = run_damaged(bound, inputs, damage)
    wrong = differences(plan, outputs, wanted, placement.computing)
    if not wrong:  # equal rows were swapped, or a chunk of zeros is missing
        assert verify(plan, placement, inputs, outputs) <= tolerance(plan)
        return
    with pytest.raises(PlanError) as caught:
        verify(plan, placement, inputs, outputs)
    found = re.search(r"gpu (\d+) (\w+): row (\d+) is wrong by .*; written by (.+)$", str(caught.value))
    gpu, buffer, row = int(found[1]), found[2], int(found[3])
    assert (gpu, buffer, row) == wrong[0]
    tasks = {task.id: task for task in plan.tasks}
    for writer in re.sub(r" and \d+ more$", "", found[4]).split(", "):
        assert any(
            (r.gpu, r.buffer) == (gpu, buffer) and r.rows[0] <= row < r.rows[1]
            for r in tasks[writer].writes
        )


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_not_a_number_never_passes(name, bad):
    plan = plan_of(name, workload_for(name, m=9), 3)
    placement = Placement.own_devices(3)
    inputs = random_inputs(plan, placement)
    outputs, _ = run_plan(plan, inputs, placement=placement, backend=CpuBackend())
    region = plan.outputs[-1]
    outputs[region.gpu, region.buffer][region.rows[1] - 1, -1] = bad
    with pytest.raises(
        PlanError, match=rf"gpu {region.gpu} {region.buffer}: row {region.rows[1] - 1} is wrong"
    ):
        verify(plan, placement, inputs, outputs)


def test_an_output_that_nobody_wrote_is_found_even_after_a_right_run():
    plan = plan_of("serial", workload_for("serial"), 2)
    placement = Placement.own_devices(2)
    inputs = random_inputs(plan, placement)
    bound = bind(plan, placement, CpuBackend())
    verify(plan, placement, inputs, run_damaged(bound, inputs, {}))
    outputs = run_damaged(bound, inputs, {"gemm.g1": lambda _: None})
    with pytest.raises(PlanError, match=r"gpu 1 c: row 0 is wrong by nan .* written by gemm\.g1$"):
        verify(plan, placement, inputs, outputs)


def test_zeros_where_numbers_belong_are_wrong():
    plan = plan_of("serial", workload_for("serial"), 2)
    placement = Placement.own_devices(2)
    inputs = random_inputs(plan, placement)
    outputs = {(gpu, "c"): torch.zeros(13, 3) for gpu in range(2)}
    with pytest.raises(PlanError, match=r"row 0 is wrong by 0\.[1-9]"):
        verify(plan, placement, inputs, outputs)


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("num_chunks", [2, 8, 9, 16, 32])
@pytest.mark.parametrize("name", ["uniform-fused-2d", "hetero-unfused-2d"])
def test_one_missing_or_wrong_chunk_of_many_is_seen(name, num_chunks, dtype):
    plan = plan_of(name, workload_for(name, 16, 64, 1024, dtype), 2, num_chunks=num_chunks)
    placement = Placement.own_devices(2)
    inputs = random_inputs(plan, placement)
    bound = bind(plan, placement, CpuBackend())
    limit = tolerance(plan)
    assert verify(plan, placement, inputs, run_damaged(bound, inputs, {})) < limit / 3
    updates = [task for task in plan.tasks if isinstance(task, Gemm) and task.accumulate]
    transfers = [task for task in plan.tasks if isinstance(task, Transfer)]
    for damage in (skip(updates[-1], bound), swap(transfers[-1], bound)):
        assert damage
        with pytest.raises(PlanError, match="is wrong by") as caught:
            verify(plan, placement, inputs, run_damaged(bound, inputs, damage))
        error = re.search(r"is wrong by (\S+) of", str(caught.value))
        assert float(error[1]) > 1.5 * limit


@pytest.mark.parametrize(("m", "n", "k"), [(9, 1, 9), (40, 1, 45), (9, 3, 90), (18, 16, 180)])
@pytest.mark.parametrize("name", ["uniform-fused-2d", "uniform-unfused-2d", "all_reduce ring"])
def test_nine_roundings_to_bf16_are_not_wrong(name, m, n, k):
    plan = plan_of(name, workload_for(name, m, n, k), 9)
    placement = Placement.own_devices(9)
    bound = bind(plan, placement, CpuBackend())
    for seed in range(8):  # narrow rows often cancel to almost nothing
        inputs = random_inputs(plan, placement, seed)
        verify(plan, placement, inputs, run_damaged(bound, inputs, {}))


def test_products_are_kept_between_plans_of_a_workload():
    workload = workload_for("serial")
    placement = Placement.own_devices(3)
    products = {}
    for name in ("serial", "uniform-fused-2d"):
        plan = plan_of(name, workload, 3)
        inputs = random_inputs(plan, placement)
        outputs, _ = run_plan(plan, inputs, placement=placement, backend=CpuBackend())
        verify(plan, placement, inputs, outputs, products)
        assert set(products) == {(gpu, "c") for gpu in range(3)}
    outputs[2, "c"][7] += 100
    with pytest.raises(PlanError, match="gpu 2 c: row 7"):
        verify(plan, placement, inputs, outputs, products)


@examples(100)
@given(data=st.data(), accumulates=st.booleans())
def test_batch_entries_may_lie_anywhere(data, accumulates):
    """Those at equal distances are one call; whatever the places, each entry is computed once."""
    places = st.lists(st.sampled_from(range(0, 40, 2)), min_size=1, max_size=6, unique=True)
    a_at, c_at = data.draw(places), data.draw(places)
    a_MK = torch.arange(42 * 3, dtype=torch.float32).view(42, 3) % 7
    b_KN = torch.arange(6, dtype=torch.float32).view(3, 2) % 5
    c_MN = torch.full((42, 2), 8.0)
    wanted_MN = c_MN.clone()
    entries = []
    for a, c in zip(a_at, c_at, strict=False):
        rows = data.draw(st.integers(1, 2))
        entries.append((a_MK[a : a + rows], c_MN[c : c + rows]))
        wanted_MN[c : c + rows] = a_MK[a : a + rows] @ b_KN + 8 * accumulates
    gemm(entries, b_KN, accumulates=accumulates, name="gemm")(0)
    assert torch.equal(c_MN, wanted_MN)
    assert 1 <= num_kernels(entries) <= len(entries)


def test_equal_distances_are_one_call():
    a_MK, c_MN = torch.ones(40, 3), torch.ones(40, 2)
    entries = [(a_MK[i : i + 2], c_MN[i : i + 2]) for i in (12, 0, 6, 18)]
    assert num_kernels(entries) == 1
    assert num_kernels([*entries, (a_MK[26:28], c_MN[24:26])]) == 2


# relayed plans


def on_links(num_gpus, pairs):
    base = load_machine("ring_8")
    links = tuple(
        Link(src=a, dst=b, bandwidth_bytes_per_s=1e9, usable_bytes_per_s=1e9, latency_s=0.0)
        for a, b in pairs
    )
    return replace(base, name="graph", num_gpus=num_gpus, links=links)


def line(num_gpus):
    return on_links(num_gpus, [pair for g in range(num_gpus - 1) for pair in ((g, g + 1), (g + 1, g))])


@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize("name", ["serial", *FICCO, *EXCHANGES])
def test_relayed_plans_run_when_all_gpus_compute(name, threads):
    plan = relay(plan_of(name, workload_for(name, m=21), 5, num_chunks=2), line(5), pieces=2)
    placement = Placement.own_devices(5)
    check_trace(plan, placement, run_exactly(plan, placement, CpuBackend(threads=threads)))


@pytest.mark.parametrize("name", ["serial", "uniform-unfused-1d", "hetero-unfused-2d"])
def test_relayed_shards_can_be_read_from_gpus_that_only_hold_data(name):
    plan = relay(plan_of(name, workload_for(name, m=21), 5, num_chunks=2), line(5))
    forwards = any(
        task.src.buffer.startswith("via") for task in plan.tasks if isinstance(task, Transfer)
    )
    placement = alone(0, 5, HOST)
    if forwards:
        with pytest.raises(PlanError, match="only holds data"):
            run_exactly(plan, placement, CpuBackend())
    else:
        run_exactly(plan, placement, CpuBackend())


def test_data_in_transit_through_a_gpu_that_only_holds_is_refused():
    tokens = ((0, 0, 3), (1, 2, 0), (4, 0, 1))
    workload = replace(workload_for("serial"), pattern="all_to_all_gemm", m=5, tokens=tokens)
    plan = relay(plan_of("shard-p2p", workload, 3), line(3))
    inputs = random_inputs(plan, alone(0, 3, HOST))
    with pytest.raises(PlanError, match=r"gpu 1 only holds data, but gpu 1 via\S*\[.*would have to"):
        run_plan(plan, inputs, placement=alone(0, 3, HOST), backend=CpuBackend())
    run_exactly(plan, Placement.own_devices(3), CpuBackend())


# what a backend refuses


class NeverRuns(CpuBackend):
    def prepare(self, *_, **__):
        raise AssertionError("nothing may run")


@pytest.mark.parametrize("pair", [(0, 1), (1, 0), (2, 0)])
def test_dead_peers_are_named_before_anything_runs(pair):
    plan = plan_of("hetero-fused-1d", workload_for("serial"), 3)
    placement = Placement.own_devices(3)
    inputs = random_inputs(plan, placement)
    device, peer = pair
    with pytest.raises(
        HardwareError, match=f"device {device} has no peer access to device {peer}: .*--map"
    ):
        run_plan(plan, inputs, placement=placement, backend=NeverRuns(dead_peers=[pair]))


def test_dead_peers_that_nobody_reads_do_not_matter():
    plan = plan_of("shard-ring", workload_for("shard-ring"), 4)
    assert {t.src.gpu for t in plan.tasks if isinstance(t, Transfer) and t.queue.gpu == 0} == {1}
    run_exactly(plan, Placement.own_devices(4), CpuBackend(dead_peers=[(0, 2), (0, 3), (1, 0)]))


def test_places_must_be_as_many_as_gpus():
    plan = plan_of("serial", workload_for("serial"), 4)
    with pytest.raises(ScenarioError, match="--map: places for 3 gpus, but the plan is for 4"):
        bind(plan, Placement.own_devices(3), CpuBackend())


def test_an_illegal_plan_is_refused():
    plan = plan_of("serial", workload_for("serial"), 2)
    unordered = tuple(replace(task, deps=()) for task in plan.tasks)
    with pytest.raises(PlanError, match="race"):
        bind(replace(plan, tasks=unordered), Placement.own_devices(2), NeverRuns())


def test_a_gpu_without_tasks_cannot_be_the_one_that_computes():
    tokens = ((2, 0), (1, 0))
    workload = replace(workload_for("serial"), pattern="all_to_all_gemm", m=3, tokens=tokens)
    plan = plan_of("serial", workload, 2)
    with pytest.raises(PlanError, match="no task on the gpus that compute"):
        bind(plan, alone(1, 2, HOST), CpuBackend())


def test_a_gpu_may_send_or_receive_nothing():
    tokens = ((0, 1, 0), (0, 0, 0), (0, 2, 0))
    workload = replace(workload_for("serial"), pattern="all_to_all_gemm", m=3, tokens=tokens)
    for name in ("serial", "shard-p2p", *FICCO):
        plan = plan_of(name, workload, 3)
        for placement in (Placement.own_devices(3), alone(1, 3, HOST)):
            inputs = random_inputs(plan, placement)
            outputs, _ = run_plan(plan, inputs, placement=placement, backend=CpuBackend())
            assert outputs[1, "c"].isfinite().all()


def test_no_output_is_not_a_right_output():
    plan = plan_of("serial", workload_for("serial"), 2)
    placement = Placement.own_devices(2)
    with pytest.raises(PlanError, match="no output to check"):
        verify(replace(plan, outputs=()), placement, random_inputs(plan, placement), {})


# memory


def test_plans_of_one_workload_share_their_tensors():
    workload = workload_for("serial")
    backend = CpuBackend()
    arena = Arena(backend)
    placement = together(3)
    first = bind(plan_of("serial", workload, 3), placement, backend, arena)
    nbytes = arena.nbytes
    again = bind(plan_of("serial", workload, 3), placement, backend, arena)
    assert arena.nbytes == nbytes == sum(b.rows * b.cols * 2 for b in first.plan.buffers)
    assert again.memory.whole(1, "c") is first.memory.whole(1, "c")
    assert first.memory.whole(0, "c") is not first.memory.whole(1, "c")


def test_gpus_that_hold_data_share_one_matrix_a_place():
    plan = plan_of("serial", workload_for("serial"), 6)
    places = (0, HOST, HOST, 1, 1, 0)
    memory = bind(plan, Placement(places=places, computing=frozenset({0})), CpuBackend()).memory
    held = [memory.whole(gpu, "a") for gpu in range(6)]
    assert held[1] is held[2]
    assert held[3] is held[4]
    assert len({id(tensor) for tensor in held}) == 4
    with pytest.raises(KeyError):
        memory.whole(1, "c")


def test_inputs_differ_by_seed_and_zeros_say_so():
    plan = plan_of("serial", workload_for("serial"), 2)
    placement = alone(1, 2, HOST)
    first, again, other = (random_inputs(plan, placement, seed) for seed in (3, 3, 4))
    assert torch.equal(first.shared["a"], again.shared["a"])
    assert not torch.equal(first.shared["a"], other.shared["a"])
    assert set(first.own) == {(1, "b")}  # nobody else's factor is needed
    zeros = random_inputs(plan, placement, init="zeros")
    assert zeros.init == "zeros"
    assert not zeros.shared["a"].any()


def test_a_trace_names_its_machine_where_that_is_known():
    plan = plan_of("serial", workload_for("serial"), 2)
    placement = Placement.own_devices(2)
    bound = bind(plan, placement, CpuBackend())
    bound.memory.load(random_inputs(plan, placement))
    run = bound.prepare(spans=True).run()
    assert trace_of(bound, run, graph=True, machine="h200_8").machine == "h200_8"
    assert trace_of(bound, run, graph=True).machine == "cpu"
    without = bound.prepare(spans=False).run()
    assert without.spans == {}
    assert without.makespan_s > 0


# steps


@examples(100)
@given(steps=programs(), order=st.sampled_from([in_order, by_demand]))
def test_steps_are_ordered_by_lanes_and_waits(steps, order):
    ordered = order(steps)
    at = {s.id: i for i, s in enumerate(ordered)}
    assert sorted(at) == sorted(s.id for s in steps)
    for s in steps:
        assert all(at[wait] < at[s.id] for wait in s.waits)
    for on in {s.lane for s in steps}:
        assert [s for s in ordered if s.lane == on] == [s for s in steps if s.lane == on]
    assert in_order(ordered) == ordered  # an order that is legal is kept


def test_what_is_waited_for_stands_just_before_its_user():
    steps = [
        *(step(f"copy{i}", on=lane(0, f"dma{i % 2}")) for i in range(4)),
        step("gemm0", ["copy0", "copy1"], lane(0, "compute0")),
        step("gemm1", ["copy2", "copy3"], lane(0, "compute0")),
        step("last", on=lane(1)),
    ]
    names = [s.id for s in by_demand(steps)]
    assert names == ["copy0", "copy1", "gemm0", "copy2", "copy3", "gemm1", "last"]
    assert [s.id for s in in_order(steps)] == [s.id for s in steps]


@examples(100)
@given(steps=programs())
def test_gpus_that_wait_for_one_another_are_one_group(steps):
    gpu_of = {s.id: s.lane.gpu for s in steps}
    crossed = any(gpu_of[wait] != s.lane.gpu for s in steps for wait in s.waits)
    groups = gpu_groups(steps)
    assert sorted(s.id for group in groups for s in group) == sorted(gpu_of)
    if crossed:
        assert groups == [steps]
    else:
        assert [len({s.lane.gpu for s in group}) for group in groups] == [1] * len(groups)
        assert len(groups) == len(set(gpu_of.values()))


@pytest.mark.parametrize("threads", [False, True])
def test_deadlock_is_refused_before_anything_runs(threads):
    steps = [
        step("a", ["d"], lane(0)),
        step("b", on=lane(0)),
        step("c", ["b"], lane(1)),
        step("d", on=lane(1)),
        step("fine", on=lane(2)),
    ]
    with pytest.raises(PlanError, match="deadlock: a, b, c, d wait for one another"):
        CpuBackend(threads=threads).prepare(steps, graph=True, spans=False)


def test_waiting_for_what_is_not_there_is_refused():
    with pytest.raises(PlanError, match="step 'a' waits for 'ghost', which is not there"):
        in_order([step("a", ["ghost"])])


@pytest.mark.parametrize("threads", [False, True])
def test_a_step_that_fails_ends_the_run(threads):
    ran = []

    def fail(_):
        raise ZeroDivisionError("in a step")

    steps = [
        step("first", launch=lambda _: ran.append("first")),
        step("fails", ["first"], lane(1), fail),
        step("after", ["fails"], lane(2), lambda _: ran.append("after")),
        step("behind", ["after"], lane(3), lambda _: ran.append("behind")),
    ]
    before = threading.active_count()
    prepared = CpuBackend(threads=threads).prepare(steps, graph=True, spans=True)
    started_s = time.monotonic()
    with pytest.raises(ZeroDivisionError, match="in a step"):
        prepared.run()
    assert time.monotonic() - started_s < 10
    assert ran == ["first"]
    assert threading.active_count() == before


@examples(50)
@given(steps=programs(), threads=st.booleans())
def test_steps_run_once_and_after_what_they_wait_for(steps, threads):
    ran = []
    live = [replace(s, launch=lambda _, name=s.id: ran.append(name)) for s in steps]
    run = CpuBackend(threads=threads).prepare(live, graph=False, spans=True).run()
    assert sorted(ran) == sorted(s.id for s in steps)
    for s in steps:
        begin_s, end_s = run.spans[s.id]
        assert 0 <= begin_s <= end_s <= run.makespan_s
        assert all(run.spans[wait][1] <= begin_s for wait in s.waits)

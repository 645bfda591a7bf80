"""Costs of tasks alone, and the few of them that only show in a run. Layer: costs, then simulator."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim_strategies import (
    by_formula,
    cases,
    gemm,
    hand_plan,
    machine_of,
    transfer,
    with_measured,
    with_profile,
)
from strategies import examples

from ficco_sim.costs import CostModel, GemmShape
from ficco_sim.costs.gemm import GemmModel, TileGrid
from ficco_sim.errors import MachineError, ScenarioError
from ficco_sim.machine import Machine, load_machine
from ficco_sim.plan import Gemm, Region
from ficco_sim.profile import CopyProfile, GemmProfile
from ficco_sim.schedules import FICCO, make_plan
from ficco_sim.sim import simulate
from ficco_sim.workload import DTYPE_BYTES, OUTPUT_DTYPE, Workload, aligned

MACHINES = {name: by_formula(load_machine(name)) for name in ("mi300x_8", "h100_8", "h200_8")}
GEMM_MODELS = {name: CostModel(machine).gemm_model for name, machine in MACHINES.items()}
CLOSE = 1e-12  # rounding

models = st.sampled_from(sorted(GEMM_MODELS)).map(GEMM_MODELS.__getitem__)
sizes = st.one_of(
    st.integers(1, 300), st.integers(1, 40_000), st.sampled_from([1024, 4096, 8192, 16384])
)
dtypes = st.sampled_from(sorted(DTYPE_BYTES))


@st.composite
def shapes(draw: st.DrawFn) -> GemmShape:
    entries = draw(st.lists(sizes, min_size=1, max_size=draw(st.sampled_from([1, 1, 8]))))
    return GemmShape(tuple(entries), draw(sizes), draw(sizes), draw(dtypes), draw(st.booleans()))


# GEMM alone


@given(models, shapes())
def test_a_gemm_takes_time(model: GemmModel, shape: GemmShape) -> None:
    cost = model.cost(shape)
    assert cost.startup_s > 0
    assert cost.body_s > 0
    assert cost.time_s == cost.startup_s + cost.body_s
    assert math.isfinite(cost.time_s)
    assert 0 < cost.busy <= 1 + 1e-9
    # no faster than the memory and the main loop at their best
    rates = model.rates(shape.dtype)
    assert cost.body_s >= (1 - rates.stream_overlap) * shape.flops / (
        rates.flops_per_s_per_unit * model.num_compute_units
    )
    assert cost.body_s >= (1 - rates.stream_overlap) * shape.hbm_bytes / max(
        rates.input_bytes_per_s, rates.output_bytes_per_s
    )


@given(models, shapes(), st.integers(1, 400), st.integers(1, 400))
def test_more_compute_units_never_make_a_gemm_slower(
    model: GemmModel, shape: GemmShape, some: int, more: int
) -> None:
    """Everywhere, up to rounding of floats: the waves of each tile and split can only become fewer.

    Not strictly: start-up and the streams to and from HBM stay, and so do whole waves.
    """
    few, many = sorted((some, more))
    assert model.cost(shape, many).time_s <= model.cost(shape, few).time_s * (1 + CLOSE)


@given(models, shapes(), sizes)
def test_more_rows_or_columns_never_make_a_gemm_faster(
    model: GemmModel, shape: GemmShape, extra: int
) -> None:
    taller = replace(shape, entry_rows=(shape.entry_rows[0] + extra, *shape.entry_rows[1:]))
    wider = replace(shape, n=shape.n + extra)
    another = replace(shape, entry_rows=(*shape.entry_rows, extra))
    for larger in (taller, wider, another):
        assert model.cost(larger).time_s >= model.cost(shape).time_s * (1 - CLOSE)


@given(models, shapes(), sizes)
def test_a_deeper_contraction_never_makes_a_gemm_faster(
    model: GemmModel, shape: GemmShape, extra: int
) -> None:
    """Not exactly everywhere: a split-K factor s is allowed from k = 128 s on, and may then win.

    So the same factors must be allowed before and after, here all of them.
    """
    deep = replace(shape, k=shape.k + 128 * max(model.profile.splits))
    assert (
        model.cost(replace(deep, k=deep.k + extra)).time_s >= model.cost(deep).time_s * (1 - CLOSE)
    )  # fmt: skip


@given(models, shapes())
def test_accumulating_costs_more(model: GemmModel, shape: GemmShape) -> None:
    """C is read too, with the columns that fp8 pads: more time, by at most what reading it takes."""
    plain_s = model.cost(replace(shape, accumulate=False)).time_s
    extra_s = model.cost(replace(shape, accumulate=True)).time_s - plain_s
    c_bytes = shape.m * aligned(shape.n, shape.dtype) * DTYPE_BYTES[OUTPUT_DTYPE[shape.dtype]]
    assert 0 < extra_s <= c_bytes / model.rates(shape.dtype).input_bytes_per_s + plain_s * CLOSE


@given(models, shapes())
def test_a_batch_of_one_is_plain_and_a_batch_is_never_faster_than_its_sum(
    model: GemmModel, shape: GemmShape
) -> None:
    """Entries share no tile."""
    whole = replace(shape, entry_rows=(shape.m,))
    assert model.cost(shape).time_s >= model.cost(whole).time_s * (1 - CLOSE)
    if len(shape.entry_rows) == 1:
        assert model.cost(shape) == model.cost(whole)


@given(models, sizes, sizes, dtypes, st.integers(1, 8), st.integers(1, 3))
def test_a_batch_takes_less_than_its_entries_one_after_another(
    model: GemmModel, n: int, k: int, dtype: str, entries: int, tiles: int
) -> None:
    rows = 256 * tiles
    batch_s = model.cost(GemmShape((rows,) * entries, n, k, dtype)).time_s
    single_s = model.cost(GemmShape((rows,), n, k, dtype)).time_s
    assert single_s * (1 - CLOSE) <= batch_s <= entries * single_s * (1 + CLOSE)


@given(st.sampled_from(["mi300x_8", "h100_8"]).map(GEMM_MODELS.__getitem__), shapes())
def test_rows_and_columns_can_be_swapped(model: GemmModel, shape: GemmShape) -> None:
    """Where tiles come both ways round, C and its transpose cost the same, but for padding of fp8."""
    assert {(b, a) for a, b in model.profile.tiles} == set(model.profile.tiles)
    m, n = (aligned(size, shape.dtype) for size in (shape.m, shape.n))
    upright = replace(shape, entry_rows=(m,), n=n)
    flat = replace(shape, entry_rows=(n,), n=m)
    assert model.cost(upright).time_s == pytest.approx(model.cost(flat).time_s, rel=CLOSE)


def test_the_formula_by_hand() -> None:
    """One tile, whole waves, no overlap: 2 x 3 tiles on 4 units are 2 waves."""
    machine = MACHINES["h200_8"]
    rates = replace(
        machine.profile.gemm.rates["bf16"],
        startup_s=1e-6,
        flops_per_s_per_unit=1e12,
        edge_elements=16.0,
        feed_bytes_per_s=1e18,
        wave_s=2e-6,
        wave_rounding=1.0,
        input_bytes_per_s=1e12,
        output_bytes_per_s=2e12,
        stream_overlap=0.0,
    )
    profile = GemmProfile(tiles=((128, 128),), splits=(1,), rates={"bf16": rates})
    model = GemmModel(profile, 4, "by-hand")
    main_s = 2 * 2 * 128 * 128 * 1024 / 1e12 * (1 + 16 * (1 / 128 + 1 / 128))
    streams_s = (200 * 1024 + 300 * 1024) * 2 / 1e12 + 200 * 300 * 2 / 2e12
    cost = model.cost(GemmShape((200,), 300, 1000, "bf16"))
    streams_s -= (200 + 300) * 24 * 2 / 1e12  # k is rounded up in the loop only
    assert cost.time_s == pytest.approx(1e-6 + main_s + 2 * 2e-6 + streams_s)
    assert cost.busy == 1.5 / 2
    # half of the units: 3 waves instead of 2
    slower = model.cost(GemmShape((200,), 300, 1000, "bf16"), 2)
    assert slower.time_s - cost.time_s == pytest.approx(main_s / 2 + 2e-6)
    # the rows in two entries of 100: 2 x 3 tiles as before; in four of 50: 4 x 3
    assert model.cost(GemmShape((100, 100), 300, 1000, "bf16")).time_s == cost.time_s
    quarters = model.cost(GemmShape((50,) * 4, 300, 1000, "bf16"))
    assert quarters.body_s > cost.body_s
    assert quarters.busy == 1.0


@pytest.mark.parametrize(
    ("rows", "n", "share"),
    [
        ((256,), 256, 1.0),  # four tiles on four units
        ((257,), 256, 257 / 512),  # two more tiles, and a wave of them
        ((128,), 256, 0.5),  # two units idle
        ((64,) * 4, 256, 0.5),  # entries share no tile: eight half empty ones
        ((256,), 200, 200 / 256),
    ],
)
def test_efficiency_of_a_tile_is_the_wanted_part_of_full_waves(rows, n, share) -> None:
    profile = replace(MACHINES["mi300x_8"].profile.gemm, tiles=((128, 128), (256, 16)), splits=(1,))
    grid = TileGrid(profile)
    found = grid.efficiency(grid.columns([GemmShape(rows, n, 64, "bf16")] * 2), 4)
    assert found.shape == (2, 2)
    assert found[:, 0] == pytest.approx(share, rel=1e-12)


@given(shapes(), st.integers(1, 400))
def test_efficiency_is_a_share_whatever_k_is(shape: GemmShape, units: int) -> None:
    for machine in MACHINES.values():
        grid = TileGrid(machine.profile.gemm)
        both = [shape, replace(shape, k=shape.k + 1000)]
        found = grid.efficiency(grid.columns(both), units)
        assert (found > 0).all()
        assert (found <= 1 + CLOSE).all()
        assert (found[0] == found[1]).all()


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_an_unknown_element_type_is_answered_with_the_known_ones(name: str) -> None:
    machine = MACHINES[name]
    rates = {dtype: r for dtype, r in machine.profile.gemm.rates.items() if dtype != "fp8"}
    costs = CostModel(with_profile(machine, gemm={"rates": rates}))
    workload = Workload(name="w", pattern="all_gather_gemm", m=64, n=64, k=64, dtype="fp8")
    expected = f"gpu {machine.gpu.name}: no GEMM rates for 'fp8'; its profile has bf16, fp16, fp32"
    with pytest.raises(MachineError, match=expected):
        costs.whole_gemm(workload)
    with pytest.raises(MachineError, match=expected):
        simulate(make_plan("serial", workload, 8), costs.machine, costs)


# clocks

CLOCKED = load_machine("h200_8")
REFERENCE_HZ = CLOCKED.profile.gemm.sm_clock_hz or math.nan
EXPONENT = CLOCKED.profile.gemm.rates["bf16"].clock_exponent


@given(shapes().map(lambda shape: replace(shape, dtype="bf16")), st.floats(0.5, 1.0))
def test_a_lower_clock_slows_main_loops_only(shape: GemmShape, ratio: float) -> None:
    """By at most the power of the ratio of clocks; start-up and streams keep their time."""
    at_reference, slower = (
        CostModel(CLOCKED, sm_clock_hz=REFERENCE_HZ * r).gemm_model.formula(shape) for r in (1.0, ratio)
    )
    assert slower.startup_s == at_reference.startup_s
    most = ratio**-EXPONENT
    assert (
        at_reference.body_s * (1 - CLOSE) <= slower.body_s <= at_reference.body_s * most * (1 + CLOSE)
    )


def test_a_measured_shape_is_as_measured_at_its_own_clock() -> None:
    """And at another as much longer as the formula says; unless a clock is asked for, as measured."""
    rows = [g for g in CLOCKED.profile.gemm.measured if g.dtype == "bf16"]
    row = max(rows, key=lambda g: g.time_s)
    assert row.sm_clock_hz is not None
    shape = GemmShape((row.m,), row.n, row.k, row.dtype, row.accumulate)
    then = CostModel(CLOCKED, sm_clock_hz=row.sm_clock_hz).gemm_model
    assert then.cost(shape).time_s == pytest.approx(row.time_s)
    assert CostModel(CLOCKED).gemm_model.cost(shape).time_s == pytest.approx(row.time_s)
    slow = CostModel(CLOCKED, sm_clock_hz=row.sm_clock_hz * 0.8).gemm_model
    longer = slow.formula(shape).time_s / then.formula(shape).time_s
    assert 1.05 < longer < 0.8**-EXPONENT
    assert slow.cost(shape).time_s == pytest.approx(row.time_s * longer)


@pytest.mark.parametrize("clock_hz", [0.0, 1.5e3, 1.5e12])
def test_an_impossible_clock_is_refused(clock_hz: float) -> None:
    with pytest.raises(ScenarioError, match="must be within 3 times of the 1"):
        CostModel(CLOCKED, sm_clock_hz=clock_hz)
    with pytest.raises(ScenarioError, match="do not say at which clock they hold"):
        CostModel(MACHINES["mi300x_8"], sm_clock_hz=1.5e9)


# measured shapes


def measured_task(rows: int = 512, *, accumulate: bool = False) -> Gemm:
    return gemm("g", 0, rows, 256, 1024, accumulate=accumulate)


MEASURED = with_measured(MACHINES["h200_8"], (512, 256, 1024, 123e-6))
GEMM_ONLY = Workload(name="g", pattern="gemm", m=512, n=256, k=1024)


def test_a_measured_shape_takes_what_was_measured() -> None:
    costs, formula = CostModel(MEASURED), CostModel(MACHINES["h200_8"])
    assert costs.gemm(measured_task(), GEMM_ONLY).time_s == pytest.approx(123e-6, rel=1e-15)
    assert costs.whole_gemm(GEMM_ONLY).time_s == pytest.approx(123e-6, rel=1e-15)
    plan = hand_plan(1, measured_task(), workload=GEMM_ONLY)
    trace = simulate(plan, replace(MEASURED, num_gpus=1, links=(), switches=()), None)
    assert trace.makespan_s == pytest.approx(123e-6, rel=1e-12)
    # only that shape, plain
    for other in (measured_task(511), measured_task(accumulate=True)):
        assert costs.gemm(other, GEMM_ONLY) == formula.gemm(other, GEMM_ONLY)
    for shape in (
        GemmShape((256, 256), 256, 1024, "bf16"),
        GemmShape((512,), 256, 1024, "fp16"),
        GemmShape((256,), 512, 1024, "bf16"),
    ):
        assert costs.gemm_model.cost(shape) == formula.gemm_model.cost(shape)


def test_fewer_units_slow_a_measured_shape_as_they_slow_the_formula() -> None:
    shape = GemmShape((512,), 256, 1024, "bf16")
    measured, formula = CostModel(MEASURED).gemm_model, GEMM_MODELS["h200_8"]
    slower = measured.cost(shape, 8).body_s / measured.cost(shape).body_s
    assert slower == pytest.approx(formula.cost(shape, 8).body_s / formula.cost(shape).body_s)
    assert slower > 1


@pytest.mark.parametrize("engine", ["dma", "core"])
def test_a_measured_time_below_the_start_up_of_the_formula_is_taken(engine: str) -> None:
    machine = with_measured(machine_of("switch", 2, "h200"), (512, 256, 1024, 1e-6))
    plan = hand_plan(2, measured_task(), transfer("t", 1, 0, 10**6, engine=engine))
    span = simulate(plan, machine).spans[0]
    assert span.duration_s == pytest.approx(1e-6, rel=1e-12)


def test_a_measured_time_faster_than_memory_is_taken() -> None:
    """Operands may sit in a cache; alone, a GEMM takes what was measured whatever HBM could do."""
    machine = with_measured(machine_of("switch", 1, "h200"), (8192, 8192, 256, 20e-6))
    hbm_s = GemmShape((8192,), 8192, 256, "bf16").hbm_bytes / machine.gpu.hbm_bytes_per_s
    assert hbm_s > 20e-6
    trace = simulate(hand_plan(1, gemm("g", 0, 8192, 8192, 256)), machine)
    assert trace.makespan_s == pytest.approx(20e-6, rel=1e-12)


# ideal costs


@examples(60)
@given(cases(kinds=("ideal",), schedules=("serial", "shard-p2p", *FICCO)))
def test_ideal_parts_add_up_to_the_whole(case) -> None:
    machine = case.machine
    costs = case.costs(machine)
    whole_s = costs.whole_gemm(case.workload).time_s
    plan = case.plan
    for gpu in range(case.num_gpus):
        parts = [t for t in plan.tasks if isinstance(t, Gemm) and t.queue.gpu == gpu]
        total_s = sum(costs.gemm(task, case.workload).time_s for task in parts)
        assert total_s == pytest.approx(whole_s, rel=CLOSE)


def test_ideal_costs_have_nothing_but_links_and_whole_gemms() -> None:
    costs = CostModel(MACHINES["mi300x_8"], "ideal", "eager")
    assert costs.submit_s == costs.queue_gap_s == costs.event_wait_s == 0
    assert costs.local_copy_s(10**9) == (0, 0)
    dma = costs.copy("dma", row_bytes=100, strided=False)
    assert (dma.setup_s, dma.completion_s, dma.bytes_per_s) == (0, 0, math.inf)


@examples(30)
@given(cases(kinds=("ideal",), engines=("dma",)))
def test_ideal_copies_are_the_same_by_any_engine(case) -> None:
    machine = case.machine
    costs = case.costs(machine)
    by_core = replace(case, knobs=case.knobs | {"engine": "core"})
    assert simulate(by_core.plan, machine, costs).makespan_s == pytest.approx(
        simulate(case.plan, machine, costs).makespan_s
    )


# copies


def one_copy_s(machine: Machine, nbytes: int, engine: str = "dma") -> float:
    plan = hand_plan(machine.num_gpus, transfer("t", 3, 5, nbytes, engine=engine))
    return simulate(plan, machine).makespan_s


def at_tick_s(end_s: float, copy: CopyProfile) -> float:
    if not copy.tick_s:
        return end_s
    return copy.first_tick_s + copy.tick_s * max(
        math.ceil((end_s - copy.first_tick_s) / copy.tick_s), 0
    )


@pytest.mark.parametrize("nbytes", [1, 4096, 10**6, 10**9])
def test_copies_alone_by_hand(nbytes: int) -> None:
    """Set-up, latency of each link, bytes at the least rate on the way, completion."""
    mi300x, h200 = MACHINES["mi300x_8"], MACHINES["h200_8"]
    assert one_copy_s(mi300x, nbytes) == pytest.approx(3.95e-6 + 0.5e-6 + nbytes / 46.5e9 + 2.4e-6)
    fast = mi300x.with_links(usable_bytes_per_s=100e9)  # one engine moves 48 GB/s
    assert one_copy_s(fast, nbytes) == pytest.approx(3.95e-6 + 0.5e-6 + nbytes / 48e9 + 2.4e-6)
    copy = h200.profile.copy
    rate = min(copy.engine_bytes_per_s, 395.6e9)  # of its links
    end_s = copy.setup_s + 2 * 0.25e-6 + nbytes / rate + copy.completion_s
    # and until its end is known
    assert one_copy_s(h200, nbytes) == pytest.approx(at_tick_s(end_s, copy) + copy.signal_s, rel=1e-9)
    assert one_copy_s(mi300x, nbytes, "core") == pytest.approx(6.5e-6 + 0.5e-6 + nbytes / 46.5e9)
    assert one_copy_s(h200, nbytes, "core") == pytest.approx(
        4.552e-6 + 2 * 0.25e-6 + nbytes / 320.2e9, rel=1e-4
    )


def test_h200_serves_all_copies_into_a_gpu_one_after_another() -> None:
    """56 copies of 4 KiB over 7 streams take 163 us (hw_validate/runs/h200_x2/parts.jsonl.gz)."""
    copies = [
        transfer(f"t{i}.{src}", src, 0, 4096, queue=src - 1) for i in range(8) for src in range(1, 8)
    ]
    trace = simulate(hand_plan(8, *copies), MACHINES["h200_8"])
    assert trace.makespan_s == pytest.approx(163e-6, rel=0.03)
    # and exactly: a command and the bytes of each, changing over to each further queue
    copy = MACHINES["h200_8"].profile.copy
    command_s = copy.setup_s + 2 * 0.25e-6 + copy.completion_s
    busy_s = 56 * (command_s + 4096 / min(copy.engine_bytes_per_s, 395.6e9)) + 6 * copy.queue_s
    assert trace.makespan_s == pytest.approx(at_tick_s(busy_s, copy) + copy.signal_s, rel=1e-9)
    starts = sorted(span.start_s for span in trace.spans)
    assert all(b - a >= command_s for a, b in pairwise(starts))


def test_mi300x_serves_copies_from_all_peers_at_once() -> None:
    copies = [transfer(f"t{src}", src, 0, 10**7, queue=src - 1) for src in range(1, 8)]
    trace = simulate(hand_plan(8, *copies), MACHINES["mi300x_8"])
    assert trace.makespan_s == pytest.approx(one_copy_s(MACHINES["mi300x_8"], 10**7))


LLAMA = Workload(name="l", pattern="all_gather_gemm", m=4096, n=512, k=2048)


@pytest.mark.parametrize("schedule", sorted(FICCO))
@pytest.mark.parametrize("kind", ["profile", "ideal"])
def test_strided_copies_are_labelled_where_the_engine_has_none(schedule: str, kind: str) -> None:
    plan = make_plan(schedule, LLAMA, 8, {"num_chunks": 2})
    for name, machine in MACHINES.items():
        labels = simulate(plan, machine, CostModel(machine, kind)).labels
        strided = schedule.endswith("-2d") and name == "mi300x_8"
        assert labels == (("emulated-2d",) if strided else ())


def test_an_emulated_copy_costs_as_much_as_a_contiguous_one() -> None:
    costs = CostModel(MACHINES["mi300x_8"])
    flat = costs.copy("dma", row_bytes=10**6, strided=False)
    assert replace(costs.copy("dma", row_bytes=16, strided=True), emulated=False) == flat


def test_core_copies_are_never_emulated() -> None:
    plan = make_plan("uniform-fused-2d", LLAMA, 8, {"engine": "core"})
    assert simulate(plan, MACHINES["mi300x_8"]).labels == ()


def test_a_copy_of_whole_rows_or_of_one_row_is_not_strided() -> None:
    """Columns that are all of both buffers, or a single row, lie in one piece."""
    plan = hand_plan(8, transfer("t", 1, 0, 100), transfer("u", 2, 0, 300, queue=1))
    assert simulate(plan, MACHINES["mi300x_8"]).labels == ()
    rows = replace(plan.tasks[0], src=_rows(1, (0, 2)), dst=_rows(0, (0, 2)))
    wide = [replace(b, rows=2, cols=300) if b.name == "row" else b for b in plan.buffers]
    trace = simulate(replace(plan, tasks=(rows,), buffers=tuple(wide)), MACHINES["mi300x_8"])
    assert trace.labels == ("emulated-2d",)


def _rows(gpu: int, rows: tuple[int, int]) -> Region:
    return Region(gpu=gpu, buffer="row", rows=rows, cols=(0, 100))


def test_a_local_copy_reads_and_writes() -> None:
    local = {"startup_s": 2e-6, "bytes_per_s": 3.2e12}
    machine = with_profile(MACHINES["h200_8"], local_copy=local)
    startup_s, body_s = CostModel(machine).local_copy_s(10**9)
    assert startup_s == 2e-6
    assert body_s == pytest.approx(2e9 / 3.2e12)


# submission


@pytest.mark.parametrize(("name", "submit_s"), [("h200_8", 40e-6), ("mi300x_8", 11e-6)])
def test_eager_submission_binds_a_plan_of_many_tasks(name: str, submit_s: float) -> None:
    machine = with_profile(MACHINES[name], launch={"eager_submit_s": submit_s})
    plan = make_plan("hetero-unfused-1d", LLAMA, 8, {"num_chunks": 8})
    tasks_per_gpu = len(plan.tasks) // 8
    assert tasks_per_gpu == 1 + 2 * 7 * 8
    eager = simulate(plan, machine, CostModel(machine, submission="eager"))
    assert eager.makespan_s >= tasks_per_gpu * submit_s
    assert eager.environment == {"costs": "profile", "submission": "eager"}
    for i, span in enumerate(span for span in eager.spans if span.queue.gpu == 3):
        assert span.submitted_s == pytest.approx((i + 1) * submit_s)
        assert span.start_s >= span.submitted_s * (1 - CLOSE)
    graph = simulate(plan, machine)
    assert graph.makespan_s < 0.5 * eager.makespan_s
    assert {span.submitted_s for span in graph.spans} == {0.0}


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("kind", "real", "costs: 'real' must be profile or ideal"),
        ("submission", "lazy", "submission: 'lazy' must be graph or eager"),
    ],
)
def test_unknown_kinds_are_refused(argument: str, value: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        CostModel(MACHINES["h200_8"], **{argument: value})

"""Layer: CPU torch. Microbenchmarks: every set end to end with tiny sizes, shapes, and judgements."""

import math
import weakref
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples, routed

from ficco_sim.errors import ScenarioError
from ficco_sim.plan import Gemm
from ficco_sim.records import Measurement, Sensors, Session, SpanSeries, measurement_key, read_records
from ficco_sim.schedules import FICCO, make_plan
from ficco_sim.units import MIB
from ficco_sim.workload import Workload
from hw_validate import operations
from hw_validate.campaign import run_campaign
from hw_validate.cpu import CpuBackend
from hw_validate.measure import Settings
from hw_validate.microbench import (
    SETS,
    Setup,
    Sizes,
    copies_by_engine,
    engine_findings,
    peer_findings,
    slowdowns,
    suite,
)
from hw_validate.microbench.bench import Bench, needed_bytes
from hw_validate.microbench.case import MAX_CASES, grouped
from hw_validate.microbench.contention import contention_cases, covered_s
from hw_validate.microbench.gemms import GemmWork, gemm_cases
from hw_validate.microbench.setup import default_directions, parse_direction
from hw_validate.microbench.shapes import GemmShape, off_grid, pieces_of, plans_of, shapes_of
from hw_validate.peaks import Peaks
from hw_validate.program import Run
from hw_validate.recorder import Recorder

WORKLOAD = Workload(name="tiny", pattern="all_gather_gemm", m=32, n=8, k=16)
TINY = Sizes(
    copy_bytes=(64, 1024),
    strided_bytes=(1024,),
    row_bytes=(64, 128),
    counts=(1, 4),
    count_bytes=(256,),
    streams=(1, 2),
    core_bytes=(512,),
    blocks=(1, 4),
    local_bytes=(512, 2048),
    local_pieces=(1, 3),
    local_row_bytes=(64,),
    random_shapes=0,
    queued_gemms=3,
    large_gemm=(32, 32, 32),
    contention_pieces=1,
    contention_s=1e-5,
    contention_bytes=4096,
    contention_blocks=(2,),
    chain=Workload(name="chain", pattern="all_gather_gemm", m=16, n=4, k=8),
    kernels=(2, 5),
)
SETUP = Setup(
    workloads=(WORKLOAD,),
    num_gpus=4,
    num_chunks=(2,),
    devices=(0, 1),
    budget_bytes=4 * MIB,
    sizes=TINY,
)
QUICK = Settings(rounds=2, warm_up=0)
SESSION = Session(
    session="test",
    started="2025-01-31T12:00:00Z",
    regime="burst",
    init="randn",
    command="test",
    environment={},
)
UNKNOWN = Sensors(sm_clock_hz=None, power_w=None, temperature_c=None)


def run(groups, path, backend=None, *, resume=False):
    with Recorder.open(path, SESSION, resume=resume) as recorder:
        return run_campaign(
            groups, backend or CpuBackend(), QUICK, recorder, read_sensors=lambda: UNKNOWN
        )


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("devices", [(0,), (0, 1)])
def test_every_set_runs_and_gives_the_keys_that_it_announced(name, devices, tmp_path):
    groups = suite([name], replace(SETUP, devices=devices))
    outcome = run(groups, tmp_path / "out.jsonl")
    announced = [key for group in groups for key in group.keys]
    assert len(set(announced)) == len(announced)
    assert [m.key for m in outcome.measured] == announced
    assert all(m.usable and len(m.samples_s) == QUICK.rounds for m in outcome.measured)
    assert all(0 < len(group.keys) <= MAX_CASES and group.estimate_s > 0 for group in groups)
    written = read_records(tmp_path / "out.jsonl.part").measurements
    assert [m.key for m in written] == announced


def test_all_sets_together_have_unique_keys_and_distinct_params():
    setup = replace(SETUP, workloads=(WORKLOAD, replace(WORKLOAD, name="same")), sizes=Sizes())
    keys = [key for group in suite(SETS, setup) for key in group.keys]
    assert len(set(keys)) == len(keys)


def test_a_resumed_run_leaves_out_what_is_there(tmp_path):
    groups = suite(["gemm", "local"], SETUP)
    first = run(groups[:1], tmp_path / "out.jsonl")
    second = run(groups, tmp_path / "out.jsonl", resume=True)
    assert second.resumed == 1
    assert not {m.key for m in first.measured} & {m.key for m in second.measured}
    assert len(groups) > 1


def test_lanes_run_beside_each_other_as_well(tmp_path):
    groups = suite(["contention", "gemms", "launch"], SETUP)
    assert run(groups, tmp_path / "out.jsonl", CpuBackend(threads=True)).measured


def test_zeros_and_other_types_are_other_cases(tmp_path):
    base = {key for group in suite(["gemm"], SETUP) for key in group.keys}
    for changed in (
        replace(SETUP, init="zeros"),
        replace(SETUP, dtypes=("fp32",)),
        replace(SETUP, devices=(1,)),
    ):
        assert not base & {key for group in suite(["gemm"], changed) for key in group.keys}


def test_what_torch_cannot_multiply_in_fp8_is_recorded_as_unusable(tmp_path):
    setup = replace(SETUP, dtypes=("fp8",), workloads=(replace(WORKLOAD, n=16, k=64),))
    measured = run(suite(["gemm"], setup), tmp_path / "out.jsonl").measured
    for m in measured:
        fits = not m.params["accumulate"] and m.params["k"] % 16 == 0
        assert m.usable == fits
        assert m.usable or "fp8" in m.unusable[0]
    assert {m.usable for m in measured} == {True, False}


def test_faster_than_the_peak_is_refused(tmp_path):
    peaks = Peaks(name="slow", flops_per_s={"bf16": 1.0})
    measured = run(suite(["gemm"], replace(SETUP, peaks=peaks)), tmp_path / "out.jsonl").measured
    assert all("above the peak" in m.unusable[0] for m in measured)


def test_a_suite_refuses_what_it_does_not_know():
    with pytest.raises(ScenarioError, match="nonsense"):
        suite(["nonsense"], SETUP)
    with pytest.raises(ScenarioError, match="give a workload"):
        suite(["gemms"], replace(SETUP, workloads=()))
    with pytest.raises(ScenarioError, match="device 3"):
        replace(SETUP, directions=("dev3>dev0",))
    for text in ("dev0", "host>host", "a>b", "dev0>dev1+dev1>dev0+dev0>dev1"):
        with pytest.raises(ScenarioError, match="--directions"):
            parse_direction(text)


@given(
    m=st.integers(1, 70),
    k=st.integers(1, 20),
    gpus=st.integers(1, 5),
    chunks=st.integers(1, 5),
    exchange=st.booleans(),
)
@examples(60)
def test_pieces_are_exactly_the_gemms_of_the_plans(m, k, gpus, chunks, exchange):
    workload = Workload(name="drawn", pattern="all_gather_gemm", m=m, n=3, k=k)
    if exchange:
        workload = routed(workload, gpus, "all_to_all_gemm")
    listed = set(shapes_of(workload, gpus, [chunks]))
    for plan in plans_of(workload, gpus, [chunks]):
        sizes = {(b.gpu, b.name): (b.rows, b.cols) for b in plan.buffers}
        tensors = {key: torch.empty(size) for key, size in sizes.items()}
        for task in [task for task in plan.tasks if isinstance(task, Gemm)]:
            found = pieces_of(replace(plan, tasks=(task,)), task.queue.gpu)
            assert {shape.m for shape in found} == set(task.entry_rows)
            assert {(shape.k, shape.n) for shape in found} == {task.b.shape}
            assert {shape.accumulate for shape in found} == {task.accumulate}
            for shape in found:
                assert shape.a_pitch in {sizes[a.gpu, a.buffer][1] for a in task.a} | {shape.k}
            entries = [
                (view(tensors, a), view(tensors, c)) for a, c in zip(task.a, task.c, strict=True)
            ]
            calls = operations.num_kernels(entries)
            assert len(found) <= calls
            if calls == 1:  # what the executor makes one call of is one piece
                assert [shape.flops for shape in found] == [task.flops]
        if plan.schedule in FICCO and not exchange:
            assert set(pieces_of(plan, 0)) <= listed
    assert max(shape.flops for shape in listed) == workload.flops


def view(tensors, region):
    return tensors[region.gpu, region.buffer][slice(*region.rows), slice(*region.cols)]


def test_pieces_of_an_even_operator_are_the_expected_ones():
    plan = make_plan("uniform-batched-1d", WORKLOAD, 4, {"num_chunks": 2})
    assert pieces_of(plan, 0) == [GemmShape(m=4, n=8, k=16, entries=4, apart=8)]
    plan = make_plan("hetero-unfused-2d", WORKLOAD, 4, {"num_chunks": 2})
    assert set(pieces_of(plan, 0)) == {
        GemmShape(m=8, n=8, k=16),
        GemmShape(m=8, n=8, k=8, a_pitch=16),
        GemmShape(m=8, n=8, k=8, a_pitch=16, accumulate=True),
    }


def test_shapes_off_the_grid_are_the_same_every_time_and_in_range():
    shapes = off_grid(3, 30)
    assert shapes == off_grid(3, 30) != off_grid(4, 30)
    assert GemmShape(m=448, n=7168, k=16384) in shapes
    assert all(shape.flops <= 8e12 for shape in shapes[-30:])
    assert {shape.m for shape in shapes} >= {1, 64}


@given(
    m=st.integers(1, 9),
    entries=st.integers(1, 4),
    gap=st.integers(0, 12),
    repeats=st.integers(1, 5),
    pitch=st.integers(0, 3),
    accumulate=st.booleans(),
)
@examples(60)
def test_repeats_multiply_their_own_rows(m, entries, gap, repeats, pitch, accumulate):
    shape = GemmShape(
        m=m, n=3, k=4, entries=entries, apart=m + gap, a_pitch=4 + pitch, accumulate=accumulate
    )
    work = GemmWork(shape=shape, dtype="fp32", repeats=repeats, setup=SETUP)
    bench = Bench(CpuBackend(), work.needs, seed=1)
    a, b, c = (bench.take(slot, 0, 1, count)[0] for slot, count in work.needs.items())
    for launch in work.launches(bench):
        launch(0)
    # A is as random as B; every row of C that was written belongs to one repeat only
    rows = c.view(-1, 3)
    products = torch.as_strided(a, (len(rows), 4), (shape.a_pitch, 1)) @ b.view(4, 3)
    written = (rows != 0).any(dim=1)
    assert int(written.sum()) == repeats * entries * m
    torch.testing.assert_close(rows[written], products[written])


@given(budget=st.integers(20_000, 300_000), sets=st.sampled_from(["gemm", "contention"]))
@examples(30)
def test_no_group_takes_more_than_its_budget(budget, sets):
    taken = {}

    class Counting(CpuBackend):
        def empty(self, place, rows, cols, kind, *, transposed):
            taken[place] = taken.get(place, 0) + rows * cols * kind.itemsize
            return super().empty(place, rows, cols, kind, transposed=transposed)

    setup = replace(SETUP, budget_bytes=budget)
    cases = {"gemm": gemm_cases, "contention": contention_cases}[sets](setup)
    for name, members in cases:
        for group in grouped(name, [replace(c, build=no_build) for c in members], setup):
            taken.clear()
            with group.open(Counting()) as subjects:
                assert all(count <= budget for count in taken.values())
                assert [s.key for s in subjects] == list(group.keys)


def test_a_closed_group_holds_no_memory():
    made = []

    class Watched(CpuBackend):
        def empty(self, place, rows, cols, kind, *, transposed):
            tensor = super().empty(place, rows, cols, kind, transposed=transposed)
            made.append(weakref.ref(tensor.untyped_storage()))
            return tensor

    for group in suite(SETS, SETUP):
        made.clear()
        with group.open(Watched()) as subjects:
            assert subjects
            assert all(storage() for storage in made)
        assert made
        assert not any(storage() for storage in made), group.name
        assert not subjects  # on a gpu what was prepared keeps the memory


def no_build(_):
    from hw_validate.microbench.case import Built

    return Built()


def test_a_case_beyond_the_budget_is_recorded_as_unusable(tmp_path):
    setup = replace(SETUP, budget_bytes=1500)
    measured = run(suite(["gemm"], setup), tmp_path / "out.jsonl").measured
    assert {m.usable for m in measured} == {True, False}
    assert all("the budget is 1.5 KiB" in m.unusable[0] for m in measured if not m.usable)


@given(budget=st.integers(1, 10**9), m=st.integers(1, 4096), least_s=st.floats(1e-6, 1e-2))
@examples(50)
def test_repeats_follow_time_and_memory(budget, m, least_s):
    setup = replace(SETUP, budget_bytes=budget)
    work = GemmWork.of(GemmShape(m=m, n=512, k=512), "bf16", setup, least_s)
    assert work.repeats == 1 or work.nbytes <= budget
    assert work.repeats <= 64
    assert sum(needed_bytes(work.needs).values()) == work.nbytes


def test_directions_without_a_peer_are_those_of_host_and_device():
    assert default_directions((2,)) == ("host>dev2", "dev2>host", "host>dev2+dev2>host", "dev2>dev2")
    assert "dev3>dev2+dev2>dev3" in default_directions((2, 3))


def contention(role, sequence, *, gemm=None, copy=None, covered=1.0, apart=False, **params):
    told = {"m": 8192, "n": 8192, "k": 8192, "entries": 1, "repeats": 1, "family": "host"}
    told |= dict.fromkeys(COPY)
    if role != "gemm":
        told |= {**COPY, **params}
    told["role"] = role
    series, spans = {}, None
    if gemm is not None:
        series["gemm_s"] = (gemm,)
    if copy is not None:
        series["copy_s"] = (copy,)
    if role == "both":
        series["covered_s"] = (covered * gemm,)
        late = gemm if apart else 0
        ends = [round(1e9 * t) for t in (gemm, late + gemm)]
        spans = SpanSeries(
            task_ids=("gemm", "copy_s.0"), start_ns=(0, round(1e9 * late)), end_ns=tuple(ends)
        )
    return Measurement(
        kind="contention",
        key=measurement_key("contention", told),
        params=told,
        samples_s=(gemm or copy,),
        series=series,
        spans=spans,
        before=UNKNOWN,
        after=UNKNOWN,
        sequence=sequence,
        session="s",
    )


COPY = {
    "direction": "host>dev0",
    "src": "host",
    "dst": "dev0",
    "engine": "dma",
    "blocks": None,
    "nbytes": 16 * MIB,
    "rows": 1,
    "row_bytes": 16 * MIB,
    "pitch": 16 * MIB,
    "dst_pitch": 16 * MIB,
}


def test_slowdowns_are_ratios_to_what_was_measured_alone_closest_in_time():
    (found,) = slowdowns(
        [
            contention("gemm", 0, gemm=9e-3),
            contention("gemm", 4, gemm=2e-3),
            contention("copy", 5, copy=1e-3),
            contention("both", 6, gemm=2.1e-3, copy=1.2e-3),
        ]
    )
    assert found.gemm == pytest.approx(1.05)
    assert found.copy == pytest.approx(1.2)
    assert found.back is None
    assert found.covered == 1
    assert not found.findings


def test_no_slowdown_comes_from_what_ran_one_after_the_other():
    (found,) = slowdowns(
        [
            contention("gemm", 0, gemm=2e-3),
            contention("copy", 1, copy=1e-3),
            contention("both", 2, gemm=2e-3, copy=1e-3, covered=0, apart=True),
        ]
    )
    assert found.gemm is found.copy is None
    assert any("serialised" in f.text and f.severity == "refuse" for f in found.findings)
    (finding,) = engine_findings([found])
    assert "not known" in finding.text


def test_a_gemm_that_copies_cover_in_part_is_warned_of():
    (found,) = slowdowns(
        [
            contention("gemm", 0, gemm=2e-3),
            contention("copy", 1, copy=1e-3),
            contention("both", 2, gemm=2e-3, copy=1e-3, covered=0.5),
        ]
    )
    assert found.gemm == 1
    assert [f.severity for f in found.findings] == ["warn"]


def test_a_slowdown_needs_both_alone():
    (found,) = slowdowns([contention("both", 2, gemm=2e-3, copy=1e-3)])
    assert found.gemm is found.copy is None
    assert len(found.findings) == 2


def test_cpu_runs_one_after_the_other_and_the_records_say_so(tmp_path):
    measured = run(suite(["contention"], SETUP), tmp_path / "out.jsonl").measured
    both = [m for m in measured if m.params["role"] == "both"]
    assert both
    assert all(any("cover 0%" in text for text in m.warnings) for m in both)
    found = slowdowns(measured)
    assert len(found) == len(both)
    assert all(s.gemm is None and s.copy is None and s.covered == 0 for s in found)


def test_cover_is_that_of_the_direction_that_covers_least():
    spans = {"gemm": (0.0, 4.0), "copy_s.0": (0.0, 3.0), "copy_s.1": (3.0, 5.0), "back_s.0": (1.0, 2.0)}
    assert covered_s(Run(makespan_s=5.0, host_s=0.0, spans=spans)) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("copy_s", "gemm_s", "by_engine"),
    [(4.84e-3, 2.05e-3, True), (5 * 4.84e-3, 2.0e-3, False), (4.84e-3, 2.4e-3, False)],
)
def test_copies_that_do_not_slow_are_by_an_engine(copy_s, gemm_s, by_engine):
    found = slowdowns(
        [
            contention("gemm", 0, gemm=2e-3),
            contention("copy", 1, copy=4.84e-3),
            contention("both", 2, gemm=gemm_s, copy=copy_s),
        ]
    )
    assert [f.severity for f in engine_findings(found)] == ([] if by_engine else ["refuse"])


def test_copies_within_a_device_are_only_warned_of():
    assert [f.severity for f in copies_by_engine(1.0, 5.0, "dev0>dev0", claimed=False)] == ["warn"]


def copied(direction, bytes_per_s, nbytes=64 * MIB):
    params = {"direction": direction, "engine": "dma", "nbytes": nbytes, "count": 1}
    return Measurement(
        kind="copy",
        key=measurement_key("copy", params),
        params=params,
        samples_s=(nbytes / bytes_per_s,),
        before=UNKNOWN,
        after=UNKNOWN,
        sequence=0,
    )


@pytest.mark.parametrize(
    ("rate", "link", "severities"),
    [
        (390e9, 450e9, []),
        (50e9, 450e9, ["refuse"]),
        (390e9, None, []),
        (50e9, None, ["warn"]),
    ],
)
def test_peer_copies_must_be_faster_than_through_the_host(rate, link, severities):
    records = [
        copied("host>dev0", 55e9),
        copied("dev1>dev0", rate),
        copied("dev1>dev0", 1e9, nbytes=4096),  # latency, not a rate
    ]
    assert [f.severity for f in peer_findings(records, link)] == severities


def test_nothing_is_said_of_peers_that_were_not_measured():
    assert peer_findings([copied("host>dev0", 55e9)]) == []
    assert math.isclose(len(peer_findings([copied("dev1>dev0", 55e9)])), 1)

"""Layer: library. Fits of copies, launches and contention: synthetic truth, and the H200's records."""

import functools
import math
import statistics
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ficco_sim.calibrate.contention import beside, fit_contention
from ficco_sim.calibrate.copies import (
    CopyTime,
    copy_times,
    count_engines,
    default_direction,
    fit_copies,
)
from ficco_sim.calibrate.core import collective_times, fit_core
from ficco_sim.calibrate.launch import event_pair_s, fit_launch
from ficco_sim.calibrate.local import fit_local
from ficco_sim.calibrate.robust import (
    NotFitted,
    Parameter,
    Provenance,
    draws,
    errors_of,
    fit,
    held_out_errors,
    held_out_predictions,
)
from ficco_sim.calibrate.side_by_side import side_by_side, side_by_side_errors
from ficco_sim.costs import CostModel
from ficco_sim.machine import load_machine
from ficco_sim.plan import Buffer, Plan, Queue, Region, Transfer
from ficco_sim.readers.logs.types import CollectivePoint, CopyPoint
from ficco_sim.records import Measurement, Sensors, measurement_key, read_records
from ficco_sim.sim import simulate
from ficco_sim.workload import Workload

RUNS = Path(__file__).parents[1] / "hw_validate" / "runs" / "h200"
SENSORS = Sensors(sm_clock_hz=None, power_w=None, temperature_c=None)
NOISE = 0.01
OUTLIERS = 0.1
SEEDS = range(200)
LEVEL = (0.05, 0.95)
STATED = 0.9

MACHINE = load_machine("h200_2")
PROFILE = MACHINE.profile
HBM = MACHINE.gpu.hbm_bytes_per_s


def measured(kind, params, time_s, sequence=0, **more):
    return Measurement(
        kind=kind,
        key=measurement_key(kind, params),
        params=params,
        samples_s=(time_s,) * 3,
        before=SENSORS,
        after=SENSORS,
        sequence=sequence,
        **more,
    )


class Noise:
    """A factor on a time: a little noise, and one time in ten a bad one."""

    def __init__(self, seed, noise=NOISE, outliers=OUTLIERS):
        self.rng = np.random.default_rng(seed)
        self.noise = noise
        self.outliers = outliers

    def __call__(self, time_s):
        factor = math.exp(self.rng.normal(0, self.noise))
        if self.rng.random() < self.outliers:
            factor *= self.rng.uniform(1.2, 2.0)
        return time_s * factor


def exact(time_s):
    return time_s


def events(time_s=1.3e-6):
    return measured("launch", {"what": "events", "count": 1}, time_s)


def dma(nbytes, time_s, direction="dev1>dev0", rows=1, count=1, streams=1, pitch=None, **more):
    row_bytes = nbytes // rows
    params = {
        "direction": direction, "engine": "dma", "nbytes": nbytes, "rows": rows,
        "row_bytes": row_bytes, "pitch": pitch or row_bytes, "dst_pitch": row_bytes,
        "count": count, "streams": streams, "blocks": None,
    }  # fmt: skip
    return measured("copy", params, time_s, **more)


def made_copies(
    noise,
    *,
    fixed_s=3e-6,
    rate=50e9,
    row_bytes=400.0,
    gap_share=0.05,
    event_s=1.3e-6,
    signal_s=0.0,
    queue_s=0.0,
    tick_s=0.0,
    first_tick_s=0.0,
):
    """Copies over sizes, one after another, and by rows."""

    def known_s(end_s):
        if tick_s:
            end_s = first_tick_s + tick_s * max(0, math.ceil((end_s - first_tick_s) / tick_s))
        return end_s + signal_s

    found = [events(event_s)]
    found += [dma(2**p, event_s + noise(known_s(fixed_s + 2**p / rate))) for p in range(12, 29)]
    for count in (8, 56):
        for nbytes in (2**12, 2**16, 2**20):
            total_s = noise(known_s(count * (fixed_s + nbytes / rate)))
            found.append(dma(nbytes, event_s + total_s, count=count))
    for count in (8, 56):
        for nbytes, streams in ((2**12, 4), (2**12, 7), (2**20, 4), (2**20, 7)):
            opened_s = noise(queue_s) * (streams - 1)
            if tick_s:
                total_s = noise(known_s(count * (fixed_s + nbytes / rate) + opened_s))
            else:
                total_s = noise(known_s(count * (fixed_s + nbytes / rate))) + opened_s
            found.append(dma(nbytes, event_s + total_s, count=count, streams=streams))
    for row in (512, 1024, 2048, 4096, 8192):
        for nbytes, apart in ((2**20, 2), (2**22, 2), (2**24, 4), (2**22, 8), (2**24, 8)):
            lost = row_bytes + gap_share * (apart - 1) * row
            time_s = event_s + noise(known_s(fixed_s + nbytes / rate * (1 + lost / row)))
            found.append(dma(nbytes, time_s, rows=nbytes // row, pitch=apart * row))
    return found


def made_local(noise, *, startup_s=4e-6, rate=4e12, event_s=1.3e-6):
    found = [events(event_s)]
    for power in range(16, 29):
        for pieces, repeats in ((1, 10), (8, 1)):
            params = {"nbytes": 2**power, "pieces": pieces, "repeats": repeats}
            time_s = noise(startup_s + 2 * 2**power / rate) + event_s / repeats
            found.append(measured("local_copy", params, time_s))
    return found


def made_core(noise, *, setup_s=5e-6, link=50e9, block=12e9):
    found = [events()]
    for blocks in (1, 2, 4, 8, 16, 32):
        rate = ((blocks * block) ** -4 + link**-4) ** -0.25
        for power in (18, 20, 22, 24, 26):
            params = {
                "direction": "dev1>dev0", "engine": "core", "nbytes": 2**power, "blocks": blocks,
            }  # fmt: skip
            found.append(measured("copy", params, 1.3e-6 + noise(setup_s + 2**power / rate)))
    return found


def made_contention(noise, *, dma_in=0.8, dma_out=0.4, copy_slower=1.0, engine="dma", blocks=None):
    """Shapes beside copies in, out and both ways, as the harness records them."""
    found = []
    sequence = 0
    for m in (128, 256, 512, 1024, 2048, 4096, 8192):
        work = {
            "m": m, "n": 4096, "k": 8192, "dtype": "bf16", "entries": 1, "apart": m, "a_pitch": 8192,
            "accumulate": False, "repeats": 4, "init": "randn", "device": "dev0", "family": "peer",
        }  # fmt: skip
        none = dict.fromkeys(("direction", "engine", "blocks", "nbytes"))
        alone_s = 1e-7 * m
        found.append(
            measured(
                "contention", {**work, **none, "role": "gemm"}, alone_s, sequence,
                series={"gemm_s": (alone_s,)},
            )
        )  # fmt: skip
        for direction in ("dev1>dev0", "dev0>dev1", "dev1>dev0+dev0>dev1"):
            sequence += 1
            copies = {"direction": direction, "engine": engine, "blocks": blocks, "nbytes": 2**24}
            copy_s = 2**24 / 400e9
            x = 400e9 / copy_slower / HBM
            into, out_of = direction.count(">dev0"), direction.count(">dev1")
            both_s = noise(alone_s * (1 + dma_in * x * into + dma_out * x * out_of))
            names = ("copy_s", "back_s")[: direction.count(">")]
            found += [
                measured(
                    "contention", {**work, **copies, "role": "copy"}, copy_s, sequence,
                    series=dict.fromkeys(names, (copy_s,)),
                ),
                measured(
                    "contention", {**work, **copies, "role": "both"}, both_s, sequence,
                    series={
                        **dict.fromkeys(names, (copy_s * copy_slower,)),
                        "gemm_s": (both_s,),
                        "covered_s": (4 * both_s,),
                    },
                ),
            ]  # fmt: skip
    return found


def made_launch(noise, *, kernel_s=2e-6, copy_s=2.5e-6, wait_s=0.6e-6, eager_s=40e-6):
    chains = {
        "queue": ({}, kernel_s),
        "wait": ({"between": "dev0>dev0"}, kernel_s + wait_s),
        "empty_copy": ({"direction": "host>dev0"}, copy_s),
        "wait_for_copy": ({"direction": "host>dev0"}, copy_s + kernel_s + 2 * wait_s),
    }
    found = [events()]
    for what, (params, time_s) in chains.items():
        for count in (8, 64):
            # chains take a while to start: short ones say too much
            samples = tuple(noise(time_s + 8e-6 / count * (count == 8)) for _ in range(8))
            one = measured("launch", {"what": what, "count": count, **params}, time_s)
            found.append(replace(one, samples_s=samples))
    for mode, per_step_s in (("graph", 2e-6), ("eager", eager_s)):
        found.append(
            measured(
                "launch", {"what": "submission", "mode": mode, "count": 50}, 1e-3,
                series={"host_per_step_s": tuple(noise(per_step_s) for _ in range(8))},
            )
        )  # fmt: skip
    return found


def fixed_of(found):
    return found.values.setup_s + found.values.completion_s


def fixed_samples(found):
    setup, completion = found.fit.samples["setup_s"], found.fit.samples["completion_s"]
    return [a + b for a, b in zip(setup, completion, strict=True)]


GROUPS = {
    "copies": (
        partial(made_copies, signal_s=5e-6, queue_s=4e-6),
        lambda data: fit_copies(data, "dev1>dev0", PROFILE.copy),
        {
            "fixed": (3e-6, fixed_of, fixed_samples),
            "engine_bytes_per_s": (50e9, None, None),
            "signal_s": (5e-6, None, None),
            "queue_s": (4e-6, None, None),
            "row_overhead_bytes": (400.0, None, None),
            "gap_share": (0.05, None, None),
        },
    ),
    "local": (
        made_local,
        fit_local,
        {"startup_s": (4e-6, None, None), "bytes_per_s": (4e12, None, None)},
    ),
    "core": (
        made_core,
        lambda data: fit_core(data, "dev1>dev0", replace(PROFILE.core_copy, compute_units=16)),
        {"setup_s": (5e-6, None, None), "bytes_per_s": ((192e9**-4 + 50e9**-4) ** -0.25, None, None)},
    ),
    "contention": (
        made_contention,
        lambda data: fit_contention(data, HBM, PROFILE.contention),
        {"dma_in": (0.8, None, None), "dma_out": (0.4, None, None)},
    ),
    "launch": (
        made_launch,
        lambda data: fit_launch(data, PROFILE.launch),
        {"event_wait_s": (0.6e-6, None, None), "eager_submit_s": (40e-6, None, None)},
    ),
}
CASES = [(group, name) for group, (_, _, truths) in GROUPS.items() for name in truths]


@functools.cache
def fits_of(group):
    make, fit_group, _ = GROUPS[group]
    return [fit_group(make(Noise(seed))) for seed in SEEDS]


def value_and_samples(found, name, getters):
    value, samples = getters
    if value is None:
        return getattr(found.values, name), found.fit.samples[name]
    return value(found), samples(found)


@pytest.mark.parametrize(("group", "name"), CASES)
def test_known_parameters_lie_within_their_intervals_about_as_often_as_stated(group, name):
    truth, *getters = GROUPS[group][2][name]
    inside, ratios = 0, []
    for found in fits_of(group):
        value, samples = value_and_samples(found, name, getters)
        least, most = np.quantile(samples, LEVEL)
        inside += least <= truth <= most
        ratios.append(value / truth)
    assert inside / len(SEEDS) == pytest.approx(STATED, abs=0.1)
    assert statistics.median(ratios) == pytest.approx(1, abs=0.06)


@pytest.mark.parametrize("group", GROUPS)
def test_exact_measurements_give_the_parameters_back(group):
    make, fit_group, truths = GROUPS[group]
    found = fit_group(make(exact))
    for name, (truth, *getters) in truths.items():
        value, _ = value_and_samples(found, name, getters)
        # a starting time of 8 us in 64 links of a chain is all that is left
        assert value == pytest.approx(truth, rel=1e-3)
    assert found.fit.mean_error < 1e-3


@pytest.mark.parametrize("group", GROUPS)
def test_fits_tell_points_ranges_draws_and_where_they_are_from(group):
    make, fit_group, _ = GROUPS[group]
    found = fit_group(make(Noise(1)))
    assert found.fit.num_samples == 32
    assert found.fit.num_points >= 5
    assert all(least <= most for least, most in found.fit.valid.values())
    assert (found.fit.date, found.fit.sources) == ("", ())
    assert found == fit_group(make(Noise(1)))
    where = Provenance(date="2026-11-30", regime="burst", device="d", driver="v", library="l")
    assert fit_local(made_local(exact), where).fit.date == "2026-11-30"


@settings(max_examples=10, deadline=None)
@given(
    fixed_s=st.floats(1e-7, 1e-4),
    rate=st.floats(1e9, 1e12),
    seed=st.integers(0, 999),
)
def test_copies_of_any_machine_are_found_again(fixed_s, rate, seed):
    found = fit_copies(
        made_copies(Noise(seed, outliers=0.0), fixed_s=fixed_s, rate=rate), "dev1>dev0", PROFILE.copy
    )
    for nbytes in (2**12, 2**20, 2**28):
        told = fixed_of(found) + nbytes / found.values.engine_bytes_per_s
        assert told == pytest.approx(fixed_s + nbytes / rate, rel=0.05)
    least, most = min(found.fit.samples["row_overhead_bytes"]), max(found.fit.samples["setup_s"])
    assert least >= 0
    assert most < 1e-3


# what the simulator makes of them


def copies_plan(count, rows, cols, buffer_cols):
    """Transfers one after another on one queue of gpu 0."""

    def at(gpu, i):
        region = (i * rows, (i + 1) * rows)
        return Region(gpu=gpu, buffer="a", rows=region, cols=(0, cols))

    queue = Queue(gpu=0, engine="dma", index=0)
    return Plan(
        schedule="copies",
        knobs={},
        workload=Workload(name="w", pattern="all_gather", m=count * rows, n=1, k=buffer_cols),
        num_gpus=2,
        buffers=tuple(
            Buffer(gpu=gpu, name="a", rows=count * rows, cols=buffer_cols, dtype="bf16")
            for gpu in (0, 1)
        ),
        inputs=(),
        outputs=(),
        tasks=tuple(
            Transfer(id=f"t{i}", queue=queue, src=at(1, i), dst=at(0, i)) for i in range(count)
        ),
    )  # fmt: skip


@pytest.mark.parametrize("latency_s", [0.0, 0.5e-6, 1e-3])
def test_the_simulator_takes_as_long_as_was_measured(latency_s):
    data = made_copies(exact, fixed_s=3e-6, rate=50e9, row_bytes=400.0)
    found = fit_copies(data, "dev1>dev0", PROFILE.copy, latency_s=latency_s)
    links = tuple(
        replace(link, latency_s=latency_s / 2 if MACHINE.switches else latency_s)
        for link in MACHINE.links
    )
    machine = replace(MACHINE, profile=replace(PROFILE, copy=found.values), links=links)

    def simulated_s(*shape):
        return max(span.end_s for span in simulate(copies_plan(*shape), machine).spans)

    fixed_s = max(3e-6, latency_s)  # no set-up takes less than none
    for rows in (16, 4096):
        nbytes = rows * 4096
        alone_s = fixed_s + nbytes / 50e9
        assert simulated_s(1, rows, 2048, 2048) == pytest.approx(alone_s, rel=2e-3)
        assert simulated_s(56, rows, 2048, 2048) == pytest.approx(56 * alone_s, rel=2e-3)
        strided_s = fixed_s + nbytes / 50e9 * (1 + (400 + 0.05 * 4096) / 4096)
        assert simulated_s(1, rows, 2048, 4096) == pytest.approx(strided_s, rel=2e-3)


LADDERS = [
    {"fixed_s": 2.4e-6, "rate": 395e9, "signal_s": 6.7e-6, "tick_s": 9.2e-6, "first_tick_s": 3.5e-6},
    {"fixed_s": 4e-6, "rate": 200e9, "signal_s": 2e-6, "tick_s": 20e-6, "first_tick_s": 15e-6},
    {"fixed_s": 1e-6, "rate": 50e9, "signal_s": 3e-6, "tick_s": 15e-6, "first_tick_s": 2e-6},
]


@pytest.mark.parametrize("truth", LADDERS, ids=("nvlink", "late", "slow"))
@pytest.mark.parametrize("seed", range(3))
def test_ticks_are_found_as_closely_as_the_points_tell(truth, seed):
    noise = Noise(seed, noise=1e-3, outliers=0.0)
    data = made_copies(noise, queue_s=3e-6, row_bytes=50.0, **truth)
    found = fit_copies(data, "dev1>dev0", PROFILE.copy)
    copy, samples = found.values, found.fit.samples
    assert copy.tick_s == pytest.approx(truth["tick_s"], rel=2e-3)
    lead_s = truth["first_tick_s"] + truth["signal_s"]
    assert copy.first_tick_s + copy.signal_s == pytest.approx(lead_s, rel=2e-3)
    assert copy.first_tick_s == pytest.approx(truth["first_tick_s"], abs=0.1 * truth["tick_s"])
    assert copy.engine_bytes_per_s == pytest.approx(truth["rate"], rel=0.02)
    assert fixed_of(found) == pytest.approx(truth["fixed_s"], rel=0.1)
    first = samples["first_tick_s"]
    assert min(first) <= copy.first_tick_s <= max(first)
    assert min(samples["engine_bytes_per_s"]) < copy.engine_bytes_per_s
    assert copy.queue_s == pytest.approx(3e-6, abs=truth["tick_s"] / 6)
    assert copy.row_overhead_bytes == pytest.approx(50, abs=25)
    assert min(samples["row_overhead_bytes"]) < 50 < max(samples["row_overhead_bytes"])
    # without ticks none are found
    plain = made_copies(noise, **truth | {"tick_s": 0.0, "first_tick_s": 0.0})
    without = fit_copies(plain, "dev1>dev0", PROFILE.copy).values
    assert (without.tick_s, without.first_tick_s) == (0, 0)


@pytest.mark.parametrize("latency_s", [0.0, 0.5e-6])
def test_the_simulator_climbs_the_ladder_that_was_measured(latency_s):
    data = made_copies(exact, **LADDERS[0])
    found = fit_copies(data, "dev1>dev0", PROFILE.copy, latency_s=latency_s)
    fast = {"usable_bytes_per_s": 450e9, "latency_s": latency_s / 2}
    links = tuple(replace(link, **fast) for link in MACHINE.links)
    machine = replace(MACHINE, profile=replace(PROFILE, copy=found.values), links=links)
    by_shape = {(m.params["count"], m.params["nbytes"]): m.median_s - 1.3e-6 for m in data
                if m.kind == "copy" and m.params["streams"] == m.params["rows"] == 1}  # fmt: skip
    for (count, nbytes), time_s in by_shape.items():
        if nbytes >= 8192:  # a row of the plan
            plan = copies_plan(count, nbytes // 8192, 4096, 4096)
            assert simulate(plan, machine).makespan_s == pytest.approx(time_s, rel=1e-3)


def test_setup_and_completion_keep_their_defaults_share():
    data = made_copies(exact)
    for setup_s, completion_s, share in ((1e-6, 3e-6, 0.25), (0.0, 0.0, 1.0)):
        defaults = replace(PROFILE.copy, setup_s=setup_s, completion_s=completion_s)
        found = fit_copies(data, "dev1>dev0", defaults)
        assert found.values.setup_s / fixed_of(found) == pytest.approx(share)


def test_without_2d_copies_their_parameters_keep_their_defaults():
    plain = [m for m in made_copies(exact) if m.params.get("rows") in (1, None)]
    defaults = replace(PROFILE.copy, row_overhead_bytes=123.0, native_2d=False)
    found = fit_copies(plain, "dev1>dev0", defaults)
    assert (found.values.row_overhead_bytes, found.values.native_2d) == (123.0, False)
    assert "row_overhead_bytes" not in found.fit.samples
    assert fit_copies(made_copies(exact), "dev1>dev0", defaults).values.native_2d
    emulated = [replace(m, labels=("emulated-2d",)) for m in made_copies(exact)]
    assert not fit_copies(emulated, "dev1>dev0", PROFILE.copy).values.native_2d


def test_events_that_were_not_measured_count_as_none():
    assert event_pair_s([]) == 0.0
    assert event_pair_s([events(2e-6)]) == 2e-6


@pytest.mark.parametrize(
    ("one", "several", "engines"), [(100e-6, 102e-6, 1), (100e-6, 150e-6, 1), (100e-6, 26e-6, 4)]
)
def test_engines_are_as_many_as_streams_gain(one, several, engines):
    data = [
        dma(4096, one, count=56),
        dma(4096, several, count=56, streams=7),
        dma(2**20, one, count=8),
        dma(2**20, one, count=8, streams=7),  # the link is full
    ]
    assert count_engines(data, "dev1>dev0") == engines


def test_default_direction_is_between_devices_if_there_is_one():
    def some(*directions):
        return [dma(4096, 1e-5, direction) for direction in directions]

    assert default_direction(some("host>dev0", "dev0>dev0", "dev1>dev0"), "dma") == "dev1>dev0"
    both = some("dev0>host", "host>dev0+dev0>host", "host>dev0", "dev0>dev0")
    assert default_direction(both, "dma") == "host>dev0"
    assert default_direction(both, "core") is None


# launches


def test_what_the_model_of_a_kernel_holds_is_not_counted_again():
    found = fit_launch(made_launch(exact), replace(PROFILE.launch, queue_gap_s=5e-6))
    assert (found.values.queue_gap_s, found.values.graph_submit_s) == (0.0, 0.0)


def test_parameters_of_which_nothing_was_measured_keep_their_defaults():
    data = [m for m in made_launch(exact) if m.params["what"] == "submission"]
    defaults = replace(PROFILE.launch, queue_gap_s=5e-6, event_wait_s=7e-6)
    found = fit_launch(data, defaults)
    assert (found.values.queue_gap_s, found.values.event_wait_s) == (5e-6, 7e-6)
    assert found.values.eager_submit_s == pytest.approx(40e-6)
    assert set(found.fit.samples) == {"eager_submit_s"}


# contention and copies by kernels


def test_copies_that_leave_gemms_uncovered_or_never_leave_the_gpu_are_left_out():
    data = made_contention(exact)
    assert len(beside(data)) == 21
    short = [
        replace(m, series=m.series | {"covered_s": (0.5 * m.series["covered_s"][0],)})
        if "covered_s" in m.series else m
        for m in data
    ]  # fmt: skip
    assert beside(short) == []
    assert beside([m for m in data if m.params["role"] != "gemm"]) == []
    assert beside([m for m in data if m.params["role"] != "copy"]) == []


def test_traffic_of_one_direction_leaves_the_other_slope_alone():
    data = [m for m in made_contention(exact) if m.params["direction"] in ("dev1>dev0", None)]
    defaults = replace(PROFILE.contention, dma_out=3.0)
    found = fit_contention(data, HBM, defaults)
    assert found.values.dma_in == pytest.approx(0.8, rel=1e-3)
    assert found.values.dma_out == 3.0
    assert set(found.not_fitted) == {"dma_out", "core_in", "core_out"}
    assert "kept" in found.not_fitted["dma_out"]
    assert found.values.core_out == pytest.approx(6.0)
    assert "2 times that of copy engines" in found.not_fitted["core_out"]
    assert all(text.startswith("estimated: ") for text in found.not_fitted.values())
    least, most = found.fit.valid["in_bytes_per_s"]
    assert least == 0
    assert most == max(pair.into for pair in beside(data))


def test_copy_kernels_count_where_the_gemm_model_knows_what_their_units_cost():
    data = made_contention(exact, engine="core", blocks=16)
    model = CostModel(MACHINE).gemm_model
    assert isinstance(fit_contention(data, HBM, PROFILE.contention), NotFitted)
    assert isinstance(
        fit_contention(data, HBM, PROFILE.contention, model=model, core_units=24), NotFitted
    )
    found = fit_contention(data, HBM, PROFILE.contention, model=model, core_units=16)
    assert found.values.dma_in == PROFILE.contention.dma_in
    assert "beside copy kernels" in found.parts
    assert not {"core_in", "core_out"} & set(found.not_fitted)


def test_slowdown_of_copy_kernels_is_that_of_most():
    data = [*made_core(exact), *made_contention(exact, engine="core", blocks=16, copy_slower=1.7)]
    found = fit_core(data, "dev1>dev0", replace(PROFILE.core_copy, compute_units=16))
    assert found.values.slowdown_beside_gemm == pytest.approx(1.7, rel=1e-3)
    other = fit_core(data, "dev1>dev0", replace(PROFILE.core_copy, compute_units=8))
    assert other.values.slowdown_beside_gemm == PROFILE.core_copy.slowdown_beside_gemm


# logs


def test_copies_and_collectives_of_logs_are_points_too():
    copies = [
        CopyPoint(name="c", nbytes=2**p, time_s=3e-6 + 2**p / 50e9, engine="dma", line=p)
        for p in range(16, 28)
    ]
    odd = [
        CopyPoint(name="c", nbytes=4096, time_s=1.0, engine="core", line=1),
        CopyPoint(name="c", nbytes=4096, time_s=1.0, engine="dma", direction="two-way", line=2),
        CopyPoint(name="c", nbytes=4096, time_s=1.0, engine="dma", overlap_s=0.5, line=3),
        CopyPoint(name="c", bytes_per_s=50e9, engine="dma", line=4),
    ]
    times = copy_times([*odd, *copies])
    assert times == [CopyTime(nbytes=p.nbytes, time_s=p.time_s) for p in copies]
    found = fit_copies([], "dev1>dev0", PROFILE.copy, timed=times)
    assert found.values.engine_bytes_per_s == pytest.approx(50e9, rel=1e-3)
    assert fixed_of(found) == pytest.approx(3e-6, rel=1e-3)

    def gathered(power, **changed):
        total = 2**power
        point = CollectivePoint(
            collective="all_gather", num_gpus=8, total_bytes=total, shard_bytes=total // 8,
            dtype="bf16", time_s=20e-6 + total * 7 / 8 / 300e9, algbw_bytes_per_s=1.0,
            busbw_bytes_per_s=1.0, bus_factor=7 / 8, in_place=False, checked=True, line=1,
        )  # fmt: skip
        return replace(point, **changed)

    points = [gathered(p) for p in range(20, 33)]
    odd = [gathered(20, collective="all_reduce"), gathered(20, in_place=True, time_s=1.0)]
    core = fit_core([], "dev1>dev0", PROFILE.core_copy, timed=collective_times([*points, *odd], 24))
    assert core.values.setup_s == pytest.approx(20e-6, rel=1e-3)
    assert core.values.bytes_per_s == pytest.approx(300e9, rel=1e-3)


# too little


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("kept", [0, 1, 2, 3])
def test_too_few_points_give_a_reason_and_no_number(group, kept):
    make, fit_group, _ = GROUPS[group]
    found = fit_group(make(exact)[1 : 1 + kept] if group != "launch" else make(exact)[: min(kept, 2)])
    assert isinstance(found, NotFitted)
    assert found.reason.split(":")[0] in ("copy", "local_copy", "core_copy", "contention", "launch")


@pytest.mark.parametrize("group", GROUPS)
def test_unusable_measurements_are_left_out(group):
    make, fit_group, _ = GROUPS[group]
    refused = [replace(m, unusable=("a silent fallback",)) for m in make(exact)]
    assert isinstance(fit_group(refused), NotFitted)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("seed", range(6))
def test_any_part_of_the_measurements_fits_or_gives_a_reason(group, seed):
    make, fit_group, _ = GROUPS[group]
    data = make(Noise(seed))
    picks = np.random.default_rng(seed).choice(len(data), size=min(len(data), 8 + seed), replace=False)
    found = fit_group([data[i] for i in picks])
    assert isinstance(found, NotFitted) or found.fit.num_points >= 3


def test_engines_and_side_by_side_give_a_reason_too():
    assert isinstance(count_engines([dma(4096, 1e-5)], "dev1>dev0"), NotFitted)
    assert isinstance(side_by_side_errors(side_by_side([], MACHINE)), NotFitted)


# robust fits


def line(x, y):
    return lambda values: np.log((values["a"] + values["b"] * x) / y)


def test_what_points_leave_open_spreads_over_the_bounds():
    parameters = [Parameter(name=name, start=1, least=0.01, most=100) for name in ("a", "b")]
    x = np.full(10, 2.0)
    y = 3.0 * np.exp(np.random.default_rng(0).normal(0, 0.01, 10))
    found = draws(fit(line(x, y), parameters), count=200)
    assert np.std(np.log(found["b"])) > 1
    known = draws(fit(line(np.linspace(0, 9, 10), y), parameters), count=200)
    assert np.std(np.log(known["a"])) < 0.02


def test_draws_have_the_mean_of_the_fit_and_stay_within_bounds():
    parameters = [
        Parameter(name="a", start=1, least=0.0, most=10),
        Parameter(name="b", start=1, least=1e-3, most=10),
    ]
    x = np.linspace(0.1, 5, 20)
    y = x * np.exp(np.random.default_rng(1).normal(0, 0.05, 20))  # a is 0, at its bound
    found = fit(line(x, y), parameters, starts=[{"a": 5.0}, {"b": 0.01}])
    taken = draws(found)
    assert taken == draws(found)
    assert taken != draws(found, seed=1)
    assert min(taken["a"]) >= 0
    assert np.exp(np.mean(np.log(taken["b"]))) == pytest.approx(found.values["b"], rel=1e-6)


def test_bounds_that_make_no_sense_are_refused():
    for least, most in ((-1, 1), (2, 1), (1, math.inf), (1, 1)):
        with pytest.raises(ValueError, match="bounds"):
            Parameter(name="a", start=1, least=least, most=most)


def test_every_point_is_left_out_once_for_every_seed_and_groups_together():
    points = list(range(10))
    seen = []

    def fit_mean(kept):
        seen.append(set(kept))
        return statistics.fmean(kept)

    told = held_out_predictions(
        points, fit_mean, lambda mean, _: mean, folds=3, seeds=(0, 1), group=lambda p: p // 2
    )
    assert sorted(point for point, _ in told) == sorted(2 * points)
    assert len(seen) == 6
    assert all((p in kept) == (p ^ 1 in kept) for kept in seen for p in points)
    with pytest.raises(ValueError, match="two are needed"):
        held_out_errors(points, fit_mean, lambda mean, _: mean, float, group=lambda _: 0)


def test_errors_are_relative():
    found = errors_of([1.1, 0.9, 2.0, 1.0], [1.0, 1.0, 1.0, 1.0])
    assert (found.count, found.median) == (4, pytest.approx(0.1))
    assert found.mean == pytest.approx(0.3)
    with pytest.raises(ValueError, match="no predictions"):
        errors_of([], [])


# the records of the H200


@functools.cache
def parts():
    return read_records(RUNS / "parts.jsonl.gz").measurements


@pytest.mark.parametrize("direction", ["host>dev0", "dev0>host"])
def test_h200_copies_are_within_3_percent_from_64_kib_up(direction):
    found = fit_copies(parts(), direction, PROFILE.copy)
    assert found.parts["contiguous from 64 KiB"].mean <= 0.03
    assert found.parts["contiguous"].mean <= 0.04
    # rows of one size run at rates between 0.6 and 1 of the full one, see `fit_copies`
    assert found.parts["2d"].mean <= 0.21
    assert found.values.native_2d
    assert 50e9 < found.values.engine_bytes_per_s < 58e9
    assert count_engines(parts(), direction) == 1


def test_h200_copies_over_nvlink_end_in_steps():
    measurements = read_records(RUNS.parent / "h200_x2" / "parts.jsonl.gz").measurements
    found = fit_copies(measurements, "dev1>dev0", PROFILE.copy, latency_s=0.5e-6)
    assert 9.1e-6 < found.values.tick_s < 9.3e-6
    assert 3.1e-6 < found.values.first_tick_s < 3.9e-6
    assert 390e9 < found.values.engine_bytes_per_s < 400e9
    assert found.fit.median_error <= 0.005
    assert found.parts["2d"].mean <= 0.05
    # two of ten points miss by a step: no size near theirs is left to tell where the first tick is
    assert found.parts["contiguous from 64 KiB"].median <= 0.01
    assert found.parts["contiguous from 64 KiB"].mean <= 0.1
    for direction in ("host>dev0", "dev0>host"):
        assert fit_copies(parts(), direction, PROFILE.copy).values.tick_s == 0
        assert fit_copies(measurements, direction, PROFILE.copy).values.tick_s == 0


def test_h200_contention_with_copy_engines_is_within_2_points():
    found = fit_contention(parts(), HBM, PROFILE.contention)
    assert found.fit.p90_error <= 0.02
    assert found.fit.mean_error <= 0.002
    assert 0 < found.values.dma_out < found.values.dma_in < 2


def test_h200_contention_with_copy_kernels_is_not_what_the_model_says():
    model = CostModel(MACHINE).gemm_model
    found = fit_contention(parts(), HBM, PROFILE.contention, model=model, core_units=16)
    assert found.parts["beside copy engines"].p90 <= 0.02
    assert 0.02 < found.parts["beside copy kernels"].mean < 0.1


def test_h200_local_copies_and_copy_kernels():
    local = fit_local(parts())
    assert local.fit.mean_error <= 0.05
    assert 3e12 < local.values.bytes_per_s < 4.8e12
    units = replace(PROFILE.core_copy, compute_units=16)
    core = fit_core(parts(), "host>dev0", units)
    assert core.parts["alone"].mean <= 0.03
    assert 45e9 < core.values.bytes_per_s < 58e9


def test_h200_launches():
    eager = read_records(RUNS / "eager.jsonl.gz").measurements
    found = fit_launch([*parts(), *eager], PROFILE.launch)
    assert found.values.queue_gap_s == 0
    assert 0 < found.values.event_wait_s < 1e-6
    assert 40e-6 < found.values.eager_submit_s < 60e-6
    assert found.parts["chains of tiny tasks"].mean <= 0.1
    assert found.parts["eager submission"].mean <= 0.1
    assert found.parts["eager submission"].count > 40


def test_h200_gemms_side_by_side():
    points = side_by_side(parts(), MACHINE)
    assert {point.queues for point in points} == {2, 4}
    errors = side_by_side_errors(points)
    assert (errors.count, errors.mean <= 0.08) == (88, True)

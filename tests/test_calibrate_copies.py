"""Layer: library. Fits of copies, launches and contention: synthetic truth, and the H200's records."""

import functools
import math
from dataclasses import replace
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
from ficco_sim.profile import CopyProfile
from ficco_sim.readers.logs.types import CollectivePoint, CopyPoint
from ficco_sim.records import Measurement, Sensors, measurement_key, read_records
from ficco_sim.sim import simulate
from ficco_sim.workload import Workload

RUNS = Path(__file__).parents[1] / "hw_validate" / "runs" / "h200"
SENSORS = Sensors(sm_clock_hz=None, power_w=None, temperature_c=None)
NOISE = 0.01
OUTLIERS = 0.1
SEEDS = range(60)
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


def dma(nbytes, time_s, direction="dev1>dev0", rows=1, count=1, streams=1, **more):
    params = {
        "direction": direction, "engine": "dma", "nbytes": nbytes, "rows": rows,
        "row_bytes": nbytes // rows, "count": count, "streams": streams, "blocks": None,
    }  # fmt: skip
    return measured("copy", params, time_s, **more)


def made_copies(noise, *, fixed_s=3e-6, rate=50e9, row_bytes=400.0, event_s=1.3e-6):
    """Copies over sizes, one after another, and by rows."""
    found = [events(event_s)]
    for power in range(12, 29):
        found.append(dma(2**power, event_s + noise(fixed_s + 2**power / rate)))
    for count in (8, 56):
        for nbytes in (2**12, 2**16, 2**20):
            total_s = noise(count * (fixed_s + nbytes / rate))
            found.append(dma(nbytes, event_s + total_s, count=count))
    for row in (512, 1024, 2048, 4096, 8192):
        for nbytes in (2**20, 2**22, 2**24):
            time_s = fixed_s + nbytes / rate * (1 + row_bytes / row)
            found.append(dma(nbytes, event_s + noise(time_s), rows=nbytes // row))
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
        made_copies,
        lambda data: fit_copies(data, "dev1>dev0", PROFILE.copy),
        {
            "fixed": (3e-6, fixed_of, fixed_samples),
            "engine_bytes_per_s": (50e9, None, None),
            "row_overhead_bytes": (400.0, None, None),
        },
    ),
    "local": (made_local, fit_local, {"startup_s": (4e-6, None, None), "bytes_per_s": (4e12, None, None)}),
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
    print(group, name, inside / len(SEEDS), np.median(ratios), np.std(ratios))
    assert inside / len(SEEDS) == pytest.approx(STATED, abs=0.15)

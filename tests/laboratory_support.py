"""Hand-made outcomes for the tests of the laboratory."""

import csv
import functools
from pathlib import Path

from ficco_sim.heuristics import Decision, FeatureRule
from ficco_sim.laboratory import Outcomes, Tried, make_outcome
from ficco_sim.machine import load_machine
from ficco_sim.sweep import COLUMNS
from ficco_sim.workload import Workload

machine_of = functools.cache(load_machine)
UNFUSED = "hetero-unfused-1d"
FUSED = "uniform-fused-1d"


def plan(schedule, seconds, chunks=1, queues=1, engine="dma", variant=""):
    return Tried(
        schedule=schedule,
        num_chunks=chunks,
        compute_queues=queues,
        engine=engine,
        makespan_s=seconds,
        variant=variant,
    )


def outcome(*tried, name="w", m=4096, n=512, k=512, machine="h200_2", **more):
    workload = Workload(name=name, pattern="all_gather_gemm", m=m, n=n, k=k)
    return make_outcome(workload, machine_of(machine), tried, **{"set_name": "made", **more})


def simple(serial=4.0, fused=3.0, unfused=2.0, **more):
    """Serial, and two schedules with the knobs that rules leave open on 2 gpus."""
    return outcome(plan("serial", serial), plan(FUSED, fused, 2), plan(UNFUSED, unfused, 2, 4), **more)


def outcomes(*found):
    return Outcomes(outcomes=tuple(found))


def rule(function, **parameters):
    return FeatureRule(name="made", description="", function=function, parameters=parameters)


def oracle(*found):
    """A rule that knows the answers by the rows of A, which must differ."""
    best = {o.workload.m: o.best for o in found}

    def function(f, _values):
        b = best[f.m]
        knobs = {} if b.schedule == "serial" else {"num_chunks": b.num_chunks}
        if b.schedule == UNFUSED:
            knobs["compute_queues"] = b.compute_queues
        return Decision(schedule=b.schedule, engine=b.engine, **knobs)

    return rule(function)


def by_rows(f, values):
    """Unfused from some rows on."""
    return UNFUSED if f.m >= values["rows"] else "serial"


def write_table(path: Path, *found) -> Path:
    """The table of a sweep that would give these outcomes."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for o in found:
            for p in o.tried:
                known = {
                    "workload": o.workload.name, "machine": o.machine.name,
                    "pattern": o.workload.pattern, "m": o.workload.m, "n": o.workload.n,
                    "k": o.workload.k, "dtype": o.workload.dtype, "num_gpus": o.machine.num_gpus,
                    "costs": "profile", "submission": "graph", "schedule": p.schedule,
                    "num_chunks": p.num_chunks, "compute_queues": p.compute_queues,
                    "engine": p.engine, "gather": "", "makespan_s": p.makespan_s,
                    "speedup": o.serial_s / p.makespan_s, "serial_s": o.serial_s,
                    "ideal_s": o.serial_s / 2, "gemm_s": o.serial_s / 2, "comm_s": o.serial_s / 2,
                }  # fmt: skip
                writer.writerow([known.get(column, "") for column in COLUMNS])
    return path

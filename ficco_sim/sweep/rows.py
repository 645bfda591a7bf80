"""Rows of a sweep's table: one per scenario, machine and plan."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

from ficco_sim.comparison import Comparison, Makespans
from ficco_sim.errors import FileError
from ficco_sim.grid import Grid
from ficco_sim.machine import Machine
from ficco_sim.schedules import FICCO
from ficco_sim.workload import Workload

__all__ = ["COLUMNS", "SweepRow", "rows_of_comparison", "rows_of_makespans"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """One plan: its scenario and machine, its knobs, and the keys of a result of `compare`.

    Parameters
    ----------
    workload, pattern, m, n, k, dtype
        See `Workload`.
    machine, num_gpus, costs, submission
        What it was simulated on, and how.
    gather
        Empty where a schedule has no such knob.
    fraction_of_ideal, exposed_comm_s, gemm_dil, comm_dil, gemm_cil, comm_cil, cause
        See `Metrics`; None in sweeps for makespans only.
    serial_s, ideal_s, gemm_s, comm_s
        Of the scenario on this machine, see `Comparison`.
    """

    workload: str
    machine: str
    pattern: str
    m: int
    n: int
    k: int
    dtype: str
    num_gpus: int
    costs: str
    submission: str
    schedule: str
    num_chunks: int
    compute_queues: int
    engine: str
    gather: str
    makespan_s: float
    speedup: float
    fraction_of_ideal: float | None
    exposed_comm_s: float | None
    gemm_dil: float | None
    comm_dil: float | None
    gemm_cil: float | None
    comm_cil: float | None
    cause: str | None
    serial_s: float
    ideal_s: float
    gemm_s: float
    comm_s: float

    @property
    def plan(self) -> tuple[str, int, int, str]:
        """Schedule, chunks, compute queues and engine: what makes the row unique in its scenario."""
        return self.schedule, self.num_chunks, self.compute_queues, self.engine

    def values(self) -> list[Any]:
        """Values in the order of `COLUMNS`."""
        return [getattr(self, name) for name in COLUMNS]


COLUMNS = tuple(f.name for f in fields(SweepRow))
_TYPES = get_type_hints(SweepRow)
TYPES: dict[str, type] = {
    name: next(t for t in (int, float, str) if kind in (t, t | None)) for name, kind in _TYPES.items()
}
"""Type of each column."""
OPTIONAL = frozenset(name for name, kind in _TYPES.items() if kind != TYPES[name])
MAY_BE_NEGATIVE = frozenset({"fraction_of_ideal", "exposed_comm_s"})
"""The second by rounding alone."""


def make_row(values: Mapping[str, Any], where: str) -> SweepRow:
    """A row of plain values, each checked.

    Raises
    ------
    FileError
        If a value has another type than its column, or none that can be; ``where`` opens the message.
    """
    for name in COLUMNS:
        value = values[name]
        if value is None:
            if name not in OPTIONAL:
                raise FileError(f"{where}: {name}: missing")
        elif type(value) is not TYPES[name]:
            raise FileError(f"{where}: {name}: {str(value)[:40]!r} must be {_WORDS[TYPES[name]]}")
        elif isinstance(value, (int, float)) and not (
            math.isfinite(value) and (value >= 0 or name in MAY_BE_NEGATIVE)
        ):
            raise FileError(f"{where}: {name}: {value} must be finite and not negative")
    if values["makespan_s"] <= 0:
        raise FileError(f"{where}: makespan_s: {values['makespan_s']} must be above 0")
    return SweepRow(**{name: values[name] for name in COLUMNS})


_WORDS: dict[type, str] = {int: "a whole number", float: "a number", str: "text"}


def rows_of_comparison(
    found: Comparison, workload: Workload, machine: Machine, grid: Grid
) -> list[SweepRow]:
    """Rows of one scenario on one machine, best first."""
    shared = _shared(workload, machine, found.costs, found.submission) | _whole(found)
    return [
        SweepRow(
            schedule=r.schedule,
            num_chunks=r.num_chunks,
            compute_queues=r.compute_queues,
            engine=r.engine,
            gather=_gather(r.schedule, grid),
            makespan_s=r.makespan_s,
            speedup=r.speedup,
            fraction_of_ideal=r.fraction_of_ideal,
            exposed_comm_s=r.exposed_comm_s,
            gemm_dil=r.gemm_dil,
            comm_dil=r.comm_dil,
            gemm_cil=r.gemm_cil,
            comm_cil=r.comm_cil,
            cause=r.cause,
            **shared,
        )
        for r in found.results
    ]


def rows_of_makespans(
    found: Makespans, workload: Workload, machine: Machine, grid: Grid, costs: str, submission: str
) -> list[SweepRow]:
    """Rows of one scenario on one machine, best first, without metrics."""
    shared = _shared(workload, machine, costs, submission) | _whole(found)
    return [
        SweepRow(
            schedule=name,
            num_chunks=knobs.get("num_chunks", 1),
            compute_queues=knobs.get("compute_queues", 1),
            engine=knobs["engine"],
            gather=_gather(name, grid),
            makespan_s=makespan_s,
            speedup=found.serial_s / makespan_s,
            fraction_of_ideal=None,
            exposed_comm_s=None,
            gemm_dil=None,
            comm_dil=None,
            gemm_cil=None,
            comm_cil=None,
            cause=None,
            **shared,
        )
        for name, knobs, makespan_s in found.points
    ]


def _shared(workload: Workload, machine: Machine, costs: str, submission: str) -> dict[str, Any]:
    return {
        "workload": workload.name,
        "machine": machine.name,
        "pattern": workload.pattern,
        "m": workload.m,
        "n": workload.n,
        "k": workload.k,
        "dtype": workload.dtype,
        "num_gpus": machine.num_gpus,
        "costs": costs,
        "submission": submission,
    }


def _whole(found: Comparison | Makespans) -> dict[str, Any]:
    return {
        "serial_s": found.serial_s,
        "ideal_s": found.ideal_s,
        "gemm_s": found.gemm_s,
        "comm_s": found.comm_s,
    }


def _gather(schedule: str, grid: Grid) -> str:
    return grid.gather if schedule in FICCO else ""

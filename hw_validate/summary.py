"""What records of plans say: the winner of each workload, its gain, and how repeatable it is."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ficco_sim.errors import ScenarioError
from ficco_sim.records import Measurement, Scalar
from ficco_sim.schedules import FICCO
from ficco_sim.units import format_seconds

if TYPE_CHECKING:
    from rich.table import Table

__all__ = [
    "TABLE_WIDTH",
    "CollectiveRow",
    "PlanRow",
    "RepeatRow",
    "collective_lines",
    "collective_rows",
    "plan_rows",
    "plan_table",
    "repeat_rows",
    "straight_rows",
]

NS = 1e-9
TABLE_WIDTH = 190  # characters of `plan_table` with long names
NOISE = 1.01  # a plan that gains less over serial has not won
LEAST_IDEAL = 1.05  # ideal speed-up below which a fraction of it says nothing
IN_TURN = "nccl-serial"
SHARD_LEVEL = ("shard-p2p", "shard-ring")
Case = tuple[Scalar, ...]
CASE = (
    "workload", "pattern", "m", "n", "k", "dtype", "num_gpus",
    "emulates", "engine", "core_blocks", "submission",
)  # fmt: skip
"""Parameters in which plans agree that are compared with each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """All plans of one workload, map, engine and way of submission.

    Parameters
    ----------
    serial_s
        Median of the serial plan.
    gemm_s, comm_s
        The whole GEMM and the whole communication in the serial plan's instrumented run.
    ideal_s
        The longer of these two.
    best, best_s
        The fastest plan, with its knobs; serial unless one gains 1 %.
    shard_speedup, ficco_speedup
        Serial over the best shard-level and the best FiCCO plan; None if none was measured.
    fraction_of_ideal
        (speed-up - 1) / (ideal speed-up - 1); None where the ideal speed-up is below 1.05.
    num_plans, num_losing
        Plans other than serial, and those of them that are slower than serial.
    """

    workload: str
    m: int
    n: int
    k: int
    dtype: str
    emulates: str
    engine: str
    submission: str
    serial_s: float
    gemm_s: float | None
    comm_s: float | None
    ideal_s: float | None
    best: str
    best_s: float
    speedup: float
    shard_speedup: float | None
    ficco_speedup: float | None
    fraction_of_ideal: float | None
    num_plans: int
    num_losing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatRow:
    """One plan measured in several passes.

    Parameters
    ----------
    medians_s
        Of each pass, in order.
    difference
        Largest over smallest median - 1.
    sm_clock_hz, power_w
        Before each pass; None where the device did not tell.
    """

    workload: str
    emulates: str
    plan: str
    medians_s: tuple[float, ...]
    difference: float
    sm_clock_hz: tuple[float | None, ...]
    power_w: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRow:
    """What a user would have without plans, beside the fastest plan of any engine.

    Parameters
    ----------
    in_turn_s
        NCCL's all-gather, then one GEMM; None if that was not measured.
    overlapped, overlapped_s
        The fastest version on two streams, with its chunks; None if none was measured.
    plan, plan_s
        The fastest plan, with its knobs and its engine, serial among them.
    gain
        Time of the faster version without plans over that of the plan - 1; below 0 the plan loses.
    labels
        What in the versions without plans is not what it stands for.
    """

    workload: str
    emulates: str
    dtype: str
    in_turn_s: float | None
    overlapped: str | None
    overlapped_s: float | None
    plan: str
    plan_s: float
    gain: float
    labels: tuple[str, ...]


def _whole(value: Scalar) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ScenarioError(f"params: {value!r} must be a whole number")
    return value


def plan_rows(measurements: Iterable[Measurement]) -> list[PlanRow]:
    """A row for each workload, map, engine and submission that has a serial plan."""
    cases: dict[Case, dict[str, list[Measurement]]] = {}
    for m in measurements:
        if m.kind == "plan" and m.usable:
            p = m.params
            case = tuple(p.get(key) for key in CASE)
            cases.setdefault(case, {}).setdefault(_plan_name(p), []).append(m)
    rows = []
    for plans in cases.values():
        if "serial" not in plans:
            continue
        medians = {name: _median_s(found) for name, found in plans.items()}
        serial_s = medians.pop("serial")
        gemm_s, comm_s = _parts_s(plans["serial"])
        ideal_s = None if gemm_s is None or comm_s is None else max(gemm_s, comm_s)
        best = min(medians, key=lambda name: medians[name], default="serial")
        best_s = medians.get(best, serial_s)
        if best_s > serial_s / NOISE:
            best, best_s = "serial", serial_s
        first = plans["serial"][0].params
        rows.append(
            PlanRow(
                workload=str(first["workload"]),
                m=_whole(first["m"]),
                n=_whole(first["n"]),
                k=_whole(first["k"]),
                dtype=str(first["dtype"]),
                emulates=str(first["emulates"]),
                engine=str(first["engine"]),
                submission=str(first["submission"]),
                serial_s=serial_s,
                gemm_s=gemm_s,
                comm_s=comm_s,
                ideal_s=ideal_s,
                best=best,
                best_s=best_s,
                speedup=serial_s / best_s,
                shard_speedup=_speedup(serial_s, medians, SHARD_LEVEL),
                ficco_speedup=_speedup(serial_s, medians, tuple(FICCO)),
                fraction_of_ideal=_fraction(serial_s, best_s, ideal_s),
                num_plans=len(medians),
                num_losing=sum(1 for seconds in medians.values() if seconds > serial_s),
            )
        )
    return rows


def repeat_rows(measurements: Iterable[Measurement]) -> list[RepeatRow]:
    """A row for each plan that was measured more than once."""
    by_key: dict[str, list[Measurement]] = {}
    for m in measurements:
        if m.kind == "plan" and m.usable:
            by_key.setdefault(m.key, []).append(m)
    rows = []
    for found in by_key.values():
        if len(found) < 2:
            continue
        medians = tuple(m.median_s for m in found)
        rows.append(
            RepeatRow(
                workload=str(found[0].params["workload"]),
                emulates=str(found[0].params["emulates"]),
                plan=_plan_name(found[0].params),
                medians_s=medians,
                difference=max(medians) / min(medians) - 1,
                sm_clock_hz=tuple(m.before.sm_clock_hz for m in found),
                power_w=tuple(m.before.power_w for m in found),
            )
        )
    return rows


def straight_rows(
    measurements: Sequence[Measurement], kind: str = "straight"
) -> list[tuple[str, str, str, float, float]]:
    """Workload, map, plan, and the medians of the plan and of its straight version, in seconds."""
    plans = {_identity(m): m for m in measurements if m.kind == "plan" and m.usable}
    return [
        (
            str(m.params["workload"]),
            str(m.params["emulates"]),
            _plan_name(m.params),
            plans[_identity(m)].median_s,
            m.median_s,
        )
        for m in measurements
        if m.kind == kind and m.usable and _identity(m) in plans
    ]


def collective_rows(measurements: Iterable[Measurement]) -> list[CollectiveRow]:
    """A row for each workload and map with collectives and plans, all by graphs."""
    cases: dict[Case, dict[str, dict[str, list[Measurement]]]] = {}
    for m in measurements:
        if m.kind in ("plan", "collective") and m.usable and m.params.get("submission") == "graph":
            case = tuple(m.params.get(key) for key in CASE if key not in ("engine", "core_blocks"))
            if m.kind == "plan":
                name = f"{_plan_name(m.params)} by {m.params['engine']}"
            else:
                cut = m.params.get("num_chunks")
                name = str(m.params["schedule"]) + ("" if cut is None else f" c{cut}")
            cases.setdefault(case, {}).setdefault(m.kind, {}).setdefault(name, []).append(m)
    rows = []
    for kinds in cases.values():
        if len(kinds) < 2:
            continue
        plans, without = (
            {name: _median_s(found) for name, found in kinds[kind].items()}
            for kind in ("plan", "collective")
        )
        first = next(iter(kinds["plan"].values()))[0].params
        in_turn_s = without.get(IN_TURN)
        plan = min(plans, key=lambda name: plans[name])
        best_s = min(without.values())
        without.pop(IN_TURN, None)
        overlapped = min(without, key=lambda name: without[name], default=None)
        rows.append(
            CollectiveRow(
                workload=str(first["workload"]),
                emulates=str(first["emulates"]),
                dtype=str(first["dtype"]),
                in_turn_s=in_turn_s,
                overlapped=overlapped,
                overlapped_s=None if overlapped is None else without[overlapped],
                plan=plan,
                plan_s=plans[plan],
                gain=best_s / plans[plan] - 1,
                labels=next(iter(kinds["collective"].values()))[0].labels,
            )
        )
    return rows


def collective_lines(rows: Sequence[CollectiveRow]) -> list[str]:
    """A sentence for each row."""
    lines = []
    for row in rows:
        have = []
        if row.in_turn_s is not None:
            have.append(f"all-gather, then GEMM {format_seconds(row.in_turn_s)}")
        if row.overlapped is not None and row.overlapped_s is not None:
            have.append(f"on two streams {format_seconds(row.overlapped_s)} ({row.overlapped})")
        note = f" ({'; '.join(row.labels)})" if row.labels else ""
        lines.append(
            f"{row.workload} on {row.emulates}: without plans, by NCCL: {', '.join(have)}; fastest "
            f"plan {format_seconds(row.plan_s)} ({row.plan}): {1 + row.gain:.2f}x{note}"
        )
    return lines


def _identity(m: Measurement) -> Case:
    return tuple(m.params.values())


def _plan_name(params: dict[str, Scalar]) -> str:
    """The schedule and its knobs: ``hetero-unfused-1d c4 q4 in 1`` (copies on one queue)."""
    name = str(params["schedule"])
    if params.get("num_chunks") is not None:
        name += f" c{params['num_chunks']}"
    if "unfused" in name:
        name += f" q{params['compute_queues']}"
    if params.get("copy_queues") == 1:
        name += f" in {params['copy_queues']}"
    return name


def _median_s(found: Sequence[Measurement]) -> float:
    return statistics.median(sample for m in found for sample in m.samples_s)


def _parts_s(serial: Sequence[Measurement]) -> tuple[float | None, float | None]:
    """GEMM and communication of the serial plan: from its spans, over all that compute the longest."""
    gemms, comms = [], []
    for m in serial:
        if m.spans is None:
            continue
        spans = list(zip(m.spans.task_ids, m.spans.start_ns, m.spans.end_ns, strict=True))
        lengths_s = [(end - start) * NS for task, start, end in spans if task.startswith("gemm.")]
        gemms += [max(lengths_s)] if lengths_s else []
        comms += [max((end * NS for task, _, end in spans if task.startswith("xfer.")), default=0.0)]
    return (statistics.median(gemms), statistics.median(comms)) if gemms else (None, None)


def _speedup(serial_s: float, medians: dict[str, float], names: tuple[str, ...]) -> float | None:
    times = [seconds for name, seconds in medians.items() if name.split()[0] in names]
    return serial_s / min(times) if times else None


def _fraction(serial_s: float, best_s: float, ideal_s: float | None) -> float | None:
    if ideal_s is None or serial_s < LEAST_IDEAL * ideal_s:
        return None
    return (serial_s / best_s - 1) / (serial_s / ideal_s - 1)


def plan_table(rows: Sequence[PlanRow]) -> "Table":
    """Rows as a table for the terminal."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("workload", "map", "engine"):
        table.add_column(name, no_wrap=True)
    for name in ("serial", "GEMM", "comm"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("winner", no_wrap=True)
    for name in ("time", "speed-up", "of ideal", "shard", "FiCCO", "losing"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.workload,
            row.emulates,
            row.engine if row.submission == "graph" else f"{row.engine} {row.submission}",
            format_seconds(row.serial_s),
            "-" if row.gemm_s is None else format_seconds(row.gemm_s),
            "-" if row.comm_s is None else format_seconds(row.comm_s),
            row.best,
            format_seconds(row.best_s),
            f"{row.speedup:.2f}x",
            "-" if row.fraction_of_ideal is None else f"{row.fraction_of_ideal:.0%}",
            "-" if row.shard_speedup is None else f"{row.shard_speedup:.2f}x",
            "-" if row.ficco_speedup is None else f"{row.ficco_speedup:.2f}x",
            f"{row.num_losing} of {row.num_plans}",
        )
    return table

"""Two sets of measured plans side by side: emulated and real runs, or the same runs again.

Plans are matched by all that identifies them but where their gpus live: by the same map where both sets
have it, else each map of one set with each of the other.
"""

import csv
import io
import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from ficco_sim.errors import ScenarioError
from ficco_sim.records import UNCHECKED, Measurement, Records, Scalar
from ficco_sim.units import format_seconds

if TYPE_CHECKING:
    from rich.table import Table

__all__ = [
    "Beside",
    "Pair",
    "Quantiles",
    "ScheduleRow",
    "WinnerRow",
    "beside_lines",
    "beside_table",
    "lay_beside",
    "pairs_csv",
]

WHERE = ("map", "emulates")
NUM_WORST = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One plan in both sets.

    Parameters
    ----------
    maps
        Of the first and of the second set: ``switch beside own``.
    first_s, second_s
        Medians of all samples, in seconds.
    difference
        ``first_s / second_s - 1``.
    first_speedup, second_speedup
        Over the serial plan of the same set, map and engine; None where that was not measured.
    speedup_difference
        ``first_speedup / second_speedup - 1``.
    """

    maps: str
    workload: str
    dtype: str
    num_gpus: int
    schedule: str
    num_chunks: int | None
    compute_queues: int | None
    copy_queues: int | None
    engine: str
    submission: str
    first_s: float
    second_s: float
    difference: float
    first_speedup: float | None
    second_speedup: float | None
    speedup_difference: float | None

    @property
    def name(self) -> str:
        """The plan with its knobs."""
        knobs = (("c", self.num_chunks), ("q", self.compute_queues), ("in ", self.copy_queues))
        return " ".join([self.schedule, *(f"{k}{v}" for k, v in knobs if v is not None)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Of differences: 10th, 50th and 90th percentile, interpolated linearly, and the extremes."""

    low: float
    p10: float
    median: float
    p90: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRow:
    """All plans of a schedule by one engine, of one pair of maps.

    Parameters
    ----------
    difference
        Of times, first over second - 1.
    speedup_difference
        Of speed-ups over serial; None where no pair has both.
    same_sign
        Share of the pairs that gain over serial in both sets, or in none; None likewise.
    worst
        Workload and plan whose times differ most, either way.
    """

    maps: str
    engine: str
    schedule: str
    num_plans: int
    difference: Quantiles
    speedup_difference: Quantiles | None
    same_sign: float | None
    worst: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WinnerRow:
    """What the first set would choose, and what that costs in the second.

    Parameters
    ----------
    regret
        Time in the second set of the first set's fastest plan, over that of the fastest one - 1; only
        plans of both sets count.
    """

    maps: str
    workload: str
    engine: str
    first_best: str
    second_best: str
    regret: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Two sets side by side.

    Parameters
    ----------
    only_first, only_second
        Usable plans that the other set has not under any map.
    unequal
        Names of conditions that differ between the sets: machine, driver, libraries, settings.
    first_labels, second_labels
        What in the plans of each set that are compared is not what it stands for.
    """

    schedules: tuple[ScheduleRow, ...]
    winners: tuple[WinnerRow, ...]
    worst: tuple[Pair, ...]
    only_first: int
    only_second: int
    unequal: tuple[str, ...]
    first_labels: tuple[str, ...]
    second_labels: tuple[str, ...]
    pairs: tuple[Pair, ...]


Key = tuple[tuple[str, Scalar], ...]


def lay_beside(first: Records, second: Records, *, maps: tuple[str, str] | None = None) -> Beside:
    """Match the plans of two sets of records.

    Parameters
    ----------
    maps
        Only this map of the first set, and this one of the second.

    Raises
    ------
    ScenarioError
        If they have no plan in common.
    """
    here, there = _by_plan(first.measurements), _by_plan(second.measurements)
    matched = [
        (key, wanted)
        for key in here
        if key in there
        for wanted in ([maps] if maps is not None else _maps(here[key], there[key]))
        if wanted[0] in here[key] and wanted[1] in there[key]
    ]
    pairs = [_pair(dict(key), wanted, (here, there)) for key, wanted in matched]
    if not pairs:
        raise ScenarioError(
            f"the sets have no plan in common: {len(here)} plans and {len(there)}; a plan is matched "
            "by workload, number of gpus, schedule, knobs, engine and submission"
            + ("" if maps is None else f", here on {maps[0]} and {maps[1]}")
        )
    groups: dict[tuple[str, str, str], list[Pair]] = {}
    cases: dict[tuple[str, ...], list[Pair]] = {}
    for pair in pairs:
        groups.setdefault((pair.maps, pair.engine, pair.schedule), []).append(pair)
        case = (pair.maps, pair.workload, pair.engine, pair.dtype, str(pair.num_gpus), pair.submission)
        cases.setdefault(case, []).append(pair)
    return Beside(
        schedules=tuple(_schedule_row(*group, members) for group, members in groups.items()),
        winners=tuple(_winner_row(members) for members in cases.values()),
        worst=tuple(sorted(pairs, key=_how_far, reverse=True)[:NUM_WORST]),
        only_first=len(here.keys() - there.keys()),
        only_second=len(there.keys() - here.keys()),
        unequal=_unequal(first, second),
        first_labels=_labels(m for key, (name, _) in matched for m in here[key][name]),
        second_labels=_labels(m for key, (_, name) in matched for m in there[key][name]),
        pairs=tuple(pairs),
    )


def _maps(here: Iterable[str], there: Iterable[str]) -> list[tuple[str, str]]:
    common = [name for name in here if name in set(there)]
    return [(name, name) for name in common] or list(itertools.product(here, there))


_ByPlan = dict[Key, dict[str, list[Measurement]]]


def _by_plan(measurements: Iterable[Measurement]) -> _ByPlan:
    """Usable plans by what identifies them, then by map."""
    found: _ByPlan = {}
    for m in measurements:
        if m.kind == "plan" and m.usable:
            key = tuple(sorted((k, v) for k, v in m.params.items() if k not in WHERE))
            found.setdefault(key, {}).setdefault(str(m.params.get("emulates")), []).append(m)
    return found


def _pair(params: Mapping[str, Scalar], maps: tuple[str, str], sets: tuple[_ByPlan, _ByPlan]) -> Pair:
    times, speedups = [], []
    for name, plans in zip(maps, sets, strict=True):
        times.append(_median_s(plans, params, name))
        serial_s = _serial_s(plans, params, name)
        speedups.append(None if serial_s is None else serial_s / times[-1])
    first, second = speedups
    return Pair(
        maps=f"{maps[0]} beside {maps[1]}",
        workload=str(params["workload"]),
        dtype=str(params["dtype"]),
        num_gpus=_count(params, "num_gpus") or 0,
        schedule=str(params["schedule"]),
        num_chunks=_count(params, "num_chunks"),
        compute_queues=_count(params, "compute_queues"),
        copy_queues=_count(params, "copy_queues"),
        engine=str(params["engine"]),
        submission=str(params["submission"]),
        first_s=times[0],
        second_s=times[1],
        difference=times[0] / times[1] - 1,
        first_speedup=first,
        second_speedup=second,
        speedup_difference=None if first is None or second is None else first / second - 1,
    )


def _count(params: Mapping[str, Scalar], name: str) -> int | None:
    value = params.get(name)
    return value if isinstance(value, int) else None


def _median_s(plans: _ByPlan, params: Mapping[str, Scalar], where: str) -> float:
    found = plans[tuple(sorted(params.items()))][where]
    return statistics.median(sample for m in found for sample in m.samples_s)


def _serial_s(plans: _ByPlan, params: Mapping[str, Scalar], where: str) -> float | None:
    """The serial plan of the same case: its knobs are none."""
    knobs = dict.fromkeys(("num_chunks", "compute_queues", "copy_queues", "gather"))
    serial = {**params, **knobs, "schedule": "serial"}
    found = plans.get(tuple(sorted(serial.items())), {})
    return _median_s(plans, serial, where) if where in found else None


def _schedule_row(maps: str, engine: str, schedule: str, pairs: Sequence[Pair]) -> ScheduleRow:
    both = [pair for pair in pairs if pair.speedup_difference is not None]
    signs = [
        (pair.first_speedup > 1) == (pair.second_speedup > 1)
        for pair in pairs
        if pair.first_speedup is not None and pair.second_speedup is not None
    ]
    worst = max(pairs, key=_how_far)
    return ScheduleRow(
        maps=maps,
        engine=engine,
        schedule=schedule,
        num_plans=len(pairs),
        difference=_quantiles([pair.difference for pair in pairs]),
        speedup_difference=_quantiles([pair.speedup_difference or 0.0 for pair in both])
        if both
        else None,
        same_sign=sum(signs) / len(signs) if signs else None,
        worst=f"{worst.workload} {worst.name}",
    )


def _how_far(pair: Pair) -> float:
    """Half as long and twice as long are equally far."""
    return abs(float(np.log1p(pair.difference)))


def _quantiles(values: Sequence[float]) -> Quantiles:
    low, p10, median, p90, high = (float(q) for q in np.quantile(values, [0, 0.1, 0.5, 0.9, 1]))
    return Quantiles(low=low, p10=p10, median=median, p90=p90, high=high)


def _winner_row(pairs: Sequence[Pair]) -> WinnerRow:
    chosen = min(pairs, key=lambda pair: pair.first_s)
    best = min(pairs, key=lambda pair: pair.second_s)
    return WinnerRow(
        maps=best.maps,
        workload=best.workload,
        engine=best.engine,
        first_best=chosen.name,
        second_best=best.name,
        regret=chosen.second_s / best.second_s - 1,
    )


def _unequal(first: Records, second: Records) -> tuple[str, ...]:
    here, there = (
        {"regime": records.sessions[0].regime, **records.sessions[0].environment}
        for records in (first, second)
    )
    names = sorted(here.keys() | there.keys())
    return tuple(n for n in names if n not in UNCHECKED and here.get(n) != there.get(n))


def _labels(measurements: Iterable[Measurement]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(label for m in measurements for label in m.labels))


def beside_table(found: Beside) -> "Table":
    """A row per pair of maps, engine and schedule."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("maps", "engine", "schedule"):
        table.add_column(name, no_wrap=True)
    for name in ("plans", "time, median", "p10 to p90", "speed-up, median", "p10 to p90", "same sign"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("furthest apart", no_wrap=True)
    for row in found.schedules:
        gain = row.speedup_difference
        table.add_row(
            row.maps,
            row.engine,
            row.schedule,
            str(row.num_plans),
            f"{row.difference.median:+.1%}",
            f"{row.difference.p10:+.1%} to {row.difference.p90:+.1%}",
            "-" if gain is None else f"{gain.median:+.1%}",
            "-" if gain is None else f"{gain.p10:+.1%} to {gain.p90:+.1%}",
            "-" if row.same_sign is None else f"{row.same_sign:.0%}",
            row.worst,
        )
    return table


def beside_lines(found: Beside) -> list[str]:
    """What to know of the table, a sentence a line."""
    off = _quantiles([abs(pair.difference) for pair in found.pairs])
    regrets = [row.regret for row in found.winners]
    dearest = max(found.winners, key=lambda row: row.regret)
    lines = [
        f"{len(found.pairs)} pairs: times of the first set differ by {off.median:.1%} in the median, "
        f"{off.p90:.1%} at the 90th percentile",
        f"choosing by the first set costs {statistics.median(regrets):.1%} in the median over "
        f"{len(regrets)} cases, {dearest.regret:.1%} at worst: {dearest.workload} ({dearest.maps}, "
        f"{dearest.engine}), {dearest.first_best} for {dearest.second_best}",
    ]
    lines += [
        f"furthest apart: {pair.workload} {pair.name} by {pair.engine} ({pair.maps}): "
        f"{format_seconds(pair.first_s)} and {format_seconds(pair.second_s)} ({pair.difference:+.1%})"
        for pair in found.worst
    ]
    for name, count in (("first", found.only_first), ("second", found.only_second)):
        if count:
            lines.append(f"only in the {name} set: {count} plans")
    if found.unequal:
        lines.append(f"measured under conditions that differ in {', '.join(found.unequal)}")
    for name, labels in (("first", found.first_labels), ("second", found.second_labels)):
        if labels:
            lines.append(f"{name} set: {'; '.join(labels)}")
    return lines


def pairs_csv(pairs: Sequence[Pair]) -> str:
    """All pairs as a table, a column a field."""
    names = [field.name for field in fields(Pair)]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([getattr(pair, name) for name in names] for pair in pairs)
    return out.getvalue()

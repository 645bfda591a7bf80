"""What the rows of all plans say together: errors, winners, regret, ranks."""

import statistics
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ficco_sim.trace_parts import PARTS
from ficco_sim.validation.rows import PlanRow

__all__ = [
    "ScheduleRow",
    "Summary",
    "WorkloadRow",
    "schedule_rows",
    "summarize_rows",
    "workload_rows",
]

NOISE = 0.01  # a choice that loses less than this against the best is as good, within what repeats
TIE = 1e-9  # simulated times that differ by less are equal but for rounding
LEAST_RANKED = 3  # fewer plans have no order worth a correlation

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadRow:
    """All plans of one workload.

    Parameters
    ----------
    mean_abs_error, median_abs_error, bias
        Of the makespans; the bias is the mean with its sign.
    measured_best, simulated_best
        Titles of the winners; of plans that tie in the simulation, the first.
    num_tied
        Plans that tie for the simulated winner, of those with the fewest copy queues.
    agreement, agreement_within_noise
        Share of those that tie that are the measured winner, or lose less than 1 % against it.
    regret
        Measured time of the simulated winner over the best measured - 1; the mean of those that tie.
    spearman, kendall
        Rank correlations of measured and simulated times; None with fewer than 3 plans, or if all
        times of one kind are equal.
    serial_error, serial_regret
        Of the reference schedule ``serial``: error of its makespan, and what always choosing it would
        lose; None if it was not measured.
    """

    workload: str
    m: int
    n: int
    k: int
    dtype: str
    num_plans: int
    mean_abs_error: float
    median_abs_error: float
    bias: float
    measured_best: str
    measured_best_s: float
    simulated_best: str
    num_tied: int
    agreement: float
    agreement_within_noise: float
    regret: float
    spearman: float | None
    kendall: float | None
    serial_error: float | None
    serial_regret: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRow:
    """All plans of one schedule; ``part_errors`` are means, and add up to the bias."""

    schedule: str
    num_plans: int
    mean_abs_error: float
    p90_abs_error: float
    bias: float
    part_errors: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All plans of all workloads.

    Parameters
    ----------
    mean_regret, max_regret
        Of the simulated winner, over workloads.
    mean_serial_regret
        What always choosing ``serial`` would lose; None if it was never measured.
    rank_correlation, min_rank_correlation, kendall
        Means over workloads, and the lowest Spearman; None if no workload has one.
    agreement, agreement_within_noise
        Share of workloads whose simulated winner is the measured one, or loses less than 1 % against
        it; plans that tie for the winner count in parts.
    """

    num_plans: int
    num_workloads: int
    mean_abs_error: float
    median_abs_error: float
    p90_abs_error: float
    max_abs_error: float
    bias: float
    mean_regret: float
    max_regret: float
    mean_serial_regret: float | None
    rank_correlation: float | None
    min_rank_correlation: float | None
    kendall: float | None
    agreement: float
    agreement_within_noise: float


def workload_rows(rows: Sequence[PlanRow]) -> tuple[WorkloadRow, ...]:
    """A row for each workload, in the order in which they first appear."""
    groups = _grouped(rows, lambda row: (row.workload, row.m, row.n, row.k, row.dtype))
    return tuple(_workload_row(group) for group in groups)


def schedule_rows(rows: Sequence[PlanRow]) -> tuple[ScheduleRow, ...]:
    """A row for each schedule, in the order in which they first appear."""
    return tuple(_schedule_row(group) for group in _grouped(rows, lambda row: row.schedule))


def summarize_rows(rows: Sequence[PlanRow], workloads: Sequence[WorkloadRow]) -> Summary:
    """Totals over all plans, and over all workloads."""
    errors = [abs(row.error) for row in rows]
    spearman = [w.spearman for w in workloads if w.spearman is not None]
    kendall = [w.kendall for w in workloads if w.kendall is not None]
    serial = [w.serial_regret for w in workloads if w.serial_regret is not None]
    return Summary(
        num_plans=len(rows),
        num_workloads=len(workloads),
        mean_abs_error=statistics.fmean(errors),
        median_abs_error=statistics.median(errors),
        p90_abs_error=_p90(errors),
        max_abs_error=max(errors),
        bias=statistics.fmean(row.error for row in rows),
        mean_regret=statistics.fmean(w.regret for w in workloads),
        max_regret=max(w.regret for w in workloads),
        mean_serial_regret=_mean(serial),
        rank_correlation=_mean(spearman),
        min_rank_correlation=min(spearman, default=None),
        kendall=_mean(kendall),
        agreement=statistics.fmean(w.agreement for w in workloads),
        agreement_within_noise=statistics.fmean(w.agreement_within_noise for w in workloads),
    )


def _grouped(rows: Iterable[PlanRow], key: Callable[[PlanRow], K]) -> list[list[PlanRow]]:
    groups: dict[K, list[PlanRow]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return list(groups.values())


def _fewest_copy_queues(tied: Sequence[PlanRow]) -> list[PlanRow]:
    """Of plans that tie, those with the fewest copy queues.

    Several queues of one engine are served in an order of the hardware's own, which the simulator does
    not know and takes for that of the plan; it can only be as good as on one queue.
    """
    least = min(row.copy_queues or 1 for row in tied)
    return [row for row in tied if (row.copy_queues or 1) == least]


def _workload_row(rows: Sequence[PlanRow]) -> WorkloadRow:
    errors = [abs(row.error) for row in rows]
    best = min(rows, key=lambda row: row.measured_s)
    least_s = min(row.simulated_s for row in rows)
    tied = _fewest_copy_queues([row for row in rows if row.simulated_s <= least_s * (1 + TIE)])
    regrets = [row.measured_s / best.measured_s - 1 for row in tied]
    serial = next((row for row in rows if row.schedule == "serial"), None)
    spearman, kendall = _ranks(rows)
    return WorkloadRow(
        workload=best.workload,
        m=best.m,
        n=best.n,
        k=best.k,
        dtype=best.dtype,
        num_plans=len(rows),
        mean_abs_error=statistics.fmean(errors),
        median_abs_error=statistics.median(errors),
        bias=statistics.fmean(row.error for row in rows),
        measured_best=best.title,
        measured_best_s=best.measured_s,
        simulated_best=tied[0].title,
        num_tied=len(tied),
        agreement=statistics.fmean(regret == 0 for regret in regrets),
        agreement_within_noise=statistics.fmean(regret < NOISE for regret in regrets),
        regret=statistics.fmean(regrets),
        spearman=spearman,
        kendall=kendall,
        serial_error=None if serial is None else serial.error,
        serial_regret=None if serial is None else serial.measured_s / best.measured_s - 1,
    )


def _ranks(rows: Sequence[PlanRow]) -> tuple[float | None, float | None]:
    from scipy.stats import kendalltau, spearmanr

    measured = [row.measured_s for row in rows]
    simulated = [row.simulated_s for row in rows]
    if len(rows) < LEAST_RANKED or len(set(measured)) == 1 or len(set(simulated)) == 1:
        return None, None
    return (
        float(spearmanr(measured, simulated).statistic),
        float(kendalltau(measured, simulated).statistic),
    )


def _schedule_row(rows: Sequence[PlanRow]) -> ScheduleRow:
    errors = [abs(row.error) for row in rows]
    cut = [{part.name: part.error for part in row.parts} for row in rows if row.parts]
    return ScheduleRow(
        schedule=rows[0].schedule,
        num_plans=len(rows),
        mean_abs_error=statistics.fmean(errors),
        p90_abs_error=_p90(errors),
        bias=statistics.fmean(row.error for row in rows),
        part_errors={name: statistics.fmean(c[name] for c in cut) for name in PARTS} if cut else {},
    )


def _p90(values: Sequence[float]) -> float:
    import numpy as np

    return float(np.quantile(values, 0.9))


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None

"""Hold a machine's profile against measured plans, or a profile refitted without each workload."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, TypeAlias

from ficco_sim.costs import MOST_CLOCK_RATIO, CostKind, CostModel, Submission
from ficco_sim.errors import ScenarioError
from ficco_sim.machine import Machine
from ficco_sim.measured_plans import workload_of
from ficco_sim.validation.choose import ChosenPlans
from ficco_sim.validation.rows import PlanRow, plan_row
from ficco_sim.validation.totals import (
    ScheduleRow,
    Summary,
    WorkloadRow,
    schedule_rows,
    summarize_rows,
    workload_rows,
)
from ficco_sim.workload import Workload

__all__ = ["Refit", "Validation", "leave_one_out", "validate"]

Refit: TypeAlias = Callable[[Workload], Machine]
"""The machine with a profile that was fitted without anything of this workload."""

Progress: TypeAlias = Callable[[int, int, str], None]

NUM_WORST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Measured plans beside simulated ones; as JSON its keys are these fields.

    Parameters
    ----------
    emulates, engine, submission
        Map that the plans ran on, who moved the data, how tasks were submitted.
    held_out
        Whether each workload was simulated with a profile that was fitted without it.
    labels
        What in the runs is not what it stands for.
    remarks
        What else a reader must know.
    worst
        The plans with the largest errors, the worst first.
    """

    machine: str
    costs: CostKind
    emulates: str
    engine: str
    submission: Submission
    held_out: bool
    labels: tuple[str, ...]
    remarks: tuple[str, ...]
    summary: Summary
    workloads: tuple[WorkloadRow, ...]
    schedules: tuple[ScheduleRow, ...]
    worst: tuple[PlanRow, ...]
    rows: tuple[PlanRow, ...]

    def to_plain(self) -> dict[str, Any]:
        """Plain data with stable keys, for JSON."""
        from ficco_sim.io import to_plain

        return {f.name: to_plain(getattr(self, f.name)) for f in fields(self)}


def validate(
    chosen: ChosenPlans,
    machine: Machine,
    *,
    costs: CostKind = "profile",
    num_worst: int = NUM_WORST,
    progress: Progress | None = None,
) -> Validation:
    """Simulate measured plans on a machine as it is.

    Parameters
    ----------
    chosen
        The plans, from `choose_plans`.
    num_worst
        How many of the worst plans to list.
    progress
        Called with plans done, plans in all, and the workload of the next one.

    Raises
    ------
    FiccoError
        If plans and machine do not fit together.
    """
    model_of = _models(chosen, lambda _: machine, costs)
    return _validate(chosen, model_of, num_worst, progress, held_out=False)


def leave_one_out(
    chosen: ChosenPlans,
    refit: Refit,
    *,
    fitted_to: str = "",
    costs: CostKind = "profile",
    num_worst: int = NUM_WORST,
    progress: Progress | None = None,
) -> Validation:
    """Simulate the plans of each workload on a machine that was fitted without that workload.

    Parameters
    ----------
    refit
        Called once for each workload.
    fitted_to
        What was fitted anew, and to what; a remark.

    Raises
    ------
    FiccoError
        As `validate`, and what the refit raises.
    """
    model_of = _models(chosen, refit, costs)
    return _validate(chosen, model_of, num_worst, progress, held_out=True, fitted_to=fitted_to)


def _models(chosen: ChosenPlans, machine_of: Refit, costs: CostKind) -> Callable[[Workload], CostModel]:
    """Cost models of each workload's machine, at the clock at which its plans ran."""
    clocks: dict[Workload, list[float]] = {}
    for found in chosen.plans:
        read = [m.sm_clock_hz for m in found if m.sm_clock_hz is not None]
        clocks.setdefault(workload_of(found[0]), []).extend(read)

    @cache
    def model_of(workload: Workload) -> CostModel:
        machine, read = machine_of(workload), clocks[workload]
        if machine.num_gpus != chosen.num_gpus:
            raise ScenarioError(
                f"the plans are for {chosen.num_gpus} gpus, machine {machine.name} has "
                f"{machine.num_gpus}"
            )
        reference_hz = machine.profile.gemm.sm_clock_hz
        # far below, a gpu was read while it slept
        awake = [c for c in read if reference_hz and c >= reference_hz / MOST_CLOCK_RATIO]
        clock_hz = statistics.fmean(awake) if awake else None
        return CostModel(machine, costs, chosen.submission, sm_clock_hz=clock_hz)

    return model_of


def _validate(
    chosen: ChosenPlans,
    model_of: Callable[[Workload], CostModel],
    num_worst: int,
    progress: Progress | None,
    *,
    held_out: bool,
    fitted_to: str = "",
) -> Validation:
    rows: list[PlanRow] = []
    clocks_hz: set[float] = set()
    for done, found in enumerate(chosen.plans):
        if progress is not None:
            progress(done, len(chosen.plans), str(found[0].params.get("workload")))
        model = model_of(workload_of(found[0]))
        rows.append(plan_row(found, model))
        if model.sm_clock_hz is not None:
            clocks_hz.add(model.sm_clock_hz)
    remarks = _remarks(chosen, rows, held_out=held_out, fitted_to=fitted_to)
    if clocks_hz:
        remarks.append(
            f"simulated at the clocks that were read in these runs, {min(clocks_hz) / 1e9:.3g} to "
            f"{max(clocks_hz) / 1e9:.3g} GHz: a mean over each workload's plans"
        )
    workloads = workload_rows(rows)
    measured = [m for found in chosen.plans for m in found]
    return Validation(
        machine=model.machine.name,
        costs=model.kind,
        emulates=chosen.emulates,
        engine=chosen.engine,
        submission=chosen.submission,
        held_out=held_out,
        labels=tuple(dict.fromkeys(label for m in measured for label in m.labels)),
        remarks=tuple(remarks),
        summary=summarize_rows(rows, workloads),
        workloads=workloads,
        schedules=schedule_rows(rows),
        worst=tuple(sorted(rows, key=lambda row: -abs(row.error))[:num_worst]),
        rows=tuple(rows),
    )


def _remarks(
    chosen: ChosenPlans, rows: Sequence[PlanRow], *, held_out: bool, fitted_to: str
) -> list[str]:
    found = [fitted_to] if fitted_to else []
    if not held_out:
        found.append(
            "nothing was held out: the machine's profile may have been fitted to these workloads, see "
            "its sources"
        )
    computing = max(len(row.gpus) for row in rows)
    if computing < chosen.num_gpus:
        found.append(
            f"{computing} of {chosen.num_gpus} gpus ran, so only their tasks are simulated: the others "
            "neither compute nor receive"
        )
    longer = sorted(
        row.instrumented_s / row.measured_s - 1 for row in rows if row.instrumented_s is not None
    )
    if longer:
        found.append(
            f"parts are shares of instrumented runs, {longer[len(longer) // 2]:.1%} longer than plain "
            f"ones in the median, {longer[-1]:.0%} at most; makespans are of plain runs"
        )
    if len(longer) < len(rows):
        found.append(f"{len(rows) - len(longer)} plans were measured without spans and have no parts")
    if any(row.labels for row in rows):
        labels = dict.fromkeys(label for row in rows for label in row.labels)
        found.append(f"simulated with labels: {', '.join(labels)}")
    if chosen.num_late:
        found.append(
            f"{chosen.num_late} plans are left out: the host still submitted them while they ran, for "
            f"more than {chosen.max_late:.0%} of their time"
        )
    if chosen.num_unusable:
        found.append(f"{chosen.num_unusable} measurements of plans are marked unusable and left out")
    return found

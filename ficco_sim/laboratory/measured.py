"""Outcomes from records of ``python -m hw_validate run``."""

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ficco_sim.errors import FiccoError, MachineError, ScenarioError
from ficco_sim.laboratory.outcomes import Outcome, Outcomes, Tried, few, make_outcome
from ficco_sim.machine import Machine
from ficco_sim.measured_plans import workload_of
from ficco_sim.records import Measurement, Records, Scalar, merge_records
from ficco_sim.validation import ChosenPlans, choose_plans
from ficco_sim.workload import Workload

__all__ = ["LEAST_NOISE", "from_records", "spread"]

LEAST_NOISE = 0.01
"""Medians of the same plan differ by about this between passes, however close their samples are."""


def from_records(
    files: Sequence[tuple[Path, Records]],
    machine: Machine,
    *,
    emulates: str | None = None,
    engine: str | None = None,
    submission: str | None = None,
    copy_queues: int | None = None,
) -> Outcomes:
    """Outcomes of measured plans: medians of their samples, over all passes.

    Parameters
    ----------
    machine
        What the gpus stood for; features come from it.
    emulates, engine, submission, copy_queues
        As in `choose_plans`; files without such a map are left out.

    Raises
    ------
    FileError
        If the files were measured under unequal conditions.
    ScenarioError
        If there are no such plans, or several kinds of them.
    MachineError
        If the machine has another number of gpus.
    """
    held = [(path, r) for path, r in files if emulates is None or _maps(r) & {emulates}]
    if not held:
        there = ", ".join(sorted({name for _, r in files for name in _maps(r)}))
        raise ScenarioError(f"--map {emulates}: no plans of it in the records, only of {there}")
    chosen = choose_plans(
        merge_records(held),
        emulates=emulates,
        engine=engine,
        submission=submission,
        copy_queues=copy_queues,
        max_late=math.inf,  # a rule's pick and the best are judged as they were measured, all of them
    )
    if machine.num_gpus != chosen.num_gpus:
        raise MachineError(
            f"--machine {machine.name}: it has {machine.num_gpus} gpus, the measured plans have "
            f"{chosen.num_gpus}"
        )
    by_workload: dict[Workload, list[Sequence[Measurement]]] = {}
    notes = []
    for found in chosen.plans:
        try:
            by_workload.setdefault(workload_of(found[0]), []).append(found)
        except FiccoError as error:
            notes.append(f"left out: {error}")
    outcomes = []
    for workload, plans in by_workload.items():
        try:
            outcomes.append(_outcome(workload, machine, plans, chosen))
        except FiccoError as error:
            notes.append(f"left out: {error}")
    if chosen.num_unusable:
        notes.append(f"{chosen.num_unusable} measurements are marked unusable and left out")
    variants = sum(plan.variant != "" for o in outcomes for plan in o.tried)
    if variants:
        notes.append(
            f"{variants} plans differ in knobs that no rule sets (copy queues, gather): they count as "
            "tried, but stand for a choice with the best knobs only, or if --copy-queues asks for it"
        )
    labels = dict.fromkeys(label for found in chosen.plans for m in found for label in m.labels)
    return Outcomes(outcomes=tuple(outcomes), labels=tuple(labels), notes=tuple(few(notes)))


def _maps(records: Records) -> set[str]:
    return {str(m.params.get("emulates")) for m in records.measurements if m.kind == "plan"}


def _outcome(
    workload: Workload, machine: Machine, plans: Sequence[Sequence[Measurement]], chosen: ChosenPlans
) -> Outcome:
    how = [chosen.emulates, chosen.engine, *(["eager"] if chosen.submission == "eager" else [])]
    samples = [[s for m in found for s in m.samples_s] for found in plans]
    tried = [
        _tried(found[0].params, statistics.median(times), chosen.num_gpus)
        for found, times in zip(plans, samples, strict=True)
    ]
    return make_outcome(
        workload,
        machine,
        tried,
        set_name=f"measured {' '.join(how)}",
        place=f"{machine.name} (measured {' '.join(how)})",
        source="measured",
        noise=max(LEAST_NOISE, statistics.median(map(spread, samples))),
    )


def spread(samples_s: Sequence[float]) -> float:
    """Half the interquartile range over the median: by how much half of all samples differ from it."""
    low, middle, high = np.quantile(samples_s, [0.25, 0.5, 0.75])
    return float((high - low) / 2 / middle)


def _tried(params: Mapping[str, Scalar], median_s: float, num_gpus: int) -> Tried:
    copy_queues, gather = params.get("copy_queues"), params.get("gather")
    others = []
    if copy_queues not in (None, max(1, num_gpus - 1)):  # a queue a peer unless asked
        others.append(f"copy_queues {copy_queues}")
    if gather not in (None, "direct"):
        others.append(f"gather {gather}")
    return Tried(
        schedule=str(params.get("schedule")),
        num_chunks=_count(params, "num_chunks"),
        compute_queues=_count(params, "compute_queues"),
        engine=str(params.get("engine")),
        makespan_s=median_s,
        variant=" ".join(others),
    )


def _count(params: Mapping[str, Scalar], name: str) -> int:
    value = params.get(name)
    if value is None:
        return 1
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ScenarioError(f"params: {name}: {value!r} must be a whole number above 0")
    return value

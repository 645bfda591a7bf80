"""Rules judged on outcomes, with rules to compare with: what ``ficco heuristic evaluate`` says."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ficco_sim.heuristics import Rule
from ficco_sim.heuristics.simple import always
from ficco_sim.io import to_plain
from ficco_sim.laboratory.judge import Judgement, KnobsOf, Verdict, judge_all
from ficco_sim.laboratory.outcomes import Outcomes
from ficco_sim.laboratory.small_sets import SmallSets, small_sets
from ficco_sim.laboratory.summary import (
    Confusion,
    FaultRow,
    Summary,
    best_always,
    breakdown,
    confusion,
    fault_counts,
    fault_rows,
    summarize,
)

__all__ = ["Evaluation", "RuleReport", "ScenarioRow", "evaluate"]

MAX_WORST = 50  # scenarios that a result keeps of each rule


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioRow:
    """A choice that costs most, see `Judgement`."""

    set: str
    workload: str
    machine: str
    chosen: str
    plan: str
    best_plan: str
    best_s: float
    chosen_s: float
    regret: float
    verdict: Verdict
    fault: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleReport:
    """One rule's judgements and their numbers.

    Parameters
    ----------
    reference
        Whether it is there to compare with: always-serial and the best always-X.
    worst
        The scenarios with the largest regrets, the worst first.
    regret_percentiles
        The least regret, then those that 1 %, 2 %, ... 100 % of scenarios do not exceed.
    """

    rule: str
    description: str
    parameters: dict[str, float]
    reference: bool
    total: Summary
    by_machine: tuple[Summary, ...]
    by_set: tuple[Summary, ...]
    confusion: tuple[Confusion, ...]
    fault_counts: dict[str, int]
    faults: tuple[FaultRow, ...]
    small_sets: SmallSets | None
    worst: tuple[ScenarioRow, ...] = ()
    regret_percentiles: tuple[float, ...] = ()
    judgements: tuple[Judgement, ...] = field(repr=False)

    def to_plain(self) -> dict[str, Any]:
        """Plain data with stable keys, without the scenarios."""
        names = (name for name in self.__dataclass_fields__ if name != "judgements")
        return {name: to_plain(getattr(self, name)) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Rules in the same scenarios, those to compare with last."""

    source: str
    num_scenarios: int
    machines: tuple[str, ...]
    sets: tuple[str, ...]
    knobs: KnobsOf
    noise: float | None
    seed: int
    rules: tuple[RuleReport, ...]
    labels: tuple[str, ...]
    notes: tuple[str, ...]

    def to_plain(self) -> dict[str, Any]:
        """Plain data with stable keys, for JSON."""
        return {
            name: [report.to_plain() for report in self.rules]
            if name == "rules"  # without their scenarios
            else to_plain(getattr(self, name))
            for name in self.__dataclass_fields__
        }


def evaluate(
    rules: Sequence[Rule],
    outcomes: Outcomes,
    *,
    knobs: KnobsOf = "rule",
    noise: float | None = None,
    draws: int = 1000,
    seed: int = 0,
) -> Evaluation:
    """Judge rules; the same arguments give the same evaluation.

    Parameters
    ----------
    knobs, noise
        See `judge`.
    draws
        Of sets of 16 scenarios, see `small_sets`.
    seed
        For these and for bootstrap intervals.

    Raises
    ------
    ScenarioError
        If an argument is out of range.
    """
    scenarios = outcomes.outcomes
    reports = [
        _report(
            rule,
            judge_all(rule, scenarios, knobs=knobs, noise=noise),
            draws=draws,
            seed=seed,
            reference=False,
        )
        for rule in rules
    ]
    references: list[tuple[Rule, tuple[Judgement, ...]]] = []
    if any("serial" in o.by_schedule for o in scenarios):
        serial = always("serial")
        references.append((serial, judge_all(serial, scenarios, knobs=knobs, noise=noise)))
    best, judged = best_always(scenarios, knobs=knobs, noise=noise)
    if best.name not in [rule.name for rule, _ in references]:
        references.append((best, judged))
    reports += [
        _report(rule, found, draws=draws, seed=seed, reference=True) for rule, found in references
    ]
    return Evaluation(
        source=outcomes.source,
        num_scenarios=len(scenarios),
        machines=outcomes.places,
        sets=tuple(dict.fromkeys(o.set_name for o in scenarios)),
        knobs=knobs,
        noise=noise,
        seed=seed,
        rules=tuple(reports),
        labels=outcomes.labels,
        notes=outcomes.notes,
    )


def _report(
    rule: Rule, judgements: tuple[Judgement, ...], *, draws: int, seed: int, reference: bool
) -> RuleReport:
    return RuleReport(
        rule=rule.name,
        description=rule.description,
        parameters=dict(rule.parameters),
        reference=reference,
        total=summarize(judgements, seed=seed),
        by_machine=breakdown(judgements, lambda o: o.place, seed=seed),
        by_set=breakdown(judgements, lambda o: o.set_name, seed=seed),
        confusion=confusion(judgements),
        fault_counts=fault_counts(judgements),
        faults=fault_rows(judgements),
        small_sets=small_sets(judgements, draws=draws, seed=seed),
        worst=tuple(_scenario_row(j) for j in sorted(judgements, key=lambda j: -j.regret)[:MAX_WORST]),
        regret_percentiles=tuple(
            map(float, np.percentile([j.regret for j in judgements], np.arange(101)))
        ),
        judgements=judgements,
    )


def _scenario_row(judged: Judgement) -> ScenarioRow:
    return ScenarioRow(
        set=judged.outcome.set_name,
        workload=judged.outcome.workload.name,
        machine=judged.outcome.place,
        chosen=judged.chosen,
        plan=judged.plan,
        best_plan=judged.best_plan,
        best_s=judged.best_s,
        chosen_s=judged.chosen_s,
        regret=judged.regret,
        verdict=judged.verdict,
        fault=judged.fault,
    )

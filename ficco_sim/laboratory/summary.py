"""Judgements in numbers: accuracy and regret with their intervals, faults, who was taken for whom."""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ficco_sim.heuristics import FAULT_KINDS, Rule
from ficco_sim.heuristics.simple import always
from ficco_sim.laboratory.judge import NOT_TRIED, Judgement, KnobsOf, judge_all
from ficco_sim.laboratory.outcomes import Outcome
from ficco_sim.laboratory.statistics import bootstrap_mean, wilson

__all__ = ["Confusion", "FaultRow", "Share", "Summary", "best_always", "breakdown", "summarize"]

MAX_FAULTS = 10  # different messages that are listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A share of scenarios with its 95 % Wilson interval."""

    count: int
    share: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion:
    """Scenarios whose fastest schedule is ``best`` and for which ``chosen`` was chosen."""

    best: str
    chosen: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRow:
    """A fault of a rule; ``kind`` is one of `RuleFault`, or ``not tried``."""

    kind: str
    message: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A rule in some scenarios.

    Parameters
    ----------
    name
        Of the machine, the set or whatever the scenarios have in common.
    num_right, num_unsure, num_wrong, num_faults
        Verdicts, see `Judgement`; faults are among the wrong.
    num_inexact
        Choices with knobs that were not tried, for which the nearest stand.
    accuracy
        Share of scenarios in which no schedule is faster than the chosen one.
    accuracy_within_noise
        The same where none gains more than the noise.
    plans_within_noise
        Share in which the plan, with the knobs that the rule sets, loses no more than the noise.
    mean_regret, mean_regret_low, mean_regret_high
        Mean of ``chosen_s / best_s - 1`` with its 95 % bootstrap interval.
    mean_schedule_regret
        The same with the best tried knobs of the chosen schedules.
    mean_loss_when_wrong
        Of the best speed-up less that of the choice; None if never wrong.
    mean_speedup, mean_best_speedup
        Over serial; geometric means.
    noise_low, noise_high
        Range of the noise over scenarios.
    """

    name: str
    num_scenarios: int
    num_right: int
    num_unsure: int
    num_wrong: int
    num_faults: int
    num_inexact: int
    accuracy: Share
    accuracy_within_noise: Share
    plans_within_noise: Share
    mean_regret: float
    mean_regret_low: float
    mean_regret_high: float
    median_regret: float
    p90_regret: float
    max_regret: float
    worst: str
    mean_schedule_regret: float
    mean_loss_when_wrong: float | None
    mean_speedup: float
    mean_best_speedup: float
    noise_low: float
    noise_high: float


def summarize(judgements: Sequence[Judgement], *, name: str = "all", seed: int = 0) -> Summary:
    """Numbers of one rule's judgements; at least one is needed."""
    verdicts = Counter(j.verdict for j in judgements)
    regrets = [j.regret for j in judgements]
    low, high = bootstrap_mean(regrets, seed)
    wrong = [j.loss for j in judgements if j.verdict == "wrong"]
    worst = max(judgements, key=lambda j: j.regret)
    return Summary(
        name=name,
        num_scenarios=len(judgements),
        num_right=verdicts["right"],
        num_unsure=verdicts["unsure"],
        num_wrong=verdicts["wrong"],
        num_faults=sum(j.fault is not None for j in judgements),
        num_inexact=sum(not j.exact for j in judgements),
        accuracy=_share(j.right_strict for j in judgements),
        accuracy_within_noise=_share(j.right_within_noise for j in judgements),
        plans_within_noise=_share(j.plan_within_noise for j in judgements),
        mean_regret=statistics.fmean(regrets),
        mean_regret_low=low,
        mean_regret_high=high,
        median_regret=statistics.median(regrets),
        p90_regret=float(np.quantile(regrets, 0.9)),
        max_regret=worst.regret,
        worst=f"{worst.outcome.workload.name} on {worst.outcome.place}",
        mean_schedule_regret=statistics.fmean(j.schedule_regret for j in judgements),
        mean_loss_when_wrong=statistics.fmean(wrong) if wrong else None,
        mean_speedup=statistics.geometric_mean(j.speedup for j in judgements),
        mean_best_speedup=statistics.geometric_mean(j.best_speedup for j in judgements),
        noise_low=min(j.noise for j in judgements),
        noise_high=max(j.noise for j in judgements),
    )


def _share(right: Iterable[bool]) -> Share:
    found = list(right)
    count = sum(found)
    low, high = wilson(count, len(found))
    return Share(count=count, share=count / len(found), low=low, high=high)


def breakdown(
    judgements: Sequence[Judgement], key: Callable[[Outcome], str], *, seed: int = 0
) -> tuple[Summary, ...]:
    """A summary for each value of the key, in order of first appearance."""
    groups: dict[str, list[Judgement]] = {}
    for j in judgements:
        groups.setdefault(key(j.outcome), []).append(j)
    return tuple(summarize(found, name=name, seed=seed) for name, found in groups.items())


def confusion(judgements: Sequence[Judgement]) -> tuple[Confusion, ...]:
    """How often which schedule was chosen where which was fastest; the most frequent first."""
    pairs = Counter((j.best_schedule, j.chosen) for j in judgements)
    return tuple(
        Confusion(best=best, chosen=chosen, count=count)
        for (best, chosen), count in sorted(pairs.items(), key=lambda item: (-item[1], item[0]))
    )


def fault_rows(judgements: Sequence[Judgement]) -> tuple[FaultRow, ...]:
    """Faults by kind and message, the most frequent of each kind first."""
    found = Counter((j.fault, j.message) for j in judgements if j.fault is not None)
    kinds = (*FAULT_KINDS, NOT_TRIED)
    order = sorted(found.items(), key=lambda item: (kinds.index(item[0][0]), -item[1], item[0]))
    return tuple(
        FaultRow(kind=kind, message=message, count=count)
        for (kind, message), count in order[:MAX_FAULTS]
    )


def fault_counts(judgements: Sequence[Judgement]) -> dict[str, int]:
    """How many faults there are of each kind."""
    found = Counter(j.fault for j in judgements)
    return {kind: found[kind] for kind in (*FAULT_KINDS, NOT_TRIED)}


def best_always(
    outcomes: Sequence[Outcome], *, knobs: KnobsOf = "rule", noise: float | None = None
) -> tuple[Rule, tuple[Judgement, ...]]:
    """The rule ``always-X`` with the least mean regret, known afterwards only: what rules must beat."""
    names = dict.fromkeys(name for o in outcomes for name in o.by_schedule)
    found = []
    for name in names:
        rule = always(name)
        found.append((rule, judge_all(rule, outcomes, knobs=knobs, noise=noise)))
    return min(found, key=lambda item: statistics.fmean(j.regret for j in item[1]))

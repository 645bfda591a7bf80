"""A rule's choices held against the best plans that were tried."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from ficco_sim.errors import ScenarioError
from ficco_sim.heuristics import Decision, Rule, RuleFault, decide
from ficco_sim.laboratory.outcomes import Outcome, Tried

__all__ = [
    "KNOBS",
    "SIMULATED_NOISE",
    "Chosen",
    "Judgement",
    "KnobsOf",
    "Verdict",
    "choose",
    "fallback",
    "judge",
    "judge_all",
    "noise_of",
    "plan_for",
]

KnobsOf: TypeAlias = Literal["rule", "best"]
KNOBS: tuple[KnobsOf, ...] = get_args(KnobsOf)
Verdict: TypeAlias = Literal["right", "unsure", "wrong"]
SIMULATED_NOISE = 0.02  # simulated makespans are no nearer to real ones than that
NOT_TRIED = "not tried"
OTHER_ENGINE = 100.0  # further than any number of chunks or queues


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The tried plan that stands for a decision; that of serial if there is a fault.

    Parameters
    ----------
    exact
        Whether the plan has the knobs that were asked for; else its knobs are the nearest.
    fault, message
        A kind of `RuleFault`, or ``not tried``; None and empty if none.
    """

    schedule: str
    plan: str
    seconds: float
    schedule_s: float
    exact: bool
    fault: str | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What a rule's choice costs in one scenario.

    Parameters
    ----------
    outcome
        What was tried.
    chosen, plan
        The schedule, and the plan that stands for it; with a fault that is serial.
    exact
        See `Chosen`.
    best_schedule, best_plan
        The fastest.
    best_s, chosen_s
        Their times.
    regret
        ``chosen_s / best_s - 1``.
    schedule_regret
        The same with the best knobs that were tried of the chosen schedule.
    noise
        Regret that counts as none.
    verdict
        On the schedule: right if no other is faster, unsure if it loses no more than the noise with
        its best knobs, else wrong; wrong with a fault.
    speedup, best_speedup
        Over serial.
    loss
        ``best_speedup - speedup``.
    fault, message
        See `Chosen`.
    """

    outcome: Outcome = field(repr=False)
    rule: str
    chosen: str
    plan: str
    exact: bool
    best_schedule: str
    best_plan: str
    best_s: float
    chosen_s: float
    regret: float
    schedule_regret: float
    noise: float
    verdict: Verdict
    speedup: float
    best_speedup: float
    loss: float
    fault: str | None
    message: str

    @property
    def right_strict(self) -> bool:
        """Whether no other schedule is faster, and there is no fault."""
        return self.verdict == "right"

    @property
    def right_within_noise(self) -> bool:
        """Whether no other schedule gains more than the noise, and there is no fault."""
        return self.verdict != "wrong"

    @property
    def plan_within_noise(self) -> bool:
        """Whether the plan, with its knobs, loses no more than the noise, and there is no fault."""
        return self.fault is None and self.regret <= self.noise


def noise_of(outcome: Outcome, noise: float | None) -> float:
    """The noise of a scenario: as given, else its own, else `SIMULATED_NOISE`."""
    if noise is not None:
        return noise
    return SIMULATED_NOISE if outcome.noise is None else outcome.noise


def judge_all(
    rule: Rule, outcomes: Iterable[Outcome], *, knobs: KnobsOf = "rule", noise: float | None = None
) -> tuple[Judgement, ...]:
    """Judge a rule on outcomes, in their order."""
    return tuple(judge(rule, outcome, knobs=knobs, noise=noise) for outcome in outcomes)


def judge(
    rule: Rule, outcome: Outcome, *, knobs: KnobsOf = "rule", noise: float | None = None
) -> Judgement:
    """Judge a rule in one scenario.

    Parameters
    ----------
    knobs
        ``rule``: the knobs that the rule sets, or the same defaults for all rules. ``best``: the
        fastest that were tried of the chosen schedule.
    noise
        Regret that counts as none; see `noise_of`.

    Raises
    ------
    ScenarioError
        If the noise is no number from 0 up.
    """
    if noise is not None and not (math.isfinite(noise) and noise >= 0):
        raise ScenarioError(f"noise: {noise} must be a finite number from 0 up")
    chosen = choose(rule, outcome, knobs)
    best, best_s = outcome.best, outcome.best.makespan_s
    limit = noise_of(outcome, noise)
    schedule_regret = chosen.schedule_s / best_s - 1
    verdict: Verdict = "wrong"
    if chosen.fault is None and schedule_regret <= limit:
        verdict = "right" if schedule_regret == 0 else "unsure"
    # of several schedules that tie for the best the chosen one counts as the best
    winner = best if verdict != "right" else outcome.by_schedule[chosen.schedule][0]
    speedup, best_speedup = outcome.serial_s / chosen.seconds, outcome.serial_s / best_s
    return Judgement(
        outcome=outcome,
        rule=rule.name,
        chosen=chosen.schedule,
        plan=chosen.plan,
        exact=chosen.exact,
        best_schedule=winner.schedule,
        best_plan=winner.title,
        best_s=best_s,
        chosen_s=chosen.seconds,
        regret=chosen.seconds / best_s - 1,
        schedule_regret=schedule_regret,
        noise=limit,
        verdict=verdict,
        speedup=speedup,
        best_speedup=best_speedup,
        loss=best_speedup - speedup,
        fault=chosen.fault,
        message=chosen.message,
    )


def choose(rule: Rule, outcome: Outcome, knobs: KnobsOf = "rule") -> Chosen:
    """The tried plan that stands for a rule's answer."""
    answer = decide(rule, outcome.workload, outcome.machine)
    if isinstance(answer, RuleFault):
        return fallback(outcome, answer.kind, answer.message)
    return plan_for(answer, outcome, knobs)


def plan_for(decision: Decision, outcome: Outcome, knobs: KnobsOf = "rule") -> Chosen:
    """The tried plan that stands for a decision.

    That with the decision's knobs, or the one whose chunks and queues are nearest on a logarithmic
    scale; of equally near ones that with fewer chunks, then fewer queues. Plans of another engine are
    taken only if none of the decision's was tried, and do for a decision that leaves the engine open.
    """
    plans = outcome.by_schedule.get(decision.schedule)
    if plans is None:
        there = ", ".join(outcome.by_schedule)
        return fallback(outcome, NOT_TRIED, f"{decision.schedule} was not tried, only {there}")
    if knobs == "best":
        plan, exact = plans[0], True
    else:
        plan, exact = _nearest(decision, plans, outcome.machine.num_gpus)
    return Chosen(
        schedule=plan.schedule,
        plan=plan.title,
        seconds=plan.makespan_s,
        schedule_s=plans[0].makespan_s,
        exact=exact,
    )


def _nearest(decision: Decision, plans: Iterable[Tried], num_gpus: int) -> tuple[Tried, bool]:
    wanted = decision.knobs(num_gpus)
    chunks, queues = wanted.get("num_chunks", 1), wanted.get("compute_queues", 1)
    engine = wanted.get("engine", "dma")

    def distance(plan: Tried) -> float:
        far: float = (
            abs(math.log2(plan.num_chunks / chunks))
            + abs(math.log2(plan.compute_queues / queues))
            + OTHER_ENGINE * (plan.engine != engine)
        )
        return far

    # no rule sets what makes a variant: the plain one stands for all
    near = min(
        plans,
        key=lambda p: (distance(p), p.num_chunks, p.compute_queues, p.engine, p.variant),
    )
    same = (near.num_chunks, near.compute_queues) == (chunks, queues)
    return near, same and (near.engine == engine or decision.engine is None)


def fallback(outcome: Outcome, fault: str, message: str) -> Chosen:
    """What stands for a fault: serial, which any program can do."""
    # serial may beat what there is to choose from, where that is only some schedules
    seconds = max(outcome.serial_s, outcome.best.makespan_s)
    return Chosen(
        schedule="serial",
        plan="serial",
        seconds=seconds,
        schedule_s=seconds,
        exact=True,
        fault=fault,
        message=message,
    )

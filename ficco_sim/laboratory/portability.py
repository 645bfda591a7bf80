"""Rules on other machines than they were tuned for: the portability matrix."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ficco_sim.errors import ScenarioError
from ficco_sim.heuristics import FEATURE_NAMES, Rule
from ficco_sim.laboratory.judge import KnobsOf
from ficco_sim.laboratory.missing import METHOD, Split, best_splits, used_features
from ficco_sim.laboratory.outcomes import Outcomes
from ficco_sim.laboratory.statistics import bootstrap_mean, check_seed, wilson
from ficco_sim.laboratory.thresholds import Axis, Scores, score, thresholds

__all__ = ["BAD_REGRET", "OTHERS", "UNTUNED", "Cell", "Missing", "Portability", "Tuned", "portability"]

BAD_REGRET = 0.05
UNTUNED = "(as it is)"
"""In place of a machine: the rule with the values it came with."""
OTHERS = "(all others)"
"""In place of a machine: all but the one it is judged on; each of their scenarios counts alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """Values with the least mean regret on a machine; `UNTUNED` has the rule's own."""

    machine: str
    num_scenarios: int
    values: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A rule tuned on one machine, judged on another.

    Parameters
    ----------
    values
        What it was tuned to.
    accuracy, accuracy_low, accuracy_high
        Share of scenarios in which no schedule is faster, with its 95 % Wilson interval.
    mean_regret, mean_regret_low, mean_regret_high
        With its 95 % bootstrap interval.
    regained
        Mean regret that tuning on the machine it is judged on takes away.
    bad
        Whether the mean regret is above `BAD_REGRET`.
    stays_bad
        Whether it is even if tuned on the machine it is judged on: no threshold mends that.
    """

    tuned_on: str
    judged_on: str
    values: dict[str, float]
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    accuracy_within_noise: float
    mean_regret: float
    mean_regret_low: float
    mean_regret_high: float
    num_faults: int
    regained: float
    bad: bool
    stays_bad: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What the rule does not look at on a machine where it stays bad, by `METHOD`."""

    machine: str
    mean_regret: float
    share_wrong: float
    splits: tuple[Split, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Portability:
    """Cells row by row: untuned, tuned on each machine, tuned on all but the one it is judged on.

    Parameters
    ----------
    used
        Features that the rule reads.
    missing
        For machines on which the rule stays bad when tuned on them.
    """

    rule: str
    source: str
    machines: tuple[str, ...]
    knobs: KnobsOf
    noise: float | None
    seed: int
    parameters: tuple[str, ...]
    tuned: tuple[Tuned, ...]
    cells: tuple[Cell, ...]
    used: tuple[str, ...]
    missing: tuple[Missing, ...]
    method: str
    labels: tuple[str, ...]
    notes: tuple[str, ...]


def portability(
    rule: Rule,
    outcomes: Outcomes,
    axes: Sequence[Axis],
    *,
    knobs: KnobsOf = "rule",
    noise: float | None = None,
    seed: int = 0,
    progress: Callable[[int, int, str], None] | None = None,
) -> Portability:
    """Tune a rule on each machine by the least mean regret, and judge it on all.

    Where it is judged on the machine it was tuned on nothing is held out: that is as good as it gets.

    Parameters
    ----------
    axes
        Parameters and their ranges; the rule's own values are tried as well.
    knobs, noise
        See `judge`.
    seed
        For bootstrap intervals.

    Raises
    ------
    RuleError
        If the rule has no such parameters, or too many values are to be tried.
    ScenarioError
        If there is one machine only.
    """
    check_seed(seed)
    places = outcomes.places
    if len(places) < 2:
        raise ScenarioError(f"portability: at least two machines are needed; all is of {places[0]}")
    scenarios = outcomes.outcomes
    grid = thresholds(rule, axes)
    scores = score(rule, scenarios, grid, knobs=knobs, noise=noise, progress=progress)
    points = grid.points()
    rows = {place: [i for i, o in enumerate(scenarios) if o.place == place] for place in places}
    at = {UNTUNED: grid.own} | {place: scores.pick(rows[place]) for place in places}
    least = {place: float(scores.regret[rows[place], at[place]].mean()) for place in places}
    pairs = [(tuned_on, column, place) for tuned_on, column in at.items() for place in places]
    pairs += [
        (OTHERS, scores.pick([i for name in places if name != place for i in rows[name]]), place)
        for place in places
    ]
    cells = [
        _cell(scores, tuned_on, column, points[column], place, rows[place], least[place], seed)
        for tuned_on, column, place in pairs
    ]
    used = used_features(rule, scenarios)
    return Portability(
        rule=rule.name,
        source=outcomes.source,
        machines=places,
        knobs=knobs,
        noise=noise,
        seed=seed,
        parameters=grid.names,
        tuned=tuple(
            Tuned(machine=name, num_scenarios=len(rows.get(name, ())), values=points[column])
            for name, column in at.items()
        ),
        cells=tuple(cells),
        used=used,
        missing=tuple(
            _missing(scores, at[place], outcomes, rows[place], place, used)
            for place in places
            if least[place] > BAD_REGRET
        ),
        method=METHOD,
        labels=outcomes.labels,
        notes=outcomes.notes,
    )


def _cell(
    scores: Scores,
    tuned_on: str,
    column: int,
    values: dict[str, float],
    judged_on: str,
    rows: Sequence[int],
    least: float,
    seed: int,
) -> Cell:
    regret, right = scores.regret[rows, column], scores.right[rows, column]
    mean = float(regret.mean())
    low, high = bootstrap_mean(regret, seed)
    share_low, share_high = wilson(int(right.sum()), len(right))
    return Cell(
        tuned_on=tuned_on,
        judged_on=judged_on,
        values=values,
        accuracy=float(right.mean()),
        accuracy_low=share_low,
        accuracy_high=share_high,
        accuracy_within_noise=float(scores.within[rows, column].mean()),
        mean_regret=mean,
        mean_regret_low=low,
        mean_regret_high=high,
        num_faults=int(scores.fault[rows, column].sum()),
        regained=max(0.0, mean - least),
        bad=mean > BAD_REGRET,
        stays_bad=mean > BAD_REGRET and least > BAD_REGRET,
    )


def _missing(
    scores: Scores,
    column: int,
    outcomes: Outcomes,
    rows: Sequence[int],
    place: str,
    used: Sequence[str],
) -> Missing:
    wrong = ~scores.within[rows, column]
    features = {
        name: [float(getattr(outcomes.outcomes[i].features, name)) for i in rows]
        for name in FEATURE_NAMES
        if name not in used
    }
    return Missing(
        machine=place,
        mean_regret=float(scores.regret[rows, column].mean()),
        share_wrong=float(np.mean(wrong)),
        splits=best_splits(features, wrong, scores.regret[rows, column]),
    )

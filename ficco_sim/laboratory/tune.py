"""Thresholds tuned on outcomes: where a rule is best, how wide that is, and what is left held out."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ficco_sim.errors import ScenarioError
from ficco_sim.heuristics import Rule
from ficco_sim.laboratory.judge import KnobsOf
from ficco_sim.laboratory.outcomes import Outcome, Outcomes
from ficco_sim.laboratory.statistics import bootstrap_mean, check_seed, wilson
from ficco_sim.laboratory.thresholds import Axis, Scores, connected, middle, score, thresholds

__all__ = ["Fold", "HeldOut", "Plateau", "Point", "Range", "Tuning", "tune"]

ACCURACY_STEP = 0.01
REGRET_STEP = 0.002
MAX_FOLDS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A rule with some values of its parameters, in all scenarios; see `Summary`."""

    values: dict[str, float]
    accuracy: float
    accuracy_within_noise: float
    mean_regret: float
    mean_schedule_regret: float
    num_faults: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Values of a parameter on a plateau; ``ends``: it goes on to the first or last value tried."""

    name: str
    low: float
    high: float
    ends: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plateau:
    """Where a rule is as good as at its best point, but for a tolerance, without a gap.

    Parameters
    ----------
    measure
        ``accuracy``, ``accuracy_within_noise`` or ``mean_regret``.
    at
        In the middle of the points that tie for the best.
    tolerance
        In accuracy one scenario or 1 %, whichever is more; in regret 0.2 %.
    """

    measure: str
    at: Point
    tolerance: float
    num_points: int
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Values picked without some scenarios, judged on these.

    Parameters
    ----------
    untuned_regret
        Of the rule as it is on the same held-out scenarios.
    """

    num_train: int
    num_test: int
    values: dict[str, float]
    train_regret: float
    accuracy: float
    accuracy_within_noise: float
    mean_regret: float
    untuned_regret: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """All folds together: each scenario judged with values that were picked without it.

    Parameters
    ----------
    together
        What folds keep together: the layers of one ``model``, or all machines of one ``workload``.
    picked
        Lowest and highest value of each parameter over the folds.
    fold_regret, fold_accuracy
        Lowest and highest mean of a fold.
    """

    together: str
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    accuracy_within_noise: float
    mean_regret: float
    mean_regret_low: float
    mean_regret_high: float
    untuned_regret: float
    picked: tuple[Range, ...]
    fold_regret: tuple[float, float]
    fold_accuracy: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """A rule's parameters swept over outcomes.

    Parameters
    ----------
    untuned, picked
        The rule as it is, and with the least mean regret over all scenarios (in the middle of what
        ties): as good as it can be, as nothing is held out.
    points
        All that was tried, the last parameter changing first.
    folds, held_out
        Nested cross-validation; empty and None if there are too few scenarios.
    """

    rule: str
    source: str
    num_scenarios: int
    machines: tuple[str, ...]
    sets: tuple[str, ...]
    knobs: KnobsOf
    noise: float | None
    seed: int
    parameters: tuple[str, ...]
    untuned: Point
    picked: Point
    plateaus: tuple[Plateau, ...]
    held_out: HeldOut | None
    folds: tuple[Fold, ...]
    points: tuple[Point, ...]
    labels: tuple[str, ...]
    notes: tuple[str, ...]


def tune(
    rule: Rule,
    outcomes: Outcomes,
    axes: Sequence[Axis],
    *,
    folds: int = 5,
    knobs: KnobsOf = "rule",
    noise: float | None = None,
    seed: int = 0,
    progress: Callable[[int, int, str], None] | None = None,
) -> Tuning:
    """Sweep parameters of a rule, and cross-validate the choice of their values.

    Each outer fold is judged with the values that have the least mean regret in all other folds.
    Nothing is fitted but these values, so that the mean over inner folds, by which a nested
    cross-validation chooses (S. Varma, R. Simon (2006), BMC Bioinformatics 7:91), is the mean over the
    scenarios outside the outer fold.

    Parameters
    ----------
    axes
        Parameters and their ranges; the rule's own values are tried as well.
    folds
        Outer folds; the layers of one model, on all machines, are in one of them.
    knobs, noise
        See `judge`.
    seed
        For folds and bootstrap intervals.

    Raises
    ------
    RuleError
        If the rule has no such parameters, or too many values are to be tried.
    ScenarioError
        If the number of folds is out of range.
    """
    if not 2 <= folds <= MAX_FOLDS:
        raise ScenarioError(f"folds: {folds} must be from 2 to {MAX_FOLDS}")
    check_seed(seed)
    scenarios = outcomes.outcomes
    grid = thresholds(rule, axes)
    scores = score(rule, scenarios, grid, knobs=knobs, noise=noise, progress=progress)
    points = _points(scores)
    notes = list(outcomes.notes)
    together, tests = assign_folds(scenarios, folds, seed)
    if len(tests) < 2:
        notes.append("too few scenarios to hold any out: nothing is cross-validated")
        tests = []
    elif len(tests) < folds:
        notes.append(f"{len(tests)} folds, as there is no more to hold out")
    found = [_fold(scores, points, test) for test in tests]
    return Tuning(
        rule=rule.name,
        source=outcomes.source,
        num_scenarios=len(scenarios),
        machines=outcomes.places,
        sets=tuple(dict.fromkeys(o.set_name for o in scenarios)),
        knobs=knobs,
        noise=noise,
        seed=seed,
        parameters=grid.names,
        untuned=points[grid.own],
        picked=points[scores.pick()],
        plateaus=_plateaus(scores, points),
        held_out=_held_out(scores, tests, found, together, seed) if found else None,
        folds=tuple(found),
        points=tuple(points),
        labels=outcomes.labels,
        notes=tuple(notes),
    )


def _points(scores: Scores) -> list[Point]:
    return [
        Point(
            values=values,
            accuracy=float(scores.right[:, i].mean()),
            accuracy_within_noise=float(scores.within[:, i].mean()),
            mean_regret=float(scores.regret[:, i].mean()),
            mean_schedule_regret=float(scores.schedule_regret[:, i].mean()),
            num_faults=int(scores.fault[:, i].sum()),
        )
        for i, values in enumerate(scores.thresholds.points())
    ]


def _plateaus(scores: Scores, points: Sequence[Point]) -> tuple[Plateau, ...]:
    step = max(ACCURACY_STEP, 1 / len(scores.regret))
    measures = {"accuracy": step, "accuracy_within_noise": step, "mean_regret": REGRET_STEP}
    found = []
    for measure, tolerance in measures.items():
        # the less the better
        sign = 1 if measure == "mean_regret" else -1
        values = np.array([sign * getattr(point, measure) for point in points])
        shape = scores.thresholds.shape
        at = middle(values <= values.min() + 1e-12, shape)
        near = values <= values.min() + tolerance + 1e-12
        part = next(part for part in connected(near, shape) if at in part)
        found.append(
            Plateau(
                measure=measure,
                at=points[at],
                tolerance=tolerance,
                num_points=len(part),
                ranges=_ranges(scores, [points[i].values for i in part]),
            )
        )
    return tuple(found)


def _ranges(scores: Scores, points: Sequence[dict[str, float]]) -> tuple[Range, ...]:
    found = []
    for name, tried in zip(scores.thresholds.names, scores.thresholds.values, strict=True):
        values = [point[name] for point in points]
        low, high = min(values), max(values)
        found.append(Range(name=name, low=low, high=high, ends=low == tried[0] or high == tried[-1]))
    return tuple(found)


def assign_folds(outcomes: Sequence[Outcome], folds: int, seed: int) -> tuple[str, list[list[int]]]:
    """Scenarios of each fold, and what they keep together: models, or workloads if those are few."""
    for together in ("model", "workload"):
        groups: dict[str, list[int]] = {}
        for i, o in enumerate(outcomes):
            key = o.model if together == "model" else o.workload.name
            groups.setdefault(key, []).append(i)
        if len(groups) >= folds:
            break
    order = list(groups.values())
    random.Random(seed).shuffle(order)  # noqa: S311 - no secret
    # the largest first, each into the smallest fold, so that folds are about equal
    order.sort(key=len, reverse=True)
    parts: list[list[int]] = [[] for _ in range(min(folds, len(order)))]
    for group in order:
        min(parts, key=len).extend(group)
    return together, [sorted(part) for part in parts]


def _fold(scores: Scores, points: Sequence[Point], test: Sequence[int]) -> Fold:
    inside = set(test)
    train = [i for i in range(len(scores.regret)) if i not in inside]
    at, own = scores.pick(train), scores.thresholds.own
    return Fold(
        num_train=len(train),
        num_test=len(test),
        values=points[at].values,
        train_regret=float(scores.regret[train, at].mean()),
        accuracy=float(scores.right[test, at].mean()),
        accuracy_within_noise=float(scores.within[test, at].mean()),
        mean_regret=float(scores.regret[test, at].mean()),
        untuned_regret=float(scores.regret[test, own].mean()),
    )


def _held_out(
    scores: Scores, tests: Sequence[Sequence[int]], folds: Sequence[Fold], together: str, seed: int
) -> HeldOut:
    points = scores.thresholds.points()
    at = [points.index(fold.values) for fold in folds]
    cells = [(row, column) for test, column in zip(tests, at, strict=True) for row in test]
    rows, columns = (np.array(x) for x in zip(*cells, strict=True))
    regrets, right = scores.regret[rows, columns], scores.right[rows, columns]
    low, high = bootstrap_mean(regrets, seed)
    share_low, share_high = wilson(int(right.sum()), len(right))
    accuracies = [fold.accuracy for fold in folds]
    means = [fold.mean_regret for fold in folds]
    return HeldOut(
        together=together,
        accuracy=float(right.mean()),
        accuracy_low=share_low,
        accuracy_high=share_high,
        accuracy_within_noise=float(scores.within[rows, columns].mean()),
        mean_regret=float(regrets.mean()),
        mean_regret_low=low,
        mean_regret_high=high,
        untuned_regret=float(scores.regret[:, scores.thresholds.own].mean()),
        picked=_ranges(scores, [fold.values for fold in folds]),
        fold_regret=(min(means), max(means)),
        fold_accuracy=(min(accuracies), max(accuracies)),
    )

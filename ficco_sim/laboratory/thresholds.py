"""Values of a rule's parameters to try, and what the rule loses with each in each scenario."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ficco_sim.errors import RuleError
from ficco_sim.heuristics import Decision, Rule, decide
from ficco_sim.laboratory.judge import Chosen, KnobsOf, fallback, noise_of, plan_for
from ficco_sim.laboratory.outcomes import Outcome
from ficco_sim.units import parse_bytes, parse_seconds

__all__ = ["Axis", "Scores", "Thresholds", "parse_axis", "score", "thresholds"]

MAX_POINTS = 10_000
MAX_CHOICES = 50_000_000  # points x scenarios; about 15 us each
TIE = 1e-12  # means that differ by less are equal but for rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A range of one parameter: ``count`` values from low to high, evenly spaced in the logarithm.

    Raises
    ------
    RuleError
        If low is not above 0, high is below low, or the count is out of range.
    """

    name: str
    low: float
    high: float
    count: int

    def __post_init__(self) -> None:
        where = f"parameter {self.name}"
        if not 0 < self.low <= self.high < float("inf"):
            raise RuleError(f"{where}: {self.low:g} to {self.high:g}: must be above 0 and not fall")
        if not 1 <= self.count <= MAX_POINTS:
            raise RuleError(f"{where}: {self.count} values; must be from 1 to {MAX_POINTS:,}")
        if (self.count == 1) != (self.low == self.high):
            raise RuleError(f"{where}: one value is for a range without length, and only for it")

    def values(self) -> list[float]:
        """The values, rising."""
        # rounded, as 1e-05 reads better than 9.999999999999999e-06
        return [float(f"{x:.12g}") for x in np.geomspace(self.low, self.high, self.count)]


def parse_axis(text: str) -> Axis:
    """Read ``NAME=LOW:HIGH:COUNT``; ``_s`` and ``_bytes`` take units, as in ``tau_s=1us:10s:60``.

    Raises
    ------
    RuleError
        If it is none.

    Examples
    --------
    >>> parse_axis("tau_s=1us:10ms:5").values()[1]
    1e-05
    """
    name, equals, rest = (part.strip() for part in text.partition("="))
    parts = rest.split(":")
    if not equals or len(parts) != 3:
        raise RuleError(
            f"--parameter: {text[:60]!r} must be NAME=LOW:HIGH:COUNT, such as tau_s=1us:10s:60"
        )
    read: Callable[[str], float] = float
    for ending, reader in (("_s", parse_seconds), ("_bytes", parse_bytes)):
        if name.endswith(ending) and not name.endswith(f"_per{ending}"):
            read = reader
    try:
        low, high, count = read(parts[0]), read(parts[1]), int(parts[2])
    except ValueError as error:
        raise RuleError(f"--parameter: {text[:60]!r}: {error}") from error
    return Axis(name=name, low=low, high=high, count=count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """All combinations of values to try, the last parameter changing first.

    Parameters
    ----------
    names
        Of the parameters.
    values
        Of each, rising; the rule's own value is among them.
    own
        Which point is the rule as it is.
    """

    names: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    own: int

    @property
    def shape(self) -> tuple[int, ...]:
        """How many values each parameter has."""
        return tuple(map(len, self.values))

    def points(self) -> list[dict[str, float]]:
        """Values by name, point by point."""
        return [dict(zip(self.names, point, strict=True)) for point in itertools.product(*self.values)]


def thresholds(rule: Rule, axes: Sequence[Axis]) -> Thresholds:
    """The points of axes for a rule, whose own values are added where they are not among them.

    Raises
    ------
    RuleError
        If the rule lacks a parameter, one is given twice or none, or there are too many points.
    """
    if not axes:
        has = ", ".join(rule.parameters) or "none"
        raise RuleError(f"--parameter: at least one is needed; rule {rule.name} has {has}")
    names = tuple(axis.name for axis in axes)
    for axis in axes:
        if names.count(axis.name) > 1:
            raise RuleError(f"--parameter: {axis.name} is given twice")
        rule.with_parameters(**{axis.name: axis.low})  # refuses what it lacks
    values = tuple(tuple(sorted({*axis.values(), float(rule.parameters[axis.name])})) for axis in axes)
    if (size := int(np.prod([len(v) for v in values]))) > MAX_POINTS:
        raise RuleError(f"--parameter: {size:,} combinations; at most {MAX_POINTS:,} are tried")
    where = [v.index(float(rule.parameters[n])) for n, v in zip(names, values, strict=True)]
    own = int(np.ravel_multi_index(where, [len(v) for v in values]))
    return Thresholds(names=names, values=values, own=own)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """What a rule's choices cost; arrays are [scenario, point].

    Parameters
    ----------
    regret, schedule_regret
        See `Judgement`.
    right, within
        Whether no schedule is faster; whether none gains more than the noise.
    fault
        Whether there was no answer that could be judged.
    """

    thresholds: Thresholds
    regret: NDArray[np.float64]
    schedule_regret: NDArray[np.float64]
    right: NDArray[np.bool_]
    within: NDArray[np.bool_]
    fault: NDArray[np.bool_]

    def pick(self, rows: Sequence[int] | None = None) -> int:
        """The point with the least mean regret in some scenarios, in the middle of those that tie."""
        regret = self.regret if rows is None else self.regret[np.asarray(rows, dtype=np.intp)]
        mean = regret.mean(axis=0)
        return middle(mean <= mean.min() + TIE, self.thresholds.shape)


def score(
    rule: Rule,
    outcomes: Sequence[Outcome],
    grid: Thresholds,
    *,
    knobs: KnobsOf = "rule",
    noise: float | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Scores:
    """Ask a rule with all values in all scenarios.

    Raises
    ------
    RuleError
        If that is too much.
    """
    points = grid.points()
    if len(points) * len(outcomes) > MAX_CHOICES:
        raise RuleError(
            f"{len(points):,} combinations in {len(outcomes):,} scenarios are more than "
            f"{MAX_CHOICES:,} choices; try fewer values"
        )
    rules = [rule.with_parameters(**point) for point in points]
    shape = (len(outcomes), len(points))
    seconds, schedule_s = np.empty(shape), np.empty(shape)
    fault = np.zeros(shape, dtype=np.bool_)
    # scenario by scenario, so that its features are computed once
    for row, outcome in enumerate(outcomes):
        if progress is not None:
            progress(row, len(outcomes), outcome.workload.name)
        known: dict[tuple[object, ...], Chosen] = {}
        for column, varied in enumerate(rules):
            chosen = _choose(varied, outcome, knobs, known)
            seconds[row, column] = chosen.seconds
            schedule_s[row, column] = chosen.schedule_s
            fault[row, column] = chosen.fault is not None
    best_s = np.array([[o.best.makespan_s] for o in outcomes])
    limit = np.array([[noise_of(o, noise)] for o in outcomes])
    schedule_regret = schedule_s / best_s - 1
    return Scores(
        thresholds=grid,
        regret=seconds / best_s - 1,
        schedule_regret=schedule_regret,
        right=(schedule_regret == 0) & ~fault,
        within=(schedule_regret <= limit) & ~fault,
        fault=fault,
    )


def _choose(
    rule: Rule, outcome: Outcome, knobs: KnobsOf, known: dict[tuple[object, ...], Chosen]
) -> Chosen:
    answer = decide(rule, outcome.workload, outcome.machine)
    if not isinstance(answer, Decision):
        return fallback(outcome, answer.kind, answer.message)
    key = (answer.schedule, answer.num_chunks, answer.compute_queues, answer.engine)
    if key not in known:
        known[key] = plan_for(answer, outcome, knobs)
    return known[key]


def middle(mask: NDArray[np.bool_], shape: tuple[int, ...]) -> int:
    """The middle point of the largest connected part of a grid's marked points; the first of equals."""
    parts = connected(mask, shape)
    largest = max(parts, key=len)
    return largest[(len(largest) - 1) // 2]


def connected(mask: NDArray[np.bool_], shape: tuple[int, ...]) -> list[list[int]]:
    """Marked points of a grid in parts that touch along an axis, each in order."""
    from scipy.ndimage import label

    labels, count = label(mask.reshape(shape))
    flat = labels.ravel()
    return [[int(i) for i in np.flatnonzero(flat == part)] for part in range(1, count + 1)]

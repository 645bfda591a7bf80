"""Robust least squares with intervals, and errors on points that were left out.

Residuals are ``log(predicted / measured)`` throughout, so that a microsecond and a second count alike.
Beyond `SCALE` their weight falls (loss ``soft_l1``), so that a few bad points move nothing.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, least_squares

from ficco_sim.profile import Fit, FitSource

__all__ = [
    "NUM_DRAWS",
    "OUTLIERS",
    "Array",
    "Errors",
    "Fitted",
    "NotFitted",
    "Parameter",
    "Provenance",
    "RobustFit",
    "draws",
    "errors_of",
    "fit",
    "held_out_errors",
    "held_out_predictions",
    "make_fit",
]

Array = NDArray[np.float64]
Point = TypeVar("Point")
Model = TypeVar("Model")
Values = TypeVar("Values")

SCALE = 0.02
LEAST_SCALE = 0.1
FAR = 5.0
MAD_TO_DEVIATION = 1.4826  # of a normal distribution: median absolute deviation to standard deviation
OUTLIERS = 0.2
"""Share of points that may be outliers where timings are few and the model is good."""
NUM_DRAWS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One that is fitted, within bounds; in log space if ``least`` is above 0."""

    name: str
    start: float
    least: float
    most: float

    def __post_init__(self) -> None:
        if not 0 <= self.least < self.most < math.inf:
            raise ValueError(f"{self.name}: bounds {self.least}, {self.most} must be 0 or more, rising")

    def to_fitted(self, value: float) -> float:
        """Where a value lies in the space of the fit."""
        return math.log(value) if self.least > 0 else value / self.most

    def from_fitted(self, position: float) -> float:
        """The value at a position, within the bounds."""
        value = math.exp(position) if self.least > 0 else position * self.most
        return float(min(max(value, self.least), self.most))


@dataclass(frozen=True, slots=True, kw_only=True)
class RobustFit:
    """What `fit` found.

    Parameters
    ----------
    parameters
        In the order of ``position`` and ``covariance``.
    values
        By name.
    position, covariance
        In the space of the fit; see `Parameter`.
    cost
        Half the sum of the losses, in units of squared residuals.
    num_points
        Residuals that it was fitted to.
    """

    parameters: tuple[Parameter, ...]
    values: dict[str, float]
    position: Array
    covariance: Array
    cost: float
    num_points: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Of ``abs(predicted / measured - 1)`` over so many predictions."""

    count: int
    median: float
    mean: float
    p90: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted(Generic[Values]):
    """A fitted group of a profile.

    Parameters
    ----------
    parts
        Held-out errors of some of the points, by what they have in common.
    not_fitted
        Parameters of the group that no point tells, and where their values are from.
    """

    values: Values
    fit: Fit
    parts: dict[str, Errors]
    not_fitted: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotFitted:
    """Why a group of parameters keeps its defaults."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where the points of a fit are from; see `Fit`."""

    sources: tuple[FitSource, ...] = ()
    date: str = ""
    regime: Literal["sustained", "burst", "mixed"] = "mixed"
    device: str = ""
    driver: str = ""
    library: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Space:
    """Parameters as one vector, for the optimiser."""

    parameters: tuple[Parameter, ...]
    least: Array = field(init=False)
    most: Array = field(init=False)

    def __post_init__(self) -> None:
        for name in ("least", "most"):
            ends = [p.to_fitted(getattr(p, name)) for p in self.parameters]
            object.__setattr__(self, name, np.array(ends))

    def values(self, position: Array) -> dict[str, float]:
        return {p.name: p.from_fitted(x) for p, x in zip(self.parameters, position, strict=True)}


def fit(
    residuals: Callable[[Mapping[str, float]], Array],
    parameters: Sequence[Parameter],
    *,
    scale: float = SCALE,
    starts: Sequence[Mapping[str, float]] = (),
    rejected: float = 0.0,
) -> RobustFit:
    """Parameters that make residuals small, outliers aside, and how well they are known.

    Parameters
    ----------
    residuals
        From values by name to ``log(predicted / measured)`` of each point.
    parameters
        With starting values and bounds.
    scale
        Residuals from which on a point counts as an outlier, more and more. Where most are smaller,
        the standard deviation that their median tells is taken instead, down to a tenth of it.
    starts
        Further starting points, by name; those not named start where their `Parameter` says. The
        best end wins.
    rejected
        Share of points up to which those more than 5 standard deviations off are left out altogether.
        Where there are more of them it is the model that is off.

    Returns
    -------
    RobustFit
        Its covariance is the sandwich estimate of M-estimators, ``H^-1 (sum psi_i^2 x_i x_i') H^-1``
        with ``psi_i`` over ``1 - leverage`` (HC3; MacKinnon and White 1985). Directions that the
        points leave open get the variance of a uniform distribution over the bounds.
    """
    space = _Space(parameters=tuple(parameters))
    # an end of a range has no way to go for the first step
    inside = 1e-9 * (space.most - space.least)

    kept: slice | NDArray[np.bool_] = slice(None)

    def at(position: Array) -> Array:
        return np.asarray(residuals(space.values(position)), dtype=np.float64)[kept]

    def search(position: Array, outlying: float) -> OptimizeResult:
        return least_squares(
            at,
            np.clip(position, space.least + inside, space.most - inside),
            bounds=(space.least, space.most),
            loss="soft_l1",
            f_scale=outlying,
            x_scale=space.most - space.least,
        )

    first = [
        np.array([p.to_fitted(start.get(p.name, p.start)) for p in space.parameters])
        for start in ({}, *starts)
    ]
    best = min((search(x, scale) for x in first), key=lambda result: float(result.cost))
    # outliers are slow ones: the less they weigh, the less they shift what the others say
    spread = max(float(MAD_TO_DEVIATION * np.median(np.abs(best.fun))), LEAST_SCALE * scale)
    if spread < scale:
        scale = spread
        best = search(best.x, scale)
    near = np.abs(best.fun) <= FAR * spread
    if 0.0 < 1 - np.mean(near) <= rejected:
        kept = near
        best = search(best.x, scale)
    return RobustFit(
        parameters=space.parameters,
        values=space.values(best.x),
        position=best.x,
        covariance=_covariance(np.asarray(best.jac), best.fun, scale, space.most - space.least),
        cost=float(best.cost),
        num_points=len(best.fun),
    )


def draws(found: RobustFit, count: int = NUM_DRAWS, seed: int = 0) -> dict[str, tuple[float, ...]]:
    """Values of each parameter drawn together from a fit's covariance, clipped to its bounds."""
    normal = np.random.default_rng(seed).standard_normal((count, len(found.parameters)))
    # few draws are off centre by chance: give them exactly the mean and the covariance of the fit
    left, _, right = np.linalg.svd(normal - normal.mean(axis=0), full_matrices=False)
    values, vectors = np.linalg.eigh(found.covariance)
    spread = np.sqrt(np.maximum(values, 0.0)) * vectors
    positions = found.position + math.sqrt(count) * (left @ right) @ spread.T
    return {
        p.name: tuple(p.from_fitted(x) for x in column)
        for p, column in zip(found.parameters, positions.T, strict=True)
    }


def errors_of(predicted: Sequence[float], measured: Sequence[float]) -> Errors:
    """Errors of predictions.

    Raises
    ------
    ValueError
        If there are none.
    """
    if not predicted:
        raise ValueError("predicted: no predictions to take errors of")
    error = np.abs(np.asarray(predicted) / np.asarray(measured) - 1)
    return Errors(
        count=len(error),
        median=float(np.median(error)),
        mean=float(np.mean(error)),
        p90=float(np.quantile(error, 0.9)),
    )


def held_out_errors(
    points: Sequence[Point],
    fit_function: Callable[[Sequence[Point]], Model],
    predict: Callable[[Model, Point], float],
    measured: Callable[[Point], float],
    *,
    folds: int = 5,
    seeds: Sequence[int] = (0,),
    group: Callable[[Point], Hashable] | None = None,
) -> Errors:
    """Errors on points that a fit has not seen; see `held_out_predictions`."""
    told = held_out_predictions(points, fit_function, predict, folds=folds, seeds=seeds, group=group)
    return errors_of([value for _, value in told], [measured(point) for point, _ in told])


def held_out_predictions(
    points: Sequence[Point],
    fit_function: Callable[[Sequence[Point]], Model],
    predict: Callable[[Model, Point], float],
    *,
    folds: int = 5,
    seeds: Sequence[int] = (0,),
    group: Callable[[Point], Hashable] | None = None,
) -> list[tuple[Point, float]]:
    """Predictions of points that a fit has not seen: each is left out once for every seed.

    Parameters
    ----------
    fit_function
        From points to a model.
    predict
        What the model says of a point.
    folds
        Parts into which points are split at random; fewer where there are fewer groups.
    seeds
        Of as many splits.
    group
        Points of equal group are left out together; by default each is a group.

    Raises
    ------
    ValueError
        If there are fewer than two groups.
    """
    members: dict[Hashable, list[int]] = {}
    for i, point in enumerate(points):
        members.setdefault(i if group is None else group(point), []).append(i)
    groups = list(members.values())
    if len(groups) < 2:
        raise ValueError(f"points: {len(groups)} groups of points; two are needed to leave one out")
    told: list[tuple[Point, float]] = []
    for seed in seeds:
        order = np.random.default_rng(seed).permutation(len(groups))
        for part in np.array_split(order, min(folds, len(groups))):
            left_out = {i for g in part for i in groups[g]}
            model = fit_function([point for i, point in enumerate(points) if i not in left_out])
            told += [(points[i], predict(model, points[i])) for i in sorted(left_out)]
    return told


def make_fit(
    provenance: Provenance,
    errors: Errors,
    *,
    num_points: int,
    held_out: bool,
    valid: Mapping[str, tuple[float, float]],
    samples: Mapping[str, tuple[float, ...]],
) -> Fit:
    """The part of a profile that tells how a group was fitted."""
    return Fit(
        sources=provenance.sources,
        date=provenance.date,
        regime=provenance.regime,
        device=provenance.device,
        driver=provenance.driver,
        library=provenance.library,
        num_points=num_points,
        median_error=errors.median,
        mean_error=errors.mean,
        p90_error=errors.p90,
        held_out=held_out,
        valid=dict(valid),
        samples=dict(samples),
    )


def _covariance(jacobian: Array, residual: Array, scale: float, width: Array) -> Array:
    """Of the position; ``jacobian`` as scipy returns it, its rows times ``(1 + z)^-3/4``."""
    bent = 1 + (residual / scale) ** 2
    # in widths of the bounds, so that eigenvalues of all parameters compare
    rows = jacobian * width
    values, vectors = np.linalg.eigh(rows.T @ rows)
    known = values > 1e-10 * max(values.max(), 1e-300)
    inverse = (vectors[:, known] / values[known]) @ vectors[:, known].T
    leverage = np.einsum("ij,jk,ik->i", rows, inverse, rows)
    psi = residual / np.sqrt(bent) / np.maximum(1 - leverage, 0.1)
    scores = rows * (psi * bent**0.75)[:, None]
    covariance = inverse @ (scores.T @ scores) @ inverse
    # few points tell their own spread poorly: the variance of a t distribution
    freedom = len(residual) - len(width)
    covariance *= freedom / (freedom - 2) if freedom > 3 else 3.0
    # a uniform distribution over the bounds is the least that can be said
    open_ended = vectors[:, ~known]
    covariance += open_ended @ open_ended.T / 12
    values, vectors = np.linalg.eigh(covariance)
    covariance = (vectors * np.clip(values, 0.0, 1 / 12)) @ vectors.T
    return np.asarray(covariance * np.outer(width, width))

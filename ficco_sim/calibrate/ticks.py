"""Copies whose ends are seen at ticks only: what a command holds the engine, its rate, and the ticks.

Which tick each copy ended at bounds when it really ended, by one tick's width. The bounds of all copies
together enclose the rate, what a command holds the engine, and the first tick, in a polytope: within it
all is equally good.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import Bounds, differential_evolution, linprog
from scipy.spatial import Delaunay, HalfspaceIntersection, QhullError

from ficco_sim.calibrate.robust import FAR, NUM_DRAWS, OUTLIERS, SCALE, Array, Parameter, draws, fit
from ficco_sim.costs.ticks import seen_s

__all__ = ["TickFit", "fit_row_ticks", "fit_ticks"]

# searched: around what a fit without ticks says, and around the shortest copy
FIXED_RANGE, RATE_RANGE = (0.1, 3.0), (0.9, 1.1)
TICK_RANGE, LEAD_RANGE = (0.05, 4.0), (0.3, 1.1)
MOST_ROUNDS = 250
GRID = np.linspace(0.0, 1.0, 81) ** 4  # of what rows may cost: close where it is little
LEAST_OFF = 1e-3  # of residuals in the mean
LEAST_MARGIN = 1e-9  # of a tick: a polytope that is thinner is a point


@dataclass(frozen=True, slots=True, kw_only=True)
class TickFit:
    """Values by name, the middle of what the points leave open, and draws of it."""

    values: dict[str, float]
    samples: dict[str, tuple[float, ...]]


def fit_ticks(nbytes: Array, counts: Array, total_s: Array, *, fixed_s: float, rate: float) -> TickFit:
    """Fit copies alone and in a row on one stream, one burst of the engine each.

    The model is::

        end = count * (fixed_s + nbytes / engine_bytes_per_s)
        total = end's tick + signal_s,  ticks = first_tick_s + i * tick_s (i = 0, 1, ...)

    Differential evolution (Storn and Price 1997), with a fixed seed, finds the tick of each copy. Ticks
    are then fitted robustly; the other three values are the centroid of the polytope, and their draws
    are uniform in it. Draws of ``tick_s``, and of ``first_tick_s + signal_s`` together, are those of
    the robust fit. Noise is taken to be small beside a tick.

    Parameters
    ----------
    nbytes, counts, total_s
        Of each point: bytes of a copy, copies in a row, and the time of all, shape [points].
    fixed_s, rate
        What a fit without ticks says, in seconds and bytes/s.
    """
    shortest_s = float(total_s.min())
    bounds = [
        *(np.log([low * value, high * value]) for (low, high), value in (
            (FIXED_RANGE, fixed_s), (RATE_RANGE, rate), (TICK_RANGE, shortest_s)
        )),
        np.array(LEAD_RANGE) * shortest_s,
        np.array([0.0, 1.0]),
    ]  # fmt: skip

    def ends(x: Array) -> tuple[Array, Array, Array, Array]:
        """Ends, first tick, tick, and time of a copy that is seen at the first tick."""
        fixed, per_byte, tick = np.exp(x[0]), np.exp(-x[1]), np.exp(x[2])
        end = counts * (fixed[..., None] + nbytes * per_byte[..., None])
        return end, (x[4] * x[3])[..., None], tick[..., None], x[3][..., None]

    def off(x: Array, /) -> Any:  # a number for each column, which scipy's types do not know
        end, first, tick, lead = ends(x)
        told = seen_s(end, first, tick) + lead - first
        return np.abs(np.log(told / total_s)).sum(axis=-1)

    found = differential_evolution(
        off, Bounds(*np.array(bounds).T), rng=0, vectorized=True, updating="deferred",
        maxiter=MOST_ROUNDS, popsize=20, polish=False, tol=1e-6,
    )  # fmt: skip
    end, first, tick, _ = (np.atleast_1d(part) for part in ends(np.asarray(found.x)))
    numbers = np.rint((seen_s(end, first, tick) - first) / tick)
    ladder = fit(
        lambda v: np.log((v["lead_s"] + numbers * v["tick_s"]) / total_s),
        [
            Parameter(name="lead_s", start=float(found.x[3]), least=1e-8, most=1e-2),
            Parameter(name="tick_s", start=float(tick[0]), least=1e-8, most=1e-2),
        ],
        rejected=OUTLIERS,
    )
    lead_s, tick_s = ladder.values["lead_s"], ladder.values["tick_s"]
    residual = np.abs(np.log((lead_s + numbers * tick_s) / total_s))
    near = residual <= max(FAR * float(np.median(residual)), SCALE)
    inside = _Polytope(nbytes[near], counts[near], numbers[near], tick_s, lead_s)
    middle, drawn = inside.middle_and_draws()
    ladders = draws(ladder)
    first_s = np.minimum(drawn[:, 2], ladders["lead_s"])
    return TickFit(
        values={
            "fixed_s": float(middle[0]),
            "engine_bytes_per_s": float(1 / middle[1]),
            "signal_s": float(max(lead_s - middle[2], 0.0)),
            "tick_s": tick_s,
            "first_tick_s": float(middle[2]),
        },
        samples={
            "fixed_s": tuple(drawn[:, 0].tolist()),
            "engine_bytes_per_s": tuple((1 / drawn[:, 1]).tolist()),
            "signal_s": tuple((ladders["lead_s"] - first_s).tolist()),
            "tick_s": ladders["tick_s"],
            "first_tick_s": tuple(first_s.tolist()),
        },
    )


def fit_row_ticks(
    nbytes: Array,
    row_bytes: Array,
    gap_bytes: Array,
    counts: Array,
    total_s: Array,
    plain: TickFit,
    *,
    most: Mapping[str, float],
) -> TickFit:
    """Fit what rows cost, with what contiguous copies told: ``row_overhead_bytes`` and ``gap_share``.

    Residuals change by leaps, so all of a grid is weighed by the likelihood of Laplace's distribution,
    as wide as the residuals of the best point are in the mean; all values are as likely beforehand. The
    fit is the mean, and each draw is of the grid as a draw of ``plain`` weighs it.

    Parameters
    ----------
    nbytes, row_bytes, gap_bytes, counts, total_s
        Of each point: see `fit_ticks`; of a row, and between rows.
    most
        Of both values, in this order.
    """
    overhead, gap = (limit * GRID for limit in most.values())
    lost = overhead[:, None, None] + gap[:, None] * gap_bytes
    longer = (1 + lost / row_bytes).reshape(-1, len(nbytes))
    values = np.stack([np.repeat(overhead, len(gap)), np.tile(gap, len(overhead))], axis=1)
    # nodes lie closer where values are small
    room = np.outer(np.gradient(overhead), np.gradient(gap)).ravel()

    def weights(of: Mapping[str, float]) -> Array:
        end = counts * (of["fixed_s"] + nbytes / of["engine_bytes_per_s"] * longer)
        first, tick = (np.array(of[name]) for name in ("first_tick_s", "tick_s"))
        told = seen_s(end, first, tick) + of["signal_s"]
        off = np.abs(np.log(told / total_s)).sum(axis=1)
        width = max(float(off.min()) / len(nbytes), LEAST_OFF)
        found = room * np.exp((off.min() - off) / width)
        return np.asarray(found / found.sum())

    middle = dict(zip(most, weights(plain.values) @ values, strict=True))
    drawn = []
    for i, place in enumerate(np.random.default_rng(1).random(NUM_DRAWS)):
        shares = np.cumsum(weights({name: column[i] for name, column in plain.samples.items()}))
        drawn.append(values[min(int(np.searchsorted(shares, place)), len(values) - 1)])
    columns = np.array(drawn).T.tolist()
    return TickFit(
        values={name: float(value) for name, value in middle.items()},
        samples={name: tuple(column) for name, column in zip(most, columns, strict=True)},
    )


class _Polytope:
    """Where ``fixed_s``, seconds per byte and ``first_tick_s`` lie, given the tick of each point.

    Rows are ``normals @ x <= limits``, with x in ticks: the command, the bytes of the largest point,
    the first tick.
    """

    def __init__(
        self, nbytes: Array, counts: Array, numbers: Array, tick_s: float, lead_s: float
    ) -> None:
        self._unit = np.array([tick_s, tick_s / float((counts * nbytes).max()), tick_s])
        after = np.stack(
            [counts, counts * nbytes / float((counts * nbytes).max()), -np.ones_like(counts)]
        )
        late = numbers > 0
        self._normals = np.vstack([after.T, -after.T[late], -np.eye(3), [[0.0, 0.0, 1.0]]])
        self._limits = np.concatenate(
            [numbers, 1 - numbers[late], np.array([0.0, 0.0, 0.0, lead_s / tick_s])]
        )

    def middle_and_draws(self) -> tuple[Array, Array]:
        """Its centroid, and points that are uniform in it, shapes [3] and [draws, 3]."""
        lengths = np.linalg.norm(self._normals, axis=1)
        # the ball in it that is largest; where there is none, the point that misses least
        best = linprog(
            [0.0, 0.0, 0.0, -1.0],
            A_ub=np.column_stack([self._normals, lengths]),
            b_ub=self._limits,
            bounds=[(None, None)] * 4,
        )
        assert (
            best.x is not None
        )  # bounded: all three are 0 or more, and the first tick is not after all
        *at, margin = best.x
        centre = np.array(at)
        corners = None
        if margin > LEAST_MARGIN:
            try:
                found = HalfspaceIntersection(np.column_stack([self._normals, -self._limits]), centre)
                corners = self._simplices(np.asarray(found.intersections))
            except QhullError:
                pass  # thin: the centre stands for it
        if corners is None:
            middle = np.maximum(centre, LEAST_MARGIN) * self._unit
            return middle, np.tile(middle, (NUM_DRAWS, 1))
        sizes = np.abs(np.linalg.det(corners[:, 1:] - corners[:, :1]))
        shares = sizes / sizes.sum()
        middle = shares @ corners.mean(axis=1)
        rng = np.random.default_rng(0)
        # systematic, so that few draws are spread as the sizes are
        places = (np.arange(NUM_DRAWS) + rng.random()) / NUM_DRAWS
        picked = np.minimum(np.searchsorted(np.cumsum(shares), places), len(shares) - 1)
        weights = rng.dirichlet(np.ones(4), NUM_DRAWS)
        drawn = np.einsum("ij,ijk->ik", weights, corners[picked])
        return middle * self._unit, rng.permutation(drawn) * self._unit

    @staticmethod
    def _simplices(vertices: Array) -> Array:
        """Tetrahedra that fill the hull of the vertices, shape [tetrahedra, 4, 3]."""
        vertices = vertices[np.isfinite(vertices).all(axis=1)]
        apart = vertices - vertices.mean(axis=0)
        # long and thin as it may be, as round as any other
        _, widths, axes = np.linalg.svd(apart, full_matrices=False)
        return np.asarray(vertices[Delaunay(apart @ axes.T / widths).simplices])

"""What measured GEMMs say of others: how far the formula is off there, by Gaussian processes.

Covariances are Matern 3/2 (Rasmussen and Williams 2006, eq. 4.17) of a distance in two parts: sizes in
octaves, and how well tiles fit (`TileGrid.efficiency`), as the root mean square over all tiles. A
library picks its tile by that fit, whatever k is, so that shapes which tiles fit alike, siblings, share
what is good or bad about their tile. The wide covariance holds what the formula gets wrong for a whole
region, the narrow one what only siblings share.

Shapes for which the library has no good kernel are left out of that. What they take beyond it spreads
to their siblings alone, as far as those that were measured agree.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Neighbours", "Places"]

Floats = NDArray[np.float64]

# Constants were chosen for least held-out errors on H200 bf16 and fp8 and MI300X bf16, at six splits in
# halves other than the three of `calibrate.gemm`, but of the same shapes; parts-more of runs/h200_mesh
# took no part. Any one of them times 2/3 or 3/2 changes a mean error by less than 0.2 points.
K_AXIS, BATCH_AXIS, ACCUMULATE_AXIS = 1.5, 2 / 3, 2.0  # octaves that an octave of each, or adding, is
LOG_NOISE = 0.02  # of a measured time, as a logarithm
EXCESS_NOISE = 0.5  # of the excess of a bad kernel, over its spread among siblings
MISTAKE = 4.0  # measured over formula beyond which a time says nothing of other shapes


@dataclass(frozen=True, slots=True, kw_only=True)
class Covariance:
    """Of the logarithms of measured over formula.

    Parameters
    ----------
    spread
        By which they vary.
    reaches
        Lengths in sizes, in reaches of the profile.
    fit
        Length in the efficiency of tiles.
    """

    spread: float
    reaches: float
    fit: float

    def correlation(self, sizes2: Floats, fits2: Floats, reach: float) -> Floats:
        """At squared distances; 1 at none."""
        r = np.sqrt(3 * (sizes2 / (self.reaches * reach) ** 2 + fits2 / self.fit**2))
        return np.asarray((1 + r) * np.exp(-r))


WIDE = Covariance(spread=0.15, reaches=3.0, fit=0.6)
NARROW = Covariance(spread=0.06, reaches=2.0, fit=0.04)


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where shapes lie among others: sizes [S], and the efficiency of every tile [S, T]."""

    m: Floats
    n: Floats
    k: Floats
    entries: Floats
    accumulates: Floats
    efficiency: Floats

    @property
    def sizes(self) -> Floats:
        """Octaves of m, n and k; [S, 3]."""
        return np.log2(np.column_stack([self.m, self.n, self.k]))

    @property
    def axes(self) -> Floats:
        """Sizes so that equal distances matter alike; [S, 5]."""
        octaves = self.sizes * (1.0, 1.0, K_AXIS)
        entries = BATCH_AXIS * np.log2(self.entries)
        return np.column_stack([octaves, entries, ACCUMULATE_AXIS * self.accumulates])

    @property
    def fits(self) -> Floats:
        """Efficiencies, so that their distance is a root mean square; [S, T]."""
        return np.asarray(self.efficiency / math.sqrt(self.efficiency.shape[1]))


class Neighbours:
    """Measured shapes of one element type and what they say of others.

    Parameters
    ----------
    places
        Of the measured shapes.
    logs
        Of measured time over formula; [S].
    reach
        See `GemmProfile.correction_reach`.
    bad
        Logarithm beyond which the library has no good kernel for a shape.
    """

    def __init__(self, places: Places, logs: Floats, reach: float, *, bad: float) -> None:
        self._reach = reach
        self._axes, self._fits = _Points(places.axes), _Points(places.fits)
        self._least, self._most = places.sizes.min(axis=0), places.sizes.max(axis=0)
        good = logs < bad
        told = logs < math.log(MISTAKE)
        covariance, correlation = self._near(places)
        self._weights = _weights(covariance, logs, good, LOG_NOISE)
        excess = np.where(good, 0.0, logs - covariance @ self._weights)
        self._excess_weights = _weights(correlation, excess, told, EXCESS_NOISE)

    def factors(self, places: Places) -> Floats:
        """Times over formula that are to be expected at places; 1 outside of the measured sizes."""
        covariance, correlation = self._near(places)
        logs = covariance @ self._weights + correlation @ self._excess_weights
        sizes = places.sizes
        inside = ((sizes >= self._least) & (sizes <= self._most)).all(axis=1)
        return np.where(inside, np.exp(logs), 1.0)

    def _near(self, places: Places) -> tuple[Floats, Floats]:
        """Covariance of places and the measured shapes, and correlation as siblings; [S, measured]."""
        sizes2 = self._axes.squared_distances(places.axes)
        fits2 = self._fits.squared_distances(places.fits)
        correlation = NARROW.correlation(sizes2, fits2, self._reach)
        wide = WIDE.correlation(sizes2, fits2, self._reach)
        return WIDE.spread**2 * wide + NARROW.spread**2 * correlation, correlation


def _weights(covariance: Floats, values: Floats, known: NDArray[np.bool_], noise: float) -> Floats:
    """Of the values in the mean of a Gaussian process that saw those known (eq. 2.25 there)."""
    weights = np.zeros_like(values)
    seen = covariance[np.ix_(known, known)] + noise**2 * np.eye(int(known.sum()))
    weights[known] = np.linalg.solve(seen, values[known])
    return weights


class _Points:
    """Points that others ask for their distance; [measured, axes]."""

    def __init__(self, points: Floats) -> None:
        self._doubled = 2 * points.T
        self._squares = (points**2).sum(axis=1)

    def squared_distances(self, others: Floats) -> Floats:
        """Of others [S, axes] from each; [S, measured]."""
        squares = (others**2).sum(axis=1)[:, None] + self._squares
        return np.asarray(np.maximum(squares - others @ self._doubled, 0.0))

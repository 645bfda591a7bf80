"""Latency and bandwidth from times of transfers of several sizes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ficco_sim.errors import FileError
from ficco_sim.readers.logs.types import CollectivePoint

__all__ = ["AlphaBeta", "fit_alpha_beta", "fit_line"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlphaBeta:
    """``time = latency_s + nbytes / bytes_per_s``.

    Parameters
    ----------
    count
        Timings that were fitted.
    worst_error
        Largest relative difference of a fitted time from the measured one.
    """

    latency_s: float
    bytes_per_s: float
    count: int
    worst_error: float

    def time_s(self, nbytes: float) -> float:
        """Time of a transfer."""
        return self.latency_s + nbytes / self.bytes_per_s


def fit_line(timed: Sequence[tuple[float, float]]) -> AlphaBeta:
    """Fit latency and bandwidth by least squares of relative errors.

    Relative, because sizes span decades: the largest alone would decide otherwise.

    Parameters
    ----------
    timed
        (bytes, seconds), both above 0.

    Raises
    ------
    FileError
        If there are fewer than two sizes, or time does not grow with size.

    Examples
    --------
    >>> fit = fit_line([(1e6, 15e-6), (2e6, 25e-6)])
    >>> round(fit.latency_s * 1e6, 3), round(fit.bytes_per_s / 1e9, 3)
    (5.0, 100.0)
    """
    if len({nbytes for nbytes, _ in timed}) < 2:
        raise FileError("fit: at least two sizes above 0 bytes are needed")
    scale = max(nbytes for nbytes, _ in timed)
    # minimise the sum of (a w + b x w - 1)**2 with w = 1 / time and x = bytes / scale
    ww = math.fsum(1 / t**2 for _, t in timed)
    wx = math.fsum(s / scale / t**2 for s, t in timed)
    xx = math.fsum((s / scale / t) ** 2 for s, t in timed)
    w = math.fsum(1 / t for _, t in timed)
    x = math.fsum(s / scale / t for s, t in timed)
    determinant = ww * xx - wx * wx
    if determinant > 0:
        latency_s = (w * xx - x * wx) / determinant
        slope = (ww * x - wx * w) / determinant
        if latency_s < 0:  # no transfer takes less than none: the best line through 0
            latency_s, slope = 0.0, x / xx
    if determinant <= 0 or slope <= 0:
        raise FileError("fit: time does not grow with size: these sizes tell no bandwidth")
    return AlphaBeta(
        latency_s=latency_s,
        bytes_per_s=scale / slope,
        count=len(timed),
        worst_error=max(abs(latency_s + slope * s / scale - t) / t for s, t in timed),
    )


def fit_alpha_beta(points: Sequence[CollectivePoint], *, in_place: bool = False) -> AlphaBeta:
    """Latency and bandwidth of one gpu's links from times of a collective.

    Rows of 0 bytes only measure the launch and are left out.

    Parameters
    ----------
    points
        Of one collective on one number of gpus.
    in_place
        Take the rows in which the result replaced the input, instead of the others.

    Raises
    ------
    FileError
        If points differ in more than their size, or tell no bandwidth.
    """
    taken = [p for p in points if p.in_place == in_place and p.total_bytes > 0]
    kinds = sorted({f"{point.collective} on {point.num_gpus} gpus" for point in taken})
    if len(kinds) > 1:
        raise FileError(f"fit: points of {', '.join(kinds)} must not be mixed")
    return fit_line([(point.wire_bytes, point.time_s) for point in taken])

"""Summaries of raw samples: medians and quantiles, as means follow single stalls."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Summary", "outliers", "spread_warning", "summarize"]

MAD_TO_SIGMA = 1.4826  # of a normal distribution
OUTLIER_SIGMAS = 3.5  # Iglewicz and Hoaglin, How to detect and handle outliers, 1993
LEAST_SIGMA = 0.01  # of the median: timers are coarse, and most samples may be equal


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Quantiles of samples, in seconds.

    Parameters
    ----------
    spread
        (p80 - p20) / median: relative width of the middle 60 % of the samples.
    """

    median_s: float
    p20_s: float
    p80_s: float
    min_s: float
    max_s: float
    spread: float


def summarize(samples_s: Sequence[float]) -> Summary:
    """Quantiles of samples, interpolated linearly.

    Raises
    ------
    ValueError
        If there are no samples, or one is not finite or not above 0.

    Examples
    --------
    >>> summarize([1.0, 2.0, 3.0, 4.0, 5.0, 60.0]).median_s
    3.5
    """
    samples = _checked(samples_s)
    if samples.min() <= 0:
        raise ValueError(f"samples_s: {samples.min()} must be above 0")
    low, p20, median, p80, high = (float(q) for q in np.quantile(samples, [0, 0.2, 0.5, 0.8, 1]))
    return Summary(
        median_s=median, p20_s=p20, p80_s=p80, min_s=low, max_s=high, spread=(p80 - p20) / median
    )


def spread_warning(summary: Summary, limit: float = 0.10) -> str | None:
    """What to tell the user of samples that spread further than a limit, else None.

    Parameters
    ----------
    limit
        Largest spread (see `Summary`) that is taken as stable.
    """
    if summary.spread <= limit:
        return None
    return f"samples spread by {summary.spread:.0%} of the median; above {limit:.0%} it is not stable"


def outliers(samples: Sequence[float]) -> tuple[int, ...]:
    """Indices of samples far from the median, in either direction.

    Far is more than 3.5 standard deviations, taken from the median absolute deviation so that
    outliers do not widen it, and from at least 1 % of the median. Any unit will do.

    Raises
    ------
    ValueError
        If there are no samples, or one is not finite.

    Examples
    --------
    >>> outliers([10.0, 10.0, 13.0, 10.0, 10.1])
    (2,)
    """
    values = _checked(samples)
    distances = np.abs(values - np.median(values))
    sigma = max(MAD_TO_SIGMA * np.median(distances), LEAST_SIGMA * abs(np.median(values)))
    return tuple(int(i) for i in np.flatnonzero(distances > OUTLIER_SIGMAS * sigma))


def _checked(samples: Sequence[float]) -> npt.NDArray[np.float64]:
    values = np.asarray(samples, dtype=np.float64)
    if values.size == 0:
        raise ValueError("samples: there are none")
    if not np.isfinite(values).all():
        raise ValueError(f"samples: {values[~np.isfinite(values)][0]} is not a finite number")
    return values

"""Intervals of shares and means."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ficco_sim.errors import ScenarioError

__all__ = ["bootstrap_mean", "check_seed", "wilson"]

Z95 = 1.959963984540054  # standard normal quantile of 97.5 %
RESAMPLES = 2000
BLOCK = 1_000_000  # numbers drawn at once, which bounds the memory
LOW, HIGH = 0.025, 0.975


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """95 % interval of a share, by E. B. Wilson (1927), J. Am. Stat. Assoc. 22, 209-212.

    With p the share of n trials and z = 1.96::

        (p + z^2/2n -+ z sqrt(p (1 - p)/n + z^2/4n^2)) / (1 + z^2/n)

    Unlike p -+ z sqrt(p (1 - p)/n) it holds its level for few trials and for shares near 0 and 1 (L. D.
    Brown, T. T. Cai, A. DasGupta (2001), Stat. Sci. 16, 101-133). Trials must be independent.

    Raises
    ------
    ScenarioError
        If there are no trials or more successes than trials.

    Examples
    --------
    >>> [round(x, 3) for x in wilson(13, 16)]
    [0.57, 0.934]
    """
    if not 0 <= successes <= trials or trials == 0:
        raise ScenarioError(f"wilson: {successes} of {trials} is no share")
    n, z2 = trials, Z95**2
    share = successes / n
    middle = share + z2 / (2 * n)
    reach = Z95 * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    low, high = ((middle + sign * reach) / (1 + z2 / n) for sign in (-1, 1))
    # at 0 and 1 the ends are exact but for rounding
    return (0.0 if successes == 0 else low), (1.0 if successes == trials else high)


def bootstrap_mean(values: Sequence[float] | NDArray[np.float64], seed: int) -> tuple[float, float]:
    """95 % interval of a mean: percentiles of the means of resamples.

    B. Efron, R. J. Tibshirani (1993), An Introduction to the Bootstrap, section 13.3. The same values
    and seed give the same interval.
    """
    rng = np.random.default_rng(check_seed(seed))
    array = np.asarray(values, dtype=np.float64)
    size = len(array)
    at_once = max(1, BLOCK // size)
    means = np.concatenate(
        [
            array[rng.integers(0, size, (min(at_once, RESAMPLES - done), size))].mean(axis=1)
            for done in range(0, RESAMPLES, at_once)
        ]
    )
    low, high = np.quantile(means, [LOW, HIGH])
    return float(low), float(high)


def check_seed(seed: int) -> int:
    """Refuse what seeds no generator.

    Raises
    ------
    ScenarioError
        If it is negative.
    """
    if seed < 0:
        raise ScenarioError(f"seed: {seed} must not be negative")
    return seed

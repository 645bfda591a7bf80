"""What a test set of 16 scenarios says: its accuracy, drawn many times from more of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ficco_sim.errors import ScenarioError
from ficco_sim.laboratory.judge import Judgement
from ficco_sim.laboratory.statistics import check_seed

__all__ = ["SMALL_SET", "SmallSets", "small_sets"]

SMALL_SET = 16
PAPER_RIGHT = 13
"""The paper's rule was right in 13 of its 16 scenarios, 81 %."""
QUANTILES = (0.025, 0.25, 0.5, 0.75, 0.975)
MAX_DRAWS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallSets:
    """Accuracies of small sets, on schedules and strict.

    Parameters
    ----------
    accuracy
        Of all scenarios that the sets are drawn from.
    quantiles
        ``(q, accuracy)``: a share q of draws has at most this accuracy.
    counts
        ``counts[i]``: draws with i right choices.
    share_below, share_equal, share_above
        Draws with fewer, as many and more right choices than ``paper_right``.
    share_at_least
        Draws with at least as many.
    """

    size: int
    draws: int
    seed: int
    num_scenarios: int
    accuracy: float
    mean: float
    lowest: float
    highest: float
    quantiles: tuple[tuple[float, float], ...]
    counts: tuple[int, ...]
    paper_right: int
    share_below: float
    share_equal: float
    share_above: float
    share_at_least: float


def small_sets(
    judgements: Sequence[Judgement], *, draws: int = 1000, seed: int = 0, size: int = SMALL_SET
) -> SmallSets | None:
    """Draw sets without replacement within a set; None with fewer scenarios than a set has.

    Raises
    ------
    ScenarioError
        If the number of draws is out of range.
    """
    if not 1 <= draws <= MAX_DRAWS:
        raise ScenarioError(f"draws: {draws} must be from 1 to {MAX_DRAWS:,}")
    right = np.array([j.right_strict for j in judgements])
    if len(right) < size:
        return None
    rng = np.random.default_rng(check_seed(seed))
    found = np.array(
        [right[rng.choice(len(right), size, replace=False, shuffle=False)].sum() for _ in range(draws)]
    )
    paper = round(size * PAPER_RIGHT / SMALL_SET)
    counts = np.bincount(found, minlength=size + 1)
    # a quantile that is one of the accuracies that can be, not one between two
    quantiles = np.quantile(found, QUANTILES, method="inverted_cdf") / size
    return SmallSets(
        size=size,
        draws=draws,
        seed=seed,
        num_scenarios=len(right),
        accuracy=float(right.mean()),
        mean=float(found.mean() / size),
        lowest=float(found.min() / size),
        highest=float(found.max() / size),
        quantiles=tuple(zip(QUANTILES, map(float, quantiles), strict=True)),
        counts=tuple(map(int, counts)),
        paper_right=paper,
        share_below=float((found < paper).mean()),
        share_equal=float((found == paper).mean()),
        share_above=float((found > paper).mean()),
        share_at_least=float((found >= paper).mean()),
    )

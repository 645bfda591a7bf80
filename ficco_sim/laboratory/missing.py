"""Which feature a rule lacks: what tells the scenarios it gets wrong from those it gets right."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ficco_sim.heuristics import FEATURE_NAMES, FeatureRule, Features, Rule
from ficco_sim.laboratory.outcomes import Outcome

__all__ = ["METHOD", "Split", "best_splits", "used_features"]

METHOD = (
    "each feature that the rule does not read is split once, where that gains most information on "
    "which choices are wrong by more than the noise (J. R. Quinlan (1986), Machine Learning 1, "
    "81-106); where all are, or none, on which lose more than the median regret. Beside it Spearman's "
    "rank correlation with the regret"
)
LEAST_SIDE = 2  # fewer scenarios on a side are chance


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A feature cut in two.

    Parameters
    ----------
    told
        What it tells: ``wrong``, or ``above the median regret`` where all choices are wrong or none is.
    gain_bits, gain_share
        Information on it that is gained, and its share of all that there is.
    told_at_most, told_above
        Shares of such choices where the feature is at most the threshold, and above.
    spearman
        With the regret; None if the feature or the regret never changes.
    """

    feature: str
    threshold: float
    told: str
    gain_bits: float
    gain_share: float
    told_at_most: float
    told_above: float
    num_at_most: int
    num_above: int
    spearman: float | None


class _Reader:
    """Features that note which of them are read."""

    def __init__(self, features: Features, read: set[str]) -> None:
        self._features, self._read = features, read

    def __getattr__(self, name: str) -> float:
        value: float = getattr(self._features, name)
        self._read.add(name)
        return value


def used_features(rule: Rule, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Features that a rule reads in some scenario; none if it is no function of features."""
    read: set[str] = set()
    if isinstance(rule, FeatureRule):
        for outcome in outcomes:
            try:
                rule.function(_Reader(outcome.features, read), rule.parameters)  # type: ignore[arg-type]
            except (Exception, SystemExit):  # noqa: BLE001, S112 - code of the user's; judged elsewhere
                continue
    return tuple(name for name in FEATURE_NAMES if name in read)


def best_splits(
    features: Mapping[str, Sequence[float]],
    wrong: Sequence[bool] | NDArray[np.bool_],
    regret: Sequence[float] | NDArray[np.float64],
    most: int = 3,
) -> tuple[Split, ...]:
    """The splits that gain most, one a feature, by `METHOD`; of equal ones the first feature's.

    Parameters
    ----------
    features
        Values of each, scenario by scenario.
    """
    missed, lost = np.asarray(wrong, dtype=np.bool_), np.asarray(regret, dtype=np.float64)
    told = "wrong"
    if missed.all() or not missed.any():
        told, missed = "above the median regret", lost > np.median(lost)
    found = [
        split
        for name, values in features.items()
        if (split := _split(name, told, np.asarray(values, dtype=np.float64), missed, lost)) is not None
    ]
    return tuple(sorted(found, key=lambda split: -split.gain_bits)[:most])


def _split(
    name: str,
    told: str,
    values: NDArray[np.float64],
    wrong: NDArray[np.bool_],
    regret: NDArray[np.float64],
) -> Split | None:
    order = np.argsort(values, kind="stable")
    ranked, missed = values[order], wrong[order].astype(np.float64)
    n, total = len(ranked), float(missed.sum())
    before = np.cumsum(missed)
    whole = _entropy(total / n)
    best: tuple[float, int] | None = None
    for left in range(LEAST_SIDE, n - LEAST_SIDE + 1):
        if ranked[left - 1] == ranked[left]:
            continue
        here = float(before[left - 1])
        right = n - left
        rest = left / n * _entropy(here / left) + right / n * _entropy((total - here) / right)
        if best is None or whole - rest > best[0] + 1e-12:
            best = (whole - rest, left)
    if best is None or best[0] <= 1e-12:
        return None
    gain, left = best
    here = float(before[left - 1])
    return Split(
        feature=name,
        told=told,
        threshold=float((ranked[left - 1] + ranked[left]) / 2),
        gain_bits=gain,
        gain_share=gain / whole,
        told_at_most=here / left,
        told_above=(total - here) / (n - left),
        num_at_most=left,
        num_above=n - left,
        spearman=_spearman(values, regret),
    )


def _entropy(share: float) -> float:
    """Of a yes or no, in bits."""
    return -sum(p * math.log2(p) for p in (share, 1 - share) if p > 0)


def _spearman(values: NDArray[np.float64], regret: NDArray[np.float64]) -> float | None:
    from scipy.stats import spearmanr

    if np.ptp(values) == 0 or np.ptp(regret) == 0:
        return None
    return float(spearmanr(values, regret).statistic)

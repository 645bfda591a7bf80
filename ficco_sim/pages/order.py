"""How often a simulated difference between two plans of a workload has the right sign."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ficco_sim.validation import PlanRow

__all__ = ["LIKELY", "Order", "order_of_pairs", "sure_from"]

EDGES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, np.inf)
MOST_PLANS = 400  # of a workload; of more every second, third, ... is taken
LIKELY = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Pairs whose simulated times differ by at least ``low`` and less than ``high``, as shares."""

    low: float
    high: float
    num_pairs: int
    num_right: int

    @property
    def share_right(self) -> float:
        """Share of pairs whose measured times differ in the same direction."""
        return self.num_right / self.num_pairs

    @property
    def title(self) -> str:
        """The range in percent."""
        if np.isinf(self.high):
            return f"{self.low * 100:g} up"
        return f"{self.low * 100:g} to {self.high * 100:g}"


def order_of_pairs(rows: Sequence[PlanRow]) -> list[Order]:
    """All pairs of plans of the same workload by how much their simulated times differ.

    Pairs that are equal in either are left out: neither order is wrong.
    """
    groups: dict[tuple[str, int, int, int, str], list[PlanRow]] = {}
    for row in rows:
        groups.setdefault((row.workload, row.m, row.n, row.k, row.dtype), []).append(row)
    pairs, right = np.zeros(len(EDGES) - 1, dtype=int), np.zeros(len(EDGES) - 1, dtype=int)
    for found in groups.values():
        some = found[:: -(-len(found) // MOST_PLANS)]
        measured = np.array([row.measured_s for row in some])
        simulated = np.array([row.simulated_s for row in some])
        one, other = np.triu_indices(len(some), 1)
        less = np.minimum(simulated[one], simulated[other])
        differs = (simulated[one] != simulated[other]) & (measured[one] != measured[other])
        size = (np.abs(simulated[one] - simulated[other]) / less)[differs]
        same = ((simulated[one] < simulated[other]) == (measured[one] < measured[other]))[differs]
        where = np.digitize(size, EDGES) - 1
        pairs += np.bincount(where, minlength=len(pairs))
        right += np.bincount(where, weights=same, minlength=len(pairs)).astype(int)
    return [
        Order(low=low, high=high, num_pairs=int(n), num_right=int(k))
        for low, high, n, k in zip(EDGES[:-1], EDGES[1:], pairs, right, strict=True)
        if n
    ]


def sure_from(orders: Sequence[Order]) -> float | None:
    """The least difference from which on the sign is right in at least `LIKELY` of pairs; or None."""
    found = None
    for order in reversed(orders):
        if order.share_right < LIKELY:
            break
        found = order.low
    return found

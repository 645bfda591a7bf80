"""When a gpu is done that multiplies pieces in order as they arrive: a recurrence in closed form."""

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Overlap"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """A compute queue beside communication.

    Parameters
    ----------
    comm_end_s
        Until then copies run.
    slowdown
        Time of computing beside copies over time alone, 1 or more.
    """

    comm_end_s: float
    slowdown: float

    def end_s(self, first_s: float, pieces: Iterable[tuple[float, float]]) -> float:
        """When the last piece is done.

        ``t_j = max(t_{j-1}, arrival_j) + work_j`` from ``t_0 = first``, with work that is slowed until
        ``comm_end_s``. Without the slowdown this is the longest path
        ``max_j (arrival_j + sum_{i >= j} work_i)``, or ``first`` plus all work.

        Parameters
        ----------
        first_s
            Work that waits for nothing.
        pieces
            When each may start, and its work in seconds alone.

        Examples
        --------
        >>> Overlap(comm_end_s=0.0, slowdown=1.0).end_s(1.0, [(3.0, 1.0), (3.5, 2.0)])
        6.0
        >>> Overlap(comm_end_s=2.0, slowdown=2.0).end_s(0.0, [(0.0, 2.0)])
        3.0
        """
        now_s = self._after(0.0, first_s)
        for arrival_s, work_s in pieces:
            now_s = self._after(max(now_s, arrival_s), work_s)
        return now_s

    def _after(self, start_s: float, work_s: float) -> float:
        if start_s >= self.comm_end_s:
            return start_s + work_s
        done_s = (self.comm_end_s - start_s) / self.slowdown
        if work_s <= done_s:
            return start_s + work_s * self.slowdown
        return self.comm_end_s + work_s - done_s

"""Unions of time intervals in whole nanoseconds, and what they have in common."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

__all__ = ["Cover", "Interval"]

Interval = tuple[int, int]


class Cover:
    """The time that intervals cover, overlaps counted once.

    Examples
    --------
    >>> cover = Cover([(0, 4), (2, 6), (10, 12)])
    >>> cover.length, cover.common(5, 11), cover.overlap(Cover([(1, 3), (11, 20)]))
    (8, 2, 3)
    """

    def __init__(self, intervals: Iterable[Interval]) -> None:
        merged: list[list[int]] = []
        for start, end in sorted(intervals):
            if merged and start <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([start, end])
        self.starts: Sequence[int] = [start for start, _ in merged]
        self.ends: Sequence[int] = [end for _, end in merged]
        lengths = (end - start for start, end in merged)
        self._before: Sequence[int] = list(accumulate(lengths, initial=0))

    @property
    def length(self) -> int:
        """All the time covered."""
        return self._before[-1]

    def _until(self, time: int) -> int:
        """Time covered before a moment."""
        i = bisect_right(self.starts, time)
        return self._before[i] - max(0, self.ends[i - 1] - time) if i else 0

    def common(self, start: int, end: int) -> int:
        """Time of one interval that is covered."""
        return self._until(end) - self._until(start)

    def overlap(self, other: "Cover") -> int:
        """Time that both cover."""
        return sum(self.common(start, end) for start, end in zip(other.starts, other.ends, strict=True))

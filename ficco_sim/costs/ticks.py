"""When the end of a copy is seen, where that is at ticks of a clock that starts with the engine."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["seen_s"]

ROUNDING = 1e-9  # of a tick: an end that is at a tick but for rounding is seen at it

Seconds = TypeVar("Seconds", float, NDArray[np.float64])


def seen_s(end_s: Seconds, first_tick_s: Seconds, tick_s: Seconds) -> Seconds:
    """The first tick at or after an end, ``signal_s`` aside; the end itself where there are no ticks.

    Parameters
    ----------
    end_s
        From when the engine began, having been idle; numbers or arrays, as the other two.
    first_tick_s, tick_s
        See `CopyProfile`; of an array of ticks none is 0.
    """
    if isinstance(tick_s, float) and tick_s == 0.0:
        return end_s
    after = np.ceil((end_s - first_tick_s) / tick_s - ROUNDING)
    return first_tick_s + tick_s * np.maximum(after, 0.0)  # type: ignore[no-any-return]

"""Python's garbage collector, kept from looking at millions of live tasks again and again."""

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["rare_collections"]

COLLECT_AFTER = 500_000  # new objects; Python's own default is 700


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Look for cycles rarely for a while: a fifth to a third of the time of large plans."""
    thresholds = gc.get_threshold()
    gc.set_threshold(max(COLLECT_AFTER, thresholds[0]), *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)

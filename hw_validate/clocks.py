"""How the event clocks of two devices relate."""

from collections.abc import Callable
from typing import Any

import torch

from hw_validate.program import Lane
from hw_validate.runtime import Runtime

__all__ = ["ClockOffsets", "offset_from_ping"]

PINGS = 20


class ClockOffsets:
    """How much later a device starts that waits for another's event.

    Events of two devices cannot be subtracted. All devices start when the first one's start event is
    reached; the others see it a little later. That delay is half of the shortest round trip of such
    waits, known to within that half.

    Parameters
    ----------
    stream_of
        The stream of a lane.
    """

    def __init__(
        self,
        runtime: Runtime,
        devices: tuple[int, ...],
        stream_of: Callable[[Lane], torch.cuda.Stream],
    ) -> None:
        self._runtime = runtime
        self._stream_of = stream_of
        self._offsets: dict[tuple[int, int], float] = {}
        self.devices = devices

    def offset_s(self, first: int, device: int) -> float:
        """Seconds from the start event of ``first`` to that of ``device``; 0 for itself."""
        if first == device:
            return 0.0
        if (first, device) not in self._offsets:
            self._offsets[first, device] = offset_from_ping(
                [self._round_trip_s(first, device) for _ in range(PINGS)]
            )
        return self._offsets[first, device]

    def uncertainty_s(self, first: int, device: int) -> float:
        """By how much spans of two devices may be misplaced to one another."""
        return self.offset_s(first, device)

    def _round_trip_s(self, first: int, device: int) -> float:
        """Time on ``first`` until an event there has been waited for on ``device`` and back."""
        runtime = self._runtime

        def event(on: int) -> Any:
            with torch.cuda.device(on):
                return runtime.call("EventCreate")

        here = self._stream_of(Lane(gpu=-1, device=first, name="ping"))
        there = self._stream_of(Lane(gpu=-1, device=device, name="ping"))
        start, middle, end = event(first), event(device), event(first)
        with torch.cuda.stream(here):
            torch.cuda._sleep(100_000)  # noqa: SLF001 - lets the host submit all of it first
            runtime.call("EventRecord", start, here.cuda_stream)
        with torch.cuda.stream(there):
            runtime.call("StreamWaitEvent", there.cuda_stream, start, 0)
            runtime.call("EventRecord", middle, there.cuda_stream)
        with torch.cuda.stream(here):
            runtime.call("StreamWaitEvent", here.cuda_stream, middle, 0)
            runtime.call("EventRecord", end, here.cuda_stream)
        torch.cuda.synchronize(first)
        seconds = runtime.elapsed_s(start, end)
        for made in (start, middle, end):
            runtime.call("EventDestroy", made)
        return seconds


def offset_from_ping(round_trips_s: list[float]) -> float:
    """One-way delay from round trips: half of the shortest, the one least disturbed.

    Examples
    --------
    >>> offset_from_ping([12e-6, 8e-6, 30e-6])
    4e-06
    """
    return min(round_trips_s) / 2

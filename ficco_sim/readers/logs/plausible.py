"""Times of GEMMs that cannot be: faster than any gpu, or the same for any amount of work."""

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ficco_sim.workload import DTYPE_BYTES

__all__ = ["Shape", "above_peak", "not_growing"]

# of fp8; about four times the dense rate on the data sheets of the fastest gpus of 2025 (5e15), so
# that no gpu of the next years is refused; types twice as wide run at half of it
GENEROUS_FLOPS_PER_S = 20e15
MUCH_MORE_WORK, HARDLY_MORE_TIME = 8.0, 1.5
LEAST_FLOPS = 1e11  # below it launching may take longer than computing
LEAST_FLOPS_PER_BYTE = 100  # below it time is that of reading the matrices, and need not grow


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A GEMM: elements, products in a call."""

    m: int
    n: int
    k: int
    batch: int
    dtype: str

    @property
    def flops(self) -> int:
        """Floating-point operations."""
        return 2 * self.m * self.n * self.k * self.batch

    @property
    def nbytes(self) -> int:
        """Of the three matrices."""
        elements = self.m * self.k + self.k * self.n + self.m * self.n
        return elements * self.batch * DTYPE_BYTES[self.dtype]

    def __str__(self) -> str:
        batch = f"{self.batch} x " if self.batch > 1 else ""
        return f"{batch}{self.m} x {self.n} x {self.k} {self.dtype}"


def above_peak(shape: Shape, time_s: float, peaks: Mapping[str, float] | None) -> str | None:
    """Why the time cannot be, None if it can.

    Parameters
    ----------
    peaks
        FLOP/s of the gpu by dtype; without it a bound that is above any gpu.
    """
    peak = (peaks or {}).get(shape.dtype)
    bound = peak or GENEROUS_FLOPS_PER_S / DTYPE_BYTES[shape.dtype]
    rate = shape.flops / time_s
    if rate <= bound:
        return None
    whose = "the gpu's peak" if peak else "what any gpu reaches"
    return (
        f"{shape}: {rate / 1e12:,.0f} TFLOP/s is above {whose} ({bound / 1e12:,.0f}): "
        "not synchronised, or another shape was timed"
    )


def not_growing(timed: Sequence[tuple[Shape, float]]) -> dict[int, str]:
    """Which of the timings do not grow with the work, and why that is odd.

    A timing is odd if of those with at least 8 times its work more than half take less than 1.5
    times as long, or the same the other way round: one wrong timing does not spoil the others.

    Parameters
    ----------
    timed
        Shapes and seconds.

    Returns
    -------
    dict
        Reasons by index.
    """
    solid = [
        (shape.flops, time_s, i)
        for i, (shape, time_s) in enumerate(timed)
        if shape.flops >= LEAST_FLOPS_PER_BYTE * shape.nbytes
    ]
    solid.sort()
    odd: dict[int, str] = {}
    # shapes with much more work than the one at hand, from the largest down
    times: list[float] = []
    last = len(solid)
    for flops, time_s, i in reversed(solid):
        while last and solid[last - 1][0] >= max(MUCH_MORE_WORK * flops, LEAST_FLOPS):
            last -= 1
            insort(times, solid[last][1])
        flat = bisect_left(times, HARDLY_MORE_TIME * time_s)
        if 2 * flat > len(times):
            odd[i] = _odd(timed[i][0], time_s, flat, "more")
    # and with much less, from the smallest up
    times = []
    first = 0
    for flops, time_s, i in solid:
        while MUCH_MORE_WORK * solid[first][0] <= flops:
            insort(times, solid[first][1])
            first += 1
        flat = len(times) - bisect_left(times, time_s / HARDLY_MORE_TIME)
        if flops >= LEAST_FLOPS and 2 * flat > len(times):
            odd.setdefault(i, _odd(timed[i][0], time_s, flat, "less"))
    return odd


def _odd(shape: Shape, time_s: float, others: int, than: str) -> str:
    return (
        f"{shape}: {shape.flops / time_s / 1e12:,.3g} TFLOP/s is suspicious: {others} shapes with at "
        f"least {MUCH_MORE_WORK:.0f} times {than} work take about as long, time does not grow with "
        "work: not synchronised?"
    )

"""What a run spends its time on: the makespan cut into GEMMs, local copies, transfers and waiting."""

from collections import Counter
from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

from ficco_sim.trace import Span

__all__ = ["PARTS", "PartName", "parts_of"]

PartName: TypeAlias = Literal["gemm", "local_copy", "transfer", "waiting"]
# where several tasks run at once on a gpu, the time counts for the first of these
PARTS: tuple[PartName, ...] = get_args(PartName)


def parts_of(spans: Sequence[Span]) -> dict[PartName, float]:
    """Seconds of each part on the gpu that ends last, from 0 to its end; together the makespan."""
    last = max(spans, key=lambda span: (span.end_s, -span.queue.gpu)).queue.gpu
    # starts and ends in the order of time, each changing how many tasks of a kind run
    edges = sorted(
        (max(at, 0.0), change, span.kind)
        for span in spans
        if span.queue.gpu == last
        for at, change in ((span.start_s, 1), (span.end_s, -1))
    )
    running: Counter[str] = Counter()
    parts: dict[PartName, float] = dict.fromkeys(PARTS, 0.0)
    before = 0.0
    for at, change, kind in edges:
        now: PartName = next((name for name in PARTS if running[name] > 0), "waiting")
        parts[now] += at - before
        before = at
        running[kind] += change
    return parts

"""What happened when: spans of tasks, from the simulator or from gpus."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ficco_sim import io
from ficco_sim.errors import FileError
from ficco_sim.plan import Queue

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LinkLoad", "Span", "Trace", "load_trace"]

STRICT = {"extra": "forbid", "strict": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One task from start to end.

    Parameters
    ----------
    nbytes, flops
        Bytes moved, operations computed.
    lost_s
        Part of the span that contention with other engines' work cost (simulated only).
    submitted_s
        When the host had submitted the task.
    """

    __pydantic_config__: ClassVar = STRICT
    task_id: str
    kind: Literal["transfer", "local_copy", "gemm"]
    queue: Queue
    start_s: float
    end_s: float
    nbytes: int
    flops: int
    lost_s: float = 0.0
    submitted_s: float = 0.0

    @property
    def duration_s(self) -> float:
        """Time from start to end."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLoad:
    """Bytes that crossed a link, and the least time that takes."""

    __pydantic_config__: ClassVar = STRICT
    src: str
    dst: str
    nbytes: int
    min_busy_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """All spans of one run of a plan, in the plan's order.

    ``source`` tells a simulated trace from a measured one; ``labels`` say what in it is not what it
    stands for (``emulated-2d``: strided copies simulated as contiguous ones).
    """

    __pydantic_config__: ClassVar = STRICT
    format_version: Literal[1] = 1
    source: Literal["sim", "gpu"]
    schedule: str
    workload: str
    machine: str
    plan_fingerprint: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    links: tuple[LinkLoad, ...] = ()
    spans: tuple[Span, ...]

    @property
    def makespan_s(self) -> float:
        """From 0 to the end of the last task of the last gpu."""
        return max((span.end_s for span in self.spans), default=0.0)

    def to_json(self) -> str:
        """JSON text with all fields; the same run gives the same text."""
        return io.dump_json(self, indent=None)

    def to_frame(self) -> "pd.DataFrame":
        """A row per span."""
        import pandas as pd

        rows = []
        for span in self.spans:
            row: dict[str, Any] = {
                "task_id": span.task_id,
                "kind": span.kind,
                "gpu": span.queue.gpu,
                "queue": str(span.queue),
            }
            for key in ("start_s", "end_s", "nbytes", "flops", "lost_s", "submitted_s"):
                row[key] = getattr(span, key)
            rows.append(row)
        return pd.DataFrame(rows)


def load_trace(path: Path) -> Trace:
    """Read a trace from a JSON file, as `Trace.to_json` writes it.

    Raises
    ------
    FileError
        Naming the file, the key and the rule: unknown keys, wrong types, tasks that occur twice or
        end before they start.
    """
    document = io.parse_json(io.read_text(path), str(path))
    trace = io.decode(document, Trace, str(path))
    seen: set[str] = set()
    for i, span in enumerate(trace.spans):
        where = f"{path}: spans[{i}]"
        if span.task_id in seen:
            raise FileError(f"{where}.task_id: {span.task_id!r} occurs twice")
        seen.add(span.task_id)
        if span.end_s < span.start_s:
            raise FileError(f"{where}.end_s: {span.end_s} is before start_s, {span.start_s}")
    return trace

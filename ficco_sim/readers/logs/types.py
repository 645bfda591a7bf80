"""What readers of logs give: points that were measured, and what could not be used."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from ficco_sim.errors import FileError

__all__ = [
    "CollectivePoint",
    "CopyPoint",
    "Engine",
    "GemmPoint",
    "Log",
    "LogFormat",
    "Notes",
    "OverlapPart",
    "Point",
    "Refused",
    "TraceOverlap",
]

Engine: TypeAlias = Literal["dma", "core", "unknown"]
LogFormat: TypeAlias = Literal[
    "torch_trace", "nvbandwidth", "rocm_bandwidth", "nccl_tests", "hipblaslt_bench", "gemm_csv"
]
MAX_LISTED = 1_000  # of refused rows and of warnings; more are only counted


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmPoint:
    """A measured time of ``C [m, n] = A [m, k] @ B [k, n]``.

    Parameters
    ----------
    batch
        Products in one call.
    accumulate
        Whether C was read as well.
    init
        What matrices were filled with (``randn``, ``zeros``, ...); None: nobody wrote it down.
    count
        Timings of which ``time_s`` is the median.
    op
        Which matrices were transposed, as ``TN``, in the words of the tool that measured.
    clock_hz
        Of the gpu while it was measured, if printed.
    overlap_s
        Part of the time in which communication ran beside it.
    line
        Where the file has it, or its first timing.

    Raises
    ------
    FileError
        If a size or the time is not above 0, or not finite.
    """

    m: int
    n: int
    k: int
    dtype: str
    time_s: float
    batch: int = 1
    accumulate: bool = False
    init: str | None = None
    count: int = 1
    op: str | None = None
    clock_hz: float | None = None
    overlap_s: float = 0.0
    line: int

    def __post_init__(self) -> None:
        for name in ("m", "n", "k", "time_s", "batch", "count"):
            _check_above_zero(name, getattr(self, name))

    @property
    def flops(self) -> int:
        """Floating-point operations of the call."""
        return 2 * self.m * self.n * self.k * self.batch


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPoint:
    """A measured copy between gpus.

    Parameters
    ----------
    name
        Of the test or of the copy in the trace.
    src, dst
        Numbers of gpus; None where the log does not tell.
    nbytes, time_s, bytes_per_s
        What the log says, and the third of them where it says two; None: unknown.
    direction
        ``two-way``: a copy in the other direction ran at the same time; the rate is of this one.
    engine
        ``dma``: a copy engine; ``core``: a kernel on compute units, which competes with GEMMs.
    overlap_s
        Part of the time in which compute ran beside it.

    Raises
    ------
    FileError
        If a value is not above 0, or not finite.
    """

    name: str
    src: int | None = None
    dst: int | None = None
    nbytes: int | None = None
    time_s: float | None = None
    bytes_per_s: float | None = None
    direction: Literal["one-way", "two-way"] = "one-way"
    engine: Engine
    overlap_s: float = 0.0
    line: int

    def __post_init__(self) -> None:
        for name in ("nbytes", "time_s", "bytes_per_s"):
            if getattr(self, name) is not None:
                _check_above_zero(name, getattr(self, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectivePoint:
    """A measured time of a collective of a library such as NCCL.

    Parameters
    ----------
    collective
        ``all_gather``, ``reduce_scatter``, ``all_to_all``, ``all_reduce``, ... or ``unknown``.
    total_bytes
        What the tool calls size: all that is gathered or scattered, or that a gpu sends in an
        all-to-all; 0 measures the launch alone.
    shard_bytes
        A gpu's own part of it, in an all-to-all what one gpu sends to one; None for collectives
        without shards.
    dtype
        In our words where we have one (``bf16``), else the tool's; None if not printed.
    algbw_bytes_per_s, busbw_bytes_per_s
        ``total_bytes`` over time as printed, and that times `bus_factor`.
    bus_factor
        Share of ``total_bytes`` that crosses the links of one gpu: (N-1)/N, all-reduce twice that.
    in_place
        Whether the result replaced the input.
    checked
        Whether the tool compared the result with the right one and found it equal.

    Raises
    ------
    FileError
        If a value is negative, not finite, or the time is 0.
    """

    collective: str
    num_gpus: int
    total_bytes: int
    shard_bytes: int | None
    dtype: str | None
    time_s: float
    algbw_bytes_per_s: float
    busbw_bytes_per_s: float
    bus_factor: float
    in_place: bool
    checked: bool
    line: int

    def __post_init__(self) -> None:
        _check_above_zero("time_s", self.time_s)
        for name in ("total_bytes", "algbw_bytes_per_s", "busbw_bytes_per_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise FileError(f"{name}: {value} must not be negative")

    @property
    def wire_bytes(self) -> float:
        """Bytes that cross the links of one gpu, in one direction."""
        return self.total_bytes * self.bus_factor


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapPart:
    """Communication of one kind by one engine: time at work, and the part of it beside compute.

    Parameters
    ----------
    kind
        ``copy``, or the collective: ``all_gather``, ``all_reduce``, ...
    """

    kind: str
    engine: Engine
    count: int
    busy_s: float
    overlap_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOverlap:
    """How long a gpu computed, communicated, and did both.

    Parameters
    ----------
    gpu
        As the trace names it.
    compute_s, comm_s, overlap_s
        Lengths of unions of intervals: time in which several kernels run counts once.
    """

    gpu: str
    compute_s: float
    comm_s: float
    overlap_s: float
    parts: tuple[OverlapPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """What is not used, and why."""

    line: int
    reason: str


Point: TypeAlias = GemmPoint | CopyPoint | CollectivePoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What a log holds.

    Parameters
    ----------
    points
        In the order of the file.
    overlaps
        Of a trace, for each gpu.
    facts
        What else it says: versions, gpus, tests that were not run.
    warnings
        What throws doubt on the numbers.
    refused
        Rows that are not used, at most 1000 of the `num_refused`.
    """

    format: LogFormat
    points: tuple[Point, ...]
    overlaps: tuple[TraceOverlap, ...] = ()
    facts: Mapping[str, Any]
    warnings: tuple[str, ...]
    refused: tuple[Refused, ...]
    num_refused: int

    def gemms(self) -> tuple[GemmPoint, ...]:
        """The points that are GEMMs."""
        return tuple(point for point in self.points if isinstance(point, GemmPoint))

    def copies(self) -> tuple[CopyPoint, ...]:
        """The points that are copies."""
        return tuple(point for point in self.points if isinstance(point, CopyPoint))

    def collectives(self) -> tuple[CollectivePoint, ...]:
        """The points that are collectives."""
        return tuple(point for point in self.points if isinstance(point, CollectivePoint))


@dataclass(slots=True)
class Notes:
    """Collects what a reader finds, while it works."""

    points: list[Point] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    refused: list[Refused] = field(default_factory=list)
    num_refused: int = 0
    _warnings: dict[str, None] = field(default_factory=dict)

    def warn(self, text: str) -> None:
        """Note a warning, once."""
        if len(self._warnings) < MAX_LISTED:
            self._warnings[text] = None

    def refuse(self, line: int, reason: str) -> None:
        """Note that something is not used, and why."""
        self.num_refused += 1
        if len(self.refused) < MAX_LISTED:
            self.refused.append(Refused(line=line, reason=reason))

    def log(self, name: LogFormat, overlaps: tuple[TraceOverlap, ...] = ()) -> Log:
        """All that was noted."""
        return Log(
            format=name,
            points=tuple(sorted(self.points, key=lambda point: point.line)),
            overlaps=overlaps,
            facts=self.facts,
            warnings=tuple(self._warnings),
            refused=tuple(sorted(self.refused, key=lambda refused: refused.line)),
            num_refused=self.num_refused,
        )


def _check_above_zero(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise FileError(f"{name}: {value} must be above 0 and finite")

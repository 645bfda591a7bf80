"""What must hold of timings before numbers are taken from them. Plain numbers in, findings out."""

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from ficco_sim.units import MIB, US, format_rate
from hw_validate.statistics import outliers

__all__ = [
    "SERIALISING",
    "Finding",
    "IterationOverlap",
    "Overlap",
    "StalledSteps",
    "StreamSpan",
    "above_peak",
    "copy_rate",
    "memory_flat",
    "overlap",
    "peer_fallback",
    "stalled_steps",
]

TFLOP = 1e12
FLAT_BYTES = 2 * MIB
COMPUTE_KINDS = frozenset({"gemm", "gemms"})
SERIALISING = {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "TORCH_NCCL_ENABLE_TIMING": "1"}
LEAST_OVERLAP = 0.01  # of the shorter side; less is the jitter of event timers
STAGED_SHARE, SLOW_SHARE = 0.4, 0.7  # of the expected rate of a peer copy


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is wrong with a measurement.

    Parameters
    ----------
    severity
        ``refuse``: no number may be taken from it; ``warn``: it may, and the user is told.
    text
        Values and the rule that they break.
    """

    severity: Literal["refuse", "warn"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSpan:
    """What ran on a stream of a gpu, from start to end in seconds of one clock."""

    kind: str
    stream: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationOverlap:
    """Time with compute at work, with communication at work, and with both."""

    compute_s: float
    comm_s: float
    overlap_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Overlap of compute and communication per iteration.

    A contention factor may be derived only where no finding refuses it.
    """

    iterations: tuple[IterationOverlap, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StalledSteps:
    """Steps that took far longer than the median, which stands for all."""

    median_s: float
    steps: tuple[int, ...]
    findings: tuple[Finding, ...]


def above_peak(flops: float, time_s: float, peak_flops_per_s: float, where: str) -> list[Finding]:
    """Refuse a timing faster than the gpu can compute: it was taken before the work was done.

    Parameters
    ----------
    where
        Opens the text: file and line, or what was timed.

    Examples
    --------
    >>> above_peak(2 * 4096**3, 12.1e-6, 989e12, "line 3")[0].text
    'line 3: 11,359 TFLOP/s is above the peak of 989: not synchronised, or another shape was timed'
    """
    if impossible := _not_positive(time_s, where):
        return impossible
    if flops / time_s <= peak_flops_per_s:
        return []
    text = (
        f"{where}: {_tflops(flops / time_s)} TFLOP/s is above the peak of {_tflops(peak_flops_per_s)}: "
        "not synchronised, or another shape was timed"
    )
    return [Finding(severity="refuse", text=text)]


def overlap(
    iterations: Sequence[Sequence[StreamSpan]],
    environment: Mapping[str, str],
    compute_kinds: Collection[str] = COMPUTE_KINDS,
) -> Overlap:
    """Overlap of compute and communication on one gpu, and whether the streams were serialised.

    Parameters
    ----------
    iterations
        Spans of one gpu that do not wait for each other, per iteration.
    environment
        Environment variables of the run: those that are known to serialise streams are named.
    compute_kinds
        Kinds that are compute; all others are communication.
    """
    measured = []
    streams_differ = []
    for spans in iterations:
        compute = [span for span in spans if span.kind in compute_kinds]
        comm = [span for span in spans if span.kind not in compute_kinds]
        computing = _union([(span.start_s, span.end_s) for span in compute])
        sending = _union([(span.start_s, span.end_s) for span in comm])
        measured.append(
            IterationOverlap(
                compute_s=_length(computing),
                comm_s=_length(sending),
                overlap_s=_common(computing, sending),
            )
        )
        streams_differ.append({span.stream for span in compute} != {span.stream for span in comm})
    both = [i for i, it in enumerate(measured) if it.compute_s > 0 and it.comm_s > 0]
    apart = [i for i in both if _hardly(measured[i])]
    findings = []
    if not both:
        text = "no iteration has both compute and communication: no contention factor may be derived"
        findings.append(Finding(severity="refuse", text=text))
    elif apart:
        comm_s = statistics.median(measured[i].comm_s for i in apart)
        most_s = max(measured[i].overlap_s for i in apart)
        refused = 2 * len(apart) >= len(both)
        cause = (
            f"serialised{_blame(environment)}"
            if any(streams_differ[i] for i in apart)
            else "both on one stream"
        )
        text = (
            f"overlap {most_s / US:.3g} us of {comm_s / US:,.5g} us of communication in "
            f"{len(apart)} of {len(both)} iterations: {cause}; "
            f"{'no contention factor may be derived' if refused else 'leave those out'}"
        )
        findings.append(Finding(severity="refuse" if refused else "warn", text=text))
    return Overlap(iterations=tuple(measured), findings=tuple(findings))


def memory_flat(reserved_bytes: Sequence[float], limit_bytes: float = FLAT_BYTES) -> list[Finding]:
    """Warn where reserved memory is not flat: allocations stall single steps.

    Parameters
    ----------
    reserved_bytes
        Of the allocator, per iteration after warm-up.
    limit_bytes
        Largest difference that counts as flat.
    """
    if not reserved_bytes or max(reserved_bytes) - min(reserved_bytes) <= limit_bytes:
        return []
    moves = [i for i, (before, after) in enumerate(pairwise(reserved_bytes)) if after != before]
    first, last = moves[0], moves[-1] + 1
    if reserved_bytes[last] > reserved_bytes[first]:
        low, high, how = reserved_bytes[first], reserved_bytes[last], "grows from"
    else:
        low, high, how = min(reserved_bytes), max(reserved_bytes), "varies from"
    text = (
        f"reserved memory {how} {low / MIB:,.0f} to {high / MIB:,.0f} MiB over iterations "
        f"{first}-{last}; flat is within {limit_bytes / MIB:,.0f} MiB: are buffers kept alive, as by "
        "record_stream?"
    )
    return [Finding(severity="warn", text=text)]


def stalled_steps(step_s: Sequence[float]) -> StalledSteps:
    """Steps that took far longer than others, and the median that stands for all.

    Raises
    ------
    ValueError
        If there are no steps, or a time is not finite.
    """
    far = outliers(step_s)
    median_s = statistics.median(step_s)
    steps = tuple(i for i in far if step_s[i] > median_s)
    findings = []
    if steps:
        text = (
            f"steps {', '.join(map(str, steps))} of {len(step_s)} stalled: up to "
            f"{max(step_s[i] for i in steps) / US:,.0f} us where the median is {median_s / US:,.0f} us"
        )
        findings.append(Finding(severity="warn", text=text))
    return StalledSteps(median_s=median_s, steps=steps, findings=tuple(findings))


def copy_rate(nbytes: float, time_s: float, most_bytes_per_s: float, where: str) -> list[Finding]:
    """Refuse a copy faster than its link or memory can be."""
    if impossible := _not_positive(time_s, where):
        return impossible
    if nbytes / time_s <= most_bytes_per_s:
        return []
    text = (
        f"{where}: {format_rate(nbytes / time_s)} is above the {format_rate(most_bytes_per_s)} that is "
        "possible: not synchronised, or another path was timed"
    )
    return [Finding(severity="refuse", text=text)]


def peer_fallback(bytes_per_s: float, expected_bytes_per_s: float, where: str) -> list[Finding]:
    """Refuse copies between gpus that are as slow as through the host; warn of other slow ones.

    Parameters
    ----------
    bytes_per_s
        Rate of a copy so large that latency does not count.
    expected_bytes_per_s
        What the link gives.
    """
    share = bytes_per_s / expected_bytes_per_s
    if share >= SLOW_SHARE:
        return []
    text = (
        f"{where}: {format_rate(bytes_per_s)} is {share:.0%} of the "
        f"{format_rate(expected_bytes_per_s)} that the link gives"
    )
    if share < STAGED_SHARE:
        return [Finding(severity="refuse", text=f"{text}: copied through the host, not peer to peer?")]
    return [Finding(severity="warn", text=text)]


def _not_positive(time_s: float, where: str) -> list[Finding]:
    if math.isfinite(time_s) and time_s > 0:
        return []
    return [
        Finding(severity="refuse", text=f"{where}: a time of {time_s} s must be above 0 and finite")
    ]


def _tflops(flops_per_s: float) -> str:
    rate = flops_per_s / TFLOP
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def _hardly(iteration: IterationOverlap) -> bool:
    return iteration.overlap_s <= LEAST_OVERLAP * min(iteration.compute_s, iteration.comm_s)


def _blame(environment: Mapping[str, str]) -> str:
    suspects = [f"{key}={value}" for key, value in SERIALISING.items() if environment.get(key) == value]
    return f"; {' and '.join(suspects)} can cause that" if suspects else ""


def _union(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Disjoint spans that cover the same time, in order."""
    merged: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def _length(spans: Sequence[tuple[float, float]]) -> float:
    return math.fsum(end - start for start, end in spans)


def _common(first: Sequence[tuple[float, float]], second: Sequence[tuple[float, float]]) -> float:
    """Time covered by both of two lists of disjoint spans in order."""
    total, i, j = 0.0, 0, 0
    while i < len(first) and j < len(second):
        total += max(0.0, min(first[i][1], second[j][1]) - max(first[i][0], second[j][0]))
        if first[i][1] <= second[j][1]:
            i += 1
        else:
            j += 1
    return total

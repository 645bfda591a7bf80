"""What a trace says about a plan: where the time went. Definitions are in the README's glossary."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ficco_sim.plan import Plan, Queue, Transfer
from ficco_sim.trace import Span, Trace

__all__ = [
    "Alone",
    "Breakdown",
    "Cause",
    "Metrics",
    "Wait",
    "compute_waits",
    "copy_rates_beside_gemms",
    "summarize",
]

Cause: TypeAlias = Literal["compute-bound", "link-bound", "decomposition", "contention", "submission"]
TimeInterval: TypeAlias = tuple[float, float]

NEAR_IDEAL = 0.05  # a schedule this near to the ideal is held back by what bounds the ideal


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """Times without overlap, from the cost model or from measurements, in seconds.

    Parameters
    ----------
    gemm_whole_s, gemm_parts_s
        The uncut GEMM on one gpu; the sum of the plan's GEMMs on its busiest gpu.
    comm_whole_s, comm_parts_s
        The all-gather alone; the plan's transfers alone.
    comm_bytes_s
        The plan's transfers alone if commands cost nothing: what their bytes need.
    """

    gemm_whole_s: float
    gemm_parts_s: float
    comm_whole_s: float
    comm_parts_s: float
    comm_bytes_s: float

    @property
    def ideal_s(self) -> float:
        """The bound of perfect overlap: the longer of GEMM and all-gather, each whole and alone."""
        return max(self.gemm_whole_s, self.comm_whole_s)

    @property
    def gemm_dil(self) -> float:
        """Decomposition inefficiency loss of the GEMM, 1 or more as a rule."""
        return self.gemm_parts_s / self.gemm_whole_s if self.gemm_whole_s > 0 else 1.0

    @property
    def comm_dil(self) -> float:
        """Decomposition inefficiency loss of the communication."""
        return self.comm_parts_s / self.comm_whole_s if self.comm_whole_s > 0 else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """Where the makespan of the gpu that ends last went; the parts add up to it, in seconds.

    Parameters
    ----------
    gemm_s
        The uncut GEMM alone.
    decomposition_s
        What cutting it costs: slower pieces, local copies, start-up and waits between kernels.
    contention_s
        What GEMMs lost to copies in progress.
    exposed_comm_s
        The compute queues waited for a transfer.
    submission_s
        They waited for the host.
    """

    gemm_s: float
    decomposition_s: float
    contention_s: float
    exposed_comm_s: float
    submission_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Result of one schedule; see the README's glossary for DIL, CIL and fraction of ideal.

    ``speedup`` and ``fraction_of_ideal`` are None without a serial makespan, and the latter also
    where overlap has nothing to gain.
    """

    makespan_s: float
    ideal_s: float
    speedup: float | None
    fraction_of_ideal: float | None
    exposed_comm_s: float
    gemm_dil: float
    comm_dil: float
    gemm_cil: float
    comm_cil: float
    cause: Cause
    breakdown: Breakdown


def summarize(plan: Plan, trace: Trace, alone: Alone, *, serial_s: float | None = None) -> Metrics:
    """Derive the metrics of one run.

    Parameters
    ----------
    plan, trace
        The plan and what happened when it ran.
    alone
        Times of its parts without overlap.
    serial_s
        Makespan of the serial schedule on the same machine.
    """
    makespan_s = trace.makespan_s
    gpus = _by_gpu(plan, trace)
    exposed = max((gpu.exposed_s for gpu in gpus), default=makespan_s)
    last = max(gpus, key=lambda gpu: gpu.end_s, default=None)
    breakdown = _breakdown(last, makespan_s, alone)
    gemms = [span for span in trace.spans if span.kind == "gemm"]
    transfers = [span for span in trace.spans if span.kind == "transfer"]
    speedup = None if serial_s is None else _ratio(serial_s, makespan_s)
    fraction = None
    if speedup is not None and serial_s is not None:
        to_gain = _ratio(serial_s, alone.ideal_s) - 1
        fraction = (speedup - 1) / to_gain if to_gain > 1e-9 else None
    comm_cil = _contention(transfers)
    return Metrics(
        makespan_s=makespan_s,
        ideal_s=alone.ideal_s,
        speedup=speedup,
        fraction_of_ideal=fraction,
        exposed_comm_s=exposed,
        gemm_dil=alone.gemm_dil,
        comm_dil=alone.comm_dil,
        gemm_cil=_contention(gemms),
        comm_cil=comm_cil,
        cause=_cause(breakdown, makespan_s, alone, comm_cil),
        breakdown=breakdown,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A compute queue with nothing to run: it waits for a transfer, or for the host to submit."""

    queue: Queue
    task_id: str
    start_s: float
    end_s: float
    cause: Literal["transfer", "host"]


def compute_waits(plan: Plan, trace: Trace) -> list[Wait]:
    """Every wait of a compute queue and the task that it delayed, in the plan's order."""
    spans = {span.task_id: span for span in trace.spans}
    transfers = {task.id for task in plan.tasks if isinstance(task, Transfer)}
    free: dict[tuple[int, int], float] = {}
    waits = []
    for task in plan.tasks:
        queue = task.queue
        if queue.engine != "compute":
            continue
        span = spans[task.id]
        free_s = free.get((queue.gpu, queue.index), 0.0)
        free[queue.gpu, queue.index] = span.end_s
        arrived_s = max((spans[d].end_s for d in task.deps if d in transfers), default=0.0)
        ready_s = max([free_s, *(spans[d].end_s for d in task.deps)])
        if arrived_s > free_s:
            waits.append(
                Wait(queue=queue, task_id=task.id, start_s=free_s, end_s=arrived_s, cause="transfer")
            )
        if span.submitted_s > ready_s:
            end_s = min(span.submitted_s, span.start_s)
            waits.append(Wait(queue=queue, task_id=task.id, start_s=ready_s, end_s=end_s, cause="host"))
    return waits


@dataclass(slots=True)
class _GpuTimes:
    """Compute queues of one gpu over time, in seconds."""

    end_s: float
    gemm_s: float
    contention_s: float
    exposed_s: float
    submission_s: float


def _by_gpu(plan: Plan, trace: Trace) -> list[_GpuTimes]:
    busy: dict[int, list[TimeInterval]] = defaultdict(list)
    gemm_spans: dict[int, list[Span]] = defaultdict(list)
    for span in trace.spans:
        if span.queue.engine == "compute":
            busy[span.queue.gpu].append((span.start_s, span.end_s))
            if span.kind == "gemm":
                gemm_spans[span.queue.gpu].append(span)
    waits: dict[int, list[TimeInterval]] = defaultdict(list)
    host_waits: dict[int, list[TimeInterval]] = defaultdict(list)
    for wait in compute_waits(plan, trace):
        kind = waits if wait.cause == "transfer" else host_waits
        kind[wait.queue.gpu].append((wait.start_s, wait.end_s))
    result = []
    for gpu, intervals in busy.items():
        busy_s = _length(intervals)
        exposed_s = _length([*intervals, *waits[gpu]]) - busy_s
        waiting_s = _length([*intervals, *waits[gpu], *host_waits[gpu]])
        gemm_s = _length([(span.start_s, span.end_s) for span in gemm_spans[gpu]])
        result.append(
            _GpuTimes(
                end_s=max(end for _, end in intervals),
                gemm_s=gemm_s,
                contention_s=gemm_s * (1 - 1 / _contention(gemm_spans[gpu])),
                exposed_s=exposed_s,
                submission_s=waiting_s - busy_s - exposed_s,
            )
        )
    return result


def _breakdown(last: _GpuTimes | None, makespan_s: float, alone: Alone) -> Breakdown:
    if last is None:  # nothing is computed
        return Breakdown(
            gemm_s=0.0,
            decomposition_s=0.0,
            contention_s=0.0,
            exposed_comm_s=makespan_s,
            submission_s=0.0,
        )
    accounted = alone.gemm_whole_s + last.contention_s + last.exposed_s + last.submission_s
    return Breakdown(
        gemm_s=alone.gemm_whole_s,
        decomposition_s=makespan_s - accounted,
        contention_s=last.contention_s,
        exposed_comm_s=last.exposed_s,
        submission_s=last.submission_s,
    )


def _cause(parts: Breakdown, makespan_s: float, alone: Alone, comm_cil: float) -> Cause:
    """What holds a schedule back from the ideal bound.

    Near the bound it is what bounds the ideal. Else it is the largest loss; a wait for transfers
    beyond the bound's own counts as the loss that made the transfers late, if one explains at least
    half of it: contention, or the commands of cut transfers. What remains is links left idle.
    """
    if makespan_s - alone.ideal_s <= NEAR_IDEAL * makespan_s:
        return "compute-bound" if alone.gemm_whole_s >= alone.comm_whole_s else "link-bound"
    late_s = parts.exposed_comm_s - max(alone.ideal_s - alone.gemm_whole_s, 0.0)
    late_cause: Cause = "link-bound"
    if alone.comm_parts_s * (comm_cil - 1) >= late_s / 2:
        late_cause = "contention"
    elif alone.comm_parts_s - max(alone.comm_bytes_s, alone.comm_whole_s) >= late_s / 2:
        late_cause = "decomposition"
    losses: dict[Cause, float] = {
        "decomposition": parts.decomposition_s,
        "contention": parts.contention_s,
        "submission": parts.submission_s,
    }
    losses[late_cause] = losses.get(late_cause, 0.0) + late_s
    return max(losses, key=lambda cause: losses[cause])


def _contention(spans: Iterable[Span]) -> float:
    """Contention inefficiency loss: time of tasks under overlap over their time alone."""
    total = lost = 0.0
    for span in spans:
        total += span.duration_s
        lost += span.lost_s
    return total / (total - lost) if total > lost else 1.0


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator > 0 else 1.0


def _length(intervals: list[TimeInterval]) -> float:
    """Total length of a union of intervals."""
    total = 0.0
    reached = float("-inf")
    for start, end in sorted(intervals):
        if end > reached:
            total += end - max(start, reached)
            reached = end
    return total


def copy_rates_beside_gemms(spans: Iterable[Span]) -> list[float]:
    """Bytes/s that come into each gpu from its first transfer to its last, if a GEMM runs meanwhile.

    A mean: for a moment more may come.
    """
    first_s: dict[int, float] = {}
    last_s: defaultdict[int, float] = defaultdict(float)
    nbytes: defaultdict[int, int] = defaultdict(int)
    gemms_s: dict[int, float] = {}
    for span in spans:
        gpu = span.queue.gpu  # transfers are on queues of the gpu that receives
        if span.kind == "transfer":
            first_s[gpu] = min(first_s.get(gpu, span.start_s), span.start_s)
            last_s[gpu] = max(last_s[gpu], span.end_s)
            nbytes[gpu] += span.nbytes
        elif span.kind == "gemm":
            gemms_s[gpu] = min(gemms_s.get(gpu, span.start_s), span.start_s)
    return [
        nbytes[gpu] / (last_s[gpu] - start_s)
        for gpu, start_s in first_s.items()
        if last_s[gpu] > start_s and gpu in gemms_s and gemms_s[gpu] < last_s[gpu]
    ]

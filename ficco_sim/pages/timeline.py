"""Data of a timeline for the page's script: lanes, tasks, waits and what each waits for."""

from collections import defaultdict
from typing import Any

from ficco_sim.metrics import compute_waits
from ficco_sim.plan import Gemm, LocalCopy, Plan, Task, Transfer
from ficco_sim.report import COLOURS, LABELS, WAIT_LABELS, WAITS
from ficco_sim.trace import Trace
from ficco_sim.units import US

__all__ = ["KINDS", "MAX_TASKS", "timeline_data"]

MAX_TASKS = 12_000  # of one timeline; of more, only the first gpus are drawn
KINDS = tuple(COLOURS)
CAUSES = tuple(WAITS)
DIGITS = 4  # of microseconds


def timeline_data(plan: Plan, trace: Trace, title: str) -> dict[str, Any]:
    """Lanes, tasks and waits of a run, with times in microseconds.

    Tasks are lists of lane, kind, start, end, bytes, FLOP, microseconds lost to contention, id, places
    of the tasks it depends on, and what it is; waits of lane, cause, start, end, and the places of the
    delayed task and of the task that ended last before it.
    """
    shown = _shown_gpus(trace)
    queues = sorted(
        {span.queue for span in trace.spans if span.queue.gpu in shown},
        key=lambda q: (q.gpu, q.engine != "compute", q.engine, q.index),
    )
    lanes = {queue: i for i, queue in enumerate(queues)}
    tasks = {task.id: task for task in plan.tasks}
    spans = [span for span in trace.spans if span.queue in lanes]
    places = {span.task_id: i for i, span in enumerate(spans)}
    ends = {span.task_id: span.end_s for span in spans}
    rows: list[list[Any]] = [
        [
            lanes[span.queue],
            KINDS.index(span.kind),
            _us(span.start_s),
            _us(span.end_s),
            span.nbytes,
            span.flops,
            _us(span.lost_s),
            span.task_id,
            [places[dep] for dep in tasks[span.task_id].deps if dep in places],
            _what(tasks[span.task_id]),
        ]
        for span in spans
    ]
    waits: list[list[Any]] = []
    for wait in compute_waits(plan, trace):
        if wait.queue not in lanes:
            continue
        deps = [d for d in tasks[wait.task_id].deps if d in ends and isinstance(tasks[d], Transfer)]
        last = max(deps, key=lambda d: ends[d], default=None)
        waits.append(
            [
                lanes[wait.queue],
                CAUSES.index(wait.cause),
                _us(wait.start_s),
                _us(wait.end_s),
                places[wait.task_id],
                -1 if last is None or wait.cause == "host" else places[last],
            ]
        )
    return {
        "title": title,
        "makespan": _us(trace.makespan_s),
        "hidden_gpus": plan.num_gpus - len(shown),
        "lanes": [[q.gpu, q.engine, q.index] for q in queues],
        "kinds": [[LABELS[kind], COLOURS[kind]] for kind in KINDS],
        "causes": [[WAIT_LABELS[cause], WAITS[cause][0]] for cause in CAUSES],
        "tasks": rows,
        "waits": waits,
    }


def _us(seconds: float) -> float:
    return round(seconds / US, DIGITS)


def _shown_gpus(trace: Trace) -> set[int]:
    """The first gpus whose tasks a page can hold; at least one."""
    counts: dict[int, int] = defaultdict(int)
    for span in trace.spans:
        counts[span.queue.gpu] += 1
    shown: set[int] = set()
    total = 0
    for gpu in sorted(counts):
        total += counts[gpu]
        if shown and total > MAX_TASKS:
            break
        shown.add(gpu)
    return shown


def _what(task: Task) -> str:
    """The task in a few words."""
    if isinstance(task, Transfer):
        rows, cols = task.src.shape
        return f"gpu {task.src.gpu} to gpu {task.dst.gpu}, {rows} x {cols} elements"
    if isinstance(task, LocalCopy):
        return f"copies within gpu {task.queue.gpu}"
    assert isinstance(task, Gemm)
    k, n = task.b.shape
    batch = f" in {len(task.a)} batches" if len(task.a) > 1 else ""
    return f"[{sum(task.entry_rows)}, {k}] x [{k}, {n}]{batch}"

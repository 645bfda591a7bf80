"""What a viewer's trace shows of a run, whatever its format: tasks by queue, their details, arrows."""

from dataclasses import dataclass

from ficco_sim.errors import FileError
from ficco_sim.plan import Gemm, Plan, Queue, Region, Task, Transfer
from ficco_sim.trace import Span, Trace
from ficco_sim.units import to_ns

__all__ = ["Arrows", "about", "by_queue", "check_same_tasks", "details", "find_arrows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrows:
    """Arrows between slices: number and name of those that end and that start at each task.

    ``feeds`` goes from a transfer to a task that reads what it brought, ``waits for`` from any other
    task to one on another queue that has to wait for it.
    """

    into: dict[str, list[tuple[int, str]]]
    out_of: dict[str, list[tuple[int, str]]]


def check_same_tasks(run: Trace, plan: Plan) -> None:
    """Refuse a trace of another plan.

    Raises
    ------
    FileError
        Naming a task that is not in both.
    """
    odd = {span.task_id for span in run.spans} ^ {task.id for task in plan.tasks}
    if odd:
        raise FileError(f"trace of {run.schedule}: task {min(odd)!r} is not in both trace and plan")


def about(run: Trace) -> dict[str, str]:
    """What a run is, in words."""
    return {
        "source": run.source,
        "schedule": run.schedule,
        "workload": run.workload,
        "machine": run.machine,
        "labels": ", ".join(run.labels),
    }


def by_queue(run: Trace) -> dict[Queue, list[Span]]:
    """Spans by queue, in the order of time; gpus in order, compute queues first on each."""
    found: dict[Queue, list[Span]] = {}
    for span in run.spans:
        found.setdefault(span.queue, []).append(span)
    order = sorted(found, key=lambda q: (q.gpu, q.engine != "compute", q.engine, q.index))
    return {queue: sorted(found[queue], key=lambda s: (s.start_s, s.end_s)) for queue in order}


def details(span: Span, task: Task) -> dict[str, int | float]:
    """Numbers of a task: bytes, where from, shape and FLOP, microseconds lost to contention."""
    found: dict[str, int | float] = {}
    if span.nbytes:
        found["bytes"] = span.nbytes
    if isinstance(task, Transfer):
        found["from_gpu"] = task.src.gpu
    if isinstance(task, Gemm):
        k, n = task.b.shape
        found |= {"m": sum(task.entry_rows), "n": n, "k": k, "flop": span.flops}
    if span.lost_s:
        found["lost_to_contention_us"] = to_ns(span.lost_s) / 1000
    return found


def find_arrows(plan: Plan, num_gpus: int) -> Arrows:
    """Arrows into the tasks of the first gpus, one for each dependency that a viewer should show."""
    found = Arrows(into={}, out_of={})
    tasks = {task.id: task for task in plan.tasks}
    number = 0
    for task in plan.tasks:
        if task.queue.gpu >= num_gpus:
            continue
        for dep in dict.fromkeys(task.deps):
            before = tasks[dep]
            name = _arrow_name(before, task)
            if name:
                number += 1
                found.out_of.setdefault(dep, []).append((number, name))
                found.into.setdefault(task.id, []).append((number, name))
    return found


def _arrow_name(before: Task, task: Task) -> str:
    if isinstance(before, Transfer) and _reads(task, before.dst):
        return "feeds"
    return "waits for" if before.queue != task.queue else ""


def _reads(task: Task, region: Region) -> bool:
    return any(region.overlaps(read) for read in task.reads)

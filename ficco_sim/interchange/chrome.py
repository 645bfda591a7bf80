"""A run as a Chrome trace, to open in ui.perfetto.dev.

A process per gpu with a thread per queue; arrows from transfers to what they feed; counters of link
and HBM use. Times are whole nanoseconds, which is what the viewer keeps, so that nothing overlaps by
rounding. A counter spreads the bytes of each task evenly over its span.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from ficco_sim import io
from ficco_sim.interchange.counters import counters
from ficco_sim.interchange.events import (
    Arrows,
    about,
    by_queue,
    check_same_tasks,
    details,
    find_arrows,
)
from ficco_sim.machine import Machine
from ficco_sim.plan import Plan, Queue, Task
from ficco_sim.trace import Span, Trace
from ficco_sim.units import to_ns

__all__ = ["chrome_events", "write_chrome"]

Event: TypeAlias = dict[str, Any]

COLOURS = {"gemm": "thread_state_running", "local_copy": "thread_state_runnable"}
MAX_PLAIN_ARROWS = 25_000  # in a file that is not compressed: they take more room than the slices
LARGE_BYTES = 50_000_000


def write_chrome(path: Path, run: Trace, plan: Plan, machine: Machine) -> str:
    """Write a run as a Chrome trace, compressed if the name ends in ``.gz``.

    Parameters
    ----------
    run
        A trace of the plan on the machine, simulated or measured.

    Returns
    -------
    str
        What to know of the file, or nothing: a large run has arrows into the first gpus only, unless
        it is compressed.

    Raises
    ------
    FileError
        If the file cannot be written, or the trace is not one of the plan.
    """
    compressed = path.suffix == ".gz"
    gpus = plan.num_gpus if compressed else _gpus_with_arrows(plan)
    notes = []
    if gpus < plan.num_gpus:
        notes.append(
            f"arrows into gpus 0 to {gpus - 1} of {plan.num_gpus} only; a name in .json.gz or .pftrace "
            "has all"
        )
    other = about(run) | {"left_out": "; ".join(notes)}
    num_bytes = 0
    with io.writing(path) as file:
        # no time of writing and no name in it: the same run gives the same bytes
        out = gzip.GzipFile("", "wb", 6, file, mtime=0) if compressed else file
        for piece in _document(other, chrome_events(run, plan, machine, arrows_into=gpus)):
            out.write(piece)
            num_bytes += len(piece)
        if compressed:
            out.close()
    if num_bytes > LARGE_BYTES and not compressed:
        notes.insert(0, f"{num_bytes / 1e6:.0f} MB, about a tenth of it in .json.gz or .pftrace")
    return "; ".join(notes)


def _document(other: Event, events: Iterator[Event]) -> Iterator[bytes]:
    """A Chrome trace in pieces, an event a line."""
    yield b'{"displayTimeUnit":"ns","otherData":' + _json(other) + b',"traceEvents":[\n'
    between = b""
    for event in events:
        yield between + _json(event)
        between = b",\n"
    yield b"\n]}\n"


def chrome_events(
    run: Trace, plan: Plan, machine: Machine, *, arrows_into: int | None = None
) -> Iterator[Event]:
    """The events of a Chrome trace, those of a track in the order of time.

    Parameters
    ----------
    arrows_into
        Number of gpus, from gpu 0, whose tasks get arrows; all by default.
    """
    tasks = {task.id: task for task in plan.tasks}
    check_same_tasks(run, plan)
    queues = by_queue(run)
    arrows = find_arrows(plan, plan.num_gpus if arrows_into is None else arrows_into)
    last_gpu = -1
    tid = 0
    for queue, members in queues.items():
        if queue.gpu != last_gpu:
            last_gpu, tid = queue.gpu, 0
            yield from _name_process(queue.gpu, machine.node_name(queue.gpu))
        yield from _name_thread(queue, tid)
        place = {"pid": queue.gpu, "tid": tid}
        for span in members:
            yield _slice(span, tasks[span.task_id], place)
            yield from _arrows_at(span, arrows, place)
        tid += 1
    pids = {queue.gpu for queue in queues}
    for counter in counters(run, plan, machine):
        if counter.node not in pids:  # a switch, which has no tasks
            pids.add(counter.node)
            yield from _name_process(counter.node, machine.node_name(counter.node))
        common = {"ph": "C", "name": counter.name, "pid": counter.node}
        for at_ns, value in counter.points():
            yield {**common, "ts": at_ns / 1000, "args": {"bytes/s": value}}


def _name_process(pid: int, name: str) -> Iterator[Event]:
    yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}


def _name_thread(queue: Queue, tid: int) -> Iterator[Event]:
    common = {"ph": "M", "pid": queue.gpu, "tid": tid}
    label = f"{queue.engine} {queue.index}"
    yield {**common, "name": "thread_name", "args": {"name": label}}
    yield {**common, "name": "thread_sort_index", "args": {"sort_index": tid}}


def _slice(span: Span, task: Task, place: Event) -> Event:
    start_ns, end_ns = to_ns(span.start_s), to_ns(span.end_s)
    event: Event = {
        "ph": "X",
        "name": span.task_id,
        "cat": span.kind,
        **place,
        "ts": start_ns / 1000,
        "dur": (end_ns - start_ns) / 1000,
        "args": details(span, task),
    }
    if span.kind in COLOURS:
        event["cname"] = COLOURS[span.kind]
    return event


def _arrows_at(span: Span, arrows: Arrows, place: Event) -> Iterator[Event]:
    """The ends of arrows at one slice, each inside it, in the order of time."""
    start_ns, end_ns = to_ns(span.start_s), to_ns(span.end_s)
    inside = min(1, (end_ns - start_ns) // 2)  # at an edge the viewer may take the neighbour
    for number, name in arrows.into.get(span.task_id, ()):
        common = {"name": name, "cat": "flow", "id": number, **place}
        yield {"ph": "f", "bp": "e", **common, "ts": (start_ns + inside) / 1000}
    for number, name in arrows.out_of.get(span.task_id, ()):
        common = {"name": name, "cat": "flow", "id": number, **place}
        yield {"ph": "s", **common, "ts": (end_ns - inside) / 1000}


def _gpus_with_arrows(plan: Plan) -> int:
    """How many gpus, at least one, can have all their arrows in a file that is not compressed."""
    counts = [0] * plan.num_gpus
    for task in plan.tasks:
        counts[task.queue.gpu] += len(task.deps)
    total = 0
    for gpu, count in enumerate(counts):
        total += count
        if total > MAX_PLAIN_ARROWS:
            return max(gpu, 1)
    return plan.num_gpus


def _json(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()

"""Data of a timeline for the page's script: every gpu's tasks and waits, packed to fit into a page.

Each gpu is a pack: JSON in columns, deflated, in base64; the script unpacks those that are looked at.
Names of gpus in it are relative, the gpu itself being ``+0``, so that gpus that run the same but for
which peer is which share one pack. Times are whole nanoseconds.
"""

import base64
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ficco_sim.metrics import Wait, compute_waits
from ficco_sim.plan import Gemm, LocalCopy, Plan, Queue, Task, Transfer
from ficco_sim.report import COLOURS, LABELS, WAIT_LABELS, WAITS
from ficco_sim.trace import Span, Trace
from ficco_sim.units import US, to_ns

__all__ = ["MAX_PACKED_BYTES", "timeline_data"]

MAX_PACKED_BYTES = 3_500_000  # of all packs of a page; gpus that do not fit are named
KINDS = tuple(COLOURS)
CAUSES = tuple(WAITS)
BINS = 160  # of the overview, from 0 to the makespan
ABSOLUTE = re.compile(r"\b([gs])(\d+)\b")


def timeline_data(
    plan: Plan, trace: Trace, title: str, *, max_bytes: int = MAX_PACKED_BYTES
) -> dict[str, Any]:
    """All that the script needs of a run.

    ``gpus`` has the place in ``packs`` of each gpu's pack, -1 for those that did not fit; ``busy`` has
    for each pack the share of time in which a GEMM runs, a digit of tenths per bin of the makespan.

    Parameters
    ----------
    max_bytes
        Of all packs; gpus that end last come first.
    """
    run = _Run.of(plan, trace)
    packs: list[str] = []
    busy: list[str] = []
    known: dict[str, int] = {}
    gpus = [-1] * plan.num_gpus
    left = max_bytes
    for gpu in sorted(range(plan.num_gpus), key=lambda gpu: (-run.end_ns(gpu), gpu)):
        text = json.dumps(_columns(run, gpu), separators=(",", ":"))
        if text not in known:
            pack = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
            if len(pack) > left and packs:
                continue
            left -= len(pack)
            known[text] = len(packs)
            packs.append(pack)
            busy.append(_busy(run, gpu))
        gpus[gpu] = known[text]
    return {
        "title": title,
        "makespan": trace.makespan_s / US,
        "last": max(range(plan.num_gpus), key=lambda gpu: (run.end_ns(gpu), -gpu)),
        "kinds": [[LABELS[kind], COLOURS[kind]] for kind in KINDS],
        "causes": [[WAIT_LABELS[cause], WAITS[cause][0]] for cause in CAUSES],
        "gpus": gpus,
        "num_queues": max((len(run.queues[gpu]) for gpu in range(plan.num_gpus)), default=0),
        "packs": packs,
        "busy": busy,
    }


@dataclass(frozen=True, slots=True)
class _Run:
    """A run by gpu; ``places`` are those of a task among the spans of its gpu."""

    num_gpus: int
    makespan_ns: int
    tasks: Mapping[str, Task]
    queues: Mapping[int, Sequence[Queue]]
    spans: Mapping[int, Sequence[Span]]
    places: Mapping[str, int]
    waits: Mapping[int, Sequence[Wait]]

    @staticmethod
    def of(plan: Plan, trace: Trace) -> "_Run":
        spans: dict[int, list[Span]] = defaultdict(list)
        for span in trace.spans:
            spans[span.queue.gpu].append(span)
        queues: dict[int, list[Queue]] = defaultdict(list)
        places: dict[str, int] = {}
        for gpu, found in list(spans.items()):
            queues[gpu] = sorted(
                {span.queue for span in found}, key=lambda q: (q.engine != "compute", q.engine, q.index)
            )
            lanes = {queue: i for i, queue in enumerate(queues[gpu])}
            ranks = [(lanes[s.queue], s.start_s, s.end_s) for s in found]
            order = sorted(range(len(found)), key=ranks.__getitem__)
            spans[gpu] = [found[i] for i in order]
            places |= {span.task_id: i for i, span in enumerate(spans[gpu])}
        waits: dict[int, list[Wait]] = defaultdict(list)
        for wait in compute_waits(plan, trace):
            waits[wait.queue.gpu].append(wait)
        return _Run(
            num_gpus=plan.num_gpus,
            makespan_ns=to_ns(trace.makespan_s),
            tasks={task.id: task for task in plan.tasks},
            queues=queues,
            spans=spans,
            places=places,
            waits=waits,
        )

    def end_ns(self, gpu: int) -> int:
        """When the gpu's last task ends."""
        return max((to_ns(span.end_s) for span in self.spans.get(gpu, ())), default=0)

    def place(self, task_id: str, gpu: int) -> int | list[int]:
        """A task's place on this gpu; else the other gpu, relative, and its place there."""
        there = self.tasks[task_id].queue.gpu
        place = self.places[task_id]
        return place if there == gpu else [(there - gpu) % self.num_gpus, place]


def _columns(run: _Run, gpu: int) -> dict[str, Any]:
    """A gpu's tasks and waits, a list a column; starts are differences to the one before."""
    spans = run.spans.get(gpu, ())
    lanes = {queue: i for i, queue in enumerate(run.queues.get(gpu, ()))}
    words: dict[str, int] = {}
    what = [
        words.setdefault(_what(run.tasks[span.task_id], gpu, run.num_gpus), len(words))
        for span in spans
    ]
    starts = [to_ns(span.start_s) for span in spans]
    return {
        "lanes": [[queue.engine, queue.index] for queue in lanes],
        "lane": [lanes[span.queue] for span in spans],
        "kind": [KINDS.index(span.kind) for span in spans],
        "start": [here - before for here, before in zip(starts, [0, *starts], strict=False)],
        "time": [to_ns(s.end_s) - start for s, start in zip(spans, starts, strict=True)],
        "bytes": [span.nbytes for span in spans],
        "flop": [span.flops for span in spans],
        "lost": [to_ns(span.lost_s) for span in spans],
        "id": [_relative(span.task_id, gpu, run.num_gpus) for span in spans],
        "deps": [
            [run.place(d, gpu) for d in run.tasks[span.task_id].deps if d in run.places]
            for span in spans
        ],
        "what": what,
        "words": list(words),
        "waits": [_wait(run, wait, lanes[wait.queue]) for wait in run.waits.get(gpu, ())],
    }


def _wait(run: _Run, wait: Wait, lane: int) -> list[Any]:
    """Lane, cause, start, end, place of the delayed task, and that of the transfer it waits for."""
    deps = [
        d
        for d in run.tasks[wait.task_id].deps
        if d in run.places and isinstance(run.tasks[d], Transfer)
    ]
    last: int | list[int] | None = None
    if deps and wait.cause != "host":
        ends = {d: run.spans[run.tasks[d].queue.gpu][run.places[d]].end_s for d in deps}
        last = run.place(max(deps, key=lambda d: ends[d]), wait.queue.gpu)
    return [
        lane,
        CAUSES.index(wait.cause),
        to_ns(wait.start_s),
        to_ns(wait.end_s),
        run.places[wait.task_id],
        last,
    ]


def _relative(name: str, gpu: int, num_gpus: int) -> str:
    """A name with gpus counted from this one: on gpu 5 ``xfer.g5.s6.c0`` is ``xfer.g+0.s+1.c0``."""

    def count(found: re.Match[str]) -> str:
        number = int(found[2])
        return f"{found[1]}+{(number - gpu) % num_gpus}" if number < num_gpus else found[0]

    return ABSOLUTE.sub(count, name)


def _what(task: Task, gpu: int, num_gpus: int) -> str:
    """The task in a few words, gpus counted from this one."""
    if isinstance(task, Transfer):
        rows, cols = task.src.shape
        src, dst = ((other - gpu) % num_gpus for other in (task.src.gpu, task.dst.gpu))
        return f"gpu +{src} to gpu +{dst}, {rows} x {cols} elements"
    if isinstance(task, LocalCopy):
        return "copies within gpu +0"
    assert isinstance(task, Gemm)
    k, n = task.b.shape
    batch = f" in {len(task.a)} batches" if len(task.a) > 1 else ""
    return f"[{sum(task.entry_rows)}, {k}] x [{k}, {n}]{batch}"


def _busy(run: _Run, gpu: int) -> str:
    """Share of each bin in which at least one compute queue has a task, as digits of tenths."""
    size = max(run.makespan_ns, 1) / BINS
    filled = [0.0] * BINS
    reached = 0
    spans = [s for s in run.spans.get(gpu, ()) if s.queue.engine == "compute"]
    for span in sorted(spans, key=lambda span: span.start_s):
        start, end = max(to_ns(span.start_s), reached), to_ns(span.end_s)
        reached = max(reached, end)
        for i in range(int(start / size), min(int(end / size), BINS - 1) + 1):
            filled[i] += max(0.0, min(end, (i + 1) * size) - max(start, i * size))
    return "".join(str(min(9, int(10 * time / size))) for time in filled)

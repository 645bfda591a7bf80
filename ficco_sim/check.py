"""Static proof that a plan is legal and computes its workload, without running anything.

Legal: ids are unique, dependencies exist, regions lie in their buffers and have matching shapes, no
deadlock, no race, nothing is read before it is written or overwritten unread. Right: the data that
ends in every output is the one that the workload asks for (`ficco_sim.dataflow`).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ficco_sim import dataflow
from ficco_sim.errors import PlanError
from ficco_sim.plan import Buffer, Gemm, Interval, LocalCopy, Plan, PlanIndex, Region, Task, Transfer
from ficco_sim.workload import DTYPE_BYTES, OUTPUT_DTYPE, split

__all__ = ["MAX_CHECKED_TASKS", "Problem", "check_plan", "find_problems"]

MAX_SHOWN = 8
MAX_CHECKED_TASKS = 30_000  # the proof keeps a bit per pair of tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong with a plan: a kind, the tasks concerned, and a sentence."""

    kind: str
    tasks: tuple[str, ...]
    message: str


def check_plan(plan: Plan) -> None:
    """Raise if a plan is illegal or computes something else than its workload.

    Raises
    ------
    PlanError
        With the first few problems, each naming its tasks.
    """
    problems = find_problems(plan)
    if problems:
        shown = [f"{plan.schedule}: {p.kind}: {p.message}" for p in problems[:MAX_SHOWN]]
        if len(problems) > MAX_SHOWN:
            shown.append(f"{plan.schedule}: and {len(problems) - MAX_SHOWN} more problems")
        raise PlanError("\n".join(shown))


def find_problems(plan: Plan) -> list[Problem]:
    """All problems of the first stage of checks that finds any; empty for a good plan."""
    if len(plan.tasks) > MAX_CHECKED_TASKS:
        message = f"{len(plan.tasks):,} tasks are too many to check; at most {MAX_CHECKED_TASKS:,}"
        return [Problem(kind="size", tasks=(), message=message)]
    try:
        index = PlanIndex(plan)
    except PlanError as error:
        return [Problem(kind="id", tasks=(), message=str(error).removeprefix(f"{plan.schedule}: "))]
    problems = [*_buffer_problems(plan), *_shape_problems(plan)] or list(_workload_problems(plan))
    if problems:
        return problems
    order, stuck = index.topological_order()
    if stuck:
        return [_deadlock(plan, index, stuck)]
    problems = _access_problems(plan, _ancestors(index, order))
    return problems or [
        Problem(kind="data", tasks=tasks, message=message)
        for tasks, message in dataflow.find_wrong_data(plan, [plan.tasks[i] for i in order])
    ]


def _buffer_problems(plan: Plan) -> Iterator[Problem]:
    seen: set[tuple[int, str]] = set()
    for b in plan.buffers:
        key = (b.gpu, b.name)
        if key in seen:
            yield Problem(kind="buffer", tasks=(), message=f"two buffers gpu {b.gpu} {b.name!r}")
        seen.add(key)
        if b.dtype not in DTYPE_BYTES:
            message = f"buffer gpu {b.gpu} {b.name!r}: the element type {b.dtype!r} is unknown"
            yield Problem(kind="buffer", tasks=(), message=message)
        if not (0 <= b.gpu < plan.num_gpus and b.rows >= 0 and b.cols >= 0):
            yield Problem(
                kind="buffer",
                tasks=(),
                message=f"buffer gpu {b.gpu} {b.name!r} [{b.rows}, {b.cols}]: the gpu must be from "
                f"0 to {plan.num_gpus - 1} and the size not negative",
            )


def _shape_problems(plan: Plan) -> Iterator[Problem]:
    """Regions outside their buffers, unequal shapes, work on the wrong gpu."""
    buffers = {(b.gpu, b.name): b for b in plan.buffers}
    for label, regions in (("input", plan.inputs), ("output", plan.outputs)):
        for region in regions:
            fault = _bounds_fault(region, buffers)
            if fault:
                yield Problem(kind="bounds", tasks=(), message=f"{label} {region}: {fault}")
    for task in plan.tasks:
        outside = False
        for region in (*task.reads, *task.writes):
            fault = _bounds_fault(region, buffers)
            if fault:
                outside = True
                yield Problem(
                    kind="bounds", tasks=(task.id,), message=f"task {task.id}: {region}: {fault}"
                )
        if not outside:
            for fault in _task_faults(task, buffers):
                yield Problem(kind="shape", tasks=(task.id,), message=f"task {task.id}: {fault}")


def _workload_problems(plan: Plan) -> Iterator[Problem]:
    """Buffers, inputs and outputs that are not those of the plan's workload."""
    workload = plan.workload
    if not 1 <= plan.num_gpus <= max(1, len(plan.buffers)):
        message = f"{plan.num_gpus} gpus, but {len(plan.buffers)} buffers"
        yield Problem(kind="workload", tasks=(), message=message)
        return
    results = {"c"} if workload.flops else {"a"} if workload.tokens is not None else set()
    for region in plan.inputs:
        if region.buffer in results:
            message = f"{region} is an input, but the workload wants it as a result"
            yield Problem(kind="workload", tasks=(), message=message)
    if workload.pattern not in ("all_gather_gemm", "all_gather", "gemm"):
        yield from _coverage_problems(plan)
        return
    m, n, k = workload.m, workload.n, workload.k
    sizes = {"a": (m, k, workload.dtype)}
    output = "a"
    if workload.pattern != "all_gather":
        output = "c"
        sizes["b"] = (k, n, workload.dtype)
        sizes["c"] = (m, n, OUTPUT_DTYPE[workload.dtype])
    gathered = workload.pattern != "gemm"
    buffers = {(b.gpu, b.name): (b.rows, b.cols, b.dtype) for b in plan.buffers}
    inputs: dict[tuple[int, str], list[Region]] = defaultdict(list)
    outputs: dict[tuple[int, str], list[Region]] = defaultdict(list)
    for region in plan.inputs:
        # the shards of A lie on different gpus and make one matrix
        owner = 0 if gathered and region.buffer == "a" else region.gpu
        inputs[owner, region.buffer].append(replace(region, gpu=owner))
    for region in plan.outputs:
        outputs[region.gpu, region.buffer].append(region)
    for gpu in range(plan.num_gpus):
        for name, size in sizes.items():
            where = f"gpu {gpu} {name}"
            if buffers.get((gpu, name)) != size:
                message = f"{where}: the workload wants a buffer of {size[0]} x {size[1]} {size[2]}"
                yield Problem(kind="workload", tasks=(), message=message)
                continue
            whole = Region(gpu=gpu, buffer=name, rows=(0, size[0]), cols=(0, size[1]))
            if name == output:
                for hole in _uncovered(whole, outputs[gpu, name]):
                    message = f"{hole} is not among the outputs, but the workload wants it"
                    yield Problem(kind="workload", tasks=(), message=message)
            if name == "b" or (name == "a" and (gpu == 0 or not gathered)):
                given = inputs[gpu, name]
                for hole in _uncovered(whole, given):
                    where = f"{name}[{hole.rows[0]}:{hole.rows[1]}, {hole.cols[0]}:{hole.cols[1]}]"
                    message = f"no input holds {where}, a part of the workload"
                    yield Problem(kind="workload", tasks=(), message=message)
                if sum(region.num_elements for region in given) > whole.num_elements:
                    message = f"inputs hold a part of {name} twice"
                    yield Problem(kind="workload", tasks=(), message=message)


def _coverage_problems(plan: Plan) -> Iterator[Problem]:
    """Exchanges and reductions: inputs and outputs must be all that the workload has."""
    workload, num_gpus = plan.workload, plan.num_gpus
    everything, shards = (0, workload.m), split(workload.m, num_gpus)
    needed: list[tuple[str, int, str, Interval]] = []
    for gpu in range(num_gpus):
        if workload.tokens is None:
            whole = workload.pattern == "all_reduce"
            needed.append(("input", gpu, "part", everything))
            needed.append(("output", gpu, "part", everything if whole else shards[gpu]))
            continue
        if len(workload.tokens) != num_gpus:
            message = f"tokens are for {len(workload.tokens)} gpus, the plan for {num_gpus}"
            yield Problem(kind="workload", tasks=(), message=message)
            return
        received = (0, sum(row[gpu] for row in workload.tokens))
        needed.append(("input", gpu, "send", (0, sum(workload.tokens[gpu]))))
        needed.append(("output", gpu, "c" if workload.flops else "a", received))
        if workload.flops:
            needed.append(("input", gpu, "b", (0, workload.k)))
    buffers = {(b.gpu, b.name): (b.rows, b.cols, b.dtype) for b in plan.buffers}
    for label, gpu, name, rows in needed:
        if rows[0] == rows[1]:
            continue
        cols = (0, workload.n if name in ("b", "c") else workload.k)
        dtype = OUTPUT_DTYPE[workload.dtype] if name == "c" else workload.dtype
        size = (workload.m if name == "part" else rows[1], cols[1], dtype)
        if buffers.get((gpu, name)) != size:
            message = (
                f"gpu {gpu} {name}: the workload wants a buffer of {size[0]} x {size[1]} {size[2]}"
            )
            yield Problem(kind="workload", tasks=(), message=message)
            continue
        whole_region = Region(gpu=gpu, buffer=name, rows=rows, cols=cols)
        given = plan.inputs if label == "input" else plan.outputs
        there = [r for r in given if r.gpu == gpu and r.buffer == name]
        for hole in _uncovered(whole_region, there):
            message = f"{hole} is not among the {label}s, but the workload wants it"
            yield Problem(kind="workload", tasks=(), message=message)


def _bounds_fault(region: Region, buffers: dict[tuple[int, str], Buffer]) -> str:
    buffer = buffers.get((region.gpu, region.buffer))
    if buffer is None:
        return "no such buffer"
    rows, cols = region.rows, region.cols
    if not (0 <= rows[0] < rows[1] <= buffer.rows and 0 <= cols[0] < cols[1] <= buffer.cols):
        return f"empty or outside the buffer [{buffer.rows}, {buffer.cols}]"
    return ""


def _task_faults(task: Task, buffers: dict[tuple[int, str], Buffer]) -> Iterator[str]:
    gpu = task.queue.gpu
    match task:
        case Transfer():
            if task.queue.engine == "compute":
                yield "a transfer needs a dma or core queue"
            if task.src.gpu == task.dst.gpu:
                yield f"source and destination are both on gpu {gpu}"
            if task.dst.gpu != gpu:
                yield f"is on a queue of gpu {gpu} but writes to gpu {task.dst.gpu}"
            yield from _pair_faults(task.src, task.dst, buffers)
        case LocalCopy():
            if not task.src or len(task.src) != len(task.dst):
                yield f"{len(task.src)} sources for {len(task.dst)} destinations"
            for src, dst in zip(task.src, task.dst, strict=False):
                if not src.gpu == dst.gpu == gpu:
                    yield f"{src} -> {dst}: a local copy stays on gpu {gpu}"
                yield from _pair_faults(src, dst, buffers)
            if not task.accumulate:
                yield from _overlap_faults(task.src, task.dst)
        case Gemm():
            if task.queue.engine != "compute":
                yield f"a gemm needs a compute queue, not {task.queue}"
            if not task.a or len(task.a) != len(task.c):
                yield f"{len(task.a)} inputs for {len(task.c)} outputs"
            k, n = task.b.shape
            for a, c in zip(task.a, task.c, strict=False):
                if not a.gpu == c.gpu == task.b.gpu == gpu:
                    yield f"{a}, {c}: all operands must be on gpu {gpu}"
                if a.shape[1] != k or c.shape != (a.shape[0], n):
                    yield f"unequal shapes: {a} {a.shape} @ {task.b} {(k, n)} -> {c} {c.shape}"
            types = [buffers[r.gpu, r.buffer].dtype for r in (*task.a, task.b)]
            written = [buffers[r.gpu, r.buffer].dtype for r in task.c]
            if len(set(types)) > 1 or set(written) - {OUTPUT_DTYPE.get(types[0])}:
                yield f"element types do not fit: {', '.join(types)} -> {', '.join(written)}"
            yield from _overlap_faults((*task.a, task.b), task.c)


def _overlap_faults(reads: Sequence[Region], writes: Sequence[Region]) -> Iterator[str]:
    """Refuse a task that reads or writes again what it writes: a kernel has no order inside."""
    ordered = sorted(writes, key=lambda r: (r.gpu, r.buffer, r.rows))
    for i, first in enumerate(ordered):
        for j in range(i + 1, len(ordered)):
            second = ordered[j]
            if second.buffer != first.buffer or second.rows[0] >= first.rows[1]:
                break
            if first.overlaps(second):
                yield f"writes {second} twice"
    names = {region.buffer for region in writes}
    for read in reads:
        if read.buffer in names and any(read.overlaps(write) for write in writes):
            yield f"reads {read}, which it also writes"


def _pair_faults(src: Region, dst: Region, buffers: dict[tuple[int, str], Buffer]) -> Iterator[str]:
    if src.shape != dst.shape:
        yield f"unequal shapes: {src} {src.shape} -> {dst} {dst.shape}"
    if buffers[src.gpu, src.buffer].dtype != buffers[dst.gpu, dst.buffer].dtype:
        yield f"unequal element types: {src} -> {dst}"


def _deadlock(plan: Plan, index: PlanIndex, stuck: list[int]) -> Problem:
    """Name one cycle: from any stuck task, walk back until a task repeats."""
    blocked = set(stuck)
    place: dict[int, int] = {}  # task to its place on the way back
    at = stuck[0]
    while at not in place:
        place[at] = len(place)
        at = next(p for p in index.predecessors[at] if p in blocked)
    cycle = [plan.tasks[i].id for i in place if place[i] >= place[at]]
    waits = " waits for ".join([*cycle, cycle[0]])
    return Problem(kind="deadlock", tasks=tuple(cycle), message=waits)


def _ancestors(index: PlanIndex, order: Sequence[int]) -> list[int]:
    """For each task a bit set of all tasks that must have ended before it starts."""
    ancestors = [0] * len(order)
    for i in order:
        bits = 0
        for p in index.predecessors[i]:
            bits |= ancestors[p] | (1 << p)
        ancestors[i] = bits
    return ancestors


@dataclass(slots=True, eq=False)
class _Access:
    task: int  # -1: there from the start
    region: Region
    is_write: bool
    is_update: bool = False  # part of an accumulation


def _access_problems(plan: Plan, ancestors: list[int]) -> list[Problem]:
    """Races, reads of unwritten data, data overwritten unread, unwritten outputs."""
    accesses: dict[tuple[int, str], list[_Access]] = defaultdict(list)
    for region in plan.inputs:
        accesses[region.gpu, region.buffer].append(_Access(-1, region, is_write=True))
    for i, task in enumerate(plan.tasks):
        updates = not isinstance(task, Transfer) and task.accumulate
        for region in task.reads:
            accesses[region.gpu, region.buffer].append(_Access(i, region, is_write=False))
        for region in task.writes:
            accesses[region.gpu, region.buffer].append(
                _Access(i, region, is_write=True, is_update=updates)
            )
    problems: list[Problem] = []
    for members in accesses.values():
        problems += _buffer_access_problems(plan, members, ancestors)
    for output in plan.outputs:
        writers = [x for x in accesses[output.gpu, output.buffer] if x.is_write]
        for hole in _uncovered(output, [w.region for w in writers]):
            near = tuple(dict.fromkeys(plan.tasks[w.task].id for w in writers if w.task >= 0))
            problems.append(
                Problem(kind="output", tasks=near, message=_hole_message(hole, near))
            )  # fmt: skip
    return problems


def _hole_message(hole: Region, near: tuple[str, ...]) -> str:
    by = f"; its buffer is written by {', '.join(near[:4])}" if near else ""
    return f"{hole} is never written{by}"


def _buffer_access_problems(
    plan: Plan, members: list[_Access], ancestors: list[int]
) -> Iterator[Problem]:
    ids = [task.id for task in plan.tasks]
    members.sort(key=lambda x: x.region.rows)
    active: list[_Access] = []
    written_before: dict[int, tuple[_Access, list[Region]]] = {}
    overlapping_writes: list[tuple[_Access, _Access]] = []
    reads = [x for x in members if not x.is_write]
    for x in members:
        start = x.region.rows[0]
        active = [y for y in active if y.region.rows[1] > start]
        for y in active:
            if not (x.is_write or y.is_write) or x.task == y.task or not x.region.overlaps(y.region):
                continue
            before = y.task < 0 or (x.task >= 0 and ancestors[x.task] >> y.task & 1)
            after = x.task < 0 or (y.task >= 0 and ancestors[y.task] >> x.task & 1)
            if not before and not after:
                yield Problem(
                    kind="race",
                    tasks=(ids[y.task], ids[x.task]),
                    message=f"tasks {ids[y.task]} and {ids[x.task]} both use {x.region}, at least "
                    "one writes it, and nothing orders them",
                )
                continue
            first, second = (y, x) if before else (x, y)
            if first.is_write and not second.is_write:
                entry = written_before.setdefault(id(second), (second, []))
                entry[1].append(first.region)
            elif first.is_write and not second.is_update:
                overlapping_writes.append((first, second))
        active.append(x)
    for read in reads:
        sources = written_before.get(id(read), (read, []))[1]
        for hole in _uncovered(read.region, sources):
            yield Problem(
                kind="unwritten",
                tasks=(ids[read.task],),
                message=f"task {ids[read.task]} reads {hole}, which nothing has written before it",
            )
    for first, second in overlapping_writes:
        used = any(
            read.region.overlaps(first.region)
            and (first.task < 0 or ancestors[read.task] >> first.task & 1)
            and (ancestors[second.task] >> read.task & 1 or read.task == second.task)
            for read in reads
        )
        if not used:
            who = ids[first.task] if first.task >= 0 else "the plan's input"
            yield Problem(
                kind="overwrite",
                tasks=tuple(ids[t] for t in (first.task, second.task) if t >= 0),
                message=f"task {ids[second.task]} overwrites {second.region}, written by {who} and "
                "read by nobody in between",
            )


def _uncovered(region: Region, covers: Sequence[Region]) -> list[Region]:
    """What is left of a rectangle once others of the same buffer are taken away."""
    left = [(region.rows, region.cols)]
    for cover in covers:
        if not left:
            break
        (top, bottom), (west, east) = cover.rows, cover.cols
        pieces = []
        for rows, cols in left:
            if rows[0] >= bottom or top >= rows[1] or cols[0] >= east or west >= cols[1]:
                pieces.append((rows, cols))
                continue
            if rows[0] < top:
                pieces.append(((rows[0], top), cols))
            if bottom < rows[1]:
                pieces.append(((bottom, rows[1]), cols))
            middle = (max(rows[0], top), min(rows[1], bottom))
            if cols[0] < west:
                pieces.append((middle, (cols[0], west)))
            if east < cols[1]:
                pieces.append((middle, (east, cols[1])))
        left = pieces
    return [Region(gpu=region.gpu, buffer=region.buffer, rows=r, cols=c) for r, c in left]

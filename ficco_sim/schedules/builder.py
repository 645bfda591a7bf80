"""What all schedules share: preconditions, the buffers of an operator, and a list of tasks."""

from collections.abc import Iterable, Sequence
from typing import cast, get_args

from ficco_sim.errors import ScenarioError
from ficco_sim.plan import (
    Buffer,
    Engine,
    Gemm,
    Interval,
    LocalCopy,
    Plan,
    Queue,
    Region,
    Task,
    Transfer,
)
from ficco_sim.workload import OUTPUT_DTYPE, Pattern, Workload, split

GEMM_PATTERNS: tuple[Pattern, ...] = ("all_gather_gemm", "all_to_all_gemm")
MAX_GPUS = 1024
MAX_CHUNKS = 4096
MAX_QUEUES = 64
MAX_TASKS = 4_000_000


def check_arguments(
    workload: Workload,
    num_gpus: int,
    *patterns: Pattern,
    num_chunks: int = 1,
    compute_queues: int = 1,
    copy_queues: int = 1,
    engine: str = "dma",
    gather: str = "direct",
) -> Engine:
    """Refuse arguments that no schedule can honour; returns the engine, checked.

    Raises
    ------
    ScenarioError
        Naming the argument, its value and the rule.
    """
    if workload.pattern not in patterns:
        raise ScenarioError(
            f"workload {workload.name!r} has the pattern {workload.pattern}; "
            f"this schedule is for {' and '.join(patterns)}"
        )
    for name, value, most in (
        ("num_gpus", num_gpus, MAX_GPUS),
        ("num_chunks", num_chunks, MAX_CHUNKS),
        ("compute_queues", compute_queues, MAX_QUEUES),
        ("copy_queues", copy_queues, MAX_GPUS),
    ):
        check_count(name, value, most)
    if num_gpus * num_gpus * num_chunks > MAX_TASKS:
        raise ScenarioError(
            f"num_chunks: {num_chunks} on {num_gpus} gpus makes more than {MAX_TASKS:,} transfers"
        )
    if engine not in ("dma", "core"):
        raise ScenarioError(f"engine: {engine!r} must be dma or core")
    if gather not in ("direct", "copy"):
        raise ScenarioError(f"gather: {gather!r} must be direct or copy")
    assert engine in get_args(Engine)
    return cast("Engine", engine)


def check_count(name: str, value: object, most: int) -> None:
    """Refuse what is not a whole number from 1 to ``most``."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ScenarioError(f"{name}: {value!r} must be a whole number from 1 to {most:,}")


class PlanBuilder:
    """Collects the buffers and tasks of one plan.

    Each gpu has ``a`` [rows, k], where the rows that it multiplies come together, ``b`` [k, n] and the
    output ``c`` [rows, n]. For ``all_gather_gemm`` ``a`` has m rows and holds the gpu's own from the
    start. For ``all_to_all_gemm`` it has the rows that all gpus send it, in their order, and every gpu
    holds what it sends, its own part included, in ``send``, in order of destination.
    """

    def __init__(self, workload: Workload, num_gpus: int, engine: Engine) -> None:
        self.workload = workload
        self.num_gpus = num_gpus
        self.engine = engine
        self.out_dtype = OUTPUT_DTYPE[workload.dtype]
        self.shards = split(workload.m, num_gpus)
        self.tokens = workload.tokens
        if self.tokens is not None and len(self.tokens) != num_gpus:
            raise ScenarioError(
                f"workload {workload.name!r}: its tokens are for {len(self.tokens)} gpus, "
                f"not {num_gpus}"
            )
        self.all_k: Interval = (0, workload.k)
        self.all_n: Interval = (0, workload.n)
        self.buffers: list[Buffer] = []
        self.inputs: list[Region] = []
        self.outputs: list[Region] = []
        self.tasks: list[Task] = []
        self._queues: dict[tuple[int, Engine, int], Queue] = {}

    def operator_buffers(self, *, gathered_a: bool = True) -> None:
        """Declare ``a``, ``b`` and ``c`` of each gpu; without ``gathered_a`` each has all of A."""
        n, k = self.workload.n, self.workload.k
        for g in range(self.num_gpus):
            rows = self.rows(g)
            self.add_buffer(g, "a", rows, k)
            self.add_buffer(g, "b", k, n)
            self.add_buffer(g, "c", rows, n, self.out_dtype)
            if self.tokens is not None:
                held = sum(self.tokens[g])
                self.add_buffer(g, "send", held, k)
                if held:
                    region = Region(gpu=g, buffer="send", rows=(0, held), cols=self.all_k)
                    self.inputs.append(region)
            else:
                own = self.shards[g] if gathered_a else (0, rows)
                if own[0] < own[1]:
                    self.inputs.append(self.a(g, own))
            self.inputs.append(self.b(g))
            if rows:
                self.outputs.append(self.c(g, (0, rows)))

    def rows(self, gpu: int) -> int:
        """Rows that a gpu multiplies in all."""
        return self.workload.m if self.tokens is None else sum(row[gpu] for row in self.tokens)

    def block(self, gpu: int, src: int) -> Interval:
        """Rows of a gpu's ``a`` that come from a source."""
        if self.tokens is None:
            return self.shards[src]
        start = sum(row[gpu] for row in self.tokens[:src])
        return start, start + self.tokens[src][gpu]

    def origin(self, gpu: int, src: int, rows: Interval, cols: Interval | None = None) -> Region:
        """Where the source holds rows that are ``rows`` of the ``a`` of a gpu."""
        if self.tokens is None:
            return self.a(src, rows, cols)
        shift = sum(self.tokens[src][:gpu]) - self.block(gpu, src)[0]
        return Region(
            gpu=src,
            buffer="send",
            rows=(rows[0] + shift, rows[1] + shift),
            cols=cols or self.all_k,
        )

    def here(self, gpu: int, src: int, rows: Interval, cols: Interval | None = None) -> Region:
        """Where a gpu finds those rows once they have arrived."""
        return self.origin(gpu, src, rows, cols) if src == gpu else self.a(gpu, rows, cols)

    def add_buffer(self, gpu: int, name: str, rows: int, cols: int, dtype: str = "") -> None:
        """Declare a buffer; it has the workload's element type unless told otherwise."""
        dtype = dtype or self.workload.dtype
        self.buffers.append(Buffer(gpu=gpu, name=name, rows=rows, cols=cols, dtype=dtype))

    def a(self, gpu: int, rows: Interval, cols: Interval | None = None) -> Region:
        """Rows of A (or a block of them) on a gpu."""
        return Region(gpu=gpu, buffer="a", rows=rows, cols=cols or self.all_k)

    def b(self, gpu: int, rows: Interval | None = None) -> Region:
        """All of a gpu's B, or the rows that match a slice of A's columns."""
        return Region(gpu=gpu, buffer="b", rows=rows or self.all_k, cols=self.all_n)

    def c(self, gpu: int, rows: Interval) -> Region:
        """Rows of the output on a gpu."""
        return Region(gpu=gpu, buffer="c", rows=rows, cols=self.all_n)

    def peers(self, gpu: int) -> list[int]:
        """The other gpus, next neighbour first, so that no two gpus begin with the same one."""
        return [(gpu + t) % self.num_gpus for t in range(1, self.num_gpus)]

    def queue(self, gpu: int, engine: Engine, index: int) -> Queue:
        """The queue of that name, made once."""
        key = (gpu, engine, index)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = Queue(gpu=gpu, engine=engine, index=index)
        return queue

    def transfer(
        self, task_id: str, src: Region, dst: Region, index: int, deps: Iterable[str] = ()
    ) -> str:
        """Add a transfer on copy queue ``index`` of the receiving gpu."""
        queue = self.queue(dst.gpu, self.engine, index)
        self.tasks.append(Transfer(id=task_id, queue=queue, src=src, dst=dst, deps=tuple(deps)))
        return task_id

    def local_copy(
        self,
        task_id: str,
        pairs: Sequence[tuple[Region, Region]],
        deps: Iterable[str] = (),
        *,
        accumulate: bool = False,
        index: int = 0,
    ) -> str:
        """Add one kernel on compute queue ``index`` that copies, or adds, first to second of each."""
        self.tasks.append(
            LocalCopy(
                id=task_id,
                queue=self.queue(pairs[0][1].gpu, "compute", index),
                src=tuple(src for src, _ in pairs),
                dst=tuple(dst for _, dst in pairs),
                accumulate=accumulate,
                deps=tuple(deps),
            )
        )
        return task_id

    def gemm(
        self,
        task_id: str,
        a: Sequence[Region],
        b: Region,
        c: Sequence[Region],
        *,
        index: int = 0,
        accumulate: bool = False,
        deps: Iterable[str] = (),
    ) -> str:
        """Add a GEMM, batched if there are several entries, on compute queue ``index``."""
        self.tasks.append(
            Gemm(
                id=task_id,
                queue=self.queue(b.gpu, "compute", index),
                a=tuple(a),
                b=b,
                c=tuple(c),
                accumulate=accumulate,
                deps=tuple(deps),
            )
        )
        return task_id

    def build(self, schedule: str, knobs: dict[str, int | str]) -> Plan:
        """The finished plan."""
        return Plan(
            schedule=schedule,
            knobs=knobs,
            workload=self.workload,
            num_gpus=self.num_gpus,
            buffers=tuple(self.buffers),
            inputs=tuple(self.inputs),
            outputs=tuple(self.outputs),
            tasks=tuple(self.tasks),
        )

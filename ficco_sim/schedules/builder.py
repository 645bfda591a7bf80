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

MAX_GPUS = 1024
MAX_CHUNKS = 4096
MAX_QUEUES = 64
MAX_TASKS = 4_000_000


def check_arguments(
    workload: Workload,
    num_gpus: int,
    pattern: Pattern,
    *,
    num_chunks: int = 1,
    compute_queues: int = 1,
    engine: str = "dma",
    gather: str = "direct",
) -> Engine:
    """Refuse arguments that no schedule can honour; returns the engine, checked.

    Raises
    ------
    ScenarioError
        Naming the argument, its value and the rule.
    """
    if workload.pattern != pattern:
        raise ScenarioError(
            f"workload {workload.name!r} has the pattern {workload.pattern}; "
            f"this schedule is for {pattern}"
        )
    for name, value, most in (
        ("num_gpus", num_gpus, MAX_GPUS),
        ("num_chunks", num_chunks, MAX_CHUNKS),
        ("compute_queues", compute_queues, MAX_QUEUES),
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

    For ``all_gather_gemm`` each gpu holds ``a`` [m, k] with only its own rows filled, ``b`` [k, n]
    and the output ``c`` [m, n].
    """

    def __init__(self, workload: Workload, num_gpus: int, engine: Engine) -> None:
        self.workload = workload
        self.num_gpus = num_gpus
        self.engine = engine
        self.out_dtype = OUTPUT_DTYPE[workload.dtype]
        self.shards = split(workload.m, num_gpus)
        self.all_k: Interval = (0, workload.k)
        self.all_n: Interval = (0, workload.n)
        self.buffers: list[Buffer] = []
        self.inputs: list[Region] = []
        self.outputs: list[Region] = []
        self.tasks: list[Task] = []
        self._queues: dict[tuple[int, Engine, int], Queue] = {}

    def operator_buffers(self, *, gathered_a: bool = True) -> None:
        """Declare ``a``, ``b`` and ``c`` of each gpu; without ``gathered_a`` each has all of A."""
        m, n, k = self.workload.m, self.workload.n, self.workload.k
        for g in range(self.num_gpus):
            self.add_buffer(g, "a", m, k)
            self.add_buffer(g, "b", k, n)
            self.add_buffer(g, "c", m, n, self.out_dtype)
            rows = self.shards[g] if gathered_a else (0, m)
            if rows[0] < rows[1]:
                self.inputs.append(self.a(g, rows))
            self.inputs.append(self.b(g))
            self.outputs.append(self.c(g, (0, m)))

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
        self, task_id: str, pairs: Sequence[tuple[Region, Region]], deps: Iterable[str] = ()
    ) -> str:
        """Add one copy kernel on compute queue 0."""
        self.tasks.append(
            LocalCopy(
                id=task_id,
                queue=self.queue(pairs[0][1].gpu, "compute", 0),
                src=tuple(src for src, _ in pairs),
                dst=tuple(dst for _, dst in pairs),
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

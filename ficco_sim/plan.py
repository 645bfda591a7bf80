"""A plan: what is computed, copied and transferred, on which queue and after what.

A plan states the regions that each task reads and writes, so that a checker can prove it without
running it. It knows no machine and no time.
"""

import hashlib
import json
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from ficco_sim import io
from ficco_sim.errors import PlanError
from ficco_sim.workload import DTYPE_BYTES, Workload

if TYPE_CHECKING:
    import networkx as nx

__all__ = [
    "Buffer",
    "Engine",
    "Gemm",
    "LocalCopy",
    "Plan",
    "PlanIndex",
    "Queue",
    "Region",
    "Task",
    "Transfer",
    "load_plan",
]

Engine: TypeAlias = Literal["compute", "dma", "core"]
Interval: TypeAlias = tuple[int, int]

STRICT = {"extra": "forbid", "strict": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """A matrix in the memory of one gpu: ``rows`` x ``cols`` elements of ``dtype``."""

    __pydantic_config__: ClassVar = STRICT
    gpu: int
    name: str
    rows: int
    cols: int
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A rectangle of a buffer; ``rows`` and ``cols`` are half-open intervals of elements."""

    __pydantic_config__: ClassVar = STRICT
    gpu: int
    buffer: str
    rows: Interval
    cols: Interval

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the rectangle."""
        return self.rows[1] - self.rows[0], self.cols[1] - self.cols[0]

    @property
    def num_elements(self) -> int:
        """Number of elements in the rectangle."""
        num_rows, num_cols = self.shape
        return num_rows * num_cols

    def overlaps(self, other: "Region") -> bool:
        """Whether both rectangles share an element of the same buffer."""
        return (
            self.rows[0] < other.rows[1]
            and other.rows[0] < self.rows[1]
            and self.cols[0] < other.cols[1]
            and other.cols[0] < self.cols[1]
            and self.gpu == other.gpu
            and self.buffer == other.buffer
        )

    def __str__(self) -> str:
        return (
            f"gpu {self.gpu} {self.buffer}"
            f"[{self.rows[0]}:{self.rows[1]}, {self.cols[0]}:{self.cols[1]}]"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """An in-order queue of one gpu; it becomes a stream on hardware."""

    __pydantic_config__: ClassVar = STRICT
    gpu: int
    engine: Engine
    index: int

    def __str__(self) -> str:
        return f"g{self.gpu}.{self.engine}{self.index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A copy of one region between two gpus, on a queue of the receiving gpu."""

    __pydantic_config__: ClassVar = STRICT
    kind: Literal["transfer"] = "transfer"
    id: str
    queue: Queue
    src: Region
    dst: Region
    deps: tuple[str, ...] = ()

    @property
    def reads(self) -> tuple[Region, ...]:
        """Regions that the task reads."""
        return (self.src,)

    @property
    def writes(self) -> tuple[Region, ...]:
        """Regions that the task writes."""
        return (self.dst,)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCopy:
    """One kernel that copies ``src[i]`` to ``dst[i]`` for each i in turn, all on one gpu.

    With ``accumulate`` it adds instead: the reduction of a collective.
    """

    __pydantic_config__: ClassVar = STRICT
    kind: Literal["local_copy"] = "local_copy"
    id: str
    queue: Queue
    src: tuple[Region, ...]
    dst: tuple[Region, ...]
    accumulate: bool = False
    deps: tuple[str, ...] = ()

    @property
    def reads(self) -> tuple[Region, ...]:
        """Regions that the task reads."""
        return (*self.src, *self.dst) if self.accumulate else self.src

    @property
    def writes(self) -> tuple[Region, ...]:
        """Regions that the task writes."""
        return self.dst


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """``c[i] = a[i] @ b`` for each i (``+=`` if ``accumulate``), one kernel on one gpu.

    More than one entry is a batched GEMM: an entry per chunk, all with the same ``b``.
    """

    __pydantic_config__: ClassVar = STRICT
    kind: Literal["gemm"] = "gemm"
    id: str
    queue: Queue
    a: tuple[Region, ...]
    b: Region
    c: tuple[Region, ...]
    accumulate: bool = False
    deps: tuple[str, ...] = ()

    @property
    def reads(self) -> tuple[Region, ...]:
        """Regions that the task reads."""
        return (*self.a, self.b, *self.c) if self.accumulate else (*self.a, self.b)

    @property
    def writes(self) -> tuple[Region, ...]:
        """Regions that the task writes."""
        return self.c

    @property
    def entry_rows(self) -> tuple[int, ...]:
        """Rows of each batch entry."""
        return tuple(region.shape[0] for region in self.a)

    @property
    def flops(self) -> int:
        """Floating-point operations, 2 m n k."""
        k, n = self.b.shape
        return 2 * sum(self.entry_rows) * n * k


Task: TypeAlias = Transfer | LocalCopy | Gemm


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All tasks of one operator on all gpus; the order of ``tasks`` is the order of each queue.

    Compare and cache plans by `fingerprint`.
    """

    __pydantic_config__: ClassVar = STRICT
    format_version: Literal[1] = 1
    schedule: str
    knobs: dict[str, int | str]
    workload: Workload
    num_gpus: int
    buffers: tuple[Buffer, ...]
    inputs: tuple[Region, ...] = field(metadata={"doc": "regions that hold data at the start"})
    outputs: tuple[Region, ...] = field(metadata={"doc": "regions that must be right at the end"})
    tasks: tuple[Task, ...]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the plan's canonical JSON."""
        canonical = json.dumps(io.to_plain(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def to_json(self) -> str:
        """JSON text from which `Plan.from_json` makes an equal plan."""
        return io.dump_json(self, indent=None)

    @staticmethod
    def from_json(text: str, where: str = "plan") -> "Plan":
        """Read a plan back; ``where`` names the text in errors."""
        return io.decode(io.parse_json(text, where), Plan, where)

    def graph(self) -> "nx.DiGraph[str]":
        """Task ids with an edge for each dependency and each step along a queue."""
        import networkx as nx

        index = PlanIndex(self)
        graph: nx.DiGraph[str] = nx.DiGraph()
        graph.add_nodes_from(task.id for task in self.tasks)
        for position, task in enumerate(self.tasks):
            graph.add_edges_from((self.tasks[p].id, task.id) for p in index.predecessors[position])
        return graph


def load_plan(path: Path) -> Plan:
    """Read a plan from a JSON file."""
    return Plan.from_json(io.read_text(path), str(path))


class PlanIndex:
    """Positions of a plan's tasks by id and queue, and who must precede whom.

    Attributes
    ----------
    position
        Task id to index in ``plan.tasks``.
    queues
        For each queue, in order of first appearance, the indices of its tasks.
    predecessors
        For each task the indices of its dependencies and of the task before it on its queue.

    Raises
    ------
    PlanError
        If an id occurs twice or a dependency names no task.
    """

    __slots__ = ("position", "predecessors", "queues")

    def __init__(self, plan: Plan) -> None:
        self.position: dict[str, int] = {}
        self.queues: dict[Queue, list[int]] = {}
        self.predecessors: list[list[int]] = []
        position = self.position
        # keyed by plain values first: hashing a dataclass for each task is slow
        by_key: dict[tuple[int, str, int], list[int]] = {}
        for i, task in enumerate(plan.tasks):
            if position.setdefault(task.id, i) != i:
                raise PlanError(f"{plan.schedule}: two tasks have the id {task.id!r}")
            queue = task.queue
            key = (queue.gpu, queue.engine, queue.index)
            members = by_key.get(key)
            if members is None:
                members = by_key[key] = self.queues[queue] = []
            members.append(i)
        for task in plan.tasks:
            try:
                self.predecessors.append([position[dep] for dep in task.deps])
            except KeyError as error:
                raise PlanError(
                    f"{plan.schedule}: task {task.id!r} depends on {error.args[0]!r}, "
                    "which is not in the plan"
                ) from error
        for members in self.queues.values():
            for before, after in pairwise(members):
                self.predecessors[after].append(before)

    def topological_order(self) -> tuple[list[int], list[int]]:
        """Order the tasks so that all predecessors come first.

        Returns
        -------
        order, stuck
            ``stuck`` holds the tasks that are on a cycle or behind one; empty in a legal plan.
        """
        num_tasks = len(self.predecessors)
        waiting = [len(p) for p in self.predecessors]
        successors = self.successors()
        order = [i for i in range(num_tasks) if waiting[i] == 0]
        for i in order:
            for j in successors[i]:
                waiting[j] -= 1
                if waiting[j] == 0:
                    order.append(j)
        return order, [i for i in range(num_tasks) if waiting[i] > 0]

    def successors(self) -> list[list[int]]:
        """For each task the indices of the tasks that wait for it."""
        successors: list[list[int]] = [[] for _ in self.predecessors]
        for i, predecessors in enumerate(self.predecessors):
            for p in predecessors:
                successors[p].append(i)
        return successors


def buffer_bytes(plan: Plan) -> dict[tuple[int, str], int]:
    """Bytes of an element of each buffer, by gpu and name."""
    return {(b.gpu, b.name): DTYPE_BYTES[b.dtype] for b in plan.buffers}

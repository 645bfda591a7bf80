"""What a backend runs: steps on in-order lanes, with waits between lanes.

A plan becomes such steps (`executor`), and so does every microbenchmark.
"""

import heapq
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from torch import Tensor, dtype

from ficco_sim.errors import PlanError

__all__ = ["Backend", "Lane", "Launch", "Mark", "Pair", "Prepared", "Run", "Step"]

Launch: TypeAlias = Callable[[int], None]
"""Submits work to the stream with that handle, which is also torch's current one; 0 on the CPU."""

Pair: TypeAlias = tuple[Tensor, Tensor]
"""Where to copy from and where to: two-dimensional views of equal shape and type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """An in-order queue of a gpu on a device; a stream there."""

    gpu: int
    device: int
    name: str


Mark: TypeAlias = Callable[[str, Lane], AbstractContextManager[None]]
"""Encloses what is submitted to a lane as the step of that id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Something to launch on a lane once the steps that it waits for are done."""

    id: str
    lane: Lane
    launch: Launch
    waits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Times of one run, in seconds.

    Parameters
    ----------
    makespan_s
        From the common start to the end of the last step.
    host_s
        Time in which the host submitted.
    spans
        Start and end of each step from the common start, if they were asked for.
    late_s
        By how much submitting outlasted the time in which devices are held back, so that the makespan
        may hold some of it; 0 where nothing is meant to be held back.
    """

    makespan_s: float
    host_s: float
    spans: dict[str, tuple[float, float]] = field(default_factory=dict)
    late_s: float = 0.0


class Prepared(Protocol):
    """Steps made ready to run many times."""

    def run(self) -> Run:
        """Run all steps once and wait for their end."""

    def close(self) -> None:
        """Give back what the stack holds for it."""


class Backend(Protocol):
    """Where steps run: real devices, or the CPU.

    ``labels`` say what is not what it stands for.
    """

    kind: str
    labels: tuple[str, ...]

    def empty(self, place: int, rows: int, cols: int, kind: dtype, *, transposed: bool) -> Tensor:
        """A matrix with undefined content at a place; ``transposed`` stores it by columns."""

    def transfer(self, src: Tensor, dst: Tensor, engine: str, device: int, *, share: int = 1) -> Launch:
        """A copy between places by a copy engine (``dma``) or a kernel (``core``) of the device.

        ``share`` is the number of queues that share the blocks of a gpu's core-driven copies.
        """

    def joint_transfer(self, pairs: Sequence[Pair], device: int) -> Launch:
        """Copies between the same two places by the device's copy engine, as one where it can."""

    def local_copy(self, pairs: Sequence[Pair], device: int) -> Launch:
        """One kernel that copies within the memory of a device."""

    def core_copy(self, pairs: Sequence[Pair], device: int, blocks: int) -> Launch:
        """The copy kernel of the device, by so many blocks."""

    def connect(self, device: int, place: int) -> None:
        """Make sure that a device can read a place directly."""

    def prepare(self, steps: Sequence[Step], *, graph: bool, spans: bool) -> Prepared:
        """Make steps ready to run: captured in graphs, or submitted one by one."""

    def synchronize(self) -> None:
        """Wait until all devices are idle."""

    def flush(self) -> None:
        """Evict the caches of all devices and wait."""

    def reserved_bytes(self) -> float:
        """Bytes that the library holds on all devices; growing while nothing is made, it leaks."""

    def heat(self, seconds: float) -> None:
        """Keep all devices busy with large GEMMs for a while, at the power that those take."""


def in_order(steps: Iterable[Step]) -> list[Step]:
    """Steps such that each comes after those that it waits for and those before it on its lane.

    The given order is kept wherever that allows: hardware serves copies of several lanes in the order
    in which they were submitted, or stand in a graph, so that lane by lane would bring the last chunk
    of one peer before the first of another.

    Raises
    ------
    PlanError
        If they wait for one another in a circle, or for a step that is not there.
    """
    given = list(steps)
    position = {step.id: i for i, step in enumerate(given)}
    waiting = [0] * len(given)
    followers: list[list[int]] = [[] for _ in given]
    last_on: dict[Lane, int] = {}
    for i, step in enumerate(given):
        before = [last_on[step.lane]] if step.lane in last_on else []
        for wait in step.waits:
            if wait not in position:
                raise PlanError(f"step {step.id!r} waits for {wait!r}, which is not there")
            before.append(position[wait])
        for j in before:
            followers[j].append(i)
        waiting[i] = len(before)
        last_on[step.lane] = i
    ready = [i for i, count in enumerate(waiting) if count == 0]
    ordered: list[Step] = []
    while ready:
        i = heapq.heappop(ready)
        ordered.append(given[i])
        for j in followers[i]:
            waiting[j] -= 1
            if waiting[j] == 0:
                heapq.heappush(ready, j)
    if len(ordered) < len(given):
        stuck = [step.id for step, count in zip(given, waiting, strict=True) if count]
        raise PlanError(f"deadlock: {', '.join(stuck[:8])} wait for one another")
    return ordered


def by_demand(steps: Iterable[Step]) -> list[Step]:
    """Steps as `in_order`, but what another lane waits for stands just before its first user.

    Graphs want this order: the same graph with all copies of a step of a schedule first and its GEMMs
    after them ran 12 to 21 % slower on an H200 (CUDA 13.0), as the driver spreads nodes over hardware
    queues in the order in which they were captured.

    Raises
    ------
    PlanError
        See `in_order`.
    """
    given = in_order(steps)
    position = {step.id: i for i, step in enumerate(given)}
    before: list[list[int]] = []
    last_on: dict[Lane, int] = {}
    demanded: set[int] = set()
    for i, step in enumerate(given):
        waits = [position[wait] for wait in step.waits]
        demanded.update(j for j in waits if given[j].lane != step.lane)
        before.append(sorted([*waits, *([last_on[step.lane]] if step.lane in last_on else [])]))
        last_on[step.lane] = i
    ordered: list[Step] = []
    placed = [False] * len(given)
    for root in (*(i for i in range(len(given)) if i not in demanded), *range(len(given))):
        stack = [root]
        while stack:
            i = stack[-1]
            missing = next((j for j in before[i] if not placed[j]), None)
            if missing is not None:
                stack.append(missing)
                continue
            stack.pop()
            if not placed[i]:
                placed[i] = True
                ordered.append(given[i])
    return ordered


def gpu_groups(steps: Iterable[Step]) -> list[list[Step]]:
    """Steps by gpu; all in one group if a step waits for another gpu's."""
    given = list(steps)
    gpu_of = {step.id: step.lane.gpu for step in given}
    if any(gpu_of[wait] != step.lane.gpu for step in given for wait in step.waits):
        return [given]
    groups: dict[int, list[Step]] = {}
    for step in given:
        groups.setdefault(step.lane.gpu, []).append(step)
    return list(groups.values())

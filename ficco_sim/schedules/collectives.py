"""Pure collectives: communication alone, to check against closed forms and to find busy links.

Shape legend: p gpus; every gpu's matrix has the same rows, of which shard i belongs to gpu i. A
reduction moves a part to a scratch buffer and adds it there: DMA engines do no arithmetic.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias, get_args

from ficco_sim.errors import ScenarioError
from ficco_sim.plan import Interval, Plan, Region
from ficco_sim.schedules.builder import PlanBuilder, check_arguments
from ficco_sim.workload import COLLECTIVES, Workload, split

__all__ = ["ALGORITHMS", "Algorithm", "all_gather", "collective"]

Algorithm: TypeAlias = Literal["direct", "ring", "ring-two-way", "ring-two-way-split", "hierarchical"]
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)

Ready: TypeAlias = dict[int, list[str]]
"""For each gpu the tasks after which its data may be used."""


def collective(
    workload: Workload,
    num_gpus: int,
    *,
    algorithm: Algorithm = "direct",
    extents: Sequence[int] | None = None,
    num_chunks: int = 1,
    engine: str = "dma",
) -> Plan:
    """Plan a collective.

    Parameters
    ----------
    workload
        Of a pattern in ``COLLECTIVES``.
    algorithm
        ``direct``: every gpu exchanges with all others at once. ``ring``: round by gpu number, one
        way. ``ring-two-way``: all-gather with whole shards going the shorter way.
        ``ring-two-way-split``: half of every shard each way. ``hierarchical``: rings along each
        dimension of a torus, for the reductions and the all-gather.
    extents
        The torus, for ``hierarchical``; the last dimension is that of neighbouring numbers.
    num_chunks
        Each shard moves in so many pieces, one after another; for ``direct`` and ``ring`` all-gathers.

    Raises
    ------
    ScenarioError
        If an argument is out of range or the algorithm does not exist for the collective.
    """
    checked = check_arguments(workload, num_gpus, *COLLECTIVES, num_chunks=num_chunks, engine=engine)
    if algorithm not in ALGORITHMS:
        raise ScenarioError(f"algorithm: {algorithm!r} is unknown; one of {', '.join(ALGORITHMS)}")
    makers = _MAKERS[workload.pattern]
    if algorithm not in makers:
        raise ScenarioError(
            f"algorithm: {workload.pattern} has no {algorithm!r}; it has {', '.join(makers)}"
        )
    if (extents is not None) != (algorithm == "hierarchical"):
        raise ScenarioError("extents: needed for hierarchical and for no other algorithm")
    if num_chunks > 1 and not (workload.pattern == "all_gather" and algorithm in ("direct", "ring")):
        raise ScenarioError("num_chunks: only for direct and ring all-gathers")
    builder = PlanBuilder(workload, num_gpus, checked)
    maker = _Collective(builder, num_chunks, tuple(extents or ()))
    makers[algorithm](maker)
    return builder.build(
        f"{workload.pattern.replace('_', '-')}-{algorithm}",
        {"engine": engine, "num_chunks": num_chunks},
    )


def all_gather(workload: Workload, num_gpus: int, *, engine: str = "dma") -> Plan:
    """Gather all shards at once, direct from their owners: the direct collective, as a schedule.

    Raises
    ------
    ScenarioError
        If the workload is not ``all_gather`` or an argument is out of range.
    """
    check_arguments(workload, num_gpus, "all_gather", engine=engine)
    plan = collective(workload, num_gpus, engine=engine)
    return replace(plan, schedule="all-gather", knobs={"engine": engine})


class _Collective:
    """Adds the tasks of one collective."""

    def __init__(self, builder: PlanBuilder, num_chunks: int, extents: tuple[int, ...]) -> None:
        self.builder = builder
        self.num_gpus = builder.num_gpus
        self.num_chunks = num_chunks
        self.extents = extents
        self.every_row: Interval = (0, builder.workload.m)
        size = 1
        for extent in extents:
            size *= extent
        if extents and (size != self.num_gpus or min(extents) < 1):
            raise ScenarioError(f"extents: {list(extents)} do not make {self.num_gpus} gpus")

    def region(self, gpu: int, buffer: str, rows: Interval) -> Region:
        return Region(gpu=gpu, buffer=buffer, rows=rows, cols=self.builder.all_k)

    def declare(self, buffer: str, *, whole_input: bool, whole_output: bool) -> None:
        """A matrix on each gpu: all rows or its shard at the start, and at the end."""
        builder = self.builder
        for g in range(self.num_gpus):
            builder.add_buffer(g, buffer, builder.workload.m, builder.workload.k)
            for whole, regions in ((whole_input, builder.inputs), (whole_output, builder.outputs)):
                rows = self.every_row if whole else builder.shards[g]
                if rows[0] < rows[1]:
                    regions.append(self.region(g, buffer, rows))

    # all-gather

    def gather_direct(self) -> None:
        self.declare("a", whole_input=False, whole_output=True)
        for g in range(self.num_gpus):
            for index, src in enumerate(self.builder.peers(g)):
                lo, hi = self.builder.shards[src]
                for j, (a, b) in enumerate(split(hi - lo, self.num_chunks)):
                    if a < b:
                        self.move(f"xfer.g{g}.s{src}.c{j}", src, g, "a", (lo + a, lo + b), index, [])

    def gather_ring(self) -> None:
        self.declare("a", whole_input=False, whole_output=True)
        blocks = [
            [(lo + a, lo + b) for a, b in split(hi - lo, self.num_chunks)]
            for lo, hi in self.builder.shards
        ]
        gpus = list(range(self.num_gpus))
        for j in range(self.num_chunks):
            self.ring_gather(gpus, "a", [b[j] for b in blocks], {}, f"c{j}", 0)

    def gather_two_way(self) -> None:
        self.declare("a", whole_input=False, whole_output=True)
        gpus = list(range(self.num_gpus))
        ahead = self.num_gpus // 2
        shards = list(self.builder.shards)
        self.ring_gather(gpus, "a", shards, {}, "up", 0, num_steps=ahead)
        back = [0, *reversed(gpus[1:])]
        turned = [shards[i] for i in back]
        self.ring_gather(back, "a", turned, {}, "down", 1, num_steps=self.num_gpus - 1 - ahead)

    def gather_two_way_split(self) -> None:
        self.declare("a", whole_input=False, whole_output=True)
        for half, gpus, name in self.two_ways():
            blocks = []
            for i in gpus:
                lo, hi = self.builder.shards[i]
                a, b = split(hi - lo, 2)[half]
                blocks.append((lo + a, lo + b))
            self.ring_gather(gpus, "a", blocks, {}, name, half)

    def two_ways(self) -> list[tuple[int, list[int], str]]:
        """Half, order of gpus and name of the ring in each direction."""
        up = list(range(self.num_gpus))
        return [(0, up, "up"), (1, [0, *reversed(up[1:])], "down")]

    # all-to-all

    def exchange_direct(self) -> None:
        builder = self.builder
        for g in range(self.num_gpus):
            builder.add_buffer(g, "send", sum((builder.tokens or ())[g]), builder.workload.k)
            builder.add_buffer(g, "a", builder.rows(g), builder.workload.k)
            for size, buffer, regions in (
                (sum((builder.tokens or ())[g]), "send", builder.inputs),
                (builder.rows(g), "a", builder.outputs),
            ):
                if size:
                    regions.append(self.region(g, buffer, (0, size)))
        for g in range(self.num_gpus):
            own = builder.block(g, g)
            if own[0] < own[1]:
                builder.local_copy(f"own.g{g}", [(builder.origin(g, g, own), builder.a(g, own))])
            for index, src in enumerate(builder.peers(g)):
                rows = builder.block(g, src)
                if rows[0] < rows[1]:
                    builder.transfer(
                        f"xfer.g{g}.s{src}", builder.origin(g, src, rows), builder.a(g, rows), index
                    )

    # reductions

    def reduce_scatter_direct(self) -> None:
        self.declare("part", whole_input=True, whole_output=False)
        self.direct_reduce()

    def reduce_scatter_ring(self) -> None:
        self.declare("part", whole_input=True, whole_output=False)
        gpus = list(range(self.num_gpus))
        self.ring_reduce(gpus, list(self.builder.shards), {}, "rs", 0)

    def reduce_direct(self) -> None:
        self.declare("part", whole_input=True, whole_output=True)
        reduced = self.direct_reduce()
        for g in range(self.num_gpus):
            for index, src in enumerate(self.builder.peers(g)):
                rows = self.builder.shards[src]
                self.move(f"ag.g{g}.s{src}", src, g, "part", rows, index, reduced.get(src, []))

    def reduce_ring(self) -> None:
        self.declare("part", whole_input=True, whole_output=True)
        gpus, shards = list(range(self.num_gpus)), list(self.builder.shards)
        reduced = self.ring_reduce(gpus, shards, {}, "rs", 0)
        self.ring_gather(gpus, "part", shards, reduced, "ag", 0)

    def reduce_two_way_split(self) -> None:
        self.declare("part", whole_input=True, whole_output=True)
        for half, gpus, name in self.two_ways():
            lo, hi = split(self.builder.workload.m, 2)[half]
            blocks = [(lo + a, lo + b) for a, b in split(hi - lo, self.num_gpus)]
            reduced = self.ring_reduce(gpus, blocks, {}, f"rs.{name}", half)
            self.ring_gather(gpus, "part", blocks, reduced, f"ag.{name}", half)

    def reduce_hierarchical(self) -> None:
        """Reduce-scatter along all dimensions but the last, all-reduce there, all-gather back."""
        self.declare("part", whole_input=True, whole_output=True)
        rows_of = dict.fromkeys(range(self.num_gpus), self.every_row)
        ready: Ready = {}
        history: list[tuple[int, dict[int, Interval]]] = []
        for dim in range(len(self.extents)):
            history.append((dim, dict(rows_of)))
            ready, rows_of = self.along(dim, rows_of, ready, gather=False)
        for dim, before in reversed(history):
            ready, _ = self.along(dim, before, ready, gather=True)

    def along(
        self, dim: int, rows_of: dict[int, Interval], ready: Ready, *, gather: bool
    ) -> tuple[Ready, dict[int, Interval]]:
        """One stage on all rings of a dimension; returns who is ready when, and each gpu's rows."""
        done: Ready = {}
        shares: dict[int, Interval] = {}
        for gpus in self.rings(dim):
            lo, hi = rows_of[gpus[0]]
            blocks = [(lo + a, lo + b) for a, b in split(hi - lo, len(gpus))]
            shares |= dict(zip(gpus, blocks, strict=True))
            name = f"{'ag' if gather else 'rs'}{dim}.r{gpus[0]}"
            if gather:
                done |= self.ring_gather(gpus, "part", blocks, ready, name, dim)
            else:
                done |= self.ring_reduce(gpus, blocks, ready, name, dim)
        return done, shares

    def rings(self, dim: int) -> list[list[int]]:
        """The gpus along a dimension, for every position in the others."""
        stride = 1
        for extent in self.extents[dim + 1 :]:
            stride *= extent
        extent = self.extents[dim]
        starts = [g for g in range(self.num_gpus) if g // stride % extent == 0]
        return [[g + i * stride for i in range(extent)] for g in starts]

    def direct_reduce(self) -> Ready:
        """Every gpu fetches its shard from all others and adds them up."""
        builder = self.builder
        done: Ready = {}
        for g in range(self.num_gpus):
            rows = builder.shards[g]
            size = rows[1] - rows[0]
            if not size:
                continue
            arrived, pairs = [], []
            for index, src in enumerate(builder.peers(g)):
                scratch = f"from{src}"
                builder.add_buffer(g, scratch, size, builder.workload.k)
                landed = self.region(g, scratch, (0, size))
                arrived.append(
                    builder.transfer(f"rs.g{g}.s{src}", self.region(src, "part", rows), landed, index)
                )
                pairs.append((landed, self.region(g, "part", rows)))
            if pairs:
                done[g] = [builder.local_copy(f"add.g{g}", pairs, arrived, accumulate=True)]
        return done

    def ring_reduce(
        self, gpus: list[int], blocks: list[Interval], ready: Ready, name: str, index: int
    ) -> Ready:
        """Pass partial sums round; the gpu at position i ends with block i."""
        builder = self.builder
        size = len(gpus)
        last = {g: list(ready.get(g, [])) for g in gpus}
        for g in gpus:
            if size > 1:
                builder.add_buffer(g, f"got.{name}", builder.workload.m, builder.workload.k)
        for step in range(size - 1):
            after = dict(last)
            for position, g in enumerate(gpus):
                src = gpus[position - 1]
                rows = blocks[(position - 2 - step) % size]
                if rows[0] == rows[1]:
                    continue
                landed = self.region(g, f"got.{name}", rows)
                moved = builder.transfer(
                    f"{name}.g{g}.t{step}",
                    self.region(src, "part", rows),
                    landed,
                    index,
                    last[src],
                )
                pair = (landed, self.region(g, "part", rows))
                # its own data must be there as well: the stage before may still be at work
                needs = [moved, *last[g]]
                task = f"add.{name}.g{g}.t{step}"
                # each ring adds on a queue of its own, or it would wait for the other
                after[g] = [builder.local_copy(task, [pair], needs, accumulate=True, index=index)]
            last = after
        return last

    def ring_gather(
        self,
        gpus: list[int],
        buffer: str,
        blocks: list[Interval],
        ready: Ready,
        name: str,
        index: int,
        num_steps: int | None = None,
    ) -> Ready:
        """Pass complete blocks round; the gpu at position i begins with block i."""
        size = len(gpus)
        have: dict[tuple[int, int], list[str]] = {
            (g, i): list(ready.get(g, [])) for i, g in enumerate(gpus)
        }
        done = {g: list(ready.get(g, [])) for g in gpus}
        for step in range(size - 1 if num_steps is None else num_steps):
            for position, g in enumerate(gpus):
                src, block = gpus[position - 1], (position - 1 - step) % size
                rows = blocks[block]
                if rows[0] == rows[1]:
                    have[g, block] = []
                    continue
                moved = self.move(
                    f"{name}.g{g}.b{block}", src, g, buffer, rows, index, have[src, block]
                )
                have[g, block] = [moved]
                done[g] = [*done[g], moved]
        return done

    def move(
        self,
        task_id: str,
        src: int,
        dst: int,
        buffer: str,
        rows: Interval,
        index: int,
        deps: Sequence[str],
    ) -> str:
        """Transfer the same rows of a matrix from one gpu to another."""
        if rows[0] == rows[1]:
            return ""
        return self.builder.transfer(
            task_id, self.region(src, buffer, rows), self.region(dst, buffer, rows), index, deps
        )


_MAKERS: dict[str, dict[Algorithm, Callable[[_Collective], None]]] = {
    "all_gather": {
        "direct": _Collective.gather_direct,
        "ring": _Collective.gather_ring,
        "ring-two-way": _Collective.gather_two_way,
        "ring-two-way-split": _Collective.gather_two_way_split,
    },
    "all_to_all": {"direct": _Collective.exchange_direct},
    "reduce_scatter": {
        "direct": _Collective.reduce_scatter_direct,
        "ring": _Collective.reduce_scatter_ring,
    },
    "all_reduce": {
        "direct": _Collective.reduce_direct,
        "ring": _Collective.reduce_ring,
        "ring-two-way-split": _Collective.reduce_two_way_split,
        "hierarchical": _Collective.reduce_hierarchical,
    },
}

"""The FiCCO family: every shard is cut into chunks, and in each step one chunk of every peer arrives.

Three axes: uniformity (does the gpu's own shard take part in the steps, or is it computed whole
first), granularity (one GEMM a step, one a chunk, or one batched GEMM a step), and shape (a chunk is
a slice of rows, or of columns whose products accumulate). Shape legend: m rows, k columns of A, p
gpus, c chunks.
"""

from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

from ficco_sim.plan import Interval, Plan, Region
from ficco_sim.schedules.builder import GEMM_PATTERNS, PlanBuilder, check_arguments
from ficco_sim.workload import Workload, split

Uniformity: TypeAlias = Literal["uniform", "hetero"]
Granularity: TypeAlias = Literal["fused", "unfused", "batched"]
Shape: TypeAlias = Literal["1d", "2d"]
Schedule: TypeAlias = Callable[..., Plan]


def ficco_schedule(uniformity: Uniformity, granularity: Granularity, shape: Shape) -> Schedule:
    """The schedule function at one point of the three axes.

    The function takes ``(workload, num_gpus, *, num_chunks, compute_queues, copy_queues, engine,
    gather)``: ``num_chunks`` is p unless given; ``compute_queues`` spreads unfused GEMMs;
    ``copy_queues`` is p - 1, a queue a peer, unless given: with fewer, transfers of several peers go
    round-robin by peer onto one queue, in the order of steps, which hardware that serves one queue
    after another would not keep otherwise; ``engine`` is ``dma`` or ``core``; ``gather="copy"`` lets
    fused schedules copy received chunks into the step's staging buffer, where ``direct`` has the
    transfers write there.

    Raises
    ------
    ScenarioError
        If the workload has no GEMM after communication or an argument is out of range.
    """
    if granularity == "batched" and shape == "2d":
        raise ValueError("batched: 1d only, entries of a 2d step would write the same rows of C")
    name = f"{uniformity}-{granularity}-{shape}"

    def schedule(
        workload: Workload,
        num_gpus: int,
        *,
        num_chunks: int | None = None,
        compute_queues: int = 1,
        copy_queues: int | None = None,
        engine: str = "dma",
        gather: str = "direct",
    ) -> Plan:
        chunks = num_gpus if num_chunks is None else num_chunks
        checked = check_arguments(
            workload,
            num_gpus,
            *GEMM_PATTERNS,
            num_chunks=chunks,
            compute_queues=compute_queues,
            copy_queues=1 if copy_queues is None else copy_queues,
            engine=engine,
            gather=gather,
        )
        queues = max(1, num_gpus - 1) if copy_queues is None else copy_queues
        builder = PlanBuilder(workload, num_gpus, checked)
        builder.operator_buffers()
        family = _Family(
            builder,
            uniformity,
            shape,
            num_chunks=chunks,
            compute_queues=compute_queues,
            copy_queues=queues,
            gather=gather,
        )
        for g in range(num_gpus):
            if uniformity == "hetero":
                family.own_shard_gemm(g)
            if granularity == "unfused":
                family.unfused(g)
            elif granularity == "batched":
                family.batched(g)
            elif shape == "1d":
                family.fused_1d(g)
            else:
                family.fused_2d(g)
        return builder.build(
            name,
            {
                "num_chunks": chunks,
                "compute_queues": compute_queues,
                "copy_queues": queues,
                "engine": engine,
                "gather": gather,
            },
        )

    schedule.__name__ = schedule.__qualname__ = name.replace("-", "_")
    schedule.__doc__ = f"FiCCO schedule {name}; see `ficco_schedule` for the arguments and errors."
    return schedule


class _Family:
    """The steps of one plan; each method adds the tasks of one gpu."""

    def __init__(
        self,
        builder: PlanBuilder,
        uniformity: Uniformity,
        shape: Shape,
        *,
        num_chunks: int,
        compute_queues: int,
        copy_queues: int,
        gather: str,
    ) -> None:
        self.builder = builder
        self.uniform = uniformity == "uniform"
        self.num_chunks = num_chunks
        self.compute_queues = compute_queues
        self.copy_queues = copy_queues
        self.gather = gather
        self.by_rows = shape == "1d"
        k = builder.workload.k
        self.cols = [builder.all_k] * num_chunks if self.by_rows else list(split(k, num_chunks))
        self._cuts: dict[int, tuple[Interval, ...]] = {}
        # the step's rows lie side by side in A and C already; all-to-all has its own rows elsewhere
        if self.uniform:
            whole = builder.num_gpus == 1 or num_chunks == 1
            self.in_place = whole and builder.tokens is None
        else:
            self.in_place = builder.num_gpus <= 2

    def steps(self) -> Iterator[tuple[int, Interval]]:
        """Index and column block of each step that is not empty."""
        return ((j, cols) for j, cols in enumerate(self.cols) if cols[0] < cols[1])

    def sources(self, gpu: int) -> list[int]:
        """Owners of the chunks of a step, in order of arrival; the gpu itself comes first."""
        peers = self.builder.peers(gpu)
        return [gpu, *peers] if self.uniform else peers

    def blocks(self, gpu: int, step: int) -> list[tuple[int, Interval]]:
        """Owner and rows of the chunks of a step that are not empty."""
        found = []
        for src in self.sources(gpu):
            lo, hi = self.builder.block(gpu, src)
            if self.by_rows:
                cuts = self._cuts.get(hi - lo)
                if cuts is None:
                    cuts = self._cuts[hi - lo] = split(hi - lo, self.num_chunks)
                lo, hi = lo + cuts[step][0], lo + cuts[step][1]
            if lo < hi:
                found.append((src, (lo, hi)))
        return found

    def own_shard_gemm(self, gpu: int) -> None:
        builder = self.builder
        rows = builder.block(gpu, gpu)
        if rows[0] < rows[1]:
            own = builder.here(gpu, gpu, rows)
            builder.gemm(f"gemm.g{gpu}.own", [own], builder.b(gpu), [builder.c(gpu, rows)])

    def receive(self, step: int, chunk: Region, dst: Region) -> list[str]:
        """Add the transfer of a chunk unless it is the gpu's own; returns what to wait for."""
        gpu, src = dst.gpu, chunk.gpu
        if src == gpu:
            return []
        index = ((src - gpu) % self.builder.num_gpus - 1) % self.copy_queues
        return [self.builder.transfer(f"xfer.g{gpu}.s{src}.c{step}", chunk, dst, index)]

    def unfused(self, gpu: int) -> None:
        """One GEMM a chunk, straight from its place in A to its rows of C."""
        builder = self.builder
        first = 0 if self.uniform else 1  # queue 0 has the own shard's GEMM
        turn = first
        last_on_rows: dict[int, str] = {}
        for j, cols in self.steps():
            blocks = self.blocks(gpu, j)
            arrived = {
                src: self.receive(j, builder.origin(gpu, src, rows, cols), builder.a(gpu, rows, cols))
                for src, rows in blocks
            }
            for position, (src, rows) in enumerate(blocks):
                # products that accumulate on the same rows stay on one queue, in order
                slot = turn if self.by_rows else first + position
                turn += 1
                deps = arrived[src] + ([last_on_rows[src]] if src in last_on_rows else [])
                task = builder.gemm(
                    f"gemm.g{gpu}.s{src}.c{j}",
                    [builder.here(gpu, src, rows, cols)],
                    builder.b(gpu, cols),
                    [builder.c(gpu, rows)],
                    index=slot % self.compute_queues,
                    accumulate=not self.by_rows and src in last_on_rows,
                    deps=deps,
                )
                if not self.by_rows:
                    last_on_rows[src] = task

    def batched(self, gpu: int) -> None:
        """One batched GEMM a step, an entry for each chunk, straight to its rows of C."""
        builder = self.builder
        for j, cols in self.steps():
            blocks = self.blocks(gpu, j)
            if not blocks:
                continue
            deps: list[str] = []
            for src, rows in blocks:
                deps += self.receive(j, builder.origin(gpu, src, rows, cols), builder.a(gpu, rows))
            builder.gemm(
                f"gemm.g{gpu}.c{j}",
                [builder.here(gpu, src, rows) for src, rows in blocks],
                builder.b(gpu),
                [builder.c(gpu, rows) for _, rows in blocks],
                deps=deps,
            )

    def fused_1d(self, gpu: int) -> None:
        """One GEMM a step over its chunks side by side; its rows are put back in place."""
        builder = self.builder
        for j, cols in self.steps():
            blocks = sorted(self.blocks(gpu, j), key=lambda block: block[1])
            if not blocks:
                continue
            staged, deps = self.stage(gpu, j, blocks, cols)
            if self.in_place:
                out = builder.c(gpu, staged.rows)
            else:
                builder.add_buffer(
                    gpu, f"out{j}", staged.shape[0], builder.workload.n, builder.out_dtype
                )
                out = Region(gpu=gpu, buffer=f"out{j}", rows=staged.rows, cols=builder.all_n)
            task = builder.gemm(f"gemm.g{gpu}.c{j}", [staged], builder.b(gpu), [out], deps=deps)
            if not self.in_place:
                self.put_back(gpu, f"scatter.g{gpu}.c{j}", out, blocks, task)

    def fused_2d(self, gpu: int) -> None:
        """One GEMM a step over a slice of columns of all its rows, accumulating over the steps."""
        builder = self.builder
        blocks: list[tuple[int, Interval]] = []
        out: Region | None = None
        task = ""
        for j, cols in self.steps():
            blocks = sorted(self.blocks(gpu, j), key=lambda block: block[1])
            if not blocks:
                return
            staged, deps = self.stage(gpu, j, blocks, cols)
            if out is None:
                num_rows = staged.shape[0]
                if self.uniform or self.in_place:
                    out = builder.c(gpu, (blocks[0][1][0], blocks[-1][1][1]))
                else:  # the own rows leave a hole in C
                    builder.add_buffer(
                        gpu, "out", num_rows, builder.workload.n, builder.out_dtype
                    )  # fmt: skip
                    out = Region(gpu=gpu, buffer="out", rows=(0, num_rows), cols=builder.all_n)
            task = builder.gemm(
                f"gemm.g{gpu}.c{j}",
                [staged],
                builder.b(gpu, cols),
                [out],
                accumulate=bool(task),
                deps=[*deps, task] if task else deps,
            )
        if out is not None and out.buffer == "out":
            self.put_back(gpu, f"scatter.g{gpu}", out, blocks, task)

    def stage(
        self, gpu: int, step: int, blocks: list[tuple[int, Interval]], cols: Interval
    ) -> tuple[Region, list[str]]:
        """Bring the chunks of a step side by side; returns where they lie and what to wait for."""
        builder = self.builder
        num_rows = sum(hi - lo for _, (lo, hi) in blocks)
        if self.in_place and (builder.num_gpus == 1 or cols == builder.all_k):
            deps: list[str] = []
            for src, rows in sorted(blocks, key=lambda block: self.sources(gpu).index(block[0])):
                chunk = builder.origin(gpu, src, rows, cols)
                deps += self.receive(step, chunk, builder.a(gpu, rows, cols))
            return builder.a(gpu, (blocks[0][1][0], blocks[-1][1][1]), cols), deps
        name = f"in{step}"
        width = (0, cols[1] - cols[0])
        builder.add_buffer(gpu, name, num_rows, width[1])
        place: dict[int, Region] = {}
        at = 0
        for src, (lo, hi) in blocks:
            place[src] = Region(gpu=gpu, buffer=name, rows=(at, at + hi - lo), cols=width)
            at += hi - lo
        in_order = dict(blocks)
        arrived: list[str] = []
        copies: list[tuple[Region, Region]] = []
        for src in self.sources(gpu):
            if src not in in_order:
                continue
            rows = in_order[src]
            chunk = builder.origin(gpu, src, rows, cols)
            if src != gpu and self.gather == "direct":
                arrived += self.receive(step, chunk, place[src])
            else:
                here = builder.here(gpu, src, rows, cols)
                arrived += self.receive(step, chunk, here)
                copies.append((here, place[src]))
        staged = Region(gpu=gpu, buffer=name, rows=(0, num_rows), cols=width)
        if not copies:
            return staged, arrived
        # own chunks can be staged before anything has arrived
        waits = arrived if self.gather == "copy" else []
        copied = builder.local_copy(f"gather.g{gpu}.c{step}", copies, waits)
        return staged, [copied] if self.gather == "copy" else [*arrived, copied]

    def put_back(
        self, gpu: int, task_id: str, out: Region, blocks: list[tuple[int, Interval]], dep: str
    ) -> None:
        """Copy the rows of a fused GEMM's output to their places in C."""
        pairs = []
        at = 0
        for _, (lo, hi) in blocks:
            piece = Region(gpu=gpu, buffer=out.buffer, rows=(at, at + hi - lo), cols=out.cols)
            pairs.append((piece, self.builder.c(gpu, (lo, hi))))
            at += hi - lo
        self.builder.local_copy(task_id, pairs, [dep])

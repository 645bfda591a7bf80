"""Shapes of GEMMs: whole operators, the pieces that plans cut them into, and others off that grid.

Shape legend: m rows of an entry, n columns of B, k contraction.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ficco_sim.plan import Gemm, Plan, Region
from ficco_sim.schedules import SCHEDULES, knobs_of, make_plan
from ficco_sim.workload import COLLECTIVES, Workload

__all__ = ["GemmShape", "busiest_gpu", "off_grid", "pieces_of", "plans_of", "shapes_of"]

NOT_OPERATORS = ("all-gather",)
NOT_EXCHANGES = ("shard-ring",)
"""Schedules that do not take an all-to-all."""

SKINNY = ((448, 7168, 16384), (224, 7168, 16384), (448, 16384, 7168), (896, 1792, 16384))
"""M, N, K of pieces for which libraries were seen to pick slow kernels, and their neighbours."""

DECODE_ROWS = (1, 2, 4, 8, 16, 32, 64)
DECODE_COLS = ((8192, 8192), (7168, 2048))  # n, k

# ranges of shapes off the grid, drawn evenly in their logarithms
ROWS, COLS, DEPTH = (64, 32768), (128, 16384), (256, 16384)
MOST_FLOPS = 8e12
STEPS = (1, 8, 64)  # m is a multiple of one of them, n and k of the larger ones


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class GemmShape:
    """A GEMM, or several of equal shape that share B and lie equally far apart.

    Parameters
    ----------
    m, n, k
        Of one entry.
    entries
        How many there are in the batch.
    apart
        Rows from one entry to the next; m if there is only one.
    a_pitch
        Elements from one row of A to the next.
    accumulate
        Whether the product is added to C.
    """

    m: int
    n: int
    k: int
    entries: int = 1
    apart: int = 0
    a_pitch: int = 0
    accumulate: bool = False

    def __post_init__(self) -> None:
        # the distance of what there is only one of does not matter
        if self.entries == 1:
            object.__setattr__(self, "apart", self.m)
            if self.m == 1:
                object.__setattr__(self, "a_pitch", self.k)
        if self.a_pitch == 0:
            object.__setattr__(self, "a_pitch", self.k)

    @property
    def flops(self) -> int:
        """Floating-point operations of all entries."""
        return 2 * self.entries * self.m * self.n * self.k


def shapes_of(workload: Workload, num_gpus: int, num_chunks: Sequence[int]) -> list[GemmShape]:
    """The whole GEMM of an operator and all distinct pieces of it, on its busiest gpu.

    An operator without a GEMM has none.
    """
    if workload.pattern in COLLECTIVES:
        return []
    whole = GemmShape(m=workload.m, n=workload.n, k=workload.k)
    found = dict.fromkeys([whole])
    for plan in plans_of(workload, num_gpus, num_chunks):
        found |= dict.fromkeys(pieces_of(plan, busiest_gpu(plan)))
    return list(found)


def plans_of(workload: Workload, num_gpus: int, num_chunks: Sequence[int]) -> Iterator[Plan]:
    """Plans of every schedule for an operator, with every number of chunks."""
    if workload.pattern not in ("all_gather_gemm", "all_to_all_gemm"):
        return
    gpus = num_gpus if workload.tokens is None else len(workload.tokens)
    for name in SCHEDULES:
        if name in NOT_OPERATORS or (workload.tokens is not None and name in NOT_EXCHANGES):
            continue
        if "num_chunks" not in knobs_of(name):
            yield make_plan(name, workload, gpus)
            continue
        for chunks in num_chunks:
            yield make_plan(name, workload, gpus, {"num_chunks": chunks})


def pieces_of(plan: Plan, gpu: int) -> list[GemmShape]:
    """The distinct GEMMs that a gpu computes in a plan, in the order in which they first occur."""
    pitches = {(b.gpu, b.name): b.cols for b in plan.buffers}
    found: dict[GemmShape, None] = {}
    for task in plan.tasks:
        if isinstance(task, Gemm) and task.queue.gpu == gpu:
            found |= dict.fromkeys(_runs(task, pitches))
    return list(found)


def busiest_gpu(plan: Plan) -> int:
    """The gpu of a plan with the most work in GEMMs, the first of equal ones."""
    work = [0] * plan.num_gpus
    for task in plan.tasks:
        if isinstance(task, Gemm):
            work[task.queue.gpu] += task.flops
    return work.index(max(work))


def off_grid(seed: int, count: int) -> list[GemmShape]:
    """Skinny shapes, those of decoding, and random ones.

    The random ones have m from 64 to 32,768 rows, n from 128 to 16,384 and k from 256 to 16,384, even
    in their logarithms, and at most 8 TFLOP.
    """
    if not count:
        return []
    skinny = [GemmShape(m=m, n=n, k=k) for m, n, k in SKINNY]
    decode = [GemmShape(m=m, n=n, k=k) for n, k in DECODE_COLS for m in DECODE_ROWS]
    rng = random.Random(seed)  # noqa: S311 - shapes, not secrets
    drawn: dict[GemmShape, None] = {}
    while len(drawn) < count:
        step = rng.choice(STEPS)
        shape = GemmShape(
            m=_draw(rng, *ROWS, step),
            n=_draw(rng, *COLS, max(step, 8)),
            k=_draw(rng, *DEPTH, max(step, 8)),
        )
        if shape.flops <= MOST_FLOPS:
            drawn[shape] = None
    return list(dict.fromkeys([*skinny, *decode, *drawn]))


def _draw(rng: random.Random, least: int, most: int, step: int) -> int:
    size = math.exp(rng.uniform(math.log(least), math.log(most)))
    return max(step, round(size / step) * step)


def _runs(task: Gemm, pitches: dict[tuple[int, str], int]) -> list[GemmShape]:
    """The GEMM calls of a task: entries are one call while they lie equally far apart."""
    runs: list[list[tuple[Region, Region]]] = []
    for a, c in sorted(zip(task.a, task.c, strict=True), key=lambda pair: pair[1].rows):
        if runs and _continues(runs[-1], a, c):
            runs[-1].append((a, c))
        else:
            runs.append([(a, c)])
    k, n = task.b.shape
    made = []
    for run in runs:
        first = run[0][0]
        shape = GemmShape(
            m=first.shape[0],
            n=n,
            k=k,
            a_pitch=pitches[first.gpu, first.buffer],
            accumulate=task.accumulate,
        )
        if len(run) > 1:
            shape = replace(shape, entries=len(run), apart=run[1][0].rows[0] - first.rows[0])
        made.append(shape)
    return made


def _continues(run: list[tuple[Region, Region]], a: Region, c: Region) -> bool:
    last_a, last_c = run[-1]
    step = a.rows[0] - last_a.rows[0]
    return (
        a.buffer == last_a.buffer
        and a.shape == last_a.shape
        and step == c.rows[0] - last_c.rows[0] > 0
        and (len(run) == 1 or step == last_a.rows[0] - run[-2][0].rows[0])
    )

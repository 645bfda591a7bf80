"""What the figures of docs/concepts.md show: plans simulated, and the numbers that the text names."""

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ficco_sim.comparison import Evaluation, evaluate_plan, find_makespans
from ficco_sim.costs import CostModel, GemmShape
from ficco_sim.grid import Grid
from ficco_sim.machine import load_machine
from ficco_sim.plan import Region, Transfer
from ficco_sim.schedules import FICCO, make_plan
from ficco_sim.workload import Workload, get_workload

GPUS = Path(__file__).parent.parent / "topologies" / "gpus"
MESH = "mi300x_8"
SWITCH = "h200_8"
RING = "ring_8"
ATTENTION = "llama3-70b-tp8-qkv-32k"  # GEMM and communication about equal on the mesh
CLOSE = "llama3-70b-tp8-gate-up-2k"  # several schedules as good as the best, as far as is known
LONG = "llama3-405b-tp8-qkv-8k"
CHUNKS = (2, 4, 8, 16, 32)
CUT = ("uniform-fused-1d", "uniform-fused-2d", "hetero-batched-1d", "hetero-unfused-1d")
COLUMNS = tuple(round(128 * 2 ** (i / 2)) for i in range(21))  # local columns n of the bell curve
LABELS = ("measured", "stated", "derived", "estimated", "emulated")


@functools.cache
def run(
    schedule: str,
    workload: str = ATTENTION,
    machine: str = MESH,
    submission: str = "graph",
    **knobs: int | str,
) -> Evaluation:
    """A schedule simulated, with its metrics."""
    place = load_machine(machine)
    plan = make_plan(schedule, get_workload(workload), place.num_gpus, knobs)
    assert submission in ("graph", "eager")
    costs = CostModel(place, submission="eager" if submission == "eager" else "graph")
    return evaluate_plan(plan, place, costs, intervals=False)


def chunk_regions(schedule: str) -> list[tuple[int, Region]]:
    """Step and source region of every chunk that gpu 0 of 4 receives; A is 32 x 16."""
    workload = Workload(name="small", pattern="all_gather_gemm", m=32, n=8, k=16)
    plan = make_plan(schedule, workload, 4, {"num_chunks": 4})
    return [
        (int(task.id.rsplit("c", 1)[1]), task.src)
        for task in plan.tasks
        if isinstance(task, Transfer) and task.queue.gpu == 0
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Loss by cutting, for each number of chunks in `CHUNKS`."""

    gemm: dict[str, list[float]]
    communication: list[float]


def decomposition() -> Losses:
    """DIL of the attention workload's GEMM by schedule, and of its communication in 1d chunks."""
    results = {name: [run(name, num_chunks=chunks).result for chunks in CHUNKS] for name in CUT}
    return Losses(
        gemm={name: [r.gemm_dil for r in row] for name, row in results.items()},
        communication=[r.comm_dil for r in results["hetero-unfused-1d"]],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bell:
    """One shape on the mesh: ratio of GEMM to communication, and speed-ups over serial."""

    ratio: float
    ideal: float
    finer: float
    shard: float
    slower: float  # share of FiCCO plans that are slower than serial


def bell(columns: Sequence[int] = COLUMNS) -> list[Bell]:
    """Speed-ups as the GEMM grows beside the same communication: A is 8192 x 8192."""
    machine = load_machine(MESH)
    points = []
    for n in columns:
        workload = Workload(name=f"n{n}", pattern="all_gather_gemm", m=8192, n=n, k=8192)
        found = find_makespans(workload, machine, grid=Grid(schedules=("shard-p2p", *FICCO)))
        finer = [time_s for name, _, time_s in found.points if name in FICCO]
        shard_s = next(time_s for name, _, time_s in found.points if name == "shard-p2p")
        points.append(
            Bell(
                ratio=found.gemm_s / found.comm_s,
                ideal=found.serial_s / found.ideal_s,
                finer=found.serial_s / min(finer),
                shard=found.serial_s / shard_s,
                slower=sum(time_s > found.serial_s for time_s in finer) / len(finer),
            )
        )
    return points


def gemm_errors() -> tuple[list[tuple[float, float]], float]:
    """FLOP and formula over measured of each bf16 shape timed on an H200; the fit's held-out median."""
    machine = load_machine(SWITCH)
    profile = machine.profile
    formula = replace(profile, gemm=replace(profile.gemm, measured=()))
    model = CostModel(replace(machine, profile=formula)).gemm_model
    points = []
    for row in profile.gemm.measured:
        if row.dtype == "bf16":
            rows = (row.m // row.entries,) * row.entries
            shape = GemmShape(rows, row.n, row.k, row.dtype, row.accumulate)
            points.append((float(shape.flops), model.cost(shape).time_s / row.time_s))
    return points, profile.fits["gemm.bf16"].median_error


def journey(evaluation: Evaluation) -> list[tuple[float, float, int, int]]:
    """Start, end, receiver and chunk of every transfer that carries gpu 0's rows further."""
    plan = evaluation.plan
    spans = {span.task_id: span for span in evaluation.trace.spans}
    last = plan.workload.m // plan.num_gpus  # gpu 0's rows are the first
    found = []
    for task in plan.tasks:
        if isinstance(task, Transfer) and task.dst.buffer == "a" and task.src.rows[0] < last:
            chunk = task.src.rows[0] * int(evaluation.result.num_chunks) // last
            span = spans[task.id]
            found.append((span.start_s, span.end_s, task.dst.gpu, chunk))
    return sorted(found)


def label_counts() -> dict[str, Counter[str]]:
    """How many entries of each gpu's sources bear each label, most gpus by measured share first."""
    from ficco_sim.machine import named_machines

    counts: dict[str, Counter[str]] = {}
    for name in named_machines():
        machine = load_machine(name)
        if machine.gpu.name not in counts:
            texts = [t for key, t in machine.sources.items() if key.startswith("gpu.profile.")]
            counts[machine.gpu.name] = Counter(text.split(":", 1)[0] for text in texts)
    return counts

"""A run tried out without a gpu: are plans legal, numbers right, and is there memory for them.

Numbers are those of small shapes that keep every task: sizes are cut to two rounds of gpus and chunks
plus the old remainder.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ficco_sim.check import check_plan
from ficco_sim.errors import FiccoError
from ficco_sim.plan import Plan, buffer_bytes
from ficco_sim.reference import OWN
from ficco_sim.units import GIB, format_bytes
from ficco_sim.workload import Workload
from hw_validate.cpu import CpuBackend
from hw_validate.dry_run import Rehearsal
from hw_validate.links import rounds_of
from hw_validate.maps import Map
from hw_validate.memory import Arena, Memory
from hw_validate.microbench.setup import place_name
from hw_validate.placement import HOST
from hw_validate.plan_runs import PlanRun, PlanSettings, plan_group, plan_runs

__all__ = ["rehearse", "scaled_down"]

Progress: TypeAlias = Callable[[int, int, str], None]

LIBRARIES_BYTES = 6 * GIB
"""An allowance on every device for what is not counted: context, workspaces of the GEMM library, NCCL's
buffers, evicted caches, blocks of a product being checked. A guess."""
ALIGNED = 16  # of N and K, so that what is aligned stays so


def scaled_down(workload: Workload, num_gpus: int, num_chunks: Sequence[int]) -> Workload:
    """A small workload whose plans have the same tasks.

    Parameters
    ----------
    num_chunks
        All numbers of chunks that it is cut into.

    Examples
    --------
    >>> big = Workload(name="w", pattern="all_gather_gemm", m=8197, n=7168, k=8192)
    >>> small = scaled_down(big, 8, (2, 4, 8))
    >>> small.m, small.n, small.k
    (133, 32, 32)
    """
    chunks = math.lcm(*num_chunks)
    n, k = _small(workload.n, ALIGNED), _small(workload.k, math.lcm(ALIGNED, chunks))
    if workload.tokens is None:
        return replace(workload, m=_small(workload.m, num_gpus * chunks), n=n, k=k)
    tokens = tuple(tuple(_small(rows, chunks) for rows in row) for row in workload.tokens)
    busiest = max(sum(row[gpu] for row in tokens) for gpu in range(len(tokens)))
    return replace(workload, m=busiest, tokens=tokens, n=n, k=k)


def _small(size: int, unit: int) -> int:
    return size if size < 3 * unit else 2 * unit + size % unit


def rehearse(
    workloads: Sequence[Workload],
    maps: Sequence[Map],
    settings: PlanSettings,
    *,
    memory_bytes: int | None = None,
    progress: Progress | None = None,
) -> Rehearsal:
    """Try a run out on the CPU.

    Parameters
    ----------
    memory_bytes
        What each device has.
    progress
        Called with groups done, groups in all, and the name of the present one.

    Raises
    ------
    ScenarioError, PlanError
        As `hw_validate.plan_runs.plan_runs`.
    """
    failures: list[str] = []
    shapes: list[str] = []
    plans = checked = verified = 0
    most = (0, "nowhere")
    cases = [(workload, where) for workload in workloads for where in maps]
    for number, (workload, where) in enumerate(cases):
        name = f"{workload.name} on {where.name}"
        if progress is not None:
            progress(number, len(cases), name)
        small = scaled_down(workload, settings.num_gpus, settings.num_chunks)
        shapes.append(f"{workload.name}: {small.m}, {small.n}, {small.k}")
        full = plan_runs(workload, where, settings)
        plans += len(full)
        for run, little in zip(full, plan_runs(small, where, settings), strict=True):
            reason = _illegal(run.plan, little.plan)
            checked += reason is None
            if reason is not None:
                failures.append(f"{name}: {run.name}: {reason}")
        wrong = list(_wrong(small, where, settings))
        verified += len(full) - len(wrong)
        failures += [f"{name}: {reason}" for reason in wrong]
        for place, nbytes in needed_bytes(full).items():
            most = max(most, (nbytes, f"{place_name(place)}, {name}"))
            if place != HOST and memory_bytes is not None and nbytes > memory_bytes:
                failures.append(
                    f"{name}: needs {format_bytes(nbytes)} on {place_name(place)}, which has "
                    f"{format_bytes(memory_bytes)}"
                )
    return Rehearsal(
        plans=plans,
        checked=checked,
        verified=verified,
        shapes=tuple(dict.fromkeys(shapes)),
        most_bytes=most[0],
        most_bytes_at=most[1],
        memory_bytes=memory_bytes,
        failures=tuple(failures),
    )


def _illegal(full: Plan, small: Plan) -> str | None:
    """Why a plan is not legal, or not the one whose numbers the small one shows."""
    try:
        check_plan(full)
    except FiccoError as error:
        return str(error)
    if _structure(full) != _structure(small):
        return "scaled down it has other tasks, so that its numbers would show nothing"
    return None


def _structure(plan: Plan) -> list[tuple[object, ...]]:
    return [(task.id, task.kind, task.queue, task.deps) for task in plan.tasks]


def _wrong(small: Workload, where: Map, settings: PlanSettings) -> Iterator[str]:
    """Run every plan on CPU tensors, in the way in which it is verified before it is timed."""
    group = plan_group(small, where, replace(settings, spans=False))
    with group.open(CpuBackend()) as subjects:
        for subject in subjects:
            if subject.unusable:
                chunks = subject.params["num_chunks"]
                yield f"{subject.params['schedule']} c{chunks}: {subject.unusable[0]}"


class _Nothing(CpuBackend):
    """Gives tensors that have a size and no memory."""

    def empty(self, place: int, rows: int, cols: int, kind: torch.dtype, **_: Any) -> Tensor:
        """See `Backend.empty`."""
        del place
        return torch.empty(rows, cols, dtype=kind, device="meta")


def needed_bytes(runs: Sequence[PlanRun]) -> dict[int, int]:
    """Bytes by place of a group of plans, as they share buffers, inputs and products."""
    arena = Arena(_Nothing())
    checked: dict[tuple[int, str, str], int] = {}  # inputs and products, on the first device
    for run in runs:
        memory = Memory(run.plan, run.placement, arena)
        for buffer in run.staged:
            memory.add(buffer)
        for together in rounds_of(run.plan, run.placement):
            memory.of_round(together, run.placement.devices[0])
        elements = {(b.gpu, b.name): b.rows * b.cols for b in run.plan.buffers}
        sizes = buffer_bytes(run.plan)
        for region in run.plan.inputs:
            gpu = region.gpu if region.buffer in OWN else -1  # others are kept once
            key = (region.gpu, region.buffer)
            checked[gpu, region.buffer, "input"] = elements[key] * sizes[key]
        for region in run.plan.outputs:
            if region.gpu in run.placement.computing:
                key = (region.gpu, region.buffer)
                checked[*key, "product"] = elements[key] * torch.float32.itemsize
    found: dict[int, int] = {}
    for (place, *_), tensor in arena.tensors.items():
        found[place] = found.get(place, 0) + tensor.numel() * tensor.element_size()
    devices = runs[0].placement.devices
    for device in devices:
        found[device] = found.get(device, 0) + LIBRARIES_BYTES
    found[devices[0]] += sum(checked.values())
    return found

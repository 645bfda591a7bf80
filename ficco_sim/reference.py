"""Run a plan in numpy, in any legal order, over buffers filled with NaN.

Shape legend: M rows of A, N local columns of B, K contraction.
"""

import random
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ficco_sim.errors import PlanError
from ficco_sim.plan import Gemm, LocalCopy, Plan, PlanIndex, Region, Task, Transfer

__all__ = ["Arrays", "assert_correct", "evaluate", "expected_output", "legal_order", "make_inputs"]

Arrays = dict[tuple[int, str], NDArray[np.float64]]
"""Matrices by gpu and buffer name."""

MAX_ELEMENTS = 2**28
OWN = ("b", "send", "part")  # inputs that each gpu has for itself


def make_inputs(plan: Plan, seed: int = 0, *, integers: bool = False) -> Arrays:
    """Random input matrices for a plan.

    Parameters
    ----------
    seed
        Same seed, same matrices.
    integers
        Whole numbers from -4 to 4, with which products in float64 are exact; else normal numbers.

    Returns
    -------
    Arrays
        The buffers that hold inputs, NaN outside the input regions. Matrices that the gpus share
        (all but ``b`` and ``send``) have the same values on each.
    """
    _check_size(plan)
    rng = np.random.default_rng(seed)
    sizes = {(b.gpu, b.name): (b.rows, b.cols) for b in plan.buffers}
    arrays: Arrays = {}
    whole: dict[tuple[int, str], NDArray[np.float64]] = {}
    for region in plan.inputs:
        key = (region.gpu, region.buffer)
        owner = (region.gpu if region.buffer in OWN else -1, region.buffer)
        if owner not in whole:
            shape = sizes[key]
            whole[owner] = (
                rng.integers(-4, 5, shape).astype(np.float64)
                if integers
                else rng.standard_normal(shape)
            )
        if key not in arrays:
            arrays[key] = np.full(sizes[key], np.nan)
        rows, cols = slice(*region.rows), slice(*region.cols)
        arrays[key][rows, cols] = whole[owner][rows, cols]
    return arrays


def legal_order(plan: Plan, seed: int) -> list[Task]:
    """The tasks of a plan in a random order that respects dependencies and queues."""
    index = PlanIndex(plan)
    successors = index.successors()
    waiting = [len(p) for p in index.predecessors]
    rng = random.Random(seed)  # noqa: S311 - reproducible, not secret
    ready = [i for i, count in enumerate(waiting) if count == 0]
    order = []
    while ready:
        at = rng.randrange(len(ready))
        ready[at], ready[-1] = ready[-1], ready[at]
        i = ready.pop()
        order.append(plan.tasks[i])
        for j in successors[i]:
            waiting[j] -= 1
            if waiting[j] == 0:
                ready.append(j)
    if len(order) < len(plan.tasks):
        stuck = [plan.tasks[i].id for i, count in enumerate(waiting) if count > 0]
        raise PlanError(f"{plan.schedule}: deadlock among {', '.join(stuck[:8])}")
    return order


def evaluate(plan: Plan, inputs: Arrays, order: Sequence[Task] | None = None) -> Arrays:
    """Run every task of a plan.

    Parameters
    ----------
    plan
        A checked plan.
    inputs
        From `make_inputs`; left as they are.
    order
        A legal order of the plan's tasks; by default that of the plan's graph.

    Returns
    -------
    Arrays
        The buffers that hold outputs; NaN wherever nothing was written.
    """
    _check_size(plan)
    arrays: Arrays = {}
    for b in plan.buffers:
        given = inputs.get((b.gpu, b.name))
        arrays[b.gpu, b.name] = np.full((b.rows, b.cols), np.nan) if given is None else given.copy()

    def view(region: Region) -> NDArray[np.float64]:
        array = arrays[region.gpu, region.buffer]
        return array[slice(*region.rows), slice(*region.cols)]

    if order is None:
        positions, stuck = PlanIndex(plan).topological_order()
        if stuck:
            names = ", ".join(plan.tasks[i].id for i in stuck[:8])
            raise PlanError(f"{plan.schedule}: deadlock among {names}")
        order = [plan.tasks[i] for i in positions]
    for task in order:
        match task:
            case Transfer():
                view(task.dst)[:] = view(task.src)
            case LocalCopy():
                for src, dst in zip(task.src, task.dst, strict=True):
                    if task.accumulate:
                        view(dst)[:] += view(src)
                    else:
                        view(dst)[:] = view(src)
            case Gemm():
                b_KN = view(task.b)
                for a, c in zip(task.a, task.c, strict=True):
                    product_MN = view(a) @ b_KN
                    if task.accumulate:
                        view(c)[:] += product_MN
                    else:
                        view(c)[:] = product_MN
    return {(r.gpu, r.buffer): arrays[r.gpu, r.buffer] for r in plan.outputs}


def expected_output(plan: Plan, inputs: Arrays) -> Arrays:
    """What a right plan computes, from the inputs alone."""
    sizes = {(b.gpu, b.name): (b.rows, b.cols) for b in plan.buffers}
    shared: dict[str, NDArray[np.float64]] = {}
    for region in plan.inputs:
        if region.buffer in OWN:
            continue
        key = (region.gpu, region.buffer)
        whole = shared.setdefault(region.buffer, np.full(sizes[key], np.nan))
        rows, cols = slice(*region.rows), slice(*region.cols)
        whole[rows, cols] = inputs[key][rows, cols]
    outputs: Arrays = {}
    for region in plan.outputs:
        key = (region.gpu, region.buffer)
        if region.buffer in shared:
            outputs[key] = shared[region.buffer]
        elif region.buffer == "part":  # summed over all gpus, each where it is wanted
            total = np.sum([inputs[g, "part"] for g in range(plan.num_gpus)], axis=0)
            known = outputs.setdefault(key, np.full(total.shape, np.nan))
            rows = slice(*region.rows)
            known[rows] = total[rows]
        elif plan.workload.pattern == "all_to_all":
            outputs[key] = _received(plan, region.gpu, inputs)
        elif plan.workload.tokens is None:
            outputs[key] = shared["a"] @ inputs[region.gpu, "b"]
        else:
            outputs[key] = _received(plan, region.gpu, inputs) @ inputs[region.gpu, "b"]
    return outputs


def _received(plan: Plan, gpu: int, inputs: Arrays) -> NDArray[np.float64]:
    """The rows that an all-to-all brings to a gpu, in order of their sources."""
    tokens = plan.workload.tokens
    assert tokens is not None
    parts = []
    for src, row in enumerate(tokens):
        start = sum(row[:gpu])
        if row[gpu]:
            parts.append(inputs[src, "send"][start : start + row[gpu]])
    return np.concatenate(parts)


def assert_correct(plan: Plan, outputs: Arrays, inputs: Arrays, *, rtol: float = 1e-9) -> None:
    """Compare outputs with the expected ones.

    Raises
    ------
    PlanError
        Naming the first wrong element and the tasks that wrote it.
    """
    for (gpu, name), wanted in expected_output(plan, inputs).items():
        got = outputs[gpu, name]
        scale = float(np.nanmax(np.abs(wanted), initial=0.0)) or 1.0
        wrong = ~(np.abs(got - wanted) <= rtol * scale) & ~np.isnan(wanted)
        if not wrong.any():
            continue
        row, col = (int(x) for x in np.argwhere(wrong)[0])
        writers = [
            task.id
            for task in plan.tasks
            for region in task.writes
            if region.gpu == gpu
            and region.buffer == name
            and region.rows[0] <= row < region.rows[1]
            and region.cols[0] <= col < region.cols[1]
        ]
        raise PlanError(
            f"{plan.schedule}: gpu {gpu} {name}[{row}, {col}] is {got[row, col]}, expected "
            f"{wanted[row, col]}; written by {', '.join(writers) or 'nobody'}"
        )


def _check_size(plan: Plan) -> None:
    total = sum(b.rows * b.cols for b in plan.buffers)
    if total > MAX_ELEMENTS:
        raise PlanError(
            f"{plan.schedule}: {total:,} elements are too many to evaluate; at most {MAX_ELEMENTS:,}"
        )

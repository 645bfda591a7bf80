"""Are the numbers right: outputs against a product in higher precision.

Shape legend: M rows of A, N columns of B, K contraction, P gpus.
"""

import math
from collections import Counter
from collections.abc import Mapping

import torch
from torch import Tensor

from ficco_sim.errors import PlanError
from ficco_sim.plan import Gemm, Plan
from ficco_sim.workload import OUTPUT_DTYPE
from hw_validate.memory import Inputs
from hw_validate.operations import TORCH_DTYPES
from hw_validate.placement import Placement

__all__ = ["Outputs", "tolerance", "verify"]

Outputs = Mapping[tuple[int, str], Tensor]
"""Output matrices by gpu and name."""

REDUCTIONS = ("reduce_scatter", "all_reduce")
BLOCK_ELEMENTS = 2**27  # of a product in higher precision at a time


def tolerance(plan: Plan) -> float:
    """Relative error of a row of the output that rounding explains.

    Each rounding of the output to its type costs at most half a unit in the last place; a row adds up
    as many of them as there are GEMMs that accumulate into it, or gpus in a sum, and products of
    factors in single precision round in the sum as well. Four times that is allowed; one wrong chunk
    of c in a row gives an error of at least 1 / sqrt(c), above the limit up to 60 chunks in bf16.
    """
    unit = torch.finfo(TORCH_DTYPES[OUTPUT_DTYPE[plan.workload.dtype]]).eps
    updates = Counter(
        (c.gpu, c.buffer, c.rows)
        for task in plan.tasks
        if isinstance(task, Gemm) and task.accumulate
        for c in task.c
    )
    summands = plan.num_gpus if plan.workload.pattern in REDUCTIONS else 1
    roundings = max(summands, 1 + max(updates.values(), default=0))
    summed = math.sqrt(plan.workload.k) * torch.finfo(torch.float32).eps
    return 2 * (unit * math.sqrt(roundings) + summed)


Products = dict[tuple[int, str], tuple[Tensor, Tensor]]
"""Outputs in higher precision that were worked out before, by gpu and name.

With each the length that its rows have as a rule: of a sum that cancels to less, rounding leaves more.
"""


def verify(
    plan: Plan,
    placement: Placement,
    inputs: Inputs,
    outputs: Outputs,
    products: Products | None = None,
) -> float:
    """Compare the outputs of the gpus that compute with products in higher precision.

    Double precision on the CPU, single precision on a gpu (whose inputs are of lower precision).

    Parameters
    ----------
    products
        Keeps the products between calls for plans of one workload with the same inputs.

    Returns
    -------
    float
        The largest relative error of a row.

    Raises
    ------
    PlanError
        Naming the first wrong row, and the tasks that wrote it. NaN is wrong.
    """
    limit = tolerance(plan)
    worst = 0.0
    checked = 0
    for region in plan.outputs:
        if region.gpu not in placement.computing:
            continue
        got_MN = outputs[region.gpu, region.buffer]
        product_MN, lengths_M = _product(plan, inputs, region.gpu, region.buffer, got_MN, products)
        step = max(1, BLOCK_ELEMENTS // max(1, got_MN.shape[1]))
        for start in range(region.rows[0], region.rows[1], step):
            rows = (start, min(start + step, region.rows[1]))
            wanted_MN = product_MN[rows[0] : rows[1]]
            block_MN = got_MN[rows[0] : rows[1]].to(wanted_MN.dtype).to(wanted_MN.device)
            scale_M = torch.maximum(lengths_M[rows[0] : rows[1]], wanted_MN.norm(dim=1))
            errors_M = (block_MN - wanted_MN).norm(dim=1) / scale_M.clamp_min(1e-30)
            wrong_M = ~(errors_M <= limit)
            if bool(wrong_M.any()):
                row = rows[0] + int(wrong_M.nonzero()[0])
                raise PlanError(
                    f"{plan.schedule}: gpu {region.gpu} {region.buffer}: row {row} is wrong by "
                    f"{float(errors_M[row - rows[0]]):.3g} of its length (at most {limit:.2g}); "
                    f"written by {_writers(plan, region.gpu, region.buffer, row)}"
                )
            worst = max(worst, float(errors_M.max()))
            checked += rows[1] - rows[0]
    if checked == 0:
        raise PlanError(f"{plan.schedule}: no output to check on the gpus that compute")
    return worst


def _product(
    plan: Plan,
    inputs: Inputs,
    gpu: int,
    name: str,
    like_MN: Tensor,
    products: Products | None,
) -> tuple[Tensor, Tensor]:
    """All rows of what a right plan computes on a gpu; a block of rows at a time."""
    key = (gpu, name)
    if products is not None and key in products:
        return products[key]
    step = max(1, BLOCK_ELEMENTS // max(1, like_MN.shape[1] + plan.workload.k))
    num_rows = like_MN.shape[0]
    blocks = [
        _expected(plan, inputs, gpu, name, (start, min(start + step, num_rows)))
        for start in range(0, num_rows, step)
    ]
    wanted, lengths = zip(*blocks, strict=True)
    made = (torch.cat(wanted), torch.cat(lengths))
    if products is not None:
        products[key] = made
    return made


def _expected(
    plan: Plan, inputs: Inputs, gpu: int, name: str, rows: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Rows of what a right plan computes, from the inputs alone, and their length as a rule."""
    workload = plan.workload
    if workload.pattern in REDUCTIONS:
        parts = [inputs.own[g, "part"][rows[0] : rows[1]] for g in range(plan.num_gpus)]
        parts_PMK = torch.stack([_wide(part) for part in parts])
        return parts_PMK.sum(0), parts_PMK.norm(dim=(0, 2))
    if name in inputs.shared:
        gathered = _wide(inputs.shared[name][rows[0] : rows[1]])
        return gathered, gathered.norm(dim=1)
    if workload.tokens is None:
        a_MK = _wide(inputs.shared["a"][rows[0] : rows[1]])
    else:
        a_MK = _wide(_received(plan, inputs, gpu)[rows[0] : rows[1]])
    if workload.pattern == "all_to_all":
        return a_MK, a_MK.norm(dim=1)
    b_KN = _wide(inputs.own[gpu, "b"])
    return a_MK @ b_KN, a_MK.norm(dim=1) * b_KN.norm() / math.sqrt(workload.k)


def _received(plan: Plan, inputs: Inputs, gpu: int) -> Tensor:
    """The rows that an all-to-all brings to a gpu, in order of their sources."""
    tokens = plan.workload.tokens
    assert tokens is not None
    parts = []
    for src, row in enumerate(tokens):
        start = sum(row[:gpu])
        if row[gpu]:
            parts.append(inputs.own[src, "send"][start : start + row[gpu]])
    return torch.cat(parts)


def _wide(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.device.type == "cpu" else tensor.float()


def _writers(plan: Plan, gpu: int, name: str, row: int) -> str:
    found = [
        task.id
        for task in plan.tasks
        if any(r.gpu == gpu and r.buffer == name and r.rows[0] <= row < r.rows[1] for r in task.writes)
    ]
    gemms = sum(1 for task in plan.tasks if isinstance(task, Gemm))
    more = f" and {len(found) - 4} more" if len(found) > 4 else ""
    return ", ".join(found[:4]) + more or f"none of {gemms} GEMMs"

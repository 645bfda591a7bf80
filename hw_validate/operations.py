"""GEMMs and reductions on tensors: torch, into given outputs, nothing allocated.

Shape legend: M rows, N columns of B, K contraction, E entries of a batch.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from ficco_sim.errors import ScenarioError
from hw_validate.program import Launch, Pair

__all__ = ["TORCH_DTYPES", "accumulate", "gemm", "num_kernels"]

TORCH_DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "fp8": torch.float8_e4m3fn,
}

Call: TypeAlias = Callable[[], object]


def gemm(entries: Sequence[Pair], b_KN: Tensor, *, accumulates: bool, name: str) -> Launch:
    """A GEMM ``c = a @ b`` for each entry (a, c), ``c += a @ b`` if it accumulates.

    Entries that lie equally far apart are one strided-batched GEMM, straight into place.

    Raises
    ------
    ScenarioError
        If the element type has no such GEMM.
    """
    if b_KN.dtype == torch.float8_e4m3fn:
        calls = [
            _scaled(a_MK, b_KN, c_MN, accumulates=accumulates, name=name) for a_MK, c_MN in entries
        ]
    else:
        calls = [
            _plain(*run[0], b_KN, accumulates=accumulates)
            if len(run) == 1
            else _batched(run, b_KN, accumulates=accumulates)
            for run in _runs(entries)
        ]
    if len(calls) == 1:
        (only,) = calls
        return lambda _: _ignore(only())

    def launch(_: int) -> None:
        for call in calls:
            call()

    return launch


def num_kernels(entries: Sequence[Pair]) -> int:
    """How many GEMM calls a batch takes: 1 if its entries lie equally far apart."""
    return len(_runs(entries))


def accumulate(pairs: Sequence[Pair], *, name: str) -> Launch:
    """Add the first of each pair to the second.

    Raises
    ------
    ScenarioError
        If the element type has no sum.
    """
    if any(dst.dtype == torch.float8_e4m3fn for _, dst in pairs):
        raise ScenarioError(f"{name}: fp8 numbers cannot be summed in torch; take bf16")

    def launch(_: int) -> None:
        for src, dst in pairs:
            dst.add_(src)

    return launch


def _ignore(_: object) -> None:
    return None


def _plain(a_MK: Tensor, c_MN: Tensor, b_KN: Tensor, *, accumulates: bool) -> Call:
    if accumulates:
        return lambda: c_MN.addmm_(a_MK, b_KN)
    return lambda: torch.mm(a_MK, b_KN, out=c_MN)


def _batched(run: Sequence[Pair], b_KN: Tensor, *, accumulates: bool) -> Call:
    a_EMK, c_EMN = (_stacked([pair[side] for pair in run]) for side in (0, 1))
    b_EKN = b_KN.expand(len(run), *b_KN.shape)
    if accumulates:
        return lambda: c_EMN.baddbmm_(a_EMK, b_EKN)
    return lambda: torch.bmm(a_EMK, b_EKN, out=c_EMN)


def _scaled(a_MK: Tensor, b_KN: Tensor, c_MN: Tensor, *, accumulates: bool, name: str) -> Call:
    if accumulates:
        raise ScenarioError(
            f"{name}: fp8 GEMMs cannot accumulate into their output in torch; leave out the 2d "
            "schedules, or take bf16"
        )
    m, k, n = *a_MK.shape, b_KN.shape[1]
    for size, dim in ((k, "K"), (n, "N")):
        if size % 16:
            raise ScenarioError(f"{name}: {dim} = {size} on one gpu must be a multiple of 16 for fp8")
    if a_MK.device.type == "cpu":
        return lambda: c_MN.copy_(a_MK.float() @ b_KN.float())
    one = torch.ones((), device=a_MK.device)
    assert m
    return lambda: torch._scaled_mm(  # noqa: SLF001 - torch has no public fp8 GEMM with an output
        a_MK, b_KN, scale_a=one, scale_b=one, out_dtype=c_MN.dtype, out=c_MN
    )


def _stacked(views: Sequence[Tensor]) -> Tensor:
    """Views of one matrix that lie equally far apart, as one batch."""
    first = views[0]
    apart = views[1].storage_offset() - first.storage_offset()
    return first.as_strided((len(views), *first.shape), (apart, *first.stride()))


def _runs(entries: Sequence[Pair]) -> list[list[Pair]]:
    """Entries in order of address, cut where shape or distance changes."""
    ordered = sorted(entries, key=lambda pair: pair[1].storage_offset())
    runs: list[list[Pair]] = []
    for pair in ordered:
        if runs and _continues(runs[-1], pair):
            runs[-1].append(pair)
        else:
            runs.append([pair])
    return runs


def _continues(run: Sequence[Pair], pair: Pair) -> bool:
    for side in (0, 1):
        last, new = run[-1][side], pair[side]
        if (
            last.shape != new.shape
            or last.untyped_storage().data_ptr() != new.untyped_storage().data_ptr()
        ):
            return False
        step = new.storage_offset() - last.storage_offset()
        if step <= 0:
            return False
        if len(run) > 1:
            before = run[-2][side]
            if last.storage_offset() - before.storage_offset() != step:
                return False
    return True

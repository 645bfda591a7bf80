"""What a user has without plans: NCCL's all-gather and a GEMM a gpu, one after the other or overlapped.

One process drives all gpus. Overlapped, the all-gather of chunk j + 1 runs beside the GEMM of chunk j
on a second stream, as is common practice. On ROCm the same calls reach RCCL.

Shape legend: M rows of A, N columns of B, K contraction, S rows of one gpu's chunk.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.cuda import nccl

from ficco_sim.errors import HardwareError, ScenarioError
from ficco_sim.plan import Buffer, Plan
from ficco_sim.workload import Workload, split
from hw_validate import operations
from hw_validate.environment import nccl_version
from hw_validate.executor import Bound
from hw_validate.gpu import GpuBackend
from hw_validate.program import Backend, Lane, Launch, Mark, Prepared, Run, Step

__all__ = [
    "COLLECTIVES",
    "Alternative",
    "collective_labels",
    "has_collective",
    "prepare_collective",
    "staging",
]

Alternative = Literal["nccl-serial", "nccl-fused", "nccl-batched"]
COLLECTIVES: tuple[Alternative, ...] = get_args(Alternative)
"""One after the other; overlapped with one GEMM a step, whose rows are then put in place; overlapped
with one batched GEMM a step, straight into place."""

Gather = Callable[[list[Tensor], list[Tensor]], None]
PLAYED = "played: a loop of copies stands for the all-gather of NCCL"


def has_collective(workload: Workload) -> bool:
    """Whether there is such a version: of all-gathers; torch has no all-to-all for one process."""
    return workload.pattern == "all_gather_gemm"


def collective_labels(backend: Backend) -> tuple[str, ...]:
    """What is not what it stands for."""
    return () if isinstance(backend, GpuBackend) else (PLAYED,)


def staging(plan: Plan, how: Alternative, num_chunks: int) -> list[Buffer]:
    """What the gpus need beside the buffers of the serial plan."""
    w = plan.workload
    if how == "nccl-serial":
        return []
    rows = w.m // num_chunks
    found = []
    for buffer in plan.buffers:
        cols = {"a": w.k, "c": w.n if how == "nccl-fused" else 0}.get(buffer.name, 0)
        if cols:
            found += [
                Buffer(
                    gpu=buffer.gpu,
                    name=_stage(buffer.name, j),
                    rows=rows,
                    cols=cols,
                    dtype=buffer.dtype,
                )
                for j in range(num_chunks)
            ]
    return found


def _stage(name: str, step: int) -> str:
    return f"nccl.{name}{step}"


def prepare_collective(
    bound: Bound, how: Alternative, num_chunks: int = 1, *, spans: bool = False
) -> Prepared:
    """Make a version ready to run on the buffers of a serial plan: captured, a graph a gpu.

    Parameters
    ----------
    num_chunks
        All-gathers of an overlapped version.
    spans
        Also time every all-gather and GEMM.

    Raises
    ------
    ScenarioError
        If gpus share devices, or chunks of all gpus are not equally large.
    HardwareError
        If torch has no NCCL, or NCCL or the capture fails.
    """
    work = _work(bound, how, num_chunks)
    backend = bound.backend
    if not isinstance(backend, GpuBackend):
        return _OnCpu(work)
    if nccl_version() is None:
        raise HardwareError("torch is built without NCCL (or RCCL), which --collectives needs")
    try:
        return _on_gpus(work, backend, spans=spans)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:  # NCCL's own, through torch
        reason = str(error).partition("\n")[0]
        raise HardwareError(f"{how}: NCCL or the capture of it failed: {reason}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gpu:
    """Lanes of a gpu and what runs on them in each step: inputs, gathered rows, GEMM."""

    comm: Lane
    compute: Lane
    sent: tuple[Tensor, ...]
    gathered: tuple[Tensor, ...]
    multiply: tuple[Launch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    how: Alternative
    gpus: tuple[_Gpu, ...]
    num_steps: int

    def submit(self, gather: Gather, streams: "_Streams | _NoStreams", mark: Mark) -> None:
        """Submit all of it: all-gathers in order, each GEMM once its rows are there."""
        for j in range(self.num_steps):
            with _all(mark(_gather_id(g, j), gpu.comm) for g, gpu in enumerate(self.gpus)):
                gather([gpu.sent[j] for gpu in self.gpus], [gpu.gathered[j] for gpu in self.gpus])
            for g, gpu in enumerate(self.gpus):
                streams.follow(gpu.compute, gpu.comm)
                with streams.on(gpu.compute), mark(_gemm_id(g, j), gpu.compute):
                    gpu.multiply[j](streams.handle(gpu.compute))

    def steps(self) -> list[Step]:
        """A step for each span, for the backend that reads them."""
        found = []
        for g, gpu in enumerate(self.gpus):
            for j in range(self.num_steps):
                for name, lane in ((_gather_id(g, j), gpu.comm), (_gemm_id(g, j), gpu.compute)):
                    found.append(Step(id=name, lane=lane, launch=_nothing))
        return found


def _gather_id(gpu: int, step: int) -> str:
    return f"xfer.g{gpu}.s{step}.nccl"


def _gemm_id(gpu: int, step: int) -> str:
    return f"gemm.g{gpu}.s{step}"


def _nothing(_: int) -> None:
    return


@contextmanager
def _all(entered: Iterator[AbstractContextManager[None]]) -> Iterator[None]:
    made = list(entered)
    for one in made:
        one.__enter__()
    yield
    for one in made:
        one.__exit__(None, None, None)


def _work(bound: Bound, how: Alternative, num_chunks: int) -> _Work:
    plan, placement = bound.plan, bound.placement
    w = plan.workload
    if plan.schedule != "serial" or not has_collective(w):
        raise ScenarioError(f"{how}: for the serial plan of an all-gather, not {plan.schedule}")
    if placement.is_emulated:
        raise ScenarioError(f"{how}: every gpu needs a device of its own (--map own)")
    num_steps = 1 if how == "nccl-serial" else num_chunks
    if w.m % (plan.num_gpus * num_steps):
        raise ScenarioError(
            f"{how}: M = {w.m} must be a multiple of {plan.num_gpus} gpus x {num_steps} chunks: "
            "NCCL's all-gather wants equal parts"
        )
    for buffer in staging(plan, how, num_steps):
        bound.memory.add(buffer)
    gpus = [_gpu(bound, gpu, how, num_steps) for gpu in range(plan.num_gpus)]
    return _Work(how=how, gpus=tuple(gpus), num_steps=num_steps)


def _gpu(bound: Bound, gpu: int, how: Alternative, num_steps: int) -> _Gpu:
    plan, device = bound.plan, bound.placement.places[gpu]
    w = plan.workload
    a_MK, b_KN, c_MN = (bound.memory.whole(gpu, name) for name in ("a", "b", "c"))
    size_S = w.m // (plan.num_gpus * num_steps)
    shards = split(w.m, plan.num_gpus)
    sent, gathered, multiply = [], [], []
    for j in range(num_steps):
        own = shards[gpu][0] + j * size_S
        sent.append(a_MK[own : own + size_S])
        name = _gemm_id(gpu, j)
        if how == "nccl-serial":
            gathered.append(a_MK)
            multiply.append(operations.gemm([(a_MK, c_MN)], b_KN, accumulates=False, name=name))
            continue
        chunk = bound.memory.whole(gpu, _stage("a", j))
        gathered.append(chunk)
        places = [
            (
                chunk[peer * size_S : (peer + 1) * size_S],
                c_MN[shards[peer][0] + j * size_S : shards[peer][0] + (j + 1) * size_S],
            )
            for peer in range(plan.num_gpus)
        ]
        if how == "nccl-batched":
            multiply.append(operations.gemm(places, b_KN, accumulates=False, name=name))
        else:
            product = bound.memory.whole(gpu, _stage("c", j))
            multiply.append(_put_back(chunk, b_KN, product, c_MN, j, plan.num_gpus, num_steps, name))
    return _Gpu(
        comm=Lane(gpu=gpu, device=device, name="nccl"),
        compute=Lane(gpu=gpu, device=device, name="compute0"),
        sent=tuple(sent),
        gathered=tuple(gathered),
        multiply=tuple(multiply),
    )


def _put_back(
    chunk: Tensor,
    b_KN: Tensor,
    product: Tensor,
    c_MN: Tensor,
    step: int,
    num_gpus: int,
    num_steps: int,
    name: str,
) -> Launch:
    """One GEMM over the gathered rows, then each gpu's rows to their place, by torch's own copy."""
    gemm = operations.gemm([(chunk, product)], b_KN, accumulates=False, name=name)
    there = c_MN.view(num_gpus, num_steps, -1, c_MN.shape[1])[:, step]
    here = product.view(num_gpus, -1, c_MN.shape[1])

    def launch(stream: int) -> None:
        gemm(stream)
        there.copy_(here)

    return launch


class _Streams:
    """The backend's streams of lanes, as torch uses them."""

    def __init__(self, backend: GpuBackend) -> None:
        self._backend = backend

    def on(self, lane: Lane) -> AbstractContextManager[Any]:
        return torch.cuda.stream(self._backend.stream(lane))

    def handle(self, lane: Lane) -> int:
        return int(self._backend.stream(lane).cuda_stream)

    def follow(self, lane: Lane, other: Lane) -> None:
        """Let a lane wait for what has been submitted to another of its gpu."""
        self._backend.stream(lane).wait_stream(self._backend.stream(other))


class _NoStreams:
    def on(self, _: Lane) -> AbstractContextManager[Any]:
        return nullcontext()

    def handle(self, _: Lane) -> int:
        return 0

    def follow(self, *_: Lane) -> None:
        return


def _unmarked(*_: object) -> AbstractContextManager[None]:
    return nullcontext()


def _on_gpus(work: _Work, backend: GpuBackend, *, spans: bool) -> Prepared:
    streams = _Streams(backend)
    comm = [backend.stream(gpu.comm) for gpu in work.gpus]

    def gather(sent: list[Tensor], gathered: list[Tensor]) -> None:
        nccl.all_gather(  # bytes: NCCL has not every element type
            [part.view(torch.uint8) for part in sent],
            [whole.view(torch.uint8) for whole in gathered],
            streams=comm,
        )

    # communicators and libraries are made outside of the capture
    work.submit(gather, streams, _unmarked)
    backend.synchronize()
    return backend.prepare_together(
        [(gpu.comm, gpu.compute) for gpu in work.gpus],
        lambda mark: work.submit(gather, streams, mark),
        work.steps(),
        spans=spans,
    )


class _OnCpu:
    """The same work in order, with a loop of copies for the all-gather."""

    def __init__(self, work: _Work) -> None:
        self._work = work

    def run(self) -> Run:
        begun: dict[str, tuple[float, float]] = {}

        @contextmanager
        def mark(name: str, _: Lane) -> Iterator[None]:
            start_s = time.perf_counter()
            yield
            begun[name] = (start_s, time.perf_counter())

        started = time.perf_counter()
        self._work.submit(_copied, _NoStreams(), mark)
        seconds = time.perf_counter() - started
        spans = {name: (a - started, b - started) for name, (a, b) in begun.items()}
        return Run(makespan_s=seconds, host_s=seconds, spans=spans)

    def close(self) -> None:
        return


def _copied(sent: Sequence[Tensor], gathered: Sequence[Tensor]) -> None:
    for whole in gathered:
        for part, place in zip(sent, whole.chunk(len(sent)), strict=True):
            place.copy_(part)

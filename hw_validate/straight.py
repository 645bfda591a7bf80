"""Two schedules written straight in torch, without a plan: what the executor must not be slower than.

They take the buffers of a bound plan, so that both versions move and multiply the same memory.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Literal

import torch
from torch import Tensor

from ficco_sim.errors import HardwareError, ScenarioError
from ficco_sim.plan import Region
from ficco_sim.workload import split
from hw_validate.executor import Bound
from hw_validate.gpu import GpuBackend, gate_cycles, late_s
from hw_validate.program import Prepared, Run
from hw_validate.runtime import Runtime

__all__ = ["STRAIGHT", "STRAIGHT_KINDS", "StraightKind", "prepare_straight"]

STRAIGHT = ("serial", "hetero-unfused-1d")
"""Schedules that have a straight version."""

StraightKind = Literal["straight", "straight_tensor_copy"]
STRAIGHT_KINDS: tuple[StraightKind, ...] = ("straight", "straight_tensor_copy")
"""Kinds of records: copies by one memcpy of the runtime, or by ``Tensor.copy_``."""


def prepare_straight(bound: Bound, *, tensor_copies: bool = False) -> Prepared:
    """The straight version of a bound plan's schedule, for gpu 0.

    Parameters
    ----------
    tensor_copies
        Copy by ``Tensor.copy_``, which between devices waits for a stream of the source and lets it
        wait, instead of by one memcpy of the runtime.

    Raises
    ------
    ScenarioError
        If the schedule has none, other gpus compute too, or the backend has no graphs.
    """
    plan = bound.plan
    if plan.schedule not in STRAIGHT or plan.workload.pattern != "all_gather_gemm":
        raise ScenarioError(f"{plan.schedule} of {plan.workload.pattern}: no straight version")
    if plan.workload.dtype == "fp8":
        raise ScenarioError(f"{plan.schedule}: no straight version for fp8, which torch.mm lacks")
    if bound.placement.computing != {0}:
        raise ScenarioError("straight versions are for plans of which gpu 0 alone computes")
    device = bound.placement.places[0]
    body = _serial if plan.schedule == "serial" else _hetero_unfused
    if bound.backend.kind != "gpu":
        return _OnCpu(lambda: body(bound, _OneStream()))
    with torch.cuda.device(device):
        return _Graph(bound, body, device, tensor_copies=tensor_copies)


class _OneStream:
    """Streams of a machine that has none."""

    def on(self, _: str) -> "_OneStream":
        return self

    def copy(self, dst: Tensor, src: Tensor) -> None:
        dst.copy_(src)

    def wait_for(self, *_: str) -> None:
        return

    def __enter__(self) -> None:
        return

    def __exit__(self, *_: object) -> None:
        return


class _Streams:
    """Torch streams by name; all of them start after the main one."""

    def __init__(self, main: torch.cuda.Stream, runtime: Runtime, *, tensor_copies: bool) -> None:
        self._main = main
        self._runtime = runtime
        self._tensor_copies = tensor_copies
        self._made: dict[str, torch.cuda.Stream] = {}
        self._there: dict[torch.device, torch.cuda.Stream] = {}
        self._forked: set[str] = set()

    def on(self, name: str) -> torch.cuda.StreamContext:
        stream = self._made.setdefault(name, torch.cuda.Stream())
        if name not in self._forked:
            stream.wait_stream(self._main)
            self._forked.add(name)
        return torch.cuda.stream(stream)

    def copy(self, dst: Tensor, src: Tensor) -> None:
        """Copy whole rows on the current stream."""
        stream = torch.cuda.current_stream()
        if not self._tensor_copies:
            nbytes = src.numel() * src.element_size()
            self._runtime.memcpy(dst.data_ptr(), src.data_ptr(), nbytes, stream.cuda_stream)
            return
        with ExitStack() as entered:
            if src.is_cuda and src.device != dst.device:
                # Torch copies on the source's current stream, and its default one is never captured.
                there = self._there.setdefault(src.device, torch.cuda.Stream(src.device))
                entered.enter_context(torch.cuda.stream(there))
                entered.enter_context(torch.cuda.stream(stream))
            dst.copy_(src, non_blocking=True)

    def join(self) -> None:
        for name in self._forked:
            self._main.wait_stream(self._made[name])
        self._forked.clear()

    def event(self, name: str) -> torch.cuda.Event:
        event = torch.cuda.Event()
        event.record(self._made[name])
        return event


def _views(bound: Bound, gpu: int, rows: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of A at their owner and on gpu 0, and the rows of C that they give."""
    k, n = bound.plan.workload.k, bound.plan.workload.n
    view = bound.memory.view
    return (
        view(Region(gpu=gpu, buffer="a", rows=rows, cols=(0, k))),
        view(Region(gpu=0, buffer="a", rows=rows, cols=(0, k))),
        view(Region(gpu=0, buffer="c", rows=rows, cols=(0, n))),
    )


def _serial(bound: Bound, streams: "_Streams | _OneStream") -> None:
    """Copy all shards, then one GEMM."""
    plan = bound.plan
    shards = split(plan.workload.m, plan.num_gpus)
    b_KN = bound.memory.whole(0, "b")
    arrived = []
    for gpu in range(1, plan.num_gpus):
        there, here, _ = _views(bound, gpu, shards[gpu])
        with streams.on(f"copy{gpu}"):
            streams.copy(here, there)
        if isinstance(streams, _Streams):
            arrived.append(streams.event(f"copy{gpu}"))
    with streams.on("gemm0"):
        for event in arrived:
            torch.cuda.current_stream().wait_event(event)
        torch.mm(bound.memory.whole(0, "a"), b_KN, out=bound.memory.whole(0, "c"))


def _hetero_unfused(bound: Bound, streams: "_Streams | _OneStream") -> None:
    """The own shard first, then a GEMM for each chunk as it comes, over several streams."""
    plan = bound.plan
    num_gpus, num_chunks = plan.num_gpus, int(plan.knobs["num_chunks"])
    queues = int(plan.knobs["compute_queues"])
    shards = split(plan.workload.m, num_gpus)
    b_KN = bound.memory.whole(0, "b")
    _, own, c_MN = _views(bound, 0, shards[0])
    with streams.on("gemm0"):
        torch.mm(own, b_KN, out=c_MN)
    copies = int(plan.knobs["copy_queues"])
    turn = 1
    for j in range(num_chunks):
        for gpu in range(1, num_gpus):
            start = shards[gpu][0]
            lo, hi = split(shards[gpu][1] - start, num_chunks)[j]
            if lo == hi:
                continue
            there, here, c_MN = _views(bound, gpu, (start + lo, start + hi))
            lane = f"copy{(gpu - 1) % copies}"
            with streams.on(lane):
                streams.copy(here, there)
            with streams.on(f"gemm{turn % queues}"):
                if isinstance(streams, _Streams):
                    torch.cuda.current_stream().wait_event(streams.event(lane))
                torch.mm(here, b_KN, out=c_MN)
            turn += 1


class _OnCpu:
    def __init__(self, body: Callable[[], None]) -> None:
        self._body = body

    def run(self) -> Run:
        started = time.perf_counter()
        self._body()
        seconds = time.perf_counter() - started
        return Run(makespan_s=seconds, host_s=seconds)

    def close(self) -> None:
        return


class _Graph:
    """Torch's own graph of a body, and torch's own events around its replay."""

    def __init__(
        self,
        bound: Bound,
        body: Callable[[Bound, "_Streams | _OneStream"], None],
        device: int,
        *,
        tensor_copies: bool,
    ) -> None:
        self._device = device
        self._backend = bound.backend
        self._main = torch.cuda.Stream()
        assert isinstance(bound.backend, GpuBackend)
        streams = _Streams(self._main, bound.backend.runtime, tensor_copies=tensor_copies)
        with torch.cuda.stream(self._main):
            body(bound, streams)  # libraries load outside of the capture
            streams.join()
        torch.cuda.synchronize(device)
        self._graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(self._graph, stream=self._main):
                body(bound, streams)
                streams.join()
        except RuntimeError as error:
            # The generator still thinks that it is being captured, and would refuse all use.
            torch.cuda.default_generators[device].graphsafe_set_state(torch.Generator(f"cuda:{device}"))
            raise HardwareError(f"torch could not capture the straight version: {error}") from error
        self._longest_s = 0.0  # submission so far
        self._start = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)

    def run(self) -> Run:
        cycles = gate_cycles(self._longest_s)
        with torch.cuda.device(self._device), torch.cuda.stream(self._main):
            torch.cuda._sleep(cycles)  # noqa: SLF001 - the only device-side delay of torch
            self._start.record()
            started = time.perf_counter()
            self._graph.replay()
            self._end.record()
            host_s = time.perf_counter() - started
        self._longest_s = max(self._longest_s, host_s)
        self._backend.synchronize()
        return Run(
            makespan_s=self._start.elapsed_time(self._end) * 1e-3,
            host_s=host_s,
            late_s=late_s(host_s, cycles),
        )

    def close(self) -> None:
        self._backend.synchronize()
        self._graph.reset()

"""Steps on real devices: streams, events, graphs, copy engines and kernels, in one process."""

import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ficco_sim.errors import HardwareError
from hw_validate import kernels
from hw_validate.clocks import ClockOffsets
from hw_validate.environment import require_gpu
from hw_validate.kernels import Piece
from hw_validate.placement import HOST
from hw_validate.program import (
    Lane,
    Launch,
    Mark,
    Pair,
    Prepared,
    Run,
    Step,
    by_demand,
    gpu_groups,
    in_order,
)
from hw_validate.runtime import Runtime, load_runtime

__all__ = ["GpuBackend", "gate_cycles", "late_s"]

FLUSH_BYTES = 256 * 2**20
"""More than the last-level cache of any gpu so far (MI300X: 256 MiB)."""
HEAT_SIZE = 8192  # of square matrices: about 1.5 ms on an H200
MAX_PITCH = 2**31 - 1  # of a strided copy, as CUDA devices state it (cudaDevAttrMaxPitch)
NON_BLOCKING = 1  # cudaStreamNonBlocking, hipStreamNonBlocking
NO_TIMING = 2  # cudaEventDisableTiming, hipEventDisableTiming
GATE_CYCLES = 200_000
"""How long the gate stays shut at least while the host submits graphs: 0.1 ms at 2 GHz."""
MAX_GATE_CYCLES = 40_000_000  # 20 ms
GATE_CYCLES_PER_S = 2e9  # no gpu so far has a higher clock; at a lower one the gate stays shut longer
GATE_MARGIN = 1.5  # over the longest submission so far


class GpuBackend:
    """CUDA or HIP devices of one node.

    Parameters
    ----------
    devices
        Numbers of the devices in use.
    core_blocks
        Blocks of a gpu's core-driven copies together, the compute units that they occupy at most; its
        copy queues share them evenly.

    Raises
    ------
    HardwareError
        If torch, its bindings or the devices are not there.
    """

    kind = "gpu"
    labels: tuple[str, ...] = ()

    def __init__(self, devices: Sequence[int], *, core_blocks: int = 16) -> None:
        require_gpu(max(devices) + 1)
        self.devices = tuple(devices)
        self.core_blocks = core_blocks
        self.runtime: Runtime = load_runtime("hip" if torch.version.hip else "cuda")
        self._streams: dict[Lane, torch.cuda.Stream] = {}
        self._kernels: dict[int, dict[str, Any]] = {}
        self._connected: set[tuple[int, int]] = set()
        self._flush: dict[int, Tensor] = {}
        self._heaters: dict[int, tuple[Tensor, ...]] = {}
        for device in self.devices:
            try:
                torch.cuda.synchronize(device)  # makes the device's context
            except RuntimeError as error:
                reason = str(error).partition("\n")[0]
                raise HardwareError(f"device {device} cannot be used: {reason}") from error
        self.clocks = ClockOffsets(self.runtime, self.devices, self.stream)

    @functools.cache  # noqa: B019 - one backend a process
    def num_compute_units(self, device: int) -> int:
        """Compute units (streaming multiprocessors) of a device."""
        return int(torch.cuda.get_device_properties(device).multi_processor_count)

    def stream(self, lane: Lane) -> torch.cuda.Stream:
        """The stream of a lane, made once.

        Not one of torch's: those come from a pool of 32, and lanes that share one would share the
        GEMM library's workspace across graphs that run at the same time.
        """
        found = self._streams.get(lane)
        if found is None:
            with torch.cuda.device(lane.device):
                handle = self.runtime.call("StreamCreateWithFlags", NON_BLOCKING)
                found = torch.cuda.ExternalStream(int(handle), device=lane.device)
            self._streams[lane] = found
        return found

    def empty(self, place: int, rows: int, cols: int, kind: torch.dtype, *, transposed: bool) -> Tensor:
        """See `Backend.empty`."""
        shape = (cols, rows) if transposed else (rows, cols)
        try:
            if place == HOST:
                made = torch.empty(shape, dtype=kind, pin_memory=True)
            else:
                made = torch.empty(shape, dtype=kind, device=f"cuda:{place}")
        except RuntimeError as error:  # out of memory, of either kind
            where = "pinned host memory" if place == HOST else f"memory on device {place}"
            nbytes = rows * cols * kind.itemsize
            raise HardwareError(
                f"no {where} for {rows} x {cols} elements ({nbytes:,} bytes)"
            ) from error
        return made.t() if transposed else made

    def connect(self, device: int, place: int) -> None:
        """See `Backend.connect`."""
        if place in (HOST, device) or (device, place) in self._connected:
            return
        with torch.cuda.device(device):
            self.runtime.enable_peer_access(device, place)
        self._connected.add((device, place))

    def transfer(self, src: Tensor, dst: Tensor, engine: str, device: int, *, share: int = 1) -> Launch:
        """See `Backend.transfer`."""
        piece = _piece(src, dst).flat()
        if engine == "core":
            blocks = max(1, self.core_blocks // share)
            return self._kernel([piece], (src, dst), device, blocks)
        return self.engine_copy(piece, keep=(src, dst))

    def joint_transfer(self, pairs: Sequence[Pair], device: int) -> Launch:
        """See `Backend.joint_transfer`."""
        del device
        apart = [_piece(src, dst).flat() for src, dst in pairs]
        # no copy may reach from one allocation into another
        places = {
            (src.untyped_storage().data_ptr(), dst.untyped_storage().data_ptr()) for src, dst in pairs
        }
        together = kernels.joined(apart) if len(places) == 1 else apart
        if any(max(piece.src_pitch, piece.dst_pitch) > MAX_PITCH for piece in together):
            together = apart
        keep = tuple(tensor for pair in pairs for tensor in pair)
        copies = [self.engine_copy(piece, keep=keep) for piece in together]

        def launch(stream: int) -> None:
            for copy in copies:
                copy(stream)

        return launch

    def engine_copy(self, piece: Piece, *, keep: tuple[Tensor, ...]) -> Launch:
        """A copy that the stack gives to a copy engine where it can; ``keep`` holds the memory."""
        runtime = self.runtime
        if piece.rows == 1:

            def contiguous(stream: int, _: object = keep) -> None:
                runtime.memcpy(piece.dst, piece.src, piece.row_bytes, stream)

            return contiguous

        def strided(stream: int, _: object = keep) -> None:
            runtime.memcpy_2d(
                piece.dst,
                piece.dst_pitch,
                piece.src,
                piece.src_pitch,
                piece.row_bytes,
                piece.rows,
                stream,
            )

        return strided

    def local_copy(self, pairs: Sequence[Pair], device: int) -> Launch:
        """See `Backend.local_copy`."""
        pieces = [_piece(src, dst).flat() for src, dst in pairs]
        blocks = 2 * self.num_compute_units(device)
        return self._kernel(pieces, tuple(pairs), device, blocks)

    def core_copy(self, pairs: Sequence[Pair], device: int, blocks: int) -> Launch:
        """A core-driven copy by a set number of blocks."""
        return self._kernel([_piece(s, d).flat() for s, d in pairs], tuple(pairs), device, blocks)

    def _kernel(self, pieces: list[Piece], keep: object, device: int, blocks: int) -> Launch:
        name = kernels.kernel_name(kernels.width_of(pieces))
        kernel = self._loaded_kernels(device)[name]
        table = torch.tensor(kernels.table_of(pieces), dtype=torch.int64, device=f"cuda:{device}")
        runtime, count, threads = self.runtime, len(pieces), kernels.COPY_THREADS

        def launch(stream: int, _: object = keep) -> None:
            runtime.launch(kernel, blocks, threads, table.data_ptr(), count, stream)

        return launch

    def _loaded_kernels(self, device: int) -> dict[str, Any]:
        found = self._kernels.get(device)
        if found is None:
            properties = torch.cuda.get_device_properties(device)
            architecture = (
                properties.gcnArchName.split(":")[0]
                if self.runtime.stack == "hip"
                else f"sm_{properties.major}{properties.minor}"
            )
            with torch.cuda.device(device):
                found = self.runtime.compile(kernels.SOURCE, kernels.all_kernels(), architecture)
            self._kernels[device] = found
        return found

    def synchronize(self) -> None:
        """See `Backend.synchronize`."""
        for device in self.devices:
            torch.cuda.synchronize(device)

    def flush(self) -> None:
        """See `Backend.flush`."""
        for device in self.devices:
            if device not in self._flush:
                self._flush[device] = torch.empty(
                    FLUSH_BYTES, dtype=torch.int8, device=f"cuda:{device}"
                )
            self._flush[device].zero_()
        self.synchronize()

    def reserved_bytes(self) -> float:
        """See `Backend.reserved_bytes`."""
        return float(sum(torch.cuda.memory_reserved(device) for device in self.devices))

    def heat(self, seconds: float) -> None:
        """See `Backend.heat`; whatever runs next follows at once."""
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            for device in self.devices:
                factors = self._heaters.get(device)
                if factors is None:
                    shape = (HEAT_SIZE, HEAT_SIZE)
                    made = [
                        torch.randn(shape, device=f"cuda:{device}").to(torch.bfloat16) for _ in range(2)
                    ]
                    factors = self._heaters[device] = (*made, torch.empty_like(made[0]))
                torch.mm(factors[0], factors[1], out=factors[2])
            self.synchronize()

    def prepare(self, steps: Sequence[Step], *, graph: bool, spans: bool) -> Prepared:
        """See `Backend.prepare`."""
        ordered = by_demand(steps) if graph else in_order(steps)
        devices = sorted({step.lane.device for step in ordered})
        return (_Captured if graph else _Eager)(self, ordered, devices, spans=spans)

    def prepare_together(
        self,
        parts: Sequence[Sequence[Lane]],
        submit: Callable[[Mark], None],
        steps: Sequence[Step],
        *,
        spans: bool,
    ) -> Prepared:
        """Capture what a function submits to several gpus at once, a graph for the lanes of each.

        Parameters
        ----------
        parts
            Lanes of each gpu.
        submit
            Submits to the streams of these lanes, and encloses each step by what it is given.
        steps
            Ids and lanes of those steps.
        """
        devices = sorted({lane.device for lanes in parts for lane in lanes})
        return _CapturedTogether(self, list(steps), devices, parts, submit, spans=spans)


def _piece(src: Tensor, dst: Tensor) -> Piece:
    """Bytes of two views that have unit stride along rows."""
    assert src.shape == dst.shape
    size = src.element_size()
    if src.shape[-1] > 1 and not src.stride(-1) == dst.stride(-1) == 1:  # stored by columns
        src, dst = src.t(), dst.t()
    assert src.shape[-1] == 1 or src.stride(-1) == dst.stride(-1) == 1
    rows, cols = src.shape
    return Piece(
        src=src.data_ptr(),
        dst=dst.data_ptr(),
        src_pitch=src.stride(0) * size,
        dst_pitch=dst.stride(0) * size,
        row_bytes=cols * size,
        rows=rows,
    )


def gate_cycles(longest_s: float) -> int:
    """How long to hold devices back where submitting took at most so long until now.

    Several graphs, and copies between devices in them, take longer to submit than one of kernels:
    on two H200 up to 0.14 ms for both, on one 0.37 ms for a plan with 56 copies.
    """
    wanted = int(GATE_MARGIN * longest_s * GATE_CYCLES_PER_S)
    return min(max(GATE_CYCLES, wanted), MAX_GATE_CYCLES)


def late_s(host_s: float, cycles: int) -> float:
    """By how much submitting outlasted the gate."""
    return max(0.0, host_s - cycles / GATE_CYCLES_PER_S)


class _Timed:
    """What captured and eager runs share: events, the common start and the spans."""

    def __init__(
        self, backend: GpuBackend, steps: list[Step], devices: list[int], *, spans: bool
    ) -> None:
        self.backend = backend
        self.runtime = backend.runtime
        self.steps = steps
        self.devices = devices
        self.with_spans = spans
        self._events: list[Any] = []
        self._waited = {wait for step in steps for wait in step.waits}
        self._begins: dict[str, Any] = {}
        self._ends: dict[str, Any] = {}
        self._marks: dict[str, Any] = {}
        self._starts = {device: self.event(device) for device in devices}
        self._origins = {device: Lane(gpu=-1, device=device, name="gate") for device in devices}

    def event(self, device: int, *, timing: bool = True) -> Any:
        with torch.cuda.device(device):
            made = (
                self.runtime.call("EventCreate")
                if timing
                else self.runtime.call("EventCreateWithFlags", NO_TIMING)
            )
        self._events.append(made)
        return made

    def close(self) -> None:
        self.backend.synchronize()
        for event in self._events:
            self.runtime.call("EventDestroy", event)
        self._events = []
        self.steps = []  # and the memory that they hold

    def open_gate(self, cycles: int) -> None:
        """Keep all devices waiting for a while, then start them together."""
        first = self.devices[0]
        for device in self.devices:
            stream = self.backend.stream(self._origins[device])
            with torch.cuda.stream(stream):
                if device == first:
                    if cycles:
                        torch.cuda._sleep(cycles)  # noqa: SLF001 - the only device-side delay of torch
                else:
                    self.runtime.call("StreamWaitEvent", stream.cuda_stream, self._starts[first], 0)
                self.runtime.call("EventRecord", self._starts[device], stream.cuda_stream)

    def follow_gate(self, stream: torch.cuda.Stream, device: int) -> None:
        self.runtime.call("StreamWaitEvent", stream.cuda_stream, self._starts[device], 0)

    def submit(
        self, steps: Iterable[Step], record: Callable[[Any, int], object], first: set[Lane]
    ) -> None:
        """Submit steps in order; ``record`` sets the events that mark spans.

        A step that directly follows another on its lane begins where that ended, which saves an event.
        """
        runtime = self.runtime
        previous: dict[Lane, str] = {}
        done: dict[str, Any] = {}
        lane_of: dict[str, Lane] = {step.id: step.lane for step in self.steps}
        for step in steps:
            stream = self.backend.stream(step.lane)
            handle = stream.cuda_stream
            elsewhere = [w for w in step.waits if lane_of[w] != step.lane]
            with torch.cuda.stream(stream):
                for wait in elsewhere:
                    runtime.call("StreamWaitEvent", handle, done[wait], 0)
                if self.with_spans:
                    if elsewhere or step.lane in first or step.lane not in previous:
                        begin = self._begins[step.id] = self._begins.get(step.id) or self.event(
                            step.lane.device
                        )
                        record(begin, handle)
                    else:
                        self._begins[step.id] = self._ends[previous[step.lane]]
                step.launch(handle)
                if self.with_spans:
                    end = self._ends[step.id] = self._ends.get(step.id) or self.event(step.lane.device)
                    record(end, handle)
                if step.id in self._waited:
                    mark = self._marks.get(step.id)
                    if mark is None:
                        mark = self._marks[step.id] = self.event(step.lane.device, timing=False)
                    runtime.call("EventRecord", mark, handle)
                    done[step.id] = mark
            previous[step.lane] = step.id
            first.discard(step.lane)

    def spans(self) -> dict[str, tuple[float, float]]:
        if not self.with_spans:
            return {}
        found = {}
        for step in self.steps:
            start = self._starts[step.lane.device]
            shift_s = self.backend.clocks.offset_s(self.devices[0], step.lane.device)
            begin_s = self.runtime.elapsed_s(start, self._begins[step.id]) + shift_s
            found[step.id] = (begin_s, self.runtime.elapsed_s(start, self._ends[step.id]) + shift_s)
        return found

    def makespan_s(self, ends: Iterable[tuple[int, Any]]) -> float:
        first = self.devices[0]
        return max(
            self.runtime.elapsed_s(self._starts[device], end)
            + self.backend.clocks.offset_s(first, device)
            for device, end in ends
        )


class _Captured(_Timed):
    """A graph a gpu, or one for all where gpus wait for one another."""

    def __init__(
        self, backend: GpuBackend, steps: list[Step], devices: list[int], *, spans: bool
    ) -> None:
        super().__init__(backend, steps, devices, spans=spans)
        self._graphs: list[tuple[Any, torch.cuda.Stream, int, Any]] = []
        self._longest_s = 0.0  # submission so far
        try:
            self._capture_all()
        except BaseException:
            self.close()
            raise

    def _capture_all(self) -> None:
        for group in gpu_groups(self.steps):
            lanes = list(dict.fromkeys(step.lane for step in group))

            def submit(group: list[Step] = group, lanes: list[Lane] = lanes) -> None:
                self.submit(group, self.runtime.record_in_graph, set(lanes))

            self.capture([lanes], submit)

    def capture(self, parts: Sequence[Sequence[Lane]], submit: Callable[[], None]) -> None:
        """A graph of what is submitted to the lanes of each part, on the device of its first lane."""
        self.backend.synchronize()
        origins: list[torch.cuda.Stream] = []
        try:
            for lanes in parts:
                first = lanes[0]
                origin = self.backend.stream(Lane(gpu=first.gpu, device=first.device, name="origin"))
                with torch.cuda.device(first.device):
                    self.runtime.begin_capture(origin.cuda_stream)
                origins.append(origin)
                self._fork(lanes, origin)
            submit()
            for lanes, origin in zip(parts, origins, strict=True):
                self._join(lanes, origin)
            for lanes in parts:
                device, origin = lanes[0].device, origins.pop(0)
                with torch.cuda.device(device):
                    graph = self.runtime.end_capture(origin.cuda_stream)
                self._graphs.append((graph, origin, device, self.event(device)))
        except BaseException:
            for origin in origins:
                self._abandon(origin)
            raise

    def _fork(self, lanes: Sequence[Lane], origin: torch.cuda.Stream) -> None:
        device = lanes[0].device
        fork = self.event(device, timing=False)
        with torch.cuda.device(device):
            self.runtime.call("EventRecord", fork, origin.cuda_stream)
            for lane in lanes:
                stream = self.backend.stream(lane)
                self.runtime.call("StreamWaitEvent", stream.cuda_stream, fork, 0)

    def _join(self, lanes: Sequence[Lane], origin: torch.cuda.Stream) -> None:
        for lane in lanes:
            join = self.event(lane.device, timing=False)
            with torch.cuda.device(lane.device):
                self.runtime.call("EventRecord", join, self.backend.stream(lane).cuda_stream)
            self.runtime.call("StreamWaitEvent", origin.cuda_stream, join, 0)

    def _abandon(self, origin: torch.cuda.Stream) -> None:
        """End a capture that failed, so that the stream can be used again."""
        try:
            graph = self.runtime.end_capture(origin.cuda_stream)
        except HardwareError:
            return
        self.runtime.call("GraphExecDestroy", graph)

    def run(self) -> Run:
        cycles = gate_cycles(self._longest_s)
        self.open_gate(cycles)
        started = time.perf_counter()
        for graph, origin, device, end in self._graphs:
            self.follow_gate(origin, device)
            with torch.cuda.device(device):
                self.runtime.call("GraphLaunch", graph, origin.cuda_stream)
                self.runtime.call("EventRecord", end, origin.cuda_stream)
        host_s = time.perf_counter() - started
        self._longest_s = max(self._longest_s, host_s)
        self.backend.synchronize()
        return Run(
            makespan_s=self.makespan_s((device, end) for _, _, device, end in self._graphs),
            host_s=host_s,
            spans=self.spans(),
            late_s=late_s(host_s, cycles),
        )

    def close(self) -> None:
        super().close()
        for graph, *_ in self._graphs:
            self.runtime.call("GraphExecDestroy", graph)
        self._graphs = []


class _CapturedTogether(_Captured):
    """Graphs of gpus that one call submits to, as a collective does."""

    def __init__(
        self,
        backend: GpuBackend,
        steps: list[Step],
        devices: list[int],
        parts: Sequence[Sequence[Lane]],
        submit: Callable[[Mark], None],
        *,
        spans: bool,
    ) -> None:
        self._parts = parts
        self._submit_parts = submit
        super().__init__(backend, steps, devices, spans=spans)

    def _capture_all(self) -> None:
        self.capture(self._parts, lambda: self._submit_parts(self._mark))

    @contextlib.contextmanager
    def _mark(self, name: str, lane: Lane) -> Iterator[None]:
        if not self.with_spans:
            yield
            return
        handle = self.backend.stream(lane).cuda_stream
        for found in (self._begins, self._ends):
            found[name] = self.event(lane.device)
        self.runtime.record_in_graph(self._begins[name], handle)
        yield
        self.runtime.record_in_graph(self._ends[name], handle)


class _Eager(_Timed):
    """Every step submitted by the host, each time."""

    def __init__(
        self, backend: GpuBackend, steps: list[Step], devices: list[int], *, spans: bool
    ) -> None:
        super().__init__(backend, steps, devices, spans=spans)
        self._last = {
            lane: self.event(lane.device) for lane in dict.fromkeys(step.lane for step in steps)
        }

    def run(self) -> Run:
        self.open_gate(0)
        started = time.perf_counter()
        for lane in self._last:
            self.follow_gate(self.backend.stream(lane), lane.device)
        self.submit(self.steps, self._record, set(self._last))
        for lane, event in self._last.items():
            with torch.cuda.device(lane.device):
                self.runtime.call("EventRecord", event, self.backend.stream(lane).cuda_stream)
        host_s = time.perf_counter() - started
        self.backend.synchronize()
        return Run(
            makespan_s=self.makespan_s((lane.device, event) for lane, event in self._last.items()),
            host_s=host_s,
            spans=self.spans(),
        )

    def _record(self, event: Any, stream: int) -> None:
        self.runtime.call("EventRecord", event, stream)

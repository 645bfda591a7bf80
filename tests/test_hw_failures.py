"""Layer: harness without a gpu. What is left behind, and what is said, when a stack refuses."""

import pytest
import torch
from hw_strategies import lane, step
from test_gpu_backend import Fake, live
from test_runtime import Code, Stack

from ficco_sim.errors import HardwareError
from hw_validate import gpu
from hw_validate.gpu import GpuBackend
from hw_validate.runtime import Runtime


@pytest.fixture
def fake(monkeypatch):
    return Fake(monkeypatch)


def fail(_):
    raise ZeroDivisionError


GOOD = (step("a", on=lane(0)), step("b", on=lane(1)))


@pytest.mark.parametrize("work_before", [False, True])
def test_a_capture_that_fails_leaves_no_graph_and_no_event(fake, work_before):
    """Where ending it succeeds, as nothing is left to join, and where it does not.

    The graph of the gpu before is ready by then.
    """
    bad = step("bad", ["b"] if work_before else [], lane(1, "compute0"), fail)
    steps = [*live(fake, GOOD if work_before else GOOD[:1], {}), bad]
    backend = GpuBackend((0, 1))
    with pytest.raises(ZeroDivisionError):
        backend.prepare(steps, graph=True, spans=True)
    assert fake.graphs == []
    assert not any(event.alive for event in fake.events)
    assert all(stream.capture is None for stream in fake.streams.values())
    ready = backend.prepare(live(fake, GOOD, {}), graph=True, spans=True)
    assert len(fake.graphs) == 2
    assert set(ready.run().spans) == {"a", "b"}


def test_a_capture_that_cannot_be_ended_well_says_why_it_failed(fake, monkeypatch):
    def end_capture(handle):
        Fake.end_capture(fake, handle)
        raise HardwareError("cudaStreamEndCapture: unjoined work (error 904)")

    steps = [step("bad", on=lane(0), launch=fail)]
    monkeypatch.setattr(fake, "end_capture", end_capture)
    with pytest.raises(ZeroDivisionError):  # not the error that followed from it
        GpuBackend((0,)).prepare(steps, graph=True, spans=False)
    assert not any(event.alive for event in fake.events)


def test_a_graph_that_cannot_be_made_ready_leaves_no_event(fake, monkeypatch):
    def end_capture(handle):
        fake.graphs.remove(Fake.end_capture(fake, handle))
        raise HardwareError("cudaGraphInstantiateWithFlags: out of memory (error 2)")

    monkeypatch.setattr(fake, "end_capture", end_capture)
    with pytest.raises(HardwareError, match="GraphInstantiate"):
        GpuBackend((0,)).prepare(live(fake, [step("a", on=lane(0))], {}), graph=True, spans=True)
    assert not any(event.alive for event in fake.events)


@pytest.mark.usefixtures("fake")
def test_a_device_that_cannot_be_used_is_named(monkeypatch):
    def busy(_):
        raise RuntimeError("CUDA error: busy or unavailable\nmore lines")

    monkeypatch.setattr(torch.cuda, "synchronize", busy)
    with pytest.raises(HardwareError, match=r"^device 3 cannot be used: CUDA error: busy[^\n]*$"):
        GpuBackend((3,))


# views that are copied


def by_columns(rows, cols):
    return torch.arange(rows * cols).reshape(cols, rows).t()


def by_rows(rows, cols):
    return torch.arange(rows * cols).reshape(rows, cols)


def moved(src, dst):
    """Copy a piece's bytes the way an engine does."""
    piece = gpu._piece(src, dst)
    flat_src, flat_dst = (
        torch.as_strided(t, (t.untyped_storage().nbytes() // 8,), (1,), 0) for t in (src, dst)
    )
    for row in range(piece.rows):
        size = piece.row_bytes // 8
        begin_src = (piece.src - flat_src.data_ptr() + row * piece.src_pitch) // 8
        begin_dst = (piece.dst - flat_dst.data_ptr() + row * piece.dst_pitch) // 8
        flat_dst[begin_dst : begin_dst + size] = flat_src[begin_src : begin_src + size]
    return piece


@pytest.mark.parametrize("rows", [slice(0, 6), slice(2, 5), slice(3, 4)])
@pytest.mark.parametrize("cols", [slice(0, 4), slice(1, 3), slice(2, 3)])
@pytest.mark.parametrize("make", [by_rows, by_columns])
def test_views_that_are_stored_alike_are_copied_whole(make, rows, cols):
    src, dst = make(6, 4)[rows, cols], torch.zeros_like(make(6, 4))[rows, cols]
    moved(src, dst)
    assert torch.equal(src, dst)


@pytest.mark.parametrize("flip", [False, True])
def test_a_single_row_may_be_stored_by_columns_at_one_end(flip):
    """One row of a matrix by columns, and a matrix of one row, whose stride says nothing."""
    src, dst = by_columns(1, 4), torch.zeros(4, 3, dtype=torch.int64).t()[1:2]
    assert (src.stride(-1), dst.stride(-1)) == (1, 3)
    if flip:
        src, dst = dst, src
        src.copy_(by_rows(1, 4) + 7)
    moved(src, dst)
    assert torch.equal(src, dst)


# compile errors


class Talking(Stack):
    """A stack whose compiler says what is wrong."""

    said = b"kernels(3): error: identifier is undefined\n1 error detected"

    def __init__(self, name):
        super().__init__(name)
        prefix = "nvrtc" if name == "cuda" else "hiprtc"
        size = len(self.said) + 1
        vars(self.compiler)[f"{prefix}GetProgramLogSize"] = lambda _: (Code.success, size)
        vars(self.compiler)[f"{prefix}GetProgramLog"] = self._tell
        self.codes["CompileProgram"] = Code.invalidValue

    def _tell(self, program, log):
        assert program == "program"
        assert len(log) == len(self.said) + 1
        if isinstance(log, bytearray):
            log[:] = self.said + b"\0"
            return (Code.success,)
        import ctypes

        # cuda's bindings fill bytes in place
        ctypes.memmove(ctypes.c_char_p(log), self.said + b"\0", len(log))
        return (Code.success,)


@pytest.mark.parametrize("name", ["cuda", "hip"])
def test_a_kernel_that_does_not_compile_says_why(name):
    stack = Talking(name)
    runtime = Runtime(name, stack.runtime, stack.driver, stack.compiler)
    with pytest.raises(HardwareError) as caught:
        runtime.compile("broken", ("copy1",), "x")
    assert str(caught.value) == f"compile: invalidValue (error 1): {stack.said.decode()}"


@pytest.mark.parametrize("name", ["cuda", "hip"])
def test_a_compiler_without_a_log_still_gives_its_code(name):
    stack = Stack(name)
    stack.codes["CompileProgram"] = Code.invalidValue
    runtime = Runtime(name, stack.runtime, stack.driver, stack.compiler)
    with pytest.raises(HardwareError, match=r"^compile: invalidValue \(error 1\)$"):
        runtime.compile("broken", ("copy1",), "x")

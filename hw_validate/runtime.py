"""CUDA's and HIP's runtime by their common names; every return code is checked.

Both stacks have the same functions but for a prefix, and both bindings return a tuple whose first
item is the error code. Kernels are compiled when first needed, from one source for both.
"""

import ctypes
import functools
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ficco_sim.errors import HardwareError

__all__ = ["Runtime", "load_runtime"]

BINDINGS = {
    "cuda": ("cuda.bindings.runtime", "cuda.bindings.driver", "cuda.bindings.nvrtc"),
    "hip": ("hip.hip", "hip.hip", "hip.hiprtc"),
}
EXTERNAL = 1  # cudaEventRecordExternal, hipEventRecordExternal: a node of a graph that sets the event
ALREADY_ENABLED = 704  # cudaErrorPeerAccessAlreadyEnabled, hipErrorPeerAccessAlreadyEnabled


class Runtime:
    """Checked calls of one stack.

    Parameters
    ----------
    stack
        ``cuda`` or ``hip``.
    runtime, driver, compiler
        The modules of its bindings.
    """

    def __init__(
        self, stack: str, runtime: ModuleType, driver: ModuleType, compiler: ModuleType
    ) -> None:
        self.stack = stack
        self._runtime = runtime
        self._driver = driver
        self._compiler = compiler
        self._memcpy = functools.partial(
            self._function("MemcpyAsync"), kind=self._constant("MemcpyKind", "MemcpyDefault")
        )
        self._memcpy_2d = functools.partial(
            self._function("Memcpy2DAsync"), kind=self._constant("MemcpyKind", "MemcpyDefault")
        )
        self._relaxed = self._constant("StreamCaptureMode", "StreamCaptureModeRelaxed")

    def _function(self, name: str) -> Any:
        return getattr(self._runtime, f"{self.stack}{name}")

    def _constant(self, enum: str, name: str) -> Any:
        return getattr(getattr(self._runtime, f"{self.stack}{enum}"), f"{self.stack}{name}")

    def call(self, name: str, *args: Any) -> Any:
        """Call a function of the runtime by its name without prefix; returns its only value.

        Raises
        ------
        HardwareError
            If it returns an error code; the message names the call and the code.
        """
        return _checked(f"{self.stack}{name}", self._function(name)(*args))

    def memcpy(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        """Copy contiguous bytes between any two places, by a copy engine between devices."""
        _checked("memcpy", self._memcpy(dst, src, nbytes, stream=stream))

    def memcpy_2d(
        self, dst: int, dst_pitch: int, src: int, src_pitch: int, width: int, rows: int, stream: int
    ) -> None:
        """Copy ``rows`` rows of ``width`` bytes that lie a pitch apart."""
        _checked(
            "memcpy 2d",
            self._memcpy_2d(dst, dst_pitch, src, src_pitch, width, rows, stream=stream),
        )

    def begin_capture(self, stream: int) -> None:
        """Record what is submitted to a stream, and to those that wait for it, into a graph."""
        self.call("StreamBeginCapture", stream, self._relaxed)

    def end_capture(self, stream: int) -> Any:
        """End a capture; returns the graph ready to launch."""
        graph = self.call("StreamEndCapture", stream)
        try:
            return self.call("GraphInstantiateWithFlags", graph, 0)
        finally:
            self.call("GraphDestroy", graph)

    def record_in_graph(self, event: Any, stream: int) -> None:
        """Record an event whose time can be read after each launch of the graph being captured."""
        self.call("EventRecordWithFlags", event, stream, EXTERNAL)

    def elapsed_s(self, start: Any, end: Any) -> float:
        """Seconds between two events of one device that have been reached."""
        return float(self.call("EventElapsedTime", start, end)) * 1e-3

    def can_access_peer(self, device: int, peer: int) -> bool:
        """Whether a device can read another's memory directly."""
        return bool(self.call("DeviceCanAccessPeer", device, peer))

    def enable_peer_access(self, device: int, peer: int) -> None:
        """Let a device read another's memory directly; without it copies are staged in the host.

        Raises
        ------
        HardwareError
            If the two devices have no peer access.
        """
        if not self.can_access_peer(device, peer):
            raise HardwareError(
                f"device {device} has no peer access to device {peer}: copies would be staged in host "
                "memory; choose other devices with --map, or hold the data in the host ('=host')"
            )
        self.call("SetDevice", device)
        code = int(self._function("DeviceEnablePeerAccess")(peer, 0)[0])
        if code not in (0, ALREADY_ENABLED):
            raise HardwareError(f"peer access from device {device} to {peer}: error {code}")

    def compile(self, source: str, names: tuple[str, ...], architecture: str) -> dict[str, Any]:
        """Compile kernels and load them on the current device.

        Parameters
        ----------
        source
            C++ for both stacks.
        names
            Kernels to return, declared ``extern "C"``.
        architecture
            ``sm_90`` or ``gfx942``.
        """
        option = "--gpu-architecture=" if self.stack == "cuda" else "--offload-arch="
        options = [f"{option}{architecture}".encode()]
        image = (self._compile_cuda if self.stack == "cuda" else self._compile_hip)(
            source.encode(), options
        )
        prefix = "cu" if self.stack == "cuda" else "hip"
        load = getattr(self._driver, f"{prefix}ModuleLoadData")
        find = getattr(self._driver, f"{prefix}ModuleGetFunction")
        module = _checked("load kernels", load(image))
        return {name: _checked(name, find(module, name.encode())) for name in names}

    def _compile_cuda(self, source: bytes, options: list[bytes]) -> Any:
        rtc = self._compiler
        program = _checked("compile", rtc.nvrtcCreateProgram(source, b"kernels.cu", 0, [], []))
        result = rtc.nvrtcCompileProgram(program, len(options), options)
        _compiled(result, lambda: self._log("nvrtc", program))
        image = b" " * _checked("compile", rtc.nvrtcGetCUBINSize(program))
        _checked("compile", rtc.nvrtcGetCUBIN(program, image))
        return image

    def _compile_hip(self, source: bytes, options: list[bytes]) -> Any:
        rtc = self._compiler
        program = _checked("compile", rtc.hiprtcCreateProgram(source, b"kernels.hip", 0, None, None))
        result = rtc.hiprtcCompileProgram(program, len(options), options)
        _compiled(result, lambda: self._log("hiprtc", program))
        image = bytearray(_checked("compile", rtc.hiprtcGetCodeSize(program)))
        _checked("compile", rtc.hiprtcGetCode(program, image))
        return image

    def _log(self, prefix: str, program: Any) -> str:
        """What the compiler said of a program."""
        size = _checked("log", getattr(self._compiler, f"{prefix}GetProgramLogSize")(program))
        log = b" " * size if self.stack == "cuda" else bytearray(size)
        _checked("log", getattr(self._compiler, f"{prefix}GetProgramLog")(program, log))
        return log.rstrip(b"\0 \n").decode(errors="replace")

    def launch(
        self, kernel: Any, blocks: int, threads: int, table: int, count: int, stream: int
    ) -> None:
        """Launch a kernel that takes a pointer and a 32-bit number."""
        grid = (blocks, 1, 1, threads, 1, 1, 0, stream)
        if self.stack == "cuda":
            values = ((table, count), (ctypes.c_void_p, ctypes.c_uint32))
            _checked("launch", self._driver.cuLaunchKernel(kernel, *grid, values, 0))
        else:
            extra = (ctypes.c_void_p(table), ctypes.c_uint32(count))
            _checked(
                "launch",
                self._driver.hipModuleLaunchKernel(kernel, *grid, kernelParams=None, extra=extra),
            )


def _checked(name: str, result: tuple[Any, ...]) -> Any:
    """The value of a call, if its error code is 0."""
    code, *values = result
    if int(code) != 0:
        raise HardwareError(f"{name}: {getattr(code, 'name', code)} (error {int(code)})")
    return values[0] if len(values) == 1 else values


def _compiled(result: tuple[Any, ...], read_log: Callable[[], str]) -> None:
    """Refuse the result of a compilation that failed, with what the compiler said."""
    try:
        _checked("compile", result)
    except HardwareError as error:
        try:
            log = read_log()
        except (HardwareError, AttributeError):  # the error itself says more than its lost log
            log = ""
        raise HardwareError(f"{error}: {log}" if log else str(error)) from error


def _module(name: str) -> ModuleType:
    """A module, also where a package only names one that lies elsewhere, as hip-python 10 does."""
    package, _, short = name.rpartition(".")
    found = getattr(importlib.import_module(package), short, None)
    return found if isinstance(found, ModuleType) else importlib.import_module(name)


def load_runtime(stack: str) -> Runtime:
    """The runtime of ``cuda`` or ``hip``.

    Raises
    ------
    HardwareError
        If its Python bindings are not installed; the message says which package to install.
    """
    try:
        return Runtime(stack, *map(_module, BINDINGS[stack]))
    except ImportError as error:
        package = "cuda-bindings" if stack == "cuda" else "hip-python"
        raise HardwareError(
            f"{package} is not installed ({error}); install ficco[{stack}], in the version of your "
            "driver"
        ) from error

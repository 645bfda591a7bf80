"""Layer: harness without a gpu. Each call reaches the right function of either stack's bindings."""

import ctypes
import enum
import sys
from types import ModuleType, SimpleNamespace

import pytest

from ficco_sim.errors import HardwareError
from hw_validate import kernels
from hw_validate.runtime import Runtime, load_runtime


class Code(enum.IntEnum):
    success = 0
    invalidValue = 1  # noqa: N815 - as the stacks spell it
    peerAccessAlreadyEnabled = 704  # noqa: N815 - as the stacks spell it


VALUES = {
    "EventCreate": ("event",),
    "EventCreateWithFlags": ("event",),
    "EventElapsedTime": (2.5,),
    "StreamEndCapture": ("graph",),
    "GraphInstantiateWithFlags": ("executable",),
    "DeviceCanAccessPeer": (1,),
    "DriverGetVersion": (13010,),
    "ModuleLoadData": ("module",),
    "ModuleGetFunction": ("function",),
    "CreateProgram": ("program",),
    "GetCUBINSize": (5,),
    "GetCodeSize": (5,),
    "TwoThings": ("one", "two"),
}
CALLS = (
    *VALUES, "MemcpyAsync", "Memcpy2DAsync", "StreamBeginCapture", "GraphDestroy", "GraphLaunch",
    "EventRecord", "EventRecordWithFlags", "StreamWaitEvent", "SetDevice", "DeviceEnablePeerAccess",
    "CompileProgram", "LaunchKernel", "ModuleLaunchKernel",
)  # fmt: skip


class Stack:
    """Bindings of one stack that record their calls: (function, arguments, named arguments)."""

    def __init__(self, name):
        self.name = name
        self.calls = []
        self.codes = {}
        driver, compiler = ("cu", "nvrtc") if name == "cuda" else ("hip", "hiprtc")
        self.runtime = self._module(name)
        self.driver = self._module(driver)
        self.compiler = self._module(compiler)
        fill = "GetCUBIN" if name == "cuda" else "GetCode"
        setattr(self.compiler, compiler + fill, self._fill(compiler + fill))
        kinds = {f"{name}MemcpyDefault": "default"}
        modes = {f"{name}StreamCaptureModeRelaxed": "relaxed"}
        setattr(self.runtime, f"{name}MemcpyKind", SimpleNamespace(**kinds))
        setattr(self.runtime, f"{name}StreamCaptureMode", SimpleNamespace(**modes))

    def _module(self, prefix):
        return SimpleNamespace(**{prefix + call: self._function(prefix + call, call) for call in CALLS})

    def _function(self, full_name, call):
        def function(*args, **named):
            self.calls.append((full_name, args, named))
            return (self.codes.get(call, Code.success), *VALUES.get(call, ()))

        return function

    def _fill(self, full_name):
        def function(program, image):
            assert len(image) == 5
            self.calls.append((full_name, (program,), {}))
            if isinstance(image, bytearray):
                image[:] = b"IMAGE"
            return (Code.success,)

        return function

    @property
    def names(self):
        return [name for name, _, _ in self.calls]


@pytest.fixture(params=["cuda", "hip"])
def stack(request):
    return Stack(request.param)


@pytest.fixture
def runtime(stack):
    return Runtime(stack.name, stack.runtime, stack.driver, stack.compiler)


def test_copies(stack, runtime):
    runtime.memcpy(0x1000, 0x2000, 64, 7)
    runtime.memcpy_2d(0x1000, 128, 0x2000, 256, 64, 3, 7)
    named = {"kind": "default", "stream": 7}
    assert stack.calls == [
        (f"{stack.name}MemcpyAsync", (0x1000, 0x2000, 64), named),
        (f"{stack.name}Memcpy2DAsync", (0x1000, 128, 0x2000, 256, 64, 3), named),
    ]


def test_capture_ends_in_an_executable_graph_and_frees_the_other(stack, runtime):
    runtime.begin_capture(7)
    runtime.record_in_graph("event", 7)
    assert runtime.end_capture(7) == "executable"
    assert stack.calls == [
        (f"{stack.name}StreamBeginCapture", (7, "relaxed"), {}),
        (f"{stack.name}EventRecordWithFlags", ("event", 7, 1), {}),
        (f"{stack.name}StreamEndCapture", (7,), {}),
        (f"{stack.name}GraphInstantiateWithFlags", ("graph", 0), {}),
        (f"{stack.name}GraphDestroy", ("graph",), {}),
    ]


def test_a_graph_that_cannot_be_made_ready_is_freed(stack, runtime):
    stack.codes["GraphInstantiateWithFlags"] = Code.invalidValue
    with pytest.raises(HardwareError, match="GraphInstantiateWithFlags"):
        runtime.end_capture(7)
    assert stack.calls[-1] == (f"{stack.name}GraphDestroy", ("graph",), {})


def test_times_are_seconds(stack, runtime):
    assert runtime.elapsed_s("start", "end") == 2.5e-3
    assert stack.calls == [(f"{stack.name}EventElapsedTime", ("start", "end"), {})]


def test_any_call_by_its_common_name(stack, runtime):
    assert runtime.call("EventCreateWithFlags", 2) == "event"
    assert runtime.call("GraphLaunch", "graph", 7) == []
    assert runtime.call("TwoThings") == ["one", "two"]
    assert stack.names == [stack.name + x for x in ("EventCreateWithFlags", "GraphLaunch", "TwoThings")]


@pytest.mark.parametrize("name", ["EventCreate", "GraphLaunch", "SetDevice", "StreamWaitEvent"])
def test_an_error_code_names_call_and_code(stack, runtime, name):
    stack.codes[name] = Code.invalidValue
    with pytest.raises(HardwareError, match=rf"^{stack.name}{name}: invalidValue \(error 1\)$"):
        runtime.call(name, 1, 2)


@pytest.mark.parametrize(
    ("name", "work", "message"),
    [
        ("MemcpyAsync", lambda r: r.memcpy(1, 2, 3, 4), "memcpy: invalidValue"),
        ("Memcpy2DAsync", lambda r: r.memcpy_2d(1, 2, 3, 4, 5, 6, 7), "memcpy 2d: invalidValue"),
        ("CompileProgram", lambda r: r.compile("", ("copy1",), "x"), "compile: invalidValue"),
        ("ModuleLoadData", lambda r: r.compile("", ("copy1",), "x"), "load kernels: invalidValue"),
        ("ModuleGetFunction", lambda r: r.compile("", ("copy1",), "x"), "copy1: invalidValue"),
        ("StreamBeginCapture", lambda r: r.begin_capture(7), "StreamBeginCapture: invalidValue"),
        ("EventElapsedTime", lambda r: r.elapsed_s(1, 2), "EventElapsedTime: invalidValue"),
    ],
)
def test_every_kind_of_call_is_checked(stack, runtime, name, work, message):
    stack.codes[name] = Code.invalidValue
    with pytest.raises(HardwareError, match=message):
        work(runtime)


def test_a_launch_that_fails_is_an_error(stack, runtime):
    stack.codes |= dict.fromkeys(("LaunchKernel", "ModuleLaunchKernel"), Code.invalidValue)
    with pytest.raises(HardwareError, match=r"launch: invalidValue \(error 1\)"):
        runtime.launch("kernel", 1, 1, 0, 1, 0)


def test_codes_may_be_plain_numbers(stack, runtime):
    stack.codes["SetDevice"] = 999
    with pytest.raises(HardwareError, match=r"SetDevice: 999 \(error 999\)"):
        runtime.call("SetDevice", 0)


def test_peer_access_is_enabled_on_the_reading_device(stack, runtime):
    runtime.enable_peer_access(2, 5)
    assert stack.calls == [
        (f"{stack.name}DeviceCanAccessPeer", (2, 5), {}),
        (f"{stack.name}SetDevice", (2,), {}),
        (f"{stack.name}DeviceEnablePeerAccess", (5, 0), {}),
    ]


def test_peer_access_that_torch_enabled_before_is_fine(stack, runtime):
    stack.codes["DeviceEnablePeerAccess"] = Code.peerAccessAlreadyEnabled
    runtime.enable_peer_access(0, 1)
    stack.codes["DeviceEnablePeerAccess"] = Code.invalidValue
    with pytest.raises(HardwareError, match="peer access from device 0 to 1: error 1"):
        runtime.enable_peer_access(0, 1)


def test_no_peer_access_says_what_to_do(stack, runtime, monkeypatch):
    monkeypatch.setitem(VALUES, "DeviceCanAccessPeer", (0,))
    with pytest.raises(HardwareError, match=r"device 0 has no peer access to device 1.*--map.*=host"):
        runtime.enable_peer_access(0, 1)
    assert stack.names == [f"{stack.name}DeviceCanAccessPeer"]


def test_cuda_compiles_loads_and_launches():
    stack = Stack("cuda")
    runtime = Runtime("cuda", stack.runtime, stack.driver, stack.compiler)
    found = runtime.compile(kernels.SOURCE, ("copy16", "copy1"), "sm_90")
    assert found == {"copy16": "function", "copy1": "function"}
    runtime.launch("function", 16, 512, 0xABC, 3, 7)
    options = [b"--gpu-architecture=sm_90"]
    assert stack.calls == [
        ("nvrtcCreateProgram", (kernels.SOURCE.encode(), b"kernels.cu", 0, [], []), {}),
        ("nvrtcCompileProgram", ("program", 1, options), {}),
        ("nvrtcGetCUBINSize", ("program",), {}),
        ("nvrtcGetCUBIN", ("program",), {}),
        ("cuModuleLoadData", (b"     ",), {}),  # the binding fills the text in place
        ("cuModuleGetFunction", ("module", b"copy16"), {}),
        ("cuModuleGetFunction", ("module", b"copy1"), {}),
        (
            "cuLaunchKernel",
            (
                "function", 16, 1, 1, 512, 1, 1, 0, 7,
                ((0xABC, 3), (ctypes.c_void_p, ctypes.c_uint32)), 0,
            ),
            {},
        ),
    ]  # fmt: skip


def test_hip_compiles_loads_and_launches():
    stack = Stack("hip")
    runtime = Runtime("hip", stack.runtime, stack.driver, stack.compiler)
    assert runtime.compile(kernels.SOURCE, ("copy8",), "gfx942") == {"copy8": "function"}
    runtime.launch("function", 16, 512, 0xABC, 3, 7)
    options = [b"--offload-arch=gfx942"]
    assert stack.calls[:-1] == [
        ("hiprtcCreateProgram", (kernels.SOURCE.encode(), b"kernels.hip", 0, None, None), {}),
        ("hiprtcCompileProgram", ("program", 1, options), {}),
        ("hiprtcGetCodeSize", ("program",), {}),
        ("hiprtcGetCode", ("program",), {}),
        ("hipModuleLoadData", (bytearray(b"IMAGE"),), {}),
        ("hipModuleGetFunction", ("module", b"copy8"), {}),
    ]
    name, args, named = stack.calls[-1]
    assert (name, args) == ("hipModuleLaunchKernel", ("function", 16, 1, 1, 512, 1, 1, 0, 7))
    assert named["kernelParams"] is None
    table, count = named["extra"]
    assert (type(table), table.value) == (ctypes.c_void_p, 0xABC)
    assert (type(count), count.value) == (ctypes.c_uint32, 3)


# finding the bindings


def modules_of(monkeypatch, stack, names):
    for name, content in names.items():
        module = ModuleType(name)
        vars(module).update(vars(content) if content else {})
        monkeypatch.setitem(sys.modules, name, module)
        package, _, short = name.rpartition(".")
        if package:
            monkeypatch.setattr(sys.modules[package], short, module, raising=False)


def test_cuda_bindings_are_found(monkeypatch):
    stack = Stack("cuda")
    names = {
        "cuda": None,
        "cuda.bindings": None,
        "cuda.bindings.runtime": stack.runtime,
        "cuda.bindings.driver": stack.driver,
        "cuda.bindings.nvrtc": stack.compiler,
    }
    modules_of(monkeypatch, stack, names)
    runtime = load_runtime("cuda")
    assert runtime.stack == "cuda"
    runtime.memcpy(1, 2, 3, 4)
    assert stack.names == ["cudaMemcpyAsync"]


@pytest.mark.parametrize("prefix", ["hip", "rocm.bindings"])
def test_hip_bindings_are_found_where_they_lie(monkeypatch, prefix):
    """From version 10 on, hip-python only names modules of another package."""
    stack = Stack("hip")
    merged = SimpleNamespace(**vars(stack.runtime))
    names = {"hip": None, "rocm": None, "rocm.bindings": None}
    names |= {f"{prefix}.hip": merged, f"{prefix}.hiprtc": stack.compiler}
    modules_of(monkeypatch, stack, names)
    for short in ("hip", "hiprtc"):
        module = sys.modules[f"{prefix}.{short}"]
        monkeypatch.setattr(sys.modules["hip"], short, module, raising=False)
    load_runtime("hip").memcpy(1, 2, 3, 4)
    assert stack.names == ["hipMemcpyAsync"]


@pytest.mark.parametrize(("name", "package"), [("cuda", "cuda-bindings"), ("hip", "hip-python")])
@pytest.mark.parametrize("half", [False, True])
def test_absent_bindings_are_named(monkeypatch, name, package, half):
    for module in [x for x in sys.modules if x.split(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, ModuleType(name) if half else None)
    with pytest.raises(HardwareError, match=rf"^{package} is not installed .*install ficco\[{name}\]"):
        load_runtime(name)

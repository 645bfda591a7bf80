"""What a record must say of the machine it was measured on; nothing in it tells whose machine it is."""

import ctypes
import hashlib
import importlib.metadata
import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any, TypeVar

from ficco_sim.errors import HardwareError
from ficco_sim.records import Sensors
from hw_validate.runtime import load_runtime

__all__ = ["collect_environment", "nccl_version", "read_sensors", "require_gpu", "require_torch"]

T = TypeVar("T")

SYSFS = Path("/sys")
CPUINFO = Path("/proc/cpuinfo")
BINDINGS = {"cuda": "cuda-bindings", "hip": "hip-python"}
PCIE_GENERATIONS = {"2.5": "1", "5.0": "2", "8.0": "3", "16.0": "4", "32.0": "5", "64.0": "6"}  # GT/s
NVML_SM_CLOCK = 1
# variables that change times or results; those that name devices or files are left out
VARIABLES = (
    "AMD_SERIALIZE_COPY",
    "AMD_SERIALIZE_KERNEL",
    "CUBLASLT_WORKSPACE_SIZE",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_DEVICE_MAX_COPY_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "GPU_MAX_HW_QUEUES",
    "HIP_FORCE_DEV_KERNARG",
    "HIP_LAUNCH_BLOCKING",
    "HSA_CU_MASK",
    "HSA_ENABLE_INTERRUPT",
    "HSA_ENABLE_PEER_SDMA",
    "HSA_ENABLE_SDMA",
    "HSA_FORCE_FINE_GRAIN_PCIE",
    "HSA_NO_SCRATCH_RECLAIM",
    "HSA_OVERRIDE_GFX_VERSION",
    "HSA_XNACK",
    "MKL_NUM_THREADS",
    "NCCL_ALGO",
    "NCCL_CUMEM_ENABLE",
    "NCCL_MAX_CTAS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_CTAS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_NTHREADS",
    "NCCL_NVLS_ENABLE",
    "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_PROTO",
    "NCCL_SHM_DISABLE",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "PYTORCH_TUNABLEOP_ENABLED",
    "ROCBLAS_USE_HIPBLASLT",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_BLAS_PREFER_CUBLASLT",
    "TORCH_BLAS_PREFER_HIPBLASLT",
    "TORCH_NCCL_ENABLE_TIMING",
)


def require_torch() -> None:
    """Refuse to go on without torch.

    Raises
    ------
    HardwareError
        If torch is absent or cannot be loaded.
    """
    try:
        import torch  # noqa: F401
    except (ImportError, OSError) as error:  # libraries of its own that do not load
        raise HardwareError(
            f"torch is not installed or does not load ({error}); install it: pip install 'ficco[hw]'"
        ) from error


def require_gpu(count: int = 1) -> None:
    """Refuse to go on without ``count`` gpus, a torch that drives them, and the runtime's bindings.

    Raises
    ------
    HardwareError
        The message says what is missing and what to install or choose.
    """
    require_torch()
    import torch

    stack = _stack()
    if stack == "cpu":
        raise HardwareError(
            f"torch {torch.__version__} is a CPU build; install one for CUDA or ROCm, see "
            "https://pytorch.org/get-started/locally, or choose the CPU"
        )
    if not torch.cuda.is_available():
        raise HardwareError(
            f"torch {torch.__version__} finds no gpu; check the driver with nvidia-smi or rocm-smi, "
            "or choose the CPU"
        )
    found = torch.cuda.device_count()
    if found < count:
        raise HardwareError(
            f"{count} gpus are needed and torch finds {found}; choose fewer, or place several gpus of "
            "the plan on one device with --map"
        )
    load_runtime(stack)


def read_sensors(*devices: int) -> Sensors:
    """Clock, power and temperature now; None for what is not told.

    Of several devices the lowest clock, the highest power and the highest temperature: the slowest one
    makes the others wait.
    """
    found = [_sensors(device) for device in devices]
    clocks, powers, temperatures = (
        [value for value in values if value is not None]
        for values in zip(*((s.sm_clock_hz, s.power_w, s.temperature_c) for s in found), strict=True)
    )
    return Sensors(
        sm_clock_hz=min(clocks, default=None),
        power_w=max(powers, default=None),
        temperature_c=max(temperatures, default=None),
    )


def _sensors(device: int) -> Sensors:
    import torch

    # torch passes on what the vendor's library says: NVML milliwatts, amdsmi watts
    per_watt = 1 if torch.version.hip else 1000
    clock = _attempt(lambda: float(torch.cuda.clock_rate(device)))
    power = _attempt(lambda: float(torch.cuda.power_draw(device)))
    temperature = _attempt(lambda: float(torch.cuda.temperature(device)))
    return Sensors(
        sm_clock_hz=clock * 1e6 if clock else None,  # 0 stands for not available
        power_w=power / per_watt if power else None,
        temperature_c=temperature,
    )


def collect_environment(devices: Sequence[int]) -> dict[str, str]:
    """Describe hardware, drivers, libraries and settings.

    A value that differs between devices lists them all: ``0: 700, 1: 650``.

    Parameters
    ----------
    devices
        Numbers of the gpus in use; none stands for the CPU.

    Raises
    ------
    HardwareError
        If torch is absent, or fewer devices are there than asked for.
    """
    require_torch()
    facts = _host()
    if not devices:
        return {"device": "cpu", **facts}
    require_gpu(max(devices) + 1)
    stack = _stack()
    facts |= _joined({device: _device(device, stack) for device in devices})
    facts |= {"device_count": str(len(devices)), **_software(stack)}
    if len(devices) > 1:
        facts["peer_access"] = _peer_access(devices)
    return facts


def nccl_version() -> str | None:
    """Version of the NCCL, or RCCL, that torch is built with; None where it has none."""
    import torch

    if not hasattr(torch._C, "_nccl_version"):  # noqa: SLF001 - torch.cuda.nccl asks in this way
        return None
    version: Any = torch.cuda.nccl.version()
    return ".".join(map(str, version))


def _stack() -> str:
    """The stack that torch is built for: cuda, hip or cpu."""
    import torch

    if torch.version.hip:
        return "hip"
    return "cuda" if torch.version.cuda else "cpu"


def _host() -> dict[str, str]:
    import torch

    facts = {
        "cpu": _cpu_model() or platform.machine(),
        "cpu_count": str(os.cpu_count()),
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_git": str(torch.version.git_version),
    }
    for name in VARIABLES:
        if name in os.environ:
            facts[f"env_{name.lower()}"] = os.environ[name]
    return facts


def _cpu_model() -> str | None:
    text = _attempt(CPUINFO.read_text) or ""
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return model[1].strip() if model else None


def _software(stack: str) -> dict[str, str]:
    """Versions of driver, runtime and the library that multiplies."""
    import torch

    runtime = load_runtime(stack)
    version = torch.version.hip if stack == "hip" else torch.version.cuda
    found: dict[str, Any] = {
        stack: version,
        "driver": _driver(stack),
        "driver_api": _attempt(lambda: runtime.call("DriverGetVersion")),
        "runtime": _attempt(lambda: runtime.call("RuntimeGetVersion")),
        "bindings": _attempt(
            lambda: f"{BINDINGS[stack]} {importlib.metadata.version(BINDINGS[stack])}"
        ),
        "preferred_blas": _attempt(
            lambda: str(torch.backends.cuda.preferred_blas_library()).rpartition(".")[2]
        ),
    }
    found["nccl"] = nccl_version()
    if stack == "cuda":
        found["cublaslt"] = _attempt(lambda: _cublaslt_version(str(version)))
    return _known(found)


def _driver(stack: str) -> str | None:
    if stack == "hip":
        text = _attempt((SYSFS / "module/amdgpu/version").read_text)
        return text.strip() if text else None
    nvml = _attempt(_nvml)
    return _attempt(lambda: str(nvml.nvmlSystemGetDriverVersion())) if nvml else None


def _cublaslt_version(cuda: str) -> int:
    major, _, _ = cuda.partition(".")
    library = ctypes.CDLL(f"libcublasLt.so.{major}")  # the one that torch has loaded
    library.cublasLtGetVersion.restype = ctypes.c_size_t
    return int(library.cublasLtGetVersion())


def _device(device: int, stack: str) -> dict[str, str]:
    import torch

    properties: Any = torch.cuda.get_device_properties(device)
    uuid = str(getattr(properties, "uuid", ""))
    found: dict[str, Any] = {
        "device": properties.name,
        # tells devices apart without naming them
        "device_id": hashlib.sha256(uuid.encode()).hexdigest()[:12] if uuid else None,
        "total_memory_bytes": properties.total_memory,
        "compute_units": properties.multi_processor_count,
    }
    if stack == "hip":
        found["gcn_arch"] = properties.gcnArchName
    else:
        found["compute_capability"] = f"{properties.major}.{properties.minor}"
        found |= _attempt(lambda: _nvml_facts(uuid)) or {}
    address = _attempt(
        lambda: (
            f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:"
            f"{properties.pci_device_id:02x}.0"
        )
    )
    if address:
        found |= _bus_facts(SYSFS / "bus/pci/devices" / address)
    return _known(found)


def _nvml() -> Any:
    import pynvml

    pynvml.nvmlInit()
    return pynvml


def _nvml_facts(uuid: str) -> dict[str, Any]:
    nvml = _nvml()
    handle = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    return {
        "power_limit_w": _attempt(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000),
        "max_sm_clock_hz": _attempt(
            lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, NVML_SM_CLOCK) * 10**6
        ),
        "ecc": _attempt(lambda: _on(nvml.nvmlDeviceGetEccMode(handle)[0])),
        "persistence_mode": _attempt(lambda: _on(nvml.nvmlDeviceGetPersistenceMode(handle))),
    }


def _on(value: int) -> str:
    return "on" if value else "off"


def _bus_facts(folder: Path) -> dict[str, Any]:
    """What the kernel tells of a device on the PCI bus; limits of power and clock only for amdgpu."""

    def read(name: str) -> str:
        return next(folder.glob(name)).read_text().strip()

    numa_node = _attempt(lambda: int(read("numa_node")))
    return {
        "pcie_generation": _attempt(lambda: PCIE_GENERATIONS[read("max_link_speed").split()[0]]),
        "pcie_width": _attempt(lambda: read("current_link_width")),
        "numa_node": None if numa_node == -1 else numa_node,  # -1: the machine does not tell
    } | _known(
        {
            "power_limit_w": _attempt(lambda: int(read("hwmon/hwmon*/power1_cap")) / 10**6),
            "max_sm_clock_hz": _attempt(
                lambda: (
                    max(int(mhz) for mhz in re.findall(r"(\d+)mhz", read("pp_dpm_sclk").lower()))
                    * 10**6
                )
            ),
        }
    )


def _peer_access(devices: Sequence[int]) -> str:
    """Which device reads whose memory directly, by the numbers that torch gives them."""
    import torch

    pairs = [
        f"{a}>{b} {'yes' if torch.cuda.can_device_access_peer(a, b) else 'no'}"
        for a, b in permutations(devices, 2)
    ]
    return ", ".join(pairs)


def _joined(facts: Mapping[int, Mapping[str, str]]) -> dict[str, str]:
    """One value where all devices agree, else one for each."""
    keys = dict.fromkeys(key for of_device in facts.values() for key in of_device)
    joined = {}
    for key in keys:
        values = {device: of_device.get(key, "unknown") for device, of_device in facts.items()}
        distinct = set(values.values())
        joined[key] = (
            distinct.pop()
            if len(distinct) == 1
            else ", ".join(f"{device}: {value}" for device, value in values.items())
        )
    return joined


def _known(found: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in found.items() if value is not None}


def _attempt(read: Callable[[], T]) -> T | None:
    """What a reading gives; None where device, driver or library does not have it."""
    try:
        return read()
    except Exception:  # noqa: BLE001 - each vendor's library has errors of its own
        return None

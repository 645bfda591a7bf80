"""Layer: harness without a gpu. What a record says of its machine, and what is missing is named."""

import hashlib
import sys
import types
from types import SimpleNamespace

import pytest
import torch

from ficco_sim.errors import HardwareError
from hw_validate import environment
from hw_validate.environment import collect_environment, read_sensors, require_gpu, require_torch

UUIDS = ["6e1b6f0a-0000-4d8c-9d2c-3f1f1c0ffee0", "6e1b6f0a-0000-4d8c-9d2c-3f1f1c0ffee1"]


class FakeRuntime:
    def call(self, name):
        return {"DriverGetVersion": 13000, "RuntimeGetVersion": 13010}[name]


@pytest.fixture
def two_gpus(monkeypatch, tmp_path):
    """Two gpus of one kind, with the files that the kernel shows of them."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda a, b: a < b)
    monkeypatch.setattr(
        torch.cuda,
        "get_device_properties",
        lambda device: SimpleNamespace(
            name="NVIDIA H200",
            uuid=UUIDS[device],
            total_memory=150_000_000_000,
            multi_processor_count=132,
            major=9,
            minor=0,
            gcnArchName="gfx942:sramecc+:xnack-",
            pci_domain_id=0,
            pci_bus_id=0x1B,
            pci_device_id=device,
        ),
    )
    monkeypatch.setattr(environment, "load_runtime", lambda _: FakeRuntime())
    monkeypatch.setattr(environment, "SYSFS", tmp_path)
    for device in range(2):
        folder = tmp_path / f"bus/pci/devices/0000:1b:{device:02x}.0"
        (folder / "hwmon/hwmon3").mkdir(parents=True)
        (folder / "max_link_speed").write_text("32.0 GT/s PCIe\n")
        (folder / "current_link_width").write_text("16\n")
        (folder / "numa_node").write_text(f"{device - 1}\n")
    return tmp_path


@pytest.fixture
def nvml(monkeypatch):
    module = types.ModuleType("pynvml")
    module.nvmlInit = lambda: None
    module.nvmlSystemGetDriverVersion = lambda: "580.1"
    module.nvmlDeviceGetHandleByUUID = lambda uuid: UUIDS.index(uuid.removeprefix("GPU-"))
    module.nvmlDeviceGetEnforcedPowerLimit = lambda handle: (700_000, 650_000)[handle]
    module.nvmlDeviceGetMaxClockInfo = lambda _, clock: {1: 1980}[clock]
    module.nvmlDeviceGetEccMode = lambda _: [1, 0]

    def not_supported(_):
        raise RuntimeError("not supported")

    module.nvmlDeviceGetPersistenceMode = not_supported
    monkeypatch.setitem(sys.modules, "pynvml", module)


@pytest.fixture
def no_nvml(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)


def test_without_devices_the_cpu_is_described():
    found = collect_environment([])
    assert found["device"] == "cpu"
    assert found["torch"] == torch.__version__
    assert int(found["cpu_count"]) >= 1
    assert all(isinstance(value, str) for value in found.values())


@pytest.mark.usefixtures("nvml", "two_gpus")
def test_gpus_are_described_once_where_they_agree():
    found = collect_environment([0, 1])
    expected = {
        "device": "NVIDIA H200",
        "device_count": "2",
        "total_memory_bytes": "150000000000",
        "compute_units": "132",
        "compute_capability": "9.0",
        "cuda": "13.0",
        "driver": "580.1",
        "driver_api": "13000",
        "runtime": "13010",
        "pcie_generation": "5",
        "pcie_width": "16",
        "numa_node": "0: unknown, 1: 0",
        "power_limit_w": "0: 700.0, 1: 650.0",
        "max_sm_clock_hz": "1980000000",
        "ecc": "on",
        "peer_access": "0>1 yes, 1>0 no",
    }
    assert {key: found.get(key) for key in expected} == expected
    assert "persistence_mode" not in found  # this driver does not tell
    assert "gcn_arch" not in found
    assert collect_environment([0])["power_limit_w"] == "700.0"


@pytest.mark.usefixtures("nvml", "two_gpus")
def test_nothing_names_the_machine_or_its_user(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"GPU-{UUIDS[0]}")
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    monkeypatch.setenv("HSA_TOOLS_LIB", "/home/someone/lib.so")
    found = collect_environment([0, 1])
    text = repr(found)
    assert not any(uuid in text for uuid in UUIDS)
    assert "/" not in found["os"]
    assert "someone" not in text
    assert environment.platform.node() not in found.values()
    hashed = [hashlib.sha256(uuid.encode()).hexdigest()[:12] for uuid in UUIDS]
    assert found["device_id"] == f"0: {hashed[0]}, 1: {hashed[1]}"
    settings = {key: value for key, value in found.items() if key.startswith("env_")}
    assert settings["env_cuda_launch_blocking"] == "1"
    assert not {"env_cuda_visible_devices", "env_hsa_tools_lib"} & set(settings)


@pytest.mark.usefixtures("no_nvml")
def test_amd_limits_come_from_the_kernel(two_gpus, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", "6.4.43482")
    (two_gpus / "module/amdgpu").mkdir(parents=True)
    (two_gpus / "module/amdgpu/version").write_text("6.12.12\n")
    for device in range(2):
        folder = two_gpus / f"bus/pci/devices/0000:1b:{device:02x}.0"
        (folder / "hwmon/hwmon3/power1_cap").write_text("750000000\n")
        (folder / "pp_dpm_sclk").write_text("0: 132Mhz\n1: 2100Mhz *\n")
    found = collect_environment([0, 1])
    expected = {
        "hip": "6.4.43482",
        "driver": "6.12.12",
        "gcn_arch": "gfx942:sramecc+:xnack-",
        "power_limit_w": "750.0",
        "max_sm_clock_hz": "2100000000",
    }
    assert {key: found.get(key) for key in expected} == expected
    assert not {"cuda", "compute_capability", "cublaslt", "ecc"} & set(found)


@pytest.mark.usefixtures("no_nvml", "two_gpus")
def test_what_is_not_told_is_left_out():
    found = collect_environment([0])
    assert not {"driver", "power_limit_w", "max_sm_clock_hz", "ecc", "peer_access"} & set(found)


@pytest.mark.parametrize(("hip", "watts"), [(None, 0.079749), ("6.4", 79.749)])
def test_sensors_in_si_units(monkeypatch, hip, watts):
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "clock_rate", lambda _: 345)
    monkeypatch.setattr(torch.cuda, "power_draw", lambda _: 79.749)
    monkeypatch.setattr(torch.cuda, "temperature", lambda _: 35)
    sensors = read_sensors(0)
    assert sensors.sm_clock_hz == 345e6
    assert sensors.power_w == pytest.approx(watts)
    assert sensors.temperature_c == 35.0


def test_absent_sensors_are_none(monkeypatch):
    def absent(_):
        raise ModuleNotFoundError("pynvml")

    monkeypatch.setattr(torch.cuda, "clock_rate", lambda _: 0)  # how amdsmi says not available
    monkeypatch.setattr(torch.cuda, "power_draw", absent)
    monkeypatch.setattr(torch.cuda, "temperature", absent)
    sensors = read_sensors(0)
    assert (sensors.sm_clock_hz, sensors.power_w, sensors.temperature_c) == (None, None, None)


def test_absent_torch_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    for ask in (require_torch, require_gpu, lambda: collect_environment([])):
        with pytest.raises(HardwareError, match=r"pip install 'ficco\[hw\]'"):
            ask()


def test_cpu_build_no_gpu_and_too_few_gpus_are_told_apart(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)
    with pytest.raises(HardwareError, match="CPU build"):
        require_gpu()
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(HardwareError, match="finds no gpu"):
        require_gpu()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(HardwareError, match=r"3 gpus are needed and torch finds 2.*--map"):
        collect_environment([0, 2])


@pytest.mark.parametrize(("cuda", "hip", "package"), [
    ("13.0", None, "cuda-bindings"),
    (None, "6.4", "hip-python"),
])  # fmt: skip
def test_absent_bindings_are_named(monkeypatch, cuda, hip, package):
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.setitem(sys.modules, "cuda", None)
    monkeypatch.setitem(sys.modules, "hip", None)
    with pytest.raises(HardwareError, match=package):
        require_gpu(8)

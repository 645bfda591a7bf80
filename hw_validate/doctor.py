"""What this machine can do and what is wrong with it, in a minute."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Literal, TypeAlias

import torch

from ficco_sim.errors import FiccoError
from ficco_sim.units import format_rate, format_seconds
from hw_validate.checks import SERIALISING
from hw_validate.dry_run import examine_s, start_s
from hw_validate.environment import collect_environment, read_sensors
from hw_validate.evidence import SHAPE, Examiner
from hw_validate.gpu import GpuBackend
from hw_validate.peaks import peaks_of
from hw_validate.placement import HOST
from hw_validate.program import Lane, Step

__all__ = ["CHECKS", "Check", "examine_machine", "guessed_s"]

Severity: TypeAlias = Literal["good", "warn", "bad"]
Progress: TypeAlias = Callable[[int, int, str], None]

CHECKS = ("settings", "graphs", "arithmetic", "copies", "exchange", "launching", "maps")
GEMM_SIZE = 8192
SUSTAINED_S = 3.0
LEAST_SHARE_OF_PEAK = 0.5
LEAST_SHARE_OF_USUAL = 0.8  # of the rate of a pair of devices
DROPPED = 0.9
CHAIN = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at.

    Parameters
    ----------
    values
        Numbers behind the text, with the unit in the name.
    """

    name: str
    severity: Severity
    text: str
    values: dict[str, float | str]


def examine_machine(
    devices: Sequence[int], progress: Progress | None = None
) -> tuple[dict[str, str], list[Check]]:
    """Look at settings, graphs, arithmetic, copies, launching, and which maps are possible.

    Copies are looked at between all pairs of devices, one at a time and all at once.

    Returns
    -------
    environment, checks
        What the machine is; what works how well.

    Raises
    ------
    HardwareError
        If torch, its bindings or the devices are not there.
    """
    backend = GpuBackend(devices)
    environment = collect_environment(devices)
    checks: list[Check] = []
    makers: dict[str, Callable[[], list[Check]]] = {
        "settings": lambda: _settings(environment),
        "graphs": lambda: _graphs(backend),
        "arithmetic": lambda: [check for d in devices for check in _arithmetic(backend, d)],
        "copies": lambda: _copies(backend),
        "exchange": lambda: _exchange(backend, checks),
        "launching": lambda: _launching(backend),
        "maps": lambda: _maps(backend),
    }
    for number, name in enumerate(CHECKS):
        if progress is not None:
            progress(number, len(CHECKS), name)
        try:
            checks += makers[name]()
        except (FiccoError, RuntimeError) as error:  # torch's errors, such as memory that others hold
            text = str(error).partition("\n")[0]
            checks.append(Check(name=name, severity="bad", text=text, values={}))
    return environment, checks


def guessed_s(num_devices: int) -> float:
    """A guess of how long it takes: every device gets hot, and reads from every place."""
    return (
        start_s(num_devices)
        + num_devices * (SUSTAINED_S + 2.0)
        + examine_s(num_devices * (num_devices + 1))
    )


def _settings(environment: dict[str, str]) -> list[Check]:
    found = []
    for name, value in SERIALISING.items():
        if environment.get(f"env_{name.lower()}") == value:
            text = f"{name}={value} keeps copies and GEMMs from overlapping; unset it"
            found.append(Check(name="settings", severity="bad", text=text, values={}))
    for name in ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL"):
        if environment.get(f"env_{name.lower()}", "0") != "0":
            text = f"{name} is set: every kernel is waited for; unset it"
            found.append(Check(name="settings", severity="bad", text=text, values={}))
    if not found:
        text = "no variable is set that keeps copies and GEMMs from overlapping"
        found.append(Check(name="settings", severity="good", text=text, values={}))
    return found


def _graphs(backend: GpuBackend) -> list[Check]:
    """A kernel and a copy in a graph, with events: what every run needs."""
    found = []
    for device in backend.devices:
        src = torch.randn((1000, 1000), device=f"cuda:{device}")
        dst = torch.full_like(src, float("nan"))
        lane = Lane(gpu=0, device=device, name="doctor")
        step = Step(id="copy", lane=lane, launch=backend.local_copy([(src, dst)], device))
        prepared = backend.prepare([step], graph=True, spans=True)
        try:
            run = prepared.run()
        finally:
            prepared.close()
        right = bool(torch.equal(src, dst)) and run.spans["copy"][1] > run.spans["copy"][0]
        text = (
            f"device {device}: graphs, events in graphs and the copy kernel work"
            if right
            else f"device {device}: a copy in a graph gave wrong data or no time"
        )
        severity: Severity = "good" if right else "bad"
        found.append(Check(name="graphs", severity=severity, text=text, values={}))
    return found


def _arithmetic(backend: GpuBackend, device: int) -> list[Check]:
    """A large bf16 GEMM on a cool device and on a hot one."""
    peaks = peaks_of(torch.cuda.get_device_name(device))
    shape = (GEMM_SIZE, GEMM_SIZE)
    a, b, c = (torch.empty(shape, dtype=torch.bfloat16, device=f"cuda:{device}") for _ in range(3))
    a.normal_()
    b.normal_()
    lane = Lane(gpu=0, device=device, name="doctor")
    step = Step(id="gemm", lane=lane, launch=lambda _: _multiply(a, b, c))
    eager = backend.prepare([step], graph=False, spans=False)
    eager.run()
    eager.close()
    prepared = backend.prepare([step], graph=True, spans=True)
    try:
        burst_s = statistics.median(_length_s(prepared.run().spans["gemm"]) for _ in range(10))
        backend.heat(SUSTAINED_S)
        hot_s = statistics.median(_length_s(prepared.run().spans["gemm"]) for _ in range(10))
        sensors = read_sensors(device)
    finally:
        prepared.close()
    flops = 2.0 * GEMM_SIZE**3
    values: dict[str, float | str] = {
        "burst_flops_per_s": flops / burst_s,
        "sustained_flops_per_s": flops / hot_s,
    }
    clock = f", {sensors.sm_clock_hz / 1e6:.0f} MHz" if sensors.sm_clock_hz else ""
    power = f", {sensors.power_w:.0f} W" if sensors.power_w else ""
    text = (
        f"device {device}: bf16 GEMM of {GEMM_SIZE} x {GEMM_SIZE} x {GEMM_SIZE}: "
        f"{flops / burst_s / 1e12:.0f} TFLOP/s cool, {flops / hot_s / 1e12:.0f} after "
        f"{SUSTAINED_S:.0f} s of load{clock}{power}"
    )
    severity: Severity = "good"
    peak = peaks.flops_per_s.get("bf16")
    if peak is None:
        text += "; its peak is not known, so timings cannot be checked against it"
    else:
        share = flops / burst_s / peak
        values["share_of_peak"] = share
        text += f"; {share:.0%} of the peak of {peak / 1e12:.0f}"
        if share > 1 or share < LEAST_SHARE_OF_PEAK:
            severity = "bad" if share > 1 else "warn"
            text += ": not to be trusted" if share > 1 else ": slower than it should be"
    if burst_s / hot_s < DROPPED:
        severity = "warn" if severity == "good" else severity
        text += "; it slows down under load: interleave what is compared, and state the regime"
    return [Check(name="arithmetic", severity=severity, text=text, values=values)]


def _multiply(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    torch.mm(a, b, out=c)


def _copies(backend: GpuBackend) -> list[Check]:
    """Every direction into every device: data, rate, and by whom."""
    examiner = Examiner(backend)
    found = []
    for device in backend.devices:
        for place in (HOST, *(d for d in backend.devices if d != device), device):
            try:
                report = examiner.of_place(device, place, "dma")
            except FiccoError as error:
                found.append(Check(name="copies", severity="bad", text=str(error), values={}))
                continue
            refused = [f.text for f in report.findings if f.severity == "refuse"]
            doubtful = [f.text for f in report.findings if f.severity == "warn"]
            severity: Severity = "good"
            text = report.text
            if refused and report.equal and place == device:
                severity = "warn"
                text += ": by a kernel, so runs with the data there need --engine core"
            elif refused:
                severity = "bad"
                text += f": {refused[0]}"
            elif doubtful:
                severity = "warn"
                text += f": {doubtful[0]}"
            else:
                text += ": by a copy engine"
            values: dict[str, float | str] = {
                "direction": report.direction,
                "bytes_per_s": report.bytes_per_s,
                "copy_slowed": report.copy_slowed,
                "gemm_slowed": report.gemm_slowed,
            }
            found.append(Check(name="copies", severity=severity, text=text, values=values))
    return found


def _exchange(backend: GpuBackend, checks: Sequence[Check]) -> list[Check]:
    """All devices read from all others at once, as in a step of a plan; pairs slower than others."""
    devices = backend.devices
    if len(devices) < 2:
        text = "one device: nothing to exchange with"
        return [Check(name="exchange", severity="good", text=text, values={})]
    kind = torch.bfloat16
    steps = []
    for device in devices:
        for peer in devices:
            if peer != device:
                backend.connect(device, peer)
                src, dst = (backend.empty(d, *SHAPE, kind, transposed=False) for d in (peer, device))
                src.normal_()
                lane = Lane(gpu=device, device=device, name=f"doctor{peer}")
                launch = backend.transfer(src, dst, "dma", device)
                steps.append(Step(id=f"{peer}>{device}", lane=lane, launch=launch))
    backend.synchronize()
    prepared = backend.prepare(steps, graph=True, spans=False)
    try:
        time_s = statistics.median(prepared.run().makespan_s for _ in range(6))
    finally:
        prepared.close()
    into_each = (len(devices) - 1) * SHAPE[0] * SHAPE[1] * kind.itemsize / time_s
    alone = {
        str(check.values["direction"]): float(check.values["bytes_per_s"])
        for check in checks
        if check.name == "copies" and _between_devices(str(check.values.get("direction", "")))
    }
    text = (
        f"all {len(devices)} devices read from all others at once: {format_rate(into_each)} into each"
    )
    values: dict[str, float | str] = {"bytes_per_s": into_each}
    severity: Severity = "good"
    if alone:
        usual, slowest = statistics.median(alone.values()), min(alone, key=lambda name: alone[name])
        values["share_of_one_pair"] = into_each / usual
        text += f", {into_each / usual:.0%} of one pair alone"
        if alone[slowest] < LEAST_SHARE_OF_USUAL * usual:
            severity = "warn"
            text += (
                f"; {slowest} alone has {format_rate(alone[slowest])} where the median of all pairs is "
                f"{format_rate(usual)}: links are not alike"
            )
    return [Check(name="exchange", severity=severity, text=text, values=values)]


def _between_devices(direction: str) -> bool:
    src, _, dst = direction.partition(">")
    return src.startswith("dev") and dst.startswith("dev") and src != dst


def _launching(backend: GpuBackend) -> list[Check]:
    """A chain of tiny kernels in a graph and submitted one by one."""
    device = backend.devices[0]
    src = torch.zeros((1, 64), device=f"cuda:{device}")
    lane = Lane(gpu=0, device=device, name="doctor")
    launch = backend.local_copy([(src, torch.empty_like(src))], device)
    steps = [Step(id=f"k{i}", lane=lane, launch=launch) for i in range(CHAIN)]
    per_step: dict[str, float] = {}
    for name, graph in (("graph", True), ("eager", False)):
        prepared = backend.prepare(steps, graph=graph, spans=False)
        try:
            runs = [prepared.run().makespan_s for _ in range(10)]
        finally:
            prepared.close()
        per_step[name] = statistics.median(runs) / CHAIN
    text = (
        f"a kernel in a chain takes {format_seconds(per_step['graph'])} in a graph, "
        f"{format_seconds(per_step['eager'])} submitted from Python"
    )
    values: dict[str, float | str] = {f"{name}_step_s": seconds for name, seconds in per_step.items()}
    return [Check(name="launching", severity="good", text=text, values=values)]


def _maps(backend: GpuBackend) -> list[Check]:
    """Which plans can run here."""
    devices = backend.devices
    apart = [(a, b) for a, b in permutations(devices, 2) if not backend.runtime.can_access_peer(a, b)]
    peers = len(devices) > 1 and (devices[0], devices[1]) not in apart
    possible = ["host", "self (with --engine core)", "together", "core-mesh (with --engine core)"]
    if peers:
        possible = ["switch", "mesh", *possible]
    if apart:
        pairs = ", ".join(f"{a} to {b}" for a, b in apart[:8])
        more = f" and {len(apart) - 8} more" if len(apart) > 8 else ""
        text = f"devices without peer access: {pairs}{more}: no map between them"
        return [Check(name="maps", severity="warn", text=text, values={})]
    text = (
        f"plans for {len(devices)} gpus run as they are (--map own); plans for more are emulated: "
        f"--map {', '.join(possible)}"
    )
    return [Check(name="maps", severity="good", text=text, values={})]


def _length_s(span: tuple[float, float]) -> float:
    return span[1] - span[0]

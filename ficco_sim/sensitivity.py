"""What if: a machine with faster links, copy engines, memory or arithmetic, simulated again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ficco_sim.comparison import find_makespans
from ficco_sim.costs import CostModel, GemmShape
from ficco_sim.costs.gemm import GemmModel
from ficco_sim.grid import Grid
from ficco_sim.machine import Machine
from ficco_sim.profile import GemmProfile, GemmRates
from ficco_sim.workload import Workload

__all__ = ["CHANGES", "WhatIf", "changed_machine", "what_ifs"]

CHANGES: dict[str, tuple[str, ...]] = {
    "as it is": (),
    "links": ("links",),
    "copy engines": ("engines",),
    "links and copy engines": ("links", "engines"),
    "HBM bandwidth": ("hbm",),
    "peak FLOP/s": ("peak",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The best schedule on a machine of which something is ``factor`` times as fast.

    Parameters
    ----------
    change
        What is faster, see `CHANGES`.
    schedule, num_chunks, compute_queues
        The best schedule there, serial included, and its knobs.
    speedup
        Over serial on the same changed machine.
    gain
        Best makespan of the machine as it is over the best one there.
    """

    change: str
    factor: float
    schedule: str
    num_chunks: int
    compute_queues: int
    makespan_s: float
    serial_s: float
    ideal_s: float
    speedup: float
    gain: float


def what_ifs(
    workload: Workload,
    machine: Machine,
    *,
    costs: CostModel | None = None,
    engines: Sequence[str] = ("dma",),
    factor: float = 2.0,
    progress: Callable[[int, int, str], None] | None = None,
) -> tuple[WhatIf, ...]:
    """Simulate all schedules again on the machine with one thing faster at a time.

    Parameters
    ----------
    costs
        Their kind and way of submission are used; by default those of the profile, in graphs.
    factor
        How many times as fast.
    progress
        Called with changes done, changes in all, and the name of the next one.

    Returns
    -------
    tuple of WhatIf
        One for each of `CHANGES`, in that order; the first is the machine as it is.
    """
    model = costs or CostModel(machine)
    grid = Grid(engines=tuple(engines))
    found: list[WhatIf] = []
    for done, (name, parts) in enumerate(CHANGES.items()):
        if progress is not None:
            progress(done, len(CHANGES), f"what if: {name}")
        changed = changed_machine(machine, parts, factor)
        times = find_makespans(
            workload,
            changed,
            costs=CostModel(changed, model.kind, model.submission, sm_clock_hz=model.sm_clock_hz),
            grid=grid,
        )
        schedule, knobs, makespan_s = times.points[0]
        as_it_is_s = found[0].makespan_s if found else makespan_s
        found.append(
            WhatIf(
                change=name,
                factor=factor if parts else 1.0,
                schedule=schedule,
                num_chunks=knobs.get("num_chunks", 1),
                compute_queues=knobs.get("compute_queues", 1),
                makespan_s=makespan_s,
                serial_s=times.serial_s,
                ideal_s=times.ideal_s,
                speedup=times.serial_s / makespan_s,
                gain=as_it_is_s / makespan_s,
            )
        )
    return tuple(found)


def changed_machine(machine: Machine, parts: Sequence[str], factor: float) -> Machine:
    """The machine with some of its parts ``factor`` times as fast; latencies stay.

    Parameters
    ----------
    parts
        ``links``: bandwidth of every link. ``engines``: rate and number of copy engines, and the
        rate of copy kernels. ``hbm``: memory bandwidth, streams of GEMMs, copies within a gpu.
        ``peak``: arithmetic of GEMMs, not the operands fed to it. Measured times of GEMMs shrink as
        the formula says.
    """
    gpu, profile = machine.gpu, machine.profile
    if "links" in parts:
        machine = machine.with_links(scale=factor)
    if "engines" in parts:
        gpu = replace(gpu, num_dma_engines=round(gpu.num_dma_engines * factor))
        copy, core = profile.copy, profile.core_copy
        profile = replace(
            profile,
            copy=replace(copy, engine_bytes_per_s=copy.engine_bytes_per_s * factor),
            core_copy=replace(core, bytes_per_s=core.bytes_per_s * factor),
        )
    if "hbm" in parts:
        gpu = replace(gpu, hbm_bytes_per_s=gpu.hbm_bytes_per_s * factor)
        local = profile.local_copy
        profile = replace(profile, local_copy=replace(local, bytes_per_s=local.bytes_per_s * factor))
        scaled = _scaled(profile.gemm, ("input_bytes_per_s", "output_bytes_per_s"), factor, machine)
        profile = replace(profile, gemm=scaled)
    if "peak" in parts:
        peaks = {dtype: peak * factor for dtype, peak in gpu.peak_flops_per_s.items()}
        gpu = replace(gpu, peak_flops_per_s=peaks)
        profile = replace(
            profile, gemm=_scaled(profile.gemm, ("flops_per_s_per_unit",), factor, machine)
        )
    return replace(machine, gpu=gpu, profile=profile)


def _scaled(gemm: GemmProfile, names: Sequence[str], factor: float, machine: Machine) -> GemmProfile:
    """Rates named are faster, and measured shapes quicker in the proportion of the formulas."""

    def faster(rates: GemmRates) -> GemmRates:
        values: dict[str, Any] = {name: getattr(rates, name) * factor for name in names}
        return replace(rates, **values)

    changed = replace(gemm, rates={dtype: faster(rates) for dtype, rates in gemm.rates.items()})
    gpu = machine.gpu
    before = GemmModel(gemm, gpu.num_compute_units, gpu.name)
    after = GemmModel(changed, gpu.num_compute_units, gpu.name)
    measured = []
    for row in gemm.measured:
        shape = GemmShape(
            (row.m // row.entries,) * row.entries, row.n, row.k, row.dtype, row.accumulate
        )
        ratio = after.formula(shape).time_s / before.formula(shape).time_s
        measured.append(replace(row, time_s=row.time_s * ratio))
    return replace(changed, measured=tuple(measured))

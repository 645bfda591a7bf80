"""A machine calibrated without one workload, so that it can be tested on that workload."""

from collections.abc import Collection
from dataclasses import replace

from ficco_sim.calibrate.assemble import calibrate
from ficco_sim.calibrate.inputs import Inputs, Start
from ficco_sim.errors import ScenarioError
from ficco_sim.machine import Machine, build_machine
from ficco_sim.records import Measurement
from ficco_sim.workload import Workload

__all__ = ["machine_without", "without_workload"]


def without_workload(inputs: Inputs, workload: Workload) -> Inputs:
    """The inputs without any GEMM of the workload's n and at most its k, of any m.

    All pieces of a workload keep its n; GEMMs beside copies and side by side go as well.
    """

    def other(measurement: Measurement) -> bool:
        n, k = (measurement.params.get(name) for name in ("n", "k"))
        return n != workload.n or (isinstance(k, int) and k > workload.k)

    return replace(
        inputs,
        measurements=tuple(m for m in inputs.measurements if other(m)),
        gemms={
            dtype: kept
            for dtype, samples in inputs.gemms.items()
            if (kept := tuple(s for s in samples if s.n != workload.n or s.k > workload.k))
        },
    )


def machine_without(
    start: Start,
    inputs: Inputs,
    workload: Workload,
    *,
    direction: str | None = None,
    keep: Collection[str] = (),
) -> Machine:
    """The machine with its gpu calibrated to what is left without a workload.

    Shapes that were measured before are not taken over: they may be of what was left out. Errors are
    not held out, which takes longer.

    Raises
    ------
    ScenarioError
        If too little is left to fit GEMMs of the workload's type: their rates may have been fitted to
        the workload, so that it would not be left out.
    FiccoError
        As `calibrate`.
    """
    left = without_workload(inputs, workload)
    group = f"gemm.{workload.dtype}"
    if not left.gemms.get(workload.dtype):
        raise ScenarioError(f"{workload.name}: nothing to fit {group} to is left without it")
    file, gpu = start.file, start.gpu
    gemm = replace(gpu.profile.gemm, measured=())
    found = calibrate(
        left,
        replace(gpu, profile=replace(gpu.profile, gemm=gemm)),
        direction=direction,
        keep=keep,
        latency_s=start.latency_s,
        held_out=False,
    )
    (fitted,) = (g for g in found.groups if g.name == group)
    if fitted.fit is None:
        raise ScenarioError(f"{workload.name}: too little is left without it: {group}: {fitted.reason}")
    gemm = replace(found.gpu.profile.gemm, measured=found.table)
    profile = replace(found.gpu.profile, gemm=gemm)
    return build_machine(replace(file, gpu=replace(found.gpu, profile=profile)), file.name)

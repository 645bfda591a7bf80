"""A machine calibrated without one workload, so that it can be tested on that workload."""

from dataclasses import replace

from ficco_sim.calibrate.assemble import CORRECTION_REACH, calibrate
from ficco_sim.calibrate.inputs import Inputs
from ficco_sim.machine import Machine, MachineFile, build_machine
from ficco_sim.profile import GpuFile
from ficco_sim.records import Measurement
from ficco_sim.workload import Workload

__all__ = ["calibrated_machine", "without_workload"]


def without_workload(inputs: Inputs, workload: Workload) -> Inputs:
    """The inputs without any GEMM that has the workload's number of columns.

    All pieces of a workload keep its columns; GEMMs beside copies and side by side go as well.
    """

    def other(measurement: Measurement) -> bool:
        return measurement.params.get("n") != workload.n

    return replace(
        inputs,
        measurements=tuple(m for m in inputs.measurements if other(m)),
        gemms={
            dtype: kept
            for dtype, samples in inputs.gemms.items()
            if (kept := tuple(s for s in samples if s.n != workload.n))
        },
    )


def calibrated_machine(
    file: MachineFile,
    gpu: GpuFile,
    inputs: Inputs,
    *,
    direction: str | None = None,
    reach: float = CORRECTION_REACH,
    table: bool = True,
) -> Machine:
    """The machine of a file with its gpu calibrated; errors are not held out, which takes longer.

    Raises
    ------
    FiccoError
        As `calibrate`.
    """
    found = calibrate(
        inputs,
        gpu,
        direction=direction,
        latency_s=file.topology.latency_s or 0.0,
        reach=reach,
        table=table,
        held_out=False,
    )
    gemm = replace(found.gpu.profile.gemm, measured=found.table, measured_file="")
    profile = replace(found.gpu.profile, gemm=gemm)
    return build_machine(replace(file, gpu=replace(found.gpu, profile=profile)), file.name)

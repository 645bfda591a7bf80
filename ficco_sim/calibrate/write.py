"""A calibration as files: the machine, its gpu alone, and the table of measured shapes beside them."""

from dataclasses import replace
from pathlib import Path

from ficco_sim import io
from ficco_sim.calibrate.assemble import Calibration
from ficco_sim.gemm_table import write_gemm_table
from ficco_sim.machine import MachineFile
from ficco_sim.profile import GpuFile

__all__ = ["write_calibration"]


def write_calibration(
    found: Calibration, machine: MachineFile, out: Path, gpu_out: Path | None = None
) -> list[Path]:
    """Write a machine file with the calibrated gpu in place, and the gpu alone if asked for.

    The table of measured shapes goes to a CSV file beside each, named after it.

    Returns
    -------
    list of Path
        The files, in the order in which they were written.

    Raises
    ------
    FileError
        If one cannot be written.
    """
    written = []
    for path in (out, gpu_out):
        if path is None:
            continue
        gpu, table = _with_table(found, path)
        if table is not None:
            write_gemm_table(table, found.table)
            written.append(table)
        document = gpu if path is gpu_out else replace(machine, gpu=gpu)
        io.write_text(path, io.dump_yaml(document))
        written.append(path)
    return written


def _with_table(found: Calibration, path: Path) -> tuple[GpuFile, Path | None]:
    """The gpu that names its table, and where the table goes."""
    if not found.table:
        return found.gpu, None
    table = path.with_name(f"{path.stem}.gemm.csv")
    gemm = replace(found.gpu.profile.gemm, measured_file=table.name)
    return replace(found.gpu, profile=replace(found.gpu.profile, gemm=gemm)), table

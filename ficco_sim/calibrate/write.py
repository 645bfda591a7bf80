"""A calibration as files: the machine, its gpu alone, and the table of measured shapes beside them."""

from dataclasses import replace
from pathlib import Path

from ficco_sim import io
from ficco_sim.calibrate.assemble import Calibration
from ficco_sim.errors import FileError
from ficco_sim.gemm_table import write_gemm_table
from ficco_sim.io import check_target
from ficco_sim.machine import MachineFile
from ficco_sim.profile import GpuFile

__all__ = ["check_calibration_targets", "write_calibration"]


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
        If one cannot be written; as far as that shows beforehand, none is written then.
    """
    check_calibration_targets(out, gpu_out)
    written = []
    for path, is_machine in ((out, True), (gpu_out, False)):
        if path is None:
            continue
        gpu, table = _with_table(found, path)
        text = io.dump_yaml(replace(machine, gpu=gpu) if is_machine else gpu)
        if table is not None:
            write_gemm_table(table, found.table)
            written.append(table)
        io.write_text(path, text)
        written.append(path)
    return written


def check_calibration_targets(out: Path, gpu_out: Path | None = None) -> None:
    """Refuse files that cannot be written, or not be read back, before any work is done.

    Raises
    ------
    FileError
        Naming the file and the rule.
    """
    paths = [path for path in (out, gpu_out) if path is not None]
    for path in paths:
        if path.suffix not in (".yaml", ".yml"):
            raise FileError(f"{path}: the name must end in .yaml or .yml")
        check_target(path)
        check_target(_table_path(path))
    if len({_table_path(path).resolve() for path in paths}) < len(paths):
        raise FileError(f"{gpu_out}: machine and gpu need files of different names")


def _table_path(path: Path) -> Path:
    return path.with_name(f"{path.stem}.gemm.csv")


def _with_table(found: Calibration, path: Path) -> tuple[GpuFile, Path | None]:
    """The gpu that names its table, and where the table goes."""
    if not found.table:
        return found.gpu, None
    table = _table_path(path)
    gemm = replace(found.gpu.profile.gemm, measured_file=table.name)
    return replace(found.gpu, profile=replace(found.gpu.profile, gemm=gemm)), table

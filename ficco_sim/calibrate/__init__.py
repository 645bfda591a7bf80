"""From measurements to a machine's profile: what was measured, fits, and how far to trust them."""

from ficco_sim.calibrate.assemble import OTHER_GROUPS, Calibration, Group, calibrate
from ficco_sim.calibrate.fitted_files import files_of_gemm_fits
from ficco_sim.calibrate.inputs import Inputs, Start, read_inputs, read_start
from ficco_sim.calibrate.leave_out import machine_without
from ficco_sim.calibrate.write import check_calibration_targets, write_calibration

__all__ = [
    "OTHER_GROUPS",
    "Calibration",
    "Group",
    "Inputs",
    "Start",
    "calibrate",
    "check_calibration_targets",
    "files_of_gemm_fits",
    "machine_without",
    "read_inputs",
    "read_start",
    "write_calibration",
]

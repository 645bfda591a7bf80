"""From measurements to a machine's profile: what was measured, fits, and how far to trust them."""

from ficco_sim.calibrate.assemble import Calibration, Group, calibrate
from ficco_sim.calibrate.inputs import Inputs, read_inputs
from ficco_sim.calibrate.leave_out import calibrated_machine, without_workload
from ficco_sim.calibrate.write import write_calibration

__all__ = [
    "Calibration",
    "Group",
    "Inputs",
    "calibrate",
    "calibrated_machine",
    "read_inputs",
    "without_workload",
    "write_calibration",
]

"""Errors that a user can cause. Imports nothing from the package."""

__all__ = [
    "FiccoError",
    "FileError",
    "HardwareError",
    "MachineError",
    "PlanError",
    "RuleError",
    "ScenarioError",
    "SimulationError",
    "WorkloadError",
]


class FiccoError(ValueError):
    """Base of all errors that a user can cause and can mend; the message says how."""


class FileError(FiccoError):
    """A file cannot be read or written, or does not follow its schema."""


class WorkloadError(FiccoError):
    """A workload is impossible or unknown."""


class PlanError(FiccoError):
    """A plan is illegal: race, deadlock, bad region, wrong or missing data."""


class MachineError(FiccoError):
    """A machine is impossible or unknown, or lacks what a plan needs."""


class ScenarioError(FiccoError):
    """Workload, machine, schedule and knobs do not fit together."""


class RuleError(FiccoError):
    """A rule that picks schedules is unknown, or its file, code or parameters are wrong."""


class SimulationError(FiccoError):
    """A simulation got stuck: the message lists what waits for what."""


class HardwareError(FiccoError):
    """Hardware or its software stack is absent or unfit; the message says what to install or choose."""

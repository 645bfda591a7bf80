"""What a dry run says: how many measurements, how long they may take, and whether the plans are right.

Times are estimates, from the wall times of the committed runs on one and two H200 (see
``tests/test_hw_committed.py``); what further devices add is a guess.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from ficco_sim.errors import FileError

__all__ = ["DryRun", "GroupEstimate", "Rehearsal", "examine_s", "start_s"]

STRICT = {"extra": "forbid", "strict": True}
START_S = 11.0  # Python, torch, a device's context, kernels compiled, libraries loaded
START_PER_DEVICE_S = 2.0  # a guess: a further context, peer access, a communicator
EXAMINE_S = 0.4  # a guess: one place and engine, see `hw_validate.evidence`


def start_s(num_devices: int) -> float:
    """Seconds from the start of a command to its first group."""
    return START_S + START_PER_DEVICE_S * (num_devices - 1)


def examine_s(num_places: int) -> float:
    """Seconds to look at places and engines, once a command."""
    return EXAMINE_S * num_places


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEstimate:
    """One group: measurements, and seconds that it may take in one pass."""

    __pydantic_config__: ClassVar = STRICT
    name: str
    measurements: int
    estimate_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """Whether the plans of a run are right, without a gpu.

    Parameters
    ----------
    plans
        Plans and versions without one, each counted once.
    checked
        Plans that `ficco_sim.check.check_plan` found legal at full size.
    verified
        Those whose numbers were right on CPU tensors, at shapes scaled down such that all tasks stay.
    shapes
        The scaled shapes, ``name: M, N, K``.
    most_bytes
        Largest need of a device at full size, a fixed allowance for libraries included, and where.
    memory_bytes
        What a device has; None if that was not said.
    failures
        What was wrong.
    """

    __pydantic_config__: ClassVar = STRICT
    plans: int
    checked: int
    verified: int
    shapes: tuple[str, ...]
    most_bytes: int
    most_bytes_at: str
    memory_bytes: int | None
    failures: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """A command that measures, as its ``--dry-run --json`` writes it.

    Parameters
    ----------
    command
        The verb.
    start_s
        Seconds before the first group, examination of places included.
    passes
        Times that all groups are measured.

    Raises
    ------
    FileError
        If a time is negative or not finite.
    """

    __pydantic_config__: ClassVar = STRICT
    command: str
    start_s: float
    passes: int = 1
    groups: tuple[GroupEstimate, ...] = ()
    rehearsal: Rehearsal | None = None
    format_version: int = field(default=1)

    def __post_init__(self) -> None:
        times = {"start_s": self.start_s} | {f"{g.name}: estimate_s": g.estimate_s for g in self.groups}
        for name, seconds in times.items():
            if not 0 <= seconds < float("inf"):
                raise FileError(f"{name}: {seconds} must be finite and not negative")

    @property
    def estimate_s(self) -> float:
        """Seconds in all."""
        return self.start_s + self.passes * sum(group.estimate_s for group in self.groups)

    @property
    def measurements(self) -> int:
        """Measurements in all passes."""
        return self.passes * sum(group.measurements for group in self.groups)

"""What a rule answers, which knobs that means, and whether it can be run at all."""

import functools
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from ficco_sim.errors import ScenarioError
from ficco_sim.grid import COMPARED
from ficco_sim.schedules import FICCO, SCHEDULES, knobs_of
from ficco_sim.schedules.builder import MAX_TASKS, check_arguments
from ficco_sim.workload import Workload

__all__ = [
    "FAULT_KINDS",
    "Decision",
    "FaultKind",
    "RuleFault",
    "default_knobs",
    "find_fault",
    "knobs_taken",
]

FaultKind: TypeAlias = Literal["raised", "unknown schedule", "impossible", "bad knob"]
FAULT_KINDS: tuple[FaultKind, ...] = ("raised", "unknown schedule", "impossible", "bad knob")
UNFUSED_QUEUES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A schedule and its knobs; None leaves a knob at `default_knobs`.

    Nothing is checked here: `ficco_sim.heuristics.decide` reports what is wrong as a fault of the rule.

    Parameters
    ----------
    reason
        Why, in one sentence for people.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid", "strict": True}
    schedule: str
    num_chunks: int | None = None
    compute_queues: int | None = None
    engine: str | None = None
    reason: str = ""

    def knobs(self, num_gpus: int) -> dict[str, Any]:
        """All knobs that the schedule takes of those that rules set, for `make_plan`.

        Raises
        ------
        ScenarioError
            If the schedule is unknown.
        """
        given = {name: getattr(self, name) for name in knobs_taken(self.schedule)}
        chosen = {name: value for name, value in given.items() if value is not None}
        return default_knobs(self.schedule, num_gpus) | chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFault:
    """A rule that gave no answer that can be run.

    Parameters
    ----------
    kind
        ``raised``: the rule threw. ``unknown schedule``: what it returned names none. ``impossible``:
        the workload has no such schedule. ``bad knob``: a knob out of range, or one that the schedule
        lacks.
    """

    rule: str
    kind: FaultKind
    message: str


@functools.cache
def knobs_taken(schedule: str) -> tuple[str, ...]:
    """Of the knobs that rules set, those that a schedule has; looked up once."""
    ours = ("num_chunks", "compute_queues", "engine")
    return tuple(name for name in knobs_of(schedule) if name in ours)


def default_knobs(schedule: str, num_gpus: int) -> dict[str, Any]:
    """The knobs that a rule leaves open, the same for all rules and among those that `compare` tries.

    As many chunks per shard as gpus, as in the paper, or as many as the largest plan has room for;
    4 compute queues for unfused schedules, as GEMMs of single chunks fill a gpu only side by side,
    and 1 for others; DMA engines.

    Examples
    --------
    >>> default_knobs("hetero-unfused-1d", 8)
    {'num_chunks': 8, 'compute_queues': 4, 'engine': 'dma'}
    >>> default_knobs("serial", 8)
    {'engine': 'dma'}
    """
    if schedule not in FICCO:
        return {"engine": "dma"}
    return {
        "num_chunks": max(1, min(num_gpus, MAX_TASKS // num_gpus**2)),
        "compute_queues": UNFUSED_QUEUES if "-unfused-" in schedule else 1,
        "engine": "dma",
    }


def find_fault(decision: Decision, workload: Workload, num_gpus: int) -> tuple[FaultKind, str] | None:
    """What is wrong with a decision for a workload; None if its plan can be made."""
    schedule = decision.schedule
    possible = COMPARED[workload.pattern]
    if not isinstance(schedule, str) or schedule not in SCHEDULES:
        return "unknown schedule", f"schedule {schedule!r} is unknown; one of: {', '.join(possible)}"
    if schedule not in possible:
        return "impossible", f"{schedule} has no plan for the pattern {workload.pattern}"
    taken = knobs_taken(schedule)
    for name in ("num_chunks", "compute_queues", "engine"):
        value = getattr(decision, name)
        if value is not None and name not in taken:
            return "bad knob", f"{name}: {value!r}: {schedule} has no such knob"
    try:
        check_arguments(workload, num_gpus, workload.pattern, **decision.knobs(num_gpus))
    except ScenarioError as error:
        return "bad knob", str(error)
    return None

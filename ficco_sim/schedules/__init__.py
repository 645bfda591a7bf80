"""Schedules: pure functions ``(workload, num_gpus, **knobs) -> Plan``. None looks at a machine."""

import inspect
from collections.abc import Mapping
from typing import Any

from ficco_sim.errors import ScenarioError
from ficco_sim.plan import Plan
from ficco_sim.schedules.builder import GEMM_PATTERNS, PlanBuilder, check_arguments
from ficco_sim.schedules.collectives import ALGORITHMS, all_gather, collective
from ficco_sim.schedules.ficco import Granularity, Schedule, Shape, Uniformity, ficco_schedule
from ficco_sim.schedules.own import load_schedule, name_of
from ficco_sim.schedules.serial import serial
from ficco_sim.schedules.shard import shard_p2p, shard_ring
from ficco_sim.schedules.side_by_side import side_by_side
from ficco_sim.workload import Workload

__all__ = [
    "ALGORITHMS",
    "FICCO",
    "GEMM_PATTERNS",
    "SCHEDULES",
    "PlanBuilder",
    "Schedule",
    "check_arguments",
    "collective",
    "get_schedule",
    "knobs_of",
    "load_schedule",
    "make_plan",
    "name_of",
    "own_plan",
    "side_by_side",
]

_POINTS: tuple[tuple[Uniformity, Granularity, Shape], ...] = (
    ("uniform", "fused", "1d"),
    ("uniform", "fused", "2d"),
    ("uniform", "unfused", "1d"),
    ("uniform", "unfused", "2d"),
    ("uniform", "batched", "1d"),
    ("hetero", "fused", "1d"),
    ("hetero", "fused", "2d"),
    ("hetero", "unfused", "1d"),
    ("hetero", "unfused", "2d"),
    ("hetero", "batched", "1d"),
)
FICCO: dict[str, Schedule] = {"-".join(point): ficco_schedule(*point) for point in _POINTS}

SCHEDULES: dict[str, Schedule] = {
    "serial": serial,
    "shard-p2p": shard_p2p,
    "shard-ring": shard_ring,
    **FICCO,
    "all-gather": all_gather,
}


def get_schedule(name: str) -> Schedule:
    """Look up a schedule function.

    Raises
    ------
    ScenarioError
        If the name is unknown; the message lists the valid ones.
    """
    if name not in SCHEDULES:
        raise ScenarioError(f"schedule {name!r} is unknown; one of: {', '.join(SCHEDULES)}")
    return SCHEDULES[name]


def knobs_of(schedule: str | Schedule) -> tuple[str, ...]:
    """Names of the knobs that a schedule takes, by its name or as a function."""
    function = get_schedule(schedule) if isinstance(schedule, str) else schedule
    parameters = inspect.signature(function).parameters.values()
    return tuple(p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY)


def make_plan(
    name: str, workload: Workload, num_gpus: int, knobs: Mapping[str, Any] | None = None
) -> Plan:
    """Make the plan of a named schedule.

    Raises
    ------
    ScenarioError
        If the name or a knob is unknown, or the arguments do not fit the schedule.
    """
    schedule = get_schedule(name)
    _check_knobs(schedule, name, knobs or {})
    return schedule(workload, num_gpus, **(knobs or {}))


def own_plan(
    schedule: Schedule, workload: Workload, num_gpus: int, knobs: Mapping[str, Any] | None = None
) -> Plan:
    """Make the plan of a schedule that is not one of the package; see `load_schedule`.

    Raises
    ------
    ScenarioError
        If it has no such knob, or what it makes is no plan, is one for another workload or number of
        gpus, or has the name of a schedule of the package.
    """
    where = name_of(schedule)
    _check_knobs(schedule, where, knobs or {})
    plan = schedule(workload, num_gpus, **(knobs or {}))
    if not isinstance(plan, Plan):
        raise ScenarioError(f"schedule {where!r}: returned a {type(plan).__name__}, not a Plan")
    if plan.schedule in SCHEDULES:
        raise ScenarioError(
            f"schedule {where!r}: its plan is named {plan.schedule!r}, as a schedule of the package is"
        )
    if (plan.workload, plan.num_gpus) != (workload, num_gpus):
        raise ScenarioError(
            f"schedule {where!r}: its plan is for {plan.workload.name!r} on {plan.num_gpus} gpus, not "
            f"for {workload.name!r} on {num_gpus}, or for other sizes"
        )
    return plan


def _check_knobs(schedule: Schedule, name: str, knobs: Mapping[str, Any]) -> None:
    valid = knobs_of(schedule)
    for knob in knobs:
        if knob not in valid:
            raise ScenarioError(f"schedule {name!r} has no knob {knob!r}; it has {', '.join(valid)}")

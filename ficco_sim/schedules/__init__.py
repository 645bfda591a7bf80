"""Schedules: pure functions ``(workload, num_gpus, **knobs) -> Plan``. None looks at a machine."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ficco_sim.errors import ScenarioError
from ficco_sim.plan import Plan
from ficco_sim.schedules.collectives import ALGORITHMS, all_gather, collective
from ficco_sim.schedules.ficco import Granularity, Shape, Uniformity, ficco_schedule
from ficco_sim.schedules.serial import serial
from ficco_sim.schedules.shard import shard_p2p, shard_ring
from ficco_sim.schedules.side_by_side import side_by_side
from ficco_sim.workload import Workload

__all__ = [
    "ALGORITHMS",
    "FICCO",
    "SCHEDULES",
    "collective",
    "get_schedule",
    "knobs_of",
    "make_plan",
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
FICCO: dict[str, Callable[..., Plan]] = {"-".join(point): ficco_schedule(*point) for point in _POINTS}

SCHEDULES: dict[str, Callable[..., Plan]] = {
    "serial": serial,
    "shard-p2p": shard_p2p,
    "shard-ring": shard_ring,
    **FICCO,
    "all-gather": all_gather,
}


def get_schedule(name: str) -> Callable[..., Plan]:
    """Look up a schedule function.

    Raises
    ------
    ScenarioError
        If the name is unknown; the message lists the valid ones.
    """
    if name not in SCHEDULES:
        raise ScenarioError(f"schedule {name!r} is unknown; one of: {', '.join(SCHEDULES)}")
    return SCHEDULES[name]


def knobs_of(name: str) -> tuple[str, ...]:
    """Names of the knobs that a schedule takes."""
    parameters = inspect.signature(get_schedule(name)).parameters.values()
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
    valid = knobs_of(name)
    for knob in knobs or {}:
        if knob not in valid:
            raise ScenarioError(f"schedule {name!r} has no knob {knob!r}; it has {', '.join(valid)}")
    return schedule(workload, num_gpus, **(knobs or {}))

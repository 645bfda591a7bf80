"""What a page is about: a comparison, and where they are known its machine, timelines and what-ifs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ficco_sim import io
from ficco_sim.comparison import Comparison, compare, evaluate_plan
from ficco_sim.costs import CostModel
from ficco_sim.errors import FileError
from ficco_sim.grid import COMPARED
from ficco_sim.machine import Machine
from ficco_sim.plan import Plan
from ficco_sim.schedules import make_plan
from ficco_sim.sensitivity import WhatIf, what_ifs
from ficco_sim.trace import Trace
from ficco_sim.workload import Workload

__all__ = ["Subject", "read_comparison", "simulate_subject"]

LEAST, MOST = 1e-12, 1e12  # of times and speed-ups that can be drawn

ProgressCall: TypeAlias = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A comparison and what a page shows beside it.

    Parameters
    ----------
    command
        The command line that makes the page, without folders.
    machine, workload
        None if the comparison was read from a file.
    runs
        Plans and traces to draw, the best schedule first; none if read from a file.
    what_ifs
        The best schedule on machines with one parameter changed.
    """

    comparison: Comparison
    command: str
    machine: Machine | None = None
    workload: Workload | None = None
    runs: tuple[tuple[Plan, Trace], ...] = ()
    what_ifs: tuple[WhatIf, ...] = ()


def simulate_subject(
    workload: Workload,
    machine: Machine,
    *,
    command: str,
    costs: CostModel | None = None,
    engines: Sequence[str] = ("dma",),
    sensitivity: bool = True,
    intervals: bool = True,
    progress: ProgressCall | None = None,
) -> Subject:
    """Compare all schedules and gather what a page shows beside the table.

    Parameters
    ----------
    costs, engines, intervals, progress
        As in `ficco_sim.comparison.compare`.
    sensitivity
        Simulate again with links, engines, memory and peak twice as fast.
    """
    model = costs or CostModel(machine)
    comparison = compare(
        workload, machine, costs=model, engines=engines, intervals=intervals, progress=progress
    )
    runs = [comparison.traces["best"], comparison.traces["serial"]]
    if "shard-p2p" in COMPARED[workload.pattern] and runs[0][0].schedule != "shard-p2p":
        plan = make_plan("shard-p2p", workload, machine.num_gpus, {"engine": engines[0]})
        shard = evaluate_plan(plan, machine, model, intervals=False)
        runs.append((shard.plan, shard.trace))
    found: tuple[WhatIf, ...] = ()
    if sensitivity:
        found = what_ifs(workload, machine, costs=model, engines=engines, progress=progress)
    return Subject(
        comparison=comparison,
        command=command,
        machine=machine,
        workload=workload,
        runs=tuple(runs),
        what_ifs=found,
    )


def read_comparison(document: dict[str, Any], where: str, *, command: str) -> Subject:
    """A comparison from what ``ficco compare --json`` writes; it holds no timelines.

    Parameters
    ----------
    document
        The file's plain data.
    where
        Opens every error message.

    Raises
    ------
    FileError
        If it is no comparison.
    """
    comparison = io.decode(document | {"traces": {}}, Comparison, where)
    if not any(result.schedule == "serial" for result in comparison.results):
        raise FileError(f"{where}: results: serial is missing, which all others are measured by")
    for i, result in enumerate(comparison.results):
        for key, value in (
            ("makespan_s", result.makespan_s),
            ("speedup", result.speedup),
            *([("ideal_s", result.ideal_s)] if result.ideal_s else []),
            *(("interval_s", end_s) for end_s in result.interval_s or ()),
        ):
            if not LEAST <= value <= MOST:
                raise FileError(
                    f"{where}: results[{i}].{key}: {value:g} must be from {LEAST:g} to {MOST:g}"
                )
    return Subject(comparison=comparison, command=command)

"""Runs a sweep: scenarios x machines x plans, written as they finish."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ficco_sim import io
from ficco_sim.costs import CostKind, Submission
from ficco_sim.errors import FileError, ScenarioError
from ficco_sim.grid import Grid
from ficco_sim.machine import Machine
from ficco_sim.sweep.evaluate import Evaluator, Setting, Task
from ficco_sim.sweep.files import check_table_name, error_csv, write_rows
from ficco_sim.sweep.inputs import sweep_inputs
from ficco_sim.sweep.journal import Journal
from ficco_sim.sweep.workers import Died, run_tasks
from ficco_sim.workload import Workload

__all__ = ["SweepError", "SweepSummary", "check_sweep_target", "errors_path", "run_sweep"]

MAX_SCENARIOS = 1_000_000
MAX_JOBS = 1024
MAX_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepError:
    """A scenario that could not be simulated on a machine, and why."""

    workload: str
    machine: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSummary:
    """What a sweep came to.

    Parameters
    ----------
    num_scenarios
        Scenarios times machines.
    num_rows
        Rows of the table.
    num_failed
        Scenarios that could not be simulated; they are in ``errors``.
    num_resumed
        Scenarios that an earlier run had done.
    seconds, scenarios_per_s
        Of this run, over the scenarios that it did; the rate is None if there was none to do.
    file, errors_file
        The table, and the failed scenarios beside it if there are any.
    """

    num_scenarios: int
    num_rows: int
    num_failed: int
    num_resumed: int
    seconds: float
    scenarios_per_s: float | None
    file: str
    errors_file: str | None
    errors: tuple[SweepError, ...]

    def to_plain(self) -> dict[str, Any]:
        """Plain data with stable keys, for JSON."""
        return {f.name: io.to_plain(getattr(self, f.name)) for f in fields(self)}


def errors_path(path: Path) -> Path:
    """Where the failed scenarios of a sweep are written."""
    return path.with_name(f"{path.name}.errors.csv")


def check_sweep_target(path: Path) -> None:
    """Refuse a table that could not be written, before any work is done."""
    check_table_name(path)
    io.check_target(path)


def run_sweep(
    workloads: Sequence[Workload],
    machines: Sequence[Machine],
    out: Path,
    *,
    grid: Grid | None = None,
    costs: CostKind = "profile",
    submission: Submission = "graph",
    makespans_only: bool = False,
    jobs: int = 1,
    resume: bool = False,
    progress: Callable[[int, int, str], None] | None = None,
) -> SweepSummary:
    """Simulate every scenario on every machine and write one table, a row per plan.

    Scenarios are kept in ``OUT.part`` as they finish; a run that was interrupted or killed is
    continued with ``resume``. The table is in the order of scenarios, then machines, then makespans,
    and does not depend on ``jobs``. A scenario that fails is in ``OUT.errors.csv`` and ends nothing.

    Parameters
    ----------
    workloads
        Names must be unique; see `ficco_sim.scenarios`.
    out
        A name in ``.csv``, or ``.parquet`` (needs pyarrow).
    grid
        Schedules and knobs; by default those of `compare`.
    makespans_only
        Leave out metrics and the proof of each plan; takes about half the time.
    jobs
        Processes. They are spawned: a script that calls this with more than one must have its own
        work under ``if __name__ == "__main__":``.
    resume
        Continue an unfinished sweep of the same inputs; start one where there is none.
    progress
        Called with scenarios done, scenarios in all, and the rate and remaining time in words.

    Raises
    ------
    FiccoError
        If the input is at fault, the journal is another sweep's, or not one scenario could be
        simulated.
    """
    setting = Setting(
        machines=tuple(machines),
        grid=grid or Grid(),
        costs=costs,
        submission=submission,
        makespans_only=makespans_only,
    )
    _check(workloads, setting.machines, jobs)
    check_sweep_target(out)
    tasks = [
        Task(i * len(machines) + j, workload, j)
        for i, workload in enumerate(workloads)
        for j in range(len(machines))
    ]
    keys = [(task.workload.name, setting.machines[task.machine].name) for task in tasks]
    started_s = time.perf_counter()
    with Journal.open(out, sweep_inputs(workloads, setting), keys, resume=resume) as journal:
        todo = [task for task in tasks if task.index not in journal.done]
        resumed = len(tasks) - len(todo)
        clock = _Clock(progress, resumed, len(tasks), started_s)
        clock.tell(resumed)
        results = run_tasks(Evaluator, setting, todo, jobs)
        try:
            for done, (task, result) in enumerate(results, start=resumed + 1):
                journal.write(task.index, result.reason if isinstance(result, Died) else result)
                clock.tell(done)
        finally:
            results.close()  # workers end now, not when the garbage is collected
        seconds = time.perf_counter() - started_s
        errors = tuple(
            SweepError(workload=keys[i][0], machine=keys[i][1], error=journal.errors[i])
            for i in sorted(journal.errors)
        )
        if len(errors) == len(tasks):
            journal.remove()
            raise ScenarioError(_all_failed(errors))
        if errors:
            text = error_csv((e.workload, e.machine, e.error) for e in errors)
            io.write_text(errors_path(out), text)
        num_rows = write_rows(out, journal.rows())
        journal.remove()
    return SweepSummary(
        num_scenarios=len(tasks),
        num_rows=num_rows,
        num_failed=len(errors),
        num_resumed=resumed,
        seconds=seconds,
        scenarios_per_s=len(todo) / seconds if todo else None,
        file=str(out),
        errors_file=str(errors_path(out)) if errors else None,
        errors=errors,
    )


class _Clock:
    """Tells how far a sweep is, how fast, and how long it will still take."""

    def __init__(
        self,
        progress: Callable[[int, int, str], None] | None,
        resumed: int,
        total: int,
        started_s: float,
    ) -> None:
        self._progress = progress
        self._resumed = resumed
        self._total = total
        self._started_s = started_s

    def tell(self, done: int) -> None:
        if self._progress is None:
            return
        words = f"{done:,} of {self._total:,}"
        here = done - self._resumed
        if here:
            each_s = (time.perf_counter() - self._started_s) / here
            words += f", {1 / each_s:.2f}/s, {_duration((self._total - done) * each_s)} left"
        self._progress(done, self._total, words)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _check(workloads: Sequence[Workload], machines: Sequence[Machine], jobs: int) -> None:
    if isinstance(jobs, bool) or not 1 <= jobs <= MAX_JOBS:
        raise ScenarioError(f"jobs: {jobs} must be from 1 to {MAX_JOBS}")
    for what, names in (
        ("workload", [workload.name for workload in workloads]),
        ("machine", [machine.name for machine in machines]),
    ):
        if not names:
            raise ScenarioError(f"a sweep needs at least one {what}")
        seen: set[str] = set()
        for name in names:
            if name in seen:
                raise ScenarioError(f"two {what}s are called {name!r}; names must be unique")
            seen.add(name)
    total = len(workloads) * len(machines)
    if total > MAX_SCENARIOS:
        raise FileError(f"{total:,} scenarios are more than {MAX_SCENARIOS:,}; split the sweep")


def _all_failed(errors: Sequence[SweepError]) -> str:
    lines = [f"{e.workload} on {e.machine}: {e.error}" for e in errors[:MAX_SHOWN]]
    if len(errors) > MAX_SHOWN:
        lines.append(f"and {len(errors) - MAX_SHOWN} more")
    return "\n".join([f"no scenario of {len(errors)} could be simulated", *lines])

"""How far a simulation is off: a simulated and a measured run of one plan, task by task."""

import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ficco_sim.errors import ScenarioError
from ficco_sim.trace import Span, Trace
from ficco_sim.trace_parts import PARTS, PartName, parts_of
from ficco_sim.units import format_seconds

if TYPE_CHECKING:
    from rich.table import Table

__all__ = [
    "Comparison",
    "KindSummary",
    "Only",
    "Part",
    "TaskRow",
    "compare_traces",
    "comparison_lines",
    "kinds_table",
    "parts_table",
    "tasks_table",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """One task in both runs.

    Parameters
    ----------
    measured_s, simulated_s
        Durations.
    error
        ``simulated_s / measured_s - 1``; None if the measured duration is 0.
    """

    task_id: str
    kind: str
    queue: str
    measured_start_s: float
    measured_s: float
    simulated_start_s: float
    simulated_s: float
    error: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KindSummary:
    """All common tasks of one kind.

    Parameters
    ----------
    measured_s, simulated_s
        Sums of durations.
    error
        Of the sum, ``simulated_s / measured_s - 1``; None if nothing was measured.
    median_abs_error
        Of the single tasks; None if none has an error.
    """

    kind: str
    num_tasks: int
    measured_s: float
    simulated_s: float
    error: float | None
    median_abs_error: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A share of the makespan: the time in which the gpu that ends last does this.

    Time with several tasks at once counts for ``gemm`` before ``local_copy`` before ``transfer``;
    ``waiting`` is time with none, so that the parts sum up to the makespan. Both runs are cut up on
    the gpu that ends last in each.
    """

    name: PartName
    measured_s: float
    simulated_s: float
    difference_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Only:
    """Tasks of a gpu that one of the runs lacks."""

    gpu: int
    num_tasks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A simulated and a measured run of one plan; as JSON its keys are these fields.

    Parameters
    ----------
    gpus
        Those with tasks in both runs; makespans and parts are of these.
    measured_makespan_s, simulated_makespan_s
        From 0 to the end of the last task of these gpus.
    error
        Of the makespan, ``simulated / measured - 1``; None if nothing was measured.
    measured_labels, simulated_labels
        What in a run is not what it stands for.
    only_measured, only_simulated
        Tasks that the other run lacks, by gpu: gpus that only hold data run none.
    parts
        Where the difference of the makespans arises.
    """

    schedule: str
    workload: str
    plan_fingerprint: str
    measured_machine: str
    simulated_machine: str
    measured_labels: tuple[str, ...]
    simulated_labels: tuple[str, ...]
    gpus: tuple[int, ...]
    measured_makespan_s: float
    simulated_makespan_s: float
    error: float | None
    parts: tuple[Part, ...]
    kinds: tuple[KindSummary, ...]
    only_measured: tuple[Only, ...]
    only_simulated: tuple[Only, ...]
    tasks: tuple[TaskRow, ...]


def compare_traces(simulated: Trace, measured: Trace) -> Comparison:
    """Join two runs of the same plan by task.

    Raises
    ------
    ScenarioError
        If one of the traces is of the other kind or names no plan, if they are of different plans, or
        have no task in common.
    """
    _check_source(simulated, "sim")
    _check_source(measured, "gpu")
    if simulated.plan_fingerprint != measured.plan_fingerprint:
        raise ScenarioError(
            f"the traces are of different plans: simulated {_plan_of(simulated)}, measured "
            f"{_plan_of(measured)}; simulate the plan that ran (ficco simulate --plan)"
        )
    by_id = {span.task_id: span for span in simulated.spans}
    pairs = [(by_id[span.task_id], span) for span in measured.spans if span.task_id in by_id]
    if not pairs:
        raise ScenarioError(
            f"the traces have no task in common: {len(simulated.spans)} simulated, "
            f"{len(measured.spans)} measured"
        )
    common = {span.task_id for _, span in pairs}
    gpus = {span.queue.gpu for _, span in pairs}
    measured_parts, simulated_parts = (
        parts_of([span for span in trace.spans if span.queue.gpu in gpus])
        for trace in (measured, simulated)
    )
    measured_s, simulated_s = _makespan_s(measured.spans, gpus), _makespan_s(simulated.spans, gpus)
    rows = tuple(_row(model, span) for model, span in pairs)
    return Comparison(
        schedule=measured.schedule,
        workload=measured.workload,
        plan_fingerprint=measured.plan_fingerprint,
        measured_machine=measured.machine,
        simulated_machine=simulated.machine,
        measured_labels=measured.labels,
        simulated_labels=simulated.labels,
        gpus=tuple(sorted(gpus)),
        measured_makespan_s=measured_s,
        simulated_makespan_s=simulated_s,
        error=_error(simulated_s, measured_s),
        parts=tuple(
            Part(
                name=name,
                measured_s=measured_parts[name],
                simulated_s=simulated_parts[name],
                difference_s=simulated_parts[name] - measured_parts[name],
            )
            for name in PARTS
        ),
        kinds=tuple(_summary(kind, rows) for kind in dict.fromkeys(row.kind for row in rows)),
        only_measured=_only(measured.spans, common),
        only_simulated=_only(simulated.spans, common),
        tasks=rows,
    )


def _check_source(trace: Trace, source: Literal["sim", "gpu"]) -> None:
    name = {"sim": "simulated", "gpu": "measured"}
    if trace.source != source:
        raise ScenarioError(
            f"the trace given as {name[source]} is a {name[trace.source]} one "
            f"(source {trace.source!r}); give the simulated one first, then the measured one"
        )
    if not trace.plan_fingerprint:
        raise ScenarioError(
            f"the {name[source]} trace does not say of which plan it is (plan_fingerprint is empty)"
        )


def _plan_of(trace: Trace) -> str:
    return f"{trace.schedule} of {trace.workload} (fingerprint {trace.plan_fingerprint[:16]})"


def _error(simulated_s: float, measured_s: float) -> float | None:
    return simulated_s / measured_s - 1 if measured_s > 0 else None


def _row(simulated: Span, measured: Span) -> TaskRow:
    return TaskRow(
        task_id=measured.task_id,
        kind=measured.kind,
        queue=str(measured.queue),
        measured_start_s=measured.start_s,
        measured_s=measured.duration_s,
        simulated_start_s=simulated.start_s,
        simulated_s=simulated.duration_s,
        error=_error(simulated.duration_s, measured.duration_s),
    )


def _summary(kind: str, rows: Iterable[TaskRow]) -> KindSummary:
    of_kind = [row for row in rows if row.kind == kind]
    measured_s = sum(row.measured_s for row in of_kind)
    simulated_s = sum(row.simulated_s for row in of_kind)
    errors = [abs(row.error) for row in of_kind if row.error is not None]
    return KindSummary(
        kind=kind,
        num_tasks=len(of_kind),
        measured_s=measured_s,
        simulated_s=simulated_s,
        error=_error(simulated_s, measured_s),
        median_abs_error=statistics.median(errors) if errors else None,
    )


def _only(spans: Iterable[Span], common: set[str]) -> tuple[Only, ...]:
    counts = Counter(span.queue.gpu for span in spans if span.task_id not in common)
    return tuple(Only(gpu=gpu, num_tasks=counts[gpu]) for gpu in sorted(counts))


def _makespan_s(spans: Iterable[Span], gpus: set[int]) -> float:
    return max(span.end_s for span in spans if span.queue.gpu in gpus)


def comparison_lines(comparison: Comparison) -> list[str]:
    """What was compared, how far off the makespan is, and what to know of it, a sentence a line."""
    c = comparison
    gpus = f"gpu {c.gpus[0]}" if len(c.gpus) == 1 else f"{len(c.gpus)} gpus"
    lines = [
        f"{c.schedule} of {c.workload}: measured on {c.measured_machine}, simulated on "
        f"{c.simulated_machine}",
        f"makespan of {gpus}: measured {format_seconds(c.measured_makespan_s)}, simulated "
        f"{format_seconds(c.simulated_makespan_s)}, error {_percent(c.error)}",
    ]
    for name, labels in (("measured", c.measured_labels), ("simulated", c.simulated_labels)):
        if labels:
            lines.append(f"{name} run: {'; '.join(labels)}")
    for name, only in (("measured", c.only_measured), ("simulated", c.only_simulated)):
        if only:
            counts = ", ".join(f"{entry.num_tasks} of gpu {entry.gpu}" for entry in only)
            lines.append(f"only {name}, not compared: {counts}")
    return lines


def kinds_table(comparison: Comparison) -> "Table":
    """A row per kind of task."""
    table = _table("common tasks", "kind", "tasks", "measured", "simulated", "error", "median |error|")
    for kind in comparison.kinds:
        median = "-" if kind.median_abs_error is None else f"{kind.median_abs_error:.1%}"
        table.add_row(
            kind.kind,
            str(kind.num_tasks),
            format_seconds(kind.measured_s),
            format_seconds(kind.simulated_s),
            _percent(kind.error),
            median,
        )
    return table


def parts_table(comparison: Comparison) -> "Table":
    """A row per part of the makespan, with what it adds to the difference."""
    table = _table("where the makespan goes", "part", "measured", "simulated", "difference")
    for part in comparison.parts:
        table.add_row(
            part.name,
            format_seconds(part.measured_s),
            format_seconds(part.simulated_s),
            _signed(part.difference_s),
        )
    table.add_section()
    table.add_row(
        "makespan",
        format_seconds(comparison.measured_makespan_s),
        format_seconds(comparison.simulated_makespan_s),
        _signed(comparison.simulated_makespan_s - comparison.measured_makespan_s),
    )
    return table


def tasks_table(comparison: Comparison, most: int = 20) -> "Table":
    """The tasks whose durations differ most, in seconds, the worst first."""
    table = _table("tasks that differ most", "task", "queue", "measured", "simulated", "error")
    worst = sorted(comparison.tasks, key=lambda row: -abs(row.simulated_s - row.measured_s))
    for row in worst[:most]:
        table.add_row(
            row.task_id,
            row.queue,
            format_seconds(row.measured_s),
            format_seconds(row.simulated_s),
            _percent(row.error),
        )
    return table


def _table(title: str, first: str, *others: str) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _percent(error: float | None) -> str:
    return "-" if error is None else f"{error:+.1%}"


def _signed(seconds: float) -> str:
    return f"+{format_seconds(seconds)}" if seconds > 0 else format_seconds(seconds)

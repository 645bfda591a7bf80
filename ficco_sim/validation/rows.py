"""One measured plan beside its simulation: how far the makespan is off, and where that arises."""

import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from ficco_sim.costs import CostModel
from ficco_sim.measured_plans import computing_gpus, measured_spans, part_of_plan, plan_of
from ficco_sim.plan import Plan, Transfer
from ficco_sim.records import Measurement
from ficco_sim.schedules import FICCO
from ficco_sim.sim import simulate
from ficco_sim.trace import Span
from ficco_sim.trace_parts import PARTS, PartName, parts_of

__all__ = ["KindRow", "PartRow", "PlanRow", "plan_row"]

KINDS = ("gemm", "local_copy", "transfer")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRow:
    """A share of the makespan: the time in which the gpu that ends last does this.

    Parameters
    ----------
    name
        ``gemm``, else ``local_copy``, else ``transfer`` (the gpu waits for a copy in progress), else
        ``waiting`` (nothing is in progress: launches, and waits between queues).
    measured_share
        Of the instrumented run, which is longer than the plain one: only its shares are used.
    measured_s
        That share of the plain run's makespan.
    error
        ``simulated_s - measured_s`` over the plain run's makespan; the parts add up to the plan's
        error.
    """

    name: PartName
    measured_share: float
    measured_s: float
    simulated_s: float
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRow:
    """Tasks of one kind, joined by their names.

    Parameters
    ----------
    measured_s, simulated_s
        Time in which at least one of them is in progress; measured in the instrumented run.
    error
        ``simulated_s / measured_s - 1``; None if nothing was measured.
    """

    kind: str
    num_tasks: int
    measured_s: float
    simulated_s: float
    error: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """One plan, measured and simulated.

    Parameters
    ----------
    num_chunks, compute_queues, copy_queues
        1 where a schedule has no such knob; copy_queues is the number of queues that transfers into
        the busiest of the gpus are on.
    gpus
        Those that ran; makespans are of these.
    num_samples
        Raw samples of all passes together.
    measured_s
        Their median.
    error
        ``simulated_s / measured_s - 1``.
    instrumented_s
        Makespan of the run with events around every task; None if there was none.
    parts, kinds
        Where the error arises; empty without an instrumented run.
    labels
        What in the simulation is not what it stands for.
    """

    workload: str
    m: int
    n: int
    k: int
    dtype: str
    schedule: str
    num_chunks: int
    compute_queues: int
    copy_queues: int
    engine: str
    gpus: tuple[int, ...]
    num_samples: int
    measured_s: float
    simulated_s: float
    error: float
    instrumented_s: float | None
    parts: tuple[PartRow, ...]
    kinds: tuple[KindRow, ...]
    labels: tuple[str, ...]

    @property
    def title(self) -> str:
        """The schedule and its knobs: ``hetero-unfused-1d c4 q4 in 1`` (copies on one queue)."""
        if self.schedule not in FICCO:
            return self.schedule
        queues = f" q{self.compute_queues}" if "-unfused-" in self.schedule else ""
        order = " in 1" if self.copy_queues == 1 else ""
        return f"{self.schedule} c{self.num_chunks}{queues}{order}"


def plan_row(measurements: Sequence[Measurement], costs: CostModel) -> PlanRow:
    """Simulate a measured plan and lay both runs side by side.

    Only the gpus that ran are simulated: the others' data lies there from the start, they neither
    compute nor receive, and so nothing but the transfers into these gpus is on any link, as in the
    measurement.

    Parameters
    ----------
    measurements
        Of one plan, in one pass or several.
    costs
        Of the machine that the plan is simulated on.

    Raises
    ------
    ScenarioError, MachineError
        If record, plan and machine do not fit together.
    """
    first = measurements[0]
    gpus = computing_gpus(first)
    plan = part_of_plan(plan_of(first), gpus)
    trace = simulate(plan, costs.machine, costs)
    measured_s = statistics.median(s for m in measurements for s in m.samples_s)
    runs = [measured_spans(m, plan) for m in measurements if m.spans is not None]
    queues = Counter({t.queue for t in plan.tasks if isinstance(t, Transfer)})
    workload = plan.workload
    return PlanRow(
        workload=workload.name,
        m=workload.m,
        n=workload.n,
        k=workload.k,
        dtype=workload.dtype,
        schedule=plan.schedule,
        num_chunks=_count(plan, "num_chunks"),
        compute_queues=_count(plan, "compute_queues"),
        copy_queues=max(Counter(queue.gpu for queue in queues).values(), default=1),
        engine=next((queue.engine for queue in queues), "dma"),
        gpus=tuple(sorted(gpus)),
        num_samples=sum(len(m.samples_s) for m in measurements),
        measured_s=measured_s,
        simulated_s=trace.makespan_s,
        error=trace.makespan_s / measured_s - 1,
        instrumented_s=statistics.median(_makespan_s(run) for run in runs) if runs else None,
        parts=_part_rows(runs, trace.spans, measured_s) if runs else (),
        kinds=_kind_rows(runs[0], trace.spans) if runs else (),
        labels=trace.labels,
    )


def _count(plan: Plan, knob: str) -> int:
    value = plan.knobs.get(knob, 1)
    return value if isinstance(value, int) else 1


def _makespan_s(spans: Iterable[Span]) -> float:
    return max(span.end_s for span in spans)


def _part_rows(
    runs: Sequence[Sequence[Span]], simulated: Sequence[Span], measured_s: float
) -> tuple[PartRow, ...]:
    shares = [{name: s / _makespan_s(run) for name, s in parts_of(run).items()} for run in runs]
    model = parts_of(simulated)
    rows = []
    for name in PARTS:
        share = statistics.fmean(found[name] for found in shares)
        rows.append(
            PartRow(
                name=name,
                measured_share=share,
                measured_s=share * measured_s,
                simulated_s=model[name],
                error=model[name] / measured_s - share,
            )
        )
    return tuple(rows)


def _kind_rows(measured: Sequence[Span], simulated: Sequence[Span]) -> tuple[KindRow, ...]:
    by_id = {span.task_id: span for span in simulated}
    rows = []
    for kind in KINDS:
        pairs = [(span, by_id[span.task_id]) for span in measured if span.kind == kind]
        if not pairs:
            continue
        ran_s, model_s = (_busy_s([pair[i] for pair in pairs]) for i in (0, 1))
        rows.append(
            KindRow(
                kind=kind,
                num_tasks=len(pairs),
                measured_s=ran_s,
                simulated_s=model_s,
                error=model_s / ran_s - 1 if ran_s > 0 else None,
            )
        )
    return tuple(rows)


def _busy_s(spans: Collection[Span]) -> float:
    """Time in which at least one is in progress; of several gpus added up."""
    total = 0.0
    reached: dict[int, float] = {}
    for span in sorted(spans, key=lambda span: span.start_s):
        gpu = span.queue.gpu
        start_s = max(span.start_s, reached.get(gpu, 0.0))
        if span.end_s > start_s:
            total += span.end_s - start_s
            reached[gpu] = span.end_s
    return total

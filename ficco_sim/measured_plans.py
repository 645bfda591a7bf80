"""Plans that were measured: made again from their records, with what ran of them and when."""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace

from ficco_sim.errors import ScenarioError
from ficco_sim.plan import Gemm, Plan, buffer_bytes
from ficco_sim.records import Measurement, Scalar
from ficco_sim.schedules import knobs_of, make_plan
from ficco_sim.trace import Span, Trace
from ficco_sim.workload import Workload, named_workloads

__all__ = [
    "computing_gpus",
    "measured_spans",
    "part_of_plan",
    "plan_of",
    "trace_of_measurement",
    "workload_of",
]

NS = 1e-9
PLACE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?=(?:dev\d{1,5}(:shard|:link)?|(host(?::link)?))")
"""One entry of a record's map: gpus, and a device, a device that only holds data, or the host."""


def plan_of(measurement: Measurement) -> Plan:
    """The plan that was measured, made again from its parameters.

    Raises
    ------
    ScenarioError
        If the measurement is of no plan, or its parameters do not say of which.
    """
    if measurement.kind not in ("plan", "straight", "straight_tensor_copy"):
        raise ScenarioError(f"{measurement.kind} {measurement.key}: no measurement of a plan")
    params = measurement.params
    schedule = str(_given(params, "schedule"))
    knobs = {knob: params[knob] for knob in knobs_of(schedule) if params.get(knob) is not None}
    return make_plan(schedule, workload_of(measurement), _whole(params, "num_gpus"), knobs)


def workload_of(measurement: Measurement) -> Workload:
    """The workload of a measured plan.

    Raises
    ------
    ScenarioError
        If the parameters do not say which; of an all-to-all only the named ones are known.
    """
    params = measurement.params
    name, pattern, dtype = (str(_given(params, key)) for key in ("workload", "pattern", "dtype"))
    m, n, k = (_whole(params, key) for key in ("m", "n", "k"))
    known = named_workloads().get(name)
    if known is not None and (known.pattern, known.m, known.n, known.k, known.dtype) == (
        pattern,
        m,
        n,
        k,
        dtype,
    ):
        return known
    if pattern != "all_gather_gemm":
        raise ScenarioError(
            f"{name}: {pattern} of {m} x {n} x {k} in {dtype} is none of the named workloads, and "
            "records do not hold who sends how much to whom"
        )
    return Workload(name=name, pattern="all_gather_gemm", m=m, n=n, k=k, dtype=dtype)


def computing_gpus(measurement: Measurement) -> frozenset[int]:
    """The gpus that ran their tasks; all others only held what those read.

    Raises
    ------
    ScenarioError
        If the record's map is no list of places.
    """
    text = str(_given(measurement.params, "map"))
    found: set[int] = set()
    for entry in text.split(","):
        match = PLACE.fullmatch(entry)
        if match is None:
            raise ScenarioError(f"plan {measurement.key}: map: {entry[:40]!r} is no place of gpus")
        if not match[3] and not match[4]:
            found |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    gpus = frozenset(gpu for gpu in found if gpu < _whole(measurement.params, "num_gpus"))
    if not gpus:
        raise ScenarioError(f"plan {measurement.key}: map: no gpu computes in {text[:60]!r}")
    return gpus


def part_of_plan(plan: Plan, gpus: Collection[int]) -> Plan:
    """What runs of a plan if only some gpus compute and the others' data lies there from the start.

    Kept are the tasks on queues of these gpus: their GEMMs, local copies, and the transfers into them.
    Dependencies on tasks of other gpus fall away, as what those would have brought is there already.
    No outputs are named, since the other gpus make none. A plan all of whose gpus compute stays as it
    is.
    """
    if len(set(gpus)) >= plan.num_gpus:
        return plan
    kept = [task for task in plan.tasks if task.queue.gpu in gpus]
    ids = {task.id for task in kept}
    tasks = tuple(
        replace(task, deps=tuple(dep for dep in task.deps if dep in ids)) if task.deps else task
        for task in kept
    )
    return replace(plan, tasks=tasks, outputs=())


def measured_spans(measurement: Measurement, plan: Plan) -> tuple[Span, ...]:
    """The instrumented run of a measured plan, in the order of its tasks.

    Raises
    ------
    ScenarioError
        If there is none, or its tasks are not those of the plan.
    """
    series = measurement.spans
    if series is None:
        raise ScenarioError(f"{plan.schedule} {measurement.key}: measured without spans")
    times = dict(zip(series.task_ids, zip(series.start_ns, series.end_ns, strict=True), strict=True))
    known = {task.id for task in plan.tasks}
    if not known.issuperset(times):
        stranger = next(task for task in times if task not in known)
        raise ScenarioError(
            f"{plan.schedule} {measurement.key}: task {stranger!r} is not in the plan that its "
            "parameters give: measured by another version"
        )
    sizes = buffer_bytes(plan)
    return tuple(
        Span(
            task_id=task.id,
            kind=task.kind,
            queue=task.queue,
            start_s=times[task.id][0] * NS,
            end_s=times[task.id][1] * NS,
            nbytes=0
            if isinstance(task, Gemm)
            else sum(r.num_elements * sizes[r.gpu, r.buffer] for r in task.writes),
            flops=task.flops if isinstance(task, Gemm) else 0,
        )
        for task in plan.tasks
        if task.id in times
    )


def trace_of_measurement(measurement: Measurement, machine: str) -> Trace:
    """The instrumented run of a measured plan, to lay beside a simulated one.

    Raises
    ------
    ScenarioError
        If there is none, or its tasks are not those of the plan.
    """
    plan = plan_of(measurement)
    return Trace(
        source="gpu",
        schedule=plan.schedule,
        workload=plan.workload.name,
        machine=machine,
        plan_fingerprint=plan.fingerprint,
        environment={name: str(value) for name, value in measurement.params.items()},
        labels=measurement.labels,
        spans=measured_spans(measurement, plan),
    )


def _given(params: Mapping[str, Scalar], name: str) -> Scalar:
    if params.get(name) is None:
        raise ScenarioError(f"params: {name!r} is missing in the record of a plan")
    return params[name]


def _whole(params: Mapping[str, Scalar], name: str) -> int:
    value = _given(params, name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ScenarioError(f"params: {name}: {value!r} must be a whole number")
    return value

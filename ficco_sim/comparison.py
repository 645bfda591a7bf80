"""The main job: all schedules of a workload on a machine, side by side, and what they tell."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ficco_sim.check import MAX_CHECKED_TASKS, check_plan
from ficco_sim.costs import CostKind, CostModel, Submission, gemm_shape
from ficco_sim.costs.uncertainty import NUM_DRAWS, UsedSizes, interval
from ficco_sim.errors import ScenarioError
from ficco_sim.grid import COMPARED, Grid
from ficco_sim.machine import Machine
from ficco_sim.memory import rare_collections
from ficco_sim.metrics import (
    Alone,
    Breakdown,
    Cause,
    Metrics,
    copy_rates_beside_gemms,
    summarize,
)
from ficco_sim.plan import Gemm, Plan, Transfer
from ficco_sim.routing import Routes, relay
from ficco_sim.schedules import FICCO, Schedule, knobs_of, make_plan, name_of, own_plan
from ficco_sim.sim import communication_only, simulate
from ficco_sim.trace import Trace
from ficco_sim.units import format_seconds
from ficco_sim.workload import Workload, remarks

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Comparison",
    "Evaluation",
    "Makespans",
    "Result",
    "best_of_each",
    "compare",
    "evaluate_plan",
    "find_makespans",
    "gemm_to_communication",
]

_Maker: TypeAlias = Callable[[], Plan]
COMM_NAMES = {"all_gather_gemm": "all-gather", "all_to_all_gemm": "all-to-all"}
RELAY_PIECES = (2, 4, 8, 16)
MAX_TRIED_TASKS = 20_000  # larger plans would take longer to try than they gain
PIPELINED_CHUNKS = (2, 4, 8)
WORTH_IT = 1.01  # gains below this are not called a gain
NEAR_BEST = 1.15  # slower schedules are not drawn: errors of fits are a few percent
MAX_NEAR = 6
MAX_DRAWN_TASKS = 10_000  # a larger plan would take more than half a minute
NOT_FITTED = "no intervals: the profile's parameters were not fitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One schedule with its knobs, and its metrics; see `Metrics`.

    Parameters
    ----------
    interval_s
        10th and 90th percentile of the makespan over draws of what the profile's fits leave open;
        None if it was not drawn.
    too_close
        Whether the makespan over the best one's, draw by draw, has 1 between its 10th and 90th
        percentile; None if it was not drawn, and of the best itself.
    """

    schedule: str
    num_chunks: int
    compute_queues: int
    engine: str
    makespan_s: float
    ideal_s: float
    speedup: float
    fraction_of_ideal: float | None
    exposed_comm_s: float
    gemm_dil: float
    comm_dil: float
    gemm_cil: float
    comm_cil: float
    cause: Cause
    breakdown: Breakdown
    labels: tuple[str, ...]
    num_tasks: int
    interval_s: tuple[float, float] | None = None
    too_close: bool | None = None

    @property
    def title(self) -> str:
        """Name and knobs in a few words."""
        if self.schedule not in FICCO and self.num_chunks == 1:
            return self.schedule
        queues = f", {self.compute_queues} queues" if self.compute_queues > 1 else ""
        return f"{self.schedule} with {self.num_chunks} chunks{queues}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Results of all schedules, best first, on one machine.

    Parameters
    ----------
    gemm_s, comm_s
        The whole GEMM and the whole communication, each alone; ``ideal_s`` is the larger one.
    verdict
        One sentence: does overlap pay here, and why.
    remarks
        What else a reader must know, such as padding, and sizes outside of what was fitted.
    traces
        The plan and trace of the best schedule and of serial, by schedule name.
    """

    machine: str
    workload: str
    costs: CostKind
    submission: Submission
    gemm_s: float
    comm_s: float
    ideal_s: float
    serial_s: float
    best: str
    verdict: str
    remarks: tuple[str, ...]
    results: tuple[Result, ...]
    traces: dict[str, tuple[Plan, Trace]] = field(repr=False)

    def to_plain(self) -> dict[str, Any]:
        """Plain data with stable keys, for JSON."""
        from ficco_sim.io import to_plain

        return {f.name: to_plain(getattr(self, f.name)) for f in fields(self) if f.name != "traces"}

    def to_frame(self) -> "pd.DataFrame":
        """A row per schedule, best first."""
        import pandas as pd

        return pd.DataFrame(self.to_plain()["results"])


def compare(
    workload: Workload,
    machine: Machine,
    *,
    costs: CostModel | None = None,
    engines: Sequence[str] = ("dma",),
    gather: str = "direct",
    grid: Grid | None = None,
    schedules: Sequence[Schedule] = (),
    intervals: bool = True,
    progress: Callable[[int, int, str], None] | None = None,
) -> Comparison:
    """Simulate every schedule of a workload on a machine.

    FiCCO schedules are tried with 2, 4 and p chunks per shard, unfused ones also on 4 compute
    queues. Every plan of up to `MAX_CHECKED_TASKS` tasks is checked before it runs.

    Parameters
    ----------
    costs
        By default those of the machine's profile, plans captured in graphs.
    engines
        Who moves the data: ``dma``, ``core`` or both.
    gather
        See `ficco_sim.schedules.ficco.ficco_schedule`.
    grid
        Other schedules and knobs to try, instead of ``engines`` and ``gather``.
    schedules
        Functions ``(workload, num_gpus, **knobs) -> Plan`` of one's own to try as well, with those of
        the knobs above that they take.
    intervals
        Simulate the best plan, serial, and up to `MAX_NEAR` schedules within 15 % of the best again
        with `NUM_DRAWS` draws of what the profile's fits leave open.
    progress
        Called with plans done, plans in all, and the name of the next one.

    Raises
    ------
    FiccoError
        If the workload has no schedules yet, or the machine lacks links that they need.
    """
    _check_pattern(workload)
    if grid is None:
        grid = Grid(engines=tuple(engines), gather=gather)
    with rare_collections():
        return _compare(workload, machine, costs, grid, schedules, progress, intervals=intervals)


def _check_pattern(workload: Workload) -> None:
    if workload.pattern not in COMPARED:
        raise ScenarioError(
            f"workload {workload.name!r}: nothing to compare for the pattern {workload.pattern}, only "
            f"for {' and '.join(COMPARED)}"
        )


def _compare(
    workload: Workload,
    machine: Machine,
    costs: CostModel | None,
    grid: Grid,
    schedules: Sequence[Schedule],
    progress: Callable[[int, int, str], None] | None,
    *,
    intervals: bool,
) -> Comparison:
    runner = _Runner(workload, machine, costs or CostModel(machine))
    trust = _Trust(runner, intervals=intervals)
    points: list[tuple[str, _Maker]] = [
        (name, partial(runner.plan, name, knobs))
        for name, knobs in grid.points(workload.pattern, machine.num_gpus)
    ]
    points += [
        (name_of(schedule), partial(runner.own_plan, schedule, knobs))
        for schedule in schedules
        for knobs in grid.knobs_for(knobs_of(schedule), machine.num_gpus)
    ]
    steps = len(points) + trust.draws
    runs: list[tuple[Result, _Maker]] = []
    traces: dict[str, tuple[Plan, Trace]] = {}
    best_s = float("inf")
    serial_s = runner.serial_s(grid.engines)
    for done, (name, make) in enumerate(points):
        if progress is not None:
            progress(done, steps, name)
        plan = make()
        if len(plan.tasks) <= MAX_CHECKED_TASKS:
            check_plan(plan)
        trace = simulate(plan, machine, runner.costs)
        metrics = summarize(plan, trace, runner.alone(plan), serial_s=serial_s)
        trust.note(plan, trace)
        runs.append((_result(plan, trace, metrics), make))
        if plan.schedule == "serial" and plan.knobs["engine"] == grid.engines[0]:
            traces["serial"] = (plan, trace)
        if plan.schedule != "serial" and trace.makespan_s < best_s:
            best_s = trace.makespan_s
            traces["best"] = (plan, trace)
    runs.sort(key=lambda run: run[0].makespan_s)
    if progress is not None and trust.draws:
        progress(len(points), steps, "intervals")
    results = trust.with_intervals(runs)
    alone = runner.alone(traces["serial"][0])
    return Comparison(
        machine=machine.name,
        workload=workload.name,
        costs=runner.costs.kind,
        submission=runner.costs.submission,
        gemm_s=alone.gemm_whole_s,
        comm_s=alone.comm_whole_s,
        ideal_s=alone.ideal_s,
        serial_s=serial_s,
        best=results[0].schedule,
        remarks=(
            *remarks(workload, machine.num_gpus, grid.most_chunks(machine.num_gpus)),
            *trust.remarks(),
        ),
        verdict=_verdict(results, alone, serial_s, COMM_NAMES[workload.pattern]),
        results=tuple(results),
        traces=traces,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Makespans:
    """What `find_makespans` found of one workload on one machine; fields as in `Comparison`.

    Parameters
    ----------
    points
        Schedule, its knobs and the makespan in seconds, best first.
    """

    gemm_s: float
    comm_s: float
    ideal_s: float
    serial_s: float
    points: tuple[tuple[str, dict[str, Any], float], ...]


def find_makespans(
    workload: Workload, machine: Machine, *, costs: CostModel | None = None, grid: Grid | None = None
) -> Makespans:
    """The makespans that `compare` finds and no more: no plan is checked, no metrics are derived.

    Takes about half the time. What schedules make is proved by their tests as well.
    """
    _check_pattern(workload)
    grid = grid or Grid()
    with rare_collections():
        runner = _Runner(workload, machine, costs or CostModel(machine))
        alone = runner.alone(runner.plan("serial", {"engine": grid.engines[0]}))
        points = [
            (name, knobs, simulate(runner.plan(name, knobs), machine, runner.costs).makespan_s)
            for name, knobs in grid.points(workload.pattern, machine.num_gpus)
        ]
        serial_s = min(makespan_s for name, _, makespan_s in points if name == "serial")
    return Makespans(
        gemm_s=alone.gemm_whole_s,
        comm_s=alone.comm_whole_s,
        ideal_s=alone.ideal_s,
        serial_s=serial_s,
        points=tuple(sorted(points, key=lambda point: point[2])),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One plan simulated: as it ran (relayed if need be), its trace and metrics, and how long it took.

    ``wall_s`` is the time of that simulation alone, without its baseline and draws.
    """

    plan: Plan
    trace: Trace
    result: Result
    wall_s: float
    remarks: tuple[str, ...]


def evaluate_plan(
    plan: Plan, machine: Machine, costs: CostModel, *, intervals: bool = True
) -> Evaluation:
    """Simulate one plan and its serial counterpart, and derive its metrics; see `compare`."""
    runner = _Runner(plan.workload, machine, costs)
    plan = runner.relayed(plan)
    start_s = time.perf_counter()
    trace = simulate(plan, machine, costs)
    wall_s = time.perf_counter() - start_s
    serial_s = trace.makespan_s
    if plan.workload.pattern in COMPARED:
        knobs = {"engine": _engine(plan)}
        serial_s = simulate(runner.plan("serial", knobs), machine, costs).makespan_s
    metrics = summarize(plan, trace, runner.alone(plan), serial_s=serial_s)
    trust = _Trust(runner, intervals=intervals)
    trust.note(plan, trace)
    result = replace(_result(plan, trace, metrics), interval_s=trust.interval_s(plan))
    return Evaluation(
        plan=plan, trace=trace, result=result, wall_s=wall_s, remarks=tuple(trust.remarks())
    )


def gemm_to_communication(workload: Workload, machine: Machine, costs: CostModel) -> float | None:
    """Time of the whole GEMM over that of the communication, each alone; None if nothing moves."""
    runner = _Runner(workload, machine, costs)
    alone = runner.alone(runner.plan("serial", {}))
    return alone.gemm_whole_s / alone.comm_whole_s if alone.comm_whole_s > 0 else None


class _Runner:
    """Times alone of the plans of one workload on one machine; equal communication runs once."""

    def __init__(self, workload: Workload, machine: Machine, costs: CostModel) -> None:
        self.workload = workload
        self.machine = machine
        self.costs = costs
        self._no_commands = CostModel(machine, "ideal")
        self._known: dict[Any, tuple[float, float]] = {}
        self._whole_s: dict[str, float] = {}

    def plan(self, schedule: str, knobs: dict[str, Any]) -> Plan:
        """A schedule's plan for this machine, relayed where no link joins two gpus."""
        return self.relayed(make_plan(schedule, self.workload, self.machine.num_gpus, knobs))

    def own_plan(self, schedule: Schedule, knobs: dict[str, Any]) -> Plan:
        """As `plan`, of a schedule function that is not one of the package."""
        return self.relayed(own_plan(schedule, self.workload, self.machine.num_gpus, knobs))

    def serial_s(self, engines: Sequence[str]) -> float:
        """Makespan of serial by the quickest engine: a gain over a slower one would flatter."""
        return min(
            simulate(self.plan("serial", {"engine": engine}), self.machine, self.costs).makespan_s
            for engine in engines
        )

    def relayed(self, plan: Plan) -> Plan:
        """The plan with relays where no link joins two gpus.

        What a schedule has not cut itself is forwarded in as many pieces as suit it best.
        """
        routed = relay(plan, self.machine)
        if routed is plan or plan.schedule in FICCO:
            return routed
        pieces = [n for n in RELAY_PIECES if n * len(plan.tasks) <= MAX_TRIED_TASKS]
        tries = [routed, *(relay(plan, self.machine, pieces=n) for n in pieces)]
        return min(tries, key=lambda p: self._communication_s(p)[0])

    def alone(self, plan: Plan) -> Alone:
        """Times of a plan's parts without overlap."""
        parts_s, bytes_s = self._communication_s(plan)
        whole_s = parts_s
        if plan.workload.pattern in COMPARED:
            whole_s = min(parts_s, self._whole_communication_s(_engine(plan)))
        computes = any(isinstance(task, Gemm) for task in plan.tasks)
        return Alone(
            gemm_whole_s=self.costs.whole_gemm(self.workload).time_s if computes else 0.0,
            gemm_parts_s=self._gemm_parts_s(plan),
            comm_whole_s=whole_s,
            comm_parts_s=parts_s,
            comm_bytes_s=bytes_s,
        )

    def _whole_communication_s(self, engine: str) -> float:
        """The communication alone, moved in the best way known.

        At once is best where every gpu has links of its own to all others; at a switch peer after
        peer may be, elsewhere in chunks or round a ring. What overlap can reach is measured by the
        best.
        """
        if engine not in self._whole_s:
            num_gpus = self.machine.num_gpus
            ways: list[tuple[str, dict[str, Any]]] = [("serial", {})]
            if self.machine.family == "switch":
                ways.append(("shard-p2p", {}))  # one queue: an engine need not change over
            if self.machine.family not in ("full_mesh", "switch"):
                ways += [
                    ("uniform-unfused-1d", {"num_chunks": n})
                    for n in PIPELINED_CHUNKS
                    if num_gpus**2 * n <= MAX_TRIED_TASKS
                ]
                neighbours = Routes(self.machine).direct
                if "shard-ring" in COMPARED[self.workload.pattern] and all(
                    neighbours((g + 1) % num_gpus, g) for g in range(num_gpus)
                ):
                    ways.append(("shard-ring", {}))
            self._whole_s[engine] = min(
                self._communication_s(self.plan(name, {"engine": engine, **knobs}))[0]
                for name, knobs in ways
            )
        return self._whole_s[engine]

    def _gemm_parts_s(self, plan: Plan) -> float:
        sums: dict[int, float] = {}
        for task in plan.tasks:
            if isinstance(task, Gemm):
                alone_s = self.costs.gemm(task, self.workload).time_s
                sums[task.queue.gpu] = sums.get(task.queue.gpu, 0.0) + alone_s
        return max(sums.values(), default=0.0)

    def _communication_s(self, plan: Plan) -> tuple[float, float]:
        """The plan's transfers alone, with and without the cost of commands."""
        key = tuple(
            (
                t.queue.gpu,
                t.queue.engine,
                t.queue.index,
                t.src.gpu,
                t.src.rows,
                t.src.cols,
                bool(t.deps),
            )
            for t in plan.tasks
            if isinstance(t, Transfer)
        )
        known = self._known.get(key)
        if known is None:
            transfers = communication_only(plan)
            known = self._known[key] = (
                simulate(transfers, self.machine, self.costs).makespan_s,
                simulate(transfers, self.machine, self._no_commands).makespan_s,
            )
        return known


class _Trust:
    """How far simulated plans of one workload can be trusted: intervals, and ranges of the fits."""

    def __init__(self, runner: _Runner, *, intervals: bool) -> None:
        self._runner = runner
        self._gemm = f"gemm.{runner.workload.dtype}"
        fits = {} if runner.costs.ideal else runner.machine.profile.fits
        self._fits = {
            name: fit
            for name, fit in fits.items()
            if name == self._gemm or not name.startswith("gemm.")
        }
        self._used = UsedSizes()
        self._wanted = intervals
        self._too_large = False
        self._models: list[CostModel] = []

    @property
    def draws(self) -> bool:
        """Whether plans are simulated again."""
        return self._wanted and bool(self._fits)

    def note(self, plan: Plan, trace: Trace) -> None:
        """Take in what a plan asks of the cost models."""
        if not self._fits:
            return
        model, dtype = self._runner.costs.gemm_model, plan.workload.dtype
        shapes = {gemm_shape(task, dtype): None for task in plan.tasks if isinstance(task, Gemm)}
        for shape in shapes:
            # a measured time holds whatever the range of the formula
            known = model.measured_s(shape) is not None
            sizes = {} if known else {"m": shape.m, "n": shape.n, "k": shape.k}
            self._used.add(self._gemm, **sizes)
        copies: dict[tuple[str, int], None] = {}
        for span in trace.spans:
            if span.kind == "local_copy":
                copies["local_copy", span.nbytes] = None
            elif span.kind == "transfer":
                copies["copy" if span.queue.engine == "dma" else "core_copy", span.nbytes] = None
        for group, nbytes in copies:
            self._used.add(group, nbytes=nbytes)
        rates = copy_rates_beside_gemms(trace.spans)
        if rates:
            self._used.add("contention", in_bytes_per_s=round(max(rates)))

    def with_intervals(self, runs: Sequence[tuple[Result, _Maker]]) -> list[Result]:
        """Results, best first, with intervals where they matter; given are results and their plans."""
        results = [result for result, _ in runs]
        best_s: list[float] = []
        for i in _near_best(results) if self.draws else ():
            result, make = runs[i]
            drawn_s = self._drawn_s(make())
            too_close = None
            if i == 0:
                best_s = drawn_s
            elif drawn_s and best_s:
                low, high = interval([a / b for a, b in zip(drawn_s, best_s, strict=True)])
                too_close = low <= 1 <= high
            if drawn_s:
                results[i] = replace(result, interval_s=interval(drawn_s), too_close=too_close)
        return results

    def interval_s(self, plan: Plan) -> tuple[float, float] | None:
        """Of the makespan of one plan."""
        drawn_s = self._drawn_s(plan) if self.draws else []
        return interval(drawn_s) if drawn_s else None

    def remarks(self) -> list[str]:
        """Sizes outside of what was fitted, and why there are no intervals or what they leave out."""
        found = self._used.warnings(self._fits)
        clock_hz = self._runner.costs.sm_clock_hz
        if clock_hz is not None:
            found.append(f"GEMMs as at a clock of {clock_hz / 1e9:.3g} GHz, not as measured")
        if not self._wanted:
            return found
        if self._runner.costs.ideal:
            return ["no intervals: ideal costs are not fitted"]
        if not self._fits:
            return [NOT_FITTED]
        used = [name for name in self._used.groups if name != "contention"]
        used += ["launch", "contention"]  # whatever the plan
        missing = [name for name in used if name not in self._fits]
        if missing:
            found.append(f"intervals leave out what was not fitted: {', '.join(missing)}")
        if self._too_large:
            found.append(f"no intervals for plans of more than {MAX_DRAWN_TASKS:,} tasks")
        return found

    def _drawn_s(self, plan: Plan) -> list[float]:
        """Makespans of a plan, one per draw; none if it is too large."""
        if len(plan.tasks) > MAX_DRAWN_TASKS:
            self._too_large = True
            return []
        if not self._models:
            machine, costs = self._runner.machine, self._runner.costs
            self._models = [
                CostModel(
                    machine, "profile", costs.submission, draw=draw, sm_clock_hz=costs.sm_clock_hz
                )
                for draw in range(NUM_DRAWS)
            ]
        return [simulate(plan, costs.machine, costs).makespan_s for costs in self._models]


def best_of_each(results: Sequence[Result]) -> list[Result]:
    """The best knobs of each schedule, in the order given."""
    seen: set[tuple[str, str]] = set()
    best = []
    for result in results:
        key = (result.schedule, result.engine)
        if key not in seen:
            seen.add(key)
            best.append(result)
    return best


def _near_best(results: Sequence[Result]) -> list[int]:
    """Places of the best, of serial, and of schedules little slower than the best, in order."""
    firsts = [results.index(result) for result in best_of_each(results)]
    limit_s = results[0].makespan_s * NEAR_BEST
    serial = next(i for i in firsts if results[i].schedule == "serial")
    near = [i for i in firsts if i not in (0, serial) and results[i].makespan_s <= limit_s]
    return sorted({0, serial, *near[:MAX_NEAR]})


def _engine(plan: Plan) -> str:
    """Who moves the plan's data; plans from files may have any knobs."""
    engines = (t.queue.engine for t in plan.tasks if isinstance(t, Transfer))
    return next(engines, "dma")


def _count(plan: Plan, knob: str) -> int:
    value = plan.knobs.get(knob, 1)
    return value if isinstance(value, int) else 1


def _result(plan: Plan, trace: Trace, metrics: Metrics) -> Result:
    return Result(
        schedule=plan.schedule,
        num_chunks=_count(plan, "num_chunks"),
        compute_queues=_count(plan, "compute_queues"),
        engine=_engine(plan),
        makespan_s=metrics.makespan_s,
        ideal_s=metrics.ideal_s,
        speedup=metrics.speedup or 1.0,
        fraction_of_ideal=metrics.fraction_of_ideal,
        exposed_comm_s=metrics.exposed_comm_s,
        gemm_dil=metrics.gemm_dil,
        comm_dil=metrics.comm_dil,
        gemm_cil=metrics.gemm_cil,
        comm_cil=metrics.comm_cil,
        cause=metrics.cause,
        breakdown=metrics.breakdown,
        labels=trace.labels,
        num_tasks=len(plan.tasks),
    )


_HELD_BACK: dict[Cause, str] = {
    "compute-bound": "the GEMM itself, which hides nearly all communication",
    "link-bound": "the links",
    "decomposition": "decomposition: smaller GEMMs, copies and commands cost more than the whole",
    "contention": "contention: copies slow the GEMM, or it slows them",
    "submission": "the host, which submits tasks too slowly",
}


def _verdict(results: Sequence[Result], alone: Alone, serial_s: float, comm: str) -> str:
    """Does overlap pay here, and why; and what is too close to call."""
    gain = _gain(results, alone, serial_s, comm)
    both = len({result.engine for result in results}) > 1
    best, *close = (
        f"{result.title} ({result.engine})" if both else result.title
        for result in (results[0], *(r for r in results if r.too_close))
    )
    if not close:
        return gain
    # titles have commas in them
    return f"{gain} The best, {best}, is too close to call with {'; '.join(close)}."


def _gain(results: Sequence[Result], alone: Alone, serial_s: float, comm: str) -> str:
    best = next((r for r in results if r.schedule != "serial"), None)
    most = serial_s / alone.ideal_s if alone.ideal_s > 0 else 1.0
    gemm, comm_time = format_seconds(alone.gemm_whole_s), format_seconds(alone.comm_whole_s)
    share = f"GEMM {gemm}, {comm} {comm_time}"
    if best is None:
        return f"Nothing but serial was tried ({share}): perfect overlap could gain {most:.2f}x."
    if best.speedup < WORTH_IT:
        return (
            f"Overlap does not pay here ({share}): perfect overlap could gain {most:.2f}x, but the "
            f"best schedule, {best.title}, reaches {best.speedup:.2f}x of serial, held back by "
            f"{_HELD_BACK[best.cause]}."
        )
    fraction = (
        "" if best.fraction_of_ideal is None else f", {best.fraction_of_ideal:.0%} of the ideal gain"
    )
    p2p = next((r for r in results if r.schedule == "shard-p2p"), None)
    shard = (
        f"; overlap by whole shards (shard-p2p) loses, {p2p.speedup:.2f}x"
        if p2p is not None and p2p.speedup < 1 / WORTH_IT
        else ""
    )
    emulated = " Its 2d copies are emulated." if "emulated-2d" in best.labels else ""
    # serial is too close to call, so that it may be a loss
    pays = (
        "Overlap may pay"
        if any(r.schedule == "serial" and r.too_close for r in results)
        else "Overlap pays"
    )
    return (
        f"{pays} here ({share}): {best.title} is {best.speedup:.2f}x as fast as serial{fraction} "
        f"({most:.2f}x), held back by {_HELD_BACK[best.cause]}{shard}.{emulated}"
    )

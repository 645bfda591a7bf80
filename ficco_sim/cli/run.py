"""Verbs that simulate: compare and simulate."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from ficco_sim.cli.options import (
    DEFAULT_MACHINE,
    ClockOption,
    CostsOption,
    EngineOption,
    GatherOption,
    IntervalsOption,
    MachineOption,
    PlotOption,
    SubmissionOption,
    TraceOption,
)
from ficco_sim.cli.support import (
    check_outputs,
    cost_model,
    find_machine,
    find_plan,
    interval_line,
    knobs_given,
    link_line,
    remark_lines,
    write_run,
)
from ficco_sim.command import (
    DtypeOption,
    GemmOption,
    JsonOption,
    Progress,
    SkewOption,
    WorkloadOption,
    console,
    say,
    write_json,
)
from ficco_sim.workload import workload_from_options


def compare(
    *,
    machine: MachineOption = DEFAULT_MACHINE,
    workload: WorkloadOption = None,
    gemm: GemmOption = None,
    dtype: DtypeOption = "bf16",
    skew: SkewOption = None,
    costs: CostsOption = "profile",
    submission: SubmissionOption = "graph",
    sm_clock_ghz: ClockOption = None,
    engine: Annotated[
        Literal["dma", "core", "both"], Parameter(help="Who moves data; both doubles the table.")
    ] = "dma",
    gather: GatherOption = "direct",
    schedule: Annotated[
        tuple[str, ...],
        Parameter(
            help="A schedule of your own, FILE.py:FUNCTION, which is run as code, beside the others; "
            "may be given several times.",
            consume_multiple=False,
            negative="",
            show_default=False,
        ),
    ] = (),
    every: Annotated[
        bool, Parameter(help="Show every combination of knobs, not only the best of each schedule.")
    ] = False,
    intervals: IntervalsOption = True,
    json: JsonOption = None,
    trace: TraceOption = None,
    plot: PlotOption = None,
) -> None:
    """Compare all schedules of a workload on a machine: the main job."""
    from ficco_sim import report
    from ficco_sim.comparison import compare as run
    from ficco_sim.schedules import load_schedule

    check_outputs(json, trace, plot)
    chosen = workload_from_options(workload, gemm, dtype, skew)
    place = find_machine(machine)
    model = cost_model(place, costs, submission, sm_clock_ghz)
    own = [load_schedule(text) for text in schedule]
    engines = ("dma", "core") if engine == "both" else (engine,)
    with Progress() as progress:
        result = run(
            chosen, place, costs=model, engines=engines, gather=gather, schedules=own,
            intervals=intervals, progress=progress,
        )  # fmt: skip
    plan, best_trace = result.traces["best"]
    notes = write_run(plan, place, best_trace, trace, plot, result.verdict, {
        "serial": result.serial_s, "ideal": result.ideal_s,
    })  # fmt: skip
    if write_json(result.to_plain(), json):
        return
    out = console()
    for line in report.summary_lines(result):
        out.print(line, highlight=False)
    rows = result.results if every else report.best_of_each(result.results)
    out.print(report.results_table(rows))
    out.print(result.verdict, style="bold", highlight=False)
    say(out, [*remark_lines(result.remarks), *notes])


def simulate(
    schedule: Annotated[
        str | None,
        Parameter(
            help="Name of a schedule (see: ficco list schedules), or FILE.py:FUNCTION, which is run as "
            "code."
        ),
    ] = None,
    *,
    plan: Annotated[
        Path | None, Parameter(help="A plan file instead of a schedule and workload.")
    ] = None,
    machine: MachineOption = DEFAULT_MACHINE,
    workload: WorkloadOption = None,
    gemm: GemmOption = None,
    dtype: DtypeOption = "bf16",
    skew: SkewOption = None,
    num_chunks: int | None = None,
    compute_queues: int | None = None,
    copy_queues: int | None = None,
    engine: EngineOption | None = None,
    gather: GatherOption | None = None,
    costs: CostsOption = "profile",
    submission: SubmissionOption = "graph",
    sm_clock_ghz: ClockOption = None,
    intervals: IntervalsOption = True,
    json: JsonOption = None,
    trace: TraceOption = None,
    spans: Annotated[
        Path | None, Parameter(help="Write all spans as JSON, to compare with a run on hardware.")
    ] = None,
    plot: PlotOption = None,
) -> None:
    """Simulate one schedule, or a plan from a file.

    Parameters
    ----------
    num_chunks
        Chunks per shard; the number of gpus unless given.
    compute_queues
        Queues that unfused GEMMs spread over.
    copy_queues
        Queues that FiCCO transfers spread over; one a peer unless given. With 1 they come in the order
        of steps whatever the hardware does with several queues.
    """
    from ficco_sim import report
    from ficco_sim.check import MAX_CHECKED_TASKS, check_plan
    from ficco_sim.comparison import evaluate_plan
    from ficco_sim.io import to_plain

    check_outputs(json, trace, plot, spans)
    place = find_machine(machine)
    model = cost_model(place, costs, submission, sm_clock_ghz)
    knobs = knobs_given(num_chunks, compute_queues, copy_queues, engine, gather)
    chosen = find_plan(schedule, plan, workload, gemm, dtype, place.num_gpus, knobs, skew=skew)
    if plan is not None or len(chosen.tasks) <= MAX_CHECKED_TASKS:
        check_plan(chosen)  # what a schedule makes is proved by its tests as well
    done = evaluate_plan(chosen, place, model, intervals=intervals)
    run, result = done.trace, done.result
    notes = write_run(done.plan, place, run, trace, plot, "", {"ideal": result.ideal_s}, spans)
    row = {
        "machine": place.name,
        "workload": chosen.workload.name,
        **to_plain(result),
        "wall_s": done.wall_s,
        "remarks": list(done.remarks),
    }
    if write_json(row, json):
        return
    out = console()
    out.print(
        report.results_table([result], title=f"{chosen.workload.name} on {place.name} (simulated)")
    )
    if result.interval_s is not None:
        out.print(interval_line(result.interval_s), highlight=False)
    busiest = max(run.links, key=lambda load: load.min_busy_s, default=None)
    out.print(f"{result.num_tasks} tasks, simulated in {done.wall_s * 1e3:.1f} ms", highlight=False)
    if busiest is not None:
        out.print(
            link_line(busiest.src, busiest.dst, busiest.nbytes, busiest.min_busy_s), highlight=False
        )
    say(out, [*remark_lines(done.remarks), *notes])

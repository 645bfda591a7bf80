"""The verb sweep: a set of scenarios on machines, into one table."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ficco_sim.cli.options import DEFAULT_MACHINE, CostsOption, GatherOption, SubmissionOption
from ficco_sim.cli.support import check_outputs, find_machine, whole_numbers
from ficco_sim.command import DtypeOption, JsonOption, Progress, console, say, write_json
from ficco_sim.errors import ScenarioError

if TYPE_CHECKING:
    from ficco_sim.sweep import SweepSummary
    from ficco_sim.workload import Workload

MAX_SHOWN = 10
LINE_EVERY_S = 30.0


def sweep(
    scenarios: Annotated[
        str | None,
        Parameter(help="A file of scenarios (see: ficco scenarios make), or: named, grid."),
    ] = None,
    /,
    *,
    workload: Annotated[
        tuple[str, ...],
        Parameter(
            help="Instead: name of a workload, or a file with one; may be repeated.",
            negative="",
            show_default=False,
        ),
    ] = (),
    gemm: Annotated[
        tuple[str, ...],
        Parameter(help="Or shape M,N,K; may be repeated.", negative="", show_default=False),
    ] = (),
    dtype: DtypeOption = "bf16",
    machine: Annotated[
        tuple[str, ...],
        Parameter(help="Name of a machine, or a YAML or JSON file; may be repeated.", negative=""),
    ] = (DEFAULT_MACHINE,),
    schedule: Annotated[
        str | None, Parameter(help="Names with commas; serial is always added. All unless given.")
    ] = None,
    num_chunks: Annotated[
        str | None, Parameter(help="Chunks per shard to try; 2, 4 and the number of gpus unless given.")
    ] = None,
    compute_queues: Annotated[str, Parameter(help="Queues of unfused GEMMs to try.")] = "1,4",
    engine: Annotated[str, Parameter(help="Who moves data: dma, core or dma,core.")] = "dma",
    gather: GatherOption = "direct",
    costs: CostsOption = "profile",
    submission: SubmissionOption = "graph",
    makespans_only: Annotated[
        bool,
        Parameter(help="No metrics and no proof of each plan: about half the time.", negative=""),
    ] = False,
    out: Annotated[Path, Parameter(help="The table, .csv or .parquet.")],
    resume: Annotated[
        bool, Parameter(help="Continue a sweep that was interrupted or killed.", negative="")
    ] = False,
    jobs: Annotated[int, Parameter(help="Processes that simulate.")] = 1,
    json: JsonOption = None,
) -> None:
    """Simulate many scenarios on machines; the table has a row per scenario, machine and plan."""
    from ficco_sim.grid import Grid
    from ficco_sim.sweep import check_sweep_target, run_sweep

    check_outputs(json, None, None)
    check_sweep_target(out)
    grid = Grid(
        schedules=None if schedule is None else _words(schedule),
        num_chunks=whole_numbers("--num-chunks", num_chunks),
        compute_queues=whole_numbers("--compute-queues", compute_queues) or (),
        engines=_words(engine),
        gather=gather,
    )
    chosen = _workloads(scenarios, workload, gemm, dtype)
    places = [find_machine(name) for name in machine]
    try:
        with Progress("starting", line_every_s=LINE_EVERY_S) as progress:
            found = run_sweep(
                chosen, places, out, grid=grid, costs=costs, submission=submission,
                makespans_only=makespans_only, jobs=jobs, resume=resume, progress=progress,
            )  # fmt: skip
    except KeyboardInterrupt:
        sys.stderr.write(f"unfinished: what is done is in {out}.part; --resume continues it\n")
        raise
    if write_json(found.to_plain(), json):
        return
    say(console(), _lines(found))


def _workloads(
    scenarios: str | None, names: tuple[str, ...], gemms: tuple[str, ...], dtype: str
) -> "tuple[Workload, ...]":
    from ficco_sim.scenarios import find_scenarios
    from ficco_sim.workload import workload_from_options

    if scenarios is not None:
        if names or gemms:
            raise ScenarioError("give a set of scenarios, or --workload and --gemm, not both")
        return find_scenarios(scenarios).workloads
    if not names and not gemms:
        raise ScenarioError("give a set of scenarios, or --workload or --gemm")
    return (
        *(workload_from_options(name, None, dtype) for name in names),
        *(workload_from_options(None, text, dtype) for text in gemms),
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(","))


def _lines(found: "SweepSummary") -> list[str]:
    rate = "" if found.scenarios_per_s is None else f", {found.scenarios_per_s:.2f} scenarios/s"
    before = f", {found.num_resumed:,} of them before" if found.num_resumed else ""
    lines = [
        f"{found.num_scenarios:,} scenarios{before}, {found.num_rows:,} rows in {found.seconds:.1f} s"
        f"{rate}: {found.file} (simulated)"
    ]
    if found.num_failed:
        lines.append(f"{found.num_failed:,} failed: {found.errors_file}")
        lines += [f"  {e.workload} on {e.machine}: {e.error}" for e in found.errors[:MAX_SHOWN]]
        if found.num_failed > MAX_SHOWN:
            lines.append(f"  and {found.num_failed - MAX_SHOWN:,} more")
    return lines

"""The verb validate: measured plans beside simulated ones."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ficco_sim.cli.options import CostsOption, MachineOption, SubmissionOption
from ficco_sim.cli.support import check_outputs, find_machine
from ficco_sim.command import JsonOption, Progress, console, say, write_json, write_text_to
from ficco_sim.errors import ScenarioError

if TYPE_CHECKING:
    from ficco_sim.machine import Machine
    from ficco_sim.validation import Refit
    from ficco_sim.workload import Workload


def validate(
    runs: Annotated[
        tuple[Path, ...], Parameter(help="Files of records, from: python -m hw_validate run.")
    ],
    /,
    *,
    machine: MachineOption,
    map_: Annotated[
        str | None, Parameter(name="--map", help="Plans that ran on this map, if there are several.")
    ] = None,
    engine: Annotated[
        str | None, Parameter(help="Plans whose data this engine moved, if there are several.")
    ] = None,
    submission: Annotated[
        SubmissionOption | None, Parameter(help="Plans submitted in this way, if there are several.")
    ] = None,
    costs: CostsOption = "profile",
    calibrate_from: Annotated[
        tuple[Path, ...],
        Parameter(
            help="Files to fit the profile to anew for each workload, leaving that workload out.",
            consume_multiple=True,
        ),
    ] = (),
    direction: Annotated[
        str | None,
        Parameter(help="With --calibrate-from: which copies stand for those between gpus."),
    ] = None,
    worst: Annotated[int, Parameter(help="How many of the largest errors to list.")] = 10,
    json: JsonOption = None,
    csv: Annotated[
        str | None,
        Parameter(
            help="Write a line per plan as CSV to a file, or to the standard output with -.",
            allow_leading_hyphen=True,
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        Parameter(help="Draw simulated against measured times to a .png, .svg or .pdf file."),
    ] = None,
) -> None:
    """Simulate measured plans and tell how far off they are, and whether the right one wins."""
    from ficco_sim.records import merge_records, read_records
    from ficco_sim.validation import (
        TABLE_WIDTH,
        choose_plans,
        leave_one_out,
        plot_validation,
        rows_csv,
        summary_lines,
        tables,
    )
    from ficco_sim.validation import validate as run

    if worst < 0:
        raise ScenarioError(f"--worst: {worst} must not be negative")
    if json == csv == "-":
        raise ScenarioError("--json - and --csv -: only one can be the standard output")
    check_outputs(json, None, plot)
    check_outputs(csv, None, None)
    place = find_machine(machine)
    records = merge_records([(path, read_records(path)) for path in runs])
    chosen = choose_plans(records, emulates=map_, engine=engine, submission=submission)
    with Progress() as progress:
        if calibrate_from:
            refit = _refit_from(calibrate_from, machine, direction)
            found = leave_one_out(chosen, refit, costs=costs, num_worst=worst, progress=progress)
        else:
            found = run(chosen, place, costs=costs, num_worst=worst, progress=progress)
    if plot is not None:
        plot_validation(found, plot)
    if csv is not None:
        write_text_to(rows_csv(found), csv)
    if write_json(found.to_plain(), json) or csv == "-":
        return
    out = console(TABLE_WIDTH)
    for line in summary_lines(found):
        out.print(line, highlight=False, soft_wrap=True)
    for table in tables(found):
        out.print(table)
    say(out, [f"{label}." for label in found.labels])
    say(out, [f"Note: {remark}." for remark in found.remarks])
    say(out, [f"wrote {target}" for target in (json, csv, plot) if target is not None])


def _refit_from(files: tuple[Path, ...], machine: str, direction: str | None) -> "Refit":
    """Fits of the machine's profile to these files, each without one workload."""
    from ficco_sim.calibrate import calibrated_machine, read_inputs, read_start, without_workload

    start = read_start(machine)
    inputs = read_inputs(files)

    def refit(workload: "Workload") -> "Machine":
        return calibrated_machine(start, without_workload(inputs, workload), direction=direction)

    return refit

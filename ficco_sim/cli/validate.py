"""The verb validate: measured plans beside simulated ones."""

from collections.abc import Collection
from dataclasses import dataclass
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
    copy_queues: Annotated[
        int | None, Parameter(help="Only plans with so many copy queues, where they have a choice.")
    ] = None,
    max_late: Annotated[
        float,
        Parameter(
            help="Leave out plans that the host still submitted while they ran, for more than this "
            "share of their time."
        ),
    ] = 0.05,
    costs: CostsOption = "profile",
    calibrate_from: Annotated[
        tuple[Path, ...],
        Parameter(
            help="Files to fit the profile to anew for each workload, leaving that workload out. "
            "Unless given, GEMMs alone are, if what the profile was fitted to lies beside RUNS.",
            consume_multiple=True,
        ),
    ] = (),
    direction: Annotated[
        str | None,
        Parameter(help="With --calibrate-from: which copies stand for those between gpus."),
    ] = None,
    as_is: Annotated[
        bool,
        Parameter(help="Take the profile as it is, fitted to these workloads or not.", negative=""),
    ] = False,
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

    if as_is and calibrate_from:
        raise ScenarioError("--as-is and --calibrate-from: one of them")
    if direction is not None and not calibrate_from:
        raise ScenarioError(f"--direction: {direction!r} goes with --calibrate-from only")
    if worst < 0:
        raise ScenarioError(f"--worst: {worst} must not be negative")
    if json == csv == "-":
        raise ScenarioError("--json - and --csv -: only one can be the standard output")
    check_outputs(json, None, plot)
    check_outputs(csv, None, None)
    place = find_machine(machine)
    records = merge_records([(path, read_records(path)) for path in runs])
    chosen = choose_plans(
        records,
        emulates=map_,
        engine=engine,
        submission=submission,
        copy_queues=copy_queues,
        max_late=max_late,
    )
    with Progress() as progress:
        again = None if as_is else _refit_from(calibrate_from, runs, machine, direction, chosen.dtypes)
        if again is not None:
            found = leave_one_out(
                chosen,
                again.refit,
                fitted_to=again.fitted_to,
                costs=costs,
                num_worst=worst,
                progress=progress,
            )
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


@dataclass(frozen=True, slots=True)
class _Again:
    """How the profile is fitted anew without a workload, and to what."""

    refit: "Refit"
    fitted_to: str


def _refit_from(
    files: tuple[Path, ...],
    runs: tuple[Path, ...],
    machine: str,
    direction: str | None,
    dtypes: Collection[str],
) -> _Again | None:
    """Fits of the machine's profile to files that were given, or that its GEMMs were fitted to."""
    from ficco_sim.calibrate import (
        OTHER_GROUPS,
        files_of_gemm_fits,
        machine_without,
        read_inputs,
        read_start,
    )

    start = read_start(machine)
    kept: tuple[str, ...] = ()
    what = "the profile was"
    if not files:
        files = files_of_gemm_fits(start.gpu, [path.parent for path in runs], dtypes)
        if not files:
            return None
        kept = OTHER_GROUPS
        what = "GEMMs were"
    inputs = read_inputs(files)

    def refit(workload: "Workload") -> "Machine":
        try:
            return machine_without(start, inputs, workload, direction=direction, keep=kept)
        except ScenarioError as error:
            raise ScenarioError(f"{error}; --as-is takes the profile as it is") from error

    names = ", ".join(file.name for file in files)
    return _Again(refit, f"{what} fitted anew for each workload, without its n up to its k, to {names}")

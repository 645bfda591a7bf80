"""Verbs that change a rule's thresholds: tune, portability."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import Parameter

from ficco_sim.cli.heuristic import with_values
from ficco_sim.cli.laboratory import (
    DEFAULT_READING,
    CsvOption,
    FilesArgument,
    KnobsOption,
    NoiseOption,
    PlotOption,
    Reading,
    SetOption,
    TauOption,
    share,
)
from ficco_sim.cli.support import check_outputs
from ficco_sim.command import JsonOption, Progress, console, say, write_json, write_text_to
from ficco_sim.errors import RuleError, ScenarioError

if TYPE_CHECKING:
    from ficco_sim.heuristics import RuleFile

RuleOption: TypeAlias = Annotated[str, Parameter(help="The rule, as in pick.")]
AxesOption: TypeAlias = Annotated[
    tuple[str, ...],
    Parameter(
        help="NAME=LOW:HIGH:COUNT: values of a parameter, evenly spaced in the logarithm, for example "
        "tau_s=1us:10s:60; several make a grid.",
        consume_multiple=False,
        negative="",
    ),
]
SeedOption: TypeAlias = Annotated[int, Parameter(help="For folds and bootstrap intervals.")]


def tune(
    files: FilesArgument,
    /,
    *,
    rule: RuleOption,
    parameter: AxesOption,
    folds: Annotated[int, Parameter(help="Outer folds of the cross-validation.")] = 5,
    reading: Reading = DEFAULT_READING,
    tau: TauOption = None,
    set_: SetOption = (),
    noise: NoiseOption = None,
    knobs: KnobsOption = "rule",
    seed: SeedOption = 0,
    json: JsonOption = None,
    csv: CsvOption = None,
    plot: PlotOption = None,
    out: Annotated[
        Path | None,
        Parameter(help="Write a rule that is a file with the picked values to this YAML file."),
    ] = None,
) -> None:
    """Sweep a rule's parameters: accuracy and regret against them, plateaus, cross-validated choice."""
    from ficco_sim.heuristics import find_rule, save_rule_file
    from ficco_sim.laboratory import parse_axis
    from ficco_sim.laboratory import tune as run
    from ficco_sim.laboratory.plots import plot_tuning
    from ficco_sim.laboratory.show import TABLE_WIDTH
    from ficco_sim.laboratory.show_tuning import points_csv, tuning_lines, tuning_tables

    _check(json, csv, plot)
    file = None if out is None else _rule_file(rule, out)
    axes = [parse_axis(text) for text in parameter]
    (chosen,) = with_values([find_rule(rule)], tau, set_)
    outcomes = reading.read(files)
    limit = share("--noise", noise)
    with Progress("tuning") as progress:
        found = run(
            chosen,
            outcomes,
            axes,
            folds=folds,
            knobs=knobs,
            noise=limit,
            seed=seed,
            progress=progress,
        )
    if plot is not None:
        plot_tuning(found, plot)
    if out is not None and file is not None:
        from dataclasses import replace

        values = {**chosen.parameters, **found.picked.values}
        save_rule_file(replace(file, parameters=values), out)
    if csv is not None:
        write_text_to(points_csv(found), csv)
    if write_json(found, json) or csv == "-":
        return
    screen = console(TABLE_WIDTH)
    say(screen, tuning_lines(found))
    for table in tuning_tables(found):
        screen.print(table)
    say(screen, [f"{label}." for label in found.labels])
    say(screen, [f"Note: {note}." for note in found.notes])
    say(screen, [f"wrote {target}" for target in (json, csv, plot, out) if target is not None])


def portability(
    files: FilesArgument,
    /,
    *,
    rule: RuleOption,
    parameter: AxesOption,
    reading: Reading = DEFAULT_READING,
    tau: TauOption = None,
    set_: SetOption = (),
    noise: NoiseOption = None,
    knobs: KnobsOption = "rule",
    seed: SeedOption = 0,
    json: JsonOption = None,
    csv: CsvOption = None,
    plot: PlotOption = None,
) -> None:
    """Tune a rule on each machine and judge it on all others: the portability matrix."""
    from ficco_sim.heuristics import find_rule
    from ficco_sim.laboratory import parse_axis
    from ficco_sim.laboratory import portability as run
    from ficco_sim.laboratory.plots import plot_portability
    from ficco_sim.laboratory.show import TABLE_WIDTH
    from ficco_sim.laboratory.show_tuning import cells_csv, portability_lines, portability_tables

    _check(json, csv, plot)
    axes = [parse_axis(text) for text in parameter]
    (chosen,) = with_values([find_rule(rule)], tau, set_)
    outcomes = reading.read(files)
    limit = share("--noise", noise)
    with Progress("tuning") as progress:
        found = run(chosen, outcomes, axes, knobs=knobs, noise=limit, seed=seed, progress=progress)
    if plot is not None:
        plot_portability(found, plot)
    if csv is not None:
        write_text_to(cells_csv(found), csv)
    if write_json(found, json) or csv == "-":
        return
    screen = console(TABLE_WIDTH)
    for table in portability_tables(found):
        screen.print(table)
    say(screen, portability_lines(found))
    say(screen, [f"{label}." for label in found.labels])
    say(screen, [f"Note: {note}." for note in found.notes])
    say(screen, [f"wrote {target}" for target in (json, csv, plot) if target is not None])


def _check(json: str | None, csv: str | None, plot: Path | None) -> None:
    """Refuse outputs that cannot be, before any work is done."""
    if json == csv == "-":
        raise ScenarioError("--json - and --csv -: only one can be the standard output")
    check_outputs(json, None, plot)
    check_outputs(csv, None, None)


def _rule_file(rule: str, out: Path) -> "RuleFile":
    """The rule's file, whose values are to be replaced."""
    from ficco_sim.heuristics import load_rule_file
    from ficco_sim.io import check_target

    if not rule.endswith((".yaml", ".yml", ".json")):
        raise RuleError(f"--out: {rule} is no rule file; its values are in the report and in --json")
    if out.suffix not in (".yaml", ".yml"):
        raise RuleError(f"--out: {out}: the name must end in .yaml")
    check_target(out)
    return load_rule_file(Path(rule))

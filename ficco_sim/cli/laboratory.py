"""Verbs that judge rules on plans that were tried: evaluate."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from cyclopts import Parameter

from ficco_sim.cli.heuristic import DEFAULT_RULES, with_values
from ficco_sim.cli.options import SubmissionOption
from ficco_sim.cli.support import check_outputs
from ficco_sim.command import JsonOption, console, say, write_json, write_text_to
from ficco_sim.errors import ScenarioError

if TYPE_CHECKING:
    from ficco_sim.laboratory import Outcomes

FilesArgument: TypeAlias = Annotated[
    tuple[Path, ...],
    Parameter(
        help="Tables of ficco sweep (.csv, .parquet), records of python -m hw_validate run (.jsonl, "
        ".jsonl.gz), or both.",
    ),
]
CsvOption: TypeAlias = Annotated[
    str | None,
    Parameter(
        help="Write the rows as CSV to a file, or to the standard output with -.",
        allow_leading_hyphen=True,
    ),
]
PlotOption: TypeAlias = Annotated[Path | None, Parameter(help="Draw it to a .png, .svg or .pdf file.")]
NoiseOption: TypeAlias = Annotated[
    str | None,
    Parameter(
        help="Regret that counts as none, for example 2%. Unless given: 2% where simulated, the spread "
        "of samples where measured."
    ),
]
KnobsOption: TypeAlias = Annotated[
    Literal["rule", "best"],
    Parameter(help="rule: the rule's knobs. best: the fastest tried of the chosen schedule."),
]
TauOption: TypeAlias = Annotated[
    str | None, Parameter(help="The time scale tau of rules that have one, for example 5ms.")
]
SetOption: TypeAlias = Annotated[
    tuple[str, ...],
    Parameter(
        name="--set",
        help="NAME=VALUE: a parameter of the rules that have it; may be given several times.",
        consume_multiple=False,
        negative="",
        show_default=False,
    ),
]
RulesOption: TypeAlias = Annotated[
    tuple[str, ...],
    Parameter(help="As in pick; may be given several times.", consume_multiple=False, negative=""),
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Reading:
    """Options that say which outcomes of the files are taken."""

    machine: Annotated[
        tuple[str, ...],
        Parameter(
            help="What the gpus of records stand for, or the file of a table's machine that is not "
            "in the package; may be given several times.",
            consume_multiple=False,
            negative="",
            show_default=False,
        ),
    ] = ()
    map_: Annotated[
        tuple[str, ...],
        Parameter(
            name="--map",
            help="Records: only plans on this map; one for each --machine.",
            consume_multiple=False,
            negative="",
            show_default=False,
        ),
    ] = ()
    engine: Annotated[
        str | None, Parameter(help="Records: only plans whose data this engine moved.")
    ] = None
    submission: Annotated[
        SubmissionOption | None, Parameter(help="Records: only plans submitted in this way.")
    ] = None
    copy_queues: Annotated[
        int | None, Parameter(help="Records: only plans with so many, where they have a choice.")
    ] = None
    among: Annotated[
        str | None,
        Parameter(help="Schedules, with commas: as if no other had been tried."),
    ] = None
    on: Annotated[
        tuple[str, ...],
        Parameter(
            help="Only outcomes of this machine; may be given several times.",
            consume_multiple=False,
            negative="",
            show_default=False,
        ),
    ] = ()

    def read(self, files: tuple[Path, ...]) -> "Outcomes":
        """The outcomes of files."""
        from ficco_sim.laboratory import read_outcomes

        return read_outcomes(
            files,
            machines=self.machine,
            maps=self.map_,
            engine=self.engine,
            submission=self.submission,
            copy_queues=self.copy_queues,
            schedules=tuple(self.among.split(",")) if self.among is not None else (),
            places=self.on,
        )


DEFAULT_READING = Reading()


def evaluate(
    files: FilesArgument,
    /,
    *,
    rule: RulesOption = DEFAULT_RULES,
    reading: Reading = DEFAULT_READING,
    tau: TauOption = None,
    set_: SetOption = (),
    noise: NoiseOption = None,
    knobs: KnobsOption = "rule",
    draws: Annotated[int, Parameter(help="How many sets of 16 scenarios to draw.")] = 1000,
    seed: Annotated[int, Parameter(help="For draws and bootstrap intervals.")] = 0,
    json: JsonOption = None,
    csv: CsvOption = None,
    plot: PlotOption = None,
) -> None:
    """Judge rules on plans that were tried: accuracy and regret with intervals, faults, confusion."""
    from ficco_sim.heuristics import find_rule
    from ficco_sim.laboratory import evaluate as judge_rules
    from ficco_sim.laboratory.plots import plot_evaluation
    from ficco_sim.laboratory.show import (
        TABLE_WIDTH,
        evaluation_lines,
        evaluation_tables,
        judgements_csv,
    )

    if json == csv == "-":
        raise ScenarioError("--json - and --csv -: only one can be the standard output")
    check_outputs(json, None, plot)
    check_outputs(csv, None, None)
    limit = share("--noise", noise)
    rules = with_values([find_rule(text) for text in rule], tau, set_)
    found = judge_rules(rules, reading.read(files), knobs=knobs, noise=limit, draws=draws, seed=seed)
    if plot is not None:
        plot_evaluation(found, plot)
    if csv is not None:
        write_text_to(judgements_csv(found.rules), csv)
    if write_json(found.to_plain(), json) or csv == "-":
        return
    out = console(TABLE_WIDTH)
    say(out, evaluation_lines(found))
    for table in evaluation_tables(found):
        out.print(table)
    say(out, [f"{label}." for label in found.labels])
    say(out, [f"Note: {note}." for note in found.notes])
    say(out, [f"wrote {target}" for target in (json, csv, plot) if target is not None])


def share(option: str, text: str | None) -> float | None:
    """The share that an option gives: 2% or 0.02."""
    if text is None:
        return None
    digits = text.strip().removesuffix("%")
    try:
        value = float(digits) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ScenarioError(f"{option}: {text[:40]!r} must be from 0% to 100%, such as 2% or 0.02")
    return value

"""Verbs that judge rules on plans that were tried: evaluate."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from cyclopts import Parameter

from ficco_sim.cli.heuristic import DEFAULT_RULES, with_values
from ficco_sim.cli.support import check_outputs
from ficco_sim.command import JsonOption, console, say, write_json, write_text_to
from ficco_sim.errors import ScenarioError

FilesArgument: TypeAlias = Annotated[
    tuple[Path, ...],
    Parameter(help="Tables of ficco sweep (.csv, .parquet)."),
]
CsvOption: TypeAlias = Annotated[
    str | None,
    Parameter(
        help="Write a line per rule and scenario as CSV to a file, or to the standard output with -.",
        allow_leading_hyphen=True,
    ),
]
NoiseOption: TypeAlias = Annotated[
    str | None,
    Parameter(help="Regret that counts as none, for example 2%. Unless given: 2% where simulated."),
]
KnobsOption: TypeAlias = Annotated[
    Literal["rule", "best"],
    Parameter(help="rule: the rule's knobs. best: the fastest tried of the chosen schedule."),
]


def evaluate(
    files: FilesArgument,
    /,
    *,
    rule: Annotated[
        tuple[str, ...],
        Parameter(help="As in pick; may be given several times.", consume_multiple=False),
    ] = DEFAULT_RULES,
    tau: Annotated[
        str | None, Parameter(help="The time scale tau of rules that have one, for example 5ms.")
    ] = None,
    set_: Annotated[
        tuple[str, ...],
        Parameter(
            name="--set",
            help="NAME=VALUE: a parameter of the rules that have it; may be given several times.",
            consume_multiple=False,
        ),
    ] = (),
    noise: NoiseOption = None,
    knobs: KnobsOption = "rule",
    draws: Annotated[int, Parameter(help="How many sets of 16 scenarios to draw.")] = 1000,
    seed: Annotated[int, Parameter(help="For draws and bootstrap intervals.")] = 0,
    json: JsonOption = None,
    csv: CsvOption = None,
) -> None:
    """Judge rules on plans that were tried: accuracy and regret with intervals, faults, confusion."""
    from ficco_sim.heuristics import find_rule
    from ficco_sim.laboratory import evaluate as judge_rules
    from ficco_sim.laboratory import from_sweep, joined
    from ficco_sim.laboratory.show import (
        TABLE_WIDTH,
        evaluation_lines,
        evaluation_tables,
        judgements_csv,
    )

    if json == csv == "-":
        raise ScenarioError("--json - and --csv -: only one can be the standard output")
    check_outputs(json, None, None)
    check_outputs(csv, None, None)
    limit = share("--noise", noise)
    rules = with_values([find_rule(text) for text in rule], tau, set_)
    outcomes = joined([from_sweep(path) for path in files])
    found = judge_rules(rules, outcomes, knobs=knobs, noise=limit, draws=draws, seed=seed)
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
    say(out, [f"wrote {target}" for target in (json, csv) if target is not None])


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

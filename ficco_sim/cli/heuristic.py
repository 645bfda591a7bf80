"""Verbs about rules that pick a schedule: pick."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from ficco_sim.cli.options import DEFAULT_MACHINE, MachineOption
from ficco_sim.cli.support import check_outputs, find_machine
from ficco_sim.command import (
    DtypeOption,
    GemmOption,
    JsonOption,
    SkewOption,
    WorkloadOption,
    console,
    write_json,
)
from ficco_sim.errors import RuleError
from ficco_sim.workload import workload_from_options

if TYPE_CHECKING:
    from ficco_sim.heuristics import Rule

app = App(name="heuristic", help="Rules that pick a schedule without running any.", version_flags=[])

DEFAULT_RULES = ("published", "published-time", "size-threshold")


@app.command
def pick(
    *,
    machine: MachineOption = DEFAULT_MACHINE,
    workload: WorkloadOption = None,
    gemm: GemmOption = None,
    dtype: DtypeOption = "bf16",
    skew: SkewOption = None,
    rule: Annotated[
        tuple[str, ...],
        Parameter(
            help="Name of a rule (see: ficco list rules), a YAML file of thresholds, or "
            "FILE.py:FUNCTION, which is run as code; may be given several times.",
            consume_multiple=False,
        ),
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
    json: JsonOption = None,
) -> None:
    """Show which schedule rules pick for a workload on a machine, and why."""
    from ficco_sim.heuristics import find_rule, pick_all
    from ficco_sim.heuristics.show import feature_lines, picks_table

    check_outputs(json, None, None)
    chosen = workload_from_options(workload, gemm, dtype, skew)
    place = find_machine(machine)
    rules = with_values([find_rule(text) for text in rule], tau, set_)
    picks = pick_all(chosen, place, rules)
    if write_json(picks.to_plain(), json):
        return
    out = console()
    out.print(picks_table(picks))
    for line in feature_lines(picks.features):
        out.print(line, highlight=False)


def with_values(rules: "list[Rule]", tau: str | None, given: tuple[str, ...]) -> "list[Rule]":
    """Rules with the parameters that options give to those which have them.

    Raises
    ------
    RuleError
        If a value is no number, or no rule has the parameter.
    """
    values = dict(_value(text) for text in given)
    if tau is not None:
        from ficco_sim.units import parse_seconds

        try:
            values["tau_s"] = parse_seconds(tau)
        except ValueError as error:
            raise RuleError(f"--tau: {error}") from error
    for name in values:
        if not any(name in rule.parameters for rule in rules):
            has = sorted({key for rule in rules for key in rule.parameters})
            raise RuleError(
                f"no rule given has the parameter {name!r}; they have {', '.join(has) or 'none'}"
            )
    return [
        rule.with_parameters(**{k: v for k, v in values.items() if k in rule.parameters})
        for rule in rules
    ]


def _value(text: str) -> tuple[str, float]:
    name, equals, number = text.partition("=")
    try:
        if equals:
            return name.strip(), float(number)
    except ValueError:
        pass
    raise RuleError(f"--set: {text[:60]!r} must be NAME=NUMBER, for example factor=5")

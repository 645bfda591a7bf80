"""Verbs about sets of scenarios: make, show and check."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import App, Parameter

from ficco_sim.cli.support import check_outputs, numbers
from ficco_sim.command import JsonOption, console, say, write_json
from ficco_sim.errors import ScenarioError

if TYPE_CHECKING:
    from ficco_sim.scenarios import ScenarioSet

app = App(name="scenarios", help="Make, show and check sets of scenarios.", version_flags=[])
make = App(name="make", help="Make a set of scenarios.", version_flags=[])
app.command(make)

OutOption: TypeAlias = Annotated[
    Path, Parameter(help="The file: .yaml, or .json for large sets; the same arguments, same bytes.")
]
NameOption: TypeAlias = Annotated[str | None, Parameter(help="What the set is called.")]


@make.command
def named(
    *,
    all_to_all: Annotated[bool, Parameter(help="Exchanges (all-to-all) too.", negative="")] = False,
    out: OutOption,
    name: NameOption = None,
    json: JsonOption = None,
) -> None:
    """The workloads that come with the package."""
    from ficco_sim import scenarios

    check_outputs(json, None, None)
    _finish(scenarios.named(all_to_all=all_to_all), out, name, json)


@make.command
def grid(
    *,
    otb: Annotated[str | None, Parameter(help="FLOP per byte, with commas.")] = None,
    mt_mib: Annotated[str | None, Parameter(help="HBM traffic in MiB, with commas.")] = None,
    aspects: Annotated[
        str | None, Parameter(help="K over M, with commas; above 1 is the paper's case M < K.")
    ] = None,
    out: OutOption,
    name: NameOption = None,
    json: JsonOption = None,
) -> None:
    """A synthetic grid over OTB (FLOP per HBM byte of the GEMM) and MT (those bytes)."""
    from ficco_sim.scenarios import synthetic_grid

    check_outputs(json, None, None)
    given = {
        "otb": numbers("--otb", otb),
        "mt_mib": numbers("--mt-mib", mt_mib),
        "aspects": numbers("--aspects", aspects),
    }
    made = synthetic_grid(**{key: value for key, value in given.items() if value is not None})
    _finish(made, out, name, json)


@make.command
def random(
    *,
    count: Annotated[int, Parameter(help="How many scenarios.")] = 100,
    seed: Annotated[int, Parameter(help="The same seed gives the same set.")] = 0,
    num_gpus: Annotated[int, Parameter(help="Degree of parallelism.")] = 8,
    layers: Annotated[str, Parameter(help="Kinds to draw from, with commas.")] = "qkv,up,fsdp,cp",
    min_tokens: Annotated[int, Parameter(help="Fewest tokens, a multiple of 256.")] = 256,
    max_tokens: Annotated[int, Parameter(help="Most tokens, a multiple of 256.")] = 131_072,
    out: OutOption,
    name: NameOption = None,
    json: JsonOption = None,
) -> None:
    """Random layers of published transformers."""
    from ficco_sim.scenarios import random_models

    check_outputs(json, None, None)
    made = random_models(
        count=count,
        seed=seed,
        num_gpus=num_gpus,
        layers=tuple(word.strip() for word in layers.split(",")),
        min_tokens=min_tokens,
        max_tokens=max_tokens,
    )
    _finish(made, out, name, json)


@make.command
def measured(
    files: Annotated[tuple[Path, ...], Parameter(help="Records, from: python -m hw_validate run.")],
    /,
    *,
    out: OutOption,
    name: NameOption = None,
    json: JsonOption = None,
) -> None:
    """The workloads that were measured on hardware."""
    from ficco_sim import scenarios

    check_outputs(json, None, None)
    _finish(scenarios.measured(files=tuple(map(str, files))), out, name, json)


SetArgument: TypeAlias = Annotated[str, Parameter(help="A file of scenarios, or: named, grid.")]


@app.command
def show(scenarios: SetArgument, /, *, json: JsonOption = None) -> None:
    """Show a set: sizes, FLOP, OTB and MT of each scenario."""
    from ficco_sim.scenarios import find_scenarios, scenario_table

    check_outputs(json, None, None)
    found = find_scenarios(scenarios)
    if write_json(_document(found), json):
        return
    out = console()
    out.print(scenario_table(found))
    say(out, [_line(found), *found.notes])


@app.command
def check(file: Annotated[Path, Parameter(help="A file of scenarios.")], /) -> None:
    """Make a set again from what its file says, and tell whether the same comes out."""
    from ficco_sim.scenarios import load_scenarios, make_again

    found = load_scenarios(file)
    made = make_again(found)
    if found != made:
        pairs = zip(found.workloads, made.workloads, strict=False)
        different = next((a.name for a, b in pairs if a != b), "the number of scenarios")
        raise ScenarioError(f"{file}: made again it differs, first in {different}")
    say(console(), [f"{file}: made again, it is the same: {_line(made)}"])


def _finish(made: "ScenarioSet", out: Path, name: str | None, json: str | None) -> None:
    """Write a set and say what is in it."""
    from dataclasses import replace

    if name is not None:
        made = replace(made, name=name)
    made.save(out)
    if write_json(_document(made), json):
        return
    say(console(), [f"{_line(made)}: {out}", *made.notes])


def _line(found: "ScenarioSet") -> str:
    below = sum(w.m < w.k for w in found.workloads)
    return f"{found.name}: {len(found.workloads):,} scenarios, {below:,} of them with M < K"


def _document(found: "ScenarioSet") -> dict[str, object]:
    from ficco_sim.io import to_plain
    from ficco_sim.scenarios import scenario_rows

    return {
        "name": found.name,
        "made_by": to_plain(found.made_by),
        "scenarios": scenario_rows(found),
        "notes": list(found.notes),
    }

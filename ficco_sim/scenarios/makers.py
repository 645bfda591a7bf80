"""Makers of sets by name, so that a set can be made again from what its file says."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ficco_sim.errors import ScenarioError
from ficco_sim.scenarios.measured import measured
from ficco_sim.scenarios.random_models import random_models
from ficco_sim.scenarios.sets import YAML_SUFFIXES, ScenarioSet, load_scenarios, named
from ficco_sim.scenarios.synthetic import synthetic_grid

__all__ = ["MAKERS", "find_scenarios", "make_again"]

MAKERS: dict[str, Callable[..., ScenarioSet]] = {
    "named": named,
    "grid": synthetic_grid,
    "random": random_models,
    "measured": measured,
}
WITHOUT_ARGUMENTS = ("named", "grid")
"""Sets that have a name of their own on the command line."""


def find_scenarios(name: str) -> ScenarioSet:
    """The set that a word (``named``, ``grid``) or a file holds.

    Raises
    ------
    FiccoError
        If there is none, or the file is wrong.
    """
    if name in WITHOUT_ARGUMENTS:
        return MAKERS[name]()
    if Path(name).suffix not in (".json", *YAML_SUFFIXES):
        raise ScenarioError(
            f"set of scenarios {name!r} is unknown; one of: {', '.join(WITHOUT_ARGUMENTS)}, or a file "
            "that ends in .json, .yaml or .yml"
        )
    return load_scenarios(Path(name))


def make_again(found: ScenarioSet) -> ScenarioSet:
    """The set that the maker named in a file makes now.

    Raises
    ------
    ScenarioError
        If the file does not say how it was made, or what it says cannot be.
    """
    recipe = found.made_by
    if recipe is None:
        raise ScenarioError(f"{found.name}: made_by: missing, so that it cannot be made again")
    if recipe.maker not in MAKERS:
        raise ScenarioError(
            f"{found.name}: made_by.maker: {recipe.maker!r} is unknown; one of: {', '.join(MAKERS)}"
        )
    # JSON and YAML have lists where the makers take tuples
    arguments = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in recipe.arguments.items()
    }
    try:
        made = MAKERS[recipe.maker](**arguments)
    except TypeError as error:
        raise ScenarioError(f"{found.name}: made_by.arguments: {error}") from error
    return replace(made, name=found.name)

"""Rules as Python functions of the user's, named ``FILE.py:FUNCTION``; see `ficco_sim.user_code`."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ficco_sim.errors import RuleError
from ficco_sim.heuristics.features import Features
from ficco_sim.heuristics.rule import FeatureRule, Values
from ficco_sim.user_code import find_function

__all__ = ["load_python_rule"]


def load_python_rule(path: Path, function: str) -> FeatureRule:
    """The rule that a function in a Python file is.

    The function takes `Features`, and returns the name of a schedule, a `Decision` or a dict of its
    fields. Further arguments with numbers as defaults are the rule's parameters::

        def mine(f, tau_s=1e-3):
            return "serial" if f.gemm_s < tau_s else {"schedule": "hetero-unfused-1d", "num_chunks": 4}

    Raises
    ------
    RuleError, FileError
        If the file cannot be read or run, or has no such function.
    """
    where = f"{path}:{function}"
    found = find_function(path, function, RuleError)
    return FeatureRule(
        name=where,
        description=_first_line(found),
        function=_adapted(found),
        parameters=_parameters(found, where),
    )


def _parameters(function: Callable[..., Any], where: str) -> dict[str, float]:
    try:
        arguments = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise RuleError(f"{where}: its arguments cannot be told") from error
    if not arguments:
        raise RuleError(f"{where}: it must take one argument, the features")
    found: dict[str, float] = {}
    for argument in arguments[1:]:
        default = argument.default
        if argument.kind in (argument.VAR_KEYWORD, argument.VAR_POSITIONAL):
            continue
        if isinstance(default, bool) or not isinstance(default, (int, float)):
            raise RuleError(f"{where}: the argument {argument.name!r} needs a number as its default")
        found[argument.name] = default
    return found


def _adapted(function: Callable[..., Any]) -> Callable[[Features, Values], Any]:
    return lambda features, values: function(features, **values)


def _first_line(function: Callable[..., Any]) -> str:
    return next(iter((inspect.getdoc(function) or "").splitlines()), "")

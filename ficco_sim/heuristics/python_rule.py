"""Rules as Python functions of the user's, named ``FILE.py:FUNCTION``.

Such a file is run as code, with all that this allows: only because the user asked for it by its path.
"""

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from ficco_sim import io
from ficco_sim.errors import RuleError
from ficco_sim.heuristics.features import Features
from ficco_sim.heuristics.rule import FeatureRule, Values

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
    found = getattr(_run(path), function, None)
    if not callable(found):
        raise RuleError(f"{where}: the file defines no function {function!r}")
    return FeatureRule(
        name=where,
        description=_first_line(found),
        function=_adapted(found),
        parameters=_parameters(found, where),
    )


def _run(path: Path) -> ModuleType:
    io.read_text(path)  # one clear error for what is no readable text file
    name = f"ficco_rule_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise RuleError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        line = _line_in(path, error)
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        raise RuleError(f"{path}:{line} {type(error).__name__}: {text}") from error
    return module


def _line_in(path: Path, error: BaseException) -> str:
    """Where in the file it went wrong."""
    if isinstance(error, SyntaxError):
        return f" line {error.lineno}:"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f.lineno for f in frames if f.filename == str(path)]
    return f" line {lines[-1]}:" if lines else ""


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

"""Schedules of the user's: a function in a Python file, named ``FILE.py:FUNCTION``."""

import functools
import inspect
from typing import Any

from ficco_sim.errors import FiccoError, ScenarioError
from ficco_sim.plan import Plan
from ficco_sim.schedules.ficco import Schedule
from ficco_sim.user_code import find_function, line_in, split_name

__all__ = ["load_schedule", "name_of"]


def load_schedule(text: str) -> Schedule:
    """The schedule function ``(workload, num_gpus, **knobs) -> Plan`` that ``FILE.py:FUNCTION`` names.

    The file is run as code. What goes wrong in the function is an error of the user's, with its line.

    Raises
    ------
    ScenarioError, FileError
        If the text is no such name, or the file cannot be read or run, or has no such function.
    """
    named = split_name(text)
    if named is None:
        raise ScenarioError(f"schedule {text!r}: must be FILE.py:FUNCTION")
    path, function = named
    found = find_function(path, function, ScenarioError)
    try:
        inspect.signature(found)
    except (TypeError, ValueError) as error:
        raise ScenarioError(f"{text}: its arguments cannot be told") from error

    @functools.wraps(found)
    def schedule(*arguments: Any, **knobs: Any) -> Plan:
        try:
            return found(*arguments, **knobs)  # type: ignore[no-any-return]
        except FiccoError:
            raise
        except (Exception, SystemExit) as error:
            where = f"{text}:{line_in(path, error)}"
            raise ScenarioError(f"{where} {type(error).__name__}: {error}") from error

    schedule.__name__ = text
    return schedule


def name_of(schedule: Schedule) -> str:
    """What to call a schedule function in messages."""
    return getattr(schedule, "__name__", type(schedule).__name__)

"""Functions in Python files of the user's, named ``FILE.py:FUNCTION``.

Such a file is run as code, with all that this allows: only because the user asked for it by its path.
"""

import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from ficco_sim import io
from ficco_sim.errors import FiccoError

__all__ = ["find_function", "line_in", "split_name"]


def split_name(text: str) -> tuple[Path, str] | None:
    """File and function of ``FILE.py:FUNCTION``, None if the text is no such name.

    Examples
    --------
    >>> split_name("mine.py:tapered")[1], split_name("mine.yaml"), split_name("mine.py")
    ('tapered', None, None)
    """
    path, colon, function = text.rpartition(":")
    return (Path(path), function) if colon and path.endswith(".py") else None


def find_function(path: Path, function: str, kind: type[FiccoError]) -> Callable[..., Any]:
    """Run a file and look a function up in it.

    Parameters
    ----------
    kind
        Of the error if the file cannot be run or has no such function.

    Raises
    ------
    FiccoError
        Of that kind; a FileError if the file cannot be read.
    """
    found = getattr(_run(path, kind), function, None)
    if not callable(found):
        raise kind(f"{path}:{function}: the file defines no function {function!r}")
    return found  # type: ignore[no-any-return]


def _run(path: Path, kind: type[FiccoError]) -> ModuleType:
    io.read_text(path)  # one clear error for what is no readable text file
    name = f"ficco_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise kind(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        raise kind(f"{path}:{line_in(path, error)} {type(error).__name__}: {text}") from error
    return module


def line_in(path: Path, error: BaseException) -> str:
    """Where in the file it went wrong, as `` line 3:``; nothing if that is not known."""
    if isinstance(error, SyntaxError):
        return f" line {error.lineno}:"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f.lineno for f in frames if f.filename == str(path)]
    return f" line {lines[-1]}:" if lines else ""

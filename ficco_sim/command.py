"""What command lines share: options, exit codes, one clear error, printing and writing of results."""

import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeAlias

from cyclopts import App, CycloptsError, Parameter

from ficco_sim.errors import FiccoError, ScenarioError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "DtypeOption",
    "GemmOption",
    "JsonOption",
    "Progress",
    "SkewOption",
    "WorkloadOption",
    "byte_count",
    "console",
    "run_app",
    "say",
    "write_json",
    "write_text_to",
]

EXIT_FINE, EXIT_USER, EXIT_OURS, EXIT_INTERRUPTED = 0, 2, 1, 130
TABLE_WIDTH = 144  # where the output is no terminal

WorkloadOption: TypeAlias = Annotated[
    str | None,
    Parameter(help="Name of a workload (see: ficco list workloads) or a YAML or JSON file with one."),
]
GemmOption: TypeAlias = Annotated[
    str | None, Parameter(help="Shape M,N,K instead of a workload: gathered rows, local columns, k.")
]
DtypeOption: TypeAlias = Annotated[
    str, Parameter(help="Element type for --gemm: bf16, fp16, fp8 or fp32.")
]
SkewOption: TypeAlias = Annotated[
    float | None,
    Parameter(help="All-to-all: gpu g draws a share of the tokens in proportion to (g+1)^-skew."),
]
JsonOption: TypeAlias = Annotated[
    str | None,
    Parameter(
        help="Write the result as JSON to a file, or to the standard output with -.",
        allow_leading_hyphen=True,
    ),
]


def run_app(app: App, argv: list[str] | None, program: str) -> int:
    """Run a command line; whatever goes wrong becomes lines ``program: error: ...``.

    Parameters
    ----------
    argv
        Arguments; those of the process if None.
    program
        What opens every line of an error.

    Returns
    -------
    int
        0 if fine, 2 if the input is at fault, 1 if we are, 130 if interrupted.
    """

    def fail(message: str, code: int) -> int:
        for line in message.splitlines():
            sys.stderr.write(f"{program}: error: {line}\n")
        return code

    try:
        app(argv, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        return fail(" ".join(str(error).split()), EXIT_USER)
    except FiccoError as error:
        return fail(str(error), EXIT_USER)
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone; nothing is left to say
        return EXIT_FINE
    except KeyboardInterrupt:
        return fail("interrupted", EXIT_INTERRUPTED)
    except MemoryError:
        return fail("not enough memory for this many gpus and chunks", EXIT_USER)
    except Exception as error:  # noqa: BLE001 - no traceback reaches a user
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}:{frame.lineno}"
        return fail(
            f"internal error, please report: {type(error).__name__} at {where}: {error}", EXIT_OURS
        )
    return EXIT_FINE


def byte_count(option: str, text: str) -> int:
    """The size that an option gives."""
    from ficco_sim.units import parse_bytes

    try:
        return parse_bytes(text)
    except ValueError as error:
        raise ScenarioError(f"{option}: {error}") from error


def write_json(document: Any, target: str | None) -> bool:
    """Write a result as JSON if asked for; true if that was the whole output."""
    if target is None:
        return False
    from ficco_sim.io import dump_json

    write_text_to(dump_json(document), target)
    return target == "-"


def write_text_to(text: str, target: str) -> None:
    """Write text to a file, or to the standard output for ``-``."""
    if target == "-":
        sys.stdout.write(text)
        return
    from ficco_sim.io import write_text

    write_text(Path(target), text)


def console(least_width: int = 0) -> "Console":
    """Where results are printed; wide where the output is no terminal."""
    from rich.console import Console

    out = Console(markup=False)
    if not out.is_terminal:
        out = Console(markup=False, width=max(TABLE_WIDTH, least_width))
    return out


def say(out: "Console", notes: list[str]) -> None:
    """Print notes whole, however long."""
    for note in notes:
        out.print(note, highlight=False, soft_wrap=True)


class Progress:
    """A progress bar on the terminal's error stream; silent elsewhere.

    Parameters
    ----------
    doing
        What is going on before the first step has a name.
    line_every_s
        Seconds between lines where the error stream is no terminal, for work of hours; none unless
        given.
    """

    def __init__(self, doing: str = "simulating", *, line_every_s: float | None = None) -> None:
        self._doing = doing
        self._line_every_s = line_every_s
        self._told_s = time.monotonic()

    def __enter__(self) -> Self:
        from rich import progress
        from rich.console import Console

        console = Console(stderr=True)
        self._bar = progress.Progress(console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task(self._doing, total=None)
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, done: int, total: int, name: str) -> None:
        """Show that ``done`` of ``total`` are done and ``name`` is next."""
        self._bar.update(self._task, completed=done, total=total, description=f"{name:20}")
        now_s = time.monotonic()
        every_s = self._line_every_s
        if self._bar.disable and every_s is not None and now_s - self._told_s >= every_s:
            self._told_s = now_s
            sys.stderr.write(f"{name}\n")

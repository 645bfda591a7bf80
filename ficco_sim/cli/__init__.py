"""The command ``ficco``: parses, calls one library function per verb, prints."""

import sys
import traceback
from pathlib import Path

from cyclopts import App, CycloptsError

from ficco_sim.cli import collective, lists, plans, run, topology
from ficco_sim.errors import FiccoError

__all__ = ["main"]

EXIT_FINE, EXIT_USER, EXIT_OURS, EXIT_INTERRUPTED = 0, 2, 1, 130

app = App(
    name="ficco",
    help="Which schedule of finer-grain compute/communication overlap wins on a machine, by how "
    "much and why.",
    help_format="markdown",
    version="0.1.0",
)
for verb in (run.compare, run.simulate, plans.plan, plans.check, lists.cost, collective.collective):
    app.command(verb)
app.command(lists.list_, name="list")
app.command(topology.app)


def main(argv: list[str] | None = None) -> int:
    """Run the command line.

    Returns
    -------
    int
        0 if fine, 2 if the input is at fault, 1 if we are.
    """
    try:
        app(argv, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        return _fail(" ".join(str(error).split()), EXIT_USER)
    except FiccoError as error:
        return _fail(str(error), EXIT_USER)
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone; nothing is left to say
        return EXIT_FINE
    except KeyboardInterrupt:
        return _fail("interrupted", EXIT_INTERRUPTED)
    except MemoryError:
        return _fail("not enough memory for this many gpus and chunks", EXIT_USER)
    except Exception as error:  # noqa: BLE001 - no traceback reaches a user
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}:{frame.lineno}"
        return _fail(
            f"internal error, please report: {type(error).__name__} at {where}: {error}", EXIT_OURS
        )
    return EXIT_FINE


def _fail(message: str, code: int) -> int:
    for line in message.splitlines():
        sys.stderr.write(f"ficco: error: {line}\n")
    return code

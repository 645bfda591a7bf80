"""The command ``python -m hw_validate``: parses, calls one function per verb, prints."""

import sys

from cyclopts import App

from ficco_sim.command import run_app
from hw_validate.commands.allowance import allowance
from hw_validate.commands.beside import beside
from hw_validate.commands.compare import compare
from hw_validate.commands.doctor import doctor
from hw_validate.commands.microbench import microbench
from hw_validate.commands.run import run
from hw_validate.commands.summary import summary

__all__ = ["main"]

app = App(
    name="hw_validate",
    help="Run the plans of ficco on real gpus: what this machine can do, what its parts cost, what "
    "every schedule takes, and how far a simulation is off.",
    help_format="markdown",
    version="0.1.0",
    suppress_keyboard_interrupt=False,
)
for verb in (doctor, microbench, run, summary, compare, beside, allowance):
    app.command(verb)


def main(argv: list[str] | None = None) -> int:
    """Run the command line.

    Returns
    -------
    int
        0 if fine, 2 if the input or the machine is at fault, 1 if we are, 130 if interrupted.
    """
    return run_app(app, argv, "hw_validate")


if __name__ == "__main__":
    sys.exit(main())

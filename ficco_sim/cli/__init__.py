"""The command ``ficco``: parses, calls one library function per verb, prints."""

from cyclopts import App

from ficco_sim.cli import (
    calibrate,
    collective,
    heuristic,
    laboratory,
    lists,
    plans,
    report,
    run,
    scenarios,
    sweep,
    topology,
    tuning,
    validate,
)
from ficco_sim.command import run_app

__all__ = ["main"]

app = App(
    name="ficco",
    help="Which schedule of finer-grain compute/communication overlap wins on a machine, by how "
    "much and why.",
    help_format="markdown",
    version="0.1.0",
    suppress_keyboard_interrupt=False,
)
for verb in (run.compare, run.simulate, plans.plan, plans.check, lists.cost, collective.collective):
    app.command(verb)
app.command(lists.list_, name="list")
app.command(plans.schema)
app.command(calibrate.calibrate)
app.command(validate.validate)
app.command(sweep.sweep)
app.command(report.report)
app.command(scenarios.app)
app.command(topology.app)
app.command(heuristic.app)
heuristic.app.command(laboratory.evaluate)
heuristic.app.command(tuning.tune)
heuristic.app.command(tuning.portability)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns its exit code, see `run_app`."""
    return run_app(app, argv, "ficco")

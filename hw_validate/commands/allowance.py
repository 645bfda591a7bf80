"""The verb allowance: whether a program of several commands fits the device time that there is."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ficco_sim.command import JsonOption, console, say, write_json
from ficco_sim.errors import ScenarioError
from hw_validate.commands.measuring import duration_s


def allowance(
    dry_runs: Annotated[list[Path], Parameter(help="Files from: VERB ... --dry-run --json FILE.")],
    /,
    *,
    most: Annotated[str, Parameter(help="Device time in all, such as 30m.")] = "30m",
    most_each: Annotated[str, Parameter(help="Device time of one command.")] = "10m",
    json: JsonOption = None,
) -> None:
    """Add up dry runs: plans, how many are legal and right, and the time against an allowance.

    Fails if one is wrong or the time does not suffice.
    """
    from ficco_sim.io import load, to_plain
    from hw_validate.allowance import allowance_table, judge
    from hw_validate.dry_run import DryRun

    found = judge(
        {path.stem: load(path, DryRun) for path in dry_runs},
        duration_s("--most", most),
        duration_s("--most-each", most_each),
    )
    if not write_json(to_plain(found), json):
        out = console()
        out.print(allowance_table(found))
        say(out, ["estimates, not measurements; what more than two devices add is a guess"])
    if found.problems:
        raise ScenarioError("\n".join(found.problems[:8]))

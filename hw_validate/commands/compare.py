"""The verb compare: a simulated trace beside a measured one."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ficco_sim.command import JsonOption, console, say, write_json


def compare(
    simulated: Annotated[
        Path, Parameter(help="A trace from: ficco simulate SCHEDULE ... --spans FILE.")
    ],
    measured: Annotated[
        Path, Parameter(help="A trace from: python -m hw_validate summary RECORDS --spans FILE.")
    ],
    *,
    tasks: Annotated[int, Parameter(help="Tasks to list, those that differ most first.")] = 20,
    json: JsonOption = None,
) -> None:
    """Lay a simulated trace beside a measured one, task by task: what differs and by how much."""
    from ficco_sim.io import to_plain
    from ficco_sim.trace import load_trace
    from hw_validate.compare import (
        compare_traces,
        comparison_lines,
        kinds_table,
        parts_table,
        tasks_table,
    )

    comparison = compare_traces(load_trace(simulated), load_trace(measured))
    if write_json(to_plain(comparison), json):
        return
    out = console()
    say(out, comparison_lines(comparison))
    for table in (kinds_table(comparison), parts_table(comparison), tasks_table(comparison, tasks)):
        out.print(table)

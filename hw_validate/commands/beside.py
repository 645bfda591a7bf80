"""The verb beside: two sets of measured plans, such as emulated and real ones."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ficco_sim.command import JsonOption, console, say, write_json, write_text_to
from ficco_sim.errors import ScenarioError

TABLE_WIDTH = 200


def beside(
    records: Annotated[
        list[Path], Parameter(help="Files of the first set, from: python -m hw_validate run.")
    ],
    /,
    *,
    against: Annotated[
        list[Path], Parameter(help="A file of the second set, such as real runs; may be repeated.")
    ],
    maps: Annotated[
        str | None,
        Parameter(help="Only this map of the first set and this of the second, such as switch,own."),
    ] = None,
    csv: Annotated[
        str | None,
        Parameter(
            help="Write every pair as a table; - for the standard output.", allow_leading_hyphen=True
        ),
    ] = None,
    json: JsonOption = None,
) -> None:
    """Lay measured plans beside those of other runs: how good an emulation was, by schedule."""
    from ficco_sim.io import to_plain
    from ficco_sim.records import merge_records, read_records
    from hw_validate.beside import beside_lines, beside_table, lay_beside, pairs_csv

    if json == csv == "-":
        raise ScenarioError("--json - and --csv -: only one can be the standard output")
    pair = None if maps is None else tuple(name.strip() for name in maps.split(","))
    if pair is not None and len(pair) != 2:
        raise ScenarioError(f"--maps: {maps!r} must be two names with a comma")
    first, second = (
        merge_records([(path, read_records(path)) for path in paths]) for paths in (records, against)
    )
    found = lay_beside(first, second, maps=None if pair is None else (pair[0], pair[1]))
    if csv is not None:
        write_text_to(pairs_csv(found.pairs), csv)
    if write_json(to_plain(found), json) or csv == "-":
        return
    out = console(TABLE_WIDTH)
    out.print(beside_table(found))
    say(out, beside_lines(found))

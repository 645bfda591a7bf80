"""The verb summary: what files of records say, and the traces in them."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ficco_sim.command import JsonOption, console, say, write_json
from ficco_sim.errors import ScenarioError


def summary(
    records: Annotated[list[Path], Parameter(help="Files from: python -m hw_validate run.")],
    /,
    *,
    spans: Annotated[
        Path | None, Parameter(help="Write the spans of one measured plan, for: hw_validate compare.")
    ] = None,
    key: Annotated[str | None, Parameter(help="Its key, or the beginning of it.")] = None,
    json: JsonOption = None,
) -> None:
    """Say what records of plans show: winners, gains, losses and how repeatable they are."""
    from ficco_sim.io import to_plain, write_text
    from ficco_sim.measured_plans import trace_of_measurement
    from ficco_sim.records import merge_records, read_records
    from ficco_sim.units import format_seconds
    from hw_validate.summary import (
        TABLE_WIDTH,
        collective_lines,
        collective_rows,
        plan_rows,
        plan_table,
        repeat_rows,
        straight_rows,
    )

    merged = merge_records([(path, read_records(path)) for path in records])
    if (spans is None) != (key is None):
        raise ScenarioError("--spans and --key belong together")
    out = console(TABLE_WIDTH)
    if spans is not None and key is not None:
        found = [m for m in merged.measurements if m.key.startswith(key)]
        if not found or len({m.key for m in found}) > 1:
            raise ScenarioError(
                f"--key: {key!r} is the beginning of {len(found)} measurements, not of one"
            )
        device = merged.sessions[0].environment.get("device", "unknown")
        write_text(spans, trace_of_measurement(found[0], device).to_json())
        out.print(f"spans of {found[0].params['schedule']} ({found[0].key}): {spans}", highlight=False)
        return
    rows, repeats = plan_rows(merged.measurements), repeat_rows(merged.measurements)
    straight = straight_rows(merged.measurements)
    collectives = collective_rows(merged.measurements)
    document = {
        "rows": to_plain(rows),
        "repeats": to_plain(repeats),
        "straight": [
            dict(zip(("workload", "emulates", "plan", "plan_s", "straight_s"), row, strict=True))
            for row in straight
        ],
        "collectives": to_plain(collectives),
    }
    if write_json(document, json):
        return
    if not rows:
        raise ScenarioError(f"{records[0]}: no usable measurement of a serial plan to compare with")
    out.print(plan_table(rows))
    lines = [
        f"{workload} on {emulates}: {plan}: {format_seconds(plan_s)}, straight in torch "
        f"{format_seconds(straight_s)} ({plan_s / straight_s - 1:+.1%})"
        for workload, emulates, plan, plan_s, straight_s in straight
    ]
    lines += collective_lines(collectives)
    if repeats:
        worst = max(repeats, key=lambda row: row.difference)
        within = sum(1 for row in repeats if row.difference <= 0.03)
        lines.append(
            f"repeated: {within} of {len(repeats)} plans within 3 %; worst {worst.plan} of "
            f"{worst.workload} on {worst.emulates} with {worst.difference:.1%}"
        )
    unusable = [m for m in merged.measurements if not m.usable]
    lines += [f"unusable: {m.kind} {m.key}: {m.unusable[0]}" for m in unusable[:5]]
    say(out, lines)

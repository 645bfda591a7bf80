"""Answers of rules for people: sentences and a table."""

from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ficco_sim.heuristics.features import Features, format_feature
from ficco_sim.heuristics.rule import Picks
from ficco_sim.units import US, format_seconds

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["feature_lines", "picks_table", "rules_table"]

A_LINE = 4


def feature_lines(features: Features) -> Iterator[str]:
    """All features with their units, a few to a line."""
    words = [f"{f.name} {format_feature(f.name, getattr(features, f.name))}" for f in fields(features)]
    for i in range(0, len(words), A_LINE):
        yield "  " + "".join(f"{word:36}" for word in words[i : i + A_LINE]).rstrip()


def picks_table(picks: Picks) -> "Table":
    """A row per rule: its choice, or its fault, and why."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.title = f"{picks.workload} on {picks.machine} (nothing simulated unless by the oracle)"
    table.title_justify = "left"
    for name in ("rule", "choice", "chunks", "queues", "took", "why"):
        table.add_column(name, justify="right" if name in ("chunks", "queues", "took") else "left")
    for row in picks.to_plain()["decisions"]:
        fault = row["fault"]
        table.add_row(
            row["rule"],
            fault["kind"] if fault else row["schedule"],
            *(
                "-" if row[knob] is None else str(row[knob])
                for knob in ("num_chunks", "compute_queues")
            ),
            f"{row['seconds'] / US:.0f} us"
            if row["seconds"] < 1e-3
            else format_seconds(row["seconds"]),
            fault["message"] if fault else row["reason"],
            style="red" if fault else None,
        )
    return table


def rules_table(rows: list[dict[str, Any]]) -> "Table":
    """Rules by name, as of `ficco_sim.heuristics.rule_rows`."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("rule", "parameters", "what"):
        table.add_column(name)
    for row in rows:
        values = ", ".join(f"{name} {value:g}" for name, value in row["parameters"].items())
        table.add_row(row["name"], values or "-", row["description"])
    return table

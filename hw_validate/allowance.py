"""Whether a program of several commands fits an allowance of device time, and whether it is right."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ficco_sim.units import format_bytes
from hw_validate.dry_run import DryRun

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Allowance", "AllowanceRow", "allowance_table", "judge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowanceRow:
    """One command: what it measures, how long that may take, and what was tried without a gpu."""

    name: str
    measurements: int
    estimate_s: float
    plans: int | None
    checked: int | None
    verified: int | None
    most_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """All commands of a program.

    Parameters
    ----------
    most_s, most_each_s
        The allowance in all, and of one command.
    problems
        Why it should not be run as it is; empty if it can.
    """

    rows: tuple[AllowanceRow, ...]
    estimate_s: float
    plans: int
    checked: int
    verified: int
    most_s: float
    most_each_s: float
    problems: tuple[str, ...]


def judge(dry_runs: Mapping[str, DryRun], most_s: float, most_each_s: float) -> Allowance:
    """Add dry runs up and hold them against an allowance.

    Parameters
    ----------
    dry_runs
        By name.
    most_s, most_each_s
        Seconds that all may take, and each.
    """
    rows = []
    problems = []
    for name, dry in dry_runs.items():
        tried = dry.rehearsal
        rows.append(
            AllowanceRow(
                name=name,
                measurements=dry.measurements,
                estimate_s=dry.estimate_s,
                plans=None if tried is None else tried.plans,
                checked=None if tried is None else tried.checked,
                verified=None if tried is None else tried.verified,
                most_bytes=None if tried is None else tried.most_bytes,
            )
        )
        if dry.estimate_s > most_each_s:
            problems.append(
                f"{name}: {_minutes(dry.estimate_s)} are more than the {_minutes(most_each_s)} of one "
                "command"
            )
        if tried is not None:
            problems += [f"{name}: {failure}" for failure in tried.failures]
    total_s = sum(row.estimate_s for row in rows)
    if total_s > most_s:
        problems.append(f"{_minutes(total_s)} in all are more than the allowance of {_minutes(most_s)}")
    return Allowance(
        rows=tuple(rows),
        estimate_s=total_s,
        plans=sum(row.plans or 0 for row in rows),
        checked=sum(row.checked or 0 for row in rows),
        verified=sum(row.verified or 0 for row in rows),
        most_s=most_s,
        most_each_s=most_each_s,
        problems=tuple(problems),
    )


def allowance_table(found: Allowance) -> "Table":
    """A row a command, and their sum."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("command", no_wrap=True)
    for name in ("measurements", "estimate", "plans", "legal", "right", "most memory"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in found.rows:
        table.add_row(
            row.name,
            f"{row.measurements:,}",
            _minutes(row.estimate_s),
            *(
                "-" if count is None else f"{count:,}"
                for count in (row.plans, row.checked, row.verified)
            ),
            "-" if row.most_bytes is None else format_bytes(row.most_bytes),
        )
    table.add_section()
    table.add_row(
        "in all",
        f"{sum(row.measurements for row in found.rows):,}",
        f"{_minutes(found.estimate_s)} of {_minutes(found.most_s)}",
        *(f"{count:,}" for count in (found.plans, found.checked, found.verified)),
        "",
    )
    return table


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min"

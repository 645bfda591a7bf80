"""The table of a sweep, read back: scenarios with the plans that were tried."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING

from ficco_sim.errors import FileError, ScenarioError
from ficco_sim.sweep.files import read_rows
from ficco_sim.sweep.rows import COLUMNS, SweepRow

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SweepGroup", "SweepTable", "read_sweep"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepGroup:
    """One scenario on one machine; fields as in `SweepRow`.

    Parameters
    ----------
    rows
        The plans that were tried, best first; of equal ones the first in the table.
    """

    workload: str
    machine: str
    pattern: str
    m: int
    n: int
    k: int
    dtype: str
    num_gpus: int
    costs: str
    submission: str
    serial_s: float
    ideal_s: float
    gemm_s: float
    comm_s: float
    rows: tuple[SweepRow, ...] = field(repr=False)

    @property
    def best(self) -> SweepRow:
        """The plan with the least makespan."""
        return self.rows[0]


SHARED = tuple(f.name for f in fields(SweepGroup) if f.name != "rows")
"""Columns that are equal in all rows of a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTable:
    """Groups of a sweep in the order of its table."""

    groups: tuple[SweepGroup, ...]

    def group(self, workload: str, machine: str) -> SweepGroup:
        """One scenario on one machine.

        Raises
        ------
        ScenarioError
            If the sweep has none, for example because it failed there.
        """
        for group in self.groups:
            if (group.workload, group.machine) == (workload, machine):
                return group
        raise ScenarioError(f"the sweep has no {workload!r} on {machine!r}")

    @property
    def machines(self) -> tuple[str, ...]:
        """Names of the machines, in order of first appearance."""
        return tuple(dict.fromkeys(group.machine for group in self.groups))

    @property
    def workloads(self) -> tuple[str, ...]:
        """Names of the workloads, in order of first appearance."""
        return tuple(dict.fromkeys(group.workload for group in self.groups))

    def on(self, machine: str) -> tuple[SweepGroup, ...]:
        """The groups of one machine."""
        return tuple(group for group in self.groups if group.machine == machine)

    def to_frame(self) -> "pd.DataFrame":
        """A row per plan."""
        import pandas as pd

        values = [row.values() for group in self.groups for row in group.rows]
        return pd.DataFrame(values, columns=list(COLUMNS))


def read_sweep(path: Path) -> SweepTable:
    """Read the table of a sweep, CSV or Parquet by its suffix.

    Raises
    ------
    FileError
        If a column is missing or unknown, a value cannot be, the rows of a scenario contradict each
        other, or a plan occurs twice.
    HardwareError
        If it is Parquet and pyarrow is not installed.
    """
    table = _grouped(read_rows(path), str(path))
    if not table.groups:
        raise FileError(f"{path}: no row in it")
    return table


def _grouped(rows: Iterable[SweepRow], where: str) -> SweepTable:
    members: dict[tuple[str, str], list[SweepRow]] = {}
    for row in rows:
        members.setdefault((row.workload, row.machine), []).append(row)
    groups = []
    for (workload, machine), found in members.items():
        here = f"{where}: {workload} on {machine}"
        seen = set()
        for row in found:
            for name in SHARED:
                if getattr(row, name) != getattr(found[0], name):
                    raise FileError(
                        f"{here}: {name}: {getattr(found[0], name)} and {getattr(row, name)}; it must "
                        "be the same for all plans"
                    )
            if row.plan in seen:
                raise FileError(f"{here}: {row.plan}: the plan occurs twice")
            seen.add(row.plan)
        groups.append(
            SweepGroup(
                **{name: getattr(found[0], name) for name in SHARED},
                rows=tuple(sorted(found, key=lambda row: row.makespan_s)),
            )
        )
    return SweepTable(groups=tuple(groups))

"""Sweeps: every scenario of a set on every machine into one table, resumable after a kill."""

from ficco_sim.sweep.rows import COLUMNS, SweepRow
from ficco_sim.sweep.run import SweepError, SweepSummary, check_sweep_target, run_sweep
from ficco_sim.sweep.table import SweepGroup, SweepTable, read_sweep

__all__ = [
    "COLUMNS",
    "SweepError",
    "SweepGroup",
    "SweepRow",
    "SweepSummary",
    "SweepTable",
    "check_sweep_target",
    "read_sweep",
    "run_sweep",
]

"""How far simulations can be trusted: measured plans beside simulated ones, on one machine."""

from ficco_sim.validation.choose import ChosenPlans, choose_plans
from ficco_sim.validation.rows import KindRow, PartRow, PlanRow
from ficco_sim.validation.run import Refit, Validation, leave_one_out, validate
from ficco_sim.validation.show import (
    TABLE_WIDTH,
    plot_validation,
    rows_csv,
    summary_lines,
    tables,
)
from ficco_sim.validation.totals import ScheduleRow, Summary, WorkloadRow

__all__ = [
    "TABLE_WIDTH",
    "ChosenPlans",
    "KindRow",
    "PartRow",
    "PlanRow",
    "Refit",
    "ScheduleRow",
    "Summary",
    "Validation",
    "WorkloadRow",
    "choose_plans",
    "leave_one_out",
    "plot_validation",
    "rows_csv",
    "summary_lines",
    "tables",
    "validate",
]

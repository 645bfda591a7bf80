"""Studies: questions of the notebooks, each a function to a tidy frame and one that draws it.

Columns are in SI units, which are in their names; figures share one style. What others published is
drawn as black marks in the same figures, see `published`.
"""

from ficco_sim.studies.calibration import (
    calibrated_machine,
    collective_errors,
    draw_collective_errors,
    draw_gemm_errors,
    fitted_groups,
    gemm_errors,
    logs_frame,
)
from ficco_sim.studies.frames import parameter_changes, records_frame
from ficco_sim.studies.losses import (
    PAPER_SCHEDULES,
    contention,
    copy_cuts,
    draw_contention,
    draw_copy_cuts,
    draw_gemm_cuts,
    draw_loss_shares,
    gemm_cuts,
    loss_shares,
)
from ficco_sim.studies.measured import (
    draw_measured_errors,
    draw_measured_speedups,
    measured_and_simulated,
    read_plans,
    spans_beside,
    validate_plans,
    workload_errors,
)
from ficco_sim.studies.picture import MIME, Picture, write_shown
from ficco_sim.studies.published import Series, published, published_frame
from ficco_sim.studies.rules import (
    draw_small_sets,
    draw_tuning,
    rule_summary,
    simulated_outcomes,
    small_sets_frame,
    tuning_frame,
)
from ficco_sim.studies.schedules import (
    best_of,
    columns_varied,
    draw_bell_curve,
    draw_engines,
    draw_schedules,
    draw_speedups,
    schedule_times,
)
from ficco_sim.studies.timelines import draw_timelines, spans_frame
from ficco_sim.studies.wirings import all_gather_times, draw_all_gather_times, draw_wirings

__all__ = [
    "MIME",
    "PAPER_SCHEDULES",
    "Picture",
    "Series",
    "all_gather_times",
    "best_of",
    "calibrated_machine",
    "collective_errors",
    "columns_varied",
    "contention",
    "copy_cuts",
    "draw_all_gather_times",
    "draw_bell_curve",
    "draw_collective_errors",
    "draw_contention",
    "draw_copy_cuts",
    "draw_engines",
    "draw_gemm_cuts",
    "draw_gemm_errors",
    "draw_loss_shares",
    "draw_measured_errors",
    "draw_measured_speedups",
    "draw_schedules",
    "draw_small_sets",
    "draw_speedups",
    "draw_timelines",
    "draw_tuning",
    "draw_wirings",
    "fitted_groups",
    "gemm_cuts",
    "gemm_errors",
    "logs_frame",
    "loss_shares",
    "measured_and_simulated",
    "parameter_changes",
    "published",
    "published_frame",
    "read_plans",
    "records_frame",
    "rule_summary",
    "schedule_times",
    "simulated_outcomes",
    "small_sets_frame",
    "spans_beside",
    "spans_frame",
    "tuning_frame",
    "validate_plans",
    "workload_errors",
    "write_shown",
]

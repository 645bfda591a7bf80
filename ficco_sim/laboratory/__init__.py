"""The laboratory: rules judged, tuned and moved between machines, on plans that were tried before."""

from ficco_sim.laboratory.evaluate import Evaluation, RuleReport, evaluate
from ficco_sim.laboratory.judge import Judgement, judge, judge_all
from ficco_sim.laboratory.measured import from_records
from ficco_sim.laboratory.outcomes import (
    Outcome,
    Outcomes,
    Tried,
    among,
    from_sweep,
    joined,
    make_outcome,
)
from ficco_sim.laboratory.portability import Portability, portability
from ficco_sim.laboratory.read import read_outcomes
from ficco_sim.laboratory.small_sets import SmallSets, small_sets
from ficco_sim.laboratory.statistics import bootstrap_mean, wilson
from ficco_sim.laboratory.summary import Summary, best_always, summarize
from ficco_sim.laboratory.thresholds import Axis, parse_axis
from ficco_sim.laboratory.tune import Tuning, tune

__all__ = [
    "Axis",
    "Evaluation",
    "Judgement",
    "Outcome",
    "Outcomes",
    "Portability",
    "RuleReport",
    "SmallSets",
    "Summary",
    "Tried",
    "Tuning",
    "among",
    "best_always",
    "bootstrap_mean",
    "evaluate",
    "from_records",
    "from_sweep",
    "joined",
    "judge",
    "judge_all",
    "make_outcome",
    "parse_axis",
    "portability",
    "read_outcomes",
    "small_sets",
    "summarize",
    "tune",
    "wilson",
]

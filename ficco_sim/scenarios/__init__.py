"""Sets of scenarios: named workloads, synthetic grids, random draws from models, measured plans."""

from ficco_sim.scenarios.makers import MAKERS, find_scenarios, make_again
from ficco_sim.scenarios.measured import measured
from ficco_sim.scenarios.random_models import random_models
from ficco_sim.scenarios.sets import ScenarioSet, load_scenarios, named
from ficco_sim.scenarios.show import scenario_rows, scenario_table
from ficco_sim.scenarios.synthetic import synthetic_grid

__all__ = [
    "MAKERS",
    "ScenarioSet",
    "find_scenarios",
    "load_scenarios",
    "make_again",
    "measured",
    "named",
    "random_models",
    "scenario_rows",
    "scenario_table",
    "synthetic_grid",
]

"""Simulate, compare and choose overlap schedules of communication and GEMMs on any gpu topology.

Names are loaded on first use, so that importing the package is quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ficco_sim.check import check_plan
    from ficco_sim.comparison import compare
    from ficco_sim.costs import CostModel
    from ficco_sim.errors import FiccoError
    from ficco_sim.machine import Machine, load_machine
    from ficco_sim.metrics import Metrics, summarize
    from ficco_sim.plan import Gemm, LocalCopy, Plan, Queue, Region, Transfer
    from ficco_sim.reference import assert_correct, evaluate, make_inputs
    from ficco_sim.schedules import SCHEDULES, make_plan
    from ficco_sim.sim import simulate
    from ficco_sim.trace import Span, Trace
    from ficco_sim.workload import Workload, get_workload

__all__ = [
    "SCHEDULES",
    "CostModel",
    "FiccoError",
    "Gemm",
    "LocalCopy",
    "Machine",
    "Metrics",
    "Plan",
    "Queue",
    "Region",
    "Span",
    "Trace",
    "Transfer",
    "Workload",
    "assert_correct",
    "check_plan",
    "compare",
    "evaluate",
    "get_workload",
    "load_machine",
    "make_inputs",
    "make_plan",
    "simulate",
    "summarize",
]

_HOMES = {
    "check": ("check_plan",),
    "comparison": ("compare",),
    "costs": ("CostModel",),
    "errors": ("FiccoError",),
    "machine": ("Machine", "load_machine"),
    "metrics": ("Metrics", "summarize"),
    "plan": ("Gemm", "LocalCopy", "Plan", "Queue", "Region", "Transfer"),
    "reference": ("assert_correct", "evaluate", "make_inputs"),
    "schedules": ("SCHEDULES", "make_plan"),
    "sim": ("simulate",),
    "trace": ("Span", "Trace"),
    "workload": ("Workload", "get_workload"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)

"""Rules that pick a schedule for a workload on a machine without running or simulating anything."""

from ficco_sim.heuristics.decision import (
    FAULT_KINDS,
    Decision,
    FaultKind,
    RuleFault,
    default_knobs,
)
from ficco_sim.heuristics.features import FEATURE_NAMES, Features, features_of
from ficco_sim.heuristics.machine_features import MachineFeatures, machine_features
from ficco_sim.heuristics.registry import RULES, find_rule, rule_rows
from ficco_sim.heuristics.rule import FeatureRule, Pick, Picks, Rule, decide, pick_all

__all__ = [
    "FAULT_KINDS",
    "FEATURE_NAMES",
    "RULES",
    "Decision",
    "FaultKind",
    "FeatureRule",
    "Features",
    "MachineFeatures",
    "Pick",
    "Picks",
    "Rule",
    "RuleFault",
    "decide",
    "default_knobs",
    "features_of",
    "find_rule",
    "machine_features",
    "pick_all",
    "rule_rows",
]

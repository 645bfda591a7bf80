"""Rules that pick a schedule for a workload on a machine without running or simulating anything."""

from ficco_sim.heuristics.decision import (
    FAULT_KINDS,
    Decision,
    FaultKind,
    RuleFault,
    default_knobs,
)
from ficco_sim.heuristics.features import FEATURE_NAMES, Features, features_of
from ficco_sim.heuristics.machines import MachineFeatures, machine_features
from ficco_sim.heuristics.registry import RULES, find_rule, rule_rows
from ficco_sim.heuristics.rule import FeatureRule, Pick, Picks, Rule, decide, pick_all
from ficco_sim.heuristics.rule_file import (
    RuleFile,
    load_rule_file,
    rule_from_file,
    save_rule_file,
)
from ficco_sim.heuristics.tree import Example, best_example, learn_tree

__all__ = [
    "FAULT_KINDS",
    "FEATURE_NAMES",
    "RULES",
    "Decision",
    "Example",
    "FaultKind",
    "FeatureRule",
    "Features",
    "MachineFeatures",
    "Pick",
    "Picks",
    "Rule",
    "RuleFault",
    "RuleFile",
    "best_example",
    "decide",
    "default_knobs",
    "features_of",
    "find_rule",
    "learn_tree",
    "load_rule_file",
    "machine_features",
    "pick_all",
    "rule_from_file",
    "rule_rows",
    "save_rule_file",
]

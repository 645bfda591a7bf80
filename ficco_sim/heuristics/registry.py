"""Rules by name."""

from pathlib import Path
from typing import Any

from ficco_sim.errors import RuleError
from ficco_sim.grid import COMPARED
from ficco_sim.heuristics.closed_form import ClosedForm
from ficco_sim.heuristics.oracle import Oracle
from ficco_sim.heuristics.published import published, published_literal, published_time
from ficco_sim.heuristics.python_rule import load_python_rule
from ficco_sim.heuristics.rule import Rule
from ficco_sim.heuristics.rule_file import load_rule_file, rule_from_file
from ficco_sim.heuristics.simple import always, size_threshold
from ficco_sim.user_code import split_name

__all__ = ["RULES", "find_rule", "rule_rows"]

_SCHEDULES = tuple(dict.fromkeys(name for names in COMPARED.values() for name in names))

_BUILT_IN: tuple[Rule, ...] = (
    published(),
    published_literal(),
    published_time(),
    size_threshold(),
    ClosedForm(),
    Oracle(),
    *(always(schedule) for schedule in _SCHEDULES),
)
RULES: dict[str, Rule] = {rule.name: rule for rule in _BUILT_IN}
"""Built-in rules by name."""


def find_rule(text: str) -> Rule:
    """The rule that a text names.

    Parameters
    ----------
    text
        The name of a built-in rule; a ``.yaml``, ``.yml`` or ``.json`` file of thresholds, see
        `ficco_sim.heuristics.rule_file`; or ``FILE.py:FUNCTION``, which is run as code, see
        `ficco_sim.heuristics.python_rule`.

    Raises
    ------
    RuleError, FileError
        If there is no such rule, or its file is wrong; the message says what.
    """
    if text in RULES:
        return RULES[text]
    if text.endswith((".yaml", ".yml", ".json")):
        return rule_from_file(load_rule_file(Path(text)))
    if user := split_name(text):
        return load_python_rule(*user)
    if text.endswith(".py"):
        raise RuleError(f"rule {text!r}: name the function too, {text}:FUNCTION")
    raise RuleError(f"rule {text!r} is unknown; a file, or one of: {', '.join(RULES)}")


def rule_rows() -> list[dict[str, Any]]:
    """Every built-in rule with its parameters, for ``ficco list rules``."""
    return [
        {"name": r.name, "parameters": dict(r.parameters), "description": r.description}
        for r in RULES.values()
    ]

"""Rules by name."""

from typing import Any

from ficco_sim.errors import RuleError
from ficco_sim.grid import COMPARED
from ficco_sim.heuristics.published import published, published_literal, published_time
from ficco_sim.heuristics.rule import Rule
from ficco_sim.heuristics.simple import always, size_threshold

__all__ = ["RULES", "find_rule", "rule_rows"]

_SCHEDULES = tuple(dict.fromkeys(name for names in COMPARED.values() for name in names))

RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        published(),
        published_literal(),
        published_time(),
        size_threshold(),
        *(always(schedule) for schedule in _SCHEDULES),
    )
}
"""Built-in rules. What `closed_form` and learned trees add is put here too."""


def find_rule(text: str) -> Rule:
    """A built-in rule by its name.

    Raises
    ------
    RuleError
        If there is no such rule; the message lists the known ones.
    """
    rule = RULES.get(text)
    if rule is None:
        raise RuleError(f"rule {text!r} is unknown; one of: {', '.join(RULES)}")
    return rule


def rule_rows() -> list[dict[str, Any]]:
    """Every built-in rule with its parameters, for ``ficco list rules``."""
    return [
        {"name": r.name, "parameters": dict(r.parameters), "description": r.description}
        for r in RULES.values()
    ]

"""Rules as files: an ordered list of thresholds on features.

The first case whose conditions all hold decides, else ``otherwise`` does::

    format_version: 1
    name: mine
    description: Serial where a chunk is shorter than its command.
    parameters: {margin: 2}
    cases:
    - when: {received_bytes: {below: [margin, num_gpus, all_peers_bytes_per_s, copy_step_s]}}
      then: {schedule: serial, reason: commands take longer than bytes}
    - when: {m: {at_least: k}, gemm_to_comm: {above: 0.5, at_most: 4}}
      then: {schedule: hetero-unfused-1d, num_chunks: 4, compute_queues: 4}
    otherwise: {schedule: uniform-fused-1d}

A threshold is a number, the name of a feature or of a parameter, or a list of these: their product,
multiplied from left to right.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from operator import ge, gt, le, lt
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

from ficco_sim import io
from ficco_sim.errors import RuleError
from ficco_sim.heuristics.decision import Decision, find_fault
from ficco_sim.heuristics.features import FEATURE_NAMES, Features, format_feature
from ficco_sim.heuristics.rule import FeatureRule, Values, check_number
from ficco_sim.workload import Workload

__all__ = ["Bounds", "Case", "RuleFile", "load_rule_file", "rule_from_file", "save_rule_file"]

STRICT = {"extra": "forbid", "strict": True}
MAX_CASES = 1000
Threshold: TypeAlias = float | str | tuple[float | str, ...]

COMPARE: dict[str, tuple[Callable[[float, float], bool], str]] = {
    "below": (lt, "<"),
    "at_most": (le, "<="),
    "above": (gt, ">"),
    "at_least": (ge, ">="),
}
ANY_GATHER = Workload(name="any", pattern="all_gather_gemm", m=1, n=1, k=1)
"""All schedules that rules may name exist for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Where a feature must lie; all that are given hold together."""

    __pydantic_config__: ClassVar = STRICT
    # of the type Threshold, checked here: a union's errors would name its branches, not the rule
    below: Any = None
    at_most: Any = None
    above: Any = None
    at_least: Any = None

    def __post_init__(self) -> None:
        if not any(True for _ in self.given()):
            raise RuleError(f"{', '.join(COMPARE)}: at least one is needed")
        for name, threshold in self.given():
            for factor in _factors(threshold):
                if isinstance(factor, bool) or not isinstance(factor, (int, float, str)):
                    raise RuleError(
                        f"{name}: {threshold!r} must be a number, a name, or a list of these"
                    )
            if not _factors(threshold):
                raise RuleError(f"{name}: the list is empty")

    def given(self) -> Iterator[tuple[str, Threshold]]:
        """Names of the comparisons and their thresholds."""
        return ((name, getattr(self, name)) for name in COMPARE if getattr(self, name) is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Conditions on features, which must all hold, and what is then decided."""

    __pydantic_config__: ClassVar = STRICT
    when: dict[str, Bounds]
    then: Decision

    def __post_init__(self) -> None:
        if not self.when:
            raise RuleError("when: at least one condition is needed")
        for name in self.when:
            if name not in FEATURE_NAMES:
                raise RuleError(
                    f"when.{name}: {name!r} is no feature; they are {', '.join(FEATURE_NAMES)}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFile:
    """The content of a rule file; see the head of `ficco_sim.heuristics.rule_file`.

    Parameters
    ----------
    parameters
        Numbers by name that thresholds may use, so that they can be tuned.
    """

    __pydantic_config__: ClassVar = STRICT
    format_version: Literal[1]
    name: str
    description: str = ""
    parameters: dict[str, float] = field(default_factory=dict)
    cases: tuple[Case, ...] = ()
    otherwise: Decision

    def __post_init__(self) -> None:
        if len(self.cases) > MAX_CASES:
            raise RuleError(f"cases: {len(self.cases):,} are more than {MAX_CASES:,}")
        for name, value in self.parameters.items():
            key = f"parameters.{name}"
            if not name.isidentifier() or name in FEATURE_NAMES:
                raise RuleError(f"{key}: {name!r} must be a word, and no feature's name")
            check_number(key, value)
        for i, case in enumerate(self.cases):
            for feature, bounds in case.when.items():
                for name, threshold in bounds.given():
                    self._check_names(f"cases[{i}].when.{feature}.{name}", threshold)
            _check_decision(f"cases[{i}].then", case.then)
        _check_decision("otherwise", self.otherwise)

    def _check_names(self, key: str, threshold: Threshold) -> None:
        for factor in _factors(threshold):
            if isinstance(factor, str) and factor not in (*self.parameters, *FEATURE_NAMES):
                known = ", ".join(self.parameters) or "none"
                raise RuleError(
                    f"{key}: {factor!r} is no parameter ({known}) and no feature "
                    f"({', '.join(FEATURE_NAMES)})"
                )


def _check_decision(key: str, decision: Decision) -> None:
    fault = find_fault(decision, ANY_GATHER, 1)
    if fault is not None:
        raise RuleError(f"{key}: {fault[1]}")


def _factors(threshold: Any) -> tuple[Any, ...]:
    return tuple(threshold) if isinstance(threshold, (list, tuple)) else (threshold,)


def load_rule_file(path: Path) -> RuleFile:
    """Read a rule file.

    Raises
    ------
    FileError
        Naming the file, the line, the key, the value and the rule.
    """
    return io.load(path, RuleFile, lines=True)


def save_rule_file(file: RuleFile, path: Path) -> None:
    """Write a rule file that reads back equal; whole or not at all."""
    io.write_text(path, io.dump_yaml(file))


@dataclass(frozen=True, slots=True)
class _Condition:
    """One comparison, ready to be evaluated."""

    feature: str
    compare: Callable[[float, float], bool]
    symbol: str
    factors: tuple[float | str, ...]

    def threshold(self, f: Features, values: Values) -> float:
        """The product of the factors, from left to right."""
        product = 1.0
        for factor in self.factors:
            if not isinstance(factor, str):
                product *= factor
            else:
                product *= values[factor] if factor in values else getattr(f, factor)
        return product

    def holds(self, f: Features, values: Values) -> bool:
        """Whether the feature lies where it must."""
        return self.compare(getattr(f, self.feature), self.threshold(f, values))

    def words(self, f: Features, values: Values) -> str:
        """The comparison with its numbers."""
        value, threshold = (
            format_feature(self.feature, x)
            for x in (getattr(f, self.feature), self.threshold(f, values))
        )
        return f"{self.feature} {value} {self.symbol} {threshold}"


def rule_from_file(file: RuleFile) -> FeatureRule:
    """The rule that a file describes; decisions without a reason get the conditions that held."""
    cases = [
        (
            [
                _Condition(feature, *COMPARE[name], _factors(threshold))
                for feature, bounds in case.when.items()
                for name, threshold in bounds.given()
            ],
            case.then,
        )
        for case in file.cases
    ]
    otherwise = file.otherwise
    if not otherwise.reason:
        otherwise = replace(otherwise, reason="no other case holds")

    def function(f: Features, values: Values) -> Decision:
        for conditions, then in cases:
            if all(condition.holds(f, values) for condition in conditions):
                if then.reason:
                    return then
                return replace(then, reason=", ".join(c.words(f, values) for c in conditions))
        return otherwise

    return FeatureRule(
        name=file.name,
        description=file.description,
        function=function,
        parameters=dict(file.parameters),
    )

"""Rules: what picks a schedule for a workload on a machine, and how their answers are checked."""

import math
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, Self, TypeAlias

from ficco_sim.errors import RuleError
from ficco_sim.heuristics.decision import Decision, RuleFault, find_fault
from ficco_sim.heuristics.features import Features, features_of
from ficco_sim.machine import Machine
from ficco_sim.workload import Workload

__all__ = ["FeatureRule", "Pick", "Picks", "Rule", "Values", "decide", "pick_all"]

Values: TypeAlias = Mapping[str, float]


class Rule(Protocol):
    """Picks a schedule.

    Parameters
    ----------
    name, description
        For reports; the description is one sentence.
    parameters
        Numbers that `with_parameters` changes, so that they can be tuned; units are in their names.
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def description(self) -> str: ...  # noqa: D102

    @property
    def parameters(self) -> Values: ...  # noqa: D102

    def with_parameters(self, **values: float) -> Self:
        """The same rule with other values of some parameters."""
        ...

    def pick(self, workload: Workload, machine: Machine) -> Decision:
        """The rule's answer; whatever it raises is reported by `decide`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureRule:
    """A rule that is a function of features and parameters, as all are that need microseconds."""

    name: str
    description: str
    function: Callable[[Features, Values], Any]
    parameters: Values = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_parameters(self.name, self.parameters, self.parameters)

    def with_parameters(self, **values: float) -> Self:
        """The same rule with other values of some parameters.

        Raises
        ------
        RuleError
            If the rule has no such parameter, or the value is no number from 0 up.
        """
        check_parameters(self.name, self.parameters, values)
        return replace(self, parameters={**self.parameters, **values})

    def pick(self, workload: Workload, machine: Machine) -> Decision:
        """What the function says of the features, whatever it is; `decide` checks it."""
        answer: Decision = self.function(features_of(workload, machine), self.parameters)
        return answer


def check_parameters(rule: str, known: Values, values: Values) -> None:
    """Refuse parameters that a rule lacks, and values that no threshold can have.

    Raises
    ------
    RuleError
        Naming rule, parameter and value.
    """
    for name, value in values.items():
        if name not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise RuleError(f"rule {rule}: no parameter {name!r}; {has}")
        check_number(f"rule {rule}: {name}", value)


def check_number(key: str, value: Any) -> None:
    """Refuse what cannot be a parameter; ``key`` opens the message.

    Raises
    ------
    RuleError
        Naming key and value.
    """
    number = not isinstance(value, bool) and isinstance(value, (int, float))
    if not number or not (math.isfinite(value) and value >= 0):
        raise RuleError(f"{key}: {value!r} must be a finite number from 0 up")


def decide(rule: Rule, workload: Workload, machine: Machine) -> Decision | RuleFault:
    """Ask a rule, and check that what it answers can be run.

    A rule may answer with a `Decision`, the name of a schedule, or a dict of a decision's fields.

    Raises
    ------
    FiccoError
        Where no answer could be right: see `features_of`. What is wrong with the rule is no error but a
        `RuleFault`.
    """
    features_of(workload, machine)
    try:
        answer = rule.pick(workload, machine)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - code of the user's
        return RuleFault(rule=rule.name, kind="raised", message=_words(error))
    decision = _read(rule.name, answer)
    if isinstance(decision, RuleFault):
        return decision
    fault = find_fault(decision, workload, machine.num_gpus)
    if fault is not None:
        return RuleFault(rule=rule.name, kind=fault[0], message=fault[1])
    return decision


def _words(error: BaseException) -> str:
    """What went wrong and where, without a traceback."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())
    where = f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"
    return f"{where}: {text}" if text else where


def _read(rule: str, answer: Any) -> Decision | RuleFault:
    """A decision from whatever a rule returned."""
    if isinstance(answer, Decision):
        return answer if isinstance(answer.reason, str) else replace(answer, reason=str(answer.reason))
    if isinstance(answer, str):
        return Decision(schedule=answer)
    if not isinstance(answer, dict):
        return RuleFault(
            rule=rule,
            kind="unknown schedule",
            message=f"returned {type(answer).__name__}, not a schedule, Decision or dict",
        )
    if "schedule" not in answer:
        return RuleFault(
            rule=rule, kind="unknown schedule", message="returned a dict without the key 'schedule'"
        )
    unknown = [key for key in answer if key not in Decision.__dataclass_fields__]
    if unknown:
        known = ", ".join(Decision.__dataclass_fields__)
        return RuleFault(
            rule=rule, kind="bad knob", message=f"returned the key {unknown[0]!r}; known are {known}"
        )
    return _read(rule, Decision(**answer))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """One rule's answer to one scenario: a decision or a fault, and how long it took."""

    rule: str
    decision: Decision | None
    fault: RuleFault | None
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Picks:
    """Answers of several rules to one scenario."""

    machine: str
    workload: str
    features: Features
    picks: tuple[Pick, ...]

    def to_plain(self) -> dict[str, Any]:
        """Plain data with stable keys, for JSON; knobs that a schedule doesn't have are null."""
        from ficco_sim.io import to_plain

        return {
            "machine": self.machine,
            "workload": self.workload,
            "features": to_plain(self.features),
            "decisions": [_pick_row(pick, self.features.num_gpus) for pick in self.picks],
        }


def _pick_row(pick: Pick, num_gpus: int) -> dict[str, Any]:
    knobs = pick.decision.knobs(num_gpus) if pick.decision else {}
    return {
        "rule": pick.rule,
        "schedule": pick.decision.schedule if pick.decision else None,
        "num_chunks": knobs.get("num_chunks"),
        "compute_queues": knobs.get("compute_queues"),
        "engine": knobs.get("engine"),
        "reason": pick.decision.reason if pick.decision else None,
        "fault": {"kind": pick.fault.kind, "message": pick.fault.message} if pick.fault else None,
        "seconds": pick.seconds,
    }


def pick_all(workload: Workload, machine: Machine, rules: Sequence[Rule]) -> Picks:
    """Ask several rules about one workload on one machine.

    Raises
    ------
    FiccoError
        See `decide`.
    """
    features = features_of(workload, machine)
    picks = []
    for rule in rules:
        start_s = time.perf_counter()
        answer = decide(rule, workload, machine)
        seconds = time.perf_counter() - start_s
        fault = answer if isinstance(answer, RuleFault) else None
        decision = answer if isinstance(answer, Decision) else None
        picks.append(Pick(rule=rule.name, decision=decision, fault=fault, seconds=seconds))
    return Picks(machine=machine.name, workload=workload.name, features=features, picks=tuple(picks))

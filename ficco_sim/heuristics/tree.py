"""Rules learned from examples: a small decision tree, kept as a rule file.

scikit-learn (the extra ``learn``) is needed to learn one, not to use it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ficco_sim.errors import RuleError
from ficco_sim.grid import COMPARED
from ficco_sim.heuristics.decision import Decision
from ficco_sim.heuristics.features import FEATURE_NAMES, features_of
from ficco_sim.heuristics.rule_file import Bounds, Case, RuleFile
from ficco_sim.machine import Machine
from ficco_sim.workload import Workload

__all__ = ["Example", "best_example", "learn_tree"]

MAX_DEPTH = 8
WORST_REGRET = 1.0  # twice as slow as the best: no worse counts, else a few such would set all cuts


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A scenario, and what each decision would have cost there.

    Parameters
    ----------
    regrets
        Makespan over the best one, less 1, of each decision that was tried (reasons do not matter).
        Decisions of other examples that are not here count as `WORST_REGRET`.
    weight
        How much the example counts, more than 0.
    """

    workload: Workload
    machine: Machine
    regrets: Mapping[Decision, float]
    weight: float = 1.0


def best_example(workload: Workload, machine: Machine, best: Decision, weight: float = 1.0) -> Example:
    """An example of which only the best decision is known."""
    return Example(workload=workload, machine=machine, regrets={best: 0.0}, weight=weight)


def learn_tree(
    examples: Sequence[Example],
    *,
    max_depth: int = 3,
    min_examples: int = 5,
    features: Sequence[str] = FEATURE_NAMES,
    name: str = "tree",
    seed: int = 0,
) -> RuleFile:
    """Learn thresholds on features that keep the mean regret small.

    A regression tree (CART; Breiman et al. 1984) predicts the regrets of all decisions at once, and
    each leaf takes the decision with the smallest one: cuts are placed where regrets differ, not only
    where the best changes. With only best decisions known that is a classification tree by Gini
    impurity.

    Parameters
    ----------
    max_depth
        Cuts from root to leaf, 1 to `MAX_DEPTH`.
    min_examples
        Fewest examples in a leaf.
    features
        Names of features that cuts may use. Ratios carry over to other machines, sizes do not.
    seed
        For ties between cuts; the same examples and seed give the same tree.

    Raises
    ------
    RuleError
        If scikit-learn is not installed, there are no examples, or an argument is out of range.
    FiccoError
        If an example's workload cannot be run on its machine.
    """
    _check(examples, max_depth, min_examples, features)
    try:
        from sklearn.tree import DecisionTreeRegressor
    except ImportError as error:
        raise RuleError(
            "learning a tree needs scikit-learn, which is not installed: pip install 'ficco[learn]'"
        ) from error
    decisions, regrets = _regret_matrix(examples)
    weights = np.array([example.weight for example in examples])
    model = DecisionTreeRegressor(max_depth=max_depth, min_samples_leaf=min_examples, random_state=seed)
    model.fit(_feature_matrix(examples, features), regrets, sample_weight=weights)
    top = _node(model.tree_, 0, features, decisions)
    *cases, last = _cases(top, {})
    return RuleFile(
        format_version=1,
        name=name,
        description=f"Learned from {len(examples)} examples by `learn_tree`.",
        cases=tuple(cases),
        otherwise=last.then,
    )


def _check(
    examples: Sequence[Example], max_depth: int, min_examples: int, features: Sequence[str]
) -> None:
    if not examples:
        raise RuleError("examples: at least one is needed")
    if not 1 <= max_depth <= MAX_DEPTH:
        raise RuleError(f"max_depth: {max_depth} must be from 1 to {MAX_DEPTH}")
    if min_examples < 1:
        raise RuleError(f"min_examples: {min_examples} must be at least 1")
    for feature in features:
        if feature not in FEATURE_NAMES:
            raise RuleError(f"features: {feature!r} is unknown; they are {', '.join(FEATURE_NAMES)}")
    for i, example in enumerate(examples):
        if not example.weight > 0:
            raise RuleError(f"examples[{i}].weight: {example.weight} must be more than 0")


def _regret_matrix(examples: Sequence[Example]) -> tuple[list[Decision], NDArray[np.float64]]:
    """Decisions that all examples could take, and their regrets [example, decision], bounded."""
    rows = [{replace(d, reason=""): x for d, x in e.regrets.items()} for e in examples]
    patterns = {example.workload.pattern for example in examples}
    found = [
        decision
        for decision in dict.fromkeys(decision for row in rows for decision in row)
        if all(decision.schedule in COMPARED[pattern] for pattern in patterns)
    ]
    if not found:
        raise RuleError("examples: no decision is possible for all of them")
    regrets = np.array([[row.get(d, WORST_REGRET) for d in found] for row in rows])
    regrets = np.minimum(regrets, WORST_REGRET)
    # of equal ones in a leaf the first is taken: let that be the one best overall
    order = sorted(range(len(found)), key=lambda i: (regrets[:, i].mean(), repr(found[i])))
    return [found[i] for i in order], regrets[:, order]


def _feature_matrix(examples: Sequence[Example], features: Sequence[str]) -> NDArray[np.float64]:
    known = [features_of(example.workload, example.machine) for example in examples]
    return np.array([[getattr(f, name) for name in features] for f in known], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class _Cut:
    """Where a tree forks: ``at_most`` if the feature is not above the threshold."""

    feature: str
    threshold: float
    at_most: "_Cut | Decision"
    above: "_Cut | Decision"


def _node(
    tree: Any, at: int, features: Sequence[str], decisions: Sequence[Decision]
) -> _Cut | Decision:
    """A node of a learned tree; a cut whose sides decide the same is none."""
    left, right = int(tree.children_left[at]), int(tree.children_right[at])
    if left == right:  # both -1: a leaf
        return decisions[int(np.argmin(tree.value[at, :, 0]))]
    below = _node(tree, left, features, decisions)
    above = _node(tree, right, features, decisions)
    if below == above:
        return below
    return _Cut(features[int(tree.feature[at])], float(tree.threshold[at]), below, above)


def _cases(node: _Cut | Decision, met: dict[str, Bounds]) -> Iterator[Case]:
    """A case for each leaf, from left to right, with the conditions on the way to it."""
    if isinstance(node, Decision):
        yield Case(when=met or {"m": Bounds(at_least=1)}, then=node)
        return
    bounds = met.get(node.feature)
    # the latest cut on a feature is the tightest
    at_most, above = (bounds.at_most, bounds.above) if bounds else (None, None)
    yield from _cases(node.at_most, met | {node.feature: Bounds(at_most=node.threshold, above=above)})
    yield from _cases(node.above, met | {node.feature: Bounds(at_most=at_most, above=node.threshold)})

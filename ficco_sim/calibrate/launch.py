"""Time between tasks, from chains of tiny ones; and what timing itself adds."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ficco_sim.calibrate.robust import (
    NUM_DRAWS,
    OUTLIERS,
    Fitted,
    NotFitted,
    Parameter,
    Provenance,
    RobustFit,
    draws,
    errors_of,
    fit,
    make_fit,
)
from ficco_sim.profile import LaunchProfile
from ficco_sim.records import Measurement, Scalar

__all__ = ["event_pair_s", "fit_launch"]

WAIT_SCALE = 0.1  # kinds of waits differ by more than noise; none of them is an outlier


def event_pair_s(measurements: Sequence[Measurement]) -> float:
    """What the two events around a step add to its time; 0 if that was not measured."""
    found = [m.median_s for m in _launches(measurements, "events")]
    return statistics.median(found) if found else 0.0


def fit_launch(
    measurements: Sequence[Measurement],
    defaults: LaunchProfile,
    provenance: Provenance | None = None,
) -> Fitted[LaunchProfile] | NotFitted:
    """Fit the waits between queues and the host's time to submit a task.

    Nothing may count twice. GEMMs and local copies are timed several in a row on a queue, so that
    their own start-up holds the way from one kernel to the next: ``queue_gap_s`` is 0 as soon as a
    chain of kernels on one queue was measured. A plan as a graph is handed over before its first task
    starts, and makespans begin there: ``graph_submit_s`` is 0 as soon as the time of a graph was
    measured. Parameters that nothing was measured for keep their defaults.

    ``event_wait_s`` is what waiting for another queue takes beyond that. With a kernel in a row taking
    k and a copy command c, a chain in which

    - kernels follow each other on one queue takes ``k`` a kernel (record ``queue``),
    - kernels alternate between two queues takes ``k + wait`` (record ``wait``),
    - copies follow each other takes ``c`` (record ``empty_copy``),
    - copy and kernel alternate takes ``c + k + 2 wait`` (record ``wait_for_copy``).

    k, c of each direction and the wait are fitted together to the longest chains of each kind. Waiting
    for a copy takes longer than for a kernel (H200: 0.5 and 0.05 us); the one parameter lies between.
    ``eager_submit_s`` is the median time per task: of plans of which the number of tasks is known, in
    records ``submission`` and of plans that were also timed task by task as a graph.

    Parameters
    ----------
    measurements
        Of kind ``launch``, and ``plan``; others are left out.
    """
    chains = _chains(measurements)
    submissions = [m for m in _launches(measurements, "submission") if "host_per_step_s" in m.series]
    per_task = _eager_per_task(measurements)
    hops = {chain.kind for chain in chains}
    waits = "queue" in hops and bool(hops & {"wait", "wait_for_copy"})
    eager = len(per_task) > 1
    if not waits and not eager:
        return NotFitted(
            reason="launch: neither chains of kernels within and between queues nor eager submission "
            "were measured"
        )
    values = {
        "queue_gap_s": 0.0 if "queue" in hops else defaults.queue_gap_s,
        "event_wait_s": defaults.event_wait_s,
        "graph_submit_s": defaults.graph_submit_s,
        "eager_submit_s": defaults.eager_submit_s,
    }
    samples: dict[str, tuple[float, ...]] = {}
    predicted: list[float] = []
    measured: list[float] = []
    parts = {}
    if waits:
        found = _fit_chains(chains)
        values["event_wait_s"] = found.values["event_wait_s"]
        samples["event_wait_s"] = draws(found)["event_wait_s"]
        predicted += [chain.predicted_s(found.values) for chain in chains]
        measured += [statistics.median(chain.samples_s) for chain in chains]
        parts["chains of tiny tasks"] = errors_of(predicted, measured)
    if any(m.params.get("mode") == "graph" for m in submissions):
        values["graph_submit_s"] = 0.0
    if eager:
        values["eager_submit_s"] = statistics.median(per_task)
        samples["eager_submit_s"] = _bootstrap_medians(per_task)
        # each predicted from the others
        left_out = [statistics.median(per_task[:i] + per_task[i + 1 :]) for i in range(len(per_task))]
        parts["eager submission"] = errors_of(left_out, per_task)
        predicted += left_out
        measured += per_task
    group = make_fit(
        provenance or Provenance(),
        errors_of(predicted, measured),
        num_points=len(measured),
        held_out=not waits,
        valid={},
        samples=samples,
    )
    return Fitted(values=LaunchProfile(**values), fit=group, parts=parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chain:
    """Times per link of a chain: of kernels, of copies of a direction, or of both."""

    kind: str
    direction: str
    samples_s: tuple[float, ...]

    def predicted_s(self, values: Mapping[str, float]) -> float:
        """See `fit_launch`."""
        kernel_s = 0.0 if self.kind == "empty_copy" else values["kernel_s"]
        copy_s = values.get(f"copy_s {self.direction}", 0.0)
        waits = {"wait": 1, "wait_for_copy": 2}.get(self.kind, 0)
        return kernel_s + copy_s + waits * values["event_wait_s"]


def _launches(measurements: Sequence[Measurement], what: str) -> list[Measurement]:
    return [m for m in measurements if m.kind == "launch" and m.usable and m.params.get("what") == what]


def _chains(measurements: Sequence[Measurement]) -> list[_Chain]:
    """The longest chains of each kind; copies only of directions of which both kinds were timed."""
    found: list[_Chain] = []
    copies: dict[str, dict[str, list[Measurement]]] = {}
    for kind in ("queue", "wait"):
        found += [
            _Chain(kind=kind, direction="", samples_s=m.samples_s)
            for m in _longest(_launches(measurements, kind))
        ]
    for kind in ("empty_copy", "wait_for_copy"):
        for m in _launches(measurements, kind):
            copies.setdefault(str(m.params.get("direction")), {}).setdefault(kind, []).append(m)
    for direction, kinds in copies.items():
        if len(kinds) == 2:
            found += [
                _Chain(kind=kind, direction=direction, samples_s=m.samples_s)
                for kind, members in kinds.items()
                for m in _longest(members)
            ]
    return found


def _longest(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Starting a chain takes time of its own, that is little of a long one."""
    count = max((float(m.params.get("count") or 0) for m in measurements), default=0.0)
    return [m for m in measurements if m.params.get("count") == count]


def _fit_chains(chains: Sequence[_Chain]) -> RobustFit:
    directions = dict.fromkeys(chain.direction for chain in chains if chain.direction)
    names = ["kernel_s", *(f"copy_s {direction}" for direction in directions)]
    parameters = [
        *(Parameter(name=name, start=2e-6, least=1e-8, most=1e-3) for name in names),
        # may be none: in a graph both ways are edges
        Parameter(name="event_wait_s", start=1e-6, least=0.0, most=1e-4),
    ]
    # a sample of every chain counts, so that the spread within chains reaches the intervals
    times = [(chain, sample) for chain in chains for sample in chain.samples_s]
    return fit(
        lambda values: np.log([chain.predicted_s(values) / sample for chain, sample in times]),
        parameters,
        scale=WAIT_SCALE,
        rejected=OUTLIERS,
    )


def _eager_per_task(measurements: Sequence[Measurement]) -> list[float]:
    """Host time per task of each plan that was submitted eagerly; of one alone, its samples."""
    found_s = [
        m.series["host_per_step_s"]
        for m in _launches(measurements, "submission")
        if m.params.get("mode") == "eager" and m.series.get("host_per_step_s")
    ]
    plans = [m for m in measurements if m.kind == "plan" and m.usable]
    num_tasks = {_same_plan(m.params): len(set(m.spans.task_ids)) for m in plans if m.spans is not None}
    for m in plans:
        tasks = num_tasks.get(_same_plan(m.params))
        host_s = m.series.get("host_submit_s")
        if m.params.get("submission") == "eager" and tasks and host_s:
            found_s.append(tuple(value / tasks for value in host_s))
    if len(found_s) == 1:
        return list(found_s[0])
    return [statistics.median(samples) for samples in found_s]


def _same_plan(params: Mapping[str, Scalar]) -> tuple[tuple[str, Scalar], ...]:
    return tuple(sorted((key, value) for key, value in params.items() if key != "submission"))


def _bootstrap_medians(values: Sequence[float]) -> tuple[float, ...]:
    rng = np.random.default_rng(0)
    picks = rng.choice(np.asarray(values), size=(NUM_DRAWS, len(values)))
    return tuple(float(value) for value in np.median(picks, axis=1))

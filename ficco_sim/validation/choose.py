"""Which measured plans a machine is held against: those of one map, engine and way of submission."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ficco_sim.costs import Submission
from ficco_sim.errors import ScenarioError
from ficco_sim.records import Measurement, Records

__all__ = ["ChosenPlans", "choose_plans"]

MAX_SHOWN = 3
MAX_LATE = 0.05
"""Share of a plan's time by which submitting it may outlast the time in which gpus are held back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenPlans:
    """Measured plans that one machine can stand for.

    Parameters
    ----------
    emulates, engine
        Name of the map that they ran on; who moved the data.
    num_gpus
        Of the plans, whatever the number of devices.
    plans
        Measurements of each plan, in the order of the files; several if there were several passes.
    num_unusable
        Measurements of such plans from which no number may be taken.
    num_late, max_late
        Plans that are left out since the gpus ran while the host still submitted: by how many, and by
        which share of a plan's time that is still accepted.
    """

    emulates: str
    engine: str
    submission: Submission
    num_gpus: int
    plans: tuple[tuple[Measurement, ...], ...]
    num_unusable: int
    num_late: int = 0
    max_late: float = MAX_LATE

    @property
    def dtypes(self) -> frozenset[str]:
        """Element types of their workloads."""
        return frozenset(str(same[0].params["dtype"]) for same in self.plans)


def choose_plans(
    records: Records,
    *,
    emulates: str | None = None,
    engine: str | None = None,
    submission: str | None = None,
    copy_queues: int | None = None,
    max_late: float = MAX_LATE,
) -> ChosenPlans:
    """Choose the usable plans of one map, engine and way of submission.

    Parameters
    ----------
    emulates, engine, submission
        Needed where the records hold several.
    copy_queues
        Leave out plans with another number of them, but not schedules that have no such knob.
    max_late
        See `ChosenPlans`.

    Raises
    ------
    ScenarioError
        If no usable plan is left, or more than one kind of run; the message names those there are.
    """
    plans = [m for m in records.measurements if m.kind == "plan"]
    if not plans:
        kinds = Counter(m.kind for m in records.measurements)
        there = ", ".join(f"{count} of kind {kind}" for kind, count in kinds.items())
        raise ScenarioError(f"no measured plans in the records: they hold {there or 'nothing'}")
    wishes = {"emulates": emulates, "engine": engine, "submission": submission}
    for key, wish in wishes.items():
        plans = _only(plans, key, wish)
    if copy_queues is not None:
        numbers = _values(plans, "copy_queues")
        plans = [m for m in plans if m.params.get("copy_queues") in (None, copy_queues)]
        if not any(m.params.get("copy_queues") == copy_queues for m in plans):
            raise ScenarioError(
                f"--copy-queues {copy_queues}: no such plans; the records hold {_listed(numbers)}"
            )
    for key in ("num_gpus", "core_blocks"):
        if len(values := _values(plans, key)) > 1:
            raise ScenarioError(
                f"records of several {key}: {_listed(values)}; give files that agree in it"
            )
    usable = [m for m in plans if m.usable]
    if not usable:
        reasons = dict.fromkeys("; ".join(m.unusable) for m in plans)
        shown = " | ".join([*reasons][:MAX_SHOWN])
        raise ScenarioError(f"no usable plan: all {len(plans)} are marked unusable: {shown}")
    if max_late < 0:
        raise ScenarioError(f"--max-late {max_late}: must be 0 or more")
    by_key: dict[str, list[Measurement]] = {}
    for measured in usable:
        if measured.late_submit_s <= max_late * measured.median_s:
            by_key.setdefault(measured.key, []).append(measured)
    num_late = len({m.key for m in usable}) - len(by_key)
    if not by_key:
        raise ScenarioError(
            f"--max-late {max_late}: the host still submitted all {num_late} plans while they ran, for "
            "more than that share of their time"
        )
    first = usable[0].params
    how: Submission = "eager" if first.get("submission") == "eager" else "graph"
    num_gpus = first.get("num_gpus")
    if isinstance(num_gpus, bool) or not isinstance(num_gpus, int):
        raise ScenarioError(f"params: num_gpus: {num_gpus!r} must be a whole number")
    return ChosenPlans(
        emulates=str(first.get("emulates")),
        engine=str(first.get("engine")),
        submission=how,
        num_gpus=num_gpus,
        plans=tuple(tuple(found) for found in by_key.values()),
        num_unusable=len(plans) - len(usable),
        num_late=num_late,
        max_late=max_late,
    )


OPTIONS = {"emulates": "--map", "engine": "--engine", "submission": "--submission"}
NAMES = {"emulates": "maps", "engine": "engines", "submission": "ways of submission"}


def _only(plans: Sequence[Measurement], key: str, wish: str | None) -> list[Measurement]:
    values = _values(plans, key)
    if wish is None:
        if len(values) > 1:
            raise ScenarioError(
                f"records of several {NAMES[key]}: {_listed(values)}; choose with {OPTIONS[key]}"
            )
        return list(plans)
    chosen = [m for m in plans if str(m.params.get(key)) == wish]
    if not chosen:
        raise ScenarioError(f"{OPTIONS[key]} {wish}: no such plans; the records hold {_listed(values)}")
    return chosen


def _values(plans: Sequence[Measurement], key: str) -> Counter[str]:
    return Counter(str(m.params.get(key)) for m in plans)


def _listed(values: Counter[str]) -> str:
    return ", ".join(f"{value} ({count} plans)" for value, count in values.items())

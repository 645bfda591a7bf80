"""Outcomes: for scenarios on machines, the plans that were tried and how long each took.

They come from tables of sweeps, simulated, or from records of ``python -m hw_validate run``, measured.
Rules are judged on them without running anything.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias

from ficco_sim.errors import FiccoError, MachineError, ScenarioError
from ficco_sim.heuristics import Features, features_of
from ficco_sim.machine import Machine, load_machine, named_machines
from ficco_sim.sweep import SweepGroup, read_sweep
from ficco_sim.workload import Workload, named_workloads

__all__ = [
    "Outcome",
    "Outcomes",
    "Source",
    "Tried",
    "among",
    "few",
    "from_sweep",
    "joined",
    "make_outcome",
]

Source: TypeAlias = Literal["simulated", "measured"]
MODEL = re.compile(r"(.+?)-(?:tp|fsdp|cp|ep|dp)\d+(?:-|$)")
"""The model in names such as llama3-70b-tp8-qkv-8k."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A plan that was tried.

    Parameters
    ----------
    num_chunks, compute_queues
        1 where the schedule has no such knob.
    variant
        Knobs that no rule sets, such as ``copy_queues 1``; empty for what plans have unless asked.
    """

    schedule: str
    num_chunks: int
    compute_queues: int
    engine: str
    makespan_s: float
    variant: str = ""

    @property
    def title(self) -> str:
        """The plan in a few words: ``hetero-unfused-1d c4 q4``."""
        chunks = f" c{self.num_chunks}" if self.num_chunks > 1 else ""
        queues = f" q{self.compute_queues}" if self.compute_queues > 1 else ""
        engine = "" if self.engine == "dma" else f" {self.engine}"
        variant = f" {self.variant}" if self.variant else ""
        return f"{self.schedule}{chunks}{queues}{engine}{variant}"


# no slots: the fastest of each schedule is looked up often, and kept
@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One scenario on one machine, with all plans that were tried.

    Parameters
    ----------
    set_name
        Of the table or the records that it comes from.
    place
        The machine, and how it was measured: what portability is between.
    noise
        Regret below which a measured choice is as good as the best, from the spread of samples; None
        if simulated.
    tried
        Fastest first.
    """

    workload: Workload
    machine: Machine = field(repr=False)
    features: Features = field(repr=False)
    set_name: str
    place: str
    source: Source
    noise: float | None
    serial_s: float
    tried: tuple[Tried, ...] = field(repr=False)

    @property
    def best(self) -> Tried:
        """The fastest plan."""
        return self.tried[0]

    @cached_property
    def by_schedule(self) -> Mapping[str, tuple[Tried, ...]]:
        """The plans of each schedule, fastest first."""
        found: dict[str, list[Tried]] = {}
        for plan in self.tried:
            found.setdefault(plan.schedule, []).append(plan)
        return {name: tuple(plans) for name, plans in found.items()}

    @property
    def model(self) -> str:
        """The model whose layer it is, or else the workload: what folds keep together."""
        match = MODEL.match(self.workload.name)
        return match[1] if match else self.workload.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """Outcomes that are judged together, in the order of their files.

    Parameters
    ----------
    labels
        What is not what it stands for, such as emulated gpus.
    notes
        What was left out and why.
    """

    outcomes: tuple[Outcome, ...]
    labels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """Words for titles: simulated, measured, measured (emulated), or both."""
        found = dict.fromkeys(o.source for o in self.outcomes)
        emulated = any(label.startswith("emulated") for label in self.labels)
        words = ["measured (emulated)" if s == "measured" and emulated else s for s in found]
        return " and ".join(words)

    @property
    def places(self) -> tuple[str, ...]:
        """Machines, and ways of measuring them, in order of first appearance."""
        return tuple(dict.fromkeys(o.place for o in self.outcomes))

    def at(self, *places: str) -> "Outcomes":
        """The outcomes of some places.

        Raises
        ------
        ScenarioError
            If there is no such place.
        """
        for place in places:
            if place not in self.places:
                raise ScenarioError(
                    f"machine {place!r}: no outcomes of it; only {', '.join(self.places)}"
                )
        return replace(self, outcomes=tuple(o for o in self.outcomes if o.place in places))


def make_outcome(
    workload: Workload,
    machine: Machine,
    tried: Iterable[Tried],
    *,
    set_name: str,
    place: str | None = None,
    source: Source = "simulated",
    noise: float | None = None,
    serial_s: float | None = None,
) -> Outcome:
    """An outcome with its features.

    Parameters
    ----------
    serial_s
        Of the fastest serial plan that was tried, unless given.

    Raises
    ------
    ScenarioError
        If no serial plan was tried, which all others are measured by, or a time of it is given that is
        less than the best.
    FiccoError
        If no rule can be asked about the workload on the machine, see `features_of`.
    """
    plans = tuple(sorted(tried, key=lambda plan: plan.makespan_s))  # ties keep their order
    if serial_s is None:
        serial_s = next((p.makespan_s for p in plans if p.schedule == "serial"), None)
    if serial_s is None or not plans:
        raise ScenarioError(f"{workload.name} on {machine.name}: serial was not tried")
    if serial_s < plans[0].makespan_s:
        raise ScenarioError(
            f"{workload.name} on {machine.name}: serial_s: {serial_s} is less than any plan's makespan"
        )
    return Outcome(
        workload=workload,
        machine=machine,
        features=features_of(workload, machine),
        set_name=set_name,
        place=place or machine.name,
        source=source,
        noise=noise,
        serial_s=serial_s,
        tried=plans,
    )


def joined(parts: Sequence[Outcomes]) -> Outcomes:
    """Outcomes of several files as one.

    Raises
    ------
    ScenarioError
        If there are none.
    """
    found = tuple(o for part in parts for o in part.outcomes)
    notes = [note for part in parts for note in part.notes]
    if not found:
        raise ScenarioError("; ".join(["no scenario can be judged", *notes]))
    seen: set[tuple[str, str]] = set()
    twice = 0
    for o in found:
        twice += (key := (o.workload.name, o.place)) in seen
        seen.add(key)
    if twice:
        notes.append(f"{twice} scenarios are in several sets, and count in each")
    return Outcomes(
        outcomes=found,
        labels=tuple(dict.fromkeys(label for part in parts for label in part.labels)),
        notes=tuple(dict.fromkeys(notes)),
    )


def among(outcomes: Outcomes, schedules: Sequence[str]) -> Outcomes:
    """Outcomes as if only some schedules had been tried; speed-ups stay over serial.

    Raises
    ------
    ScenarioError
        If none of them was tried in any scenario; those where none was are left out, with a note.
    """
    found = []
    for o in outcomes.outcomes:
        tried = tuple(plan for plan in o.tried if plan.schedule in schedules)
        if tried:
            found.append(replace(o, tried=tried))
    missing = [s for s in schedules if not any(s in o.by_schedule for o in outcomes.outcomes)]
    if missing or not found:
        there = ", ".join(dict.fromkeys(s for o in outcomes.outcomes for s in o.by_schedule))
        raise ScenarioError(f"--among: {', '.join(missing)}: not tried anywhere; tried were {there}")
    notes = [f"only {', '.join(schedules)} were there to choose from"]
    if len(found) < len(outcomes.outcomes):
        left = len(outcomes.outcomes) - len(found)
        notes.append(f"left out: {left} scenarios in which none of these was tried")
    return replace(outcomes, outcomes=tuple(found), notes=(*outcomes.notes, *notes))


def from_sweep(path: Path, machines: Mapping[str, Machine] | None = None) -> Outcomes:
    """Outcomes of the table of a sweep.

    Parameters
    ----------
    machines
        Machines by name, for those that do not come with the package.

    Raises
    ------
    FileError
        If it is no such table.
    MachineError
        If a machine is unknown, or has another number of gpus than in the table.
    """
    table = read_sweep(path)
    found: list[Outcome] = []
    notes: list[str] = []
    places = {name: _machine(name, machines or {}, path) for name in table.machines}
    for group in table.groups:
        machine = places[group.machine]
        if machine.num_gpus != group.num_gpus:
            raise MachineError(
                f"{path}: machine {group.machine!r} has {group.num_gpus} gpus in the table, and "
                f"{machine.num_gpus} in its file"
            )
        try:
            found.append(_outcome(group, machine, path.stem))
        except FiccoError as error:
            notes.append(f"left out: {error}")
    return Outcomes(outcomes=tuple(found), notes=tuple(few(notes)))


def _machine(name: str, given: Mapping[str, Machine], path: Path) -> Machine:
    if name in given:
        return given[name]
    if name not in named_machines():
        raise MachineError(f"{path}: machine {name!r} is unknown; give its file with --machine")
    return load_machine(name)


def _outcome(group: SweepGroup, machine: Machine, set_name: str) -> Outcome:
    return make_outcome(
        _workload(group),
        machine,
        [
            Tried(
                schedule=row.schedule,
                num_chunks=row.num_chunks,
                compute_queues=row.compute_queues,
                engine=row.engine,
                makespan_s=row.makespan_s,
            )
            for row in group.rows
        ],
        set_name=set_name,
        serial_s=group.serial_s,
    )


def _workload(group: SweepGroup) -> Workload:
    """The workload of a group; of an exchange only the named ones are known."""
    known = named_workloads().get(group.workload)
    shape = (group.pattern, group.m, group.n, group.k, group.dtype)
    if known is not None and (known.pattern, known.m, known.n, known.k, known.dtype) == shape:
        return known
    if group.pattern != "all_gather_gemm":
        raise ScenarioError(
            f"{group.workload}: a table does not hold who sends how much to whom in an exchange"
        )
    return Workload(
        name=group.workload,
        pattern="all_gather_gemm",
        m=group.m,
        n=group.n,
        k=group.k,
        dtype=group.dtype,
    )


MAX_NOTES = 3


def few(notes: Sequence[str]) -> Iterator[str]:
    """The first notes, and how many more there are."""
    yield from notes[:MAX_NOTES]
    if len(notes) > MAX_NOTES:
        yield f"left out: {len(notes) - MAX_NOTES} more scenarios for such reasons"

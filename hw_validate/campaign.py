"""A list of groups to measure: within a time budget, with progress, resumable after a kill."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TypeAlias

from ficco_sim.records import Measurement, Sensors
from hw_validate.measure import Settings, Subject, measure_group
from hw_validate.program import Backend
from hw_validate.recorder import Recorder

__all__ = ["Group", "Outcome", "run_campaign"]

Progress: TypeAlias = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Things that are compared with each other, and so measured interleaved.

    Parameters
    ----------
    name
        For progress and messages.
    keys
        Keys of its subjects, known without any hardware: what a resumed run leaves out.
    estimate_s
        How long it may take; a guess that `run_campaign` corrects by what the first groups took.
    open
        Makes the subjects ready on a backend; what they hold is given back when the context ends.
    """

    name: str
    keys: tuple[str, ...]
    estimate_s: float
    open: Callable[[Backend], AbstractContextManager[Sequence[Subject]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a campaign came to.

    Parameters
    ----------
    measured
        Measurements of this run.
    resumed
        Groups that were there already.
    left
        Groups that the time budget did not allow.
    """

    measured: tuple[Measurement, ...]
    resumed: int
    left: tuple[str, ...]


def run_campaign(
    groups: Sequence[Group],
    backend: Backend,
    settings: Settings,
    recorder: Recorder,
    *,
    read_sensors: Callable[[], Sensors],
    budget_s: float | None = None,
    passes: int = 1,
    progress: Progress | None = None,
) -> Outcome:
    """Measure groups one after another and write each when it is done.

    Parameters
    ----------
    budget_s
        No group is started that would probably end after so many seconds.
    passes
        Times that the whole list is measured, to see what minutes in between change.
    progress
        Called with groups done, groups in all, and the name of the present one.
    """
    started = time.perf_counter()
    todo = [(number, group) for number in range(1, passes + 1) for group in groups]
    measured: list[Measurement] = []
    left: list[str] = []
    resumed = 0
    estimated_s = taken_s = 0.0
    for at, (number, group) in enumerate(todo):
        if recorder.done_keys(number).issuperset(group.keys):
            resumed += 1
            continue
        begun = time.perf_counter()
        slower = taken_s / estimated_s if estimated_s else 1.0
        if budget_s is not None and begun - started + group.estimate_s * slower > budget_s:
            left.append(group.name)
            continue

        def tell(done: int, total: int, what: str, at: int = at, name: str = group.name) -> None:
            if progress is not None:
                progress(at, len(todo), f"{name}: {what} {done} of {total}")

        tell(0, settings.rounds, "preparing round")
        with group.open(backend) as subjects:
            found = measure_group(
                subjects,
                backend,
                replace(settings, seed=settings.seed + number),
                read_sensors=read_sensors,
                first_sequence=recorder.next_sequence,
                progress=tell,
            )
        recorder.write_group(found)
        measured += found
        taken_s += time.perf_counter() - begun
        estimated_s += group.estimate_s
    return Outcome(measured=tuple(measured), resumed=resumed, left=tuple(left))

"""What the verbs that measure share: options, the backend, and a campaign from start to end."""

import re
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from ficco_sim.command import Progress, console, say, write_json
from ficco_sim.errors import ScenarioError
from ficco_sim.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from ficco_sim.records import Init, Measurement, Sensors
    from hw_validate.campaign import Group, Outcome
    from hw_validate.dry_run import Rehearsal
    from hw_validate.program import Backend

__all__ = ["Measuring", "duration_s", "numbers", "words"]

NUMBER = re.compile(r"\d[\d.,]*")
DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h)")
SECONDS = {"s": 1, "m": 60, "h": 3600}
MAX_ROUNDS = 10_000


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """Options of every verb that measures.

    Parameters
    ----------
    out
        File for the records, one JSON object a line. It has .part appended until all is measured.
    resume
        Go on with an unfinished file; what is in it is not measured again.
    dry_run
        Say what would be measured and how long it may take, without touching a gpu.
    budget
        Start nothing that would probably end after so long, such as 90s, 10m or 1h.
    rounds
        Samples of each measurement.
    passes
        Times that everything is measured, one pass after another.
    regime
        burst: with the device idle before every run. sustained: hot, at the clocks of a long job.
    device
        cpu tries everything out without a gpu; its times stand for nothing.
    seed
        Of the inputs and of the random order.
    """

    out: Path | None = None
    resume: Annotated[bool, Parameter(negative=())] = False
    dry_run: Annotated[bool, Parameter(negative=())] = False
    budget: str | None = None
    rounds: int = 15
    passes: int = 1
    regime: Literal["burst", "sustained"] = "burst"
    device: Literal["gpu", "cpu"] = "gpu"
    seed: int = 0
    _notes: list[str] = field(default_factory=list, init=False, repr=False)

    @property
    def budget_s(self) -> float | None:
        """The budget in seconds.

        Raises
        ------
        ScenarioError
            If it is no duration.
        """
        return None if self.budget is None else duration_s("--budget", self.budget)

    def check(self) -> None:
        """Refuse values that make no sense, before any work.

        Raises
        ------
        ScenarioError
            Naming the option, its value and the rule.
        """
        for name, value, most in (("rounds", self.rounds, MAX_ROUNDS), ("passes", self.passes, 100)):
            if not 1 <= value <= most:
                raise ScenarioError(f"--{name}: {value} must be from 1 to {most:,}")
        _ = self.budget_s
        if self.out is None and not self.dry_run:
            raise ScenarioError("--out: a file for the records is needed (or --dry-run)")
        if self.out is not None:
            from ficco_sim.io import check_target

            check_target(self.out)

    def backend(self, devices: Sequence[int], core_blocks: int = 16) -> "Backend":
        """The devices to measure on.

        Raises
        ------
        HardwareError
            If torch, its bindings or the devices are not there.
        """
        from hw_validate.environment import require_torch

        require_torch()
        if self.device == "cpu":
            from hw_validate.cpu import CpuBackend

            return CpuBackend()
        from hw_validate.gpu import GpuBackend

        return GpuBackend(devices, core_blocks=core_blocks)

    def say_plan(
        self,
        groups: "Sequence[Group]",
        *,
        command: str,
        start_s: float,
        json: str | None = None,
        rehearsal: "Rehearsal | None" = None,
    ) -> None:
        """Print what would be measured, or write it for ``hw_validate allowance``."""
        from ficco_sim.io import to_plain
        from hw_validate.dry_run import DryRun, GroupEstimate

        dry = DryRun(
            command=command,
            start_s=start_s,
            passes=self.passes,
            groups=tuple(
                GroupEstimate(name=g.name, measurements=len(g.keys), estimate_s=g.estimate_s)
                for g in groups
            ),
            rehearsal=rehearsal,
        )
        if write_json(to_plain(dry), json):
            return
        out = console()
        for group in groups:
            out.print(
                f"{group.name}: {len(group.keys)} measurements, about "
                f"{format_seconds(group.estimate_s)}",
                highlight=False,
                soft_wrap=True,
            )
        if rehearsal is not None:
            say(
                out,
                [
                    f"{rehearsal.checked} of {rehearsal.plans} plans are legal at full size, "
                    f"{rehearsal.verified} right on CPU tensors at small shapes with the same tasks "
                    f"({rehearsal.shapes[0]}{', ...' if len(rehearsal.shapes) > 1 else ''})",
                    f"most memory: {format_bytes(rehearsal.most_bytes)} ({rehearsal.most_bytes_at})",
                    *rehearsal.failures[:8],
                ],
            )
        out.print(
            f"in all {dry.measurements} measurements in {len(groups)} groups, about "
            f"{format_seconds(dry.estimate_s)} with {format_seconds(start_s)} to start; nothing was "
            "run",
            highlight=False,
        )

    def measure(
        self,
        groups: "Sequence[Group]",
        backend: "Backend",
        devices: Sequence[int],
        init: "Init",
        json: str | None = None,
        *,
        computing: Sequence[int] | None = None,
    ) -> "tuple[Measurement, ...]":
        """Measure groups into the file; returns all measurements in it, those resumed too.

        Sensors are read of the devices that compute, of the first one unless others are given.

        What happened is printed, on the error stream where JSON goes to the standard output.

        Raises
        ------
        FiccoError
            If the file cannot be written or resumed, or nothing could be measured.
        """
        from ficco_sim.records import Session, read_records
        from hw_validate.campaign import run_campaign
        from hw_validate.environment import collect_environment
        from hw_validate.measure import Settings
        from hw_validate.recorder import Recorder, part_path

        assert self.out is not None
        session = Session(
            session=secrets.token_hex(6),
            started=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            regime=self.regime,
            init=init,
            command=_command_line(),
            environment=collect_environment(() if self.device == "cpu" else devices),
        )
        part = part_path(self.out)
        try:
            with (
                Recorder.open(self.out, session, resume=self.resume) as recorder,
                Progress("measuring") as progress,
            ):
                outcome = run_campaign(
                    groups,
                    backend,
                    Settings(rounds=self.rounds, regime=self.regime, seed=self.seed),
                    recorder,
                    read_sensors=lambda: self._sensors(computing or devices[:1]),
                    budget_s=self.budget_s,
                    passes=self.passes,
                    progress=progress,
                )
                if not outcome.left:
                    recorder.finish()
        except KeyboardInterrupt:
            sys.stderr.write(f"what was measured is in {part}; go on with --resume\n")
            raise
        path = part if outcome.left else self.out
        measurements = read_records(path, allow_empty=True).measurements
        lines = self._outcome_lines(outcome, path, measurements)
        if json == "-":
            sys.stderr.write("".join(f"{line}\n" for line in lines))
        else:
            say(console(), lines)
        if measurements and not any(m.usable for m in measurements):
            raise ScenarioError(f"{path}: no usable measurement; the reasons are above and in the file")
        return measurements

    def _sensors(self, devices: Sequence[int]) -> "Sensors":
        from ficco_sim.records import Sensors
        from hw_validate.environment import read_sensors

        if self.device == "cpu":
            return Sensors(sm_clock_hz=None, power_w=None, temperature_c=None)
        return read_sensors(*devices)

    def _outcome_lines(
        self, outcome: "Outcome", path: Path, measurements: "Sequence[Measurement]"
    ) -> list[str]:
        lines = [f"{len(outcome.measured)} measurements taken, {len(measurements)} in {path}"]
        if outcome.resumed:
            lines.append(f"{outcome.resumed} groups were there already")
        if outcome.left:
            lines.append(
                f"the budget of {self.budget} left out {len(outcome.left)} groups "
                f"({', '.join(outcome.left[:3])}{', ...' if len(outcome.left) > 3 else ''}); go on "
                "with --resume"
            )
        refused: dict[str, list[str]] = {}
        doubtful: dict[str, list[str]] = {}
        for measurement in measurements:
            for found, reasons in (
                (refused, measurement.unusable),
                (doubtful, measurement.warnings),
            ):
                for reason in reasons:  # those that differ in numbers only are of one kind
                    found.setdefault(NUMBER.sub("#", reason), []).append(reason)
        for title, found in (("unusable", refused), ("warning", doubtful)):
            ranked = sorted(found.values(), key=len, reverse=True)
            lines += [f"{title} ({len(reasons)}x): {reasons[0]}" for reasons in ranked[:5]]
            if len(ranked) > 5:
                lines.append(f"{title}: {len(ranked) - 5} more kinds of reasons in the file")
        return lines


def duration_s(option: str, text: str) -> float:
    """Seconds of a duration.

    Raises
    ------
    ScenarioError
        If it is none.
    """
    match = DURATION.fullmatch(text.strip())
    if match is None or float(match[1]) <= 0:
        raise ScenarioError(f"{option}: {text[:40]!r} must be like 90s, 10m or 1h")
    return float(match[1]) * SECONDS[match[2]]


def words(option: str, text: str, known: Sequence[str]) -> tuple[str, ...]:
    """Names in a comma-separated list; ``all`` stands for every known one.

    Raises
    ------
    ScenarioError
        If one is unknown; the message lists the known ones.
    """
    if text == "all":
        return tuple(known)
    found = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    for word in found:
        if word not in known:
            raise ScenarioError(
                f"{option}: {word[:40]!r} is unknown; one of {', '.join(known)}, or all"
            )
    if not found:
        raise ScenarioError(f"{option}: {text!r} names nothing; one of {', '.join(known)}, or all")
    return found


def numbers(option: str, text: str, most: int) -> tuple[int, ...]:
    """Whole numbers from 1 in a comma-separated list.

    Raises
    ------
    ScenarioError
        If one is no number or out of range.
    """
    found = []
    for word in text.split(","):
        stripped = word.strip()
        if not stripped.isascii() or not stripped.isdigit() or not 1 <= int(stripped) <= most:
            raise ScenarioError(
                f"{option}: {stripped[:40]!r} must be a whole number from 1 to {most:,}"
            )
        found.append(int(stripped))
    return tuple(dict.fromkeys(found))


def _command_line() -> str:
    """The command as it was given, without the folders of files: records name no machine."""
    return " ".join(
        ["hw_validate", *(Path(word).name if "/" in word else word for word in sys.argv[1:])]
    )


def plain(measurements: "Sequence[Measurement]") -> list[dict[str, Any]]:
    """Measurements as rows for JSON: parameters, median and what is wrong with them."""
    from hw_validate.statistics import summarize

    rows: list[dict[str, Any]] = []
    for m in measurements:
        row: dict[str, Any] = {"kind": m.kind, "key": m.key, "params": m.params, "usable": m.usable}
        if m.samples_s:
            summary = summarize(m.samples_s)
            row |= {"median_s": summary.median_s, "spread": summary.spread}
        rows.append(row | {"warnings": m.warnings, "unusable": m.unusable, "labels": m.labels})
    return rows

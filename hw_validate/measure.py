"""Timing of several things against each other: interleaved in random order, raw samples kept."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ficco_sim.records import (
    Kind,
    Measurement,
    Regime,
    Scalar,
    Sensors,
    SpanSeries,
    measurement_key,
)
from ficco_sim.units import US
from hw_validate.checks import Finding, above_peak, copy_rate, memory_flat, stalled_steps
from hw_validate.program import Backend, Prepared, Run
from hw_validate.statistics import spread_warning, summarize

__all__ = ["Settings", "Subject", "measure_group"]

Progress: TypeAlias = Callable[[int, int, str], None]

NS_PER_S = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to time.

    Parameters
    ----------
    rounds
        Samples of each subject.
    warm_up
        Runs of each subject before the first sample.
    regime
        ``burst``: caches evicted and the device idle before every run. ``sustained``: busy with large
        GEMMs for `heat_s` before every run, so that clocks are those of a long job.
    seed
        Of the random order.
    """

    rounds: int = 15
    warm_up: int = 2
    regime: Regime = "burst"
    heat_s: float = 0.03
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One thing to time.

    Parameters
    ----------
    params
        Settings that identify it; its key follows from them.
    prepared
        What is run for a sample; None where ``unusable`` says why there is nothing to run.
    spanned
        The same with events around every step, run for its spans: those of the run with the median
        makespan are kept.
    sample
        What of a run is the sample, in seconds; by default the makespan.
    series
        Further numbers of each run, by name with unit.
    flops, peak_flops_per_s
        Work of one sample and the rate that it cannot exceed.
    nbytes, peak_bytes_per_s
        Likewise of copies.
    """

    kind: Kind
    params: Mapping[str, Scalar]
    prepared: Prepared | None
    spanned: Prepared | None = None
    sample: Callable[[Run], float] = field(default=lambda run: run.makespan_s)
    series: Callable[[Run], dict[str, float]] = field(default=lambda _: {})
    flops: int = 0
    peak_flops_per_s: float | None = None
    nbytes: int = 0
    peak_bytes_per_s: float | None = None
    labels: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    unusable: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Identity of what is measured."""
        return measurement_key(self.kind, self.params)


@dataclass(slots=True)
class _Samples:
    before: Sensors | None = None
    after: Sensors | None = None
    runs: list[Run] = field(default_factory=list)
    spanned: list[Run] = field(default_factory=list)


SPANNED_ROUNDS = 5


def measure_group(
    subjects: Sequence[Subject],
    backend: Backend,
    settings: Settings,
    *,
    read_sensors: Callable[[], Sensors],
    first_sequence: int = 0,
    progress: Progress | None = None,
) -> list[Measurement]:
    """Time subjects that are to be compared.

    Every round runs each subject once, in a new random order, so that drifting clocks and power fall
    on all alike. Rounds of instrumented runs are spread among the others.

    Parameters
    ----------
    read_sensors
        Clock, power and temperature now; read before the first and after the last sample.
    first_sequence
        Number of the first measurement in its session.
    progress
        Called with rounds done, rounds in all, and what is going on.
    """
    rng = random.Random(settings.seed)  # noqa: S311 - an order, not a secret
    found = [_Samples() for _ in subjects]
    rounds = ["warm"] * settings.warm_up + _spread(
        settings.rounds, min(SPANNED_ROUNDS, settings.rounds)
    )
    plain = [number for number, what in enumerate(rounds) if what == "plain"]
    first_plain, last_plain = plain[0], plain[-1]
    reserved: list[float] = []
    for number, what in enumerate(rounds):
        if progress is not None:
            progress(number, len(rounds), "timing")
        order = list(range(len(subjects)))
        rng.shuffle(order)
        for i in order:
            subject, samples = subjects[i], found[i]
            prepared = subject.spanned if what == "spans" else subject.prepared
            if prepared is None:
                continue
            if settings.regime == "sustained":
                backend.heat(settings.heat_s)
            backend.flush()
            if number == first_plain:
                samples.before = read_sensors()
            run = prepared.run()
            if what == "plain":
                samples.runs.append(run)
            elif what == "spans":
                samples.spanned.append(run)
            if number == last_plain:
                samples.after = read_sensors()
        if number >= settings.warm_up:
            reserved.append(backend.reserved_bytes())
    growth = [finding.text for finding in memory_flat(reserved)]
    return [
        _measurement(subject, samples, first_sequence + i, growth)
        for i, (subject, samples) in enumerate(zip(subjects, found, strict=True))
    ]


def _spread(plain: int, spanned: int) -> list[str]:
    """Rounds of both kinds, the instrumented ones evenly among the others."""
    rounds = []
    for number in range(plain):
        rounds.append("plain")
        if (number + 1) * spanned // plain > number * spanned // plain:
            rounds.append("spans")
    return rounds


def _measurement(
    subject: Subject, samples: _Samples, sequence: int, growth: Sequence[str]
) -> Measurement:
    times_s = tuple(subject.sample(run) for run in samples.runs)
    unusable = list(subject.unusable)
    warnings = [*subject.warnings, *growth]
    positive = tuple(t for t in times_s if t > 0)
    if len(positive) < len(times_s):
        unusable.append(f"{len(times_s) - len(positive)} samples of no time at all: nothing was run")
    if positive:
        summary = summarize(positive)
        unstable = spread_warning(summary)
        if unstable is not None:
            warnings.append(unstable)
        for finding in _rate_findings(subject, summary.median_s):
            (unusable if finding.severity == "refuse" else warnings).append(finding.text)
        warnings += [finding.text for finding in stalled_steps(positive).findings]
        late = [run.late_s for run in samples.runs if run.late_s > 0]
        if 2 * len(late) > len(samples.runs):
            warnings.append(
                f"submitting outlasted the gate by up to {max(late) / US:,.0f} us in {len(late)} of "
                f"{len(samples.runs)} runs: the time may hold some of it"
            )
    series: dict[str, tuple[float, ...]] = {}
    rows = [subject.series(run) for run in samples.runs]
    for name in rows[0] if rows else ():
        series[name] = tuple(row[name] for row in rows)
    series["late_submit_s"] = tuple(run.late_s for run in samples.runs)
    spans = None
    if samples.spanned:
        series["instrumented_s"] = tuple(run.makespan_s for run in samples.spanned)
        spans = _spans(samples.spanned)
    unknown = Sensors(sm_clock_hz=None, power_w=None, temperature_c=None)
    return Measurement(
        kind=subject.kind,
        key=subject.key,
        params=dict(subject.params),
        samples_s=positive,
        series=series,
        spans=spans,
        before=samples.before or unknown,
        after=samples.after or unknown,
        labels=subject.labels,
        evidence=subject.evidence,
        warnings=tuple(warnings),
        unusable=tuple(unusable),
        sequence=sequence,
    )


def _rate_findings(subject: Subject, time_s: float) -> list[Finding]:
    """Rates that nothing can reach."""
    findings: list[Finding] = []
    if subject.flops and subject.peak_flops_per_s is not None:
        findings += above_peak(subject.flops, time_s, subject.peak_flops_per_s, subject.kind)
    if subject.nbytes and subject.peak_bytes_per_s is not None:
        findings += copy_rate(subject.nbytes, time_s, subject.peak_bytes_per_s, subject.kind)
    return findings


def _spans(runs: Sequence[Run]) -> SpanSeries | None:
    """Spans of the run with the median makespan."""
    run = sorted(runs, key=lambda r: r.makespan_s)[len(runs) // 2]
    if not run.spans:
        return None
    return SpanSeries(
        task_ids=tuple(run.spans),
        start_ns=tuple(round(start * NS_PER_S) for start, _ in run.spans.values()),
        end_ns=tuple(round(end * NS_PER_S) for _, end in run.spans.values()),
    )

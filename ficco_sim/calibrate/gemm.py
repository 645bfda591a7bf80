"""GEMM rates of one element type, fitted to measured times; and shapes with bad library kernels."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ficco_sim.calibrate.robust import (
    Errors,
    NotFitted,
    Parameter,
    Provenance,
    RobustFit,
    draws,
    errors_of,
    fit,
    held_out_errors,
    make_fit,
)
from ficco_sim.costs.gemm import BAD_KERNEL, GemmModel, GemmShape, TileGrid, body_times, clock_speed
from ficco_sim.profile import Fit, GemmProfile, GemmRates, Gpu, MeasuredGemm

__all__ = [
    "BadKernel",
    "GemmFit",
    "GemmSample",
    "fit_gemm",
    "large",
    "measured_table",
    "reference_clock",
]

LEAST_POINTS = 8
MANY_POINTS = 100
PRIOR = 0.04  # residual of a rate that is twice or half its start, or a quarter of its range off
LARGE = 1024  # of min(m, n) and k: shapes that fill a gpu
SEEDS = (0, 1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmSample:
    """One measured GEMM alone.

    Parameters
    ----------
    m
        Rows of all entries of a batch together.
    sm_clock_hz
        Of the compute units, read round the measurement; None if it was not.
    """

    m: int
    n: int
    k: int
    dtype: str
    time_s: float
    entries: int = 1
    accumulate: bool = False
    sm_clock_hz: float | None = None

    @property
    def shape(self) -> GemmShape:
        """As the cost model takes it."""
        rows = (self.m // self.entries,) * self.entries
        return GemmShape(rows, self.n, self.k, self.dtype, self.accumulate)


@dataclass(frozen=True, slots=True, kw_only=True)
class BadKernel:
    """A shape for which the library is slow: it took ``ratio`` times what the formula says."""

    sample: GemmSample
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmFit:
    """Rates of one element type.

    Parameters
    ----------
    large_errors
        Held-out errors of shapes whose min(m, n) and k are 1024 or more; None if there are none.
    bad_kernels
        Slowest first.
    """

    rates: GemmRates
    fit: Fit
    large_errors: Errors | None
    bad_kernels: tuple[BadKernel, ...]


def fit_gemm(
    samples: Sequence[GemmSample],
    profile: GemmProfile,
    gpu: Gpu,
    provenance: Provenance | None = None,
    *,
    held_out: bool = True,
) -> GemmFit | NotFitted:
    """Fit the rates of the samples' element type by robust least squares on relative errors.

    Parameters
    ----------
    samples
        All of one element type. Repeated shapes count once, with their median.
    profile
        Its tiles, splits, and the rates to start from.
    held_out
        Also fit to random halves (of few shapes: to four fifths; three seeds) and take errors on what
        was left out.

    Returns
    -------
    GemmFit or NotFitted
        The latter with a reason, if there are too few shapes.
    """
    points = _distinct(samples)
    if len(points) < LEAST_POINTS:
        return NotFitted(reason=f"{len(points)} shapes; {LEAST_POINTS} are needed")
    dtype = points[0].dtype
    assert all(p.dtype == dtype for p in points)
    start = profile.rates.get(dtype) or next(iter(profile.rates.values()))
    problem = _Problem(profile, gpu, start, points)
    found = problem.fit(points)
    rates = problem.rates(found.values)
    if held_out:
        errors, large_errors = _held_out(problem, points, profile, gpu)
    else:
        predicted = problem.predict(rates, points)
        errors = errors_of(predicted, [p.time_s for p in points])
        large_errors = None
    ratios = np.array([p.time_s for p in points]) / problem.predict(rates, points)
    bad = [
        BadKernel(sample=p, ratio=float(r))
        for p, r in zip(points, ratios, strict=True)
        if r > BAD_KERNEL
    ]
    valid = {
        name: (
            float(min(getattr(p, name) for p in points)),
            float(max(getattr(p, name) for p in points)),
        )
        for name in ("m", "n", "k")
    }
    return GemmFit(
        rates=rates,
        fit=make_fit(
            provenance or Provenance(),
            errors,
            num_points=len(points),
            held_out=held_out,
            valid=valid,
            samples=draws(found),
        ),
        large_errors=large_errors,
        bad_kernels=tuple(sorted(bad, key=lambda kernel: -kernel.ratio)),
    )


def large(sample: GemmSample) -> bool:
    """Whether a shape fills a gpu."""
    return min(sample.m, sample.n, sample.k) >= LARGE


def measured_table(samples: Sequence[GemmSample]) -> tuple[MeasuredGemm, ...]:
    """The samples as a table for a profile; repeated shapes with their median."""
    return tuple(
        MeasuredGemm(
            m=s.m,
            n=s.n,
            k=s.k,
            dtype=s.dtype,
            time_s=s.time_s,
            entries=s.entries,
            accumulate=s.accumulate,
            sm_clock_hz=s.sm_clock_hz,
        )
        for s in _distinct(samples)
    )


def _distinct(samples: Sequence[GemmSample]) -> list[GemmSample]:
    by_shape: dict[GemmSample, list[GemmSample]] = {}
    for sample in samples:
        by_shape.setdefault(replace(sample, time_s=0.0, sm_clock_hz=None), []).append(sample)
    return [
        replace(
            shape,
            time_s=statistics.median(s.time_s for s in found),
            sm_clock_hz=_median(s.sm_clock_hz for s in found),
        )
        for shape, found in by_shape.items()
    ]


def _median(values: Iterable[float | None]) -> float | None:
    """Of the values that are known."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def reference_clock(samples: Iterable[GemmSample]) -> float | None:
    """The clock that rates fitted to samples belong to: the highest; None if none was read."""
    return max((s.sm_clock_hz for s in samples if s.sm_clock_hz is not None), default=None)


RATES = (  # with bounds; the rates of memory are in HBM bandwidths
    ("flops_per_s_per_unit", 1e10, 1e14),
    ("startup_s", 0.0, 50e-6),  # some public timings hold 25 us and more of the host
    ("input_bytes_per_s", 0.05, 0.98),
    ("output_bytes_per_s", 0.05, 0.98),
    ("feed_bytes_per_s", 1e12, 1e15),
    ("wave_rounding", 0.0, 1.0),
    ("edge_elements", 0.0, 200.0),
    ("wave_s", 0.0, 10e-6),
    ("stream_overlap", 0.0, 1.0),
    ("split_s", 0.0, 50e-6),
)
CLOCK = ("clock_exponent", 0.0, 1.0)  # only where clocks differ
CLOCKS_DIFFER = 1.05
OF_HBM = ("input_bytes_per_s", "output_bytes_per_s")


class _Problem:
    """The formula with free rates."""

    def __init__(
        self, profile: GemmProfile, gpu: Gpu, start: GemmRates, points: Sequence[GemmSample]
    ) -> None:
        self.grid = TileGrid(profile)
        self.units = gpu.num_compute_units
        self._start = start
        self._reference_hz = profile.sm_clock_hz
        clocks = [p.sm_clock_hz for p in points if p.sm_clock_hz is not None]
        free = [*RATES, CLOCK] if clocks and max(clocks) > CLOCKS_DIFFER * min(clocks) else RATES
        self._parameters = tuple(
            _parameter(name, least, most, start, gpu) for name, least, most in free
        )

    def rates(self, values: Mapping[str, float]) -> GemmRates:
        return replace(self._start, **values)

    def predict(self, rates: GemmRates, points: Sequence[GemmSample]) -> list[float]:
        columns = self.grid.columns([p.shape for p in points])
        speed = np.array([clock_speed(rates, p.sm_clock_hz, self._reference_hz) for p in points])
        body_s, _ = body_times(rates, self.grid, columns, self.units, self.units, speed)
        return [float(x) for x in body_s + rates.startup_s]

    def residuals(
        self, values: Mapping[str, float], points: Sequence[GemmSample]
    ) -> NDArray[np.float64]:
        """Of the points, and of the rates themselves: what few points leave open stays as it was."""
        predicted = np.array(self.predict(self.rates(values), points))
        of_points = np.log(predicted / np.array([p.time_s for p in points]))
        of_rates = [_distance(p, values[p.name]) for p in self._parameters]
        return np.concatenate([of_points, PRIOR * np.array(of_rates)])

    def fitted(self, points: Sequence[GemmSample]) -> GemmRates:
        return self.rates(self.fit(points).values)

    def fit(self, points: Sequence[GemmSample]) -> RobustFit:
        return fit(lambda values: self.residuals(values, points), self._parameters)


def _distance(parameter: Parameter, value: float) -> float:
    """How far a value is from where the fit starts: octaves, or quarters of the range."""
    if parameter.least > 0:
        return float(np.log2(value / parameter.start))
    return 4 * (value - parameter.start) / parameter.most


def _parameter(name: str, least: float, most: float, start: GemmRates, gpu: Gpu) -> Parameter:
    if name in OF_HBM:
        least, most = least * gpu.hbm_bytes_per_s, most * gpu.hbm_bytes_per_s
    value = min(max(getattr(start, name), least), most)
    return Parameter(name=name, start=value, least=least, most=most)


def _held_out(
    problem: _Problem, points: Sequence[GemmSample], profile: GemmProfile, gpu: Gpu
) -> tuple[Errors, Errors | None]:
    """Errors of all shapes and of large ones, each half predicted by a fit to the other.

    A fifth at a time where there are few. Where the profile lets measured shapes correct the formula,
    those that were not left out do. Each shape is predicted at the clock that it was measured at.
    """
    told: dict[GemmSample, list[float]] = {}
    dtype = points[0].dtype

    def model(half: Sequence[GemmSample]) -> Callable[[float | None], GemmModel]:
        rates = profile.rates | {dtype: problem.fitted(half)}
        table = measured_table(half) if profile.correction_reach > 0 else ()
        fitted = replace(profile, rates=rates, measured=table)
        return cache(
            lambda clock_hz: GemmModel(fitted, gpu.num_compute_units, gpu.name, sm_clock_hz=clock_hz)
        )

    def predict(fitted: Callable[[float | None], GemmModel], point: GemmSample) -> float:
        predicted = fitted(point.sm_clock_hz).cost(point.shape).time_s
        told.setdefault(point, []).append(predicted)
        return predicted

    folds = 2 if len(points) >= MANY_POINTS else 5
    errors = held_out_errors(
        points, model, predict, lambda point: point.time_s, folds=folds, seeds=SEEDS
    )
    large_ones = [(p, point) for point, all_p in told.items() if large(point) for p in all_p]
    if not large_ones:
        return errors, None
    return errors, errors_of([p for p, _ in large_ones], [point.time_s for _, point in large_ones])

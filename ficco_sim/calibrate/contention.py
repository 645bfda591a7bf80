"""What GEMMs and copies do to one another."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ficco_sim.calibrate.robust import (
    OUTLIERS,
    Array,
    Errors,
    Fitted,
    NotFitted,
    Parameter,
    Provenance,
    RobustFit,
    draws,
    errors_of,
    fit,
    held_out_predictions,
    make_fit,
)
from ficco_sim.costs.gemm import GemmModel, GemmShape
from ficco_sim.profile import ContentionProfile
from ficco_sim.records import Measurement

__all__ = ["Beside", "beside", "fit_contention"]

CORE_OVER_DMA = 2.0  # estimated, as in the shipped profiles
KEPT = "estimated: no such copies beside GEMMs were measured; kept"
TWICE = f"estimated: {CORE_OVER_DMA:g} times that of copy engines; no copy kernels were measured"
LEAST_POINTS = 3
LEAST_COVERED = 0.9  # of the GEMMs' time in which copies must be on their way
MAX_SLOPE = 20.0
SERIES = ("copy_s", "back_s")  # of the first direction's copies and of the second's
GEMM_PARAMS = (
    "m", "n", "k", "dtype", "entries", "apart", "a_pitch", "accumulate", "repeats", "init", "device",
    "family",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """A GEMM beside copies.

    Parameters
    ----------
    engine, blocks
        ``dma``; or ``core`` with so many blocks of the copy kernel.
    gemm
        Its time beside copies over its time alone.
    copies
        Likewise of the copies of each direction.
    into, out_of
        Bytes/s that copies bring into the GEMM's gpu and take from it.
    """

    shape: GemmShape
    direction: str
    engine: str
    blocks: int
    gemm: float
    copies: tuple[float, ...]
    into: float
    out_of: float


def beside(measurements: Sequence[Measurement]) -> list[Beside]:
    """GEMMs beside copies of which both were also measured alone in the same session.

    Left out are copies that cover less than 90 % of the GEMMs' time, and those by a copy engine within
    one gpu, which no plan has.
    """
    usable = [m for m in measurements if m.kind == "contention" and m.usable]
    found = []
    for both in usable:
        if both.params.get("role") != "both" or "gemm_s" not in both.series:
            continue
        flows = [flow.split(">") for flow in str(both.params["direction"]).split("+")]
        engine, device = str(both.params["engine"]), both.params["device"]
        if engine == "dma" and any(src == dst for src, dst in flows):
            continue
        gemm = _closest(both, "gemm", GEMM_PARAMS, usable)
        others = [name for name in both.params if name != "role"]
        copy = _closest(both, "copy", others, usable)
        gemm_s = statistics.median(both.series["gemm_s"])
        covered_s = statistics.median(both.series.get("covered_s", (0.0,)))
        repeats = float(both.params["repeats"] or 1)
        if gemm is None or copy is None or covered_s < LEAST_COVERED * repeats * gemm_s:
            continue
        names = SERIES[: len(flows)]
        times_s = [statistics.median(both.series[name]) for name in names]
        rates = [float(both.params["nbytes"] or 0) / time_s for time_s in times_s]
        found.append(
            Beside(
                shape=_shape(both),
                direction=str(both.params["direction"]),
                engine=engine,
                blocks=int(both.params["blocks"] or 0),
                gemm=gemm_s / statistics.median(gemm.series["gemm_s"]),
                copies=tuple(
                    time_s / statistics.median(copy.series[name])
                    for name, time_s in zip(names, times_s, strict=True)
                ),
                into=sum(rate for (_, dst), rate in zip(flows, rates, strict=True) if dst == device),
                out_of=sum(rate for (src, _), rate in zip(flows, rates, strict=True) if src == device),
            )
        )
    return found


def fit_contention(
    measurements: Sequence[Measurement],
    hbm_bytes_per_s: float,
    defaults: ContentionProfile,
    provenance: Provenance | None = None,
    *,
    model: GemmModel | None = None,
    core_units: int = 0,
) -> Fitted[ContentionProfile] | NotFitted:
    """Fit how much longer GEMMs take beside copies.

    With x the bytes/s of copies over ``hbm_bytes_per_s``, a GEMM takes

    - beside copies by engines ``1 + dma_in x_in + dma_out x_out`` times as long,
    - beside copy kernels ``fewer (1 + core_in x_in + core_out x_out)`` times as long, ``fewer`` being
      what the GEMM model says of the compute units that are left.

    The errors are of these ratios, which are near 1: 0.01 is one point. Those of copy kernels are not
    of a kind with those of engines, see ``parts``: on H200 a GEMM that fills the gpu loses nothing to
    them, since their blocks wait until it ends, and the model takes their units away all the same.

    Parameters
    ----------
    measurements
        Of kind ``contention``; others are left out.
    defaults
        For slopes that no traffic was measured for; those of copy kernels are then at least twice those
        of engines, since their data passes the caches too.
    model, core_units
        For copy kernels: GEMMs alone, and the compute units that copy kernels take in the machine;
        without them, and for other numbers of blocks, copy kernels are left out.
    """
    points = [
        _Point(ratio=pair.gemm, fewer=fewer, traffic=_traffic(pair, hbm_bytes_per_s), pair=pair)
        for pair in beside(measurements)
        if (fewer := _fewer_units(pair, model, core_units)) is not None
    ]
    shapes = {point.pair.shape for point in points}
    if len(points) < LEAST_POINTS or len(shapes) < 2:
        return NotFitted(
            reason=f"contention: {len(points)} GEMMs of {len(shapes)} shapes beside copies that cover "
            f"them; at least {LEAST_POINTS} of 2 shapes are needed"
        )
    found = _fit(points)
    told = held_out_predictions(
        points,
        lambda kept: _fit(kept).values,
        lambda values, point: point.predicted(values),
        group=lambda point: point.pair.shape,
    )
    engines = {"dma": "beside copy engines", "core": "beside copy kernels"}
    parts = {
        name: _errors(part)
        for engine, name in engines.items()
        if (part := [item for item in told if item[0].pair.engine == engine])
    }
    group = make_fit(
        provenance or Provenance(),
        _errors(told),
        num_points=len(points),
        held_out=True,
        valid={name: _range(shapes, name) for name in ("m", "n", "k")}
        | {"in_bytes_per_s": (0.0, max(point.pair.into for point in points))},
        samples=draws(found),
    )
    slopes = {
        name: found.values.get(name, getattr(defaults, name))
        for name in ("dma_in", "dma_out", "core_in", "core_out")
    }
    not_fitted = {name: KEPT for name in slopes if name not in found.values}
    for way in ("in", "out"):
        if f"core_{way}" not in found.values:
            least = CORE_OVER_DMA * slopes[f"dma_{way}"]
            if least > 0.999 * slopes[f"core_{way}"]:  # kept values may be rounded
                slopes[f"core_{way}"] = least
                not_fitted[f"core_{way}"] = TWICE
    return Fitted(values=ContentionProfile(**slopes), fit=group, parts=parts, not_fitted=not_fitted)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """A slowdown, the part of it that fewer units explain, and traffic over HBM by slope."""

    ratio: float
    fewer: float
    traffic: Mapping[str, float]
    pair: Beside

    def predicted(self, slopes: Mapping[str, float]) -> float:
        """See `fit_contention`; a slope without traffic in any point fitted to is none."""
        return self.fewer * (1 + sum(slopes.get(name, 0.0) * x for name, x in self.traffic.items()))


def _closest(
    both: Measurement, role: str, same: Sequence[str], measured: Sequence[Measurement]
) -> Measurement | None:
    """The measurement alone that was taken closest in time."""
    found = [
        m
        for m in measured
        if m.params.get("role") == role
        and m.session == both.session
        and all(m.params.get(name) == both.params.get(name) for name in same)
    ]
    return min(found, key=lambda m: abs(m.sequence - both.sequence), default=None)


def _shape(m: Measurement) -> GemmShape:
    rows, n, k, entries = (int(m.params[name] or 1) for name in ("m", "n", "k", "entries"))
    return GemmShape(
        entry_rows=(rows,) * entries,
        n=n,
        k=k,
        dtype=str(m.params["dtype"]),
        accumulate=bool(m.params["accumulate"]),
    )


def _fewer_units(pair: Beside, model: GemmModel | None, core_units: int) -> float | None:
    """Times as long without the units that copy kernels take; None if that is not known."""
    if pair.engine == "dma":
        return 1.0
    if model is None or pair.blocks != core_units or pair.shape.dtype not in model.profile.rates:
        return None
    left = model.cost(pair.shape, model.num_compute_units - core_units)
    # as the simulator has it: never faster
    return max(left.body_s / model.cost(pair.shape).body_s, 1.0)


def _traffic(pair: Beside, hbm_bytes_per_s: float) -> dict[str, float]:
    found = {
        f"{pair.engine}_in": pair.into / hbm_bytes_per_s,
        f"{pair.engine}_out": pair.out_of / hbm_bytes_per_s,
    }
    return {name: share for name, share in found.items() if share}


def _fit(points: Sequence[_Point]) -> RobustFit:
    names = dict.fromkeys(name for point in points for name in point.traffic)

    def residuals(slopes: Mapping[str, float]) -> Array:
        return np.log([point.predicted(slopes) / point.ratio for point in points])

    return fit(
        residuals,
        [Parameter(name=name, start=0.5, least=0.0, most=MAX_SLOPE) for name in names],
        rejected=OUTLIERS,
    )


def _errors(told: Sequence[tuple[_Point, float]]) -> Errors:
    return errors_of([value for _, value in told], [point.ratio for point, _ in told])


def _range(shapes: set[GemmShape], name: str) -> tuple[float, float]:
    sizes = [float(getattr(shape, name)) for shape in shapes]
    return min(sizes), max(sizes)

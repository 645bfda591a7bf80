"""Copies between gpus by a kernel on compute units."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ficco_sim.calibrate.contention import beside
from ficco_sim.calibrate.launch import event_pair_s
from ficco_sim.calibrate.robust import (
    OUTLIERS,
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
from ficco_sim.profile import CoreCopyProfile
from ficco_sim.readers.logs.types import CollectivePoint
from ficco_sim.records import Measurement

__all__ = ["CoreCopyTime", "collective_times", "fit_core"]

LEAST_POINTS = 3
LEAST_BESIDE = 3
NORM = 4.0  # how sharply the slower of blocks and link wins
MAX_SLOWDOWN = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreCopyTime:
    """A copy by a kernel of so many blocks alone, less what timing adds."""

    nbytes: float
    time_s: float
    blocks: int


def collective_times(points: Sequence[CollectivePoint], blocks: int) -> list[CoreCopyTime]:
    """All-gathers and all-to-alls of a library's benchmark, by kernels of about so many blocks.

    A gpu receives ``wire_bytes`` in such a time, in all the steps of the collective together.
    """
    return [
        CoreCopyTime(nbytes=point.wire_bytes, time_s=point.time_s, blocks=blocks)
        for point in points
        if point.collective in ("all_gather", "all_to_all")
        and point.total_bytes > 0
        and not point.in_place
    ]


def fit_core(
    measurements: Sequence[Measurement],
    direction: str,
    defaults: CoreCopyProfile,
    provenance: Provenance | None = None,
    *,
    timed: Sequence[CoreCopyTime] = (),
) -> Fitted[CoreCopyProfile] | NotFitted:
    """Fit set-up and rate of a copy kernel, and how much slower it is beside a GEMM.

    A kernel of b blocks alone takes ``setup_s + bytes / rate(b)`` with::

        rate(b) = ((b * block_rate)^-4 + link_rate^-4)^(-1/4)

    so that blocks count until they fill the link. All numbers of blocks are fitted together, and the
    profile gets the rate of as many as ``defaults.compute_units``. Where only one number of blocks was
    timed, its rate is fitted.

    ``slowdown_beside_gemm`` is that of copies of this direction with so many blocks, from records of
    kind ``contention``. On H200 it is 1 to 1.5 beside GEMMs that leave units idle and 5 to 28 beside
    one that fills the gpu, where blocks wait for the GEMM to end: one number cannot tell both, see
    ``parts``.

    Parameters
    ----------
    measurements
        Of kind ``copy``, ``contention``, and ``launch`` for the events; others are left out.
    direction
        Such as ``host>dev0`` or ``dev0>dev0``.
    defaults
        For what nothing was measured for; its ``compute_units`` are kept.
    timed
        Further copies in this direction.
    """
    events_s = event_pair_s(measurements)
    points = [*timed]
    for m in measurements:
        if m.kind == "copy" and m.usable and _is_kernel_copy(m, direction):
            time_s = m.median_s - events_s
            if time_s > 0:
                points.append(
                    CoreCopyTime(
                        nbytes=float(m.params["nbytes"] or 0),
                        time_s=time_s,
                        blocks=int(m.params["blocks"] or 0),
                    )
                )
    counts = {point.blocks for point in points}
    sizes = {point.nbytes for point in points}
    units = defaults.compute_units
    if len(points) < LEAST_POINTS or len(sizes) < 3 or not min(counts) <= units <= max(counts):
        return NotFitted(
            reason=f"core_copy: {len(points)} timed copies of {len(sizes)} sizes"
            f"{direction and f', {direction}'}, by "
            f"kernels of {', '.join(map(str, sorted(counts))) or 'no'} blocks; at least {LEAST_POINTS} "
            f"of 3 sizes are needed, of numbers of blocks around {units}"
        )
    found = _fit(points)
    drawn = draws(found)
    rows = [dict(zip(drawn, row, strict=True)) for row in zip(*drawn.values(), strict=True)]
    samples = {"setup_s": drawn["setup_s"], "bytes_per_s": tuple(_rate(row, units) for row in rows)}
    told = held_out_predictions(points, lambda kept: _fit(kept).values, _predicted_s)
    predicted, measured = [value for _, value in told], [point.time_s for point, _ in told]
    parts = {"alone": errors_of(predicted, measured)}
    slowdown = defaults.slowdown_beside_gemm
    ratios = [
        pair.copies[0]
        for pair in beside(measurements)
        if (pair.direction, pair.engine, pair.blocks) == (direction, "core", units)
    ]
    if len(ratios) >= LEAST_BESIDE:
        slower = _fit_slowdown(ratios)
        slowdown = slower.values["slowdown_beside_gemm"]
        samples |= draws(slower, seed=1)
        left_out = [
            (ratio, _fit_slowdown(ratios[:i] + ratios[i + 1 :]).values["slowdown_beside_gemm"])
            for i, ratio in enumerate(ratios)
        ]
        parts["beside a gemm"] = errors_of([value for _, value in left_out], ratios)
        predicted += [value for _, value in left_out]
        measured += ratios
    profile = CoreCopyProfile(
        compute_units=units,
        setup_s=found.values["setup_s"],
        bytes_per_s=_rate(found.values, units),
        slowdown_beside_gemm=slowdown,
    )
    group = make_fit(
        provenance or Provenance(),
        errors_of(predicted, measured),
        num_points=len(measured),
        held_out=True,
        valid={"nbytes": (min(sizes), max(sizes))},
        samples=samples,
    )
    return Fitted(values=profile, fit=group, parts=parts)


def _is_kernel_copy(m: Measurement, direction: str) -> bool:
    return m.params.get("direction") == direction and m.params.get("engine") == "core"


def _rate(values: Mapping[str, float], blocks: int) -> float:
    link_rate = values["link_rate"]
    if "block_rate" not in values:
        return link_rate
    blocks_rate = blocks * values["block_rate"]
    return link_rate * float((1 + (link_rate / blocks_rate) ** NORM) ** (-1 / NORM))


def _predicted_s(values: Mapping[str, float], point: CoreCopyTime) -> float:
    return values["setup_s"] + point.nbytes / _rate(values, point.blocks)


def _fit(points: Sequence[CoreCopyTime]) -> RobustFit:
    parameters = [
        Parameter(name="setup_s", start=5e-6, least=1e-8, most=1e-2),
        Parameter(name="link_rate", start=50e9, least=1e6, most=1e14),
    ]
    if len({point.blocks for point in points}) > 1:
        parameters.append(Parameter(name="block_rate", start=10e9, least=1e6, most=1e13))
    return fit(
        lambda values: np.log([_predicted_s(values, point) / point.time_s for point in points]),
        parameters,
        rejected=OUTLIERS,
    )


def _fit_slowdown(ratios: Sequence[float]) -> RobustFit:
    return fit(
        lambda values: np.log([values["slowdown_beside_gemm"] / ratio for ratio in ratios]),
        [Parameter(name="slowdown_beside_gemm", start=1.5, least=1.0, most=MAX_SLOWDOWN)],
    )

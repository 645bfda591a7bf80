"""Copies within a gpu's memory by a kernel."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ficco_sim.calibrate.launch import event_pair_s
from ficco_sim.calibrate.robust import (
    OUTLIERS,
    Fitted,
    NotFitted,
    Parameter,
    Provenance,
    RobustFit,
    draws,
    fit,
    held_out_errors,
    make_fit,
)
from ficco_sim.profile import LocalCopyProfile
from ficco_sim.records import Measurement

__all__ = ["fit_local"]

LEAST_POINTS = 4
PASSES = 2  # every byte is read and written
MAX_PIECES = 16


def fit_local(
    measurements: Sequence[Measurement], provenance: Provenance | None = None
) -> Fitted[LocalCopyProfile] | NotFitted:
    """Fit ``startup_s + 2 bytes / bytes_per_s`` to kernels that copy one piece or several.

    Kernels were timed several in a row between two events, which count once; the start-up so holds
    the way from one kernel to the next (see `fit_launch`). Rows that lie apart count as those that do
    not: no difference was found on H200. Kernels of more than 16 pieces are left out: the addresses of
    each piece take time (0.09 us on H200, 8.8 us for 56 pieces of any size up to 256 KiB), the model
    has no parameter for it, and plans of 8 gpus gather 8 pieces.

    Parameters
    ----------
    measurements
        Of kind ``local_copy``, and ``launch`` for the events; others are left out.
    """
    events_s = event_pair_s(measurements)
    points = [
        point
        for m in measurements
        if m.kind == "local_copy" and m.usable and (point := _point(m, events_s)) is not None
    ]
    sizes = {point.nbytes for point in points}
    if len(points) < LEAST_POINTS or len(sizes) < 3:
        return NotFitted(
            reason=f"local_copy: {len(points)} timed copies of {len(sizes)} sizes; at least "
            f"{LEAST_POINTS} of 3 sizes are needed"
        )
    found = _fit(points)
    errors = held_out_errors(
        points, lambda kept: _fit(kept).values, _predicted_s, lambda point: point.time_s
    )
    group = make_fit(
        provenance or Provenance(),
        errors,
        num_points=len(points),
        held_out=True,
        valid={"nbytes": (min(sizes), max(sizes))},
        samples=draws(found),
    )
    return Fitted(values=LocalCopyProfile(**found.values), fit=group, parts={})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    nbytes: float
    time_s: float


def _point(m: Measurement, events_s: float) -> _Point | None:
    nbytes, pieces = float(m.params.get("nbytes") or 0), float(m.params.get("pieces") or 1)
    time_s = m.median_s - events_s / float(m.params.get("repeats") or 1)
    if nbytes <= 0 or pieces > MAX_PIECES or time_s <= 0:
        return None
    return _Point(nbytes=nbytes, time_s=time_s)


def _predicted_s(values: Mapping[str, float], point: _Point) -> float:
    return values["startup_s"] + PASSES * point.nbytes / values["bytes_per_s"]


def _fit(points: Sequence[_Point]) -> RobustFit:
    return fit(
        lambda values: np.log([_predicted_s(values, point) / point.time_s for point in points]),
        [
            Parameter(name="startup_s", start=3e-6, least=1e-8, most=1e-2),
            Parameter(name="bytes_per_s", start=1e12, least=1e9, most=1e14),
        ],
        rejected=OUTLIERS,
    )

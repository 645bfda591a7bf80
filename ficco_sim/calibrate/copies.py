"""Copies between gpus by DMA engines."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ficco_sim.calibrate.launch import event_pair_s
from ficco_sim.calibrate.robust import (
    NUM_DRAWS,
    OUTLIERS,
    SCALE,
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
from ficco_sim.calibrate.ticks import TickFit, fit_row_ticks, fit_ticks
from ficco_sim.costs.ticks import seen_s
from ficco_sim.profile import CopyProfile
from ficco_sim.readers.logs.types import CopyPoint
from ficco_sim.records import Measurement
from ficco_sim.units import KIB

__all__ = ["CopyTime", "copy_times", "count_engines", "default_direction", "fit_copies"]

LEAST_POINTS = 4
LEAST_TICK_POINTS = 8
MOST_OF_ROWS = {"row_overhead_bytes": 64.0 * KIB, "gap_share": 1.0}
MOST_LEFT = 0.5  # of the absolute residuals of a fit without ticks
ROW_PARAMETERS = ("row_overhead_bytes", "gap_share")
LARGE_BYTES = 64 * KIB
MOST_SIGNAL_S = 1e-3
LEAST_OFF = 1e-9  # residuals of exact measurements
PITCH_SCALE = 0.1  # rows of one size run at rates that differ by more than noise with their pitch


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTime:
    """A copy by an engine alone, less what timing adds.

    Parameters
    ----------
    row_bytes, gap_bytes
        Of a 2d copy: of a row, and between rows where they are further apart; None and 0 for one of
        contiguous bytes.
    count
        Copies one after another, of whose time ``time_s`` is an equal share.
    """

    nbytes: float
    time_s: float
    row_bytes: float | None = None
    gap_bytes: float = 0.0
    count: float = 1.0


def copy_times(points: Sequence[CopyPoint]) -> list[CopyTime]:
    """Copies by engines that a log tells, one way and nothing beside them."""
    return [
        CopyTime(nbytes=point.nbytes, time_s=point.time_s)
        for point in points
        if point.engine == "dma"
        and point.direction == "one-way"
        and not point.overlap_s
        and point.nbytes is not None
        and point.time_s is not None
    ]


def default_direction(measurements: Sequence[Measurement], engine: str) -> str | None:
    """The direction whose copies stand for those between gpus, as far as there are any.

    The first from one device to another, else from host memory to a device, which is about one link.
    """
    directions = dict.fromkeys(
        str(m.params.get("direction"))
        for m in measurements
        if m.kind == "copy" and m.usable and m.params.get("engine") == engine
    )
    flows = [(name, *name.split(">")) for name in directions if name.count(">") == 1]
    between = [name for name, src, dst in flows if src != dst and "host" not in (src, dst)]
    return next(iter([*between, *(name for name, src, _ in flows if src == "host")]), None)


def fit_copies(
    measurements: Sequence[Measurement],
    direction: str,
    defaults: CopyProfile,
    provenance: Provenance | None = None,
    *,
    latency_s: float = 0.0,
    timed: Sequence[CopyTime] = (),
) -> Fitted[CopyProfile] | NotFitted:
    """Fit what a copy command costs and the engine's rate, as the simulator uses them.

    The simulator holds the engine for ``setup_s + latency + bytes / rate + completion_s``, so that
    copies alone and one after another on one queue take this long each::

        time = fixed_s + bytes / engine_bytes_per_s
               * (1 + (row_overhead_bytes + gap_share * gap_bytes) / row_bytes) + signal_s / count

    with ``fixed_s`` the three times together and the factor for 2d copies only. Nothing tells set-up
    and completion apart: both keep their defaults' share. What a copy alone takes longer than one of
    several in a row is ``signal_s``, where that explains more than one more parameter must; else it is
    0, and in ``fixed_s``.
    What copies over several streams take longer than over one, a stream, is ``queue_s``.
    The rate is that of the slower of engine and link.

    Where ends are seen at ticks only, those of a burst are at its ticks, and the term before
    ``signal_s`` is one::

        time = tick of (count * (fixed_s + bytes / engine_bytes_per_s * ...)) / count + signal_s / count

    Ticks are taken to be there where they explain at least half of what the fit without them leaves,
    over 8 points or more of copies alone and in a row. See `fit_ticks`: their draws are uniform in what
    the ticks of the points leave open. Between two H200 over NVLink copies end in steps of 9 us; from
    host memory no such steps are seen.

    2d copies then end at ticks too, see `fit_row_ticks`; ``queue_s`` is fitted to the mean, half a tick
    after the end, since copies over several streams keep no steps. The clock does not really start with
    the engine: of 8 samples of one copy on H200 some lie a step after the others. Medians are fitted.

    Contiguous copies give ``fixed_s`` and the rate, then 2d copies the overhead of a row and the share
    of the gap between rows. On H200 from host memory the rate depends on the pitch more than on the
    row: at 8 times the row 0.6 to 0.77 of the rate, at 4 times 0.8 to 0.9, at twice 0.95 to 1, for rows
    from 512 B to 16 KiB.

    Parameters
    ----------
    measurements
        Of kind ``copy``, and ``launch`` for the events; others are left out.
    direction
        Such as ``host>dev0`` or ``dev1>dev0``.
    defaults
        For what nothing was measured for.
    latency_s
        Of the route, in the machine; the simulator adds it to the set-up.
    timed
        Further copies in this direction.
    """
    events_s = event_pair_s(measurements)
    points = [*timed]
    native_2d = defaults.native_2d
    for m in measurements:
        if m.kind == "copy" and m.usable and _is_engine_copy(m, direction):
            points += _measured(m, events_s)
            if _number(m, "rows") > 1:
                native_2d = not any("emulated" in label for label in m.labels)
    plain = [point for point in points if point.row_bytes is None]
    strided = [point for point in points if point.row_bytes is not None]
    sizes = {point.nbytes for point in plain}
    if len(plain) < LEAST_POINTS or len(sizes) < 3:
        return NotFitted(
            reason=f"copy: {len(plain)} timed copies of {len(sizes)} sizes by an engine"
            f"{direction and f', {direction}'}; "
            f"at least {LEAST_POINTS} of 3 sizes are needed"
        )
    if len(strided) < LEAST_POINTS:
        strided = []
    signal = _has_signal(plain)
    found = _fit_plain(plain, signal=signal)
    values, plain_draws = found.values, draws(found)
    ticks = _ticks_of(plain, found)
    if ticks is not None:
        values, plain_draws = ticks.values, ticks.samples

    def refitted(kept: Sequence[CopyTime]) -> Mapping[str, float]:
        smooth = _fit_plain(kept, signal=signal)
        return smooth.values if ticks is None else _fit_ticks(kept, smooth).values

    told = held_out_predictions(
        plain,
        refitted,
        _predicted_s,
        group=lambda point: point.nbytes,
    )
    kinds = {
        "contiguous": told,
        "contiguous from 64 KiB": [p for p in told if p[0].nbytes >= LARGE_BYTES],
    }
    share = _setup_share(defaults)

    def parts_of(value_s: float) -> tuple[float, float]:
        ours_s = max(value_s - latency_s, 0.0)
        return ours_s * share, ours_s * (1 - share)

    setup_s, completion_s = parts_of(values["fixed_s"])
    drawn = [parts_of(value_s) for value_s in plain_draws["fixed_s"]]
    samples = {
        "setup_s": tuple(first for first, _ in drawn),
        "completion_s": tuple(last for _, last in drawn),
        **{name: drawn for name, drawn in plain_draws.items() if name != "fixed_s"},
    }
    of_rows = {name: float(getattr(defaults, name)) for name in ROW_PARAMETERS}
    if strided:
        of_rows, row_draws = _rows_of(strided, values, plain_draws, ticks)
        samples |= row_draws
        kinds["2d"] = held_out_predictions(
            strided,
            lambda kept: {**values, **_rows_of(kept, values, plain_draws, ticks)[0]},
            _predicted_s,
        )
    queue_s = 0.0
    queue = _queue_draws(measurements, direction, values, events_s)
    if queue is not None:
        queue_s, samples["queue_s"] = queue
    group = make_fit(
        provenance or Provenance(),
        _errors([*told, *kinds.get("2d", [])]),
        num_points=len(plain) + len(strided),
        held_out=True,
        valid={"nbytes": (min(sizes), max(sizes))},
        samples=samples,
    )
    profile = CopyProfile(
        setup_s=setup_s,
        completion_s=completion_s,
        engine_bytes_per_s=values["engine_bytes_per_s"],
        signal_s=values.get("signal_s", 0.0),
        queue_s=queue_s,
        tick_s=values.get("tick_s", 0.0),
        first_tick_s=values.get("first_tick_s", 0.0),
        native_2d=native_2d,
        **of_rows,
    )
    return Fitted(
        values=profile, fit=group, parts={name: _errors(part) for name, part in kinds.items() if part}
    )


def count_engines(measurements: Sequence[Measurement], direction: str) -> int | NotFitted:
    """Engines that serve copies in one direction at once.

    As many as several streams are faster than one, for equal copies, the best of all sizes. Where one
    engine fills the link only small copies can show a second one.
    """
    gains = [pair.one_s / pair.time_s for pair in _over_streams(measurements, direction)]
    if not gains:
        return NotFitted(
            reason=f"num_dma_engines: no copies {direction} over one and several streams were timed"
        )
    return max(1, round(max(gains)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _OverStreams:
    """Equal copies, timed on one stream and on several."""

    nbytes: float
    count: float
    one_s: float
    streams: float
    time_s: float


def _over_streams(measurements: Sequence[Measurement], direction: str) -> list[_OverStreams]:
    """Of every size and count of copies in a direction, each number of streams beside one."""
    times: dict[tuple[float, float], dict[float, float]] = {}
    for m in measurements:
        if m.kind == "copy" and m.usable and _is_engine_copy(m, direction) and not m.labels:
            nbytes, count, streams = (_number(m, name) for name in ("nbytes", "count", "streams"))
            if count > 1:
                times.setdefault((nbytes, count), {})[streams] = m.median_s
    return [
        _OverStreams(nbytes=nbytes, count=count, one_s=by_streams[1], streams=streams, time_s=time_s)
        for (nbytes, count), by_streams in times.items()
        if 1 in by_streams
        for streams, time_s in by_streams.items()
        if streams > 1
    ]


def _queue_draws(
    measurements: Sequence[Measurement],
    direction: str,
    plain: Mapping[str, float],
    events_s: float,
) -> tuple[float, tuple[float, ...]] | None:
    """What each further stream costs where one engine serves all: the median, and draws around it.

    Of the smallest copies, of whose time it is most; where there are ticks, over what one stream takes
    in the mean rather than what it took, which the ticks made longer by up to one. Draws are of
    Student's t distribution around it. None where no copies over several streams were timed.
    """
    found = _over_streams(measurements, direction)
    if not found:
        return None
    least = min(pair.nbytes for pair in found)
    values = np.array(
        [
            (
                p.time_s
                - (
                    _mean_s(plain, CopyTime(nbytes=p.nbytes, time_s=p.one_s, count=p.count)) + events_s
                    if "tick_s" in plain
                    else p.one_s
                )
            )
            / (p.streams - 1)
            for p in found
            if p.nbytes == least
        ]
    )
    middle = float(np.median(values))
    around = np.zeros(NUM_DRAWS)
    if len(values) > 1:
        error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
        around = error * np.random.default_rng(0).standard_t(len(values) - 1, NUM_DRAWS)
    return max(middle, 0.0), tuple(float(x) for x in np.maximum(middle + around, 0.0))


def _is_engine_copy(m: Measurement, direction: str) -> bool:
    return m.params.get("direction") == direction and m.params.get("engine") == "dma"


def _number(m: Measurement, name: str) -> float:
    return float(m.params.get(name) or 1)


def _measured(m: Measurement, events_s: float) -> list[CopyTime]:
    """A copy alone, or one of several after each other."""
    count = _number(m, "count")
    time_s = (m.median_s - events_s) / count
    if _number(m, "streams") > 1 or time_s <= 0:
        return []
    if _number(m, "rows") == 1:
        return [CopyTime(nbytes=_number(m, "nbytes"), time_s=time_s, count=count)]
    row_bytes = _number(m, "row_bytes")
    pitch = max(_number(m, "pitch"), _number(m, "dst_pitch"))
    return [
        CopyTime(
            nbytes=_number(m, "nbytes"),
            time_s=time_s,
            row_bytes=row_bytes,
            gap_bytes=max(pitch - row_bytes, 0.0),
            count=count,
        )
    ]


def _fit_plain(points: Sequence[CopyTime], *, signal: bool) -> RobustFit:
    parameters = [
        Parameter(name="fixed_s", start=3e-6, least=1e-8, most=1e-2),
        Parameter(name="engine_bytes_per_s", start=50e9, least=1e6, most=1e14),
    ]
    if signal:
        parameters.append(Parameter(name="signal_s", start=1e-6, least=0.0, most=MOST_SIGNAL_S))
    return fit(lambda values: _residuals(values, points), parameters, rejected=OUTLIERS)


def _has_signal(points: Sequence[CopyTime]) -> bool:
    """Whether ``signal_s`` explains more than one more parameter must.

    By the Bayesian information criterion (Schwarz 1978) of Laplace's distribution, over all points:
    without a signal, copies in a row pass for outliers.
    """
    if len({point.count for point in points}) == 1:
        return False
    without, full = (
        max(float(np.abs(_residuals(found.values, points)).sum()), LEAST_OFF)
        for found in (_fit_plain(points, signal=False), _fit_plain(points, signal=True))
    )
    return 2 * len(points) * math.log(without / full) > math.log(len(points))


def _ticks_of(points: Sequence[CopyTime], smooth: RobustFit) -> TickFit | None:
    """Ticks, if there are any: see `fit_copies`.

    Half of the residuals, over 8 points, is more than three more parameters must explain by the
    criterion of `_has_signal`.
    """
    if len(points) < LEAST_TICK_POINTS or len({point.count for point in points}) == 1:
        return None
    left = np.abs(_residuals(smooth.values, points))
    if np.quantile(left, 1 - OUTLIERS) < SCALE:
        return None  # little is left to explain
    found = _fit_ticks(points, smooth)
    off = np.abs(_residuals(found.values, points))
    return found if off.sum() <= MOST_LEFT * left.sum() else None


def _fit_ticks(points: Sequence[CopyTime], smooth: RobustFit) -> TickFit:
    nbytes, counts, total_s = _arrays(points)
    return fit_ticks(
        nbytes,
        counts,
        total_s,
        fixed_s=smooth.values["fixed_s"],
        rate=smooth.values["engine_bytes_per_s"],
    )


def _arrays(points: Sequence[CopyTime]) -> tuple[Array, Array, Array]:
    counts = np.array([point.count for point in points])
    times_s = np.array([point.time_s for point in points])
    return np.array([point.nbytes for point in points]), counts, times_s * counts


def _rows_of(
    points: Sequence[CopyTime],
    plain: Mapping[str, float],
    plain_draws: Mapping[str, tuple[float, ...]],
    ticks: TickFit | None,
) -> tuple[dict[str, float], dict[str, tuple[float, ...]]]:
    """What rows cost, and draws of it."""
    if ticks is None:
        rows = _fit_rows(points, plain)
        return dict(rows.values), _row_draws(points, plain, plain_draws, rows)
    nbytes, counts, total_s = _arrays(points)
    found = fit_row_ticks(
        nbytes,
        np.array([point.row_bytes for point in points]),
        np.array([point.gap_bytes for point in points]),
        counts,
        total_s,
        ticks,
        most=MOST_OF_ROWS,
    )
    return found.values, found.samples


def _fit_rows(points: Sequence[CopyTime], plain: Mapping[str, float]) -> RobustFit:
    return fit(
        lambda values: _residuals({**plain, **values}, points),
        [
            Parameter(name=name, start=start, least=0.0, most=MOST_OF_ROWS[name])
            for name, start in (("row_overhead_bytes", 100.0), ("gap_share", 0.05))
        ],
        scale=PITCH_SCALE,
        rejected=OUTLIERS,
    )


def _row_draws(
    points: Sequence[CopyTime],
    plain: Mapping[str, float],
    plain_draws: Mapping[str, tuple[float, ...]],
    rows: RobustFit,
) -> dict[str, tuple[float, ...]]:
    """What 2d copies leave open, and what the contiguous ones leave open in it, to first order."""
    found = {name: np.array(values) for name, values in draws(rows, seed=1).items()}
    for other, drawn in plain_draws.items():
        apart = np.array(drawn) - plain[other]
        step = float(apart.std())
        if step > 0:
            moved = _fit_rows(points, {**plain, other: plain[other] + step})
            for name in found:
                found[name] += (moved.values[name] - rows.values[name]) * apart / step
    most = {p.name: p.most for p in rows.parameters}
    return {name: tuple(np.clip(v, 0.0, most[name]).tolist()) for name, v in found.items()}


def _end_s(values: Mapping[str, float], point: CopyTime) -> float:
    """When all copies of a point have ended, from when the engine began."""
    longer = 1.0
    if point.row_bytes is not None:
        lost_bytes = values["row_overhead_bytes"] + values["gap_share"] * point.gap_bytes
        longer += lost_bytes / point.row_bytes
    bytes_s = point.nbytes / values["engine_bytes_per_s"] * longer
    return point.count * (values["fixed_s"] + bytes_s)


def _predicted_s(values: Mapping[str, float], point: CopyTime) -> float:
    """See `fit_copies`."""
    end_s = _end_s(values, point)
    known_s = seen_s(end_s, values.get("first_tick_s", 0.0), values.get("tick_s", 0.0))
    return float(known_s + values.get("signal_s", 0.0)) / point.count


def _mean_s(values: Mapping[str, float], point: CopyTime) -> float:
    """Of all copies of a point, wherever between ticks they end."""
    return _end_s(values, point) + values.get("tick_s", 0.0) / 2 + values.get("signal_s", 0.0)


def _residuals(values: Mapping[str, float], points: Sequence[CopyTime]) -> Array:
    return np.log([_predicted_s(values, point) / point.time_s for point in points])


def _errors(told: Sequence[tuple[CopyTime, float]]) -> Errors:
    return errors_of([value for _, value in told], [point.time_s for point, _ in told])


def _setup_share(defaults: CopyProfile) -> float:
    total_s = defaults.setup_s + defaults.completion_s
    return defaults.setup_s / total_s if total_s else 1.0

"""Time of a GEMM alone on a number of compute units.

The model (parameters in `GemmRates`) takes the best of all macro tiles (a, b) and split-K factors s::

    groups = sum over entries of ceil(M/a) * ceil(N/b) * s
    waves  = rounding * ceil(groups/units) + (1 - rounding) * max(groups/units, 1)
    Ks     = ceil(K/s/32) * 32
    math   = waves * 2 a b Ks / unit_rate * (1 + edge * (1/a + 1/b))
    feed   = waves * (a + b) * Ks * bytes / (feed_rate / all_units)
    loop   = (math^6 + feed^6)^(1/6) / (clock / reference clock)^clock_exponent
    stream = C bytes / output_rate + (A + B bytes) / input_rate
    body   = loop + stream - overlap * min(loop, stream) + waves * wave_s
             + [s > 1] * (split_s + 4 M N s / output_rate)
    time   = startup_s + body

An accumulating GEMM reads C as well, at the input rate. Measured shapes win over the formula, and
correct it for shapes of like size that tiles fit alike (`ficco_sim.costs.neighbours`). The profile's
fits give the errors.

Unless a clock is asked for, the formula is at the reference clock and measured times are as they were,
each at its own clock: long GEMMs of the table lower it by the power that they take.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ficco_sim.costs.neighbours import Neighbours, Places
from ficco_sim.errors import MachineError
from ficco_sim.profile import GemmProfile, GemmRates
from ficco_sim.workload import DTYPE_BYTES, OUTPUT_DTYPE, aligned

__all__ = [
    "BAD_KERNEL",
    "GemmCost",
    "GemmModel",
    "GemmShape",
    "ShapeColumns",
    "TileGrid",
    "body_times",
    "clock_speed",
]

Floats: TypeAlias = NDArray[np.float64]

K_STEP = 32  # unroll of the main loop, elements
MIN_K_PER_SPLIT = 128
PARTIAL_SUM_BYTES = 4  # split-K partial sums are fp32
NORM = 6.0  # how sharply the slower of math and feed wins
BAD_KERNEL = 1.5  # measured over formula beyond which the library has no good kernel for a shape


@dataclass(frozen=True, slots=True)
class GemmShape:
    """A GEMM: rows of each batch entry, columns n, contraction k; ``accumulate`` reads C too."""

    entry_rows: tuple[int, ...]
    n: int
    k: int
    dtype: str
    accumulate: bool = False

    @property
    def m(self) -> int:
        """Rows of all entries."""
        return sum(self.entry_rows)

    @property
    def flops(self) -> int:
        """Floating-point operations, 2 m n k."""
        return 2 * self.m * self.n * self.k

    @property
    def hbm_bytes(self) -> int:
        """Least HBM bytes: operands read once, C written (and read if accumulating) once."""
        in_bytes, out_bytes = DTYPE_BYTES[self.dtype], DTYPE_BYTES[OUTPUT_DTYPE[self.dtype]]
        passes = 2 if self.accumulate else 1
        return (self.m * self.k + self.k * self.n) * in_bytes + self.m * self.n * out_bytes * passes


@dataclass(frozen=True, slots=True)
class GemmCost:
    """Time of a GEMM alone, and how much of the compute units it keeps busy.

    Parameters
    ----------
    startup_s, body_s
        Launch and drain; the rest.
    busy
        Share of the compute units that its work-groups take, mean over all waves, 0 to 1: the last one
        is not full.
    """

    startup_s: float
    body_s: float
    busy: float

    @property
    def time_s(self) -> float:
        """Start-up and body together."""
        return self.startup_s + self.body_s


@dataclass(frozen=True, slots=True)
class ShapeColumns:
    """Sizes of S shapes of one element type as arrays, ready for `body_times`.

    Parameters
    ----------
    m, n, k
        Elements, n and k padded as the matrix units want them; [S, 1, 1].
    row_tiles
        Tiles down the rows of all entries, for each macro tile; [S, T, 1].
    accumulates
        1 where C is read, else 0; [S, 1, 1].
    in_bytes, out_bytes
        Of an element.
    """

    m: Floats
    n: Floats
    k: Floats
    row_tiles: Floats
    accumulates: Floats
    in_bytes: int
    out_bytes: int


class TileGrid:
    """Macro tiles [T, 1] and split-K factors [P] that the library may pick."""

    def __init__(self, profile: GemmProfile) -> None:
        tiles = np.array(profile.tiles, dtype=np.float64)
        self.a, self.b = tiles[:, :1], tiles[:, 1:]
        self.splits = np.array(sorted(profile.splits), dtype=np.float64)
        self.inverse_sides = 1 / self.a + 1 / self.b

    def columns(self, shapes: Sequence[GemmShape]) -> ShapeColumns:
        """Arrays of shapes that all have the element type of the first."""
        dtype = shapes[0].dtype

        def column(values: Iterable[float]) -> Floats:
            return np.array(list(values), dtype=np.float64)[:, None, None]

        return ShapeColumns(
            m=column(s.m for s in shapes),
            n=column(aligned(s.n, dtype) for s in shapes),
            k=column(aligned(s.k, dtype) for s in shapes),
            # entry by entry: entries share no tile
            row_tiles=np.array([self._row_tiles(s.entry_rows) for s in shapes]),
            accumulates=column(s.accumulate for s in shapes),
            in_bytes=DTYPE_BYTES[dtype],
            out_bytes=DTYPE_BYTES[OUTPUT_DTYPE[dtype]],
        )

    def efficiency(self, shapes: ShapeColumns, units: int) -> Floats:
        """Share of what full waves of each tile compute that is wanted; [S, T], 0 to 1.

        What a tile's padding and its last wave waste. Libraries pick tiles by it.
        """
        waves = np.ceil(shapes.row_tiles * np.ceil(shapes.n / self.b) / units)
        return np.asarray((shapes.m * shapes.n / (waves * units * self.a * self.b))[:, :, 0])

    def _row_tiles(self, entry_rows: tuple[int, ...]) -> Floats:
        if len(entry_rows) == 1:
            return np.ceil(entry_rows[0] / self.a)
        total = np.zeros_like(self.a)
        for rows, count in Counter(entry_rows).items():
            total += count * np.ceil(rows / self.a)
        return total


def body_times(
    rates: GemmRates,
    grid: TileGrid,
    shapes: ShapeColumns,
    units: int,
    all_units: int,
    speed: Floats | float = 1.0,
) -> tuple[Floats, Floats]:
    """The formula: seconds after start-up, and units kept busy, of every shape on some of all units.

    Parameters
    ----------
    speed
        Of the main loop against that at the reference clock, see `clock_speed`; for all, or [S].

    Returns
    -------
    body_s, busy
        Of the best tile and split, see `GemmCost`; [S] each.
    """
    a, b, splits = grid.a, grid.b, grid.splits
    m, n, k = shapes.m, shapes.n, shapes.k
    fill = shapes.row_tiles * np.ceil(n / b) * splits / units
    rounding = rates.wave_rounding
    waves = rounding * np.ceil(fill) + (1 - rounding) * np.maximum(fill, 1.0)
    k_part = np.ceil(k / splits / K_STEP) * K_STEP
    loop_s = 2 * a * b * k_part / rates.flops_per_s_per_unit
    loop_s = loop_s * (1 + rates.edge_elements * grid.inverse_sides)
    feed_s = (a + b) * k_part * shapes.in_bytes * (all_units / rates.feed_bytes_per_s)
    main_s = waves * (loop_s**NORM + feed_s**NORM) ** (1 / NORM)
    main_s = main_s / np.asarray(speed).reshape(-1, 1, 1)
    output_bytes = m * n * shapes.out_bytes
    streams_s = output_bytes / rates.output_bytes_per_s
    streams_s = streams_s + (m * k + n * k) * shapes.in_bytes / rates.input_bytes_per_s
    streams_s = streams_s + shapes.accumulates * output_bytes / rates.input_bytes_per_s
    partial_s = rates.split_s + PARTIAL_SUM_BYTES * m * n * splits / rates.output_bytes_per_s
    body = main_s + waves * rates.wave_s + np.where(splits > 1, partial_s, 0.0)
    body -= rates.stream_overlap * np.minimum(main_s, streams_s)
    body = np.where((splits == 1) | (k / splits >= MIN_K_PER_SPLIT), body, np.inf)
    num_shapes = len(body)
    flat = body.reshape(num_shapes, -1)
    best = np.argmin(flat, axis=1)
    rows = np.arange(num_shapes)
    body_s = flat[rows, best] + streams_s[:, 0, 0]
    busy = np.broadcast_to(fill / waves, body.shape).reshape(num_shapes, -1)[rows, best]
    return body_s, busy


def clock_speed(rates: GemmRates, clock_hz: float | None, reference_hz: float | None) -> float:
    """Speed of the main loop at a clock against that at the reference; 1 where one is not known."""
    if clock_hz is None or reference_hz is None:
        return 1.0
    return float((clock_hz / reference_hz) ** rates.clock_exponent)


class GemmModel:
    """Evaluates the model for one gpu; results are kept.

    Parameters
    ----------
    profile
        Tiles, splits, rates and measured shapes.
    num_compute_units
        Of the whole gpu.
    gpu_name
        For error messages.
    error
        Of a shape, and whether it was measured: how many times as long as the model says it takes;
        none unless given, see `ficco_sim.costs.uncertainty`.
    sm_clock_hz
        Clock of the compute units; unless given, see this file's head.
    """

    def __init__(
        self,
        profile: GemmProfile,
        num_compute_units: int,
        gpu_name: str,
        error: Callable[[GemmShape, bool], float] | None = None,
        sm_clock_hz: float | None = None,
    ) -> None:
        self.profile = profile
        self._error = error
        self.num_compute_units = num_compute_units
        self._gpu_name = gpu_name
        self._grid = TileGrid(profile)
        self._known: dict[tuple[GemmShape, int], GemmCost] = {}
        self._clock_hz = sm_clock_hz
        self._measured = {
            (g.m, g.n, g.k, g.dtype, g.entries, g.accumulate): g for g in profile.measured
        }
        self._neighbours: dict[str, Neighbours | None] = {}

    def rates(self, dtype: str) -> GemmRates:
        """Parameters for an element type.

        Raises
        ------
        MachineError
            If the profile has none; the message lists those that it has.
        """
        rates = self.profile.rates.get(dtype)
        if rates is None:
            raise MachineError(
                f"gpu {self._gpu_name}: no GEMM rates for {dtype!r}; its profile has "
                f"{', '.join(self.profile.rates)}"
            )
        return rates

    def cost(self, shape: GemmShape, compute_units: int | None = None) -> GemmCost:
        """Cost of a GEMM alone on some of the compute units (all, unless given)."""
        units = self.num_compute_units if compute_units is None else compute_units
        key = (shape, units)
        cost = self._known.get(key)
        if cost is None:
            cost = self._with_measured(shape, units)
            if self._error is not None:
                cost = _scaled(cost, self._error(shape, self.measured_s(shape) is not None))
            self._known[key] = cost
        return cost

    def costs(self, shapes: Sequence[GemmShape]) -> list[GemmCost]:
        """Costs alone, on all compute units, of shapes of one element type; new ones all at once."""
        units = self.num_compute_units
        new = [s for s in dict.fromkeys(shapes) if (s, units) not in self._known]
        if self._error is None and new:
            formulas = self._formulas(new, units)
            corrections = self._corrections(new)
            for shape, formula, factor in zip(new, formulas, corrections, strict=True):
                self._known[shape, units] = (
                    _scaled(formula, factor)
                    if self.measured_s(shape) is None
                    else self._with_measured(shape, units)
                )
        return [self.cost(shape) for shape in shapes]

    def measured_s(self, shape: GemmShape) -> float | None:
        """Seconds of the very shape in the table of measured ones, at the clock asked for."""
        rows = shape.entry_rows
        if len(set(rows)) != 1:
            return None
        key = (shape.m, shape.n, shape.k, shape.dtype, len(rows), shape.accumulate)
        found = self._measured.get(key)
        if found is None or self._clock_hz is None or found.sm_clock_hz is None:
            return None if found is None else found.time_s
        then_s = self._formulas([shape], self.num_compute_units, [found.sm_clock_hz])[0].time_s
        return found.time_s * self.formula(shape).time_s / then_s

    def formula(self, shape: GemmShape, compute_units: int | None = None) -> GemmCost:
        """The formula alone, whatever was measured."""
        units = self.num_compute_units if compute_units is None else compute_units
        return self._formulas([shape], units)[0]

    def _formulas(
        self, shapes: Sequence[GemmShape], units: int, clocks_hz: Sequence[float | None] = ()
    ) -> list[GemmCost]:
        """The formula for shapes of one element type; at clocks of their own if they are given."""
        rates = self.rates(shapes[0].dtype)
        columns = self._grid.columns(shapes)
        reference_hz = self.profile.sm_clock_hz
        speeds = [clock_speed(rates, c, reference_hz) for c in clocks_hz or [self._clock_hz]]
        speed = np.array(speeds)
        body_s, busy = body_times(rates, self._grid, columns, units, self.num_compute_units, speed)
        return [
            GemmCost(rates.startup_s, float(body), float(share))
            for body, share in zip(body_s, busy, strict=True)
        ]

    def _with_measured(self, shape: GemmShape, units: int) -> GemmCost:
        """The formula, replaced or corrected by the table of measured shapes."""
        cost = self.formula(shape, units)
        measured_s = self.measured_s(shape)
        if measured_s is None:
            return _scaled(cost, self._corrections([shape])[0])
        whole = self.formula(shape)
        # the table is of the whole gpu; fewer units slow it as they slow the formula
        body_s = max(measured_s - cost.startup_s, 0.0) * (cost.body_s / whole.body_s)
        return replace(cost, startup_s=min(cost.startup_s, measured_s), body_s=body_s)

    def _corrections(self, shapes: Sequence[GemmShape]) -> list[float]:
        """How much longer measured neighbours take than the formula says; 1 far from all of them.

        For shapes of one element type.
        """
        if self.profile.correction_reach == 0:
            return [1.0] * len(shapes)
        dtype = shapes[0].dtype
        if dtype not in self._neighbours:
            self._neighbours[dtype] = self._make_neighbours(dtype)
        neighbours = self._neighbours[dtype]
        if neighbours is None:
            return [1.0] * len(shapes)
        return [float(x) for x in neighbours.factors(self._places(shapes))]

    def _make_neighbours(self, dtype: str) -> Neighbours | None:
        """Measured shapes of a type, beside the formula at the clocks that they ran at."""
        found = [g for g in self.profile.measured if g.dtype == dtype]
        if not found:
            return None
        shapes = [
            GemmShape((g.m // g.entries,) * g.entries, g.n, g.k, dtype, g.accumulate) for g in found
        ]
        clocks_hz = [None if self._clock_hz is None else g.sm_clock_hz for g in found]
        formulas = self._formulas(shapes, self.num_compute_units, clocks_hz)
        logs = np.log([g.time_s / f.time_s for g, f in zip(found, formulas, strict=True)])
        return Neighbours(
            self._places(shapes), logs, self.profile.correction_reach, bad=math.log(BAD_KERNEL)
        )

    def _places(self, shapes: Sequence[GemmShape]) -> Places:
        return Places(
            m=np.array([s.m for s in shapes], dtype=np.float64),
            n=np.array([s.n for s in shapes], dtype=np.float64),
            k=np.array([s.k for s in shapes], dtype=np.float64),
            entries=np.array([len(s.entry_rows) for s in shapes], dtype=np.float64),
            accumulates=np.array([s.accumulate for s in shapes], dtype=np.float64),
            efficiency=self._grid.efficiency(self._grid.columns(shapes), self.num_compute_units),
        )


def _scaled(cost: GemmCost, factor: float) -> GemmCost:
    return replace(cost, startup_s=cost.startup_s * factor, body_s=cost.body_s * factor)

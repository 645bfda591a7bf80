"""Time of a GEMM alone on a number of compute units.

The model (parameters in `GemmRates`) takes the best of all macro tiles (a, b) and split-K factors s::

    groups = sum over entries of ceil(M/a) * ceil(N/b) * s
    waves  = rounding * ceil(groups/units) + (1 - rounding) * max(groups/units, 1)
    Ks     = ceil(K/s/32) * 32
    math   = waves * 2 a b Ks / unit_rate * (1 + edge * (1/a + 1/b))
    feed   = waves * (a + b) * Ks * bytes / (feed_rate / all_units)
    loop   = (math^6 + feed^6)^(1/6)
    stream = C bytes / output_rate + (A + B bytes) / input_rate
    body   = loop + stream - overlap * min(loop, stream) + waves * wave_s
             + [s > 1] * (split_s + 4 M N s / output_rate)
    time   = startup_s + body

An accumulating GEMM reads C as well, at the input rate. The profile's sources give the fit error.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from ficco_sim.errors import MachineError
from ficco_sim.profile import GemmProfile, GemmRates
from ficco_sim.workload import DTYPE_BYTES, OUTPUT_DTYPE, aligned

__all__ = ["GemmCost", "GemmModel", "GemmShape", "wave_efficiency"]

K_STEP = 32  # unroll of the main loop, elements
MIN_K_PER_SPLIT = 128
PARTIAL_SUM_BYTES = 4  # split-K partial sums are fp32
NORM = 6.0  # how sharply the slower of math and feed wins


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
    """Time of a GEMM alone, and how it fills the compute units in waves.

    Parameters
    ----------
    startup_s, body_s
        Launch and drain; the rest.
    fill
        Its work-groups over the compute units, not rounded.
    rounding
        Weight of whole waves against fractional ones, 0 to 1.
    """

    startup_s: float
    body_s: float
    fill: float
    rounding: float

    @property
    def time_s(self) -> float:
        """Start-up and body together."""
        return self.startup_s + self.body_s


def wave_efficiency(fill: float, rounding: float) -> float:
    """Share of the compute units that work-groups keep busy over all their waves, 0 to 1.

    Parameters
    ----------
    fill
        Work-groups over compute units, of one kernel or of several side by side.
    rounding
        See `GemmCost`.
    """
    return fill / (rounding * math.ceil(fill) + (1 - rounding) * max(fill, 1.0)) if fill > 0 else 0.0


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
    """

    def __init__(self, profile: GemmProfile, num_compute_units: int, gpu_name: str) -> None:
        self.profile = profile
        self.num_compute_units = num_compute_units
        self._gpu_name = gpu_name
        tiles = np.array(profile.tiles, dtype=np.float64)
        self._a, self._b = tiles[:, :1], tiles[:, 1:]
        self._splits = np.array(sorted(profile.splits), dtype=np.float64)
        self._inverse_sides = 1 / self._a + 1 / self._b
        self._known: dict[tuple[GemmShape, int], GemmCost] = {}
        self._measured = {(g.m, g.n, g.k, g.dtype): g.time_s for g in profile.measured}

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
            cost = self._known[key] = self._with_measured(shape, units)
        return cost

    def _with_measured(self, shape: GemmShape, units: int) -> GemmCost:
        """The formula, corrected by the table of measured shapes where it has this one."""
        cost = self._formula(shape, units)
        measured = self._measured.get((shape.m, shape.n, shape.k, shape.dtype))
        if measured is None or len(shape.entry_rows) > 1 or shape.accumulate:
            return cost
        whole = self._formula(shape, self.num_compute_units)
        # the table is of the whole gpu; fewer units slow it as they slow the formula
        body_s = max(measured - cost.startup_s, 0.0) * (cost.body_s / whole.body_s)
        return replace(cost, startup_s=min(cost.startup_s, measured), body_s=body_s)

    def _formula(self, shape: GemmShape, units: int) -> GemmCost:
        rates = self.rates(shape.dtype)
        in_bytes = DTYPE_BYTES[shape.dtype]
        out_bytes = DTYPE_BYTES[OUTPUT_DTYPE[shape.dtype]]
        m = float(shape.m)
        n, k = float(aligned(shape.n, shape.dtype)), float(aligned(shape.k, shape.dtype))
        a, b = self._a, self._b
        splits = self._splits
        splits = splits[(splits == 1) | (k / splits >= MIN_K_PER_SPLIT)]
        # tiles down the rows, entry by entry: entries share no tile
        row_tiles = sum(
            count * np.ceil(rows / a) for rows, count in _count_equal(shape.entry_rows).items()
        )
        groups = row_tiles * np.ceil(n / b) * splits
        fill = groups / units
        rounding = rates.wave_rounding
        waves = rounding * np.ceil(fill) + (1 - rounding) * np.maximum(fill, 1.0)
        k_part = np.ceil(k / splits / K_STEP) * K_STEP
        loop_s = 2 * a * b * k_part / rates.flops_per_s_per_unit
        loop_s = loop_s * (1 + rates.edge_elements * self._inverse_sides)
        feed_s = (a + b) * k_part * in_bytes * (self.num_compute_units / rates.feed_bytes_per_s)
        main_s = waves * (loop_s**NORM + feed_s**NORM) ** (1 / NORM)
        streams_s = m * n * out_bytes / rates.output_bytes_per_s
        streams_s += (m * k + n * k) * in_bytes / rates.input_bytes_per_s
        if shape.accumulate:
            streams_s += m * n * out_bytes / rates.input_bytes_per_s
        partial_s = rates.split_s + PARTIAL_SUM_BYTES * m * n * splits / rates.output_bytes_per_s
        body = main_s + waves * rates.wave_s + np.where(splits > 1, partial_s, 0.0)
        body -= rates.stream_overlap * np.minimum(main_s, streams_s)
        best = int(np.argmin(body))
        body_s = float(body.flat[best]) + streams_s
        return GemmCost(rates.startup_s, body_s, float(fill.flat[best]), rounding)


def _count_equal(entry_rows: tuple[int, ...]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for rows in entry_rows:
        counts[rows] = counts.get(rows, 0) + 1
    return counts

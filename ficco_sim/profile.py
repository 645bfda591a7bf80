"""A gpu: what its data sheet says, and the fitted parameters of its cost models.

Peaks and fitted values are different types. Formulas that use the parameters are in
`ficco_sim.costs`; values, each with its source, are in ``topologies/gpus``.
"""

import math
from dataclasses import dataclass, field, fields
from typing import ClassVar, Literal

from ficco_sim.errors import MachineError
from ficco_sim.workload import DTYPE_BYTES

__all__ = [
    "FIT_GROUPS",
    "MAX_REACH",
    "MIN_REACH",
    "ContentionProfile",
    "CopyProfile",
    "CoreCopyProfile",
    "Fit",
    "FitSource",
    "GemmProfile",
    "GemmRates",
    "Gpu",
    "GpuFile",
    "LaunchProfile",
    "LocalCopyProfile",
    "MeasuredGemm",
    "Profile",
    "check_numbers",
]

FIT_GROUPS = ("copy", "core_copy", "local_copy", "launch", "contention")
STRICT = {"extra": "forbid", "strict": True}
MAX_VALUE = 1e18
MAX_LATENCY_S = 1.0
MIN_REACH, MAX_REACH = 0.1, 100.0


def check_numbers(obj: object, *, may_be_zero: tuple[str, ...] = ()) -> None:
    """Refuse numeric fields of a dataclass that are not finite, positive and of possible size.

    Fields that end in ``_s`` are durations and at most a second. Those named in ``may_be_zero`` may
    be 0.

    Raises
    ------
    MachineError
        Naming the field, the value and the rule.
    """
    for f in fields(obj):  # type: ignore[arg-type]
        value = getattr(obj, f.name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        most = MAX_LATENCY_S if f.name.endswith("_s") and "_per_s" not in f.name else MAX_VALUE
        zero_ok = f.name in may_be_zero
        if not math.isfinite(value) or value > most or value < 0 or (value == 0 and not zero_ok):
            least = "0 or more" if zero_ok else "more than 0"
            raise MachineError(f"{f.name}: {value} must be {least} and at most {most:g}")


def _check_dtypes(name: str, keys: dict[str, object]) -> None:
    if not keys:
        raise MachineError(f"{name}: no element type is given")
    for key in keys:
        if key not in DTYPE_BYTES:
            raise MachineError(f"{name}: {key!r} is unknown; one of {', '.join(DTYPE_BYTES)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """Data-sheet facts of a gpu.

    Parameters
    ----------
    peak_flops_per_s
        Dense peak per element type.
    num_compute_units
        Compute units or streaming multiprocessors.
    hbm_bytes, hbm_bytes_per_s
        Memory size and peak bandwidth.
    num_dma_engines
        Engines that can serve copies from peers at the same time.
    """

    __pydantic_config__: ClassVar = STRICT
    name: str
    peak_flops_per_s: dict[str, float]
    num_compute_units: int
    hbm_bytes: float
    hbm_bytes_per_s: float
    num_dma_engines: int

    def __post_init__(self) -> None:
        check_numbers(self)
        _check_dtypes("peak_flops_per_s", dict(self.peak_flops_per_s))
        for dtype, value in self.peak_flops_per_s.items():
            if not 0 < value <= MAX_VALUE:
                raise MachineError(f"peak_flops_per_s.{dtype}: {value} must be more than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmRates:
    """Parameters of the GEMM model for one element type; formula in `ficco_sim.costs.gemm`.

    Parameters
    ----------
    startup_s
        Launch and drain of one kernel (t0).
    flops_per_s_per_unit
        Main-loop rate of a compute unit on an endlessly large tile (Pc).
    edge_elements
        Loss at tile edges: the loop takes ``1 + edge (1/a + 1/b)`` times as long (h).
    feed_bytes_per_s
        Operands from cache to all compute units together (BL).
    wave_s
        Fixed time of each wave of tiles (te).
    wave_rounding
        Weight of whole waves against fractional ones, 0 to 1 (lambda).
    input_bytes_per_s, output_bytes_per_s
        Streams of A and B from HBM, of C to HBM (BWi, BWo).
    stream_overlap
        Share of the shorter of main loop and streams that the longer one hides, 0 to 1.
    split_s
        Extra start-up of a split-K kernel (ts).
    clock_exponent
        The main loop's rates go with this power of the compute units' clock, 0 to 1: less than 1 where
        clocks are read before and after a kernel, and the gpu lowers them while it runs.
    """

    __pydantic_config__: ClassVar = STRICT
    startup_s: float
    flops_per_s_per_unit: float
    edge_elements: float
    feed_bytes_per_s: float
    wave_s: float
    wave_rounding: float
    input_bytes_per_s: float
    output_bytes_per_s: float
    stream_overlap: float
    split_s: float
    clock_exponent: float = 0.0

    def __post_init__(self) -> None:
        check_numbers(
            self,
            may_be_zero=(
                "startup_s",
                "edge_elements",
                "wave_s",
                "wave_rounding",
                "stream_overlap",
                "split_s",
                "clock_exponent",
            ),
        )
        for name in ("wave_rounding", "stream_overlap", "clock_exponent"):
            if getattr(self, name) > 1:
                raise MachineError(f"{name}: {getattr(self, name)} must be at most 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredGemm:
    """A measured time of one shape; it wins over the formula where the shape is the same.

    Parameters
    ----------
    m
        Rows of all entries of a batch together.
    entries, accumulate
        Of a batched GEMM; whether it adds to its output.
    sm_clock_hz
        The clock that was read round the measurement; None if none was.
    """

    __pydantic_config__: ClassVar = STRICT
    m: int
    n: int
    k: int
    dtype: str
    time_s: float
    entries: int = 1
    accumulate: bool = False
    sm_clock_hz: float | None = None

    def __post_init__(self) -> None:
        check_numbers(self)
        _check_dtypes("dtype", {self.dtype: None})
        if self.m % self.entries:
            raise MachineError(f"entries: {self.entries} must divide the {self.m} rows")


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmProfile:
    """Macro tiles and split-K factors that the library may pick, and rates per element type.

    Parameters
    ----------
    measured
        Times of shapes, which win over the formula.
    measured_file
        A CSV file beside the gpu's file with more of them; read into ``measured`` with the gpu.
    correction_reach
        How far measured shapes correct the formula for others, in octaves of m, n and k, from 0.1 to
        100; 0: not at all.
    sm_clock_hz
        Clock of the compute units that the rates belong to; None where it is not known.
    """

    __pydantic_config__: ClassVar = STRICT
    tiles: tuple[tuple[int, int], ...]
    splits: tuple[int, ...]
    rates: dict[str, GemmRates]
    measured: tuple[MeasuredGemm, ...] = ()
    measured_file: str = ""
    correction_reach: float = 0.0
    sm_clock_hz: float | None = None

    def __post_init__(self) -> None:
        check_numbers(self, may_be_zero=("correction_reach",))
        if self.correction_reach and not MIN_REACH <= self.correction_reach <= MAX_REACH:
            raise MachineError(
                f"correction_reach: {self.correction_reach} must be 0 or from {MIN_REACH:g} to "
                f"{MAX_REACH:g} octaves"
            )
        _check_dtypes("rates", dict(self.rates))
        if not self.tiles:
            raise MachineError("tiles: at least one is needed")
        for tile in self.tiles:
            if not all(1 <= side <= 4096 for side in tile):
                raise MachineError(f"tiles: {list(tile)} must have sides from 1 to 4096")
        if 1 not in self.splits or not all(1 <= s <= 1024 for s in self.splits):
            raise MachineError(f"splits: {list(self.splits)} must hold 1 and lie within 1 to 1024")


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyProfile:
    """Copies between gpus by a DMA engine.

    Parameters
    ----------
    setup_s, completion_s
        Per command, before and after its bytes; the engine is taken all the while.
    engine_bytes_per_s
        Most that one engine moves.
    native_2d
        Whether engines copy strided rows. If not, a 2d copy costs as much as a 1d copy of the same
        size and every result that holds one is labelled emulated.
    row_overhead_bytes
        A 2d copy runs at ``row / (row + row_overhead + gap_share * gap)`` of the rate, row being the
        bytes of a row and gap those between two rows, at the end where they are further apart.
    gap_share
        See there, 0 to 1: what skipped bytes cost of moved ones.
    signal_s
        From the end of a copy until tasks on other queues can know of it, events aside. The engine
        goes on with the next copy meanwhile.
    queue_s
        The engine is taken so much longer by the first copy of each queue, but for a gpu's first one:
        to change over to it.
    tick_s, first_tick_s
        Ends of copies are seen at ticks only: at the first one at or after the end, and ``signal_s``
        later. Ticks are ``first_tick_s + i * tick_s`` (i = 0, 1, ...) after the engine began, having
        been idle. A ``tick_s`` of 0: ends are seen at once.
    """

    __pydantic_config__: ClassVar = STRICT
    setup_s: float
    completion_s: float
    engine_bytes_per_s: float
    native_2d: bool
    row_overhead_bytes: float
    gap_share: float = 0.0
    signal_s: float = 0.0
    queue_s: float = 0.0
    tick_s: float = 0.0
    first_tick_s: float = 0.0

    def __post_init__(self) -> None:
        times = ("setup_s", "completion_s", "signal_s", "queue_s", "tick_s", "first_tick_s")
        check_numbers(self, may_be_zero=(*times, "row_overhead_bytes", "gap_share"))
        if self.gap_share > 1:
            raise MachineError(f"gap_share: {self.gap_share} must be at most 1")
        if self.first_tick_s and not self.tick_s:
            raise MachineError(f"first_tick_s: {self.first_tick_s} must be 0 where tick_s is 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreCopyProfile:
    """Copies between gpus by a kernel on compute units.

    Parameters
    ----------
    compute_units
        Units taken from GEMMs while such copies are in progress.
    setup_s
        Per copy, before its bytes.
    bytes_per_s
        Most that the copy kernels of one gpu receive together.
    slowdown_beside_gemm
        How many times slower they are while a GEMM runs on the gpu, 1 or more.
    """

    __pydantic_config__: ClassVar = STRICT
    compute_units: int
    setup_s: float
    bytes_per_s: float
    slowdown_beside_gemm: float

    def __post_init__(self) -> None:
        check_numbers(self, may_be_zero=("setup_s",))
        if self.slowdown_beside_gemm < 1:
            raise MachineError(f"slowdown_beside_gemm: {self.slowdown_beside_gemm} must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCopyProfile:
    """Copies within a gpu's memory by a kernel; the rate counts bytes read plus bytes written."""

    __pydantic_config__: ClassVar = STRICT
    startup_s: float
    bytes_per_s: float

    def __post_init__(self) -> None:
        check_numbers(self, may_be_zero=("startup_s",))


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchProfile:
    """Time between tasks.

    Parameters
    ----------
    queue_gap_s
        Between the end of a kernel and the start of the next on its queue.
    event_wait_s
        Between the end of a task and the start of one on another queue that waited for it.
    graph_submit_s, eager_submit_s
        Host time to submit one task, as part of a captured graph or from Python.
    """

    __pydantic_config__: ClassVar = STRICT
    queue_gap_s: float
    event_wait_s: float
    graph_submit_s: float
    eager_submit_s: float

    def __post_init__(self) -> None:
        check_numbers(
            self, may_be_zero=("queue_gap_s", "event_wait_s", "graph_submit_s", "eager_submit_s")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentionProfile:
    """How much longer a GEMM takes per unit of copy traffic over HBM bandwidth.

    With x the bytes/s that copies bring in over the HBM bandwidth, a GEMM takes ``1 + dma_in x``
    times as long; likewise for traffic out, and for core-driven copies beyond the compute units
    that they take.
    """

    __pydantic_config__: ClassVar = STRICT
    dma_in: float
    dma_out: float
    core_in: float
    core_out: float

    def __post_init__(self) -> None:
        check_numbers(self, may_be_zero=("dma_in", "dma_out", "core_in", "core_out"))


@dataclass(frozen=True, slots=True, kw_only=True)
class FitSource:
    """A file that parameters were fitted to."""

    __pydantic_config__: ClassVar = STRICT
    file: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How a group of parameters was fitted, and how far it can be trusted.

    Parameters
    ----------
    num_points
        Measurements that it was fitted to.
    median_error, mean_error, p90_error
        Of ``abs(predicted / measured - 1)``, over points that were left out of the fit if
        ``held_out``.
    valid
        Smallest and largest value of each quantity among the points: ``m``, ``n``, ``k``, ``nbytes``.
    samples
        Draws of each parameter from what the fit leaves open, all of equal number and drawn
        together; none if that is not known.
    """

    __pydantic_config__: ClassVar = STRICT
    sources: tuple[FitSource, ...]
    date: str
    regime: Literal["sustained", "burst", "mixed"]
    device: str = ""
    driver: str = ""
    library: str = ""
    num_points: int
    median_error: float
    mean_error: float
    p90_error: float
    held_out: bool
    valid: dict[str, tuple[float, float]] = field(default_factory=dict)
    samples: dict[str, tuple[float, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.num_points < 1:
            raise MachineError(f"num_points: {self.num_points} must be at least 1")
        for name in ("median_error", "mean_error", "p90_error"):
            if not 0 <= getattr(self, name) < math.inf:
                raise MachineError(f"{name}: {getattr(self, name)} must be 0 or more")
        for name, (least, most) in self.valid.items():
            if not least <= most:
                raise MachineError(f"valid.{name}: {least} must be at most {most}")
        if len({len(draws) for draws in self.samples.values()}) > 1:
            raise MachineError("samples: all parameters must have the same number of draws")

    @property
    def num_samples(self) -> int:
        """Number of draws; 0 if there are none."""
        return len(next(iter(self.samples.values()), ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Fitted parameters of a gpu, by cost model, and the regime in which they were measured.

    Parameters
    ----------
    fits
        By group of parameters: ``gemm.bf16`` and other types, ``copy``, ``core_copy``,
        ``local_copy``, ``launch``, ``contention``. Groups that are not here were not fitted.
    """

    __pydantic_config__: ClassVar = STRICT
    regime: Literal["sustained", "burst", "mixed"]
    date: str
    gemm: GemmProfile
    copy: CopyProfile
    core_copy: CoreCopyProfile
    local_copy: LocalCopyProfile
    launch: LaunchProfile
    contention: ContentionProfile
    fits: dict[str, Fit] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.fits:
            if name not in FIT_GROUPS and name.removeprefix("gemm.") not in self.gemm.rates:
                raise MachineError(
                    f"fits: {name!r} is unknown; one of {', '.join(FIT_GROUPS)}, gemm.DTYPE"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFile:
    """The content of a file in ``topologies/gpus``; ``sources`` says where each number is from."""

    __pydantic_config__: ClassVar = STRICT
    format_version: Literal[1]
    gpu: Gpu
    profile: Profile
    sources: dict[str, str]

    def __post_init__(self) -> None:
        units = self.profile.core_copy.compute_units
        if units >= self.gpu.num_compute_units:
            raise MachineError(
                f"profile.core_copy.compute_units: {units} must be fewer than the gpu's "
                f"{self.gpu.num_compute_units}"
            )

"""What each task costs alone, and how tasks slow each other: a profile turned into functions.

Layers above ask a `CostModel`; formulas of GEMMs are in `ficco_sim.costs.gemm`, what is not known of
the costs is in `ficco_sim.costs.uncertainty`.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from ficco_sim.costs.gemm import GemmCost, GemmModel, GemmShape
from ficco_sim.costs.ticks import seen_s
from ficco_sim.costs.uncertainty import drawn_machine, gemm_errors
from ficco_sim.errors import ScenarioError
from ficco_sim.machine import Machine
from ficco_sim.plan import Gemm
from ficco_sim.workload import Workload

__all__ = [
    "MOST_CLOCK_RATIO",
    "CopyCost",
    "CostKind",
    "CostModel",
    "GemmCost",
    "GemmShape",
    "Submission",
]

CostKind: TypeAlias = Literal["profile", "ideal"]
Submission: TypeAlias = Literal["graph", "eager"]

MOST_CLOCK_RATIO = 3.0  # beyond, a clock is rather a mistaken unit


@dataclass(frozen=True, slots=True)
class CopyCost:
    """A copy between gpus: seconds before and after its bytes, and the most it can move in bytes/s.

    ``emulated`` marks a strided copy on a gpu whose DMA engines have none.
    """

    setup_s: float
    completion_s: float
    bytes_per_s: float
    emulated: bool = False


class CostModel:
    """Costs of tasks on one machine.

    Parameters
    ----------
    machine
        Its gpu's profile has the parameters.
    kind
        ``profile``; or ``ideal``: no contention, no decomposition loss (parts of a GEMM take exactly
        their share of the whole), no cost of commands, local copies and submission, so that only
        links and dependencies count.
    submission
        ``graph``: plans are captured. ``eager``: each gpu's host thread submits task by task.
    draw
        Number of a draw of what the fits leave open, instead of the fitted values; see
        `ficco_sim.costs.uncertainty`. Its links differ too: simulate on the model's ``machine``.
    sm_clock_hz
        Clock of the compute units; unless given, see `ficco_sim.costs.gemm`.

    Raises
    ------
    ScenarioError
        If an argument is unknown, a draw of ideal costs is asked for, or a clock of a machine whose
        rates do not say at which clock they hold.
    """

    def __init__(
        self,
        machine: Machine,
        kind: CostKind = "profile",
        submission: Submission = "graph",
        *,
        draw: int | None = None,
        sm_clock_hz: float | None = None,
    ) -> None:
        if kind not in ("profile", "ideal"):
            raise ScenarioError(f"costs: {kind!r} must be profile or ideal")
        if submission not in ("graph", "eager"):
            raise ScenarioError(f"submission: {submission!r} must be graph or eager")
        error = None
        if draw is not None:
            if kind == "ideal" or draw < 0:
                raise ScenarioError(f"draw: {draw} must be 0 or more, and ideal costs have none")
            error = gemm_errors(machine.profile.fits, draw)
            machine = drawn_machine(machine, draw)
        self.machine = machine
        self.profile = machine.profile
        self.kind = kind
        self.submission = submission
        self.ideal = kind == "ideal"
        if sm_clock_hz is not None:
            _check_clock(sm_clock_hz, machine)
        self.sm_clock_hz = sm_clock_hz
        self.gemm_model = GemmModel(
            machine.profile.gemm,
            machine.gpu.num_compute_units,
            machine.gpu.name,
            error,
            sm_clock_hz,
        )
        launch = machine.profile.launch
        per_task = launch.eager_submit_s if submission == "eager" else launch.graph_submit_s
        self.submit_s = 0.0 if self.ideal else per_task
        self.queue_gap_s = 0.0 if self.ideal else launch.queue_gap_s
        self.event_wait_s = 0.0 if self.ideal else launch.event_wait_s
        self.signal_s = 0.0 if self.ideal else machine.profile.copy.signal_s
        self.queue_s = 0.0 if self.ideal else machine.profile.copy.queue_s
        self.tick_s = 0.0 if self.ideal else machine.profile.copy.tick_s
        self.first_tick_s = 0.0 if self.ideal else machine.profile.copy.first_tick_s

    def whole_gemm(self, workload: Workload) -> GemmCost:
        """The workload's GEMM on one gpu, uncut."""
        return self.gemm_model.cost(GemmShape((workload.m,), workload.n, workload.k, workload.dtype))

    def gemm(self, task: Gemm, workload: Workload, compute_units: int | None = None) -> GemmCost:
        """A GEMM task alone on some of the compute units (all, unless given)."""
        shape = gemm_shape(task, workload.dtype)
        if self.ideal:
            share = shape.flops / workload.flops
            return GemmCost(0.0, self.whole_gemm(workload).time_s * share, busy=1.0)
        return self.gemm_model.cost(shape, compute_units)

    def local_copy_s(self, num_bytes: int, *, accumulate: bool = False) -> tuple[float, float]:
        """Start-up and body of a kernel that copies, or adds, ``num_bytes`` within a gpu's memory."""
        if self.ideal:
            return 0.0, 0.0
        model = self.profile.local_copy
        passes = 3 if accumulate else 2  # an addition reads its target too
        return model.startup_s, passes * num_bytes / model.bytes_per_s

    def copy(self, engine: str, *, row_bytes: int, strided: bool, gap_bytes: int = 0) -> CopyCost:
        """A copy between gpus on an engine.

        Parameters
        ----------
        engine
            ``dma`` or ``core``; for core the rate is that of all such copies into a gpu.
        row_bytes
            Bytes of each contiguous row; matters for strided copies by DMA.
        strided
            Whether rows are apart in memory (a 2d copy).
        gap_bytes
            Bytes between two rows, at the end where they are further apart.
        """
        if engine == "core":
            core = self.profile.core_copy
            if self.ideal:
                return CopyCost(0.0, 0.0, float("inf"))
            return CopyCost(core.setup_s, 0.0, core.bytes_per_s)
        dma = self.profile.copy
        emulated = strided and not dma.native_2d
        if self.ideal:
            return CopyCost(0.0, 0.0, float("inf"), emulated)
        rate = dma.engine_bytes_per_s
        if strided and not emulated:
            lost_bytes = dma.row_overhead_bytes + dma.gap_share * gap_bytes
            rate *= row_bytes / (row_bytes + lost_bytes)
        return CopyCost(dma.setup_s, dma.completion_s, rate, emulated)

    def known_after_s(self, busy_s: float) -> float:
        """From the end of a copy by DMA until who waits for it can know, events aside.

        Parameters
        ----------
        busy_s
            The end, from when the engine began, having been idle.
        """
        return float(seen_s(busy_s, self.first_tick_s, self.tick_s) - busy_s) + self.signal_s


def _check_clock(sm_clock_hz: float, machine: Machine) -> None:
    reference_hz = machine.profile.gemm.sm_clock_hz
    if reference_hz is None:
        raise ScenarioError(
            f"sm_clock_hz: the GEMM rates of {machine.gpu.name} do not say at which clock they hold: "
            "calibrate it from records that do"
        )
    if not reference_hz / MOST_CLOCK_RATIO <= sm_clock_hz <= reference_hz * MOST_CLOCK_RATIO:
        raise ScenarioError(
            f"sm_clock_hz: {sm_clock_hz} must be within {MOST_CLOCK_RATIO:g} times of the "
            f"{reference_hz:.4g} that the rates of {machine.gpu.name} hold at"
        )


def gemm_shape(task: Gemm, dtype: str) -> GemmShape:
    """Shape of a GEMM task for the cost model."""
    k, n = task.b.shape
    return GemmShape(task.entry_rows, n, k, dtype, task.accumulate)

"""Kernels in progress on one gpu: they share its compute units and HBM, and copies slow them."""

from collections.abc import Callable

from simpy import Event

from ficco_sim.costs import CostModel
from ficco_sim.sim.activity import Activity, Settler

MIN_HBM_SHARE = 0.05  # of HBM bandwidth that copies can never take from kernels


class Kernel(Activity):
    """The body of a GEMM or local copy, in seconds alone.

    Attributes
    ----------
    busy
        Share of the compute units that it keeps busy alone, see `GemmCost`; none by a copy kernel.
    hbm_bytes_per_s
        HBM traffic when alone.
    fewer_units
        Times as long without the units that core-driven copies take.
    """

    __slots__ = ("busy", "fewer_units", "gpu", "hbm_bytes_per_s", "is_gemm")

    def __init__(
        self,
        *,
        body_s: float,
        done: Event,
        now_s: float,
        gpu: int,
        is_gemm: bool,
        busy: float,
        hbm_bytes_per_s: float,
        fewer_units: float,
    ) -> None:
        super().__init__(body_s, done, now_s)
        self.gpu = gpu
        self.is_gemm = is_gemm
        self.busy = busy
        self.hbm_bytes_per_s = hbm_bytes_per_s
        self.fewer_units = fewer_units


class ComputeUnits:
    """All kernels in progress on all gpus; sets their rates anew where something changed.

    Parameters
    ----------
    traffic
        Bytes/s of copies into and out of a gpu, see `FlowNetwork.traffic`.
    compute_changed
        Called when a gpu begins or ceases to run GEMMs.
    """

    def __init__(
        self,
        num_gpus: int,
        costs: CostModel,
        settler: Settler,
        traffic: Callable[[int], tuple[float, float, float, float]],
        compute_changed: Callable[[int], None],
    ) -> None:
        self._settler = settler
        self._traffic = traffic
        self._compute_changed = compute_changed
        self._contention = costs.profile.contention
        self._hbm_bytes_per_s = costs.machine.gpu.hbm_bytes_per_s
        self._ideal = costs.ideal
        self._active: list[dict[Kernel, None]] = [{} for _ in range(num_gpus)]
        self._mixes: list[_Mix | None] = [None] * num_gpus
        self._num_gemms = [0] * num_gpus
        self._dirty: dict[int, None] = {}

    def computing(self, gpu: int) -> bool:
        """Whether a GEMM is in progress on a gpu."""
        return self._num_gemms[gpu] > 0

    def start(self, kernel: Kernel) -> None:
        """Begin the body of a kernel."""
        self._active[kernel.gpu][kernel] = None
        self._mixes[kernel.gpu] = None
        self._dirty[kernel.gpu] = None
        if kernel.is_gemm:
            self._num_gemms[kernel.gpu] += 1
            if self._num_gemms[kernel.gpu] == 1:
                self._compute_changed(kernel.gpu)
        self._settler.touch()

    def ended(self, activity: Activity) -> None:
        """Take away a kernel that has ended."""
        if not isinstance(activity, Kernel):
            return
        gpu = activity.gpu
        del self._active[gpu][activity]
        self._mixes[gpu] = None
        self._dirty[gpu] = None
        if activity.is_gemm:
            self._num_gemms[gpu] -= 1
            if self._num_gemms[gpu] == 0:
                self._compute_changed(gpu)
        self._settler.touch()

    def traffic_changed(self, gpu: int) -> None:
        """Copies into or out of a gpu have changed their rate."""
        if not self._ideal:
            self._dirty[gpu] = None

    def settle(self, now_s: float) -> None:
        """Set the rates of the kernels on gpus where something changed."""
        dirty, self._dirty = self._dirty, {}
        for gpu in dirty:
            if self._active[gpu]:
                self._settle_gpu(gpu, now_s)

    def _settle_gpu(self, gpu: int, now_s: float) -> None:
        kernels = self._active[gpu]
        mix = self._mixes[gpu]
        if mix is None:
            mix = self._mixes[gpu] = _Mix(kernels)
        share = mix.share
        set_rate = self._settler.set_rate
        if self._ideal:
            for kernel in kernels:
                kernel.advance(now_s)
                set_rate(kernel, share, share)
            return
        dma_in, dma_out, core_in, core_out = self._traffic(gpu)
        hbm = self._hbm_bytes_per_s
        slopes = self._contention
        copies = dma_in + dma_out + core_in + core_out
        slower = (
            1.0
            + (
                slopes.dma_in * dma_in
                + slopes.dma_out * dma_out
                + slopes.core_in * core_in
                + slopes.core_out * core_out
            )
            / hbm
        )
        alone = share * min(1.0, hbm / mix.hbm_bytes_per_s) if mix.hbm_bytes_per_s > 0.0 else share
        gemm_pace = share / slower
        if core_in > 0.0:
            wanted = sum(
                k.hbm_bytes_per_s * (gemm_pace / k.fewer_units if k.is_gemm else share) for k in kernels
            )
        else:
            wanted = mix.gemm_hbm * gemm_pace + mix.copy_hbm * share
        free = max(hbm - copies, hbm * MIN_HBM_SHARE)
        fit = min(1.0, free / wanted) if wanted > 0.0 else 1.0
        for kernel in kernels:
            kernel.advance(now_s)
            pace = share
            if kernel.is_gemm:
                pace = gemm_pace / kernel.fewer_units if core_in > 0.0 else gemm_pace
            rate = pace * fit
            set_rate(kernel, rate, max(rate, alone))


class _Mix:
    """What the kernels of a gpu want together; changes only as they come and go.

    Attributes
    ----------
    share
        Pace of each, of its pace alone, before contention with copies.
    gemm_hbm, copy_hbm
        HBM traffic of GEMMs and of copy kernels, each at its pace alone, in bytes/s.
    hbm_bytes_per_s
        Both at the share.
    """

    __slots__ = ("copy_hbm", "gemm_hbm", "hbm_bytes_per_s", "share")

    def __init__(self, kernels: dict[Kernel, None]) -> None:
        self.share = _share(kernels)
        self.gemm_hbm = sum(k.hbm_bytes_per_s for k in kernels if k.is_gemm)
        self.copy_hbm = sum(k.hbm_bytes_per_s for k in kernels if not k.is_gemm)
        self.hbm_bytes_per_s = (self.gemm_hbm + self.copy_hbm) * self.share


def _share(kernels: dict[Kernel, None]) -> float:
    """Pace of kernels side by side, of their pace alone.

    The units that one leaves idle in its last wave run work-groups of the others, also of those that
    come next on their queues, so that no waves of the sum are counted.
    """
    busy = sum(kernel.busy for kernel in kernels)
    if len(kernels) == 1 or busy <= 1.0:
        return 1.0
    num_gemms = sum(kernel.is_gemm for kernel in kernels)
    # side by side is never slower than one after another
    return max(1.0 / busy, 1.0 / num_gemms)

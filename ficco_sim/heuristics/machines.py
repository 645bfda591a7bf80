"""What rules may know of a machine: computed once for each, so that a pick takes microseconds."""

import math
from dataclasses import dataclass, field, replace

from ficco_sim.errors import MachineError
from ficco_sim.machine import Machine
from ficco_sim.profile import GemmRates
from ficco_sim.routing import Routes, all_gather_bound
from ficco_sim.workload import DTYPE_BYTES

__all__ = ["DtypeFeatures", "MachineFeatures", "dtype_features", "machine_features"]

MAX_KEPT = 64
MAX_ROUTED_GPUS = 64  # routes between all pairs of more gpus would take seconds
NORM = 6.0  # as in `ficco_sim.costs.gemm`: how sharply the slower of math and feed wins


@dataclass(frozen=True, slots=True, kw_only=True)
class DtypeFeatures:
    """GEMM rates of a gpu for one element type.

    Parameters
    ----------
    peak_flops_per_s
        Of the data sheet.
    sustained_flops_per_s
        What the profile's main loop reaches on its best macro tile with no wave cut short.
    tile
        Rows and columns of that macro tile.
    startup_s
        Launch and drain of a kernel.
    """

    peak_flops_per_s: float
    sustained_flops_per_s: float
    tile: tuple[int, int]
    startup_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFeatures:
    """A machine in a few numbers; rates are what one gpu receives while all gpus do the same.

    Parameters
    ----------
    gather_bytes_per_s
        From all peers at once, everybody's shard to everybody: the sum of a gpu's links on a mesh,
        its port at a switch. Where gpus relay, the bound of the tightest cut
        (`ficco_sim.routing.all_gather_bound`), which forwarding chunk by chunk comes close to.
    exchange_bytes_per_s
        The same with different bytes for each peer: the load of shortest paths on the fullest link.
    peer_bytes_per_s
        From one peer after another, mean over the steps of ``shard-p2p``.
    next_bytes_per_s
        From the next gpu only, as ``shard-ring`` does.
    copy_command_s
        Set-up and completion of one copy by a DMA engine.
    num_dma_engines
        Copies that a gpu receives side by side.
    queue_gap_s, event_wait_s
        Between kernels of a queue; after a task on another queue.
    local_copy_bytes_per_s
        Bytes read plus written by a copy within a gpu.
    """

    name: str
    num_gpus: int
    num_compute_units: int
    hbm_bytes_per_s: float
    gather_bytes_per_s: float
    exchange_bytes_per_s: float
    peer_bytes_per_s: float
    next_bytes_per_s: float
    copy_command_s: float
    num_dma_engines: int
    queue_gap_s: float
    event_wait_s: float
    local_copy_bytes_per_s: float
    dtypes: dict[str, DtypeFeatures] = field(default_factory=dict)


# a machine holds dicts and cannot be hashed; it is kept, so that its id stays its own
_known: dict[int, tuple[Machine, MachineFeatures]] = {}


def machine_features(machine: Machine) -> MachineFeatures:
    """Features of a machine, computed the first time and kept for the last `MAX_KEPT` machines.

    Raises
    ------
    MachineError
        If no path joins two of its gpus.
    """
    found = _known.get(id(machine))
    if found is not None:
        return found[1]
    features = _compute(machine)
    while len(_known) >= MAX_KEPT:
        del _known[next(iter(_known))]
    _known[id(machine)] = (machine, features)
    return features


def _compute(machine: Machine) -> MachineFeatures:
    copy, launch = machine.profile.copy, machine.profile.launch
    rates = _Rates(machine)
    one = copy.engine_bytes_per_s
    many = machine.gpu.num_dma_engines * rates.by_one_engine(one)
    return MachineFeatures(
        name=machine.name,
        num_gpus=machine.num_gpus,
        num_compute_units=machine.gpu.num_compute_units,
        hbm_bytes_per_s=machine.gpu.hbm_bytes_per_s,
        gather_bytes_per_s=min(many, rates.gather()),
        exchange_bytes_per_s=min(many, rates.exchange()),
        peer_bytes_per_s=min(one, rates.peer()),
        next_bytes_per_s=min(one, rates.next()),
        copy_command_s=copy.setup_s + copy.completion_s,
        num_dma_engines=machine.gpu.num_dma_engines,
        queue_gap_s=launch.queue_gap_s,
        event_wait_s=launch.event_wait_s,
        local_copy_bytes_per_s=machine.profile.local_copy.bytes_per_s,
        dtypes={
            dtype: _dtype_features(machine, dtype, rates_of)
            for dtype, rates_of in machine.profile.gemm.rates.items()
            if dtype in machine.gpu.peak_flops_per_s
        },
    )


def _dtype_features(machine: Machine, dtype: str, rates: GemmRates) -> DtypeFeatures:
    """The main loop of `ficco_sim.costs.gemm.body_times` per element of k, on the best tile."""
    units = machine.gpu.num_compute_units

    def rate(tile: tuple[int, int]) -> float:
        a, b = tile
        loop_s = 2 * a * b / rates.flops_per_s_per_unit * (1 + rates.edge_elements * (1 / a + 1 / b))
        feed_s = (a + b) * DTYPE_BYTES[dtype] * units / rates.feed_bytes_per_s
        return float(units * 2 * a * b / (loop_s**NORM + feed_s**NORM) ** (1 / NORM))

    best = max(machine.profile.gemm.tiles, key=rate)
    return DtypeFeatures(
        peak_flops_per_s=machine.gpu.peak_flops_per_s[dtype],
        sustained_flops_per_s=rate(best),
        tile=best,
        startup_s=rates.startup_s,
    )


class _Rates:
    """What each gpu of a machine receives per second in a few patterns, by the load on its links."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.num_gpus = machine.num_gpus
        routes = Routes(machine)
        p = self.num_gpus
        # all pairs of a large machine take long, and those of gpu 0 tell the same
        sources = range(p) if p <= MAX_ROUTED_GPUS else range(1)
        self.relays = not all(routes.direct(g, h) for g in sources for h in range(p) if g != h)
        # relayed data takes shortest paths as routed data does
        self.routes = Routes(replace(machine, hardware_routing=True)) if self.relays else routes

    def gather(self) -> float:
        """Of an all-gather."""
        if self.relays and not self.machine.switches and self.num_gpus > 1:
            shards = [1.0] * self.num_gpus
            return (self.num_gpus - 1) / all_gather_bound(self.machine, shards).time_s
        return self.exchange()

    def exchange(self) -> float:
        """Of everything from everywhere at once."""
        p = self.num_gpus
        if self.machine.family in ("full_mesh", "switch") or p <= MAX_ROUTED_GPUS:
            if self.machine.family == "full_mesh":
                into = [0.0] * p
                for link in self.machine.links:
                    into[link.dst] += link.usable_bytes_per_s
                return min(into) if p > 1 else math.inf
            if self.machine.family == "switch":
                return min((x.usable_bytes_per_s for x in self.machine.links), default=math.inf)
            return self._rate([(g, h) for g in range(p) for h in range(p) if g != h])
        # mean load over all links: right where all gpus see the same machine
        crossed = sum(sum(self.routes(0, h).shares) for h in range(1, p))
        return (p - 1) * sum(x.usable_bytes_per_s for x in self.machine.links) / (p * crossed)

    def by_one_engine(self, engine_bytes_per_s: float) -> float:
        """Of copies one after another from all gpus that need no relay; at the slowest gpu."""
        direct = Routes(self.machine).direct
        slowest = engine_bytes_per_s
        for g in range(self.num_gpus if self.num_gpus <= MAX_ROUTED_GPUS else 1):
            peers = [h for h in range(self.num_gpus) if h != g and direct(h, g)]
            times = [1 / min(engine_bytes_per_s, self._alone(h, g)) for h in peers]
            slowest = min(slowest, len(peers) / sum(times)) if peers else slowest
        return slowest

    def _alone(self, src: int, dst: int) -> float:
        route = self.routes(src, dst)
        links = self.machine.links
        return min(
            links[i].usable_bytes_per_s / x for i, x in zip(route.links, route.shares, strict=True)
        )

    def peer(self) -> float:
        """Of step after step, each from one peer."""
        p = self.num_gpus
        if p == 1:
            return math.inf
        steps = range(1, p) if p <= MAX_ROUTED_GPUS else [1, p // 3, p // 2]
        return len(steps) / sum(1 / self._step(step) for step in steps)

    def next(self) -> float:
        """Of the step that receives from the next gpu."""
        return self._step(1) if self.num_gpus > 1 else math.inf

    def _step(self, step: int) -> float:
        p = self.num_gpus
        return self._rate([((g + step) % p, g) for g in range(p)])

    def _rate(self, pairs: list[tuple[int, int]]) -> float:
        """Bytes/s of each gpu if all pairs move as much and the fullest link sets the time."""
        load: dict[int, float] = {}
        for src, dst in pairs:
            route = self.routes(src, dst)
            for link, share in zip(route.links, route.shares, strict=True):
                load[link] = load.get(link, 0.0) + share
        if not load:
            return math.inf
        time_s = max(x / self.machine.links[i].usable_bytes_per_s for i, x in load.items())
        received = len(pairs) / self.num_gpus
        return received / time_s


def dtype_features(features: MachineFeatures, dtype: str) -> DtypeFeatures:
    """GEMM rates for an element type.

    Raises
    ------
    MachineError
        If the gpu's file has no rates or no peak for it.
    """
    found = features.dtypes.get(dtype)
    if found is None:
        raise MachineError(
            f"{features.name}: no GEMM rates for {dtype!r}; it has {', '.join(features.dtypes)}"
        )
    return found

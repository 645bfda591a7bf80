"""Makespans of all schedules in closed form, from a machine's fitted costs; nothing is simulated.

Shape legend: m rows of the gathered A, p gpus, c chunks of each shard; a step brings one chunk of every
peer. One gpu stands for all, pieces are equal, and steps arrive one step time apart. What is left out:
who waits for whom on shared links beyond their bandwidth, and uneven cuts.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ficco_sim.costs import CostModel
from ficco_sim.costs.gemm import GemmCost, GemmShape
from ficco_sim.grid import Grid
from ficco_sim.heuristics.machines import machine_features
from ficco_sim.heuristics.timeline import Overlap
from ficco_sim.machine import Machine
from ficco_sim.routing import Routes
from ficco_sim.workload import DTYPE_BYTES, OUTPUT_DTYPE, Workload

__all__ = ["Estimate", "estimate_makespans"]

MAX_KEPT = 64
QUEUES = Grid().compute_queues
FORWARDED_LOSS, FORWARDED_DELAY, FORWARDED_FIRST, SHARDS_FIRST = 1.15, 3.0, 0.85, 0.7
"""Of gathers that gpus forward, in simulations of rings, tori and a hypercube: total time over that of
the tightest cut; the first step takes ``1 + (hops - 1) / 3`` steps, at most 0.85 of it all; of whole
shards the nearest arrives after 0.7 of it all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One plan, copies by DMA engines, and how long it probably takes."""

    schedule: str
    num_chunks: int | None
    compute_queues: int | None
    makespan_s: float


class _Place:
    """What a machine costs, whatever the workload."""

    def __init__(self, machine: Machine) -> None:
        rates = machine_features(machine)
        copy, contention = machine.profile.copy, machine.profile.contention
        self.num_gpus = machine.num_gpus
        self.engines = machine.gpu.num_dma_engines
        self.copy = copy
        self.local = machine.profile.local_copy
        self.costs = CostModel(machine)
        self.gemms = self.costs.gemm_model
        self.rates = rates
        latency_s = max((link.latency_s for link in machine.links), default=0.0)
        hops = 2 if machine.switches else 1
        self.command_s = copy.setup_s + copy.completion_s + hops * latency_s
        self.hops = _most_hops(machine)
        self.turns = math.ceil((self.num_gpus - 1) / self.engines)  # in which engines serve the peers
        self.step_command_s = self.turns * self.command_s * (self.hops + 1) / 2  # of the mean way
        # an engine changes over to each of its queues once, but for the first
        self.opening_s = math.ceil((self.num_gpus - 2) / self.engines) * copy.queue_s
        # of a burst of copies, which end anywhere between ticks
        self.known_s = copy.signal_s + copy.tick_s / 2 + rates.event_wait_s
        self.gap_s = rates.queue_gap_s
        self.slopes = (contention.dma_in + contention.dma_out) / rates.hbm_bytes_per_s


def _most_hops(machine: Machine) -> float:
    """Links that data crosses from the farthest gpu to gpu 0 where gpus forward it; else 1."""
    peers = range(1, machine.num_gpus)
    routes = Routes(machine)
    if all(routes.direct(peer, 0) for peer in peers):
        return 1.0
    forwarded = Routes(replace(machine, hardware_routing=True))
    return max(sum(forwarded(peer, 0).shares) for peer in peers)


# a machine cannot be hashed; it is kept, so that its id stays its own
_known: dict[int, tuple[Machine, _Place]] = {}


def _place_of(machine: Machine) -> _Place:
    found = _known.get(id(machine))
    if found is None:
        while len(_known) >= MAX_KEPT:
            del _known[next(iter(_known))]
        found = _known[id(machine)] = (machine, _Place(machine))
    return found[1]


def estimate_makespans(workload: Workload, machine: Machine) -> list[Estimate]:
    """Every plan that ``compare`` tries, in its order of schedules, with copies by DMA engines.

    Each plan is a first piece of work and then pieces that wait for the step that brings them; when the
    last is done follows from `Overlap.end_s`. GEMM pieces cost what `ficco_sim.costs.gemm` says, fitted
    and corrected by measured shapes; a step takes its bytes over the rate from all peers, and a
    command for every turn of the engines.

    Raises
    ------
    MachineError
        If the gpu has no GEMM rates for the element type, or no path joins two gpus.
    """
    place = _place_of(machine)
    if place.num_gpus == 1:
        whole = _Pieces(workload, place)
        whole_s = whole.gemm(workload.m, workload.k)
        whole.evaluate()
        return [
            Estimate(
                schedule="serial", num_chunks=None, compute_queues=None, makespan_s=whole_s().time_s
            )
        ]
    return list(_Plans(workload, place).all())


class _Pieces:
    """GEMM pieces of one workload: asked for first, costed all at once, then read."""

    def __init__(self, workload: Workload, place: _Place) -> None:
        self._workload = workload
        self._place = place
        self._costs: dict[GemmShape, GemmCost | None] = {}

    def gemm(
        self, rows: float, k: float, *, entries: int = 1, accumulate: bool = False
    ) -> Callable[[], GemmCost]:
        """The cost of a piece, once `evaluate` has run."""
        w = self._workload
        shape = GemmShape((max(1, round(rows)),) * entries, w.n, max(1, round(k)), w.dtype, accumulate)
        self._costs.setdefault(shape, None)

        def read() -> GemmCost:
            cost = self._costs[shape]
            assert cost is not None
            return cost

        return read

    def evaluate(self) -> None:
        """Cost all that was asked for."""
        shapes = list(self._costs)
        self._costs = dict(zip(shapes, self._place.gemms.costs(shapes), strict=True))


class _Plans:
    """The plans of one workload; see `ficco_sim.schedules.ficco` for what they consist of."""

    def __init__(self, workload: Workload, place: _Place) -> None:
        self.place = place
        self.workload = workload
        self.p = place.num_gpus
        self.exchange = workload.tokens is not None
        rates = place.rates
        self.all_rate = rates.exchange_bytes_per_s if self.exchange else rates.gather_bytes_per_s
        self.shard = workload.m / self.p  # rows; of an exchange the mean of all sources
        self.row_bytes = workload.k * workload.element_bytes
        self.out_bytes = workload.n * DTYPE_BYTES[OUTPUT_DTYPE[workload.dtype]]  # of a row of C
        self.pieces = _Pieces(workload, place)
        self.own = self.pieces.gemm(self.shard, workload.k)
        self.whole = self.pieces.gemm(workload.m, workload.k)

    def all(self) -> Iterator[Estimate]:
        """Estimates, whole operators first."""
        w, p = self.workload, self.p
        counts = [c for c in sorted({2, 4, p}) if c > 1]
        by_rows = [_ByRows(self, c) for c in counts if self.shard >= c]
        by_columns = [_ByColumns(self, c) for c in counts if w.k >= c]
        self.pieces.evaluate()
        gathered_s = self.arrivals_s(1, self.step_s(1))[-1] + self.place.known_s
        yield self._plan("serial", gathered_s + self.time_s(self.whole()))
        yield self._shards("shard-p2p", self.place.rates.peer_bytes_per_s, forwards=False)
        if not self.exchange:
            yield self._shards("shard-ring", self.place.rates.next_bytes_per_s, forwards=True)
        for cut in (*by_rows, *by_columns):
            yield from cut.all()

    def _plan(self, schedule: str, makespan_s: float) -> Estimate:
        return Estimate(schedule=schedule, num_chunks=None, compute_queues=None, makespan_s=makespan_s)

    def _shards(self, schedule: str, rate: float, *, forwards: bool) -> Estimate:
        """A shard after another; what is forwarded has to be known to be there first."""
        place = self.place
        each_s = self.shard * self.row_bytes / rate + place.command_s
        if forwards:
            # its engine is idle before each, so that ticks are where they are for one alone
            each_s += place.costs.known_after_s(each_s) + place.rates.event_wait_s
        late_s = 0.0 if forwards else place.known_s
        arrivals = [i * each_s + late_s for i in range(1, self.p)]
        if place.hops > 1 and not forwards:  # all shards are on their way at once
            last_s = self.arrivals_s(1, self.step_s(1))[-1]
            spread = (1 - SHARDS_FIRST) / (self.p - 1)
            arrivals = [last_s * (SHARDS_FIRST + i * spread) + late_s for i in range(1, self.p)]
        overlap = Overlap(comm_end_s=arrivals[-1], slowdown=self.slowdown(rate))
        shard_s = self.time_s(self.own())
        return self._plan(schedule, overlap.end_s(shard_s, ((t, shard_s) for t in arrivals)))

    def step_s(self, chunks: int, rate: float | None = None) -> float:
        """One chunk of every peer."""
        received = (self.p - 1) * self.shard / chunks * self.row_bytes
        return received / (rate or self.all_rate) + self.place.step_command_s

    def arrivals_s(self, chunks: int, step_s: float) -> list[float]:
        """When the last chunk of each step is there.

        One step after another; where gpus forward, chunks of later steps of near peers are on their way
        beside the first ones of far peers, so that the first step comes later, and steps then closer
        to each other.
        """
        hops = self.place.hops
        if hops == 1:
            return [self.place.opening_s + (j + 1) * step_s for j in range(chunks)]
        end_s = FORWARDED_LOSS * chunks * step_s
        first_s = min((1 + (hops - 1) / FORWARDED_DELAY) * step_s, FORWARDED_FIRST * end_s)
        if chunks == 1:
            return [end_s]
        return [first_s + j * (end_s - first_s) / (chunks - 1) for j in range(chunks)]

    def slowdown(self, rate: float) -> float:
        """Of a GEMM beside copies in and out at a rate; see `ContentionProfile`."""
        return 1.0 + self.place.slopes * min(rate, self.all_rate)

    def time_s(self, cost: GemmCost) -> float:
        """Of a kernel and the gap after it."""
        return cost.time_s + self.place.gap_s

    def local_s(self, nbytes: float) -> float:
        """Of a copy within the gpu."""
        local = self.place.local
        return local.startup_s + 2 * nbytes / local.bytes_per_s + self.place.gap_s


class _Cut(ABC):
    """What plans of c chunks have in common, by rows or by columns."""

    shape = ""

    def __init__(self, plans: _Plans, chunks: int, step_s: float) -> None:
        self.plans = plans
        self.chunks = chunks
        self.step_s = step_s
        arrivals = plans.arrivals_s(chunks, step_s)
        self.known = [arrival_s + plans.place.known_s for arrival_s in arrivals]
        self.overlap = Overlap(comm_end_s=arrivals[-1], slowdown=plans.slowdown(plans.all_rate))

    @abstractmethod
    def all(self) -> Iterator[Estimate]:
        """Estimates of the plans of this cut."""

    def estimate(
        self, schedule: str, first_s: float, pieces: Iterator[tuple[float, float]], queues: int = 1
    ) -> Estimate:
        """The plan of a first piece and of pieces that arrive."""
        return Estimate(
            schedule=f"{schedule}-{self.shape}",
            num_chunks=self.chunks,
            compute_queues=queues,
            makespan_s=self.overlap.end_s(first_s, pieces),
        )

    def unfused(self, costs: list[GemmCost]) -> Iterator[Estimate]:
        """A GEMM for each chunk, ``costs[j]`` in step j, on one queue or side by side on several."""
        plans, place = self.plans, self.plans.place
        own_s = plans.time_s(plans.own())
        peers, turns = plans.p - 1, place.turns
        # chunks of one turn of the engines arrive together
        counts = [min(place.engines, peers - i * place.engines) for i in range(turns)]
        opened_s = place.opening_s + place.known_s
        for queues in QUEUES:
            work = [_side_by_side_s(cost, queues, place.gap_s) for cost in costs]
            steps = [
                [
                    (opened_s + (j + (i + 1) / turns) * self.step_s, count * work_s)
                    for i, count in enumerate(counts)
                ]
                for j, work_s in enumerate(work)
            ]
            uniform = [
                piece
                for step, work_s in zip(steps, work, strict=True)
                for piece in ((0.0, work_s), *step)
            ]
            arriving = [piece for step in steps for piece in step]
            yield self.estimate("uniform-unfused", 0.0, iter(uniform), queues)
            yield self.estimate("hetero-unfused", own_s, iter(arriving), queues)


class _ByRows(_Cut):
    """Chunks are rows: 1d."""

    shape = "1d"

    def __init__(self, plans: _Plans, chunks: int) -> None:
        super().__init__(plans, chunks, plans.step_s(chunks))
        gemm, k, p = plans.pieces.gemm, plans.workload.k, plans.p
        self.rows = rows = plans.shard / chunks
        self.all_rows, self.peer_rows = gemm(p * rows, k), gemm((p - 1) * rows, k)
        self.all_entries = gemm(rows, k, entries=p)
        self.peer_entries = gemm(rows, k, entries=p - 1)
        self.one = gemm(rows, k)

    def all(self) -> Iterator[Estimate]:
        """Fused, batched and unfused, uniform and hetero."""
        plans, p, rows = self.plans, self.plans.p, self.rows
        own_s = plans.time_s(plans.own())
        gather_s = plans.local_s(rows * plans.row_bytes)
        step = plans.time_s(self.all_rows()) + plans.local_s(p * rows * plans.out_bytes)
        # the first step's own chunk is staged before anything has arrived
        uniform = ((t, step + (gather_s if j else 0.0)) for j, t in enumerate(self.known))
        yield self.estimate("uniform-fused", 0.0, uniform)
        step = plans.time_s(self.peer_rows())
        if p > 2:  # two gpus: the peer's rows are in place
            step += plans.local_s((p - 1) * rows * plans.out_bytes)
        yield self.estimate("hetero-fused", own_s, ((t, step) for t in self.known))
        for name, first_s, cost in (
            ("uniform", 0.0, self.all_entries()),
            ("hetero", own_s, self.peer_entries()),
        ):
            work_s = plans.time_s(cost)
            yield self.estimate(f"{name}-batched", first_s, ((t, work_s) for t in self.known))
        yield from self.unfused([self.one()] * self.chunks)


class _ByColumns(_Cut):
    """Chunks are columns, whose products accumulate: 2d."""

    shape = "2d"

    def __init__(self, plans: _Plans, chunks: int) -> None:
        super().__init__(plans, chunks, plans.step_s(chunks, _strided_rate(plans, chunks)))
        gemm, w, p = plans.pieces.gemm, plans.workload, plans.p
        self.k = k = w.k / chunks
        peers = (p - 1) * plans.shard
        self.all_rows = [gemm(w.m, k, accumulate=later) for later in (False, True)]
        self.peer_rows = [gemm(peers, k, accumulate=later) for later in (False, True)]
        self.one = [gemm(plans.shard, k, accumulate=later) for later in (False, True)]

    def all(self) -> Iterator[Estimate]:
        """Fused and unfused, uniform and hetero."""
        plans, w = self.plans, self.plans.workload
        own_s = plans.time_s(plans.own())
        gather_s = plans.local_s(plans.shard * self.k * w.element_bytes)
        first, later = (plans.time_s(read()) for read in self.all_rows)
        uniform = ((t, later + gather_s if j else first) for j, t in enumerate(self.known))
        yield self.estimate("uniform-fused", 0.0, uniform)
        first, later = (plans.time_s(read()) for read in self.peer_rows)
        back_s = 0.0
        if plans.p > 2:  # two gpus: the peer's rows are in place
            back_s = plans.local_s((plans.p - 1) * plans.shard * plans.out_bytes)
        hetero = [(t, later if j else first) for j, t in enumerate(self.known)]
        hetero[-1] = (hetero[-1][0], hetero[-1][1] + back_s)
        yield self.estimate("hetero-fused", own_s, iter(hetero))
        first_cost, later_cost = (read() for read in self.one)
        yield from self.unfused([first_cost, *[later_cost] * (self.chunks - 1)])


def _strided_rate(plans: _Plans, chunks: int) -> float:
    """From all peers, of columns: engines are slower on rows that are apart."""
    copy, engines = plans.place.copy, plans.place.engines
    if not copy.native_2d:
        return plans.all_rate
    row = plans.row_bytes / chunks
    lost = copy.row_overhead_bytes + copy.gap_share * (plans.row_bytes - row)
    return min(plans.all_rate, engines * copy.engine_bytes_per_s * row / (row + lost))


def _side_by_side_s(cost: GemmCost, queues: int, gap_s: float) -> float:
    """Of one of several equal GEMMs, its share of the time of as many as there are queues.

    Side by side they take as long as one, or as their work-groups take all units.
    """
    if queues == 1:
        return cost.time_s + gap_s
    body_s = cost.body_s * max(1.0, queues * cost.busy)
    return (cost.startup_s + body_s + gap_s) / queues

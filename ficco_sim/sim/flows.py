"""Bytes on the way: flows share links max-min fairly, and core-driven ones a copy kernel's rate."""

from collections.abc import Callable, Hashable

from simpy import Event

from ficco_sim.costs import CostModel
from ficco_sim.machine import Machine
from ficco_sim.sim.activity import Activity, Settler
from ficco_sim.sim.fair_share import max_min_rates

MAX_KNOWN = 20_000


class Flow(Activity):
    """The bytes of one transfer on their route."""

    __slots__ = ("cap", "core", "dst", "route", "shares", "src")

    def __init__(
        self,
        *,
        nbytes: int,
        done: Event,
        now_s: float,
        src: int,
        dst: int,
        route: tuple[int, ...],
        shares: tuple[float, ...],
        cap: float,
        core: bool,
    ) -> None:
        super().__init__(float(nbytes), done, now_s)
        self.src = src
        self.dst = dst
        self.route = route
        self.shares = shares
        self.cap = cap
        self.core = core


class FlowNetwork:
    """All flows in progress; sets their rates anew where something changed.

    Resources are the machine's links and, after them, one per gpu for its core-driven copies.

    Parameters
    ----------
    computing
        Tells whether a GEMM is in progress on a gpu.
    traffic_changed
        Called for each gpu whose traffic changed.
    """

    def __init__(
        self,
        machine: Machine,
        costs: CostModel,
        settler: Settler,
        computing: Callable[[int], bool],
        traffic_changed: Callable[[int], None],
    ) -> None:
        self._settler = settler
        self._computing = computing
        self._traffic_changed = traffic_changed
        core = machine.profile.core_copy
        self._core_slowdown = 1.0 if costs.ideal else core.slowdown_beside_gemm
        core_rate = float("inf") if costs.ideal else core.bytes_per_s
        self.num_links = len(machine.links)
        self._alone_capacity = [link.usable_bytes_per_s for link in machine.links]
        self._alone_capacity += [core_rate] * machine.num_gpus
        self._capacity = list(self._alone_capacity)
        # insertion-ordered sets, so that nothing depends on addresses
        self._users: list[dict[Flow, None]] = [{} for _ in self._capacity]
        self._into: list[dict[Flow, None]] = [{} for _ in range(machine.num_gpus)]
        self._out_of: list[dict[Flow, None]] = [{} for _ in range(machine.num_gpus)]
        self._dirty: dict[int, None] = {}
        self._known: dict[Hashable, list[float]] = {}

    def start(self, flow: Flow) -> None:
        """Put a flow on its route."""
        if flow.core:
            flow.route = (*flow.route, self.num_links + flow.dst)
            flow.shares = (*flow.shares, 1.0)
        for resource in flow.route:
            self._users[resource][flow] = None
            self._dirty[resource] = None
        self._into[flow.dst][flow] = None
        self._out_of[flow.src][flow] = None
        self._settler.touch()

    def ended(self, activity: Activity) -> None:
        """Take a flow that has ended off its route."""
        if not isinstance(activity, Flow):
            return
        for resource in activity.route:
            del self._users[resource][activity]
            self._dirty[resource] = None
        del self._into[activity.dst][activity]
        del self._out_of[activity.src][activity]
        self._traffic_changed(activity.dst)
        self._traffic_changed(activity.src)
        self._settler.touch()

    def compute_changed(self, gpu: int) -> None:
        """A gpu has begun or ceased to compute: core-driven copies into it change their rate."""
        resource = self.num_links + gpu
        slow = self._core_slowdown if self._computing(gpu) else 1.0
        capacity = self._alone_capacity[resource] / slow
        if capacity != self._capacity[resource]:
            self._capacity[resource] = capacity
            if self._users[resource]:
                self._dirty[resource] = None
                self._settler.touch()

    def traffic(self, gpu: int) -> tuple[float, float, float, float]:
        """Bytes/s into and out of a gpu: by DMA in, DMA out, core-driven in, core-driven out."""
        dma_in = core_in = dma_out = core_out = 0.0
        for flow in self._into[gpu]:
            if flow.core:
                core_in += flow.rate
            else:
                dma_in += flow.rate
        for flow in self._out_of[gpu]:
            if flow.core:
                core_out += flow.rate
            else:
                dma_out += flow.rate
        return dma_in, dma_out, core_in, core_out

    def settle(self, now_s: float) -> None:
        """Set the rates of all flows that share resources with what changed."""
        dirty, self._dirty = self._dirty, {}
        seen: set[int] = set()
        for resource in dirty:
            if resource not in seen and self._users[resource]:
                self._settle_component(resource, seen, now_s)

    def _settle_component(self, resource: int, seen: set[int], now_s: float) -> None:
        seen.add(resource)
        users = self._users
        flows: dict[Flow, None] = {}
        slowed = False
        frontier = [resource]
        for r in frontier:
            slowed = slowed or self._capacity[r] != self._alone_capacity[r]
            for flow in users[r]:
                if flow not in flows:
                    flows[flow] = None
                    for other in flow.route:
                        if other not in seen:
                            seen.add(other)
                            frontier.append(other)
        alone = self._rates(flows, frontier, self._alone_capacity)
        rates = self._rates(flows, frontier, self._capacity) if slowed else alone
        for flow, rate, alone_rate in zip(flows, rates, alone, strict=True):
            if rate != flow.rate:
                self._traffic_changed(flow.dst)
                self._traffic_changed(flow.src)
            flow.advance(now_s)
            # a slowed neighbour may leave a flow more than it would have alone
            self._settler.set_rate(flow, rate, max(rate, alone_rate))

    def _rates(
        self, flows: dict[Flow, None], resources: list[int], capacity: list[float]
    ) -> list[float]:
        """Fair rates of the flows of a component; plans repeat themselves, so they are kept."""
        if len(flows) == 1:
            flow = next(iter(flows))
            parts = zip(flow.route, flow.shares, strict=True)
            return [min(flow.cap, *(capacity[r] / part for r, part in parts))]
        key = (
            tuple((flow.route, flow.shares, flow.cap) for flow in flows),
            tuple(capacity[r] for r in resources if r >= self.num_links),
        )
        rates = self._known.get(key)
        if rates is None:
            if len(self._known) > MAX_KNOWN:
                self._known.clear()
            routes, shares, caps = zip(*key[0], strict=True)
            rates = self._known[key] = max_min_rates(routes, shares, caps, capacity)
        return rates

"""Plans for machines whose hardware does not route: gpus in between forward data through buffers.

Transfers of the same region from the same gpu become one tree of shortest paths (in hops), so that
the region crosses each link at most once. Trees and the order on each link come from a greedy pass
over time: whenever a link falls idle it takes, of what has reached its near end and is still wanted
at its far end, an early step of the plan with many hops to go. A few such passes, which differ in
how ties are broken and whether trees are fixed beforehand, are tried, and the fastest is kept. A gpu
that wants the data itself forwards it from where it landed; another uses a buffer. Each hop waits for
the whole of what it forwards.
"""

import heapq
from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import pairwise

from ficco_sim.errors import MachineError
from ficco_sim.machine import Machine
from ficco_sim.plan import Buffer, Plan, PlanIndex, Queue, Region, Task, Transfer, buffer_bytes
from ficco_sim.routing.routes import Routes
from ficco_sim.workload import split

__all__ = ["relay"]

Edge = tuple[int, int]

NUM_TRIES = 4


def relay(plan: Plan, machine: Machine, *, pieces: int = 1) -> Plan:
    """Rewrite a plan so that every transfer is between gpus that a link or switch joins.

    Parameters
    ----------
    plan
        A checked plan for as many gpus as the machine has.
    pieces
        Cut what needs more than one hop into so many pieces of rows, so that forwarding can begin
        before all has arrived.

    Returns
    -------
    Plan
        The plan itself if nothing needs forwarding; else an equivalent one whose transfers have a
        queue for each neighbour of the receiving gpu.

    Raises
    ------
    MachineError
        If no path leads from a transfer's source to its destination; names the parts of the machine.
    """
    transfers = [task for task in plan.tasks if isinstance(task, Transfer)]
    if machine.hardware_routing:
        return plan
    routes = Routes(machine)
    neighbours = _neighbours(machine)
    if all(t.dst.gpu in neighbours[t.src.gpu] for t in transfers):
        return plan
    hops = _Hops(machine, neighbours)
    # without steps nothing is used before all has arrived
    in_steps = max(group.level for group in _make_groups(plan, hops)) > 0
    plan = _cut(plan, neighbours, pieces)
    speeds = {
        (u, v): min(
            machine.links[i].usable_bytes_per_s / share
            for i, share in zip(routes(u, v).links, routes(u, v).shares, strict=True)
        )
        for u, around in neighbours.items()
        for v in around
    }
    best: tuple[float, _Scheduler] | None = None
    for seed in range(NUM_TRIES):
        groups = _make_groups(plan, hops)
        _choose_parents(groups, hops, speeds, by_time=seed > 0)
        scheduler = _Scheduler(plan, groups, hops, neighbours, speeds, seed=seed, in_steps=in_steps)
        end_s = scheduler.run()
        if best is None or end_s < best[0]:
            best = (end_s, scheduler)
    assert best is not None
    return best[1].rewrite()


def _neighbours(machine: Machine) -> dict[int, dict[int, None]]:
    """For each gpu those that it reaches over one link, or through switches alone."""
    graph = machine.graph()
    found: dict[int, dict[int, None]] = {}
    for gpu in range(machine.num_gpus):
        seen: dict[int, None] = {}
        frontier = [gpu]
        for node in frontier:
            for after in sorted(graph.successors(node)):
                if after not in seen:
                    seen[after] = None
                    if after >= machine.num_gpus:
                        frontier.append(after)
        found[gpu] = {v: None for v in seen if v < machine.num_gpus and v != gpu}
    return found


def _cut(plan: Plan, neighbours: dict[int, dict[int, None]], pieces: int) -> Plan:
    """Cut the regions that some gpu receives over several hops into pieces of rows."""
    if pieces == 1:
        return plan
    far = {
        (t.src.gpu, t.src.buffer, t.src.rows, t.src.cols)
        for t in plan.tasks
        if isinstance(t, Transfer) and t.dst.gpu not in neighbours[t.src.gpu]
    }
    parts_of: dict[str, tuple[str, ...]] = {}
    tasks: list[Task] = []
    for task in plan.tasks:
        if not isinstance(task, Transfer):
            tasks.append(task)
            continue
        src = task.src
        if (src.gpu, src.buffer, src.rows, src.cols) not in far:
            tasks.append(task)
            continue
        cuts = [c for c in split(src.shape[0], pieces) if c[0] < c[1]]
        names = []
        for i, (lo, hi) in enumerate(cuts):
            name = f"{task.id}.p{i}"
            names.append(name)
            tasks.append(replace(task, id=name, src=_rows(src, lo, hi), dst=_rows(task.dst, lo, hi)))
        parts_of[task.id] = tuple(names)

    def resolve(dep: str) -> tuple[str, ...]:
        return parts_of.get(dep, (dep,))

    return replace(
        plan,
        tasks=tuple(
            replace(t, deps=tuple(n for dep in t.deps for n in resolve(dep))) if t.deps else t
            for t in tasks
        ),
    )


def _rows(region: Region, lo: int, hi: int) -> Region:
    return replace(region, rows=(region.rows[0] + lo, region.rows[0] + hi))


class _Hops:
    """Distances in hops between gpus."""

    def __init__(self, machine: Machine, neighbours: dict[int, dict[int, None]]) -> None:
        self._machine = machine
        self._neighbours = neighbours
        self._from: dict[int, dict[int, int]] = {}
        self._to_go: dict[int, dict[int, int]] = {}
        self._parents: dict[int, dict[int, list[int]]] = {}

    def from_gpu(self, gpu: int) -> dict[int, int]:
        """Distance of every gpu that can be reached."""
        if gpu not in self._from:
            distance = {gpu: 0}
            order = [gpu]
            for u in order:
                for v in self._neighbours[u]:
                    if v not in distance:
                        distance[v] = distance[u] + 1
                        order.append(v)
            self._from[gpu] = distance
            to_go: dict[int, int] = {}
            for u in reversed(order):
                ahead = [to_go[v] + 1 for v in self._neighbours[u] if distance[v] == distance[u] + 1]
                to_go[u] = max(ahead, default=0)
            self._to_go[gpu] = to_go
        return self._from[gpu]

    def parents(self, gpu: int) -> dict[int, list[int]]:
        """For every other gpu its neighbours one hop nearer to the given one."""
        if gpu not in self._parents:
            distance = self.from_gpu(gpu)
            before: dict[int, list[int]] = {v: [] for v in distance if v != gpu}
            for u in sorted(distance):
                for v in self._neighbours[u]:
                    if distance[v] == distance[u] + 1:
                        before[v].append(u)
            self._parents[gpu] = before
        return self._parents[gpu]

    def to_go(self, root: int, gpu: int) -> int:
        """Hops from a gpu to the farthest one behind it on shortest paths from the root."""
        self.from_gpu(root)
        return self._to_go[root][gpu]

    def check(self, src: int, dst: int) -> None:
        """Raise if no path leads from one gpu to another."""
        if dst in self.from_gpu(src):
            return
        import networkx as nx

        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from(range(self._machine.num_gpus))
        graph.add_edges_from((u, v) for u, around in self._neighbours.items() for v in around)
        parts = sorted(sorted(part) for part in nx.strongly_connected_components(graph))
        named = " and ".join("{" + ", ".join(map(str, part)) + "}" for part in parts)
        raise MachineError(
            f"{self._machine.name}: no path leads from gpu {src} to gpu {dst}; gpus that reach each "
            f"other: {named}"
        )


@dataclass(slots=True, eq=False)
class _Group:
    """Transfers of one region, and the tree that will carry it."""

    src: Region
    members: dict[int, int]  # destination gpu to index of its transfer
    level: int
    nbytes: int
    waiting: int  # dependencies of the members that are not met yet
    wanted: set[int] = field(default_factory=set)  # gpus that it must reach
    parents: dict[int, set[int]] = field(default_factory=dict)  # who may hand it to each of them
    assigned: set[int] = field(default_factory=set)
    hops: dict[int, "_Hop"] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Hop:
    """One transfer of the tree."""

    edge: Edge
    start_s: float
    order: int


def _make_groups(plan: Plan, hops: _Hops) -> list[_Group]:
    index = PlanIndex(plan)
    order, stuck = index.topological_order()
    assert not stuck, "relay takes checked plans"
    level = [0] * len(plan.tasks)
    for i in order:
        level[i] = max((level[p] + 1 for p in index.predecessors[i]), default=0)
    element_bytes = buffer_bytes(plan)
    by_region: dict[tuple[object, ...], _Group] = {}
    groups: list[_Group] = []
    for i, task in enumerate(plan.tasks):
        if not isinstance(task, Transfer):
            continue
        src, dst = task.src, task.dst
        hops.check(src.gpu, dst.gpu)
        # a transfer that waits for something keeps to itself: others need not wait with it
        key = (src.gpu, src.buffer, src.rows, src.cols, task.queue.engine, task.deps)
        group = by_region.get(key)
        if group is None or dst.gpu in group.members:
            nbytes = src.num_elements * element_bytes[src.gpu, src.buffer]
            group = by_region[key] = _Group(src, {}, level[i], nbytes, len(task.deps))
            groups.append(group)
        group.members[dst.gpu] = i
        group.level = min(group.level, level[i])
    return groups


def _choose_parents(
    groups: list[_Group], hops: _Hops, speeds: dict[Edge, float], *, by_time: bool
) -> None:
    """Decide who may hand each region to whom, on shortest paths, loading links evenly.

    Parameters
    ----------
    by_time
        Where every gpu behind a shortest path wants the region any parent will do; leave the choice
        among them to the moment.
    """
    load: dict[Edge, float] = defaultdict(float)
    open_choices: list[tuple[_Group, int]] = []
    for group in sorted(groups, key=lambda g: (g.level, g.src.gpu)):
        root = group.src.gpu
        before = hops.parents(root)
        group.wanted = set(group.members)
        group.parents = {}
        if len(group.wanted) < len(before):
            _choose_paths(group, hops, load)
            continue
        for v in group.wanted:
            group.parents[v] = set(before[v])
            if len(before[v]) == 1:
                load[before[v][0], v] += group.nbytes / speeds[before[v][0], v]
            else:
                open_choices.append((group, v))
    if by_time:
        return
    for group, v in open_choices:
        parent = min(group.parents[v], key=lambda u: (load[u, v] + group.nbytes / speeds[u, v], u))
        load[parent, v] += group.nbytes / speeds[parent, v]
        group.parents[v] = {parent}


def _choose_paths(group: _Group, hops: _Hops, load: dict[Edge, float]) -> None:
    """Fix the paths of a region that not all want, so that few receive it for others alone."""
    root = group.src.gpu
    distance, before = hops.from_gpu(root), hops.parents(root)
    for v in sorted(group.wanted, key=lambda gpu: (-distance[gpu], gpu)):
        at = v
        while at != root and at not in group.parents:
            ranked = [(u not in group.wanted and u != root, load[u, at], u) for u in before[at]]
            parent = min(ranked)[2]
            load[parent, at] += group.nbytes
            group.parents[at] = {parent}
            group.wanted.add(at)
            at = parent


class _Scheduler:
    """Sends the groups along their trees over time; kernels take no time here."""

    def __init__(
        self,
        plan: Plan,
        groups: list[_Group],
        hops: _Hops,
        neighbours: dict[int, dict[int, None]],
        speeds: dict[Edge, float],
        *,
        seed: int,
        in_steps: bool,
    ) -> None:
        self.plan = plan
        self.seed = seed
        self.in_steps = in_steps
        self.groups = groups
        self.hops = hops
        self.neighbours = neighbours
        self.speeds = speeds
        self.time_s = [0.0] * len(plan.tasks)
        self._offers: dict[Edge, list[tuple[int, ...]]] = defaultdict(list)
        self._busy: set[Edge] = set()
        self._events: list[tuple[float, int, Edge, int]] = []
        self._count = 0
        self._group_of = {i: n for n, group in enumerate(groups) for i in group.members.values()}

    def run(self) -> float:
        """Send everything; returns when the last region arrives, in seconds."""
        plan = self.plan
        index = PlanIndex(plan)
        # order on copy queues is decided anew; that on compute queues stays
        waiting = [len(task.deps) for task in plan.tasks]
        after: list[list[int]] = [[] for _ in plan.tasks]
        for i, task in enumerate(plan.tasks):
            for dep in task.deps:
                after[index.position[dep]].append(i)
        for queue, members in index.queues.items():
            if queue.engine == "compute":
                for a, b in pairwise(members):
                    after[a].append(b)
                    waiting[b] += 1
        self._waiting, self._after = waiting, after
        ready = [i for i, count in enumerate(waiting) if count == 0]
        now = 0.0
        self._settle(ready, now)
        while self._events:
            now = self._events[0][0]
            done: list[int] = []
            while self._events and self._events[0][0] == now:
                _, _, edge, number = heapq.heappop(self._events)
                self._busy.discard(edge)
                group = self.groups[number]
                self._offer(number, edge[1])
                if edge[1] in group.members:
                    done.append(group.members[edge[1]])
            self._settle([j for i in done for j in self._finish(i)], now)
        return now

    def _finish(self, i: int) -> list[int]:
        ready = []
        for j in self._after[i]:
            self._waiting[j] -= 1
            if self._waiting[j] == 0:
                ready.append(j)
        return ready

    def _settle(self, ready: list[int], now: float) -> None:
        """Run what needs no link, offer what does, and let idle links choose."""
        for i in ready:  # grows while kernels end
            self.time_s[i] = now
            number = self._group_of.get(i)
            if number is None:
                ready += self._finish(i)
            else:
                group = self.groups[number]
                group.waiting = 0
                if group.src.gpu not in group.assigned:
                    group.assigned.add(group.src.gpu)
                    self._offer(number, group.src.gpu)
        for edge in sorted(self._offers):
            if edge not in self._busy:
                self._choose(edge, now)

    def _offer(self, number: int, gpu: int) -> None:
        """A region has reached a gpu: its links may take it on."""
        group = self.groups[number]
        for v in self.neighbours[gpu]:
            if v not in group.assigned and gpu in group.parents.get(v, ()):
                to_go = self.hops.to_go(group.src.gpu, v)
                rank = group.level - to_go if self.in_steps else -to_go
                tie = _scramble(self.seed, number, v)
                heapq.heappush(self._offers[gpu, v], (rank, group.level, tie, number, v))

    def _choose(self, edge: Edge, now: float) -> None:
        offers = self._offers[edge]
        while offers:
            *_, number, v = heapq.heappop(offers)
            group = self.groups[number]
            if v in group.assigned:
                continue
            group.assigned.add(v)
            group.hops[v] = _Hop(edge, now, self._count)
            self._busy.add(edge)
            self._count += 1
            end_s = now + group.nbytes / self.speeds[edge]
            heapq.heappush(self._events, (end_s, self._count, edge, number))
            return

    def rewrite(self) -> Plan:
        """The plan with all hops in place of its transfers."""
        plan = self.plan
        dtypes = {(b.gpu, b.name): b.dtype for b in plan.buffers}
        buffers = list(plan.buffers)
        placed: list[tuple[int, float, int, Task]] = [
            (task.queue.gpu, self.time_s[i], i, task)
            for i, task in enumerate(plan.tasks)
            if not isinstance(task, Transfer)
        ]
        num_tasks = len(plan.tasks)
        for number, group in enumerate(self.groups):
            first = plan.tasks[next(iter(group.members.values()))]
            assert isinstance(first, Transfer)
            root = group.src.gpu
            holders = {root: group.src}
            names: dict[int, str] = {}
            # nearer gpus first, so that whoever hands on is known
            for v, hop in sorted(group.hops.items(), key=lambda item: item[1].order):
                u = hop.edge[0]
                member = plan.tasks[group.members[v]] if v in group.members else None
                if isinstance(member, Transfer):
                    holders[v] = member.dst
                    names[v] = member.id
                else:
                    rows, cols = group.src.shape
                    name = f"via{number}"
                    dtype = dtypes[root, group.src.buffer]
                    buffers.append(Buffer(gpu=v, name=name, rows=rows, cols=cols, dtype=dtype))
                    holders[v] = Region(gpu=v, buffer=name, rows=(0, rows), cols=(0, cols))
                    names[v] = f"{first.id}.via.g{v}"
                around = sorted(x for x, near in self.neighbours.items() if v in near)
                queue = Queue(gpu=v, engine=first.queue.engine, index=around.index(u))
                deps = first.deps if u == root else (names[u], *first.deps)
                transfer = Transfer(id=names[v], queue=queue, src=holders[u], dst=holders[v], deps=deps)
                placed.append((v, hop.start_s, num_tasks + hop.order, transfer))
        placed.sort(key=lambda item: item[:3])
        return replace(plan, buffers=tuple(buffers), tasks=tuple(task for *_, task in placed))


def _scramble(seed: int, number: int, gpu: int) -> int:
    """A fixed but irregular order, so that ties do not favour the same links."""
    return (seed * 0x9E3779B1 + number * 0x85EBCA6B + gpu * 0xC2B2AE35) % 0xFFFFFFFB

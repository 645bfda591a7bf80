"""The simulator: one SimPy process per queue, on shared links, engines and compute units.

Ties at equal time: queues start in the order in which they first appear in the plan; whoever asks a
gpu for a DMA engine at the same instant is served in the order of the tasks in the plan, and at
different instants first come, first served.
"""

import heapq
import math
from collections.abc import Generator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from simpy import Environment, Event

from ficco_sim.costs import CopyCost, CostModel, GemmCost, gemm_shape
from ficco_sim.errors import ScenarioError, SimulationError
from ficco_sim.machine import Machine
from ficco_sim.memory import rare_collections
from ficco_sim.plan import Gemm, LocalCopy, Plan, PlanIndex, Queue, Transfer, buffer_bytes
from ficco_sim.routing import Routes
from ficco_sim.sim.activity import Settler
from ficco_sim.sim.compute import ComputeUnits, Kernel
from ficco_sim.sim.flows import Flow, FlowNetwork
from ficco_sim.trace import LinkLoad, Span, Trace

__all__ = ["communication_only", "simulate"]

MAX_SHOWN = 8

Steps = Generator[Event, Any, None]


def simulate(plan: Plan, machine: Machine, costs: CostModel | None = None) -> Trace:
    """Run a plan on a machine and tell when each task started and ended.

    Parameters
    ----------
    plan
        A checked plan; it needs as many gpus as the machine has.
    costs
        Costs of tasks and contention; by default those of the machine's profile.

    Returns
    -------
    Trace
        Spans in the plan's order; the same input gives the same trace.

    Raises
    ------
    ScenarioError
        If plan and machine have unequal numbers of gpus.
    MachineError
        If the machine lacks a link or a parameter that the plan needs.
    SimulationError
        If the run gets stuck; the message lists the tasks and what each waits for.
    """
    if plan.num_gpus != machine.num_gpus:
        raise ScenarioError(
            f"the plan is for {plan.num_gpus} gpus, machine {machine.name} has {machine.num_gpus}"
        )
    with rare_collections():
        return _Run(plan, machine, costs or CostModel(machine)).run()


def communication_only(plan: Plan) -> Plan:
    """The plan's transfers, with the dependencies among them."""
    transfers = [task for task in plan.tasks if isinstance(task, Transfer)]
    ids = {task.id for task in transfers}
    kept = tuple(
        replace(task, deps=tuple(dep for dep in task.deps if dep in ids)) if task.deps else task
        for task in transfers
    )
    return replace(plan, tasks=kept, outputs=())


class _EnginePool:
    """The DMA engines of one gpu; grants are made at the end of an instant, see the file's head.

    Each engine has bursts of its own: one begins when the engine takes up work after having been idle.
    Which engine serves a copy is not known; here it is the one that was given back last.
    """

    def __init__(self, env: Environment, settler: Settler, num_engines: int) -> None:
        self._env = env
        self._settler = settler
        # when each free engine was given back, and when its last burst began
        self._free = [(-math.inf, 0.0)] * num_engines
        self._waiting: list[tuple[float, int, Event]] = []

    def acquire(self, task: int) -> Event:
        """An event that fires once the task has an engine, with when that engine's burst began."""
        granted = self._env.event()
        heapq.heappush(self._waiting, (self._env.now, task, granted))
        self._settler.touch()
        return granted

    def release(self, began_s: float) -> None:
        """Give an engine back, whose burst began then."""
        self._free.append((self._env.now, began_s))
        if self._waiting:
            self._settler.touch()

    def settle(self, now_s: float) -> None:
        """Serve who waits, as far as engines are free."""
        while self._free and self._waiting:
            given_back_s, began_s = self._free.pop()
            burst_s = began_s if given_back_s == now_s else now_s
            heapq.heappop(self._waiting)[2].succeed(burst_s)


class _Run:
    """The state of one simulation."""

    def __init__(self, plan: Plan, machine: Machine, costs: CostModel) -> None:
        self.plan = plan
        self.machine = machine
        self.costs = costs
        self.index = PlanIndex(plan)
        self.env = Environment()
        self.settler = settler = Settler(self.env)
        self.routes = Routes(machine)
        self.element_bytes = buffer_bytes(plan)
        self.buffer_cols = {(b.gpu, b.name): b.cols for b in plan.buffers}
        self.units = ComputeUnits(
            plan.num_gpus,
            costs,
            settler,
            lambda gpu: self.network.traffic(gpu),  # noqa: PLW0108 - made below
            lambda gpu: self.network.compute_changed(gpu),  # noqa: PLW0108 - made below
        )
        self.network = FlowNetwork(
            machine, costs, settler, self.units.computing, self.units.traffic_changed
        )
        num_engines = len(plan.tasks) + 1 if costs.ideal else machine.gpu.num_dma_engines
        self.pools = [_EnginePool(self.env, settler, num_engines) for _ in range(plan.num_gpus)]
        settler.steps = [
            *(pool.settle for pool in self.pools),
            self.network.settle,
            self.units.settle,
        ]
        settler.ended = [self.network.ended, self.units.ended]
        num_tasks = len(plan.tasks)
        self.waiting_for = [len(task.deps) for task in plan.tasks]
        self.dependants: list[list[int]] = [[] for _ in range(num_tasks)]
        for i, task in enumerate(plan.tasks):
            for dep in task.deps:
                self.dependants[self.index.position[dep]].append(i)
        self.ready: list[Event | None] = [None] * num_tasks
        self.start_s = [0.0] * num_tasks
        self.end_s: list[float | None] = [None] * num_tasks
        self.lost_s = [0.0] * num_tasks
        self.submitted_s = self._submission_times()
        self.opening = self._opening_copies()
        self.signal_s = [0.0] * num_tasks  # from a copy's end until others know of it
        self.link_bytes = [0.0] * len(machine.links)
        self.emulated = False
        self._copy_known: dict[tuple[str, int, int], CopyCost] = {}
        self._gemm_known: dict[Any, tuple[GemmCost, float, float]] = {}

    def run(self) -> Trace:
        for queue, members in self.index.queues.items():
            self.env.process(self._queue(queue, members))
        self.env.run()
        stuck = [i for i, end in enumerate(self.end_s) if end is None]
        if stuck:
            raise SimulationError(self._explain(stuck))
        return self._trace()

    def _opening_copies(self) -> set[int]:
        """First copies on their queues, but for those on the first queue of each gpu's DMA engines."""
        seen: set[int] = set()
        found = set()
        for queue, members in self.index.queues.items():
            if queue.engine == "dma":
                if queue.gpu in seen:
                    found.add(members[0])
                seen.add(queue.gpu)
        return found

    def _submission_times(self) -> list[float]:
        """When each gpu's host thread has submitted each task, in the plan's order."""
        submit_s = self.costs.submit_s
        counts = [0] * self.plan.num_gpus
        times = []
        for task in self.plan.tasks:
            counts[task.queue.gpu] += 1
            times.append(counts[task.queue.gpu] * submit_s)
        return times

    def _queue(self, queue: Queue, members: list[int]) -> Steps:
        """Run the tasks of a queue in order."""
        env, tasks, end_s = self.env, self.plan.tasks, self.end_s
        position = self.index.position
        own = set(members)
        gap_s = self.costs.queue_gap_s if queue.engine == "compute" else 0.0
        free_s = 0.0
        for i in members:
            task = tasks[i]
            if self.waiting_for[i]:
                event = self.ready[i] = env.event()
                yield event
            start_s = max(free_s, self.submitted_s[i])
            for dep in task.deps:
                j = position[dep]
                if j not in own:
                    known_s = (end_s[j] or 0.0) + self.signal_s[j]
                    start_s = max(start_s, known_s + self.costs.event_wait_s)
            if isinstance(task, Transfer):
                yield from self._transfer(i, task, start_s)
            else:
                yield from self._kernel(i, task, start_s)
            now = env.now
            end_s[i] = now
            if i == members[-1] and not self.dependants[i]:
                end_s[i] = now + self.signal_s[i]  # the host too has to know that all is done
            free_s = now + gap_s
            for j in self.dependants[i]:
                self.waiting_for[j] -= 1
                if self.waiting_for[j] == 0:
                    waiter = self.ready[j]
                    if waiter is not None:
                        waiter.succeed()

    def _transfer(self, i: int, task: Transfer, start_s: float) -> Steps:
        env = self.env
        if start_s > env.now:
            yield env.timeout(start_s - env.now)
        src, dst = task.src, task.dst
        gpu = task.queue.gpu
        uses_pool = task.queue.engine == "dma"
        if uses_pool:
            began_s = yield self.pools[gpu].acquire(i)
        self.start_s[i] = env.now
        element_bytes = self.element_bytes[src.gpu, src.buffer]
        num_rows, num_cols = src.shape
        pitch = max(self.buffer_cols[src.gpu, src.buffer], self.buffer_cols[dst.gpu, dst.buffer])
        gap_bytes = (pitch - num_cols) * element_bytes if num_rows > 1 else 0
        kind = (task.queue.engine, num_cols * element_bytes, gap_bytes)
        cost = self._copy_known.get(kind)
        if cost is None:
            engine, row_bytes, _ = kind
            cost = self.costs.copy(
                engine, row_bytes=row_bytes, strided=gap_bytes > 0, gap_bytes=gap_bytes
            )
            self._copy_known[kind] = cost
        self.emulated = self.emulated or cost.emulated
        route = self.routes(src.gpu, dst.gpu)
        before_s = cost.setup_s + route.latency_s
        if i in self.opening:
            before_s += self.costs.queue_s
        if before_s > 0.0:
            yield env.timeout(before_s)
        nbytes = num_rows * num_cols * element_bytes
        flow = Flow(
            nbytes=nbytes,
            done=env.event(),
            now_s=env.now,
            src=src.gpu,
            dst=dst.gpu,
            route=route.links,
            shares=route.shares,
            cap=cost.bytes_per_s,
            core=not uses_pool,
        )
        self.network.start(flow)
        yield flow.done
        for r, share in zip(route.links, route.shares, strict=True):
            self.link_bytes[r] += nbytes * share
        self.lost_s[i] = flow.lost_s
        if cost.completion_s > 0.0:
            yield env.timeout(cost.completion_s)
        if uses_pool:
            self.signal_s[i] = self.costs.known_after_s(env.now - began_s)
            self.pools[gpu].release(began_s)

    def _kernel(self, i: int, task: Gemm | LocalCopy, start_s: float) -> Steps:
        env = self.env
        self.start_s[i] = start_s
        if isinstance(task, Gemm):
            cost, hbm_bytes, fewer_units = self._gemm_cost(task)
            startup_s, body_s = cost.startup_s, cost.body_s
            busy = cost.busy
        else:
            nbytes = self._local_bytes(task)
            startup_s, body_s = self.costs.local_copy_s(nbytes, accumulate=task.accumulate)
            passes = 3.0 if task.accumulate else 2.0
            busy, hbm_bytes, fewer_units = 0.0, passes * nbytes, 1.0
        delay_s = start_s + startup_s - env.now
        if delay_s > 0.0:
            yield env.timeout(delay_s)
        if body_s > 0.0:
            kernel = Kernel(
                body_s=body_s,
                done=env.event(),
                now_s=env.now,
                gpu=task.queue.gpu,
                is_gemm=isinstance(task, Gemm),
                busy=busy,
                # what a kernel does alone it can do, whatever of it comes from caches
                hbm_bytes_per_s=min(hbm_bytes / body_s, self.machine.gpu.hbm_bytes_per_s),
                fewer_units=fewer_units,
            )
            self.units.start(kernel)
            yield kernel.done
            self.lost_s[i] = kernel.lost_s

    def _gemm_cost(self, task: Gemm) -> tuple[GemmCost, float, float]:
        """Cost alone, HBM bytes, and slowdown without the units that copy kernels take."""
        key = (task.entry_rows, task.b.rows, task.b.cols, task.accumulate)
        known = self._gemm_known.get(key)
        if known is None:
            costs, workload = self.costs, self.plan.workload
            cost = costs.gemm(task, workload)
            fewer_units = 1.0
            if not costs.ideal and cost.body_s > 0.0:
                left = self.machine.gpu.num_compute_units - costs.profile.core_copy.compute_units
                fewer_units = max(costs.gemm(task, workload, left).body_s / cost.body_s, 1.0)
            known = self._gemm_known[key] = (
                cost,
                float(gemm_shape(task, workload.dtype).hbm_bytes),
                fewer_units,
            )
        return known

    def _local_bytes(self, task: LocalCopy) -> int:
        return sum(
            region.num_elements * self.element_bytes[region.gpu, region.buffer] for region in task.src
        )

    def _explain(self, stuck: list[int]) -> str:
        """Which tasks wait, and for what."""
        tasks = self.plan.tasks
        before = {b: a for m in self.index.queues.values() for a, b in pairwise(m)}
        lines = []
        for i in stuck[:MAX_SHOWN]:
            reasons = [dep for dep in tasks[i].deps if self.end_s[self.index.position[dep]] is None]
            previous = before.get(i)
            if previous is not None and self.end_s[previous] is None:
                reasons.append(f"{tasks[previous].id} before it on queue {tasks[i].queue}")
            lines.append(f"{tasks[i].id} waits for {', '.join(reasons) or 'its engine'}")
        if len(stuck) > MAX_SHOWN:
            lines.append(f"and {len(stuck) - MAX_SHOWN} more tasks")
        return f"{self.plan.schedule}: stuck at {self.env.now:g} s: " + "; ".join(lines)

    def _trace(self) -> Trace:
        machine = self.machine
        spans = []
        for i, task in enumerate(self.plan.tasks):
            end_s = self.end_s[i]
            assert end_s is not None
            if isinstance(task, Gemm):
                nbytes, flops = 0, task.flops
            elif isinstance(task, LocalCopy):
                nbytes, flops = self._local_bytes(task), 0
            else:
                src = task.src
                nbytes, flops = src.num_elements * self.element_bytes[src.gpu, src.buffer], 0
            spans.append(
                Span(
                    task_id=task.id,
                    kind=task.kind,
                    queue=task.queue,
                    start_s=self.start_s[i],
                    end_s=end_s,
                    nbytes=nbytes,
                    flops=flops,
                    lost_s=self.lost_s[i],
                    submitted_s=self.submitted_s[i],
                )
            )
        loads = tuple(
            LinkLoad(
                src=machine.node_name(link.src),
                dst=machine.node_name(link.dst),
                nbytes=round(nbytes),
                min_busy_s=nbytes / link.usable_bytes_per_s,
            )
            for link, nbytes in zip(machine.links, self.link_bytes, strict=True)
        )
        return Trace(
            source="sim",
            schedule=self.plan.schedule,
            workload=self.plan.workload.name,
            machine=machine.name,
            environment={"costs": self.costs.kind, "submission": self.costs.submission},
            labels=("emulated-2d",) if self.emulated else (),
            links=loads,
            spans=tuple(spans),
        )

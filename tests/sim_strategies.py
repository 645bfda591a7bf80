"""Shared by the simulator's tests: machines of any size, scenarios, and bounds from costs alone."""

import dataclasses
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from ficco_sim.costs import CostModel
from ficco_sim.machine import Machine, MachineFile, Topology, build_machine
from ficco_sim.plan import (
    Buffer,
    Gemm,
    LocalCopy,
    Plan,
    PlanIndex,
    Queue,
    Region,
    Task,
    Transfer,
    buffer_bytes,
)
from ficco_sim.profile import MeasuredGemm
from ficco_sim.routing import Routes
from ficco_sim.schedules import FICCO, make_plan
from ficco_sim.workload import Workload

GPUS = ("mi300x", "h200")
LINK = {"bandwidth_bytes_per_s": 64e9, "usable_bytes_per_s": 46.5e9, "latency_s": 0.5e-6}
PORT = {"bandwidth_bytes_per_s": 450e9, "usable_bytes_per_s": 394e9, "latency_s": 0.25e-6}


def machine_of(
    family: str, num_gpus: int, gpu: str = "mi300x", *, hardware_routing: bool = False, **topology: Any
) -> Machine:
    """A machine of a family with as many gpus as wanted; links as on MI300X, ports as on H200.

    Its GEMMs cost what the formula says, and nothing is known of how it was fitted.
    """
    given = (PORT if family == "switch" else LINK) | topology
    machine = build_machine(
        MachineFile(
            format_version=1,
            name=f"{family}-{num_gpus}-{gpu}",
            description="made for a test",
            num_gpus=num_gpus,
            gpu=gpu,
            topology=Topology(family=family, **given),
            hardware_routing=hardware_routing,
        ),
        "test",
    )
    return by_formula(machine)


def by_formula(machine: Machine) -> Machine:
    """The machine without measured shapes and fits: its GEMMs cost what the formula says."""
    profile = dataclasses.replace(machine.profile, fits={})
    plain = dataclasses.replace(machine, profile=profile)
    return with_profile(plain, gemm={"measured": (), "correction_reach": 0.0})


def with_profile(machine: Machine, **parts: dict[str, Any]) -> Machine:
    """The machine with some values of its profile replaced, by part: ``copy={"setup_s": 0.0}``."""
    profile = machine.profile
    new = {key: dataclasses.replace(getattr(profile, key), **values) for key, values in parts.items()}
    return dataclasses.replace(machine, profile=dataclasses.replace(profile, **new))


def with_peak(machine: Machine, factor: float) -> Machine:
    """The machine with a faster or slower main loop for every element type."""
    rates = {
        dtype: dataclasses.replace(r, flops_per_s_per_unit=r.flops_per_s_per_unit * factor)
        for dtype, r in machine.profile.gemm.rates.items()
    }
    return with_profile(machine, gemm={"rates": rates})


@dataclass(frozen=True, kw_only=True)
class Case:
    """One simulation: what to plan, on what machine, at what costs."""

    workload: Workload
    schedule: str
    knobs: dict[str, int | str]
    family: str
    gpu: str
    num_gpus: int
    kind: str = "profile"
    submission: str = "graph"

    @property
    def machine(self) -> Machine:
        # the hardware of the ring routes, or most schedules would find links missing
        return machine_of(self.family, self.num_gpus, self.gpu, hardware_routing=self.family == "ring")

    @property
    def plan(self) -> Plan:
        return make_plan(self.schedule, self.workload, self.num_gpus, self.knobs)

    def costs(self, machine: Machine) -> CostModel:
        return CostModel(machine, self.kind, self.submission)


SIZES = st.one_of(
    st.integers(1, 40),
    st.sampled_from([64, 256, 1000, 2048, 4096, 8192, 16384, 32768]),
    st.integers(1, 20_000),
)


@st.composite
def workloads(draw: st.DrawFn, sizes: st.SearchStrategy[int] = SIZES) -> Workload:
    """All-gather workloads, small and uneven ones included."""
    return Workload(
        name="drawn",
        pattern="all_gather_gemm",
        m=draw(sizes),
        n=draw(sizes),
        k=draw(sizes),
        dtype=draw(st.sampled_from(["bf16", "fp8", "fp32"])),
    )


@st.composite
def cases(
    draw: st.DrawFn,
    *,
    families: tuple[str, ...] = ("full_mesh", "switch", "ring"),
    gpus: tuple[str, ...] = GPUS,
    engines: tuple[str, ...] = ("dma", "core"),
    kinds: tuple[str, ...] = ("profile", "ideal"),
    schedules: tuple[str, ...] = ("serial", "shard-p2p", "shard-ring", *FICCO),
    queues: tuple[int, ...] = (1, 2, 4),
    sizes: st.SearchStrategy[int] = SIZES,
    even: bool = False,
) -> Case:
    """Any schedule with any knobs on a symmetric machine; ``even`` makes all shards alike."""
    schedule = draw(st.sampled_from(schedules))
    num_gpus = draw(st.integers(1, 9))
    knobs: dict[str, int | str] = {"engine": draw(st.sampled_from(engines))}
    if schedule in FICCO:
        knobs["num_chunks"] = draw(st.integers(1, 9))
        if "-unfused" in schedule:
            knobs["compute_queues"] = draw(st.sampled_from(queues))
        if "-fused" in schedule:
            knobs["gather"] = draw(st.sampled_from(["direct", "copy"]))
    workload = draw(workloads(sizes))
    if even:
        workload = dataclasses.replace(workload, m=-(-workload.m // num_gpus) * num_gpus)
    return Case(
        workload=workload,
        schedule=schedule,
        knobs=knobs,
        family=draw(st.sampled_from(families)),
        gpu=draw(st.sampled_from(gpus)),
        num_gpus=num_gpus,
        kind=draw(st.sampled_from(kinds)),
        submission=draw(st.sampled_from(["graph", "graph", "eager"])),
    )


class Bounds:
    """What a makespan can be, from costs and the plan, without simulating.

    Attributes
    ----------
    alone_s
        Of each task, on an empty machine.
    """

    def __init__(self, plan: Plan, costs: CostModel) -> None:
        self.plan = plan
        self.costs = costs
        self.machine = costs.machine
        self.index = PlanIndex(plan)
        self._element_bytes = buffer_bytes(plan)
        self._cols = {(b.gpu, b.name): b.cols for b in plan.buffers}
        self._routes = Routes(self.machine)
        self.alone_s = [self._alone_s(task) for task in plan.tasks]

    def _alone_s(self, task: Task) -> float:
        if isinstance(task, Gemm):
            return self.costs.gemm(task, self.plan.workload).time_s
        if not isinstance(task, Transfer):
            moved = sum(r.num_elements * self._element_bytes[r.gpu, r.buffer] for r in task.src)
            return sum(self.costs.local_copy_s(moved))
        src, dst = task.src, task.dst
        rows, cols = src.shape
        narrow = cols < self._cols[src.gpu, src.buffer] or cols < self._cols[dst.gpu, dst.buffer]
        cost = self.costs.copy(
            task.queue.engine,
            row_bytes=cols * self._element_bytes[src.gpu, src.buffer],
            strided=rows > 1 and narrow,
        )
        route = self._routes(src.gpu, dst.gpu)
        rate = cost.bytes_per_s
        for i, share in zip(route.links, route.shares, strict=True):
            rate = min(rate, self.machine.links[i].usable_bytes_per_s / share)
        return cost.setup_s + route.latency_s + self.nbytes(task) / rate + cost.completion_s

    def nbytes(self, task: Transfer) -> int:
        """Bytes that a transfer moves."""
        return task.src.num_elements * self._element_bytes[task.src.gpu, task.src.buffer]

    def _gap_s(self, task: Task) -> float:
        return self.costs.queue_gap_s if task.queue.engine == "compute" else 0.0

    def _opening_s(self) -> float:
        """Of all first copies on queues, but for the first queue of each gpu."""
        queues = {task.queue for task in self.plan.tasks if task.queue.engine == "dma"}
        return (len(queues) - len({queue.gpu for queue in queues})) * self.costs.queue_s

    def _signal_s(self, task: Task) -> float:
        return self.costs.signal_s if task.queue.engine == "dma" else 0.0

    def _latest_signal_s(self, task: Task) -> float:
        """The most after a copy's end: it has just missed a tick, or the first is yet to come."""
        ticks_s = max(self.costs.tick_s, self.costs.first_tick_s)
        return self._signal_s(task) + (ticks_s if task.queue.engine == "dma" else 0.0)

    def longest_queue_s(self) -> float:
        """Tasks of a queue follow each other; kernels with a gap in between."""
        longest = 0.0
        for members in self.index.queues.values():
            gaps_s = (len(members) - 1) * self._gap_s(self.plan.tasks[members[0]])
            longest = max(longest, sum(self.alone_s[i] for i in members) + gaps_s)
        return longest

    def link_bytes(self) -> list[float]:
        """Bytes over each link of the machine."""
        total = [0.0] * len(self.machine.links)
        for task in self.plan.tasks:
            if isinstance(task, Transfer):
                route = self._routes(task.src.gpu, task.dst.gpu)
                for i, share in zip(route.links, route.shares, strict=True):
                    total[i] += self.nbytes(task) * share
        return total

    def gpu_bytes(self) -> list[tuple[int, int]]:
        """Bytes of transfers into and out of each gpu."""
        total = [[0, 0] for _ in range(self.plan.num_gpus)]
        for task in self.plan.tasks:
            if isinstance(task, Transfer):
                total[task.dst.gpu][0] += self.nbytes(task)
                total[task.src.gpu][1] += self.nbytes(task)
        return [(came, left) for came, left in total]

    def busiest_link_s(self) -> float:
        """No link carries more than its usable bandwidth."""
        return max(
            (
                nbytes / link.usable_bytes_per_s
                for nbytes, link in zip(self.link_bytes(), self.machine.links, strict=True)
            ),
            default=0.0,
        )

    def engines_s(self) -> float:
        """A gpu's DMA engines serve a transfer each at a time, from set-up to completion."""
        if self.costs.ideal:
            return 0.0
        busy_s: dict[int, float] = defaultdict(float)
        for task, alone_s in zip(self.plan.tasks, self.alone_s, strict=True):
            if task.queue.engine == "dma":
                busy_s[task.queue.gpu] += alone_s
        return max(busy_s.values(), default=0.0) / self.machine.gpu.num_dma_engines

    def critical_path_s(self) -> float:
        """The longest chain of dependencies and queue order, every task alone on the machine."""
        order, stuck = self.index.topological_order()
        assert not stuck
        tasks, costs = self.plan.tasks, self.costs
        submitted: dict[int, int] = defaultdict(int)
        earliest_s = []
        for task in tasks:
            submitted[task.queue.gpu] += 1
            earliest_s.append(submitted[task.queue.gpu] * costs.submit_s)
        before = {b: a for m in self.index.queues.values() for a, b in pairwise(m)}
        end_s = [0.0] * len(tasks)
        for i in order:
            start_s = earliest_s[i]
            if i in before:
                start_s = max(start_s, end_s[before[i]] + self._gap_s(tasks[i]))
            for dep in tasks[i].deps:
                j = self.index.position[dep]
                wait_s = 0.0
                if tasks[j].queue != tasks[i].queue:
                    wait_s = costs.event_wait_s + self._signal_s(tasks[j])
                start_s = max(start_s, end_s[j] + wait_s)
            end_s[i] = start_s + self.alone_s[i]
        return max(end_s, default=0.0)

    def lower_s(self) -> float:
        """The largest of all lower bounds."""
        return max(
            self.longest_queue_s(), self.busiest_link_s(), self.engines_s(), self.critical_path_s()
        )

    def serial_sum_s(self) -> float:
        """All tasks of all gpus one after another, each with its gap and wait, after submission."""
        submitted: dict[int, int] = defaultdict(int)
        total_s = sum(self.alone_s) + self._opening_s()
        for task in self.plan.tasks:
            submitted[task.queue.gpu] += 1
            deps = [self.plan.tasks[self.index.position[dep]] for dep in task.deps]
            waits_s = [
                self.costs.event_wait_s + self._latest_signal_s(dep)
                for dep in deps
                if dep.queue != task.queue
            ]
            total_s += self._gap_s(task) + max(waits_s, default=0.0)
        # of the last
        total_s += max((self._latest_signal_s(task) for task in self.plan.tasks), default=0.0)
        return total_s + max(submitted.values(), default=0) * self.costs.submit_s


QUIET = {
    "copy": {
        "setup_s": 0.0,
        "completion_s": 0.0,
        "signal_s": 0.0,
        "queue_s": 0.0,
        "tick_s": 0.0,
        "first_tick_s": 0.0,
        "engine_bytes_per_s": 1e15,
    },
    "core_copy": {"setup_s": 0.0},
    "local_copy": {"startup_s": 0.0},
    "launch": {"queue_gap_s": 0.0, "event_wait_s": 0.0, "graph_submit_s": 0.0},
    "contention": {"dma_in": 0.0, "dma_out": 0.0, "core_in": 0.0, "core_out": 0.0},
}


def quiet(machine: Machine, **parts: dict[str, Any]) -> Machine:
    """The machine without fixed costs and contention, but for ``parts``, see `with_profile`."""
    rates = {
        dtype: dataclasses.replace(r, startup_s=0.0) for dtype, r in machine.profile.gemm.rates.items()
    }
    merged = {key: values | parts.get(key, {}) for key, values in QUIET.items()}
    merged["gemm"] = {"rates": rates} | parts.get("gemm", {})
    return with_profile(machine, **merged)


def without_contention(machine: Machine) -> Machine:
    """The machine with HBM so fast that copies and kernels do not feel each other's traffic."""
    gpu = dataclasses.replace(machine.gpu, hbm_bytes_per_s=1e18)
    return with_profile(dataclasses.replace(machine, gpu=gpu), contention=QUIET["contention"])


def with_measured(
    machine: Machine, *shapes: tuple[int, int, int, float], dtype: str = "bf16"
) -> Machine:
    """The machine with measured GEMMs: m, n, k and seconds of each."""
    measured = tuple(MeasuredGemm(m=m, n=n, k=k, dtype=dtype, time_s=t) for m, n, k, t in shapes)
    return with_profile(machine, gemm={"measured": measured})


def transfer(
    task_id: str,
    src: int,
    dst: int,
    nbytes: int,
    *,
    queue: int = 0,
    engine: str = "dma",
    deps: tuple[str, ...] = (),
) -> Transfer:
    """One contiguous row of ``nbytes`` bytes."""
    row = {"buffer": "row", "rows": (0, 1), "cols": (0, nbytes)}
    return Transfer(
        id=task_id,
        queue=Queue(gpu=dst, engine=engine, index=queue),
        src=Region(gpu=src, **row),
        dst=Region(gpu=dst, **row),
        deps=deps,
    )


def gemm(
    task_id: str,
    gpu: int,
    m: int,
    n: int,
    k: int,
    *,
    queue: int = 0,
    accumulate: bool = False,
    deps: tuple[str, ...] = (),
) -> Gemm:
    """``[m, k] @ [k, n]`` in bf16."""
    return Gemm(
        id=task_id,
        queue=Queue(gpu=gpu, engine="compute", index=queue),
        a=(Region(gpu=gpu, buffer="a", rows=(0, m), cols=(0, k)),),
        b=Region(gpu=gpu, buffer="b", rows=(0, k), cols=(0, n)),
        c=(Region(gpu=gpu, buffer="c", rows=(0, m), cols=(0, n)),),
        accumulate=accumulate,
        deps=deps,
    )


def local_copy(
    task_id: str, gpu: int, nbytes: int, *, queue: int = 0, deps: tuple[str, ...] = ()
) -> LocalCopy:
    """One row of ``nbytes`` bytes to another place of the same gpu."""
    return LocalCopy(
        id=task_id,
        queue=Queue(gpu=gpu, engine="compute", index=queue),
        src=(Region(gpu=gpu, buffer="row", rows=(0, 1), cols=(0, nbytes)),),
        dst=(Region(gpu=gpu, buffer="row2", rows=(0, 1), cols=(0, nbytes)),),
        deps=deps,
    )


def hand_plan(num_gpus: int, *tasks: Task, workload: Workload | None = None) -> Plan:
    """A plan of these tasks; ``workload`` gives the element type and the whole GEMM.

    Its buffers are as large as the tasks need; the simulator never looks at data.
    """
    sizes: dict[tuple[int, str], tuple[int, int]] = {}
    for task in tasks:
        for region in (*task.reads, *task.writes):
            rows, cols = sizes.get((region.gpu, region.buffer), (0, 0))
            sizes[region.gpu, region.buffer] = (
                max(rows, region.rows[1]),
                max(cols, region.cols[1]),
            )
    dtypes = {"row": "fp8", "row2": "fp8"}  # a byte an element
    buffers = tuple(
        Buffer(gpu=gpu, name=name, rows=rows, cols=cols, dtype=dtypes.get(name, "bf16"))
        for (gpu, name), (rows, cols) in sizes.items()
    )
    return Plan(
        schedule="by-hand",
        knobs={},
        workload=workload or Workload(name="by-hand", pattern="gemm", m=1, n=1, k=1),
        num_gpus=num_gpus,
        buffers=buffers,
        inputs=(),
        outputs=(),
        tasks=tasks,
    )

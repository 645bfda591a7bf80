"""Run a plan on devices: queues become streams, dependencies become events.

Queues of a gpu are lanes of its device; transfers go by copy engines or by the copy kernel, copies
within a gpu by a kernel, GEMMs by torch. The plan is captured in one graph a gpu, or in one for all
where gpus wait for one another, and can be submitted eagerly to see what launching costs.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from torch import Tensor

from ficco_sim.check import check_plan
from ficco_sim.errors import PlanError, ScenarioError
from ficco_sim.plan import Gemm, LocalCopy, Plan, Queue, Task, Transfer, buffer_bytes
from ficco_sim.trace import Span, Trace
from hw_validate import operations
from hw_validate.links import Round, rounds_of
from hw_validate.memory import Arena, Inputs, Memory
from hw_validate.placement import Placement
from hw_validate.program import Backend, Lane, Launch, Prepared, Run, Step
from hw_validate.verify import verify

__all__ = ["Bound", "bind", "run_plan", "trace_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A plan on its places, ready to be prepared by the backend.

    Parameters
    ----------
    steps
        A step for each task of the gpus that compute.
    memory
        Its buffers.
    led
        For transfers that share a step, see `hw_validate.links`: its id.
    """

    plan: Plan
    placement: Placement
    backend: Backend
    memory: Memory
    steps: tuple[Step, ...]
    led: Mapping[str, str] = field(default_factory=dict)

    def prepare(self, *, graph: bool = True, spans: bool = False) -> Prepared:
        """Capture it in graphs, or make it ready to be submitted step by step."""
        prepared = self.backend.prepare(self.steps, graph=graph, spans=spans)
        return _Led(prepared, self.led) if self.led else prepared

    def outputs(self) -> dict[tuple[int, str], Tensor]:
        """The output matrices of the gpus that compute."""
        return {
            (r.gpu, r.buffer): self.memory.whole(r.gpu, r.buffer)
            for r in self.plan.outputs
            if r.gpu in self.placement.computing
        }


def bind(plan: Plan, placement: Placement, backend: Backend, arena: Arena | None = None) -> Bound:
    """Give a checked plan its memory and make a step of each of its tasks.

    Tasks of gpus that only hold data are left out; what others read there is there from the start.

    Raises
    ------
    ScenarioError
        If placement and plan are for different numbers of gpus, or torch has no kernel for a task.
    PlanError
        If the plan is illegal, or a gpu that only holds data would have to compute.
    HardwareError
        If memory or peer access is missing.
    """
    if placement.num_gpus != plan.num_gpus:
        raise ScenarioError(
            f"--map: places for {placement.num_gpus} gpus, but the plan is for {plan.num_gpus}"
        )
    check_plan(plan)
    memory = Memory(plan, placement, arena or Arena(backend))
    running = [task for task in plan.tasks if task.queue.gpu in placement.computing]
    if not running:
        raise PlanError(f"{plan.schedule}: no task on the gpus that compute")
    here = {task.id for task in running}
    rounds = {each.id: each for each in rounds_of(plan, placement)}
    led = {t.id: each.id for each in rounds.values() for t in each.transfers}
    core_queues = Counter(
        queue.gpu for queue in {task.queue for task in running} if queue.engine == "core"
    )
    steps = []
    waited: set[tuple[Lane, str]] = set()  # a round has one end, so that a lane waits for it once
    for task in running:
        if led.get(task.id, task.id) != task.id:
            continue
        device = placement.places[task.queue.gpu]
        together = rounds.get(task.id)
        if together is None:
            lane = _lane(task.queue, placement)
            launch = _launch(task, memory, backend, device, core_queues[task.queue.gpu])
        else:
            lane = Lane(gpu=task.queue.gpu, device=device, name=f"links{together.place}")
            launch = _launch_round(together, memory, backend, device)
        waits = dict.fromkeys(led.get(dep, dep) for dep in task.deps if dep in here)
        once = tuple(wait for wait in waits if (lane, wait) not in waited)
        waited |= {(lane, wait) for wait in waits if wait in rounds}
        steps.append(Step(id=task.id, lane=lane, launch=launch, waits=once))
    return Bound(
        plan=plan, placement=placement, backend=backend, memory=memory, steps=tuple(steps), led=led
    )


@dataclass(frozen=True, slots=True)
class _Led:
    """Runs that tell a span for each transfer of a shared step."""

    prepared: Prepared
    led: Mapping[str, str]

    def run(self) -> Run:
        run = self.prepared.run()
        shared = {name: run.spans[of] for name, of in self.led.items() if of in run.spans}
        return replace(run, spans={**run.spans, **shared})

    def close(self) -> None:
        self.prepared.close()


def _launch_round(together: Round, memory: Memory, backend: Backend, device: int) -> Launch:
    launches = [
        backend.joint_transfer(pairs, device) for pairs in memory.of_round(together, device) if pairs
    ]

    def launch(stream: int) -> None:
        for each in launches:
            each(stream)

    return launch


def _lane(queue: Queue, placement: Placement) -> Lane:
    return Lane(
        gpu=queue.gpu,
        device=placement.places[queue.gpu],
        name=f"{queue.engine}{queue.index}",
    )


def _launch(task: Task, memory: Memory, backend: Backend, device: int, core_queues: int) -> Launch:
    match task:
        case Transfer():
            engine = "core" if task.queue.engine == "core" else "dma"
            src, dst = memory.view(task.src), memory.view(task.dst)
            return backend.transfer(src, dst, engine, device, share=max(1, core_queues))
        case LocalCopy():
            pairs = [
                (memory.view(src), memory.view(dst))
                for src, dst in zip(task.src, task.dst, strict=True)
            ]
            if task.accumulate:
                return operations.accumulate(pairs, name=task.id)
            return backend.local_copy(pairs, device)
        case Gemm():
            entries = [(memory.view(a), memory.view(c)) for a, c in zip(task.a, task.c, strict=True)]
            return operations.gemm(
                entries, memory.view(task.b), accumulates=task.accumulate, name=task.id
            )


def run_plan(
    plan: Plan,
    inputs: Inputs,
    *,
    placement: Placement,
    backend: Backend,
    graph: bool = True,
    check: bool = True,
) -> tuple[dict[tuple[int, str], Tensor], Trace]:
    """Run a plan once, with its spans.

    Parameters
    ----------
    inputs
        From `hw_validate.memory`; left as they are.
    placement
        Where each of the plan's gpus lives.
    graph
        Captured in graphs, or submitted step by step.
    check
        Compare the outputs with a product in higher precision.

    Returns
    -------
    outputs, trace
        Output matrices of the gpus that compute, by gpu and name; a span for each of their tasks.

    Raises
    ------
    FiccoError
        See `bind` and `hw_validate.verify.verify`.
    """
    bound = bind(plan, placement, backend)
    bound.memory.load(inputs)
    warm_up(bound)
    bound.memory.load(inputs)
    prepared = bound.prepare(graph=graph, spans=True)
    try:
        run = prepared.run()
    finally:
        prepared.close()
    outputs = bound.outputs()
    if check:
        verify(plan, placement, inputs, outputs)
    return outputs, trace_of(bound, run, graph=graph)


def warm_up(bound: Bound) -> None:
    """Submit everything once: libraries load and take their workspaces outside of any capture."""
    eager = bound.prepare(graph=False, spans=False)
    try:
        eager.run()
    finally:
        eager.close()


def trace_of(bound: Bound, run: Run, *, graph: bool, machine: str = "") -> Trace:
    """The trace of a run with spans."""
    plan = bound.plan
    sizes = buffer_bytes(plan)
    spans = []
    for task in plan.tasks:
        if task.id in run.spans:
            start_s, end_s = run.spans[task.id]
            nbytes = (
                0
                if isinstance(task, Gemm)
                else sum(r.num_elements * sizes[r.gpu, r.buffer] for r in task.writes)
            )
            spans.append(
                Span(
                    task_id=task.id,
                    kind=task.kind,
                    queue=task.queue,
                    start_s=start_s,
                    end_s=end_s,
                    nbytes=nbytes,
                    flops=task.flops if isinstance(task, Gemm) else 0,
                )
            )
    return Trace(
        source="gpu",
        schedule=plan.schedule,
        workload=plan.workload.name,
        machine=machine or bound.backend.kind,
        plan_fingerprint=plan.fingerprint,
        environment={
            "submission": "graph" if graph else "eager",
            "map": bound.placement.describe(),
            "host_submit_s": f"{run.host_s:.9f}",
        },
        labels=(*bound.placement.labels, *bound.backend.labels),
        spans=tuple(spans),
    )

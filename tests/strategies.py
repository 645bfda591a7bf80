"""Shared strategies and oracles: workloads, plans of every schedule, and what a plan must compute.

Layer: plan and numpy. The oracle here knows the operators only: it takes nothing from the inputs and
outputs that a plan declares, so that a plan cannot agree with itself and still be wrong.
"""

import os
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from ficco_sim.plan import Gemm, LocalCopy, Plan, PlanIndex, Region, Task, Transfer
from ficco_sim.reference import Arrays, evaluate, legal_order
from ficco_sim.schedules import FICCO, SCHEDULES, collective, knobs_of, make_plan, side_by_side
from ficco_sim.workload import DTYPE_BYTES, Workload, split

EVERY_SCHEDULE = (*SCHEDULES, "side-by-side")
EXCHANGES = tuple(f"{name} exchange" for name in ("serial", "shard-p2p", *FICCO))
"""The schedules that also run an all-to-all before the GEMM, in a word of the tests only."""
COLLECTIVES = (
    "all_gather ring-two-way-split",
    "all_to_all direct",
    "reduce_scatter direct",
    "reduce_scatter ring",
    "all_reduce direct",
    "all_reduce ring",
    "all_reduce ring-two-way-split",
)
PATTERN_OF = {"all-gather": "all_gather", "side-by-side": "gemm"} | {
    name: name.split()[0] for name in COLLECTIVES if name != "all_to_all direct"
}


def examples(count: int) -> settings:
    """Settings for a test with fewer or more examples than usual; explore tries 20 times as many."""
    exploring = os.environ.get("HYPOTHESIS_PROFILE") == "explore"
    return settings(
        max_examples=20 * count if exploring else count,
        suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
    )


def workload_for(schedule: str, m: int = 13, n: int = 3, k: int = 7, dtype: str = "bf16") -> Workload:
    """A workload of the pattern that a schedule is for; `plan_of` makes it an exchange if needed."""
    pattern = PATTERN_OF.get(schedule, "all_gather_gemm")
    return Workload(name="drawn", pattern=pattern, m=m, n=n, k=k, dtype=dtype)


def plan_of(schedule: str, workload: Workload, num_gpus: int, **knobs: Any) -> Plan:
    """The plan of a schedule by name; knobs that it does not have are left out."""
    if schedule == "side-by-side":
        sizes = {"gathered_rows": workload.m + 1, "gathered_cols": 2}
        known = ("engine", "overlap", *sizes)
        taken = sizes | {name: value for name, value in knobs.items() if name in known}
        return side_by_side(workload, num_gpus, **taken)
    if schedule in EXCHANGES:
        schedule = schedule.removesuffix(" exchange")
        workload = routed(workload, num_gpus, "all_to_all_gemm")
    if schedule in COLLECTIVES:
        pattern, algorithm = schedule.split()
        if pattern == "all_to_all":
            workload = routed(workload, num_gpus, pattern)
        engine = knobs.get("engine", "dma")
        return collective(workload, num_gpus, algorithm=algorithm, engine=engine)
    taken = {name: value for name, value in knobs.items() if name in knobs_of(schedule)}
    return make_plan(schedule, workload, num_gpus, taken)


def routed(workload: Workload, num_gpus: int, pattern: str) -> Workload:
    """An exchange about as large as a workload: skewed, and some gpus send others nothing."""
    rng = random.Random(workload.m * 100 + num_gpus)  # noqa: S311
    most = 2 * workload.m // num_gpus + 1
    tokens = [[max(0, rng.randint(-1, most)) for _ in range(num_gpus)] for _ in range(num_gpus)]
    tokens[0][-1] = max(tokens[0][-1], 1)
    busiest = max(sum(column) for column in zip(*tokens, strict=True))
    return replace(workload, pattern=pattern, m=busiest, tokens=tuple(map(tuple, tokens)))


@st.composite
def knobs(draw: st.DrawFn, max_chunks: int = 9) -> dict[str, Any]:
    """Values for every knob of every schedule."""
    return {
        "num_chunks": draw(st.none() | st.integers(1, max_chunks)),
        "compute_queues": draw(st.integers(1, 4)),
        "copy_queues": draw(st.none() | st.integers(1, 3)),
        "engine": draw(st.sampled_from(["dma", "core"])),
        "gather": draw(st.sampled_from(["direct", "copy"])),
        "overlap": draw(st.booleans()),
        "gathered_rows": draw(st.integers(1, 20)),
        "gathered_cols": draw(st.integers(1, 4)),
    }


@st.composite
def plans(
    draw: st.DrawFn,
    schedule: str | None = None,
    *,
    min_gpus: int = 1,
    max_gpus: int = 9,
    max_chunks: int = 9,
    max_m: int = 60,
) -> Plan:
    """A plan of one schedule, or of any, over shapes that divide by nothing and parts of 0 rows."""
    name = draw(st.sampled_from(EVERY_SCHEDULE)) if schedule is None else schedule
    num_gpus = draw(st.integers(min_gpus, max_gpus))
    workload = workload_for(
        name,
        m=draw(st.integers(1, num_gpus) | st.integers(1, max_m)),
        n=draw(st.integers(1, 5)),
        k=draw(st.integers(1, 13)),
        dtype=draw(st.sampled_from(list(DTYPE_BYTES))),
    )
    return plan_of(name, workload, num_gpus, **draw(knobs(max_chunks)))


def operator_inputs(plan: Plan, *, seed: int = 0, integers: bool = False) -> tuple[Arrays, Arrays]:
    """Inputs of the plan's operator and the outputs it must have, from the workload alone."""
    rng = np.random.default_rng(seed)

    def matrix(rows: int, cols: int) -> np.ndarray:
        if integers:
            return rng.integers(-4, 5, (rows, cols)).astype(np.float64)
        return rng.standard_normal((rows, cols))

    workload, num_gpus = plan.workload, plan.num_gpus
    m, n, k = workload.m, workload.n, workload.k
    given: Arrays = {}
    wanted: Arrays = {}

    def scatter(name: str, whole: np.ndarray) -> None:
        for gpu, (lo, hi) in enumerate(split(len(whole), num_gpus)):
            given[gpu, name] = np.full(whole.shape, np.nan)
            given[gpu, name][lo:hi] = whole[lo:hi]

    if workload.pattern in {"reduce_scatter", "all_reduce"}:
        given |= {(gpu, "part"): matrix(m, k) for gpu in range(num_gpus)}
        total = sum(given.values())
        for gpu, shard in enumerate(split(m, num_gpus)):
            rows = slice(*shard) if workload.pattern == "reduce_scatter" else slice(0, m)
            if rows.start < rows.stop:
                wanted[gpu, "part"] = np.full((m, k), np.nan)  # what lies elsewhere does not matter
                wanted[gpu, "part"][rows] = total[rows]
        return given, wanted
    tokens = workload.tokens
    if tokens is not None:
        sent = [[matrix(rows, k) for rows in row] for row in tokens]
        for gpu in range(num_gpus):
            given[gpu, "send"] = np.concatenate(sent[gpu])
            received = np.concatenate([blocks[gpu] for blocks in sent])
            given[gpu, "b"] = matrix(k, n)
            if len(received):
                multiplied = workload.pattern == "all_to_all_gemm"
                key = (gpu, "c" if multiplied else "a")
                wanted[key] = received @ given[gpu, "b"] if multiplied else received
        return given, wanted
    whole_a = matrix(m, k)
    if workload.pattern == "gemm":
        given |= {(gpu, "a"): whole_a for gpu in range(num_gpus)}
        whole_x = matrix(int(plan.knobs["gathered_rows"]), int(plan.knobs["gathered_cols"]))
        scatter("x", whole_x)
        wanted |= {(gpu, "x"): whole_x for gpu in range(num_gpus)}
    else:
        scatter("a", whole_a)
    for gpu in range(num_gpus):
        if workload.pattern == "all_gather":
            wanted[gpu, "a"] = whole_a
        else:
            given[gpu, "b"] = matrix(k, n)
            wanted[gpu, "c"] = whole_a @ given[gpu, "b"]
    return given, wanted


def gives_right_numbers(plan: Plan, order: Sequence[Task], *, seed: int = 0) -> bool:
    """The oracle: run a plan, right or damaged, in one order; does every gpu end with its output?"""
    given, wanted = operator_inputs(plan, seed=seed)
    try:
        with np.errstate(all="ignore"):
            got = evaluate(plan, given, order)
    except (LookupError, ValueError):
        return False
    return all(
        key in got
        and got[key].shape == whole.shape
        and np.allclose(got[key][~np.isnan(whole)], whole[~np.isnan(whole)], atol=1e-9)
        for key, whole in wanted.items()
    )


def right_in_every_order(plan: Plan, *, orders: int = 3) -> bool:
    """Whether no legal order is found in which a plan goes wrong; each task is also tried early."""
    early = [early_order(plan, task.id) for task in spread(plan.tasks, 6)]
    return all(
        gives_right_numbers(plan, order)
        for order in [*early, *(legal_order(plan, seed) for seed in range(orders))]
    )


def spread(items: Sequence[Any], count: int) -> Sequence[Any]:
    """At most ``count`` items, evenly spaced."""
    return items[:: max(1, len(items) // count)]


def ancestors(plan: Plan, task_id: str) -> set[str]:
    """Ids of all tasks that must have ended before one starts."""
    index = PlanIndex(plan)
    found: set[int] = set()
    stack = list(index.predecessors[index.position[task_id]])
    while stack:
        i = stack.pop()
        if i not in found:
            found.add(i)
            stack += index.predecessors[i]
    return {plan.tasks[i].id for i in found}


def descendants(plan: Plan, task_id: str) -> set[str]:
    """Ids of all tasks that depend on one, directly or not; queue order does not count."""
    found = {task_id}
    grown = True
    while grown:
        more = {task.id for task in plan.tasks if task.id not in found and found & {*task.deps}}
        found |= more
        grown = bool(more)
    return found - {task_id}


def early_order(plan: Plan, task_id: str) -> list[Task]:
    """The legal order in which a task comes as early as it can."""
    before = ancestors(plan, task_id)
    order = legal_order(plan, 0)
    key = {True: 0, False: 2}
    return sorted(order, key=lambda t: 1 if t.id == task_id else key[t.id in before])


def put(plan: Plan, *tasks: Task) -> Plan:
    """The plan with some tasks replaced by those of the same id."""
    new = {task.id: task for task in tasks}
    return replace(plan, tasks=tuple(new.get(task.id, task) for task in plan.tasks))


def operands(task: Task) -> dict[str, tuple[Region, ...]]:
    """The regions of a task by field, always as a tuple."""
    match task:
        case Transfer():
            return {"src": (task.src,), "dst": (task.dst,)}
        case LocalCopy():
            return {"src": task.src, "dst": task.dst}
        case Gemm():
            return {"a": task.a, "b": (task.b,), "c": task.c}


def with_operand(task: Task, field: str, at: int, region: Region) -> Task:
    """The task with one region replaced."""
    old = getattr(task, field)
    if isinstance(old, Region):
        return replace(task, **{field: region})
    return replace(task, **{field: (*old[:at], region, *old[at + 1 :])})


def moved(region: Region, down: int = 0, right: int = 0) -> Region:
    """A region of the same size elsewhere in its buffer."""
    (top, bottom), (west, east) = region.rows, region.cols
    return replace(region, rows=(top + down, bottom + down), cols=(west + right, east + right))

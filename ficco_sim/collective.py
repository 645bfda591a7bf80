"""One collective on a machine: time, and bandwidth by the definitions of nccl-tests."""

from collections.abc import Sequence
from dataclasses import dataclass

from ficco_sim.check import MAX_CHECKED_TASKS, check_plan
from ficco_sim.costs import CostModel
from ficco_sim.errors import ScenarioError
from ficco_sim.machine import Machine
from ficco_sim.plan import Plan
from ficco_sim.routing import relay
from ficco_sim.schedules import collective
from ficco_sim.schedules.collectives import Algorithm
from ficco_sim.sim import simulate
from ficco_sim.trace import LinkLoad, Trace
from ficco_sim.workload import COLLECTIVES, DTYPE_BYTES, MAX_DIM, Pattern, Workload, split

__all__ = ["CollectiveResult", "run_collective"]

WIDE_COLS = 4096  # a matrix this wide where one column would have too many rows


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveResult:
    """Time and bandwidth of a collective.

    Parameters
    ----------
    num_bytes
        Size as nccl-tests counts it: of the whole result (all-gather), of one gpu's input (all-reduce,
        reduce-scatter), of what one gpu sends in all (all-to-all).
    algbw_bytes_per_s, busbw_bytes_per_s
        ``num_bytes / time``; and that times 2(p-1)/p for all-reduce, (p-1)/p for the others.
    busiest_link
        The link with the least idle time, None if nothing moved.
    """

    collective: str
    algorithm: str
    machine: str
    num_gpus: int
    num_bytes: int
    num_chunks: int
    time_s: float
    algbw_bytes_per_s: float
    busbw_bytes_per_s: float
    busiest_link: LinkLoad | None
    links: tuple[LinkLoad, ...]
    num_tasks: int
    relayed: bool


def run_collective(
    name: str,
    num_bytes: int,
    machine: Machine,
    *,
    algorithm: Algorithm = "direct",
    extents: Sequence[int] | None = None,
    num_chunks: int = 1,
    engine: str = "dma",
    dtype: str = "bf16",
    costs: CostModel | None = None,
) -> tuple[CollectiveResult, Plan | None, Trace | None]:
    """Plan, check, relay where needed, and simulate a collective.

    Parameters
    ----------
    name
        One of ``COLLECTIVES``.
    num_bytes
        See `CollectiveResult`; 0 takes no time and makes no plan. Rounded up to whole elements.

    Returns
    -------
    result, plan, trace
        Plan and trace are None for 0 bytes.

    Raises
    ------
    FiccoError
        If an argument is out of range or the machine lacks links.
    """
    if name not in COLLECTIVES:
        raise ScenarioError(f"collective: {name!r} is unknown; one of {', '.join(COLLECTIVES)}")
    if dtype not in DTYPE_BYTES:
        raise ScenarioError(f"dtype: {dtype!r} is unknown; one of {', '.join(DTYPE_BYTES)}")
    if num_bytes < 0:
        raise ScenarioError(f"bytes: {num_bytes} must not be negative")
    num_gpus = machine.num_gpus
    if num_bytes == 0:
        empty = CollectiveResult(
            collective=name,
            algorithm=algorithm,
            machine=machine.name,
            num_gpus=num_gpus,
            num_bytes=0,
            num_chunks=num_chunks,
            time_s=0.0,
            algbw_bytes_per_s=0.0,
            busbw_bytes_per_s=0.0,
            busiest_link=None,
            links=(),
            num_tasks=0,
            relayed=False,
        )
        return empty, None, None
    workload = _workload(name, num_bytes, num_gpus, dtype)
    plan = collective(
        workload,
        num_gpus,
        algorithm=algorithm,
        extents=extents,
        num_chunks=num_chunks,
        engine=engine,
    )
    routed = relay(plan, machine)
    if len(routed.tasks) <= MAX_CHECKED_TASKS:
        check_plan(routed)
    trace = simulate(routed, machine, costs)
    time_s = trace.makespan_s
    passes = 2 if name == "all_reduce" else 1
    algbw = num_bytes / time_s if time_s > 0 else 0.0
    used = [link for link in trace.links if link.nbytes]
    result = CollectiveResult(
        collective=name,
        algorithm=algorithm,
        machine=machine.name,
        num_gpus=num_gpus,
        num_bytes=num_bytes,
        num_chunks=num_chunks,
        time_s=time_s,
        algbw_bytes_per_s=algbw,
        busbw_bytes_per_s=algbw * passes * (num_gpus - 1) / num_gpus,
        busiest_link=max(used, key=lambda link: link.min_busy_s, default=None),
        links=tuple(used),
        num_tasks=len(routed.tasks),
        relayed=routed is not plan,
    )
    return result, routed, trace


def _workload(name: str, num_bytes: int, num_gpus: int, dtype: str) -> Workload:
    elements = -(-num_bytes // DTYPE_BYTES[dtype])
    cols = 1 if elements <= MAX_DIM else WIDE_COLS
    rows = -(-elements // cols)
    pattern: Pattern = next(p for p in COLLECTIVES if p == name)
    tokens = None
    if name == "all_to_all":
        parts = split(rows, num_gpus)
        tokens = tuple(tuple(hi - lo for lo, hi in parts) for _ in range(num_gpus))
        rows = num_gpus * (parts[0][1] - parts[0][0])
    return Workload(
        name=f"{name}-{num_bytes}B", pattern=pattern, m=rows, n=1, k=cols, dtype=dtype, tokens=tokens
    )

"""Overlap at the granularity of shards: one peer at a time, or round a ring."""

from ficco_sim.plan import Plan
from ficco_sim.schedules.builder import GEMM_PATTERNS, PlanBuilder, check_arguments
from ficco_sim.workload import Workload


def shard_p2p(workload: Workload, num_gpus: int, *, engine: str = "dma") -> Plan:
    """Fetch one whole shard after another from its owner; multiply each as it arrives, own first.

    Raises
    ------
    ScenarioError
        If the workload has another pattern or an argument is out of range.
    """
    return _shard_by_shard(workload, num_gpus, engine, forwarded=False)


def shard_ring(workload: Workload, num_gpus: int, *, engine: str = "dma") -> Plan:
    """As `shard_p2p`, but every shard comes from the next gpu, which forwards it.

    Raises
    ------
    ScenarioError
        If the workload has another pattern or an argument is out of range.
    """
    return _shard_by_shard(workload, num_gpus, engine, forwarded=True)


def _shard_by_shard(workload: Workload, num_gpus: int, engine: str, *, forwarded: bool) -> Plan:
    # round a ring every gpu would carry what all others send each other
    patterns = GEMM_PATTERNS[:1] if forwarded else GEMM_PATTERNS
    builder = PlanBuilder(
        workload,
        num_gpus,
        check_arguments(workload, num_gpus, *patterns, engine=engine),
    )
    builder.operator_buffers()
    for g in range(num_gpus):
        for step in range(num_gpus):
            owner = (g + step) % num_gpus
            rows = builder.block(g, owner)
            if rows[0] == rows[1]:
                continue
            deps: list[str] = []
            if step > 0:
                source = (g + 1) % num_gpus if forwarded else owner
                # the neighbour received this shard one step earlier, unless it owns it
                after = [f"xfer.g{source}.s{owner}"] if source != owner else []
                deps = [
                    builder.transfer(
                        f"xfer.g{g}.s{owner}",
                        builder.a(source, rows) if forwarded else builder.origin(g, owner, rows),
                        builder.a(g, rows),
                        0,
                        after,
                    )
                ]
            builder.gemm(
                f"gemm.g{g}.s{owner}",
                [builder.here(g, owner, rows)],
                builder.b(g),
                [builder.c(g, rows)],
                deps=deps,
            )
    return builder.build("shard-ring" if forwarded else "shard-p2p", {"engine": engine})

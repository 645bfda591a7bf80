"""The baseline: gather everything, then multiply once."""

from ficco_sim.plan import Plan
from ficco_sim.schedules.builder import GEMM_PATTERNS, PlanBuilder, check_arguments
from ficco_sim.workload import Workload


def serial(workload: Workload, num_gpus: int, *, engine: str = "dma") -> Plan:
    """Bring all rows at once, direct from their owners, then run one GEMM over all of them.

    Raises
    ------
    ScenarioError
        If the workload has no GEMM after communication or an argument is out of range.
    """
    builder = PlanBuilder(
        workload, num_gpus, check_arguments(workload, num_gpus, *GEMM_PATTERNS, engine=engine)
    )
    builder.operator_buffers()
    for g in range(num_gpus):
        every_row = (0, builder.rows(g))
        if not builder.rows(g):
            continue
        arrived = _bring_blocks(builder, g)
        own = builder.block(g, g)
        if builder.tokens is not None and own[0] < own[1]:
            pair = (builder.here(g, g, own), builder.a(g, own))
            arrived.append(builder.local_copy(f"gather.g{g}", [pair]))
        builder.gemm(
            f"gemm.g{g}",
            [builder.a(g, every_row)],
            builder.b(g),
            [builder.c(g, every_row)],
            deps=arrived,
        )
    return builder.build("serial", {"engine": engine})


def _bring_blocks(builder: PlanBuilder, gpu: int) -> list[str]:
    return [
        builder.transfer(
            f"xfer.g{gpu}.s{src}", builder.origin(gpu, src, rows), builder.a(gpu, rows), index
        )
        for index, src in enumerate(builder.peers(gpu))
        if (rows := builder.block(gpu, src))[0] < rows[1]
    ]

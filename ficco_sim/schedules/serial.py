"""The baseline: gather everything, then multiply once; and the all-gather alone."""

from ficco_sim.plan import Plan
from ficco_sim.schedules.builder import PlanBuilder, check_arguments
from ficco_sim.workload import Workload


def serial(workload: Workload, num_gpus: int, *, engine: str = "dma") -> Plan:
    """Gather all shards at once, direct from their owners, then run one GEMM [m, n, k].

    Raises
    ------
    ScenarioError
        If the workload is not ``all_gather_gemm`` or an argument is out of range.
    """
    builder = PlanBuilder(
        workload,
        num_gpus,
        check_arguments(workload, num_gpus, "all_gather_gemm", engine=engine),
    )
    builder.operator_buffers()
    every_row = (0, workload.m)
    for g in range(num_gpus):
        arrived = _gather_shards(builder, g)
        builder.gemm(
            f"gemm.g{g}", [builder.a(g, every_row)], builder.b(g), [builder.c(g, every_row)],
            deps=arrived,
        )  # fmt: skip
    return builder.build("serial", {"engine": engine})


def all_gather(workload: Workload, num_gpus: int, *, engine: str = "dma") -> Plan:
    """Gather all shards at once, direct from their owners; nothing is computed.

    Raises
    ------
    ScenarioError
        If the workload is not ``all_gather`` or an argument is out of range.
    """
    builder = PlanBuilder(
        workload, num_gpus, check_arguments(workload, num_gpus, "all_gather", engine=engine)
    )
    for g in range(num_gpus):
        builder.add_buffer(g, "a", workload.m, workload.k)
        rows = builder.shards[g]
        if rows[0] < rows[1]:
            builder.inputs.append(builder.a(g, rows))
        builder.outputs.append(builder.a(g, (0, workload.m)))
    for g in range(num_gpus):
        _gather_shards(builder, g)
    return builder.build("all-gather", {"engine": engine})


def _gather_shards(builder: PlanBuilder, gpu: int) -> list[str]:
    return [
        builder.transfer(
            f"xfer.g{gpu}.s{src}", builder.a(src, rows), builder.a(gpu, rows), index
        )
        for index, src in enumerate(builder.peers(gpu))
        if (rows := builder.shards[src])[0] < rows[1]
    ]  # fmt: skip

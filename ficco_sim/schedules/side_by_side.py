"""A GEMM and an all-gather that do not need each other: what overlap alone costs."""

from ficco_sim.plan import Plan, Region
from ficco_sim.schedules.builder import PlanBuilder, check_arguments, check_count
from ficco_sim.workload import MAX_DIM, Workload, split


def side_by_side(
    workload: Workload,
    num_gpus: int,
    *,
    gathered_rows: int,
    gathered_cols: int,
    engine: str = "dma",
    overlap: bool = True,
) -> Plan:
    """Run one GEMM [m, n, k] on each gpu beside an all-gather of an unrelated matrix.

    Parameters
    ----------
    workload
        Of the pattern ``gemm``; its dtype is also that of the gathered matrix.
    gathered_rows, gathered_cols
        Shape of the gathered matrix, in elements; each gpu owns a share of its rows.
    overlap
        If false the GEMM waits for the all-gather: the serial case to compare with.

    Raises
    ------
    ScenarioError
        If the workload has another pattern or an argument is out of range.
    """
    checked = check_arguments(workload, num_gpus, "gemm", engine=engine)
    for name, value in (("gathered_rows", gathered_rows), ("gathered_cols", gathered_cols)):
        check_count(name, value, MAX_DIM)
    builder = PlanBuilder(workload, num_gpus, checked)
    builder.operator_buffers(gathered_a=False)
    shards = split(gathered_rows, num_gpus)

    def x(gpu: int, rows: tuple[int, int]) -> Region:
        return Region(gpu=gpu, buffer="x", rows=rows, cols=(0, gathered_cols))

    for g in range(num_gpus):
        builder.add_buffer(g, "x", gathered_rows, gathered_cols)
        if shards[g][0] < shards[g][1]:
            builder.inputs.append(x(g, shards[g]))
        builder.outputs.append(x(g, (0, gathered_rows)))
    every_row = (0, workload.m)
    for g in range(num_gpus):
        arrived = [
            builder.transfer(f"xfer.g{g}.s{src}", x(src, rows), x(g, rows), index)
            for index, src in enumerate(builder.peers(g))
            if (rows := shards[src])[0] < rows[1]
        ]
        builder.gemm(
            f"gemm.g{g}", [builder.a(g, every_row)], builder.b(g), [builder.c(g, every_row)],
            deps=[] if overlap else arrived,
        )  # fmt: skip
    return builder.build(
        "side-by-side" if overlap else "side-by-side-serial",
        {"engine": engine, "gathered_rows": gathered_rows, "gathered_cols": gathered_cols},
    )

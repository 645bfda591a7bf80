"""A schedule of one's own: FiCCO with chunks of unequal size, the last ones the smallest.

While chunk j is multiplied chunk j + 1 arrives, so that two things are never hidden: the arrival of the
first chunk, where nothing can be multiplied before, and the GEMM of the last one. Here the gpu's own
shard is multiplied whole while the first chunk arrives (hetero), so that this one may be large; and the
last one is small, so that little is left to multiply when everything has arrived.
"""

from ficco_sim import Plan, Workload
from ficco_sim.errors import ScenarioError
from ficco_sim.schedules import GEMM_PATTERNS, PlanBuilder, check_arguments


def tapered(
    workload: Workload, num_gpus: int, *, num_chunks: int = 4, taper: int = 75, engine: str = "dma"
) -> Plan:
    """Chunks that become smaller: each has ``taper`` percent of the rows of the one before.

    Raises
    ------
    ScenarioError
        If the workload has another pattern or an argument is out of range.
    """
    checked = check_arguments(workload, num_gpus, *GEMM_PATTERNS, num_chunks=num_chunks, engine=engine)
    if not 1 <= taper <= 100:
        raise ScenarioError(f"taper: {taper!r} must be a whole number of percent from 1 to 100")
    builder = PlanBuilder(workload, num_gpus, checked)
    builder.operator_buffers()
    for g in range(num_gpus):
        own = builder.block(g, g)
        if own[0] < own[1]:
            builder.gemm(f"gemm.g{g}.own", [builder.here(g, g, own)], builder.b(g), [builder.c(g, own)])
        cuts = {src: _cut(builder.block(g, src), num_chunks, taper) for src in builder.peers(g)}
        for j in range(num_chunks):
            chunks = {src: rows[j] for src, rows in cuts.items() if rows[j][0] < rows[j][1]}
            arrived = [
                builder.transfer(
                    f"xfer.g{g}.s{src}.c{j}",
                    builder.origin(g, src, rows),
                    builder.a(g, rows),
                    (src - g) % num_gpus - 1,  # a copy queue for each peer
                )
                for src, rows in chunks.items()
            ]
            if chunks:  # one batched GEMM a step, straight to its rows of C
                builder.gemm(
                    f"gemm.g{g}.c{j}",
                    [builder.a(g, rows) for rows in chunks.values()],
                    builder.b(g),
                    [builder.c(g, rows) for rows in chunks.values()],
                    deps=arrived,
                )
    return builder.build("hetero-tapered-1d", {
        "num_chunks": num_chunks, "taper": taper, "engine": engine,
    })  # fmt: skip


def _cut(rows: tuple[int, int], num_chunks: int, taper: int) -> list[tuple[int, int]]:
    """Rows of each chunk; every row is in one of them."""
    first, last = rows
    shares = [(taper / 100) ** j for j in range(num_chunks)]
    ends = [
        first + round((last - first) * sum(shares[: j + 1]) / sum(shares)) for j in range(num_chunks)
    ]
    return list(zip([first, *ends[:-1]], ends, strict=True))

"""Print the tables of docs/hardware.md from the committed records.

Run it as ``python docs/measured_runs.py``; it needs no gpu.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path

from ficco_sim.records import Measurement, merge_records, read_records
from hw_validate.summary import PlanRow, plan_rows, repeat_rows, straight_rows

RUNS = Path(__file__).parent.parent / "hw_validate" / "runs" / "h200"
FILES = ("host", "host-repeated", "core", "core-host", "eager")


def measurements() -> tuple[Measurement, ...]:
    """All measurements of plans."""
    paths = [RUNS / f"{name}.jsonl.gz" for name in FILES]
    return merge_records([(path, read_records(path)) for path in paths]).measurements


def plan_lines(rows: Sequence[PlanRow]) -> list[str]:
    """A line for each workload."""
    lines = [
        "| workload | M, N, K | serial | GEMM, comm | winner | speed-up | of ideal | shard | FiCCO "
        "| losing |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        assert row.gemm_s is not None
        assert row.comm_s is not None
        fraction = "-" if row.fraction_of_ideal is None else f"{row.fraction_of_ideal:.0%}"
        shard = "-" if row.shard_speedup is None else f"{row.shard_speedup:.2f}x"
        ficco = "-" if row.ficco_speedup is None else f"{row.ficco_speedup:.2f}x"
        lines.append(
            f"| {row.workload} | {row.m}, {row.n}, {row.k} | {row.serial_s * 1e3:.3f} ms | "
            f"{row.gemm_s * 1e3:.3f}, {row.comm_s * 1e3:.3f} ms | {row.best} | "
            f"**{row.speedup:.2f}x** | {fraction} | {shard} | {ficco} | "
            f"{row.num_losing} of {row.num_plans} |"
        )
    return lines


def eager_lines(found: Sequence[Measurement]) -> list[str]:
    """Plans captured and submitted one by one, side by side."""
    pairs: dict[str, dict[str, Measurement]] = {}
    for m in found:
        p = m.params
        if p["workload"] == "llama3-70b-tp8-gate-up-8k" and p["copy_queues"] in (None, 7) and m.usable:
            name = f"{p['schedule']}, {p['num_chunks']} chunks, {p['compute_queues']} queues"
            pairs.setdefault(name, {})[str(p["submission"])] = m
    lines = ["| plan | graph | eager | host submits in |", "|---|---|---|---|"]
    for schedule in ("uniform-fused-1d", "hetero-unfused-1d"):
        for chunks in (2, 4, 8):
            pair = pairs[f"{schedule}, {chunks} chunks, 1 queues"]
            host_s = statistics.median(pair["eager"].series["host_submit_s"])
            lines.append(
                f"| {schedule}, {chunks} chunks | {pair['graph'].median_s * 1e3:.2f} ms | "
                f"{pair['eager'].median_s * 1e3:.2f} ms | {host_s * 1e3:.2f} ms |"
            )
    return lines


def evidence_lines(found: Sequence[Measurement]) -> list[str]:
    """How far the numbers are to be trusted."""
    straight = [plan_s / straight_s - 1 for *_, plan_s, straight_s in straight_rows(found)]
    repeats = [row.difference for row in repeat_rows(found)]
    cost = [
        statistics.median(m.series["instrumented_s"]) / m.median_s - 1
        for m in found
        if m.usable and "instrumented_s" in m.series
    ]
    return [
        f"- {len(found):,} measurements, {sum(m.usable for m in found):,} usable.",
        "- Plans beside the same schedule written straight in torch: median "
        f"{statistics.median(straight):+.1%}, {sum(abs(x) <= 0.03 for x in straight)} of "
        f"{len(straight)} within 3 %, from {min(straight):+.1%} to {max(straight):+.1%}.",
        f"- The same plan minutes later: {sum(x <= 0.03 for x in repeats)} of {len(repeats)} "
        f"within 3 %, median {statistics.median(repeats):.1%}, worst {max(repeats):.1%}.",
        f"- Events around every task lengthen a plan by {statistics.median(cost):.1%} in the "
        f"median, {sorted(cost)[int(0.9 * len(cost))]:.0%} at the 90th percentile.",
    ]


def main() -> list[str]:
    """All tables, in Markdown."""
    found = measurements()
    rows = [row for row in plan_rows(found) if row.submission == "graph"]
    lines = []
    for title, emulates, engine in (
        ("Copy engines, data in host memory (`--map host`)", "host", "dma"),
        ("Copy kernels, data in the gpu's own memory (`--map self --engine core`)", "self", "core"),
        ("Copy kernels, emulated mesh (`--map core-mesh --engine core`)", "core-mesh", "core"),
    ):
        chosen = [row for row in rows if (row.emulates, row.engine) == (emulates, engine)]
        lines += [f"### {title}", "", *plan_lines(chosen), ""]
    lines += [
        "### Graph and eager",
        "",
        *eager_lines(found),
        "",
        "### Trust",
        "",
        *evidence_lines(found),
    ]
    return lines


if __name__ == "__main__":
    print("\n".join(main()))  # noqa: T201

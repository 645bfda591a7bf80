"""Print the tables of docs/hardware.md from the committed records.

Run it as ``python docs/measured_runs.py``; it needs no gpu.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path

from ficco_sim.records import Measurement, read_records
from hw_validate.summary import PlanRow, plan_rows, repeat_rows, straight_rows

RUNS = Path(__file__).parent.parent / "hw_validate" / "runs"
TABLES = (
    ("h200_x2", "switch", "dma", "Copy engines, peers over NVLink, a switch (`--map switch`)"),
    ("h200_x2", "mesh", "dma", "Copy engines, emulated mesh over NVLink and PCIe (`--map mesh`)"),
    ("h200_x2", "switch", "core", "Copy kernels, peers over NVLink (`--map switch --engine core`)"),
    ("h200_x2", "mesh", "core", "Copy kernels, emulated mesh (`--map mesh --engine core`)"),
    ("h200_x2", "own", "dma", "Two gpus that both compute, copy engines (`--map own`), not emulated"),
    ("h200_x2", "own", "core", "Two gpus that both compute, copy kernels, not emulated"),
    ("h200", "host", "dma", "Copy engines, data in host memory (`--map host`)"),
    (
        "h200_mesh",
        "host-mesh",
        "dma",
        "Copy engines, an emulated mesh of slow links (`--map host-mesh`)",
    ),
    ("h200", "self", "core", "Copy kernels, data in the gpu's own memory (`--map self --engine core`)"),
    ("h200", "core-mesh", "core", "Copy kernels, emulated mesh (`--map core-mesh --engine core`)"),
)
MUCH_SLOWER = 1.1
FOLDERS = {"h200_x2": "two H200", "h200": "one H200"}  # with eager and straight versions


def measurements(folder: str) -> list[Measurement]:
    """All measurements of plans in a folder; files of unequal machines are not merged."""
    found: list[Measurement] = []
    for path in sorted((RUNS / folder).glob("*.jsonl.gz")):
        if not path.name.startswith("parts"):
            found += read_records(path).measurements
    return found


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


def eager_lines(folder: str) -> list[str]:
    """Plans captured and submitted one by one, side by side in one run."""
    found = read_records(RUNS / folder / "eager.jsonl.gz").measurements
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
    by_tensor = [
        straight_s / plan_s for *_, plan_s, straight_s in straight_rows(found, "straight_tensor_copy")
    ]
    repeats = [row.difference for row in repeat_rows(found)]
    cost = [
        statistics.median(m.series["instrumented_s"]) / m.median_s - 1
        for m in found
        if m.usable and "instrumented_s" in m.series
    ]
    tensor_copies = []
    if by_tensor:
        slower = sum(ratio > MUCH_SLOWER for ratio in by_tensor)
        tensor_copies.append(
            f"- Straight versions with `Tensor.copy_` in place of a memcpy take up to "
            f"{max(by_tensor):.1f}x as long as the plan; {slower} of {len(by_tensor)} over 1.1x."
        )
    return [
        f"- {len(found):,} measurements, {sum(m.usable for m in found):,} usable.",
        "- Plans beside the same schedule written straight in torch: median "
        f"{statistics.median(straight):+.1%}, {sum(abs(x) <= 0.03 for x in straight)} of "
        f"{len(straight)} within 3 %, from {min(straight):+.1%} to {max(straight):+.1%}.",
        *tensor_copies,
        f"- The same plan minutes later: {sum(x <= 0.03 for x in repeats)} of {len(repeats)} "
        f"within 3 %, median {statistics.median(repeats):.1%}, worst {max(repeats):.1%}.",
        f"- Events around every task lengthen a plan by {statistics.median(cost):.1%} in the "
        f"median, {sorted(cost)[int(0.9 * len(cost))]:.0%} at the 90th percentile.",
    ]


def main() -> list[str]:
    """All tables, in Markdown."""
    found = {folder: measurements(folder) for folder in dict.fromkeys(table[0] for table in TABLES)}
    rows = {
        folder: [row for row in plan_rows(of_folder) if row.submission == "graph"]
        for folder, of_folder in found.items()
    }
    lines = []
    for folder, emulates, engine, title in TABLES:
        chosen = [r for r in rows[folder] if (r.emulates, r.engine) == (emulates, engine)]
        lines += [f"### {title}", "", *plan_lines(chosen), ""]
    for folder, title in FOLDERS.items():
        lines += [f"### Graph and eager, {title}", "", *eager_lines(folder), ""]
    for folder, title in FOLDERS.items():
        lines += [f"### Trust, {title}", "", *evidence_lines(found[folder]), ""]
    return lines[:-1]


if __name__ == "__main__":
    print("\n".join(main()))  # noqa: T201

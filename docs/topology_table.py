"""Print the table of docs/topologies.md: the best schedule of eight workloads on three wirings.

Run it as ``python docs/topology_table.py``; it takes a few minutes.
"""

from ficco_sim.comparison import compare
from ficco_sim.machine import load_machine
from ficco_sim.workload import get_workload

MACHINES = ("mi300x_8", "torus_2x4", "ring_8")
WORKLOADS = (
    "llama3-8b-tp8-qkv-8k",
    "llama3-70b-tp8-qkv-8k",
    "llama3-70b-tp8-qkv-32k",
    "llama3-70b-tp8-gate-up-8k",
    "llama3-405b-tp8-qkv-8k",
    "llama3-405b-tp8-gate-up-8k",
    "gpt3-175b-tp8-qkv-2k",
    "llama3-8b-fsdp8-gate-up-8k",
)


def cell(workload: str, machine: str) -> str:
    """Ratio of GEMM to communication, the best schedule and its speed-up, ideal, and shard-ring's."""
    result = compare(get_workload(workload), load_machine(machine))
    best = result.results[0]
    ring = next(r for r in result.results if r.schedule == "shard-ring")
    knobs = f" c{best.num_chunks}" if best.num_chunks > 1 else ""
    knobs += f" q{best.compute_queues}" if best.compute_queues > 1 else ""
    ideal = result.serial_s / result.ideal_s
    ratio = result.gemm_s / result.comm_s
    return (
        f"{ratio:.2f}: {best.schedule}{knobs} **{best.speedup:.2f}x** of {ideal:.2f}x "
        f"(ring {ring.speedup:.2f}x)"
    )


def rows() -> list[str]:
    """Lines of the table, in Markdown."""
    lines = [f"| workload | {' | '.join(MACHINES)} |", "|---" * (len(MACHINES) + 1) + "|"]
    lines += [f"| {w} | {' | '.join(cell(w, m) for m in MACHINES)} |" for w in WORKLOADS]
    return lines


if __name__ == "__main__":
    print("\n".join(rows()))  # noqa: T201

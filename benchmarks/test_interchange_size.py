"""How large the traces of the largest plans of 64 gpus are in each format, and how long writing takes.

Unlike the other files here this one fails: Perfetto's own format, and Chrome's compressed, stay under
50 MB with every arrow.
"""

import functools
from typing import TYPE_CHECKING

import pytest

from ficco_sim.interchange import write_viewer_trace
from ficco_sim.machine import Machine, build_machine
from ficco_sim.schedules import make_plan
from ficco_sim.sim import simulate
from ficco_sim.topology import make_machine_file
from ficco_sim.workload import get_workload

if TYPE_CHECKING:
    from ficco_sim.plan import Plan
    from ficco_sim.trace import Trace


@functools.cache
def run_of(schedule: str) -> "tuple[Plan, Trace, Machine]":
    machine = build_machine(
        make_machine_file(
            "full_mesh", gpu="mi300x", num_gpus=64, bandwidth_bytes_per_s=64e9, latency_s=0.5e-6
        ),
        "mesh",
    )
    plan = make_plan(schedule, get_workload("llama3-70b-tp8-qkv-32k"), 64, {"num_chunks": 64})
    return plan, simulate(plan, machine), machine


@pytest.mark.parametrize("suffix", [".json", ".json.gz", ".pftrace"])
@pytest.mark.parametrize("schedule", ["uniform-fused-1d", "uniform-unfused-1d"])
@pytest.mark.benchmark(group="write the trace of 64 gpus and 64 chunks a shard")
def test_size(benchmark, capsys, tmp_path, schedule: str, suffix: str) -> None:
    plan, run, machine = run_of(schedule)
    path = tmp_path / f"trace{suffix}"
    note = benchmark.pedantic(lambda: write_viewer_trace(path, run, plan, machine), rounds=1)
    size = path.stat().st_size
    with capsys.disabled():
        print(f"\n{schedule}{suffix}: {len(plan.tasks)} tasks, {size / 1e6:.1f} MB {note}")  # noqa: T201
    assert size < 50e6 or (suffix == ".json" and "MB" in note)
    assert not note or suffix == ".json"

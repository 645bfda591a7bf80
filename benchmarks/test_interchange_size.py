"""How large the Chrome traces of the largest plans of 64 gpus are, and how long writing takes.

Unlike the other files here this one fails: compressed, every trace of 64 gpus stays under 50 MB.
"""

import pytest

from ficco_sim.interchange import write_chrome
from ficco_sim.machine import build_machine
from ficco_sim.schedules import make_plan
from ficco_sim.sim import simulate
from ficco_sim.topology import make_machine_file
from ficco_sim.workload import get_workload


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
@pytest.mark.parametrize("schedule", ["uniform-fused-1d", "uniform-unfused-1d"])
@pytest.mark.benchmark(group="write the Chrome trace of 64 gpus and 64 chunks a shard")
def test_size(benchmark, capsys, tmp_path, schedule: str, suffix: str) -> None:
    machine = build_machine(
        make_machine_file(
            "full_mesh", gpu="mi300x", num_gpus=64, bandwidth_bytes_per_s=64e9, latency_s=0.5e-6
        ),
        "mesh",
    )
    plan = make_plan(schedule, get_workload("llama3-70b-tp8-qkv-32k"), 64, {"num_chunks": 64})
    run = simulate(plan, machine)
    path = tmp_path / f"trace{suffix}"
    note = benchmark.pedantic(lambda: write_chrome(path, run, plan, machine), rounds=1)
    size = path.stat().st_size
    with capsys.disabled():
        print(f"\n{schedule}{suffix}: {len(plan.tasks)} tasks, {size / 1e6:.1f} MB {note}")  # noqa: T201
    assert size < 50e6 or (suffix == ".json" and "MB" in note)

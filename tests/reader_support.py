"""Helpers of the tests of readers: cases, machines made from them, times of collectives."""

import functools
from pathlib import Path

from ficco_sim.costs import CostModel
from ficco_sim.machine import Machine, build_machine
from ficco_sim.readers import Imported, read_topology
from ficco_sim.schedules import make_plan
from ficco_sim.sim import simulate
from ficco_sim.topology import Description, describe
from ficco_sim.workload import Workload

CASES = Path(__file__).parent / "cases"


@functools.cache
def case_text(case: str) -> str:
    (path,) = CASES.glob(f"{case}_*")
    return path.read_bytes().decode()


def case_file(case: str) -> str:
    (path,) = CASES.glob(f"{case}_*")
    return str(path)


def read_case(case: str, **options) -> Imported:
    return read_topology(case_text(case), Path(case_file(case)).name, **options)


def machine_of(imported: Imported) -> Machine:
    return build_machine(imported.file, "test")


def describe_case(case: str, **options) -> Description:
    return describe(machine_of(read_case(case, **options)))


def all_gather_s(imported: Imported, shard_bytes: int) -> float:
    """Time of the direct all-gather alone, where only links count."""
    machine = machine_of(imported)
    workload = Workload(
        name="gather", pattern="all_gather", m=machine.num_gpus, n=1, k=shard_bytes // 2, dtype="bf16"
    )
    plan = make_plan("all-gather", workload, machine.num_gpus)
    return simulate(plan, machine, CostModel(machine, "ideal")).makespan_s


def rates(told: Description) -> dict[tuple[int | str, int | str], float]:
    """GB/s of each directed link."""
    return {(link.src, link.dst): link.bandwidth_bytes_per_s / 1e9 for link in told.links}

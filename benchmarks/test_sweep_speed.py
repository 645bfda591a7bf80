"""How quick sweeps are beside plain calls of compare, in one process; run by ``make bench``.

Nothing here fails for being slow. Both are timed in turns, so that other work on the machine shows in
neither ratio.
"""

from pathlib import Path
from time import perf_counter

import pytest

from ficco_sim.comparison import compare
from ficco_sim.machine import load_machine
from ficco_sim.scenarios import random_models
from ficco_sim.sweep import run_sweep

COUNT = 3
ROUNDS = 3


@pytest.mark.parametrize("makespans_only", [False, True])
@pytest.mark.benchmark(group="sweep on mi300x_8 beside compare")
def test_sweep(benchmark, capsys, tmp_path: Path, makespans_only: bool) -> None:  # noqa: FBT001
    """Scenarios per second of a sweep over those of compare without intervals."""
    machine, workloads = load_machine("mi300x_8"), random_models(count=COUNT).workloads
    plain_s: list[float] = []
    tables: list[Path] = []

    def plain_first() -> None:
        start_s = perf_counter()
        for workload in workloads:
            compare(workload, machine, intervals=False)
        plain_s.append(perf_counter() - start_s)
        tables.append(tmp_path / f"{len(tables)}.csv")

    benchmark.pedantic(
        lambda: run_sweep(workloads, [machine], tables[-1], makespans_only=makespans_only),
        setup=plain_first,
        rounds=ROUNDS,
    )
    assert len({table.read_bytes() for table in tables}) == 1
    if benchmark.stats is None:
        return
    median_s = benchmark.stats.stats.median
    ratio = sorted(plain_s)[len(plain_s) // 2] / median_s
    benchmark.extra_info["scenarios_per_s"] = round(COUNT / median_s, 2)
    benchmark.extra_info["rate_over_compare"] = round(ratio, 2)
    with capsys.disabled():
        print(  # noqa: T201
            f"\n{benchmark.name}: {COUNT / median_s:.2f} scenarios/s of 45 plans, "
            f"{ratio:.2f} times the rate of compare"
        )

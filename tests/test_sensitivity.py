"""Layer: what-if questions. Faster parts never hurt much, and change only what they are about."""

import pytest

from ficco_sim.costs import CostModel, GemmShape
from ficco_sim.machine import load_machine
from ficco_sim.sensitivity import CHANGES, changed_machine, what_ifs
from ficco_sim.workload import Workload


def test_nothing_changed_is_the_same_machine():
    machine = load_machine("mi300x_8")
    assert changed_machine(machine, (), 2.0) == machine


def test_each_part_changes_what_it_is_about():
    machine = load_machine("mi300x_8")
    links = changed_machine(machine, ("links",), 2.0)
    assert links.profile == machine.profile
    assert links.links[0].usable_bytes_per_s == 2 * machine.links[0].usable_bytes_per_s
    engines = changed_machine(machine, ("engines",), 2.0)
    assert engines.links == machine.links
    assert engines.gpu.num_dma_engines == 2 * machine.gpu.num_dma_engines
    rate = machine.profile.copy.engine_bytes_per_s
    assert engines.profile.copy.engine_bytes_per_s == 2 * rate
    assert engines.profile.gemm == machine.profile.gemm
    hbm = changed_machine(machine, ("hbm",), 2.0)
    assert hbm.gpu.hbm_bytes_per_s == 2 * machine.gpu.hbm_bytes_per_s
    assert hbm.profile.copy == machine.profile.copy
    peak = changed_machine(machine, ("peak",), 2.0)
    assert peak.gpu.peak_flops_per_s["bf16"] == 2 * machine.gpu.peak_flops_per_s["bf16"]
    assert peak.gpu.hbm_bytes_per_s == machine.gpu.hbm_bytes_per_s


def test_measured_shapes_follow_the_formula():
    machine = load_machine("h200_2")
    row = max(machine.profile.gemm.measured, key=lambda g: g.m * g.n * g.k)
    assert row.entries == 1
    shape = GemmShape((row.m,), row.n, row.k, row.dtype, row.accumulate)
    faster = changed_machine(machine, ("peak",), 2.0)
    before, after = CostModel(machine).gemm_model, CostModel(faster).gemm_model
    assert before.measured_s(shape) == row.time_s
    ratio = after.formula(shape).time_s / before.formula(shape).time_s
    assert after.measured_s(shape) == pytest.approx(row.time_s * ratio)
    assert ratio < 0.9  # a large GEMM is bound by arithmetic


def test_what_ifs_of_a_workload_bound_by_links():
    machine = load_machine("mi300x_8")
    workload = Workload(name="w", pattern="all_gather_gemm", m=16384, n=512, k=8192)
    found = {row.change: row for row in what_ifs(workload, machine)}
    assert tuple(found) == tuple(CHANGES)
    assert found["as it is"].gain == 1.0
    assert found["as it is"].factor == 1.0
    # one engine carries about one link, so that both must be faster
    assert found["links"].gain < 1.2
    assert found["copy engines"].gain < 1.2
    assert found["links and copy engines"].gain > 1.5
    assert found["peak FLOP/s"].gain < 1.2
    for row in found.values():
        assert row.speedup == pytest.approx(row.serial_s / row.makespan_s)
        assert row.speedup >= 1
        assert row.ideal_s <= row.makespan_s * 1.001
        assert row.factor in (1.0, 2.0)

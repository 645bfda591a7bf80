"""Layer: simulator. The comparison of all schedules: complete, ordered, and it admits losses."""

import json
from dataclasses import replace

import pytest

from ficco_sim.comparison import compare, find_makespans
from ficco_sim.costs import CostModel
from ficco_sim.errors import MachineError, ScenarioError
from ficco_sim.grid import COMPARED as COMPARED_FOR
from ficco_sim.grid import Grid
from ficco_sim.io import dump_json
from ficco_sim.machine import load_machine
from ficco_sim.schedules import FICCO
from ficco_sim.workload import Workload, get_workload

COMPARED = COMPARED_FOR["all_gather_gemm"]


@pytest.fixture(scope="module")
def mesh():
    return load_machine("mi300x_8")


@pytest.fixture(scope="module")
def balanced(mesh):
    return compare(get_workload("llama3-70b-tp8-qkv-32k"), mesh)


def test_has_every_schedule_and_knob_once(balanced):
    rows = [(r.schedule, r.num_chunks, r.compute_queues) for r in balanced.results]
    wanted = [(s, 1, 1) for s in COMPARED if s not in FICCO]
    for schedule in FICCO:
        for chunks in (2, 4, 8):
            wanted += [(schedule, chunks, q) for q in ((1, 4) if "-unfused-" in schedule else (1,))]
    assert sorted(rows) == sorted(wanted)


def test_best_is_first_and_serial_is_the_measure(balanced):
    times = [r.makespan_s for r in balanced.results]
    assert times == sorted(times)
    assert balanced.best == balanced.results[0].schedule
    for r in balanced.results:
        assert r.speedup == pytest.approx(balanced.serial_s / r.makespan_s)
        ideal = balanced.serial_s / balanced.ideal_s
        assert r.fraction_of_ideal == pytest.approx((r.speedup - 1) / (ideal - 1), abs=1e-9)
        assert r.makespan_s >= balanced.ideal_s
    assert balanced.ideal_s == max(balanced.gemm_s, balanced.comm_s)


def test_says_that_overlap_pays_and_by_how_much(balanced):
    best = balanced.results[0]
    assert balanced.verdict.startswith("Overlap pays here")
    assert f"{best.speedup:.2f}x" in balanced.verdict
    assert "shard-p2p) loses" in balanced.verdict


def test_says_that_overlap_does_not_pay(mesh):
    result = compare(get_workload("llama3-70b-tp8-gate-up-256"), mesh)
    assert result.best == "serial"
    assert result.verdict.startswith("Overlap does not pay here")
    assert "decomposition" in result.verdict


def test_two_dimensional_copies_are_labelled_emulated_where_they_are(balanced):
    for r in balanced.results:
        assert ("emulated-2d" in r.labels) == r.schedule.endswith("-2d")
    switch = compare(get_workload("llama3-8b-tp8-qkv-2k"), load_machine("h200_8"))
    assert not any(r.labels for r in switch.results)


def test_json_keys(balanced):
    document = json.loads(dump_json(balanced.to_plain()))
    assert set(document) == {
        "machine", "workload", "costs", "submission", "gemm_s", "comm_s", "ideal_s", "serial_s",
        "best", "verdict", "remarks", "results",
    }  # fmt: skip
    for row in document["results"]:
        assert set(row) == {
            "schedule", "num_chunks", "compute_queues", "engine", "makespan_s", "ideal_s", "speedup",
            "fraction_of_ideal", "exposed_comm_s", "gemm_dil", "comm_dil", "gemm_cil", "comm_cil",
            "cause", "breakdown", "labels", "num_tasks", "interval_s", "too_close",
        }  # fmt: skip
    assert len(balanced.to_frame()) == len(document["results"])


def test_without_costs_of_cutting_no_schedule_beats_the_bound_and_ficco_nears_it(mesh):
    result = compare(get_workload("llama3-405b-tp8-qkv-8k"), mesh, costs=CostModel(mesh, "ideal"))
    for r in result.results:
        assert r.makespan_s >= result.ideal_s * (1 - 1e-9)
        assert r.gemm_dil == pytest.approx(1)
        assert r.gemm_cil == r.comm_cil == 1
    best = result.results[0]
    # 8 chunks leave at most one eighth of the shorter part uncovered
    uncovered = min(result.gemm_s, result.comm_s) / 8
    assert best.makespan_s <= result.ideal_s + uncovered * 1.01


@pytest.mark.parametrize("shape", [(1024, 512, 8192), (256, 256, 128), (12288, 512, 4096)], ids=str)
def test_where_communication_is_most_its_best_way_alone_is_a_bound(shape):
    """On a switch peer after peer beats all at once, where an engine must change over to each queue."""
    m, n, k = shape
    workload = Workload(name="moves", pattern="all_gather_gemm", m=m, n=n, k=k)
    found = compare(workload, load_machine("h200_8"), intervals=False, grid=Grid(num_chunks=(2,)))
    assert found.ideal_s == found.comm_s
    assert found.results[0].makespan_s > found.ideal_s


def test_both_engines_share_one_serial_run_to_compare_with(mesh):
    result = compare(get_workload("llama3-8b-tp8-qkv-8k"), mesh, engines=("dma", "core"))
    assert {r.engine for r in result.results} == {"dma", "core"}
    serial = {r.engine: r for r in result.results if r.schedule == "serial"}
    assert result.serial_s == min(r.makespan_s for r in serial.values())
    assert max(r.speedup for r in serial.values()) == pytest.approx(1)


def test_progress_counts_every_plan(mesh):
    seen = []
    small = Workload(name="w", pattern="all_gather_gemm", m=64, n=16, k=16)
    compare(small, mesh, progress=lambda done, total, name: seen.append((done, total, name)))
    assert [done for done, _, _ in seen] == list(range(seen[0][1]))


def test_machine_in_parts_is_refused_with_the_parts_named(mesh):
    small = Workload(name="w", pattern="all_gather_gemm", m=64, n=16, k=16)
    links = tuple(link for link in mesh.links if (link.src < 4) == (link.dst < 4))
    with pytest.raises(MachineError, match=r"\{0, 1, 2, 3\} and \{4, 5, 6, 7\}"):
        compare(small, replace(mesh, links=links))


def test_pattern_without_schedules_is_refused(mesh):
    alone = Workload(name="w", pattern="gemm", m=64, n=16, k=16)
    with pytest.raises(ScenarioError, match="gemm"):
        compare(alone, mesh)


def test_all_to_all_compares_all_but_the_ring(mesh):
    result = compare(get_workload("mixtral-8x7b-ep8-gate-up-2k"), mesh)
    assert {r.schedule for r in result.results} == set(COMPARED) - {"shard-ring"}
    assert "all-to-all" in result.verdict
    # every gpu receives seven eighths of its rows, over seven links at once
    shard_s = 4096 / 8 * 4096 * 2 / 46.5e9
    assert result.comm_s == pytest.approx(shard_s, rel=0.1)


def test_a_grid_chooses_schedules_and_knobs(mesh):
    workload = get_workload("llama3-70b-tp8-gate-up-256")
    grid = Grid(schedules=("uniform-unfused-1d",), num_chunks=(2, 3), compute_queues=(2,))
    result = compare(workload, mesh, grid=grid, intervals=False)
    rows = {(r.schedule, r.num_chunks, r.compute_queues) for r in result.results}
    assert rows == {("serial", 1, 1), ("uniform-unfused-1d", 2, 2), ("uniform-unfused-1d", 3, 2)}
    alone = compare(workload, mesh, grid=Grid(schedules=("serial",)), intervals=False)
    assert alone.verdict.startswith("Nothing but serial was tried")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"schedules": ("all-gather",)}, "schedules: 'all-gather' is unknown; one of: serial, "),
        ({"engines": ("dma", "dma")}, "engines: 'dma' occurs twice"),
        ({"num_chunks": (0,)}, "num_chunks: 0 must be a whole number from 1 to 1024"),
        ({"compute_queues": ()}, "compute_queues: at least one is needed"),
        ({"gather": "x"}, "gather: 'x' is unknown; one of: direct, copy"),
    ],
)
def test_a_grid_refuses_what_cannot_be(values, message):
    with pytest.raises(ScenarioError, match=message):
        Grid(**values)


def test_makespans_alone_are_those_of_the_comparison(mesh, balanced):
    found = find_makespans(get_workload("llama3-70b-tp8-qkv-32k"), mesh)
    wanted = [(r.schedule, r.num_chunks, r.compute_queues, r.makespan_s) for r in balanced.results]
    rows = [
        (name, knobs.get("num_chunks", 1), knobs.get("compute_queues", 1), makespan_s)
        for name, knobs, makespan_s in found.points
    ]
    assert rows == wanted
    for name in ("gemm_s", "comm_s", "ideal_s", "serial_s"):
        assert getattr(found, name) == getattr(balanced, name)

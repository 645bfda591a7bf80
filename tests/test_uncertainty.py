"""Layer: simulator. Draws of the costs, intervals, and warnings outside of what was fitted."""

import json
import math
import os
import statistics
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from sim_strategies import (
    gemm,
    hand_plan,
    local_copy,
    machine_of,
    transfer,
    with_measured,
    with_profile,
)

from ficco_sim import comparison, report
from ficco_sim.cli import main
from ficco_sim.comparison import NOT_FITTED, Comparison, compare, evaluate_plan
from ficco_sim.costs import CostModel, GemmShape
from ficco_sim.costs.uncertainty import NUM_DRAWS, interval
from ficco_sim.errors import MachineError, ScenarioError
from ficco_sim.io import dump_json, to_plain
from ficco_sim.machine import Machine, load_machine
from ficco_sim.profile import Fit
from ficco_sim.schedules import make_plan
from ficco_sim.workload import Workload, get_workload

SMALL = Workload(name="small", pattern="all_gather_gemm", m=4096, n=1024, k=2048)
SHAPES = [GemmShape((m,), 1024, 2048, "bf16") for m in (512, 1024, 2048, 4096)]
ALL_GROUPS = ("gemm.bf16", "copy", "core_copy", "local_copy", "launch", "contention")


def fit_of(
    error: float = 0.0,
    *,
    valid: dict[str, tuple[float, float]] | None = None,
    samples: dict[str, tuple[float, ...]] | None = None,
) -> Fit:
    return Fit(
        sources=(),
        date="2026-11-30",
        regime="burst",
        num_points=9,
        median_error=error,
        mean_error=error,
        p90_error=2 * error,
        held_out=True,
        valid=valid or {},
        samples=samples or {},
    )


def with_fits(machine: Machine, **fits: Fit) -> Machine:
    """The machine with made-up fits; ``gemm_bf16`` stands for ``gemm.bf16``."""
    named = {name.replace("gemm_", "gemm."): fit for name, fit in fits.items()}
    return replace(machine, profile=replace(machine.profile, fits=named))


def fitted(error: float, *, family: str = "switch", num_gpus: int = 4) -> Machine:
    """A machine all of whose groups were fitted, with one error of GEMMs and copies."""
    groups = {group.replace(".", "_"): fit_of(error) for group in ALL_GROUPS}
    machine = machine_of(family, num_gpus, "h200")
    # so that many schedules are near the best
    at_once = dict.fromkeys(("signal_s", "queue_s", "tick_s", "first_tick_s"), 0.0)
    machine = with_profile(machine, copy=at_once)
    return with_fits(machine, **groups)


def time_s(costs: CostModel, shape: GemmShape) -> float:
    return costs.gemm_model.cost(shape).time_s


# draws


def test_a_draw_takes_its_own_sample_of_every_group() -> None:
    base = machine_of("switch", 2, "h200")
    rates = base.profile.gemm.rates["bf16"]
    machine = with_fits(
        base,
        gemm_bf16=fit_of(samples={"startup_s": (1e-6, 2e-6, 3e-6), "wave_s": (0.0, 1e-7, 2e-7)}),
        copy=fit_of(samples={"setup_s": (4e-6, 5e-6)}),
        core_copy=fit_of(samples={"compute_units": (3.2, 5.0), "bytes_per_s": (1e11, 2e11)}),
        local_copy=fit_of(samples={"bytes_per_s": (1e12, 2e12)}),
        launch=fit_of(samples={"event_wait_s": (6e-6, 7e-6), "eager_submit_s": (1e-5, 2e-5)}),
        contention=fit_of(samples={"dma_in": (0.5, 0.25)}),
    )
    costs = CostModel(machine, "profile", "eager", draw=1)
    drawn = costs.profile
    assert drawn.gemm.rates["bf16"] == replace(rates, startup_s=2e-6, wave_s=1e-7)
    assert drawn.gemm.rates["fp16"] == base.profile.gemm.rates["fp16"]
    assert drawn.copy == replace(base.profile.copy, setup_s=5e-6)
    assert (drawn.core_copy.compute_units, drawn.core_copy.bytes_per_s) == (5, 2e11)
    assert drawn.local_copy.bytes_per_s == 2e12
    assert (costs.event_wait_s, costs.submit_s) == (7e-6, 2e-5)
    assert drawn.contention.dma_in == 0.25
    assert CostModel(machine, draw=0).profile.core_copy.compute_units == 3
    # each group starts again when its samples are used up
    again = CostModel(machine, draw=5).profile
    assert again.gemm.rates["bf16"].startup_s == 3e-6
    assert again.copy.setup_s == 5e-6


def test_same_draw_same_costs_and_other_draws_other_costs() -> None:
    machine = fitted(0.03)
    rows = []
    for draw in (*range(NUM_DRAWS), *range(NUM_DRAWS)):
        costs = CostModel(machine, draw=draw)
        copy = costs.copy("dma", row_bytes=1, strided=False)
        rows.append((*(time_s(costs, shape) for shape in SHAPES), copy, costs.local_copy_s(10**9)))
    assert rows[:NUM_DRAWS] == rows[NUM_DRAWS:]
    for column in zip(*rows[:NUM_DRAWS], strict=True):
        assert len(set(column)) == NUM_DRAWS
    # and not the same factor for all shapes
    plain = CostModel(machine)
    factors = {time_s(CostModel(machine, draw=0), shape) / time_s(plain, shape) for shape in SHAPES}
    assert len(factors) > 1


def test_draws_do_not_depend_on_the_process() -> None:
    code = (
        "from ficco_sim.costs.uncertainty import _normal\n"
        "print([_normal(name, draw) for name in ('copy', 'x') for draw in range(30)])"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(seen) == 1


def test_the_error_of_a_shape_is_that_of_its_fit() -> None:
    """Half of the factors of a normal error lie within the median error."""
    base = machine_of("switch", 2, "h200")
    for error in (0.02, 0.06):
        machine, plain = with_fits(base, gemm_bf16=fit_of(error)), CostModel(base)
        logs = [
            math.log(time_s(CostModel(machine, draw=draw), shape) / time_s(plain, shape))
            for draw in range(NUM_DRAWS)
            for shape in SHAPES
        ]
        assert statistics.median(map(abs, logs)) == pytest.approx(error, rel=0.1)
        assert statistics.mean(logs) == pytest.approx(0, abs=1e-12)
        assert statistics.stdev(logs) == pytest.approx(1.4826 * error, rel=0.1)


def test_measured_shapes_vary_as_little_as_a_measurement_does() -> None:
    base = with_measured(machine_of("switch", 2, "h200"), (512, 1024, 2048, 50e-6))
    machine = with_fits(base, gemm_bf16=fit_of(0.2))
    measured, other = SHAPES[:2]
    times_s = [time_s(CostModel(machine, draw=draw), measured) for draw in range(NUM_DRAWS)]
    assert statistics.median(times_s) == pytest.approx(50e-6, rel=1e-3)
    assert statistics.stdev(map(math.log, times_s)) == pytest.approx(0.01, rel=0.1)
    others_s = [time_s(CostModel(machine, draw=draw), other) for draw in range(NUM_DRAWS)]
    assert statistics.stdev(map(math.log, others_s)) > 0.2


def test_fewer_units_slow_a_drawn_gemm_as_they_slow_the_fitted_one() -> None:
    machine = fitted(0.05)
    drawn, plain = CostModel(machine, draw=3).gemm_model, CostModel(machine).gemm_model
    for shape in SHAPES:
        slower = drawn.cost(shape, 50).body_s / drawn.cost(shape).body_s
        assert slower == pytest.approx(plain.cost(shape, 50).body_s / plain.cost(shape).body_s)


def test_all_copies_of_a_draw_have_one_factor_with_their_links() -> None:
    machine = with_fits(machine_of("switch", 2, "h200"), copy=fit_of(0.1))
    factors = []
    for draw in range(NUM_DRAWS):
        costs = CostModel(machine, draw=draw)
        plain, drawn = machine.profile, costs.profile
        factor = machine.links[0].usable_bytes_per_s / costs.machine.links[0].usable_bytes_per_s
        for name in ("setup_s", "completion_s"):
            assert getattr(drawn.copy, name) == pytest.approx(factor * getattr(plain.copy, name))
        assert drawn.copy.engine_bytes_per_s == pytest.approx(plain.copy.engine_bytes_per_s / factor)
        assert drawn.core_copy.bytes_per_s == pytest.approx(plain.core_copy.bytes_per_s / factor)
        assert drawn.local_copy == plain.local_copy
        factors.append(math.log(factor))
    assert statistics.stdev(factors) == pytest.approx(0.14826, rel=0.1)


def test_without_fits_a_draw_is_what_the_profile_says() -> None:
    machine = load_machine("mi300x_8")
    machine = replace(machine, profile=replace(machine.profile, fits={}))
    costs, plain = CostModel(machine, draw=7), CostModel(machine)
    assert costs.machine == machine
    assert [time_s(costs, s) for s in SHAPES] == [time_s(plain, s) for s in SHAPES]


@pytest.mark.parametrize(("kind", "draw"), [("ideal", 0), ("profile", -1)])
def test_ideal_costs_have_no_draws(kind: Any, draw: int) -> None:
    with pytest.raises(
        ScenarioError, match=r"^draw: -?\d must be 0 or more, and ideal costs have none$"
    ):
        CostModel(fitted(0.03), kind, draw=draw)


def test_samples_of_what_is_no_parameter_are_refused() -> None:
    base = machine_of("switch", 2, "h200")
    machine = with_fits(base, copy=fit_of(samples={"speed": (1.0,)}))
    with pytest.raises(
        MachineError, match=r"^fits\.copy\.samples: 'speed' is unknown; one of setup_s, "
    ):
        CostModel(machine, draw=0)
    machine = with_fits(base, gemm_bf16=fit_of(samples={"wave_rounding": (1.5,)}))
    with pytest.raises(MachineError, match=r"^fits\.gemm\.bf16\.samples: wave_rounding: 1\.5 must"):
        CostModel(machine, draw=0)


# intervals


def test_an_interval_is_the_10th_to_90th_percentile() -> None:
    low, high = interval([float(i) for i in range(1, 11)])
    assert (low, high) == pytest.approx((1.5, 9.5))


def test_intervals_hold_the_makespan_and_widen_with_the_errors() -> None:
    widths: dict[str, list[float]] = {}
    for error in (0.005, 0.02, 0.08):
        found = compare(SMALL, fitted(error))
        for r in found.results:
            if r.interval_s is not None and r.schedule in ("serial", found.best):
                low, high = r.interval_s
                assert low < r.makespan_s < high
                kind = "serial" if r.schedule == "serial" else "best"
                widths.setdefault(kind, []).append((high - low) / r.makespan_s)
    for grown in widths.values():
        assert len(grown) == 3
        assert grown == sorted(grown)
        assert grown[2] > 4 * grown[0]


def test_the_best_serial_and_the_nearest_are_drawn() -> None:
    found = compare(SMALL, fitted(0.03))
    best_s = found.results[0].makespan_s
    firsts = report.best_of_each(found.results)
    near = [r for r in firsts[1:] if r.schedule != "serial" and r.makespan_s <= 1.15 * best_s]
    wanted = {firsts[0].title, "serial", *(r.title for r in near[: comparison.MAX_NEAR])}
    drawn = [r for r in found.results if r.interval_s is not None]
    assert sorted(r.title for r in drawn) == sorted(wanted)
    assert len(drawn) > 2
    assert found.results[0].too_close is None
    for r in found.results[1:]:
        assert (r.too_close is None) == (r.interval_s is None)
    # what is drawn changes nothing else
    plain = compare(SMALL, fitted(0.03), intervals=False)
    assert [replace(r, interval_s=None, too_close=None) for r in found.results] == list(plain.results)


def close_and_far(found: Comparison) -> tuple[set[str], set[str]]:
    drawn = [r for r in found.results if r.too_close is not None]
    return {r.title for r in drawn if r.too_close}, {r.title for r in drawn if not r.too_close}


def test_less_than_the_noise_is_too_close_and_twice_is_not() -> None:
    """On a mesh serial takes about twice as long; the FiCCO schedules are within a few percent."""
    mesh = load_machine("mi300x_8")
    workload = get_workload("llama3-70b-tp8-qkv-32k")
    groups = {group.replace(".", "_"): fit_of(0.03) for group in ALL_GROUPS}
    found = compare(workload, with_fits(mesh, **groups))
    best, second = report.best_of_each(found.results)[:2]
    assert second.makespan_s < 1.01 * best.makespan_s
    close, far = close_and_far(found)
    assert second.title in close
    assert "serial" in far
    assert found.verdict.startswith("Overlap pays here")
    assert found.verdict.endswith(
        f"The best, {best.title}, is too close to call with "
        f"{'; '.join(r.title for r in found.results if r.too_close)}."
    )
    # as good as known: the order is what it seems
    sure = with_fits(mesh, **{group.replace(".", "_"): fit_of(1e-6) for group in ALL_GROUPS})
    found = compare(workload, sure)
    assert close_and_far(found)[0] == set()
    assert "too close" not in found.verdict


def test_a_gain_within_the_noise_may_be_none() -> None:
    machine = fitted(0.2, num_gpus=8)
    workload = get_workload("llama3-70b-tp8-gate-up-8k")
    found = compare(workload, machine)
    (serial,) = (r for r in found.results if r.schedule == "serial")
    assert found.results[0].speedup > comparison.WORTH_IT
    assert serial.too_close
    assert found.verdict.startswith("Overlap may pay here")
    assert "serial" in found.verdict.partition("too close to call with ")[2]


def test_both_engines_are_told_apart() -> None:
    found = compare(SMALL, fitted(0.2), engines=("dma", "core"))
    assert "(dma)" in found.verdict.partition("The best, ")[2]


def test_same_input_same_intervals() -> None:
    first, second = (dump_json(compare(SMALL, fitted(0.03)).to_plain()) for _ in range(2))
    assert first == second
    assert json.loads(first)["results"][0]["interval_s"] is not None


def test_one_plan_has_its_interval_too() -> None:
    machine = fitted(0.03)
    plan = make_plan("hetero-fused-1d", SMALL, machine.num_gpus)
    found = evaluate_plan(plan, machine, CostModel(machine))
    low, high = found.result.interval_s
    assert low < found.result.makespan_s < high
    assert found.result.too_close is None
    assert evaluate_plan(plan, machine, CostModel(machine), intervals=False).result.interval_s is None


def test_without_fits_there_are_no_intervals_and_it_is_said() -> None:
    machine = machine_of("switch", 4, "h200")
    machine = replace(machine, profile=replace(machine.profile, fits={}))
    for place in (machine, with_fits(machine, gemm_fp8=fit_of(0.03))):
        found = compare(SMALL, place)
        assert all(r.interval_s is None and r.too_close is None for r in found.results)
        assert found.remarks == (NOT_FITTED,)
    assert NOT_FITTED == "no intervals: the profile's parameters were not fitted"
    assert compare(SMALL, machine, intervals=False).remarks == ()
    plan = make_plan("serial", SMALL, 4)
    assert evaluate_plan(plan, machine, CostModel(machine)).remarks == (NOT_FITTED,)
    ideal = compare(SMALL, fitted(0.03), costs=CostModel(fitted(0.03), "ideal"))
    assert ideal.remarks == ("no intervals: ideal costs are not fitted",)
    assert all(r.interval_s is None for r in ideal.results)


def test_what_was_not_fitted_is_said() -> None:
    machine = with_fits(machine_of("switch", 4, "h200"), gemm_bf16=fit_of(0.03), launch=fit_of())
    assert compare(SMALL, machine).remarks == (
        "intervals leave out what was not fitted: copy, local_copy, contention",
    )
    assert compare(SMALL, fitted(0.03)).remarks == ()


def test_plans_that_would_take_long_are_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "MAX_DRAWN_TASKS", 20)
    found = compare(SMALL, fitted(0.03))
    for r in found.results:
        assert r.interval_s is None or r.num_tasks <= 20
    assert found.remarks == ("no intervals for plans of more than 20 tasks",)


def test_progress_has_a_step_for_the_draws() -> None:
    seen: list[tuple[int, int, str]] = []
    compare(SMALL, fitted(0.03), progress=lambda *step: seen.append(step))
    assert [done for done, _, _ in seen] == list(range(seen[0][1]))
    assert seen[-1][2] == "intervals"


# ranges


def remarks_of(machine: Machine, *tasks: Any, num_gpus: int = 2) -> tuple[str, ...]:
    plan = hand_plan(num_gpus, *tasks)
    return evaluate_plan(plan, machine, CostModel(machine), intervals=False).remarks


def test_sizes_outside_of_the_fit_are_said_once_per_parameter() -> None:
    base = machine_of("switch", 2, "h200")
    machine = with_fits(
        base,
        gemm_bf16=fit_of(valid={"m": (16.0, 4096.0), "n": (64.0, 512.0), "k": (1.0, 1e6)}),
        copy=fit_of(valid={"nbytes": (4096, 2**26)}),
        local_copy=fit_of(valid={"nbytes": (1000, 2000)}),
    )
    tasks = [
        gemm("a", 0, 3, 256, 1024),
        gemm("b", 0, 8, 256, 1024),
        gemm("c", 1, 64, 1024, 1024),
        transfer("d", 1, 0, 4095),
        transfer("e", 0, 1, 2**26 + 1),
        local_copy("f", 0, 999),
        local_copy("g", 0, 1000),
    ]
    assert remarks_of(machine, *tasks) == (
        "GEMM m = 3 is below 16, the least that gemm.bf16 was fitted to",
        "GEMM n = 1024 is above 512, the most that gemm.bf16 was fitted to",
        "copy nbytes = 4095 is below 4096, the least that copy was fitted to",
        "copy nbytes = 67108865 is above 67108864, the most that copy was fitted to",
        "local copy nbytes = 999 is below 1000, the least that local_copy was fitted to",
    )
    assert remarks_of(base, *tasks) == ()
    assert remarks_of(machine, gemm("a", 0, 16, 64, 1), transfer("d", 1, 0, 4096)) == ()


def test_each_engine_has_its_own_range() -> None:
    ranges = {"copy": (100, 200), "core_copy": (1000, 2000)}
    machine = with_fits(
        machine_of("switch", 2, "h200"),
        **{name: fit_of(valid={"nbytes": span}) for name, span in ranges.items()},
    )
    assert remarks_of(machine, transfer("d", 1, 0, 150), transfer("e", 1, 0, 99, engine="core")) == (
        "core-driven copy nbytes = 99 is below 1000, the least that core_copy was fitted to",
    )


def test_copies_beside_gemms_have_a_range_of_rates() -> None:
    """Slopes that were measured at the rate of one link are not known at that of many."""
    base = machine_of("switch", 2, "h200")
    tasks = [transfer("x", 1, 0, 2**26), gemm("a", 0, 4096, 4096, 4096)]

    def remarks(most: float, *tasks: Any) -> tuple[str, ...]:
        fit = fit_of(valid={"in_bytes_per_s": (0.0, most)})
        return remarks_of(with_fits(base, contention=fit), *tasks)

    (remark,) = remarks(10e9, *tasks)
    assert remark.startswith("copies beside GEMMs: in_bytes_per_s = ")
    assert remark.endswith("GB/s is above 10.0 GB/s, the most that contention was fitted to")
    assert remarks(10e12, *tasks) == ()
    assert remarks(10e9, tasks[0]) == ()


def test_a_measured_shape_is_known_whatever_the_range() -> None:
    machine = with_measured(machine_of("switch", 2, "h200"), (3, 256, 1024, 5e-6))
    machine = with_fits(machine, gemm_bf16=fit_of(valid={"m": (16, 4096)}))
    assert remarks_of(machine, gemm("a", 0, 3, 256, 1024)) == ()
    assert len(remarks_of(machine, gemm("a", 0, 4, 256, 1024))) == 1


def test_compare_says_it_once_for_all_plans() -> None:
    machine = fitted(0.03)
    fits = machine.profile.fits | {"gemm.bf16": fit_of(0.03, valid={"m": (1000, 2000), "k": (1, 4096)})}
    machine = replace(machine, profile=replace(machine.profile, fits=fits))
    assert compare(SMALL, machine).remarks == (
        # a quarter of a shard of 1,024 rows, and the whole
        "GEMM m = 256 is below 1000, the least that gemm.bf16 was fitted to",
        "GEMM m = 4096 is above 2000, the most that gemm.bf16 was fitted to",
    )
    assert compare(SMALL, machine, costs=CostModel(machine, "ideal"), intervals=False).remarks == ()


# what users see


def test_the_table_marks_what_is_too_close() -> None:
    from rich.console import Console

    found = compare(SMALL, fitted(0.2))
    console = Console(width=144)
    with console.capture() as capture:
        console.print(report.results_table(found.results))
    text = capture.get()
    assert "10-90 %" in text
    assert "~ too close to call with the best" in text
    close = next(r for r in found.results if r.too_close)
    assert f"{close.schedule}~" in text
    with console.capture() as capture:
        console.print(report.results_table(compare(SMALL, fitted(0.2), intervals=False).results))
    assert "10-90" not in capture.get()
    assert "~" not in capture.get()


def machine_file(path: Any, **fits: Fit) -> str:
    """A machine file whose gpu is the shipped one with other fits."""
    from ficco_sim.io import data_folder, read_document

    gpu = read_document(data_folder() / "gpus" / "h200.yaml")
    gpu["profile"]["fits"] = {name.replace("gemm_", "gemm."): to_plain(f) for name, f in fits.items()}
    gpu["profile"]["gemm"].pop("measured_file", None)
    document = read_document(data_folder() / "h200_2.yaml") | {"gpu": gpu, "name": "mine"}
    path.write_text(json.dumps(document))
    return str(path)


def test_the_command_line_prints_and_writes_them(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    groups = {group.replace(".", "_"): fit_of(0.2) for group in ALL_GROUPS[1:]}
    groups["gemm_bf16"] = fit_of(0.2, valid={"m": (16, 100), "n": (1, 1e6), "k": (1, 1e6)})
    machine = machine_file(tmp_path / "m.json", **groups)
    given = ["--machine", machine, "--gemm", "4096,1024,2048"]

    def run(*arguments: str) -> str:
        assert main([*arguments, *given]) == 0
        return capsys.readouterr().out

    out = run("compare")
    assert "too close to call with" in out
    assert "Note: GEMM m = 4096 is above 100, the most that gemm.bf16 was fitted to." in out
    assert "10-90" not in run("compare", "--no-intervals")
    rows = json.loads(run("compare", "--json", "-"))
    assert len(rows["results"][0]["interval_s"]) == 2
    assert any("is above 100" in remark for remark in rows["remarks"])
    assert run("compare", "--json", "-") == run("compare", "--json", "-")
    out = run("simulate", "serial")
    assert "10th to 90th percentile of 12 draws" in out
    assert out.count("Note: GEMM m = 4096 is above 100") == 1
    row = json.loads(run("simulate", "serial", "--json", "-"))
    low, high = row["interval_s"]
    assert low < row["makespan_s"] < high
    assert row["remarks"] == ["GEMM m = 4096 is above 100, the most that gemm.bf16 was fitted to"]
    row = json.loads(run("simulate", "serial", "--no-intervals", "--json", "-"))
    assert row["interval_s"] is None

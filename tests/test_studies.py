"""Layer: studies. Frames say what their columns promise; figures are labelled and readable in grey."""

import itertools
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb

from ficco_sim import studies
from ficco_sim.calibrate import calibrate, read_inputs, read_start
from ficco_sim.costs import CostModel
from ficco_sim.errors import FileError, ScenarioError
from ficco_sim.grid import Grid
from ficco_sim.heuristics import find_rule
from ficco_sim.laboratory import evaluate, parse_axis, tune
from ficco_sim.machine import load_machine
from ficco_sim.pages.style import SETTINGS
from ficco_sim.sensitivity import WhatIf
from ficco_sim.studies.published import PublishedFile, Series
from ficco_sim.studies.style import LOOKS, PUBLISHED
from ficco_sim.units import MIB
from ficco_sim.workload import Workload, get_workload

ROOT = Path(__file__).parent.parent
RUNS = ROOT / "hw_validate" / "runs" / "h200_x2"
LOGS = ROOT / "notebooks" / "data"
GEMMS = ("llama3-8b-tp8-qkv-2k", "llama3-70b-tp8-qkv-8k", "llama3-405b-tp8-gate-up-8k")


@pytest.fixture(scope="module")
def mi300x():
    return load_machine("mi300x_8")


@pytest.fixture(scope="module")
def h200():
    return load_machine("h200_8")


@pytest.fixture(scope="module")
def workloads():
    return [get_workload(name) for name in GEMMS]


@pytest.fixture(scope="module")
def frames(mi300x, h200, workloads):
    """Small frames of the studies that simulate."""
    machines = [mi300x, h200]
    grid = Grid(
        schedules=("shard-p2p", "hetero-batched-1d", "uniform-fused-2d"),
        num_chunks=(2, 4),
        engines=("dma", "core"),
    )
    columns = studies.columns_varied(16384, 8192, [256, 1024, 2048, 4096, 16384])
    return {
        "cuts": studies.gemm_cuts(workloads, machines),
        "copies": studies.copy_cuts(machines, gathered_bytes=64 * MIB, most_chunks=16),
        "beside": studies.contention(workloads, machines),
        "shares": studies.loss_shares(workloads[:2], machines, num_chunks=4),
        "times": studies.schedule_times(workloads, machines, grid),
        "varied": studies.schedule_times(columns, machines, grid),
        "gathers": studies.all_gather_times(),
    }


# losses


def test_parts_of_a_gemm_are_timed_as_gemms(mi300x):
    workload = Workload(name="w", pattern="all_gather_gemm", m=4096, n=1024, k=2048)
    frame = studies.gemm_cuts([workload], [mi300x]).set_index(["cut", "ways"])

    def part_s(**sizes):
        return CostModel(mi300x).whole_gemm(replace(workload, **sizes)).time_s

    assert set(frame["whole_s"]) == {part_s()}
    assert frame.loc[("rows", 8), "parts_s"] == pytest.approx(8 * part_s(m=512))
    assert frame.loc[("rows", 64), "parts_s"] == pytest.approx(64 * part_s(m=64))
    # those after the first read C too
    assert frame.loc[("columns", 8), "parts_s"] > 8 * part_s(k=256)
    assert (frame["dil"] == frame["parts_s"] / frame["whole_s"]).all()
    assert not frame["measured"].any()


def test_parts_lack_nothing_if_rows_do_not_divide(mi300x):
    ragged = Workload(name="w", pattern="all_gather_gemm", m=8193, n=1024, k=8192)
    even = replace(ragged, m=8192)
    ours, theirs = (studies.gemm_cuts([w], [mi300x])["parts_s"] for w in (ragged, even))
    assert (ours >= theirs).all()
    few = studies.gemm_cuts([replace(ragged, m=3, k=5)], [mi300x])  # fewer than parts
    assert (few["parts_s"] > 0).all()


def test_some_cuts_on_the_h200_are_measured_on_both_sides(frames):
    cuts = frames["cuts"]
    assert cuts.loc[cuts["machine"] == "h200_8", "measured"].any()


def test_copies_lose_more_the_smaller_their_chunks(frames):
    for _, found in frames["copies"].groupby("machine"):
        dil = found["dil"].tolist()
        assert dil[0] == 1
        assert dil == sorted(dil)
        assert (found["chunk_bytes"] * found["num_chunks"] * 8 == 64 * MIB).all()


def test_dma_engines_contend_less_than_copy_kernels(frames):
    both = frames["beside"].pivot_table(
        index=["machine", "workload"], columns="engine", values=["gemm_cil", "comm_cil"]
    )
    assert (both["gemm_cil"]["dma"] < both["gemm_cil"]["core"]).all()
    assert (both["comm_cil"]["dma"] <= both["comm_cil"]["core"]).all()
    assert (both >= 1 - 1e-9).all().all()


def test_a_gemm_alone_takes_what_the_costs_say(frames, mi300x, workloads):
    alone = frames["beside"].query("machine == 'mi300x_8'").set_index("workload")["gemm_alone_s"]
    for workload in workloads:
        expected_s = CostModel(mi300x).whole_gemm(workload).time_s
        assert alone[workload.name].to_numpy() == pytest.approx(expected_s)


def test_extra_times_multiply_to_both_losses(frames):
    shares = frames["shares"]
    total = 1 + shares["decomposition"] + shares["contention"]
    assert total.to_numpy() == pytest.approx((shares["dil"] * shares["cil"]).to_numpy())
    assert set(shares["schedule"]) == set(studies.PAPER_SCHEDULES)
    emulated = shares.groupby(["machine", "schedule"])["emulated"].any()
    assert emulated["mi300x_8", "uniform-fused-2d"]
    assert emulated.sum() == 1


# schedules


def test_speedups_are_over_serial(frames):
    times = frames["times"]
    assert (times["speedup"] * times["makespan_s"]).to_numpy() == pytest.approx(
        times["serial_s"].to_numpy()
    )
    assert (times["ideal_s"] == times[["gemm_s", "comm_s"]].max(axis=1)).all()
    expected = (times["speedup"] - 1) / (times["ideal_speedup"] - 1)
    assert times["of_ideal"].to_numpy() == pytest.approx(expected.to_numpy())
    best_serial = times[times["kind"] == "serial"].groupby(["machine", "workload"])["speedup"].max()
    assert best_serial.to_numpy() == pytest.approx(1)


def test_best_of_is_the_fastest_even_of_frames_put_together(frames):
    times = frames["times"]
    parts = [found.reset_index(drop=True) for _, found in times.groupby("machine")]
    best = studies.best_of(pd.concat(parts), "kind")
    fastest = times.groupby(["machine", "workload", "kind"])["makespan_s"].min()
    assert len(best) == len(fastest)
    found = best.set_index(["machine", "workload", "kind"])["makespan_s"]
    assert found.sort_index().equals(fastest.sort_index())


def test_ideal_gain_is_largest_where_both_take_as_long(frames):
    for _, found in frames["varied"].groupby("machine"):
        one = found.drop_duplicates("workload").sort_values("gemm_over_comm")
        peak = one.loc[one["ideal_speedup"].idxmax(), "gemm_over_comm"]
        assert 0.6 < peak < 1.6
        assert one["ideal_speedup"].iloc[[0, -1]].max() < 1.4
        assert len(set(one["comm_s"])) == 1


def test_shard_level_overlap_loses_on_the_mesh_at_the_balance(frames):
    best = studies.best_of(frames["varied"], "kind")
    near = best[(best["gemm_over_comm"] > 0.6) & (best["gemm_over_comm"] < 1.6)]
    shard = near[near["kind"] == "shard-level"].groupby("machine")["speedup"].max()
    ficco = near[near["kind"] == "FiCCO"].groupby("machine")["speedup"].max()
    assert shard["mi300x_8"] < 0.5
    assert ficco["mi300x_8"] > 1.3
    assert shard["h200_8"] > 1.3


# wirings


def test_all_gathers_are_those_of_other_simulators_but_for_stored_messages(frames):
    found = frames["gathers"].set_index("wiring")["difference"]
    assert found.drop("switch_8").abs().max() < 0.001
    # one message of eight is stored at the switch: 7 shards here, 8 there
    assert found["switch_8"] == pytest.approx(7 / 8 - 1, abs=0.001)


# rules


@pytest.fixture(scope="module")
def ruled(mi300x, workloads):
    outcomes = studies.simulated_outcomes(
        [*workloads, *studies.columns_varied(4096, 4096, range(256, 256 * 17, 256))],
        mi300x,
        schedules=("hetero-fused-1d", "hetero-unfused-1d", "uniform-fused-1d", "uniform-fused-2d"),
        set_name="few",
    )
    rule = find_rule("published")
    tuning = tune(rule, outcomes, [parse_axis("tau_s=10us:10ms:7")], knobs="best")
    return outcomes, tuning, evaluate([rule], outcomes, knobs="best", draws=50)


def test_serial_is_the_baseline_and_no_choice(ruled):
    outcomes, _, _ = ruled
    assert {plan.schedule for o in outcomes.outcomes for plan in o.tried} == set(
        studies.PAPER_SCHEDULES
    )
    assert all(o.serial_s > 0 for o in outcomes.outcomes)


def test_tuning_frame_has_every_threshold_and_marks_the_own(ruled):
    _, tuning, _ = ruled
    frame = studies.tuning_frame({"here": tuning})
    assert len(frame) == len(tuning.points)
    own = frame[frame["own"]]
    assert own["tau_s"].tolist() == [tuning.untuned.values["tau_s"]]  # noqa: PD011
    assert own["accuracy"].tolist() == [tuning.untuned.accuracy]


def test_small_sets_are_all_counted(ruled):
    _, _, evaluation = ruled
    frame = studies.small_sets_frame({"here": evaluation.rules[0].small_sets})
    assert frame["num_right"].tolist() == list(range(17))
    assert frame["share"].sum() == pytest.approx(1)


# calibration


@pytest.fixture(scope="module")
def calibrated():
    start = read_start("mi300x_8")
    logs = [LOGS / n for n in ("hipblaslt_bench.txt", "rccl_all_gather.txt", "torch_trace.json")]
    inputs = read_inputs(logs, date="2026-12-01")
    found = calibrate(inputs, start.gpu, latency_s=start.latency_s, table=False, held_out=False)
    return inputs, found, studies.calibrated_machine(start, found)


def test_calibration_finds_the_gpu_behind_the_logs(calibrated, mi300x):
    inputs, found, machine = calibrated
    truth = {"arithmetic": 0.86, "copy kernels": 0.88, "copy engines": 0.92}  # as make_logs.py says
    changes = studies.parameter_changes(mi300x, machine, truth)
    assert changes["factor"].to_numpy() == pytest.approx(changes["truth"].to_numpy(), rel=0.03)
    errors = studies.gemm_errors(inputs, {"before": mi300x, "after": machine})
    mean = errors["error"].abs().groupby(errors["profile"]).mean()
    assert mean["after"] < 0.03
    assert mean["before"] > 0.1
    groups = studies.fitted_groups(found).set_index("group")
    assert groups.loc[["gemm.bf16", "copy", "core_copy"], "points"].tolist() == [35, 33, 6]
    assert groups.loc["contention", "kept"]


def test_logs_frame_counts_what_readers_found():
    frame = studies.logs_frame([LOGS / "rccl_all_gather.txt", LOGS / "nvbandwidth.txt"])
    assert frame["format"].tolist() == ["nccl_tests", "nvbandwidth"]
    assert frame["collectives"].tolist() == [12, 0]
    assert frame["copies"].tolist() == [0, 56]


# measured


@pytest.fixture(scope="module")
def measured():
    chosen = studies.read_plans([RUNS / "eager.jsonl.gz"], emulates="switch", submission="graph")
    return chosen, studies.measured_and_simulated(studies.validate_plans(chosen, "h200_8"))


def test_measured_speedups_are_over_measured_serial(measured):
    _, frame = measured
    serial = frame[frame["schedule"] == "serial"].iloc[0]
    for kind in ("measured", "simulated"):
        product = frame[f"{kind}_speedup"] * frame[f"{kind}_s"]
        assert product.to_numpy() == pytest.approx(serial[f"{kind}_s"])
    assert (frame["error"] + 1).to_numpy() == pytest.approx(
        (frame["simulated_s"] / frame["measured_s"]).to_numpy()
    )
    assert frame["label"].str.startswith("emulated").all()


def test_spans_of_one_plan_are_the_same_tasks(measured):
    chosen, frame = measured
    name = frame["workload"].iloc[0]
    spans = studies.spans_frame(
        studies.spans_beside(
            chosen, "h200_8", workload=name, schedule="hetero-batched-1d", num_chunks=2
        )
    )
    first, second = (set(found["task_id"]) for _, found in spans.groupby("run"))
    assert first == second
    with pytest.raises(ScenarioError, match=r"no plan of serial with 3 chunks"):
        studies.spans_beside(chosen, "h200_8", workload=name, schedule="serial", num_chunks=3)


# figures


@pytest.fixture(scope="module")
def drawn(frames, ruled, calibrated, measured, mi300x):
    inputs, _, machine = calibrated
    _, tuning, evaluation = ruled
    chosen, plans = measured
    times = frames["times"]
    one = times[(times["workload"] == GEMMS[1]) & (times["machine"] == "mi300x_8")]
    machines = {"before": mi300x, "after": machine}
    spans = studies.spans_beside(
        chosen, "h200_8", workload=plans["workload"].iloc[0], schedule="shard-p2p", num_chunks=1
    )
    sets = studies.small_sets_frame({"here": evaluation.rules[0].small_sets})
    errors = studies.gemm_errors(inputs, machines)
    gathers = studies.collective_errors(LOGS / "rccl_all_gather.txt", machines)
    return {
        "cuts": studies.draw_gemm_cuts(frames["cuts"]),
        "copies": studies.draw_copy_cuts(frames["copies"]),
        "beside": studies.draw_contention(frames["beside"]),
        "shares": studies.draw_loss_shares(frames["shares"]),
        "bell": studies.draw_bell_curve(frames["varied"], times),
        "table": studies.draw_schedules(times[times["machine"] == "mi300x_8"]),
        "speedups": studies.draw_speedups(one),
        "engines": studies.draw_engines(times),
        "gathers": studies.draw_all_gather_times(frames["gathers"]),
        "wirings": studies.draw_wirings(times[times["engine"] == "dma"]),
        "tau": studies.draw_tuning(studies.tuning_frame({"here": tuning})),
        "sets": studies.draw_small_sets(sets),
        "gemm-fit": studies.draw_gemm_errors(errors, label="synthetic"),
        "gather-fit": studies.draw_collective_errors(gathers, label="synthetic"),
        "errors": studies.draw_measured_errors({"as it is": plans}),
        "measured": studies.draw_measured_speedups(plans),
        "timelines": studies.draw_timelines(studies.spans_frame(spans)),
    }


def test_every_drawing_function_is_tested(drawn):
    assert len(drawn) == sum(name.startswith("draw_") for name in studies.__all__)


def test_axes_are_labelled_and_labels_do_not_touch(drawn):
    with mpl.rc_context(SETTINGS):
        for name, figure in drawn.items():
            FigureCanvasAgg(figure).draw()
            for axes in figure.axes:
                for axis in (axes.xaxis, axes.yaxis):
                    boxes = [
                        label.get_window_extent()
                        for label in axis.get_ticklabels()
                        if label.get_visible() and label.get_text() and label.get_rotation() == 0
                    ]
                    for one, other in itertools.pairwise(boxes):
                        assert not one.overlaps(other), (name, axis)
            text = [axes.get_xlabel() + axes.get_title() for axes in figure.axes]
            assert all(text) or figure.get_supxlabel() or name in ("beside", "shares", "timelines"), (
                name
            )
            width, height = figure.canvas.get_width_height()
            for legend in figure.legends:
                box = legend.get_window_extent()
                assert box.x0 >= -1, name
                assert box.x1 <= width + 1, name
                assert box.y1 <= height + 1, name


def test_looks_differ_without_colour():
    assert len({look.marker for look in LOOKS}) == len(LOOKS)
    hatches = [look.hatch for look in LOOKS]
    assert len(set(hatches)) == len(hatches)
    assert len({look.colour for look in LOOKS}) == len(LOOKS)
    assert PUBLISHED not in {look.colour for look in LOOKS}
    # the first two, which most figures use, differ in lightness alone
    first, second = (sum(to_rgb(look.colour)) for look in LOOKS[:2])
    assert abs(first - second) > 0.3


def test_frames_state_units(frames):
    plain = {
        "machine", "workload", "m", "n", "k", "dtype", "cut", "ways", "dil", "cil", "measured",
        "num_chunks", "compute_queues", "engine", "schedule", "kind", "part", "emulated", "wiring",
        "num_gpus", "other", "difference", "gemm_cil", "comm_cil", "gemm_over_comm", "speedup",
        "ideal_speedup", "of_ideal", "decomposition", "contention",
    }  # fmt: skip
    for name, frame in frames.items():
        for column in frame.columns:
            assert column in plain or column.endswith(("_s", "_bytes", "_flop")), (name, column)


# pictures and published values


def test_a_picture_is_a_png_with_its_numbers(frames, drawn, tmp_path):
    picture = studies.Picture(name="x", figure=drawn["copies"], frame=frames["copies"])
    data, _ = picture._repr_mimebundle_()
    paths = studies.write_shown(data, tmp_path)
    assert [p.name for p in paths] == ["x.png", "x.svg", "x.csv"]
    back = pd.read_csv(paths[2])
    assert back["dil"].to_numpy() == pytest.approx(frames["copies"]["dil"].to_numpy())
    with pytest.raises(FileError, match="no folder"):
        studies.write_shown(data, tmp_path / "none")


def test_records_become_rows():
    row = WhatIf(
        change="links", factor=2.0, schedule="serial", num_chunks=1, compute_queues=1, makespan_s=1.0,
        serial_s=1.0, ideal_s=0.5, speedup=1.0, gain=1.0,
    )  # fmt: skip
    assert studies.records_frame([row, row])["change"].tolist() == ["links", "links"]


def test_every_published_value_is_drawn_and_has_a_source():
    code = "".join(p.read_text() for p in (ROOT / "ficco_sim" / "studies").glob("*.py"))
    frame = studies.published_frame()
    assert frame["source"].str.len().min() > 4
    for name in set(frame["name"]):
        stem = name.rpartition("-")[0]
        assert f'"{name}"' in code or f'f"{stem}-{{' in code or name.startswith("all-gather-"), name


def test_published_values_are_asked_for_by_name():
    assert studies.published("ficco-ideal").number == 1.7
    assert studies.published("conccl-dma").words == "published"
    with pytest.raises(ScenarioError, match="'none' is unknown; one of: ficco-ideal"):
        studies.published("none")


@pytest.mark.parametrize("values", [{}, {"value": 1.0, "points": ((1.0, 2.0),)}])
def test_a_series_has_a_value_or_points(values):
    fields = {"name": "a", "what": "b", "unit": "x", "machine": "c", "how": "log", "source": "d"}
    with pytest.raises(ScenarioError, match="a: value, points: one of them is needed"):
        Series(**fields, **values)
    assert PublishedFile(format_version=1, series=()).series == ()

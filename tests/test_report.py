"""Layer: pictures and tables. What is drawn is what happened; files are whole or not there."""

import re

import pytest

from ficco_sim import report
from ficco_sim.comparison import compare
from ficco_sim.costs import CostModel
from ficco_sim.errors import FileError
from ficco_sim.machine import load_machine
from ficco_sim.metrics import compute_waits
from ficco_sim.schedules import make_plan
from ficco_sim.sim import simulate
from ficco_sim.workload import Workload, get_workload


@pytest.fixture(scope="module")
def run():
    machine = load_machine("mi300x_8")
    plan = make_plan("uniform-fused-1d", get_workload("llama3-70b-tp8-qkv-4k"), 8, {"num_chunks": 2})
    return plan, simulate(plan, machine)


def drawn_boxes(monkeypatch, plan, trace, path, **kwargs):
    """Boxes by colour that reach the figure."""
    from matplotlib.collections import PolyCollection

    boxes: dict[str, int] = {}
    original = PolyCollection.__init__

    def spy(self, verts, *args, **kwargs):
        boxes[kwargs["facecolors"]] = len(verts)
        original(self, verts, *args, **kwargs)

    monkeypatch.setattr(PolyCollection, "__init__", spy)
    report.plot_timeline(plan, trace, path, **kwargs)
    return boxes


def test_every_task_and_wait_is_drawn(monkeypatch, run, tmp_path):
    plan, trace = run
    boxes = drawn_boxes(monkeypatch, plan, trace, tmp_path / "t.png")
    for kind, colour in report.COLOURS.items():
        assert boxes[colour] == sum(span.kind == kind for span in trace.spans) > 0
    waits = [w for w in compute_waits(plan, trace) if w.cause == "transfer"]
    assert boxes[report.WAITS["transfer"][0]] == len(waits) > 0


def test_host_waits_are_drawn(monkeypatch, tmp_path):
    machine = load_machine("h200_8")
    plan = make_plan("hetero-unfused-1d", get_workload("llama3-8b-tp8-qkv-2k"), 8)
    trace = simulate(plan, machine, CostModel(machine, submission="eager"))
    boxes = drawn_boxes(monkeypatch, plan, trace, tmp_path / "t.png")
    assert boxes[report.WAITS["host"][0]] > 0


def test_svg_says_what_it_shows(run, tmp_path):
    plan, trace = run
    path = tmp_path / "t.svg"
    report.plot_timeline(plan, trace, path, title="A sentence.", marks={"serial": 1.0})
    comments = re.findall(r"<!-- (.*?) -->", path.read_text())
    text = " ".join(comments)
    for word in ("gpu 0", "gpu 7", "makespan", "simulated", "A sentence.", "serial"):
        assert word in text
    for word in (*report.LABELS.values(), *report.WAIT_LABELS.values()):
        assert word in text


def test_same_run_same_picture(run, tmp_path):
    plan, trace = run
    for name in ("a.svg", "b.svg"):
        report.plot_timeline(plan, trace, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_trace_with_nothing_in_it_is_drawn(tmp_path):
    machine = load_machine("mi300x_8")
    plan = make_plan("serial", Workload(name="w", pattern="all_gather_gemm", m=1, n=1, k=1), 8)
    report.plot_timeline(plan, simulate(plan, machine), tmp_path / "t.pdf")
    assert (tmp_path / "t.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize("name", ["t.bmp", "t", "t.png.txt"])
def test_other_formats_are_refused(run, tmp_path, name):
    with pytest.raises(FileError, match=r"ends in \.png, \.svg, \.pdf"):
        report.plot_timeline(*run, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_best_of_each_keeps_the_best_knobs_of_every_schedule():
    machine = load_machine("h200_2")
    workload = Workload(name="w", pattern="all_gather_gemm", m=4096, n=512, k=512)
    results = compare(workload, machine).results
    best = report.best_of_each(results)
    assert [r.schedule for r in best] == list(dict.fromkeys(r.schedule for r in results))
    for r in best:
        assert r.makespan_s == min(x.makespan_s for x in results if x.schedule == r.schedule)

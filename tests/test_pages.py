"""Layer: pages. One file that needs no network, says what was found, and shows names as text."""

import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from page_support import (
    BROWSER,
    TABLES_AND_MARKS,
    Tags,
    check_page,
    check_sorted,
    data_of,
    look,
    unpacked,
)

from ficco_sim import pages
from ficco_sim.cli import main
from ficco_sim.comparison import compare
from ficco_sim.errors import FileError
from ficco_sim.io import data_folder, dump_json
from ficco_sim.machine import build_machine, load_machine
from ficco_sim.pages.links import link_figure, link_shares
from ficco_sim.pages.timeline import timeline_data
from ficco_sim.schedules import make_plan
from ficco_sim.sim import simulate
from ficco_sim.topology import make_machine_file
from ficco_sim.workload import Workload, get_workload

SCRIPT = "<script>alert(1)</script>"
FIGURES = ("speedup", "breakdown", "links", "sensitivity")


def small(name="w"):
    return Workload(name=name, pattern="all_gather_gemm", m=4096, n=512, k=512)


@pytest.fixture(scope="module")
def subject():
    return pages.simulate_subject(
        small(), load_machine("h200_2"), command="ficco report --gemm 4096,512,512", intervals=False
    )


@pytest.fixture(scope="module")
def page8():
    """A page of eight gpus, as most are."""
    found = pages.simulate_subject(
        get_workload("llama3-70b-tp8-qkv-4k"),
        load_machine("mi300x_8"),
        command="c",
        sensitivity=False,
        intervals=False,
    )
    return found, pages.compare_page(found)


@pytest.fixture(scope="module")
def page64(page8):
    """The same words over the timelines of 64 gpus, where the best plan has 16,448 tasks."""
    found, _ = page8
    machine = build_machine(
        make_machine_file(
            "full_mesh", gpu="mi300x", num_gpus=64, bandwidth_bytes_per_s=64e9, latency_s=0.5e-6
        ),
        "mesh",
    )
    best = found.comparison.best
    runs = []
    for name in (best, "serial"):
        plan = make_plan(name, found.workload, 64, {"num_chunks": 4} if name == best else {})
        runs.append((plan, simulate(plan, machine)))
    subject = replace(found, machine=machine, runs=tuple(runs))
    return subject, pages.compare_page(subject)


def test_page_stands_alone(page8, page64):
    check_page(page8[1])
    check_page(page64[1])


def test_page_says_what_was_found(page8):
    found, page = page8
    comparison = found.comparison
    assert comparison.verdict in page
    for words in ("speed-up [x]", "makespan [", "Held back by", "measured", "estimated", "simulated"):
        assert words in page
    assert page.count("<tr") >= len(comparison.results)
    for result in comparison.results:
        assert result.schedule in page


def test_cards_say_what_the_makespan_is_made_of(page8):
    found, page = page8
    best = found.comparison.results[0]
    card = re.search(r"Held back by</h2>(.*?)</div>", page, re.DOTALL)[1]
    scale = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
    parts = [float(n) * scale[unit] for n, unit in re.findall(r"([0-9.]+) (us|ms|s)\b", card)]
    assert parts[0] == pytest.approx(found.comparison.gemm_s, rel=1e-3)
    # parts of less than 0.5 % are left out
    assert sum(parts) == pytest.approx(best.makespan_s, rel=0.02)
    w = found.workload
    assert f"A [{w.m}, {w.k}]" in page
    assert f"B [{w.k}, {w.n}]" in page


@pytest.mark.parametrize("which", ["page8", "page64"])
def test_timeline_holds_every_task_and_wait(which, request):
    found, page = request.getfixturevalue(which)
    timelines = data_of(page)["timelines"]
    for (plan, trace), timeline in zip(found.runs, timelines, strict=True):
        assert timeline["makespan"] == pytest.approx(trace.makespan_s * 1e6)
        assert len(timeline["packs"]) == 1  # a mesh looks the same from each gpu
        tasks = {task.id: task for task in plan.tasks}
        spans = {span.task_id: span for span in trace.spans}
        packed = [unpacked(timeline, gpu) for gpu in range(plan.num_gpus)]
        assert sum(len(own) for own, _ in packed) == len(plan.tasks)
        for gpu in (0, plan.num_gpus - 3):
            own, waits = packed[gpu]
            for row in own:
                span = spans[row["id"]]
                assert [span.queue.gpu, span.queue.engine, span.queue.index] == [gpu, *row["lane"]]
                assert row["start"] == round(span.start_s * 1e9)
                assert row["end"] == round(span.end_s * 1e9)
                there = [packed[dep][0][place]["id"] for dep, place in row["deps"]]
                assert there == list(tasks[row["id"]].deps)
            assert waits
            for wait in waits:
                # a wait for a transfer ends when that transfer does
                other, place = wait["last"]
                assert packed[other][0][place]["end"] == wait["end"]
                task = tasks[own[wait["delayed"]]["id"]]
                assert packed[other][0][place]["id"] in task.deps


def test_gpus_that_do_not_fit_are_named(subject):
    plan, trace = subject.runs[0]
    spans = [
        replace(s, end_s=s.end_s * 1.1) if s.queue.gpu == 1 else s for s in trace.spans
    ]  # the second gpu ends last and runs differently
    data = timeline_data(plan, replace(trace, spans=tuple(spans)), "t", max_bytes=1)
    assert data["gpus"] == [-1, 0]
    assert data["last"] == 1
    whole = timeline_data(plan, replace(trace, spans=tuple(spans)), "t")
    assert sorted(whole["gpus"]) == [0, 1]


def test_overview_is_the_share_of_time_in_gemms(page8):
    found, page = page8
    for (_, trace), timeline in zip(found.runs, data_of(page)["timelines"], strict=True):
        busy = timeline["busy"][timeline["gpus"][0]]
        gemms = [s for s in trace.spans if s.queue.gpu == 0 and s.queue.engine == "compute"]
        share = sum(s.duration_s for s in gemms) / trace.makespan_s
        mean = sum(map(int, busy)) / len(busy)
        assert mean / 10 <= share + 1e-6
        assert share <= mean / 10 + 0.1 + 1e-6  # digits are tenths, rounded down


def test_links_round_a_torus_are_arcs(page64):
    from matplotlib.collections import LineCollection

    machine = load_machine("torus_4x4")
    plan = make_plan("serial", small(), 16, {})
    from ficco_sim.routing import relay

    trace = simulate(relay(plan, machine), machine)
    axes = link_figure(machine, trace).axes[1]
    (lines,) = [c for c in axes.collections if isinstance(c, LineCollection)]
    drawn = dict(zip(link_shares(machine, trace), lines.get_segments(), strict=True))
    nodes = {text.get_text(): np.array(text.get_position()) for text in axes.texts}
    for (src, dst), points in drawn.items():
        hit = [
            name
            for name, at in nodes.items()
            if int(name) not in (src, dst) and min(np.hypot(*(points - at).T)) < 0.06
        ]
        assert not hit, f"link {src} to {dst} is drawn over gpu {hit}"
        # between neighbours it is straight
        assert (len(points) == 2) == (abs(src - dst) in (1, 4))


def test_link_shares_are_shares(page8):
    found, _ = page8
    shares = link_shares(found.machine, found.runs[0][1])
    assert len(shares) == 56
    assert all(0 < share <= 1 for share in shares.values())


def test_same_subject_same_page(subject):
    assert pages.compare_page(subject) == pages.compare_page(subject)


@pytest.mark.parametrize("name", [SCRIPT, "$x^{2$ & \"q\" 'r' </script>", "{{ 7 * 7 }} {% x %}"])
def test_names_are_text(name):
    found = pages.simulate_subject(
        small(name),
        load_machine("h200_2"),
        command=f"ficco report --workload {name}",
        sensitivity=False,
        intervals=False,
    )
    page = pages.compare_page(found)
    plain = pages.compare_page(
        pages.simulate_subject(
            small(), load_machine("h200_2"), command="c", sensitivity=False, intervals=False
        )
    )
    assert SCRIPT not in page
    assert page.count("<script") == plain.count("<script")
    assert page.count("</script") == plain.count("</script")
    assert "49" not in re.search(r"<h1>(.*?)</h1>", page)[1]
    tags = Tags()
    tags.feed(page)
    assert not tags.wrong


def test_figures_are_written(subject, tmp_path):
    folder = tmp_path / "figures"
    written = pages.write_figures(subject, folder)
    assert sorted(written) == sorted(folder.iterdir())
    for name in (*FIGURES, "timeline-serial"):
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert b"</svg>" in (folder / f"{name}.svg").read_bytes()
    text = (folder / "tables.md").read_text()
    assert subject.comparison.best in text
    assert "speed-up [x]" in text
    widths = {line.count("|") for line in text.splitlines() if line.startswith("| ")}
    assert len(widths) == 3  # three tables, each with as many cells in every row


def test_figures_are_the_same_each_time(subject):
    from ficco_sim.pages.style import to_svg

    first, second = (
        [to_svg(drawing.figure) for drawing in pages.comparison_figures(subject)] for _ in range(2)
    )
    assert first == second


def test_page_from_json(tmp_path):
    result = compare(small(SCRIPT), load_machine("h200_2"), intervals=False)
    path, out = tmp_path / "compare.json", tmp_path / "page.html"
    path.write_text(dump_json(result.to_plain()))
    assert main(["report", "--from", str(path), "--out", str(out)]) == 0
    page = out.read_text()
    assert data_of(page)["timelines"] == []
    assert 'id="figure-speedup"' in page
    assert SCRIPT not in page
    assert str(tmp_path) not in page


def test_no_folder_is_told(tmp_path):
    machine, workload, out = (tmp_path / name for name in ("mine.yaml", "load.yaml", "page.html"))
    shutil.copy(data_folder() / "h200_2.yaml", machine)
    shape = "pattern: all_gather_gemm, m: 4096, n: 512, k: 512, dtype: bf16"
    workload.write_text(f"format_version: 1\nworkloads: [{{name: mine, {shape}}}]\n")
    argv = ["report", "--machine", str(machine), "--workload", str(workload), "--out", str(out)]
    assert main([*argv, "--no-sensitivity", "--no-intervals"]) == 0
    page = out.read_text()
    assert str(tmp_path) not in page
    assert "--machine mine.yaml --workload load.yaml --no-intervals" in page


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--out", "no/page.html", "--gemm", "8,8,8"], "no folder"),
        (["--out", "page.html"], "--workload and --gemm"),
        (["--out", "page.html", "--from", "absent.json"], "no such file"),
        (["--out", "page.html", "--from", "bad.json"], "must have one of the keys"),
        (["--out", "page.html", "--from", "bad.json", "--gemm", "8,8,8"], "--from"),
        (["--out", "page.html", "--gemm", "8,8,8", "--figures", "bad.json"], "not a folder"),
        (["--out", "page.html", "--gemm", "8,8,8", "--machine", "nope"], "unknown"),
        (["--gemm", "8,8,8"], "out"),
    ],
)
def test_errors_are_the_users(argv, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_text("{}")
    assert main(["report", *argv]) == 2
    assert words in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["bad.json"]


@pytest.mark.parametrize(
    "change",
    [
        {"results": []},
        {"results": "x"},
        {"serial_s": "x"},
        {"verdict": None},
        {"results.0.interval_s": [0.0, 1.0]},
        {"results.0.speedup": 1e300},
        {"results.0.makespan_s": 0.0},
    ],
)
def test_wrong_json_is_refused(change, subject, tmp_path):
    path = tmp_path / "compare.json"
    document = subject.comparison.to_plain()
    for way, value in change.items():
        place, *keys = way.split(".0.")
        if keys:
            document[place][0][keys[0]] = value
        else:
            document[place] = value
    path.write_text(dump_json(document))
    with pytest.raises(FileError, match=r"compare\.json"):
        pages.read_result(path, command="c")


TIMELINE = """
  const canvas = document.getElementById("timeline"), detail = document.getElementById("detail");
  const select = (id, value) => {
    const box = document.getElementById(id);
    box.value = value;
    box.dispatchEvent(new Event("change"));
  };
  const shown = async (text) => until(() => canvas.dataset.shown === text);
  const options = (id) => [...document.getElementById(id).options].map((item) => item.value);
  await until(() => canvas.dataset.shown);
  const found = { first: canvas.dataset.shown, gpus: options("gpu"), before: detail.textContent,
    course: document.getElementById("course").textContent,
    overview: document.getElementById("overview").hidden };
  const box = canvas.getBoundingClientRect();
  point(canvas, box.left + 60, box.top + 36);
  found.hovered = detail.textContent;
  canvas.focus();
  const key = (name) => canvas.dispatchEvent(
    new KeyboardEvent("keydown", { key: name, cancelable: true }));
  found.seen = [];
  for (let i = 0; i < 12; i += 1) { key("ArrowRight"); found.seen.push(detail.textContent); }
  key("ArrowDown");
  found.below = detail.textContent;
  const picture = canvas.toDataURL();
  canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: -100, cancelable: true }));
  found.zoomed = canvas.toDataURL() !== picture;
  document.getElementById("whole").click();
  select("gpu", "3");
  await shown("0:3");
  key("ArrowRight");
  found.third = detail.textContent;
  const rows = document.getElementById("overview");
  if (!rows.hidden) {
    const at = rows.getBoundingClientRect();
    const y = at.top + (7.5 / found.gpus.length) * at.height;
    rows.dispatchEvent(new MouseEvent("click", { clientX: at.left + 90, clientY: y, bubbles: true }));
    await shown("0:7");
    select("gpu", "3");
    await shown("0:3");
  }
  select("beside", "5");
  await shown("0:3,5");
  select("which", "1");
  await shown("1:3,5");
  key("ArrowRight");
  found.serial = detail.textContent;
"""


def uneven(subject):
    """The page of 64 gpus of which no two run the same; gpu 0 ends last."""
    runs = []
    for plan, trace in subject.runs:
        slower = {gpu: 1.5 - gpu / 200 for gpu in range(plan.num_gpus)}
        spans = [
            replace(s, start_s=s.start_s * slower[s.queue.gpu], end_s=s.end_s * slower[s.queue.gpu])
            for s in trace.spans
        ]
        runs.append((plan, replace(trace, spans=tuple(spans))))
    page = pages.compare_page(replace(subject, runs=tuple(runs)))
    check_page(page)
    return page


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
def test_pages_in_a_browser(page8, page64, tmp_path):
    act = TIMELINE + TABLES_AND_MARKS.replace("return {", "return { ...found,")
    seen = look(tmp_path, {"8": page8[1], "64": page64[1], "uneven": uneven(page64[0])}, act)
    for (kind, _), found in seen.items():
        name = "8" if kind == "8" else "64"
        assert found["overview"] == (kind != "uneven")
        for table in found["tables"]:
            check_sorted(table["columns"])
        assert found["first"] == ("0:0,1,2,3,4,5,6,7" if name == "8" else "0:0")
        assert [gpu for gpu in found["gpus"] if gpu != "all"] == [str(i) for i in range(int(name))]
        assert ("all" in found["gpus"]) == (name == "8")
        course = "Every gpu runs differently" if kind == "uneven" else f"All {name} gpus run the same"
        assert course in found["course"]
        assert found["hovered"] != found["before"]
        assert re.match(
            r"GEMM gemm\.\S+ on gpu 0, compute queue 0\n.* to .*\n.*FLOP.*\nwaits for", found["hovered"]
        )
        assert any(
            re.match(r"Wait on gpu 0.*\n\S+ waits for the transfer ", text) for text in found["seen"]
        )
        below = r"transfer \S+ on gpu 0, dma queue.*\n.*\n.*GB/s; gpu \d+ to gpu 0"
        assert re.match(below, found["below"])
        assert found["zoomed"]
        assert re.match(r"GEMM gemm\.g3\.\S+ on gpu 3,", found["third"])
        assert "on gpu 3," in found["serial"]

"""Layer: pages. One file that needs no network, says what was found, and shows names as text."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from ficco_sim import pages
from ficco_sim.cli import main
from ficco_sim.comparison import compare
from ficco_sim.errors import FileError
from ficco_sim.io import data_folder, dump_json
from ficco_sim.machine import load_machine
from ficco_sim.pages.links import link_shares
from ficco_sim.workload import Workload, get_workload

SCRIPT = "<script>alert(1)</script>"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
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


def data_of(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])


class Tags(HTMLParser):
    """Tags that are never closed or closed twice, and ids that occur twice."""

    VOID = ("meta", "link", "input", "br")

    def __init__(self):
        super().__init__()
        self.open, self.wrong, self.ids = [], [], []

    def handle_starttag(self, tag, attrs):
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, _, attrs):
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def test_page_needs_nothing_else(page8):
    _, page = page8
    assert "http:" not in page
    assert "https:" not in page
    assert "default-src 'none'" in page
    assert not re.search(r'(src|href)="(?!#|data:)', page)
    assert "@import" not in page
    assert len(page.encode()) < 5 * 2**20


def test_page_is_well_formed(page8):
    tags = Tags()
    tags.feed(page8[1])
    assert not tags.wrong
    assert not tags.open
    assert len(tags.ids) == len(set(tags.ids))


def test_page_says_what_was_found(page8):
    found, page = page8
    comparison = found.comparison
    assert comparison.verdict in page
    for words in ("speed-up [x]", "makespan [", "Held back by", "measured", "estimated", "simulated"):
        assert words in page
    assert page.count("<tr") >= len(comparison.results)
    for result in comparison.results:
        assert result.schedule in page


def test_timeline_holds_every_task_and_wait(page8):
    found, page = page8
    timelines = data_of(page)["timelines"]
    names = [plan.schedule for plan, _ in found.runs]
    assert names[1:] == ["serial", "shard-p2p"]
    for (plan, trace), timeline in zip(found.runs, timelines, strict=True):
        assert [task[7] for task in timeline["tasks"]] == [task.id for task in plan.tasks]
        assert timeline["makespan"] == pytest.approx(trace.makespan_s * 1e6, abs=1e-3)
        deps = {task.id: list(task.deps) for task in plan.tasks}
        for task in timeline["tasks"]:
            assert [timeline["tasks"][place][7] for place in task[8]] == deps[task[7]]
        assert timeline["waits"]
        for wait in timeline["waits"]:
            # a wait for a transfer ends when that transfer does
            assert timeline["tasks"][wait[5]][3] == wait[3]


def test_timelines_of_many_tasks_show_the_first_gpus(monkeypatch, page8):
    from ficco_sim.pages import timeline

    plan, trace = page8[0].runs[0]
    monkeypatch.setattr(timeline, "MAX_TASKS", len(plan.tasks) // 2)
    data = timeline.timeline_data(plan, trace, "t")
    assert data["hidden_gpus"] == 4
    assert {lane[0] for lane in data["lanes"]} == {0, 1, 2, 3}


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
    ],
)
def test_wrong_json_is_refused(change, subject, tmp_path):
    path = tmp_path / "compare.json"
    path.write_text(dump_json(subject.comparison.to_plain() | change))
    with pytest.raises(FileError, match=r"compare\.json"):
        pages.read_result(path, command="c")


PROBE_HEAD = """<script>
window.problems = [];
window.addEventListener("error", (event) => window.problems.push(String(event.message)));
window.addEventListener("securitypolicyviolation",
  (event) => window.problems.push(event.violatedDirective));
</script>"""
# acts as a person would, and leaves what was seen in the page
PROBE_END = """<script>
{
  const column = (name) => [...document.querySelectorAll("#table-results tbody tr")]
    .map((row) => row.cells[name].dataset.key);
  const header = document.querySelectorAll("#table-results thead button")[3];
  header.click();
  const rising = column(3).map(Number);
  const said = header.parentElement.getAttribute("aria-sort");
  header.click();
  const falling = column(3).map(Number);
  const names = document.querySelectorAll("#table-results thead button")[0];
  names.click();
  const words = column(0);
  const canvas = document.getElementById("timeline"), detail = document.getElementById("detail");
  const box = canvas.getBoundingClientRect();
  const point = (type, x, y, more) => canvas.dispatchEvent(new PointerEvent(
    type, { clientX: box.left + x, clientY: box.top + y, bubbles: true, ...more }));
  const before = detail.textContent;
  point("pointermove", 60, 36);
  const hovered = detail.textContent;
  canvas.focus();
  const key = (name) => canvas.dispatchEvent(
    new KeyboardEvent("keydown", { key: name, cancelable: true }));
  const seen = [];
  for (let i = 0; i < 12; i += 1) { key("ArrowRight"); seen.push(detail.textContent); }
  key("ArrowDown");
  const below = detail.textContent;
  const picture = canvas.toDataURL();
  canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: -100, cancelable: true }));
  const zoomed = canvas.toDataURL() !== picture;
  document.getElementById("whole").click();
  const select = document.getElementById("which");
  select.value = "1";
  select.dispatchEvent(new Event("change"));
  key("ArrowRight");
  const found = {
    problems: window.problems, rising, falling, said, words, before, hovered, seen, below, zoomed,
    serial: detail.textContent, width: window.innerWidth, wide: document.documentElement.scrollWidth,
  };
  window.parent.postMessage(JSON.stringify(found), "*");
}
</script>"""
# windows of Chromium are at least 500 px wide, frames are as wide as asked for
FRAME = """<!DOCTYPE html><pre id="probe"></pre><script>
window.addEventListener("message", (event) => {
  document.getElementById("probe").textContent = event.data;
});
</script><iframe src="page.html" style="border: 0; width: %dpx; height: 800px"></iframe>"""


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("width", [1280, 390])
def test_page_in_a_browser(page8, tmp_path, width):
    page = page8[1].replace("<title>", PROBE_HEAD + "<title>").replace("</body>", PROBE_END + "</body>")
    (tmp_path / "page.html").write_text(page)
    outer = tmp_path / "outer.html"
    outer.write_text(FRAME % width)
    done = subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'user'}",
         "--window-size=1400,900", "--enable-logging=stderr", "--virtual-time-budget=3000",
         "--dump-dom", outer.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert not [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    text = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)[1]
    found = json.loads(text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    assert found["problems"] == []
    assert found["rising"] == sorted(found["rising"])
    assert found["falling"] == sorted(found["rising"], reverse=True)
    assert found["said"] == "ascending"
    assert found["words"] == sorted(found["words"])
    assert found["hovered"] != found["before"]
    assert re.match(
        r"GEMM gemm\.\S+ on gpu 0, compute queue 0\n.* to .*\n.*FLOP.*\nwaits for", found["hovered"]
    )
    assert any(
        re.match(r"Wait on gpu 0.*\n\S+ waits for the transfer ", text) for text in found["seen"]
    )
    assert re.match(r"transfer \S+ on gpu 0, dma queue.*\n.*\n.*GB/s; gpu \d to gpu 0", found["below"])
    assert found["zoomed"]
    assert "gpu" in found["serial"]
    assert found["width"] == width
    assert found["wide"] <= found["width"]

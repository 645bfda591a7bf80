"""Layer: documents. Every command of the how-to pages runs, and prints what the pages show; links lead
somewhere, and the page about the model quotes errors that the pages it cites have."""

import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from ficco_sim.cli import main
from hw_validate.__main__ import main as hw_main

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("howto_*.md"))
NUMBER = re.compile(r"\d+(?:\.\d+)?")
ROUNDING = 0.011  # of numbers with two decimals
FOREIGN = ("nvidia-smi", "rocm-smi")


@dataclass(frozen=True, kw_only=True)
class Step:
    """A file to save, or a command with what it must print."""

    saves: str = ""
    text: str = ""
    command: str = ""
    shown: tuple[str, ...] = ()


def steps_of(page: str) -> list[Step]:
    """Files and commands of a page, in order."""
    found = []
    for before, kind, body in re.findall(r"([^\n]*)\n\n```(\w+)\n(.*?)```", page, re.DOTALL):
        saved = re.search(r"[Ss]ave as `([^`]+)`:$", before)
        if saved:
            found.append(Step(saves=saved[1], text=body))
        elif kind == "console":
            for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                command, *shown = part.splitlines()
                found.append(Step(command=command, shown=tuple(shown)))
        else:
            assert kind == "sh", f"a block of {kind} that is neither saved nor run"
            found += [Step(command=line) for line in body.splitlines()]
    return found


def same(shown: str, printed: str, tolerance: float) -> bool:
    """Whether two words are equal but for numbers that differ a little."""
    if shown == printed:
        return True
    if NUMBER.sub("#", shown) != NUMBER.sub("#", printed):
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True)
    return all(
        abs(float(a) - float(b)) <= tolerance * max(float(a), float(b)) + ROUNDING * ("." in a)
        for a, b in pairs
    )


def find(line: str, printed: list[str], start: int, tolerance: float) -> int:
    """The place after a line's words among the printed ones, however wrapped; -1 if none."""
    words = line.removesuffix("...").split()
    for i in range(start, len(printed) - len(words) + 1):
        if all(same(w, p, tolerance) for w, p in zip(words, printed[i : i + len(words)], strict=True)):
            return i + len(words)
    return -1


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """What the pages tell one to have: an empty folder with the samples."""
    shutil.copytree(DOCS / "samples", tmp_path / "samples")
    (tmp_path / "runs").symlink_to(ROOT / "hw_validate" / "runs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_every_command_prints_what_the_page_shows(path, folder, capsys):
    page = path.read_text()
    tolerance = int(re.search(r"numbers within (\d+) %", " ".join(page.split()))[1]) / 100
    steps = steps_of(page)
    assert len(steps) >= 8
    for step in steps:
        if step.saves:
            (folder / step.saves).write_text(step.text)
            continue
        program, *arguments = shlex.split(step.command)
        if program in FOREIGN:
            continue
        if arguments[:2] == ["-m", "hw_validate"]:
            if arguments[2] == "doctor":
                continue  # looks for a gpu
            code = hw_main([*arguments[2:], "--dry-run", "--device", "cpu"])
        else:
            assert program == "ficco", step.command
            code = main(arguments)
        captured = capsys.readouterr()
        fails = any(line.startswith("ficco: error:") for line in step.shown)
        assert code == (2 if fails else 0), f"{step.command}\n{captured.err}"
        printed = (captured.err if fails else captured.out + captured.err).split()
        place = 0
        for line in step.shown:
            found = find(line, printed, place, tolerance)
            assert found >= 0, (
                f"{step.command}\ndid not print: {line}\nbut: {captured.out[:3000]}{captured.err}"
            )
            place = found


def messages_of(page: str) -> list[str]:
    """What the tables of what goes wrong say that one sees."""
    return re.findall(r"^\| `([^`]+)` \|", page.partition("## What goes wrong")[2], re.MULTILINE)


# what to change in which file, and the command that then says so, in the order of the tables
FAULTS = {
    "howto_topology": [
        ("four.yaml", "num_gpus: 4", "num_gpus: 5", "compare --machine bad --gemm 64,64,64"),
        ("four.yaml", "dst: 0,", "dst: 4,", "topology show bad"),
        ("four.yaml", "latency_s", "latency", "topology show bad"),
        ("", "", "", f"topology import {ROOT}/tests/cases/B06_topo_m_failed.txt"),
    ],
    "howto_calibrate": [
        ("samples/gemms_synthetic.csv", "time_us", "time", "calibrate bad --out x.yaml"),
        ("samples/gemms_synthetic.csv", "init,", "remark,", "calibrate bad --out x.yaml"),
        ("", "", "", "calibrate samples/gemms_synthetic.csv --out y.yaml"),
        ("", "", "", "compare --machine h200_8 --workload llama3-70b-tp8-gate-up-8k"),
    ],
    "howto_thresholds": [
        ("mine.yaml", "num_chunks: 8", "num_chunk: 8", "heuristic pick --gemm 64,64,64 --rule bad"),
        ("mine.yaml", "batched-1d,", "batch,", "heuristic pick --gemm 64,64,64 --rule bad"),
        ("mine.yaml", "gathered", "gatherd", "heuristic pick --gemm 64,64,64 --rule bad"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_messages_are_as_the_tables_say(path, folder, capsys):
    page = path.read_text()
    for step in steps_of(page):
        if step.saves:
            (folder / step.saves).write_text(step.text)
    messages = messages_of(page)
    for message, (name, old, new, command) in zip(messages, FAULTS[path.stem], strict=True):
        arguments = command.split()
        if name:
            text = (folder / name).read_text()
            assert old in text
            bad = f"bad{Path(name).suffix}"
            (folder / bad).write_text(text.replace(old, new))
            arguments = [bad if word == "bad" else word for word in arguments]
        main(arguments)
        captured = capsys.readouterr()
        printed = [word.rstrip(";:,.") for word in (captured.err + captured.out).split()]
        wanted = " ".join(word.rstrip(";:,.") for word in message.split())
        assert find(wanted, printed, 0, 0.02) >= 0, f"{message}\n{captured.err}{captured.out[-2000:]}"


def test_samples_that_are_made_up_say_so():
    for path in (DOCS / "samples").glob("*synthetic*"):
        first = path.read_text().splitlines()[0]
        assert first.startswith("# synthetic: ")
        assert first.endswith("; not a measurement")


@pytest.mark.parametrize("line", ["serial 2.71 ms", "serial 2.60 ms x", "parallel 2.60 ms"])
def test_a_line_that_was_not_printed_is_not_found(line):
    printed = ["a", "serial", "2.61", "ms"]
    assert find("serial 2.60 ms", printed, 0, 0.02) == 4
    assert find("serial 2.60 ...", printed, 0, 0.02) == 3
    assert find(line, printed, 0, 0.02) == -1


def slugs_of(page: str) -> set[str]:
    """Anchors of a page's headings, as hosts of repositories make them."""
    slugs: list[str] = []
    for title in re.findall(r"^#+ (.+)$", page, re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        again = sum(re.fullmatch(rf"{re.escape(slug)}(-\d+)?", known) is not None for known in slugs)
        slugs.append(f"{slug}-{again}" if again else slug)
    return set(slugs)


@pytest.mark.parametrize(
    "path", [*sorted(DOCS.glob("*.md")), ROOT / "CHANGELOG.md"], ids=lambda p: p.stem
)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if "://" not in target:
            name, _, anchor = target.partition("#")
            found = path.parent / name if name else path
            assert found.exists(), target
            assert not anchor or anchor in slugs_of(found.read_text()), target


def test_the_index_names_every_page():
    index = (DOCS / "README.md").read_text()
    for path in DOCS.glob("*.md"):
        assert path.name == "README.md" or f"({path.name})" in index, path.name


def test_errors_that_the_model_page_quotes_stand_in_the_pages_that_it_cites():
    rows = [line for line in (DOCS / "model.md").read_text().splitlines() if line.startswith("| ")]
    quoted = 0
    for row in rows:
        error = row.split(" | ")[-1]
        for words, name in re.findall(r"([^()]*)\(\[\w+\]\(([^)]+)\)\)", error):
            cited = " ".join((DOCS / name).read_text().split()).replace("%", " %").replace("  %", " %")
            for number in re.findall(r"\d+(?:\.\d+)? %|\d+ of \d+|\d+(?:\.\d+)?x", words):
                assert number in cited, f"{number} is not in {name}: {row[:60]}"
                quoted += 1
    assert quoted >= 15


def test_the_changelog_is_short():
    assert len((ROOT / "CHANGELOG.md").read_text().splitlines()) <= 80

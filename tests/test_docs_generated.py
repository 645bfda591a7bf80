"""Layer: documents. Generated pages are what their script makes, on any terminal."""

import importlib.util
import re
from pathlib import Path

import pytest

from ficco_sim.cli import app
from ficco_sim.machine import load_machine, named_machines

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "docs" / "generate.py"
CLI = (ROOT / "docs" / "cli.md").read_text()


def load():
    spec = importlib.util.spec_from_file_location("generate", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate = load()


@pytest.mark.parametrize("name", generate.PAGES)
def test_pages_are_what_the_script_makes(name):
    """To renew them: python docs/generate.py."""
    assert generate.stale(name) == [], "renew it: python docs/generate.py"


def test_help_does_not_depend_on_the_terminal(monkeypatch):
    before = generate.help_of(app, ("sweep",))
    for name, value in {"COLUMNS": "40", "TERM": "dumb", "FORCE_COLOR": "1", "LANG": "C"}.items():
        monkeypatch.setenv(name, value)
    assert generate.help_of(app, ("sweep",)) == before
    assert "\x1b" not in CLI
    blocks = re.findall(r"```text\n(.*?)```", CLI, re.DOTALL)
    assert max(len(line) for block in blocks for line in block.splitlines()) <= generate.WIDTH


def test_every_verb_has_a_section():
    """Found from the usage lines of the groups, not from the walk that made the page."""
    for words in ("", "heuristic ", "topology ", "scenarios ", "scenarios make "):
        listed = re.search(rf"Usage: ficco {words}COMMAND.*?─ Commands ─(.*?)╰", CLI, re.DOTALL).group(
            1
        )
        for verb in re.findall(r"^│ ([a-z]+) ", listed, re.MULTILINE):
            assert f"\n### ficco {words}{verb}\n" in CLI


def test_the_table_of_machines_says_what_the_machines_are():
    cells = [line.split("|") for line in (ROOT / "docs" / "machines.md").read_text().splitlines()]
    rows = {row[1].strip("` "): row for row in cells if len(row) == 10}
    for name in named_machines():
        machine = load_machine(name)
        row = rows[name]
        assert int(row[2]) == machine.num_gpus
        assert int(row[5]) == len(machine.links)
        for column, attribute in ((6, "bandwidth_bytes_per_s"), (7, "usable_bytes_per_s")):
            told = sorted(float(value) for value in re.findall(r"([\d.]+) GB/s", row[column]))
            true = sorted({getattr(link, attribute) / 1e9 for link in machine.links})
            assert told == pytest.approx(true, abs=0.051)


def test_a_source_of_all_links_shows_every_label_in_it():
    sources = {"topology": "stated: by a maker; usable_bytes_per_s is estimated"}
    assert generate.label_of("topology.latency_s", sources) == "stated, estimated"
    sources["topology.latency_s"] = "measured: estimated elsewhere"
    assert generate.label_of("topology.latency_s", sources) == "measured"


def test_check_finds_a_stale_page_and_shows_the_lines(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(generate, "DOCS", tmp_path)
    monkeypatch.setattr(
        generate, "PAGES", {"one.md": lambda: "first\nsecond\n", "two.md": lambda: "third\n"}
    )
    assert generate.main(["--check"]) == 1
    assert "+second" in capsys.readouterr().out
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    (tmp_path / "one.md").write_text("first\nold\n")
    assert generate.main(["--check"]) == 1
    told = capsys.readouterr().out
    assert "-old\n+second\n" in told
    assert "docs/two.md" not in told
    assert told.endswith("Renew them: python docs/generate.py\n")


def test_other_arguments_are_refused(capsys):
    assert generate.main(["--chek"]) == 2
    assert "the only argument is --check" in capsys.readouterr().err

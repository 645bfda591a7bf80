"""Layer: command line, in process. ``ficco heuristic evaluate``, ``tune`` and ``portability``."""

import csv
import json
import re
from pathlib import Path

import pytest
from cli_support import run
from laboratory_support import simple, write_table

from ficco_sim.cli import main
from ficco_sim.heuristics import load_rule_file

RUNS = Path(__file__).parent.parent / "hw_validate" / "runs"
EVALUATE = ("heuristic", "evaluate")
TUNE = ("heuristic", "tune")
PORTABILITY = ("heuristic", "portability")
TAU = ("--parameter", "tau_s=1us:10s:8")
RULE_FILE = """format_version: 1
name: mine
parameters: {rows: 7}
cases:
- when: {m: {at_least: rows}}
  then: {schedule: hetero-unfused-1d}
otherwise: {schedule: serial}
"""


@pytest.fixture(autouse=True)
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = []
    for machine in ("h200_2", "h200_8"):
        for i in range(10):
            m = 16 << i
            times = (1.0, 5.0, 2.0) if m < 512 else (2.0, 1.01, 1.0)
            found.append(simple(*times, name=f"model{i % 6}-tp8-{m}", m=m, machine=machine))
    return write_table(tmp_path / "made.csv", *found)


def refused(capsys, *arguments: str) -> str:
    assert main(list(arguments)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("ficco: error: ")
    return captured.err


def test_evaluate_has_stable_keys_and_known_numbers(capsys):
    rule = ("--rule", "always-hetero-unfused-1d")
    found = json.loads(run(capsys, *EVALUATE, "made.csv", *rule, "--json", "-"))
    assert list(found) == [
        "source", "num_scenarios", "machines", "sets", "knobs", "noise", "seed", "rules", "labels",
        "notes",
    ]  # fmt: skip
    assert (found["source"], found["num_scenarios"]) == ("simulated", 20)
    first = found["rules"][0]
    assert list(first) == [
        "rule", "description", "parameters", "reference", "total", "by_machine", "by_set", "confusion",
        "fault_counts", "faults", "small_sets", "worst", "regret_percentiles",
    ]  # fmt: skip
    total = first["total"]
    assert (total["num_right"], total["num_unsure"], total["num_wrong"]) == (10, 0, 10)
    assert total["mean_regret"] == 0.5
    assert (total["accuracy"]["low"], total["accuracy"]["high"]) == (
        pytest.approx(0.299, abs=1e-3),
        pytest.approx(0.701, abs=1e-3),
    )
    assert first["small_sets"]["draws"] == 1000
    assert [row["name"] for row in first["by_machine"]] == ["h200_2", "h200_8"]


def test_tables_say_simulated_and_have_the_columns(capsys):
    out = run(capsys, *EVALUATE, "made.csv")
    for word in (
        "20 scenarios on h200_2, h200_8 (sets: made), simulated", "rules, simulated", "right", "unsure",
        "wrong", "faults", "accuracy %", "published by machine", "size-threshold",
        "always-serial (reference)", "13/16", "chosen one (columns)",
    ):  # fmt: skip
        assert word in out


def test_the_same_seed_gives_the_same_output_byte_for_byte(capsys, tmp_path):
    for verb in (
        (*EVALUATE, "made.csv", "--seed", "5"),
        (*TUNE, "made.csv", "--rule", "published", *TAU),
        (*PORTABILITY, "made.csv", "--rule", "published", *TAU),
    ):
        texts = []
        for name in ("a", "b"):
            files = [f"{name}.json", f"{name}.csv", f"{name}.svg"]
            outputs = ("--json", files[0], "--csv", files[1], "--plot", files[2])
            out = run(capsys, *verb, *outputs)
            assert all(f"wrote {file}" in out for file in files)
            texts.append([out.split("wrote")[0], *((tmp_path / f).read_bytes() for f in files)])
        assert texts[0] == texts[1]


def test_a_line_per_rule_and_scenario_as_csv(capsys):
    out = run(capsys, *EVALUATE, "made.csv", "--rule", "always-serial", "--csv", "-")
    rows = list(csv.DictReader(out.splitlines()))
    assert len(rows) == 40  # serial, and the best that never changes
    assert {row["verdict"] for row in rows[:5]} == {"right"}
    assert float(rows[9]["regret"]) == 1
    assert rows[9]["best_plan"] == "hetero-unfused-1d c2 q4"


def test_options_reach_the_judge(capsys):
    def total(*options):
        rule = ("--rule", "always-uniform-fused-1d")
        found = json.loads(run(capsys, *EVALUATE, "made.csv", *rule, *options, "--json", "-"))
        return found["rules"][0]["total"]

    assert total()["num_unsure"] == 10
    assert total("--noise", "0.5%")["num_unsure"] == 0
    assert total("--noise", "0.02")["num_unsure"] == 10
    assert total("--on", "h200_8")["num_scenarios"] == 10
    assert total("--among", "serial,uniform-fused-1d")["num_right"] == 10
    assert total("--knobs", "best")["num_inexact"] == 0
    assert total()["num_inexact"] == 10  # 8 chunks on 8 gpus were not tried


def test_rules_of_the_user_that_fail_are_reported(capsys):
    Path("mine.py").write_text("def bad(f):\n    return f.rows\n\ndef odd(f):\n    return 'fast'\n")
    rules = ("--rule", "mine.py:bad", "--rule", "mine.py:odd")
    out = run(capsys, *EVALUATE, "made.csv", *rules)
    assert "AttributeError at mine.py:2" in out
    assert "unknown schedule" in out
    assert "mine.py:bad: faults" in out


def test_measured_records_are_called_so(capsys):
    file = str(RUNS / "h200_x2" / "dma.jsonl.gz")
    options = ("--machine", "h200_8", "--map", "switch", "--rule", "published")
    out = run(capsys, *EVALUATE, file, *options)
    assert "10 scenarios on h200_8 (measured switch dma)" in out
    assert "measured (emulated)" in out
    assert "emulated: gpus 1 to 7 only hold data" in out
    assert "simulated" not in out.split("noise:")[1].split("where simulated,")[1]
    both = ("--machine", "h200_nvlink_mesh_8", "--map", "mesh")
    found = json.loads(run(capsys, *PORTABILITY, file, *options, *both, *TAU, "--json", "-"))
    assert found["machines"] == [
        "h200_8 (measured switch dma)", "h200_nvlink_mesh_8 (measured mesh dma)"
    ]  # fmt: skip


def test_tune_writes_the_rule_with_the_picked_values(capsys):
    Path("mine.yaml").write_text(RULE_FILE)
    options = ("--rule", "mine.yaml", "--parameter", "rows=10:10000:31", "--out", "tuned.yaml")
    found = json.loads(run(capsys, *TUNE, "made.csv", *options, "--json", "-"))
    assert list(found)[:4] == ["rule", "source", "num_scenarios", "machines"]
    assert 256 < found["picked"]["values"]["rows"] <= 512
    assert found["picked"]["mean_regret"] == 0
    assert found["held_out"]["mean_regret"] < found["untuned"]["mean_regret"]
    assert len(found["folds"]) == 5
    tuned = load_rule_file(Path("tuned.yaml"))
    assert tuned.parameters == found["picked"]["values"]
    assert tuned.cases == load_rule_file(Path("mine.yaml")).cases


def test_tune_and_portability_in_words(capsys):
    out = run(capsys, *TUNE, "made.csv", "--rule", "published", *TAU, "--on", "h200_8")
    for word in ("as it is: tau_s 1.000 ms", "best accuracy", "best mean regret", "held out, 5 folds",
                 "on h200_8 (sets: made), simulated", "fold"):  # fmt: skip
        assert word in out
    out = run(capsys, *PORTABILITY, "made.csv", "--rule", "published", *TAU)
    for word in ("(as it is)", "(all others)", "mean regret %, simulated", "regained",
                 "features that the rule reads: m, k, flops, peak_flops_per_s"):  # fmt: skip
        assert word in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*EVALUATE, "no.csv"), "no.csv"),
        ((*EVALUATE, "made.txt"), "made.txt: must end in .csv, .parquet, .jsonl, .jsonl.gz"),
        ((*EVALUATE, "made.csv", "made.csv"), "made.csv: given twice"),
        ((*EVALUATE, "made.csv", "--rule", "magic"), "rule 'magic' is unknown"),
        ((*EVALUATE, "made.csv", "--noise", "lots"), "--noise: 'lots' must be from 0% to 100%"),
        ((*EVALUATE, "made.csv", "--noise", "-1%"), "--noise"),
        ((*EVALUATE, "made.csv", "--draws", "0"), "draws: 0 must be from 1"),
        ((*EVALUATE, "made.csv", "--seed", "-1"), "seed: -1 must not be negative"),
        ((*EVALUATE, "made.csv", "--map", "switch"), "--map: only for records"),
        ((*EVALUATE, "made.csv", "--engine", "dma"), "--engine: only for records"),
        ((*EVALUATE, "made.csv", "--on", "ring_8"), "machine 'ring_8': no outcomes of it"),
        ((*EVALUATE, "made.csv", "--among", "magic"), "--among: magic: not tried anywhere"),
        ((*EVALUATE, "made.csv", "--json", "-", "--csv", "-"), "only one can be the standard output"),
        ((*EVALUATE, "made.csv", "--plot", "p.txt"), "p.txt: a picture ends in"),
        ((*EVALUATE, "made.csv", "--json", "no/e.json"), "no/e.json"),
        ((*EVALUATE, str(RUNS / "h200_x2" / "dma.jsonl.gz")), "--machine: needed for records"),
        (
            (*EVALUATE, str(RUNS / "h200_x2" / "dma.jsonl.gz"), "--machine", "h200_8", "--map", "mesh",
             "--map", "switch"),
            "--machine and --map: 1 and 2; give one map for each machine",
        ),
        ((*TUNE, "made.csv", "--rule", "published", "--parameter", "x=1:2:3"), "no parameter 'x'"),
        ((*TUNE, "made.csv", "--rule", "published", "--parameter", "tau_s=1"), "NAME=LOW:HIGH:COUNT"),
        (
            (*TUNE, "made.csv", "--rule", "published", *TAU, "--out", "r.yaml"),
            "--out: published is no rule file",
        ),
        ((*TUNE, "made.csv", "--rule", "published", *TAU, "--folds", "1"), "folds: 1 must be from 2"),
        (
            (*PORTABILITY, "made.csv", "--rule", "published", *TAU, "--on", "h200_8"),
            "at least two machines are needed",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_and_nothing_is_written(capsys, tmp_path, arguments, words):
    before = sorted(tmp_path.iterdir())
    assert words in refused(capsys, *arguments)
    assert sorted(tmp_path.iterdir()) == before


def test_the_page_can_be_followed(capsys, table):
    text = (RUNS.parents[1] / "docs" / "laboratory.md").read_text()
    block = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
    table.rename("random.csv")
    # its machine is that of the table
    exec(block.replace("mi300x_8", "h200_8"), {})  # noqa: S102 - of this repository
    Path("mine.yaml").write_text(RULE_FILE.replace("rows", "margin"))
    commands = re.findall(r"^    ficco (heuristic .*)$", text, re.MULTILINE)
    assert len(commands) == 5
    for command in commands:
        if "jsonl" not in command:
            run(capsys, *command.replace("mi300x_8", "h200_8").split())

"""Layer: command line, in process. What ``ficco heuristic pick`` says."""

import json
from pathlib import Path

import pytest
from cli_support import run

from ficco_sim.cli import main
from ficco_sim.heuristics import FEATURE_NAMES, RULES

SMALL = ["--machine", "h200_2", "--gemm", "2048,256,256"]
LARGE = ["--gemm", "8192,7168,8192"]


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def picked(capsys, *arguments: str) -> dict:
    return json.loads(run(capsys, "heuristic", "pick", *arguments, "--json", "-"))


def test_json_has_stable_keys(capsys):
    document = picked(capsys, "--workload", "llama3-70b-tp8-gate-up-8k", "--rule", "published")
    assert list(document) == ["machine", "workload", "features", "decisions"]
    assert (document["machine"], document["workload"]) == ("mi300x_8", "llama3-70b-tp8-gate-up-8k")
    assert tuple(document["features"]) == FEATURE_NAMES
    (row,) = document["decisions"]
    assert 0 < row.pop("seconds") < 1
    assert row == {
        "rule": "published",
        "schedule": "uniform-fused-1d",
        "num_chunks": 8,
        "compute_queues": 1,
        "engine": "dma",
        "reason": "OTB x MT 0.96 TFLOP is below 1.31 TFLOP",
        "fault": None,
    }


def test_a_schedule_without_knobs_has_none_in_json(capsys):
    (row,) = picked(capsys, *LARGE, "--rule", "always-serial")["decisions"]
    assert (row["num_chunks"], row["compute_queues"], row["engine"]) == (None, None, "dma")


def test_several_rules_are_asked_in_the_order_given(capsys):
    names = ["always-serial", "published-time", "published"]
    rules = [word for name in names for word in ("--rule", name)]
    document = picked(capsys, *LARGE, *rules)
    assert [row["rule"] for row in document["decisions"]] == names


def test_the_table_gives_choice_reason_and_features(capsys):
    out = run(capsys, "heuristic", "pick", *LARGE)
    for word in ("published-time", "uniform-fused-1d", "is below 1.000 ms", "size-threshold", "took"):
        assert word in out
    for name in FEATURE_NAMES:
        assert f"{name} " in out
    assert "roofline_s 735.87 us" in out


def test_tau_and_other_parameters_reach_the_rules_that_have_them(capsys):
    rules = ["--rule", "published", "--rule", "always-serial"]
    for options, schedule in (
        (["--tau", "0.5ms"], "hetero-fused-1d"),
        (["--tau", "100us"], "hetero-unfused-1d"),
        (["--tau", "100us", "--set", "factor=20"], "hetero-fused-1d"),
        (["--set", "tau_s=1e-4", "--set", "factor=20"], "hetero-fused-1d"),
    ):
        rows = picked(capsys, *LARGE, *rules, *options)["decisions"]
        assert [row["schedule"] for row in rows] == [schedule, "serial"]


def test_the_oracle_simulates_and_says_what_it_cost(capsys):
    (row,) = picked(capsys, *SMALL, "--rule", "oracle")["decisions"]
    best = json.loads(run(capsys, "compare", *SMALL, "--no-intervals", "--json", "-"))["results"][0]
    assert row["schedule"] == best["schedule"]
    assert (row["num_chunks"] or 1) == best["num_chunks"]
    assert row["reason"].startswith("fastest of ")
    assert row["seconds"] > 0.001


def test_rules_of_the_user_and_their_faults_are_shown_side_by_side(capsys):
    Path("r.yaml").write_text(
        "format_version: 1\nname: mine\ncases:\n- when: {m: {at_least: k}}\n"
        "  then: {schedule: hetero-fused-1d, num_chunks: 2}\notherwise: {schedule: serial}\n"
    )
    Path("user_rule.py").write_text(
        "def bad(f):\n    return f.rows\n\ndef odd(f):\n    return 'fast'\n"
    )
    rules = ["--rule", "r.yaml", "--rule", "user_rule.py:bad", "--rule", "user_rule.py:odd"]
    rows = picked(capsys, *LARGE, *rules)["decisions"]
    assert [row["rule"] for row in rows] == ["mine", "user_rule.py:bad", "user_rule.py:odd"]
    assert (rows[0]["schedule"], rows[0]["num_chunks"]) == ("hetero-fused-1d", 2)
    assert rows[0]["reason"] == "m 8192 >= 8192"
    assert [row["schedule"] for row in rows[1:]] == [None, None]
    assert [row["fault"]["kind"] for row in rows[1:]] == ["raised", "unknown schedule"]
    assert "user_rule.py:2" in rows[1]["fault"]["message"]
    out = run(capsys, "heuristic", "pick", *LARGE, *rules)
    assert "raised" in out
    assert "Traceback" not in out


def test_an_impossible_schedule_is_a_fault(capsys):
    exchange = ["--workload", "mixtral-8x7b-ep8-gate-up-2k", "--rule", "always-shard-ring"]
    (row,) = picked(capsys, *exchange)["decisions"]
    assert row["fault"]["kind"] == "impossible"


def test_rules_are_listed(capsys):
    rows = json.loads(run(capsys, "list", "rules", "--json", "-"))
    assert [row["name"] for row in rows] == list(RULES)
    assert rows[0]["parameters"] == {"tau_s": 0.001, "factor": 5.0}
    out = run(capsys, "list", "rules")
    for name in RULES:
        assert name in out


def test_help_says_that_python_files_are_run(capsys):
    words = " ".join(run(capsys, "heuristic", "pick", "--help").split())
    assert "run as code" in words


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rule", "x"], ["give one of --workload and --gemm"]),
        ([*LARGE, "--rule", "x"], ["rule 'x' is unknown", "published-literal"]),
        ([*LARGE, "--rule", "x.yaml"], ["x.yaml: no such file"]),
        ([*LARGE, "--rule", "x.py"], ["x.py:FUNCTION"]),
        ([*LARGE, "--rule", "bad.yaml"], ["bad.yaml: line 3: otherwise", "'fast'"]),
        ([*LARGE, "--tau", "5"], ["--tau: '5'", "0.5us"]),
        ([*LARGE, "--tau", "-5ms"], ["--tau"]),
        ([*LARGE, "--rule", "always-serial", "--tau", "5ms"], ["'tau_s'", "none"]),
        ([*LARGE, "--set", "tau"], ["--set: 'tau'", "NAME=NUMBER"]),
        ([*LARGE, "--set", "factor=much"], ["'factor=much'"]),
        ([*LARGE, "--set", "factor=nan"], ["factor: nan"]),
        ([*LARGE, "--set", "rows=3"], ["'rows'", "factor", "serial_below_rows"]),
        ([*LARGE, "--machine", "a100_4", "--dtype", "fp8"], ["a100_4", "no GEMM rates for 'fp8'"]),
        (["--workload", "mixtral-8x7b-ep8-gate-up-2k", "--machine", "h200_2"], ["8 gpus, not 2"]),
        ([*LARGE, "--json", "no/x.json"], ["no/x.json", "no folder"]),
    ],
)
def test_bad_input_gets_one_clear_error(capsys, arguments, words):
    Path("bad.yaml").write_text("format_version: 1\nname: x\notherwise: {schedule: fast}\n")
    code = main(["heuristic", "pick", *arguments])
    captured = capsys.readouterr()
    assert code == 2, captured
    assert captured.out == ""
    assert all(line.startswith("ficco: error: ") for line in captured.err.splitlines())
    assert "internal error" not in captured.err
    for word in words:
        assert word in captured.err

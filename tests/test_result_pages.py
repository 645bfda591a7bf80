"""Layer: pages of results of other verbs: validations, judged, tuned and moved rules, sweeps."""

import json
import math
from dataclasses import replace
from itertools import pairwise

import pytest
from page_support import (
    BROWSER,
    TABLES_AND_MARKS,
    check_page,
    check_sorted,
    look,
)

from ficco_sim.cli import main
from ficco_sim.io import dump_json
from ficco_sim.pages import MAX_PAGE_BYTES, document_html, read_result
from ficco_sim.pages.order import order_of_pairs, sure_from
from ficco_sim.sweep.table import read_sweep
from ficco_sim.validation import PlanRow

SCRIPT = "<script>alert(1)</script>"
RULES = ["--rule", "published", "--rule", "closed-form"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A result of each kind, as its verb writes it."""
    folder = tmp_path_factory.mktemp("results")
    table = folder / "sweep.csv"
    shapes = [part for m in (64, 4096, 16384) for part in ("--gemm", f"{m},512,4096")]
    schedules = "hetero-fused-1d,uniform-fused-1d,uniform-fused-2d,hetero-unfused-1d"
    sweep = ["sweep", *shapes, "--machine", "h200_2", "--machine", "mi300x_8"]
    assert main([*sweep, "--schedule", schedules, "--makespans-only", "--out", str(table)]) == 0
    made = {"sweep": table}
    axis = ["--rule", "published", "--parameter", "tau_s=10us:10ms:7"]
    verbs = {
        "evaluate": ["heuristic", "evaluate", str(table), *RULES, "--draws", "10"],
        "tune": ["heuristic", "tune", str(table), *axis, "--folds", "2"],
        "grid": ["heuristic", "tune", str(table), *axis, "--parameter", "factor=1:20:3"],
        "portability": ["heuristic", "portability", str(table), *axis],
        "validate": ["validate", "hw_validate/runs/h200_x2/own.jsonl.gz", "--machine", "h200_2",
                     "--engine", "dma", "--as-is"],
    }  # fmt: skip
    for name, argv in verbs.items():
        made[name] = folder / f"{name}.json"
        assert main([*argv, "--json", str(made[name])]) == 0
    return made


KINDS = ("sweep", "evaluate", "tune", "grid", "portability", "validate")


@pytest.fixture(scope="module")
def documents(files):
    return {name: read_result(files[name], command="c") for name in KINDS}


@pytest.fixture(scope="module")
def result(files):
    """Plain data of a result."""
    return {name: json.loads(files[name].read_text()) for name in KINDS if name != "sweep"}


@pytest.mark.parametrize("name", KINDS)
def test_page_stands_alone(name, files, documents):
    page = document_html(read_result(files[name], command="c"))
    check_page(page)
    assert page == document_html(read_result(files[name], command="c"))
    assert documents[name].verdict in page.replace("&#39;", "'")


def table_of(document, name):
    (table,) = [s.table for s in document.sections if s.table is not None and s.table.name == name]
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_page_of_a_validation(documents, result):
    document, found = documents["validate"], result["validate"]
    s = found["summary"]
    errors = [abs(row["simulated_s"] / row["measured_s"] - 1) for row in found["rows"]]
    mean = sum(errors) / len(errors)
    assert f"off by {mean:.1%} on average" in document.verdict
    assert f"{s['mean_regret']:.1%}" in document.verdict
    rows = table_of(document, "plans")
    assert len(rows) == len(found["rows"])
    sizes = [row["size of error [%]"].key for row in rows]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == pytest.approx(max(errors) * 100)
    # parts add up to the error, where there are any
    parts = [key for key in rows[0] if key.startswith("in ")]
    assert len(parts) == 4
    for row in rows:
        if row[parts[0]].text != "-":
            assert sum(row[key].key for key in parts) == pytest.approx(row["error [%]"].key)
    by_schedule = table_of(document, "schedules")
    assert {row["schedule"].text for row in by_schedule} == {r["schedule"] for r in found["rows"]}
    marks = [tip for d in document.drawings for tips in d.tips.values() for tip in tips]
    assert len(marks) == len(found["rows"])
    for text in (*found["labels"], *found["remarks"]):
        assert any(text[1:] in remark for remark in document.remarks)


def plans(*pairs):
    """Plans of one workload by measured and simulated seconds."""
    return [
        PlanRow(
            workload="w", m=1, n=1, k=1, dtype="bf16", schedule="serial", num_chunks=1,
            compute_queues=1, copy_queues=1, engine="dma", gpus=(0,), num_samples=1,
            measured_s=measured_s, simulated_s=simulated_s, error=simulated_s / measured_s - 1,
            instrumented_s=None, parts=(), kinds=(), labels=(),
        )
        for measured_s, simulated_s in pairs
    ]  # fmt: skip


def test_differences_are_right_where_the_order_is():
    rows = plans((1.0, 1.0), (2.0, 1.005), (1.9, 3.0), (4.0, 6.1))
    found = {(order.low, order.high): order for order in order_of_pairs(rows)}
    assert sum(order.num_pairs for order in found.values()) == 6
    # 1 and 1.005: right; 1.005 and 3: measured the other way round; all others right
    assert (found[0.0, 0.01].num_right, found[0.0, 0.01].num_pairs) == (1, 1)
    assert (found[0.5, math.inf].num_right, found[0.5, math.inf].num_pairs) == (4, 5)
    assert sure_from(list(found.values())) is None
    assert sure_from(order_of_pairs(plans((1.0, 1.0), (2.0, 2.0)))) == 0.5
    # other workloads are not compared, and equal times have no order
    other = [replace(row, workload="v") for row in plans((9.0, 1.0))]
    assert order_of_pairs([*plans((1.0, 1.0)), *other]) == []
    assert order_of_pairs(plans((1.0, 2.0), (1.0, 3.0))) == []


def test_page_of_judged_rules(documents, result):
    document, found = documents["evaluate"], result["evaluate"]
    judged = [report for report in found["rules"] if not report["reference"]]
    best = min(judged, key=lambda report: report["total"]["mean_regret"])
    assert document.verdict.startswith(f"The rule {best['rule']} loses least")
    worst = table_of(document, "worst")
    for report in found["rules"]:
        rows = [row for row in worst if row["rule"].text.split(" ")[0] == report["rule"]]
        regrets = [row["regret [%]"].key for row in rows]
        assert len(rows) == found["num_scenarios"]
        assert regrets == sorted(regrets, reverse=True)
        assert sum(regrets) / len(regrets) == pytest.approx(report["total"]["mean_regret"] * 100)
        spread = report["regret_percentiles"]
        assert len(spread) == 101
        assert all(a <= b for a, b in pairwise(spread))
        assert spread[-1] == report["total"]["max_regret"]
    assert [d.name for d in document.drawings][:3] == ["rules", "regrets", "machines"]
    assert sum(d.name.startswith("confusion") for d in document.drawings) == len(judged)


def test_results_without_the_newest_keys_are_read(result, tmp_path):
    old = json.loads(json.dumps(result["evaluate"]))
    for report in old["rules"]:
        del report["worst"], report["regret_percentiles"]
    path = tmp_path / "old.json"
    path.write_text(dump_json(old))
    document = read_result(path, command="c")
    assert "regrets" not in [d.name for d in document.drawings]
    check_page(document_html(document))


def test_page_of_a_tuned_rule(documents, result):
    document, found = documents["tune"], result["tune"]
    least = min(point["mean_regret"] for point in found["points"])
    assert f"to {least:.1%} at tau_s" in document.verdict
    points = table_of(document, "points")
    assert len(points) == len(found["points"])
    assert [row["mean regret [%]"].key for row in points] == pytest.approx(
        [point["mean_regret"] * 100 for point in found["points"]]
    )
    assert "grid" in [d.name for d in documents["grid"].drawings]
    assert "grid" not in [d.name for d in document.drawings]


def test_page_of_a_moved_rule(documents, result):
    document, found = documents["portability"], result["portability"]
    moved = [
        cell["mean_regret"]
        for cell in found["cells"]
        if cell["tuned_on"] in found["machines"] and cell["tuned_on"] != cell["judged_on"]
    ]
    assert len(moved) == 2
    assert f"loses {sum(moved) / 2:.1%} on average on the others" in document.verdict
    assert len(table_of(document, "pairs")) == len(found["cells"])


def test_page_of_a_sweep_is_the_same_by_name_or_by_option(files, tmp_path):
    pages = []
    for flag in ("--from", "--sweep"):
        assert main(["report", flag, str(files["sweep"]), "--out", str(tmp_path / "p.html")]) == 0
        pages.append((tmp_path / "p.html").read_text().replace(flag, ""))
    assert pages[0] == pages[1]
    assert str(len(read_sweep(files["sweep"]).groups)) in pages[0]


@pytest.mark.parametrize("name", KINDS)
def test_figures_and_tables_as_files(name, files, documents, tmp_path):
    folder, out = tmp_path / "figures", tmp_path / "page.html"
    argv = ["report", "--from", str(files[name]), "--out", str(out), "--figures", str(folder)]
    assert main(argv) == 0
    names = [d.name for d in documents[name].drawings]
    assert names
    expected = {f"{n}.{suffix}" for n in names for suffix in ("png", "svg")} | {"tables.md"}
    assert {path.name for path in folder.iterdir()} == expected
    text = (folder / "tables.md").read_text()
    num_tables = sum(s.table is not None for s in documents[name].sections)
    assert text.count("\n## ") == num_tables
    assert str(tmp_path) not in out.read_text()


def renamed(value, old, new):
    """Plain data with a text replaced wherever it is a whole value."""
    if isinstance(value, dict):
        return {key: renamed(item, old, new) for key, item in value.items()}
    if isinstance(value, list):
        return [renamed(item, old, new) for item in value]
    return new if value == old else value


@pytest.mark.parametrize(
    ("name", "old"),
    [
        ("evaluate", "published"),
        ("tune", "published"),
        ("portability", "mi300x_8"),
        ("validate", "serial"),
    ],
)
def test_names_are_text(name, old, result, tmp_path):
    path, out = tmp_path / "r.json", tmp_path / "page.html"
    path.write_text(dump_json(renamed(result[name], old, SCRIPT)))
    folder = tmp_path / "f"
    assert main(["report", "--from", str(path), "--out", str(out), "--figures", str(folder)]) == 0
    page = out.read_text()
    check_page(page)
    assert SCRIPT not in page
    assert "&lt;script&gt;alert(1)" in page
    assert SCRIPT not in (folder / "tables.md").read_text()


def changed(document, path, value):
    """A copy with one value replaced, or removed if it is None."""
    copy = json.loads(json.dumps(document))
    *way, last = path
    place = copy
    for step in way:
        place = place[step]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return copy


@pytest.mark.parametrize(
    ("name", "path", "value", "words"),
    [
        ("validate", ("rows", 0, "measured_s"), 0.0, "rows[0].measured_s"),
        ("validate", ("rows", 0, "simulated_s"), "x", "rows[0].simulated_s"),
        ("validate", ("rows",), [], "rows"),
        ("validate", ("summary",), None, "summary"),
        ("validate", ("summary", "bias"), "much", "summary.bias"),
        ("evaluate", ("rules",), [], "rules"),
        ("evaluate", ("rules",), 3, "rules"),
        ("evaluate", ("rules", 0), 3, "rules[0]"),
        ("evaluate", ("rules", 0, "by_machine"), [], "by_machine"),
        ("evaluate", ("rules", 0, "worst", 0, "verdict"), "maybe", "verdict"),
        ("tune", ("points", 2, "values"), {"x": 1.0}, "points[2].values"),
        ("tune", ("plateaus", 0, "ranges"), [], "ranges"),
        ("tune", ("plateaus", 0, "measure"), "speed", "measure"),
        ("tune", ("points",), [], "points"),
        ("portability", ("cells", 0), None, "cells"),
        ("portability", ("machines",), ["a"], "cells"),
        ("portability", ("results",), [], "one of the keys"),
    ],
)
def test_wrong_results_are_refused(name, path, value, words, result, tmp_path, capsys):
    file = tmp_path / "r.json"
    file.write_text(dump_json(changed(result[name], path, value)))
    assert main(["report", "--from", str(file), "--out", str(tmp_path / "p.html")]) == 2
    err = capsys.readouterr().err
    assert "r.json" in err
    assert words in err
    assert [found.name for found in tmp_path.iterdir()] == ["r.json"]


@pytest.mark.parametrize("text", ["[]", "3", "{", '{"a": 1, "a": 2}', '{"rows": NaN}', ""])
def test_what_is_no_result_is_refused(text, tmp_path, capsys):
    file = tmp_path / "r.json"
    file.write_text(text)
    assert main(["report", "--from", str(file), "--out", str(tmp_path / "p.html")]) == 2
    assert "r.json" in capsys.readouterr().err


def test_a_page_that_would_be_too_large_is_refused(result, tmp_path, capsys):
    file = tmp_path / "r.json"
    file.write_text(dump_json(renamed(result["tune"], "published", "x" * MAX_PAGE_BYTES)))
    assert main(["report", "--from", str(file), "--out", str(tmp_path / "p.html")]) == 2
    assert "page would have" in capsys.readouterr().err
    assert [found.name for found in tmp_path.iterdir()] == ["r.json"]


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
def test_pages_in_a_browser(documents, tmp_path):
    pages = {name: document_html(document) for name, document in documents.items()}
    seen = look(tmp_path, pages, TABLES_AND_MARKS)
    for (name, _), found in seen.items():
        tables = [s.table.name for s in documents[name].sections if s.table is not None]
        assert [table["id"] for table in found["tables"]] == [f"table-{table}" for table in tables]
        for table in found["tables"]:
            check_sorted(table["columns"])
        marks = [t for d in documents[name].drawings for tips in d.tips.values() for t in tips]
        assert sorted(tip for figure in found["tips"] for tip in figure["all"]) == sorted(marks)
        for figure in found["tips"]:
            assert figure["said"] in figure["all"]
        assert bool(found["tips"]) == (name in {"sweep", "validate"})

"""Layer: the page of a sweep."""

import csv
import re

import pytest

from ficco_sim.cli import main
from ficco_sim.sweep.table import read_sweep


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Three scenarios on two machines."""
    path = tmp_path_factory.mktemp("sweep") / "sweep.csv"
    shapes = [part for m in (64, 4096, 16384) for part in ("--gemm", f"{m},512,4096")]
    machines = ["--machine", "h200_2", "--machine", "mi300x_8"]
    schedules = ["--schedule", "hetero-fused-1d,shard-p2p", "--num-chunks", "2"]
    assert main(["sweep", *shapes, *machines, *schedules, "--makespans-only", "--out", str(path)]) == 0
    return path


def test_page_of_a_sweep(table, tmp_path):
    out = tmp_path / "page.html"
    assert main(["report", "--sweep", str(table), "--out", str(out)]) == 0
    page = out.read_text()
    groups = read_sweep(table).groups
    lost = sum(g.serial_s / g.best.makespan_s < 1.01 for g in groups)
    assert f"{lost} of {len(groups)}" in page
    assert 0 < lost < len(groups)
    for words in ("h200_2", "mi300x_8", 'id="figure-bell"', 'id="figure-winners"', "sweep.csv"):
        assert words in page
    scenarios = page[page.index('id="table-scenarios"') :]
    assert len(re.findall("<tr", scenarios.split("</table>")[0])) == len(groups) + 1
    assert "http" not in page.replace("http-equiv", "")
    assert str(tmp_path) not in page
    again = tmp_path / "again" / "page.html"
    again.parent.mkdir()
    assert main(["report", "--sweep", str(table), "--out", str(again)]) == 0
    assert again.read_text() == page


def test_names_in_a_sweep_are_text(table, tmp_path):
    rows = list(csv.reader(table.read_text().splitlines()))
    column = rows[0].index("workload")
    for row in rows[1:]:
        row[column] = f"<script>alert(1)</script>{row[column]}"
    path, out = tmp_path / "s.csv", tmp_path / "page.html"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    assert main(["report", "--sweep", str(path), "--out", str(out)]) == 0
    assert "<script>alert" not in out.read_text()
    assert "&lt;script&gt;alert(1)" in out.read_text()


@pytest.mark.parametrize("extra", [["--gemm", "8,8,8"], ["--from", "x.json"], ["--skew", "1"]])
def test_options_that_do_not_fit(extra, table, tmp_path, capsys):
    assert main(["report", "--sweep", str(table), "--out", str(tmp_path / "p.html"), *extra]) == 2
    assert "--sweep" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_no_sweep(tmp_path, capsys):
    path = tmp_path / "s.csv"
    path.write_text("a,b\n1,2\n")
    assert main(["report", "--sweep", str(path), "--out", str(tmp_path / "p.html")]) == 2
    assert "s.csv" in capsys.readouterr().err


def test_no_formula_is_left_in_figures(table, tmp_path):
    out = tmp_path / "page.html"
    assert main(["report", "--sweep", str(table), "--out", str(out)]) == 0
    assert "mathdefault" not in out.read_text()

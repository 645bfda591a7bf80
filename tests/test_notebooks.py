"""Layer: documents. The notebooks run, hold no logic and no outputs, and their figures become files."""

import ast
import importlib.util
import json
import re
import subprocess
import sys
from base64 import b64encode
from pathlib import Path

import pandas as pd
import pytest
from nbclient.exceptions import CellExecutionError

from ficco_sim.studies import MIME, published

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "notebooks"
PATHS = sorted(FOLDER.glob("*.ipynb"))
NAMES = re.compile(r'Picture\(\s*name="([^"]+)"')
MOST_LINES = 10
LOGIC = (ast.FunctionDef, ast.ClassDef, ast.Lambda, ast.If, ast.While, ast.Try, ast.With)


def load(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def figures():
    return load(FOLDER / "figures.py")


def cells(path, kind):
    document = json.loads(path.read_text())
    return ["".join(c["source"]) for c in document["cells"] if c["cell_type"] == kind]


def test_there_are_seven():
    assert [path.name[0] for path in PATHS] == list("1234567")


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_nothing_is_stored_and_no_logic_is_in_it(path):
    document = json.loads(path.read_text())
    for cell in document["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
    for source in cells(path, "code"):
        assert len(source.splitlines()) <= MOST_LINES, source
        assert not any(isinstance(node, LOGIC) for node in ast.walk(ast.parse(source))), source
    assert set(document["metadata"]) == {"kernelspec", "language_info"}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_text_opens_and_ends_it_and_stands_below_each_figure(path):
    kinds = [(c["cell_type"], "".join(c["source"])) for c in json.loads(path.read_text())["cells"]]
    assert kinds[0][0] == "markdown"
    assert "To try" in "".join(source for kind, source in kinds if kind == "markdown")
    for (kind, source), following in zip(kinds, [*kinds[1:], ("", "")], strict=True):
        if kind == "code" and "Picture(" in source:
            below = following[0] == "markdown" or "Picture(" not in following[1]
            assert below, source


def test_figures_have_names_of_their_own():
    found = [(path, name) for path in PATHS for name in NAMES.findall("".join(cells(path, "code")))]
    names = [name for _, name in found]
    assert len(set(names)) == len(names) >= 15
    assert all(name.startswith(path.name[0] + "-") for path, name in found)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_it_runs_and_its_figures_become_files(path, tmp_path):
    """In a process of its own, as the client of the kernel leaves sockets to be collected."""
    command = [sys.executable, FOLDER / "figures.py", tmp_path / "out", path.stem]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names = NAMES.findall("".join(cells(path, "code")))
    files = {p.name for p in (tmp_path / "out").iterdir()}
    assert files == {f"{name}.{suffix}" for name in names for suffix in ("png", "svg", "csv")}
    for name in names:
        assert (tmp_path / "out" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        svg = (tmp_path / "out" / f"{name}.svg").read_text()
        assert "</svg>" in svg
        assert "mathdefault" not in svg  # a tick label that was not laid out
        frame = pd.read_csv(tmp_path / "out" / f"{name}.csv")
        assert len(frame) >= 3
        assert not frame.columns.duplicated().any()


# the script


class FakeNotebook:
    def __init__(self, name, complaint=""):
        data = {
            "image/png": b64encode(b"png").decode(),
            MIME: {"name": name, "svg": "<svg/>", "csv": "a\n1\n"},
        }
        self.cells = [{"outputs": [{"data": data}]}, {}]
        if complaint:
            self.cells.append({"outputs": [{"name": "stderr", "text": complaint}]})


def test_script_writes_three_files_a_figure(figures, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(figures, "run", lambda path: FakeNotebook(path.stem[:1]))
    assert figures.main([str(tmp_path / "new"), "1_start_here", "2_losses"]) == 0
    found = {p.name: p.read_bytes() for p in (tmp_path / "new").iterdir()}
    assert found == {
        f"{n}.{suffix}": data
        for n in "12"
        for suffix, data in (("png", b"png"), ("svg", b"<svg/>"), ("csv", b"a\n1\n"))
    }
    assert "2 figures, 6 files" in capsys.readouterr().out


@pytest.mark.parametrize("how", ["fails", "warns"])
def test_script_writes_nothing_if_one_notebook_fails(figures, how, tmp_path, monkeypatch, capsys):
    def run(path):
        if path.stem.startswith("1"):
            return FakeNotebook("1")
        if how == "fails":
            raise CellExecutionError("1 / 0: by zero", "ZeroDivisionError", "division by zero")
        return FakeNotebook("2", "DivisionWarning: nearly zero")

    monkeypatch.setattr(figures, "run", run)
    assert figures.main([str(tmp_path / "new"), "1_start_here", "2_losses"]) == 1
    error = capsys.readouterr().err
    assert "2_losses: " in error
    assert "zero" in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "usage"),
        (["--help"], "usage"),
        (["out", "8_none"], "8_none: no such notebook; one of: 1_start_here"),
        (["none/out"], "none"),
    ],
)
def test_script_refuses_what_it_cannot_do(figures, arguments, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(figures, "run", lambda _: pytest.fail("ran"))
    assert figures.main(arguments) == 2
    error = capsys.readouterr().err
    assert words in error
    assert "Traceback" not in error
    assert list(tmp_path.iterdir()) == []


# data


def test_synthetic_logs_are_what_their_script_makes(tmp_path, monkeypatch):
    script = load(FOLDER / "data" / "make_logs.py")
    monkeypatch.setattr(script, "FOLDER", tmp_path)
    script.main()
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert len(made) == 4
    for name, text in made.items():
        assert text == (FOLDER / "data" / name).read_text(), name
        assert "synthetic" in text


def test_published_values_are_those_of_the_page_on_them():
    page = load(ROOT / "docs" / "published.py")
    for i, name in enumerate(("flux-serial", "flux-overlapped")):
        assert {m: s * 1e3 for m, s in published(name).points} == pytest.approx(
            {m: both[i] for m, both in page.FLUX_MS.items()}
        )
    assert (page.FLUX_N, page.FLUX_K) == (7168, 8192)
    for name, share in page.CONCCL_SHARE.items():
        assert published(f"conccl-{name}").number == share
    assert dict(published("conccl-units").points) == {
        units: 1 + slower for units, slower in page.UNITS_SLOWDOWN.items()
    }
    shares = dict(published("dma-latte-copy-share").points)
    for num_bytes, copy, _ in page.LATTE_SHARES.values():
        if num_bytes >= 64 * 1024:
            assert shares[num_bytes] == float(copy) / 100


def test_the_readme_lists_every_notebook():
    text = (FOLDER / "README.md").read_text()
    for path in PATHS:
        assert f"({path.name})" in text

"""Layer: documents. The page on adding things: commands print what it shows, code is the files'."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from test_docs_howto import find, steps_of
from test_profiles_data import KINDS, is_numeric, leaves, source_of

from ficco_sim import io
from ficco_sim.cli import main
from ficco_sim.costs import CostModel
from ficco_sim.machine import load_machine
from ficco_sim.readers.logs import DETECTORS, LOG_FORMATS
from ficco_sim.workload import Workload

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "docs" / "examples"
PAGE = (ROOT / "docs" / "extending.md").read_text()
MI325X = EXAMPLES / "mi325x_8.yaml"
QUOTE = re.compile(r"<!-- (\S+) -->\n```\w+\n(.*?)```", re.DOTALL)
EDITORS = ("sed", "head")


def test_quoted_code_is_that_of_the_files():
    quotes = QUOTE.findall(PAGE)
    assert len(quotes) >= 6
    for path, code in quotes:
        assert code.strip("\n") in (ROOT / path).read_text(), path
    assert {Path(path).name for path, _ in quotes} == {
        "tapered.py",
        "mi325x_8.yaml",
        "rocm_bandwidth.py",
    }


def test_the_schedule_is_quoted_whole():
    (code,) = [code for path, code in QUOTE.findall(PAGE) if path.endswith("tapered.py")]
    assert code == (EXAMPLES / "tapered.py").read_text()


def test_every_example_is_on_the_page():
    for path in EXAMPLES.iterdir():
        assert path.name in PAGE or path.name == "__pycache__", path


def test_every_command_prints_what_the_page_shows(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "examples"
    shutil.copytree(EXAMPLES, folder)
    monkeypatch.chdir(folder)
    commands = "\n\n".join(re.findall(r"\n\n```console\n.*?```", PAGE, re.DOTALL))
    steps = steps_of(commands)
    assert sum(line.startswith("ficco: error: ") for step in steps for line in step.shown) >= 12
    for step in steps:
        program, *arguments = shlex.split(step.command)
        if program in EDITORS:
            done = subprocess.run(
                ["sh", "-c", step.command], capture_output=True, text=True, check=True
            )
            printed = done.stdout
        else:
            assert program == "ficco", step.command
            fails = any(line.startswith("ficco: error: ") for line in step.shown)
            code = main(arguments)
            captured = capsys.readouterr()
            assert code == (2 if fails else 0), f"{step.command}\n{captured.err}"
            printed = captured.err if fails else captured.out
        place = 0
        for line in step.shown:
            place = find(line, printed.split(), place, 0.02)
            assert place >= 0, f"{step.command}\ndid not print: {line}\nbut: {printed[:3000]}"


def test_files_and_names_on_the_page_exist():
    for target in re.findall(r"\]\(([^)#]+)(?:#[\w-]+)?\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
    for path in re.findall(r"`((?:ficco_sim|tests|topologies|docs)/[\w/.]+)`", PAGE):
        assert (ROOT / path).exists(), path
    assert "rocm_bandwidth" in LOG_FORMATS
    assert set(DETECTORS) == set(LOG_FORMATS)


def test_every_number_of_the_machine_has_a_source_and_none_is_called_measured():
    document = io.read_document(MI325X)
    sources = {f"gpu.{key}": text for key, text in document["gpu"]["sources"].items()}
    sources |= document["sources"]
    numbers = [key for key, value in leaves(document).items() if is_numeric(value)]
    known = ("format_version", "num_gpus", "gpu.format_version")
    assert [k for k in numbers if k not in known and not source_of(k, sources)] == []
    for text in sources.values():
        assert text.startswith(KINDS)
        assert not text.startswith("measured: ")


@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
@pytest.mark.parametrize("shape", [(8192, 1024, 8192), (128, 8192, 8192), (16384, 16384, 16384)])
def test_the_machine_is_never_slower_than_the_one_it_is_made_from(dtype, shape):
    new, old = load_machine(str(MI325X)), load_machine("mi300x_8")
    m, n, k = shape
    gemm = Workload(name="w", pattern="gemm", m=m, n=n, k=k, dtype=dtype)
    faster, slower = (CostModel(machine).whole_gemm(gemm).time_s for machine in (new, old))
    assert slower * 5.3 / 6.0 <= faster <= slower
    assert faster > gemm.flops / new.gpu.peak_flops_per_s[dtype]


def test_the_made_up_log_says_so():
    first = (EXAMPLES / "rocm_bandwidth_synthetic.txt").read_text().splitlines()[0]
    assert first.startswith("# synthetic: ")
    assert first.endswith("; not a measurement")

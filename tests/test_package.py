"""Layer: installation. The built wheel works in an empty environment, away from the sources."""

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT],
        check=True,
        capture_output=True,
    )
    (path,) = folder.glob("ficco-*.whl")
    return path


def test_machines_and_workloads_travel_with_the_package(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for file in (ROOT / "topologies").rglob("*.yaml"):
        assert f"ficco_sim/data/topologies/{file.relative_to(ROOT / 'topologies')}" in names
    assert "ficco_sim/data/workloads.yaml" in names
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"ficco_sim", "hw_validate"}


def test_wheel_runs_in_an_empty_environment(wheel, tmp_path):
    environment = tmp_path / "env"
    venv.create(environment, with_pip=True)
    bin_folder = environment / ("Scripts" if os.name == "nt" else "bin")
    subprocess.run(
        [bin_folder / "python", "-m", "pip", "install", "--quiet", wheel],
        check=True,
        capture_output=True,
    )
    empty = tmp_path / "empty"
    empty.mkdir()
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(
        [
            bin_folder / "ficco", "compare", "--machine", "mi300x_8", "--workload",
            "llama3-70b-tp8-gate-up-256", "--json", "-",
        ],
        cwd=empty, env=clean, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["machine"] == "mi300x_8"
    assert result["best"] == "serial"
    where = subprocess.run(
        [bin_folder / "python", "-c", "import ficco_sim; print(ficco_sim.__file__)"],
        cwd=empty, env=clean, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert Path(where.stdout.strip()).is_relative_to(environment)

"""Layer: documents. What the README and the machine schema say is so."""

import importlib.util
import re
from dataclasses import fields
from pathlib import Path

import pytest

import ficco_sim
from ficco_sim import io
from ficco_sim.comparison import Comparison, Result
from ficco_sim.machine import MachineFile, build_machine
from ficco_sim.profile import GpuFile

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
SCHEMA = (ROOT / "topologies" / "README.md").read_text()


def test_every_public_name_loads():
    for name in ficco_sim.__all__:
        assert getattr(ficco_sim, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = ficco_sim.nonsense


def test_readme_lists_the_json_keys():
    start = README.index("`--json` of compare:")
    listed = set(re.findall(r"\b[a-z_]+\b", README[start : README.index("simulate prints", start)]))
    for cls in (Comparison, Result):
        assert {f.name for f in fields(cls)} - {"traces"} <= listed


def test_readme_is_one_page():
    assert len(README.splitlines()) <= 130


def test_files_that_documents_name_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
    for path in re.findall(r"`(ficco_sim/[\w/]+\.py)`", README + SCHEMA):
        assert (ROOT / path).exists(), path


def test_the_example_machine_file_loads():
    text = re.search(r"```yaml\n(format_version.*?)```", SCHEMA, re.DOTALL).group(1)
    machine = build_machine(
        io.decode(io.parse_yaml(text, "example"), MachineFile, "example"), "example"
    )
    assert machine.num_gpus == 4
    assert len(machine.links) == 8


def test_the_schema_names_every_group_of_the_profile():
    for f in fields(GpuFile):
        assert f"`{f.name}`" in SCHEMA or f.name == "format_version"


@pytest.mark.parametrize("machine", ["mi300x_8", "ring_8"])
def test_the_table_of_wirings_is_what_its_script_prints(machine):
    spec = importlib.util.spec_from_file_location("table", ROOT / "docs" / "topology_table.py")
    table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    lines = (ROOT / "docs" / "topologies.md").read_text().splitlines()
    workload = table.WORKLOADS[0]
    row = next(line for line in lines if line.startswith(f"| {workload} "))
    assert table.cell(workload, machine) in row
    assert sum(line.startswith("| ") for line in lines) == len(table.WORKLOADS) + 1


def test_the_tables_of_measured_runs_are_what_their_script_prints():
    spec = importlib.util.spec_from_file_location("runs", ROOT / "docs" / "measured_runs.py")
    runs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(runs)
    page = (ROOT / "docs" / "hardware.md").read_text()
    _, _, rest = page.partition("<!-- made by python docs/measured_runs.py -->\n")
    made, _, _ = rest.partition("\n<!-- end -->")
    assert made.strip() == "\n".join(runs.main()).strip()

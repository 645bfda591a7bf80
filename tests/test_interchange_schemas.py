"""Layer: documents. Published JSON schemas: as the code has them, and files of ours follow them."""

import gzip
import json
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from jsonschema import Draft202012Validator
from strategies import examples, plans
from test_trace import TRACES

from ficco_sim import io
from ficco_sim.cli import main
from ficco_sim.errors import ScenarioError
from ficco_sim.interchange import SCHEMAS, schema_text
from ficco_sim.machine import load_machine
from ficco_sim.schedules import make_plan
from ficco_sim.sim import simulate
from ficco_sim.workload import get_workload

ROOT = Path(__file__).parent.parent
PUBLISHED = ROOT / "docs" / "schemas"
MACHINES = ROOT / "topologies"


@cache
def validator(name: str) -> Draft202012Validator:
    schema = json.loads(schema_text(name))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def faults(name: str, document: object) -> list[str]:
    return [error.message for error in validator(name).iter_errors(document)]


@pytest.mark.parametrize("name", SCHEMAS)
def test_published_copies_are_those_of_the_code(name):
    """To renew one: ficco schema NAME --json docs/schemas/NAME.schema.json."""
    assert (PUBLISHED / f"{name}.schema.json").read_text() == schema_text(name)


def test_nothing_else_is_published():
    assert {file.name for file in PUBLISHED.iterdir()} == {f"{name}.schema.json" for name in SCHEMAS}


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_command_line_prints_them(name, capsys):
    assert main(["schema", name]) == 0
    assert capsys.readouterr().out == schema_text(name)


def test_unknown_names_are_refused(capsys):
    assert main(["schema", "recipe"]) == 2
    with pytest.raises(ScenarioError, match="'recipe' is none of plan, trace"):
        schema_text("recipe")


@examples(20)
@given(plan=plans(max_gpus=4, max_chunks=3))
def test_plan_files_follow_the_schema(plan):
    assert faults("plan", json.loads(plan.to_json())) == []


@examples(50)
@given(trace=TRACES)
def test_trace_files_follow_the_schema(trace):
    assert faults("trace", json.loads(trace.to_json())) == []


def test_a_simulated_trace_follows_the_schema():
    plan = make_plan("hetero-fused-1d", get_workload("llama3-70b-tp8-qkv-4k"), 8)
    assert faults("trace", json.loads(simulate(plan, load_machine("mi300x_8")).to_json())) == []


@pytest.mark.parametrize("file", sorted(MACHINES.glob("*.yaml")), ids=lambda file: file.stem)
def test_machine_files_follow_the_schema(file):
    assert faults("machine", io.read_document(file)) == []


@pytest.mark.parametrize("name", ["mi300x", "h200"])
def test_gpu_files_follow_the_schema(name):
    assert faults("gpu", io.read_document(MACHINES / "gpus" / f"{name}.yaml")) == []


def test_record_lines_follow_the_schema():
    files = sorted((ROOT / "hw_validate" / "runs").rglob("*.jsonl.gz"))
    assert files
    file = min(files, key=lambda path: path.stat().st_size)
    lines = gzip.decompress(file.read_bytes()).splitlines()
    for line in lines[:200]:
        assert faults("records", json.loads(line)) == []


def test_a_workload_file_follows_the_schema():
    document = json.loads(io.dump_json(get_workload("llama3-70b-tp8-qkv-4k")))
    assert faults("workload", document) == []


@pytest.mark.parametrize(("damage", "words"), [
    (lambda d: d.update(colour="red"), "'colour' was unexpected"),
    (lambda d: d.pop("tasks"), "'tasks' is a required property"),
    (lambda d: d.update(num_gpus="8"), "'8' is not of type 'integer'"),
    (lambda d: d.update(format_version=2), "1 was expected"),
    (lambda d: d["outputs"][0].update(rows=[0]), "is too short"),
    (lambda d: d["tasks"][0]["queue"].update(engine="steam"), "is not valid under any"),
])  # fmt: skip
def test_damaged_plans_do_not(damage, words):
    document = json.loads(make_plan("serial", get_workload("llama3-70b-tp8-qkv-4k"), 8).to_json())
    damage(document)
    assert any(words in fault for fault in faults("plan", document)), faults("plan", document)

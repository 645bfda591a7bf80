"""Layer: data. Sets of scenarios are what they say, and the same arguments give the same bytes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples

from ficco_sim import workload as workload_module
from ficco_sim.cli import main
from ficco_sim.errors import FileError, ScenarioError, WorkloadError
from ficco_sim.scenarios import (
    find_scenarios,
    load_scenarios,
    make_again,
    measured,
    named,
    random_models,
    scenario_rows,
    synthetic_grid,
)
from ficco_sim.units import MIB
from ficco_sim.workload import get_workload, load_workloads, named_workloads

RUNS = Path(__file__).parent.parent / "hw_validate" / "runs"


def test_named_sets_are_the_named_workloads():
    gathers = named()
    assert {w.pattern for w in gathers.workloads} == {"all_gather_gemm"}
    assert named(all_to_all=True).workloads == tuple(named_workloads().values())


def test_a_random_set_follows_its_seed(tmp_path):
    for suffix in ("yaml", "json"):
        paths = [tmp_path / f"{i}.{suffix}" for i in range(3)]
        for path, seed in zip(paths, (5, 5, 6), strict=True):
            random_models(count=40, seed=seed).save(path)
        assert paths[0].read_bytes() == paths[1].read_bytes()
        assert paths[0].read_bytes() != paths[2].read_bytes()
        assert load_scenarios(paths[0]) == random_models(count=40, seed=5)


def test_a_larger_random_set_begins_with_the_smaller_one():
    assert random_models(count=100, seed=2).workloads[:30] == random_models(count=30, seed=2).workloads


@given(
    count=st.integers(1, 60),
    seed=st.integers(0, 2**63 - 1),
    num_gpus=st.sampled_from([2, 8, 16, 64]),
    tokens=st.tuples(st.integers(1, 40), st.integers(60, 512)),
    layers=st.sets(st.sampled_from(["qkv", "up", "fsdp", "cp"]), min_size=1),
)
@examples(25)
def test_random_sets_hold_what_was_asked_for(count, seed, num_gpus, tokens, layers):
    least, most = tokens[0] * 256, tokens[1] * 256
    found = random_models(
        count=count,
        seed=seed,
        num_gpus=num_gpus,
        min_tokens=least,
        max_tokens=most,
        layers=tuple(sorted(layers)),
    )
    assert len(found.workloads) == count
    assert len({(w.m, w.n, w.k) for w in found.workloads}) == count
    kinds = {"TP": {"qkv", "up"}, "FS": {"fsdp"}, "CP": {"cp"}}
    for w in found.workloads:
        assert least <= w.num_tokens <= most
        assert w.num_tokens % 256 == 0
        assert w.num_tokens in (w.m, w.n)
        assert kinds[w.parallelism[:2]] & layers
    assert make_again(found) == found


def test_random_layers_are_those_of_the_named_workloads():
    """The dimensions of models occur twice, in two files of data; they must agree."""
    many = {
        w.name: w
        for tokens in (512, 2048, 4096, 8192)
        for layer in ("qkv", "up", "fsdp")
        for w in random_models(
            count=12, layers=(layer,), min_tokens=tokens, max_tokens=tokens
        ).workloads
    }
    pairs = {
        "llama3-70b-tp8-qkv-8192": "llama3-70b-tp8-qkv-8k",
        "llama3-70b-tp8-gate-up-8192": "llama3-70b-tp8-gate-up-8k",
        "llama3-405b-tp8-gate-up-8192": "llama3-405b-tp8-gate-up-8k",
        "qwen2.5-72b-tp8-gate-up-4096": "qwen2.5-72b-tp8-gate-up-4k",
        "gpt3-175b-tp8-mlp-up-2048": "gpt3-175b-tp8-mlp-up-2k",
        "gpt3-175b-tp8-qkv-2048": "gpt3-175b-tp8-qkv-2k",
        "llama3-8b-fsdp8-qkv-2048": "llama3-8b-fsdp8-qkv-2k",
        "llama3-8b-fsdp8-gate-up-512": "llama3-8b-fsdp8-gate-up-512",
    }
    both = {name: many[name] for name in pairs if name in many}
    assert len(both) >= 5
    for name, drawn in both.items():
        known = get_workload(pairs[name])
        assert (drawn.m, drawn.n, drawn.k) == (known.m, known.n, known.k)


def test_grid_cells_are_what_they_say():
    found = synthetic_grid()
    cells = set()
    for w, row in zip(found.workloads, scenario_rows(found), strict=True):
        otb, mt = (float(part.strip("otbmi")) for part in w.name.split("-")[:2])
        cells.add((otb, mt))
        assert row["otb_flops_per_byte"] == pytest.approx(otb, rel=0.1)
        assert row["mt_bytes"] == pytest.approx(mt * MIB, rel=0.1)
        assert row["m_below_k"] == ("-km2-" in w.name or "-km8-" in w.name)
        assert (w.m % 256, w.n % 64, w.k % 64) == (0, 0, 0)
        assert max(w.m, w.n, w.k) <= 131_072
    below = sum(w.m < w.k for w in found.workloads)
    assert 0.4 < below / len(found.workloads) < 0.6
    # the cells without a shape are those below a cube's traffic, or close above it
    for otb in (256, 512, 1024, 2048, 4096):
        for mt in (64, 128, 256, 512, 1024, 2048):
            assert ((otb, mt) in cells) == (mt * MIB > 54 * otb**2), (otb, mt)
    assert "4096 FLOP/byte with 512 MiB" in found.notes[0]


@given(
    otb=st.floats(1000, 3000),
    times_cube=st.floats(2, 10),
    aspect=st.sampled_from([0.5, 1.0, 2.0]),
)
@examples(60)
def test_any_cell_well_above_the_cube_has_its_shapes(otb, times_cube, aspect):
    mt_mib = 54 * otb**2 * times_cube / MIB
    found = synthetic_grid(otb=(otb,), mt_mib=(mt_mib,), aspects=(aspect,))
    for row in scenario_rows(found):
        assert row["otb_flops_per_byte"] == pytest.approx(otb, rel=0.1)
        assert row["mt_bytes"] == pytest.approx(mt_mib * MIB, rel=0.1)


def test_measured_sets_come_from_records():
    files = (str(RUNS / "h200" / "eager.jsonl.gz"),)
    found = measured(files=files)
    assert found.workloads
    assert len({w.name for w in found.workloads}) == len(found.workloads)
    assert found == make_again(found)
    assert measured(files=(*files, *files)).workloads == found.workloads
    with pytest.raises(ScenarioError, match="no measured plan"):
        measured(files=(str(RUNS / "h200" / "parts-fp8.jsonl.gz"),))
    with pytest.raises(ScenarioError, match="at least one file"):
        measured(files=())


def test_any_file_of_workloads_is_a_set(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "format_version: 1\nworkloads:\n"
        "  - {name: mine, pattern: all_gather_gemm, m: 1024, n: 256, k: 512}\n"
    )
    found = find_scenarios(str(path))
    assert (found.name, found.made_by, len(found.workloads)) == ("mine", None, 1)
    with pytest.raises(ScenarioError, match="made_by: missing"):
        make_again(found)


def test_a_set_is_a_file_of_workloads(tmp_path):
    path = tmp_path / "set.json"
    random_models(count=3).save(path)
    assert load_workloads(path) == random_models(count=3).workloads


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"maker": "magic"}, "made_by.maker: 'magic' is unknown; one of: named, grid, random"),
        ({"maker": "random", "arguments": {"speed": 1}}, "made_by.arguments: .*speed"),
        ({"maker": "random", "arguments": {"count": "x"}}, "count: 'x' must be a whole number"),
        ({"maker": "random", "arguments": {"layers": 3}}, "layers: 3 must be a list"),
        ({"maker": "grid", "arguments": {"otb": ["x"]}}, "otb: 'x' must be a number"),
        ({"maker": "grid", "arguments": {"otb": 3}}, "otb: 3 must be a list"),
        ({"maker": "measured", "arguments": {"files": 3}}, "files: 3 must be a list"),
        ({"maker": "named", "arguments": {"all_to_all": 3}}, "all_to_all: 3 must be true or false"),
    ],
)
def test_recipes_that_cannot_be_followed_are_refused(tmp_path, recipe, message):
    path = tmp_path / "set.json"
    document = json.loads(random_models(count=2).to_text(".json")) | {"made_by": recipe}
    path.write_text(json.dumps(document))
    with pytest.raises(ScenarioError, match=message):
        make_again(load_scenarios(path))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 0}, "count: 0 must be from 1 to 100,000"),
        ({"count": 200_000}, "count: 200000 must be from 1 to 100,000"),
        ({"seed": -1}, "seed: -1 must be from 0"),
        ({"num_gpus": 1}, "num_gpus: 1 must be from 2 to 1024"),
        ({"layers": ()}, "layers: at least one"),
        ({"layers": ("moe",)}, "layers: 'moe' is unknown; one of: qkv, up, fsdp, cp"),
        ({"min_tokens": 100}, "min_tokens: 100 must be a multiple of 256"),
        ({"min_tokens": 512, "max_tokens": 256}, "min_tokens: 512 must not exceed max_tokens, 256"),
        ({"count": 5000, "max_tokens": 256}, "count: 5000 different shapes cannot be drawn"),
    ],
)
def test_random_arguments_out_of_range_are_refused(arguments, message):
    with pytest.raises(ScenarioError, match=message):
        random_models(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"otb": ()}, "otb: at least one"),
        ({"otb": (0.0,)}, "otb: 0.0 must be a number from 1"),
        ({"mt_mib": (64, 64)}, "mt_mib: 64 occurs twice"),
        ({"aspects": (float("nan"),)}, "aspects: nan must be a number"),
        ({"otb": (4096,), "mt_mib": (64,)}, "no shape has these values"),
        ({"otb": tuple(range(1, 400)), "mt_mib": tuple(range(1, 400))}, "more than 100,000 shapes"),
    ],
)
def test_grid_arguments_out_of_range_are_refused(arguments, message):
    with pytest.raises(ScenarioError, match=message):
        synthetic_grid(**arguments)


def test_sets_too_large_for_yaml_are_refused_before_they_are_written(tmp_path):
    large = random_models(count=4000)
    with pytest.raises(ScenarioError, match="choose a name that ends in"):
        large.save(tmp_path / "large.yaml")
    assert not list(tmp_path.iterdir())
    large.save(tmp_path / "large.json")
    assert load_scenarios(tmp_path / "large.json") == large


def test_too_many_workloads_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "set.json"
    random_models(count=5).save(path)
    monkeypatch.setattr(workload_module, "MAX_WORKLOADS", 4)
    with pytest.raises(FileError, match="workloads: 5 are more than 4"):
        load_scenarios(path)


def test_names_are_unique():
    found = random_models(count=2)
    with pytest.raises(WorkloadError, match="occurs twice"):
        replace(found, workloads=found.workloads + found.workloads[:1])


def test_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    eager = str(RUNS / "h200" / "eager.jsonl.gz")
    for arguments in (
        ("named", "--out", "named.yaml"),
        ("grid", "--otb", "512,1024", "--mt-mib", "256", "--aspects", "0.5,2", "--out", "grid.yaml"),
        ("random", "--count", "7", "--seed", "4", "--name", "seven", "--out", "random.json"),
        ("measured", eager, "--out", "measured.yaml"),
    ):
        assert main(["scenarios", "make", *arguments]) == 0
        assert main(["scenarios", "check", arguments[-1]]) == 0
        assert "made again, it is the same" in capsys.readouterr().out
    assert main(["scenarios", "show", "grid.yaml"]) == 0
    out = capsys.readouterr().out
    assert "M < K" in out
    assert "grid: 8 scenarios, 4 of them with M < K" in out
    assert main(["scenarios", "show", "random.json", "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document) == ["name", "made_by", "scenarios", "notes"]
    assert document["name"] == "seven"
    assert document["made_by"]["arguments"]["seed"] == 4
    assert set(document["scenarios"][0]) == {
        "name", "pattern", "m", "n", "k", "dtype", "flops", "otb_flops_per_byte", "mt_bytes",
        "m_below_k",
    }  # fmt: skip


def test_command_line_refuses(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    random_models(count=3).save(Path("r.json"))
    changed = json.loads(Path("r.json").read_text())
    changed["workloads"][1]["m"] += 256
    Path("changed.json").write_text(json.dumps(changed))
    for arguments, message in (
        (
            ("show", "nonsense"),
            "set of scenarios 'nonsense' is unknown; one of: named, grid, or a file",
        ),
        (("show", "absent.yaml"), "absent.yaml: no such file"),
        (("check", "changed.json"), f"differs, first in {changed['workloads'][1]['name']}"),
        (("make", "random", "--out", "r.txt"), "r.txt: a set of scenarios ends in .json"),
        (("make", "grid", "--otb", "x", "--out", "g.yaml"), "--otb: 'x' must be numbers"),
        (("make", "measured", "r.json", "--out", "g.yaml"), "r.json: line 1"),
    ):
        assert main(["scenarios", *arguments]) == 2
        captured = capsys.readouterr()
        assert message in captured.err
        assert captured.out == ""

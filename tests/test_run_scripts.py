"""Layer: harness without a gpu. The scripts of runs call it as it can be called, within their time."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch

import hw_validate
from hw_validate.__main__ import main

RUNS = Path(hw_validate.__file__).parent / "runs"
STAND_IN = """#!/bin/sh
for argument in "$@"; do printf '%s\\n' "$argument"; done >>"$CALLS"
printf -- '--end--\\n' >>"$CALLS"
"""
EIGHT = ["machine", "parts", "own", "repeated", "emulated"]


@pytest.fixture
def script(tmp_path):
    """Run a script with a stand-in for Python; returns the command lines that it gave."""

    def run(name, *arguments, code=0, python=STAND_IN, **variables):
        stand_in = tmp_path / "bin" / "python3"
        stand_in.parent.mkdir(exist_ok=True)
        stand_in.write_text(python)
        stand_in.chmod(0o755)
        calls = tmp_path / "calls"
        calls.unlink(missing_ok=True)
        path = os.pathsep.join([str(stand_in.parent), os.environ["PATH"]])
        env = os.environ | {"PATH": path, "CALLS": str(calls)} | variables
        done = subprocess.run(
            ["sh", str(RUNS / name), *arguments], env=env, check=False, timeout=60, capture_output=True
        )
        assert done.returncode == code, done.stderr
        given = calls.read_text() if calls.exists() else ""
        commands = [call.split("\n")[:-1] for call in given.split("--end--\n")[:-1]]
        assert all(argv[:2] == ["-m", "hw_validate"] for argv in commands)
        return [argv[2:] for argv in commands]

    return run


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "out"
    made.mkdir()
    return made


@pytest.mark.parametrize("part", ["machine", "parts", "dma", "core", "repeated", "own"])
def test_every_command_of_the_script_can_be_run_dry(part, script, folder, capsys):
    """What is to run for 20 minutes must not fail at its last command."""
    commands = script("two_gpus.sh", str(folder), part)
    assert commands
    measured = [argv for argv in commands if "doctor" not in argv]
    assert len({argv[argv.index("--out") + 1] for argv in measured}) == len(measured)
    for argv in commands:
        assert main([*argv, "--dry-run"]) == 0, argv
        assert "nothing was" in capsys.readouterr().out
    assert [path.name for path in folder.iterdir() if path.suffix != ".json"] == []


# four and eight gpus


def dry_run(argv, capsys):
    """What a command says of itself."""
    kept = [word for word in argv if word != "--resume"]
    for option in ("--out", "--budget", "--json"):
        if option in kept:
            at = kept.index(option)
            del kept[at : at + 2]
    assert main([*kept, "--dry-run", "--json", "-"]) == 0, argv
    found = json.loads(capsys.readouterr().out)
    return found["start_s"] + found["passes"] * sum(g["estimate_s"] for g in found["groups"]), found


def test_the_program_for_eight_gpus_fits_its_time(script, folder, capsys):
    """Ten minutes a step, thirty in all, with every command as it would be given; four need less."""
    gpus = "8"
    one_by_one = [script("eight_gpus.sh", str(folder), step, GPUS=gpus) for step in EIGHT]
    together = script("eight_gpus.sh", str(folder), "all", GPUS=gpus)
    assert together == [argv for commands in one_by_one for argv in commands]
    times, found = [], {}
    for step, (argv,) in zip(EIGHT, one_by_one, strict=True):
        seconds, found[step] = dry_run(argv, capsys)
        times.append(seconds)
        assert seconds < 600
        assert step == "machine" or argv[argv.index("--budget") + 1] == "9m"
    assert sum(times) < 1800
    own, repeated = found["own"], found["repeated"]
    workloads = {g["name"] for g in (*own["groups"], *repeated["groups"])}
    assert len(workloads) >= 12
    assert all(name.endswith(" on own") for name in workloads)
    assert repeated["passes"] == 2


@pytest.mark.parametrize("gpus", [4, 8])
def test_no_plan_of_the_program_but_the_emulated_ones_is_emulated(script, folder, gpus):
    from hw_validate.maps import find_map

    for step in ("own", "repeated"):
        (argv,) = script("eight_gpus.sh", str(folder), step, GPUS=str(gpus))
        assert argv[argv.index("--num-gpus") + 1] == str(gpus)
        assert argv[argv.index("--map") + 1] == "own"
        placement = find_map("own", gpus).placement("serial", gpus)
        assert not placement.is_emulated
        assert placement.devices == tuple(range(gpus))
        assert "--collectives" in argv
        assert argv[argv.index("--engine") + 1] == "dma,core"
    (argv,) = script("eight_gpus.sh", str(folder), "emulated", GPUS=str(gpus))
    assert argv[argv.index("--map") + 1] == "switch"


def test_finished_steps_are_left_alone_and_finished_files_compressed(script, folder):
    writes = STAND_IN + 'for word in "$@"; do case $word in *.jsonl) echo done >"$word" ;; esac; done\n'
    script("eight_gpus.sh", str(folder), "own", "repeated", python=writes)
    assert sorted(p.name for p in folder.iterdir()) == ["own.jsonl.gz", "repeated.jsonl.gz"]
    assert script("eight_gpus.sh", str(folder), "own", "repeated") == []
    part = folder / "parts.jsonl.part"
    part.touch()  # cut off: measured further
    (argv,) = script("eight_gpus.sh", str(folder), "parts")
    assert "--resume" in argv
    assert list(folder.glob("parts*")) == [part]


def test_a_step_that_fails_ends_the_program(script, folder):
    failing = STAND_IN + "exit 2\n"
    assert len(script("eight_gpus.sh", str(folder), "all", python=failing, code=2)) == 1
    assert script("eight_gpus.sh", str(folder), "nonsense", code=2) == []


def fewer(argv, name, value):
    """A command line with another value of an option, which it may lack."""
    if name in argv:
        at = argv.index(name)
        return [*argv[: at + 1], value, *argv[at + 2 :]]
    return [*argv, name, value]


def only(argv, name, most):
    """A command line with the first of the values of an option that is given again and again."""
    found, kept = [], 0
    words = iter(argv)
    for word in words:
        if word == name:
            kept += 1
            value = next(words)
            found += [word, value] if kept <= most else []
        else:
            found.append(word)
    return found


def test_the_dry_program_at_a_reduced_size(script, folder, capsys):
    """Of each command one workload and number of chunks; the full one is `eight_gpus.sh OUT dry`."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    commands = script("eight_gpus.sh", str(folder), "dry")
    assert [argv[0] for argv in commands] == [
        "doctor", "microbench", "run", "run", "run", "allowance",
    ]  # fmt: skip
    for argv in commands[:-1]:
        small = only(only(argv, "--workload", 1), "--gemm", 0)
        if argv[0] == "run":
            assert "--rehearse" in argv
            small = fewer(fewer(small, "--num-chunks", "2"), "--compute-queues", "1")
        assert main(small) == 0, small
    capsys.readouterr()
    assert main(commands[-1]) == 0
    text = capsys.readouterr().out
    assert "of 30.0 min" in text
    assert main([*commands[-1], "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    # one workload each: 13 plans by either engine, and three versions by NCCL where gpus are real
    assert [row["plans"] for row in found["rows"]] == [None, None, 29, 29, 26]
    assert found["plans"] == found["checked"] == found["verified"] == 84
    assert main([*fewer(commands[-1], "--most", "1m")]) == 2
    assert "in all are more than the allowance of 1.0 min" in capsys.readouterr().err
    torch.set_num_threads(threads)

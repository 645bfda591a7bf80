"""Layer: harness without a gpu. The script for two gpus calls it as it can be called."""

import os
import subprocess
from pathlib import Path

import pytest

import hw_validate
from hw_validate.__main__ import main

RUNS = Path(hw_validate.__file__).parent / "runs"
STAND_IN = """#!/bin/sh
for argument in "$@"; do printf '%s\\n' "$argument"; done >>"$CALLS"
printf -- '--end--\\n' >>"$CALLS"
"""


@pytest.mark.parametrize("part", ["machine", "parts", "dma", "core", "repeated", "own"])
def test_every_command_of_the_script_can_be_run_dry(part, tmp_path, capsys):
    """What is to run for 20 minutes must not fail at its last command."""
    stand_in = tmp_path / "bin" / "python3"
    stand_in.parent.mkdir()
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o755)
    calls = tmp_path / "calls"
    folder = tmp_path / "out"
    folder.mkdir()
    path = os.pathsep.join([str(stand_in.parent), os.environ["PATH"]])
    env = os.environ | {"PATH": path, "CALLS": str(calls)}
    subprocess.run(
        ["sh", str(RUNS / "two_gpus.sh"), str(folder), part], env=env, check=True, timeout=60
    )
    commands = [call.split("\n")[:-1] for call in calls.read_text().split("--end--\n")[:-1]]
    assert commands
    measured = [argv for argv in commands if "doctor" not in argv]
    assert len({argv[argv.index("--out") + 1] for argv in measured}) == len(measured)
    for argv in commands:
        assert argv[:2] == ["-m", "hw_validate"]
        assert main([*argv[2:], "--dry-run"]) == 0, argv
        assert "nothing was" in capsys.readouterr().out
    assert list(folder.iterdir()) == []

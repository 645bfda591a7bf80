"""The verb doctor: what this machine can do, in a minute."""

from typing import Annotated, Literal

from cyclopts import Parameter

from ficco_sim.command import JsonOption, Progress, console, say, write_json
from ficco_sim.errors import HardwareError, ScenarioError
from ficco_sim.units import format_seconds

SIGNS = {"good": "good", "warn": "WARN", "bad": "BAD "}


def doctor(
    *,
    devices: Annotated[
        int | None, Parameter(help="How many devices to look at; all of them unless given.")
    ] = None,
    device: Annotated[
        Literal["gpu", "cpu"], Parameter(help="cpu only says what is installed.")
    ] = "gpu",
    dry_run: Annotated[
        bool, Parameter(help="Say what would be looked at, without touching a gpu.", negative=())
    ] = False,
    json: JsonOption = None,
) -> None:
    """Say what this machine can do and what is wrong with it: gpus, copies, graphs, settings, maps."""
    from hw_validate.environment import collect_environment, require_gpu, require_torch

    if devices is not None and not 1 <= devices <= 64:
        raise ScenarioError(f"--devices: {devices} must be from 1 to 64")
    require_torch()
    out = console()
    if dry_run:
        from ficco_sim.io import to_plain
        from hw_validate.doctor import CHECKS, guessed_s
        from hw_validate.dry_run import DryRun

        dry = DryRun(command="doctor", start_s=guessed_s(devices or 1))
        if not write_json(to_plain(dry), json):
            looked = f"would look at {', '.join(CHECKS)}"
            say(out, [f"{looked}; about {format_seconds(dry.estimate_s)}, nothing was run"])
        return
    if device == "cpu":
        facts = collect_environment(())
        if not write_json({"environment": facts, "checks": []}, json):
            say(out, [f"{name}: {value}" for name, value in facts.items()])
        return
    require_gpu(devices or 1)
    import torch

    from ficco_sim.io import to_plain
    from hw_validate.doctor import examine_machine

    count = devices or torch.cuda.device_count()
    with Progress("looking") as progress:
        environment, checks = examine_machine(range(count), progress)
    if not write_json({"environment": environment, "checks": to_plain(checks)}, json):
        say(out, [f"{name}: {value}" for name, value in environment.items()])
        say(out, [f"{SIGNS[check.severity]} {check.name}: {check.text}" for check in checks])
    bad = [check for check in checks if check.severity == "bad"]
    if bad:
        raise HardwareError(f"{len(bad)} of {len(checks)} checks are bad: {bad[0].text}")

"""What the results of a sweep depend on, to be sure that a resumed sweep continues the same one."""

import hashlib
import importlib.metadata
import json
from collections.abc import Sequence
from typing import Any

from ficco_sim import io
from ficco_sim.sweep.evaluate import Setting
from ficco_sim.workload import Workload

__all__ = ["sweep_inputs"]


def sweep_inputs(workloads: Sequence[Workload], setting: Setting) -> dict[str, Any]:
    """Version, scenarios, machines and everything else, large parts as digests of their content."""
    return {
        "version": _version(),
        "scenarios": f"{len(workloads)} with digest {_digest(workloads)}",
        "machines": {machine.name: _digest(machine) for machine in setting.machines},
        "grid": io.to_plain(setting.grid),
        "costs": setting.costs,
        "submission": setting.submission,
        "makespans_only": setting.makespans_only,
    }


def _version() -> str:
    try:
        return importlib.metadata.version("ficco")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _digest(obj: Any) -> str:
    """SHA-256 of canonical JSON, enough of it to tell contents apart."""
    text = json.dumps(io.to_plain(obj), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]

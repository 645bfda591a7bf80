"""A run as a file for ui.perfetto.dev, in the format that the file's name asks for."""

from pathlib import Path

from ficco_sim.interchange.chrome import write_chrome
from ficco_sim.interchange.perfetto import write_perfetto
from ficco_sim.machine import Machine
from ficco_sim.plan import Plan
from ficco_sim.trace import Trace

__all__ = ["NATIVE", "write_viewer_trace"]

NATIVE = ".pftrace"


def write_viewer_trace(path: Path, run: Trace, plan: Plan, machine: Machine) -> str:
    """Write a native Perfetto trace if the name ends in ``.pftrace``, else a Chrome trace.

    Returns
    -------
    str
        What to know of the file, or nothing; see `write_chrome`.

    Raises
    ------
    FiccoError
        As `write_perfetto` and `write_chrome`.
    """
    if path.suffix == NATIVE:
        write_perfetto(path, run, plan, machine)
        return ""
    return write_chrome(path, run, plan, machine)

"""JSON schemas (draft 2020-12) of the files that the package writes and reads."""

from types import UnionType

from ficco_sim import io
from ficco_sim.errors import ScenarioError
from ficco_sim.machine import MachineFile
from ficco_sim.plan import Plan
from ficco_sim.profile import GpuFile
from ficco_sim.records import Measurement, Session
from ficco_sim.trace import Trace
from ficco_sim.workload import Workload

__all__ = ["SCHEMAS", "schema_text"]

SCHEMAS: dict[str, tuple[type | UnionType, str]] = {
    "plan": (Plan, "A plan file, as ficco plan --json writes it"),
    "trace": (Trace, "A trace file, as ficco simulate --spans and python -m hw_validate run write it"),
    "machine": (MachineFile, "A machine file (YAML or JSON)"),
    "gpu": (GpuFile, "A gpu file (YAML or JSON), which machine files name"),
    "workload": (Workload, "A workload file (YAML or JSON)"),
    "records": (Session | Measurement, "One line of a file of measurements (.jsonl or .jsonl.gz)"),
}


def schema_text(name: str) -> str:
    """The schema of one kind of file, as JSON text.

    A file that follows it can still be wrong: readers check what a schema cannot say, such as
    regions inside their buffers.
    """
    if name not in SCHEMAS:
        raise ScenarioError(f"schema: {name[:40]!r} is none of {', '.join(SCHEMAS)}")
    cls, title = SCHEMAS[name]
    return io.dump_json(io.json_schema(cls, title))

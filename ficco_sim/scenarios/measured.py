"""Scenarios that were measured on hardware."""

from collections.abc import Sequence
from pathlib import Path

from ficco_sim.errors import ScenarioError
from ficco_sim.measured_plans import workload_of
from ficco_sim.records import read_records
from ficco_sim.scenarios.sets import ScenarioSet, check_list
from ficco_sim.workload import Recipe, Workload

__all__ = ["measured"]


def measured(*, files: Sequence[str]) -> ScenarioSet:
    """The workloads of plans in files of records, in the order of their first measurement.

    Parameters
    ----------
    files
        Paths of records of ``python -m hw_validate run``; ``.gz`` is decompressed.

    Raises
    ------
    FileError, ScenarioError
        If a file is no such file, or none has a measured plan.
    """
    check_list("files", files)
    if not files:
        raise ScenarioError("files: at least one file of records is needed")
    found: dict[str, Workload] = {}
    for file in files:
        for measurement in read_records(Path(file)).measurements:
            if measurement.kind != "plan":
                continue
            workload = workload_of(measurement)
            known = found.setdefault(workload.name, workload)
            if known != workload:
                raise ScenarioError(f"{file}: two workloads are called {workload.name!r}")
    if not found:
        raise ScenarioError(f"{', '.join(map(str, files))}: no measured plan in these records")
    return ScenarioSet(
        name="measured",
        workloads=tuple(found.values()),
        made_by=Recipe(maker="measured", arguments={"files": [str(file) for file in files]}),
    )

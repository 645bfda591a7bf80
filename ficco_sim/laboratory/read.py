"""Outcomes of files: tables of sweeps and records of measurements, by their suffixes."""

from collections.abc import Sequence
from pathlib import Path

from ficco_sim.errors import FileError, ScenarioError
from ficco_sim.laboratory.measured import from_records
from ficco_sim.laboratory.outcomes import Outcomes, among, from_sweep, joined
from ficco_sim.machine import load_machine
from ficco_sim.records import read_records

__all__ = ["read_outcomes"]

TABLES = (".csv", ".parquet")
RECORDS = (".jsonl", ".jsonl.gz")


def read_outcomes(
    files: Sequence[Path],
    *,
    machines: Sequence[str] = (),
    maps: Sequence[str] = (),
    engine: str | None = None,
    submission: str | None = None,
    copy_queues: int | None = None,
    schedules: Sequence[str] = (),
    places: Sequence[str] = (),
) -> Outcomes:
    """Read outcomes.

    Parameters
    ----------
    files
        Tables of ``ficco sweep`` (.csv, .parquet), records of ``python -m hw_validate run`` (.jsonl,
        .jsonl.gz), or both.
    machines
        Names or files. Those that records stand for, one for each map; also looked up by name for
        tables.
    maps
        Maps of records to take, one for each machine; none if they hold one only.
    engine, submission, copy_queues
        Which plans of records to take, see `choose_plans`.
    schedules
        Only these are there to choose from; all that were tried if empty.
    places
        Only outcomes of these machines; of all if empty.

    Raises
    ------
    FileError, ScenarioError, MachineError
        If a file is of neither kind, or options do not fit to what it holds; the message says which.
    """
    tables = [path for path in files if path.suffix in TABLES]
    records = [path for path in files if path.name.endswith(RECORDS)]
    for path in files:
        if path not in tables and path not in records:
            raise FileError(f"{path}: must end in {', '.join((*TABLES, *RECORDS))}")
    for path in files:
        if files.count(path) > 1:
            raise FileError(f"{path}: given twice")
    _check(records, machines, maps, engine=engine, submission=submission, copy_queues=copy_queues)
    given = [load_machine(name) for name in machines]
    parts = [from_sweep(path, {m.name: m for m in given}) for path in tables]
    read = [(path, read_records(path)) for path in records]
    if read:
        wanted: list[str | None] = [*maps] or [None]
        parts += [
            from_records(
                read,
                machine,
                emulates=emulates,
                engine=engine,
                submission=submission,
                copy_queues=copy_queues,
            )
            for machine, emulates in zip(given, wanted, strict=True)
        ]
    found = joined(parts)
    if places:
        found = found.at(*places)
    return among(found, schedules) if schedules else found


def _check(
    records: Sequence[Path],
    machines: Sequence[str],
    maps: Sequence[str],
    **others: object,
) -> None:
    """Refuse options that fit to no file."""
    if not records:
        for name, value in {"map": maps or None, **others}.items():
            if value is not None:
                raise ScenarioError(f"--{name.replace('_', '-')}: only for records, and none are given")
        return
    if not machines:
        raise ScenarioError(
            "--machine: needed for records: what the measured gpus stand for, such as h200_8"
        )
    if len(machines) != max(1, len(maps)):
        raise ScenarioError(
            f"--machine and --map: {len(machines)} and {len(maps)}; give one map for each machine"
        )

"""What a calibration is made from: records of the harness, and logs that people have already."""

import gzip
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from ficco_sim import io
from ficco_sim.calibrate.gemm import GemmSample
from ficco_sim.calibrate.launch import event_pair_s
from ficco_sim.calibrate.robust import Provenance
from ficco_sim.errors import FileError
from ficco_sim.profile import FitSource
from ficco_sim.readers.logs import Log, read_log
from ficco_sim.records import Measurement, Records, merge_records, read_records

__all__ = ["Inputs", "read_inputs"]

RECORD_OPENING = b'{"record": "session"'
GZIP_OPENING = b"\x1f\x8b"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Everything that was read, by kind.

    Parameters
    ----------
    measurements
        Usable ones of all records.
    gemms
        GEMMs alone, of records and logs, by element type.
    logs
        Logs by the name of their file.
    provenance
        What all fits are from.
    notes
        What was left out, and why.
    """

    measurements: tuple[Measurement, ...]
    gemms: dict[str, tuple[GemmSample, ...]]
    logs: dict[str, Log]
    provenance: Provenance
    notes: tuple[str, ...]


def read_inputs(paths: Sequence[Path], *, date: str = "", dtype: str | None = None) -> Inputs:
    """Read records and logs; formats are recognised by content.

    Parameters
    ----------
    date
        Of the calibration, for logs that do not tell theirs; today unless given.
    dtype
        Only GEMMs of this element type.

    Raises
    ------
    FileError
        If a file is of no known format, records are of unequal machines or regimes, or matrices
        were filled with zeros.
    """
    records: list[tuple[Path, Records]] = []
    logs: dict[str, Log] = {}
    sources = []
    for path in paths:
        opening = _opening(path)
        sources.append(FitSource(file=path.name, sha256=_digest(path)))
        if opening.startswith((RECORD_OPENING, GZIP_OPENING)):
            records.append((path, read_records(path)))
        else:
            logs[path.name] = read_log(io.read_text(path), str(path))
    notes: list[str] = []
    measurements: tuple[Measurement, ...] = ()
    facts: dict[str, str] = {}
    regime: Literal["burst", "sustained", "mixed"] = "mixed"
    date = date or datetime.now(UTC).strftime("%Y-%m-%d")
    if records:
        merged = merge_records(records)
        session = merged.sessions[0]
        if session.init != "randn":
            raise FileError(
                f"{records[0][0]}: matrices were filled with {session.init}: they run faster than real "
                "data; measure with random numbers"
            )
        facts, regime = session.environment, session.regime
        date = session.started[:10]
        measurements = merged.usable
        unusable = len(merged.measurements) - len(measurements)
        if unusable:
            notes.append(f"{unusable} measurements are marked unusable and left out")
    gemms: dict[str, list[GemmSample]] = {}
    for sample in (*_of_records(measurements, notes), *_of_logs(logs, notes)):
        if dtype in (None, sample.dtype):
            gemms.setdefault(sample.dtype, []).append(sample)
    return Inputs(
        measurements=measurements,
        gemms={name: tuple(found) for name, found in gemms.items()},
        logs=logs,
        provenance=Provenance(
            sources=tuple(sources),
            date=date,
            regime=regime,
            device=facts.get("device", ""),
            driver=facts.get("driver", ""),
            library=facts.get("cublaslt", facts.get("hip", "")),
        ),
        notes=tuple(notes),
    )


def _of_records(measurements: Sequence[Measurement], notes: list[str]) -> list[GemmSample]:
    """GEMMs alone; the events around a sample are taken off."""
    found = [m for m in measurements if m.kind == "gemm"]
    events_s = event_pair_s(measurements)
    samples = []
    loops = 0
    for m in found:
        p = m.params
        entries = int(p["entries"] or 1)
        if p["dtype"] == "fp8" and entries > 1:
            loops += 1  # torch has no batched fp8 GEMM: these are one after another
            continue
        samples.append(
            GemmSample(
                m=int(p["m"] or 0) * entries,
                n=int(p["n"] or 0),
                k=int(p["k"] or 0),
                dtype=str(p["dtype"]),
                time_s=m.median_s - events_s / int(p["repeats"] or 1),
                entries=entries,
                accumulate=bool(p["accumulate"]),
            )
        )
    if loops:
        notes.append(f"{loops} batches of fp8 GEMMs ran entry by entry and are left out")
    return samples


def _of_logs(logs: dict[str, Log], notes: list[str]) -> list[GemmSample]:
    samples = []
    for name, log in logs.items():
        notes += [f"{name}: {warning}" for warning in log.warnings]
        if log.num_refused:
            notes.append(f"{name}: {log.num_refused} rows are not used: {log.refused[0].reason}")
        for point in log.gemms():
            if point.overlap_s > 0:
                continue  # slowed by what ran beside it
            samples.append(
                GemmSample(
                    m=point.m * point.batch,
                    n=point.n,
                    k=point.k,
                    dtype=point.dtype,
                    time_s=point.time_s,
                    entries=point.batch,
                    accumulate=point.accumulate,
                )
            )
    return samples


def _opening(path: Path) -> bytes:
    """The first bytes of a file.

    Raises
    ------
    FileError
        If it cannot be read.
    """
    try:
        if not path.is_file():
            raise FileError(f"{path}: no such file")
        with path.open("rb") as file:
            return file.read(64)
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from error


def _digest(path: Path) -> str:
    """SHA-256 of the content, whether compressed or not."""
    digest = hashlib.sha256()
    compressed = _opening(path).startswith(GZIP_OPENING)
    try:
        with gzip.open(path, "rb") if compressed else path.open("rb") as file:
            while block := file.read(2**20):
                digest.update(block)
    except (OSError, EOFError) as error:
        raise FileError(f"{path}: cannot be read: {error}") from error
    return digest.hexdigest()

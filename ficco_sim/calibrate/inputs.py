"""What a calibration is made from: records of the harness, and logs that people have already."""

import gzip
import hashlib
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from ficco_sim.calibrate.gemm import GemmSample
from ficco_sim.calibrate.launch import event_pair_s
from ficco_sim.calibrate.robust import Provenance
from ficco_sim.errors import FileError, ScenarioError
from ficco_sim.machine import MachineFile, load_machine, load_machine_file
from ficco_sim.profile import FitSource, GpuFile
from ficco_sim.readers.logs import Log, read_log
from ficco_sim.records import MAX_BYTES, Measurement, Records, merge_records, read_records
from ficco_sim.routing import Routes
from ficco_sim.workload import DTYPE_BYTES

__all__ = ["Inputs", "Start", "digest", "read_inputs", "read_start"]

RECORD_OPENING = re.compile(rb'\s*\{\s*"record"\s*:\s*"session"')
GZIP_OPENING = b"\x1f\x8b"
MAX_LINES_TOLD = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A machine to calibrate.

    Parameters
    ----------
    file, gpu
        Their files; the gpu with the measured shapes of its table.
    latency_s
        From a gpu to another over the links: what a measured copy includes, and the simulator adds.
    """

    file: MachineFile
    gpu: GpuFile
    latency_s: float


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


def read_start(name: str) -> Start:
    """A machine by name or file, as `load_machine`.

    Raises
    ------
    MachineError, FileError
        As `load_machine`.
    """
    file, gpu = load_machine_file(name)
    machine = load_machine(name)
    gemm = replace(gpu.profile.gemm, measured=machine.profile.gemm.measured, measured_file="")
    routes = Routes(machine)
    others = [g for g in range(1, machine.num_gpus) if routes.direct(0, g)]
    return Start(
        file=file,
        gpu=replace(gpu, profile=replace(gpu.profile, gemm=gemm)),
        latency_s=min((routes(0, g).latency_s for g in others), default=0.0),
    )


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
        If a file is of no known format, records are of unequal machines or regimes, or their matrices
        were not filled with random numbers.
    ScenarioError
        If the element type is unknown.
    """
    if dtype is not None and dtype not in DTYPE_BYTES:
        raise ScenarioError(f"dtype: {dtype!r} is unknown; one of {', '.join(DTYPE_BYTES)}")
    records: list[tuple[Path, Records]] = []
    logs: dict[str, Log] = {}
    sources = []
    for path in paths:
        name = path.name if [p.name for p in paths].count(path.name) == 1 else str(path)
        if RECORD_OPENING.match(_opening(path)):
            records.append((path, read_records(path)))
        else:
            logs[name] = read_log(_text(path), str(path))
        sources.append(FitSource(file=name, sha256=digest(path)))
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
                f"{records[0][0]}: matrices were filled with {session.init}: zeros run faster than "
                "real data; measure with random numbers"
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
    loops = shorter = 0
    for m in found:
        entries = _whole(m, "entries")
        dtype = m.params.get("dtype")
        if dtype not in DTYPE_BYTES:
            raise FileError(f"gemm {m.key}: params: dtype: {dtype!r} is no element type that we model")
        if dtype == "fp8" and entries > 1:
            loops += 1  # torch has no batched fp8 GEMM: these are one after another
            continue
        time_s = m.median_s - events_s / _whole(m, "repeats")
        if time_s <= 0:
            shorter += 1
            continue
        samples.append(
            GemmSample(
                m=_whole(m, "m") * entries,
                n=_whole(m, "n"),
                k=_whole(m, "k"),
                dtype=str(dtype),
                time_s=time_s,
                entries=entries,
                accumulate=bool(m.params.get("accumulate")),
                sm_clock_hz=m.sm_clock_hz,
            )
        )
    if loops:
        notes.append(f"{loops} batches of fp8 GEMMs ran entry by entry and are left out")
    if shorter:
        notes.append(f"{shorter} GEMMs took no longer than the events around them and are left out")
    return samples


def _whole(m: Measurement, name: str) -> int:
    """A size or a count among the parameters; counts may be absent and are 1 then."""
    value = m.params.get(name)
    if value is None and name in ("entries", "repeats"):
        return 1
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise FileError(f"{m.kind} {m.key}: params: {name}: {value!r} must be a whole number above 0")
    return value


def _of_logs(logs: dict[str, Log], notes: list[str]) -> list[GemmSample]:
    samples = []
    for name, log in logs.items():
        notes += [f"{name}: {warning}" for warning in log.warnings]
        if log.num_refused:
            told = [str(refused.line) for refused in log.refused[:MAX_LINES_TOLD]]
            told += ["..."] if log.num_refused > len(told) else []
            notes.append(
                f"{name}: {log.num_refused} rows are not used (lines {', '.join(told)}); the first: "
                f"{log.refused[0].reason}"
            )
        for point in log.gemms():
            if point.overlap_s > 0:
                continue  # slowed by what ran beside it
            # that tool's matrices are column-major: its m are the columns of ours
            m, n = (point.n, point.m) if log.format == "hipblaslt_bench" else (point.m, point.n)
            samples.append(
                GemmSample(
                    m=m * point.batch,
                    n=n,
                    k=point.k,
                    dtype=point.dtype,
                    time_s=point.time_s,
                    entries=point.batch,
                    accumulate=point.accumulate,
                )
            )
    return samples


def _blocks(path: Path) -> Iterator[bytes]:
    """The content of a file in pieces, decompressed; of bounded size.

    Raises
    ------
    FileError
        If it cannot be read.
    """
    if not path.is_file():
        raise FileError(f"{path}: {'is a folder or device' if path.exists() else 'no such file'}")
    total = 0
    try:
        with path.open("rb") as file:
            compressed = file.read(2) == GZIP_OPENING
        with gzip.open(path, "rb") if compressed else path.open("rb") as file:
            while block := file.read(2**20):
                total += len(block)
                if total > MAX_BYTES:
                    raise FileError(f"{path}: more than {MAX_BYTES:,} bytes are not read")
                yield block
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FileError(f"{path}: not a whole gzip file: {error}") from error
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from error


def _opening(path: Path) -> bytes:
    """The first bytes of the content."""
    return next(_blocks(path), b"")[:64]


def _text(path: Path) -> str:
    """The content of a log."""
    try:
        text = b"".join(_blocks(path)).decode()
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: not UTF-8 text (byte {error.start})") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def digest(path: Path) -> str:
    """SHA-256 of a file's content, whether compressed or not.

    Raises
    ------
    FileError
        If it cannot be read.
    """
    digest = hashlib.sha256()
    for block in _blocks(path):
        digest.update(block)
    return digest.hexdigest()

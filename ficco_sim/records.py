"""Measured records: what was timed on real gpus, with raw samples, sensors and environment.

A file holds one JSON object per line: first the session, then its measurements in groups that are
whole or absent. A further session line is a resumed run of the same kind on the same machine.
"""

import gzip
import hashlib
import json
import math
import statistics
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, Literal

from ficco_sim import io
from ficco_sim.errors import FileError

__all__ = [
    "UNCHECKED",
    "Init",
    "Kind",
    "Measurement",
    "Records",
    "Regime",
    "Scalar",
    "Sensors",
    "Session",
    "SpanSeries",
    "check_same_conditions",
    "measurement_key",
    "merge_records",
    "read_records",
    "scan_records",
]

STRICT = {"extra": "forbid", "strict": True}

OLD_GATE_S = 100e-6  # for which gpus were held back before that followed the submission
MAX_BYTES = 512 * 2**20  # of a file, after decompression
MAX_LINE_BYTES = 64 * 2**20
BATCH = 256  # lines checked at once, as setting up the check costs more than one line
MAX_DIFFERENCES = 8  # shown in a message

# may differ between sessions that are merged, as no number depends on it
UNCHECKED = frozenset({"date", "hostname_hash"})

UNITS = ("_s", "_ns", "_hz", "_w", "_c", "_bytes", "_bytes_per_s", "_flops", "_flops_per_s", "_count")

TORN = "the file was cut off while it was written; resume that run to complete it"

Kind = Literal[
    "gemm",
    "gemms",
    "copy",
    "local_copy",
    "contention",
    "launch",
    "plan",
    "straight",
    "straight_tensor_copy",
    "collective",
]
Regime = Literal["burst", "sustained"]
Init = Literal["randn", "zeros", "unknown"]
Scalar = int | float | str | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensors:
    """What a gpu said of itself; None where it does not tell.

    Raises
    ------
    FileError
        If a clock or a power is negative, or a value is not finite.
    """

    __pydantic_config__: ClassVar = STRICT
    sm_clock_hz: float | None
    power_w: float | None
    temperature_c: float | None

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if value is None:
                continue
            _check_finite(entry.name, (value,))
            if value < 0 and entry.name != "temperature_c":
                raise FileError(f"{entry.name}: {value} must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Under which conditions the measurements that follow were taken.

    Parameters
    ----------
    session
        Name of the session, unique among files that are merged.
    started
        Date and time in UTC, as ISO 8601: ``2025-01-31T12:00:00Z``.
    regime
        ``burst``: with pauses, so that clocks stay high; ``sustained``: hot, at the power limit.
    init
        What matrices were filled with; zeros draw less power and run faster than random numbers.
    command
        The command line that measured.
    environment
        Hardware, driver, libraries, settings. Sessions are merged only where it is equal, but for
        the keys in `UNCHECKED`.

    Raises
    ------
    FileError
        If the name is empty or the time is not UTC.
    """

    __pydantic_config__: ClassVar = STRICT
    record: Literal["session"] = "session"
    format_version: Literal[1] = 1
    session: str
    started: str
    regime: Regime
    init: Init
    command: str
    environment: dict[str, str]

    def __post_init__(self) -> None:
        if not self.session:
            raise FileError("session: must not be empty")
        try:
            offset = datetime.fromisoformat(self.started).utcoffset()
        except ValueError:
            offset = None
        if offset != timedelta(0):
            raise FileError(f"started: {self.started!r} must be a UTC time: 2025-01-31T12:00:00Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanSeries:
    """Starts and ends of tasks in ns, by one clock; a task occurs once per repetition.

    Raises
    ------
    FileError
        If the lengths differ or a task ends before it starts.
    """

    __pydantic_config__: ClassVar = STRICT
    task_ids: tuple[str, ...]
    start_ns: tuple[int, ...]
    end_ns: tuple[int, ...]

    def __post_init__(self) -> None:
        lengths = (len(self.task_ids), len(self.start_ns), len(self.end_ns))
        if len(set(lengths)) > 1:
            raise FileError(f"task_ids, start_ns, end_ns: lengths {lengths} must be equal")
        for task_id, start, end in zip(self.task_ids, self.start_ns, self.end_ns, strict=True):
            if end < start:
                raise FileError(f"end_ns: {end} of task {task_id!r} is before its start {start}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Raw samples of one thing that was measured.

    Parameters
    ----------
    key
        `measurement_key` of kind and params.
    params
        Settings that say what was measured: shapes, dtype, sizes, gpus, engine.
    samples_s
        Raw samples in seconds, above 0; may be empty only where ``unusable`` says why.
    series
        Further raw series; each name ends with its unit: ``gemm_s``, ``host_submit_s``.
    before, after
        Sensors of the gpu before the first and after the last sample.
    labels
        What in it is not what it stands for, such as ``emulated-2d``.
    evidence
        What was checked before: that data arrives, at which rate, and by which engine.
    warnings
        What throws doubt on the numbers.
    unusable
        Why no number may be taken from it.
    sequence
        Order in which the session measured.
    group_left
        Measurements of the same group that follow in the file; set when a group is written.
    session
        Name of its session; the reader fills it in.

    Raises
    ------
    FileError
        If a value is out of range; the message names field, value and rule.
    """

    __pydantic_config__: ClassVar = STRICT
    record: Literal["measurement"] = "measurement"
    kind: Kind
    key: str
    params: dict[str, Scalar]
    samples_s: tuple[float, ...]
    series: dict[str, tuple[float, ...]] = field(default_factory=dict)
    spans: SpanSeries | None = None
    before: Sensors
    after: Sensors
    labels: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    unusable: tuple[str, ...] = ()
    sequence: int
    group_left: int = 0
    session: str = ""

    def __post_init__(self) -> None:
        key = measurement_key(self.kind, self.params)
        if self.key != key:
            raise FileError(f"key: {self.key!r} is not that of kind and params, {key!r}")
        if not self.samples_s and not self.unusable:
            raise FileError("samples_s: empty, and unusable does not say why")
        _check_finite("samples_s", self.samples_s)
        for sample in self.samples_s:
            if sample <= 0:
                raise FileError(f"samples_s: {sample} must be above 0")
        for name, values in self.series.items():
            if not name.endswith(UNITS):
                raise FileError(f"series: the name {name!r} must end with a unit: {', '.join(UNITS)}")
            _check_finite(f"series.{name}", values)
        for name in ("sequence", "group_left"):
            if getattr(self, name) < 0:
                raise FileError(f"{name}: {getattr(self, name)} must not be negative")

    @property
    def usable(self) -> bool:
        """Whether numbers may be taken from it."""
        return not self.unusable

    @property
    def sm_clock_hz(self) -> float | None:
        """Clock of the compute units, mean of what was read before and after; None if it was not."""
        read = [s.sm_clock_hz for s in (self.before, self.after) if s.sm_clock_hz]
        return sum(read) / len(read) if read else None

    @property
    def late_submit_s(self) -> float:
        """By how much submitting a graph outlasted the time in which gpus are held back, median.

        Older records do not tell; they held gpus back for `OLD_GATE_S`.
        """
        late = self.series.get("late_submit_s")
        if late is None and self.params.get("submission") == "graph":
            late = tuple(max(0.0, s - OLD_GATE_S) for s in self.series.get("host_submit_s", ()))
        return statistics.median(late) if late else 0.0

    @property
    def median_s(self) -> float:
        """Median of the samples.

        Raises
        ------
        FileError
            If the measurement is not usable.
        """
        if self.unusable:
            raise FileError(f"{self.kind} {self.key}: not usable: {'; '.join(self.unusable)}")
        return statistics.median(self.samples_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Sessions under equal conditions, and their measurements in the order of the files."""

    sessions: tuple[Session, ...]
    measurements: tuple[Measurement, ...]

    @property
    def usable(self) -> tuple[Measurement, ...]:
        """The measurements that numbers may be taken from."""
        return tuple(m for m in self.measurements if m.usable)


def measurement_key(kind: Kind, params: Mapping[str, Scalar]) -> str:
    """Identity of what is measured: the same settings in any order give the same key.

    Examples
    --------
    >>> measurement_key("gemm", {"m": 1, "n": 2}) == measurement_key("gemm", {"n": 2.0, "m": 1})
    True
    """
    # JSON tells 2.0 from 2; settings do not
    settings = {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in params.items()
    }
    try:
        text = json.dumps([kind, settings], sort_keys=True, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise FileError(f"params: a value is not a finite number: {settings}") from error
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_same_conditions(
    first: Session, first_where: str, other: Session, other_where: str, *, doing: str
) -> None:
    """Refuse two sessions whose numbers cannot be put together.

    Parameters
    ----------
    first_where, other_where
        Files, or lines of files, for the message.
    doing
        What is refused, for the message: ``merged``.

    Raises
    ------
    FileError
        Naming each key that differs and both values.
    """
    here, there = _conditions(first), _conditions(other)
    lines = [
        f"{first_where}, {other_where}: {key}: {here.get(key, 'absent')} and "
        f"{there.get(key, 'absent')}: sessions under unequal conditions are not {doing}"
        for key in sorted(here.keys() | there.keys())
        if here.get(key) != there.get(key)
    ]
    if len(lines) > MAX_DIFFERENCES:
        rest = len(lines) - MAX_DIFFERENCES
        lines[MAX_DIFFERENCES:] = [f"{first_where}, {other_where}: and {rest} more"]
    if lines:
        raise FileError("\n".join(lines))


def read_records(path: Path, *, allow_torn: bool = False, allow_empty: bool = False) -> Records:
    """Read a file of records; ``.gz`` is decompressed.

    Parameters
    ----------
    allow_torn
        Leave out an incomplete last line or group instead of refusing the file.
    allow_empty
        Accept a session that has measured nothing yet.

    Raises
    ------
    FileError
        Naming file, line, key, value and rule.
    """
    records, _ = scan_records(path, allow_torn=allow_torn)
    if not records.sessions:
        raise FileError(f"{path}: empty: the first line must be a session")
    if not records.measurements and not allow_empty:
        raise FileError(f"{path}: no measurement in it")
    return records


def scan_records(path: Path, *, allow_torn: bool) -> tuple[Records, int]:
    """Read a file that may hold no session yet; also tells the bytes up to its last whole group.

    Raises
    ------
    FileError
        As `read_records`.
    """
    documents = list(_documents(path, allow_torn=allow_torn))
    sessions: list[Session] = []
    measurements: list[Measurement] = []
    group: list[Measurement] = []
    seen: set[tuple[str, str, int]] = set()
    whole_bytes = 0
    where = str(path)
    for (where, end, _), item in zip(documents, _decode(documents), strict=True):
        if isinstance(item, Session):
            if group:
                raise FileError(f"{where}: a session starts before the group above is complete")
            if any(item.session == other.session for other in sessions):
                raise FileError(f"{where}: session: {item.session!r} occurs twice")
            if sessions:
                check_same_conditions(sessions[0], f"{path}: line 1", item, where, doing="resumed")
            sessions.append(item)
            whole_bytes = end
            continue
        if not sessions:
            raise FileError(f"{where}: the first line must be a session")
        name = sessions[-1].session
        if item.session not in ("", name):
            raise FileError(f"{where}: session: {item.session!r} must be {name!r}, the session above")
        if group and item.group_left != group[-1].group_left - 1:
            raise FileError(
                f"{where}: group_left: {item.group_left} must be {group[-1].group_left - 1}: "
                "a measurement of the group is missing"
            )
        measured = item if item.session else replace(item, session=name)
        _check_new(measured, seen, where)
        group.append(measured)
        if item.group_left == 0:
            measurements += group
            group = []
            whole_bytes = end
    if group and not allow_torn:
        raise FileError(f"{where}: {group[-1].group_left} more of its group must follow: {TORN}")
    return Records(sessions=tuple(sessions), measurements=tuple(measurements)), whole_bytes


def merge_records(files: Sequence[tuple[Path, Records]]) -> Records:
    """Put records of several files together.

    Raises
    ------
    FileError
        If conditions differ (see `UNCHECKED`) or a measurement occurs twice; names both files.
    """
    if not files:
        raise FileError("no files of records to merge")
    sessions: dict[str, tuple[Path, Session]] = {}
    seen: set[tuple[str, str, int]] = set()
    first_path, first_session = files[0][0], files[0][1].sessions[0]
    for path, records in files:
        for session in records.sessions:
            check_same_conditions(first_session, str(first_path), session, str(path), doing="merged")
            other_path, other = sessions.setdefault(session.session, (path, session))
            if other != session:
                raise FileError(
                    f"{other_path}, {path}: session: {session.session!r} names two different sessions"
                )
        for measured in records.measurements:
            _check_new(measured, seen, f"{sessions[measured.session][0]}, {path}")
    return Records(
        sessions=tuple(session for _, session in sessions.values()),
        measurements=tuple(m for _, records in files for m in records.measurements),
    )


_Document = tuple[str, int, Any]  # where it is, bytes up to its end, content


def _conditions(session: Session) -> dict[str, str]:
    checked = {"regime": repr(session.regime), "init": repr(session.init)}
    for key, value in session.environment.items():
        if key not in UNCHECKED:
            checked[f"environment.{key}"] = repr(value)
    return checked


def _check_finite(name: str, values: Sequence[float]) -> None:
    for value in values:
        if not math.isfinite(value):
            raise FileError(f"{name}: {value} is not a finite number")


def _check_new(measured: Measurement, seen: set[tuple[str, str, int]], where: str) -> None:
    identity = (measured.session, measured.key, measured.sequence)
    if identity in seen:
        raise FileError(
            f"{where}: session, key, sequence: {measured.session!r}, {measured.key!r}, "
            f"{measured.sequence}: the measurement occurs twice"
        )
    seen.add(identity)


def _lines(path: Path) -> Iterator[bytes]:
    """Lines with their ends, as they are; bounded in size after decompression as well."""
    if not path.is_file():
        raise FileError(f"{path}: {'is a folder or device' if path.exists() else 'no such file'}")
    total = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            while line := file.readline(MAX_LINE_BYTES + 1):
                total += len(line)
                if len(line) > MAX_LINE_BYTES:
                    raise FileError(f"{path}: a line of more than {MAX_LINE_BYTES:,} bytes")
                if total > MAX_BYTES:
                    raise FileError(f"{path}: more than {MAX_BYTES:,} bytes are not read")
                yield line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FileError(f"{path}: not a whole gzip file: {error}") from error
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from error


def _documents(path: Path, *, allow_torn: bool) -> Iterator[_Document]:
    end = 0
    for number, line in enumerate(_lines(path), start=1):
        where = f"{path}: line {number}"
        end += len(line)
        try:
            document = io.parse_json(line.decode().rstrip("\n"), where)
        except UnicodeDecodeError as error:
            refusal = FileError(f"{where}: not UTF-8 text (byte {error.start})")
        except FileError as error:
            # the parser counts lines within the text it is given
            refusal = FileError(str(error).replace(f"{where}: line 1:", f"{where}:"))
        else:
            _check_tag(document, where)
            yield where, end, document
            continue
        if line.endswith(b"\n"):
            raise refusal
        # no proper beginning of a JSON object is JSON, so that only the last line can be torn
        if not allow_torn:
            raise FileError(f"{refusal}: {TORN}")


def _check_tag(document: Any, where: str) -> None:
    """Refuse lines that do not say what they are: in memory that goes without saying."""
    record = document.get("record") if isinstance(document, dict) else None
    if record not in ("session", "measurement"):
        raise FileError(f"{where}: record: must be 'session' or 'measurement'")
    if record == "session" and "format_version" not in document:
        raise FileError(f"{where}: format_version: missing")


def _decode(documents: Sequence[_Document]) -> Iterator[Session | Measurement]:
    for start in range(0, len(documents), BATCH):
        batch = documents[start : start + BATCH]
        try:
            yield from io.decode(
                [document for _, _, document in batch], tuple[Session | Measurement, ...], ""
            )
        except FileError:  # name the line
            for where, _, document in batch:
                if document["record"] == "session":
                    yield io.decode(document, Session, where)
                else:
                    yield io.decode(document, Measurement, where)

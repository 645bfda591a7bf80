"""Writes measurements as they are taken, so that a killed run loses at most the group in progress."""

import contextlib
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from ficco_sim import io
from ficco_sim.append import append, lock
from ficco_sim.errors import FileError
from ficco_sim.records import (
    Measurement,
    Records,
    Session,
    check_same_conditions,
    scan_records,
)

__all__ = ["Recorder", "part_path"]

SESSION_OPENING = b'{"record": "session"'


def part_path(path: Path) -> Path:
    """Where records are collected until the run is finished."""
    return path.with_name(f"{path.name}.part")


class Recorder:
    """Appends groups of measurements to ``OUT.part``, which becomes ``OUT`` when the run is finished.

    Made by `Recorder.open`. As a context manager it closes the file; only `finish` renames it.

    Examples
    --------
    >>> with Recorder.open(path, session, resume=True) as recorder:  # doctest: +SKIP
    ...     for key, measure in todo.items():
    ...         if key not in recorder.done:
    ...             recorder.write_group(measure())
    ...     recorder.finish()
    """

    def __init__(self, path: Path, session: Session, handle: int, records: Records, size: int) -> None:
        self._path = path
        self._session = session
        self._handle: int | None = handle
        self._size = size
        self._announced = any(old.session == session.session for old in records.sessions)
        self._counts = Counter(m.key for m in records.measurements)
        self._seen = {(m.session, m.key, m.sequence) for m in records.measurements}

    @classmethod
    def open(cls, path: Path, session: Session, *, resume: bool = False) -> Self:
        """Start a file of records, or continue one that was not finished.

        Parameters
        ----------
        path
            The file that `finish` makes; records go to ``path`` with ``.part`` appended until then.
        session
            Conditions of this run. A resumed run has the name of the last session in the file, or
            a new one.
        resume
            Continue an unfinished file, without the last group if that is not whole; start one
            where there is none.

        Raises
        ------
        FileError
            If the file exists or cannot be written, another process writes it, or the conditions
            of a resumed run differ; names the key and both values. Nothing is changed then.
        """
        part = part_path(path)
        if path.suffix == ".gz":
            raise FileError(f"{path}: records are written uncompressed; compress the finished file")
        io.check_target(path)
        if path.exists():
            hint = "a finished run, nothing to resume" if resume else "exists already"
            raise FileError(f"{path}: {hint}; choose another name")
        if part.exists() and not resume:
            raise FileError(f"{part}: an unfinished run; resume it, or choose another name")
        opening = _lines([session], path)
        with io.file_errors(part), contextlib.ExitStack() as on_error:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | (0 if resume else os.O_EXCL)
            handle = os.open(part, flags, 0o666)
            on_error.callback(os.close, handle)
            if not resume:
                on_error.callback(part.unlink)
            lock(handle, part)
            records, size = _unfinished(part, session)
            os.ftruncate(handle, size)
            recorder = cls(path, session, handle, records, size)
            if size and os.pread(handle, 1, size - 1) != b"\n":
                recorder._append(b"\n")  # cut off right after a whole line
            if not size:
                recorder._append(opening)
                recorder._announced = True
                _sync_folder(path)
            on_error.pop_all()
        return recorder

    @property
    def done(self) -> frozenset[str]:
        """Keys that were measured, in this run or the ones it continues, usable or not."""
        return self.done_keys(1)

    def done_keys(self, passes: int) -> frozenset[str]:
        """Keys that were measured at least so often."""
        return frozenset(key for key, count in self._counts.items() if count >= passes)

    @property
    def next_sequence(self) -> int:
        """The first number that no measurement of this session has."""
        name = self._session.session
        return 1 + max((n for session, _, n in self._seen if session == name), default=-1)

    def write_group(self, measurements: Sequence[Measurement]) -> None:
        """Write measurements that belong together: after a crash all of them are there, or none.

        They get the name of this session. When this returns they are on disk.

        Raises
        ------
        FileError
            If they cannot be written or read back, or one with the same key and sequence was
            written before; none is written then.
        """
        name = self._session.session
        group = [
            replace(m, session=name, group_left=left)
            for left, m in zip(reversed(range(len(measurements))), measurements, strict=True)
        ]
        identities = [(name, m.key, m.sequence) for m in group]
        for identity, count in Counter(identities).items():
            if count > 1 or identity in self._seen:
                raise FileError(
                    f"{self._path}: key, sequence: {identity[1]!r}, {identity[2]}: "
                    "the measurement occurs twice"
                )
        text = _lines(group if self._announced else [self._session, *group], self._path)
        with io.file_errors(part_path(self._path)):
            self._append(text)
        self._announced = True
        self._seen.update(identities)
        self._counts.update(m.key for m in group)

    def finish(self) -> Path:
        """Give the complete file its name, and close it.

        Raises
        ------
        FileError
            If nothing was measured, or a file of that name has appeared; the part stays then.
        """
        part = part_path(self._path)
        if not self._counts:
            raise FileError(f"{part}: nothing was measured, so that there is nothing to finish")
        if self._path.exists():
            raise FileError(f"{self._path}: has appeared meanwhile; the records stay in {part}")
        with io.file_errors(self._path):
            part.rename(self._path)
            _sync_folder(self._path)
        self.close()
        return self._path

    def close(self) -> None:
        """Close the file; an unfinished one can be resumed."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _append(self, data: bytes) -> None:
        if self._handle is None:
            raise FileError(f"{self._path}: the recorder is closed")
        self._size = append(self._handle, data, self._size, sync=True)


def _lines(records: Sequence[Session | Measurement], path: Path) -> bytes:
    """Lines of the file; what could not be read again is refused now, not after hours of work."""
    lines = [io.dump_json(record, indent=None) for record in records]
    documents = [io.parse_json(line, str(path)) for line in lines]
    if io.decode(documents, tuple[Session | Measurement, ...], str(path)) != tuple(records):
        raise FileError(f"{path}: a record does not read back as it was written")
    return "".join(lines).encode()


def _unfinished(part: Path, session: Session) -> tuple[Records, int]:
    """The whole records in a part, checked to fit the session, and the bytes they take."""
    records, size = scan_records(part, allow_torn=True)
    if not records.sessions:
        with part.open("rb") as file:
            opening = file.read(len(SESSION_OPENING))
        if not SESSION_OPENING.startswith(opening):
            raise FileError(f"{part}: not a file of records; choose another name")
        return records, size
    check_same_conditions(records.sessions[0], str(part), session, "this run", doing="resumed")
    if session.session in {old.session for old in records.sessions[:-1]}:
        raise FileError(f"{part}: session: {session.session!r} names an earlier session in it")
    return records, size


def _sync_folder(path: Path) -> None:
    """Bring a new name to disk."""
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

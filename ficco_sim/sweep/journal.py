"""The journal of a sweep: what is done so far, in a file that survives a kill at any moment.

``FILE.part`` has a line of JSON for the sweep's inputs, then one for each scenario, in the order in
which they finished. A line is a scenario whole: one that a kill cut off has no line end, is dropped
when the sweep is resumed, and only that scenario is done again.
"""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ficco_sim import io
from ficco_sim.append import append, lock
from ficco_sim.errors import FileError
from ficco_sim.sweep.rows import COLUMNS, SweepRow, make_row

__all__ = ["Journal", "part_path"]

FORMAT_VERSION = 1
OPENING = b'{"record": "sweep"'
MAX_LINE_BYTES = 64 * 2**20
MAX_BYTES = 16 * 2**30
SYNC_S = 1.0
"""Seconds of work that a power failure may cost; a kill costs the scenario in progress."""


def part_path(path: Path) -> Path:
    """Where scenarios are collected until the sweep is finished."""
    return path.with_name(f"{path.name}.part")


class Journal:
    """Appends scenarios to ``FILE.part`` as they finish. Made by `Journal.open`; a context manager.

    Parameters
    ----------
    keys
        Workload and machine of each scenario, in the order of the table.
    """

    def __init__(self, path: Path, handle: int, keys: list[tuple[str, str]]) -> None:
        self._part = part_path(path)
        self._handle: int | None = handle
        self._keys = keys
        self._size = 0
        self._synced_s = time.monotonic()
        self._lines: dict[int, tuple[int, int]] = {}
        self.errors: dict[int, str] = {}

    @classmethod
    def open(
        cls, path: Path, inputs: Mapping[str, Any], keys: list[tuple[str, str]], *, resume: bool
    ) -> Self:
        """Start a journal, or continue one.

        Parameters
        ----------
        path
            The table that the sweep makes in the end.
        inputs
            What the results depend on, as plain data: a resumed sweep must have the same.
        resume
            Continue an unfinished sweep; start one where there is none.

        Raises
        ------
        FileError
            If the table or the journal is there already, another process writes it, it is no journal,
            or its inputs differ; nothing is changed then.
        """
        part = part_path(path)
        io.check_target(part)
        if path.exists() and not (resume and part.exists()):
            hint = "a finished sweep, nothing to resume" if resume else "exists already"
            raise FileError(f"{path}: {hint}; choose another name")
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        with io.file_errors(part), contextlib.ExitStack() as on_error:
            handle = os.open(part, flags, 0o666)
            on_error.callback(os.close, handle)
            lock(handle, part)
            journal = cls(path, handle, keys)
            if os.fstat(handle).st_size and not resume:
                raise FileError(f"{part}: an unfinished sweep; resume it, or choose another name")
            journal._read(inputs)
            if path.exists() and len(journal.done) < len(keys):
                raise FileError(f"{path}: exists already, but its sweep is unfinished; move it away")
            os.ftruncate(handle, journal._size)
            if not journal._size:
                header = {"record": "sweep", "format_version": FORMAT_VERSION, "inputs": inputs}
                journal._append((io.dump_json(header, indent=None)).encode())
            on_error.pop_all()
        return journal

    @property
    def done(self) -> frozenset[int]:
        """Places in the table of the scenarios that are done, failed ones included."""
        return frozenset(self._lines)

    def write(self, index: int, result: list[SweepRow] | str) -> None:
        """Append a scenario whole: its rows, or what is wrong with it."""
        workload, machine = self._keys[index]
        entry: dict[str, Any] = {"record": "scenario", "index": index}
        entry |= {"workload": workload, "machine": machine}
        if isinstance(result, str):
            entry["error"] = result
            self.errors[index] = result
        else:
            entry["rows"] = [row.values() for row in result]
        start = self._size
        with io.file_errors(self._part):
            self._append(io.dump_json(entry, indent=None).encode())
        self._lines[index] = (start, self._size - start)

    def rows(self) -> Iterator[list[SweepRow]]:
        """Rows of each scenario that has any, in the order of the table."""
        assert self._handle is not None
        for index in sorted(self._lines):
            if index not in self.errors:
                start, size = self._lines[index]
                with io.file_errors(self._part):
                    line = os.pread(self._handle, size, start)
                where = f"{self._part}: {self._keys[index][0]}"
                yield _rows(io.parse_json(line.decode(), where), where)

    def remove(self) -> None:
        """Remove the journal, once the table is there."""
        with io.file_errors(self._part):
            self._part.unlink()
        self.close()

    def close(self) -> None:
        """Close the file; the sweep can be resumed."""
        if self._handle is not None:
            with contextlib.suppress(OSError):
                os.fsync(self._handle)
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
        assert self._handle is not None
        now_s = time.monotonic()
        sync = now_s - self._synced_s >= SYNC_S
        self._size = append(self._handle, data, self._size, sync=sync)
        if sync:
            self._synced_s = now_s

    def _read(self, inputs: Mapping[str, Any]) -> None:
        """Take in what the file holds, up to its last whole line."""
        assert self._handle is not None
        if os.fstat(self._handle).st_size > MAX_BYTES:
            raise FileError(f"{self._part}: more than {MAX_BYTES:,} bytes are not read")
        with os.fdopen(os.dup(self._handle), "rb") as file:
            file.seek(0)
            number = 0
            while line := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                where = f"{self._part}: line {number}"
                if len(line) > MAX_LINE_BYTES:
                    raise FileError(f"{where}: more than {MAX_LINE_BYTES:,} bytes")
                if number == 1 and not line.startswith(OPENING[: len(line)]):
                    raise FileError(f"{self._part}: not a journal of a sweep; choose another name")
                if not line.endswith(b"\n"):
                    return  # cut off; done again
                document = _document(line, where)
                if number == 1:
                    _check_header(document, inputs, str(self._part))
                else:
                    self._take(document, where, len(line))
                self._size += len(line)

    def _take(self, document: dict[str, Any], where: str, size: int) -> None:
        """One scenario of the file."""
        index = document.get("index")
        if document.get("record") != "scenario":
            raise FileError(f"{where}: record: {document.get('record')!r} must be 'scenario'")
        if type(index) is not int or not 0 <= index < len(self._keys):
            raise FileError(f"{where}: index: {index!r} must be from 0 to {len(self._keys) - 1}")
        if index in self._lines:
            raise FileError(f"{where}: index: {index} occurs twice")
        found = (document.get("workload"), document.get("machine"))
        if found != self._keys[index]:
            raise FileError(
                f"{where}: workload, machine: {found} must be {self._keys[index]}, number {index}"
            )
        if "error" in document:
            if not isinstance(document["error"], str):
                raise FileError(f"{where}: error: must be text")
            self.errors[index] = document["error"]
        else:
            rows = _rows(document, where)
            if any((row.workload, row.machine) != self._keys[index] for row in rows):
                raise FileError(f"{where}: rows: one is of another scenario")
        self._lines[index] = (self._size, size)


def _document(line: bytes, where: str) -> dict[str, Any]:
    try:
        document = io.parse_json(line.decode().rstrip("\n"), where)
    except UnicodeDecodeError as error:
        raise FileError(f"{where}: not UTF-8 text (byte {error.start})") from error
    if not isinstance(document, dict):
        raise FileError(f"{where}: must be a JSON object")
    return document


def _rows(document: Mapping[str, Any], where: str) -> list[SweepRow]:
    rows = document.get("rows")
    if not isinstance(rows, list) or not rows:
        raise FileError(f"{where}: rows: must be a list that is not empty")
    for row in rows:
        if not isinstance(row, list) or len(row) != len(COLUMNS):
            raise FileError(f"{where}: rows: each must be a list of {len(COLUMNS)} values")
    return [make_row(dict(zip(COLUMNS, row, strict=True)), where) for row in rows]


def _check_header(document: dict[str, Any], inputs: Mapping[str, Any], where: str) -> None:
    version, there = document.get("format_version"), document.get("inputs")
    if version != FORMAT_VERSION:
        raise FileError(f"{where}: format_version: {version!r} must be {FORMAT_VERSION}")
    if not isinstance(there, dict):
        raise FileError(f"{where}: inputs: missing")
    wanted = io.to_plain(inputs)
    for key in dict.fromkeys((*wanted, *there)):
        if there.get(key) != wanted.get(key):
            raise FileError(
                f"{where}: {key}: {_short(there.get(key))} in the unfinished sweep, "
                f"{_short(wanted.get(key))} now: it cannot be resumed; choose another name"
            )


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."

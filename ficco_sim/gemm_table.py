"""Tables of measured GEMM times as CSV files, beside the gpu that they belong to."""

import csv
import io as text_io
from collections.abc import Iterable
from pathlib import Path

from ficco_sim import io
from ficco_sim.errors import FileError, MachineError
from ficco_sim.profile import MeasuredGemm

__all__ = ["read_gemm_table", "write_gemm_table"]

COLUMNS = ("m", "n", "k", "dtype", "entries", "accumulate", "time_s")
CLOCK = "sm_clock_hz"  # a further column, whose values may be empty
COUNTS = ("m", "n", "k", "entries")
MAX_ROWS = 100_000


def read_gemm_table(path: Path) -> tuple[MeasuredGemm, ...]:
    """Read a table.

    Raises
    ------
    FileError
        Naming file, line, column, value and rule.
    """
    reader = csv.DictReader(text_io.StringIO(io.read_text(path), newline=""), strict=True)
    rows: list[MeasuredGemm] = []
    try:
        if tuple(reader.fieldnames or ()) not in (COLUMNS, (*COLUMNS, CLOCK)):
            raise FileError(
                f"{path}: line 1: the columns must be {','.join(COLUMNS)}, and {CLOCK} where clocks "
                "were read"
            )
        for row in reader:
            if len(rows) >= MAX_ROWS:
                raise FileError(f"{path}: more than {MAX_ROWS:,} rows")
            rows.append(_measured(row, f"{path}: line {reader.line_num}"))
    except csv.Error as error:
        raise FileError(f"{path}: line {reader.line_num + 1}: not CSV: {error}") from error
    if not rows:
        raise FileError(f"{path}: holds no rows")
    return tuple(rows)


def _measured(row: dict[str, str], where: str) -> MeasuredGemm:
    if None in row or None in row.values():
        raise FileError(f"{where}: another number of values than columns")
    counts = {}
    for name in COUNTS:
        text = row[name]
        if not text.isascii() or not text.isdigit() or len(text) > 12:
            raise FileError(f"{where}: {name}: {text[:40]!r} must be a whole number")
        counts[name] = int(text)
    if row["accumulate"] not in ("0", "1"):
        raise FileError(f"{where}: accumulate: {row['accumulate'][:40]!r} must be 0 or 1")
    try:
        return MeasuredGemm(
            **counts,
            dtype=row["dtype"],
            accumulate=row["accumulate"] == "1",
            time_s=_number(row, "time_s", where),
            sm_clock_hz=_number(row, CLOCK, where) if row.get(CLOCK) else None,
        )
    except MachineError as error:
        raise FileError(f"{where}: {error}") from error


def _number(row: dict[str, str], name: str, where: str) -> float:
    try:
        return float(row[name])
    except ValueError:
        raise FileError(f"{where}: {name}: {row[name][:40]!r} must be a number") from None


def write_gemm_table(path: Path, rows: Iterable[MeasuredGemm]) -> None:
    """Write a table that `read_gemm_table` reads back equal, sorted by shape.

    Raises
    ------
    FileError
        If the file cannot be written.
    """
    buffer = text_io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    order = sorted(rows, key=lambda g: (g.dtype, g.m, g.n, g.k, g.entries, g.accumulate))
    clocks = any(g.sm_clock_hz is not None for g in order)
    writer.writerow((*COLUMNS, CLOCK) if clocks else COLUMNS)
    for g in order:
        row = (g.m, g.n, g.k, g.dtype, g.entries, int(g.accumulate), repr(float(g.time_s)))
        clock = "" if g.sm_clock_hz is None else repr(float(g.sm_clock_hz))
        writer.writerow((*row, clock) if clocks else row)
    io.write_text(path, buffer.getvalue())

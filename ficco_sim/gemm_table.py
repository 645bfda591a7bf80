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
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise FileError(f"{path}: line 1: the columns must be {','.join(COLUMNS)}")
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
        time_s = float(row["time_s"])
    except ValueError:
        raise FileError(f"{where}: time_s: {row['time_s'][:40]!r} must be a number") from None
    try:
        return MeasuredGemm(
            **counts, dtype=row["dtype"], accumulate=row["accumulate"] == "1", time_s=time_s
        )
    except MachineError as error:
        raise FileError(f"{where}: {error}") from error


def write_gemm_table(path: Path, rows: Iterable[MeasuredGemm]) -> None:
    """Write a table that `read_gemm_table` reads back equal, sorted by shape.

    Raises
    ------
    FileError
        If the file cannot be written.
    """
    buffer = text_io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    order = sorted(rows, key=lambda g: (g.dtype, g.m, g.n, g.k, g.entries, g.accumulate))
    for g in order:
        writer.writerow((g.m, g.n, g.k, g.dtype, g.entries, int(g.accumulate), repr(float(g.time_s))))
    io.write_text(path, buffer.getvalue())

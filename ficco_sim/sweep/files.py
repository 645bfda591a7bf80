"""Tables of sweeps as CSV and Parquet files."""

import csv
import io as text_io
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ficco_sim import io
from ficco_sim.errors import FileError, HardwareError
from ficco_sim.sweep.rows import COLUMNS, OPTIONAL, TYPES, SweepRow, make_row

__all__ = ["check_table_name", "error_csv", "read_rows", "write_rows"]

MAX_TABLE_BYTES = 4 * 2**30
MAX_ROWS = 5_000_000
ROWS_AT_ONCE = 50_000
SUFFIXES = (".csv", ".parquet")


def check_table_name(path: Path) -> None:
    """Refuse a name whose suffix says no format, or one that needs what is not installed."""
    if path.suffix not in SUFFIXES:
        raise FileError(f"{path}: the table of a sweep ends in {' or '.join(SUFFIXES)}")
    if path.suffix == ".parquet":
        _pyarrow(path)


def write_rows(path: Path, scenarios: Iterable[list[SweepRow]]) -> int:
    """Write rows, scenario by scenario, whole or not at all; returns how many there are."""
    rows = itertools.chain.from_iterable(scenarios)
    return (_write_parquet if path.suffix == ".parquet" else _write_csv)(path, rows)


def error_csv(errors: Iterable[tuple[str, str, str]]) -> str:
    """The text of the file beside a table: workload, machine and what is wrong."""
    buffer = text_io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(("workload", "machine", "error"))
    writer.writerows(errors)
    return buffer.getvalue()


def read_rows(path: Path) -> Iterator[SweepRow]:
    """The rows of a table, each checked.

    Raises
    ------
    FileError
        Naming file, line (or row), column, value and rule.
    """
    check_table_name(path)
    return _read_parquet(path) if path.suffix == ".parquet" else _read_csv(path)


def _write_csv(path: Path, rows: Iterator[SweepRow]) -> int:
    count = 0
    with io.writing(path) as file:
        text = text_io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        while chunk := list(itertools.islice(rows, ROWS_AT_ONCE)):
            # numbers are written so that they read back equal
            writer.writerows(row.values() for row in chunk)
            count += len(chunk)
        text.flush()
        text.detach()  # the file is closed by who opened it
    return count


def _read_csv(path: Path) -> Iterator[SweepRow]:
    reader = csv.reader(text_io.StringIO(io.read_text(path, MAX_TABLE_BYTES), newline=""), strict=True)
    try:
        names = next(reader, [])
        _check_columns(path, names)
        for number, values in enumerate(reader, start=1):
            where = f"{path}: line {reader.line_num}"
            _check_number(path, number)
            if len(values) != len(names):
                raise FileError(f"{where}: {len(values)} values; {len(names)} are needed")
            found = dict(zip(names, values, strict=True))
            yield make_row({name: _parse(name, found[name]) for name in COLUMNS}, where)
    except csv.Error as error:
        raise FileError(f"{path}: line {reader.line_num}: not CSV: {error}") from error


def _parse(name: str, text: str) -> Any:
    """The value of a text in a column; text that is none stays, to be refused with its column."""
    if not text and name in OPTIONAL:
        return None
    kind = TYPES[name]
    try:
        return kind(text)
    except ValueError:
        return text


def _check_columns(path: Path, names: list[str]) -> None:
    for name in COLUMNS:
        if name not in names:
            raise FileError(f"{path}: line 1: no column {name!r}; the table of a sweep has it")
    for name in names:
        if name not in COLUMNS or names.count(name) > 1:
            raise FileError(f"{path}: line 1: column {name[:40]!r} is unknown or there twice")


def _check_number(path: Path, number: int) -> None:
    if number > MAX_ROWS:
        raise FileError(f"{path}: more than {MAX_ROWS:,} rows are not read")


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise HardwareError(
            f"{path}: Parquet needs pyarrow: pip install 'ficco[parquet]', or choose a name in .csv"
        ) from error
    return pyarrow


def _write_parquet(path: Path, rows: Iterator[SweepRow]) -> int:
    pa = _pyarrow(path)
    kinds = {int: pa.int64(), float: pa.float64(), str: pa.string()}
    schema = pa.schema([(name, kinds[TYPES[name]]) for name in COLUMNS])
    count = 0
    with io.writing(path) as file, pa.parquet.ParquetWriter(file, schema) as writer:
        while chunk := list(itertools.islice(rows, ROWS_AT_ONCE)):
            columns = zip(*(row.values() for row in chunk), strict=True)
            arrays = [pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
            count += len(chunk)
    return count


def _read_parquet(path: Path) -> Iterator[SweepRow]:
    pa = _pyarrow(path)
    if not path.is_file():
        raise FileError(f"{path}: no such file")
    number = 0
    try:
        with pa.parquet.ParquetFile(path) as file:
            _check_number(path, file.metadata.num_rows)
            _check_columns(path, list(file.schema_arrow.names))
            for batch in file.iter_batches(ROWS_AT_ONCE):
                for values in batch.to_pylist():
                    number += 1
                    yield make_row(values, f"{path}: row {number}")
    except (pa.ArrowException, OSError) as error:
        raise FileError(f"{path}: not Parquet: {str(error).splitlines()[0][:200]}") from error

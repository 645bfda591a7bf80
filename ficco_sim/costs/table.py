"""Predicted times for a CSV file of GEMM shapes."""

import csv
import io as text_io
from pathlib import Path

from ficco_sim import io
from ficco_sim.costs import CostModel, GemmShape
from ficco_sim.errors import FiccoError, FileError
from ficco_sim.workload import Workload

__all__ = ["predict_gemms"]

SHAPE_COLUMNS = ("M", "N", "K", "dtype")
MAX_ROWS = 200_000


def predict_gemms(path: Path, costs: CostModel) -> list[dict[str, str]]:
    """Read columns M, N, K and dtype and add ``predicted_s``, the time of the GEMM alone in seconds.

    Returns
    -------
    list of dict
        The file's rows with all their columns, and the prediction.

    Raises
    ------
    FileError
        Naming the file, line and column of a missing or impossible value.
    """
    reader = csv.DictReader(text_io.StringIO(io.read_text(path), newline=""), strict=True)
    rows: list[dict[str, str]] = []
    try:
        missing = [c for c in SHAPE_COLUMNS if c not in (reader.fieldnames or ())]
        if missing:
            raise FileError(
                f"{path}: line 1: no column {', '.join(missing)}; it has "
                f"{', '.join(reader.fieldnames or ()) or 'none'}"
            )
        for row in reader:
            if None in row or None in row.values():
                raise FileError(
                    f"{path}: line {reader.line_num}: another number of values than columns"
                )
            if len(rows) >= MAX_ROWS:
                raise FileError(f"{path}: more than {MAX_ROWS:,} rows")
            row["predicted_s"] = repr(_predict(row, costs, f"{path}: line {reader.line_num}"))
            rows.append(row)
    except csv.Error as error:
        # the reader counts a row once it is complete
        raise FileError(f"{path}: line {reader.line_num + 1}: not CSV: {error}") from error
    if not rows:
        raise FileError(f"{path}: holds no rows")
    return rows


def _predict(row: dict[str, str], costs: CostModel, where: str) -> float:
    sizes: list[int] = []
    for key in ("M", "N", "K"):
        text = row[key].strip()
        if not text.isascii() or not text.isdigit() or len(text) > 12:
            raise FileError(f"{where}: {key}: {text[:40]!r} must be a whole number")
        sizes.append(int(text))
    m, n, k = sizes
    try:
        workload = Workload(name="row", pattern="gemm", m=m, n=n, k=k, dtype=row["dtype"].strip())
        shape = GemmShape((workload.m,), workload.n, workload.k, workload.dtype)
        return costs.gemm_model.cost(shape).time_s
    except FiccoError as error:
        raise FileError(f"{where}: {error}") from error

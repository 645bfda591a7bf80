"""A CSV file of timed GEMMs: columns m, n, k, dtype and a time whose name ends in its unit.

Further columns that are read: gpu, init, batch, accumulate, tflops or gflops. Timings of the same GEMM
become one point, their median; those of several gpus are refused. Matrices of zeros draw less power
and run faster, so that timings are never mixed over what matrices were filled with.
"""

import csv
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ficco_sim.errors import FileError
from ficco_sim.readers.logs.cells import PER_SECOND, normal_dtype, to_count, to_number, to_seconds
from ficco_sim.readers.logs.plausible import Shape, above_peak, not_growing
from ficco_sim.readers.logs.types import GemmPoint, Log, Notes
from ficco_sim.readers.text import lines_of, shown
from ficco_sim.workload import MAX_DIM

__all__ = ["is_gemm_csv", "read_gemm_csv"]

TIME = re.compile(
    r"(?:(?:gpu|kernel|exec|avg|mean|median)[ _-]?)?"
    r"(?:time|duration|latency|elapsed|runtime|avg|mean|median)?[ _-]?[(\[]?"
    r"(" + "|".join(sorted(PER_SECOND, key=len, reverse=True)) + r")[)\]]?\Z"
)
UNITLESS = re.compile(r"(?:[a-z]{2,6}[ _-])?(?:time|duration|latency|elapsed|runtime)\Z")
WHOLE = re.compile(r"([0-9]{1,18})(?:\.0{1,6})?\Z")  # tables that once held a gap print 8192.0
RATES = {"tflops": 1e12, "tflop/s": 1e12, "tflops/s": 1e12, "gflops": 1e9, "gflop/s": 1e9}
RATE_TOLERANCE = 0.02  # of a printed rate to that of the time
INITS = {
    **dict.fromkeys(("randn", "normal", "gaussian", "random_normal"), "randn"),
    **dict.fromkeys(("zeros", "zero", "0"), "zeros"),
    **dict.fromkeys(("", "unknown", "none", "n/a", "nan"), None),
}
TRUE, FALSE = ("1", "true", "yes"), ("", "0", "false", "no")
MAX_LISTED = 20  # shapes whose populations are told


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A timing."""

    line: int
    shape: Shape
    accumulate: bool
    init: str | None
    time_s: float
    gpu: str = ""


def is_gemm_csv(text: str) -> bool:
    """Whether the first line names columns m, n and k."""
    for _, line in lines_of(text):
        if line.strip() and not line.startswith("#"):
            return {"m", "n", "k"} <= set(_names(line))
    return False


def read_gemm_csv(text: str, where: str, *, peak_flops_per_s: Mapping[str, float] | None = None) -> Log:
    """Read timings; those that cannot be, or that do not grow with the work, are refused.

    Parameters
    ----------
    peak_flops_per_s
        Of the gpu, by dtype: timings above it are refused. Without it: above any gpu.

    Raises
    ------
    FileError
        Naming file, line, value and rule: columns are missing, or their meaning is not sure.
    """
    notes = Notes()
    header: tuple[int, list[str], str] | None = None
    columns: dict[str, int] = {}
    per_second = 1.0
    rows: list[Row] = []
    lines = [(number, line) for number, line in lines_of(text) if line.strip()]
    for number, line in lines:
        if line.startswith("#"):
            continue
        if header is None:
            delimiter = _delimiter(line)
            header = (number, _names(line), delimiter)
            columns, per_second = _columns(header[1], f"{where}: line {number}")
            continue
        cells = [cell.strip() for cell in _split(line, header[2])]
        if [cell.lower() for cell in cells] == header[1]:
            continue  # files put behind each other
        if len(cells) != len(header[1]):
            notes.refuse(number, f"{len(cells)} values under {len(header[1])} columns")
            continue
        record = {name: cells[i] for name, i in columns.items()}
        row = _row(number, record, per_second)
        if isinstance(row, Row):
            rows.append(row)
        else:
            notes.refuse(number, row)
    if header is None:
        raise FileError(f"{where}: no line of column names in it")
    if rows and not text.endswith("\n") and rows[-1].line == lines[-1][0]:
        notes.warn(f"line {rows[-1].line}: no line end: if the file was cut off, so may be its time")
    _check_one_gpu(rows, where)
    rows = _without_impossible(rows, peak_flops_per_s, notes)
    rows = _of_one_population(rows, notes)
    notes.points.extend(_medians(rows))
    notes.facts["num_timings"] = len(rows)
    if not rows:
        notes.warn("no timing can be used: no calibration from this file")
    return notes.log("gemm_csv")


def _delimiter(line: str) -> str:
    return max(",;\t", key=line.count)


def _split(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:  # a cell beyond the size limit
        return []


def _names(line: str) -> list[str]:
    return [cell.strip().lower() for cell in _split(line, _delimiter(line))]


def _columns(names: Sequence[str], where: str) -> tuple[dict[str, int], float]:
    """Index of each column that is read, and how many units of its time make a second."""
    known = ("m", "n", "k", "dtype", "gpu", "init", "batch", "accumulate")
    for name in (*known, *RATES):
        if names.count(name) > 1:
            raise FileError(f"{where}: column {name!r} twice")
    columns = {name: names.index(name) for name in known if name in names}
    if missing := [name for name in ("m", "n", "k", "dtype") if name not in columns]:
        raise FileError(
            f"{where}: no column {', '.join(missing)}; it has {shown(', '.join(names))}, needed are m, "
            "n, k, dtype and a time such as time_us"
        )
    times = {i: match for i, name in enumerate(names) if (match := TIME.match(name))}
    if not times:
        bare = [name for name in names if UNITLESS.match(name)]
        what = f"column {shown(bare[0])} tells no unit" if bare else "no column of time"
        raise FileError(f"{where}: {what}; its name must end in one, as time_us")
    if len(times) > 1:
        found = ", ".join(match.group() for match in times.values())
        raise FileError(f"{where}: columns {shown(found)} are all times; leave one of them")
    ((columns["time"], match),) = times.items()
    rates = [name for name in RATES if name in names]
    if rates:
        columns[rates[0]] = names.index(rates[0])
    return columns, PER_SECOND[match.group(1)]


def _row(line: int, record: Mapping[str, str], per_second: float) -> Row | str:
    """The timing, or why it is none."""
    sizes: dict[str, int] = {}
    for name in ("m", "n", "k", "batch"):
        text = record.get(name, "1")
        whole = WHOLE.match(text)
        size = to_count(whole.group(1)) if whole else None
        if not size or size > MAX_DIM:
            return f"{name} {shown(text)} must be a whole number from 1 to {MAX_DIM:,}"
        sizes[name] = size
    dtype = normal_dtype(record["dtype"])
    if dtype is None:
        return f"dtype {shown(record['dtype'])}: no element type that we model"
    accumulate = record.get("accumulate", "").lower()
    if accumulate not in (*TRUE, *FALSE):
        return f"accumulate {shown(accumulate)} must be true or false"
    time_s = to_seconds(record["time"], per_second)
    if time_s is None:
        return f"time {shown(record['time'])} must be a number above 0"
    shape = Shape(m=sizes["m"], n=sizes["n"], k=sizes["k"], batch=sizes["batch"], dtype=dtype)
    for name, scale in RATES.items():
        rate = to_number(record[name]) if name in record else None
        if rate and abs(rate * scale * time_s / shape.flops - 1) > RATE_TOLERANCE:
            return (
                f"{shape}: {name} {rate:g} and the time, which gives "
                f"{shape.flops / time_s / scale:.4g}, disagree"
            )
    init = record.get("init", "").lower()[:40]
    return Row(
        line=line,
        shape=shape,
        accumulate=accumulate in TRUE,
        init=INITS.get(init, init),
        time_s=time_s,
        gpu=record.get("gpu", ""),
    )


def _check_one_gpu(rows: Sequence[Row], where: str) -> None:
    gpus = {row.gpu: row.line for row in reversed(rows)}
    if len(gpus) > 1:
        (first, at), (other, there) = sorted(gpus.items(), key=lambda item: item[1])[:2]
        raise FileError(
            f"{where}: line {there}: column gpu: timings of {shown(other)} after those of "
            f"{shown(first)} in line {at}; a file must be of one gpu"
        )


def _without_impossible(
    rows: Sequence[Row], peaks: Mapping[str, float] | None, notes: Notes
) -> list[Row]:
    """Refuse timings above the peak, and shapes whose time does not grow with their work."""
    reasons = {row.line: above_peak(row.shape, row.time_s, peaks) for row in rows}
    groups: dict[tuple[str, str | None], dict[Shape, list[Row]]] = {}
    for row in rows:
        groups.setdefault((row.shape.dtype, row.init), {}).setdefault(row.shape, []).append(row)
    for shapes in groups.values():
        timed = [
            (shape, statistics.median(row.time_s for row in timings))
            for shape, timings in shapes.items()
        ]
        lists = list(shapes.values())
        for i, odd in not_growing(timed).items():
            for row in lists[i]:
                reasons[row.line] = reasons[row.line] or odd
    kept = []
    for row in rows:
        if reason := reasons[row.line]:
            notes.refuse(row.line, reason)
        else:
            kept.append(row)
    return kept


def _of_one_population(rows: Sequence[Row], notes: Notes) -> list[Row]:
    """Timings of random normal matrices alone if there are any, else none of zeros beside others."""
    inits = {row.init for row in rows}
    if None in inits:
        unknown = sum(row.init is None for row in rows)
        notes.warn(
            f"{unknown} of {len(rows)} timings do not tell what matrices were filled with; zeros run "
            "faster than random numbers, by about 15 % seen"
        )
    if inits == {"zeros"}:
        notes.warn("matrices of zeros: random ones draw more power and run slower, by about 15 % seen")
    if len(inits) < 2:
        return list(rows)
    _tell_populations(rows, notes)
    kept = {"randn"} if "randn" in inits else inits - {"zeros"}
    if dropped := sorted(init or "unknown" for init in inits - kept):
        notes.warn(
            f"only timings of {', '.join(sorted(init or 'unknown' for init in kept))} matrices are "
            f"used, not of {', '.join(dropped)}: they must not be mixed"
        )
    if len(kept) > 1:
        names = ", ".join(sorted(init or "unknown" for init in kept))
        notes.warn(f"matrices filled in {len(kept)} ways: {names}; each is a point of its own")
    for row in rows:
        if row.init not in kept:
            notes.refuse(
                row.line,
                f"{row.shape}: matrices of {row.init or 'unknown'}: another population",
            )
    return [row for row in rows if row.init in kept]


def _tell_populations(rows: Sequence[Row], notes: Notes) -> None:
    """For each shape that was timed with several fillings: median, rate, and the ratio."""
    shapes: dict[tuple[Shape, bool], dict[str, list[float]]] = {}
    for row in rows:
        fillings = shapes.setdefault((row.shape, row.accumulate), {})
        fillings.setdefault(row.init or "unknown", []).append(row.time_s)
    told: list[dict[str, object]] = []
    for (shape, _), fillings in shapes.items():
        if len(fillings) < 2 or len(told) == MAX_LISTED:
            continue
        medians = {init: statistics.median(times) for init, times in fillings.items()}
        ratio = max(medians.values()) / min(medians.values())
        told.append(
            {
                "shape": str(shape),
                "median_s": medians,
                "flops_per_s": {init: shape.flops / time_s for init, time_s in medians.items()},
                "count": {init: len(times) for init, times in fillings.items()},
                "ratio": ratio,
            }
        )
        parts = ", ".join(
            f"{init} {time_s * 1e6:,.1f} us = {shape.flops / time_s / 1e12:,.0f} TFLOP/s"
            for init, time_s in medians.items()
        )
        notes.warn(f"{shape}: {len(medians)} populations: {parts}; ratio {ratio:.3f}")
    notes.facts["populations"] = told


def _medians(rows: Sequence[Row]) -> list[GemmPoint]:
    groups: dict[tuple[Shape, bool, str | None], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.shape, row.accumulate, row.init), []).append(row)
    return [
        GemmPoint(
            m=shape.m,
            n=shape.n,
            k=shape.k,
            dtype=shape.dtype,
            time_s=statistics.median(row.time_s for row in timings),
            batch=shape.batch,
            accumulate=accumulate,
            init=init,
            count=len(timings),
            line=timings[0].line,
        )
        for (shape, accumulate, init), timings in groups.items()
    ]

"""hipblaslt-bench: comma-separated values under headers that differ by version and options."""

import re
from collections.abc import Mapping

from ficco_sim.errors import FileError
from ficco_sim.readers.logs.cells import (
    PER_SECOND,
    half_step,
    normal_dtype,
    to_count,
    to_number,
    to_seconds,
)
from ficco_sim.readers.logs.plausible import Shape, above_peak
from ficco_sim.readers.logs.types import GemmPoint, Log, Notes
from ficco_sim.readers.text import lines_of, shown
from ficco_sim.workload import MAX_DIM

__all__ = ["is_hipblaslt_bench", "read_hipblaslt_bench"]

PREFIX = re.compile(r"\s*(?:\[\d{1,6}\]:)?")
DEVICE = re.compile(r"Device ID \d{1,4} : (.{1,80})")
NEEDED = ("transa", "transb", "m", "n", "k", "us")
GFLOPS = "hipblaslt-gflops"
CLOCK = "lowest-avg-freq"  # in MHz
OPS = ("N", "T", "C")
TOLERANCE = 1e-3  # of printed rate times time to 2 m n k


def is_hipblaslt_bench(text: str) -> bool:
    """Whether a line of the text is such a header."""
    return any(_is_header(_cells(line)) for _, line in lines_of(text))


def read_hipblaslt_bench(
    text: str, where: str, *, peak_flops_per_s: Mapping[str, float] | None = None
) -> Log:
    """Read all records, each by the names of the header above it.

    Parameters
    ----------
    peak_flops_per_s
        Of the gpu, by dtype: records above it are refused.

    Raises
    ------
    FileError
        Naming file, line, value and rule: no header, or one without a needed column.
    """
    notes = Notes()
    header: tuple[int, list[str]] | None = None
    for number, line in lines_of(text):
        if device := DEVICE.match(line):
            notes.facts.setdefault("gpu", device.group(1).strip())
        cells = _cells(line)
        is_record = len(cells) >= len(NEEDED) and cells[0] in OPS and cells[1] in OPS
        if _is_header(cells):
            header = (number, _header(number, cells, where))
        elif is_record and header is None:
            raise FileError(f"{where}: line {number}: a record without a header above it")
        elif header is not None and (is_record or len(cells) == len(header[1])):
            _add(number, cells, header, peak_flops_per_s, notes)
    if header is None:
        raise FileError(f"{where}: no header 'transA,transB,...' in it")
    if notes.points:
        notes.warn(
            "init unknown: the tool prints no --initialization; matrices of zeros run faster than "
            "random ones, by about 15 % seen"
        )
    else:
        notes.warn("no record can be used: no calibration from this file")
    return notes.log("hipblaslt_bench")


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in PREFIX.sub("", line, count=1).split(",")]


def _is_header(cells: list[str]) -> bool:
    return {"transa", "transb"} <= {cell.lower() for cell in cells}


def _header(line: int, cells: list[str], where: str) -> list[str]:
    names = [cell.lower() for cell in cells]
    if missing := [name for name in NEEDED if name not in names]:
        raise FileError(f"{where}: line {line}: no column {', '.join(missing)}")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise FileError(f"{where}: line {line}: column {shown(', '.join(twice))} twice")
    return names


def _add(
    line: int,
    cells: list[str],
    header: tuple[int, list[str]],
    peaks: Mapping[str, float] | None,
    notes: Notes,
) -> None:
    if len(cells) != len(header[1]):
        notes.refuse(line, f"{len(cells)} values under {len(header[1])} columns (line {header[0]})")
        return
    point = _point(line, dict(zip(header[1], cells, strict=True)), peaks)
    if isinstance(point, str):
        notes.refuse(line, point)
    else:
        notes.points.append(point)


def _point(line: int, record: Mapping[str, str], peaks: Mapping[str, float] | None) -> GemmPoint | str:
    """The record as a point, or why it is none."""
    sizes: dict[str, int] = {}
    for name, text in (
        *((name, record[name]) for name in ("m", "n", "k")),
        ("batch_count", record.get("batch_count", "1")),
    ):
        size = to_count(text)
        if not size or size > MAX_DIM:
            return f"{name} {shown(text)} must be a whole number from 1 to {MAX_DIM:,}"
        sizes[name] = size
    if record.get("grouped_gemm", "0") not in ("0", "false"):
        return "a grouped GEMM: several shapes in one time"
    types = (record.get("a_type", ""), record.get("b_type", ""))
    dtypes = {normal_dtype(name) for name in types}
    if len(dtypes) > 1 or (dtype := dtypes.pop()) is None:
        return f"a_type, b_type {shown(', '.join(types))}: no element type that we model"
    compute = record.get("compute_type", "f32_r")
    if "xf32" in compute or "fast" in compute:
        return f"compute_type {shown(compute)}: computed in another type than {dtype}"
    time_s = to_seconds(record["us"], PER_SECOND["us"])
    if time_s is None:
        return f"us {shown(record['us'])} must be a number above 0"
    shape = Shape(m=sizes["m"], n=sizes["n"], k=sizes["k"], batch=sizes["batch_count"], dtype=dtype)
    if GFLOPS in record:
        rate = to_number(record[GFLOPS])
        if rate is None:
            return f"{GFLOPS} {shown(record[GFLOPS])} must be a number"
        work = rate * 1e9 * time_s
        time_step_s = half_step(record["us"]) / PER_SECOND["us"]
        rounding = half_step(record[GFLOPS]) * 1e9 * time_s + time_step_s * rate * 1e9
        if abs(work - shape.flops) > TOLERANCE * shape.flops + rounding:
            return (
                f"{shape}: {rate:,.0f} Gflops in {record['us']} us are {work:.5g} FLOP, not "
                f"2 m n k = {shape.flops:.5g}: a value is damaged or cut off"
            )
    if reason := above_peak(shape, time_s, peaks):
        return reason
    clock_mhz = to_number(record.get(CLOCK, ""))
    return GemmPoint(
        m=shape.m,
        n=shape.n,
        k=shape.k,
        dtype=dtype,
        time_s=time_s,
        batch=shape.batch,
        accumulate=to_number(record.get("beta", "0")) != 0,
        op=record["transa"] + record["transb"],
        clock_hz=clock_mhz * 1e6 if clock_mhz else None,
        line=line,
    )

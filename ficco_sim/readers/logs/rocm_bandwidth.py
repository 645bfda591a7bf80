"""rocm-bandwidth-test: times of copies by size between two devices, and matrices of rates."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from ficco_sim.errors import FileError
from ficco_sim.readers.logs.cells import PER_SECOND, half_step, to_count, to_number, to_seconds
from ficco_sim.readers.logs.types import CopyPoint, Log, Notes
from ficco_sim.readers.text import lines_of, shown
from ficco_sim.units import GB, KIB, MIB

__all__ = ["is_rocm_bandwidth", "read_rocm_bandwidth"]

NAME = "RocmBandwidthTest Version"
VERSION = re.compile(rf"\s*{NAME}: (\S{{1,40}})")
DEVICE = re.compile(r"\s*Device: (\d{1,4}),  ?(.{0,120})\Z")
BUS_ID = re.compile(r"[0-9a-fA-F]{2,4}:[0-9a-fA-F]{1,2}\.\d\Z")  # printed of gpus only
# one version writes Bdirectional, old ones no direction above times by size
BANNER = re.compile(r"=+ +(?:(Unid|Bid|Bd)irectional )?Benchmark Result +=+\s*\Z")
END = re.compile(r"=+ (Src|Dst) Device Id: (\d{1,4}) (?:Src|Dst) Device Type: (Cpu|Gpu) =+\s*\Z")
TITLE = re.compile(r"\s*(Unid|Bid|Bd)irectional copy (?:peak|average) bandwidth GB/s\s*\Z")
COLUMNS = ("Data", "Size", "Avg", "Time(us)", "Avg", "BW(GB/s)", "Min", "Time(us)", "Peak", "BW(GB/s)")
UNITS = {"Bytes": 1, "B": 1, "KB": KIB, "MB": MIB, "GB": 2**30}
MAX_BYTES = 2**40
MAX_DEVICES = 1024
Direction = Literal["one-way", "two-way"]


@dataclass(slots=True, kw_only=True)
class Sizes:
    """A table of times by size: from one device to another, or both ways at once."""

    line: int
    direction: Direction
    ends: dict[str, tuple[str, str]] = field(default_factory=dict)
    begun: bool = False

    @property
    def between_gpus(self) -> bool:
        """Whether both ends are known and gpus, and not the same one."""
        kinds = [kind for _, kind in self.ends.values()]
        return kinds == ["Gpu", "Gpu"] and len({number for number, _ in self.ends.values()}) == 2


@dataclass(slots=True, kw_only=True)
class Matrix:
    """Rates between every two devices, hosts among them."""

    line: int
    direction: Direction
    columns: list[str] = field(default_factory=list)
    rows: list[tuple[int, list[str]]] = field(default_factory=list)


def is_rocm_bandwidth(text: str) -> bool:
    """Whether the tool names itself, or a heading of one of its tables is in the text."""
    return any(NAME in line or TITLE.match(line) or BANNER.match(line) for _, line in lines_of(text))


def read_rocm_bandwidth(text: str, where: str) -> Log:
    """Read copies between gpus; those from and to hosts are only counted.

    Devices keep the numbers that the tool gives them, in which hosts come first. Where it copies both
    ways at once it prints the sum of both rates, over the time in which both were done: each direction
    is given half of it.

    Raises
    ------
    FileError
        If there is no table of times or rates in it.
    """
    notes = Notes()
    notes.facts |= {"devices": {}, "gpus": [], "with_hosts": 0}
    gpus: set[str] = set()
    matrices: list[Matrix] = []
    table: Sizes | Matrix | None = None
    found = False
    for number, line in lines_of(text):
        if not line.strip():
            continue
        if banner := BANNER.match(line):
            table, found = Sizes(line=number, direction=_direction(banner.group(1))), True
        elif title := TITLE.match(line):
            table, found = Matrix(line=number, direction=_direction(title.group(1))), True
            matrices.append(table)
        elif version := VERSION.match(line):
            notes.facts["version"] = version.group(1)
        elif device := DEVICE.match(line):
            parts = [part.strip() for part in device.group(2).split(",")]
            notes.facts["devices"].setdefault(device.group(1), parts[0])
            if BUS_ID.match(parts[-1]):
                gpus.add(device.group(1))
        elif isinstance(table, Sizes):
            table = _sizes_line(table, number, line, notes)
        elif isinstance(table, Matrix):
            table = _matrix_line(table, number, line.split())
    if not found:
        raise FileError(f"{where}: no table of times or rates of copies in it")
    if not notes.facts["devices"]:
        gpus = {name for matrix in matrices for name in _copies_to_itself(matrix)}
    notes.facts["gpus"] = sorted(gpus, key=int)
    for matrix in matrices:
        _take(matrix, gpus, notes)
    if notes.points:
        notes.warn(
            "copied by DMA engines unless HSA_ENABLE_SDMA=0 or HSA_ENABLE_PEER_SDMA=0 was set, which "
            "is not printed"
        )
    else:
        notes.warn("no copies between gpus can be used: no calibration from this file")
    return notes.log("rocm_bandwidth")


def _direction(word: str | None) -> Direction:
    return "two-way" if word in ("Bid", "Bd") else "one-way"


def _sizes_line(table: Sizes, number: int, line: str, notes: Notes) -> Sizes | None:
    """Take a line below a banner; None after the last one of the table."""
    if end := END.match(line):
        table.ends[end.group(1)] = (end.group(2), end.group(3))
        return table
    words = line.split()
    if not table.begun:
        table.begun = tuple(words) == COLUMNS
        if not table.begun:
            notes.refuse(number, f"{shown(line.strip())} must be the columns {' '.join(COLUMNS)}")
        return table if table.begun else None
    if to_count(words[0]) is None:
        return None
    if not table.between_gpus:
        notes.facts["with_hosts"] += 1
        return table
    point = _size_point(table, number, words)
    if isinstance(point, str):
        notes.refuse(number, point)
    else:
        notes.points.append(point)
    return table


def _size_point(table: Sizes, number: int, words: Sequence[str]) -> CopyPoint | str:
    """The copy of a line, or why it is none."""
    if len(words) != 6:
        return f"{len(words)} words, not a size with its unit and four numbers: cut off?"
    count, unit = to_count(words[0]), UNITS.get(words[1])
    if not count or unit is None or count * unit > MAX_BYTES:
        return f"size {shown(' '.join(words[:2]))} must be above 0, in one of {', '.join(UNITS)}"
    time_s, rate = to_seconds(words[2], PER_SECOND["us"]), to_number(words[3])
    if time_s is None or rate is None:
        return f"time and rate {shown(' '.join(words[2:4]))} must be numbers, the time above 0"
    moved = count * unit * (2 if table.direction == "two-way" else 1)
    rounding = half_step(words[3]) * GB * time_s + rate * GB * half_step(words[2]) * 1e-6
    if abs(rate * GB * time_s - moved) > 1.01 * rounding:
        return (
            f"{words[3]} GB/s in {words[2]} us are {rate * GB * time_s:,.0f} bytes, not {moved:,}: "
            "a value is damaged, or the direction is another"
        )
    return CopyPoint(
        name=f"copy by size, {table.direction}",
        src=int(table.ends["Src"][0]),
        dst=int(table.ends["Dst"][0]),
        nbytes=count * unit,
        time_s=time_s,
        bytes_per_s=count * unit / time_s,
        direction=table.direction,
        engine="dma",
        line=number,
    )


def _matrix_line(matrix: Matrix, number: int, words: list[str]) -> Matrix | None:
    """Take a line below a title; None after the last one of the matrix."""
    if not matrix.columns:
        matrix.columns = words[1:] if words[0] == "D/D" else []
        return matrix if matrix.columns else None
    if len(matrix.rows) == len(matrix.columns) or to_count(words[0]) is None:
        return None
    matrix.rows.append((number, words))
    return matrix


def _copies_to_itself(matrix: Matrix) -> list[str]:
    """Devices that copy within their own memory: gpus do, hosts do not."""
    return [
        words[0]
        for i, (_, words) in enumerate(matrix.rows)
        if matrix.direction == "one-way" and len(words) > i + 1 and to_number(words[i + 1])
    ]


def _take(matrix: Matrix, gpus: set[str], notes: Notes) -> None:
    names, labels = matrix.columns, [words[0] for _, words in matrix.rows]
    if len(set(names)) < len(names) or len(names) > MAX_DEVICES:
        notes.refuse(matrix.line, f"{len(names)} columns, some twice or more than {MAX_DEVICES}")
        return
    if labels != names:
        listed = shown(" ".join(labels))
        notes.refuse(matrix.line, f"rows {listed} must be those of the {len(names)} columns: cut off?")
        return
    decimals = set()
    for number, words in matrix.rows:
        cells = words[1:]
        if len(cells) != len(names):
            notes.refuse(number, f"row {words[0]} has {len(cells)} values for {len(names)} columns")
            return
        for cell in cells:
            if cell != "N/A" and to_number(cell) is None:
                notes.refuse(number, f"row {words[0]}: {shown(cell)} must be a number or N/A")
                return
            if cell != "N/A":
                decimals.add(half_step(cell))
    if len(decimals) > 1:  # the tool prints all with the same number
        notes.refuse(
            matrix.line, "rates with different numbers of decimals: a value is damaged or cut off"
        )
        return
    if matrix.direction == "two-way" and not gpus:
        notes.refuse(matrix.line, "which devices are gpus is not told: the list of devices is missing")
        return
    share = 0.5 if matrix.direction == "two-way" else 1.0
    for number, (src, *cells) in matrix.rows:
        for dst, cell in zip(names, cells, strict=True):
            rate = to_number(cell) or 0.0
            if src == dst or not rate:
                continue
            if not {src, dst} <= gpus:
                notes.facts["with_hosts"] += 1
                continue
            notes.points.append(
                CopyPoint(
                    name=f"largest copy, {matrix.direction}",
                    src=int(src),
                    dst=int(dst),
                    bytes_per_s=rate * GB * share,
                    direction=matrix.direction,
                    engine="dma",
                    line=number,
                )
            )

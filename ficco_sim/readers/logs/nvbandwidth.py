"""nvbandwidth, as text and as JSON (``-j``): rates of copies between each two gpus."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ficco_sim import io
from ficco_sim.errors import FileError
from ficco_sim.readers.logs.cells import half_step, to_count, to_number
from ficco_sim.readers.logs.types import CopyPoint, Engine, Log, Notes
from ficco_sim.readers.text import lines_of, shown
from ficco_sim.units import GB

__all__ = ["is_nvbandwidth", "read_nvbandwidth"]

# JSON calls the rows of two-way copies between gpus CPU; the name of the test tells better
TITLE = re.compile(
    r"\s*memcpy (CE|SM) [CG]PU\(row\) (<->|->|<-) GPU\(column\)"
    r"(?: (Read|Write) ?([12])| (Total))? bandwidth \(GB/s\)\s*\Z"
)
ANY_TITLE = re.compile(r"\s*mem(?:cpy|ory)\b.*\((?:row|column)\)")
RUNNING = re.compile(r"Running (\w{1,80})\.?\s*\Z")
WAIVING = re.compile(r"Waiving (\w{1,80})\.?\s*\Z")
SUM = re.compile(r"SUM (\w{1,90}) (\S{1,40})\s*\Z")
DEVICE = re.compile(r"Device (\d{1,4}): (.{1,80}) \([0-9a-fA-F:.]+\)\s*\Z")
BETWEEN_GPUS = "device_to_device_"
PARTS = ("Read1", "Read2", "Total")  # stacked under each other in JSON
ENGINES: dict[str, Engine] = {"CE": "dma", "SM": "core"}
MAX_GPUS = 1024


@dataclass(slots=True, kw_only=True)
class Table:
    """A printed matrix.

    Parameters
    ----------
    name
        Of the test, "" if not printed.
    rows
        Line, label and cells of each.
    total
        The sum of all cells as printed.
    digits
        Significant ones of each cell; None: two after the point.
    """

    line: int
    name: str
    title: str
    columns: list[str] = field(default_factory=list)
    rows: list[tuple[int, str, list[str]]] = field(default_factory=list)
    total: tuple[int, str] | None = None
    digits: int | None = None


def is_nvbandwidth(text: str) -> bool:
    """Whether the tool names itself, or a title of one of its tables is in the text."""
    if text.lstrip()[:1] == "{":
        return '"nvbandwidth"' in text[:4096]
    return any("nvbandwidth Version" in line or TITLE.match(line) for _, line in lines_of(text))


def read_nvbandwidth(text: str, where: str) -> Log:
    """Read the tables of copies between gpus; others are only named.

    Raises
    ------
    FileError
        Naming file, line, value and rule.
    """
    notes = Notes()
    notes.facts |= {"tests": [], "waived": [], "not_read": [], "no_peer_access": [], "gpus": {}}
    is_json = text.lstrip()[:1] == "{"
    tables = list(_from_json(text, where, notes) if is_json else _from_text(text, notes))
    if not tables and not notes.facts["waived"]:
        raise FileError(f"{where}: no table of bandwidths and no waived test in it")
    for table in tables:
        _take(table, notes)
    if not notes.points:
        notes.warn("no table of copies between gpus can be used: no calibration from this file")
    return notes.log("nvbandwidth")


def _from_text(text: str, notes: Notes) -> Iterator[Table]:
    table: Table | None = None
    name = ""
    for number, line in lines_of(text):
        words = line.split()
        if not words:
            continue
        running, waiving = RUNNING.match(line), WAIVING.match(line)
        if running or waiving or ANY_TITLE.match(line) or line.startswith(("Waived:", "NOTE:")):
            if table:
                yield table
            table = None
        if running:
            name = running.group(1)
        elif waiving or line.startswith("Waived:"):
            _waive(waiving.group(1) if waiving else name, notes)
        elif ANY_TITLE.match(line):
            table = Table(line=number, name=name, title=line.strip())
        elif total := SUM.match(line):
            if table:
                table.total = (number, total.group(2))
                _name_by_sum(table, number, total.group(1), notes)
                yield table
            table = None
        elif device := DEVICE.match(line):
            notes.facts["gpus"][device.group(1)] = device.group(2)
        elif line.lstrip().startswith(("ERROR", "Error")):
            notes.warn(f"line {number}: {shown(line.strip())}")
        elif table and not table.columns:
            table.columns = words
        elif table and to_count(words[0]) is not None:
            table.rows.append((number, words[0], words[1:]))
    if table:
        yield table


def _name_by_sum(table: Table, line: int, key: str, notes: Notes) -> None:
    """The line of the sum repeats the test's name, with the part of a two-way test after it."""
    if not table.name:
        table.name = key
    elif not key.startswith(table.name):
        notes.warn(f"line {line}: the sum is of {key}, the table above of {table.name}")
        table.name = key


def _from_json(text: str, where: str, notes: Notes) -> Iterator[Table]:
    document = io.parse_json(text, where)
    root = document.get("nvbandwidth") if isinstance(document, dict) else None
    cases = root.get("testcases") if isinstance(root, dict) else None
    if not isinstance(root, dict) or not isinstance(cases, list):
        raise FileError(f"{where}: nvbandwidth.testcases: must be a list")
    for key in ("error", "warning"):
        if key in root:
            notes.warn(f"nvbandwidth.{key}: {shown(root[key])}")
    for i, case in enumerate(cases):
        key = f"{where}: nvbandwidth.testcases[{i}]"
        if not isinstance(case, dict) or not isinstance(case.get("name"), str):
            raise FileError(f"{key}: must be a mapping with a name")
        name, status = case["name"][:90], case.get("status")
        line = text.count("\n", 0, max(text.find(f'"{name}"'), 0)) + 1
        if status != "Passed":
            if status == "Waived":
                _waive(name, notes)
            else:
                notes.refuse(line, f"{name}: status {shown(status)}")
            continue
        yield from _stacked(case, name, line, key)


def _stacked(case: Mapping[str, Any], name: str, line: int, key: str) -> Iterator[Table]:
    """The matrices of a test; the three of a two-way test are one list, under the last one's title."""
    matrix, title = case.get("bandwidth_matrix"), case.get("bandwidth_description")
    if not isinstance(title, str) or not isinstance(matrix, list) or not matrix:
        raise FileError(f"{key}: bandwidth_matrix and bandwidth_description are needed")
    rows: list[list[str]] = []
    for row in matrix:
        if not isinstance(row, list):
            raise FileError(f"{key}: bandwidth_matrix: must be a list of lists")
        rows.append([str(cell)[:40] for cell in row if isinstance(cell, (str, int, float))])
    width = len(rows[0])
    parts = PARTS if len(rows) == 3 * width and "<->" in title else ("",)
    height = len(rows) // len(parts)
    total = case.get("sum")
    for i, part in enumerate(parts):
        last = i == len(parts) - 1
        yield Table(
            line=line,
            name=name,
            title=title.replace(" Total", f" {part}") if part else title,
            columns=[str(column) for column in range(width)],
            rows=[(line, str(j), row) for j, row in enumerate(rows[i * height : (i + 1) * height])],
            total=(line, str(total)) if last and isinstance(total, (int, float)) else None,
            digits=6,
        )


def _waive(name: str, notes: Notes) -> None:
    notes.facts["waived"].append(name)
    notes.warn(f"test {name or '(not named)'} was waived by the tool: not measured")


def _take(table: Table, notes: Notes) -> None:
    match = TITLE.match(table.title)
    between = table.name.startswith(BETWEEN_GPUS) or (not table.name and " GPU(row)" in table.title)
    if match is None or not between:
        notes.facts["not_read"].append(table.name or table.title)
        return
    engine, arrow, part = ENGINES[match.group(1)], match.group(2), match.group(4)
    cells = _cells(table, notes)
    if cells is None:
        return
    if match.group(5):  # the sum of both directions, which no link has
        return
    name = f"{table.name} {match.group(3)}{part}".strip() if part else table.name
    notes.facts["tests"].append(name)
    if (arrow == "<->") != (part is not None):
        notes.refuse(table.line, f"{name}: {shown(table.title)} does not tell which direction it is")
        return
    for (row, column), (line, rate) in cells.items():
        # the second of the two copies goes the other way
        backwards = arrow == "<-" or part == "2"
        notes.points.append(
            CopyPoint(
                name=name,
                src=column if backwards else row,
                dst=row if backwards else column,
                bytes_per_s=rate,
                direction="one-way" if part is None else "two-way",
                engine=engine,
                line=line,
            )
        )


def _cells(table: Table, notes: Notes) -> dict[tuple[int, int], tuple[int, float]] | None:
    """Line and bytes/s of each pair that was measured; None if the table is refused."""
    num_gpus = len(table.columns)
    labels = [str(i) for i in range(num_gpus)]
    title = table.name or table.title
    if table.columns != labels or not 0 < num_gpus <= MAX_GPUS:
        shown_columns = shown(" ".join(table.columns))
        notes.refuse(table.line, f"{title}: columns {shown_columns} must be 0, 1, 2 and so on")
        return None
    if [label for _, label, _ in table.rows] != labels:
        shown_rows = shown(" ".join(label for _, label, _ in table.rows))
        notes.refuse(
            table.line,
            f"{title}: rows {shown_rows} must be those of the {num_gpus} columns: cut off?",
        )
        return None
    cells: dict[tuple[int, int], tuple[int, float]] = {}
    apart: list[list[int]] = []
    slack = 0.006
    for i, (line, _, row) in enumerate(table.rows):
        if len(row) != num_gpus:
            notes.refuse(line, f"{title}: row {i} has {len(row)} values for {num_gpus} columns")
            return None
        for j, text in enumerate(row):
            value = to_number(text)
            if value is None and text != "N/A":
                notes.refuse(line, f"{title}: {i} to {j}: {shown(text)} must be a number or N/A")
                return None
            if not value:
                if i != j:
                    apart.append([i, j])
                continue
            slack += half_step(text) if table.digits is None else value * 10.0 ** (1 - table.digits)
            if i != j:
                cells[i, j] = (line, value * GB)
    if reason := _wrong_sum(table, [row for _, _, row in table.rows], slack, notes):
        notes.refuse(table.line, f"{title}: {reason}")
        return None
    if apart:
        notes.facts["no_peer_access"].append({"test": title, "pairs": apart})
        notes.warn(f"{title}: {len(apart)} directed pairs without a value: no peer access")
    return cells


def _wrong_sum(table: Table, rows: Sequence[Sequence[str]], slack: float, notes: Notes) -> str | None:
    total = to_number(table.total[1]) if table.total else None
    if total is None:
        if table.digits is None:
            notes.warn(f"line {table.line}: {table.name or table.title}: no sum after it: cut off?")
        return None
    found = sum(to_number(text) or 0.0 for row in rows for text in row)
    if abs(found - total) <= slack:
        return None
    return f"values add up to {found:.2f}, the sum says {total:.2f}: a value is damaged"

"""Tables of a page, as rows of cells, and as Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass

from ficco_sim.comparison import Comparison, best_of_each
from ficco_sim.machine import Machine
from ficco_sim.pages.figures import time_unit
from ficco_sim.pages.subject import Subject
from ficco_sim.sensitivity import WhatIf
from ficco_sim.units import MS

__all__ = [
    "Cell",
    "Table",
    "absent_cell",
    "markdown",
    "number_cell",
    "results_cells",
    "sources_table",
    "tables_markdown",
    "text_cell",
    "what_if_cells",
]

KINDS_OF_SOURCE = ("measured", "stated", "derived", "estimated", "emulated")


@dataclass(frozen=True, slots=True)
class Cell:
    """What a cell shows and what it sorts by."""

    text: str
    key: str | float
    numeric: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table with units in its headers; ``marked`` says which rows stand out."""

    name: str
    heading: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    marked: int | None = None


def results_cells(comparison: Comparison, *, every: bool = True) -> Table:
    """A row per schedule and knobs, best first."""
    rows = comparison.results if every else best_of_each(comparison.results)
    unit_s, unit = time_unit(comparison.results[-1].makespan_s)
    cells: list[tuple[Cell, ...]] = []
    for row in rows:
        spread = ""
        if row.interval_s is not None:
            low, high = (end_s / unit_s for end_s in row.interval_s)
            spread = f"{low:.4g} to {high:.4g}"
        share = row.fraction_of_ideal
        close = "too close to call" if row.too_close else ""
        cells.append(
            (
                text_cell(row.schedule),
                number_cell(row.num_chunks, "d"),
                number_cell(row.compute_queues, "d"),
                number_cell(row.speedup, ".2f"),
                number_cell(row.makespan_s / unit_s, ".4g"),
                Cell(spread, row.interval_s[0] if row.interval_s else float("inf"), numeric=True),
                absent_cell() if share is None else number_cell(share * 100, ".0f"),
                text_cell(row.cause),
                number_cell(row.exposed_comm_s / unit_s, ".3g"),
                number_cell(row.gemm_dil, ".2f"),
                number_cell(row.comm_dil, ".2f"),
                number_cell(row.gemm_cil, ".2f"),
                number_cell(row.comm_cil, ".2f"),
                text_cell(row.engine),
                text_cell(", ".join([*row.labels, *([close] if close else [])])),
            )
        )
    spreads = f"10-90 % [{unit}]"
    columns: tuple[str, ...] = (
        "schedule", "chunks", "queues", "speed-up [x]", f"makespan [{unit}]", spreads,
        "of ideal [%]", "held back by", f"exposed [{unit}]", "DIL GEMM [x]", "DIL comm [x]",
        "CIL GEMM [x]", "CIL comm [x]", "engine", "labels",
    )  # fmt: skip
    if all(row.interval_s is None for row in rows):
        at = columns.index(spreads)
        columns = (*columns[:at], *columns[at + 1 :])
        cells = [(*row[:at], *row[at + 1 :]) for row in cells]
    return Table(name="results", heading="Results", columns=columns, rows=tuple(cells), marked=0)


def what_if_cells(rows: Sequence[WhatIf]) -> Table:
    """A row per change of the machine."""
    cells = tuple(
        (
            text_cell(row.change if row.factor == 1 else f"{row.change} x{row.factor:g}"),
            text_cell(row.schedule),
            number_cell(row.num_chunks, "d"),
            number_cell(row.compute_queues, "d"),
            number_cell(row.makespan_s / MS, ".4g"),
            number_cell(row.speedup, ".2f"),
            number_cell(row.serial_s / row.ideal_s, ".2f"),
            number_cell(row.gain, ".2f"),
        )
        for row in rows
    )
    columns = (
        "change", "best schedule", "chunks", "queues", "makespan [ms]",
        "speed-up over serial there [x]", "ideal there [x]", "faster than as it is [x]",
    )  # fmt: skip
    return Table(
        name="sensitivity", heading="What if the machine were faster?", columns=columns, rows=cells
    )


def sources_table(machine: Machine) -> Table:
    """Where each number of the machine is from, with its label."""
    rows = []
    for key, text in machine.sources.items():
        label, _, rest = text.partition(":")
        known = label in KINDS_OF_SOURCE
        rows.append(
            (
                text_cell(key),
                text_cell(label if known else ""),
                text_cell(rest.strip() if known else text),
            )
        )
    return Table(
        name="sources",
        heading="Where the machine's numbers are from",
        columns=("number", "label", "source"),
        rows=tuple(rows),
    )


def tables_markdown(subject: Subject) -> str:
    """All tables of a comparison's page, and its verdict, as Markdown."""
    comparison = subject.comparison
    tables = [results_cells(comparison)]
    if subject.what_ifs:
        tables.append(what_if_cells(subject.what_ifs))
    if subject.machine is not None:
        tables.append(sources_table(subject.machine))
    title = f"{comparison.workload} on {comparison.machine}"
    return markdown(title, comparison.verdict, comparison.remarks, tables)


def markdown(title: str, verdict: str, remarks: Sequence[str], tables: Sequence[Table]) -> str:
    """A title, a verdict, remarks and tables as Markdown; every name is shown as it is."""
    lines = [f"# {_escape(title)}", "", _escape(verdict), ""]
    lines += [f"- {_escape(remark)}" for remark in remarks]
    for table in tables:
        lines += ["", f"## {_escape(table.heading)}", "", _line([_escape(c) for c in table.columns])]
        lines.append(
            _line(["--:" if table.rows and cell.numeric else "---" for cell in table.rows[0]])
            if table.rows
            else _line(["---"] * len(table.columns))
        )
        lines += [_line([_escape(cell.text) for cell in row]) for row in table.rows]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape(text: str) -> str:
    """Text that Markdown shows as it is, in one line."""
    text = " ".join(text.split())
    for old, new in (("\\", "\\\\"), ("|", "\\|"), ("<", "&lt;"), ("*", "\\*"), ("`", "\\`")):
        text = text.replace(old, new)
    return text


def text_cell(text: str) -> Cell:
    """A cell of words."""
    return Cell(text, text)


def number_cell(value: float, form: str) -> Cell:
    """A cell of a number in a format."""
    return Cell(format(value, form), value, numeric=True)


def absent_cell() -> Cell:
    """A cell of a number that there is none of; it sorts below all."""
    return Cell("-", -1e9, numeric=True)

"""Figures and tables of a page as files."""

from collections.abc import Sequence
from pathlib import Path

from ficco_sim.errors import FileError
from ficco_sim.io import check_target, write_bytes, write_text
from ficco_sim.pages.document import Document, document_markdown
from ficco_sim.pages.figures import Drawing, comparison_figures
from ficco_sim.pages.style import to_png, to_svg
from ficco_sim.pages.subject import Subject
from ficco_sim.pages.tables import tables_markdown
from ficco_sim.report import plot_timeline

__all__ = ["check_folder", "write_figures"]

TABLES = "tables.md"


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written to, before the work that would fill it.

    Raises
    ------
    FileError
        If it is a file, or neither there nor in a folder that is, or not writable.
    """
    if folder.exists() and not folder.is_dir():
        raise FileError(f"{folder}: is a file, not a folder")
    check_target(folder / TABLES if folder.is_dir() else folder)


def write_figures(subject: Subject | Document, folder: Path) -> list[Path]:
    """Write every figure as PNG and SVG, and the tables as Markdown.

    The folder is made if it is not there.

    Returns
    -------
    list of Path
        The files written.

    Raises
    ------
    FileError
        See `check_folder`.
    """
    check_folder(folder)
    folder.mkdir(exist_ok=True)
    if isinstance(subject, Document):
        written = _write_drawings(subject.drawings, folder)
        text = document_markdown(subject)
    else:
        written = _write_drawings(comparison_figures(subject), folder)
        written += _write_timelines(subject, folder)
        text = tables_markdown(subject)
    path = folder / TABLES
    write_text(path, text)
    return [*written, path]


def _write_drawings(drawings: Sequence[Drawing], folder: Path) -> list[Path]:
    written = []
    for drawing in drawings:
        for suffix, save in (("png", to_png), ("svg", to_svg)):
            path = folder / f"{drawing.name}.{suffix}"
            write_bytes(path, save(drawing.figure))
            written.append(path)
    return written


def _write_timelines(subject: Subject, folder: Path) -> list[Path]:
    comparison = subject.comparison
    marks = {"serial": comparison.serial_s, "ideal": comparison.ideal_s}
    written = []
    for plan, trace in subject.runs:
        for suffix in ("png", "svg"):
            path = folder / f"timeline-{plan.schedule}.{suffix}"
            plot_timeline(plan, trace, path, marks=marks)
            written.append(path)
    return written

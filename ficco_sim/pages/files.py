"""Figures and tables of a page as files."""

from pathlib import Path

from ficco_sim.errors import FileError
from ficco_sim.io import check_target, write_bytes, write_text
from ficco_sim.pages.figures import comparison_figures
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


def write_figures(subject: Subject, folder: Path) -> list[Path]:
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
    written = []
    for drawing in comparison_figures(subject):
        for suffix, save in (("png", to_png), ("svg", to_svg)):
            path = folder / f"{drawing.name}.{suffix}"
            write_bytes(path, save(drawing.figure))
            written.append(path)
    comparison = subject.comparison
    marks = {"serial": comparison.serial_s, "ideal": comparison.ideal_s}
    for plan, trace in subject.runs:
        for suffix in ("png", "svg"):
            path = folder / f"timeline-{plan.schedule}.{suffix}"
            plot_timeline(plan, trace, path, marks=marks)
            written.append(path)
    path = folder / TABLES
    write_text(path, tables_markdown(subject))
    return [*written, path]

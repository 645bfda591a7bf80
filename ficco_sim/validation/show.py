"""A validation for people: sentences, tables, a CSV file and a picture."""

import csv
import io as text_io
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from ficco_sim.io import write_bytes
from ficco_sim.report import check_picture
from ficco_sim.schedules import FICCO
from ficco_sim.trace_parts import PARTS
from ficco_sim.units import MS, format_seconds
from ficco_sim.validation.rows import PlanRow
from ficco_sim.validation.run import Validation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table

__all__ = [
    "PART_TITLES",
    "TABLE_WIDTH",
    "draw_agreement",
    "plot_validation",
    "rows_csv",
    "summary_lines",
    "tables",
]

TABLE_WIDTH = 180  # characters of `tables` with long names

PART_TITLES = {
    "gemm": "GEMM",
    "local_copy": "local copy",
    "transfer": "exposed copy",
    "waiting": "launch",
}
"""What the parts of a makespan are called in tables."""

# Okabe and Ito's colours, and a marker each, so that the picture also works in grey
FAMILIES = {
    "serial": ("serial", "#000000", "X"),
    "shard": ("shard-level", "#009E73", "D"),
    "fused": ("fused", "#0072B2", "o"),
    "unfused": ("unfused", "#E69F00", "^"),
    "batched": ("batched", "#CC79A7", "s"),
    "other": ("other", "#56B4E9", "v"),
}
BANDS = (0.1, 0.05)  # the wider one is drawn first

COLUMNS = (
    "workload", "m", "n", "k", "dtype", "schedule", "num_chunks", "compute_queues", "copy_queues",
    "engine", "num_samples", "measured_s", "simulated_s", "error", "instrumented_s",
)  # fmt: skip


def summary_lines(found: Validation) -> list[str]:
    """What was compared and how far it agrees, a sentence a line."""
    s = found.summary
    how = "each workload held out of the fit" if found.held_out else "nothing held out"
    lines = [
        f"{s.num_plans} plans of {s.num_workloads} workloads, map {found.emulates}, engine "
        f"{found.engine}, submission {found.submission}; simulated on {found.machine} (costs "
        f"{found.costs}), {how}",
        f"makespans: mean error {s.mean_abs_error:.1%}, median {s.median_abs_error:.1%}, 90 % within "
        f"{s.p90_abs_error:.1%}, worst {s.max_abs_error:.1%}, bias {s.bias:+.1%}",
        f"simulated winner: the measured one in {s.agreement:.0%} of workloads, within 1 % of it in "
        f"{s.agreement_within_noise:.0%}; regret {s.mean_regret:.2%} on average, "
        f"{s.max_regret:.1%} at most{_serial(s.mean_serial_regret)}",
    ]
    if s.rank_correlation is not None and s.kendall is not None:
        lines.append(
            f"rank correlation: Spearman {s.rank_correlation:.3f} on average, "
            f"{s.min_rank_correlation:.3f} at least; Kendall {s.kendall:.3f}"
        )
    return lines


def _serial(regret: float | None) -> str:
    return "" if regret is None else f" (always serial: {regret:.1%})"


def tables(found: Validation) -> "list[Table]":
    """Tables by workload and by schedule, and of the worst plans."""
    return [_workloads(found), _schedules(found), _worst(found)]


def _workloads(found: Validation) -> "Table":
    table = _table(
        "by workload", ["workload", "measured winner", "simulated winner"],
        ["plans", "mean", "median", "bias", "regret", "Spearman", "Kendall", "serial"],
    )  # fmt: skip
    for row in found.workloads:
        tied = f" (of {row.num_tied})" if row.num_tied > 1 else ""
        table.add_row(
            row.workload,
            row.measured_best,
            "the same" if row.agreement == 1 else row.simulated_best + tied,
            str(row.num_plans),
            f"{row.mean_abs_error:.1%}",
            f"{row.median_abs_error:.1%}",
            f"{row.bias:+.1%}",
            f"{row.regret:.1%}",
            _number(row.spearman),
            _number(row.kendall),
            "-" if row.serial_error is None else f"{row.serial_error:+.1%}",
        )
    return table


def _schedules(found: Validation) -> "Table":
    table = _table(
        "by schedule; the bias arises in",
        ["schedule"],
        ["plans", "mean", "p90", "bias", *PART_TITLES.values()],
    )
    for row in found.schedules:
        table.add_row(
            row.schedule,
            str(row.num_plans),
            f"{row.mean_abs_error:.1%}",
            f"{row.p90_abs_error:.1%}",
            f"{row.bias:+.1%}",
            *(f"{row.part_errors[p]:+.1%}" if row.part_errors else "-" for p in PARTS),
        )
    return table


def _worst(found: Validation) -> "Table":
    table = _table(
        "largest errors; they arise in",
        ["workload", "plan"],
        ["measured", "simulated", "error", *PART_TITLES.values()],
    )
    for row in found.worst:
        errors = {part.name: f"{part.error:+.1%}" for part in row.parts}
        table.add_row(
            row.workload,
            row.title,
            format_seconds(row.measured_s),
            format_seconds(row.simulated_s),
            f"{row.error:+.1%}",
            *(errors.get(p, "-") for p in PARTS),
        )
    return table


def _table(title: str, texts: Sequence[str], numbers: Sequence[str]) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for name in texts:
        table.add_column(name, no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def rows_csv(found: Validation) -> str:
    """A line per plan; columns ``error_in_gemm`` and so on are the parts of the error."""
    text = text_io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*COLUMNS, *(f"error_in_{name}" for name in PARTS)])
    for row in found.rows:
        errors = {part.name: part.error for part in row.parts}
        writer.writerow(
            [*(_cell(getattr(row, c)) for c in COLUMNS), *(_cell(errors.get(p)) for p in PARTS)]
        )
    return text.getvalue()


def _cell(value: str | float | None) -> str:
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)


def plot_validation(found: Validation, path: Path) -> None:
    """Draw simulated against measured makespans, both logarithmic, a mark per plan.

    Parameters
    ----------
    path
        A .png, .svg or .pdf file, written whole or not at all.

    Raises
    ------
    FileError
        If the suffix is another or the file cannot be written.
    """
    suffix = check_picture(path)
    import matplotlib as mpl
    from matplotlib.figure import Figure

    s = found.summary
    with mpl.rc_context({"svg.hashsalt": "ficco"}):
        figure = Figure(figsize=(7.5, 7), layout="constrained")
        axes = figure.add_subplot()
        draw_agreement(axes, found.rows)
        axes.set_xlabel("measured makespan [ms]")
        axes.set_ylabel("simulated makespan [ms]")
        axes.grid(visible=True, which="major", color="#DDDDDD", linewidth=0.6)
        axes.legend(loc="upper left", fontsize=8)
        emulated = "; emulated" if found.labels else ""
        figure.suptitle(
            f"{s.num_plans} plans, map {found.emulates}, engine {found.engine}; simulated on "
            f"{found.machine}{emulated}",
            fontsize=10,
            x=0.01,
            ha="left",
        )
        how = "each workload held out" if found.held_out else "nothing held out"
        axes.set_title(
            f"mean error {s.mean_abs_error:.1%}, 90 % within {s.p90_abs_error:.1%}, worst "
            f"{s.max_abs_error:.1%}; {how}",
            fontsize=8,
            color="#444444",
            loc="left",
        )
        buffer = BytesIO()
        metadata = {"Date": None} if suffix == "svg" else {}
        figure.savefig(buffer, format=suffix, dpi=110, metadata=metadata)
    write_bytes(path, buffer.getvalue())


def draw_agreement(
    axes: "Axes", rows: Sequence[PlanRow], *, rasterized: bool = False
) -> dict[str, list[PlanRow]]:
    """Draw simulated against measured makespans in ms, both logarithmic, on bands of 5 and 10 %.

    Returns
    -------
    dict
        The plans of each kind of mark in the order drawn, by the ``gid`` of its collection.
    """
    _draw_bands(axes, rows)
    drawn: dict[str, list[PlanRow]] = {}
    for family, (label, colour, marker) in FAMILIES.items():
        some = [row for row in rows if _family(row) == family]
        if not some:
            continue
        drawn[family] = some
        axes.scatter(
            [row.measured_s / MS for row in some],
            [row.simulated_s / MS for row in some],
            s=22,
            color=colour,
            marker=marker,
            alpha=0.7,
            linewidths=0,
            label=f"{label} ({len(some)})",
            gid=family,
            rasterized=rasterized,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_aspect("equal")
    return drawn


def _draw_bands(axes: "Axes", rows: Sequence[PlanRow]) -> None:
    """The line of equal times, and bands around it."""
    times = [t / MS for row in rows for t in (row.measured_s, row.simulated_s)]
    ends = [min(times) / 1.2, max(times) * 1.2]
    for band, shade in zip(BANDS, ("#ECECEC", "#D6D6D6"), strict=True):
        axes.fill_between(
            ends,
            [t * (1 - band) for t in ends],
            [t * (1 + band) for t in ends],
            color=shade,
            linewidth=0,
            label=f"within {band:.0%}",
        )
    axes.plot(ends, ends, color="#555555", linewidth=1, label="equal")
    axes.set_xlim(*ends)
    axes.set_ylim(*ends)


def _family(row: PlanRow) -> str:
    if row.schedule in FICCO:
        return row.schedule.split("-")[1]
    name = row.schedule.split("-")[0]
    return name if name in FAMILIES else "other"

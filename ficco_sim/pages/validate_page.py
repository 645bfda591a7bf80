"""The page of a validation: how far to trust the simulator here, and where it is wrong."""

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ficco_sim.pages.document import MAX_ROWS, Document, Section, card
from ficco_sim.pages.figures import FRAME_INCHES, ROW_INCHES, Drawing
from ficco_sim.pages.order import LIKELY, Order, order_of_pairs, sure_from
from ficco_sim.pages.style import BAD, GOOD, INK, MUTED, new_figure
from ficco_sim.pages.tables import Cell, Table, absent_cell, number_cell, text_cell
from ficco_sim.pages.words import sentence, short
from ficco_sim.trace_parts import PARTS
from ficco_sim.units import MS, format_seconds
from ficco_sim.validation import PlanRow, Validation
from ficco_sim.validation.show import PART_TITLES, draw_agreement

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["validate_document"]

MAX_TIPS = 2000  # plans up to which each mark says what it is
MAX_BARS = 40  # workloads that are drawn; the table has all
PART_STYLES = {
    "gemm": ("#0072B2", ""),
    "local_copy": ("#009E73", "..."),
    "transfer": ("#CC79A7", "xxx"),
    "waiting": ("#E69F00", "///"),
}
PART_WORDS = {
    "gemm": "GEMMs",
    "local_copy": "copies within a gpu",
    "transfer": "waiting for copies between gpus",
    "waiting": "launches and waits between queues",
}
GLOSSARY = (
    ("plan", "a schedule with its knobs for one workload: c chunks, q compute queues, in 1: all copies "
     "on one queue"),
    ("error", "simulated makespan / measured makespan - 1; positive: the simulator is too slow"),
    ("bias", "mean of the errors with their signs"),
    ("regret", "measured time of the plan that the simulator picks / that of the best measured - 1"),
    ("within noise", "the picked plan loses less than 1 % against the best measured one"),
    ("Spearman, Kendall", "rank correlations of measured and simulated times of a workload's plans; 1 "
     "is the same order"),
    ("GEMM, local copy, exposed copy, launch", "what the gpu that ends last does: a GEMM; else a copy "
     "within the gpu; else it waits for a copy in progress; else nothing is in progress. The errors of "
     "these parts add up to the plan's"),
    ("held out", "the profile was fitted without the workload that it is judged on"),
    ("emulated", "stands for something that was not run"),
)  # fmt: skip


def validate_document(found: Validation, *, name: str, command: str) -> Document:
    """The page of a validation.

    Parameters
    ----------
    name
        Of the file, without folders.
    command
        The command line that makes the page.
    """
    s = found.summary
    orders = order_of_pairs(found.rows)
    held = "each workload held out of the fit" if found.held_out else "nothing held out of the fit"
    emulated = "; emulated, see below" if found.labels else ""
    return Document(
        kind="simulated against measured plans",
        title=f"{found.machine}, map {found.emulates}, engine {found.engine}: {name}",
        verdict=f"{s.num_plans} measured plans of {s.num_workloads} workloads: simulated makespans are "
        f"off by {s.mean_abs_error:.1%} on average (90 % within {s.p90_abs_error:.1%}, worst "
        f"{s.max_abs_error:.0%}). The plan that the simulator picks loses {s.mean_regret:.1%} on "
        f"average to the best measured one, {s.max_regret:.1%} at most ({held}{emulated}).",
        cards=_cards(found, orders),
        remarks=tuple(f"{sentence(text)}." for text in (*found.labels, *found.remarks)),
        sections=tuple(_sections(found, orders)),
        facts=(
            ("measured", f"map {found.emulates}, engine {found.engine}, submission {found.submission}; "
             f"medians of {sum(row.num_samples for row in found.rows)} runs"),
            ("simulated", f"machine {found.machine}, costs {found.costs}, {held}"),
            ("labels", "; ".join(found.labels) or "measured, nothing emulated"),
        ),
        glossary=GLOSSARY,
        command=command,
    )  # fmt: skip


def _cards(found: Validation, orders: Sequence[Order]) -> tuple[dict[str, str], ...]:
    s = found.summary
    serial = (
        "" if s.mean_serial_regret is None else f" Always serial would lose {s.mean_serial_regret:.1%}."
    )
    cards = [
        card(
            "Times",
            f"off by {s.mean_abs_error:.1%}",
            f"Mean error; median {s.median_abs_error:.1%}, 90 % of plans within "
            f"{s.p90_abs_error:.1%}, worst {s.max_abs_error:.0%}; bias {s.bias:+.1%}.",
        ),
        card(
            "Choice",
            f"loses {s.mean_regret:.1%}",
            f"What the simulated winner loses to the measured one, {s.max_regret:.1%} at most. It is "
            f"the same in {s.agreement:.0%} of workloads, within 1 % of it in "
            f"{s.agreement_within_noise:.0%}.{serial}",
        ),
    ]
    sure = sure_from(orders)
    rank = "" if s.rank_correlation is None else f" Spearman {s.rank_correlation:.2f} on average"
    low = "" if s.min_rank_correlation is None else f", {s.min_rank_correlation:.2f} at least."
    if orders:
        cards.append(
            card(
                "Differences to believe",
                "none" if sure is None else f"from {sure:.0%} up" if sure else "all",
                f"Simulated differences between two plans of a workload whose sign was right in at "
                f"least {LIKELY:.0%} of pairs; read smaller ones as ties.{rank}{low}",
            )
        )
    cut = [row for row in found.rows if row.parts]
    if cut:
        sizes = {
            name: statistics.fmean(abs(e) for row in cut for n, e in _errors(row).items() if n == name)
            for name in PARTS
        }
        most = max(sizes, key=lambda name: sizes[name])
        rest = ", ".join(
            f"{PART_WORDS[name]} {size:.1%}" for name, size in sizes.items() if name != most
        )
        cards.append(
            card(
                "Errors arise most in",
                PART_WORDS[most],
                f"{sizes[most]:.1%} of the makespan on average; {rest}. Parts of either sign cancel.",
            )
        )
    return tuple(cards)


def _errors(row: PlanRow) -> dict[str, float]:
    return {part.name: part.error for part in row.parts}


def _sections(found: Validation, orders: Sequence[Order]) -> list[Section]:
    worst = _plans_table("worst", f"The {len(found.worst)} largest errors", found.worst)
    rows = sorted(found.rows, key=lambda row: -abs(row.error))
    more = f": the {MAX_ROWS} with the largest errors of {len(rows)}" if len(rows) > MAX_ROWS else ""
    every = _plans_table("plans", f"All plans{more}", rows[:MAX_ROWS])
    sections = [_agreement(found)]
    if orders:
        sections.append(_order_section(orders))
    sections += [
        _schedules(found),
        _workloads(found),
        Section(heading=worst.heading, table=worst),
        Section(heading=every.heading, table=every),
    ]
    return sections


def _agreement(found: Validation) -> Section:
    many = len(found.rows) > MAX_TIPS
    with new_figure(5.0) as (figure, axes):
        drawn = draw_agreement(axes, found.rows, rasterized=many)
        for axis in (axes.xaxis, axes.yaxis):
            _log_numbers(axis)
        axes.set_xlabel("measured makespan [ms]")
        axes.set_ylabel("simulated makespan [ms]")
        figure.legend(loc="outside upper center", ncols=4, frameon=False, fontsize=7)
    tips = {
        gid: [
            f"{row.workload}, {row.title}: measured {format_seconds(row.measured_s)}, simulated "
            f"{format_seconds(row.simulated_s)} ({row.error:+.1%})"
            for row in rows
        ]
        for gid, rows in drawn.items()
    }
    return Section(
        heading="Simulated against measured",
        drawing=Drawing(
            name="agreement",
            heading="Simulated against measured",
            caption="A mark is a plan. Above the line the simulator is too slow, below it too fast; "
            "grey: within 5 and 10 %.",
            figure=figure,
            tips={} if many else tips,
        ),
    )


def _log_numbers(axis: "object") -> None:
    from matplotlib.axis import Axis
    from matplotlib.ticker import LogLocator

    assert isinstance(axis, Axis)
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:g}")  # powers would need the parser of formulas
    axis.set_minor_formatter("")


def _order_section(orders: Sequence[Order]) -> Section:
    with new_figure(2.7) as (figure, axes):
        places = range(len(orders))
        shares = [order.share_right * 100 for order in orders]
        colours = [GOOD if order.share_right >= LIKELY else MUTED for order in orders]
        axes.bar(places, shares, color=colours, width=0.8)
        for place, order in zip(places, orders, strict=True):
            axes.text(
                place,
                2,
                f"{order.num_pairs}\npairs",
                ha="center",
                va="bottom",
                fontsize=7,
                color="white",
            )
            axes.text(place, shares[place] + 1, f"{shares[place]:.0f}", ha="center", fontsize=8)
        axes.axhline(50, color=BAD, linewidth=1, linestyle="--")
        axes.axhline(LIKELY * 100, color=INK, linewidth=0.8, linestyle=":")
        axes.set_xticks(places, [order.title for order in orders])
        axes.set_ylim(0, 112)
        axes.set_xlabel("simulated difference of two plans of one workload [%]")
        axes.set_ylabel("right sign [%]")
    return Section(
        heading="Which differences to believe",
        drawing=Drawing(
            name="order",
            heading="Which differences to believe",
            caption="Of all pairs of plans of the same workload whose simulated times differ by so "
            "much: the share in which the measured times differ in the same direction. Dashed: a coin; "
            f"dotted: {LIKELY:.0%}.",
            figure=figure,
        ),
    )


def _schedules(found: Validation) -> Section:
    rows = found.schedules
    with new_figure(FRAME_INCHES + 0.5 + ROW_INCHES * len(rows)) as (figure, axes):
        left, right = [0.0] * len(rows), [0.0] * len(rows)
        for name, (colour, hatch) in PART_STYLES.items():
            values = [row.part_errors.get(name, 0.0) * 100 for row in rows]
            starts = [r if v >= 0 else lower for v, r, lower in zip(values, right, left, strict=True)]
            axes.barh(
                range(len(rows)), values, left=starts, color=colour, hatch=hatch, height=0.72,
                label=PART_TITLES[name], edgecolor="white", linewidth=0.3,
            )  # fmt: skip
            right = [r + max(v, 0.0) for r, v in zip(right, values, strict=True)]
            left = [lower + min(v, 0.0) for lower, v in zip(left, values, strict=True)]
        _mark(axes, [row.bias * 100 for row in rows], "bias", "D")
        _mark(axes, [row.mean_abs_error * 100 for row in rows], "mean error without sign", "|")
        _rows_axis(axes, [row.schedule for row in rows])
        axes.set_xlabel("error [% of the measured makespan]")
        figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=8)
    table = Table(
        name="schedules",
        heading="By schedule",
        columns=(
            "schedule", "plans", "mean error [%]", "90 % within [%]", "bias [%]",
            *(f"bias in {title} [%]" for title in PART_TITLES.values()),
        ),
        rows=tuple(
            (
                text_cell(row.schedule),
                number_cell(row.num_plans, "d"),
                number_cell(row.mean_abs_error * 100, ".1f"),
                number_cell(row.p90_abs_error * 100, ".1f"),
                number_cell(row.bias * 100, "+.1f"),
                *(_percent(row.part_errors.get(name)) for name in PARTS),
            )
            for row in rows
        ),
    )  # fmt: skip
    return Section(
        heading="By schedule: where the error arises",
        drawing=Drawing(
            name="schedules",
            heading="By schedule",
            caption="Bars: mean errors of the parts of the makespan, which add up to the bias; to the "
            "left the simulator takes too little time for them.",
            figure=figure,
        ),
        table=table,
    )


def _workloads(found: Validation) -> Section:
    rows = sorted(found.workloads, key=lambda row: -row.regret)
    shown = rows[:MAX_BARS]
    with new_figure(FRAME_INCHES + 0.4 + 1.3 * ROW_INCHES * len(shown)) as (figure, axes):
        places = range(len(shown))
        axes.barh(
            places,
            [row.mean_abs_error * 100 for row in shown],
            color=GOOD,
            height=0.7,
            label="mean error",
        )
        _mark(axes, [row.bias * 100 for row in shown], "bias", "D")
        axes.scatter(
            [row.regret * 100 for row in shown], places, color=BAD, marker="X", s=36, zorder=4,
            label="regret of the simulated winner",
        )  # fmt: skip
        _rows_axis(axes, [row.workload for row in shown])
        axes.set_xlabel("[%]")
        figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=8)
    table = Table(
        name="workloads",
        heading="By workload",
        columns=(
            "workload", "plans", "measured winner", "its time [ms]", "simulated winner", "regret [%]",
            "always serial loses [%]", "mean error [%]", "bias [%]", "error of serial [%]", "Spearman",
            "Kendall",
        ),
        rows=tuple(
            (
                text_cell(row.workload),
                number_cell(row.num_plans, "d"),
                text_cell(row.measured_best),
                number_cell(row.measured_best_s / MS, ".4g"),
                text_cell(
                    "the same"
                    if row.agreement == 1
                    else row.simulated_best + (f" (of {row.num_tied})" if row.num_tied > 1 else "")
                ),
                number_cell(row.regret * 100, ".2f"),
                _percent(row.serial_regret, ".1f"),
                number_cell(row.mean_abs_error * 100, ".1f"),
                number_cell(row.bias * 100, "+.1f"),
                _percent(row.serial_error),
                absent_cell() if row.spearman is None else number_cell(row.spearman, ".3f"),
                absent_cell() if row.kendall is None else number_cell(row.kendall, ".3f"),
            )
            for row in rows
        ),
    )  # fmt: skip
    more = f" The {MAX_BARS} with the largest regret." if len(rows) > MAX_BARS else ""
    return Section(
        heading="By workload: errors and winners",
        drawing=Drawing(
            name="workloads",
            heading="By workload",
            caption="The largest regret first: measured time of the plan that the simulator picks over "
            f"that of the best measured one, less 1.{more}",
            figure=figure,
        ),
        table=table,
    )


def _mark(axes: "Axes", values: Sequence[float], label: str, marker: str) -> None:
    axes.scatter(
        values, range(len(values)), color=INK, marker=marker, s=26 if marker == "D" else 110, zorder=3,
        label=label,
    )  # fmt: skip


def _rows_axis(axes: "Axes", names: Sequence[str]) -> None:
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(names)), [short(name) for name in names])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(names) - 0.4, -0.6)


def _percent(share: float | None, form: str = "+.1f") -> Cell:
    return absent_cell() if share is None else number_cell(share * 100, form)


def _plans_table(name: str, heading: str, rows: Sequence[PlanRow]) -> Table:
    columns = (
        "workload", "plan", "measured [ms]", "simulated [ms]", "error [%]", "size of error [%]",
        *(f"in {title} [%]" for title in PART_TITLES.values()), "runs", "simulated with",
    )  # fmt: skip
    cells = []
    for row in rows:
        errors = _errors(row)
        cells.append(
            (
                text_cell(row.workload),
                text_cell(row.title),
                number_cell(row.measured_s / MS, ".4g"),
                number_cell(row.simulated_s / MS, ".4g"),
                number_cell(row.error * 100, "+.1f"),
                number_cell(abs(row.error) * 100, ".1f"),
                *(_percent(errors.get(part)) for part in PARTS),
                number_cell(row.num_samples, "d"),
                text_cell(", ".join(row.labels)),
            )
        )
    return Table(name=name, heading=heading, columns=columns, rows=tuple(cells))

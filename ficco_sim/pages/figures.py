"""Figures of a comparison."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ficco_sim.comparison import Result, best_of_each
from ficco_sim.pages.links import MAX_NODES, link_figure
from ficco_sim.pages.style import BAD, GOOD, INK, MUTED, PART_STYLES, new_figure
from ficco_sim.pages.subject import Subject
from ficco_sim.pages.words import PARTS, short
from ficco_sim.sensitivity import WhatIf
from ficco_sim.units import MS, US

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Drawing", "comparison_figures", "time_unit"]

WORTH_IT = 1.01  # as in verdicts: less is no gain
ROW_INCHES, FRAME_INCHES = 0.27, 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A figure with its name, its heading, and what it shows in a sentence.

    Parameters
    ----------
    tips
        For marks that have more to say than is drawn: a text for each, by the ``gid`` of their
        collection.
    """

    name: str
    heading: str
    caption: str
    figure: "Figure"
    tips: Mapping[str, Sequence[str]] = field(default_factory=dict)


def comparison_figures(subject: Subject) -> list[Drawing]:
    """All figures but the timelines, in the order of the page."""
    rows = best_of_each(subject.comparison.results)
    drawings = [
        Drawing(
            name="speedup",
            heading="Speed-up over serial",
            caption="The best knobs of each schedule. Whiskers: 10th to 90th percentile of what "
            "the fitted costs leave open, where drawn.",
            figure=_speedups(rows),
        ),
        Drawing(
            name="breakdown",
            heading="Where the time goes",
            caption="Makespan of the gpu that ends last. Everything but the first part is loss against "
            "a gpu that has all data at once.",
            figure=_breakdown(rows),
        ),
    ]
    machine = subject.machine
    if machine is not None and subject.runs:
        plan, trace = subject.runs[0]
        if machine.num_gpus + len(machine.switches) <= MAX_NODES:
            drawings.append(
                Drawing(
                    name="links",
                    heading=f"How busy the links are under {plan.schedule}",
                    caption="Left: a cell for each directed link, empty where there is none. Right: "
                    "the machine, each direction a line of its own.",
                    figure=link_figure(machine, trace),
                )
            )
    if subject.what_ifs:
        drawings.append(
            Drawing(
                name="sensitivity",
                heading="What if the machine were faster?",
                caption="All schedules simulated again with one thing twice as fast. Bars: speed-up "
                "of the best schedule there over serial on the same machine.",
                figure=_what_ifs(subject.what_ifs),
            )
        )
    return drawings


def time_unit(longest_s: float) -> tuple[float, str]:
    """Seconds in the unit that suits a time, and its name."""
    return (MS, "ms") if longest_s >= MS else (US, "us")


def _name(result: Result, rows: Sequence[Result]) -> str:
    both = len({row.engine for row in rows}) > 1
    engine = f" ({short(result.engine)})" if both else ""
    emulated = "*" if "emulated-2d" in result.labels else ""
    return f"{short(result.schedule)}{emulated}{engine}"


def _label(axes: "Axes", x: float, place: int, words: str, *, size: int = 9) -> None:
    """Words beside the end of a bar."""
    axes.annotate(
        words, (x, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=size
    )


def _speedups(rows: Sequence[Result]) -> "Figure":
    with new_figure(FRAME_INCHES + ROW_INCHES * len(rows)) as (figure, axes):
        places = range(len(rows))
        speedups = [row.speedup for row in rows]
        colours = [
            MUTED if row.schedule == "serial" else GOOD if row.speedup >= WORTH_IT else BAD
            for row in rows
        ]
        axes.barh(places, speedups, color=colours, height=0.72)
        most = max(speedups)
        for place, row in enumerate(rows):
            end = row.speedup
            if row.interval_s is not None:
                low, high = (row.speedup * row.makespan_s / end_s for end_s in row.interval_s[::-1])
                axes.plot([low, high], [place, place], color=INK, linewidth=1.4)
                end = max(end, high)
                most = max(most, end)
            close = " ~" if row.too_close else ""
            _label(axes, end, place, f"{row.speedup:.2f}x{close}")
        serial_s = max(row.speedup * row.makespan_s for row in rows)
        ideal = serial_s / rows[0].ideal_s if rows[0].ideal_s > 0 else 1.0
        axes.axvline(1, color=BAD, linewidth=1, linestyle="--")
        axes.axvline(ideal, linewidth=1, linestyle=":", color="#777777")
        axes.text(ideal, -0.62, f"ideal bound {ideal:.2f}x ", va="bottom", ha="right", fontsize=8)
        axes.set_yticks(places, [_name(row, rows) for row in rows])
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(rows) - 0.4, -1.4)
        axes.set_xlim(0, max(most * 1.14, ideal * 1.04))
        notes = ["dashed: serial"]
        if any("emulated-2d" in row.labels for row in rows):
            notes.append("*: 2d copies emulated")
        if any(row.too_close for row in rows):
            notes.append("~: too close to the best to call")
        axes.set_xlabel("\n".join(["serial makespan / makespan [x]", *notes]), fontsize=8)
    return figure


def _breakdown(rows: Sequence[Result]) -> "Figure":
    with new_figure(FRAME_INCHES + 0.5 + ROW_INCHES * len(rows)) as (figure, axes):
        unit_s, unit = time_unit(max(row.makespan_s for row in rows))
        # one slow schedule must not squeeze all others
        serial_s = rows[0].speedup * rows[0].makespan_s
        end = min(max(row.makespan_s for row in rows), 1.6 * serial_s) / unit_s
        right = [0.0] * len(rows)
        left = [0.0] * len(rows)
        for key, (colour, hatch) in PART_STYLES.items():
            values = [getattr(row.breakdown, key) / unit_s for row in rows]
            # a plan may gain by cutting: drawn to the left of 0
            starts = [r if v >= 0 else lower for v, r, lower in zip(values, right, left, strict=True)]
            if any(values):
                axes.barh(
                    range(len(rows)), values, left=starts, color=colour, hatch=hatch, height=0.72,
                    label=PARTS[key], edgecolor="white", linewidth=0.3,
                )  # fmt: skip
            right = [r + max(v, 0.0) for r, v in zip(right, values, strict=True)]
            left = [lower + min(v, 0.0) for lower, v in zip(left, values, strict=True)]
        for place, row in enumerate(rows):
            beyond = " \u2192" if right[place] > end else ""
            words = f"{row.makespan_s / unit_s:.3g}{beyond}"
            _label(axes, min(right[place], end), place, words)
        axes.axvline(
            rows[0].ideal_s / unit_s, linewidth=1, linestyle=":", color="#777777", label="ideal bound"
        )
        axes.set_yticks(range(len(rows)), [_name(row, rows) for row in rows])
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlim(min(0.0, *left) * 1.05, end)
        axes.set_xlabel(f"makespan [{unit}]")
        figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=8)
    return figure


def _what_ifs(rows: Sequence[WhatIf]) -> "Figure":
    with new_figure(FRAME_INCHES + 1.6 * ROW_INCHES * len(rows)) as (figure, axes):
        for place, row in enumerate(rows):
            colour = MUTED if place == 0 else GOOD
            axes.barh(place, row.speedup, color=colour, height=0.76)
            quicker = "" if place == 0 else f", makespan / {row.gain:.2f}"
            ideal = row.serial_s / row.ideal_s
            _label(axes, max(row.speedup, ideal), place, f"{row.speedup:.2f}x{quicker}", size=8)
            axes.plot(
                [ideal] * 2, [place - 0.38, place + 0.38],
                color="#777777", linewidth=1.2, linestyle=":",
                label="ideal bound there" if place == 0 else None,
            )  # fmt: skip
        axes.axvline(1, color=BAD, linewidth=1, linestyle="--", label="serial there")
        names = [
            f"{row.change if place == 0 else f'{row.change} x{row.factor:g}'}\n{_title(row)}"
            for place, row in enumerate(rows)
        ]
        axes.set_yticks(range(len(rows)), names, fontsize=8)
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        most = 1.55 * max(max(row.speedup, row.serial_s / row.ideal_s) for row in rows)
        axes.set_xlim(0, most)
        axes.set_xlabel("best speed-up over serial on the same machine [x]")
        figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=8)
    return figure


def _title(row: WhatIf) -> str:
    return row.schedule + (f", {row.num_chunks} chunks" if row.num_chunks > 1 else "")

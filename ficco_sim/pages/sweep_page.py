"""The page of a sweep: how often overlap loses, who wins where, and how much there is to gain."""

from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from ficco_sim.pages.document import MAX_ROWS, Document, Section, card
from ficco_sim.pages.figures import WORTH_IT, Drawing
from ficco_sim.pages.maps import draw_map
from ficco_sim.pages.style import BAD, GOOD, MUTED, new_figure
from ficco_sim.pages.tables import Table, number_cell, text_cell
from ficco_sim.sweep.table import SweepGroup, SweepTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["sweep_document"]

MAX_TIPS = 2000  # scenarios up to which each mark says what it is
GLOSSARY = (
    ("scenario", "a workload on a machine; every schedule and its knobs were simulated in it"),
    ("speed-up", "makespan of serial (communication, then the whole GEMM) / that of the best schedule"),
    ("ideal", "the longer of the whole GEMM alone and the whole communication alone: a bound that "
     "perfect overlap would reach, not a schedule"),
    ("does not pay", "the best schedule is serial, or less than 1 % faster than it"),
)  # fmt: skip


def sweep_document(table: SweepTable, *, name: str, command: str) -> Document:
    """The page of a sweep.

    Parameters
    ----------
    name
        Of the sweep's file, without folders.
    command
        The command line that makes the page.
    """
    groups = table.groups
    lost = [group for group in groups if not _pays(group)]
    gains = [_speedup(group) for group in groups]
    share = len(lost) / len(groups)
    winners = Counter(group.best.schedule for group in groups)
    winner, wins = winners.most_common(1)[0]
    best = max(groups, key=_speedup)
    count = f"{len(table.workloads)} workloads on {len(table.machines)} machines"
    costs = ", ".join(sorted({f"{group.costs}, submission {group.submission}" for group in groups}))
    return Document(
        kind="a sweep of scenarios",
        title=f"{name}: {count}",
        verdict=f"Of {len(groups)} scenarios ({count}), overlap does not pay in {share:.0%}; the "
        f"median speed-up of the best schedule is {median(gains):.2f}x.",
        cards=(
            card(
                "Overlap does not pay",
                f"{share:.0%} of scenarios",
                f"{len(lost)} of {len(groups)}: the best schedule is less than 1 % faster than serial.",
            ),
            card(
                "Typical gain",
                f"{median(gains):.2f}x",
                "Median over all scenarios of the best schedule's speed-up over serial; perfect "
                f"overlap: {median(_ideal(group) for group in groups):.2f}x.",
            ),
            card(
                "Most gain",
                f"{_speedup(best):.2f}x",
                f"{best.workload} on {best.machine}, by {best.best.schedule}.",
            ),
            card(
                "Wins most often",
                winner,
                f"{wins} of {len(groups)} scenarios; {len(winners)} schedules win somewhere.",
            ),
        ),
        remarks=(),
        sections=(
            Section(heading="Who wins on which machine", drawing=_winners_drawing(table)),
            Section(heading="What there is to gain", drawing=_bell_drawing(groups)),
            Section(heading="By machine", table=_by_machine(table)),
            _scenarios(groups),
        ),
        facts=(("source", "simulated, not measured"), ("costs", costs)),
        glossary=GLOSSARY,
        command=command,
    )


def _winners_drawing(table: SweepTable) -> Drawing:
    return Drawing(
        name="winners",
        heading="Who wins on which machine",
        caption="Share of a machine's scenarios that each schedule wins, and in which serial does.",
        figure=_winners(table),
    )


def _bell_drawing(groups: Sequence[SweepGroup]) -> Drawing:
    shown = [group for group in groups if group.comm_s > 0 and group.gemm_s > 0]
    parts = {
        gid: [g for g in shown if _pays(g) is pays] for gid, pays in (("pays", True), ("not", False))
    }
    tips = {
        gid: [
            f"{g.workload} on {g.machine}: {g.best.schedule}, {g.best.num_chunks} chunks, "
            f"{_speedup(g):.2f}x; ideal {_ideal(g):.2f}x"
            for g in some
        ]
        for gid, some in parts.items()
    }
    return Drawing(
        name="bell",
        heading="What there is to gain",
        caption="Each dot is a scenario. Perfect overlap gains most, about 2x, where GEMM and "
        "communication take equally long; crosses are scenarios in which overlap does not pay.",
        figure=_bell(shown),
        tips=tips if len(shown) <= MAX_TIPS else {},
    )


def _speedup(group: SweepGroup) -> float:
    return group.serial_s / group.best.makespan_s


def _ideal(group: SweepGroup) -> float:
    return group.serial_s / group.ideal_s if group.ideal_s > 0 else 1.0


def _pays(group: SweepGroup) -> bool:
    return group.best.schedule != "serial" and _speedup(group) >= WORTH_IT


def _counts(table: SweepTable) -> dict[str, Counter[str]]:
    return {
        machine: Counter(group.best.schedule for group in table.on(machine))
        for machine in table.machines
    }


def _winners(table: SweepTable) -> "Figure":
    """A map of shares: too many schedules win for colours of their own."""
    counts = _counts(table)
    schedules = [name for name, _ in Counter(g.best.schedule for g in table.groups).most_common()]
    shares = [[counts[m][s] / counts[m].total() for m in counts] for s in schedules]
    with new_figure(1.4 + 0.27 * len(schedules)) as (figure, axes):
        texts = [[f"{share:.0%}" if share else "" for share in row] for row in shares]
        draw_map(axes, shares, schedules, list(counts), texts)
    return figure


def _bell(shown: Sequence[SweepGroup]) -> "Figure":
    from matplotlib.ticker import LogLocator

    many = len(shown) > MAX_TIPS  # drawn as one picture, else the page would be too large
    with new_figure(3.6) as (figure, axes):
        for pays, colour, marker, words in (
            (True, GOOD, "o", "best schedule"),
            (False, BAD, "x", "does not pay"),
        ):
            some = [group for group in shown if _pays(group) is pays]
            axes.scatter(
                [g.gemm_s / g.comm_s for g in some],
                [_speedup(g) for g in some],
                s=14,
                color=colour,
                marker=marker,
                label=words,
                zorder=2,
                gid="pays" if pays else "not",
                rasterized=many,
            )
        axes.scatter(
            [g.gemm_s / g.comm_s for g in shown],
            [_ideal(g) for g in shown],
            s=5,
            color=MUTED,
            label="ideal bound",
            rasterized=many,
        )
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")  # powers would need the parser of formulas
        axes.xaxis.set_minor_formatter("")
        axes.axhline(1, color=BAD, linewidth=0.8, linestyle="--")
        axes.set_xlabel("GEMM alone / communication alone [s/s]")
        axes.set_ylabel("speed-up over serial [x]")
        figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=8)
    return figure


def _by_machine(table: SweepTable) -> Table:
    rows = []
    for machine, wins in _counts(table).items():
        groups = table.on(machine)
        winner, count = wins.most_common(1)[0]
        lost = sum(not _pays(group) for group in groups) / len(groups)
        rows.append(
            (
                text_cell(machine),
                number_cell(len(groups), "d"),
                number_cell(lost * 100, ".0f"),
                number_cell(median(map(_speedup, groups)), ".2f"),
                number_cell(median(map(_ideal, groups)), ".2f"),
                text_cell(winner),
                number_cell(count / len(groups) * 100, ".0f"),
            )
        )
    columns = (
        "machine", "scenarios", "overlap does not pay [%]", "median speed-up [x]", "median ideal [x]",
        "wins most often", "of scenarios [%]",
    )  # fmt: skip
    return Table(name="machines", heading="By machine", columns=columns, rows=tuple(rows))


def _scenarios(groups: Sequence[SweepGroup]) -> Section:
    """Every scenario, up to what a page can hold; the least gain first."""
    order = sorted(groups, key=_speedup)[:MAX_ROWS]
    rows = tuple(
        (
            text_cell(group.workload),
            text_cell(group.machine),
            text_cell(group.best.schedule),
            number_cell(group.best.num_chunks, "d"),
            number_cell(_speedup(group), ".2f"),
            number_cell(_ideal(group), ".2f"),
            number_cell(group.gemm_s * 1e3, ".4g"),
            number_cell(group.comm_s * 1e3, ".4g"),
        )
        for group in order
    )
    more = f": the {MAX_ROWS} with the least gain of {len(groups)}" if len(groups) > MAX_ROWS else ""
    columns = (
        "workload", "machine", "best schedule", "chunks", "speed-up [x]", "ideal [x]",
        "GEMM alone [ms]", "communication alone [ms]",
    )  # fmt: skip
    table = Table(name="scenarios", heading=f"Scenarios{more}", columns=columns, rows=rows)
    return Section(heading=table.heading, table=table)

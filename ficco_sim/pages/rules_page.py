"""The page of judged rules: which to use, how often each is right, what it costs, where it fails."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ficco_sim.heuristics.features import format_feature
from ficco_sim.laboratory import Evaluation, RuleReport, Summary
from ficco_sim.laboratory.evaluate import ScenarioRow
from ficco_sim.pages.document import MAX_ROWS, Document, Section, card
from ficco_sim.pages.figures import FRAME_INCHES, ROW_INCHES, Drawing
from ficco_sim.pages.maps import draw_map
from ficco_sim.pages.style import BAD, GOOD, INK, MUTED, SETTINGS, WIDTH_INCHES, new_figure
from ficco_sim.pages.tables import Cell, Table, number_cell, text_cell
from ficco_sim.pages.words import sentence, short
from ficco_sim.units import MS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["RULE_WORDS", "rules_document", "source_fact"]

MAX_MAPS = 6  # rules whose confusion is drawn; the table has all
MAX_MACHINES = 40  # of a map
LEAST_REGRET = 1e-3  # where the axis of regrets starts
CURVES = (("#0072B2", "-"), ("#E69F00", "--"), ("#009E73", "-."), ("#CC79A7", ":"), ("#D55E00", "-"),
          ("#56B4E9", "--"), ("#000000", "-."))  # fmt: skip
RULE_WORDS = (
    ("rule", "picks a schedule, and for some rules its knobs, from the workload and the machine "
     "without running anything"),
    ("scenario", "a workload on a machine in which many plans were tried, simulated or measured"),
    ("accuracy", "share of scenarios in which no schedule tried is faster than the chosen one"),
    ("within noise", "the same where none gains more than the noise"),
    ("regret", "time of the chosen plan, with its knobs / time of the best plan tried - 1"),
    ("with best knobs", "regret if the best knobs that were tried of the chosen schedule are taken"),
    ("intervals", "95 %: of shares by Wilson, of means by bootstrap, as if scenarios were independent"),
    ("reference", "a rule to compare with: always serial; the best always-X, known afterwards only"),
    ("fault", "the rule gave no answer, or one that was not tried; serial stands for it"),
)  # fmt: skip


def source_fact(source: str) -> tuple[str, str]:
    """Whether scenarios were simulated or measured, as a fact."""
    return ("source", f"{source}; regret is against the best plan that was tried")


def rules_document(found: Evaluation, *, name: str, command: str) -> Document:
    """The page of ``ficco heuristic evaluate``.

    Parameters
    ----------
    name
        Of the file, without folders.
    command
        The command line that makes the page.
    """
    judged = [report for report in found.rules if not report.reference] or list(found.rules)
    best = min(judged, key=lambda report: report.total.mean_regret)
    total = best.total
    machines = f"{len(found.machines)} machine{'s' * (len(found.machines) != 1)}"
    noise = (
        f"noise {found.noise:.1%}"
        if found.noise is not None
        else f"noise {total.noise_low:.1%} to {total.noise_high:.1%}"
    )
    return Document(
        kind="rules that pick a schedule",
        title=f"{len(judged)} rules in {found.num_scenarios} scenarios on {machines}: {name}",
        verdict=f"The rule {best.rule} loses least: {total.mean_regret:.1%} on average to the best "
        f"plan tried (95 % interval {total.mean_regret_low:.1%} to {total.mean_regret_high:.1%}); it "
        f"picks the fastest schedule in {total.accuracy.share:.0%} of {total.num_scenarios} scenarios "
        f"({total.accuracy_within_noise.share:.0%} within noise). All {found.source}.",
        cards=_cards(found, best, judged),
        remarks=tuple(f"{sentence(text)}." for text in (*found.labels, *found.notes)),
        sections=tuple(_sections(found, judged)),
        facts=(
            source_fact(found.source),
            ("machines", ", ".join(found.machines)),
            ("sets", ", ".join(found.sets)),
            ("knobs", "as the rule sets them" if found.knobs == "rule" else "the best of the schedule"),
            ("noise", noise),
            ("seed", str(found.seed)),
            ("labels", "; ".join(found.labels) or "none"),
            *((f"rule {r.rule}", _described(r)) for r in found.rules),
        ),
        glossary=RULE_WORDS,
        command=command,
    )


def _described(report: RuleReport) -> str:
    values = ", ".join(
        f"{key} {format_feature(key, value)}" for key, value in report.parameters.items()
    )
    return f"{report.description}{f' ({values})' if values else ''}"


def _cards(
    found: Evaluation, best: RuleReport, judged: Sequence[RuleReport]
) -> tuple[dict[str, str], ...]:
    total = best.total
    references = [r for r in found.rules if r.reference and r is not best]
    cards = [
        card("Loses least", best.rule, _described(best)),
        card(
            "It loses",
            f"{total.mean_regret:.1%}",
            f"Mean regret; median {total.median_regret:.1%}, 90 % of scenarios at most "
            f"{total.p90_regret:.1%}, worst {total.max_regret:.0%} ({total.worst}). Speed-up over "
            f"serial {total.mean_speedup:.2f}x of {total.mean_best_speedup:.2f}x that there is.",
        ),
    ]
    if references:
        near = min(references, key=lambda report: report.total.mean_regret)
        ahead = total.mean_regret < near.total.mean_regret
        cards.append(
            card(
                "Is a rule needed?",
                "yes" if ahead else "not here",
                f"The rule {near.rule}, the best that always picks the same, loses "
                f"{near.total.mean_regret:.1%} on average.",
            )
        )
    split = max(best.by_machine, key=lambda row: row.mean_regret)
    if len(best.by_machine) > 1:
        cards.append(
            card(
                "Worst machine of this rule",
                f"{split.mean_regret:.1%}",
                f"{split.name}: accuracy {split.accuracy.share:.0%}, {split.num_scenarios} scenarios.",
            )
        )
    faults = {r.rule: r.total.num_faults for r in judged if r.total.num_faults}
    if faults:
        words = ", ".join(f"{rule} {count}" for rule, count in faults.items())
        cards.append(card("Faults", str(sum(faults.values())), f"{words}: no answer that was tried."))
    return tuple(cards)


def _sections(found: Evaluation, judged: Sequence[RuleReport]) -> list[Section]:
    sections = [_overview(found)]
    curves = [report for report in found.rules if len(report.regret_percentiles) > 1]
    if curves:
        sections.append(_regrets(curves))
    if 1 < len(found.machines) <= MAX_MACHINES:
        sections.append(_machines(found))
    for i, report in enumerate(judged[:MAX_MAPS]):
        if report.confusion:
            sections.append(_confusion(report, i))
    tables: list[Table | None] = [_parts_table(found, "machine", "By machine")]
    if len(found.sets) > 1:
        tables.append(_parts_table(found, "set", "By set of scenarios"))
    tables += [_faults(found), _worst(found), _small_sets(found)]
    sections += [Section(heading=t.heading, table=t) for t in tables if t is not None and t.rows]
    return sections


def _title(report: RuleReport) -> str:
    return f"{report.rule}{' (reference)' if report.reference else ''}"


def _overview(found: Evaluation) -> Section:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    rows = found.rules
    with mpl.rc_context(SETTINGS):
        height = FRAME_INCHES + 0.5 + 1.2 * ROW_INCHES * len(rows)
        figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        for place, report in enumerate(rows):
            total = report.total
            colour = MUTED if report.reference else GOOD
            for shift, share, marker in (
                (-0.15, total.accuracy, "o"),
                (0.15, total.accuracy_within_noise, "^"),
            ):
                y = place + shift
                left.plot([share.low * 100, share.high * 100], [y, y], color=colour, linewidth=1.4)
                left.scatter([share.share * 100], [y], color=colour, marker=marker, s=24, zorder=3)
            ends = [total.mean_regret_low * 100, total.mean_regret_high * 100]
            right.plot(ends, [place, place], color=INK, linewidth=1.4, zorder=3)
            right.barh(place, total.mean_regret * 100, color=colour, height=0.6)
            right.annotate(
                f"{total.mean_regret:.1%}", (max(ends[1], total.mean_regret * 100), place),
                xytext=(3, 0), textcoords="offset points", va="center", fontsize=8,
            )  # fmt: skip
        left.set_yticks(range(len(rows)), [short(_title(report)) for report in rows])
        left.set_ylim(len(rows) - 0.5, -0.5)
        left.set_xlim(-2, 102)
        left.set_xlabel("accuracy [%]\ncircle: strict, triangle: within noise", fontsize=8)
        right.set_xlabel("mean regret [%]\nline: 95 % interval", fontsize=8)
        most = max(max(r.total.mean_regret, r.total.mean_regret_high) for r in rows)
        right.set_xlim(0, max(most * 128, 0.1))
        for axes in (left, right):
            axes.tick_params(axis="y", length=0)
    table = Table(
        name="rules",
        heading="Rules",
        columns=("rule", *SUMMARY_COLUMNS),
        rows=tuple((text_cell(_title(r)), *_summary_cells(r.total)) for r in rows),
    )
    return Section(
        heading="Rules: how often right, and what they lose",
        drawing=Drawing(
            name="rules",
            heading="Rules",
            caption="Lines are 95 % intervals. Grey: rules to compare with that always pick the same.",
            figure=figure,
        ),
        table=table,
    )


SUMMARY_COLUMNS = (
    "scenarios", "right", "unsure", "wrong", "faults", "accuracy [%]", "95 % interval [%]",
    "within noise [%]", "mean regret [%]", "95 % interval of it [%]", "median regret [%]",
    "90 % at most [%]", "worst [%]", "with best knobs [%]", "speed-up [x]", "best speed-up [x]",
)  # fmt: skip


def _summary_cells(s: Summary) -> tuple[Cell, ...]:
    return (
        *(number_cell(n, "d") for n in (s.num_scenarios, s.num_right, s.num_unsure, s.num_wrong)),
        number_cell(s.num_faults, "d"),
        number_cell(s.accuracy.share * 100, ".1f"),
        _ends(s.accuracy.low, s.accuracy.high),
        number_cell(s.accuracy_within_noise.share * 100, ".1f"),
        number_cell(s.mean_regret * 100, ".2f"),
        _ends(s.mean_regret_low, s.mean_regret_high),
        number_cell(s.median_regret * 100, ".2f"),
        number_cell(s.p90_regret * 100, ".1f"),
        number_cell(s.max_regret * 100, ".0f"),
        number_cell(s.mean_schedule_regret * 100, ".2f"),
        number_cell(s.mean_speedup, ".3f"),
        number_cell(s.mean_best_speedup, ".3f"),
    )


def _ends(low: float, high: float) -> Cell:
    return Cell(f"{low * 100:.1f} to {high * 100:.1f}", low, numeric=True)


def _regrets(reports: Sequence[RuleReport]) -> Section:
    with new_figure(3.4) as (figure, axes):
        for i, report in enumerate(reports):
            colour, dash = CURVES[i % len(CURVES)]
            regrets = np.maximum(report.regret_percentiles, LEAST_REGRET)
            shares = np.linspace(0, 100, len(regrets))
            axes.step(
                regrets * 100, shares, where="post", color=colour, linestyle=dash,
                label=short(_title(report)),
            )  # fmt: skip
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")  # powers would need the parser of formulas
        axes.xaxis.set_minor_formatter("")
        axes.set_ylim(0, 102)
        axes.set_xlabel(f"regret [%], below {LEAST_REGRET:.1%} drawn there")
        axes.set_ylabel("scenarios with at most that [%]")
        figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=8)
    return Section(
        heading="How the losses spread",
        drawing=Drawing(
            name="regrets",
            heading="How the losses spread",
            caption="The further to the upper left, the better.",
            figure=figure,
        ),
    )


def _machines(found: Evaluation) -> Section:
    rows = [[_of(report, machine) for report in found.rules] for machine in found.machines]
    cells = [[0.0 if s is None else s.mean_regret for s in row] for row in rows]
    most = max(max(row) for row in cells) or 1.0
    texts = [["" if s is None else f"{s.mean_regret:.1%}" for s in row] for row in rows]
    with new_figure(1.5 + 0.27 * len(rows)) as (figure, axes):
        draw_map(axes, cells, found.machines, [r.rule for r in found.rules], texts, most=most)
    return Section(
        heading="Mean regret by machine",
        drawing=Drawing(
            name="machines",
            heading="Mean regret by machine",
            caption="Rows: machines; columns: rules, those to compare with last.",
            figure=figure,
        ),
    )


def _of(report: RuleReport, machine: str) -> Summary | None:
    return next((s for s in report.by_machine if s.name == machine), None)


def _confusion(report: RuleReport, number: int) -> Section:
    best = sorted({c.best for c in report.confusion})
    chosen = sorted({c.chosen for c in report.confusion})
    counts = {(c.best, c.chosen): c.count for c in report.confusion}
    cells = [[float(counts.get((row, column), 0)) for column in chosen] for row in best]
    texts = [[str(counts.get((row, column), "")) for column in chosen] for row in best]
    with new_figure(1.5 + 0.27 * len(best)) as (figure, axes):
        draw_map(axes, cells, best, chosen, texts, most=max(map(max, cells)) or 1.0)
        axes.set_ylabel("fastest")
        axes.set_xlabel("chosen")
        _frame_right(axes, best, chosen)
    return Section(
        heading=f"{report.rule}: chosen against fastest schedule",
        drawing=Drawing(
            name=f"confusion-{number + 1}",
            heading=f"{report.rule}: chosen against fastest schedule",
            caption="Number of scenarios; framed: the chosen schedule is the fastest.",
            figure=figure,
        ),
    )


def _frame_right(axes: "Axes", rows: Sequence[str], columns: Sequence[str]) -> None:
    from matplotlib.patches import Rectangle

    for y, row in enumerate(rows):
        if row in columns:
            corner = (columns.index(row) - 0.5, y - 0.5)
            axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=BAD, linewidth=1.4))


def _parts_table(found: Evaluation, key: str, heading: str) -> Table:
    rows = [
        (text_cell(part.name), text_cell(_title(report)), *_summary_cells(part))
        for report in found.rules
        for part in (report.by_machine if key == "machine" else report.by_set)
    ]
    return Table(
        name=f"{key}s",
        heading=heading,
        columns=(key, "rule", *SUMMARY_COLUMNS),
        rows=tuple(rows[:MAX_ROWS]),
    )


def _faults(found: Evaluation) -> Table:
    rows = [
        (
            text_cell(report.rule),
            text_cell(row.kind),
            number_cell(row.count, "d"),
            text_cell(row.message),
        )
        for report in found.rules
        for row in report.faults
    ]
    return Table(
        name="faults",
        heading="Faults",
        columns=("rule", "kind", "scenarios", "message"),
        rows=tuple(rows[:MAX_ROWS]),
    )


def _worst(found: Evaluation) -> Table:
    rows = [
        (text_cell(_title(report)), *_scenario_cells(row))
        for report in found.rules
        for row in report.worst
    ]
    return Table(
        name="worst",
        heading="Scenarios in which a rule loses most",
        columns=(
            "rule", "workload", "machine", "set", "chosen plan", "best plan", "chosen [ms]",
            "best [ms]", "regret [%]", "verdict", "fault",
        ),
        rows=tuple(rows[:MAX_ROWS]),
    )  # fmt: skip


def _scenario_cells(row: ScenarioRow) -> tuple[Cell, ...]:
    return (
        *map(text_cell, (row.workload, row.machine, row.set, row.plan, row.best_plan)),
        number_cell(row.chosen_s / MS, ".4g"),
        number_cell(row.best_s / MS, ".4g"),
        number_cell(row.regret * 100, ".1f"),
        text_cell(row.verdict),
        text_cell(row.fault or ""),
    )


def _small_sets(found: Evaluation) -> Table | None:
    reports = [(report, s) for report in found.rules if (s := report.small_sets) is not None]
    if not reports:
        return None
    first = reports[0][1]
    rows = tuple(
        (
            text_cell(_title(report)),
            number_cell(s.accuracy * 100, ".1f"),
            number_cell(s.lowest * 100, ".1f"),
            number_cell(s.highest * 100, ".1f"),
            *(number_cell(x * 100, ".1f") for x in (s.share_below, s.share_equal, s.share_above)),
        )
        for report, s in reports
    )
    paper = f"{first.paper_right}/{first.size}"
    return Table(
        name="draws",
        heading=f"What {first.size} scenarios would have said: {first.draws} draws",
        columns=(
            "rule", "accuracy of all [%]", "least of a draw [%]", "most of a draw [%]",
            f"draws below {paper} [%]", f"draws of {paper} [%]", f"draws above {paper} [%]",
        ),
        rows=rows,
    )  # fmt: skip

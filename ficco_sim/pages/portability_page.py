"""The page of a rule moved between machines: what tuning on one is worth on another."""

from ficco_sim.heuristics.features import format_feature
from ficco_sim.laboratory import Portability
from ficco_sim.laboratory.portability import BAD_REGRET, OTHERS, UNTUNED, Cell
from ficco_sim.pages.document import Document, Section, card
from ficco_sim.pages.figures import Drawing
from ficco_sim.pages.maps import draw_map
from ficco_sim.pages.rules_page import RULE_WORDS, source_fact
from ficco_sim.pages.style import new_figure
from ficco_sim.pages.tables import Table, number_cell, text_cell
from ficco_sim.pages.tuning_page import values_words
from ficco_sim.pages.words import sentence

__all__ = ["portability_document"]

WORDS = (
    *RULE_WORDS,
    ("tuned on", "the parameters with the least mean regret there; where it is judged on the same "
     "machine nothing is held out"),
    (OTHERS, "tuned on all machines but the one it is judged on"),
    ("regained", "mean regret that tuning on the machine it is judged on would take away"),
)  # fmt: skip


def portability_document(found: Portability, *, name: str, command: str) -> Document:
    """The page of ``ficco heuristic portability``.

    Parameters
    ----------
    name
        Of the file, without folders.
    command
        The command line that makes the page.
    """
    moved = [c for c in found.cells if c.tuned_on not in (c.judged_on, UNTUNED, OTHERS)]
    own = [c for c in found.cells if c.tuned_on == c.judged_on]
    worst = max(moved or found.cells, key=lambda c: c.mean_regret)
    bad = [c.judged_on for c in own if c.stays_bad]
    elsewhere, here = _mean(moved), _mean(own)
    return Document(
        kind="a rule on other machines than it was tuned for",
        title=f"{found.rule} on {len(found.machines)} machines: {name}",
        verdict=f"The rule {found.rule}, tuned on one of {len(found.machines)} machines, loses "
        f"{elsewhere:.1%} on average on the others ({here:.1%} where it was tuned, nothing held out); "
        + (
            f"on {', '.join(bad)} no value of {', '.join(found.parameters)} brings it below "
            f"{BAD_REGRET:.0%}."
            if bad
            else f"tuned where it is used it stays below {BAD_REGRET:.0%} everywhere."
        )
        + f" All {found.source}.",
        cards=(
            card("Tuned here", f"loses {here:.1%}", "Mean over machines; nothing is held out."),
            card(
                "Tuned elsewhere",
                f"loses {elsewhere:.1%}",
                "Mean over all pairs of different machines.",
            ),
            card(
                "Tuned on all others",
                f"loses {_mean([c for c in found.cells if c.tuned_on == OTHERS]):.1%}",
                f"Mean over machines. As it is: "
                f"{_mean([c for c in found.cells if c.tuned_on == UNTUNED]):.1%}.",
            ),
            card(
                "Worst pair",
                f"{worst.mean_regret:.1%}",
                f"Tuned on {worst.tuned_on}, judged on {worst.judged_on}; tuning there would regain "
                f"{worst.regained:.1%}.",
            ),
        ),
        remarks=tuple(f"{sentence(text)}." for text in (*found.labels, *found.notes)),
        sections=tuple(_sections(found)),
        facts=(
            source_fact(found.source),
            ("parameters", ", ".join(found.parameters)),
            ("features the rule reads", ", ".join(found.used) or "not known"),
            ("knobs", "as the rule sets them" if found.knobs == "rule" else "the best of the schedule"),
            ("noise", "of each scenario" if found.noise is None else f"{found.noise:.1%}"),
            ("seed", str(found.seed)),
            ("labels", "; ".join(found.labels) or "none"),
        ),
        glossary=WORDS,
        command=command,
    )  # fmt: skip


def _mean(cells: list[Cell]) -> float:
    return sum(c.mean_regret for c in cells) / len(cells) if cells else 0.0


def _sections(found: Portability) -> list[Section]:
    sections = [_matrix(found), _tuned(found), _cells(found)]
    if any(gap.splits for gap in found.missing):
        sections.append(_missing(found))
    return sections


def _matrix(found: Portability) -> Section:
    rows = list(dict.fromkeys(c.tuned_on for c in found.cells))
    at = {(c.tuned_on, c.judged_on): c for c in found.cells}
    cells = [[at[row, column] for column in found.machines] for row in rows]
    regrets = [[c.mean_regret for c in row] for row in cells]
    with new_figure(1.5 + 0.4 * len(rows)) as (figure, axes):
        draw_map(
            axes, regrets, rows, found.machines,
            [[f"{c.mean_regret:.1%}\n({c.accuracy:.0%})" for c in row] for row in cells],
            most=max(map(max, regrets)) or 1.0,
        )  # fmt: skip
        axes.set_xlabel("judged on")
        axes.set_ylabel("tuned on")
    return Section(
        heading="Mean regret of all pairs",
        drawing=Drawing(
            name="portability",
            heading="Mean regret of all pairs",
            caption="Mean regret, and in brackets the accuracy.",
            figure=figure,
        ),
    )


def _tuned(found: Portability) -> Section:
    columns = (
        "machine", "scenarios",
        *(f"{name}{' [s]' if name.endswith('_s') else ''}" for name in found.parameters), "in words",
    )  # fmt: skip
    rows = tuple(
        (
            text_cell(row.machine),
            number_cell(row.num_scenarios, "d"),
            *(number_cell(row.values[name], ".6g") for name in found.parameters),
            text_cell(values_words(row.values)),
        )
        for row in found.tuned
    )
    table = Table(name="tuned", heading="Best values on each machine", columns=columns, rows=rows)
    return Section(heading=table.heading, table=table)


def _cells(found: Portability) -> Section:
    columns = (
        "tuned on", "judged on", "mean regret [%]", "from [%]", "to [%]", "accuracy [%]",
        "within noise [%]", "regained [%]", "faults", "values",
    )  # fmt: skip
    rows = tuple(
        (
            text_cell(c.tuned_on),
            text_cell(c.judged_on),
            number_cell(c.mean_regret * 100, ".2f"),
            number_cell(c.mean_regret_low * 100, ".2f"),
            number_cell(c.mean_regret_high * 100, ".2f"),
            number_cell(c.accuracy * 100, ".1f"),
            number_cell(c.accuracy_within_noise * 100, ".1f"),
            number_cell(c.regained * 100, ".2f"),
            number_cell(c.num_faults, "d"),
            text_cell(values_words(c.values)),
        )
        for c in found.cells
    )
    table = Table(name="pairs", heading="Every pair, with 95 % intervals", columns=columns, rows=rows)
    return Section(heading=table.heading, table=table)


def _missing(found: Portability) -> Section:
    rows = tuple(
        (
            text_cell(gap.machine),
            number_cell(gap.mean_regret * 100, ".1f"),
            number_cell(gap.share_wrong * 100, ".0f"),
            text_cell(split.feature),
            text_cell(format_feature(split.feature, split.threshold)),
            text_cell(split.told),
            number_cell(split.told_at_most * 100, ".0f"),
            number_cell(split.told_above * 100, ".0f"),
            number_cell(split.gain_bits, ".2f"),
        )
        for gap in found.missing
        for split in gap.splits
    )
    columns = (
        "machine", "mean regret tuned there [%]", "wrong [%]", "feature not looked at", "threshold",
        "what it tells", "up to it [%]", "above it [%]", "gain [bits]",
    )  # fmt: skip
    table = Table(name="missing", heading="What the rule does not look at", columns=columns, rows=rows)
    return Section(heading=table.heading, hint=f"{sentence(found.method)}.", table=table)

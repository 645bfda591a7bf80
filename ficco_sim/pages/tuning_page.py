"""The page of a tuned rule: accuracy and regret over its parameters, the plateau, what is held out."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ficco_sim.heuristics.features import format_feature
from ficco_sim.laboratory import Tuning
from ficco_sim.laboratory.tune import Plateau, Point
from ficco_sim.pages.document import MAX_ROWS, Document, Section, card
from ficco_sim.pages.figures import Drawing
from ficco_sim.pages.maps import draw_map
from ficco_sim.pages.rules_page import RULE_WORDS, source_fact
from ficco_sim.pages.style import BAD, GOOD, INK, SETTINGS, WIDTH_INCHES, new_figure
from ficco_sim.pages.tables import Table, number_cell, text_cell
from ficco_sim.pages.words import sentence

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["tuning_document", "values_words"]

MEASURES = {
    "accuracy": "accuracy",
    "accuracy_within_noise": "accuracy within noise",
    "mean_regret": "mean regret",
}
TUNING_WORDS = (
    *RULE_WORDS,
    ("picked", "the values with the least mean regret over all scenarios; nothing is held out there"),
    ("held out", "each scenario judged with values that were picked without it (cross-validation)"),
    ("plateau", "values around the best point at which the measure is as good but for the tolerance"),
)
MAX_AXIS = 40  # values of a parameter in a map
MAX_TICKS = 8  # of them with their numbers


def tuning_document(found: Tuning, *, name: str, command: str) -> Document:
    """The page of ``ficco heuristic tune``.

    Parameters
    ----------
    name
        Of the file, without folders.
    command
        The command line that makes the page.
    """
    picked, untuned, held = found.picked, found.untuned, found.held_out
    honest = (
        "too few scenarios to hold any out"
        if held is None
        else f"held out {held.mean_regret:.1%} (95 % interval {held.mean_regret_low:.1%} to "
        f"{held.mean_regret_high:.1%})"
    )
    return Document(
        kind="a rule's parameters tuned",
        title=f"{found.rule} in {found.num_scenarios} scenarios on {', '.join(found.machines)}: {name}",
        verdict=f"Tuning {', '.join(found.parameters)} takes the mean regret of {found.rule} from "
        f"{untuned.mean_regret:.1%} to {picked.mean_regret:.1%} at {values_words(picked.values)}; "
        f"{honest}. All {found.source}.",
        cards=_cards(found),
        remarks=tuple(f"{sentence(text)}." for text in (*found.labels, *found.notes)),
        sections=tuple(_sections(found)),
        facts=(
            source_fact(found.source),
            ("machines", ", ".join(found.machines)),
            ("sets", ", ".join(found.sets)),
            ("tried", f"{len(found.points)} values of {', '.join(found.parameters)}"),
            ("knobs", "as the rule sets them" if found.knobs == "rule" else "the best of the schedule"),
            ("noise", "of each scenario" if found.noise is None else f"{found.noise:.1%}"),
            ("seed", str(found.seed)),
            ("labels", "; ".join(found.labels) or "none"),
        ),
        glossary=TUNING_WORDS,
        command=command,
    )


def values_words(values: Mapping[str, float]) -> str:
    """Values of parameters with their units."""
    return ", ".join(f"{name} {format_feature(name, value)}" for name, value in values.items())


def _cards(found: Tuning) -> tuple[dict[str, str], ...]:
    untuned, picked, held = found.untuned, found.picked, found.held_out
    cards = [
        card(
            "As it is",
            f"loses {untuned.mean_regret:.1%}",
            f"{values_words(untuned.values)}: accuracy {untuned.accuracy:.0%}, "
            f"{untuned.accuracy_within_noise:.0%} within noise.",
        ),
        card(
            "At best",
            f"loses {picked.mean_regret:.1%}",
            f"{values_words(picked.values)}: accuracy {picked.accuracy:.0%}, "
            f"{picked.accuracy_within_noise:.0%} within noise. Nothing is held out.",
        ),
    ]
    if held is not None:
        cards.append(
            card(
                "Held out",
                f"loses {held.mean_regret:.1%}",
                f"Each {held.together} judged with values picked without it, {len(found.folds)} folds: "
                f"accuracy {held.accuracy:.0%}, {held.accuracy_within_noise:.0%} within noise; as it "
                f"is {held.untuned_regret:.1%}.",
            )
        )
    plateau = next((p for p in found.plateaus if p.measure == "mean_regret"), None)
    if plateau is not None:
        cards.append(card("How exact must it be?", _width(plateau), _plateau_words(plateau)))
    return tuple(cards)


def _width(plateau: Plateau) -> str:
    first = plateau.ranges[0]
    if first.low <= 0 or first.high == first.low:
        return f"{plateau.num_points} values"
    return f"a factor of {first.high / first.low:.3g}"


def _plateau_words(plateau: Plateau) -> str:
    ranges = "; ".join(
        f"{r.name} {format_feature(r.name, r.low)} to {format_feature(r.name, r.high)}"
        f"{' (to the end of what was tried)' if r.ends else ''}"
        for r in plateau.ranges
    )
    return (
        f"{sentence(MEASURES[plateau.measure])} within {plateau.tolerance:.1%} of the best: {ranges}."
    )


def _sections(found: Tuning) -> list[Section]:
    sections = [_curves(found)]
    if len(found.parameters) == 2:
        sections.append(_map(found))
    sections.append(_plateaus(found))
    if found.folds:
        sections.append(_folds(found))
    sections.append(_points(found))
    return sections


def _curves(found: Tuning) -> Section:
    """Against the first parameter, with the best of all others."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    name = found.parameters[0]
    values = sorted({p.values[name] for p in found.points if p.values[name] > 0})
    at = {value: [p for p in found.points if p.values[name] == value] for value in values}

    def best(measure: str, choose: Callable[[list[float]], float]) -> list[float]:
        return [choose([getattr(p, measure) for p in at[value]]) * 100 for value in values]

    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(WIDTH_INCHES, 4.4), layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True)
        above.plot(values, best("accuracy", max), color=GOOD, label="strict")
        above.plot(values, best("accuracy_within_noise", max), color="#E69F00", linestyle="--",
                   label="within noise")  # fmt: skip
        above.set_ylabel("accuracy [%]")
        below.plot(values, best("mean_regret", min), color=GOOD, label="knobs of the rule")
        below.plot(values, best("mean_schedule_regret", min), color="#E69F00", linestyle="--",
                   label="best knobs")  # fmt: skip
        below.set_ylabel("mean regret [%]")
        below.set_xlabel(name)
        for axes, measure in ((above, "accuracy"), (below, "mean_regret")):
            _mark_points(axes, found, name, measure)
            if len(values) > 1:
                axes.set_xscale("log")
            axes.set_ylim(bottom=0)
            axes.legend(fontsize=7, ncols=2, frameon=False)
        # powers would need the parser of formulas
        below.xaxis.set_major_formatter(lambda value, _: format_feature(name, value))
        below.xaxis.set_minor_formatter("")
    others = (
        f" Of {', '.join(found.parameters[1:])} the best value each." if found.parameters[1:] else ""
    )
    return Section(
        heading=f"Accuracy and regret over {name}",
        drawing=Drawing(
            name="tuning",
            heading=f"Accuracy and regret over {name}",
            caption="Dotted: the rule as it is; orange: picked; grey: the plateau, as good as the best "
            f"but for the tolerance.{others}",
            figure=figure,
        ),
    )


def _mark_points(axes: "Axes", found: Tuning, name: str, measure: str) -> None:
    plateau = next((p for p in found.plateaus if p.measure == measure), None)
    if plateau is not None:
        first = plateau.ranges[0]
        axes.axvspan(first.low, first.high, color="#DDDDDD", alpha=0.6, linewidth=0)
    axes.axvline(found.untuned.values[name], color=INK, linestyle=":", linewidth=1)
    axes.axvline(found.picked.values[name], color=BAD, linewidth=1)


def _map(found: Tuning) -> Section:
    across, down = found.parameters
    columns = sorted({p.values[across] for p in found.points})[:MAX_AXIS]
    rows = sorted({p.values[down] for p in found.points})[:MAX_AXIS]
    at = {(p.values[down], p.values[across]): p.mean_regret for p in found.points}
    cells = [[at.get((row, column), 0.0) for column in columns] for row in rows]
    with new_figure(1.6 + 0.2 * len(rows)) as (figure, axes):
        draw_map(
            axes, cells,
            [format_feature(down, value) for value in rows],
            [format_feature(across, value) for value in columns],
            [[f"{value:.1%}" for value in row] for row in cells],
            most=max(map(max, cells)) or 1.0,
        )  # fmt: skip
        step = -(-len(columns) // MAX_TICKS)
        axes.set_xticks(axes.get_xticks()[::step])
        axes.set_xlabel(across)
        axes.set_ylabel(down)
        figure.colorbar(axes.images[0], ax=axes, format=lambda x, _: f"{x:.0%}", label="mean regret")
    return Section(
        heading=f"Mean regret over {across} and {down}",
        drawing=Drawing(
            name="grid",
            heading=f"Mean regret over {across} and {down}",
            caption="The lighter, the better.",
            figure=figure,
        ),
    )


def _plateaus(found: Tuning) -> Section:
    rows = tuple(
        (
            text_cell(MEASURES[plateau.measure]),
            number_cell(getattr(plateau.at, plateau.measure) * 100, ".2f"),
            text_cell(values_words(plateau.at.values)),
            number_cell(plateau.tolerance * 100, ".1f"),
            number_cell(plateau.num_points, "d"),
            text_cell(_plateau_words(plateau)),
        )
        for plateau in found.plateaus
    )
    columns = ("measure", "best [%]", "at", "tolerance [%]", "values as good", "plateau")
    table = Table(name="plateaus", heading="Plateaus", columns=columns, rows=rows)
    return Section(heading=table.heading, table=table)


def _folds(found: Tuning) -> Section:
    rows = tuple(
        (
            number_cell(i, "d"),
            text_cell(values_words(fold.values)),
            number_cell(fold.num_train, "d"),
            number_cell(fold.num_test, "d"),
            number_cell(fold.train_regret * 100, ".2f"),
            number_cell(fold.mean_regret * 100, ".2f"),
            number_cell(fold.untuned_regret * 100, ".2f"),
            number_cell(fold.accuracy * 100, ".1f"),
            number_cell(fold.accuracy_within_noise * 100, ".1f"),
        )
        for i, fold in enumerate(found.folds, start=1)
    )
    columns = (
        "fold", "picked", "from scenarios", "judged on", "regret there [%]", "held-out regret [%]",
        "as it is [%]", "accuracy [%]", "within noise [%]",
    )  # fmt: skip
    table = Table(name="folds", heading="Held out, fold by fold", columns=columns, rows=rows)
    return Section(heading=table.heading, table=table)


def _points(found: Tuning) -> Section:
    points = _thinned(found)
    rows = tuple(
        (
            *(
                number_cell(point.values[name], ".6g")
                for name in found.parameters
            ),
            number_cell(point.accuracy * 100, ".1f"),
            number_cell(point.accuracy_within_noise * 100, ".1f"),
            number_cell(point.mean_regret * 100, ".2f"),
            number_cell(point.mean_schedule_regret * 100, ".2f"),
            number_cell(point.num_faults, "d"),
        )
        for point in points
    )  # fmt: skip
    columns = (
        *(f"{name}{' [s]' if name.endswith('_s') else ''}" for name in found.parameters),
        "accuracy [%]", "within noise [%]", "mean regret [%]", "with best knobs [%]", "faults",
    )  # fmt: skip
    marked = points.index(found.picked) if found.picked in points else None
    less = len(points) < len(found.points)
    heading = f"Values tried{f': {len(points)} of {len(found.points)}' if less else ''}"
    table = Table(name="points", heading=heading, columns=columns, rows=rows, marked=marked)
    return Section(heading=heading, hint="Coloured: picked.", table=table)


def _thinned(found: Tuning) -> Sequence[Point]:
    step = -(-len(found.points) // MAX_ROWS)
    return [
        point
        for i, point in enumerate(found.points)
        if i % step == 0 or point in (found.picked, found.untuned)
    ]

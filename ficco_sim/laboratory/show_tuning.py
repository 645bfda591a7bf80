"""Tuning and portability for people: sentences, tables, a CSV file."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from ficco_sim.heuristics.features import format_feature
from ficco_sim.laboratory.missing import Split
from ficco_sim.laboratory.portability import BAD_REGRET, OTHERS, Cell, Portability
from ficco_sim.laboratory.show import csv_text, ends, make_table
from ficco_sim.laboratory.tune import Plateau, Point, Range, Tuning

if TYPE_CHECKING:
    from rich.table import Table

__all__ = [
    "cells_csv",
    "points_csv",
    "portability_lines",
    "portability_tables",
    "tuning_lines",
    "tuning_tables",
]

MAX_ROWS = 80
MEASURES = {
    "accuracy": "accuracy",
    "accuracy_within_noise": "accuracy within noise",
    "mean_regret": "mean regret",
}


def values_text(values: Mapping[str, float]) -> str:
    """Values of parameters with their units: ``tau_s 1.000 ms, factor 5``."""
    return ", ".join(f"{name} {format_feature(name, value)}" for name, value in values.items())


def tuning_lines(found: Tuning) -> list[str]:
    """What was tried and what came of it, a sentence a line."""
    lines = [
        f"{found.rule}: {len(found.points)} values of {', '.join(found.parameters)} in "
        f"{found.num_scenarios} scenarios on {', '.join(found.machines)} (sets: "
        f"{', '.join(found.sets)}), {found.source}",
        f"as it is: {_point(found.untuned)}",
        f"least mean regret, nothing held out: {_point(found.picked)}",
        *(_plateau(plateau) for plateau in found.plateaus),
    ]
    held = found.held_out
    if held is not None:
        lines.append(
            f"held out, {len(found.folds)} folds (each {held.together} in one), seed {found.seed}: "
            f"accuracy {held.accuracy:.1%} {ends(held.accuracy_low, held.accuracy_high)}, within noise "
            f"{held.accuracy_within_noise:.1%}, mean regret {held.mean_regret:.2%} "
            f"{ends(held.mean_regret_low, held.mean_regret_high)}, as it is {held.untuned_regret:.2%}; "
            f"over folds: accuracy {held.fold_accuracy[0]:.1%} to {held.fold_accuracy[1]:.1%}, mean "
            f"regret {held.fold_regret[0]:.2%} to {held.fold_regret[1]:.2%}, picked "
            f"{'; '.join(map(_range, held.picked))}"
        )
    return lines


def _point(point: Point) -> str:
    faults = f", {point.num_faults} faults" if point.num_faults else ""
    return (
        f"{values_text(point.values)}: accuracy {point.accuracy:.1%}, within noise "
        f"{point.accuracy_within_noise:.1%}, mean regret {point.mean_regret:.2%}{faults}"
    )


def _plateau(plateau: Plateau) -> str:
    best = getattr(plateau.at, plateau.measure)
    return (
        f"best {MEASURES[plateau.measure]} {best:.2%} at {values_text(plateau.at.values)}; within "
        f"{plateau.tolerance:.1%} of it: {'; '.join(map(_range, plateau.ranges))} "
        f"({plateau.num_points} values)"
    )


def _range(r: Range) -> str:
    low, high = (format_feature(r.name, value) for value in (r.low, r.high))
    if low == high:
        return f"{r.name} {low}"
    width = f", a factor of {r.high / r.low:.3g}" if r.low > 0 else ""
    end = " (to the end of what was tried)" if r.ends else ""
    return f"{r.name} {low} to {high}{width}{end}"


def tuning_tables(found: Tuning) -> "Iterator[Table]":
    """Values, thinned out if there are many, and folds."""
    step = -(-len(found.points) // MAX_ROWS)
    thinned = f", every {step}th value" if step > 1 else ""
    table = make_table(
        f"{found.rule}, {found.source}{thinned}",
        [],
        [*found.parameters, "accuracy", "within noise", "mean regret", "with best knobs", "faults"],
    )
    for i, point in enumerate(found.points):
        if i % step and point not in (found.picked, found.untuned):
            continue
        table.add_row(
            *(format_feature(name, value) for name, value in point.values.items()),
            f"{point.accuracy:.1%}",
            f"{point.accuracy_within_noise:.1%}",
            f"{point.mean_regret:.2%}",
            f"{point.mean_schedule_regret:.2%}",
            str(point.num_faults),
            style="bold" if point == found.picked else None,
        )
    yield table
    if not found.folds:
        return
    table = make_table(
        f"{found.rule}: picked without a fold, judged on it, {found.source}",
        ["fold"],
        [
            *found.parameters, "picked from", "judged on", "regret there", "accuracy",
            "within noise", "mean regret", "as it is",
        ],
    )  # fmt: skip
    for i, fold in enumerate(found.folds, start=1):
        table.add_row(
            str(i),
            *(format_feature(name, value) for name, value in fold.values.items()),
            str(fold.num_train),
            str(fold.num_test),
            f"{fold.train_regret:.2%}",
            f"{fold.accuracy:.1%}",
            f"{fold.accuracy_within_noise:.1%}",
            f"{fold.mean_regret:.2%}",
            f"{fold.untuned_regret:.2%}",
        )
    yield table


def points_csv(found: Tuning) -> str:
    """A line per combination of values; numbers read back equal."""
    measures = [name for name in Point.__dataclass_fields__ if name != "values"]
    return csv_text(
        [*found.parameters, *measures],
        ([*p.values.values(), *(getattr(p, name) for name in measures)] for p in found.points),
    )


def portability_lines(found: Portability) -> list[str]:
    """What was tuned and judged, and what is missing where it fails, a sentence a line."""
    used = ", ".join(found.used) or "not known"
    lines = [
        f"{found.rule}: {', '.join(found.parameters)} tuned on a machine by the least mean regret, "
        f"judged on others, {found.source}; where both are the same nothing is held out",
        f"features that the rule reads: {used}",
    ]
    for gap in found.missing:
        what = "; ".join(map(_split, gap.splits))
        lines.append(
            f"{gap.machine}: mean regret {gap.mean_regret:.1%} even if tuned there, above "
            f"{BAD_REGRET:.0%}; it does not look at: {what or 'nothing that tells right from wrong'}"
        )
    if found.missing:
        lines.append(f"how that is told: {found.method}")
    return lines


def _split(split: Split) -> str:
    rank = "" if split.spearman is None else f"; Spearman {split.spearman:+.2f}"
    return (
        f"{split.feature} (above {format_feature(split.feature, split.threshold)}: "
        f"{split.told_above:.0%} {split.told}, else {split.told_at_most:.0%}; "
        f"{split.gain_bits:.2f} bits, {split.gain_share:.0%} of all{rank})"
    )


def portability_tables(found: Portability) -> "Iterator[Table]":
    """Regret, accuracy and what tuning again regains, of all pairs of machines."""
    titles: dict[str, Callable[[Cell], str]] = {
        "mean regret %": lambda c: (
            f"{100 * c.mean_regret:.2f} {ends(c.mean_regret_low, c.mean_regret_high)}"
        ),
        "accuracy %": lambda c: f"{100 * c.accuracy:.1f} {ends(c.accuracy_low, c.accuracy_high)}",
        "mean regret regained by tuning where it is judged": lambda c: f"{c.regained:.2%}",
    }
    for title, write in titles.items():
        table = make_table(
            f"{found.rule}: {title}, {found.source}; tuned on (rows), judged on (columns)",
            ["tuned on"],
            [*found.parameters, *found.machines],
        )
        for name in dict.fromkeys(c.tuned_on for c in found.cells):
            row = [c for c in found.cells if c.tuned_on == name]
            # values differ where each machine has its own others
            values = [
                "-" if name == OTHERS else format_feature(key, value)
                for key, value in row[0].values.items()
            ]
            table.add_row(name, *values, *map(write, row))
        yield table


def cells_csv(found: Portability) -> str:
    """A line per pair of machines; numbers read back equal."""
    columns = [name for name in Cell.__dataclass_fields__ if name != "values"]
    return csv_text(
        [*columns, *found.parameters],
        ([*(getattr(cell, name) for name in columns), *cell.values.values()] for cell in found.cells),
    )

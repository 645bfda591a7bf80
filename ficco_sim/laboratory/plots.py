"""Pictures of evaluations, tuning and portability; each is written whole or not at all."""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ficco_sim.heuristics.features import format_feature
from ficco_sim.io import write_bytes
from ficco_sim.laboratory.evaluate import Evaluation
from ficco_sim.laboratory.portability import Portability
from ficco_sim.laboratory.tune import Tuning
from ficco_sim.report import check_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_evaluation", "plot_portability", "plot_tuning"]

# Okabe and Ito's colours, with a dash each, so that the picture also works in grey
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000")
DASHES = ("-", "--", "-.", ":")
LEAST_REGRET = 1e-3  # where the axis of regrets starts
TEXT_UNTIL = 12  # machines up to which cells have their numbers
DARK = 0.6  # of the scale, from which text is white


def plot_evaluation(found: Evaluation, path: Path) -> None:
    """Draw for each rule which share of scenarios has at most which regret.

    Raises
    ------
    FileError
        If the suffix is none of a picture's, or the file cannot be written.
    """

    def draw(figure: "Figure") -> None:
        axes = figure.add_subplot()
        for i, report in enumerate(found.rules):
            regrets = np.sort([max(j.regret, LEAST_REGRET) for j in report.judgements])
            shares = np.arange(1, len(regrets) + 1) / len(regrets)
            total = report.total
            axes.step(
                regrets,
                shares,
                where="post",
                color=COLOURS[i % len(COLOURS)],
                linestyle=DASHES[i % len(DASHES)],
                label=f"{report.rule}: mean regret {total.mean_regret:.1%}, accuracy "
                f"{total.accuracy.share:.0%} ({total.accuracy_within_noise.share:.0%} within noise)",
            )
        axes.set_xscale("log")
        axes.set_ylim(0, 1.02)
        axes.set_xlabel(f"regret of the chosen plan (below {LEAST_REGRET:.1%} drawn there)")
        axes.set_ylabel("share of scenarios with at most that")
        _percent(axes, x=True, y=True)
        axes.legend(loc="lower right", fontsize=8)
        title = f"{found.num_scenarios} scenarios on {len(found.machines)} machines, {found.source}"
        _title(figure, title)

    _draw(path, draw)


def plot_tuning(found: Tuning, path: Path) -> None:
    """Draw accuracy and mean regret against the first parameter, with the best of all others.

    Raises
    ------
    FileError
        See `plot_evaluation`.
    """
    name = found.parameters[0]
    values = sorted({p.values[name] for p in found.points if p.values[name] > 0})

    def best(measure: str, choose: Callable[[list[float]], float]) -> list[float]:
        return [
            choose([getattr(p, measure) for p in found.points if p.values[name] == value])
            for value in values
        ]

    def draw(figure: "Figure") -> None:
        above, below = figure.subplots(2, 1, sharex=True)
        above.plot(values, best("accuracy", max), color=COLOURS[0], label="strict")
        above.plot(
            values,
            best("accuracy_within_noise", max),
            color=COLOURS[1],
            linestyle="--",
            label="within noise",
        )
        above.set_ylabel("accuracy")
        below.plot(values, best("mean_regret", min), color=COLOURS[0], label="knobs of the rule")
        below.plot(
            values,
            best("mean_schedule_regret", min),
            color=COLOURS[1],
            linestyle="--",
            label="best knobs",
        )
        below.set_ylabel("mean regret")
        below.set_xlabel(name + (" [s]" if name.endswith("_s") else ""))
        for axes, measure in ((above, "accuracy"), (below, "mean_regret")):
            plateau = next(p for p in found.plateaus if p.measure == measure)
            axes.axvspan(plateau.ranges[0].low, plateau.ranges[0].high, color="#E8E8E8", linewidth=0)
            for point, words, style in (
                (found.untuned, "as it is", ":"),
                (found.picked, "picked", "-"),
            ):
                axes.axvline(
                    point.values[name], color="#555555", linestyle=style, linewidth=1, label=words
                )
            if len(values) > 1:
                axes.set_xscale("log")
            axes.set_ylim(bottom=0)
            _percent(axes, x=False, y=True)
            axes.legend(fontsize=8)
        others = f", best of {', '.join(found.parameters[1:])}" if found.parameters[1:] else ""
        _title(
            figure,
            f"{found.rule}{others}; {found.num_scenarios} scenarios on {', '.join(found.machines)}, "
            f"{found.source}; grey: plateau",
        )

    _draw(path, draw)


def plot_portability(found: Portability, path: Path) -> None:
    """Draw mean regrets of all pairs of machines as a map of shades.

    Raises
    ------
    FileError
        See `plot_evaluation`.
    """
    rows = list(dict.fromkeys(c.tuned_on for c in found.cells))
    regret = np.array([c.mean_regret for c in found.cells]).reshape(len(rows), len(found.machines))
    accuracy = np.array([c.accuracy for c in found.cells]).reshape(regret.shape)
    most = max(float(regret.max()), LEAST_REGRET)
    name = found.parameters[0]

    def draw(figure: "Figure") -> None:
        axes = figure.add_subplot()
        image = axes.imshow(regret, cmap="Blues", vmin=0, vmax=most, aspect="auto")
        figure.colorbar(image, ax=axes, label="mean regret", format=lambda x, _: f"{x:.0%}")
        axes.set_xticks(range(len(found.machines)), found.machines, rotation=40, ha="right", fontsize=7)
        tuned = {t.machine: t.values[name] for t in found.tuned}
        labels = [f"{row}, {format_feature(name, tuned[row])}" if row in tuned else row for row in rows]
        axes.set_yticks(range(len(rows)), labels, fontsize=7)
        axes.set_xlabel("judged on")
        axes.set_ylabel(f"tuned on, {name}")
        if len(found.machines) <= TEXT_UNTIL:
            for (i, j), value in np.ndenumerate(regret):
                axes.text(
                    j,
                    i,
                    f"{value:.1%}\n({accuracy[i, j]:.0%})",
                    ha="center",
                    va="center",
                    fontsize=7,
                    color="white" if value > DARK * most else "black",
                )
        _title(figure, f"{found.rule}: mean regret (accuracy), {found.source}")

    _draw(path, draw)


def _percent(axes: "Axes", *, x: bool, y: bool) -> None:
    if x:
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    if y:
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    axes.grid(visible=True, which="major", color="#DDDDDD", linewidth=0.6)


def _title(figure: "Figure", text: str) -> None:
    figure.suptitle(text, fontsize=9, x=0.01, ha="left", wrap=True)


def _draw(path: Path, draw: "Callable[[Figure], None]") -> None:
    suffix = check_picture(path)
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": "ficco"}):
        figure = Figure(figsize=(8, 6.5), layout="constrained")
        draw(figure)
        buffer = BytesIO()
        # dates would make equal pictures differ
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(suffix, {})
        figure.savefig(buffer, format=suffix, dpi=110, metadata=metadata)
    write_bytes(path, buffer.getvalue())

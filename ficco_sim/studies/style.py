"""What the figures of all studies share: panels, a look for each series, published values as levels."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ficco_sim.pages.style import SETTINGS
from ficco_sim.studies.published import Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

__all__ = [
    "LOOKS",
    "PUBLISHED",
    "Look",
    "decades",
    "legend_above",
    "level",
    "panels",
    "percent",
    "powers",
    "reference",
    "times",
]

PUBLISHED = "#000000"  # marks of published values: black, and no series of ours is
GREY = "#777777"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One series: Okabe and Ito's colour, and a marker, dash and hatch for readers in grey."""

    colour: str
    marker: str
    dash: Any = "-"
    hatch: str = ""

    @property
    def points(self) -> dict[str, Any]:
        """For markers without a line."""
        return {
            "color": self.colour,
            "marker": self.marker,
            "linestyle": "none",
            "markersize": 5,
            "markeredgecolor": "white",
            "markeredgewidth": 0.5,
        }

    @property
    def line(self) -> dict[str, Any]:
        """For a line with markers."""
        return self.points | {"linestyle": self.dash, "linewidth": 1.4}

    @property
    def bar(self) -> dict[str, Any]:
        """For bars."""
        return {"color": self.colour, "hatch": self.hatch, "edgecolor": "white", "linewidth": 0.4}


LOOKS = (
    Look(colour="#0072B2", marker="o"),
    Look(colour="#E69F00", marker="s", dash="--", hatch="///"),
    Look(colour="#009E73", marker="^", dash="-.", hatch="..."),
    Look(colour="#CC79A7", marker="D", dash=":", hatch="xxx"),
    Look(colour="#D55E00", marker="v", dash=(0, (5, 1, 1, 1, 1, 1)), hatch="---"),
    Look(colour="#56B4E9", marker="P", dash="-", hatch="\\\\\\"),
)


@contextmanager
def panels(
    columns: int, rows: int = 1, *, width: float = 8.2, height: float = 3.4, **options: Any
) -> Iterator[tuple["Figure", list["Axes"]]]:
    """A figure with panels, row by row, to be drawn on within the context, where the style holds.

    Parameters
    ----------
    width, height
        Of the whole figure, in inches.
    options
        Of `matplotlib.figure.Figure.subplots`, such as ``sharey``.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(width, height), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False, **options)
        yield figure, list(grid.flat)


def legend_above(figure: "Figure", axes: Sequence["Axes"], *, columns: int = 4) -> None:
    """One legend for all panels, above them; a name that several share is there once."""
    found: dict[str, Any] = {}
    for each in axes:
        for handle, label in zip(*each.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    figure.legend(
        found.values(),
        found.keys(),
        loc="outside upper center",
        ncols=columns,
        frameon=False,
        fontsize=8,
    )


def level(
    axes: "Axes",
    series: Series,
    words: str,
    *,
    dash: str = "--",
    above: bool = True,
    right: bool = True,
) -> None:
    """A published value as a level across a panel, with what it is written on it."""
    axes.axhline(series.number, color=PUBLISHED, linewidth=0.9, linestyle=dash)
    axes.annotate(
        words,
        (1.0 if right else 0.0, series.number),
        xycoords=("axes fraction", "data"),
        xytext=(-2 if right else 2, 2 if above else -2),
        textcoords="offset points",
        ha="right" if right else "left",
        va="bottom" if above else "top",
        fontsize=7.5,
        color=PUBLISHED,
    )


def times(value: float, _: Any = None) -> str:
    """A ratio as tick label."""
    return f"{value:g}x"


def percent(value: float, _: Any = None) -> str:
    """A share as tick label."""
    return f"{100 * value:g}%"


def powers(axes: "Axes", ticks: Sequence[float], labels: Any = times) -> None:
    """Ticks of a logarithmic x axis where a reader looks for them, and no others."""
    axes.set_xscale("log")
    axes.set_xticks(ticks, [labels(tick) for tick in ticks])
    axes.set_xticks([], minor=True)


def decades(axis: "Axis") -> None:
    """A logarithmic axis with its decades as plain numbers."""
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(lambda *_: "")


def reference(axes: "Axes", at: float = 1.0) -> None:
    """A thin line where nothing is lost or gained."""
    axes.axhline(at, color=GREY, linewidth=0.8, linestyle=":", zorder=0)

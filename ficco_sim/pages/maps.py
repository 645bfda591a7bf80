"""A map of shades with a number in each cell: winners, confusions, regrets of pairs of machines."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ficco_sim.pages.words import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_map"]

DARK = 0.55  # of the scale, from which text on a cell is white
MAX_NUMBERED = 12  # columns up to which cells have their numbers


def draw_map(
    axes: "Axes",
    cells: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    texts: Sequence[Sequence[str]],
    *,
    most: float = 1.0,
) -> None:
    """Draw values from 0 up, ``most`` the darkest.

    Parameters
    ----------
    texts
        What each cell says, where there is room.
    """
    axes.imshow(cells, cmap="Blues", vmin=0, vmax=most, aspect="auto")
    if len(columns) <= MAX_NUMBERED:
        for y, row in enumerate(cells):
            for x, value in enumerate(row):
                ink = "white" if value > DARK * most else "black"
                axes.text(x, y, texts[y][x], ha="center", va="center", color=ink, fontsize=8)
    axes.set_xticks(range(len(columns)), [short(name) for name in columns], rotation=30, ha="right")
    axes.set_yticks(range(len(rows)), [short(name) for name in rows])
    axes.tick_params(length=0)

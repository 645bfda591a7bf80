"""How busy each link was: a map of source and destination, and the machine drawn with its links."""

from typing import TYPE_CHECKING

import numpy as np

from ficco_sim.machine import Machine
from ficco_sim.pages.style import SETTINGS, WIDTH_INCHES
from ficco_sim.topology.picture import link_line, node_places
from ficco_sim.trace import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

__all__ = ["MAX_NODES", "link_figure", "link_shares"]

MAX_NODES = 72  # beyond that neither rows nor nodes could be told apart
MAX_NUMBERED = 10  # nodes up to which cells have their numbers
DARK = 0.55  # share from which text on a cell is white


def link_shares(machine: Machine, trace: Trace) -> dict[tuple[int, int], float]:
    """Least time that each link's bytes take over the makespan, by source and destination."""
    names = {machine.node_name(node): node for node in range(_num_nodes(machine))}
    makespan_s = trace.makespan_s
    busy_s = {(names[load.src], names[load.dst]): load.min_busy_s for load in trace.links}
    return {
        (link.src, link.dst): (
            busy_s.get((link.src, link.dst), 0.0) / makespan_s if makespan_s > 0 else 0.0
        )
        for link in machine.links
    }


def link_figure(machine: Machine, trace: Trace) -> "Figure":
    """The map and the drawing side by side, of a machine of up to `MAX_NODES` nodes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    shares = link_shares(machine, trace)
    colours = mpl.colormaps["cividis"].reversed()
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(WIDTH_INCHES, 3.5), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
        _draw_map(left, machine, shares, colours)
        _draw_graph(right, machine, shares, colours)
        scale = mpl.cm.ScalarMappable(mpl.colors.Normalize(0, 100), colours)
        bar = figure.colorbar(
            scale, ax=[left, right], location="bottom", aspect=40, shrink=0.7, pad=0.02
        )
        bar.set_label("time that a link's bytes need at its full rate / makespan [%]")
    return figure


def _num_nodes(machine: Machine) -> int:
    return machine.num_gpus + len(machine.switches)


def _short(machine: Machine, node: int) -> str:
    return str(node) if node < machine.num_gpus else machine.node_name(node)


def _draw_map(
    axes: "Axes", machine: Machine, shares: dict[tuple[int, int], float], colours: "Colormap"
) -> None:
    num_nodes = _num_nodes(machine)
    cells = np.full((num_nodes, num_nodes), np.nan)
    for (src, dst), share in shares.items():
        cells[src, dst] = share
    axes.imshow(cells, cmap=colours, vmin=0, vmax=1)
    if num_nodes <= MAX_NUMBERED:
        for (src, dst), share in shares.items():
            ink = "white" if share > DARK else "black"
            axes.text(dst, src, f"{share * 100:.0f}", ha="center", va="center", color=ink, fontsize=7)
    step = -(-num_nodes // 12)
    ticks = range(0, num_nodes, step)
    names = [_short(machine, node) for node in ticks]
    turned = max(map(len, names)) > 3
    axes.set_xticks(ticks, names, rotation=90 if turned else 0)
    axes.set_yticks(ticks, names)
    node = "gpu or switch" if machine.switches else "gpu"
    axes.set_xlabel(f"to {node}")
    axes.set_ylabel(f"from {node}")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def _draw_graph(
    axes: "Axes", machine: Machine, shares: dict[tuple[int, int], float], colours: "Colormap"
) -> None:
    """Each direction of a pair is drawn beside the other, from its source to its destination."""
    from matplotlib.collections import LineCollection

    places = node_places(machine)
    at = np.array(places)
    lines = []
    for src, dst in shares:
        along = at[dst] - at[src]
        length = float(np.hypot(*along)) or 1.0
        aside = np.array([along[1], -along[0]]) / length * 0.018
        # links round a torus would lie on those between neighbours: each direction has an arc
        lines.append(np.array(link_line(places[src], places[dst], places)) + aside)
    width = 1.8 if len(lines) <= 120 else 0.6
    axes.add_collection(
        LineCollection(lines, colors=colours(list(shares.values())), linewidths=width, zorder=1)
    )
    for node, (x, y) in enumerate(at):
        box = {
            "boxstyle": "round,pad=0.25",
            "facecolor": "white",
            "edgecolor": "black",
            "linewidth": 0.7,
        }
        axes.text(
            x, y, _short(machine, node), ha="center", va="center", color="black", zorder=2, bbox=box,
            fontsize=8 if len(at) <= 16 else 5,
        )  # fmt: skip
    axes.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2))
    axes.set_aspect("equal")
    axes.set_axis_off()

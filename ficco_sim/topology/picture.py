"""A picture of a machine: gpus on a circle or grid, switches within, a line per pair of nodes."""

import math
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from ficco_sim.io import write_bytes
from ficco_sim.machine import Link, Machine
from ficco_sim.topology.describe import Description, describe
from ficco_sim.units import format_rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

__all__ = ["draw", "link_line", "node_places"]

# Okabe and Ito's colours, from the widest links to the narrowest
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
GPU_COLOUR, SWITCH_COLOUR = "#FFFFFF", "#E8E8E8"
MAX_LABELLED = 64  # gpus; beyond that names would cover each other
WIDEST_LINE, NARROWEST_LINE = 4.0, 0.8
ARC, ARC_POINTS = 0.35, 24  # bulge of an arc, in units of the picture


def draw(machine: Machine, path: Path, description: Description | None = None) -> None:
    """Draw a machine to a .png, .svg or .pdf file, written whole or not at all.

    Parameters
    ----------
    description
        What `describe` says of it, if it is known already.

    Raises
    ------
    FileError
        If the suffix is another or the file cannot be written.
    """
    from ficco_sim.report import check_picture

    suffix = check_picture(path)
    import matplotlib as mpl
    from matplotlib.figure import Figure

    told = description or describe(machine)
    places = node_places(machine)
    with mpl.rc_context({"svg.hashsalt": "ficco"}):
        figure = Figure(figsize=(8, 8.6), layout="constrained")
        axes = figure.add_subplot()
        handles = _draw_links(axes, machine, places)
        _draw_nodes(axes, machine, places)
        axes.set_aspect("equal")
        axes.set_axis_off()
        axes.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2))
        figure.suptitle(
            f"{machine.name}: {machine.num_gpus} x {machine.gpu.name}, {told.kind}", fontsize=12
        )
        axes.set_title(_subtitle(told), fontsize=8, color="#444444")
        if handles:
            figure.legend(
                handles=handles[:8], title="per direction", loc="outside lower center", ncols=4,
                fontsize=8, title_fontsize=8, frameon=False,
            )  # fmt: skip
        buffer = BytesIO()
        metadata = {"Date": None} if suffix == "svg" else {}
        figure.savefig(buffer, format=suffix, dpi=110, metadata=metadata)
    write_bytes(path, buffer.getvalue())


def _subtitle(told: Description) -> str:
    parts = [f"{told.num_links} directed links"]
    parts.append("diameter " + ("none: not connected" if told.diameter is None else str(told.diameter)))
    if told.bisection_bytes_per_s is not None:
        most = "" if told.bisection_exact else "at most "
        parts.append(f"bisection {most}{format_rate(told.bisection_bytes_per_s)} per direction")
    return ", ".join(parts)


def node_places(machine: Machine) -> list[tuple[float, float]]:
    """Gpus of a flat torus on a grid; others on a circle, switches near the gpus they serve."""
    flat = [extent for extent in machine.extents or () if extent > 1]
    if len(flat) == 2:
        rows, cols = flat
        step = 1.7 / (max(rows, cols) - 1)
        return [
            ((g % cols - (cols - 1) / 2) * step, ((rows - 1) / 2 - g // cols) * step)
            for g in range(machine.num_gpus)
        ]
    places = [_on_circle(g / machine.num_gpus, 1.0) for g in range(machine.num_gpus)]
    count = len(machine.switches)
    for index in range(count):
        node = machine.num_gpus + index
        near = {
            places[link.src] for link in machine.links if link.dst == node and link.src < len(places)
        }
        x = sum(p[0] for p in near) / len(near) if near else 0.0
        y = sum(p[1] for p in near) / len(near) if near else 0.0
        if count > 1 and math.hypot(x, y) < 0.1:  # several would sit in the middle
            x, y = _on_circle((index + 0.5) / count, 0.25)
        inwards = 0.8 if len(near) == 1 else 0.6
        places.append((inwards * x, inwards * y))
    return places


def _on_circle(turn: float, radius: float) -> tuple[float, float]:
    angle = math.pi / 2 - 2 * math.pi * turn
    return (radius * math.cos(angle), radius * math.sin(angle))


def _draw_links(axes: "Axes", machine: Machine, places: list[tuple[float, float]]) -> "list[Line2D]":
    from matplotlib.collections import LineCollection
    from matplotlib.lines import Line2D

    rates = {(link.src, link.dst): link.bandwidth_bytes_per_s for link in machine.links}
    by_rate: dict[float, list[Link]] = {}
    for link in machine.links:
        if link.src < link.dst or rates.get((link.dst, link.src)) != link.bandwidth_bytes_per_s:
            by_rate.setdefault(link.bandwidth_bytes_per_s, []).append(link)
    handles = []
    for index, (rate, links) in enumerate(sorted(by_rate.items(), reverse=True)):
        colour = COLOURS[index % len(COLOURS)]
        width = max(WIDEST_LINE * rate / max(by_rate), NARROWEST_LINE)
        if len(links) > 200:
            width = NARROWEST_LINE / 2
        lines = [link_line(places[link.src], places[link.dst], places) for link in links]
        axes.add_collection(LineCollection(lines, colors=colour, linewidths=width, zorder=1))
        for link in links:
            if (link.dst, link.src) not in rates:
                _draw_arrow(axes, places[link.src], places[link.dst], colour)
        handles.append(Line2D([], [], color=colour, linewidth=max(width, 1), label=format_rate(rate)))
    return handles


def link_line(
    a: tuple[float, float], b: tuple[float, float], places: list[tuple[float, float]]
) -> list[tuple[float, float]]:
    """A straight line, or an arc where other nodes lie on it, as the links round a torus do."""
    dx, dy = b[0] - a[0], b[1] - a[1]
    length = math.hypot(dx, dy)
    covered = any(
        abs((x - a[0]) * dy - (y - a[1]) * dx) < 1e-9 * length
        and 0 < (x - a[0]) * dx + (y - a[1]) * dy < length**2 * (1 - 1e-9)
        for x, y in places
        if (x, y) not in (a, b)
    )
    if not covered:
        return [a, b]
    bulge = ARC / length
    middle = ((a[0] + b[0]) / 2 + bulge * dy, (a[1] + b[1]) / 2 - bulge * dx)
    points = []
    for i in range(ARC_POINTS + 1):
        t = i / ARC_POINTS
        weights = ((1 - t) ** 2, 2 * t * (1 - t), t**2)
        points.append(
            tuple(
                sum(w * p[axis] for w, p in zip(weights, (a, middle, b), strict=True))
                for axis in (0, 1)
            )
        )
    return [(x, y) for x, y in points]


def _draw_arrow(axes: "Axes", a: tuple[float, float], b: tuple[float, float], colour: str) -> None:
    """An arrow head in the middle of a link that has no link back."""
    head = (0.45 * a[0] + 0.55 * b[0], 0.45 * a[1] + 0.55 * b[1])
    style = {"arrowstyle": "-|>", "color": colour, "mutation_scale": 22, "linewidth": 0}
    axes.annotate("", xy=head, xytext=a, arrowprops=style)


def _draw_nodes(axes: "Axes", machine: Machine, places: list[tuple[float, float]]) -> None:
    for node, (x, y) in enumerate(places):
        is_gpu = node < machine.num_gpus
        if is_gpu and machine.num_gpus > MAX_LABELLED:
            axes.plot(x, y, marker="o", markersize=3, color="black", zorder=2)
            continue
        axes.text(
            x,
            y,
            str(node) if is_gpu else machine.node_name(node),
            ha="center",
            va="center",
            fontsize=9 if is_gpu and machine.num_gpus <= 16 else 7,
            zorder=3,
            bbox={
                "boxstyle": "circle,pad=0.3" if is_gpu else "round,pad=0.3",
                "facecolor": GPU_COLOUR if is_gpu else SWITCH_COLOUR,
                "edgecolor": "black",
                "linewidth": 0.8,
            },
        )

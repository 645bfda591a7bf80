"""Pictures and tables for people. The only file that draws."""

import textwrap
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from ficco_sim.comparison import Comparison, Result, best_of_each
from ficco_sim.errors import FileError
from ficco_sim.io import check_target, write_bytes
from ficco_sim.metrics import compute_waits
from ficco_sim.plan import Plan, Queue
from ficco_sim.trace import Trace
from ficco_sim.units import MS, US, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table

__all__ = ["best_of_each", "draw_tasks", "plot_timeline", "results_table"]

# Okabe and Ito's colours: told apart by colour-blind readers, and in grey by their lightness
COLOURS = {"gemm": "#0072B2", "transfer": "#E69F00", "local_copy": "#009E73"}
WAITS = {"transfer": ("#F4D9D0", "////"), "host": ("#E8E8E8", "\\\\\\\\")}
LABELS = {"gemm": "GEMM", "transfer": "transfer", "local_copy": "local copy"}
WAIT_LABELS = {"transfer": "waits for a transfer", "host": "waits for the host"}
COMPUTE_LANE, COPY_LANE, GPU_GAP = 1.0, 0.34, 0.45  # lane heights
INCHES_PER_UNIT, MAX_HEIGHT_INCHES = 0.27, 40.0
TITLE_COLUMNS = 150
FORMATS = ("png", "svg", "pdf")


def plot_timeline(
    plan: Plan,
    trace: Trace,
    path: Path,
    *,
    title: str = "",
    marks: dict[str, float] | None = None,
) -> None:
    """Draw a trace: a lane per queue, grouped by gpu, tasks coloured by kind, waits hatched.

    Parameters
    ----------
    path
        A .png, .svg or .pdf file, written whole or not at all.
    title
        A sentence over the picture.
    marks
        Times in seconds to mark by a vertical line, by name.

    Raises
    ------
    FileError
        If the suffix is another or the file cannot be written.
    """
    suffix = check_picture(path)
    import matplotlib as mpl
    from matplotlib.figure import Figure

    lanes, height = _lanes(trace)
    inches = min(max(height * INCHES_PER_UNIT, 1.5) + 1.6, MAX_HEIGHT_INCHES)
    with mpl.rc_context({"svg.hashsalt": "ficco", "hatch.linewidth": 0.4, "hatch.color": "#888888"}):
        figure = Figure(figsize=(13, inches), layout="constrained")
        axes = figure.add_subplot()
        longest_s = max([trace.makespan_s, *(marks or {}).values()])
        unit_s, unit = (MS, "ms") if longest_s >= MS else (US, "us")
        draw_tasks(axes, plan, trace, lanes, unit_s)
        _draw_gpus(axes, lanes, height)
        axes.axvline(trace.makespan_s / unit_s, color="black", linewidth=1.2)
        for index, (name, time_s) in enumerate((marks or {}).items()):
            axes.axvline(
                time_s / unit_s, color="#555555", linewidth=1, linestyle=("--", ":")[index % 2]
            )
            axes.text(
                time_s / unit_s,
                -0.35,
                f"{name} {format_seconds(time_s)}",
                ha="center",
                va="bottom",
                fontsize=8,
            )
        axes.set_xlim(0, longest_s / unit_s * 1.02 if longest_s > 0 else 1)
        axes.set_xlabel(f"time [{unit}]; solid line: makespan {format_seconds(trace.makespan_s)}")
        name = f"{trace.schedule}: {trace.workload} on {trace.machine}"
        lines = textwrap.wrap(title, TITLE_COLUMNS)
        figure.suptitle("\n".join([name, *lines]), fontsize=10, x=0.01, ha="left")
        axes.set_title(_provenance(trace), fontsize=8, color="#444444", loc="left", pad=24)
        _legend(axes)
        buffer = BytesIO()
        metadata = {"Date": None} if suffix == "svg" else {}
        figure.savefig(buffer, format=suffix, dpi=110, metadata=metadata)
    write_bytes(path, buffer.getvalue())


def check_picture(path: Path) -> str:
    """The format of a picture by its suffix.

    Raises
    ------
    FileError
        If the suffix is another or the file cannot be written.
    """
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        raise FileError(f"{path}: a picture ends in .{', .'.join(FORMATS)}")
    check_target(path)
    return suffix


def _provenance(trace: Trace) -> str:
    kind = "simulated" if trace.source == "sim" else "measured"
    settings = ", ".join(f"{key} {value}" for key, value in trace.environment.items())
    labels = f"; {', '.join(trace.labels)}" if trace.labels else ""
    return f"{kind} ({settings}){labels}"


def _lanes(trace: Trace) -> tuple[dict[Queue, tuple[float, float]], float]:
    """Top and height of each queue's lane, and the height of all."""
    queues = sorted(
        {span.queue for span in trace.spans},
        key=lambda q: (q.gpu, q.engine != "compute", q.engine, q.index),
    )
    lanes: dict[Queue, tuple[float, float]] = {}
    top = 0.0
    gpu = queues[0].gpu if queues else 0
    for queue in queues:
        if queue.gpu != gpu:
            gpu = queue.gpu
            top += GPU_GAP
        height = COMPUTE_LANE if queue.engine == "compute" else COPY_LANE
        lanes[queue] = (top, height)
        top += height
    return lanes, top


def draw_tasks(
    axes: "Axes", plan: Plan, trace: Trace, lanes: dict[Queue, tuple[float, float]], unit_s: float
) -> None:
    """Boxes of the tasks and waits of some queues.

    Parameters
    ----------
    lanes
        Top and height of each queue to draw, downwards.
    unit_s
        Seconds in a unit of the time axis.
    """
    from matplotlib.collections import PolyCollection

    def box(queue: Queue, start_s: float, end_s: float) -> list[tuple[float, float]]:
        top, height = lanes[queue]
        left, right = start_s / unit_s, end_s / unit_s
        low, high = top + 0.06 * height, top + 0.94 * height
        return [(left, low), (right, low), (right, high), (left, high)]

    for cause, (colour, hatch) in WAITS.items():
        boxes = [
            box(w.queue, w.start_s, w.end_s)
            for w in compute_waits(plan, trace)
            if w.cause == cause and w.queue in lanes
        ]
        if boxes:
            axes.add_collection(
                PolyCollection(boxes, facecolors=colour, edgecolors="none", hatch=hatch)
            )
    for kind, colour in COLOURS.items():
        boxes = [
            box(s.queue, s.start_s, s.end_s) for s in trace.spans if s.kind == kind and s.queue in lanes
        ]
        if boxes:
            axes.add_collection(
                PolyCollection(boxes, facecolors=colour, edgecolors="white", linewidths=0.35)
            )


def _draw_gpus(axes: "Axes", lanes: dict[Queue, tuple[float, float]], height: float) -> None:
    extents: dict[int, tuple[float, float]] = {}
    for queue, (top, lane_height) in lanes.items():
        first, _ = extents.get(queue.gpu, (top, top))
        extents[queue.gpu] = (first, top + lane_height)
    for gpu, (top, bottom) in extents.items():
        if gpu != min(extents):
            axes.axhline(top - GPU_GAP / 2, color="#BBBBBB", linewidth=0.6)
        assert bottom > top
    axes.set_yticks([(a + b) / 2 for a, b in extents.values()], [f"gpu {g}" for g in extents])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(height + 0.2, -0.3)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _legend(axes: "Axes") -> None:
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=c, label=LABELS[k]) for k, c in COLOURS.items()]
    handles += [
        Patch(facecolor=c, hatch=h, edgecolor="#888888", linewidth=0, label=WAIT_LABELS[k])
        for k, (c, h) in WAITS.items()
    ]
    axes.legend(
        handles=handles, ncols=len(handles), loc="lower right", bbox_to_anchor=(1.0, 1.0), fontsize=8,
        frameon=False, borderaxespad=1.6,
    )  # fmt: skip


def results_table(results: Sequence[Result], *, title: str = "") -> "Table":
    """A table for the terminal, a row per result."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    table.add_column("schedule", no_wrap=True)
    drawn = any(result.interval_s is not None for result in results)
    interval = ("10-90 %",) if drawn else ()
    for name in ("chunks", "queues", "makespan", *interval, "speed-up", "of ideal", "exposed"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("DIL gemm", "comm", "CIL gemm", "comm"):
        table.add_column(name, justify="right", min_width=4)
    table.add_column("held back by", no_wrap=True)
    both = len({result.engine for result in results}) > 1
    if both:
        table.add_column("engine")
    for r in results:
        fraction = "-" if r.fraction_of_ideal is None else f"{r.fraction_of_ideal:.0%}"
        marks = ("*" if "emulated-2d" in r.labels else "") + ("~" if r.too_close else "")
        table.add_row(
            r.schedule + marks,
            str(r.num_chunks),
            str(r.compute_queues),
            format_seconds(r.makespan_s),
            *([_spread(r)] if drawn else []),
            f"{r.speedup:.2f}x",
            fraction,
            format_seconds(r.exposed_comm_s),
            f"{r.gemm_dil:.2f}",
            f"{r.comm_dil:.2f}",
            f"{r.gemm_cil:.2f}",
            f"{r.comm_cil:.2f}",
            r.cause,
            *([r.engine] if both else []),
            style="bold" if r is results[0] else None,
        )
    captions = []
    if any("emulated-2d" in r.labels for r in results):
        captions.append("* 2d copies emulated: simulated as 1d copies of the same size")
    if any(r.too_close for r in results):
        captions.append("~ too close to call with the best")
    if captions:
        table.caption = "\n".join(captions)
        table.caption_justify = "left"
    return table


def _spread(result: Result) -> str:
    """How far the ends of the interval lie from the makespan."""
    if result.interval_s is None or result.makespan_s <= 0:
        return ""
    low, high = (end_s / result.makespan_s - 1 for end_s in result.interval_s)
    return f"{low:+.0%} {high:+.0%}"


def summary_lines(comparison: Comparison) -> list[str]:
    """What was compared, in two lines."""
    return [
        f"{comparison.workload} on {comparison.machine} "
        f"(simulated, costs {comparison.costs}, submission {comparison.submission})",
        f"GEMM alone {format_seconds(comparison.gemm_s)}, communication alone "
        f"{format_seconds(comparison.comm_s)}, serial {format_seconds(comparison.serial_s)}, "
        f"ideal bound {format_seconds(comparison.ideal_s)}",
    ]

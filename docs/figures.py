"""Draw the figures of docs/concepts.md, from simulated plans and from the package's data.

``python docs/figures.py FOLDER [NAME ...]`` writes them as SVG files; ``docs/figures`` has the
committed ones. What they show is computed in ``figure_data.py``.
"""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import figure_data as data
import matplotlib as mpl

from ficco_sim.comparison import Evaluation, compare
from ficco_sim.io import write_bytes
from ficco_sim.machine import load_machine
from ficco_sim.pages.figures import comparison_figures, time_unit
from ficco_sim.pages.style import GOOD, MUTED, PART_STYLES, new_figure, to_svg
from ficco_sim.pages.subject import Subject
from ficco_sim.plan import Queue, Transfer
from ficco_sim.report import COLOURS, LABELS, WAIT_LABELS, WAITS, draw_tasks
from ficco_sim.schedules import FICCO
from ficco_sim.units import format_seconds
from ficco_sim.workload import get_workload

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GREYS = ("#1B4F72", "#5D9CC8", "#A9CCE3", "#E3EEF6")  # steps, dark to light
LINES = (("#0072B2", "-", "o"), ("#D55E00", "--", "s"), ("#009E73", "-.", "^"), ("#E69F00", ":", "D"))
HATCHES = ("", "///", "|||", "xxx", "---")  # told apart in grey
COMPUTE, COPY, GAP = 1.0, 0.3, 0.7  # heights of lanes
PAPER = b'<rect width="100%" height="100%" fill="#ffffff"/>'  # legible on dark pages too

Lanes = dict[Queue, tuple[float, float]]


def overlap() -> "Figure":
    """Serial against overlap: the queues of gpu 0."""
    runs = {
        "serial": data.run("serial"),
        "hetero-batched-1d, 4 chunks": data.run("hetero-batched-1d", num_chunks=4),
    }
    return _timelines(runs, ideal=True)


def links() -> "Figure":
    """Who sends to gpu 0 when: shard after shard, and in chunks from all peers."""
    runs = {
        "shard-p2p": _by_peer(data.run("shard-p2p")),
        "hetero-batched-1d, 4 chunks": _by_peer(data.run("hetero-batched-1d", num_chunks=4)),
    }
    return _timelines(runs, copies=True, compute=False, note="a lane for each of the seven links in")


def chunks() -> "Figure":
    """Which step brings which part of A to gpu 0, cut by rows and by columns."""
    with new_figure(2.6) as (figure, axes):
        for left, schedule in ((0.0, "hetero-unfused-1d"), (22.0, "hetero-unfused-2d")):
            axes.add_patch(
                mpl.patches.Rectangle(
                    (left, 0), 16, 8, facecolor="white", edgecolor="#222222", hatch=""
                )
            )
            axes.text(left + 8, 4, "own shard", ha="center", va="center", fontsize=8)
            for step, region in data.chunk_regions(schedule):
                (top, bottom), (start, end) = region.rows, region.cols
                axes.add_patch(
                    mpl.patches.Rectangle(
                        (left + start, top), end - start, bottom - top, facecolor=GREYS[step],
                        edgecolor="white", linewidth=1.0,
                    )
                )  # fmt: skip
                axes.text(
                    left + (start + end) / 2, (top + bottom) / 2, str(step), ha="center", va="center",
                    fontsize=7, color="white" if step < 2 else "#222222",
                )  # fmt: skip
            words = "1d: slices of rows" if schedule.endswith("1d") else "2d: slices of columns"
            axes.text(left + 8, -1.2, words, ha="center", va="bottom")
        axes.set_xlim(-5.5, 38.5)
        axes.set_ylim(33, -4)
        axes.set_yticks([4, 12, 20, 28], [f"shard {g}" for g in range(4)])
        axes.set_xticks([])
        axes.tick_params(axis="y", length=0)
        for side in ("left", "bottom"):
            axes.spines[side].set_visible(False)
        axes.set_xlabel("A as gpu 0 of 4 receives it; number and shade: step", fontsize=8)
    return figure


def axes() -> "Figure":
    """The compute queue of gpu 0 under each FiCCO schedule."""
    runs = {name: data.run(name, num_chunks=4) for name in FICCO}
    return _timelines(runs, copies=False)


def engines() -> "Figure":
    """The same plan by DMA engines and by copy kernels."""
    runs = {
        f"engine {engine}": data.run("hetero-batched-1d", data.LONG, num_chunks=4, engine=engine)
        for engine in ("dma", "core")
    }
    return _timelines(runs)


def submission() -> "Figure":
    """The same plan captured in a graph and submitted task by task."""
    runs = {
        words: data.run("hetero-unfused-1d", "llama3-70b-tp8-qkv-4k", data.MESH, kind, num_chunks=4)
        for words, kind in (("one graph", "graph"), ("eager: task by task", "eager"))
    }
    return _timelines(runs)


def ideal() -> "Figure":
    """The bound, and how much of the way to it a schedule comes."""
    best = data.run("hetero-batched-1d", num_chunks=8).result
    serial = data.run("serial").result
    gemm_s = serial.breakdown.gemm_s
    with new_figure(2.3) as (figure, plot):
        unit_s, unit = time_unit(serial.makespan_s)
        rows = (
            ("communication alone", serial.ideal_s, "#E69F00"),
            ("GEMM alone", gemm_s, GOOD),
            ("serial", serial.makespan_s, MUTED),
            ("hetero-batched-1d", best.makespan_s, GOOD),
        )
        for place, (_, time_s, colour) in enumerate(rows):
            plot.barh(place, time_s / unit_s, color=colour, height=0.7)
            gain = f": {best.speedup:.2f}x, {best.fraction_of_ideal:.0%} of ideal" if place == 3 else ""
            plot.text(time_s / unit_s, place, f" {time_s / unit_s:.2f}{gain}", va="center")
        bound = serial.ideal_s / unit_s
        plot.axvline(bound, linestyle=":", color="#555555")
        plot.text(
            bound, -0.62, f"ideal {serial.makespan_s / serial.ideal_s:.2f}x", ha="center", va="bottom"
        )
        plot.set_yticks(range(len(rows)), [name for name, _, _ in rows])
        plot.tick_params(axis="y", length=0)
        plot.set_ylim(3.7, -1.3)
        plot.set_xlim(0, serial.makespan_s / unit_s * 1.12)
        plot.set_xlabel(f"time [{unit}]")
    return figure


def decomposition() -> "Figure":
    """Loss by cutting over the number of chunks."""
    losses = data.decomposition()
    with new_figure(2.9) as (figure, plot):
        for (name, row), (colour, line, marker) in zip(losses.gemm.items(), LINES, strict=True):
            plot.plot(data.CHUNKS, row, line, color=colour, marker=marker, label=f"GEMM, {name}")
        plot.plot(
            data.CHUNKS, losses.communication, "-", color=MUTED, marker="v", label="communication, 1d"
        )
        plot.axhline(1, color="#555555", linewidth=0.8, linestyle=":")
        plot.set_xscale("log", base=2)
        plot.set_xticks(data.CHUNKS, [str(c) for c in data.CHUNKS])
        plot.set_xlabel("chunks per shard")
        plot.set_ylabel("DIL: parts alone / whole alone")
        plot.legend(frameon=False, fontsize=8)
    return figure


def contention() -> "Figure":
    """Loss by running side by side: GEMM and communication, by engine and machine."""
    with new_figure(2.6) as (figure, plot):
        names = []
        for place, (machine, engine) in enumerate(
            (m, e) for m in (data.MESH, data.SWITCH) for e in ("dma", "core")
        ):
            result = data.run(
                "hetero-batched-1d", data.LONG, machine, num_chunks=4, engine=engine
            ).result
            for shift, value, colour, hatch, words in (
                (-0.19, result.gemm_cil, GOOD, "", "GEMM"),
                (0.19, result.comm_cil, "#E69F00", "///", "communication"),
            ):
                plot.barh(
                    place + shift, value - 1, left=1, height=0.36, color=colour, hatch=hatch,
                    edgecolor="white", label=words if place == 0 else None,
                )  # fmt: skip
                plot.text(value, place + shift, f" {value:.2f}", va="center", fontsize=8)
            names.append(f"{machine}, {engine}")
        plot.set_yticks(range(len(names)), names)
        plot.tick_params(axis="y", length=0)
        plot.set_ylim(len(names) - 0.5, -0.5)
        plot.set_xlim(1, 1.65)
        plot.set_xlabel("CIL: time under overlap / time alone (1: no loss)")
        figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=8)
    return figure


def waits() -> "Figure":
    """Where the makespan goes, by schedule."""
    comparison = compare(get_workload(data.ATTENTION), load_machine(data.MESH), intervals=False)
    drawings = comparison_figures(Subject(comparison=comparison, command=""))
    figure = next(drawing.figure for drawing in drawings if drawing.name == "breakdown")
    for patch in [*figure.axes[0].patches, *figure.legends[0].get_patches()]:
        if patch.get_hatch() == "...":
            patch.set_hatch("|||")  # dots take 100 KB
    return figure


def relay() -> "Figure":
    """The shard of gpu 0 on its way round a ring, whole and in chunks."""
    runs = {
        "whole shards": data.run("shard-ring", machine=data.RING),
        "4 chunks": data.run("uniform-unfused-1d", machine=data.RING, num_chunks=4),
    }
    with new_figure(3.6) as (figure, plot):
        longest_s = max(run.trace.makespan_s for run in runs.values())
        unit_s, unit = time_unit(longest_s)
        for panel, (words, run) in enumerate(runs.items()):
            top = 9.6 * panel
            plot.text(0, top - 0.75, words, va="bottom", weight="bold")
            for start_s, end_s, gpu, step in data.journey(run):
                plot.barh(
                    top + gpu, (end_s - start_s) / unit_s, left=start_s / unit_s, height=0.8,
                    color=GREYS[step], edgecolor="#222222", linewidth=0.4,
                )  # fmt: skip
        plot.set_yticks(
            [9.6 * panel + gpu for panel in range(2) for gpu in range(1, 8)],
            [f"gpu {gpu}" for _ in range(2) for gpu in range(1, 8)],
            fontsize=7,
        )
        plot.tick_params(axis="y", length=0)
        plot.set_ylim(9.6 + 7.7, -1.9)
        plot.set_xlabel(
            f"time [{unit}]; a bar: a part of gpu 0's shard arrives; shade: chunk", fontsize=8
        )
    return figure


def bell() -> "Figure":
    """Speed-ups over the ratio of GEMM to communication."""
    points = data.bell()
    ratios = [p.ratio for p in points]
    with new_figure(3.0) as (figure, plot):
        for values, words, (colour, line, marker) in (
            ([p.ideal for p in points], "ideal bound", (MUTED, ":", "")),
            ([p.finer for p in points], "best FiCCO plan", LINES[0]),
            ([p.shard for p in points], "shard-p2p", LINES[1]),
        ):
            plot.plot(ratios, values, line, color=colour, marker=marker, markersize=4, label=words)
        plot.axhline(1, color="#555555", linewidth=0.8)
        plot.axvline(1, color="#555555", linewidth=0.8, linestyle=":")
        plot.set_xscale("log")
        plot.set_xticks(
            [0.2, 0.5, 1, 2, 5, 10, 20, 50], ["0.2", "0.5", "1", "2", "5", "10", "20", "50"]
        )
        plot.minorticks_off()
        plot.set_ylim(0, 2.1)
        plot.set_xlabel("GEMM alone / communication alone")
        plot.set_ylabel("speed-up over serial [x]")
        plot.legend(frameon=False, fontsize=8)
    return figure


def calibration() -> "Figure":
    """The fitted GEMM formula against every shape that was timed."""
    points, median = data.gemm_errors()
    with new_figure(2.8) as (figure, plot):
        plot.axhspan(1 - median, 1 + median, color="#BFD9EA", linewidth=0)
        plot.scatter(
            [flops / 1e12 for flops, _ in points], [ratio for _, ratio in points], s=5,
            color=GOOD, linewidths=0,
        )  # fmt: skip
        plot.axhline(1, color="#555555", linewidth=0.8)
        plot.set_xscale("log")
        plot.set_yscale("log")
        plot.set_xticks([1e-4, 1e-3, 0.01, 0.1, 1], ["0.0001", "0.001", "0.01", "0.1", "1"])
        plot.set_yticks([0.5, 0.7, 1, 1.4], ["0.5", "0.7", "1", "1.4"])
        plot.minorticks_off()
        plot.set_xlabel("size of the GEMM [TFLOP]")
        plot.set_ylabel("formula / measured")
        plot.set_title(f"band: held-out median error, {median:.1%}", fontsize=8, loc="left")
    return figure


def too_close() -> "Figure":
    """Speed-ups with what the fits leave open."""
    comparison = compare(get_workload(data.CLOSE), load_machine(data.SWITCH))
    drawings = comparison_figures(Subject(comparison=comparison, command=""))
    return next(drawing.figure for drawing in drawings if drawing.name == "speedup")


def labels() -> "Figure":
    """Where the profile of each gpu has its numbers from."""
    counts = sorted(data.label_counts().items(), key=lambda row: -_known(row[1]))
    colours = [colour for colour, _ in PART_STYLES.values()]
    with new_figure(2.9) as (figure, plot):
        left = [0] * len(counts)
        for label, colour, hatch in zip(data.LABELS, colours, HATCHES, strict=True):
            values = [count[label] for _, count in counts]
            plot.barh(
                range(len(counts)), values, left=left, color=colour, hatch=hatch, edgecolor="white",
                height=0.72, label=label,
            )  # fmt: skip
            left = [a + b for a, b in zip(left, values, strict=True)]
        plot.set_yticks(range(len(counts)), [name for name, _ in counts])
        plot.tick_params(axis="y", length=0)
        plot.set_ylim(len(counts) - 0.5, -0.5)
        plot.set_xlabel("entries about the fitted profile")
        figure.legend(loc="outside upper center", ncols=5, frameon=False, fontsize=8, columnspacing=1)
    return figure


FIGURES: dict[str, Callable[[], "Figure"]] = {
    "overlap": overlap,
    "links": links,
    "chunks": chunks,
    "axes": axes,
    "engines": engines,
    "ideal": ideal,
    "decomposition": decomposition,
    "contention": contention,
    "waits": waits,
    "submission": submission,
    "relay": relay,
    "bell": bell,
    "calibration": calibration,
    "too_close": too_close,
    "labels": labels,
}


def write(folder: Path, names: Sequence[str] = ()) -> None:
    """Write some figures, or all."""
    for name in names or FIGURES:
        write_bytes(folder / f"{name}.svg", _small(to_svg(FIGURES[name]())))


def _small(svg: bytes) -> bytes:
    """On white paper, without the library's version, coordinates to a hundredth of a point."""
    svg = re.sub(rb"<metadata>.*?</metadata>|<!--.*?-->", b"", svg, flags=re.DOTALL)
    start = svg.index(b">", svg.index(b"<svg")) + 1
    tags = re.sub(rb"<[^>]*>", lambda tag: re.sub(rb"(\.\d\d)\d+", rb"\1", tag[0]), svg[start:])
    return svg[:start] + PAPER + tags


def _timelines(
    runs: dict[str, Evaluation],
    *,
    copies: bool = True,
    compute: bool = True,
    ideal: bool = False,
    note: str = "",
) -> "Figure":
    """Queues of gpu 0 of several runs, one below the other on one time axis."""
    placed: list[tuple[str, Evaluation, Lanes, float]] = []
    bottom = 0.0
    for words, run in runs.items():
        lanes: Lanes = {}
        top = bottom = bottom + GAP
        queues = sorted(
            {span.queue for span in run.trace.spans if span.queue.gpu == 0},
            key=lambda q: (q.engine != "compute", q.index),
        )
        for queue in queues:
            is_compute = queue.engine == "compute"
            if (is_compute and compute) or (not is_compute and copies):
                height = COMPUTE if is_compute else COPY
                lanes[queue] = (bottom, height)
                bottom += height
        placed.append((words, run, lanes, top))
    longest_s = max(run.trace.makespan_s for run in runs.values())
    unit_s, unit = time_unit(longest_s)
    with (
        new_figure(1.0 + 0.22 * bottom) as (figure, plot),
        mpl.rc_context({"hatch.color": "#888888"}),
    ):
        for words, run, lanes, top in placed:
            draw_tasks(plot, run.plan, run.trace, lanes, unit_s)
            label = f"{words}: {format_seconds(run.trace.makespan_s)}"
            plot.text(0, top - 0.05, label, va="bottom", fontsize=8)
        if ideal:
            bound_s = next(iter(runs.values())).result.ideal_s
            plot.axvline(bound_s / unit_s, color="#555555", linestyle=":")
            plot.text(bound_s / unit_s, bottom + 0.1, "ideal ", ha="right", va="top", fontsize=8)
        plot.set_xlim(0, longest_s / unit_s * 1.01)
        plot.set_ylim(bottom + 0.9 * ideal + 0.1, -0.1)
        plot.set_yticks([])
        plot.spines["left"].set_visible(False)
        plot.set_xlabel("; ".join(filter(None, (f"time [{unit}]", note))))
        _legend(figure, runs.values(), copies=copies, compute=compute)
    return figure


def _legend(figure: "Figure", runs: "Sequence[Evaluation]", *, copies: bool, compute: bool) -> None:
    """Only what is drawn."""
    from ficco_sim.metrics import compute_waits

    kinds = {"transfer"} if copies else set()
    causes: set[str] = set()
    for run in runs:
        if compute:
            kinds |= {s.kind for s in run.trace.spans if s.queue.gpu == 0} - {"transfer"}
            causes |= {w.cause for w in compute_waits(run.plan, run.trace) if w.queue.gpu == 0}
    handles = [
        mpl.patches.Patch(facecolor=c, label=LABELS[k]) for k, c in COLOURS.items() if k in kinds
    ]
    handles += [
        mpl.patches.Patch(facecolor=c, hatch=h, linewidth=0, edgecolor="#888888", label=WAIT_LABELS[k])
        for k, (c, h) in WAITS.items()
        if k in causes
    ]
    figure.legend(
        handles=handles, loc="outside upper center", ncols=2, frameon=False, fontsize=8
    )  # fmt: skip


def _by_peer(run: Evaluation) -> Evaluation:
    """The run with the transfers into gpu 0 on a lane for each sender, whatever their queues."""
    sources = {task.id: task.src.gpu for task in run.plan.tasks if isinstance(task, Transfer)}
    spans = tuple(
        replace(span, queue=Queue(gpu=0, engine="dma", index=sources[span.task_id]))
        for span in run.trace.spans
        if span.kind == "transfer" and span.queue.gpu == 0
    )
    kept = tuple(task for task in run.plan.tasks if task.id in {span.task_id for span in spans})
    return replace(run, trace=replace(run.trace, spans=spans), plan=replace(run.plan, tasks=kept))


def _known(count: "data.Counter[str]") -> float:
    return 1 - count["estimated"] / count.total()


def main(arguments: Sequence[str]) -> None:
    """Write the figures that are named, or all, to the folder that comes first."""
    if not arguments:
        raise SystemExit("usage: python docs/figures.py FOLDER [NAME ...]")
    for name in arguments[1:]:
        if name not in FIGURES:
            raise SystemExit(f"figure {name!r} is unknown; one of: {', '.join(FIGURES)}")
    write(Path(arguments[0]), arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])

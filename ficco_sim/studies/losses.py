"""What cutting and overlapping cost: decomposition and contention losses (DIL, CIL)."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ficco_sim.comparison import compare, gemm_to_communication
from ficco_sim.costs import CostModel, GemmShape
from ficco_sim.grid import Grid
from ficco_sim.machine import Machine
from ficco_sim.schedules import make_plan, side_by_side
from ficco_sim.sim import communication_only, simulate
from ficco_sim.studies.published import published
from ficco_sim.studies.style import (
    LOOKS,
    PUBLISHED,
    legend_above,
    panels,
    percent,
    powers,
    reference,
    times,
)
from ficco_sim.units import KIB, MIB
from ficco_sim.workload import Workload, split

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = [
    "PAPER_SCHEDULES",
    "contention",
    "copy_cuts",
    "draw_contention",
    "draw_copy_cuts",
    "draw_gemm_cuts",
    "draw_loss_shares",
    "gemm_cuts",
    "loss_shares",
]

PAPER_SCHEDULES = ("uniform-fused-1d", "uniform-fused-2d", "hetero-fused-1d", "hetero-unfused-1d")
"""The four of the eight schedules that the paper studies."""
CUTS = (("rows", 8), ("rows", 64), ("columns", 8), ("columns", 64))
TICKS = (1, 2, 4, 8, 16, 32, 64)
ENGINE_WORDS = {"dma": "DMA engines", "core": "copy kernels"}


def gemm_cuts(workloads: Iterable[Workload], machines: Iterable[Machine]) -> "pd.DataFrame":
    """Decomposition loss of each workload's GEMM, alone on a gpu, cut 8 and 64 ways.

    By rows the parts are [m/ways, n, k]; by columns of A they are [m, n, k/ways], and all but the first
    add to C. Parts run one after the other.

    Returns
    -------
    DataFrame
        A row per machine, workload and cut: ``machine, workload, m, n, k, dtype, gemm_flop, cut, ways,
        whole_s, parts_s, dil, measured``; the last tells whether the profile holds measured times of
        the whole and of all parts.
    """
    import pandas as pd

    rows = []
    for machine in machines:
        model = CostModel(machine).gemm_model
        table = {
            (g.m, g.n, g.k, g.dtype, g.accumulate)
            for g in machine.profile.gemm.measured
            if g.entries == 1
        }
        for workload in workloads:
            m, n, k = workload.m, workload.n, workload.k
            whole = GemmShape((m,), n, k, workload.dtype)
            whole_s = model.cost(whole).time_s
            for cut, ways in CUTS:
                if cut == "rows":
                    sizes = [stop - start for start, stop in split(m, ways) if stop > start]
                    shapes = [replace(whole, entry_rows=(size,)) for size in sizes]
                else:
                    sizes = [stop - start for start, stop in split(k, ways) if stop > start]
                    shapes = [replace(whole, k=size, accumulate=i > 0) for i, size in enumerate(sizes)]
                parts_s = sum(model.cost(shape).time_s for shape in shapes)
                known = all((s.m, s.n, s.k, s.dtype, s.accumulate) in table for s in {whole, *shapes})
                rows.append(
                    _of(machine, workload)
                    | {"cut": cut, "ways": ways, "whole_s": whole_s, "parts_s": parts_s}
                    | {"dil": parts_s / whole_s, "measured": known}
                )
    return pd.DataFrame(rows)


def draw_gemm_cuts(frame: "pd.DataFrame") -> "Figure":
    """Draw decomposition losses of GEMMs over their size, a panel per machine."""
    names = list(dict.fromkeys(frame["machine"]))
    with panels(len(names), height=3.8, sharey=True) as (figure, axes):
        for at, name in zip(axes, names, strict=True):
            some = frame[frame["machine"] == name]
            for look, (cut, ways) in zip(LOOKS, CUTS, strict=False):
                found = some[(some["cut"] == cut) & (some["ways"] == ways)]
                label = f"{cut} ({'M' if cut == 'rows' else 'K'}), {ways} ways"
                at.plot(found["gemm_flop"], found["dil"], **look.points, label=label)
            known = some[some["measured"]]
            if len(known):
                at.plot(
                    known["gemm_flop"], known["dil"], linestyle="none", marker="o", markersize=9,
                    markerfacecolor="none", markeredgecolor="#000000", markeredgewidth=0.7,
                    label="whole and parts measured",
                )  # fmt: skip
            reference(at)
            at.set_title(name, fontsize=9)
            at.set_yscale("log")
            at.set_yticks(TICKS, [times(tick) for tick in TICKS])
            at.set_yticks([], minor=True)
            powers(at, [1e10, 1e11, 1e12, 1e13], lambda flop: f"{flop / 1e12:g}")
            at.set_xlabel("size of the whole GEMM [TFLOP]")
        axes[0].set_ylabel("DIL: time of all parts / time of the whole [x]")
        legend_above(figure, axes, columns=3)
    return figure


def copy_cuts(
    machines: Iterable[Machine], *, gathered_bytes: int = 256 * MIB, most_chunks: int = 256
) -> "pd.DataFrame":
    """Decomposition loss of an all-gather by DMA engines whose shards are cut into ever more chunks.

    Returns
    -------
    DataFrame
        A row per machine and number of chunks: ``machine, gathered_bytes, num_chunks, chunk_bytes,
        whole_s, parts_s, dil``.
    """
    import pandas as pd

    rows = []
    for machine in machines:
        cols = 8192
        workload = Workload(
            name="gather", pattern="all_gather_gemm", m=gathered_bytes // (2 * cols), n=1, k=cols
        )
        whole_s = 0.0
        num_chunks = 1
        while num_chunks <= most_chunks:
            knobs = {"num_chunks": num_chunks}
            plan = make_plan("uniform-unfused-1d", workload, machine.num_gpus, knobs)
            parts_s = simulate(communication_only(plan), machine).makespan_s
            whole_s = whole_s or parts_s
            rows.append(
                {
                    "machine": machine.name,
                    "gathered_bytes": gathered_bytes,
                    "num_chunks": num_chunks,
                    "chunk_bytes": gathered_bytes // (machine.num_gpus * num_chunks),
                    "whole_s": whole_s,
                    "parts_s": parts_s,
                    "dil": parts_s / whole_s,
                }
            )
            num_chunks *= 2
    return pd.DataFrame(rows)


def draw_copy_cuts(frame: "pd.DataFrame") -> "Figure":
    """Draw decomposition losses of all-gathers over the size of a chunk."""
    with panels(1, width=5.6, height=3.4) as (figure, axes):
        at = axes[0]
        for look, (name, found) in zip(LOOKS, frame.groupby("machine", sort=False), strict=False):
            at.plot(found["chunk_bytes"], found["dil"], **look.line, label=f"{name}, simulated")
        series = published("dma-latte-copy-share")
        sizes, shares = zip(*series.points, strict=True)
        at.plot(
            sizes, [1 / share for share in shares], linestyle="none", marker="x", color=PUBLISHED,
            markersize=6, label="one copy on MI300X over its bytes' share\n(DMA-Latte, published log)",
        )  # fmt: skip
        reference(at)
        powers(at, [64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB], _bytes)
        at.set_ylim(0.9, 3.6)
        at.set_xlabel("bytes of a chunk")
        at.set_ylabel("DIL: time of all chunks /\ntime of whole shards [x]")
        at.legend(frameon=False, fontsize=8)
    return figure


def contention(
    workloads: Iterable[Workload], machines: Iterable[Machine], engines: Sequence[str] = ("dma", "core")
) -> "pd.DataFrame":
    """Contention losses of each workload's GEMM beside its all-gather, without waiting for it.

    Both start together. Where one is longer it runs alone in the end, as under overlap in a model.

    Returns
    -------
    DataFrame
        A row per machine, workload and engine: ``machine, workload, m, n, k, dtype, gemm_flop,
        gemm_over_comm, engine, gemm_alone_s, gemm_s, gemm_cil, comm_alone_s, comm_s, comm_cil``;
        ``gemm_over_comm`` is with DMA engines, each alone.
    """
    import pandas as pd

    rows = []
    for machine in machines:
        costs = CostModel(machine)
        for workload in workloads:
            ratio = gemm_to_communication(workload, machine, costs)
            gemm = replace(workload, pattern="gemm", tokens=None)
            for engine in engines:
                found: dict[str, Any] = {"gemm_over_comm": ratio, "engine": engine}
                together = side_by_side(
                    gemm, machine.num_gpus, gathered_rows=workload.m, gathered_cols=workload.k,
                    engine=engine, overlap=True,
                )  # fmt: skip
                beside = simulate(together, machine, costs).spans
                # each kind alone is the same plan without the other: nobody waits for its end in either
                for kind, name in (("gemm", "gemm"), ("transfer", "comm")):
                    only = tuple(task for task in together.tasks if task.kind == kind)
                    alone = simulate(replace(together, tasks=only), machine, costs).spans
                    for spans, suffix in ((alone, "_alone_s"), (beside, "_s")):
                        some = [s for s in spans if s.kind == kind]
                        start_s = min(s.start_s for s in some) if kind == "gemm" else 0.0
                        found[name + suffix] = max(s.end_s for s in some) - start_s
                for name in ("gemm", "comm"):
                    found[f"{name}_cil"] = found[f"{name}_s"] / found[f"{name}_alone_s"]
                rows.append(_of(machine, workload) | found)
    return pd.DataFrame(rows)


def draw_contention(frame: "pd.DataFrame") -> "Figure":
    """Draw contention losses of GEMM (above) and all-gather (below), a column per machine."""
    names = list(dict.fromkeys(frame["machine"]))
    engines = list(dict.fromkeys(frame["engine"]))
    with panels(len(names), 2, height=5.4, sharex=True, sharey="row") as (figure, axes):
        for row, (key, word) in enumerate((("gemm_cil", "GEMM"), ("comm_cil", "all-gather"))):
            for column, name in enumerate(names):
                at = axes[row * len(names) + column]
                some = frame[frame["machine"] == name]
                for look, engine in zip(LOOKS, engines, strict=False):
                    found = some[some["engine"] == engine]
                    label = f"{ENGINE_WORDS[engine]}, simulated"
                    at.plot(found["gemm_over_comm"], found[key], **look.points, label=label)
                reference(at)
                powers(at, [0.25, 0.5, 1, 2, 4, 8, 16], lambda x: f"{x:g}")
            axes[row * len(names)].set_ylabel(f"CIL of the {word}:\nbeside the other / alone [x]")
        for at, name in zip(axes, names, strict=False):
            at.set_title(name, fontsize=9)
            at.set_ylim(0.98, 1.48)
        for at in axes[len(names) :]:
            at.set_xlabel("GEMM / all-gather, each alone")
        _mark_contention(dict(zip(names, axes, strict=False)))
        legend_above(figure, axes, columns=3)
    return figure


def _mark_contention(axes: dict[str, Any]) -> None:
    """Published slowdowns on the panels of the machines that come nearest."""
    units, slower = published("conccl-units").points[0]
    h100 = [published(f"h100-beside-{engine}").number for engine in ("core", "dma")]
    marks = (
        ("mi300x_8", slower, "-.", f"{units:g} of 304 units taken (ConCCL, notes)"),
        ("h200_8", h100[0], "--", "8 H100 beside NCCL (derived)"),
        ("h200_8", h100[1], ":", "8 H100, copy engines (derived)"),
    )
    for machine, at, dash, words in marks:
        if machine in axes:
            axes[machine].axhline(at, color=PUBLISHED, linewidth=0.9, linestyle=dash, label=words)


def loss_shares(
    workloads: Iterable[Workload],
    machines: Iterable[Machine],
    *,
    schedules: Sequence[str] = PAPER_SCHEDULES,
    num_chunks: int = 8,
    engines: Sequence[str] = ("dma", "core"),
) -> "pd.DataFrame":
    """Which part of what FiCCO schedules lose is decomposition, and which contention.

    Time under overlap is the whole's alone times DIL times CIL, of GEMMs and of communication. Their
    extra times are ``DIL - 1`` and ``DIL (CIL - 1)``, in times of the whole; below 0 where it gains.

    Returns
    -------
    DataFrame
        A row per machine, workload, schedule, engine and part (``GEMM`` or ``communication``):
        ``machine, workload, m, n, k, dtype, gemm_flop, schedule, engine, emulated, part, dil, cil,
        decomposition, contention``.
    """
    import pandas as pd

    grid = Grid(
        schedules=tuple(schedules),
        num_chunks=(num_chunks,),
        compute_queues=(1,),
        engines=tuple(engines),
    )
    rows = []
    for machine in machines:
        for workload in workloads:
            for result in compare(workload, machine, grid=grid, intervals=False).results:
                if result.schedule not in schedules:
                    continue
                for part, dil, cil in (
                    ("GEMM", result.gemm_dil, result.gemm_cil),
                    ("communication", result.comm_dil, result.comm_cil),
                ):
                    rows.append(
                        _of(machine, workload)
                        | {"schedule": result.schedule, "engine": result.engine}
                        | {"emulated": "emulated-2d" in result.labels, "part": part}
                        | {"dil": dil, "cil": cil}
                        | {"decomposition": dil - 1, "contention": dil * (cil - 1)}
                    )
    return pd.DataFrame(rows)


def draw_loss_shares(frame: "pd.DataFrame") -> "Figure":
    """Draw median extra times of GEMMs and communication, split into decomposition and contention."""
    names = list(dict.fromkeys(frame["machine"]))
    parts = ("GEMM", "communication")
    with panels(len(parts), len(names), height=0.9 + 2.3 * len(names), sharey="row") as (figure, axes):
        for row, name in enumerate(names):
            for column, part in enumerate(parts):
                at = axes[row * len(parts) + column]
                some = frame[(frame["machine"] == name) & (frame["part"] == part)]
                order = list(
                    dict.fromkeys(
                        sorted(
                            zip(some["schedule"], some["engine"] != "dma", some["engine"], strict=True)
                        )
                    )
                )
                _stacked(
                    at,
                    some.groupby(["schedule", "engine"])[["decomposition", "contention"]]
                    .median()
                    .loc[[(schedule, engine) for schedule, _, engine in order]],
                )
                at.set_title(f"{name}: {part}", fontsize=9)
        for at in axes[-len(parts) :]:
            at.set_xlabel("median extra time / whole alone [%]")
        legend_above(figure, axes, columns=2)
    return figure


def _stacked(at: Any, middle: "pd.DataFrame") -> None:
    """Bars of one panel: decomposition, then contention, with its share of both."""
    places = range(len(middle))
    lost = middle["decomposition"].clip(lower=0)
    left = middle["decomposition"].clip(upper=0)
    at.barh(places, middle["decomposition"], height=0.7, **LOOKS[0].bar, label="decomposition (DIL)")
    at.barh(
        places, middle["contention"], left=lost, height=0.7, **LOOKS[1].bar, label="contention (CIL)"
    )
    for place, (gained, first, second) in enumerate(zip(left, lost, middle["contention"], strict=True)):
        total = first + second
        share = f"{second / total:.0%} contention" if total > 0.005 and gained == 0 else f"{total:.2f}"
        at.annotate(
            share, (total, place), xytext=(3, 0), textcoords="offset points", va="center", fontsize=7.5
        )
    engines = [engine for _, engine in middle.index]
    at.set_yticks(places, [f"{schedule}, {engine}" for schedule, engine in middle.index], fontsize=8)
    at.set_ylim(len(engines) - 0.4, -0.6)
    at.axvline(0, color="#777777", linewidth=0.8)
    at.margins(x=0.32)
    at.xaxis.set_major_formatter(percent)


def _of(machine: Machine, workload: Workload) -> dict[str, Any]:
    """What names a row."""
    return {
        "machine": machine.name,
        "workload": workload.name,
        "m": workload.m,
        "n": workload.n,
        "k": workload.k,
        "dtype": workload.dtype,
        "gemm_flop": workload.flops,
    }


def _bytes(size: float) -> str:
    return f"{size / MIB:g} MiB" if size >= MIB else f"{size / KIB:g} KiB"

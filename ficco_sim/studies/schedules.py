"""Schedules compared: what overlap could gain, and what shard-level overlap and FiCCO make of it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ficco_sim.comparison import find_makespans, gemm_to_communication
from ficco_sim.costs import CostModel
from ficco_sim.grid import Grid
from ficco_sim.machine import Machine, load_machine
from ficco_sim.schedules import FICCO
from ficco_sim.studies.published import published
from ficco_sim.studies.style import (
    LOOKS,
    PUBLISHED,
    legend_above,
    level,
    panels,
    percent,
    powers,
    reference,
    times,
)
from ficco_sim.workload import Workload

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = [
    "best_of",
    "columns_varied",
    "draw_bell_curve",
    "draw_engines",
    "draw_schedules",
    "draw_speedups",
    "schedule_times",
]

RATIOS = (0.25, 0.5, 1, 2, 4, 8, 16)
LEAST_SHOWN = -0.6  # share of the ideal gain; points below are counted
LEAST_IDEAL = 1.1  # below it a share of the ideal gain is noise
FLUX_N, FLUX_K = 7168, 8192  # of its published GEMMs


def columns_varied(m: int, k: int, columns: Sequence[int]) -> tuple[Workload, ...]:
    """Workloads that differ in n only: their GEMMs differ, their all-gather is the same."""
    return tuple(Workload(name=f"n-{n}", pattern="all_gather_gemm", m=m, n=n, k=k) for n in columns)


def schedule_times(
    workloads: Iterable[Workload], machines: Iterable[Machine], grid: Grid | None = None
) -> "pd.DataFrame":
    """Simulate every schedule of every workload on every machine.

    Parameters
    ----------
    grid
        Schedules and knobs; all that `compare` tries unless given.

    Returns
    -------
    DataFrame
        A row per plan, fastest first within machine and workload: ``machine, workload, m, n, k, dtype,
        gemm_s, comm_s, ideal_s, serial_s, gemm_over_comm, ideal_speedup, schedule, kind, num_chunks,
        compute_queues, engine, makespan_s, speedup, of_ideal``. ``kind`` is serial, shard-level or
        FiCCO; ``of_ideal`` is (speed-up - 1) / (ideal speed-up - 1).
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for machine in machines:
        for workload in workloads:
            found = find_makespans(workload, machine, grid=grid)
            ideal_speedup = found.serial_s / found.ideal_s
            shared = {
                "machine": machine.name,
                "workload": workload.name,
                "m": workload.m,
                "n": workload.n,
                "k": workload.k,
                "dtype": workload.dtype,
                "gemm_s": found.gemm_s,
                "comm_s": found.comm_s,
                "ideal_s": found.ideal_s,
                "serial_s": found.serial_s,
                "gemm_over_comm": found.gemm_s / found.comm_s,
                "ideal_speedup": ideal_speedup,
            }
            for schedule, knobs, makespan_s in found.points:
                speedup = found.serial_s / makespan_s
                rows.append(
                    shared
                    | {
                        "schedule": schedule,
                        "kind": _kind(schedule),
                        "num_chunks": knobs.get("num_chunks", 1),
                        "compute_queues": knobs.get("compute_queues", 1),
                        "engine": knobs["engine"],
                        "makespan_s": makespan_s,
                        "speedup": speedup,
                        "of_ideal": (speedup - 1) / (ideal_speedup - 1),
                    }
                )
    return pd.DataFrame(rows)


def best_of(frame: "pd.DataFrame", *by: str) -> "pd.DataFrame":
    """The fastest plan of each workload on each machine, and of each value of further columns."""
    frame = frame.reset_index(drop=True)  # frames put together may have an index twice
    return frame.loc[frame.groupby(["machine", "workload", *by], sort=False)["makespan_s"].idxmin()]


def draw_bell_curve(varied: "pd.DataFrame", named: "pd.DataFrame") -> "Figure":
    """Draw speed-ups over the ratio of GEMM and communication, a panel per machine.

    Parameters
    ----------
    varied
        Times of `columns_varied`: the curves.
    named
        Times of named workloads: points of the best FiCCO plan.
    """
    names = list(dict.fromkeys(varied["machine"]))
    with panels(len(names), height=4.0, sharey=True) as (figure, axes):
        for at, name in zip(axes, names, strict=True):
            some = varied[(varied["machine"] == name) & (varied["engine"] == "dma")]
            best = best_of(some, "kind").sort_values("gemm_over_comm")
            ideal = best[best["kind"] == "serial"]
            at.plot(
                ideal["gemm_over_comm"], ideal["ideal_speedup"], color="#000000", linewidth=1.2,
                label="ideal bound, n varied",
            )  # fmt: skip
            for look, kind in zip(LOOKS, ("FiCCO", "shard-level"), strict=False):
                found = best[best["kind"] == kind]
                at.plot(
                    found["gemm_over_comm"],
                    found["speedup"],
                    **look.line,
                    label=f"best {kind}, n varied",
                )
            points = best_of(named[(named["machine"] == name) & (named["kind"] == "FiCCO")])
            at.plot(
                points["gemm_over_comm"], points["speedup"], linestyle="none", marker="o",
                markersize=4.5, markerfacecolor="none", markeredgecolor=LOOKS[0].colour,
                label="best FiCCO, named workload",
            )  # fmt: skip
            reference(at)
            powers(at, RATIOS, lambda x: f"{x:g}")
            at.set_xlim(0.12, 22)
            at.set_ylim(0, 2.3)
            at.yaxis.set_major_formatter(times)
            at.set_title(f"{name} (simulated)", fontsize=9)
            at.set_xlabel("GEMM / communication, each alone")
            if name == "mi300x_8":
                level(at, published("ficco-ideal"), "FiCCO paper: ideal up to 1.7x")
                level(at, published("ficco-best-2d"), "2d, emulated (notes)", right=False)
                level(at, published("ficco-best"), "FiCCO paper: up to 1.6x", dash=":", above=False)
                _mark_shard(at)
            elif name == "h200_8":
                _mark_flux(at)
        axes[0].set_ylabel("speed-up over serial [x]")
        legend_above(figure, axes, columns=3)
    return figure


def _mark_shard(at: Any) -> None:
    """What shard-level overlap could gain at most with communication as much slower as published."""
    slower = published("ficco-shard-communication").number
    ratios = [0.15 * 1.1**i for i in range(52)]
    words = f"shard-level at most, with its {slower:g}x\ncommunication (paper, notes)"
    most = [(1 + ratio) / max(ratio, slower) for ratio in ratios]
    at.plot(ratios, most, color=PUBLISHED, linewidth=0.9, linestyle="-.", label=words)


def _mark_flux(at: Any) -> None:
    """Speed-ups of flux on 8 H100, over the ratio that our H100 gives for its shapes."""
    machine = load_machine("h100_8")
    costs = CostModel(machine)
    base = Workload(name="flux", pattern="all_gather_gemm", m=1, n=FLUX_N, k=FLUX_K)
    serial = dict(published("flux-serial").points)
    overlapped = dict(published("flux-overlapped").points)
    ratios = [gemm_to_communication(replace(base, m=int(m)), machine, costs) for m in serial]
    at.plot(
        ratios, [serial[m] / overlapped[m] for m in serial], linestyle="none", marker="x", markersize=6,
        color=PUBLISHED, label="flux on 8 H100 (published log)",
    )  # fmt: skip


def draw_speedups(frame: "pd.DataFrame") -> "Figure":
    """Draw the best speed-up of each schedule for one workload on one machine, with its knobs."""
    best = best_of(frame[frame["kind"] != "serial"], "schedule").sort_values(
        "speedup", ascending=False, kind="stable"
    )
    with panels(1, width=6.4, height=1.2 + 0.24 * len(best)) as (figure, axes):
        at = axes[0]
        for look, kind in zip(LOOKS, ("FiCCO", "shard-level"), strict=False):
            places = [i for i, found in enumerate(best["kind"]) if found == kind]
            at.barh(
                places, best["speedup"].iloc[places], height=0.7, **look.bar, label=f"{kind}, simulated"
            )
        names = []
        columns = ("schedule", "num_chunks", "compute_queues", "speedup")
        rows = zip(*(best[name].tolist() for name in columns), strict=True)
        for place, (schedule, num_chunks, queues, speedup) in enumerate(rows):
            knobs = f", {num_chunks} chunks" if num_chunks > 1 else ""
            knobs += f", {queues} queues" if queues > 1 else ""
            names.append(f"{schedule}{knobs}")
            at.annotate(
                f"{speedup:.2f}x", (speedup, place), xytext=(4, 0), textcoords="offset points",
                va="center", fontsize=8, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.3},
            )  # fmt: skip
        at.axvline(1, color="#777777", linewidth=1, linestyle=":", label="serial", zorder=0)
        ideal = float(best["ideal_speedup"].iloc[0])
        at.axvline(ideal, color="#000000", linewidth=1, label="ideal bound")
        at.set_yticks(range(len(best)), names, fontsize=8)
        at.tick_params(axis="y", length=0)
        at.set_ylim(len(best) - 0.4, -0.6)
        at.set_xlim(0, 1.1 * max(ideal, float(best["speedup"].max())))
        at.xaxis.set_major_formatter(times)
        at.set_xlabel("speed-up over serial [x]")
        legend_above(figure, axes, columns=4)
    return figure


def draw_schedules(frame: "pd.DataFrame") -> "Figure":
    """Draw a table of speed-ups, best knobs of each schedule, workloads sorted by GEMM/communication.

    Darker is faster; the fastest of a row is bold, what loses to serial is grey on white.
    """
    best = best_of(frame[frame["kind"] != "serial"], "schedule")
    order = best.drop_duplicates("workload").sort_values("gemm_over_comm")
    columns = [name for name in ("shard-p2p", "shard-ring", *FICCO) if name in set(best["schedule"])]
    table = best.pivot_table(index="workload", columns="schedule", values="speedup")
    table = table.loc[list(order["workload"]), columns]
    most = float(table.max().max())
    with panels(1, width=8.6, height=1.4 + 0.215 * len(table)) as (figure, axes):
        at = axes[0]
        values = table.to_numpy()
        shades = (values - 1).clip(min=0) / max(most - 1, 1e-9)
        at.imshow(shades, cmap="Blues", vmin=0, vmax=1.25, aspect="auto")
        for row, line in enumerate(values):
            top = max(value for value in line if value == value)  # noqa: PLR0124 - not a number
            for column, value in enumerate(line):
                if value != value:  # noqa: PLR0124
                    continue
                dark = shades[row, column] > 0.6
                at.text(
                    column, row, f"{value:.2f}", ha="center", va="center", fontsize=7.5,
                    color="#808080" if value < 1 else "white" if dark else "black",
                    fontweight="bold" if value == top and value >= 1 else "normal",
                )  # fmt: skip
        at.set_xticks(range(len(columns)), columns, rotation=35, ha="left", fontsize=8)
        at.xaxis.tick_top()
        names = [
            f"{name}  {ratio:.2g}"
            for name, ratio in zip(order["workload"], order["gemm_over_comm"], strict=True)
        ]
        at.set_yticks(range(len(names)), names, fontsize=7.5)
        at.tick_params(length=0)
        for side in ("bottom", "left"):
            at.spines[side].set_visible(False)
        at.set_xlabel(
            f"speed-up over serial [x], best knobs of each schedule, simulated on "
            f"{', '.join(dict.fromkeys(frame['machine']))}; after the name: GEMM / communication",
            fontsize=8,
        )
    return figure


def draw_engines(frame: "pd.DataFrame") -> "Figure":
    """Draw which share of the ideal gain FiCCO reaches with DMA engines and with copy kernels."""
    names = list(dict.fromkeys(frame["machine"]))
    some = frame[(frame["kind"] == "FiCCO") & (frame["ideal_speedup"] >= LEAST_IDEAL)]
    best = best_of(some, "engine")
    with panels(len(names), height=3.6, sharey=True) as (figure, axes):
        for at, name in zip(axes, names, strict=True):
            for look, (engine, word) in zip(
                LOOKS, (("dma", "DMA engines"), ("core", "copy kernels")), strict=False
            ):
                found = best[(best["machine"] == name) & (best["engine"] == engine)]
                at.plot(
                    found["gemm_over_comm"], found["of_ideal"], **look.points,
                    label=f"best FiCCO, {word}, simulated",
                )  # fmt: skip
            reference(at, 0.0)
            powers(at, RATIOS, lambda x: f"{x:g}")
            at.set_xlim(0.12, 22)
            at.set_ylim(LEAST_SHOWN, 1.08)
            at.yaxis.set_major_formatter(percent)
            at.set_title(name, fontsize=9)
            at.set_xlabel("GEMM / communication, each alone")
            if name == "mi300x_8":
                level(at, published("conccl-dma"), "ConCCL, DMA: 72%", right=False)
                level(at, published("conccl-tuned"), "kernels first: 42%", dash="-.", right=False)
                level(at, published("conccl-naive"), "kernels: 21%", dash=":", right=False, above=False)
            below = best[(best["machine"] == name) & (best["of_ideal"] < LEAST_SHOWN)]
            if len(below):
                at.text(0.13, LEAST_SHOWN + 0.02, f"{len(below)} below", fontsize=7.5)
        axes[0].set_ylabel("share of the ideal gain\n(below 0: slower than serial)")
        legend_above(figure, axes, columns=2)
    return figure


def _kind(schedule: str) -> str:
    if schedule == "serial":
        return "serial"
    return "FiCCO" if schedule in FICCO else "shard-level"

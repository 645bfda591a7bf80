"""Measured plans beside simulated ones: speed-ups, errors, and which schedule wins."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ficco_sim.calibrate import (
    OTHER_GROUPS,
    files_of_gemm_fits,
    machine_without,
    read_inputs,
    read_start,
)
from ficco_sim.costs import CostModel
from ficco_sim.errors import ScenarioError
from ficco_sim.machine import load_machine
from ficco_sim.measured_plans import computing_gpus, measured_spans, part_of_plan, plan_of
from ficco_sim.records import merge_records, read_records
from ficco_sim.sim import simulate
from ficco_sim.studies.style import LOOKS, legend_above, panels, times
from ficco_sim.trace import Span
from ficco_sim.units import MS
from ficco_sim.validation import ChosenPlans, Validation, choose_plans, leave_one_out, validate

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = [
    "draw_measured_errors",
    "draw_measured_speedups",
    "measured_and_simulated",
    "read_plans",
    "spans_beside",
    "validate_plans",
    "workload_errors",
]

ERROR_BAND = 0.1


def read_plans(
    files: Sequence[Path],
    *,
    emulates: str | None = None,
    engine: str = "dma",
    submission: str = "graph",
    copy_queues: int | None = None,
) -> ChosenPlans:
    """The usable plans of files of records; see `choose_plans`."""
    records = merge_records([(path, read_records(path)) for path in files])
    return choose_plans(
        records, emulates=emulates, engine=engine, submission=submission, copy_queues=copy_queues
    )


def validate_plans(
    chosen: ChosenPlans, machine: str, *, held_out_with: Sequence[Path] = ()
) -> Validation:
    """Simulate measured plans with the machine's profile, or with GEMMs fitted without each workload.

    Parameters
    ----------
    held_out_with
        Folders with the files that the profile's GEMMs were fitted to. Unless empty, GEMMs are fitted
        anew for each workload, without the shapes of that workload.
    """
    if not held_out_with:
        return validate(chosen, load_machine(machine))
    start = read_start(machine)
    inputs = read_inputs(files_of_gemm_fits(start.gpu, list(held_out_with), chosen.dtypes))
    return leave_one_out(
        chosen, lambda workload: machine_without(start, inputs, workload, keep=OTHER_GROUPS)
    )


def measured_and_simulated(found: Validation) -> "pd.DataFrame":
    """Every plan, measured and simulated.

    Returns
    -------
    DataFrame
        A row per plan: ``workload, m, n, k, schedule, num_chunks, compute_queues, engine, label,
        measured_s, simulated_s, error, measured_speedup, simulated_speedup``; speed-ups are over
        serial, measured over measured and simulated over simulated.
    """
    import pandas as pd

    serial = {
        row.workload: (row.measured_s, row.simulated_s)
        for row in found.rows
        if row.schedule == "serial"
    }
    label = "; ".join(found.labels) or "measured"
    return pd.DataFrame(
        [
            {
                "workload": row.workload,
                "m": row.m,
                "n": row.n,
                "k": row.k,
                "schedule": row.schedule,
                "num_chunks": row.num_chunks,
                "compute_queues": row.compute_queues,
                "engine": row.engine,
                "label": label,
                "measured_s": row.measured_s,
                "simulated_s": row.simulated_s,
                "error": row.error,
                "measured_speedup": serial[row.workload][0] / row.measured_s,
                "simulated_speedup": serial[row.workload][1] / row.simulated_s,
            }
            for row in found.rows
        ]
    )


def workload_errors(found: Validation) -> "pd.DataFrame":
    """By workload: mean error, which plan wins measured and simulated, and what that choice costs."""
    import pandas as pd

    return pd.DataFrame(
        [
            {
                "workload": row.workload,
                "plans": row.num_plans,
                "mean_abs_error": row.mean_abs_error,
                "bias": row.bias,
                "measured_best": row.measured_best,
                "simulated_best": row.simulated_best,
                "regret": row.regret,
                "serial_regret": row.serial_regret,
            }
            for row in found.workloads
        ]
    )


def draw_measured_speedups(frame: "pd.DataFrame") -> "Figure":
    """Draw the best plan of each schedule, measured and simulated, a panel per workload.

    The knobs are those with which the schedule was fastest when measured; simulated with the same.
    """
    workloads = list(dict.fromkeys(frame["workload"]))
    some = frame[frame["schedule"] != "serial"].reset_index(drop=True)
    best = some.loc[some.groupby(["workload", "schedule"], sort=False)["measured_s"].idxmin()]
    schedules = list(dict.fromkeys(best["schedule"]))
    columns = min(3, len(workloads))
    rows = -(-len(workloads) // columns)
    with panels(
        columns, rows, width=9.0, height=0.8 + rows * (0.55 + 0.17 * len(schedules)), sharey=True
    ) as (figure, axes):
        for at, workload in zip(axes, workloads, strict=False):
            found = best[best["workload"] == workload]
            places = [schedules.index(name) for name in found["schedule"]]
            at.hlines(
                places, found["measured_speedup"], found["simulated_speedup"], color="#999999",
                linewidth=0.9,
            )  # fmt: skip
            at.plot(found["measured_speedup"], places, **LOOKS[0].points, label="measured (emulated)")
            at.plot(
                found["simulated_speedup"], places, **LOOKS[1].points, label="simulated, same knobs"
            )
            at.axvline(1, color="#777777", linewidth=0.8, linestyle=":")
            at.set_yticks(range(len(schedules)), schedules, fontsize=7.5)
            at.set_ylim(len(schedules) - 0.5, -0.5)
            at.set_title(workload, fontsize=8)
            at.xaxis.set_major_formatter(times)
            at.set_xlabel("speed-up over serial [x]", fontsize=8)
        for at in axes[len(workloads) :]:
            at.set_visible(False)
        legend_above(figure, axes, columns=2)
    return figure


def draw_measured_errors(frames: dict[str, "pd.DataFrame"]) -> "Figure":
    """Draw simulated against measured makespans, a panel per way of simulating, a look per workload."""
    with panels(len(frames), height=4.2, sharex=True, sharey=True) as (figure, axes):
        for at, (title, frame) in zip(axes, frames.items(), strict=True):
            ends = [frame["measured_s"].min() / MS * 0.8, frame["measured_s"].max() / MS * 1.25]
            at.plot(ends, ends, color="#000000", linewidth=0.9)
            at.fill_between(
                ends, [e * (1 - ERROR_BAND) for e in ends], [e * (1 + ERROR_BAND) for e in ends],
                color="#E8E8E8", linewidth=0, label=f"within {ERROR_BAND:.0%}",
            )  # fmt: skip
            for look, (workload, found) in zip(
                LOOKS, frame.groupby("workload", sort=False), strict=False
            ):
                at.plot(
                    found["measured_s"] / MS, found["simulated_s"] / MS,
                    **(look.points | {"markersize": 4}), label=workload,
                )  # fmt: skip
            at.set_xscale("log")
            at.set_yscale("log")
            ticks = [t for t in (0.05, 0.1, 0.2, 0.5, 1, 2, 5) if ends[0] <= t <= ends[1]]
            for axis in (at.xaxis, at.yaxis):
                axis.set_ticks(ticks, [f"{t:g}" for t in ticks])
                axis.set_ticks([], minor=True)
            at.set_title(f"{title}: mean error {frame['error'].abs().mean():.1%}", fontsize=8.5)
            at.set_xlabel("measured makespan (emulated) [ms]")
        axes[0].set_ylabel("simulated makespan [ms]")
        legend_above(figure, axes, columns=3)
    return figure


def spans_beside(
    chosen: ChosenPlans, machine: str, *, workload: str, schedule: str, num_chunks: int
) -> dict[str, tuple[Span, ...]]:
    """The tasks of one measured plan as measured and as simulated, for `spans_frame`.

    Schedules without chunks have 1. The measured run is the instrumented one, which has events around
    every task and is longer.

    Raises
    ------
    ScenarioError
        If there is no such plan, or none with an instrumented run.
    """
    place = load_machine(machine)
    for found in chosen.plans:
        first = found[0]
        plan = plan_of(first)
        if (plan.workload.name, plan.schedule) != (workload, schedule) or first.spans is None:
            continue
        if plan.knobs.get("num_chunks", 1) != num_chunks:
            continue
        part = part_of_plan(plan, computing_gpus(first))
        trace = simulate(part, place, CostModel(place, submission=chosen.submission))
        what = f"{schedule}, {num_chunks} chunks"
        return {
            f"measured on gpu 0 ({chosen.emulates}, emulated, instrumented), {what}": measured_spans(
                first, part
            ),
            f"simulated, {what}": trace.spans,
        }
    raise ScenarioError(
        f"{workload}: no plan of {schedule} with {num_chunks} chunks was measured with spans"
    )

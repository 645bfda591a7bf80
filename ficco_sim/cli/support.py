"""What verbs share: finding what options name, writing pictures and traces."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ficco_sim.errors import ScenarioError

if TYPE_CHECKING:
    from ficco_sim.costs import CostModel
    from ficco_sim.machine import Machine
    from ficco_sim.plan import Plan
    from ficco_sim.trace import Trace


def find_machine(name: str) -> "Machine":
    """The machine that an option names."""
    from ficco_sim.machine import load_machine

    return load_machine(name)


def cost_model(
    machine: "Machine",
    costs: Literal["profile", "ideal"] = "profile",
    submission: Literal["graph", "eager"] = "graph",
    sm_clock_ghz: float | None = None,
) -> "CostModel":
    """The costs that options ask for."""
    from ficco_sim.costs import CostModel

    clock_hz = None if sm_clock_ghz is None else sm_clock_ghz * 1e9
    return CostModel(machine, costs, submission, sm_clock_hz=clock_hz)


def check_outputs(
    json: str | None, trace: Path | None, plot: Path | None, spans: Path | None = None
) -> None:
    """Refuse files that cannot be written before any work is done."""
    from ficco_sim.io import check_target

    if json not in (None, "-"):
        check_target(Path(json))
    for path in (trace, spans):
        if path is not None:
            check_target(path)
    if trace is not None and trace.suffix == ".pftrace":
        from ficco_sim.interchange import check_perfetto

        check_perfetto()
    if plot is not None:
        from ficco_sim.report import check_picture

        check_picture(plot)


def knobs_given(
    num_chunks: int | None,
    compute_queues: int | None,
    copy_queues: int | None,
    engine: str | None,
    gather: str | None,
) -> dict[str, Any]:
    """The knobs that were given, without those left to the schedule."""
    given = {
        "num_chunks": num_chunks,
        "compute_queues": compute_queues,
        "copy_queues": copy_queues,
        "engine": engine,
        "gather": gather,
    }
    return {key: value for key, value in given.items() if value is not None}


def find_plan(
    schedule: str | None,
    file: Path | None,
    workload: str | None,
    gemm: str | None,
    dtype: str,
    num_gpus: int,
    knobs: dict[str, Any],
    skew: float | None = None,
) -> "Plan":
    """The plan of a schedule, or the one in a file."""
    from ficco_sim.plan import load_plan
    from ficco_sim.schedules import load_schedule, make_plan, own_plan
    from ficco_sim.user_code import split_name
    from ficco_sim.workload import workload_from_options

    if (schedule is None) == (file is None):
        raise ScenarioError("give either a schedule or --plan")
    if file is not None:
        if workload or gemm or knobs or skew is not None:
            raise ScenarioError("--plan: the file has its own workload and knobs")
        return load_plan(file)
    assert schedule is not None
    chosen = workload_from_options(workload, gemm, dtype, skew)
    if split_name(schedule):
        return own_plan(load_schedule(schedule), chosen, num_gpus, knobs)
    return make_plan(schedule, chosen, num_gpus, knobs)


def write_run(
    plan: "Plan",
    machine: "Machine",
    run: "Trace",
    trace: Path | None,
    plot: Path | None,
    title: str,
    marks: dict[str, float],
    spans: Path | None = None,
) -> list[str]:
    """Write the pictures and traces of a run that were asked for; returns what to say of them."""
    from dataclasses import replace

    from ficco_sim import report
    from ficco_sim.interchange import write_viewer_trace
    from ficco_sim.io import write_text

    notes = []
    run = replace(run, plan_fingerprint=plan.fingerprint)
    if plot is not None:
        report.plot_timeline(plan, run, plot, title=title, marks=marks)
        notes.append(f"timeline of {run.schedule}: {plot}")
    if trace is not None:
        left_out = write_viewer_trace(trace, run, plan, machine)
        notes.append(f"trace of {run.schedule}: {trace} (open it in ui.perfetto.dev)")
        if left_out:
            notes.append(f"{trace}: {left_out}")
    if spans is not None:
        write_text(spans, run.to_json())
        notes.append(f"spans of {run.schedule}: {spans}")
    return notes


def link_line(src: str, dst: str, nbytes: int, busy_s: float) -> str:
    """One sentence on a link and its load."""
    from ficco_sim.units import format_bytes, format_seconds

    return (
        f"busiest link: {src} -> {dst}, {format_bytes(nbytes)}, at least {format_seconds(busy_s)} busy"
    )


def interval_line(interval_s: tuple[float, float]) -> str:
    """One sentence on the interval of a makespan."""
    from ficco_sim.costs.uncertainty import NUM_DRAWS
    from ficco_sim.units import format_seconds

    low, high = map(format_seconds, interval_s)
    return f"interval: {low} to {high} (10th to 90th percentile of {NUM_DRAWS} draws of the costs)"


def remark_lines(remarks: Sequence[str]) -> list[str]:
    """Remarks as sentences."""
    return [f"Note: {remark}." for remark in remarks]


def whole_numbers(option: str, text: str | None) -> tuple[int, ...] | None:
    """The numbers that an option lists with commas."""
    if text is None:
        return None
    parts = text.split(",")
    if not all(part.strip().isdecimal() and len(part) < 10 for part in parts):
        raise ScenarioError(f"{option}: {text[:40]!r} must be whole numbers, such as 4,4")
    return tuple(int(part) for part in parts)


def numbers(option: str, text: str | None) -> tuple[float, ...] | None:
    """The numbers that an option lists with commas; they may have fractions."""
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ScenarioError(f"{option}: {text[:40]!r} must be numbers, such as 0.5,2") from None

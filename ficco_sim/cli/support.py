"""What verbs share: finding what options name, writing results, printing."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from ficco_sim.errors import ScenarioError, WorkloadError

if TYPE_CHECKING:
    from rich.console import Console

    from ficco_sim.costs import CostModel
    from ficco_sim.machine import Machine
    from ficco_sim.plan import Plan
    from ficco_sim.trace import Trace
    from ficco_sim.workload import Workload

TABLE_WIDTH = 144  # where the output is no terminal


def find_machine(name: str) -> "Machine":
    """The machine that an option names."""
    from ficco_sim.machine import load_machine

    return load_machine(name)


def cost_model(
    machine: "Machine", costs: Literal["profile", "ideal"], submission: Literal["graph", "eager"]
) -> "CostModel":
    """The costs that options ask for."""
    from ficco_sim.costs import CostModel

    return CostModel(machine, costs, submission)


def find_workload(
    name: str | None, gemm: str | None, dtype: str, skew: float | None = None
) -> "Workload":
    """The workload that options name or describe."""
    from ficco_sim.workload import Workload, get_workload, skewed

    if (name is None) == (gemm is None):
        raise ScenarioError("give one of --workload and --gemm")
    if name is not None:
        found = get_workload(name)
        return found if skew is None else skewed(found, skew)
    if skew is not None:
        raise ScenarioError("--skew: only for a --workload with an all-to-all")
    assert gemm is not None
    parts = gemm.split(",")
    if len(parts) != 3:
        raise ScenarioError(f"--gemm: {gemm!r} must be three sizes M,N,K")
    sizes = []
    for key, text in zip("MNK", parts, strict=True):
        try:
            sizes.append(int(text))
        except ValueError:
            raise ScenarioError(
                f"--gemm: {key} = {text.strip()[:40]!r} must be a whole number"
            ) from None
    m, n, k = sizes
    name = f"gemm-{m}x{n}x{k}"
    try:
        return Workload(name=name, pattern="all_gather_gemm", m=m, n=n, k=k, dtype=dtype)
    except WorkloadError as error:
        option = "--dtype" if str(error).startswith("dtype") else "--gemm"
        raise WorkloadError(f"{option}: {error}") from error


def check_outputs(json: str | None, trace: Path | None, plot: Path | None) -> None:
    """Refuse files that cannot be written before any work is done."""
    from ficco_sim.io import check_target

    if json not in (None, "-"):
        check_target(Path(json))
    if trace is not None:
        check_target(trace)
    if plot is not None:
        from ficco_sim.report import check_picture

        check_picture(plot)


def knobs_given(
    num_chunks: int | None, compute_queues: int | None, engine: str | None, gather: str | None
) -> dict[str, Any]:
    """The knobs that were given, without those left to the schedule."""
    given = {
        "num_chunks": num_chunks,
        "compute_queues": compute_queues,
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
    from ficco_sim.schedules import make_plan

    if (schedule is None) == (file is None):
        raise ScenarioError("give either a schedule or --plan")
    if file is not None:
        if workload or gemm or knobs or skew is not None:
            raise ScenarioError("--plan: the file has its own workload and knobs")
        return load_plan(file)
    assert schedule is not None
    return make_plan(schedule, find_workload(workload, gemm, dtype, skew), num_gpus, knobs)


def byte_count(option: str, text: str) -> int:
    """The size that an option gives."""
    from ficco_sim.units import parse_bytes

    try:
        return parse_bytes(text)
    except ValueError as error:
        raise ScenarioError(f"{option}: {error}") from error


def write_run(
    plan: "Plan",
    run: "Trace",
    trace: Path | None,
    plot: Path | None,
    title: str,
    marks: dict[str, float],
) -> list[str]:
    """Write the pictures of a run that were asked for; returns what to say of them."""
    from dataclasses import replace

    from ficco_sim import report
    from ficco_sim.io import write_text

    notes = []
    if plot is not None:
        report.plot_timeline(plan, run, plot, title=title, marks=marks)
        notes.append(f"timeline of {run.schedule}: {plot}")
    if trace is not None:
        deps = {task.id: task.deps for task in plan.tasks}
        marked = replace(run, plan_fingerprint=plan.fingerprint)
        write_text(trace, marked.to_chrome_json(deps))
        notes.append(f"trace of {run.schedule}: {trace} (open it in ui.perfetto.dev)")
    return notes


def write_json(document: Any, target: str | None) -> bool:
    """Write a result as JSON if asked for; true if that was the whole output."""
    if target is None:
        return False
    from ficco_sim.io import dump_json

    write_text_to(dump_json(document), target)
    return target == "-"


def write_text_to(text: str, target: str) -> None:
    """Write text to a file, or to the standard output for ``-``."""
    if target == "-":
        sys.stdout.write(text)
        return
    from ficco_sim.io import write_text

    write_text(Path(target), text)


def console(least_width: int = 0) -> "Console":
    """Where results are printed; wide where the output is no terminal."""
    from rich.console import Console

    out = Console(markup=False)
    if not out.is_terminal:
        out = Console(markup=False, width=max(TABLE_WIDTH, least_width))
    return out


def say(out: "Console", notes: list[str]) -> None:
    """Print notes whole, however long."""
    for note in notes:
        out.print(note, highlight=False, soft_wrap=True)


def link_line(src: str, dst: str, nbytes: int, busy_s: float) -> str:
    """One sentence on a link and its load."""
    from ficco_sim.units import format_bytes, format_seconds

    return (
        f"busiest link: {src} -> {dst}, {format_bytes(nbytes)}, at least {format_seconds(busy_s)} busy"
    )


class Progress:
    """A progress bar on the terminal's error stream; silent elsewhere."""

    def __enter__(self) -> Self:
        from rich import progress
        from rich.console import Console

        console = Console(stderr=True)
        self._bar = progress.Progress(console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("simulating", total=None)
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, done: int, total: int, name: str) -> None:
        """Show that ``done`` of ``total`` are done and ``name`` is next."""
        self._bar.update(self._task, completed=done, total=total, description=f"{name:20}")

"""The command ``ficco``: parses, calls one library function per verb, prints."""

import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias

from cyclopts import App, CycloptsError, Parameter

from ficco_sim.errors import FiccoError, ScenarioError, WorkloadError

if TYPE_CHECKING:
    from rich.console import Console

    from ficco_sim.costs import CostModel
    from ficco_sim.machine import Machine
    from ficco_sim.plan import Plan
    from ficco_sim.trace import Trace
    from ficco_sim.workload import Workload

__all__ = ["main"]

EXIT_FINE, EXIT_USER, EXIT_OURS, EXIT_INTERRUPTED = 0, 2, 1, 130
TABLE_WIDTH = 132  # where the output is no terminal
DEFAULT_MACHINE = "mi300x_8"

app = App(
    name="ficco",
    help="Which schedule of finer-grain compute/communication overlap wins on a machine, by how "
    "much and why.",
    help_format="markdown",
    version="0.1.0",
)

MachineOption: TypeAlias = Annotated[
    str, Parameter(help="Name of a machine (see: ficco list machines) or a YAML or JSON file.")
]
WorkloadOption: TypeAlias = Annotated[
    str | None,
    Parameter(help="Name of a workload (see: ficco list workloads) or a YAML or JSON file with one."),
]
GemmOption: TypeAlias = Annotated[
    str | None, Parameter(help="Shape M,N,K instead of a workload: gathered rows, local columns, k.")
]
DtypeOption: TypeAlias = Annotated[
    str, Parameter(help="Element type for --gemm: bf16, fp16, fp8 or fp32.")
]
CostsOption: TypeAlias = Annotated[
    Literal["profile", "ideal"],
    Parameter(help="profile: fitted costs. ideal: only links and dependencies count."),
]
SubmissionOption: TypeAlias = Annotated[
    Literal["graph", "eager"],
    Parameter(help="graph: plans are captured. eager: the host submits task by task."),
]
EngineOption: TypeAlias = Annotated[
    Literal["dma", "core"], Parameter(help="Who moves data: DMA engines or copy kernels.")
]
GatherOption: TypeAlias = Annotated[
    Literal["direct", "copy"],
    Parameter(help="Fused schedules: transfers write to the staging buffer, or a copy does."),
]
JsonOption: TypeAlias = Annotated[
    str | None,
    Parameter(
        help="Write the result as JSON to a file, or to the standard output with -.",
        allow_leading_hyphen=True,
    ),
]
TraceOption: TypeAlias = Annotated[
    Path | None, Parameter(help="Write a Chrome trace, to open in ui.perfetto.dev.")
]
PlotOption: TypeAlias = Annotated[
    Path | None, Parameter(help="Draw the timeline to a .png, .svg or .pdf file.")
]


@app.command
def compare(
    *,
    machine: MachineOption = DEFAULT_MACHINE,
    workload: WorkloadOption = None,
    gemm: GemmOption = None,
    dtype: DtypeOption = "bf16",
    costs: CostsOption = "profile",
    submission: SubmissionOption = "graph",
    engine: Annotated[
        Literal["dma", "core", "both"], Parameter(help="Who moves data; both doubles the table.")
    ] = "dma",
    gather: GatherOption = "direct",
    every: Annotated[
        bool, Parameter(help="Show every combination of knobs, not only the best of each schedule.")
    ] = False,
    json: JsonOption = None,
    trace: TraceOption = None,
    plot: PlotOption = None,
) -> None:
    """Compare all schedules of a workload on a machine: the main job."""
    from ficco_sim import report
    from ficco_sim.comparison import compare as run

    _check_outputs(json, trace, plot)
    chosen = _workload(workload, gemm, dtype)
    place = _machine(machine)
    model = _cost_model(place, costs, submission)
    engines = ("dma", "core") if engine == "both" else (engine,)
    with _Progress() as progress:
        result = run(chosen, place, costs=model, engines=engines, gather=gather, progress=progress)
    plan, best_trace = result.traces["best"]
    notes = _write_run(plan, best_trace, trace, plot, result.verdict, {
        "serial": result.serial_s, "ideal": result.ideal_s,
    })  # fmt: skip
    if _write_json(result.to_plain(), json):
        return
    out = _console()
    for line in report.summary_lines(result):
        out.print(line, highlight=False)
    rows = result.results if every else report.best_of_each(result.results)
    out.print(report.results_table(rows))
    out.print(result.verdict, style="bold", highlight=False)
    _say(out, notes)


@app.command
def simulate(
    schedule: Annotated[
        str | None, Parameter(help="Name of a schedule (see: ficco list schedules).")
    ] = None,
    *,
    plan: Annotated[
        Path | None, Parameter(help="A plan file instead of a schedule and workload.")
    ] = None,
    machine: MachineOption = DEFAULT_MACHINE,
    workload: WorkloadOption = None,
    gemm: GemmOption = None,
    dtype: DtypeOption = "bf16",
    num_chunks: int | None = None,
    compute_queues: int | None = None,
    engine: EngineOption | None = None,
    gather: GatherOption | None = None,
    costs: CostsOption = "profile",
    submission: SubmissionOption = "graph",
    json: JsonOption = None,
    trace: TraceOption = None,
    plot: PlotOption = None,
) -> None:
    """Simulate one schedule, or a plan from a file.

    Parameters
    ----------
    num_chunks
        Chunks per shard; the number of gpus unless given.
    compute_queues
        Queues that unfused GEMMs spread over.
    """
    import time

    from ficco_sim import report
    from ficco_sim.check import check_plan
    from ficco_sim.comparison import evaluate_plan
    from ficco_sim.io import to_plain

    _check_outputs(json, trace, plot)
    place = _machine(machine)
    model = _cost_model(place, costs, submission)
    knobs = _knobs(num_chunks, compute_queues, engine, gather)
    chosen = _plan(schedule, plan, workload, gemm, dtype, place.num_gpus, knobs)
    check_plan(chosen)
    start_s = time.perf_counter()
    run, result = evaluate_plan(chosen, place, model)
    wall_s = time.perf_counter() - start_s
    marks = {"ideal": result.ideal_s}
    notes = _write_run(chosen, run, trace, plot, f"{result.title} on {place.name}", marks)
    row = {
        "machine": place.name,
        "workload": chosen.workload.name,
        **to_plain(result),
        "wall_s": wall_s,
    }
    if _write_json(row, json):
        return
    out = _console()
    out.print(
        report.results_table([result], title=f"{chosen.workload.name} on {place.name} (simulated)")
    )
    busiest = max(run.links, key=lambda load: load.min_busy_s, default=None)
    out.print(f"{len(chosen.tasks)} tasks, simulated in {wall_s * 1e3:.1f} ms", highlight=False)
    if busiest is not None:
        out.print(
            _link_line(busiest.src, busiest.dst, busiest.nbytes, busiest.min_busy_s), highlight=False
        )
    _say(out, notes)


@app.command
def plan(
    schedule: Annotated[str, Parameter(help="Name of a schedule (see: ficco list schedules).")],
    *,
    workload: WorkloadOption = None,
    gemm: GemmOption = None,
    dtype: DtypeOption = "bf16",
    num_gpus: int = 8,
    num_chunks: int | None = None,
    compute_queues: int | None = None,
    engine: EngineOption | None = None,
    gather: GatherOption | None = None,
    gpu: Annotated[int, Parameter(help="Whose queues to print.")] = 0,
    json: JsonOption = None,
) -> None:
    """Make a plan; print the queues of one gpu, or write it as JSON for simulate and check."""
    knobs = _knobs(num_chunks, compute_queues, engine, gather)
    made = _plan(schedule, None, workload, gemm, dtype, num_gpus, knobs)
    if not 0 <= gpu < num_gpus:
        raise ScenarioError(f"gpu: {gpu} must be from 0 to {num_gpus - 1}")
    if json is not None:
        _write_text(made.to_json(), json)
        if json == "-":
            return
    out = _console()
    out.print(
        f"{made.schedule} of {made.workload.name}: {len(made.tasks)} tasks on {num_gpus} gpus; "
        f"gpu {gpu}:",
        highlight=False,
    )
    queues: dict[str, list[str]] = {}
    for task in made.tasks:
        if task.queue.gpu == gpu:
            queues.setdefault(f"{task.queue.engine} {task.queue.index}", []).append(task.id)
    for name, ids in sorted(queues.items()):
        shown = ids if len(ids) <= 10 else [*ids[:8], f"... {len(ids) - 9} more ...", ids[-1]]
        out.print(f"  {name:10} {' -> '.join(shown)}", highlight=False)
    if json is not None:
        out.print(f"wrote {json}", highlight=False)


@app.command
def check(
    file: Annotated[Path, Parameter(help="A plan file, from: ficco plan --json FILE.")],
    *,
    evaluate: Annotated[
        bool, Parameter(help="Run it in numpy as well, in three random legal orders (small plans).")
    ] = False,
    json: JsonOption = None,
) -> None:
    """Prove that a plan is legal and computes its workload, without running it."""
    from ficco_sim import reference
    from ficco_sim.check import check_plan
    from ficco_sim.plan import load_plan

    loaded = load_plan(file)
    check_plan(loaded)
    orders = 0
    if evaluate:
        inputs = reference.make_inputs(loaded, integers=True)
        for seed in range(3):
            outputs = reference.evaluate(loaded, inputs, reference.legal_order(loaded, seed))
            reference.assert_correct(loaded, outputs, inputs, rtol=0.0)
            orders += 1
    row = {
        "schedule": loaded.schedule,
        "workload": loaded.workload.name,
        "num_gpus": loaded.num_gpus,
        "num_tasks": len(loaded.tasks),
        "fingerprint": loaded.fingerprint,
        "evaluated_orders": orders,
    }
    if not _write_json(row, json):
        numbers = f", numbers exact in {orders} orders" if orders else ""
        _console().print(
            f"{file}: {loaded.schedule}, {len(loaded.tasks)} tasks on {loaded.num_gpus} gpus: legal "
            f"and complete{numbers}; fingerprint {loaded.fingerprint[:16]}",
            highlight=False,
        )


@app.command(name="list")
def list_(
    what: Annotated[Literal["schedules", "workloads", "machines"], Parameter(help="What to list.")],
    *,
    machine: MachineOption = DEFAULT_MACHINE,
    json: JsonOption = None,
) -> None:
    """List what has a name; workloads with their GEMM/communication ratio on a machine."""
    from ficco_sim import catalogue

    if what == "schedules":
        rows = catalogue.schedules()
    elif what == "machines":
        rows = catalogue.machines()
    else:
        rows = catalogue.workloads(_machine(machine))
    if _write_json(rows, json):
        return
    out = _console(least_width=150)
    out.print(catalogue.table(what, rows, machine))


@app.command
def cost(
    *,
    machine: MachineOption = DEFAULT_MACHINE,
    gemm: Annotated[str | None, Parameter(help="Shape M,N,K of a GEMM alone.")] = None,
    dtype: DtypeOption = "bf16",
    compute_units: Annotated[
        int | None, Parameter(help="Units left to the GEMM; all unless given.")
    ] = None,
    copy: Annotated[
        str | None, Parameter(help="Bytes of a copy from gpu 0 to gpu 1, for example 64MiB.")
    ] = None,
    engine: EngineOption = "dma",
    local_copy: Annotated[str | None, Parameter(help="Bytes of a copy within a gpu.")] = None,
    csv: Annotated[
        Path | None, Parameter(help="A file with columns M,N,K,dtype; adds predicted_s.")
    ] = None,
    out: Annotated[
        Path | None, Parameter(help="Where --csv writes; the standard output unless given.")
    ] = None,
    json: JsonOption = None,
) -> None:
    """Time of one GEMM, copy or local copy alone."""
    from ficco_sim import catalogue

    place = _machine(machine)
    asked = [name for name, value in (
        ("--gemm", gemm), ("--copy", copy), ("--local-copy", local_copy), ("--csv", csv)
    ) if value is not None]  # fmt: skip
    if len(asked) != 1:
        raise ScenarioError(
            f"give one of --gemm, --copy, --local-copy, --csv, not {' and '.join(asked) or 'none'}"
        )
    if csv is not None:
        text = catalogue.predicted_csv(csv, place)
        if out is None:
            sys.stdout.write(text)
        else:
            from ficco_sim.io import write_text

            write_text(out, text)
            _console().print(f"wrote {out}", highlight=False)
        return
    if gemm is not None:
        row = catalogue.gemm_cost(_workload(None, gemm, dtype), place, compute_units)
    elif copy is not None:
        row = catalogue.copy_cost(_bytes("--copy", copy), place, engine)
    else:
        assert local_copy is not None
        row = catalogue.local_copy_cost(_bytes("--local-copy", local_copy), place)
    if not _write_json(row, json):
        from ficco_sim.units import format_seconds

        details = ", ".join(
            f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
            for key, value in row.items()
            if key != "time_s"
        )
        _console().print(f"{format_seconds(row['time_s'])} alone ({details})", highlight=False)


def main(argv: list[str] | None = None) -> int:
    """Run the command line.

    Returns
    -------
    int
        0 if fine, 2 if the input is at fault, 1 if we are.
    """
    try:
        app(argv, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        return _fail(" ".join(str(error).split()), EXIT_USER)
    except FiccoError as error:
        return _fail(str(error), EXIT_USER)
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone; nothing is left to say
        return EXIT_FINE
    except KeyboardInterrupt:
        return _fail("interrupted", EXIT_INTERRUPTED)
    except MemoryError:
        return _fail("not enough memory for this many gpus and chunks", EXIT_USER)
    except Exception as error:  # noqa: BLE001 - no traceback reaches a user
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}:{frame.lineno}"
        return _fail(
            f"internal error, please report: {type(error).__name__} at {where}: {error}", EXIT_OURS
        )
    return EXIT_FINE


def _fail(message: str, code: int) -> int:
    for line in message.splitlines():
        sys.stderr.write(f"ficco: error: {line}\n")
    return code


def _machine(name: str) -> "Machine":
    from ficco_sim.machine import load_machine

    return load_machine(name)


def _cost_model(
    machine: "Machine", costs: Literal["profile", "ideal"], submission: Literal["graph", "eager"]
) -> "CostModel":
    from ficco_sim.costs import CostModel

    return CostModel(machine, costs, submission)


def _workload(name: str | None, gemm: str | None, dtype: str) -> "Workload":
    from ficco_sim.workload import Workload, get_workload

    if (name is None) == (gemm is None):
        raise ScenarioError("give one of --workload and --gemm")
    if name is not None:
        return get_workload(name)
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


def _check_outputs(json: str | None, trace: Path | None, plot: Path | None) -> None:
    """Refuse files that cannot be written before any work is done."""
    from ficco_sim.io import check_target

    if json not in (None, "-"):
        check_target(Path(json))
    if trace is not None:
        check_target(trace)
    if plot is not None:
        from ficco_sim.report import check_picture

        check_picture(plot)


def _knobs(
    num_chunks: int | None, compute_queues: int | None, engine: str | None, gather: str | None
) -> dict[str, Any]:
    given = {
        "num_chunks": num_chunks,
        "compute_queues": compute_queues,
        "engine": engine,
        "gather": gather,
    }
    return {key: value for key, value in given.items() if value is not None}


def _plan(
    schedule: str | None,
    file: Path | None,
    workload: str | None,
    gemm: str | None,
    dtype: str,
    num_gpus: int,
    knobs: dict[str, Any],
) -> "Plan":
    from ficco_sim.plan import load_plan
    from ficco_sim.schedules import make_plan

    if (schedule is None) == (file is None):
        raise ScenarioError("give either a schedule or --plan")
    if file is not None:
        if workload or gemm or knobs:
            raise ScenarioError("--plan: the file has its own workload and knobs")
        return load_plan(file)
    assert schedule is not None
    return make_plan(schedule, _workload(workload, gemm, dtype), num_gpus, knobs)


def _bytes(option: str, text: str) -> int:
    from ficco_sim.units import parse_bytes

    try:
        return parse_bytes(text)
    except ValueError as error:
        raise ScenarioError(f"{option}: {error}") from error


def _write_run(
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


def _write_json(document: Any, target: str | None) -> bool:
    """Write a result as JSON if asked for; true if that was the whole output."""
    if target is None:
        return False
    from ficco_sim.io import dump_json

    _write_text(dump_json(document), target)
    return target == "-"


def _write_text(text: str, target: str) -> None:
    if target == "-":
        sys.stdout.write(text)
        return
    from ficco_sim.io import write_text

    write_text(Path(target), text)


def _console(least_width: int = 0) -> "Console":
    from rich.console import Console

    out = Console(markup=False)
    if not out.is_terminal:
        out = Console(markup=False, width=max(TABLE_WIDTH, least_width))
    return out


def _say(out: "Console", notes: list[str]) -> None:
    for note in notes:
        out.print(note, highlight=False, soft_wrap=True)


def _link_line(src: str, dst: str, nbytes: int, busy_s: float) -> str:
    from ficco_sim.units import format_bytes, format_seconds

    return (
        f"busiest link: {src} -> {dst}, {format_bytes(nbytes)}, at least {format_seconds(busy_s)} busy"
    )


class _Progress:
    """A progress bar on the terminal's error stream; silent elsewhere."""

    def __enter__(self) -> Self:
        from rich.console import Console
        from rich.progress import Progress

        console = Console(stderr=True)
        self._bar = Progress(console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("simulating", total=None)
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, done: int, total: int, name: str) -> None:
        self._bar.update(self._task, completed=done, total=total, description=f"{name:20}")


if __name__ == "__main__":
    sys.exit(main())

"""The verb report: a page of a comparison."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from ficco_sim.cli.options import (
    DEFAULT_MACHINE,
    CostsOption,
    IntervalsOption,
    MachineOption,
    SubmissionOption,
)
from ficco_sim.cli.support import cost_model, find_machine
from ficco_sim.command import (
    DtypeOption,
    GemmOption,
    Progress,
    SkewOption,
    WorkloadOption,
    console,
    say,
)
from ficco_sim.errors import ScenarioError
from ficco_sim.workload import workload_from_options


def report(
    *,
    out: Annotated[Path, Parameter(help="The HTML file to write.")],
    machine: MachineOption = DEFAULT_MACHINE,
    workload: WorkloadOption = None,
    gemm: GemmOption = None,
    dtype: DtypeOption = "bf16",
    skew: SkewOption = None,
    from_: Annotated[
        Path | None,
        Parameter(name="--from", help="A file of ficco compare --json: a page without timelines."),
    ] = None,
    sweep: Annotated[
        Path | None, Parameter(help="A table of ficco sweep: a page of all its scenarios.")
    ] = None,
    costs: CostsOption = "profile",
    submission: SubmissionOption = "graph",
    engine: Annotated[Literal["dma", "core", "both"], Parameter(help="Who moves data.")] = "dma",
    intervals: IntervalsOption = True,
    sensitivity: Annotated[
        bool, Parameter(help="Simulate again with links, engines, memory and peak twice as fast.")
    ] = True,
    figures: Annotated[
        Path | None,
        Parameter(help="Folder for every figure as PNG and SVG, and the tables as Markdown."),
    ] = None,
) -> None:
    """Write a page that says which schedule to use, what it gains and what limits it.

    One HTML file with table, timelines, links and what-ifs; it opens from disk and needs no network.
    """
    from ficco_sim import pages
    from ficco_sim.io import check_target, write_text
    from ficco_sim.pages.files import check_folder

    check_target(out)
    if figures is not None:
        check_folder(figures)
    if sweep is not None:
        if workload or gemm or from_ or figures or skew is not None:
            raise ScenarioError("--sweep: the table has its own workloads; give only --out with it")
        from ficco_sim.sweep.table import read_sweep

        command = f"ficco report --sweep {sweep.name} --out {out.name}"
        page = pages.sweep_page(read_sweep(sweep), name=sweep.name, command=command)
        write_text(out, page)
        say(console(), [f"page: {out} (open it in a browser)"])
        return
    if from_ is not None:
        if workload or gemm or skew is not None:
            raise ScenarioError("--from: the file has its own workload")
        command = f"ficco report --from {from_.name} --out {out.name}"
        subject = pages.read_subject(from_, command=command)
    else:
        chosen = workload_from_options(workload, gemm, dtype, skew)
        place = find_machine(machine)
        options = {
            "--machine": Path(machine).name,
            "--workload": workload and Path(workload).name,
            "--gemm": gemm,
            "--dtype": dtype if gemm and dtype != "bf16" else None,
            "--skew": skew,
            "--costs": costs if costs != "profile" else None,
            "--submission": submission if submission != "graph" else None,
            "--engine": engine if engine != "dma" else None,
            "--no-intervals": None if intervals else "",
            "--no-sensitivity": None if sensitivity else "",
            "--out": out.name,
        }
        given = [f"{name} {value}".strip() for name, value in options.items() if value is not None]
        with Progress() as progress:
            subject = pages.simulate_subject(
                chosen,
                place,
                command=" ".join(["ficco report", *given]),
                costs=cost_model(place, costs, submission),
                engines=("dma", "core") if engine == "both" else (engine,),
                sensitivity=sensitivity,
                intervals=intervals,
                progress=progress,
            )
    write_text(out, pages.compare_page(subject))
    notes = [f"page: {out} (open it in a browser)"]
    if figures is not None:
        written = pages.write_figures(subject, figures)
        notes.append(f"{len(written)} files of figures and tables: {figures}")
    console().print(subject.comparison.verdict, style="bold", highlight=False)
    say(console(), notes)

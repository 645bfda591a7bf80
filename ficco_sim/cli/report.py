"""The verb report: a page of a comparison or of another verb's result."""

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
        Parameter(
            name="--from",
            help="A result: --json of compare (a page without timelines), validate, heuristic "
            "evaluate, tune or portability, or a table of sweep.",
        ),
    ] = None,
    sweep: Annotated[
        Path | None, Parameter(help="A table of ficco sweep, whatever its name ends in.")
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
    given = from_ if sweep is None else sweep
    subject: pages.Subject | pages.Document
    if given is not None:
        flag = "--from" if sweep is None else "--sweep"
        if workload or gemm or skew is not None:
            raise ScenarioError(f"{flag}: the file has its own workloads")
        if from_ is not None and sweep is not None:
            raise ScenarioError("--from and --sweep: one of them")
        command = f"ficco report {flag} {given.name} --out {out.name}"
        if sweep is not None:
            from ficco_sim.pages.sweep_page import sweep_document
            from ficco_sim.sweep.table import read_sweep

            subject = sweep_document(read_sweep(sweep), name=sweep.name, command=command)
        else:
            subject = pages.read_result(given, command=command)
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
        words = [f"{name} {value}".strip() for name, value in options.items() if value is not None]
        with Progress() as progress:
            subject = pages.simulate_subject(
                chosen,
                place,
                command=" ".join(["ficco report", *words]),
                costs=cost_model(place, costs, submission),
                engines=("dma", "core") if engine == "both" else (engine,),
                sensitivity=sensitivity,
                intervals=intervals,
                progress=progress,
            )
    page = (
        pages.document_html(subject)
        if isinstance(subject, pages.Document)
        else pages.compare_page(subject)
    )
    size = len(page.encode())
    if size > pages.MAX_PAGE_BYTES:
        raise ScenarioError(
            f"{out}: the page would have {size:,} bytes, at most {pages.MAX_PAGE_BYTES:,} are written; "
            "names or rows in the file are too long or too many"
        )
    write_text(out, page)
    notes = [f"page: {out} (open it in a browser)"]
    if figures is not None:
        written = pages.write_figures(subject, figures)
        notes.append(f"{len(written)} files of figures and tables: {figures}")
    verdict = subject.verdict if isinstance(subject, pages.Document) else subject.comparison.verdict
    console().print(verdict, style="bold", highlight=False, soft_wrap=True)
    say(console(), notes)

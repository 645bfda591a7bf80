"""The verb collective: communication alone."""

from typing import Annotated, Literal

from cyclopts import Parameter

from ficco_sim.cli.options import (
    DEFAULT_MACHINE,
    CostsOption,
    EngineOption,
    MachineOption,
    PlotOption,
    SubmissionOption,
    TraceOption,
)
from ficco_sim.cli.support import check_outputs, cost_model, find_machine, link_line, write_run
from ficco_sim.command import JsonOption, byte_count, console, say, write_json
from ficco_sim.errors import ScenarioError


def collective(
    name: Annotated[
        Literal["all_gather", "all_to_all", "reduce_scatter", "all_reduce"],
        Parameter(help="Which collective."),
    ],
    *,
    size: Annotated[
        str,
        Parameter(
            name="--bytes",
            help="Size as nccl-tests counts it, for example 512MiB: the gathered total, one gpu's "
            "input of a reduction, or all that one gpu sends.",
        ),
    ],
    machine: MachineOption = DEFAULT_MACHINE,
    algorithm: Annotated[
        Literal["direct", "ring", "ring-two-way", "ring-two-way-split", "hierarchical"],
        Parameter(help="How; not every collective has all of them."),
    ] = "direct",
    extents: Annotated[
        str | None, Parameter(help="Torus for hierarchical, for example 2,8; last dimension innermost.")
    ] = None,
    num_chunks: Annotated[int, Parameter(help="Pieces of each shard, one after another.")] = 1,
    dtype: Annotated[str, Parameter(help="Element type: bf16, fp16, fp8 or fp32.")] = "bf16",
    engine: EngineOption = "dma",
    costs: CostsOption = "profile",
    submission: SubmissionOption = "graph",
    links: Annotated[bool, Parameter(help="Print the bytes of every link.")] = False,
    json: JsonOption = None,
    trace: TraceOption = None,
    plot: PlotOption = None,
) -> None:
    """Time, algorithm and bus bandwidth, and bytes per link of a collective alone."""
    from ficco_sim.collective import run_collective
    from ficco_sim.units import format_bytes, format_rate, format_seconds

    check_outputs(json, trace, plot)
    place = find_machine(machine)
    result, plan, run = run_collective(
        name,
        0 if size.strip() == "0" else byte_count("--bytes", size),
        place,
        algorithm=algorithm,
        extents=_extents(extents),
        num_chunks=num_chunks,
        engine=engine,
        dtype=dtype,
        costs=cost_model(place, costs, submission),
    )
    notes = []
    if plan is not None and run is not None:
        notes = write_run(plan, place, run, trace, plot, "", {})
    if write_json(result, json):
        return
    out = console()
    relayed = ", relayed" if result.relayed else ""
    out.print(
        f"{result.collective} ({result.algorithm}{relayed}) of {format_bytes(result.num_bytes)} on "
        f"{place.name}: {format_seconds(result.time_s)} (simulated), algbw "
        f"{format_rate(result.algbw_bytes_per_s)}, busbw {format_rate(result.busbw_bytes_per_s)}",
        highlight=False,
    )
    busiest = result.busiest_link
    if busiest is None:
        out.print("nothing to move: no bytes, no time", highlight=False)
    else:
        out.print(
            link_line(busiest.src, busiest.dst, busiest.nbytes, busiest.min_busy_s), highlight=False
        )
    for load in result.links if links else ():
        out.print(
            f"  {load.src} -> {load.dst}  {format_bytes(load.nbytes)}, "
            f"{load.min_busy_s / result.time_s:.0%} busy",
            highlight=False,
        )
    say(out, notes)


def _extents(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ScenarioError(f"--extents: {text[:40]!r} must be sizes such as 2,8") from None

"""Verbs about names and single costs: list and cost."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from ficco_sim.cli.options import DEFAULT_MACHINE, ClockOption, EngineOption, MachineOption
from ficco_sim.cli.support import cost_model, find_machine
from ficco_sim.command import DtypeOption, JsonOption, byte_count, console, write_json
from ficco_sim.errors import ScenarioError
from ficco_sim.workload import workload_from_options


def list_(
    what: Annotated[
        Literal["schedules", "workloads", "machines", "rules"], Parameter(help="What to list.")
    ],
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
    elif what == "rules":
        from ficco_sim.heuristics import rule_rows

        rows = rule_rows()
    else:
        rows = catalogue.workloads(find_machine(machine))
    if write_json(rows, json):
        return
    out = console(least_width=150)
    if what == "rules":
        from ficco_sim.heuristics.show import rules_table

        out.print(rules_table(rows))
        return
    out.print(catalogue.table(what, rows, machine))


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
    sm_clock_ghz: ClockOption = None,
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

    place = find_machine(machine)
    asked = [name for name, value in (
        ("--gemm", gemm), ("--copy", copy), ("--local-copy", local_copy), ("--csv", csv)
    ) if value is not None]  # fmt: skip
    if len(asked) != 1:
        raise ScenarioError(
            f"give one of --gemm, --copy, --local-copy, --csv, not {' and '.join(asked) or 'none'}"
        )
    if csv is not None:
        text = catalogue.predicted_csv(csv, cost_model(place, sm_clock_ghz=sm_clock_ghz))
        if out is None:
            sys.stdout.write(text)
        else:
            from ficco_sim.io import write_text

            write_text(out, text)
            console().print(f"wrote {out}", highlight=False)
        return
    if gemm is not None:
        model = cost_model(place, sm_clock_ghz=sm_clock_ghz)
        row = catalogue.gemm_cost(workload_from_options(None, gemm, dtype), model, compute_units)
    elif copy is not None:
        row = catalogue.copy_cost(byte_count("--copy", copy), place, engine)
    else:
        assert local_copy is not None
        row = catalogue.local_copy_cost(byte_count("--local-copy", local_copy), place)
    if not write_json(row, json):
        from ficco_sim.units import format_seconds

        details = ", ".join(
            f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
            for key, value in row.items()
            if key != "time_s"
        )
        console().print(f"{format_seconds(row['time_s'])} alone ({details})", highlight=False)

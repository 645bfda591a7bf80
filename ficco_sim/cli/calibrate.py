"""The verb calibrate: a machine's profile from measurements."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ficco_sim.cli.options import DEFAULT_MACHINE, MachineOption
from ficco_sim.cli.support import check_outputs
from ficco_sim.command import JsonOption, Progress, console, say, write_json

if TYPE_CHECKING:
    from rich.table import Table

    from ficco_sim.calibrate import Calibration

MAX_BAD_KERNELS = 10


def calibrate(
    inputs: Annotated[
        list[Path],
        Parameter(
            help="Records of hw_validate, CSV files of GEMMs, or what hipblaslt-bench, nccl-tests, "
            "rccl-tests, nvbandwidth, rocm-bandwidth-test or torch.profiler wrote; recognised by "
            "content."
        ),
    ],
    /,
    *,
    machine: MachineOption = DEFAULT_MACHINE,
    out: Annotated[Path, Parameter(help="The machine's file with the fitted profile (.yaml).")],
    gpu_out: Annotated[
        Path | None, Parameter(help="Write the gpu alone as well, for topologies/gpus (.yaml).")
    ] = None,
    direction: Annotated[
        str | None,
        Parameter(
            help="Which measured copies stand for those between gpus, such as dev1>dev0 or host>dev0; "
            "those between devices unless given."
        ),
    ] = None,
    dtype: Annotated[str | None, Parameter(help="Only GEMMs of this element type.")] = None,
    reach: Annotated[
        float,
        Parameter(help="Octaves over which measured shapes correct the formula for others; 0: not."),
    ] = 2.0,
    table: Annotated[bool, Parameter(help="Put measured shapes into the profile.")] = True,
    keep: Annotated[
        str, Parameter(help="Groups that keep their defaults whatever was measured, with commas.")
    ] = "",
    json: JsonOption = None,
) -> None:
    """Fit a machine's cost models to measurements; what was not measured keeps its defaults."""
    from ficco_sim.calibrate import calibrate as fit
    from ficco_sim.calibrate import (
        check_calibration_targets,
        read_inputs,
        read_start,
        write_calibration,
    )
    from ficco_sim.io import to_plain

    check_calibration_targets(out, gpu_out)
    check_outputs(json, None, None)
    start = read_start(machine)
    read = read_inputs(inputs, dtype=dtype)
    with Progress("fitting") as progress:
        found = fit(
            read,
            start.gpu,
            direction=direction,
            latency_s=start.latency_s,
            reach=reach,
            table=table,
            keep=tuple(name.strip() for name in keep.split(",") if name.strip()),
            progress=progress,
        )
    written = write_calibration(found, start.file, out, gpu_out)
    document = {
        "groups": to_plain(found.groups),
        "bad_kernels": to_plain(found.bad_kernels),
        "notes": list(found.notes),
        "files": [str(path) for path in written],
    }
    if write_json(document, json):
        return
    console().print(_groups_table(found))
    say(console(), _lines(found, [str(path) for path in written]))


def _groups_table(found: "Calibration") -> "Table":
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    made.add_column("group", no_wrap=True)
    for name in ("points", "median error", "mean", "p90"):
        made.add_column(name, justify="right")
    made.add_column("")
    for group in found.groups:
        fit = group.fit
        if fit is None:
            made.add_row(group.name, "-", "-", "-", "-", f"kept: {group.reason}")
            continue
        parts = ", ".join(f"{name} {errors.mean:.1%}" for name, errors in group.parts.items())
        note = ("held out" if fit.held_out else "over the points of the fit") + (
            f"; mean of {parts}" if parts else ""
        )
        made.add_row(
            group.name,
            str(fit.num_points),
            f"{fit.median_error:.1%}",
            f"{fit.mean_error:.1%}",
            f"{fit.p90_error:.1%}",
            note,
        )
    return made


def _lines(found: "Calibration", written: list[str]) -> list[str]:
    lines = list(found.notes)
    bad: list[Any] = list(found.bad_kernels)
    if bad:
        lines.append(
            f"{len(bad)} shapes for which the library is slow (measured over 1.5 times the formula):"
        )
        for kernel in bad[:MAX_BAD_KERNELS]:
            s = kernel.sample
            batch = f" in {s.entries} entries" if s.entries > 1 else ""
            adds = ", accumulating" if s.accumulate else ""
            lines.append(f"  M,N,K {s.m},{s.n},{s.k} {s.dtype}{batch}{adds}: {kernel.ratio:.2f}x")
        if len(bad) > MAX_BAD_KERNELS:
            lines.append(f"  and {len(bad) - MAX_BAD_KERNELS} more (--json has all)")
    return [*lines, *(f"wrote {path}" for path in written)]

"""What calibration made of measurements: which groups were fitted, and how near the fits are."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ficco_sim.calibrate import Calibration, Inputs, Start
from ficco_sim.collective import run_collective
from ficco_sim.costs import CostModel, GemmShape
from ficco_sim.io import read_text
from ficco_sim.machine import Machine, build_machine
from ficco_sim.readers.logs import fit_alpha_beta, read_log
from ficco_sim.studies.style import LOOKS, decades, legend_above, panels, percent
from ficco_sim.units import MIB

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = [
    "calibrated_machine",
    "collective_errors",
    "draw_collective_errors",
    "draw_gemm_errors",
    "fitted_groups",
    "gemm_errors",
    "logs_frame",
]


def logs_frame(paths: Iterable[Path]) -> "pd.DataFrame":
    """What readers found: ``file, format, gemms, copies, collectives, refused, first_refused``."""
    import pandas as pd

    rows = []
    for path in paths:
        log = read_log(read_text(path), str(path))
        rows.append(
            {
                "file": path.name,
                "format": log.format,
                "gemms": len(log.gemms()),
                "copies": len(log.copies()),
                "collectives": len(log.collectives()),
                "refused": log.num_refused,
                "first_refused": log.refused[0].reason if log.refused else "",
            }
        )
    return pd.DataFrame(rows)


def calibrated_machine(start: Start, found: Calibration) -> Machine:
    """The machine of a start with a calibrated gpu, as if written to a file and read back."""
    gemm = replace(found.gpu.profile.gemm, measured=found.table)
    gpu = replace(found.gpu, profile=replace(found.gpu.profile, gemm=gemm))
    return build_machine(replace(start.file, gpu=gpu), start.file.name)


def fitted_groups(found: Calibration) -> "pd.DataFrame":
    """Groups of parameters: ``group, points, mean_error, median_error, p90_error, held_out, kept``.

    ``kept`` says why a group keeps what the profile had.
    """
    import pandas as pd

    rows = []
    for group in found.groups:
        fit = group.fit
        rows.append(
            {
                "group": group.name,
                "points": fit.num_points if fit else 0,
                "mean_error": fit.mean_error if fit else None,
                "median_error": fit.median_error if fit else None,
                "p90_error": fit.p90_error if fit else None,
                "held_out": bool(fit and fit.held_out),
                "kept": group.reason,
            }
        )
    return pd.DataFrame(rows)


def gemm_errors(inputs: Inputs, machines: Mapping[str, Machine]) -> "pd.DataFrame":
    """Predicted over measured times of all GEMMs in the inputs, by machine.

    Returns
    -------
    DataFrame
        A row per GEMM and machine: ``profile, m, n, k, dtype, gemm_flop, measured_s, predicted_s,
        error``.
    """
    import pandas as pd

    rows = []
    for title, machine in machines.items():
        model = CostModel(machine).gemm_model
        for samples in inputs.gemms.values():
            for sample in samples:
                rows_each = (sample.m // sample.entries,) * sample.entries
                shape = GemmShape(rows_each, sample.n, sample.k, sample.dtype, sample.accumulate)
                predicted_s = model.cost(shape).time_s
                rows.append(
                    {
                        "profile": title,
                        "m": sample.m,
                        "n": sample.n,
                        "k": sample.k,
                        "dtype": sample.dtype,
                        "gemm_flop": shape.flops,
                        "measured_s": sample.time_s,
                        "predicted_s": predicted_s,
                        "error": predicted_s / sample.time_s - 1,
                    }
                )
    return pd.DataFrame(rows)


def draw_gemm_errors(frame: "pd.DataFrame", *, label: str) -> "Figure":
    """Draw errors of GEMM times over the size of the GEMM, a series per profile.

    Parameters
    ----------
    label
        What the measurements are, such as synthetic.
    """
    with panels(1, width=6.2, height=3.4) as (figure, axes):
        at = axes[0]
        for look, (title, found) in zip(LOOKS, frame.groupby("profile", sort=False), strict=False):
            mean = found["error"].abs().mean()
            at.plot(
                found["gemm_flop"] / 1e12, found["error"], **look.points,
                label=f"{title}: mean error {mean:.1%}",
            )  # fmt: skip
        at.axhline(0, color="#777777", linewidth=0.8, linestyle=":")
        at.set_xscale("log")
        decades(at.xaxis)
        at.yaxis.set_major_formatter(percent)
        at.set_xlabel("size of the GEMM [TFLOP]")
        at.set_ylabel(f"predicted / measured - 1 [%]\n({label})")
        legend_above(figure, axes, columns=2)
    return figure


def collective_errors(path: Path, machines: Mapping[str, Machine]) -> "pd.DataFrame":
    """All-gathers of a log beside a fitted line, and beside simulations by copy kernels.

    Returns
    -------
    DataFrame
        A row per size and source: ``source, num_bytes, log_s, time_s, error``; sources are
        ``latency and bandwidth`` (a line fitted to the log) and the machines' titles.
    """
    import pandas as pd

    points = [
        p
        for p in read_log(read_text(path), str(path)).collectives()
        if p.collective == "all_gather" and not p.in_place and p.total_bytes > 0
    ]
    line = fit_alpha_beta(points)
    found = {"latency and bandwidth": [line.time_s(p.wire_bytes) for p in points]}
    for title, machine in machines.items():
        found[title] = [
            run_collective("all_gather", p.total_bytes, machine, engine="core")[0].time_s
            for p in points
        ]
    return pd.DataFrame(
        [
            {
                "source": source,
                "num_bytes": p.total_bytes,
                "log_s": p.time_s,
                "time_s": time_s,
                "error": time_s / p.time_s - 1,
            }
            for source, times_s in found.items()
            for p, time_s in zip(points, times_s, strict=True)
        ]
    )


def draw_collective_errors(frame: "pd.DataFrame", *, label: str) -> "Figure":
    """Draw errors of all-gather times over their size; see `draw_gemm_errors`."""
    with panels(1, width=6.2, height=3.2) as (figure, axes):
        at = axes[0]
        for look, (source, found) in zip(LOOKS, frame.groupby("source", sort=False), strict=False):
            at.plot(found["num_bytes"] / MIB, found["error"], **look.line, label=source)
        at.axhline(0, color="#777777", linewidth=0.8, linestyle=":")
        at.set_xscale("log", base=2)
        decades(at.xaxis)
        at.set_xticks(sorted({size / MIB for size in frame["num_bytes"]}))
        at.yaxis.set_major_formatter(percent)
        at.set_xlabel("all-gather by copy kernels, bytes in all [MiB]")
        at.set_ylabel(f"predicted / log - 1 [%]\n({label})")
        legend_above(figure, axes, columns=3)
    return figure

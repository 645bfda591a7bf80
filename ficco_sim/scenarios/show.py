"""Scenario sets for people: a row per workload."""

from typing import TYPE_CHECKING, Any

from ficco_sim.scenarios.sets import ScenarioSet
from ficco_sim.units import format_bytes, format_flops

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["scenario_rows", "scenario_table"]


def scenario_rows(found: ScenarioSet) -> list[dict[str, Any]]:
    """Sizes, FLOP, OTB in FLOP per byte and MT in bytes of each workload, as they really are."""
    return [
        {
            "name": w.name,
            "pattern": w.pattern,
            "m": w.m,
            "n": w.n,
            "k": w.k,
            "dtype": w.dtype,
            "flops": w.flops,
            "otb_flops_per_byte": w.flops / w.gemm_bytes,
            "mt_bytes": w.gemm_bytes,
            "m_below_k": w.m < w.k,
        }
        for w in found.workloads
    ]


def scenario_table(found: ScenarioSet) -> "Table":
    """A table for the terminal."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    made.add_column("scenario", no_wrap=True)
    for name in ("M", "N", "K", "FLOP", "OTB", "MT"):
        made.add_column(name, justify="right", no_wrap=True)
    made.add_column("")
    made.caption = "OTB: FLOP per HBM byte of the GEMM. MT: those bytes."
    made.caption_justify = "left"
    for row in scenario_rows(found):
        made.add_row(
            row["name"],
            str(row["m"]),
            str(row["n"]),
            str(row["k"]),
            format_flops(row["flops"]),
            f"{row['otb_flops_per_byte']:.0f}",
            format_bytes(row["mt_bytes"]),
            "M < K" if row["m_below_k"] else "",
        )
    return made

"""What has a name, and what single tasks cost: rows for ``ficco list`` and ``ficco cost``."""

import csv
import io as text_io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ficco_sim.comparison import gemm_to_communication
from ficco_sim.costs import CostModel, GemmShape
from ficco_sim.costs.table import predict_gemms
from ficco_sim.errors import ScenarioError
from ficco_sim.grid import COMPARED
from ficco_sim.machine import Machine, load_machine, named_machines
from ficco_sim.routing import Routes
from ficco_sim.schedules import SCHEDULES, knobs_of
from ficco_sim.units import format_bytes, format_flops, format_rate
from ficco_sim.workload import Workload, named_workloads

if TYPE_CHECKING:
    from rich.table import Table

Row = dict[str, Any]


def schedules() -> list[Row]:
    """Every schedule with its knobs."""
    return [
        {
            "name": name,
            "knobs": list(knobs_of(name)),
            "compared_for": [pattern for pattern, names in COMPARED.items() if name in names],
        }
        for name in SCHEDULES
    ]


def machines() -> list[Row]:
    """Every machine that comes with the package."""
    rows = []
    for name in named_machines():
        machine = load_machine(name)
        rates = {link.bandwidth_bytes_per_s for link in machine.links}
        egress = sum(link.usable_bytes_per_s for link in machine.links if link.src == 0)
        rows.append(
            {
                "name": name,
                "num_gpus": machine.num_gpus,
                "gpu": machine.gpu.name,
                "family": machine.family,
                "num_links": len(machine.links),
                "link_bytes_per_s": [min(rates, default=0.0), max(rates, default=0.0)],
                "usable_egress_bytes_per_s": egress,
                "description": machine.description,
            }
        )
    return rows


def workloads(machine: Machine) -> list[Row]:
    """Every named workload, with the ratio of GEMM to communication on a machine.

    The ratio is that of the uncut GEMM alone to the communication alone; None where a workload is for
    another number of gpus.
    """
    costs = CostModel(machine)
    rows = []
    for workload in named_workloads().values():
        ratio = None
        if workload.pattern in COMPARED and _fits(workload, machine):
            ratio = gemm_to_communication(workload, machine, costs)
        rows.append(
            {
                "name": workload.name,
                "pattern": workload.pattern,
                "m": workload.m,
                "n": workload.n,
                "k": workload.k,
                "dtype": workload.dtype,
                "flops": workload.flops,
                "gathered_bytes": workload.gathered_bytes,
                "gemm_to_comm": ratio,
                "model": workload.model,
                "layer": workload.layer,
                "parallelism": workload.parallelism,
                "num_tokens": workload.num_tokens,
                "source": workload.source,
            }
        )
    return rows


def _fits(workload: Workload, machine: Machine) -> bool:
    return workload.tokens is None or len(workload.tokens) == machine.num_gpus


def gemm_cost(workload: Workload, costs: CostModel, compute_units: int | None) -> Row:
    """A GEMM alone."""
    machine = costs.machine
    most = machine.gpu.num_compute_units
    if compute_units is not None and not 1 <= compute_units <= most:
        raise ScenarioError(f"compute_units: {compute_units} must be from 1 to {most}")
    shape = GemmShape((workload.m,), workload.n, workload.k, workload.dtype)
    time_s = costs.gemm_model.cost(shape, compute_units).time_s
    peak = machine.gpu.peak_flops_per_s.get(workload.dtype)
    row: Row = {
        "time_s": time_s,
        "machine": machine.name,
        "dtype": workload.dtype,
        "compute_units": compute_units or most,
        "flops_per_s": shape.flops / time_s,
    }
    if peak is not None:
        row["share_of_peak"] = shape.flops / time_s / peak
    source = machine.sources.get(f"gpu.profile.gemm.rates.{workload.dtype}", "")
    row["basis"] = source.partition(":")[0] or "unknown"
    return row


def copy_cost(num_bytes: int, machine: Machine, engine: str) -> Row:
    """A copy of contiguous bytes from gpu 0 to gpu 1 alone, until the host can know of its end."""
    if machine.num_gpus < 2:
        raise ScenarioError(f"{machine.name}: a copy between gpus needs two of them")
    costs = CostModel(machine)
    cost = costs.copy(engine, row_bytes=num_bytes, strided=False)
    route = Routes(machine)(0, 1)
    usable = (machine.links[i].usable_bytes_per_s for i in route.links)
    rate = min(cost.bytes_per_s, *(u / share for u, share in zip(usable, route.shares, strict=True)))
    time_s = cost.setup_s + route.latency_s + num_bytes / rate + cost.completion_s
    if engine == "dma":
        time_s += costs.known_after_s(time_s)
    return {
        "time_s": time_s,
        "machine": machine.name,
        "engine": engine,
        "bytes": num_bytes,
        "rate_bytes_per_s": rate,
    }


def local_copy_cost(num_bytes: int, machine: Machine) -> Row:
    """A copy within a gpu's memory alone."""
    startup_s, body_s = CostModel(machine).local_copy_s(num_bytes)
    return {"time_s": startup_s + body_s, "machine": machine.name, "bytes": num_bytes}


def predicted_csv(path: Path, costs: CostModel) -> str:
    """The text of a CSV file of GEMM shapes with the column ``predicted_s`` added."""
    rows = predict_gemms(path, costs)
    buffer = text_io.StringIO(newline="")
    writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def table(what: str, rows: list[Row], machine: str) -> "Table":
    """Rows as a table for the terminal."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    if what == "schedules":
        for name in ("schedule", "knobs", "compared for"):
            made.add_column(name)
        for row in rows:
            made.add_row(row["name"], ", ".join(row["knobs"]), ", ".join(row["compared_for"]))
    elif what == "machines":
        for name in ("machine", "gpus", "gpu", "family", "links", "per link", "usable egress", "what"):
            made.add_column(name, justify="right" if name in ("gpus", "links") else "left")
        for row in rows:
            made.add_row(
                row["name"],
                str(row["num_gpus"]),
                row["gpu"],
                row["family"],
                str(row["num_links"]),
                " to ".join(dict.fromkeys(map(format_rate, row["link_bytes_per_s"]))),
                format_rate(row["usable_egress_bytes_per_s"]),
                row["description"],
            )
    else:
        for name in ("workload", "M", "N", "K"):
            made.add_column(name, justify="left" if name == "workload" else "right", no_wrap=True)
        made.add_column("dtype")
        made.caption = f"GEMM/comm: time of the whole GEMM over that of the communication, on {machine}"
        made.caption_justify = "left"
        for name in ("FLOP", "gathered", "GEMM/comm"):
            made.add_column(name, justify="right")
        for name in ("parallelism", "layer"):
            made.add_column(name)
        for row in rows:
            ratio = row["gemm_to_comm"]
            made.add_row(
                row["name"],
                str(row["m"]),
                str(row["n"]),
                str(row["k"]),
                row["dtype"],
                format_flops(row["flops"]),
                format_bytes(row["gathered_bytes"]),
                "-" if ratio is None else f"{ratio:.2f}",
                row["parallelism"],
                row["layer"],
            )
    return made

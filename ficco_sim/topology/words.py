"""A description in lines for people."""

from collections import Counter
from collections.abc import Iterable

from ficco_sim.topology.describe import Description, Path
from ficco_sim.units import GB, format_rate, format_seconds

__all__ = ["path_line", "summary_lines"]

MAX_GROUPS = 8


def summary_lines(told: Description) -> list[str]:
    """What a machine's links amount to."""
    switches = f" and {told.num_switches} switches" if told.num_switches else ""
    lines = [
        f"{told.name}: {told.num_gpus} x {told.gpu}{switches}, {told.kind}",
        f"  {told.num_links} directed links ({told.num_physical_links} physical), "
        f"{told.num_direct_pairs} pairs of gpus linked directly:",
    ]
    kinds = Counter(
        (link.bandwidth_bytes_per_s, link.usable_bytes_per_s, link.latency_s, link.width)
        for link in told.links
    )
    ordered = sorted(kinds.items(), reverse=True)
    for (rate, usable, latency_s, width), count in ordered[:MAX_GROUPS]:
        part = f", {format_rate(usable)} usable" if usable != rate else ""
        wide = f", {width} wide" if width > 1 else ""
        lines.append(f"    {count} of {rate / GB:g} GB/s{part}, {format_seconds(latency_s)}{wide}")
    if len(ordered) > MAX_GROUPS:
        lines.append(f"    and {len(ordered) - MAX_GROUPS} more kinds")
    far = "none, not connected" if told.diameter is None else str(told.diameter)
    lines.append(f"  diameter {far} (hops between gpus; a path through switches alone is one hop)")
    egress = _span(rate / GB for rate in told.egress_bytes_per_s)
    lines.append(f"  per gpu: {_span(told.degree)} links, egress {egress} GB/s per direction")
    if told.bisection_bytes_per_s is not None:
        basis = (
            "worst of all halves" if told.bisection_exact else "upper bound, worst of the halves tried"
        )
        lines.append(f"  bisection {format_rate(told.bisection_bytes_per_s)} per direction ({basis})")
    groups = told.direct_components
    if 1 < len(groups) < told.num_gpus:
        shown = "; ".join(", ".join(map(str, group[:16])) for group in groups[:MAX_GROUPS])
        lines.append(f"  {len(groups)} groups of directly linked gpus: {shown}")
    lines += [f"  warning: {text}" for text in told.warnings]
    return lines


def path_line(what: str, path: Path) -> str:
    """One sentence on a path."""
    return (
        f"{what}: {' -> '.join(path.nodes)}, {format_rate(path.bandwidth_bytes_per_s)}, "
        f"{path.hops} hop{'s' if path.hops > 1 else ''}"
    )


def _span(values: Iterable[float]) -> str:
    every = list(values)
    low, high = min(every), max(every)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"

"""Whether copies are what they are taken for: by a copy engine, and straight between gpus."""

import statistics
from collections.abc import Sequence

from ficco_sim.records import Measurement
from ficco_sim.units import MIB, format_rate
from hw_validate.checks import Finding, peer_fallback
from hw_validate.microbench.contention import Slowdown
from hw_validate.microbench.setup import parse_direction

__all__ = ["copies_by_engine", "engine_findings", "peer_findings"]

MOST_SLOWED = 1.10
"""A copy engine and a GEMM slow one another by less; only memory bandwidth is shared."""

LARGE_BYTES = 16 * MIB  # of a copy so large that its latency does not count
SURELY_FASTER = 1.2  # than through the host, which no staged copy can be


def copies_by_engine(gemm: float, copy: float, where: str, *, claimed: bool = True) -> list[Finding]:
    """Refuse the claim that copies are by a copy engine where a GEMM and they slow one another.

    Parameters
    ----------
    gemm, copy
        Time beside the other over time alone, for a GEMM that fills all compute units.
    where
        Opens the text.
    claimed
        Whether the copies are taken for those of an engine; else there is only a warning.

    Examples
    --------
    >>> copies_by_engine(1.02, 1.0, "host>dev0")
    []
    >>> copies_by_engine(1.3, 5.0, "dev0>dev0", claimed=False)[0].severity
    'warn'
    """
    if max(gemm, copy) < MOST_SLOWED:
        return []
    text = (
        f"{where}: beside a GEMM copies take {copy:.2f} times as long and the GEMM {gemm:.2f}; by a "
        f"copy engine neither would take {MOST_SLOWED:.2f}: copied by a kernel"
    )
    return [Finding(severity="refuse" if claimed else "warn", text=text)]


def engine_findings(found: Sequence[Slowdown]) -> list[Finding]:
    """Judge each direction's copies by what they and GEMMs do to one another.

    Parameters
    ----------
    found
        From `slowdowns`; of each direction the largest GEMM counts.
    """
    findings = []
    by_direction: dict[str, list[Slowdown]] = {}
    for slowdown in found:
        if slowdown.params["engine"] == "dma":
            by_direction.setdefault(str(slowdown.params["direction"]), []).append(slowdown)
    for direction, members in by_direction.items():
        largest = max(members, key=_work)
        if largest.gemm is None or largest.copy is None:
            reasons = "; ".join(f.text for f in largest.findings)
            text = f"{direction}: not known whether a copy engine copies: {reasons}"
            findings.append(Finding(severity="warn", text=text))
            continue
        findings += copies_by_engine(
            largest.gemm,
            max(largest.copy, largest.back or 0.0),
            direction,
            claimed=all(flow.family != "same" for flow in parse_direction(direction)),
        )
    return findings


def peer_findings(
    measurements: Sequence[Measurement], link_bytes_per_s: float | None = None
) -> list[Finding]:
    """Judge whether copies between devices are staged in the host.

    Parameters
    ----------
    measurements
        Of copies; the fastest large ones of each direction count.
    link_bytes_per_s
        What the link between the devices gives. If it is not known, the rate must be above that of
        copies to and from the host, as a staged copy crosses both.
    """
    rates: dict[str, float] = {}
    for m in measurements:
        if m.kind == "copy" and m.usable and m.params["engine"] == "dma":
            moved = float(m.params["nbytes"] or 0) * float(m.params["count"] or 0)
            direction = str(m.params["direction"])
            if moved >= LARGE_BYTES and len(parse_direction(direction)) == 1:
                rate = moved / statistics.median(m.samples_s)
                rates[direction] = max(rate, rates.get(direction, 0.0))
    family = {direction: parse_direction(direction)[0].family for direction in rates}
    host = [rate for direction, rate in rates.items() if family[direction] == "host"]
    findings = []
    for direction, rate in rates.items():
        if family[direction] != "peer":
            continue
        if link_bytes_per_s is not None:
            findings += peer_fallback(rate, link_bytes_per_s, direction)
        elif not host:
            text = f"{direction}: neither the link's rate nor that of copies from the host is known"
            findings.append(Finding(severity="warn", text=text))
        elif rate < SURELY_FASTER * min(host):
            text = (
                f"{direction}: {format_rate(rate)} is no more than the {format_rate(min(host))} of "
                "copies to or from the host: staged in the host?"
            )
            findings.append(Finding(severity="warn", text=text))
    return findings


def _work(slowdown: Slowdown) -> float:
    sizes = (slowdown.params[name] for name in ("m", "n", "k", "entries"))
    product = 1.0
    for size in sizes:
        product *= float(size or 1)
    return product

"""The page of a comparison."""

from importlib import metadata
from typing import Any

from ficco_sim.comparison import Result
from ficco_sim.pages.figures import comparison_figures
from ficco_sim.pages.render import inlined, render
from ficco_sim.pages.subject import Subject
from ficco_sim.pages.tables import results_cells, sources_table, what_if_cells
from ficco_sim.pages.timeline import MAX_PACKED_BYTES, timeline_data
from ficco_sim.pages.words import (
    CAUSES,
    GLOSSARY,
    PARTS,
    REMEDIES,
    describe_operator,
    describe_result,
    sentence,
)
from ficco_sim.units import format_seconds

__all__ = ["compare_page"]

WORTH_IT = 1.01  # as in verdicts: less is no gain
LEAST_PART = 0.005  # of the makespan; less is not worth a word


def compare_page(subject: Subject) -> str:
    """HTML text that needs nothing else: no network, no other file.

    All names and remarks are escaped, wherever they are from; the same subject gives the same text.
    """
    comparison = subject.comparison
    timelines: list[dict[str, Any]] = []
    left = MAX_PACKED_BYTES
    for i, (plan, trace) in enumerate(subject.runs):
        # what one run leaves the others may take
        share = left // (len(subject.runs) - i)
        timelines.append(
            timeline_data(plan, trace, _run_title(subject, plan.schedule), max_bytes=share)
        )
        left -= sum(map(len, timelines[-1]["packs"]))
    data = {"timelines": timelines}
    return render(
        "compare.html",
        title=f"{comparison.workload} on {comparison.machine}",
        kind="schedules that overlap communication with a GEMM; simulated, not measured",
        verdict=comparison.verdict,
        operator=describe_operator(subject.workload, subject.machine),
        comparison=comparison,
        cards=_cards(subject),
        figures=inlined(comparison_figures(subject)),
        results=results_cells(comparison),
        what_ifs=what_if_cells(subject.what_ifs) if subject.what_ifs else None,
        sources=sources_table(subject.machine) if subject.machine is not None else None,
        machine=subject.machine,
        workload=subject.workload,
        facts=_facts(subject),
        glossary=GLOSSARY,
        data=data,
    )  # fmt: skip


def _run_title(subject: Subject, schedule: str) -> str:
    result = next(r for r in subject.comparison.results if r.schedule == schedule)
    return f"{result.title}: {format_seconds(result.makespan_s)}"


def _cards(subject: Subject) -> list[dict[str, str]]:
    """Which schedule to use, what it gains, what limits it, what would help: heading, value, words."""
    comparison = subject.comparison
    best = comparison.results[0]
    overlap = next((r for r in comparison.results if r.schedule != "serial"), best)
    pays = overlap.speedup >= WORTH_IT
    chosen = overlap if pays else next(r for r in comparison.results if r.schedule == "serial")
    ideal = comparison.serial_s / comparison.ideal_s if comparison.ideal_s > 0 else 1.0
    cards = [
        {"heading": "Use", "value": chosen.title, "words": _use(comparison.results, chosen)},
        {
            "heading": "It gains",
            "value": f"{chosen.speedup:.2f}x" if pays else "nothing to gain by overlap",
            "words": _gains(overlap, comparison.serial_s, ideal, pays=pays),
        },
        {
            "heading": "Held back by",
            "value": overlap.cause,
            "words": f"{sentence(CAUSES[overlap.cause])}. {_parts(overlap)} {REMEDIES[overlap.cause]}",
        },
    ]
    if subject.what_ifs:
        first = subject.what_ifs[0]
        most = max(subject.what_ifs[1:], key=lambda row: row.gain)
        moved = "" if most.schedule == first.schedule else f" {most.schedule} would be best."
        cards.append(
            {
                "heading": "What would help most",
                "value": f"{most.change} x{most.factor:g}",
                "words": f"Makespan {format_seconds(first.makespan_s)} to "
                f"{format_seconds(most.makespan_s)}, {most.gain:.2f} times as fast as here.{moved}",
            }
        )
    return cards


def _use(results: tuple[Result, ...], chosen: Result) -> str:
    close = dict.fromkeys(r.schedule for r in results if r.too_close and r.schedule != chosen.schedule)
    tie = f" Too close to call with {', '.join(close)}." if close else ""
    return describe_result(chosen) + tie


def _gains(overlap: Result, serial_s: float, ideal: float, *, pays: bool) -> str:
    here, alone = format_seconds(overlap.makespan_s), format_seconds(serial_s)
    share = overlap.fraction_of_ideal
    if not pays:
        return (
            f"The best overlap, {overlap.title}, takes {here}, serial {alone} "
            f"({overlap.speedup:.2f}x); "
            f"perfect overlap could reach {ideal:.2f}x."
        )
    of_ideal = "" if share is None else f"; {share:.0%} of the gain of perfect overlap ({ideal:.2f}x)"
    sure = ""
    if overlap.interval_s is not None:
        low, high = map(format_seconds, overlap.interval_s)
        sure = f" Within what the fitted costs leave open it takes {low} to {high}."
    return f"{here} instead of {alone} for communication first and one GEMM after it{of_ideal}.{sure}"


def _parts(result: Result) -> str:
    """What a makespan is made of, the largest loss first."""
    whole, *losses = PARTS
    found = {key: getattr(result.breakdown, key) for key in losses}
    listed = ", ".join(
        f"{format_seconds(lost_s)} {PARTS[key]}"
        for key, lost_s in sorted(found.items(), key=lambda item: -item[1])
        if lost_s >= LEAST_PART * result.makespan_s
    )
    rest = f"; to it come {listed}" if listed else ""
    return f"The whole GEMM alone takes {format_seconds(getattr(result.breakdown, whole))}{rest}."


def _facts(subject: Subject) -> list[tuple[str, str]]:
    """What was compared and how, by name."""
    comparison = subject.comparison
    facts = []
    if subject.workload is not None:
        w = subject.workload
        facts.append(
            ("workload", f"{w.name}: {w.pattern}, [m, n, k] = [{w.m}, {w.n}, {w.k}], {w.dtype}")
        )
    else:
        facts.append(("workload", comparison.workload))
    if subject.machine is not None:
        m = subject.machine
        facts.append(("machine", f"{m.name}: {m.num_gpus} x {m.gpu.name}, {m.family}. {m.description}"))
        facts.append(("profile", f"{m.profile.regime}, {m.profile.date}"))
    else:
        facts.append(("machine", comparison.machine))
    facts += [
        ("source", "simulated, not measured"),
        ("costs", f"{comparison.costs}; submission {comparison.submission}"),
        ("GEMM alone", format_seconds(comparison.gemm_s)),
        ("communication alone", format_seconds(comparison.comm_s)),
        ("serial", format_seconds(comparison.serial_s)),
        ("ideal bound", format_seconds(comparison.ideal_s)),
        ("version", f"ficco {metadata.version('ficco')}"),
        ("command", subject.command),
    ]
    return facts

"""Evaluations for people: sentences, tables, a CSV file."""

import csv
import io as text_io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ficco_sim.laboratory.evaluate import Evaluation, RuleReport
from ficco_sim.laboratory.judge import SIMULATED_NOISE, Judgement
from ficco_sim.laboratory.small_sets import SmallSets
from ficco_sim.laboratory.summary import Share, Summary

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["TABLE_WIDTH", "evaluation_lines", "evaluation_tables", "judgements_csv"]

TABLE_WIDTH = 216  # characters of tables with long names

COLUMNS = (
    "set", "workload", "machine", "source", "m", "n", "k", "dtype", "num_gpus",
    "rule", "chosen", "plan", "exact", "best_schedule", "best_plan", "best_s", "chosen_s",
    "regret", "schedule_regret", "noise", "verdict", "speedup", "best_speedup", "loss",
    "fault", "message",
)  # fmt: skip


def evaluation_lines(found: Evaluation) -> list[str]:
    """What was judged, and how, a sentence a line."""
    knobs = "knobs as the rule sets them" if found.knobs == "rule" else "the best knobs of the schedule"
    noise = (
        f"{found.noise:.1%}"
        if found.noise is not None
        else f"{SIMULATED_NOISE:.0%} where simulated, spread of samples (at least 1 %) where measured"
    )
    return [
        f"{found.num_scenarios} scenarios on {', '.join(found.machines)} (sets: "
        f"{', '.join(found.sets)}), {found.source}; {knobs}; noise: {noise}",
        "right: no schedule is faster; unsure: none gains more than the noise; else wrong. Accuracy "
        "is of schedules, regret of plans with their knobs; 95 % intervals, as if scenarios were "
        "independent",
    ]


def evaluation_tables(found: Evaluation) -> "Iterator[Table]":
    """Rules, then for each that was asked for: machines, sets, who was taken for whom, small sets."""
    yield _summaries(
        f"rules, {found.source}",
        "rule",
        [(r.rule + (" (reference)" if r.reference else ""), r.total) for r in found.rules],
    )
    for report in found.rules:
        if report.reference:
            continue
        parts = {"machine": report.by_machine, "set": report.by_set}
        for title, rows in parts.items():
            # a set of one machine each says nothing new
            if len(rows) > 1 and (title == "machine" or len(rows) != len(report.by_machine)):
                named = [(row.name, row) for row in rows]
                yield _summaries(f"{report.rule} by {title}, {found.source}", title, named)
        yield _confusion(report, found.source)
        if report.faults:
            yield _faults(report)
    small = [(r.rule, r.small_sets) for r in found.rules if r.small_sets is not None]
    if small:
        yield _small_sets(small, found.source)


def _summaries(title: str, key: str, rows: Sequence[tuple[str, Summary]]) -> "Table":
    table = make_table(
        title,
        [key],
        [
            "of", "right", "unsure", "wrong", "faults", "accuracy %", "within noise %", "plan so",
            "mean regret %", "median", "p90", "worst", "loss", "speed-up", "best", "other knobs",
        ],
    )  # fmt: skip
    for name, s in rows:
        loss = s.mean_loss_when_wrong
        table.add_row(
            name,
            *map(str, (s.num_scenarios, s.num_right, s.num_unsure, s.num_wrong, s.num_faults)),
            _interval(s.accuracy),
            _interval(s.accuracy_within_noise),
            f"{s.plans_within_noise.share:.1%}",
            f"{100 * s.mean_regret:.2f} {ends(s.mean_regret_low, s.mean_regret_high)}",
            f"{s.median_regret:.1%}",
            f"{s.p90_regret:.1%}",
            f"{s.max_regret:.0%}",
            "-" if loss is None else f"{loss:.2f}x",
            f"{s.mean_speedup:.3f}x",
            f"{s.mean_best_speedup:.3f}x",
            str(s.num_inexact),
        )
    return table


def _interval(share: Share) -> str:
    return f"{100 * share.share:.1f} {ends(share.low, share.high)}"


def ends(low: float, high: float) -> str:
    """An interval of shares, in percent."""
    return f"[{100 * low:.1f}, {100 * high:.1f}]"


def _confusion(report: RuleReport, source: str) -> "Table":
    chosen = sorted({c.chosen for c in report.confusion})
    best = sorted({c.best for c in report.confusion})
    counts = {(c.best, c.chosen): c.count for c in report.confusion}
    table = make_table(
        f"{report.rule}: scenarios by fastest schedule (rows) and chosen one (columns), {source}",
        ["fastest"],
        chosen,
    )
    for row in best:
        table.add_row(row, *(str(counts.get((row, column), "-")) for column in chosen))
    return table


def _faults(report: RuleReport) -> "Table":
    table = make_table(f"{report.rule}: faults", ["kind"], ["scenarios"])
    table.add_column("message", overflow="fold")
    for row in report.faults:
        table.add_row(row.kind, str(row.count), row.message)
    return table


def _small_sets(rows: Sequence[tuple[str, SmallSets]], source: str) -> "Table":
    first = rows[0][1]
    size, paper = first.size, first.paper_right
    table = make_table(
        f"accuracy of {size} scenarios, {first.draws} draws of {first.num_scenarios}, seed "
        f"{first.seed}, {source}",
        ["rule"],
        [
            "all",
            "least",
            *(f"{q:.1%}" for q, _ in first.quantiles),
            "most",
            f"below {paper}/{size}",
            f"{paper}/{size}",
            "above",
        ],
    )
    for name, s in rows:
        table.add_row(
            name,
            f"{s.accuracy:.1%}",
            f"{s.lowest:.1%}",
            *(f"{value:.1%}" for _, value in s.quantiles),
            f"{s.highest:.1%}",
            *(f"{share:.1%} of draws" for share in (s.share_below, s.share_equal, s.share_above)),
        )
    return table


def make_table(title: str, texts: Sequence[str], numbers: Sequence[str]) -> "Table":
    """An empty table with a title; columns of numbers are aligned right."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for name in texts:
        table.add_column(name, no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def judgements_csv(reports: Sequence[RuleReport]) -> str:
    """A line per rule and scenario; numbers read back equal."""
    return csv_text(COLUMNS, (_values(j) for report in reports for j in report.judgements))


def csv_text(columns: Sequence[str], rows: Iterator[list[Any]]) -> str:
    """Rows as the text of a CSV file."""
    text = text_io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def _values(j: Judgement) -> list[Any]:
    o, w = j.outcome, j.outcome.workload
    return [
        o.set_name, w.name, o.place, o.source, w.m, w.n, w.k, w.dtype, o.machine.num_gpus,
        j.rule, j.chosen, j.plan, j.exact, j.best_schedule, j.best_plan, j.best_s, j.chosen_s,
        j.regret, j.schedule_regret, j.noise, j.verdict, j.speedup, j.best_speedup, j.loss,
        j.fault or "", j.message,
    ]  # fmt: skip

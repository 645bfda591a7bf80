"""Timelines of one gpu under several runs, simulated or measured, one above the other."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ficco_sim.studies.style import LOOKS, legend_above, panels
from ficco_sim.trace import Span, Trace
from ficco_sim.units import MS, US

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["draw_timelines", "spans_frame"]

KINDS = {"gemm": "GEMM", "transfer": "transfer", "local_copy": "local copy"}
LANE = 0.82  # of the height of a lane is filled


def spans_frame(runs: Mapping[str, Trace | Iterable[Span]], gpu: int = 0) -> "pd.DataFrame":
    """The tasks on one gpu's queues under several runs.

    Parameters
    ----------
    runs
        Traces, or spans, by the title of their panel.

    Returns
    -------
    DataFrame
        A row per task: ``run, queue, kind, task_id, start_s, end_s``. Transfers are on queues of the
        gpu that receives.
    """
    import pandas as pd

    rows = []
    for title, run in runs.items():
        spans = run.spans if isinstance(run, Trace) else run
        for span in spans:
            if span.queue.gpu != gpu:
                continue
            rows.append(
                {
                    "run": title,
                    "queue": f"{span.queue.engine} {span.queue.index}",
                    "kind": span.kind,
                    "task_id": span.task_id,
                    "start_s": span.start_s,
                    "end_s": span.end_s,
                }
            )
    return pd.DataFrame(rows)


def draw_timelines(frame: "pd.DataFrame") -> "Figure":
    """Draw each run as lanes, a queue each, over one axis of time."""
    titles = list(dict.fromkeys(frame["run"]))
    lanes = {title: _lanes(frame[frame["run"] == title]) for title in titles}
    longest_s = float(frame["end_s"].max())
    unit_s, unit = (MS, "ms") if longest_s >= MS else (US, "us")
    heights = [len(found) for found in lanes.values()]
    with panels(
        1, len(titles), height=0.9 + sum(0.17 * h + 0.4 for h in heights), sharex=True,
        gridspec_kw={"height_ratios": [h + 0.5 for h in heights]},
    ) as (figure, axes):  # fmt: skip
        for at, title in zip(axes, titles, strict=True):
            some = frame[frame["run"] == title]
            for look, (kind, word) in zip(LOOKS, KINDS.items(), strict=False):
                found = some[some["kind"] == kind]
                if not len(found):
                    continue
                places = [lanes[title].index(queue) for queue in found["queue"]]
                left, width = found["start_s"], found["end_s"] - found["start_s"]
                at.barh(places, width / unit_s, left=left / unit_s, height=LANE, **look.bar, label=word)
            end_s = float(some["end_s"].max())
            at.axvline(end_s / unit_s, color="#000000", linewidth=1)
            at.set_yticks(range(len(lanes[title])), lanes[title], fontsize=7)
            at.tick_params(axis="y", length=0)
            at.set_ylim(len(lanes[title]) - 0.4, -0.6)
            at.set_title(f"{title}: {end_s / unit_s:.3g} {unit}", fontsize=8.5, loc="left")
        axes[-1].set_xlim(0, longest_s / unit_s * 1.01)
        axes[-1].set_xlabel(f"time [{unit}], queues of gpu 0; vertical line: last task done")
        legend_above(figure, axes, columns=3)
    return figure


def _lanes(frame: "pd.DataFrame") -> list[str]:
    """Queues, compute first."""
    return sorted(set(frame["queue"]), key=lambda q: (not q.startswith("compute"), q))

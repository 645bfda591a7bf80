"""A rule's thresholds on scenarios simulated here: how good it is, and what 16 of them tell."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ficco_sim.comparison import find_makespans
from ficco_sim.grid import Grid
from ficco_sim.laboratory import (
    Evaluation,
    Outcomes,
    SmallSets,
    Tried,
    Tuning,
    among,
    make_outcome,
)
from ficco_sim.machine import Machine
from ficco_sim.studies.losses import PAPER_SCHEDULES
from ficco_sim.studies.published import published
from ficco_sim.studies.style import LOOKS, PUBLISHED, decades, legend_above, level, panels, percent
from ficco_sim.units import MS
from ficco_sim.workload import Workload

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = [
    "draw_small_sets",
    "draw_tuning",
    "rule_summary",
    "simulated_outcomes",
    "small_sets_frame",
    "tuning_frame",
]


def simulated_outcomes(
    workloads: Iterable[Workload],
    machine: Machine,
    *,
    schedules: Sequence[str] = PAPER_SCHEDULES,
    set_name: str,
) -> Outcomes:
    """Simulate some schedules with all knobs of `compare`, for the laboratory to judge rules on.

    Parameters
    ----------
    schedules
        What a rule may choose from; serial is simulated too, as the baseline, but not among them.
    set_name
        What the set of workloads is called.
    """
    grid = Grid(schedules=tuple(schedules))
    outcomes = [
        make_outcome(
            workload,
            machine,
            [
                Tried(
                    schedule=schedule,
                    num_chunks=knobs.get("num_chunks", 1),
                    compute_queues=knobs.get("compute_queues", 1),
                    engine=knobs["engine"],
                    makespan_s=makespan_s,
                )
                for schedule, knobs, makespan_s in find_makespans(workload, machine, grid=grid).points
            ],
            set_name=set_name,
        )
        for workload in workloads
    ]
    return among(Outcomes(outcomes=tuple(outcomes)), schedules)


def tuning_frame(tunings: Mapping[str, Tuning]) -> "pd.DataFrame":
    """What a rule loses with each value of its thresholds, by place.

    Returns
    -------
    DataFrame
        A row per place and point: ``place``, the parameters, ``accuracy, accuracy_within_noise,
        mean_regret, mean_schedule_regret, own``; the last marks the rule as it is.
    """
    import pandas as pd

    return pd.DataFrame(
        [
            {
                "place": place,
                **point.values,  # noqa: PD011 - no frame
                "accuracy": point.accuracy,
                "accuracy_within_noise": point.accuracy_within_noise,
                "mean_regret": point.mean_regret,
                "mean_schedule_regret": point.mean_schedule_regret,
                "own": point.values == tuning.untuned.values,  # noqa: PD011
            }
            for place, tuning in tunings.items()
            for point in tuning.points
        ]
    )


def draw_tuning(frame: "pd.DataFrame", parameter: str = "tau_s") -> "Figure":
    """Draw accuracy and regret over one threshold, a line per place."""
    unit = MS if parameter.endswith("_s") else 1.0
    with panels(2, width=8.2, height=3.5) as (figure, axes):
        for at, (key, word) in zip(
            axes,
            (("accuracy", "accuracy"), ("mean_schedule_regret", "mean regret, best knobs")),
            strict=True,
        ):
            for look, (place, found) in zip(LOOKS, frame.groupby("place", sort=False), strict=False):
                values = found[parameter] / unit
                at.plot(values, found[key], **look.line, markevery=3, label=place)
            own = frame.loc[frame["own"], parameter].iloc[0] / unit
            at.axvline(own, color="#777777", linewidth=0.9, linestyle=":", label="rule as it is")
            at.set_xscale("log")
            decades(at.xaxis)
            at.set_ylim(bottom=0)
            at.yaxis.set_major_formatter(percent)
            at.set_ylabel(f"{word} [%]")
            at.set_xlabel(f"{parameter.removesuffix('_s')} [ms]" if unit == MS else parameter)
        axes[0].set_ylim(0, 1)
        level(axes[0], published("ficco-rule-accuracy"), "FiCCO paper: 13 of 16, unseen", right=False)
        legend_above(figure, axes, columns=4)
    return figure


def small_sets_frame(found: Mapping[str, SmallSets]) -> "pd.DataFrame":
    """How often a set of 16 scenarios shows which accuracy: ``place, num_right, accuracy, share``."""
    import pandas as pd

    return pd.DataFrame(
        [
            {
                "place": place,
                "num_right": right,
                "accuracy": right / sets.size,
                "share": count / sets.draws,
            }
            for place, sets in found.items()
            for right, count in enumerate(sets.counts)
        ]
    )


def draw_small_sets(frame: "pd.DataFrame") -> "Figure":
    """Draw how far the accuracy of sets of 16 scenarios spreads, and where the published one lies."""
    with panels(1, width=6.0, height=3.0) as (figure, axes):
        at = axes[0]
        groups = list(frame.groupby("place", sort=False))
        width = 0.8 / len(groups)
        for i, (look, (place, found)) in enumerate(zip(LOOKS, groups, strict=False)):
            at.bar(
                found["num_right"] + (i + 0.5) * width - 0.4, found["share"], width=width, **look.bar,
                label=place,
            )  # fmt: skip
        right = published("ficco-rule-accuracy").number * 16
        at.axvline(right, color=PUBLISHED, linewidth=1, linestyle="--", label="FiCCO paper: 13 of 16")
        at.set_xticks(range(0, 17, 2))
        at.yaxis.set_major_formatter(percent)
        at.set_xlabel("right choices of 16")
        at.set_ylabel("share of sets drawn [%]")
        legend_above(figure, axes, columns=3)
    return figure


def rule_summary(found: Evaluation) -> "pd.DataFrame":
    """Rules of an evaluation: accuracies with their intervals, regrets, and speed-ups over serial.

    Returns
    -------
    DataFrame
        A row per rule: ``rule, scenarios, accuracy, accuracy_low, accuracy_high, within_noise,
        mean_regret, max_regret, speedup, best_speedup``; intervals are of 95 %, speed-ups geometric
        means.
    """
    import pandas as pd

    return pd.DataFrame(
        [
            {
                "rule": report.rule,
                "scenarios": report.total.num_scenarios,
                "accuracy": report.total.accuracy.share,
                "accuracy_low": report.total.accuracy.low,
                "accuracy_high": report.total.accuracy.high,
                "within_noise": report.total.accuracy_within_noise.share,
                "mean_regret": report.total.mean_regret,
                "max_regret": report.total.max_regret,
                "speedup": report.total.mean_speedup,
                "best_speedup": report.total.mean_best_speedup,
            }
            for report in found.rules
        ]
    )

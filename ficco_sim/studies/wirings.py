"""The same gpus wired differently: what overlap gains, and all-gathers beside other simulators'."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ficco_sim.collective import run_collective
from ficco_sim.costs import CostModel
from ficco_sim.families import Family
from ficco_sim.machine import Machine, build_machine
from ficco_sim.schedules.collectives import Algorithm
from ficco_sim.studies.published import published
from ficco_sim.studies.schedules import best_of
from ficco_sim.studies.style import LOOKS, PUBLISHED, legend_above, panels, reference, times
from ficco_sim.topology import make_machine_file
from ficco_sim.units import GIB, MIB, MS, US

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["all_gather_times", "draw_all_gather_times", "draw_wirings"]

SHARD_BYTES = 64 * MIB
LINK_BYTES_PER_S, LATENCY_S = 64 * GIB, 0.5 * US  # those of the runs by other simulators


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A wiring that another simulator was run on, and how we gather there."""

    family: Family
    options: Mapping[str, Any]
    algorithm: Algorithm = "direct"
    num_chunks: int = 1

    def machine(self) -> Machine:
        """Links as in those runs; of the gpus nothing counts, as costs are ideal."""
        file = make_machine_file(
            self.family, gpu="mi300x", bandwidth_bytes_per_s=LINK_BYTES_PER_S, latency_s=LATENCY_S,
            **self.options,
        )  # fmt: skip
        return build_machine(file, file.name)


SETTINGS = {
    "mesh_8": Setting(family="full_mesh", options={"num_gpus": 8}),
    "mesh_64": Setting(family="full_mesh", options={"num_gpus": 64}),
    "torus_4x4": Setting(family="torus", options={"extents": (4, 4)}, num_chunks=4),
    "ring_8_oneway": Setting(
        family="ring", options={"num_gpus": 8, "both_ways": False}, algorithm="ring"
    ),
    "switch_8": Setting(family="switch", options={"num_gpus": 8}),
}


def all_gather_times() -> "pd.DataFrame":
    """All-gathers of 64 MiB a gpu over links of 64 GiB/s, where other simulators were run.

    Costs are ideal: only links count, as there.

    Returns
    -------
    DataFrame
        A row per wiring: ``wiring, num_gpus, shard_bytes, simulated_s, other_s, other, difference``.
    """
    import pandas as pd

    rows = []
    for name, setting in SETTINGS.items():
        machine = setting.machine()
        result, _, _ = run_collective(
            "all_gather", machine.num_gpus * SHARD_BYTES, machine, algorithm=setting.algorithm,
            num_chunks=setting.num_chunks, costs=CostModel(machine, "ideal"),
        )  # fmt: skip
        series = published(f"all-gather-{name}")
        rows.append(
            {
                "wiring": name,
                "num_gpus": machine.num_gpus,
                "shard_bytes": SHARD_BYTES,
                "simulated_s": result.time_s,
                "other_s": series.number,
                "other": series.source,
                "difference": result.time_s / series.number - 1,
            }
        )
    return pd.DataFrame(rows)


def draw_all_gather_times(frame: "pd.DataFrame") -> "Figure":
    """Draw all-gather times beside those of other simulators."""
    with panels(1, width=5.8, height=2.6) as (figure, axes):
        at = axes[0]
        places = range(len(frame))
        at.barh(places, frame["simulated_s"] / MS, height=0.55, **LOOKS[0].bar, label="simulated here")
        at.plot(
            frame["other_s"] / MS, places, linestyle="none", marker="x", color=PUBLISHED, markersize=7,
            label="another simulator",
        )  # fmt: skip
        columns = [frame[name].tolist() for name in ("other", "difference", "simulated_s", "other_s")]
        for place, (other, difference, *ends_s) in enumerate(zip(*columns, strict=True)):
            at.annotate(
                f"{other.split(',')[0]}: {round(difference, 3) + 0.0:+.1%}",
                (max(ends_s) / MS, place), xytext=(8, 0), textcoords="offset points", va="center",
                fontsize=8,
            )  # fmt: skip
        at.set_yticks(places, frame["wiring"])
        at.set_ylim(len(frame) - 0.4, -0.6)
        at.set_xlim(0, 11)
        at.set_xlabel("all-gather of 64 MiB a gpu [ms]")
        legend_above(figure, axes, columns=2)
    return figure


def draw_wirings(frame: "pd.DataFrame") -> "Figure":
    """Draw what schedules gain on each machine, a panel per workload; see `schedule_times`."""
    workloads = list(dict.fromkeys(frame["workload"]))
    machines = list(dict.fromkeys(frame["machine"]))
    shown = (
        ("best FiCCO", frame[frame["kind"] == "FiCCO"]),
        ("shard-ring", frame[frame["schedule"] == "shard-ring"]),
        ("shard-p2p", frame[frame["schedule"] == "shard-p2p"]),
    )
    with panels(len(workloads), width=9.0, height=3.9, sharey=True) as (figure, axes):
        for at, workload in zip(axes, workloads, strict=True):
            some = frame[frame["workload"] == workload].drop_duplicates("machine")
            ideal = dict(zip(some["machine"], some["ideal_speedup"], strict=True))
            ratio = dict(zip(some["machine"], some["gemm_over_comm"], strict=True))
            at.plot(
                range(len(machines)), [ideal[name] for name in machines], linestyle="none", marker="_",
                markersize=16, color="#000000", label="ideal bound",
            )  # fmt: skip
            for look, (label, plans) in zip(LOOKS, shown, strict=False):
                best = best_of(plans[plans["workload"] == workload])
                speedup = dict(zip(best["machine"], best["speedup"], strict=True))
                there = [i for i, name in enumerate(machines) if name in speedup]
                at.plot(there, [speedup[machines[i]] for i in there], **look.points, label=label)
            reference(at)
            at.set_xticks(
                range(len(machines)),
                [f"{name} ({ratio[name]:.2f})" for name in machines],
                rotation=40,
                ha="right",
                fontsize=7.5,
            )
            at.set_xlim(-0.5, len(machines) - 0.5)
            at.set_ylim(0, 2.1)
            at.yaxis.set_major_formatter(times)
            at.set_title(workload, fontsize=8)
        axes[0].set_ylabel("speed-up over serial [x], simulated")
        figure.supxlabel("machine (GEMM / communication there)", fontsize=9)
        legend_above(figure, axes, columns=4)
    return figure

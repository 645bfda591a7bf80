"""The model of GEMMs side by side against measured ones; nothing is fitted here."""

from collections.abc import Sequence
from dataclasses import dataclass

from ficco_sim.calibrate.robust import Errors, NotFitted, errors_of
from ficco_sim.costs import CostModel
from ficco_sim.machine import Machine
from ficco_sim.plan import Buffer, Gemm, Plan, Queue, Region
from ficco_sim.records import Measurement, Scalar
from ficco_sim.sim import simulate
from ficco_sim.workload import OUTPUT_DTYPE, Workload

__all__ = ["SideBySide", "side_by_side", "side_by_side_errors"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySide:
    """Equal GEMMs round robin over several queues, in times of the same on one queue.

    Parameters
    ----------
    m, n, k
        Of each GEMM; m rows of each of its entries.
    """

    m: int
    n: int
    k: int
    dtype: str
    queues: int
    measured: float
    simulated: float


def side_by_side(measurements: Sequence[Measurement], machine: Machine) -> list[SideBySide]:
    """Measured and simulated gain of more than one queue.

    Times over those on one queue are compared, so that what the model gets wrong of each GEMM alone
    does not count here.

    Parameters
    ----------
    measurements
        Of kind ``gemms``; others are left out, as are types that the machine's profile lacks.
    """
    times: dict[tuple[tuple[str, Scalar], ...], dict[int, Measurement]] = {}
    for m in measurements:
        if m.kind == "gemms" and m.usable and m.params["dtype"] in machine.profile.gemm.rates:
            work = tuple(sorted((k, v) for k, v in m.params.items() if k != "queues"))
            times.setdefault(work, {})[int(m.params["queues"] or 1)] = m
    single = Machine(
        name=machine.name,
        description="one gpu of it",
        num_gpus=1,
        gpu=machine.gpu,
        profile=machine.profile,
        links=(),
    )
    costs = CostModel(single)
    found = []
    for by_queues in times.values():
        if 1 not in by_queues:
            continue
        alone = _simulated_s(by_queues[1], single, costs)
        found += [
            SideBySide(
                m=_whole(m, "m"),
                n=_whole(m, "n"),
                k=_whole(m, "k"),
                dtype=str(m.params["dtype"]),
                queues=queues,
                measured=m.median_s / by_queues[1].median_s,
                simulated=_simulated_s(m, single, costs) / alone,
            )
            for queues, m in by_queues.items()
            if queues > 1
        ]
    return found


def side_by_side_errors(points: Sequence[SideBySide]) -> Errors | NotFitted:
    """How far simulated gains are from measured ones."""
    if not points:
        return NotFitted(reason="gemms: no GEMMs on one and on several queues were timed")
    return errors_of([p.simulated for p in points], [p.measured for p in points])


def _whole(m: Measurement, name: str) -> int:
    return int(m.params[name] or 1)


def _simulated_s(m: Measurement, machine: Machine, costs: CostModel) -> float:
    rows, n, k, entries = (_whole(m, name) for name in ("m", "n", "k", "entries"))
    dtype, count, queues = str(m.params["dtype"]), _whole(m, "repeats"), _whole(m, "queues")
    workload = Workload(name="gemms", pattern="gemm", m=count * entries * rows, n=n, k=k, dtype=dtype)

    def regions(buffer: str, first: int, cols: int) -> tuple[Region, ...]:
        return tuple(
            Region(gpu=0, buffer=buffer, rows=(start, start + rows), cols=(0, cols))
            for start in range(first, first + entries * rows, rows)
        )

    all_b = Region(gpu=0, buffer="b", rows=(0, k), cols=(0, n))
    tasks = tuple(
        Gemm(
            id=f"gemm.{i}",
            queue=Queue(gpu=0, engine="compute", index=i % queues),
            a=regions("a", i * entries * rows, k),
            b=all_b,
            c=regions("c", i * entries * rows, n),
            accumulate=bool(m.params["accumulate"]),
        )
        for i in range(count)
    )
    plan = Plan(
        schedule="gemms",
        knobs={},
        workload=workload,
        num_gpus=1,
        buffers=(
            Buffer(gpu=0, name="a", rows=workload.m, cols=k, dtype=dtype),
            Buffer(gpu=0, name="b", rows=k, cols=n, dtype=dtype),
            Buffer(gpu=0, name="c", rows=workload.m, cols=n, dtype=OUTPUT_DTYPE[dtype]),
        ),
        inputs=(),
        outputs=(),
        tasks=tasks,
    )
    return max(span.end_s for span in simulate(plan, machine, costs).spans)

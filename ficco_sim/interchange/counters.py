"""Use of links and HBM over time, from the spans of a run: bytes spread evenly over each span."""

from collections import defaultdict
from collections.abc import Iterator

from ficco_sim.machine import Machine
from ficco_sim.plan import Plan, Transfer, buffer_bytes
from ficco_sim.routing import Routes
from ficco_sim.trace import Trace
from ficco_sim.units import to_ns

__all__ = ["Counter", "counters"]

MAX_LINKS = 256  # used links that have a counter each; a gpu's sums in and out are always there


class Counter:
    """Bytes per second of one thing over time.

    Parameters
    ----------
    node
        The gpu or switch that it belongs to.
    """

    def __init__(self, node: int, name: str) -> None:
        self.node = node
        self.name = name
        self._rate: dict[int, float] = defaultdict(float)
        self._active: dict[int, int] = defaultdict(int)

    def add(self, start_ns: int, end_ns: int, num_bytes: float) -> None:
        """Count bytes that move from start to end; a span of no length shows no rate."""
        if end_ns <= start_ns or not num_bytes:
            return
        rate = num_bytes * 1e9 / (end_ns - start_ns)
        self._rate[start_ns] += rate
        self._rate[end_ns] -= rate
        self._active[start_ns] += 1
        self._active[end_ns] -= 1

    def points(self) -> Iterator[tuple[int, int]]:
        """Times in ns and bytes/s from then on; it begins at 0 s and ends at 0 bytes/s."""
        rate, active, shown = 0.0, 0, -1
        if self._rate:
            self._rate[0] += 0.0
        for at_ns in sorted(self._rate):
            rate += self._rate[at_ns]
            active += self._active.get(at_ns, 0)
            if active == 0:
                rate = 0.0  # exactly, whatever the sums lost by rounding
            value = max(round(rate), 0)
            if value != shown:
                yield at_ns, value
                shown = value


def counters(run: Trace, plan: Plan, machine: Machine) -> list[Counter]:
    """Counters of a run: HBM and links in and out of each gpu, and each link where they are few.

    HBM counts what a task reads and writes at least: operands once, results once.
    """
    element_bytes = buffer_bytes(plan)
    routes = Routes(machine)
    hbm = [Counter(gpu, "HBM") for gpu in range(plan.num_gpus)]
    links_in = [Counter(gpu, "links in") for gpu in range(plan.num_gpus)]
    links_out = [Counter(gpu, "links out") for gpu in range(plan.num_gpus)]
    links: dict[int, Counter] = {}
    times = {span.task_id: (to_ns(span.start_s), to_ns(span.end_s)) for span in run.spans}
    for task in plan.tasks:
        start_ns, end_ns = times[task.id]
        moved: dict[int, int] = defaultdict(int)
        for region in (*task.reads, *task.writes):
            moved[region.gpu] += region.num_elements * element_bytes[region.gpu, region.buffer]
        for gpu, num_bytes in moved.items():
            hbm[gpu].add(start_ns, end_ns, num_bytes)
        if isinstance(task, Transfer):
            src, dst = task.src.gpu, task.dst.gpu
            num_bytes = task.src.num_elements * element_bytes[src, task.src.buffer]
            links_in[dst].add(start_ns, end_ns, num_bytes)
            links_out[src].add(start_ns, end_ns, num_bytes)
            route = routes(src, dst)
            for index, share in zip(route.links, route.shares, strict=True):
                if index not in links:
                    link = machine.links[index]
                    links[index] = Counter(link.src, f"link to {machine.node_name(link.dst)}")
                links[index].add(start_ns, end_ns, num_bytes * share)
    shown = [links[index] for index in sorted(links)] if len(links) <= MAX_LINKS else []
    return [*hbm, *links_in, *links_out, *shown]

"""Links of their own, played by one: what they carry at the same time goes as one copy.

A gpu of a full mesh has a link to each peer. Where the data of all peers is in one place, it has one
link to that place (PCIe, or NVLink to one other device), and a copy engine serves one copy after the
other: the first arrives long before the last. On links of their own all would arrive together, after
as long as one takes at a link's rate. So the transfers of a round, those at the same position of
their queues, become one copy that ends for all of them, at an even share of the place's rate each. A
filler of bytes that nobody needs stands for the links that a round leaves idle.

Slices of columns are held apart, so that reading one is no strided read: links between gpus move both
at the same rate, PCIe strided ones at 0.6 to 1 of it, less beside a GEMM (docs/hardware.md).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ficco_sim.errors import PlanError
from ficco_sim.plan import Plan, Transfer
from hw_validate.placement import Placement

__all__ = ["Round", "rounds_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Transfers that links of their own would carry at the same time.

    Parameters
    ----------
    place
        Where all of them read.
    transfers
        Of equal size, each from another gpu.
    num_idle
        Links to that place that carry nothing meanwhile.
    """

    place: int
    transfers: tuple[Transfer, ...]
    num_idle: int

    @property
    def id(self) -> str:
        """The id of the step that does it: that of its first transfer."""
        return self.transfers[0].id


def rounds_of(plan: Plan, placement: Placement) -> list[Round]:
    """The rounds in which a plan's gpus read those that have a link of their own, in order.

    Raises
    ------
    PlanError
        If the transfers of a round differ in size or in what they wait for, share a link, or are by
        copy kernels: one copy cannot stand for them then.
    """
    found: dict[tuple[int, int], list[Transfer]] = {}
    if not placement.linked:
        return []
    for position, transfer in _linked(plan, placement):
        found.setdefault((placement.places[transfer.src.gpu], position), []).append(transfer)
    rounds = [
        Round(
            place=place, transfers=tuple(together), num_idle=placement.num_links(place) - len(together)
        )
        for (place, _), together in sorted(found.items(), key=lambda item: item[0][1])
    ]
    for each in rounds:
        _check(plan, each)
    return rounds


def _linked(plan: Plan, placement: Placement) -> Iterator[tuple[int, Transfer]]:
    """Transfers from gpus with a link of their own, and how many such their queue has before."""
    positions: dict[object, int] = {}
    for task in plan.tasks:
        if not isinstance(task, Transfer) or task.queue.gpu not in placement.computing:
            continue
        if task.src.gpu in placement.linked:
            yield positions.get(task.queue, 0), task
            positions[task.queue] = positions.get(task.queue, 0) + 1


def _check(plan: Plan, together: Round) -> None:
    first = together.transfers[0]
    if first.queue.engine == "core":
        raise PlanError(
            f"{plan.schedule}: {first.id!r} is by a copy kernel; links of their own (--map with "
            "':link', host-mesh, peer-mesh) are played by copy engines"
        )
    for other in together.transfers[1:]:
        for what, differs in (
            ("size", other.src.num_elements != first.src.num_elements),
            ("what they wait for", set(other.deps) != set(first.deps)),
        ):
            if differs:
                raise PlanError(
                    f"{plan.schedule}: {first.id!r} and {other.id!r} start together but differ in "
                    f"{what}; one link cannot play several for them (--map)"
                )
    if len({t.src.gpu for t in together.transfers}) < len(together.transfers):
        raise PlanError(
            f"{plan.schedule}: {first.id!r} and another transfer share a link at the same time; one "
            "link cannot play several for them (--map)"
        )

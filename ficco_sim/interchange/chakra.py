"""A plan as Chakra execution traces, one per gpu, so that ASTRA-sim and others can replay it.

GEMMs and local copies are COMP nodes. A transfer is a COMM_SEND node on its source gpu and a COMM_RECV
node on its destination, which share a tag. In a plan the receiver pulls when its queue gets there; in a
trace the sender has to be told: where a task waits for one that ends on another gpu, that gpu sends a
signal, a message of `SIGNAL_BYTES`. So the traces together keep the plan's order and add none.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from ficco_sim import io
from ficco_sim.errors import PlanError
from ficco_sim.interchange.chakra_format import Attributes, encode_metadata, encode_node
from ficco_sim.plan import Gemm, LocalCopy, Plan, PlanIndex, Region, Task, Transfer, buffer_bytes

__all__ = ["SIGNAL_BYTES", "ChakraNode", "chakra_traces", "write_chakra"]

SIGNAL_BYTES = 1  # the least that simulators take for a message

NodeKind: TypeAlias = Literal["COMP_NODE", "COMM_SEND_NODE", "COMM_RECV_NODE"]


@dataclass(slots=True, kw_only=True)
class ChakraNode:
    """One node of a gpu's trace.

    Parameters
    ----------
    id
        Unique within the trace, from 1, in an order in which all nodes can run.
    deps
        Nodes of the same trace that have to end first.
    queue_deps
        Those of ``deps`` that come before it on its queue.
    attributes
        Further ones by name, see `ficco_sim.interchange.chakra_format`.
    """

    id: int
    name: str
    kind: NodeKind
    deps: list[int] = field(default_factory=list)
    queue_deps: list[int] = field(default_factory=list)
    attributes: Attributes = field(default_factory=dict)


def write_chakra(folder: Path, plan: Plan) -> list[Path]:
    """Write ``plan.0.et``, ``plan.1.et`` and so on, one per gpu, into a new folder.

    The folder appears with all its files or not at all.

    Raises
    ------
    FileError
        If the folder is there and not empty, or cannot be made.
    PlanError
        If the plan's tasks wait for each other in a circle.
    HardwareError
        If protobuf is not installed.
    """
    io.check_folder_target(folder)
    traces = chakra_traces(plan)
    names = [f"plan.{gpu}.et" for gpu in range(plan.num_gpus)]
    fingerprint = plan.fingerprint
    with io.writing_folder(folder) as made:
        for gpu, (name, nodes) in enumerate(zip(names, traces, strict=True)):
            with (made / name).open("wb") as file:
                file.write(
                    encode_metadata(
                        {
                            "schedule": plan.schedule,
                            "workload": plan.workload.name,
                            "plan_fingerprint": fingerprint,
                            "gpu": gpu,
                            "num_gpus": plan.num_gpus,
                        }
                    )
                )
                for node in nodes:
                    file.write(
                        encode_node(
                            node.id, node.name, node.kind, node.deps, node.queue_deps, node.attributes
                        )
                    )
    return [folder / name for name in names]


def chakra_traces(plan: Plan) -> list[list[ChakraNode]]:
    """The nodes of each gpu's trace; every task, transfer ends and signals have their own."""
    return _Export(plan).traces


class _Export:
    """Turns tasks into nodes, all that a task waits for first."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.index = PlanIndex(plan)
        self.element_bytes = buffer_bytes(plan)
        self.traces: list[list[ChakraNode]] = [[] for _ in range(plan.num_gpus)]
        self.num_tags = 0
        # where each task's end is known: a gpu and a node of its trace
        self.end: dict[int, tuple[int, int]] = {}
        before_on_queue: dict[int, int] = {}
        for members in self.index.queues.values():
            before_on_queue.update(zip(members[1:], members, strict=False))
        order, stuck = self.index.topological_order()
        if stuck:
            raise PlanError(
                f"{plan.schedule}: task {plan.tasks[stuck[0]].id!r} and {len(stuck) - 1} more wait for "
                "each other in a circle"
            )
        for i in order:
            self._add(i, plan.tasks[i], before_on_queue.get(i))

    def _add(self, i: int, task: Task, queue_before: int | None) -> None:
        waits = self.index.predecessors[i]
        if isinstance(task, Transfer):
            src, dst = task.src.gpu, task.dst.gpu
            size = self._bytes((task.src,))
            tag = self._new_tag()
            signals = self._signals(task, waits, src)
            send = self._node(src, f"{task.id}.send", "COMM_SEND_NODE", waits, queue_before)
            send.deps += signals
            send.attributes |= _message(src, dst, size, tag)
            receive = self._node(dst, f"{task.id}.recv", "COMM_RECV_NODE", waits, queue_before)
            receive.attributes |= _message(src, dst, size, tag)
            self.end[i] = dst, receive.id
            return
        gpu = task.queue.gpu
        signals = self._signals(task, waits, gpu)
        node = self._node(gpu, task.id, "COMP_NODE", waits, queue_before)
        node.deps += signals
        node.attributes |= self._work(task)
        self.end[i] = gpu, node.id

    def _node(
        self,
        gpu: int,
        name: str,
        kind: NodeKind,
        waits: Sequence[int] = (),
        queue_before: int | None = None,
    ) -> ChakraNode:
        """Append a node that waits for those ends of ``waits`` that its gpu sees."""
        trace = self.traces[gpu]
        node = ChakraNode(id=len(trace) + 1, name=name, kind=kind)
        node.deps += self._seen_by(gpu, waits)
        if queue_before is not None:
            node.queue_deps += self._seen_by(gpu, (queue_before,))
        trace.append(node)
        return node

    def _seen_by(self, gpu: int, waits: Sequence[int]) -> Iterator[int]:
        return (node for at, node in dict.fromkeys(self.end[j] for j in waits) if at == gpu)

    def _signals(self, task: Task, waits: Sequence[int], gpu: int) -> list[int]:
        """Tell a gpu what ended elsewhere; returns its nodes that receive the signals."""
        received = []
        for other in dict.fromkeys(self.end[j][0] for j in waits):
            if other == gpu:
                continue
            message = _message(other, gpu, SIGNAL_BYTES, self._new_tag())
            name = f"{task.id}.ready.g{other}"
            send = self._node(other, f"{name}.send", "COMM_SEND_NODE", waits)
            receive = self._node(gpu, f"{name}.recv", "COMM_RECV_NODE")
            send.attributes |= message
            receive.attributes |= message
            received.append(receive.id)
        return received

    def _new_tag(self) -> int:
        self.num_tags += 1
        return self.num_tags

    def _work(self, task: Gemm | LocalCopy) -> Attributes:
        """Operations, and the HBM bytes that they take at least."""
        if isinstance(task, Gemm):
            operations = task.flops
        else:  # a roofline divides by it: a copy counts as one operation
            operations = sum(r.num_elements for r in task.src) if task.accumulate else 1
        return {"num_ops": operations, "tensor_size": self._bytes((*task.reads, *task.writes))}

    def _bytes(self, regions: Sequence[Region]) -> int:
        return sum(r.num_elements * self.element_bytes[r.gpu, r.buffer] for r in regions)


def _message(src: int, dst: int, num_bytes: int, tag: int) -> Attributes:
    return {"comm_src": src, "comm_dst": dst, "comm_size": num_bytes, "comm_tag": tag}

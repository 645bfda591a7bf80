"""A run as a native Perfetto trace, the protobuf format that ui.perfetto.dev itself records.

The same tracks, slices, arrows and counters as in a Chrome trace, at about a tenth of its size: packets
are deflated in bundles, as Perfetto's recorder does on request. The messages are those of the package
``perfetto``.
"""

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ficco_sim import io
from ficco_sim.errors import HardwareError
from ficco_sim.interchange.counters import counters
from ficco_sim.interchange.events import (
    Arrows,
    about,
    by_queue,
    check_same_tasks,
    details,
    find_arrows,
)
from ficco_sim.machine import Machine
from ficco_sim.plan import Plan, Task
from ficco_sim.trace import Span, Trace
from ficco_sim.units import to_ns

if TYPE_CHECKING:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

__all__ = ["check_perfetto", "write_perfetto"]

SEQUENCE = 1  # all packets are of one writer
BUNDLE_BYTES = 1 << 20  # of packets that are deflated together
ROOT = 1  # the track above all gpus
ARGS = ("bytes", "from_gpu", "m", "n", "k", "flop", "lost_to_contention_us")


def check_perfetto() -> None:
    """Refuse to start what could not be written.

    Raises
    ------
    HardwareError
        If the package is not installed.
    """
    _messages()


def write_perfetto(path: Path, run: Trace, plan: Plan, machine: Machine) -> None:
    """Write a run as a native Perfetto trace.

    Parameters
    ----------
    run
        A trace of the plan on the machine, simulated or measured.

    Raises
    ------
    FileError
        If the file cannot be written, or the trace is not one of the plan.
    HardwareError
        If the package ``perfetto`` is not installed.
    """
    check_same_tasks(run, plan)
    messages = _messages()
    with io.writing(path) as file:
        _write_bundles(file, _packets(messages, run, plan, machine), messages)


def _messages() -> Any:
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    except ImportError as error:
        raise HardwareError(
            "a .pftrace file needs the package perfetto, which is not installed: "
            "pip install 'ficco[perfetto]'; .json.gz needs nothing"
        ) from error
    return perfetto_trace_pb2


def _write_bundles(file: BinaryIO, packets: "Iterator[TracePacket]", messages: Any) -> None:
    """Packets as one packet for each bundle, which holds them deflated."""
    bundle = messages.Trace()
    size = 0

    def flush() -> None:
        packed = zlib.compress(bundle.SerializeToString(), 6)
        outer = messages.Trace(packet=[messages.TracePacket(compressed_packets=packed)])
        file.write(outer.SerializeToString())

    for packet in packets:
        bundle.packet.append(packet)
        size += packet.ByteSize()
        if size > BUNDLE_BYTES:
            flush()
            bundle.Clear()
            size = 0
    if size:
        flush()


def _packets(messages: Any, run: Trace, plan: Plan, machine: Machine) -> "Iterator[TracePacket]":
    """Tracks before what is on them; the events of a track in the order of time."""
    kinds = sorted({span.kind for span in run.spans})
    packet = messages.TracePacket(
        trusted_packet_sequence_id=SEQUENCE,
        first_packet_on_sequence=True,
        sequence_flags=messages.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED,
    )
    for i, kind in enumerate(kinds, 1):
        packet.interned_data.event_categories.add(iid=i, name=kind)
    for i, name in enumerate(ARGS, 1):
        packet.interned_data.debug_annotation_names.add(iid=i, name=name)
    yield packet
    words = "; ".join(f"{key}: {value}" for key, value in about(run).items() if value)
    yield _track(messages, ROOT, f"{run.schedule} on {run.machine}", description=words)
    nodes: set[int] = set()

    def node_track(node: int) -> "Iterator[TracePacket]":
        if node not in nodes:
            nodes.add(node)
            name = machine.node_name(node)
            yield _track(messages, _node_uuid(node), name, parent_uuid=ROOT, sibling_order_rank=node)

    tasks = {task.id: task for task in plan.tasks}
    arrows = find_arrows(plan, plan.num_gpus)
    uuid = _node_uuid(machine.num_gpus + len(machine.switches))
    for rank, (queue, members) in enumerate(by_queue(run).items()):
        yield from node_track(queue.gpu)
        yield _track(
            messages, uuid, f"{queue.engine} {queue.index}",
            parent_uuid=_node_uuid(queue.gpu), sibling_order_rank=rank,
        )  # fmt: skip
        for span in members:
            yield from _slice(messages, uuid, span, tasks[span.task_id], arrows, kinds)
        uuid += 1
    for rank, counter in enumerate(counters(run, plan, machine), plan.num_gpus):
        yield from node_track(counter.node)
        described = _track(
            messages, uuid, counter.name,
            parent_uuid=_node_uuid(counter.node), sibling_order_rank=len(run.spans) + rank,
        )  # fmt: skip
        described.track_descriptor.counter.unit_name = "bytes/s"
        yield described
        for at_ns, value in counter.points():
            packet = messages.TracePacket(timestamp=at_ns, trusted_packet_sequence_id=SEQUENCE)
            packet.track_event.type = messages.TrackEvent.TYPE_COUNTER
            packet.track_event.track_uuid = uuid
            packet.track_event.counter_value = value
            yield packet
        uuid += 1


def _node_uuid(node: int) -> int:
    return ROOT + 1 + node


def _track(messages: Any, uuid: int, name: str, **fields: Any) -> "TracePacket":
    """A track whose children are in the order of their ranks."""
    packet: TracePacket = messages.TracePacket(trusted_packet_sequence_id=SEQUENCE)
    descriptor = messages.TrackDescriptor(uuid=uuid, name=name, **fields)
    descriptor.child_ordering = messages.TrackDescriptor.EXPLICIT
    packet.track_descriptor.CopyFrom(descriptor)
    return packet


def _slice(
    messages: Any, uuid: int, span: Span, task: Task, arrows: Arrows, kinds: Sequence[str]
) -> "Iterator[TracePacket]":
    """A task from its start to its end, with its details and the arrows at both ends."""
    packet = messages.TracePacket(
        timestamp=to_ns(span.start_s),
        trusted_packet_sequence_id=SEQUENCE,
        sequence_flags=messages.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE,
    )
    event = packet.track_event
    event.type = messages.TrackEvent.TYPE_SLICE_BEGIN
    event.track_uuid = uuid
    event.name = span.task_id
    event.category_iids.append(kinds.index(span.kind) + 1)
    event.flow_ids.extend(number for number, _ in arrows.out_of.get(span.task_id, ()))
    event.terminating_flow_ids.extend(number for number, _ in arrows.into.get(span.task_id, ()))
    for name, value in details(span, task).items():
        annotation = event.debug_annotations.add(name_iid=ARGS.index(name) + 1)
        if isinstance(value, float):
            annotation.double_value = value
        else:
            annotation.int_value = value
    yield packet
    packet = messages.TracePacket(timestamp=to_ns(span.end_s), trusted_packet_sequence_id=SEQUENCE)
    packet.track_event.type = messages.TrackEvent.TYPE_SLICE_END
    packet.track_event.track_uuid = uuid
    yield packet

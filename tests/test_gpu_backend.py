"""Layer: harness without a gpu. Streams, events and graphs are used as the stacks ask for.

A stand-in for the runtime knows what has run before each event and each wait, which streams a capture
has reached, and refuses what the real ones refuse.
"""

import contextlib
import itertools
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from hw_strategies import lane, programs, step
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples

from ficco_sim.errors import HardwareError
from ficco_sim.schedules import make_plan
from ficco_sim.workload import Workload
from hw_validate import gpu
from hw_validate.cpu import CpuBackend
from hw_validate.executor import bind
from hw_validate.gpu import GpuBackend
from hw_validate.memory import random_inputs
from hw_validate.placement import HOST, parse_placement
from hw_validate.plan_runs import COMPARED
from hw_validate.program import gpu_groups, in_order
from hw_validate.verify import verify


class Stream:
    """What has been submitted before, and the capture that it is part of."""

    def __init__(self, device, handle):
        self.device = device
        self.cuda_stream = handle
        self.before = frozenset()
        self.capture = None

    def wait_stream(self, other):
        """As torch does it: by an event of the other stream."""
        if other.capture is not None:
            assert self.capture in (None, other.capture)
            self.capture = other.capture
            other.capture.streams.add(self)
        self.before |= other.before


class Event:
    def __init__(self, device, *, timing):
        self.device = device
        self.timing = timing
        self.before = None  # not recorded
        self.capture = None
        self.time_s = None
        self.token = None  # of its last record
        self.alive = True


class Capture:
    def __init__(self):
        self.streams = set()
        self.times = []  # events that a launch sets
        self.work = set()
        self.alive = True


class Fake:
    """Devices, torch's streams and the runtime in one; checks instead of computing."""

    def __init__(self, monkeypatch):
        self.streams = {}
        self.events = []
        self.graphs = []
        self.log = []
        self.clock = itertools.count(1)
        self.records = itertools.count(1)
        self.current = [0]
        self.fails = set()
        self.dead = set()
        cuda = torch.cuda
        monkeypatch.setattr(cuda, "ExternalStream", self._external)
        monkeypatch.setattr(cuda, "device", self._on_device)
        monkeypatch.setattr(cuda, "stream", lambda stream: self._on_device(stream.device))
        monkeypatch.setattr(cuda, "synchronize", self._synchronize)
        monkeypatch.setattr(cuda, "_sleep", lambda cycles: self.log.append(("sleep", cycles)))
        monkeypatch.setattr(
            cuda, "get_device_properties", lambda _: SimpleNamespace(multi_processor_count=132)
        )
        monkeypatch.setattr(gpu, "require_gpu", lambda count: self.log.append(("require", count)))
        monkeypatch.setattr(gpu, "load_runtime", lambda _: self)
        self.stack = "cuda"

    def _external(self, handle, device):
        assert self.streams[handle].device == device
        return self.streams[handle]

    @contextlib.contextmanager
    def _on_device(self, device):
        self.current.append(device)
        yield
        self.current.pop()

    def _synchronize(self, _=None):
        assert all(stream.capture is None for stream in self.streams.values()), "in a capture"

    def call(self, name, *args):
        if name in self.fails:
            raise HardwareError(f"cuda{name}: invalidValue (error 1)")
        return getattr(self, f"_{name}")(*args)

    def _StreamCreateWithFlags(self, flags):  # noqa: N802 - the names of the stacks
        assert flags == 1, "must not wait for the default stream"
        handle = 100 + len(self.streams)
        self.streams[handle] = Stream(self.current[-1], handle)
        return handle

    def _EventCreate(self):  # noqa: N802
        return self._made(timing=True)

    def _EventCreateWithFlags(self, flags):  # noqa: N802
        assert flags == 2
        return self._made(timing=False)

    def _made(self, *, timing):
        event = Event(self.current[-1], timing=timing)
        self.events.append(event)
        return event

    def _EventDestroy(self, event):  # noqa: N802
        assert event.alive
        event.alive = False

    def _EventRecord(self, event, handle):  # noqa: N802
        stream = self.streams[handle]
        assert event.alive
        assert event.device == stream.device, "an event belongs to the device of its stream"
        event.token = next(self.records)
        stream.before |= {event.token}
        event.before, event.capture = stream.before, stream.capture
        event.time_s = None if stream.capture else next(self.clock) * 1e-6

    def record_in_graph(self, event, handle):
        stream = self.streams[handle]
        assert event.alive
        assert event.timing
        assert event.device == stream.device
        assert stream.capture is not None, "external events belong into a capture"
        stream.capture.times.append(event)

    def _StreamWaitEvent(self, handle, event, flags):  # noqa: N802
        stream = self.streams[handle]
        assert flags == 0
        assert event.alive
        assert event.before is not None, "waits for an event before it is recorded"
        if event.capture is not None:
            assert event.capture.alive, "an event of a capture that has ended"
            stream.capture = event.capture
            event.capture.streams.add(stream)
        else:
            assert stream.capture is None, "a capture cannot wait for what is outside of it"
        stream.before |= event.before

    def begin_capture(self, handle):
        stream = self.streams[handle]
        assert stream.capture is None
        stream.capture = Capture()
        stream.capture.streams.add(stream)

    def end_capture(self, handle):
        origin = self.streams[handle]
        capture = origin.capture
        assert capture is not None
        for stream in capture.streams:
            stream.capture = None
        capture.alive = False
        if any(stream.before - origin.before for stream in capture.streams):
            raise HardwareError("cudaStreamEndCapture: unjoined work (error 904)")
        self.graphs.append(capture)
        return capture

    def _GraphLaunch(self, graph, handle):  # noqa: N802
        assert self.streams[handle].capture is None
        for event in graph.times:
            event.before = frozenset()
            event.time_s = next(self.clock) * 1e-6
        self.log.append(("launch", self.streams[handle].before))

    def _GraphExecDestroy(self, graph):  # noqa: N802
        self.graphs.remove(graph)

    def elapsed_s(self, start, end):
        assert start.alive
        assert end.alive
        assert start.timing
        assert end.timing
        assert start.device == end.device, "times of two devices cannot be subtracted"
        return end.time_s - start.time_s

    def enable_peer_access(self, device, peer):
        assert self.current[-1] == device
        if (device, peer) in self.dead:
            raise HardwareError("no peer access")
        self.log.append(("peer", device, peer))

    def submitted(self, name, handle):
        """Work of a step: remembers what is known to be done before it."""
        stream = self.streams[handle]
        assert self.current[-1] == stream.device, "torch launches on its current device"
        seen = stream.before
        stream.before |= {name}
        return seen


@pytest.fixture
def fake(monkeypatch):
    return Fake(monkeypatch)


def live(fake, steps, seen):
    """Steps that note what was done before them, each time that they are submitted."""

    def launch(name):
        return lambda handle: seen.setdefault(name, []).append(fake.submitted(name, handle))

    return [replace(s, launch=launch(s.id)) for s in steps]


def prepared(monkeypatch, steps, **how):
    """A backend anew for each example, its steps ready to run."""
    fake = Fake(monkeypatch)
    seen = {}
    devices = sorted({s.lane.device for s in steps})
    backend = GpuBackend(devices)
    ready = backend.prepare(live(fake, steps, seen), **how)
    return fake, ready, seen


def before_on_lane(steps):
    found, last = {}, {}
    for s in steps:
        found[s.id] = last.get(s.lane)
        last[s.lane] = s.id
    return found


def check_order(steps, seen, times):
    previous = before_on_lane(steps)
    for s in steps:
        assert len(seen[s.id]) == times
        for done in seen[s.id]:
            assert done.issuperset(s.waits)
            assert previous[s.id] is None or previous[s.id] in done


def check_times(steps, run):
    assert set(run.spans) == {s.id for s in steps}
    previous = before_on_lane(steps)
    for s in steps:
        begin_s, end_s = run.spans[s.id]
        assert begin_s <= end_s
        if previous[s.id]:
            assert run.spans[previous[s.id]][1] <= begin_s
    assert run.makespan_s > 0
    assert run.host_s >= 0


def needs_begin(steps):
    """Steps that do not begin where the one before them on their lane ended."""
    lane_of = {s.id: s.lane for s in steps}
    previous = before_on_lane(steps)
    return [s.id for s in steps if previous[s.id] is None or any(lane_of[w] != s.lane for w in s.waits)]


@examples(100)
@given(steps=programs(), spans=st.booleans())
def test_graphs_keep_waits_and_order(steps, spans):
    with pytest.MonkeyPatch.context() as monkeypatch:
        fake, ready, seen = prepared(monkeypatch, steps, graph=True, spans=spans)
        check_order(steps, seen, 1)
        assert len(fake.graphs) == len(gpu_groups(steps))
        # two marks a step at most: its end, and its beginning where nothing ends just before
        timed = [event for graph in fake.graphs for event in graph.times]
        assert len(timed) == (len(steps) + len(needs_begin(steps)) if spans else 0)
        assert len(set(map(id, timed))) == len(timed)
        made = len(fake.events)
        for _ in range(2):
            run = ready.run()
            if spans:
                check_times(steps, run)
            else:
                assert run.spans == {}
            assert run.makespan_s > 0
        check_order(steps, seen, 1)  # nothing is submitted by the host again
        pings = len([e for e in fake.events[made:] if e.alive])
        assert pings == 0, "a run leaves no event behind"
        launched = [entry[1] for entry in fake.log if entry[0] == "launch"]
        groups = gpu_groups(ready.steps)
        assert len(launched) == 2 * len(groups)
        for group, before in zip(groups, launched[len(groups) :], strict=True):
            assert ready._starts[group[0].lane.device].token in before, "does not wait for the gate"
        ready.close()
        assert not any(event.alive for event in fake.events)
        assert fake.graphs == []


@examples(100)
@given(steps=programs(), spans=st.booleans())
def test_eager_runs_keep_waits_and_order_and_reuse_events(steps, spans):
    with pytest.MonkeyPatch.context() as monkeypatch:
        fake, ready, seen = prepared(monkeypatch, steps, graph=False, spans=spans)
        assert not seen
        ready.run()
        made = sum(event.alive for event in fake.events)
        for times in (2, 3):
            run = ready.run()
            check_order(steps, seen, times)
            for s in steps:
                assert ready._starts[s.lane.device].token in seen[s.id][-1], "waits for the gate"
            if spans:
                check_times(steps, run)
            assert sum(event.alive for event in fake.events) == made
        lanes = {s.lane for s in steps}
        # ends of lanes, starts of devices, marks that others wait for, begins and ends of spans
        waited = {w for s in steps for w in s.waits}
        timed = len(steps) + len(needs_begin(steps)) if spans else 0
        devices = {s.lane.device for s in steps}
        assert made == len(lanes) + len(devices) + len(waited) + timed
        ready.close()
        assert not any(event.alive for event in fake.events)
        assert fake.graphs == []


@pytest.mark.parametrize("graph", [True, False])
def test_streams_are_made_once_a_lane(fake, graph):
    backend = GpuBackend((0, 1))
    steps = in_order([step("a", on=lane(0)), step("b", ["a"], lane(1))])
    for _ in range(3):
        ready = backend.prepare(live(fake, steps, {}), graph=graph, spans=True)
        ready.run()
        ready.close()
    assert backend.stream(lane(0)) is backend.stream(lane(0))
    ours = len(fake.streams)
    backend.prepare(live(fake, steps, {}), graph=graph, spans=True).run()
    assert len(fake.streams) == ours


def test_gpus_beside_one_another_on_a_device_have_graphs_of_their_own(fake):
    steps = [step("a", on=lane(0, device=0)), step("b", on=lane(1, device=0))]
    GpuBackend((0,)).prepare(live(fake, steps, {}), graph=True, spans=False)
    assert len(fake.graphs) == 2


def test_the_gate_starts_all_devices_together(fake):
    steps = [step("a", on=lane(0)), step("b", on=lane(1)), step("c", on=lane(2))]
    ready = GpuBackend((0, 1, 2)).prepare(live(fake, steps, {}), graph=True, spans=False)
    fake.log.clear()
    ready.run()
    first = [entry[0] for entry in fake.log]
    assert first[:4] == ["sleep", "launch", "launch", "launch"]  # shut until all are submitted
    assert fake.log[0][1] > 0


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_a_capture_that_fails_is_ended(fake, error):
    def fail(_):
        raise error

    steps = [step("a", on=lane(0)), step("bad", ["a"], lane(0, "compute0"), fail)]
    backend = GpuBackend((0,))
    with pytest.raises(error):
        backend.prepare(steps, graph=True, spans=False)
    assert all(stream.capture is None for stream in fake.streams.values())
    good = live(fake, [step("a", on=lane(0))], {})
    assert backend.prepare(good, graph=True, spans=True).run().spans["a"]


def test_peers_are_connected_once_and_only_where_needed(fake):
    backend = GpuBackend((0, 1))
    for device, place in ((0, 1), (0, 1), (1, 0), (0, 0), (0, HOST)):
        backend.connect(device, place)
    assert [entry for entry in fake.log if entry[0] == "peer"] == [("peer", 0, 1), ("peer", 1, 0)]
    fake.dead.add((1, 2))
    for _ in range(2):
        with pytest.raises(HardwareError, match="no peer access"):
            backend.connect(1, 2)


def test_as_many_gpus_are_asked_for_as_the_highest_number_needs(fake):
    GpuBackend((0, 5))
    assert fake.log[0] == ("require", 6)


def test_clock_offsets_are_half_of_a_round_trip_and_leave_no_event(fake):
    clocks = GpuBackend((0, 1)).clocks
    assert clocks.offset_s(1, 1) == 0.0
    offset_s = clocks.offset_s(0, 1)
    assert offset_s == pytest.approx(1e-6)  # start, middle and end are a tick apart here
    events = len(fake.events)
    assert clocks.offset_s(0, 1) == clocks.uncertainty_s(0, 1) == offset_s
    assert len(fake.events) == events
    assert not any(event.alive for event in fake.events)


@pytest.mark.parametrize("spans", [False, True])
@pytest.mark.parametrize("name", COMPARED)
def test_plans_of_eight_gpus_on_eight_devices(fake, name, spans):
    """A graph a gpu, or one for all where gpus forward; every device's results are right."""
    workload = Workload(name="w", pattern="all_gather_gemm", m=64, n=5, k=16, dtype="fp32")
    plan = make_plan(name, workload, 8, {})
    placement = parse_placement(None, 8)
    assert placement.labels == ()  # as many devices as gpus: nothing is emulated
    bound = bind(plan, placement, CpuBackend())  # memory and copies of the host
    inputs = random_inputs(plan, placement, 1)
    bound.memory.load(inputs)
    ready = GpuBackend(range(8)).prepare(bound.steps, graph=True, spans=spans)
    verify(plan, placement, inputs, bound.outputs())
    assert len(fake.graphs) == (1 if name == "shard-ring" else 8)
    queues = {task.queue for task in plan.tasks if task.queue.gpu == 7}
    streams = [stream for stream in fake.streams.values() if stream.device == 7]
    assert 0 <= len(streams) - len(queues) <= 1  # and one to end the graph on, none shared
    run = ready.run()
    assert run.makespan_s > 0
    assert set(run.spans) == ({t.id for t in plan.tasks} if spans else set())
    assert sum(entry[0] == "launch" for entry in fake.log) == len(fake.graphs)
    ready.close()
    assert not any(event.alive for event in ready._events)


@pytest.mark.parametrize("num_gpus", [1, 8])
def test_the_gate_outlasts_the_submission(fake, monkeypatch, num_gpus):
    """Eight graphs with copies between devices take ms to submit; until then nobody may run."""
    submit_s = 0.5e-3 * num_gpus
    now_s = itertools.count(0, submit_s)
    monkeypatch.setattr(gpu.time, "perf_counter", lambda: next(now_s))
    steps = [step(f"s{g}", on=lane(g)) for g in range(num_gpus)]
    ready = GpuBackend(range(num_gpus)).prepare(steps, graph=True, spans=False)
    first = ready.run()
    assert first.late_s == pytest.approx(submit_s - 0.1e-3)  # not known before, and said
    second = ready.run()
    assert second.late_s == 0
    delays = [entry[1] for entry in fake.log if entry[0] == "sleep"]
    gates = [cycles for cycles in delays if cycles >= gpu.GATE_CYCLES]  # others are to compare clocks
    assert len(gates) == 2
    assert gates[0] == gpu.GATE_CYCLES
    assert gates[1] / gpu.GATE_CYCLES_PER_S > submit_s
    assert second.host_s == pytest.approx(submit_s)


def test_a_gate_is_never_shut_for_long():
    assert gpu.gate_cycles(0.0) == gpu.GATE_CYCLES
    assert gpu.gate_cycles(10.0) == gpu.MAX_GATE_CYCLES
    assert gpu.late_s(10.0, gpu.MAX_GATE_CYCLES) == pytest.approx(10 - 20e-3)


@pytest.mark.parametrize("apart", [False, True])
def test_joint_transfers_are_one_copy_within_an_allocation(fake, monkeypatch, apart):
    """Rows of several allocations are never one copy, however evenly these lie apart."""
    backend, seen = GpuBackend([0]), []

    def engine_copy(piece, *, keep):
        assert len(keep) == 2 * len(pairs)
        return lambda stream: seen.append((piece, stream))

    monkeypatch.setattr(backend, "engine_copy", engine_copy)
    whole, dst = torch.zeros(12, 8), torch.zeros(12, 8)
    pairs = [(whole[4 * i : 4 * i + 2], dst[4 * i : 4 * i + 2]) for i in range(3)]
    if apart:
        pairs = [(src.clone(), dst) for src, dst in pairs]
    backend.joint_transfer(pairs, 0)(7)
    expected = [(1, 64)] * 3 if apart else [(3, 64)]
    assert [(piece.rows, piece.row_bytes) for piece, _ in seen] == expected
    assert {stream for _, stream in seen} == {7}
    monkeypatch.setattr(gpu, "MAX_PITCH", 100)  # of 128
    del seen[:]
    backend.joint_transfer(pairs, 0)(7)
    assert len(seen) == 3

"""Layer: simulator. Perfetto's own messages read our native traces, which say what Chrome's say."""

import json
import sys
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from cli_support import fail
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import given
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb
from sim_strategies import machine_of
from strategies import examples, plans

from ficco_sim.cli import main
from ficco_sim.comparison import evaluate_plan
from ficco_sim.costs import CostModel
from ficco_sim.errors import FileError
from ficco_sim.interchange import chrome_events, write_perfetto
from ficco_sim.machine import load_machine
from ficco_sim.routing import relay
from ficco_sim.schedules import make_plan
from ficco_sim.sim import simulate
from ficco_sim.workload import Workload

CLEARED = pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
NEEDED = pb.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE


def packets_of(data):
    """Every packet of a file, unpacked; a field that Perfetto's schema lacks fails."""
    outer = pb.Trace()
    outer.ParseFromString(data)
    for bundle in outer.packet:
        assert [field.name for field, _ in bundle.ListFields()] == ["compressed_packets"]
        inner = pb.Trace()
        inner.ParseFromString(zlib.decompress(bundle.compressed_packets))
        for packet in inner.packet:
            assert not _unknown(packet)
            yield packet


def _unknown(message):
    if len(UnknownFieldSet(message)):
        return True
    return any(
        _unknown(item)
        for field, value in message.ListFields()
        if field.message_type is not None
        for item in (value if field.is_repeated else [value])
    )


def read(data):
    """What a native trace says, in the words of the tests of Chrome traces; times in ns."""
    tracks, interned = {}, {}
    slices, counters, arrows, open_slices, latest = {}, {}, {}, {}, {}
    for i, packet in enumerate(packets_of(data)):
        assert packet.trusted_packet_sequence_id == 1
        if i == 0:
            assert packet.sequence_flags == CLEARED
            assert packet.first_packet_on_sequence
            for kind in ("event_categories", "debug_annotation_names"):
                entries = getattr(packet.interned_data, kind)
                interned[kind] = {entry.iid: entry.name for entry in entries}
                assert 0 not in interned[kind]  # which would stand for none
            continue
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid
            assert track.uuid not in tracks
            assert not track.parent_uuid or track.parent_uuid in tracks
            tracks[track.uuid] = track
            continue
        event = packet.track_event
        uuid = event.track_uuid
        assert uuid in tracks  # described before it is used
        assert packet.timestamp >= latest.get(uuid, 0)
        latest[uuid] = packet.timestamp
        if event.type == pb.TrackEvent.TYPE_COUNTER:
            assert tracks[uuid].counter.unit_name == "bytes/s"
            counters.setdefault(uuid, []).append((packet.timestamp, event.counter_value))
        elif event.type == pb.TrackEvent.TYPE_SLICE_BEGIN:
            assert uuid not in open_slices  # tasks of a queue do not overlap
            assert packet.sequence_flags == NEEDED
            (category,) = event.category_iids
            args = {
                interned["debug_annotation_names"][a.name_iid]: getattr(a, a.WhichOneof("value"))
                for a in event.debug_annotations
            }
            open_slices[uuid] = (
                event.name, interned["event_categories"][category], packet.timestamp, args
            )  # fmt: skip
            for number in event.flow_ids:
                arrows.setdefault(number, {})["s"] = event.name
            for number in event.terminating_flow_ids:
                arrows.setdefault(number, {})["f"] = event.name
        else:
            assert event.type == pb.TrackEvent.TYPE_SLICE_END
            name, category, start_ns, args = open_slices.pop(uuid)
            assert name not in slices
            where = (tracks[tracks[uuid].parent_uuid].name, tracks[uuid].name)
            slices[name] = (where, category, start_ns, packet.timestamp, args)
    assert not open_slices
    assert all(set(ends) == {"s", "f"} for ends in arrows.values())
    named = {
        (tracks[tracks[uuid].parent_uuid].name, tracks[uuid].name): points
        for uuid, points in counters.items()
    }
    assert len(named) == len(counters)
    return tracks, slices, sorted((e["s"], e["f"]) for e in arrows.values()), named


def same_as_chrome(data, run, plan, machine):
    """The native trace and the Chrome trace of a run are one."""
    _, slices, arrows, counters = read(data)
    processes, threads, into, out_of, theirs, points = {}, {}, {}, {}, {}, {}
    for event in chrome_events(run, plan, machine):
        ns = {key: round(event[key] * 1000) for key in ("ts", "dur") if key in event}
        track = (event["pid"], event.get("tid"))
        if event["ph"] == "M" and event["name"] == "process_name":
            processes[event["pid"]] = event["args"]["name"]
        elif event["ph"] == "M" and event["name"] == "thread_name":
            threads[track] = event["args"]["name"]
        elif event["ph"] == "X":
            where = (processes[event["pid"]], threads[track])
            end = ns["ts"] + ns["dur"]
            theirs[event["name"]] = (where, event["cat"], ns["ts"], end, event["args"])
            here = event["name"]
        elif event["ph"] == "f":
            into[event["id"]] = here
        elif event["ph"] == "s":
            out_of[event["id"]] = here
        elif event["ph"] == "C":
            name = (processes[event["pid"]], event["name"])
            points.setdefault(name, []).append((ns["ts"], event["args"]["bytes/s"]))
    assert slices == theirs
    assert arrows == sorted((out_of[number], into[number]) for number in out_of)
    assert counters == {name: found for name, found in points.items() if found}


@given(plan=plans())
@examples(20)
def test_says_what_the_chrome_trace_says(plan, tmp_path_factory):
    machine = machine_of("switch", plan.num_gpus)
    run = simulate(plan, machine)
    path = tmp_path_factory.mktemp("native") / "run.pftrace"
    write_perfetto(path, run, plan, machine)
    same_as_chrome(path.read_bytes(), run, plan, machine)


@pytest.mark.parametrize("name", ["mi300x_8", "torus_2x4", "h200_8"])
def test_real_machines(name, tmp_path):
    machine = load_machine(name)
    workload = Workload(name="w", pattern="all_gather_gemm", m=4096, n=512, k=1024)
    plan = relay(make_plan("hetero-unfused-1d", workload, 8, {"num_chunks": 4}), machine)
    run = evaluate_plan(plan, machine, CostModel(machine), intervals=False).trace
    path = tmp_path / "run.pftrace"
    write_perfetto(path, run, plan, machine)
    same_as_chrome(path.read_bytes(), run, plan, machine)
    tracks, *_ = read(path.read_bytes())
    (root,) = [track for track in tracks.values() if not track.parent_uuid]
    assert run.schedule in root.name
    for word in ("source: sim", f"machine: {machine.name}"):
        assert word in root.description
    # gpus in their order, not by name
    gpus = [t for t in tracks.values() if t.parent_uuid == root.uuid]
    assert [t.sibling_order_rank for t in gpus] == sorted({t.sibling_order_rank for t in gpus})
    assert {t.child_ordering for t in tracks.values()} == {pb.TrackDescriptor.EXPLICIT}


def test_same_run_same_bytes(tmp_path):
    machine = load_machine("h200_2")
    plan = make_plan("serial", Workload(name="w", pattern="all_gather_gemm", m=64, n=8, k=8), 2, {})
    run = simulate(plan, machine)
    for name in ("a.pftrace", "b.pftrace"):
        write_perfetto(tmp_path / name, run, plan, machine)
    assert (tmp_path / "a.pftrace").read_bytes() == (tmp_path / "b.pftrace").read_bytes()


def test_trace_of_another_plan(tmp_path):
    machine = load_machine("h200_2")
    plan = make_plan("serial", Workload(name="w", pattern="all_gather_gemm", m=64, n=8, k=8), 2, {})
    run = simulate(plan, machine)
    with pytest.raises(FileError, match="not in both"):
        write_perfetto(tmp_path / "r.pftrace", replace(run, spans=run.spans[1:]), plan, machine)
    assert not list(tmp_path.iterdir())


def test_verb(tmp_path, capsys):
    path = tmp_path / "run.pftrace"
    argv = ["simulate", "hetero-fused-1d", "--gemm", "4096,512,512", "--trace", str(path)]
    assert main([*argv, "--json", str(tmp_path / "r.json")]) == 0
    _, slices, _, _ = read(path.read_bytes())
    assert len(slices) == json.loads((tmp_path / "r.json").read_text())["num_tasks"]
    capsys.readouterr()


def test_without_the_package(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "perfetto.protos.perfetto.trace", None)
    monkeypatch.chdir(tmp_path)
    words = fail(capsys, "simulate", "serial", "--gemm", "64,64,64", "--trace", "run.pftrace")
    assert "ficco[perfetto]" in words
    assert not list(Path().iterdir())

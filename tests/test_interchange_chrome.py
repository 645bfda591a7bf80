"""Layer: simulator. Chrome traces: a strict parser of ours takes every event, and they are true."""

import gzip
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from sim_strategies import machine_of
from strategies import examples, plan_of, plans, workload_for

from ficco_sim.cli import main
from ficco_sim.comparison import evaluate_plan
from ficco_sim.costs import CostModel
from ficco_sim.errors import FileError
from ficco_sim.interchange import chrome, write_chrome
from ficco_sim.machine import load_machine
from ficco_sim.plan import Transfer, buffer_bytes
from ficco_sim.routing import Routes
from ficco_sim.schedules import FICCO, make_plan
from ficco_sim.sim import simulate
from ficco_sim.workload import Workload, get_workload

Track = tuple[int, int]

# the fields of each type of event, all required but cname
FIELDS = {
    "M": {"ph", "name", "pid", "tid", "args"},
    "X": {"ph", "name", "cat", "pid", "tid", "ts", "dur", "args", "cname"},
    "s": {"ph", "name", "cat", "id", "pid", "tid", "ts"},
    "f": {"ph", "bp", "name", "cat", "id", "pid", "tid", "ts"},
    "C": {"ph", "name", "pid", "ts", "args"},
}
TYPES = {"name": str, "cat": str, "pid": int, "tid": int, "id": int, "args": dict, "cname": str}


@dataclass
class Parsed:
    """What a trace says; times in ns."""

    names: dict[Any, str] = field(default_factory=dict)
    sort: dict[Any, int] = field(default_factory=dict)
    slices: dict[str, tuple[Track, int, int, dict]] = field(default_factory=dict)
    arrows: dict[int, dict[str, tuple[str, Track, int]]] = field(default_factory=dict)
    counters: dict[tuple[int, str], list[tuple[int, float]]] = field(default_factory=dict)


def parse(text: bytes | str) -> Parsed:
    """Read a Chrome trace strictly; fails on whatever the format or a viewer could stumble over."""
    document = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert set(document) == {"displayTimeUnit", "otherData", "traceEvents"}
    assert document["displayTimeUnit"] == "ns"
    assert all(isinstance(value, str) for value in document["otherData"].values())
    parsed = Parsed()
    last: dict[Any, int] = defaultdict(int)  # by track: when its latest event was
    for event in document["traceEvents"]:
        kind = event["ph"]
        optional = {"cname"} if kind == "X" else {"tid"} if kind == "M" else set()
        assert FIELDS[kind] - optional <= set(event) <= FIELDS[kind], event
        for key, value in event.items():
            assert type(value) is TYPES.get(key, type(value)), event
        assert event["name"]
        if kind == "M":
            where = (event["pid"], event["tid"]) if "tid" in event else event["pid"]
            (value,) = event["args"].values()
            part, what = event["name"].split("_", 1)
            assert (part == "thread") == ("tid" in event)
            into, key, type_ = {
                "name": (parsed.names, "name", str),
                "sort_index": (parsed.sort, "sort_index", int),
            }[what]
            assert where not in into
            assert type(event["args"][key]) is type_
            into[where] = value
            continue
        at = _ns(event["ts"])
        if kind == "C":
            assert list(event["args"]) == ["bytes/s"]
            points = parsed.counters.setdefault((event["pid"], event["name"]), [])
            assert not points or at > points[-1][0]
            assert event["args"]["bytes/s"] >= 0
            points.append((at, event["args"]["bytes/s"]))
            continue
        track = event["pid"], event["tid"]
        assert track in parsed.names, "a track is named before its first event"
        assert at >= last[track], "events of a track come in the order of time"
        last[track] = at
        if kind == "X":
            assert event["name"] not in parsed.slices
            parsed.slices[event["name"]] = track, at, at + _ns(event["dur"]), event["args"]
            assert all(type(v) in (int, float) and v >= 0 for v in event["args"].values())
            last[track] = at
        else:
            assert kind == "s" or event["bp"] == "e"
            ends = parsed.arrows.setdefault(event["id"], {})
            assert kind not in ends
            ends[kind] = event["name"], track, at
    assert set(parsed.names) == set(parsed.sort)
    for points in parsed.counters.values():
        assert points[0][0] == 0
        assert points[-1][1] == 0
    _check_slices_follow(parsed)
    _check_arrows(parsed)
    return parsed


def _ns(microseconds: float) -> int:
    assert type(microseconds) in (int, float)
    assert math.isfinite(microseconds)
    assert microseconds >= 0
    ns = round(microseconds * 1000)
    assert ns / 1000 == microseconds, "whole nanoseconds"
    return ns


def _check_slices_follow(parsed: Parsed) -> None:
    ends: dict[Track, int] = defaultdict(int)
    for track, start, end, _ in parsed.slices.values():
        assert start >= ends[track], "slices of a queue do not overlap"
        ends[track] = end


def _check_arrows(parsed: Parsed) -> None:
    """Each arrow has two ends, each inside a slice of its track that is not also its neighbour's."""
    by_track: dict[Track, list[tuple[int, int]]] = defaultdict(list)
    for track, start, end, _ in parsed.slices.values():
        by_track[track].append((start, end))
    for ends in parsed.arrows.values():
        assert set(ends) == {"s", "f"}
        (name, _, left), (other_name, _, arrived) = ends["s"], ends["f"]
        assert name == other_name
        assert left <= arrived
        for _, track, at in ends.values():
            assert slice_at(by_track[track], at) == 1


def slice_at(spans: Iterable[tuple[int, int]], at: int) -> int:
    """How many slices an instant is in: strictly, if the slice is longer than a nanosecond."""
    return sum(start < at < end if end - start > 1 else start <= at <= end for start, end in spans)


def integral(points: list[tuple[int, float]]) -> float:
    """Bytes under a counter."""
    pairs = pairwise(points)
    return sum(value * (later - at) * 1e-9 for (at, value), (later, _) in pairs)


def trace_of(plan, machine, tmp_path, costs="profile"):
    run = simulate(plan, machine, CostModel(machine, costs))
    path = tmp_path / "trace.json"
    assert write_chrome(path, run, plan, machine) == ""
    return run, parse(path.read_bytes())


@pytest.fixture(scope="module", params=["serial", "shard-ring", *FICCO])
def parsed_run(request, tmp_path_factory):
    plan = make_plan(request.param, get_workload("llama3-70b-tp8-qkv-4k"), 8)
    run, parsed = trace_of(plan, load_machine("mi300x_8"), tmp_path_factory.mktemp("trace"))
    return plan, run, parsed


def test_slices_are_the_spans(parsed_run):
    plan, run, parsed = parsed_run
    assert list(parsed.slices.keys() ^ {span.task_id for span in run.spans}) == []
    for span in run.spans:
        (pid, _), start, end, args = parsed.slices[span.task_id]
        assert pid == span.queue.gpu
        assert (start, end) == (round(span.start_s * 1e9), round(span.end_s * 1e9))
        assert args.get("bytes", 0) == span.nbytes
        assert args.get("flop", 0) == span.flops
    for task in plan.tasks:
        args = parsed.slices[task.id][3]
        if isinstance(task, Transfer):
            assert args["from_gpu"] == task.src.gpu
        elif task.kind == "gemm":
            assert 2 * args["m"] * args["n"] * args["k"] == args["flop"]


def test_processes_and_threads_are_named_and_sorted(parsed_run):
    plan, _, parsed = parsed_run
    for gpu in range(plan.num_gpus):
        assert parsed.names[gpu] == f"gpu {gpu}"
        assert parsed.sort[gpu] == gpu
    for task in plan.tasks:
        queue = task.queue
        assert parsed.names[parsed.slices[task.id][0]] == f"{queue.engine} {queue.index}"
        if queue.engine == "compute":
            assert parsed.sort[parsed.slices[task.id][0]] == queue.index, "compute queues come first"


def test_an_arrow_goes_from_each_transfer_to_each_task_that_reads_what_it_brought(parsed_run):
    plan, _, parsed = parsed_run
    wanted = {
        (before.id, task.id)
        for before in plan.tasks
        if isinstance(before, Transfer)
        for task in plan.tasks
        if task is not before and any(before.dst.overlaps(read) for read in task.reads)
    }
    assert arrows_named("feeds", parsed) == wanted
    assert wanted
    queue_of = {task.id: task.queue for task in plan.tasks}
    others = {
        (dep, task.id)
        for task in plan.tasks
        for dep in task.deps
        if (dep, task.id) not in wanted and queue_of[dep] != task.queue
    }
    assert arrows_named("waits for", parsed) == others


def arrows_named(name: str, parsed: Parsed) -> set[tuple[str, str]]:
    where = [(track, start, end, task) for task, (track, start, end, _) in parsed.slices.items()]

    def task_at(track: Track, at: int) -> str:
        (found,) = (t for tr, start, end, t in where if tr == track and start < at < end)
        return found

    return {
        (task_at(*ends["s"][1:]), task_at(*ends["f"][1:]))
        for ends in parsed.arrows.values()
        if ends["s"][0] == name
    }


def test_counters_hold_the_bytes_that_moved(parsed_run):
    plan, run, parsed = parsed_run
    machine = load_machine("mi300x_8")
    check_counters(plan, run, parsed, machine)
    for (_, name), points in parsed.counters.items():
        if name.startswith("link to"):
            top = machine.links[0].usable_bytes_per_s
            assert max(value for _, value in points) <= top * (1 + 1e-6)


def check_counters(plan, run, parsed, machine):
    """Every byte is in the counters: of links by the simulator's own sums, of HBM by the plan's."""
    element_bytes = buffer_bytes(plan)
    wanted: dict[tuple[int, str], float] = defaultdict(float)
    nodes = {machine.node_name(node): node for node in range(machine.num_gpus + len(machine.switches))}
    for load in run.links:
        if load.nbytes:
            wanted[nodes[load.src], f"link to {load.dst}"] += load.nbytes
    for task in plan.tasks:
        for region in (*task.reads, *task.writes):
            size = region.num_elements * element_bytes[region.gpu, region.buffer]
            wanted[region.gpu, "HBM"] += size
            if isinstance(task, Transfer):
                way = "links in" if region is task.dst else "links out"
                wanted[region.gpu, way] += size
    assert set(parsed.counters) == {key for key, value in wanted.items() if value}
    for key, points in parsed.counters.items():
        # a rate is a whole number of bytes/s, a link's sum a whole number of bytes
        slack = points[-1][0] * 1e-9 + 1 + 1e-9 * wanted[key]
        assert integral(points) == pytest.approx(wanted[key], abs=slack), key


@pytest.mark.parametrize("family", ["full_mesh", "switch", "ring"])
@examples(15)
@given(plan=plans(min_gpus=2, max_gpus=5))
def test_traces_of_any_plan_are_legal_and_complete(plan, family, tmp_path_factory):
    machine = machine_of(family, plan.num_gpus, hardware_routing=True)
    folder = tmp_path_factory.getbasetemp()
    run, parsed = trace_of(plan, machine, folder)
    assert set(parsed.slices) == {task.id for task in plan.tasks}
    check_counters(plan, run, parsed, machine)


def test_a_relayed_run_shows_what_feeds_the_hops(tmp_path):
    machine = load_machine("ring_8")
    plan = make_plan("serial", get_workload("llama3-70b-tp8-qkv-4k"), 8)
    done = evaluate_plan(plan, machine, CostModel(machine), intervals=False)
    path = tmp_path / "relayed.json"
    write_chrome(path, done.trace, done.plan, machine)
    parsed = parse(path.read_bytes())
    kinds = {task.id: task.kind for task in done.plan.tasks}
    fed = {(kinds[a], kinds[b]) for a, b in arrows_named("feeds", parsed)}
    assert {("transfer", "transfer"), ("transfer", "gemm")} <= fed


def test_links_have_no_counter_each_where_they_are_many(tmp_path):
    plan = make_plan("serial", Workload(name="w", pattern="all_gather_gemm", m=340, n=8, k=8), 17)
    _, parsed = trace_of(plan, machine_of("full_mesh", 17), tmp_path)
    names = {name for _, name in parsed.counters}
    assert names == {"HBM", "links in", "links out"}


def test_a_switch_is_a_process_of_its_own(tmp_path):
    plan = make_plan("serial", get_workload("llama3-70b-tp8-qkv-4k"), 8)
    machine = load_machine("h200_8")
    _, parsed = trace_of(plan, machine, tmp_path)
    assert parsed.names[8] == machine.node_name(8)
    assert (8, "link to gpu 0") in parsed.counters
    assert Routes(machine)(0, 1).links


def test_compressed_and_plain_say_the_same_and_the_same_each_time(tmp_path):
    plan = make_plan("hetero-fused-1d", get_workload("llama3-70b-tp8-qkv-4k"), 8)
    machine = load_machine("mi300x_8")
    run = simulate(plan, machine)
    plain, small, again = (tmp_path / name for name in ("a.json", "b.json.gz", "c.json.gz"))
    for path in (plain, small, again):
        write_chrome(path, run, plan, machine)
    assert gzip.decompress(small.read_bytes()) == plain.read_bytes()
    assert small.read_bytes() == again.read_bytes()


def test_a_large_plain_trace_leaves_out_arrows_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(chrome, "MAX_PLAIN_ARROWS", 250)
    plan = make_plan("uniform-fused-1d", get_workload("llama3-70b-tp8-qkv-4k"), 8)
    machine = load_machine("mi300x_8")
    run = simulate(plan, machine)
    note = write_chrome(tmp_path / "t.json", run, plan, machine)
    assert re.fullmatch(
        r"arrows into gpus 0 to \d of 8 only; a name in .json.gz or .pftrace has all", note
    )
    text = (tmp_path / "t.json").read_text()
    assert json.loads(text)["otherData"]["left_out"] == note
    parsed = parse(text)
    gpus = {ends["f"][1][0] for ends in parsed.arrows.values()}
    assert 0 < len(gpus) < 8
    assert 0 < len(parsed.arrows) <= 250
    assert write_chrome(tmp_path / "t.json.gz", run, plan, machine) == ""
    assert len(parse(gzip.decompress((tmp_path / "t.json.gz").read_bytes())).arrows) > 250
    monkeypatch.setattr(chrome, "LARGE_BYTES", 10_000)
    note = write_chrome(tmp_path / "t.json", run, plan, machine)
    assert note.startswith("0 MB, about a tenth of it in .json.gz or .pftrace; arrows into gpus 0 to ")


def test_a_trace_of_64_gpus_is_small(tmp_path):
    """16,896 tasks; benchmarks/test_interchange_size.py has the largest plans of 64 gpus."""
    plan = plan_of("uniform-fused-1d", workload_for("uniform-fused-1d", m=2048), 64, num_chunks=4)
    machine = machine_of("full_mesh", 64)
    run = simulate(plan, machine)
    plain, small = tmp_path / "t.json", tmp_path / "t.json.gz"
    for path in (plain, small):
        assert write_chrome(path, run, plan, machine) == ""
    assert plain.stat().st_size < 8e6
    assert small.stat().st_size < 1e6


@pytest.mark.parametrize("spoil", [
    lambda run: replace(run, spans=run.spans[1:]),
    lambda run: replace(run, spans=(replace(run.spans[0], task_id="odd"), *run.spans[1:])),
])  # fmt: skip
def test_a_trace_of_another_plan_is_refused_and_nothing_written(spoil: Callable, tmp_path):
    plan = make_plan("serial", get_workload("llama3-70b-tp8-qkv-4k"), 8)
    machine = load_machine("mi300x_8")
    path = tmp_path / "t.json"
    with pytest.raises(FileError, match="is not in both trace and plan"):
        write_chrome(path, spoil(simulate(plan, machine)), plan, machine)
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_writes_it(tmp_path, capsys):
    path = tmp_path / "t.json.gz"
    code = main([
        "simulate", "serial", "--machine", "mi300x_8", "--workload", "llama3-70b-tp8-qkv-4k",
        "--no-intervals", "--trace", str(path),
    ])  # fmt: skip
    assert code == 0
    assert "ui.perfetto.dev" in capsys.readouterr().out
    assert parse(gzip.decompress(path.read_bytes())).slices

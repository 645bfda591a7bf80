"""Layer: simulator. Traces as files: nothing overlaps on a queue, and Perfetto can read them."""

import json
from itertools import pairwise

import pytest

from ficco_sim.machine import load_machine
from ficco_sim.schedules import FICCO, make_plan
from ficco_sim.sim import simulate
from ficco_sim.workload import get_workload


@pytest.fixture(scope="module", params=["serial", "shard-ring", *FICCO])
def run(request):
    plan = make_plan(request.param, get_workload("llama3-70b-tp8-qkv-4k"), 8)
    return plan, simulate(plan, load_machine("mi300x_8"))


def test_spans_of_a_queue_follow_each_other_and_dependencies_are_kept(run):
    plan, trace = run
    spans = {span.task_id: span for span in trace.spans}
    assert [span.task_id for span in trace.spans] == [task.id for task in plan.tasks]
    queues: dict[str, list] = {}
    for task in plan.tasks:
        span = spans[task.id]
        assert 0 <= span.start_s < span.end_s <= trace.makespan_s
        assert 0 <= span.lost_s < span.duration_s
        for dep in task.deps:
            assert spans[dep].end_s <= span.start_s
        queues.setdefault(str(task.queue), []).append(span)
    for members in queues.values():
        for before, after in pairwise(members):
            assert before.end_s <= after.start_s


def test_chrome_trace_is_what_the_format_asks_for(run):
    plan, trace = run
    document = json.loads(trace.to_chrome_json({task.id: task.deps for task in plan.tasks}))
    names: dict[tuple[int, int], str] = {}
    bars: dict[tuple[int, int], list] = {}
    flows: dict[str, list] = {}
    for event in document["traceEvents"]:
        assert isinstance(event["pid"], int)
        match event["ph"]:
            case "M":
                if event["name"] == "thread_name":
                    names[event["pid"], event["tid"]] = event["args"]["name"]
            case "X":
                assert event["dur"] > 0
                assert isinstance(event["name"], str)
                bars.setdefault((event["pid"], event["tid"]), []).append(event)
            case "s" | "f":
                flows.setdefault(event["id"], []).append(event)
            case other:
                pytest.fail(f"unknown event type {other}")
    assert set(names) == set(bars)
    assert len(set(names)) == len({task.queue for task in plan.tasks})
    for events in bars.values():
        for before, after in pairwise(sorted(events, key=lambda e: e["ts"])):
            assert before["ts"] + before["dur"] <= after["ts"] * (1 + 1e-12)
    queue_of = {task.id: task.queue for task in plan.tasks}
    crossing = sum(queue_of[dep] != task.queue for task in plan.tasks for dep in task.deps)
    assert len(flows) == crossing > 0
    for start, finish in flows.values():
        assert (start["ph"], finish["ph"], finish["bp"]) == ("s", "f", "e")
        assert start["ts"] <= finish["ts"]
    last = max(e["ts"] + e["dur"] for events in bars.values() for e in events)
    assert last == pytest.approx(trace.makespan_s * 1e6)


def test_frame_has_a_row_per_span(run):
    _, trace = run
    frame = trace.to_frame()
    assert list(frame["task_id"]) == [span.task_id for span in trace.spans]
    assert frame["end_s"].max() == trace.makespan_s

"""Layer: simulator. Traces as files: no overlap on a queue, they read back."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ficco_sim.errors import FileError
from ficco_sim.machine import load_machine
from ficco_sim.plan import Queue
from ficco_sim.schedules import FICCO, make_plan
from ficco_sim.sim import simulate
from ficco_sim.trace import LinkLoad, Span, Trace, load_trace
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


def test_frame_has_a_row_per_span(run):
    _, trace = run
    frame = trace.to_frame()
    assert list(frame["task_id"]) == [span.task_id for span in trace.spans]
    assert frame["end_s"].max() == trace.makespan_s


TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
SECONDS = st.floats(0, 1e6)
COUNTS = st.integers(0, 2**62)
QUEUES = st.builds(
    Queue,
    gpu=st.integers(0, 63),
    engine=st.sampled_from(["compute", "dma", "core"]),
    index=st.integers(0, 9),
)


@st.composite
def spans(draw):
    start_s = draw(SECONDS)
    return Span(
        task_id=draw(TEXTS),
        kind=draw(st.sampled_from(["gemm", "transfer", "local_copy"])),
        queue=draw(QUEUES),
        start_s=start_s,
        end_s=draw(st.floats(start_s, 2e6)),
        nbytes=draw(COUNTS),
        flops=draw(COUNTS),
        lost_s=draw(SECONDS),
        submitted_s=draw(SECONDS),
    )


TRACES = st.builds(
    Trace,
    source=st.sampled_from(["sim", "gpu"]),
    schedule=TEXTS,
    workload=TEXTS,
    machine=TEXTS,
    plan_fingerprint=TEXTS,
    environment=st.dictionaries(TEXTS, TEXTS, max_size=3),
    labels=st.lists(TEXTS, max_size=2).map(tuple),
    links=st.lists(
        st.builds(LinkLoad, src=TEXTS, dst=TEXTS, nbytes=COUNTS, min_busy_s=SECONDS), max_size=2
    ).map(tuple),
    spans=st.lists(spans(), max_size=4, unique_by=lambda span: span.task_id).map(tuple),
)


@given(trace=TRACES)
def test_a_trace_reads_back_equal(trace, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "trace.json"
    path.write_text(trace.to_json())
    assert load_trace(path) == trace


def test_a_simulated_trace_reads_back_equal(run, tmp_path):
    _, trace = run
    path = tmp_path / "spans"  # always JSON, whatever the suffix
    path.write_text(trace.to_json())
    assert load_trace(path) == trace


@pytest.mark.parametrize(("damage", "words"), [
    (lambda d: d.update(format_version=2), "format_version: 2"),
    (lambda d: d.update(source="guess"), "source: 'guess'"),
    (lambda d: d.update(colour="red"), "colour: unknown key"),
    (lambda d: d.pop("spans"), "spans: missing"),
    (lambda d: d["spans"][1].update(start_s="0"), "spans[1].start_s: '0'"),
    (lambda d: d["spans"][1].update(kind="dance"), "spans[1].kind: 'dance'"),
    (lambda d: d["spans"][1]["queue"].update(engine="steam"), "spans[1].queue.engine: 'steam'"),
    (lambda d: d["spans"][1].update(end_s=-1.0), "spans[1].end_s: -1.0 is before start_s"),
    (lambda d: d["spans"][1].update(task_id=d["spans"][0]["task_id"]), "spans[1].task_id: "),
    (lambda d: d["links"][0].update(nbytes=1.5), "links[0].nbytes: 1.5"),
])  # fmt: skip
def test_a_damaged_trace_file_names_file_and_key(damage, words, tmp_path):
    plan = make_plan("serial", get_workload("llama3-70b-tp8-qkv-4k"), 8)
    document = json.loads(simulate(plan, load_machine("mi300x_8")).to_json())
    damage(document)
    path = tmp_path / "damaged.json"
    path.write_text(json.dumps(document))
    with pytest.raises(FileError) as caught:
        load_trace(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert words in str(caught.value)

"""Layer: harness without a gpu. A simulated and a measured run of one plan are joined by task."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ficco_sim.errors import ScenarioError
from ficco_sim.io import dump_json
from ficco_sim.plan import Queue
from ficco_sim.trace import Span, Trace
from hw_validate.compare import (
    Part,
    compare_traces,
    comparison_lines,
    kinds_table,
    parts_table,
    tasks_table,
)

ENGINES = {"gemm": "compute", "local_copy": "compute", "transfer": "dma"}
MS = 1e-3


def span(task_id, kind, start_ms, end_ms, gpu=0, index=0):
    return Span(
        task_id=task_id,
        kind=kind,
        queue=Queue(gpu=gpu, engine=ENGINES[kind], index=index),
        start_s=start_ms * MS,
        end_s=end_ms * MS,
        nbytes=8,
        flops=8,
    )


def trace(source, *spans, **fields):
    common = {
        "schedule": "uniform-fused-1d",
        "workload": "w",
        "machine": {"sim": "h200_2", "gpu": "NVIDIA H200"}[source],
        "plan_fingerprint": "f" * 64,
    }
    return Trace(source=source, spans=spans, **(common | fields))


MEASURED = trace(
    "gpu",
    span("t0", "transfer", 0, 2),
    span("t1", "transfer", 2, 4),
    span("c0", "local_copy", 2, 3),
    span("g0", "gemm", 3, 6),
    span("g1", "gemm", 7, 10),
)
SIMULATED = trace(
    "sim",
    span("t0", "transfer", 0, 1),
    span("t1", "transfer", 1, 3),
    span("c0", "local_copy", 1, 2),
    span("g0", "gemm", 2, 5),
    span("g1", "gemm", 5, 9),
)


def test_rows_kinds_and_parts():
    found = compare_traces(SIMULATED, MEASURED)
    row = next(row for row in found.tasks if row.task_id == "t0")
    assert (row.kind, row.queue) == ("transfer", "g0.dma0")
    assert (row.measured_start_s, row.measured_s, row.simulated_s) == (0, 2 * MS, 1 * MS)
    assert row.error == pytest.approx(-0.5)
    kinds = {kind.kind: kind for kind in found.kinds}
    assert kinds["transfer"].num_tasks == 2
    assert kinds["transfer"].error == pytest.approx(3 / 4 - 1)
    assert kinds["transfer"].median_abs_error == pytest.approx(0.25)
    assert kinds["gemm"].error == pytest.approx(7 / 6 - 1)
    assert kinds["local_copy"].error == pytest.approx(0)
    assert found.error == pytest.approx(9 / 10 - 1)
    parts = {part.name: (part.measured_s / MS, part.simulated_s / MS) for part in found.parts}
    assert parts == {
        "gemm": pytest.approx((6, 7)),
        "local_copy": pytest.approx((1, 1)),
        "transfer": pytest.approx((2, 1)),
        "waiting": pytest.approx((1, 0)),
    }
    assert not found.only_measured
    assert not found.only_simulated


def test_a_run_compared_with_itself_has_no_error():
    found = compare_traces(replace(MEASURED, source="sim"), MEASURED)
    assert found.error == 0
    assert all(row.error == 0 for row in found.tasks)
    assert all(part.difference_s == 0 for part in found.parts)


def test_an_emulated_run_is_compared_on_the_gpus_that_compute():
    others = [span(f"g0.gpu{gpu}", "gemm", 0, 50, gpu=gpu) for gpu in (1, 2)]
    simulated = replace(
        SIMULATED,
        spans=(*SIMULATED.spans, *others, span("t0.gpu2", "transfer", 0, 1, gpu=2)),
        labels=("emulated-2d",),
    )
    measured = replace(MEASURED, labels=("emulated: gpus 1 to 2 only hold data",))
    found = compare_traces(simulated, measured)
    assert found.gpus == (0,)
    assert [(only.gpu, only.num_tasks) for only in found.only_simulated] == [(1, 1), (2, 2)]
    assert found.simulated_makespan_s == pytest.approx(9 * MS)
    text = "\n".join(comparison_lines(found))
    assert "makespan of gpu 0: measured 10.000 ms, simulated 9.000 ms, error -10.0%" in text
    assert "measured run: emulated: gpus 1 to 2 only hold data" in text
    assert "simulated run: emulated-2d" in text
    assert "only simulated, not compared: 1 of gpu 1, 2 of gpu 2" in text


def test_tasks_of_one_queue_that_overlap_count_once():
    spans = (span("a", "gemm", 0, 4), span("b", "gemm", 1, 3, index=1), span("c", "gemm", 4, 4))
    found = compare_traces(trace("sim", *spans), trace("gpu", *spans))
    assert found.parts[0] == Part(name="gemm", measured_s=4 * MS, simulated_s=4 * MS, difference_s=0.0)
    assert next(row for row in found.tasks if row.task_id == "c").error is None


def spans_of_any_kind(draw, count):
    made = []
    for i in range(count):
        start = draw(st.integers(0, 100))
        made.append(
            span(
                f"t{i}",
                draw(st.sampled_from(list(ENGINES))),
                start,
                start + draw(st.integers(0, 100)),
                gpu=draw(st.integers(0, 2)),
            )
        )
    return made


@given(data=st.data(), count=st.integers(1, 8))
def test_parts_sum_up_to_the_makespan(data, count):
    spans = spans_of_any_kind(data.draw, count)
    later = [replace(s, end_s=s.end_s + data.draw(st.integers(0, 9)) * MS) for s in spans]
    found = compare_traces(trace("sim", *later), trace("gpu", *spans))
    assert sum(p.measured_s for p in found.parts) == pytest.approx(found.measured_makespan_s)
    assert sum(p.simulated_s for p in found.parts) == pytest.approx(found.simulated_makespan_s)
    assert all(part.measured_s >= 0 and part.simulated_s >= 0 for part in found.parts)
    assert found.simulated_makespan_s >= found.measured_makespan_s


@pytest.mark.parametrize(("simulated", "measured", "words"), [
    (MEASURED, MEASURED, "given as simulated is a measured one"),
    (SIMULATED, SIMULATED, "given as measured is a simulated one"),
    (replace(SIMULATED, plan_fingerprint=""), MEASURED, "does not say of which plan"),
    (replace(SIMULATED, plan_fingerprint="e" * 64), MEASURED, "of different plans.*eeee.*ffff"),
    (replace(SIMULATED, spans=()), MEASURED, "no task in common: 0 simulated, 5 measured"),
])  # fmt: skip
def test_what_cannot_be_compared_is_refused(simulated, measured, words):
    with pytest.raises(ScenarioError, match=words):
        compare_traces(simulated, measured)


def test_json_has_stable_keys_and_no_gaps():
    document = json.loads(dump_json(compare_traces(SIMULATED, MEASURED)))
    assert list(document) == [
        "schedule", "workload", "plan_fingerprint", "measured_machine", "simulated_machine",
        "measured_labels", "simulated_labels", "gpus", "measured_makespan_s", "simulated_makespan_s",
        "error", "parts", "kinds", "only_measured", "only_simulated", "tasks",
    ]  # fmt: skip
    assert list(document["tasks"][0]) == [
        "task_id", "kind", "queue", "measured_start_s", "measured_s", "simulated_start_s",
        "simulated_s", "error",
    ]  # fmt: skip


def test_tables_say_what_differs(capsys):
    found = compare_traces(SIMULATED, MEASURED)
    console = Console(width=120, markup=False)
    for table in (kinds_table(found), parts_table(found), tasks_table(found, most=1)):
        console.print(table)
    out = capsys.readouterr().out
    for words in ("transfer", "waiting", "-1.000 ms", "+1.000 ms", "+16.7%"):
        assert words in out
    assert out.count("g0.") == 1

"""Layer: CPU torch. Links of their own, played by one: what goes together, and what is refused."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples, plan_of
from test_hw_run import hw

from ficco_sim.errors import PlanError, ScenarioError
from ficco_sim.plan import Transfer
from ficco_sim.schedules import FICCO, knobs_of
from ficco_sim.workload import Workload
from hw_validate.cpu import CpuBackend
from hw_validate.executor import bind, run_plan
from hw_validate.links import rounds_of
from hw_validate.maps import find_map
from hw_validate.memory import Arena, Memory, random_inputs
from hw_validate.placement import HOST, parse_placement

GATHERS = ("serial", "shard-p2p", "shard-ring", *FICCO)


def even(num_gpus: int, chunks: int = 2) -> Workload:
    """A gather whose shards and chunks all have one size."""
    return Workload(
        name="even", pattern="all_gather_gemm", m=2 * num_gpus * chunks, n=3, k=4 * chunks, dtype="bf16"
    )


@st.composite
def cases(draw):
    """A plan of equal copies, for a gpu with links of its own to all others."""
    num_gpus, chunks = draw(st.integers(2, 8)), draw(st.integers(1, 4))
    name = draw(st.sampled_from(GATHERS))
    asked = {
        "num_chunks": chunks,
        "compute_queues": draw(st.integers(1, 4)),
        "copy_queues": draw(st.integers(1, num_gpus - 1)),
    }
    plan = plan_of(name, even(num_gpus, chunks), num_gpus, **asked)
    where = draw(st.sampled_from(["host-mesh", "peer-mesh"]))
    return plan, find_map(where, num_gpus).placement(name, num_gpus)


@examples(100)
@given(case=cases())
def test_a_round_is_what_links_carry_at_the_same_time(case):
    plan, placement = case
    rounds = rounds_of(plan, placement)
    mine = [t for t in plan.tasks if isinstance(t, Transfer) and t.queue.gpu == 0]
    assert sorted(t.id for r in rounds for t in r.transfers) == sorted(t.id for t in mine)
    for each in rounds:
        assert len({t.queue for t in each.transfers}) == len(each.transfers)
        assert len({t.src.gpu for t in each.transfers}) == len(each.transfers)
        assert len({t.src.num_elements for t in each.transfers}) == 1
        assert each.num_idle == plan.num_gpus - 1 - len(each.transfers)
    # a queue's transfers are in rounds of their own, in its order
    for queue in {t.queue for t in mine}:
        theirs = [t.id for r in rounds for t in r.transfers if t.queue == queue]
        assert theirs == [t.id for t in mine if t.queue == queue]


@examples(40)
@given(case=cases())
def test_rounds_take_the_time_of_the_longest_queue_at_a_links_rate(case):
    """Bytes that are moved, over links times their rate, are those of the busiest link."""
    plan, placement = case
    memory = Memory(plan, placement, Arena(CpuBackend()))
    for each in rounds_of(plan, placement):
        pairs, filler = memory.of_round(each, 0)
        moved = [src.numel() for src, _ in (*pairs, *filler)]
        assert sum(moved) == (plan.num_gpus - 1) * each.transfers[0].src.num_elements
        assert all(src.is_contiguous() for src, _ in pairs)  # slices are held apart
        assert all(src.shape == dst.shape for src, dst in (*pairs, *filler))


@examples(40)
@given(case=cases())
def test_every_task_waits_for_the_end_of_its_rounds(case):
    plan, placement = case
    backend = CpuBackend()
    bound = bind(plan, placement, backend)
    assert len({step.id for step in bound.steps}) == len(bound.steps)
    outputs, trace = run_plan(
        plan, random_inputs(plan, placement), placement=placement, backend=backend, check=True
    )
    assert outputs
    spans = {span.task_id: (span.start_s, span.end_s) for span in trace.spans}
    assert sorted(spans) == sorted(t.id for t in plan.tasks if t.queue.gpu == 0)
    for each in rounds_of(plan, placement):
        assert len({spans[t.id] for t in each.transfers}) == 1
    for task in plan.tasks:
        if task.queue.gpu == 0:
            assert all(spans[dep][1] <= spans[task.id][0] for dep in task.deps if dep in spans)
    waits = Counter((step.lane, wait) for step in bound.steps for wait in step.waits)
    assert all(waits[key] == 1 for key in waits if key[1] in bound.led.values())


@pytest.mark.parametrize("name", GATHERS)
def test_all_peers_at_once_are_one_round_and_one_peer_leaves_the_others_idle(name):
    chunks = 3 if "num_chunks" in knobs_of(name) else 1
    plan = plan_of(name, even(8, chunks), 8, num_chunks=chunks, copy_queues=7)
    found = [
        (len(r.transfers), r.num_idle)
        for r in rounds_of(plan, parse_placement("0=dev0,1-7=host:link", 8))
    ]
    assert found == ([(1, 6)] * 7 if name.startswith("shard") else [(7, 0)] * chunks)


def test_places_have_rounds_of_their_own_and_other_gpus_none():
    plan = plan_of("serial", even(6), 6)
    placement = parse_placement("0=dev0,1-2=host:link,3-4=dev1:link,5=host", 6)
    found = {
        r.place: ([t.src.gpu for t in r.transfers], r.num_idle) for r in rounds_of(plan, placement)
    }
    assert found == {HOST: ([1, 2], 0), 1: ([3, 4], 0)}
    lanes = {step.lane.name for step in bind(plan, placement, CpuBackend()).steps}
    assert {"links-1", "links1", "dma4"} <= lanes


def test_what_one_link_cannot_play_is_refused():
    placement = parse_placement("0=dev0,1-3=host:link", 4)
    uneven = Workload(name="uneven", pattern="all_gather_gemm", m=14, n=3, k=7, dtype="bf16")
    with pytest.raises(PlanError, match="start together but differ in size; one link"):
        rounds_of(plan_of("serial", uneven, 4), placement)
    with pytest.raises(PlanError, match="is by a copy kernel; links of their own"):
        rounds_of(plan_of("serial", even(4), 4, engine="core"), placement)


def test_the_command_runs_such_maps_and_refuses_copy_kernels(capsys, tmp_path):
    out = tmp_path / "links.jsonl"
    arguments = ("run", "--gemm", "64,16,32", "--num-gpus", "4", "--num-chunks", "2", "--device", "cpu")
    few = ("--schedule", "serial,shard-p2p,hetero-unfused-2d", "--rounds", "2")
    hw(capsys, *arguments, *few, "--map", "host-mesh", "--straight", "--out", out)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    plans = [row for row in rows if row["record"] == "measurement"]
    assert {row["kind"] for row in plans} == {"plan"}  # straight versions have no such links
    assert {row["params"]["map"] for row in plans} == {"0=dev0,1-3=host:link"}
    assert all(any("a link of its own" in label for label in row["labels"]) for row in plans)
    assert not any(row["unusable"] for row in plans)
    other = ("--out", tmp_path / "x.jsonl")
    error = hw(capsys, *arguments, "--map", "peer-mesh", "--engine", "core", *other, code=2).err
    assert "--engine core: map peer-mesh plays links by copy engines alone" in error
    uneven = ("run", "--gemm", "63,16,32", "--num-gpus", "4", "--device", "cpu", "--rounds", "2")
    error = hw(capsys, *uneven, "--map", "host-mesh", *other, code=2).err
    assert "differ in size" in error


def test_maps_of_links_are_known():
    assert find_map("host-mesh", 8).placement("serial", 8).describe() == "0=dev0,1-7=host:link"
    assert find_map("peer-mesh", 2).placement("shard-p2p", 2).describe() == "0=dev0,1=dev1:link"
    with pytest.raises(ScenarioError, match="peer-mesh needs plans for 2 gpus or more"):
        find_map("peer-mesh", 1)

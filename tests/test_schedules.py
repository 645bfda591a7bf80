"""Layer: plan. What each schedule is: its sizes in closed form, its order, and what it refuses."""

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import (
    EVERY_SCHEDULE,
    EXCHANGES,
    ancestors,
    examples,
    knobs,
    plan_of,
    plans,
    workload_for,
)

from ficco_sim.check import check_plan
from ficco_sim.errors import ScenarioError
from ficco_sim.plan import Gemm, LocalCopy, Transfer, buffer_bytes
from ficco_sim.schedules import (
    FICCO,
    SCHEDULES,
    get_schedule,
    knobs_of,
    make_plan,
    side_by_side,
)
from ficco_sim.schedules.ficco import ficco_schedule
from ficco_sim.workload import DTYPE_BYTES, OUTPUT_DTYPE, split

TEN_NAMES = {
    "uniform-fused-1d",
    "uniform-fused-2d",
    "uniform-unfused-1d",
    "uniform-unfused-2d",
    "uniform-batched-1d",
    "hetero-fused-1d",
    "hetero-fused-2d",
    "hetero-unfused-1d",
    "hetero-unfused-2d",
    "hetero-batched-1d",
}
GATHERING = (*FICCO, "serial", "shard-p2p", "shard-ring")


def transfers_into(plan, gpu):
    return [t for t in plan.tasks if isinstance(t, Transfer) and t.dst.gpu == gpu]


def gemms_on(plan, gpu):
    return [t for t in plan.tasks if isinstance(t, Gemm) and t.queue.gpu == gpu]


def copies_on(plan, gpu):
    return [t for t in plan.tasks if isinstance(t, LocalCopy) and t.queue.gpu == gpu]


def shape_of(gemm):
    """Batch entries, and m, n, k of one of them."""
    (m,) = set(gemm.entry_rows)
    k, n = gemm.b.shape
    return len(gemm.a), m, n, k


class TestClosedForms:
    @pytest.mark.parametrize("schedule", EVERY_SCHEDULE)
    @given(data=st.data())
    @examples(8)
    def test_every_gpu_receives_all_but_its_own_shard_once(self, schedule, data):
        plan = data.draw(plans(schedule))
        m, k, p = plan.workload.m, plan.workload.k, plan.num_gpus
        if schedule == "side-by-side":
            m, k = plan.knobs["gathered_rows"], plan.knobs["gathered_cols"]
        element_bytes = DTYPE_BYTES[plan.workload.dtype]
        sizes = buffer_bytes(plan)
        total = 0
        for gpu, (lo, hi) in enumerate(split(m, p)):
            received = transfers_into(plan, gpu)
            moved_bytes = sum(t.src.num_elements * sizes[t.src.gpu, t.src.buffer] for t in received)
            assert moved_bytes == (m - (hi - lo)) * k * element_bytes
            total += moved_bytes
        assert total == (p - 1) * m * k * element_bytes

    @pytest.mark.parametrize("schedule", EVERY_SCHEDULE)
    @given(data=st.data())
    @examples(8)
    def test_every_gpu_does_the_whole_product_once(self, schedule, data):
        plan = data.draw(plans(schedule))
        w = plan.workload
        wanted = 0 if schedule == "all-gather" else 2 * w.m * w.n * w.k
        assert w.flops == wanted
        for gpu in range(plan.num_gpus):
            assert sum(task.flops for task in gemms_on(plan, gpu)) == wanted

    @pytest.mark.parametrize("schedule", EXCHANGES)
    @given(data=st.data())
    @examples(8)
    def test_exchange_moves_every_row_for_another_gpu_once(self, schedule, data):
        plan = data.draw(plans(schedule))
        w, p = plan.workload, plan.num_gpus
        row_bytes = w.k * DTYPE_BYTES[w.dtype]
        sizes = buffer_bytes(plan)
        for gpu in range(p):
            received = [w.tokens[src][gpu] for src in range(p)]
            moved_bytes = sum(
                t.src.num_elements * sizes[t.src.gpu, t.src.buffer] for t in transfers_into(plan, gpu)
            )
            assert moved_bytes == (sum(received) - received[gpu]) * row_bytes
            flops = sum(task.flops for task in gemms_on(plan, gpu))
            assert flops == 2 * sum(received) * w.n * w.k
            assert flops <= w.flops  # that of the busiest gpu

    @pytest.mark.parametrize("schedule", [*EVERY_SCHEDULE, *EXCHANGES])
    @given(data=st.data())
    @examples(5)
    def test_pure(self, schedule, data):
        workload = workload_for(
            schedule, m=data.draw(st.integers(1, 30)), k=data.draw(st.integers(1, 9))
        )
        num_gpus, given_knobs = data.draw(st.integers(1, 6)), data.draw(knobs(5))
        one = plan_of(schedule, workload, num_gpus, **given_knobs)
        other = plan_of(schedule, replace(workload), num_gpus, **dict(given_knobs))
        assert one == other
        assert one.fingerprint == other.fingerprint
        assert one.to_json() == other.to_json()
        assert one.num_gpus == num_gpus
        assert one.workload.k == workload.k

    @pytest.mark.parametrize("schedule", [*EVERY_SCHEDULE, *EXCHANGES])
    @given(data=st.data())
    @examples(5)
    def test_empty_parts_make_no_task(self, schedule, data):
        plan = data.draw(plans(schedule, max_m=10))
        assert all(
            min(region.shape) > 0 for task in plan.tasks for region in (*task.reads, *task.writes)
        )
        assert all(min(region.shape) > 0 for region in (*plan.inputs, *plan.outputs))

    @pytest.mark.parametrize("schedule", EVERY_SCHEDULE)
    @given(data=st.data())
    @examples(6)
    def test_element_types(self, schedule, data):
        plan = data.draw(plans(schedule, max_gpus=4))
        out = {"c", *(b.name for b in plan.buffers if b.name.startswith("out"))}
        for buffer in plan.buffers:
            wanted = OUTPUT_DTYPE[plan.workload.dtype] if buffer.name in out else plan.workload.dtype
            assert buffer.dtype == wanted

    @pytest.mark.parametrize("schedule", EVERY_SCHEDULE)
    @pytest.mark.parametrize("engine", ["dma", "core"])
    def test_engine(self, schedule, engine):
        plan = plan_of(schedule, workload_for(schedule), 3, engine=engine)
        engines = {type(task): set() for task in plan.tasks}
        for task in plan.tasks:
            engines[type(task)].add(task.queue.engine)
        assert engines[Transfer] == {engine}
        assert all(used == {"compute"} for kind, used in engines.items() if kind is not Transfer)
        assert plan.knobs["engine"] == engine


def divisible(schedule, p=4, c=2, **more):
    """A plan in which every part has the same size: m/p = 10, m/(p c) = 5, k/c = 6."""
    workload = workload_for(schedule, m=40, n=3, k=12)
    return plan_of(schedule, workload, p, num_chunks=c, **more)


class TestShapesOfGemms:
    """The table of section 6 of the design, with p = 4, c = 2, m = 40, n = 3, k = 12."""

    OWN = (1, 10, 3, 12)

    @pytest.mark.parametrize(
        ("schedule", "wanted"),
        [
            ("serial", {(1, 40, 3, 12): 1}),
            ("shard-p2p", {(1, 10, 3, 12): 4}),
            ("shard-ring", {(1, 10, 3, 12): 4}),
            ("uniform-fused-1d", {(1, 20, 3, 12): 2}),  # [m/c, n, k]
            ("hetero-fused-1d", {OWN: 1, (1, 15, 3, 12): 2}),  # [(p-1) m/(p c), n, k]
            ("uniform-fused-2d", {(1, 40, 3, 6): 2}),  # [m, n, k/c]
            ("hetero-fused-2d", {OWN: 1, (1, 30, 3, 6): 2}),
            ("uniform-unfused-1d", {(1, 5, 3, 12): 8}),
            ("hetero-unfused-1d", {OWN: 1, (1, 5, 3, 12): 6}),
            ("uniform-unfused-2d", {(1, 10, 3, 6): 8}),
            ("hetero-unfused-2d", {OWN: 1, (1, 10, 3, 6): 6}),
            ("uniform-batched-1d", {(4, 5, 3, 12): 2}),
            ("hetero-batched-1d", {OWN: 1, (3, 5, 3, 12): 2}),
        ],
    )
    def test_table(self, schedule, wanted):
        plan = divisible(schedule)
        for gpu in range(4):
            assert Counter(shape_of(task) for task in gemms_on(plan, gpu)) == wanted

    @pytest.mark.parametrize("schedule", sorted(TEN_NAMES))
    @pytest.mark.parametrize("c", [1, 2, 5])
    def test_transfers_are_one_chunk_of_every_peer_a_step(self, schedule, c):
        plan = divisible(schedule, c=c)
        rows, cols = 10, 12  # of a shard
        for gpu in range(4):
            received = transfers_into(plan, gpu)
            assert len(received) == 3 * c
            steps = defaultdict(set)
            for task in received:
                steps[task.id.rpartition(".c")[2]].add(task.src.gpu)
            peers = {0, 1, 2, 3} - {gpu}
            assert list(steps.values()) == [peers] * c
            sizes = Counter(t.src.shape for t in received)
            whole_rows = [hi - lo for lo, hi in split(rows, c)]
            whole_cols = [hi - lo for lo, hi in split(cols, c)]
            if schedule.endswith("1d"):
                assert sizes == Counter((size, cols) for size in whole_rows * 3)
            else:
                assert sizes == Counter((rows, size) for size in whole_cols * 3)

    def test_chunks_are_as_many_as_gpus_unless_told(self):
        for schedule in FICCO:
            plan = make_plan(schedule, workload_for(schedule, m=60, k=12), 5)
            assert plan.knobs["num_chunks"] == 5
            assert len(transfers_into(plan, 0)) == 4 * 5


class TestOrder:
    @pytest.mark.parametrize("schedule", [*sorted(TEN_NAMES), "serial", "all-gather", "side-by-side"])
    def test_one_queue_per_peer(self, schedule):
        plan = divisible(schedule)
        for gpu in range(4):
            owners = defaultdict(set)
            for task in transfers_into(plan, gpu):
                assert task.src.gpu != gpu
                assert task.deps == ()
                owners[task.queue].add(task.src.gpu)
            assert len(owners) == 3
            assert sorted(owner for (owner,) in owners.values()) == sorted({0, 1, 2, 3} - {gpu})

    @pytest.mark.parametrize("schedule", sorted(TEN_NAMES))
    @pytest.mark.parametrize("copy_queues", [1, 2])
    def test_fewer_copy_queues_keep_the_order_of_steps(self, schedule, copy_queues):
        plan = divisible(schedule, copy_queues=copy_queues)
        usual = divisible(schedule)
        assert [t.id for t in plan.tasks] == [t.id for t in usual.tasks]
        for gpu in range(4):
            queues = defaultdict(list)
            for task in transfers_into(plan, gpu):
                queues[task.queue.index].append(int(task.id.rsplit("c", 1)[1]))
            assert sorted(queues) == list(range(copy_queues))
            assert all(steps == sorted(steps) for steps in queues.values())

    def test_every_gpu_begins_with_the_next_one_so_that_no_two_ask_the_same(self):
        for schedule in (*EVERY_SCHEDULE, *EXCHANGES):
            plan = divisible(schedule)
            for gpu in range(4):
                order = list(dict.fromkeys(t.src.gpu for t in transfers_into(plan, gpu)))
                peers = [(gpu + t) % 4 for t in (1, 2, 3)]
                if schedule == "shard-ring":
                    assert order == peers[:1]
                elif schedule in EVERY_SCHEDULE:
                    assert order == peers
                else:  # some send nothing
                    assert order == [peer for peer in peers if peer in order]

    def test_p2p_asks_owners_one_after_another(self):
        plan = divisible("shard-p2p")
        for gpu in range(4):
            received = transfers_into(plan, gpu)
            assert [t.src.gpu for t in received] == [(gpu + t) % 4 for t in (1, 2, 3)]
            assert [t.src.rows for t in received] == [split(40, 4)[t.src.gpu] for t in received]
            assert len({t.queue for t in received}) == 1
            assert gemms_on(plan, gpu)[0].a[0].rows == split(40, 4)[gpu]

    def test_ring_asks_the_neighbour_for_what_it_has_just_got(self):
        plan = divisible("shard-ring")
        for gpu in range(4):
            received = transfers_into(plan, gpu)
            assert {t.src.gpu for t in received} == {(gpu + 1) % 4}
            assert [t.src.rows for t in received] == [split(40, 4)[(gpu + t) % 4] for t in (1, 2, 3)]
            assert [len(t.deps) for t in received] == [0, 1, 1]
        assert "xfer.g1.s2" in ancestors(plan, "xfer.g0.s2")

    @pytest.mark.parametrize("schedule", sorted(name for name in TEN_NAMES if "hetero" in name))
    def test_hetero_computes_the_own_shard_first_and_waits_for_nothing(self, schedule):
        plan = divisible(schedule)
        for gpu in range(4):
            own = gemms_on(plan, gpu)[0]
            assert own.a[0].rows == split(40, 4)[gpu]
            assert ancestors(plan, own.id) == set()

    @pytest.mark.parametrize("schedule", sorted(name for name in TEN_NAMES if "uniform" in name))
    def test_uniform_steps_are_alike(self, schedule):
        plan = divisible(schedule)
        by_step = defaultdict(Counter)
        for task in plan.tasks:
            step = task.id.rpartition(".c")[2]
            if isinstance(task, Gemm):
                by_step[step][shape_of(task)] += 1
            else:
                by_step[step][type(task), sum(r.num_elements for r in task.writes)] += 1
        if schedule.endswith("fused-2d") and "unfused" not in schedule:
            assert "scatter" not in " ".join(task.id for task in plan.tasks)
        assert by_step["0"] == by_step["1"]

    @pytest.mark.parametrize("schedule", sorted(name for name in TEN_NAMES if "unfused" in name))
    def test_unfused_gemms_wait_for_their_own_chunk_only(self, schedule):
        plan = divisible(schedule, compute_queues=4)
        for task in plan.tasks:
            if isinstance(task, Gemm):
                arrived = [dep for dep in task.deps if dep.startswith("xfer")]
                assert arrived == [
                    f"xfer.g{task.queue.gpu}.{chunk}"
                    for chunk in [task.id.split(".", 2)[2]]
                    if chunk != "own" and not chunk.startswith(f"s{task.queue.gpu}.")
                ]

    @pytest.mark.parametrize("schedule", sorted(name for name in TEN_NAMES if "unfused" in name))
    @pytest.mark.parametrize("queues", [1, 2, 4])
    def test_unfused_gemms_go_round_robin(self, schedule, queues):
        plan = divisible(schedule, compute_queues=queues)
        for gpu in range(4):
            used = Counter(task.queue.index for task in gemms_on(plan, gpu))
            assert set(used) == set(range(queues))
            assert max(used.values()) - min(used.values()) <= (2 if schedule.endswith("2d") else 1)

    @pytest.mark.parametrize("schedule", sorted(name for name in TEN_NAMES if name.endswith("2d")))
    def test_2d_products_accumulate_after_the_first(self, schedule):
        plan = divisible(schedule, c=3)
        for gpu in range(4):
            on_rows = defaultdict(list)
            for task in gemms_on(plan, gpu):
                if not task.id.endswith("own"):
                    on_rows[task.c[0]].append(task)
            for tasks in on_rows.values():
                assert [task.accumulate for task in tasks] == [False, True, True]
                assert [task.b.rows for task in tasks] == list(split(12, 3))
                assert all(a.id in b.deps for a, b in pairwise(tasks))

    @pytest.mark.parametrize("schedule", sorted(name for name in TEN_NAMES if name.endswith("1d")))
    def test_1d_products_never_accumulate(self, schedule):
        assert not any(t.accumulate for t in divisible(schedule).tasks if isinstance(t, Gemm))


class TestGather:
    @pytest.mark.parametrize("schedule", ["uniform-fused-1d", "uniform-fused-2d", "hetero-fused-1d"])
    def test_direct_copies_the_own_part_only(self, schedule):
        plan = divisible(schedule)
        for gpu in range(4):
            gathers = [t for t in copies_on(plan, gpu) if t.id.startswith("gather")]
            own = 0 if schedule.startswith("hetero") else 10 * 12
            assert sum(region.num_elements for t in gathers for region in t.src) == own
            assert all(t.deps == () for t in gathers)

    @pytest.mark.parametrize("schedule", ["uniform-fused-1d", "uniform-fused-2d", "hetero-fused-1d"])
    def test_copy_copies_what_arrived_as_well(self, schedule):
        plan = divisible(schedule, gather="copy")
        for gpu in range(4):
            assert all(t.dst.buffer == "a" for t in transfers_into(plan, gpu))
            gathers = [t for t in copies_on(plan, gpu) if t.id.startswith("gather")]
            rows = 30 if schedule.startswith("hetero") else 40
            assert sum(region.num_elements for t in gathers for region in t.src) == rows * 12

    @pytest.mark.parametrize("gather", ["direct", "copy"])
    @pytest.mark.parametrize("schedule", sorted(n for n in TEN_NAMES if "-fused" not in n))
    def test_unfused_and_batched_copy_nothing(self, schedule, gather):
        plan = divisible(schedule, gather=gather)
        assert not any(isinstance(task, LocalCopy) for task in plan.tasks)
        assert {b.name for b in plan.buffers} == {"a", "b", "c"}

    def test_fused_1d_puts_every_row_back_once(self):
        for schedule, rows in (("uniform-fused-1d", 40), ("hetero-fused-1d", 30)):
            plan = divisible(schedule)
            for gpu in range(4):
                back = [t for t in copies_on(plan, gpu) if t.id.startswith("scatter")]
                assert sum(region.num_elements for t in back for region in t.dst) == rows * 3

    def test_nothing_is_staged_where_chunks_lie_side_by_side_already(self):
        for schedule, p, c in (
            ("uniform-fused-1d", 4, 1),
            ("uniform-fused-1d", 1, 3),
            ("uniform-fused-2d", 4, 1),
            ("hetero-fused-1d", 2, 3),
        ):
            plan = divisible(schedule, p=p, c=c)
            assert not any(isinstance(task, LocalCopy) for task in plan.tasks)
            assert {b.name for b in plan.buffers} == {"a", "b", "c"}


class TestSideBySide:
    @pytest.mark.parametrize("overlap", [True, False])
    def test_gemm_waits_only_without_overlap(self, overlap):
        plan = plan_of("side-by-side", workload_for("side-by-side"), 4, overlap=overlap)
        check_plan(plan)
        assert plan.schedule == ("side-by-side" if overlap else "side-by-side-serial")
        for gpu in range(4):
            (gemm,) = gemms_on(plan, gpu)
            assert shape_of(gemm) == (1, 13, 3, 7)
            arrived = {t.id for t in transfers_into(plan, gpu)}
            assert len(arrived) == 3
            assert set(gemm.deps) == (set() if overlap else arrived)

    def test_the_gathered_matrix_is_unrelated(self):
        plan = plan_of("side-by-side", workload_for("side-by-side"), 3)
        assert {t.dst.buffer for gpu in range(3) for t in transfers_into(plan, gpu)} == {"x"}


class TestRegistry:
    def test_the_names(self):
        assert set(FICCO) == TEN_NAMES
        assert set(SCHEDULES) == TEN_NAMES | {"serial", "shard-p2p", "shard-ring", "all-gather"}

    def test_plans_carry_their_name_and_knobs(self):
        for schedule in SCHEDULES:
            plan = plan_of(schedule, workload_for(schedule), 3)
            assert plan.schedule == schedule
            assert set(plan.knobs) == set(knobs_of(schedule))

    def test_knobs(self):
        assert knobs_of("serial") == ("engine",)
        assert knobs_of("uniform-fused-1d") == (
            "num_chunks",
            "compute_queues",
            "copy_queues",
            "engine",
            "gather",
        )

    def test_unknown_name_lists_the_known_ones(self):
        with pytest.raises(ScenarioError, match=r"'serail' is unknown.*serial.*hetero-fused-2d"):
            get_schedule("serail")

    def test_unknown_knob_lists_the_known_ones(self):
        with pytest.raises(ScenarioError, match="'serial' has no knob 'chunks'; it has engine"):
            make_plan("serial", workload_for("serial"), 2, {"chunks": 2})

    def test_batched_2d_does_not_exist(self):
        with pytest.raises(ValueError, match="1d only"):
            ficco_schedule("uniform", "batched", "2d")


NOT_COUNTS = [0, -1, 10**9, True, 2.0, 2.5, float("nan"), "2", None]


class TestPreconditions:
    """The argument, its value and the rule are named."""

    @pytest.mark.parametrize("schedule", sorted(SCHEDULES))
    @pytest.mark.parametrize("value", NOT_COUNTS, ids=repr)
    def test_number_of_gpus(self, schedule, value):
        with pytest.raises(ScenarioError, match=rf"num_gpus: {value!r} must be .* from 1 to"):
            make_plan(schedule, workload_for(schedule), value, {"engine": "dma"})

    @pytest.mark.parametrize(
        ("knob", "value"),
        [
            (knob, value)
            for knob in ("num_chunks", "compute_queues")
            for value in NOT_COUNTS
            if (knob, value) != ("num_chunks", None)  # as many as gpus
        ],
        ids=repr,
    )
    def test_counts(self, knob, value):
        for schedule in FICCO:
            with pytest.raises(ScenarioError, match=rf"{knob}: {value!r} must be .* from 1 to"):
                make_plan(schedule, workload_for(schedule), 2, {knob: value})

    @pytest.mark.parametrize("value", ["DMA", "compute", "", None, 1])
    def test_engine(self, value):
        for schedule in SCHEDULES:
            with pytest.raises(ScenarioError, match=rf"engine: {value!r} must be dma or core"):
                make_plan(schedule, workload_for(schedule), 2, {"engine": value})

    @pytest.mark.parametrize("value", ["Direct", "", None, 1])
    def test_gather(self, value):
        for schedule in FICCO:
            with pytest.raises(ScenarioError, match=rf"gather: {value!r} must be direct or copy"):
                make_plan(schedule, workload_for(schedule), 2, {"gather": value})

    @pytest.mark.parametrize("schedule", sorted(SCHEDULES))
    def test_pattern(self, schedule):
        wrong = "serial" if schedule == "all-gather" else "side-by-side"
        with pytest.raises(ScenarioError, match=r"'drawn' has the pattern .*this schedule is for"):
            make_plan(schedule, workload_for(wrong), 2)

    def test_side_by_side(self):
        sizes = {"gathered_rows": 4, "gathered_cols": 4}
        with pytest.raises(ScenarioError, match="pattern"):
            side_by_side(workload_for("serial"), 2, **sizes)
        for name in sizes:
            for value in (0, -1, 2**31, 1.5, True, "4", None):
                with pytest.raises(ScenarioError, match=f"{name}: {value!r}"):
                    side_by_side(workload_for("side-by-side"), 2, **(sizes | {name: value}))

    @pytest.mark.parametrize("schedule", EXCHANGES)
    def test_tokens_are_for_another_number_of_gpus(self, schedule):
        workload = plan_of(schedule, workload_for(schedule), 3).workload
        with pytest.raises(ScenarioError, match="tokens are for 3 gpus, not 4"):
            make_plan(schedule.removesuffix(" exchange"), workload, 4)

    def test_a_ring_carries_no_exchange(self):
        workload = plan_of("serial exchange", workload_for("serial"), 3).workload
        with pytest.raises(ScenarioError, match="pattern all_to_all_gemm; this schedule is for"):
            make_plan("shard-ring", workload, 3)

    def test_more_transfers_than_a_plan_can_hold(self):
        with pytest.raises(ScenarioError, match="num_chunks: 1024 on 1024 gpus"):
            make_plan("uniform-fused-1d", workload_for("serial"), 1024)

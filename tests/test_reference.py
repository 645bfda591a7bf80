"""Layer: numpy. Every schedule, run in random legal orders, gives exactly A @ B on every gpu."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import (
    COLLECTIVES,
    EVERY_SCHEDULE,
    EXCHANGES,
    ancestors,
    early_order,
    examples,
    gives_right_numbers,
    operator_inputs,
    plan_of,
    plans,
    put,
    workload_for,
)

from ficco_sim import reference
from ficco_sim.check import check_plan
from ficco_sim.errors import PlanError
from ficco_sim.plan import Gemm, LocalCopy, Plan, Transfer
from ficco_sim.reference import (
    assert_correct,
    evaluate,
    expected_output,
    legal_order,
    make_inputs,
)
from ficco_sim.workload import split

seeds = st.integers(0, 2**32 - 1)
SERIAL = plan_of("serial", workload_for("serial"), 3)


class TestNumbers:
    @pytest.mark.parametrize("schedule", [*EVERY_SCHEDULE, *EXCHANGES, *COLLECTIVES])
    @given(data=st.data())
    @examples(80)
    def test_every_schedule_is_legal_and_exact(self, schedule, data):
        plan = data.draw(plans(schedule), label="plan")
        seed = data.draw(seeds, label="seed")
        check_plan(plan)

        whole, wanted = operator_inputs(plan, seed=seed, integers=True)
        for order in (None, legal_order(plan, seed), legal_order(plan, seed + 1)):
            got = evaluate(plan, whole, order)
            assert set(got) == set(wanted)
            for key, matrix in wanted.items():
                there = ~np.isnan(matrix)  # a reduction leaves what it likes outside the outputs
                np.testing.assert_array_equal(got[key][there], matrix[there])

        inputs = make_inputs(plan, seed, integers=True)
        assert_correct(plan, evaluate(plan, inputs, legal_order(plan, seed)), inputs, rtol=0)
        inputs = make_inputs(plan, seed)
        assert_correct(plan, evaluate(plan, inputs, legal_order(plan, seed)), inputs)

    @pytest.mark.parametrize("schedule", [*EVERY_SCHEDULE, *EXCHANGES, *COLLECTIVES])
    @pytest.mark.parametrize(
        ("m", "n", "k", "num_gpus", "num_chunks"),
        [
            (1, 1, 1, 1, 1),
            (1, 1, 1, 9, 9),  # 8 shards of 0 rows, 8 chunks of 0 columns
            (8, 2, 9, 9, 9),  # one gpu without rows
            (9, 2, 8, 9, 9),
            (37, 5, 13, 7, 3),  # primes
            (41, 3, 11, 2, 9),
            (64, 4, 16, 8, 8),  # everything divides
        ],
    )
    def test_corners(self, schedule, m, n, k, num_gpus, num_chunks):
        for gather in ("direct", "copy"):
            plan = plan_of(
                schedule,
                workload_for(schedule, m, n, k),
                num_gpus,
                num_chunks=num_chunks,
                gather=gather,
                compute_queues=3,
            )
            check_plan(plan)
            assert all(gives_right_numbers(plan, legal_order(plan, seed)) for seed in range(3))

    @pytest.mark.parametrize("schedule", EVERY_SCHEDULE)
    def test_each_task_as_early_as_it_can_be(self, schedule):
        plan = plan_of(schedule, workload_for(schedule), 3, num_chunks=2, compute_queues=2)
        for task in plan.tasks:
            assert gives_right_numbers(plan, early_order(plan, task.id))


class TestLegalOrder:
    @given(plans(max_gpus=5, max_chunks=5), seeds)
    @examples(60)
    def test_respects_deps_and_queues(self, plan, seed):
        order = legal_order(plan, seed)
        assert sorted(t.id for t in order) == sorted(t.id for t in plan.tasks)
        place = {task.id: i for i, task in enumerate(order)}
        for task in plan.tasks:
            assert all(place[dep] < place[task.id] for dep in task.deps)
        queues = defaultdict(list)
        for task in plan.tasks:
            queues[task.queue].append(place[task.id])
        assert all(places == sorted(places) for places in queues.values())

    def test_same_seed_same_order(self):
        assert legal_order(SERIAL, 3) == legal_order(SERIAL, 3)

    def test_orders_differ_and_reach_every_first_task(self):
        free = {task.id for task in SERIAL.tasks if not ancestors(SERIAL, task.id)}
        orders = [[task.id for task in legal_order(SERIAL, seed)] for seed in range(100)]
        assert {order[0] for order in orders} == free
        assert {order[-1] for order in orders} == {"gemm.g0", "gemm.g1", "gemm.g2"}

    @pytest.mark.parametrize("run", [legal_order, lambda plan, _: evaluate(plan, make_inputs(plan))])
    def test_deadlock_names_the_tasks(self, run):
        by_id = {task.id: task for task in SERIAL.tasks}
        stuck = put(SERIAL, replace(by_id["xfer.g0.s1"], deps=("gemm.g0",)))
        with pytest.raises(PlanError, match=r"deadlock among .*xfer\.g0\.s1.*gemm\.g0") as caught:
            run(stuck, 0)
        assert "g1" not in str(caught.value)


class TestInputs:
    @given(plans(max_gpus=4, max_m=12), seeds, st.booleans())
    @examples(30)
    def test_values_are_where_the_plan_says_and_nowhere_else(self, plan, seed, integers):
        arrays = make_inputs(plan, seed, integers=integers)
        again = make_inputs(plan, seed, integers=integers)
        assert set(arrays) == {(r.gpu, r.buffer) for r in plan.inputs}
        for key, array in arrays.items():
            np.testing.assert_array_equal(array, again[key])
            filled = np.zeros(array.shape, bool)
            for region in plan.inputs:
                if (region.gpu, region.buffer) == key:
                    filled[slice(*region.rows), slice(*region.cols)] = True
            np.testing.assert_array_equal(filled, ~np.isnan(array))
            if integers:
                assert set(array[filled]) <= set(range(-4, 5))

    def test_every_gpu_has_its_own_b_and_a_part_of_one_a(self):
        arrays = make_inputs(SERIAL, 5)
        assert not np.array_equal(arrays[0, "b"], arrays[1, "b"])
        whole = plan_of("side-by-side", workload_for("side-by-side"), 3)
        shared = make_inputs(whole, 5)
        np.testing.assert_array_equal(shared[0, "a"], shared[2, "a"])
        shards = [arrays[g, "a"][lo:hi] for g, (lo, hi) in enumerate(split(13, 3))]
        assert len({tuple(row) for shard in shards for row in shard}) == 13

    def test_seeds_differ(self):
        assert not np.array_equal(make_inputs(SERIAL, 1)[0, "b"], make_inputs(SERIAL, 2)[0, "b"])

    @given(plans(max_gpus=4, max_m=12))
    @examples(30)
    def test_expected_output_is_the_operator(self, plan):
        inputs = make_inputs(plan, integers=True)
        wanted = expected_output(plan, inputs)
        for name in ("a", "x"):
            parts = [inputs[g, name] for g in range(plan.num_gpus) if (g, name) in inputs]
            if not parts:
                continue
            stacked = np.stack(parts)
            whole = np.where(np.isnan(stacked), -np.inf, stacked).max(axis=0)
            for gpu in range(plan.num_gpus):
                if (gpu, name) in wanted:
                    np.testing.assert_array_equal(wanted[gpu, name], whole)
                if name == "a" and (gpu, "c") in wanted:
                    np.testing.assert_array_equal(wanted[gpu, "c"], whole @ inputs[gpu, "b"])


class TestEvaluate:
    def test_leaves_the_inputs_as_they_are(self):
        inputs = make_inputs(SERIAL)
        before = {key: array.copy() for key, array in inputs.items()}
        evaluate(SERIAL, inputs)
        for key, array in before.items():
            np.testing.assert_array_equal(inputs[key], array)

    @pytest.mark.parametrize("schedule", EVERY_SCHEDULE)
    def test_missing_data_stays_visible(self, schedule):
        """Buffers start as not-a-number, so what never arrives cannot look right."""
        plan = plan_of(schedule, workload_for(schedule), 3, num_chunks=2)
        for kind in (Transfer, LocalCopy, Gemm):
            left = [task for task in plan.tasks if isinstance(task, kind)]
            for task in left[:1] + left[-1:]:
                order = [t for t in plan.tasks if t.id != task.id]
                outputs = evaluate(plan, make_inputs(plan), order)
                inputs = make_inputs(plan)
                with pytest.raises(PlanError, match="expected"):
                    assert_correct(plan, outputs, inputs)

    def test_batch_and_accumulate(self):
        plan = plan_of("serial", workload_for("serial", m=4, n=2, k=3), 1)
        (gemm,) = plan.tasks
        a, c = gemm.a[0], gemm.c[0]
        rows = [(3, 4), (0, 2), (2, 3)]
        batched = replace(
            gemm,
            a=tuple(replace(a, rows=r) for r in rows),
            c=tuple(replace(c, rows=r) for r in rows),
        )
        more = replace(batched, id="more", accumulate=True)
        inputs = make_inputs(plan, integers=True)
        wanted = expected_output(plan, inputs)[0, "c"]
        once = evaluate(replace(plan, tasks=(batched,)), inputs)
        np.testing.assert_array_equal(once[0, "c"], wanted)
        twice = evaluate(replace(plan, tasks=(batched, more)), inputs)
        np.testing.assert_array_equal(twice[0, "c"], 2 * wanted)

    def test_size_limit_is_refused_before_memory_is_taken(self):
        huge = plan_of("serial", workload_for("serial", m=10**9, n=10**9, k=10**9), 2)
        check_plan(huge)
        for run in (make_inputs, lambda plan: evaluate(plan, {})):
            with pytest.raises(PlanError, match="elements are too many to evaluate; at most"):
                run(huge)
        assert reference.MAX_ELEMENTS == 2**28


class TestAssertCorrect:
    def outcome(self) -> tuple[Plan, dict, dict]:
        inputs = make_inputs(SERIAL, integers=True)
        return SERIAL, evaluate(SERIAL, inputs), inputs

    def test_names_the_first_wrong_element_and_its_writers(self):
        plan, outputs, inputs = self.outcome()
        right = outputs[1, "c"][4, 2]
        outputs[1, "c"][4, 2] += 1
        outputs[1, "c"][7, 0] += 1
        with pytest.raises(PlanError) as caught:
            assert_correct(plan, outputs, inputs)
        assert str(caught.value) == (
            f"serial: gpu 1 c[4, 2] is {right + 1}, expected {right}; written by gemm.g1"
        )

    def test_not_a_number_is_wrong(self):
        plan, outputs, inputs = self.outcome()
        outputs[0, "c"][0, 0] = np.nan
        with pytest.raises(PlanError, match=r"gpu 0 c\[0, 0\] is nan"):
            assert_correct(plan, outputs, inputs)

    def test_tolerance_is_relative_to_the_largest_element(self):
        plan, outputs, inputs = self.outcome()
        largest = np.abs(expected_output(plan, inputs)[2, "c"]).max()
        outputs[2, "c"][0, 0] += 0.9e-3 * largest
        assert_correct(plan, outputs, inputs, rtol=1e-3)
        with pytest.raises(PlanError, match="gpu 2"):
            assert_correct(plan, outputs, inputs, rtol=0.8e-3)
        with pytest.raises(PlanError, match="gpu 2"):
            assert_correct(plan, outputs, inputs)

    def test_nobody_wrote_it(self):
        plan, outputs, inputs = self.outcome()
        outputs[0, "c"][0, 0] = np.nan
        with pytest.raises(PlanError, match="written by nobody"):
            assert_correct(replace(plan, tasks=()), outputs, inputs)

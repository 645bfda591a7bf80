"""Layer: plan, judged by numpy. Every damaged plan is refused by name, every right one accepted.

A mutation takes a right plan and yields damaged ones, each with the tasks that a refusal must name.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice, pairwise, product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import (
    COLLECTIVES,
    EVERY_SCHEDULE,
    EXCHANGES,
    ancestors,
    descendants,
    early_order,
    examples,
    gives_right_numbers,
    moved,
    operands,
    plan_of,
    plans,
    put,
    right_in_every_order,
    with_operand,
    workload_for,
)

from ficco_sim.check import check_plan, find_problems
from ficco_sim.errors import PlanError
from ficco_sim.plan import Buffer, Gemm, LocalCopy, Plan, PlanIndex, Region, Task, Transfer
from ficco_sim.reference import legal_order
from ficco_sim.schedules import FICCO

Mutants = Iterator[tuple[Plan, set[str]]]


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """One way to damage a plan.

    ``kinds``: what a refusal may be called. ``every``: the refusal names all the tasks, not only one
    of them. ``wrong``: the numbers are wrong too, in some order at least.
    """

    make: Callable[[Plan], Mutants]
    kinds: frozenset[str]
    every: bool
    wrong: bool

    @property
    def name(self) -> str:
        return self.make.__name__


MUTATIONS: list[Mutation] = []
REDUCTIONS = ("reduce_scatter", "all_reduce")  # a sum is the same in any order


def mutation(*kinds, every=True, wrong=False):
    def register(make):
        MUTATIONS.append(Mutation(make=make, kinds=frozenset(kinds), every=every, wrong=wrong))
        return make

    return register


def concerned(plan, *task_ids):
    """The tasks themselves and all that take data from them."""
    return {*task_ids}.union(*(descendants(plan, task_id) for task_id in task_ids))


def without(plan, task_id):
    """The plan without one task; nobody waits for it any more."""
    return replace(
        plan,
        tasks=tuple(
            replace(task, deps=tuple(dep for dep in task.deps if dep != task_id))
            for task in plan.tasks
            if task.id != task_id
        ),
    )


def inserted_after(plan, task_id, new):
    at = PlanIndex(plan).position[task_id] + 1
    return replace(plan, tasks=(*plan.tasks[:at], new, *plan.tasks[at:]))


def buffer_of(plan, region):
    return {(b.gpu, b.name): b for b in plan.buffers}[region.gpu, region.buffer]


def each_operand(plan) -> Iterator[tuple[Task, str, int, Region]]:
    for task in plan.tasks:
        for field, regions in operands(task).items():
            for at, region in enumerate(regions):
                yield task, field, at, region


def inside(buffer, region):
    return (
        0 <= region.rows[0] < region.rows[1] <= buffer.rows
        and 0 <= region.cols[0] < region.cols[1] <= buffer.cols
    )


# --- order -------------------------------------------------------------------------------------


def conflict(plan, *task_ids):
    """Whether the order of two tasks matters: one writes what the other uses."""
    one, other = (plan.tasks[PlanIndex(plan).position[task_id]] for task_id in task_ids)
    return any(
        mine.overlaps(theirs)
        for mine, theirs in [
            *product(one.writes, (*other.reads, *other.writes)),
            *product(one.reads, other.writes),
        ]
    )


@mutation("race", wrong=True)
def dropped_dep(plan: Plan) -> Mutants:
    for task in plan.tasks:
        for dep in task.deps:
            mutant = put(plan, replace(task, deps=tuple(d for d in task.deps if d != dep)))
            if dep not in ancestors(mutant, task.id) and conflict(plan, task.id, dep):
                yield mutant, {task.id, dep}


@mutation("race", wrong=True)
def dropped_dep_that_the_queue_implied(plan: Plan) -> Mutants:
    """Harmless until the task moves to another queue as well."""
    for task in plan.tasks:
        for dep in task.deps:
            deps = tuple(d for d in task.deps if d != dep)
            if dep in ancestors(put(plan, replace(task, deps=deps)), task.id):
                queue = replace(task.queue, index=task.queue.index + 50)
                mutant = put(plan, replace(task, deps=deps, queue=queue))
                if dep not in ancestors(mutant, task.id) and conflict(plan, task.id, dep):
                    yield mutant, {task.id, dep}


@mutation("deadlock")
def cycle(plan: Plan) -> Mutants:
    for task in plan.tasks:
        for before in sorted(ancestors(plan, task.id)):
            first = plan.tasks[PlanIndex(plan).position[before]]
            yield put(plan, replace(first, deps=(*first.deps, task.id))), {task.id, before}


@mutation("deadlock")
def waits_for_itself(plan: Plan) -> Mutants:
    for task in plan.tasks:
        yield put(plan, replace(task, deps=(*task.deps, task.id))), {task.id}


@mutation("deadlock", every=False)
def queued_before_its_dep(plan: Plan) -> Mutants:
    tasks = list(plan.tasks)
    for i, task in enumerate(tasks):
        for j, before in enumerate(tasks[:i]):
            if before.id in task.deps and before.queue == task.queue:
                swapped = [*tasks[:j], task, *tasks[j + 1 : i], before, *tasks[i + 1 :]]
                yield replace(plan, tasks=tuple(swapped)), {task.id, before.id}


# --- tasks and ids -----------------------------------------------------------------------------


@mutation("unwritten", "race", "output", "data", every=False, wrong=True)
def missing_task(plan: Plan) -> Mutants:
    for task in plan.tasks:
        holes = {f"gpu {region.gpu} {region.buffer}" for region in task.writes}
        yield without(plan, task.id), descendants(plan, task.id) | holes


@mutation("id")
def missing_task_that_others_wait_for(plan: Plan) -> Mutants:
    for task in plan.tasks:
        waiting = next((t.id for t in plan.tasks if task.id in t.deps), None)
        if waiting is not None:
            left = tuple(t for t in plan.tasks if t.id != task.id)
            yield replace(plan, tasks=left), {task.id, waiting}


@mutation("id")
def duplicate_id(plan: Plan) -> Mutants:
    for task in plan.tasks:
        yield replace(plan, tasks=(*plan.tasks, task)), {task.id}


@mutation("id")
def unknown_dep(plan: Plan) -> Mutants:
    for task in plan.tasks:
        yield put(plan, replace(task, deps=(*task.deps, "nobody"))), {task.id, "nobody"}


@mutation("race")
def two_writers(plan: Plan) -> Mutants:
    for task in plan.tasks:
        queue = replace(task.queue, index=task.queue.index + 50)
        twin = replace(task, id=f"{task.id}.again", queue=queue)
        yield replace(plan, tasks=(*plan.tasks, twin)), {task.id, twin.id}


@mutation("overwrite", "race", "data", every=False)
def overwritten_unread(plan: Plan) -> Mutants:
    for task in plan.tasks:
        twin = replace(task, id=f"{task.id}.again")
        yield inserted_after(plan, task.id, twin), {twin.id}


# --- regions -----------------------------------------------------------------------------------


@mutation("bounds")
def out_of_bounds(plan: Plan) -> Mutants:
    for task, field, at, region in each_operand(plan):
        buffer = buffer_of(plan, region)
        (top, bottom), (west, east) = region.rows, region.cols
        for outside in (
            moved(region, down=buffer.rows - bottom + 1),
            moved(region, down=-top - 1),
            moved(region, right=buffer.cols - east + 1),
            moved(region, right=-west - 1),
        ):
            yield put(plan, with_operand(task, field, at, outside)), {task.id}


@mutation("bounds")
def empty_or_inverted(plan: Plan) -> Mutants:
    for task, field, at, region in each_operand(plan):
        top, bottom = region.rows
        for rows in ((top, top), (bottom, top)):
            yield put(plan, with_operand(task, field, at, replace(region, rows=rows))), {task.id}


@mutation("bounds")
def no_such_buffer(plan: Plan) -> Mutants:
    for task, field, at, region in each_operand(plan):
        for lost in (replace(region, buffer="nowhere"), replace(region, gpu=plan.num_gpus)):
            yield put(plan, with_operand(task, field, at, lost)), {task.id}


@mutation("shape")
def unequal_shapes(plan: Plan) -> Mutants:
    for task, field, at, region in each_operand(plan):
        (top, bottom), (west, east) = region.rows, region.cols
        if bottom - top > 1:
            smaller = replace(region, rows=(top, bottom - 1))
            yield put(plan, with_operand(task, field, at, smaller)), {task.id}
        if east - west > 1:
            smaller = replace(region, cols=(west, east - 1))
            yield put(plan, with_operand(task, field, at, smaller)), {task.id}


@mutation("data", "unwritten", "race", every=False, wrong=True)
def wrong_source_of_the_right_size(plan: Plan) -> Mutants:
    for task, field, at, region in each_operand(plan):
        if field in {"src", "a"}:
            for other in (moved(region, down=1), moved(region, down=-1), moved(region, right=-1)):
                if inside(buffer_of(plan, region), other):
                    mutant = put(plan, with_operand(task, field, at, other))
                    yield mutant, concerned(plan, task.id)


@mutation("data", "unwritten", "race", "output", "overwrite", "shape", every=False, wrong=True)
def wrong_destination_of_the_right_size(plan: Plan) -> Mutants:
    for task, field, at, region in each_operand(plan):
        if field in {"dst", "c"}:
            for other in (moved(region, down=1), moved(region, down=-1), moved(region, right=-1)):
                if inside(buffer_of(plan, region), other):
                    mutant = put(plan, with_operand(task, field, at, other))
                    yield mutant, concerned(plan, task.id)


def swapped(plan: Plan, kind: type, field: str) -> Mutants:
    found = [x for x in each_operand(plan) if isinstance(x[0], kind) and x[1] == field]
    for i, (task, _, at, region) in enumerate(found):
        for other, _, at_other, region_other in found[i + 1 :]:
            if (
                other.id != task.id
                and other.queue.gpu == task.queue.gpu
                and region.shape == region_other.shape
                and region != region_other
            ):
                mutant = put(
                    plan,
                    with_operand(task, field, at, region_other),
                    with_operand(other, field, at_other, region),
                )
                yield mutant, concerned(plan, task.id, other.id)


@mutation("data", "unwritten", "race", every=False, wrong=True)
def swapped_sources_of_transfers(plan: Plan) -> Mutants:
    if plan.workload.pattern not in REDUCTIONS:
        yield from swapped(plan, Transfer, "src")


@mutation("data", "unwritten", "race", every=False, wrong=True)
def swapped_destinations_of_transfers(plan: Plan) -> Mutants:
    if plan.workload.pattern not in REDUCTIONS:
        yield from swapped(plan, Transfer, "dst")


@mutation("data", "unwritten", "race", every=False, wrong=True)
def swapped_inputs_of_gemms(plan: Plan) -> Mutants:
    yield from swapped(plan, Gemm, "a")


@mutation("data", "unwritten", "race", every=False, wrong=True)
def swapped_outputs_of_gemms(plan: Plan) -> Mutants:
    yield from swapped(plan, Gemm, "c")


@mutation("data", every=False, wrong=True)
def swapped_rows_put_back(plan: Plan) -> Mutants:
    for task in plan.tasks:
        if isinstance(task, LocalCopy):
            for i, region in enumerate(task.dst[1:], start=1):
                if region.shape == task.dst[0].shape and region != task.dst[0]:
                    dst = (region, *task.dst[1:i], task.dst[0], *task.dst[i + 1 :])
                    yield put(plan, replace(task, dst=dst)), concerned(plan, task.id)


@mutation("output", "unwritten", "data", every=False, wrong=True)
def last_row_left_out(plan: Plan) -> Mutants:
    for task in plan.tasks:
        if isinstance(task, Gemm) and not task.accumulate and len(task.a) == 1:
            a, c = task.a[0], task.c[0]
            if a.shape[0] > 1:
                a = replace(a, rows=(a.rows[0], a.rows[1] - 1))
                c = replace(c, rows=(c.rows[0], c.rows[1] - 1))
                yield put(plan, replace(task, a=(a,), c=(c,))), concerned(plan, task.id)
        if isinstance(task, LocalCopy) and len(task.dst) > 1:
            short = replace(task, src=task.src[:-1], dst=task.dst[:-1])
            yield put(plan, short), concerned(plan, task.id)


# --- products ----------------------------------------------------------------------------------


@mutation("unwritten", wrong=True)
def accumulates_onto_nothing(plan: Plan) -> Mutants:
    for task in plan.tasks:
        if not isinstance(task, Transfer) and not task.accumulate:
            yield put(plan, replace(task, accumulate=True)), {task.id}


@mutation("overwrite", "shape", "data", every=False, wrong=True)
def does_not_accumulate(plan: Plan) -> Mutants:
    for task in plan.tasks:
        if not isinstance(task, Transfer) and task.accumulate:
            before = {
                other.id for other in plan.tasks if other.id in task.deps and isinstance(other, Gemm)
            }
            yield put(plan, replace(task, accumulate=False)), concerned(plan, task.id) | before


@mutation("data", every=False, wrong=True)
def added_twice(plan: Plan) -> Mutants:
    for task in plan.tasks:
        if isinstance(task, Gemm):
            twin = replace(task, id=f"{task.id}.again", accumulate=True, deps=(*task.deps, task.id))
            last = twin.id
            mutant = inserted_after(plan, task.id, twin)
            # all that waited for the first now waits for both
            waiting = (t for t in mutant.tasks if task.id in t.deps and t.id != last)
            mutant = put(mutant, *(replace(t, deps=(*t.deps, last)) for t in waiting))
            yield mutant, {twin.id, task.id}
        elif isinstance(task, LocalCopy) and task.accumulate:
            src, dst = (*task.src, task.src[0]), (*task.dst, task.dst[0])
            yield put(plan, replace(task, src=src, dst=dst)), {task.id}


@mutation("data", wrong=True)
def shifted_rows_of_b(plan: Plan) -> Mutants:
    for task in plan.tasks:
        if isinstance(task, Gemm):
            for down in (-1, 1):
                b = moved(task.b, down=down)
                if inside(buffer_of(plan, b), b):
                    yield put(plan, replace(task, b=b)), {task.id}


@mutation("data", every=False, wrong=True)
def swapped_rows_of_b(plan: Plan) -> Mutants:
    yield from swapped(plan, Gemm, "b")


# --- places ------------------------------------------------------------------------------------


@mutation("shape")
def queue_of_another_gpu(plan: Plan) -> Mutants:
    for task in plan.tasks:
        for gpu in {(task.queue.gpu + 1) % plan.num_gpus, plan.num_gpus} - {task.queue.gpu}:
            yield put(plan, replace(task, queue=replace(task.queue, gpu=gpu))), {task.id}


@mutation("shape")
def wrong_engine(plan: Plan) -> Mutants:
    wrong = {Transfer: ("compute",), Gemm: ("dma", "core"), LocalCopy: ()}
    for task in plan.tasks:
        for engine in wrong[type(task)]:
            yield put(plan, replace(task, queue=replace(task.queue, engine=engine))), {task.id}


@mutation("shape", "bounds")
def transfer_to_its_own_gpu(plan: Plan) -> Mutants:
    for task in plan.tasks:
        if isinstance(task, Transfer):
            yield put(plan, replace(task, src=replace(task.src, gpu=task.dst.gpu))), {task.id}


@mutation("shape", "bounds")
def operand_on_another_gpu(plan: Plan) -> Mutants:
    for task, field, at, region in each_operand(plan):
        gpu = (region.gpu + 1) % plan.num_gpus
        if gpu != region.gpu and not (isinstance(task, Transfer) and field == "src"):
            yield put(plan, with_operand(task, field, at, replace(region, gpu=gpu))), {task.id}


@mutation("shape", every=False)
def element_types_that_differ(plan: Plan) -> Mutants:
    for i, buffer in enumerate(plan.buffers):
        dtype = "fp32" if buffer.dtype != "fp32" else "fp16"
        buffers = list(plan.buffers)
        buffers[i] = replace(buffer, dtype=dtype)
        users = {
            task.id
            for task, _, _, region in each_operand(plan)
            if (region.gpu, region.buffer) == (buffer.gpu, buffer.name)
        }
        if users:
            yield replace(plan, buffers=tuple(buffers)), users


# --- batches -----------------------------------------------------------------------------------


@mutation("shape")
def entry_without_a_place(plan: Plan) -> Mutants:
    for task in plan.tasks:
        if isinstance(task, Gemm):
            yield put(plan, replace(task, c=task.c[:-1])), {task.id}
            yield put(plan, replace(task, a=(), c=())), {task.id}
        if isinstance(task, LocalCopy):
            yield put(plan, replace(task, dst=task.dst[:-1])), {task.id}
            yield put(plan, replace(task, src=(), dst=())), {task.id}


@mutation("shape")
def entries_that_write_the_same_place(plan: Plan) -> Mutants:
    for task in plan.tasks:
        match task:
            case Gemm():
                yield (
                    put(plan, replace(task, a=(*task.a, task.a[-1]), c=(*task.c, task.c[-1]))),
                    {task.id},
                )
            case LocalCopy() if not task.accumulate:
                src, dst = (*task.src, task.src[0]), (*task.dst, task.dst[0])
                yield put(plan, replace(task, src=src, dst=dst)), {task.id}


@mutation("shape")
def kernel_that_reads_what_it_writes(plan: Plan) -> Mutants:
    for task in plan.tasks:
        if isinstance(task, LocalCopy) and not task.accumulate:
            yield put(plan, replace(task, dst=(*task.dst[:-1], task.src[-1]))), {task.id}
        if isinstance(task, Gemm) and task.a[0].shape == task.c[0].shape:
            yield put(plan, replace(task, c=(task.a[0], *task.c[1:]))), {task.id}


# -----------------------------------------------------------------------------------------------


def words(text):
    return set(re.findall(r"[^\s,'\"]+", text.replace(":", " ")))


def sample_plans(schedule):
    """Plans with each feature: staging, puts back, accumulation, batches, forwarding, one gpu."""
    shape = workload_for(schedule, m=12, n=12, k=12, dtype="bf16")
    return [
        plan_of(schedule, shape, num_gpus, num_chunks=2, gather=gather)
        for num_gpus, gather in ((3, "direct"), (3, "copy"), (2, "direct"), (1, "direct"))
    ]


def applies(mutation, schedule):
    return any(next(mutation.make(plan), None) for plan in sample_plans(schedule))


MUTATED = (
    *EVERY_SCHEDULE,
    "serial exchange",
    "hetero-fused-1d exchange",
    "uniform-unfused-2d exchange",
    "uniform-batched-1d exchange",
    "all_to_all direct",
    "reduce_scatter direct",
    "all_reduce ring",
    "all_reduce ring-two-way-split",
)
PAIRS = [(schedule, m) for schedule in MUTATED for m in MUTATIONS if applies(m, schedule)]


class TestMutations:
    @pytest.mark.parametrize(
        ("schedule", "mutation"), PAIRS, ids=lambda value: getattr(value, "name", value)
    )
    @given(data=st.data())
    @examples(4)
    def test_is_refused_by_name(self, schedule, mutation, data):
        drawn = plans(schedule, min_gpus=2, max_gpus=4, max_chunks=3, max_m=16)
        plan = data.draw(st.sampled_from(sample_plans(schedule)) | drawn, label="plan")
        mutants = list(islice(mutation.make(plan), 400))
        assume(mutants)
        mutant, names = data.draw(st.sampled_from(mutants), label="mutant")
        problems = find_problems(mutant)
        assert problems
        found = [p for p in problems if p.kind in mutation.kinds]
        assert found, problems
        said = [words(p.message) | {*p.tasks} for p in found]
        if mutation.every:
            assert any(names <= heard for heard in said), (names, problems)
        else:
            texts = [p.message for p in found]
            assert any(name in heard for heard in said for name in names) or any(
                name in text for name in names if " " in name for text in texts
            ), (names, problems)
        with pytest.raises(PlanError) as caught:
            check_plan(mutant)
        assert str(caught.value).startswith(f"{mutant.schedule}: {problems[0].kind}: ")
        assert problems[0].message in str(caught.value)
        if mutation.wrong:
            suspects = [*names & {task.id for task in mutant.tasks}]
            orders = [early_order(mutant, suspect) for suspect in sorted(suspects)[:4]]
            orders += [legal_order(mutant, seed) for seed in range(2)]
            assert not all(gives_right_numbers(mutant, order) for order in orders)

    def test_every_mutation_applies_to_some_schedule(self):
        assert {m.name for _, m in PAIRS} == {m.name for m in MUTATIONS}
        most = {"dropped_dep", "cycle", "two_writers", "missing_task", "swapped_sources_of_transfers"}
        for name in FICCO:
            assert most <= {m.name for schedule, m in PAIRS if schedule == name}

    @given(st.data())
    @examples(600)
    def test_what_is_accepted_is_right_in_every_order(self, data):
        """Several changes at once, harmless and not: soundness, judged by the numbers."""
        schedule = data.draw(st.sampled_from([*EVERY_SCHEDULE, *EXCHANGES, *COLLECTIVES]))
        plan = data.draw(plans(schedule, min_gpus=2, max_gpus=3, max_chunks=3, max_m=9))
        changes = [m.make for m in MUTATIONS] + HARMLESS * 4 + UNCERTAIN * 4
        for _ in range(data.draw(st.integers(1, 4))):
            change = data.draw(st.sampled_from(changes))
            try:
                mutants = list(islice(change(plan), 60))
            except (PlanError, LookupError):  # it needs an undamaged plan
                continue
            if mutants:
                plan = data.draw(st.sampled_from(mutants))[0]
        if not find_problems(plan):
            assert right_in_every_order(plan, orders=2)


# --- changes that leave a plan right -----------------------------------------------------------


def dep_that_others_imply(plan: Plan) -> Mutants:
    for task in plan.tasks:
        for dep in task.deps:
            mutant = put(plan, replace(task, deps=tuple(d for d in task.deps if d != dep)))
            if dep in ancestors(mutant, task.id):
                yield mutant, {task.id, dep}


def dep_more_than_needed(plan: Plan) -> Mutants:
    for task in plan.tasks:
        for before in sorted(ancestors(plan, task.id)):
            yield put(plan, replace(task, deps=(*task.deps, before))), {task.id, before}


def another_queue(plan: Plan) -> Mutants:
    for task in plan.tasks:
        queue = replace(task.queue, index=task.queue.index + 50)
        yield put(plan, replace(task, queue=queue)), {task.id}


def another_order_of_the_list(plan: Plan) -> Mutants:
    for seed in range(3):
        yield replace(plan, tasks=tuple(legal_order(plan, seed))), set()


def other_names(plan: Plan) -> Mutants:
    yield (
        replace(
            plan,
            tasks=tuple(
                replace(task, id=f"{task.id}!", deps=tuple(f"{dep}!" for dep in task.deps))
                for task in plan.tasks
            ),
        ),
        set(),
    )


def transfer_in_two_parts(plan: Plan) -> Mutants:
    for task in plan.tasks:
        if isinstance(task, Transfer) and task.src.shape[0] > 1:
            cut = (
                lambda region: replace(region, rows=(region.rows[0], region.rows[0] + 1)),
                lambda region: replace(region, rows=(region.rows[0] + 1, region.rows[1])),
            )
            first = replace(task, src=cut[0](task.src), dst=cut[0](task.dst))
            second = replace(
                task,
                id=f"{task.id}.rest",
                src=cut[1](task.src),
                dst=cut[1](task.dst),
                queue=replace(task.queue, index=task.queue.index + 50),
            )
            mutant = inserted_after(put(plan, first), task.id, second)
            waiting = (t for t in mutant.tasks if task.id in t.deps)
            yield put(mutant, *(replace(t, deps=(*t.deps, second.id)) for t in waiting)), {task.id}


def gemm_in_two_parts(plan: Plan) -> Mutants:
    """Half of k first, then the other half, added."""
    for task in plan.tasks:
        k = task.b.shape[0] if isinstance(task, Gemm) else 0
        if k > 1:
            middle = k // 2
            a1 = tuple(replace(a, cols=(a.cols[0], a.cols[0] + middle)) for a in task.a)
            a2 = tuple(replace(a, cols=(a.cols[0] + middle, a.cols[1])) for a in task.a)
            row = task.b.rows[0]
            b1 = replace(task.b, rows=(row, row + middle))
            b2 = replace(task.b, rows=(row + middle, task.b.rows[1]))
            first = replace(task, id=f"{task.id}.half", a=a1, b=b1)
            second = replace(task, a=a2, b=b2, accumulate=True, deps=(*task.deps, first.id))
            at = PlanIndex(plan).position[task.id]
            tasks = (*plan.tasks[:at], first, second, *plan.tasks[at + 1 :])
            yield replace(plan, tasks=tasks), {task.id}


# --- changes that may leave a plan right or not --------------------------------------------------


def same_tile_elsewhere(plan: Plan) -> Mutants:
    """Both ends of a copy moved alike, or cut alike."""
    for task in plan.tasks:
        if not isinstance(task, Gemm):
            for at, region in enumerate(operands(task)["src"]):
                target = operands(task)["dst"][at]
                for new, new_target in (
                    (moved(region, down=1), moved(target, down=1)),
                    (moved(region, down=-1), moved(target, down=-1)),
                    (grown(region, 1), grown(target, 1)),
                    (grown(region, -1), grown(target, -1)),
                ):
                    both = with_operand(task, "src", at, new)
                    yield put(plan, with_operand(both, "dst", at, new_target)), {task.id}


def same_product_elsewhere(plan: Plan) -> Mutants:
    """Rows of A and C moved or cut alike; columns of A and rows of B likewise."""
    for task in plan.tasks:
        if isinstance(task, Gemm):
            for at, (a, c) in enumerate(zip(task.a, task.c, strict=False)):
                for new_a, new_c in (
                    (moved(a, down=1), moved(c, down=1)),
                    (grown(a, 1), grown(c, 1)),
                    (grown(a, -1), grown(c, -1)),
                ):
                    both = with_operand(task, "a", at, new_a)
                    yield put(plan, with_operand(both, "c", at, new_c)), {task.id}
            for by in (-1, 1):
                a = tuple(moved(a, right=by) for a in task.a)
                yield put(plan, replace(task, a=a, b=moved(task.b, down=by))), {task.id}


def grown(region: Region, by: int) -> Region:
    return replace(region, rows=(region.rows[0], region.rows[1] + by))


def any_dep_dropped(plan: Plan) -> Mutants:
    for task in plan.tasks:
        for dep in task.deps:
            yield put(plan, replace(task, deps=tuple(d for d in task.deps if d != dep))), {task.id}


def any_dep_added(plan: Plan) -> Mutants:
    for task in plan.tasks:
        for other in plan.tasks:
            yield put(plan, replace(task, deps=(*task.deps, other.id))), {task.id}


def two_tasks_change_places(plan: Plan) -> Mutants:
    for i, one in enumerate(plan.tasks):
        for j, other in enumerate(plan.tasks[:i]):
            order = [*plan.tasks]
            order[i], order[j] = other, one
            yield replace(plan, tasks=tuple(order)), {one.id, other.id}


def queue_of_another_task(plan: Plan) -> Mutants:
    for task in plan.tasks:
        for queue in {other.queue: None for other in plan.tasks if other.queue.gpu == task.queue.gpu}:
            yield put(plan, replace(task, queue=queue)), {task.id}


def flipped_accumulate(plan: Plan) -> Mutants:
    for task in plan.tasks:
        if isinstance(task, Gemm):
            yield put(plan, replace(task, accumulate=not task.accumulate)), {task.id}


UNCERTAIN = [
    same_tile_elsewhere,
    same_product_elsewhere,
    any_dep_dropped,
    any_dep_added,
    two_tasks_change_places,
    queue_of_another_task,
    flipped_accumulate,
]

HARMLESS = [
    dep_that_others_imply,
    dep_more_than_needed,
    another_queue,
    another_order_of_the_list,
    other_names,
    transfer_in_two_parts,
    gemm_in_two_parts,
]


class TestRightPlans:
    @pytest.mark.parametrize("change", HARMLESS, ids=lambda change: change.__name__)
    @given(data=st.data())
    @examples(40)
    def test_harmless_change_is_accepted(self, change, data):
        plan = data.draw(plans(max_gpus=4, max_chunks=3, max_m=16))
        mutants = list(islice(change(plan), 200))
        assume(mutants)
        mutant, _ = data.draw(st.sampled_from(mutants))
        check_plan(mutant)
        assert right_in_every_order(mutant)

    def test_dep_that_the_queue_implies_is_told_from_one_that_it_does_not(self):
        plan = plan_of("uniform-unfused-2d", workload_for("serial"), 2, num_chunks=2)
        before, after = (task for task in plan.tasks if task.id.startswith("gemm.g0.s1."))
        assert before.id in after.deps
        implied = replace(after, deps=tuple(dep for dep in after.deps if dep != before.id))
        check_plan(put(plan, implied))
        elsewhere = replace(implied, queue=replace(after.queue, index=1))
        problems = find_problems(put(plan, elsewhere))
        assert ("race", {before.id, after.id}) in [(p.kind, {*p.tasks}) for p in problems]

    def test_no_task_at_all_is_right_where_one_gpu_has_everything(self):
        plan = plan_of("all-gather", workload_for("all-gather"), 1)
        assert plan.tasks == ()
        check_plan(plan)


@st.composite
def tilings(draw, rows, cols):
    """Cut a rectangle into rectangles, at any place, again and again."""
    tall, wide = rows[1] - rows[0] > 1, cols[1] - cols[0] > 1
    if not (tall or wide) or draw(st.integers(0, 3)) == 0:
        return [(rows, cols)]
    if tall and (not wide or draw(st.booleans())):
        at = draw(st.integers(rows[0] + 1, rows[1] - 1))
        return draw(tilings((rows[0], at), cols)) + draw(tilings((at, rows[1]), cols))
    at = draw(st.integers(cols[0] + 1, cols[1] - 1))
    return draw(tilings(rows, (cols[0], at))) + draw(tilings(rows, (at, cols[1])))


@st.composite
def tiled_plans(draw):
    """Serial on one gpu, but A comes to the GEMM through a staging buffer, tile by tile."""
    workload = workload_for("serial", m=draw(st.integers(2, 6)), k=draw(st.integers(2, 6)))
    plan = plan_of("serial", workload, 1)
    (gemm,) = plan.tasks
    whole = gemm.a[0]
    tiles = draw(st.permutations(draw(tilings(whole.rows, whole.cols))))
    sources = tuple(replace(whole, rows=rows, cols=cols) for rows, cols in tiles)
    copies = tuple(
        LocalCopy(
            id=f"copy.{i}",
            queue=gemm.queue,
            src=(src,),
            dst=(replace(src, buffer="staged"),),
        )
        for i, src in enumerate(sources)
    )
    staged = Buffer(gpu=0, name="staged", rows=workload.m, cols=workload.k, dtype=workload.dtype)
    gemm = replace(gemm, a=(replace(whole, buffer="staged"),))
    return replace(plan, buffers=(*plan.buffers, staged), tasks=(*copies, gemm))


@st.composite
def blocked_products(draw):
    """One gpu, C in blocks of rows and columns, each the sum of products over cuts of k.

    B comes to the GEMMs through a larger buffer, a few rows down and a few columns to the right.
    """
    m, n, k = (draw(st.integers(1, 5)) for _ in range(3))
    plan = plan_of("serial", workload_for("serial", m, n, k), 1)
    (gemm,) = plan.tasks
    down, right = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    larger = Buffer(gpu=0, name="larger", rows=k + 3, cols=n + 3, dtype=plan.workload.dtype)
    there = replace(moved(gemm.b, down, right), buffer="larger")
    tasks = [LocalCopy(id="copy", queue=gemm.queue, src=(gemm.b,), dst=(there,))]
    for i, (rows, cols) in enumerate(draw(tilings((0, m), (0, n)))):
        cuts = sorted({0, k, *draw(st.sets(st.integers(0, k), max_size=2))})
        for lo, hi in draw(st.permutations(list(pairwise(cuts)))):
            tasks.append(
                replace(
                    gemm,
                    id=f"gemm.{i}.{lo}",
                    a=(replace(gemm.a[0], rows=rows, cols=(lo, hi)),),
                    b=replace(
                        there, rows=(lo + down, hi + down), cols=(cols[0] + right, cols[1] + right)
                    ),
                    c=(replace(gemm.c[0], rows=rows, cols=cols),),
                    accumulate=tasks[-1].id.startswith(f"gemm.{i}."),
                )
            )
    return replace(plan, buffers=(*plan.buffers, larger), tasks=tuple(tasks))


class TestDataInPieces:
    @given(blocked_products())
    @examples(80)
    def test_any_blocks_of_a_product_are_accepted(self, plan):
        check_plan(plan)
        assert right_in_every_order(plan, orders=1)

    @given(blocked_products(), st.data())
    @examples(80)
    def test_one_block_from_the_wrong_place_is_refused(self, plan, data):
        task = data.draw(st.sampled_from(plan.tasks[1:]))
        field = data.draw(st.sampled_from("ab"))
        wrong = moved(getattr(task, field) if field == "b" else task.a[0], *data.draw(
            st.sampled_from([(1, 0), (-1, 0), (0, 1), (0, -1)])
        ))  # fmt: skip
        assume(inside(buffer_of(plan, wrong), wrong))
        mutant = put(plan, with_operand(task, field, 0, wrong))
        assert not gives_right_numbers(mutant, mutant.tasks)
        assert any(task.id in p.tasks for p in find_problems(mutant))

    @given(tiled_plans())
    @examples(60)
    def test_any_tiling_is_accepted(self, plan):
        check_plan(plan)
        assert right_in_every_order(plan, orders=1)

    @given(tiled_plans(), st.data())
    @examples(60)
    def test_one_tile_from_the_wrong_place_is_refused(self, plan, data):
        copies = plan.tasks[:-1]
        task = data.draw(st.sampled_from(copies))
        down, right = data.draw(st.sampled_from([(1, 0), (-1, 0), (0, 1), (0, -1)]))
        wrong = moved(task.src[0], down=down, right=right)
        assume(inside(buffer_of(plan, wrong), wrong))
        mutant = put(plan, replace(task, src=(wrong,)))
        assert not gives_right_numbers(mutant, mutant.tasks)
        problems = find_problems(mutant)
        assert {p.kind for p in problems} == {"data"}
        assert any("gemm.g0" in p.tasks or task.id in p.tasks for p in problems)


def has_tokens(schedule):
    return plan_of(schedule, workload_for(schedule), 2).workload.tokens is not None


class TestWorkload:
    """A plan that is consistent in itself but does something else than its workload."""

    @pytest.mark.parametrize(
        ("schedule", "change"),
        [
            (schedule, change)
            for schedule in EVERY_SCHEDULE
            for change in ("m", "k", "n", "dtype", "num_gpus")
            if (schedule, change) != ("all-gather", "n")  # it multiplies nothing
        ],
    )
    @pytest.mark.parametrize("by", [-1, 1])
    def test_another_workload(self, schedule, change, by):
        plan = plan_of(schedule, workload_for(schedule), 3, num_chunks=2)
        if change == "num_gpus":
            other = replace(plan, num_gpus=3 + by)
        elif change == "dtype":
            other = replace(plan, workload=replace(plan.workload, dtype="fp16"))
        else:
            size = getattr(plan.workload, change) + by
            other = replace(plan, workload=replace(plan.workload, **{change: size}))
        with pytest.raises(PlanError, match="gpu"):
            check_plan(other)

    @pytest.mark.parametrize("num_gpus", [0, -1, 2**62])
    def test_impossible_number_of_gpus(self, num_gpus):
        plan = plan_of("all-gather", workload_for("all-gather"), 1)
        with pytest.raises(PlanError, match="gpu"):
            check_plan(replace(plan, num_gpus=num_gpus, buffers=(), inputs=(), outputs=()))

    @pytest.mark.parametrize("schedule", EVERY_SCHEDULE)
    def test_output_that_nobody_asks_to_be_right(self, schedule):
        plan = plan_of(schedule, workload_for(schedule), 3, num_chunks=2)
        name = "a" if schedule == "all-gather" else "c"
        for i, region in enumerate(plan.outputs):
            if region.buffer == name:
                less = replace(plan, outputs=plan.outputs[:i] + plan.outputs[i + 1 :])
                with pytest.raises(PlanError, match=f"gpu {region.gpu} {name}.*outputs"):
                    check_plan(less)
                part = replace(region, rows=(0, region.rows[1] - 1))
                less = replace(plan, outputs=(*plan.outputs[:i], part, *plan.outputs[i + 1 :]))
                with pytest.raises(PlanError, match=rf"gpu {region.gpu} {name}\[12:13.*outputs"):
                    check_plan(less)

    @pytest.mark.parametrize("schedule", EVERY_SCHEDULE)
    def test_data_that_nobody_has_at_the_start(self, schedule):
        plan = plan_of(schedule, workload_for(schedule), 3, num_chunks=2)
        for i in range(len(plan.inputs)):
            less = replace(plan, inputs=plan.inputs[:i] + plan.inputs[i + 1 :])
            with pytest.raises(PlanError):
                check_plan(less)

    @pytest.mark.parametrize("schedule", sorted({*EVERY_SCHEDULE} - {"side-by-side"}))
    def test_data_that_is_where_it_has_to_be_sent(self, schedule):
        plan = plan_of(schedule, workload_for(schedule), 3, num_chunks=2)
        everywhere = tuple(
            replace(region, rows=(0, 13)) if region.buffer == "a" else region for region in plan.inputs
        )
        with pytest.raises(PlanError, match="a twice"):
            check_plan(replace(plan, inputs=everywhere))

    def test_input_outside_its_buffer_and_buffer_declared_twice(self):
        plan = plan_of("serial", workload_for("serial"), 2)
        outside = replace(plan.inputs[0], rows=(0, 99))
        with pytest.raises(PlanError, match=r"input gpu 0 a\[0:99"):
            check_plan(replace(plan, inputs=(outside, *plan.inputs[1:])))
        with pytest.raises(PlanError, match="two buffers gpu 0 'a'"):
            check_plan(replace(plan, buffers=(*plan.buffers, plan.buffers[0])))
        for wrong in ({"dtype": "bf17"}, {"rows": -1}, {"gpu": 2}):
            extra = replace(plan.buffers[0], name="extra", **wrong)
            with pytest.raises(PlanError, match="'extra'"):
                check_plan(replace(plan, buffers=(*plan.buffers, extra)))

    @pytest.mark.parametrize(
        ("schedule", "change"),
        [
            (schedule, change)
            for schedule in (*EXCHANGES, *COLLECTIVES)
            for change in ("m", "k", "n", "dtype", "num_gpus", "tokens")
            # collectives multiply nothing, and m follows from the tokens where there are any
            if not (schedule in COLLECTIVES and change == "n")
            and (change not in {"m", "tokens"} or (change == "tokens") == has_tokens(schedule))
        ],
    )
    def test_another_exchange_or_collective(self, schedule, change):
        plan = plan_of(schedule, workload_for(schedule), 3, num_chunks=2)
        w = plan.workload
        others = {
            "num_gpus": [replace(plan, num_gpus=p) for p in (0, 2, 4, 2**62)],
            "dtype": [replace(plan, workload=replace(w, dtype="fp16"))],
        }
        if change == "tokens":
            more = [list(row) for row in w.tokens]
            more[1][1] += 1
            busiest = max(map(sum, zip(*more, strict=True)))
            tokens = tuple(map(tuple, more))
            others["tokens"] = [replace(plan, workload=replace(w, tokens=tokens, m=busiest))]
        elif change not in others:
            sizes = [getattr(w, change) + by for by in (-1, 1)]
            others[change] = [replace(plan, workload=replace(w, **{change: size})) for size in sizes]
        for other in others[change]:
            with pytest.raises(PlanError, match="gpu"):
                check_plan(other)

    @pytest.mark.parametrize(
        "schedule", sorted({*EVERY_SCHEDULE, *EXCHANGES, "all_to_all direct"} - {"all-gather"})
    )
    def test_result_that_is_there_from_the_start(self, schedule):
        """Without a single task, every output would be what it is declared to be."""
        plan = plan_of(schedule, workload_for(schedule), 3, num_chunks=2)
        given_away = replace(plan, inputs=(*plan.inputs, *plan.outputs), tasks=())
        with pytest.raises(PlanError, match="is an input, but the workload wants it as a result"):
            check_plan(given_away)


class TestMessages:
    def test_first_problems_and_the_number_of_the_others(self):
        plan = plan_of("serial", workload_for("serial"), 4)
        broken = replace(
            plan,
            tasks=tuple(
                replace(t, queue=replace(t.queue, engine="compute")) if isinstance(t, Transfer) else t
                for t in plan.tasks
            ),
        )
        assert len(find_problems(broken)) == 12
        with pytest.raises(PlanError) as caught:
            check_plan(broken)
        lines = str(caught.value).splitlines()
        assert len(lines) == 9
        assert lines[0] == "serial: shape: task xfer.g0.s1: a transfer needs a dma or core queue"
        assert lines[-1] == "serial: and 4 more problems"

    def test_deadlock_says_who_waits_for_whom(self):
        plan = plan_of("serial", workload_for("serial"), 2)
        by_id = {task.id: task for task in plan.tasks}
        one, other = by_id["xfer.g0.s1"], by_id["xfer.g1.s0"]
        stuck = put(plan, replace(one, deps=(other.id,)), replace(other, deps=(one.id,)))
        (problem,) = find_problems(stuck)
        assert problem.kind == "deadlock"
        assert sorted(problem.tasks) == ["xfer.g0.s1", "xfer.g1.s0"]
        assert problem.message == "xfer.g0.s1 waits for xfer.g1.s0 waits for xfer.g0.s1"

    def test_a_long_cycle_is_found(self):
        plan = plan_of("serial", workload_for("serial"), 1)
        (gemm,) = plan.tasks
        chain = tuple(
            replace(gemm, id=f"t{i}", deps=(f"t{(i + 1) % 2000}",), queue=replace(gemm.queue, index=i))
            for i in range(2000)
        )
        (problem,) = find_problems(replace(plan, tasks=chain))
        assert set(problem.tasks) == {task.id for task in chain}

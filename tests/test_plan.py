"""Layer: plan. Regions, the index of a plan, and plans to JSON and back, also from damaged text."""

import itertools
import json
import os
import subprocess
import sys
from dataclasses import fields, replace

import networkx as nx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import (
    COLLECTIVES,
    EVERY_SCHEDULE,
    EXCHANGES,
    ancestors,
    examples,
    gives_right_numbers,
    plan_of,
    plans,
    put,
    workload_for,
)

from ficco_sim.check import check_plan, find_problems
from ficco_sim.errors import FiccoError, FileError, PlanError
from ficco_sim.plan import Gemm, LocalCopy, Plan, PlanIndex, Queue, Region, Transfer, load_plan
from ficco_sim.reference import legal_order

SMALL = plan_of("hetero-fused-1d", workload_for("hetero-fused-1d"), 3, num_chunks=2, gather="copy")

intervals = st.tuples(st.integers(0, 6), st.integers(0, 6)).map(lambda pair: tuple(sorted(pair)))
regions = st.builds(
    Region, gpu=st.integers(0, 1), buffer=st.sampled_from("ab"), rows=intervals, cols=intervals
)


def cells(region):
    return {
        (region.gpu, region.buffer, row, col)
        for row in range(*region.rows)
        for col in range(*region.cols)
    }


def toy_plan(num_tasks, edges=(), queues=()):
    """Tasks t0, t1, ... of no meaning, for what is about order alone."""
    region = Region(gpu=0, buffer="a", rows=(0, 1), cols=(0, 1))
    tasks = tuple(
        LocalCopy(
            id=f"t{i}",
            queue=Queue(gpu=0, engine="compute", index=queues[i] if queues else i),
            src=(region,),
            dst=(region,),
            deps=tuple(f"t{before}" for before, after in edges if after == i),
        )
        for i in range(num_tasks)
    )
    return replace(SMALL, tasks=tasks)


class TestRegion:
    @given(regions, regions)
    def test_overlap_is_a_shared_element(self, one, other):
        assert one.overlaps(other) == other.overlaps(one)
        if one.num_elements and other.num_elements:
            assert one.overlaps(other) == bool(cells(one) & cells(other))

    @given(regions)
    def test_size(self, region):
        assert region.num_elements == len(cells(region)) == region.shape[0] * region.shape[1]

    def test_text_names_gpu_buffer_and_place(self):
        region = Region(gpu=3, buffer="in1", rows=(4, 6), cols=(0, 8))
        assert str(region) == "gpu 3 in1[4:6, 0:8]"
        assert str(Queue(gpu=3, engine="dma", index=1)) == "g3.dma1"


class TestTasks:
    def test_reads_and_writes(self):
        a, b, c = (Region(gpu=0, buffer=name, rows=(0, 2), cols=(0, 2)) for name in ("a", "b", "c"))
        queue = Queue(gpu=0, engine="compute", index=0)
        gemm = Gemm(id="g", queue=queue, a=(a,), b=b, c=(c,))
        assert (gemm.reads, gemm.writes) == ((a, b), (c,))
        assert replace(gemm, accumulate=True).reads == (a, b, c)
        copy = LocalCopy(id="l", queue=queue, src=(a, b), dst=(c, c))
        assert (copy.reads, copy.writes) == ((a, b), (c, c))
        transfer = Transfer(id="x", queue=queue, src=a, dst=c)
        assert (transfer.reads, transfer.writes) == ((a,), (c,))

    @given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 9), st.integers(1, 9))
    def test_flops_are_those_of_all_batch_entries(self, rows, n, k):
        starts = [0, *itertools.accumulate(rows)]
        entries = [(lo, hi) for lo, hi in itertools.pairwise(starts)]
        gemm = Gemm(
            id="g",
            queue=Queue(gpu=0, engine="compute", index=0),
            a=tuple(Region(gpu=0, buffer="a", rows=x, cols=(0, k)) for x in entries),
            b=Region(gpu=0, buffer="b", rows=(0, k), cols=(0, n)),
            c=tuple(Region(gpu=0, buffer="c", rows=x, cols=(0, n)) for x in entries),
        )
        assert gemm.entry_rows == tuple(rows)
        assert gemm.flops == sum(2 * m * n * k for m in rows)


class TestIndex:
    def test_duplicate_id_is_named(self):
        plan = replace(SMALL, tasks=(*SMALL.tasks, SMALL.tasks[0]))
        with pytest.raises(PlanError, match=r"two tasks have the id 'gemm\.g0\.own'"):
            PlanIndex(plan)

    def test_unknown_dep_is_named_with_its_task(self):
        plan = put(SMALL, replace(SMALL.tasks[0], deps=("nobody",)))
        with pytest.raises(PlanError, match=r"'gemm\.g0\.own' depends on 'nobody'"):
            PlanIndex(plan)

    @given(st.data())
    def test_topological_order_agrees_with_networkx(self, data):
        num_tasks = data.draw(st.integers(1, 8))
        task = st.integers(0, num_tasks - 1)
        edges = data.draw(st.sets(st.tuples(task, task), max_size=12))
        queues = data.draw(st.lists(st.integers(0, 3), min_size=num_tasks, max_size=num_tasks))
        plan = toy_plan(num_tasks, edges, queues)
        graph = plan.graph()
        same_queue = {
            (f"t{i}", f"t{j}")
            for i, j in itertools.combinations(range(num_tasks), 2)
            if queues[i] == queues[j] and queues[i] not in queues[i + 1 : j]
        }
        assert set(graph.edges) == {(f"t{i}", f"t{j}") for i, j in edges} | same_queue
        order, stuck = PlanIndex(plan).topological_order()
        assert sorted(order + stuck) == list(range(num_tasks))
        place = {f"t{i}": at for at, i in enumerate(order)}
        assert all(place[before] < place[after] for before, after in graph.edges if after in place)
        on_cycle = {
            node
            for part in nx.strongly_connected_components(graph)
            for node in part
            if len(part) > 1 or graph.has_edge(node, node)
        }
        behind = on_cycle.union(*(nx.descendants(graph, node) for node in on_cycle))
        assert {f"t{i}" for i in stuck} == behind

    @given(plans(max_gpus=4, max_chunks=4, max_m=20))
    @examples(20)
    def test_graph_of_a_schedule_is_its_index(self, plan):
        graph = plan.graph()
        assert list(graph) == [task.id for task in plan.tasks]
        assert nx.is_directed_acyclic_graph(graph)
        for task in plan.tasks[-1:]:
            assert nx.ancestors(graph, task.id) == ancestors(plan, task.id)


class TestJson:
    @pytest.mark.parametrize("schedule", [*EVERY_SCHEDULE, *EXCHANGES, *COLLECTIVES])
    @given(data=st.data())
    @examples(6)
    def test_round_trip_is_exact(self, schedule, data):
        plan = data.draw(plans(schedule, max_gpus=5, max_chunks=5))
        again = Plan.from_json(plan.to_json())
        assert again == plan
        assert again.fingerprint == plan.fingerprint
        assert again.to_json() == plan.to_json()

    def test_round_trip_of_an_all_to_all_workload_and_odd_texts(self):
        workload = replace(
            SMALL.workload,
            pattern="all_to_all_gemm",
            m=5,
            tokens=((1, 2), (4, 0)),
            name='quote " and \u00fcmlaut \U0001f600',
            num_tokens=3,
        )
        plan = replace(SMALL, workload=workload, knobs={"a": 1, "b": "1", "": "\n"})
        assert Plan.from_json(plan.to_json()) == plan

    def test_load_plan_reads_what_to_json_wrote(self, tmp_path):
        path = tmp_path / "plan.json"
        path.write_text(SMALL.to_json(), encoding="utf-8")
        assert load_plan(path) == SMALL

    def test_task_kinds_survive(self):
        # a transfer and a local copy of one region have the same fields but for the kind
        kinds = {type(task) for task in SMALL.tasks}
        assert kinds == {Transfer, LocalCopy, Gemm}
        again = Plan.from_json(SMALL.to_json())
        assert [type(task) for task in again.tasks] == [type(task) for task in SMALL.tasks]


class TestFingerprint:
    def test_is_the_hash_of_sorted_json(self):
        document = json.loads(SMALL.to_json())
        again = Plan.from_json(json.dumps(dict(reversed(document.items())), indent=3))
        assert again.fingerprint == SMALL.fingerprint
        turned = replace(SMALL, knobs=dict(reversed(SMALL.knobs.items())))
        assert turned == SMALL
        assert turned.fingerprint == SMALL.fingerprint
        assert len(SMALL.fingerprint) == 64
        assert set(SMALL.fingerprint) <= set("0123456789abcdef")

    def test_is_the_same_in_another_process(self):
        code = (
            "import sys; from ficco_sim.plan import Plan; "
            "print(Plan.from_json(sys.stdin.read()).fingerprint)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            input=SMALL.to_json(),
            env=os.environ | {"PYTHONHASHSEED": "7"},
            text=True,
            capture_output=True,
            check=True,
        )
        assert done.stdout.strip() == SMALL.fingerprint

    def test_every_field_counts(self):
        task = SMALL.tasks[0]
        changed = {
            "format_version": 2,
            "schedule": "other",
            "knobs": SMALL.knobs | {"num_chunks": 3},
            "workload": replace(SMALL.workload, name="other"),
            "num_gpus": 4,
            "buffers": SMALL.buffers[1:],
            "inputs": SMALL.inputs[1:],
            "outputs": SMALL.outputs[1:],
            "tasks": SMALL.tasks[1:],
        }
        assert set(changed) == {f.name for f in fields(Plan)}
        prints = {replace(SMALL, **{key: value}).fingerprint for key, value in changed.items()}
        prints.add(put(SMALL, replace(task, deps=("x",))).fingerprint)
        prints.add(replace(SMALL, tasks=SMALL.tasks[::-1]).fingerprint)
        assert len(prints) == len(changed) + 2
        assert SMALL.fingerprint not in prints


def paths_of(node, path=()):
    """Every place of a JSON document, as keys and positions from the top."""
    yield path
    if isinstance(node, dict):
        for key, value in node.items():
            yield from paths_of(value, (*path, key))
    elif isinstance(node, list):
        for i, value in enumerate(node):
            yield from paths_of(value, (*path, i))


def at(document, path):
    for part in path:
        document = document[part]
    return document


def written(path):
    """A place as error messages write it: tasks[0].b.rows[1]."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def alike(path):
    """Places that differ only by their position in a list, but for the kind of a task."""
    kind = DOCUMENT["tasks"][path[1]]["kind"] if path[:1] == ("tasks",) and path[1:] else ""
    return kind, tuple(part if isinstance(part, str) else 0 for part in path)


DOCUMENT = json.loads(SMALL.to_json())
# the last one of those alike, so that the position in the message is tested as well
PLACES = list({alike(path): path for path in paths_of(DOCUMENT)}.values())
DEFAULTED = {"deps", "kind", "accumulate", "format_version", "dtype", "tokens", "num_tokens"}
DEFAULTED |= {"model", "layer", "parallelism", "source"}
GEMM = next(i for i, task in enumerate(SMALL.tasks) if isinstance(task, Gemm))


class TestDamagedJson:
    """Nothing but our own errors comes out, and they name the place."""

    def refused(self, document):
        with pytest.raises((PlanError, FileError)) as caught:
            Plan.from_json(json.dumps(document), "some.json")
        return str(caught.value)

    @pytest.mark.parametrize("path", [p for p in PLACES if isinstance(at(DOCUMENT, p), dict)])
    def test_unknown_key(self, path):
        document = json.loads(SMALL.to_json())
        at(document, path)["surprise"] = {"x": 1}
        message = self.refused(document)
        if path == ("knobs",):  # any knob may be there, but its value is a number or a text
            assert "some.json: knobs.surprise" in message
        else:
            assert message == f"some.json: {written((*path, 'surprise'))}: unknown key"

    @pytest.mark.parametrize(
        "path",
        [
            p
            for p in PLACES
            if p and isinstance(p[-1], str) and p[-1] not in DEFAULTED and p[0] != "knobs"
        ],
        ids=written,
    )
    def test_missing_key(self, path):
        document = json.loads(SMALL.to_json())
        del at(document, path[:-1])[path[-1]]
        assert self.refused(document) == f"some.json: {written(path)}: missing"

    @pytest.mark.parametrize("path", [p for p in PLACES if p], ids=written)
    def test_wrong_type(self, path):
        for value in (1.5, True, None, [], {}):
            document = json.loads(SMALL.to_json())
            old = at(document, path)
            if (
                type(old) is type(value)
                or value == old
                or (value is None and path[-1] in ("tokens", "num_tokens"))
                or (old is None and path[-1] == "num_tokens")
            ):
                continue
            at(document, path[:-1])[path[-1]] = value
            message = self.refused(document)
            # a list of the wrong length is named as a whole, so the place may be that of a part
            assert f"some.json: {written(path)}" in message.replace("workload: ", "workload.")

    @pytest.mark.parametrize(
        ("path", "value", "said"),
        [
            (("format_version",), 2, "format_version: 2"),
            (("tasks", GEMM, "kind"), "gemmm", f"tasks[{GEMM}].kind: 'gemmm'"),
            (("tasks", GEMM, "queue", "engine"), "gpu", f"tasks[{GEMM}].queue.engine: 'gpu'"),
            (("tasks", GEMM, "b", "rows"), [0], f"tasks[{GEMM}].b.rows[1]: missing"),
            (("tasks", GEMM, "b", "rows"), [0, 1, 2], f"tasks[{GEMM}].b.rows"),
            (("tasks", GEMM, "b", "rows", 1), "7", f"tasks[{GEMM}].b.rows[1]: '7'"),
            (("tasks", GEMM, "b", "rows", 1), 2**63, f"tasks[{GEMM}].b.rows[1]"),
            (("workload", "m"), 0, "workload: m: 0"),
            (("workload", "pattern"), "gather", "workload.pattern: 'gather'"),
            (("num_gpus",), float("nan"), "num_gpus: nan"),
            (("knobs", "num_chunks"), True, "knobs.num_chunks"),
        ],
    )  # fmt: skip
    def test_wrong_value(self, path, value, said):
        document = json.loads(SMALL.to_json())
        at(document, path[:-1])[path[-1]] = value
        assert f"some.json: {said}" in self.refused(document)

    @pytest.mark.parametrize("key", ["queue", "b", "a", "c"])
    def test_only_the_meant_kind_of_task_is_talked_about(self, key):
        document = json.loads(SMALL.to_json())
        del document["tasks"][GEMM][key]
        assert self.refused(document) == f"some.json: tasks[{GEMM}].{key}: missing"

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("", "line 1: not JSON"),
            ("{", "line 1: not JSON"),
            ('{\n"schedule": nope}', "line 2: not JSON"),
            ("[" * 100_000, "nested too deeply"),
            ("[" * 100 + "]" * 100, "nested too deeply"),
            ('{"num_gpus": ' + "1" * 5000 + "}", "not JSON"),
            ('{"num_gpus": 1, "num_gpus": 2}', "'num_gpus' occurs twice"),
            ('{"num_gpus": NaN}', "num_gpus: nan is not a finite number"),
            ('{"num_gpus": 1e999}', "num_gpus: inf is not a finite number"),
            (r'{"schedule": "\ud800"}', "some.json"),
            ("null", "should be an object"),
            ("[]", "should be an object"),
        ],
    )
    def test_other_text(self, text, said):
        with pytest.raises((PlanError, FileError), match=said) as caught:
            Plan.from_json(text, "some.json")
        assert str(caught.value).startswith("some.json: ")

    @given(st.integers(0, len(SMALL.to_json()) - 2))
    def test_truncated(self, length):
        with pytest.raises((PlanError, FileError), match=r"some\.json: .*not JSON"):
            Plan.from_json(SMALL.to_json()[:length], "some.json")

    @given(st.integers(0, len(SMALL.to_json())), st.integers(0, 5), st.text(max_size=3))
    @examples(200)
    def test_edited_text(self, start, cut, new):
        text = SMALL.to_json()
        self.only_own_errors(text[:start] + new + text[start + cut :])

    @given(st.data())
    @examples(300)
    def test_edited_document(self, data):
        """Whatever is accepted still computes what its workload asks for."""
        document = json.loads(SMALL.to_json())
        for _ in range(data.draw(st.integers(1, 2))):
            path = data.draw(st.sampled_from([p for p in paths_of(document) if p]))
            parent, key = at(document, path[:-1]), path[-1]
            old = parent[key]
            if isinstance(old, int) and data.draw(st.booleans()):
                parent[key] = old + data.draw(st.integers(-2, 2))
            elif data.draw(st.integers(0, 2)) == 0:
                del parent[key]
            elif data.draw(st.booleans()):
                other = data.draw(
                    st.sampled_from([p for p in paths_of(document) if p[-1:] == path[-1:]])
                )
                parent[key] = json.loads(json.dumps(at(document, other)))
            else:
                parent[key] = data.draw(
                    st.none()
                    | st.booleans()
                    | st.integers()
                    | st.floats()
                    | st.text(max_size=3)
                    | st.just([])
                    | st.just({})
                )
        self.only_own_errors(json.dumps(document))

    def only_own_errors(self, text):
        try:
            plan = Plan.from_json(text)
        except FiccoError:
            return
        if find_problems(plan):
            with pytest.raises(PlanError):
                check_plan(plan)
            return
        check_plan(plan)
        # a buffer may have become larger than memory
        assume(sum(b.rows * b.cols for b in plan.buffers) < 10**5)
        assert all(gives_right_numbers(plan, legal_order(plan, seed)) for seed in range(2))

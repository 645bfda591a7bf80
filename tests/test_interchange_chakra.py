"""Layer: plan. Plans as Chakra traces: read by a reader of our own, they say what the plan says."""

import sys
import tempfile
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from chakra_reader import Node, read_trace
from hypothesis import given
from strategies import EVERY_SCHEDULE, examples, plan_of, plans, workload_for

from ficco_sim.cli import main
from ficco_sim.comparison import evaluate_plan
from ficco_sim.costs import CostModel
from ficco_sim.errors import FileError, PlanError
from ficco_sim.interchange import chakra, chakra_format, write_chakra
from ficco_sim.machine import load_machine
from ficco_sim.plan import Plan, PlanIndex, Transfer, buffer_bytes
from ficco_sim.schedules import make_plan
from ficco_sim.workload import get_workload

TYPES = {
    "is_cpu_op": "bool",
    "num_ops": "int64",
    "tensor_size": "uint64",
    "comm_size": "int64",
    "comm_src": "int32",
    "comm_dst": "int32",
    "comm_tag": "int32",
}
Key = tuple[int, int]  # gpu and node id


def written(plan: Plan) -> list[list[Node]]:
    """The traces of a plan, as read back from files."""
    with tempfile.TemporaryDirectory() as folder:
        files = write_chakra(Path(folder) / "et", plan)
        assert [file.name for file in files] == [f"plan.{gpu}.et" for gpu in range(plan.num_gpus)]
        assert sorted(files) == sorted((Path(folder) / "et").iterdir())
        traces = []
        for gpu, file in enumerate(files):
            metadata, nodes = read_trace(file)
            assert metadata == {
                "schedule": plan.schedule,
                "workload": plan.workload.name,
                "plan_fingerprint": plan.fingerprint,
                "gpu": gpu,
                "num_gpus": plan.num_gpus,
            }
            traces.append(nodes)
    return traces


def paired(traces: list[list[Node]]) -> dict[int, dict[str, tuple[int, Node]]]:
    """Messages by tag: the gpu and node of each end."""
    messages: dict[int, dict[str, tuple[int, Node]]] = defaultdict(dict)
    for gpu, nodes in enumerate(traces):
        for node in nodes:
            if node.type != "COMP":
                ends = messages[node.attributes["comm_tag"]]
                assert node.type not in ends
                ends[node.type] = gpu, node
    return messages


def ends_of(plan: Plan, traces: list[list[Node]]) -> tuple[dict[str, Key], dict[str, Key]]:
    """Where each task starts and where it has ended."""
    at = {node.name: (gpu, node.id) for gpu, nodes in enumerate(traces) for node in nodes}
    starts, ends = {}, {}
    for task in plan.tasks:
        moves = isinstance(task, Transfer)
        starts[task.id] = at[f"{task.id}.send" if moves else task.id]
        ends[task.id] = at[f"{task.id}.recv" if moves else task.id]
    return starts, ends


def ancestors(traces: list[list[Node]]) -> dict[Key, set[Key]]:
    """All nodes that have ended before a node starts, over all files; fails on a cycle."""
    before: dict[Key, set[Key]] = {}
    sends = {tag: (ends["SEND"][0], ends["SEND"][1].id) for tag, ends in paired(traces).items()}
    nodes = {(gpu, node.id): node for gpu, trace in enumerate(traces) for node in trace}
    waits = {
        key: {(key[0], dep) for dep in (*node.data_deps, *node.ctrl_deps)}
        | ({sends[node.attributes["comm_tag"]]} if node.type == "RECV" else set())
        for key, node in nodes.items()
    }
    left = dict(waits)
    while left:
        free = [key for key, deps in left.items() if deps <= before.keys()]
        assert free, "the traces wait for each other in a circle"
        for key in free:
            del left[key]
            before[key] = waits[key].union(*(before[dep] for dep in waits[key]))
    return before


def check(plan: Plan) -> None:
    """Everything that holds of the traces of any plan."""
    traces = written(plan)
    element_bytes = buffer_bytes(plan)
    starts, ends = ends_of(plan, traces)
    nodes = {(gpu, node.id): node for gpu, trace in enumerate(traces) for node in trace}
    for trace in traces:
        assert [node.id for node in trace] == list(range(1, len(trace) + 1))
        for node in trace:
            # what a node waits for is before it in the file, once; queue order is a part of it
            assert all(0 < dep < node.id for dep in node.data_deps)
            assert len(set(node.data_deps)) == len(node.data_deps)
            assert set(node.ctrl_deps) <= set(node.data_deps)
            assert node.types == {name: TYPES[name] for name in node.types}
            assert node.attributes["is_cpu_op"] == 0
    # messages: two ends each, on the gpus that they name, of one size
    signals = 0
    for message in paired(traces).values():
        (src, send), (dst, receive) = message["SEND"], message["RECV"]
        assert send.attributes == receive.attributes
        assert (send.attributes["comm_src"], send.attributes["comm_dst"]) == (src, dst)
        assert src != dst
        assert send.name.removesuffix(".send") == receive.name.removesuffix(".recv")
        assert send.attributes["comm_size"] > 0
        if ".ready.g" in send.name:
            assert send.attributes["comm_size"] == chakra.SIGNAL_BYTES
            signals += 1
    transfers = [task for task in plan.tasks if isinstance(task, Transfer)]
    assert len(paired(traces)) == len(transfers) + signals
    # every task is there, with its bytes and operations
    for task in plan.tasks:
        node = nodes[starts[task.id]]
        size = {
            region: region.num_elements * element_bytes[region.gpu, region.buffer]
            for region in (*task.reads, *task.writes)
        }
        if isinstance(task, Transfer):
            assert node.attributes["comm_size"] == size[task.src]
            assert (starts[task.id][0], ends[task.id][0]) == (task.src.gpu, task.dst.gpu)
            continue
        assert node.type == "COMP"
        assert starts[task.id][0] == task.queue.gpu
        assert node.attributes["tensor_size"] == sum(size[r] for r in (*task.reads, *task.writes))
        if task.kind == "gemm":
            assert node.attributes["num_ops"] == task.flops
        else:
            assert node.attributes["num_ops"] > 0
    counts = Counter(node.type for trace in traces for node in trace)
    assert counts["COMP"] == len(plan.tasks) - len(transfers)
    # order: a task waits for the ends of exactly those that it waits for in the plan
    index = PlanIndex(plan)
    order, _ = index.topological_order()
    earlier: dict[int, set[int]] = {}
    for i in order:
        direct = index.predecessors[i]
        earlier[i] = set(direct).union(*(earlier[j] for j in direct))
    before = ancestors(traces)
    for i, task in enumerate(plan.tasks):
        found = {other.id for other in plan.tasks if ends[other.id] in before[starts[task.id]]}
        assert found == {plan.tasks[j].id for j in earlier[i]}, task.id


@pytest.mark.parametrize("schedule", EVERY_SCHEDULE)
def test_traces_of_every_schedule_say_what_the_plan_says(schedule):
    check(plan_of(schedule, workload_for(schedule), 3, compute_queues=2, copy_queues=1))


@examples(25)
@given(plan=plans(max_gpus=4, max_chunks=3))
def test_traces_of_any_plan_say_what_the_plan_says(plan):
    check(plan)


def test_a_relayed_plan_is_exported_like_any_other():
    machine = load_machine("ring_8")
    plan = plan_of("serial", workload_for("serial", m=40), 8)
    check(evaluate_plan(plan, machine, CostModel(machine), intervals=False).plan)


def test_a_gpu_that_pulls_tells_the_sender_when_its_queue_gets_there():
    """Two shards come one after another on one queue: the second owner sends when told."""
    plan = plan_of("shard-p2p", workload_for("shard-p2p"), 3)
    traces = written(plan)
    pulls = [t for t in plan.tasks if isinstance(t, Transfer) and t.queue.gpu == 0]
    first, second = pulls
    names = {node.id: node.name for node in traces[second.src.gpu]}
    (send,) = (n for n in traces[second.src.gpu] if n.name == f"{second.id}.send")
    assert [names[dep] for dep in send.data_deps] == [f"{second.id}.ready.g0.recv"]
    names = {node.id: node.name for node in traces[0]}
    (signal,) = (n for n in traces[0] if n.name == f"{second.id}.ready.g0.send")
    assert [names[dep] for dep in signal.data_deps] == [f"{first.id}.recv"]
    (receive,) = (n for n in traces[0] if n.name == f"{second.id}.recv")
    assert [names[dep] for dep in receive.ctrl_deps] == [f"{first.id}.recv"]


def test_the_same_plan_gives_the_same_bytes(tmp_path):
    plan = make_plan("hetero-fused-1d", get_workload("llama3-70b-tp8-qkv-4k"), 8)
    for name in ("a", "b"):
        write_chakra(tmp_path / name, plan)
    for gpu in range(8):
        one, other = (tmp_path / name / f"plan.{gpu}.et" for name in ("a", "b"))
        assert one.read_bytes() == other.read_bytes()


def test_a_large_plan_keeps_its_sizes(tmp_path):
    """Sizes beyond 32 bits: 2 m n k and bytes of a whole operator."""
    plan = make_plan("serial", get_workload("llama3-70b-tp8-qkv-32k"), 8)
    (file, *_) = write_chakra(tmp_path / "et", plan)
    _, nodes = read_trace(file)
    gemm = next(node for node in nodes if node.name == "gemm.g0")
    assert gemm.attributes["num_ops"] == 2 * 32768 * 1280 * 8192
    assert gemm.attributes["tensor_size"] == 2 * (32768 * 8192 + 8192 * 1280 + 32768 * 1280)


def test_tasks_that_wait_in_a_circle_are_refused(tmp_path):
    plan = plan_of("serial", workload_for("serial"), 2)
    first, *rest = plan.tasks
    circular = replace(plan, tasks=(replace(first, deps=(rest[-1].id,)), *rest))
    last = replace(rest[-1], deps=(first.id,))
    circular = replace(circular, tasks=(*circular.tasks[:-1], last))
    with pytest.raises(PlanError, match="wait for each other in a circle"):
        write_chakra(tmp_path / "et", circular)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("prepare", "words"), [
    (lambda p: p.write_text("mine"), "is a file, not a folder"),
    (lambda p: (p.mkdir(), (p / "old").write_text("mine")), "the folder is not empty"),
])  # fmt: skip
def test_what_is_there_stays(prepare, words, tmp_path):
    plan = plan_of("serial", workload_for("serial"), 2)
    folder = tmp_path / "et"
    prepare(folder)
    with pytest.raises(FileError, match=words):
        write_chakra(folder, plan)
    assert list(tmp_path.iterdir()) == [folder]
    kept = folder if folder.is_file() else folder / "old"
    assert kept.read_text() == "mine"


def test_a_folder_needs_a_parent(tmp_path):
    with pytest.raises(FileError, match=f"no folder {tmp_path}/no"):
        write_chakra(tmp_path / "no" / "et", plan_of("serial", workload_for("serial"), 2))


def test_an_empty_folder_is_filled(tmp_path):
    folder = tmp_path / "et"
    folder.mkdir()
    assert len(write_chakra(folder, plan_of("serial", workload_for("serial"), 2))) == 2


@pytest.mark.parametrize("there", [False, True])
def test_a_failure_on_the_way_leaves_nothing(there, tmp_path, monkeypatch):
    plan = plan_of("serial", workload_for("serial"), 3)
    calls = []
    folder = tmp_path / "et"
    if there:
        folder.mkdir()

    def fails(*arguments):
        calls.append(arguments)
        if len(calls) == 5:
            raise OSError(28, "No space left on device")
        return b"\x01\x00"

    monkeypatch.setattr(chakra, "encode_node", fails)
    with pytest.raises(FileError) as caught:
        write_chakra(folder, plan)
    assert str(caught.value) == f"{folder}: cannot be written: No space left on device"
    assert list(tmp_path.rglob("*")) == ([folder] if there else [])


def test_the_command_line_writes_them(tmp_path, capsys):
    folder = tmp_path / "et"
    asked = ["plan", "hetero-unfused-1d", "--gemm", "64,32,16", "--num-gpus", "4"]
    assert main([*asked, "--chakra", str(folder)]) == 0
    assert f"wrote {folder}/plan.0.et to plan.3.et" in capsys.readouterr().out
    assert len(list(folder.iterdir())) == 4
    assert main([*asked, "--chakra", str(folder)]) == 2
    error = capsys.readouterr().err
    assert error == f"ficco: error: {folder}: cannot be written: the folder is not empty\n"


def test_nothing_is_written_when_the_json_file_cannot_be(tmp_path, capsys):
    folder, json = tmp_path / "et", tmp_path / "no" / "plan.json"
    code = main(["plan", "serial", "--gemm", "8,8,8", "--chakra", str(folder), "--json", str(json)])
    assert code == 2
    assert capsys.readouterr().err.startswith(f"ficco: error: {json}: cannot be written: no folder")
    assert list(tmp_path.iterdir()) == []


def test_without_protobuf_the_extra_is_named_and_nothing_is_made(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "google.protobuf.descriptor_pb2", None)
    chakra_format._classes.cache_clear()
    folder = tmp_path / "et"
    argv = ["plan", "serial", "--gemm", "256,128,128", "--chakra", str(folder)]
    assert main(argv) == 2
    assert "pip install 'ficco[chakra]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    chakra_format._classes.cache_clear()

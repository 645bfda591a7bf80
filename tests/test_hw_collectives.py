"""Layer: CPU torch. What a user has without plans: all-gathers by NCCL, and GEMMs."""

import json
from collections import Counter
from dataclasses import fields, replace
from types import SimpleNamespace

import pytest
import torch
from test_gpu_backend import Fake

from ficco_sim.errors import HardwareError, ScenarioError
from ficco_sim.records import read_records
from ficco_sim.schedules import make_plan
from ficco_sim.workload import Workload
from hw_validate import collectives
from hw_validate.__main__ import main
from hw_validate.collectives import COLLECTIVES, PLAYED, prepare_collective
from hw_validate.cpu import CpuBackend
from hw_validate.executor import bind
from hw_validate.gpu import GpuBackend
from hw_validate.memory import random_inputs
from hw_validate.placement import parse_placement
from hw_validate.summary import CollectiveRow
from hw_validate.verify import verify

TINY = Workload(name="tiny", pattern="all_gather_gemm", m=64, n=6, k=10)
EACH = [("nccl-serial", 1), *((how, c) for how in COLLECTIVES[1:] for c in (2, 4))]
RUN = ["run", "--device", "cpu", "--gemm", "128,16,32", "--rounds", "2", "--collectives"]
FEW = ["--schedule", "serial,hetero-batched-1d", "--num-chunks", "2,4"]


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def hw(capsys, *arguments, code=0):
    assert main([str(argument) for argument in arguments]) == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.out + captured.err
    return captured


def bound_serial(num_gpus=4, where=None, workload=TINY, dtype="fp32"):
    plan = make_plan("serial", replace(workload, dtype=dtype), num_gpus, {})
    return bind(plan, parse_placement(where, num_gpus), CpuBackend())


def check_numbers(bound, ready):
    inputs = random_inputs(bound.plan, bound.placement, 1)
    bound.memory.load(inputs)
    ready.run()
    verify(bound.plan, bound.placement, inputs, bound.outputs())


# numbers


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("num_gpus", [1, 2, 4, 8])
@pytest.mark.parametrize(("how", "num_chunks"), EACH)
def test_every_version_computes_the_operator(how, num_chunks, num_gpus, dtype):
    bound = bound_serial(num_gpus, dtype=dtype)
    check_numbers(bound, prepare_collective(bound, how, num_chunks))


@pytest.mark.parametrize("how", COLLECTIVES)
def test_rows_that_do_not_arrive_or_arrive_in_other_places_are_seen(how, monkeypatch):
    """Buffers in between are poisoned too: what a first run left there must not pass."""
    copied = collectives._copied
    for wrong in (
        lambda *_: None,
        lambda sent, gathered: copied([part.clone() for part in sent[::-1]], gathered),
    ):
        bound = bound_serial()
        ready = prepare_collective(bound, how, 2)
        check_numbers(bound, ready)
        monkeypatch.setattr(collectives, "_copied", wrong)
        with pytest.raises(ValueError, match="is wrong by"):
            check_numbers(bound, ready)
        monkeypatch.setattr(collectives, "_copied", copied)


@pytest.mark.parametrize(
    ("made", "how", "num_chunks", "reason"),
    [
        (
            {"workload": replace(TINY, m=66)},
            "nccl-serial",
            1,
            "M = 66 must be a multiple of 4 gpus x 1",
        ),
        (
            {"workload": replace(TINY, m=68)},
            "nccl-batched",
            2,
            "M = 68 must be a multiple of 4 gpus x 2",
        ),
        ({"where": "0=dev0,1-3=host"}, "nccl-serial", 1, "a device of its own"),
        ({"where": "0-3=dev0"}, "nccl-fused", 2, "a device of its own"),
    ],
)
def test_what_it_cannot_do_is_refused(made, how, num_chunks, reason):
    with pytest.raises(ScenarioError, match=reason):
        prepare_collective(bound_serial(**made), how, num_chunks)


# on devices: streams, captures and NCCL are stand-ins, memory is the host's


class Nccl:
    """Copies at once, and notes what each gpu's stream had done before."""

    def __init__(self, fake):
        self.fake = fake
        self.calls = 0
        self.seen = {}

    def all_gather(self, sent, gathered, streams):
        name = f"gather{self.calls}"
        self.calls += 1
        assert len({stream.device for stream in streams}) == len(streams) == len(sent)
        collectives._copied(sent, gathered)
        for stream in streams:
            self.seen[name, stream.device] = stream.before
            stream.before |= {(name, stream.device)}


@pytest.fixture
def devices(monkeypatch):
    """Prepare a version on made-up devices; GEMMs note what was done before them."""

    def prepare(how, num_chunks, num_gpus=4, *, spans=False, library="2.28.9"):
        fake = Fake(monkeypatch)
        nccl = Nccl(fake)
        seen = {}
        gemm = collectives.operations.gemm

        def noted(*args, name, **how):
            launch = gemm(*args, name=name, **how)

            def run(stream):
                launch(stream)
                seen.setdefault(name, []).append(fake.submitted(name, stream))

            return run

        monkeypatch.setattr(collectives, "nccl", nccl)
        monkeypatch.setattr(collectives, "nccl_version", lambda: library)
        monkeypatch.setattr(collectives, "operations", SimpleNamespace(gemm=noted))
        bound = replace(bound_serial(num_gpus), backend=GpuBackend(range(num_gpus)))
        bound.memory.load(random_inputs(bound.plan, bound.placement, 1))
        return fake, nccl, seen, bound, prepare_collective(bound, how, num_chunks, spans=spans)

    return prepare


@pytest.mark.parametrize("spans", [False, True])
@pytest.mark.parametrize(("how", "num_chunks"), EACH)
def test_a_graph_a_gpu_in_which_each_gemm_follows_its_all_gather(devices, how, num_chunks, spans):
    fake, nccl, seen, bound, ready = devices(how, num_chunks, spans=spans)
    assert len(fake.graphs) == 4  # so that every gpu runs by itself, as with a process a gpu
    assert nccl.calls == 2 * num_chunks  # once before the capture, where communicators are made
    for gpu in range(4):
        for j in range(num_chunks):
            captured = seen[f"gemm.g{gpu}.s{j}"][1]
            gathers = {name for name, device in captured & nccl.seen.keys() if device == gpu}
            assert f"gather{num_chunks + j}" in gathers
            assert f"gather{num_chunks + j + 1}" not in gathers  # it does not wait for the next
            before_next = nccl.seen.get((f"gather{num_chunks + j + 1}", gpu), frozenset())
            # on a stream of its own: the next all-gather runs beside this GEMM
            assert f"gemm.g{gpu}.s{j}" not in before_next - nccl.seen[f"gather{num_chunks}", gpu]
    run = ready.run()
    assert run.makespan_s > 0
    assert len(run.spans) == (2 * 4 * num_chunks if spans else 0)
    launches = [entry for entry in fake.log if entry[0] == "launch"]
    assert len(launches) == 4
    ready.close()
    assert fake.graphs == []
    assert not any(event.alive for event in ready._events)
    inputs = random_inputs(bound.plan, bound.placement, 1)
    verify(bound.plan, bound.placement, inputs, bound.outputs())


def test_torch_without_nccl_says_so(devices):
    with pytest.raises(HardwareError, match="torch is built without NCCL"):
        devices("nccl-serial", 1, library=None)


@pytest.mark.parametrize("failing", ["first", "capture"])
def test_an_nccl_that_fails_is_an_error_of_the_hardware(devices, monkeypatch, failing):
    gather = Nccl.all_gather

    def fails(self, *args, **how):
        if failing == "first" or self.calls == 1:
            raise RuntimeError("NCCL Error 5: invalid usage\nmore")
        gather(self, *args, **how)

    monkeypatch.setattr(Nccl, "all_gather", fails)
    with pytest.raises(
        HardwareError, match="nccl-serial: NCCL or the capture of it failed: NCCL Error 5"
    ):
        devices("nccl-serial", 1)


def test_no_memory_is_told_apart(devices, monkeypatch):
    def fails(*_, **__):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(Nccl, "all_gather", fails)
    with pytest.raises(torch.OutOfMemoryError):
        devices("nccl-serial", 1)


# on the command line


@pytest.mark.parametrize("num_gpus", [1, 4, 8])
def test_versions_without_plans_stand_beside_the_plans(capsys, tmp_path, num_gpus):
    out = tmp_path / "run.jsonl"
    text = hw(capsys, *RUN, *FEW, "--num-gpus", num_gpus, "--engine", "dma,core", "--out", out).out
    measured = read_records(out).measurements
    found = [m for m in measured if m.kind == "collective"]
    assert all(m.usable for m in found)
    assert Counter((m.params["schedule"], m.params["num_chunks"]) for m in found) == Counter(
        {("nccl-serial", None): 1}
        | {(how, c): 1 for how in ("nccl-fused", "nccl-batched") for c in (2, 4)}
    )
    assert len({m.key for m in measured}) == len(measured)
    for m in found:
        assert PLAYED in m.labels
        assert m.params["engine"] == "nccl"
        steps = m.params["num_chunks"] or 1
        assert m.spans is not None
        assert len(m.spans.task_ids) == 2 * num_gpus * steps
    assert "without plans, by NCCL: all-gather, then GEMM" in text
    document = json.loads(hw(capsys, "summary", out, "--json", "-").out)
    (row,) = document["collectives"]
    assert list(row) == [field.name for field in fields(CollectiveRow)]
    assert "without plans, by NCCL" in hw(capsys, "summary", out).out


def test_unequal_parts_are_recorded_as_unusable_with_the_reason(capsys, tmp_path):
    out = tmp_path / "run.jsonl"
    options = ["--gemm", "36,16,32", *FEW, "--num-gpus", "4"]
    hw(capsys, "run", "--device", "cpu", "--rounds", "2", "--collectives", *options, "--out", out)
    found = [m for m in read_records(out).measurements if m.kind == "collective"]
    usable = {m.params["schedule"]: m.usable for m in found}
    assert usable == {"nccl-serial": True, "nccl-fused": False, "nccl-batched": False}
    assert all("M = 36 must be a multiple of 4 gpus x" in m.unusable[0] for m in found if not m.usable)


def test_collectives_need_a_device_a_gpu_and_something_to_gather(capsys, tmp_path):
    out = tmp_path / "run.jsonl"
    error = hw(capsys, *RUN, "--map", "switch", "--out", out, code=2).err
    assert "--collectives: every gpu needs a device of its own; add --map own" in error
    exchange = ["--workload", "mixtral-8x7b-ep8-gate-up-2k"]
    options = [*RUN[:3], *exchange, "--collectives", "--out", out]
    assert "--collectives: none of the workloads gathers" in hw(capsys, *options, code=2).err
    hw(capsys, *RUN, *FEW, "--map", "own", "--map", "switch", "--num-gpus", "4", "--out", out)
    kinds = Counter((m.kind, m.params["emulates"]) for m in read_records(out).measurements)
    assert kinds["collective", "own"] == 5
    assert ("collective", "switch") not in kinds

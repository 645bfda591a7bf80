"""Layer: CPU torch. The verb doctor and the look at copies: a made-up gpu behaves, or does not."""

import json
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from ficco_sim.errors import HardwareError
from hw_validate import doctor, environment, evidence, gpu
from hw_validate.__main__ import main
from hw_validate.cpu import CpuBackend
from hw_validate.evidence import Examiner
from hw_validate.peaks import Peaks
from hw_validate.placement import HOST, parse_placement
from hw_validate.program import Run, in_order

PEAK_FLOPS_PER_S = 1e12
LAUNCH_S = 1e-6
RATES = {"host": 50e9, "peer": 390e9, "same": 1000e9}


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in environment.VARIABLES:
        monkeypatch.delenv(name, raising=False)


def hw(capsys, *arguments, code=0):
    """Run the command line; what goes wrong is said without a traceback."""
    assert main([str(argument) for argument in arguments]) == code
    captured = capsys.readouterr()
    for text in (captured.out, captured.err):
        assert "Traceback" not in text
        assert "internal error" not in text
    return captured


def sentence(captured):
    """The one line of an error."""
    (line,) = captured.err.splitlines()
    assert captured.out == ""
    assert line.startswith("hw_validate: error: ")
    return line.removeprefix("hw_validate: error: ")


# a machine that cannot run anything

MEASURE = ["--gemm", "64,16,32", "--out", "out.jsonl"]
RUN = ["run", *MEASURE, "--schedule", "serial"]
VERBS = [["doctor"], RUN, ["microbench", *MEASURE]]


def torch_of(monkeypatch, stack="cuda", found=1):
    """What torch says of itself where it is built for a stack and finds gpus."""
    monkeypatch.setattr(torch.version, "cuda", "13.0" if stack == "cuda" else None)
    monkeypatch.setattr(torch.version, "hip", "6.4" if stack == "hip" else None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: found > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: found)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_without_torch(capsys, monkeypatch, verb):
    monkeypatch.setitem(sys.modules, "torch", None)
    text = sentence(hw(capsys, *verb, code=2))
    assert text.startswith("torch is not installed or does not load")
    assert "pip install 'ficco[hw]'" in text


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_torch_for_the_cpu(capsys, monkeypatch, verb):
    torch_of(monkeypatch, stack="cpu")
    text = sentence(hw(capsys, *verb, code=2))
    assert f"torch {torch.__version__} is a CPU build" in text
    assert "https://pytorch.org/get-started/locally" in text


@pytest.mark.parametrize("stack", ["cuda", "hip"])
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_no_gpu(capsys, monkeypatch, verb, stack):
    torch_of(monkeypatch, stack, found=0)
    text = sentence(hw(capsys, *verb, code=2))
    assert "finds no gpu; check the driver" in text


@pytest.mark.parametrize(
    ("verb", "needed"),
    [
        (["doctor", "--devices", "4"], 4),
        (RUN, 8),  # a device for each gpu unless there is a map
        ([*RUN, "--map", "switch"], 2),
        (["microbench", *MEASURE, "--devices", "3"], 3),
    ],
)
def test_too_few_gpus(capsys, monkeypatch, verb, needed):
    torch_of(monkeypatch)
    text = sentence(hw(capsys, *verb, code=2))
    assert f"{needed} gpus are needed and torch finds 1" in text
    assert "--map" in text


@pytest.mark.parametrize(("stack", "package"), [("cuda", "cuda-bindings"), ("hip", "hip-python")])
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_no_bindings(capsys, monkeypatch, verb, stack, package):
    torch_of(monkeypatch, stack, found=8)
    for name in [name for name in sys.modules if name.split(".")[0] == stack]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, stack, None)
    text = sentence(hw(capsys, *verb, code=2))
    assert text.startswith(f"{package} is not installed")
    assert f"install ficco[{stack}]" in text


def test_a_gpu_that_another_process_has_for_itself(capsys, monkeypatch):
    torch_of(monkeypatch)
    monkeypatch.setattr(environment, "load_runtime", lambda _: None)
    monkeypatch.setattr(gpu, "load_runtime", lambda _: None)

    def busy(_):
        raise RuntimeError("CUDA error: devices are busy or unavailable\nFor debugging consider")

    monkeypatch.setattr(torch.cuda, "synchronize", busy)
    text = sentence(hw(capsys, "doctor", code=2))
    assert text == "device 0 cannot be used: CUDA error: devices are busy or unavailable"


@pytest.mark.parametrize("count", [0, -1, 65])
def test_numbers_of_devices_that_make_no_sense(capsys, count):
    assert sentence(hw(capsys, "doctor", "--devices", count, code=2)).startswith(f"--devices: {count} ")


def test_files_can_be_read_without_torch(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    for verb in (["summary", "absent.jsonl"], ["compare", "absent.json", "absent.json"]):
        assert "absent" in sentence(hw(capsys, *verb, code=2))


# a machine without a gpu


def test_on_the_cpu_doctor_says_what_is_installed(capsys):
    text = hw(capsys, "doctor", "--device", "cpu").out
    assert f"torch: {torch.__version__}" in text
    document = json.loads(hw(capsys, "doctor", "--device", "cpu", "--json", "-").out)
    assert document["environment"]["device"] == "cpu"
    assert document["checks"] == []


def test_a_dry_run_touches_no_gpu(capsys, monkeypatch):
    for name in ("_lazy_init", "is_available", "device_count", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, None)
    text = hw(capsys, "doctor", "--dry-run").out
    assert all(name in text for name in doctor.CHECKS)
    assert "nothing was run" in text


# made-up gpus


class Made(CpuBackend):
    """Gpus whose copies and GEMMs take known times.

    Parameters
    ----------
    manners
        How copies from a place behave: ``engine`` (the default), ``kernel``: they and GEMMs slow one
        another; ``staged``: at the rate of the host, by an engine; ``wrong``: other data arrives.
    """

    kind = "gpu"
    labels = ()

    def __init__(self, devices=(0,), manners=None, dead_peers=(), hot=1.2, share_of_peak=0.8):
        super().__init__(dead_peers=dead_peers)
        self.devices = tuple(devices)
        self.manners = manners or {}
        self.slower_hot = hot
        self.share_of_peak = share_of_peak
        self.is_hot = False
        self.place_of = {}
        self.copies = []
        self.runtime = SimpleNamespace(can_access_peer=lambda a, b: (a, b) not in self.dead_peers)

    def empty(self, place, rows, cols, kind, *, transposed):
        made = super().empty(place, rows, cols, kind, transposed=transposed)
        self.place_of[made.data_ptr()] = place
        return made

    def manner(self, device, place):
        default = "kernel" if place == device else "engine"
        return self.manners.get((device, place), default)

    def transfer(self, src, dst, engine, device, **_):
        del engine  # the look at copies asks for either; manners say what comes of it
        place = self.place_of[src.data_ptr()]
        manner = self.manner(device, place)
        family = (
            "host" if place == HOST or manner == "staged" else "same" if place == device else "peer"
        )
        seconds = src.numel() * src.element_size() / RATES[family]

        def launch(_):
            dst.copy_(src.roll(1, 0) if manner == "wrong" else src)
            self.copies.append((seconds, manner))

        return launch

    def heat(self, _):
        self.is_hot = True

    def prepare(self, steps, *, graph, **_):
        return MadeRun(self, in_order(steps), graph=graph)


class MadeRun:
    def __init__(self, backend, steps, *, graph):
        self.backend = backend
        self.steps = steps
        self.graph = graph

    def run(self):
        slowed = {"copies": 1.0, "gemms": 1.0}
        lengths = {}
        for step in self.steps:
            self.backend.copies.clear()
            step.launch(0)
            copies = list(self.backend.copies)
            if copies:
                lengths[step.id] = sum(seconds for seconds, _ in copies)
            elif step.id.startswith("gemm"):
                flops = 2 * doctor.GEMM_SIZE**3
                lengths[step.id] = flops / PEAK_FLOPS_PER_S / self.backend.share_of_peak
                lengths[step.id] *= self.backend.slower_hot if self.backend.is_hot else 1
            else:
                lengths[step.id] = LAUNCH_S if self.graph else 10 * LAUNCH_S
            if copies and copies[0][1] == "kernel" and len(self.steps) == 2:
                slowed = {"copies": 4.0, "gemms": 1.3}
        spans = {name: (0.0, length * slowed.get(name, 1)) for name, length in lengths.items()}
        return Run(makespan_s=sum(lengths.values()), host_s=0.0, spans=spans)

    def close(self):
        self.steps = []


def on_the_cpu(make):
    def made(*args, **how):
        return make(*args, **{name: value for name, value in how.items() if name != "device"})

    return made


@pytest.fixture
def small(monkeypatch):
    """Small matrices, on the CPU whatever device is named."""
    monkeypatch.setattr(evidence, "SHAPE", (64, 32))
    monkeypatch.setattr(evidence, "GEMM_SIZE", 8)
    monkeypatch.setattr(evidence, "_on", lambda tensor, *_: tensor)
    monkeypatch.setattr(doctor, "GEMM_SIZE", 64)
    monkeypatch.setattr(doctor, "SHAPE", (64, 32))
    makers = {name: on_the_cpu(getattr(torch, name)) for name in ("randn", "zeros", "empty")}
    proxy = ModuleType("torch")
    vars(proxy).update(vars(torch) | makers)
    monkeypatch.setattr(doctor, "torch", proxy)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Abacus")
    monkeypatch.setattr(
        doctor, "peaks_of", lambda _: Peaks(name="abacus", flops_per_s={"bf16": PEAK_FLOPS_PER_S})
    )
    monkeypatch.setattr(
        doctor, "read_sensors", lambda _: SimpleNamespace(sm_clock_hz=1.5e9, power_w=600.0)
    )


@pytest.fixture
def examined(capsys, monkeypatch, small):
    """Examine made-up gpus with the command line."""

    def run(backend, *, code=0, facts=None):
        described = {"device": "Abacus"} | (facts or {})
        monkeypatch.setattr(environment, "require_gpu", lambda _: None)
        monkeypatch.setattr(doctor, "GpuBackend", lambda _: backend)
        monkeypatch.setattr(doctor, "collect_environment", lambda _: described)
        captured = hw(capsys, "doctor", "--devices", len(backend.devices), "--json", "-", code=code)
        document = json.loads(captured.out)
        assert document["environment"] == described
        found = {}
        for check in document["checks"]:
            assert set(check) == {"name", "severity", "text", "values"}
            found.setdefault(check["name"], []).append(check)
        bad = [c for checks in found.values() for c in checks if c["severity"] == "bad"]
        assert bool(bad) == (code == 2)
        if bad:
            total = len(document["checks"])
            assert captured.err == (
                f"hw_validate: error: {len(bad)} of {total} checks are bad: {bad[0]['text']}\n"
            )
        return found

    return run


@pytest.mark.usefixtures("small")
class TestExaminer:
    def test_an_engine_gives_no_finding(self):
        report = Examiner(Made((0, 1))).of_place(0, 1, "dma")
        assert report.equal
        assert report.direction == "dev1>dev0"
        assert report.bytes_per_s == pytest.approx(RATES["peer"])
        assert (report.copy_slowed, report.gemm_slowed) == (pytest.approx(1), pytest.approx(1))
        assert report.findings == ()
        assert "4.0 KiB equal, 390.0 GB/s" in report.text

    def test_a_kernel_is_no_engine(self):
        backend = Made((0, 1), {(0, 1): "kernel"})
        (finding,) = Examiner(backend).of_place(0, 1, "dma").findings
        assert finding.severity == "refuse"
        assert "dev1>dev0" in finding.text
        assert "copies take 4.00 times as long and the GEMM 1.30" in finding.text
        assert "copied by a kernel" in finding.text
        assert Examiner(backend).of_place(0, 1, "core").findings == ()  # a kernel was asked for

    def test_a_clock_that_moves_once_is_no_kernel(self, monkeypatch):
        beside_host = (1.0, 1.0)  # which copies between devices are compared with
        times = iter([(1.0, 1.3), (1.0, 1.02), beside_host])
        monkeypatch.setattr(Examiner, "_slowed", lambda *_: next(times))
        report = Examiner(Made((0, 1))).of_place(0, 1, "dma")
        assert (report.copy_slowed, report.gemm_slowed) == (1.0, 1.02)
        assert report.findings == ()
        assert next(times, None) is None

    def test_what_is_slowed_twice_is_refused(self, monkeypatch):
        monkeypatch.setattr(Examiner, "_slowed", lambda *_: (1.0, 1.3))
        (finding,) = Examiner(Made((0, 1))).of_place(0, 1, "dma").findings
        assert finding.severity == "refuse"

    @pytest.mark.parametrize("engine", ["dma", "core"])
    def test_wrong_data_is_refused(self, engine):
        report = Examiner(Made((0, 1), {(0, HOST): "wrong"})).of_place(0, HOST, engine)
        assert not report.equal
        assert [f.severity for f in report.findings] == ["refuse"]
        assert "host>dev0" in report.findings[0].text
        assert "does not arrive as it was sent" in report.findings[0].text
        assert "NOT equal" in report.text

    def test_copies_between_devices_as_slow_as_from_the_host_are_warned_of(self):
        examiner = Examiner(Made((0, 1), {(0, 1): "staged"}))
        (finding,) = examiner.of_place(0, 1, "dma").findings
        assert finding.severity == "warn"
        assert "dev1>dev0: 50.0 GB/s is no more than the 50.0 GB/s of copies from the host" in (
            finding.text
        )
        placement = parse_placement("0=dev0,1-3=dev1:shard", 4)
        found = examiner.of_plan(placement, "dma")
        assert found.warnings == (finding.text,)
        assert found.unusable == ()

    def test_a_plan_is_judged_by_all_places_that_it_reads(self):
        backend = Made((0, 1), {(0, HOST): "wrong", (0, 1): "kernel"})
        examiner = Examiner(backend)
        found = examiner.of_plan(parse_placement("0=dev0,1=dev1:shard,2-3=host", 4), "dma")
        assert len(found.texts) == 2
        assert len(found.unusable) == 2
        clean = examiner.of_plan(parse_placement("0=dev1,1-3=host", 4), "dma")
        assert clean.unusable == clean.warnings == ()
        own = examiner.of_plan(parse_placement("0-1=dev0", 2), "dma")
        assert "copied by a kernel" in own.unusable[0]

    def test_missing_peer_access_names_the_pair(self):
        backend = Made((0, 1), dead_peers=[(0, 1)])
        placement = parse_placement("0=dev0,1-3=dev1:shard", 4)
        found = Examiner(backend).of_plan(placement, "dma")
        assert found.texts == ()
        assert "device 0 has no peer access to device 1" in found.unusable[0]

    def test_every_pair_is_looked_at_once(self):
        backend = Made((0, 1))
        prepared = []
        prepare = backend.prepare
        backend.prepare = lambda *args, **how: prepared.append(1) or prepare(*args, **how)
        examiner = Examiner(backend)
        placement = parse_placement("0=dev0,1-3=dev1:shard", 4)
        first = examiner.of_plan(placement, "dma")
        count = len(prepared)
        assert examiner.of_plan(placement, "dma") == first
        assert len(prepared) == count > 0

    def test_on_the_cpu_nothing_is_claimed(self):
        found = Examiner(CpuBackend()).of_plan(parse_placement(None, 4), "dma")
        assert found.texts == ("not examined: the CPU plays all devices",)
        assert found.unusable == ()


def severities(checks):
    return [check["severity"] for check in checks]


def test_a_machine_in_order(examined):
    found = examined(Made((0, 1), hot=1.05))
    assert tuple(found) == doctor.CHECKS
    assert all(set(severities(found[name])) == {"good"} for name in found if name != "copies")
    by_direction = {check["values"]["direction"]: check for check in found["copies"]}
    assert set(by_direction) == {
        "host>dev0", "dev1>dev0", "dev0>dev0", "host>dev1", "dev0>dev1", "dev1>dev1",
    }  # fmt: skip
    for direction, check in by_direction.items():
        same = direction in ("dev0>dev0", "dev1>dev1")
        assert check["severity"] == ("warn" if same else "good")
        assert ("runs with the data there need --engine core" if same else ": by a copy engine") in (
            check["text"]
        )
    arithmetic = found["arithmetic"][0]
    assert arithmetic["values"]["share_of_peak"] == pytest.approx(0.8)
    assert "80% of the peak of 1" in arithmetic["text"]
    assert "1500 MHz, 600 W" in arithmetic["text"]
    (launching,) = found["launching"]
    assert launching["values"]["graph_step_s"] == pytest.approx(LAUNCH_S)
    assert launching["values"]["eager_step_s"] == pytest.approx(10 * LAUNCH_S)
    (maps,) = found["maps"]
    for name in ("own", "switch", "mesh", "host", "together"):
        assert name in maps["text"]


def test_a_machine_of_eight_gpus(examined):
    """Every pair of devices, each way, is looked at; nothing is known of two alone."""
    found = examined(Made(range(8), hot=1.05))
    directions = [check["values"]["direction"] for check in found["copies"]]
    pairs = {f"dev{a}>dev{b}" for a in range(8) for b in range(8)}
    assert sorted(directions) == sorted(pairs | {f"host>dev{d}" for d in range(8)})
    assert len(found["graphs"]) == len(found["arithmetic"]) == 8
    assert "bad" not in [severity for checks in found.values() for severity in severities(checks)]
    (exchange,) = found["exchange"]
    assert exchange["severity"] == "good"
    assert "all 8 devices read from all others at once" in exchange["text"]
    # made-up copies go one after another: seven of 56 are into each
    assert exchange["values"]["share_of_one_pair"] == pytest.approx(1 / 8)
    (maps,) = found["maps"]
    assert "plans for 8 gpus run as they are (--map own)" in maps["text"]


def test_a_link_slower_than_the_others_is_named(examined):
    slow = {(3, 5): "staged", (5, 3): "staged"}
    found = examined(Made(range(8), slow, hot=1.05))
    (exchange,) = found["exchange"]
    assert exchange["severity"] == "warn"
    assert (
        "dev5>dev3 alone has 50.0 GB/s where the median of all pairs is 390.0 GB/s" in exchange["text"]
    )
    assert severities(found["maps"]) == ["good"]


def test_one_pair_of_eight_gpus_without_peer_access_is_named(examined):
    found = examined(Made(range(8), dead_peers=[(6, 2)]), code=2)
    assert next(c["text"] for c in found["copies"] if c["severity"] == "bad").startswith(
        "device 6 has no peer access to device 2"
    )
    (maps,) = found["maps"]
    assert maps["severity"] == "warn"
    assert "devices without peer access: 6 to 2: no map" in maps["text"]
    assert severities(found["exchange"]) == ["bad"]


def test_of_several_gpus_the_slowest_is_read(monkeypatch):
    clocks = {0: 1980, 1: 1500, 2: 0}
    monkeypatch.setattr(torch.cuda, "clock_rate", lambda device: clocks[device])
    monkeypatch.setattr(torch.cuda, "power_draw", lambda device: 1000 * (600 + device))
    monkeypatch.setattr(torch.cuda, "temperature", lambda device: 60 - device)
    found = environment.read_sensors(0, 1, 2)
    assert (found.sm_clock_hz, found.power_w, found.temperature_c) == (1.5e9, 602, 60)
    alone = environment.read_sensors(2)  # 0 stands for not available
    assert (alone.sm_clock_hz, alone.power_w, alone.temperature_c) == (None, 602, 58)


def test_one_gpu_has_no_maps_between_gpus(examined):
    (maps,) = examined(Made((0,)))["maps"]
    assert maps["severity"] == "good"
    assert "switch" not in maps["text"]


@pytest.mark.parametrize(
    ("manner", "severity", "said"),
    [
        ("kernel", "bad", "copied by a kernel"),
        ("staged", "warn", "of copies from the host"),
        ("wrong", "bad", "does not arrive as it was sent"),
    ],
)
def test_copies_that_are_not_what_they_should_be(examined, manner, severity, said):
    found = examined(Made((0, 1), {(0, 1): manner}), code=2 if severity == "bad" else 0)
    check = next(c for c in found["copies"] if c["values"]["direction"] == "dev1>dev0")
    assert check["severity"] == severity
    assert said in check["text"]
    others = [c for c in found["copies"] if c is not check]
    assert "bad" not in severities(others)


def test_wrong_data_within_a_device_is_bad_whoever_copies(examined):
    found = examined(Made((0,), {(0, 0): "wrong"}), code=2)
    assert severities(found["copies"]) == ["good", "bad"]


def test_no_peer_access_is_bad_and_leaves_no_map(examined):
    found = examined(Made((0, 1), dead_peers=[(0, 1), (1, 0)]), code=2)
    bad = [check["text"] for check in found["copies"] if check["severity"] == "bad"]
    assert len(bad) == 2
    assert "device 0 has no peer access to device 1" in bad[0]
    assert "device 1 has no peer access to device 0" in bad[1]
    assert severities(found["maps"]) == ["warn"]


@pytest.mark.parametrize(
    ("name", "value", "flagged"),
    [
        ("CUDA_DEVICE_MAX_CONNECTIONS", "1", True),
        ("CUDA_DEVICE_MAX_CONNECTIONS", "8", False),
        ("TORCH_NCCL_ENABLE_TIMING", "1", True),
        ("CUDA_LAUNCH_BLOCKING", "1", True),
        ("CUDA_LAUNCH_BLOCKING", "0", False),
        ("HIP_LAUNCH_BLOCKING", "1", True),
        ("AMD_SERIALIZE_KERNEL", "3", True),
    ],
)
def test_settings_that_serialise_are_flagged(examined, monkeypatch, name, value, flagged):
    monkeypatch.setenv(name, value)
    facts = environment.collect_environment(())  # as records describe it
    found = examined(Made((0,)), facts=facts, code=2 if flagged else 0)
    assert severities(found["settings"]) == ["bad" if flagged else "good"]
    assert (name in found["settings"][0]["text"]) == flagged


@pytest.mark.parametrize(
    ("share", "hot", "severity", "said"),
    [
        (0.8, 1.05, "good", "80% of the peak"),
        (0.8, 1.3, "warn", "slows down under load"),
        (0.4, 1.05, "warn", "slower than it should be"),
        (1.2, 1.05, "bad", "not to be trusted"),
    ],
)
def test_arithmetic_is_judged_by_the_peak(examined, share, hot, severity, said):
    found = examined(Made((0,), share_of_peak=share, hot=hot), code=2 if severity == "bad" else 0)
    (check,) = found["arithmetic"]
    assert check["severity"] == severity
    assert said in check["text"]


def test_an_unknown_peak_is_said(examined, monkeypatch):
    monkeypatch.setattr(doctor, "peaks_of", lambda _: Peaks())
    (check,) = examined(Made((0,), hot=1.05))["arithmetic"]
    assert "its peak is not known" in check["text"]


class LosesCopies(Made):
    def local_copy(self, *_):
        return lambda _: None


def test_graphs_that_do_nothing_are_bad(examined):
    found = examined(LosesCopies((0,)), code=2)
    assert severities(found["graphs"]) == ["bad"]


@pytest.mark.parametrize(
    "error",
    [HardwareError("launch: invalidValue"), torch.OutOfMemoryError("CUDA out of memory.\nIf reserved")],
)
def test_one_check_that_fails_does_not_stop_the_others(examined, error):
    class Failing(Made):
        def heat(self, _):
            raise error

    found = examined(Failing((0,)), code=2)
    assert tuple(found) == doctor.CHECKS
    (check,) = found["arithmetic"]
    assert check == {
        "name": "arithmetic",
        "severity": "bad",
        "text": str(error).splitlines()[0],
        "values": {},
    }


def test_the_text_has_a_line_for_each_check(capsys, monkeypatch, small):
    monkeypatch.setattr(environment, "require_gpu", lambda _: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)  # all of them unless told otherwise
    asked = []
    monkeypatch.setattr(doctor, "GpuBackend", lambda devices: asked.append(devices) or Made(devices))
    monkeypatch.setattr(doctor, "collect_environment", lambda _: {"device": "Abacus"})
    lines = hw(capsys, "doctor").out.splitlines()
    assert [list(devices) for devices in asked] == [[0, 1]]
    assert lines[0] == "device: Abacus"
    assert all(line.startswith(("good ", "WARN ", "BAD  ")) for line in lines[1:])
    assert sum(line.split()[1] == "copies:" for line in lines[1:]) == 6

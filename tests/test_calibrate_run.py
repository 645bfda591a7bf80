"""Layer: command. Calibration end to end: from files of measurements to a machine that simulates."""

import gzip
import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from reader_support import case_file

from ficco_sim import io
from ficco_sim.calibrate import inputs as inputs_module
from ficco_sim.calibrate import leave_out, read_inputs, read_start
from ficco_sim.calibrate.assemble import CORRECTION_REACH
from ficco_sim.calibrate.gemm import fit_gemm
from ficco_sim.cli import main
from ficco_sim.costs import CostModel, GemmShape
from ficco_sim.gemm_table import read_gemm_table
from ficco_sim.machine import Machine, load_machine
from ficco_sim.plan import Buffer, Plan, Queue, Region, Transfer
from ficco_sim.profile import GpuFile, MeasuredGemm
from ficco_sim.records import (
    Measurement,
    Records,
    Sensors,
    Session,
    measurement_key,
    read_records,
)
from ficco_sim.schedules import make_plan
from ficco_sim.sim import simulate
from ficco_sim.workload import Workload, get_workload

RUNS = Path(__file__).parent.parent / "hw_validate" / "runs" / "h200"
OFF = Sensors(sm_clock_hz=None, power_w=None, temperature_c=None)
GROUPS = ["copy", "core_copy", "local_copy", "launch", "contention"]
NO_COPIES = "no copies between devices; --direction says which others stand for them"


# files


def write(path: Path, records: Records) -> str:
    items = (*records.sessions, *(replace(m, group_left=0) for m in records.measurements))
    path.write_text("".join(json.dumps(io.to_plain(item)) + "\n" for item in items))
    return str(path)


@pytest.fixture(scope="module")
def recorded() -> Records:
    return read_records(RUNS / "parts.jsonl.gz")


@pytest.fixture(scope="module")
def part(recorded: Records, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Every tenth GEMM and all else of the committed parts."""
    gemms = [m for m in recorded.measurements if m.kind == "gemm"]
    others = [m for m in recorded.measurements if m.kind != "gemm"]
    kept = replace(recorded, measurements=(*gemms[::10], *others))
    return write(tmp_path_factory.mktemp("part") / "part.jsonl", kept)


@pytest.fixture(scope="module")
def calibrated(part: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, Path]:
    """The document of --json and the machine's file, from these parts on h200_8."""
    folder = tmp_path_factory.mktemp("calibrated")
    out, document = folder / "out.yaml", folder / "document.json"
    argv = ["calibrate", part, "--machine", "h200_8", "--out", str(out), "--json", str(document)]
    assert main(argv) == 0
    return json.loads(document.read_text()), out


def session(**changed) -> Session:
    return Session(
        **{
            "session": "made-up",
            "started": "2026-01-31T12:00:00Z",
            "regime": "burst",
            "init": "randn",
            "command": "none",
            "environment": {"device": "GPU X", "driver": "1.2", "cublaslt": "34"},
            **changed,
        }
    )


def measurement(kind, params, time_s: float, sequence: int = 0, **more) -> Measurement:
    return Measurement(
        kind=kind,
        key=measurement_key(kind, params),
        params=params,
        samples_s=(time_s,),
        before=OFF,
        after=OFF,
        sequence=sequence,
        **more,
    )


def gemm(m, n, k, time_s: float, dtype: str = "bf16", entries: int = 1) -> Measurement:
    params = {"m": m, "n": n, "k": k, "dtype": dtype, "entries": entries, "accumulate": False}
    return measurement("gemm", params | {"repeats": 1}, time_s)


def made_gemms(factor: float = 1.0, count: int = 24) -> list[Measurement]:
    model = CostModel(load_machine("a100_4")).gemm_model
    rng = np.random.default_rng(0)
    found = []
    for _ in range(count):
        m, n, k = (int(2 ** rng.uniform(7, 13)) for _ in range(3))
        found.append(gemm(m, n, k, factor * model.formula(GemmShape((m,), n, k, "bf16")).time_s))
    return found


def made_copies(direction: str = "dev1>dev0", engine: str = "dma") -> list[Measurement]:
    """3 us and 40 GB/s."""
    return [
        measurement(
            "copy",
            {
                "direction": direction, "engine": engine, "nbytes": 2**p, "rows": 1,
                "row_bytes": 2**p, "pitch": 2**p, "dst_pitch": 2**p, "count": 1, "streams": 1,
                "blocks": None if engine == "dma" else 14,
            },
            3e-6 + 2**p / 40e9,
        )
        for p in range(12, 29)
    ]  # fmt: skip


def records_of(measurements: Iterable[Measurement], **changed) -> Records:
    return Records(sessions=(session(**changed),), measurements=tuple(measurements))


def gemm_csv(path: Path, factor: float = 1.0, count: int = 24, init: str = "randn") -> str:
    rows = [
        f"{m.params['m']},{m.params['n']},{m.params['k']},bf16,{init},{m.median_s * 1e6}"
        for m in made_gemms(factor, count)
    ]
    path.write_text("\n".join(["M,N,K,dtype,init,time_us", *rows]) + "\n")
    return str(path)


# the command


def calibrate(folder: Path, *argv: str, machine: str = "h200_8") -> tuple[int, Path]:
    out = folder / "out.yaml"
    code = main(["calibrate", *argv, "--machine", machine, "--out", str(out)])
    return code, out


def fitted(folder: Path, capsys, *argv: str, machine: str = "h200_8") -> tuple[dict, Machine]:
    """The document of --json and the machine that was written."""
    code, out = calibrate(folder, *argv, "--json", "-", machine=machine)
    captured = capsys.readouterr()
    assert (code, captured.err) == (0, "")
    return json.loads(captured.out), load_machine(str(out))


def refused(folder: Path, capsys, *argv: str, machine: str = "h200_8") -> str:
    """What the command says; it must have changed nothing."""
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    code, _ = calibrate(folder, *argv, machine=machine)
    captured = capsys.readouterr()
    assert code == 2
    assert captured.out == ""
    assert all(line.startswith("ficco: error: ") for line in captured.err.splitlines())
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before
    return captured.err


def reasons(document: dict) -> dict[str, str]:
    return {g["name"]: g["reason"] for g in document["groups"] if g["fit"] is None}


def copy_s(machine: Machine, nbytes: int, engine: str = "dma") -> float:
    """One copy from gpu 1 to gpu 0, as simulated."""
    whole = Region(gpu=1, buffer="a", rows=(0, 1), cols=(0, nbytes // 2))
    plan = Plan(
        schedule="copy",
        knobs={},
        workload=Workload(name="copy", pattern="all_gather", m=2, n=1, k=nbytes // 2),
        num_gpus=machine.num_gpus,
        buffers=tuple(Buffer(gpu=g, name="a", rows=1, cols=nbytes // 2, dtype="bf16") for g in (0, 1)),
        inputs=(),
        outputs=(),
        tasks=(
            Transfer(
                id="t",
                queue=Queue(gpu=0, engine=engine, index=0),
                src=whole,
                dst=replace(whole, gpu=0),
            ),
        ),
    )
    return simulate(plan, machine).makespan_s


def test_the_committed_parts_give_a_machine_that_simulates(
    part: str, calibrated: tuple[dict, Path]
) -> None:
    document, out = calibrated
    machine = load_machine(str(out))
    before = load_machine("h200_8")
    assert set(document) == {"groups", "bad_kernels", "notes", "files"}
    assert all(set(group) == {"name", "fit", "reason", "parts"} for group in document["groups"])
    assert document["files"] == [str(out.with_suffix(".gemm.csv")), str(out)]
    names = [group["name"] for group in document["groups"]]
    assert names == [*(f"gemm.{dtype}" for dtype in ("bf16", "fp16", "fp8", "fp32")), *GROUPS]
    told = reasons(document)
    assert told == {
        **{f"gemm.{dtype}": "0 shapes; 8 are needed" for dtype in ("fp16", "fp8", "fp32")},
        "copy": NO_COPIES,
        "core_copy": NO_COPIES,
    }
    # what was fitted carries where it is from, what was not is as before
    digest = hashlib.sha256(Path(part).read_bytes()).hexdigest()
    for name in ("gemm.bf16", "local_copy", "launch", "contention"):
        fit = machine.profile.fits[name]
        assert [(s.file, s.sha256) for s in fit.sources] == [("part.jsonl", digest)]
        assert (fit.device, fit.driver) == ("NVIDIA H200", "580.159.04")
        assert (fit.regime, fit.library) == ("burst", "130100")
        assert fit.date == "2026-11-30"
        assert fit.num_samples >= 32
        assert 0 < fit.mean_error < 0.15
    assert (machine.profile.copy, machine.profile.core_copy) == (
        before.profile.copy,
        before.profile.core_copy,
    )
    for dtype in ("fp16", "fp8", "fp32"):
        assert machine.profile.gemm.rates[dtype] == before.profile.gemm.rates[dtype]
    assert machine.profile.fits["gemm.fp8"] == before.profile.fits["gemm.fp8"]
    assert machine.profile.regime == "burst"
    text = machine.sources["gpu.profile.gemm.rates.bf16"]
    assert text.startswith("measured: fitted to ")
    assert "part.jsonl on NVIDIA H200" in text
    workload = Workload(name="w", pattern="all_gather_gemm", m=8192, n=4096, k=4096)
    now_s, then_s = (
        simulate(make_plan("uniform-fused-1d", workload, 8, {"num_chunks": 2}), m).makespan_s
        for m in (machine, before)
    )
    assert now_s == pytest.approx(then_s, rel=0.15)


def test_measured_shapes_win_and_those_of_other_types_stay(
    part: str, calibrated: tuple[dict, Path]
) -> None:
    _, out = calibrated
    machine = load_machine(str(out))
    read = read_inputs([Path(part)])
    model = CostModel(machine).gemm_model
    by_shape = {}
    for sample in read.gemms["bf16"]:
        by_shape.setdefault(sample.shape, []).append(sample.time_s)
    for shape, times in by_shape.items():
        assert model.cost(shape).time_s == pytest.approx(np.median(times))
    table = read_gemm_table(out.with_suffix(".gemm.csv"))
    before = load_machine("h200_8").profile.gemm.measured
    assert {g for g in table if g.dtype == "fp8"} == {g for g in before if g.dtype == "fp8"}
    assert sum(g.dtype == "bf16" for g in table) == len(by_shape)
    assert machine.profile.gemm.correction_reach == CORRECTION_REACH


def test_copies_take_as_long_as_measured_over_the_links_of_the_machine(tmp_path: Path, capsys) -> None:
    """The latency of both links through the switch is part of what was measured."""
    file = write(tmp_path / "a.jsonl", records_of([*made_copies(), *made_copies(engine="core")]))
    document, machine = fitted(tmp_path, capsys, file, machine="h200_host_8")
    assert "copy" not in reasons(document)
    assert read_start("h200_host_8").latency_s == pytest.approx(0.6e-6)
    for engine in ("dma", "core"):
        for nbytes in (4096, 2**16, 2**20):
            assert copy_s(machine, nbytes, engine) == pytest.approx(3e-6 + nbytes / 40e9, rel=5e-3)
    again, mesh = fitted(tmp_path, capsys, file, machine="mi300x_8")
    assert "core_copy" in reasons(again)  # of 14 blocks, and that profile has others
    assert copy_s(mesh, 4096) == pytest.approx(3e-6 + 4096 / 40e9, rel=5e-3)


def test_direction_chooses_which_copies_count(part: str, tmp_path: Path, capsys) -> None:
    given = (part, "--keep", "gemm.bf16", "--direction")
    document, machine = fitted(tmp_path, capsys, *given, "host>dev0", machine="h200_host_8")
    assert set(reasons(document)) == {f"gemm.{dtype}" for dtype in ("bf16", "fp16", "fp8", "fp32")}
    assert 45e9 < machine.profile.copy.engine_bytes_per_s < 56e9
    within, _ = fitted(tmp_path, capsys, *given, "dev0>dev0")
    assert reasons(within)["copy"] == "dev0>dev0: a kernel copies within a device, no copy engine"
    absent, _ = fitted(tmp_path, capsys, *given, "dev3>dev0")
    assert reasons(absent)["copy"].startswith("0 timed copies of 0 sizes by an engine, dev3>dev0")


def test_groups_that_are_kept_and_the_reach_of_measured_shapes(
    part: str, tmp_path: Path, capsys
) -> None:
    kept = "launch, contention,local_copy"
    before = load_machine("h200_8").profile
    document, machine = fitted(tmp_path, capsys, part, "--keep", kept, "--reach", "0")
    told = reasons(document)
    for name in ("launch", "contention", "local_copy"):
        assert told[name] == "asked for"
        assert getattr(machine.profile, name) == getattr(before, name)
        assert machine.profile.fits[name] == before.fits[name]
    assert machine.profile.gemm.correction_reach == 0
    assert machine.profile.gemm.measured
    assert "gpu.profile.gemm.correction_reach" not in machine.sources
    _, machine = fitted(tmp_path, capsys, part, "--keep", kept, "--reach", "1")
    assert machine.profile.gemm.correction_reach == 1
    assert machine.sources["gpu.profile.gemm.correction_reach"] == "stated: as asked for"
    _, machine = fitted(tmp_path, capsys, part, "--keep", "gemm.bf16", "--reach", "1")
    assert machine.profile.gemm == before.gemm


def test_without_a_table_the_formula_stands_alone(
    part: str, calibrated: tuple[dict, Path], tmp_path: Path, capsys
) -> None:
    with_table, _ = calibrated
    document, machine = fitted(tmp_path, capsys, part, "--keep", "contention", "--no-table")
    assert document["files"] == [str(tmp_path / "out.yaml")]
    assert machine.profile.gemm.measured == ()
    assert machine.profile.gemm.correction_reach == 0
    # and errors are those of the formula alone
    start = read_start("h200_8").gpu
    alone = replace(start.profile.gemm, measured=(), measured_file="", correction_reach=0.0)
    found = fit_gemm(read_inputs([Path(part)]).gemms["bf16"], alone, start.gpu)
    group = next(g for g in document["groups"] if g["name"] == "gemm.bf16")
    assert group["fit"]["mean_error"] == pytest.approx(found.fit.mean_error, rel=1e-9)
    assert group["fit"] != next(g for g in with_table["groups"] if g["name"] == "gemm.bf16")["fit"]


def test_only_one_element_type(tmp_path: Path, capsys) -> None:
    files = [str(RUNS / "parts-fp8.jsonl.gz"), gemm_csv(tmp_path / "a.csv")]
    document, machine = fitted(tmp_path, capsys, *files, "--dtype", "fp8", "--no-table")
    assert "gemm.fp8" not in reasons(document)
    assert reasons(document)["gemm.bf16"] == "0 shapes; 8 are needed"
    assert machine.profile.gemm.rates["bf16"] == load_machine("h200_8").profile.gemm.rates["bf16"]
    assert "is unknown; one of" in refused(tmp_path, capsys, *files, "--dtype", "bf61")


def test_the_gpu_alone(part: str, tmp_path: Path, capsys) -> None:
    gpu_out = tmp_path / "card.yaml"
    document, machine = fitted(tmp_path, capsys, part, "--gpu-out", str(gpu_out))
    names = ("out.gemm.csv", "out.yaml", "card.gemm.csv", "card.yaml")
    assert document["files"] == [str(tmp_path / name) for name in names]
    gpu = io.load(gpu_out, GpuFile)
    assert gpu.profile.gemm.measured_file == "card.gemm.csv"
    assert gpu.profile.gemm.rates == machine.profile.gemm.rates
    assert (tmp_path / "card.gemm.csv").read_bytes() == (tmp_path / "out.gemm.csv").read_bytes()


def test_what_it_prints(part: str, tmp_path: Path, capsys) -> None:
    target = tmp_path / "result.json"
    code, out = calibrate(tmp_path, part, "--json", str(target))
    printed = capsys.readouterr().out
    assert code == 0
    assert "held out; mean of large" in printed
    assert f"kept: {NO_COPIES}" in printed
    assert "shapes for which the library is slow" in printed
    assert f"wrote {out}" in printed
    document = json.loads(target.read_text())
    ratios = [kernel["ratio"] for kernel in document["bad_kernels"]]
    assert ratios == sorted(ratios, reverse=True)
    assert all(ratio > 1.5 for ratio in ratios)
    assert set(document["bad_kernels"][0]["sample"]) == {
        "m", "n", "k", "dtype", "time_s", "entries", "accumulate", "sm_clock_hz",
    }  # fmt: skip


def test_calibrating_twice_gives_the_same_files(part: str, tmp_path: Path, capsys) -> None:
    contents = []
    for _ in range(2):
        assert calibrate(tmp_path, part)[0] == 0
        contents.append([(tmp_path / name).read_bytes() for name in ("out.yaml", "out.gemm.csv")])
    assert contents[0] == contents[1]
    # a machine's own file may be calibrated further, in place
    out = tmp_path / "out.yaml"
    more = write(tmp_path / "more.jsonl", records_of(made_copies()))
    before = load_machine(str(out))
    assert main(["calibrate", more, "--machine", str(out), "--out", str(out)]) == 0
    capsys.readouterr()
    after = load_machine(str(out))
    assert after.profile.gemm.rates == before.profile.gemm.rates
    assert set(after.profile.gemm.measured) == set(before.profile.gemm.measured)
    assert after.profile.copy.engine_bytes_per_s == pytest.approx(40e9, rel=1e-3)


# formats


def test_a_csv_of_gemms(tmp_path: Path, capsys) -> None:
    file = gemm_csv(tmp_path / "a.csv", 1.3)
    document, machine = fitted(tmp_path, capsys, file, "--no-table", machine="a100_4")
    model, before = (CostModel(m).gemm_model for m in (machine, load_machine("a100_4")))
    shape = GemmShape((2048,), 2048, 2048, "bf16")
    assert model.cost(shape).time_s / before.formula(shape).time_s == pytest.approx(1.3, rel=0.03)
    fit = machine.profile.fits["gemm.bf16"]
    assert (fit.num_points, fit.regime, fit.device) == (24, "mixed", "")
    assert set(reasons(document)) >= set(GROUPS)


def test_zeros_beside_random_numbers_are_left_out(tmp_path: Path, capsys) -> None:
    path = Path(gemm_csv(tmp_path / "a.csv"))
    rows = path.read_text().splitlines()
    fast = Path(gemm_csv(tmp_path / "b.csv", 0.85, init="zeros")).read_text().splitlines()[1:]
    path.write_text("\n".join([*rows, *fast]) + "\n")
    document, machine = fitted(tmp_path, capsys, str(path), machine="a100_4")
    assert machine.profile.fits["gemm.bf16"].num_points == 24
    assert any("zeros" in note and "must not be mixed" in note for note in document["notes"])
    assert any("24 rows are not used (lines 26, 27," in note for note in document["notes"])
    model = CostModel(load_machine("a100_4")).gemm_model
    for g in machine.profile.gemm.measured:
        shape = GemmShape((g.m,), g.n, g.k, "bf16")
        assert g.time_s == pytest.approx(model.formula(shape).time_s)
    alone, _ = fitted(tmp_path, capsys, str(tmp_path / "b.csv"), machine="a100_4")
    assert any("matrices of zeros: random ones" in note for note in alone["notes"])


def test_b46_and_b47_are_refused_with_what_is_wrong_in_them(tmp_path: Path, capsys) -> None:
    said = refused(tmp_path, capsys, case_file("B46"))
    assert "gemm.fp16: 1 shapes; 8 are needed" in said
    assert "zeros 3,727.2 us = 295 TFLOP/s, randn 4,278.3 us = 257 TFLOP/s; ratio 1.148" in said
    assert "only timings of randn matrices are used" in said
    said = refused(tmp_path, capsys, case_file("B47"))
    assert "4 rows are not used (lines 2, 3, 4, 5)" in said
    assert "not synchronised?" in said
    assert "no timing can be used: no calibration from this file" in said


def test_hipblaslt_bench(tmp_path: Path, capsys) -> None:
    said = refused(tmp_path, capsys, case_file("B32"))
    for dtype in ("fp32", "bf16", "fp8"):
        assert f"gemm.{dtype}: 1 shapes; 8 are needed" in said
    header = (
        "[0]:transA,transB,grouped_gemm,batch_count,m,n,k,alpha,lda,stride_a,beta,ldb,stride_b,ldc,"
        "stride_c,ldd,stride_d,a_type,b_type,c_type,d_type,compute_type,hipblaslt-Gflops,us"
    )
    model = CostModel(load_machine("mi300x_8")).gemm_model
    lines = []
    for i in range(12):
        m, n, k = 256 * (i + 1), 4096 - 128 * i, 1024 + 512 * (i % 4)
        # column-major there: rows of C^T
        us = 1.2e6 * model.formula(GemmShape((n,), m, k, "bf16")).time_s
        lines += [
            header,
            f"    N,N,0,1,{m},{n},{k},1,{m},{m * k},0,{k},{n * k},{m},{m * n},{m},{m * n},"
            f"bf16_r,bf16_r,bf16_r,bf16_r,f32_r,{2 * m * n * k / us / 1e3:.6g},{us:.6g}",
        ]
    file = tmp_path / "bench.txt"
    file.write_text("\n".join(lines) + "\n")
    document, machine = fitted(tmp_path, capsys, str(file), machine="mi300x_8")
    assert "gemm.bf16" not in reasons(document)
    assert machine.profile.fits["gemm.bf16"].num_points == 12
    sizes = {(g.m, g.n, g.k) for g in machine.profile.gemm.measured}
    assert (4096, 256, 1024) in sizes  # rows, columns, k
    assert (256, 4096, 1024) not in sizes


def test_b22_times_copies_by_kernels(tmp_path: Path, capsys) -> None:
    """20 us and 350 GB/s, and the simulated all-gather takes that long again."""
    document, machine = fitted(tmp_path, capsys, case_file("B22"))
    assert set(reasons(document)) == {
        *(f"gemm.{dtype}" for dtype in ("bf16", "fp16", "fp8", "fp32")),
        *(name for name in GROUPS if name != "core_copy"),
    }
    core = machine.profile.core_copy
    assert core.bytes_per_s == pytest.approx(350e9, rel=2e-3)
    assert core.setup_s + 0.5e-6 == pytest.approx(20e-6, rel=2e-3)
    fit = machine.profile.fits["core_copy"]
    assert (fit.num_points, fit.sources[0].file) == (4, Path(case_file("B22")).name)
    assert fit.samples["setup_s"][0] == pytest.approx(core.setup_s, rel=0.01)
    # the table of the machine before goes with it
    before = load_machine("h200_8")
    assert set(machine.profile.gemm.measured) == set(before.profile.gemm.measured)
    assert machine.profile.gemm.correction_reach == before.profile.gemm.correction_reach
    assert machine.profile.copy == before.profile.copy
    workload = Workload(name="ag", pattern="all_gather", m=8 * 2048, n=1, k=2048)
    gathered = simulate(make_plan("all-gather", workload, 8, {"engine": "core"}), machine)
    assert gathered.makespan_s == pytest.approx(
        20e-6 + workload.gathered_bytes * 7 / 8 / 350e9, rel=0.02
    )


def test_rates_without_sizes_tell_why_they_do_not_do(tmp_path: Path, capsys) -> None:
    said = refused(tmp_path, capsys, case_file("B30"))
    assert "copy: 36 copies in logs tell a rate but no size and time" in said
    assert "device_to_device_memcpy_write_sm was waived" in said


def trace_of(*copies: tuple[int, float]) -> str:
    events, start = [], 0.0
    for nbytes, time_s in copies:
        events.append(
            {
                "ph": "X", "cat": "gpu_memcpy", "name": "Memcpy PtoP (Device -> Device)", "pid": 0,
                "tid": 7, "ts": start, "dur": time_s * 1e6,
                "args": {"device": 0, "stream": 7, "bytes": nbytes},
            }
        )  # fmt: skip
        start += 2e6 * time_s
    return json.dumps({"traceEvents": events})


def test_copies_of_a_trace(tmp_path: Path, capsys) -> None:
    assert "timed copies" in refused(tmp_path, capsys, case_file("B51"))
    assert "nothing to calibrate from" in refused(tmp_path, capsys, case_file("B33"))
    text = trace_of(*((2**p, 4e-6 + 2**p / 45e9) for p in range(14, 27)))
    plain, packed = tmp_path / "trace.json", tmp_path / "packed.json.gz"
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode()))  # as torch.profiler writes with use_gzip
    found = [fitted(tmp_path, capsys, str(file))[1].profile for file in (plain, packed)]
    assert found[0].copy == found[1].copy
    assert found[0].copy.engine_bytes_per_s == pytest.approx(45e9, rel=0.01)
    digests = {profile.fits["copy"].sources[0].sha256 for profile in found}
    assert digests == {hashlib.sha256(text.encode()).hexdigest()}


def test_several_files_at_once(tmp_path: Path, capsys) -> None:
    (tmp_path / "other").mkdir()
    files = [
        write(tmp_path / "a.jsonl", records_of([*made_copies(), *made_gemms()])),
        gemm_csv(tmp_path / "a.csv", count=10),
        gemm_csv(tmp_path / "other" / "a.csv", count=16),
        case_file("B22"),
    ]
    document, machine = fitted(tmp_path, capsys, *files, "--no-table")
    assert not {"gemm.bf16", "copy", "core_copy"} & set(reasons(document))
    fit = machine.profile.fits["copy"]
    # files of one name are told apart
    assert [s.file for s in fit.sources] == ["a.jsonl", files[1], files[2], Path(files[3]).name]
    assert len({s.sha256 for s in fit.sources}) == 4
    assert (fit.device, fit.driver, fit.library, fit.date) == ("GPU X", "1.2", "34", "2026-01-31")
    read = read_inputs([Path(file) for file in files])
    assert len(read.gemms["bf16"]) == 24 + 10 + 16


# what is refused


def test_unequal_records_are_refused_naming_both_values(tmp_path: Path, capsys) -> None:
    first = write(tmp_path / "a.jsonl", records_of(made_copies()))
    for changed, words in (
        ({"regime": "sustained"}, "'burst' and 'sustained'"),
        (
            {"environment": {"device": "GPU Y", "driver": "1.2", "cublaslt": "34"}},
            "'GPU X' and 'GPU Y'",
        ),
    ):
        other = records_of(made_gemms(), session="other", **changed)
        said = refused(tmp_path, capsys, first, write(tmp_path / "b.jsonl", other))
        assert words in said
        assert "a.jsonl" in said
        assert "b.jsonl" in said
    assert "occurs twice" in refused(tmp_path, capsys, first, first)


@pytest.mark.parametrize("init", ["zeros", "unknown"])
def test_records_of_other_matrices_are_refused(init: str, tmp_path: Path, capsys) -> None:
    file = write(tmp_path / "a.jsonl", records_of(made_copies(), init=init))
    said = refused(tmp_path, capsys, file)
    assert f"matrices were filled with {init}" in said
    assert "measure with random numbers" in said


def test_measurements_that_are_unusable_or_shorter_than_their_events_are_left_out(
    tmp_path: Path, capsys
) -> None:
    events = measurement("launch", {"what": "events", "count": 1}, 2e-6)
    good = made_gemms()
    bad = [replace(good[0], unusable=("it broke",), sequence=1), gemm(1, 1, 1, 1.5e-6)]
    file = write(tmp_path / "a.jsonl", records_of([events, *good, *bad]))
    document, machine = fitted(tmp_path, capsys, file)
    assert machine.profile.fits["gemm.bf16"].num_points == 24
    assert "1 measurements are marked unusable and left out" in document["notes"]
    assert any("1 GEMMs took no longer than the events" in note for note in document["notes"])
    table = {(g.m, g.n, g.k): g.time_s for g in machine.profile.gemm.measured if g.dtype == "bf16"}
    p = good[0].params
    assert table[p["m"], p["n"], p["k"]] == pytest.approx(good[0].median_s - 2e-6)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"m": 0}, "m: 0 must be a whole number above 0"),
        ({"k": None}, "k: None must be a whole number above 0"),
        ({"n": "many"}, "n: 'many' must be a whole number above 0"),
        ({"entries": -2}, "entries: -2 must be a whole number above 0"),
        ({"dtype": "int4"}, "dtype: 'int4' is no element type"),
    ],
)
def test_gemms_of_no_shape_are_refused(changed: dict, message: str, tmp_path: Path, capsys) -> None:
    odd = gemm(**{"m": 64, "n": 64, "k": 64, "time_s": 1e-5, **changed})
    said = refused(tmp_path, capsys, write(tmp_path / "a.jsonl", records_of([*made_gemms(), odd])))
    assert message in said


def test_options_that_make_no_sense_are_refused(tmp_path: Path, capsys) -> None:
    file = gemm_csv(tmp_path / "a.csv")
    said = refused(tmp_path, capsys, file, "--keep", "gemm.bf16,cpy")
    assert "keep: 'cpy' is unknown here; one of gemm.bf16," in said
    said = refused(tmp_path, capsys, file, "--keep", "gemm.bf16")
    assert "nothing to calibrate from: gemm.bf16: asked for" in said
    for reach in ("-1", "nan", "inf", "1e-9"):
        assert "octaves" in refused(tmp_path, capsys, file, "--reach", reach)
    assert "is unknown" in refused(tmp_path, capsys, file, machine="nowhere")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "looks like none of the formats"),
        ("a.txt", b"hello\nworld\n", "begins with 'hello'"),
        ("a.jsonl", b'{"record": "mem", "iter": 0}\n', "looks like none of the formats"),
        ("a.jsonl", b'{"record": "session"', "cut off"),
        ("a.bin", b"\xff\xfe\x00\x01" * 10, "not UTF-8 text (byte 0)"),
        ("a.csv", b"M,N,K,dtype,time\n1,2,3,bf16,4\n", "tells no unit"),
        ("a.jsonl.gz", gzip.compress(b"", mtime=0), "looks like none of the formats"),
        ("a.jsonl.gz", gzip.compress(b"hello", mtime=0), "begins with 'hello'"),
        ("a.jsonl.gz", b"\x1f\x8b", "not a whole gzip file"),
    ],
)
def test_files_that_are_no_measurements_are_refused(
    name: str, content: bytes, message: str, tmp_path: Path, capsys
) -> None:
    (tmp_path / name).write_bytes(content)
    good = gemm_csv(tmp_path / "good.csv")
    for files in ([str(tmp_path / name)], [good, str(tmp_path / name)]):
        said = refused(tmp_path, capsys, *files)
        assert message in said
        assert f"{tmp_path / name}: " in said


def test_files_that_are_not_there_are_refused(tmp_path: Path, capsys) -> None:
    assert "none.csv: no such file" in refused(tmp_path, capsys, str(tmp_path / "none.csv"))
    assert "is a folder" in refused(tmp_path, capsys, str(tmp_path))
    assert refused(tmp_path, capsys)  # no input at all


def test_damaged_gzip_files_are_refused(tmp_path: Path, capsys) -> None:
    whole = (RUNS / "eager.jsonl.gz").read_bytes()
    file = tmp_path / "a.jsonl.gz"
    for place in (15, 40, len(whole) // 2, len(whole) - 4):
        file.write_bytes(whole[:place])
        assert "a.jsonl.gz: not a whole gzip file" in refused(tmp_path, capsys, str(file))
    for place in (len(whole) // 3, len(whole) // 2):
        broken = bytearray(whole)
        broken[place] ^= 0xFF
        file.write_bytes(bytes(broken))
        assert "a.jsonl.gz: not a whole gzip file" in refused(tmp_path, capsys, str(file))


def test_files_that_grow_too_large_when_unpacked_are_refused(
    tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs_module, "MAX_BYTES", 4 * 2**20)
    file = tmp_path / "a.json.gz"
    file.write_bytes(gzip.compress(b" " * (8 * 2**20)))
    assert file.stat().st_size < 20_000
    assert "a.json.gz: more than 4,194,304 bytes are not read" in refused(tmp_path, capsys, str(file))


def test_nothing_is_written_if_a_target_cannot_be(tmp_path: Path, capsys) -> None:
    file = gemm_csv(tmp_path / "a.csv")
    (tmp_path / "out.yaml").write_text("what was there")
    folder = tmp_path / "folder.yaml"
    folder.mkdir()
    (tmp_path / "card.gemm.csv").mkdir()
    for more, message in (
        (("--gpu-out", str(folder)), "is a folder"),
        (("--gpu-out", str(tmp_path / "none" / "card.yaml")), "no folder"),
        (("--gpu-out", str(tmp_path / "card.yaml")), "card.gemm.csv: cannot be written: is a folder"),
        (("--gpu-out", str(tmp_path / "out.yaml")), "need files of different names"),
        (("--gpu-out", str(tmp_path / "out.yml")), "need files of different names"),
        (("--gpu-out", str(tmp_path / "card.json")), "must end in .yaml or .yml"),
        (("--json", str(tmp_path / "none" / "a.json")), "no folder"),
    ):
        assert message in refused(tmp_path, capsys, file, *more)
    assert main(["calibrate", file, "--out", str(tmp_path / "out")]) == 2
    assert "must end in .yaml or .yml" in capsys.readouterr().err
    assert (tmp_path / "out.yaml").read_text() == "what was there"


# leaving a workload out


def plans_of(names: Sequence[str], every: int) -> Records:
    records = read_records(RUNS / "host-repeated.jsonl.gz")
    kept = [m for m in records.measurements if m.kind == "plan" and m.params["workload"] in names]
    keys = list(dict.fromkeys(m.key for m in kept))[::every]
    return replace(records, measurements=tuple(m for m in kept if m.key in keys))


def is_piece(n: object, k: object, workload: Workload) -> bool:
    """Whether a GEMM could be a piece of a workload, of some of its rows and of its k."""
    return n == workload.n and isinstance(k, int) and k <= workload.k


def test_validate_leaves_the_workload_out_of_the_fit(
    part: str, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("llama3-70b-tp8-gate-up-2k", "deepseek-v3-cp8-kv-up-32k")
    workloads = [get_workload(name) for name in names]
    file = write(tmp_path / "plans.jsonl", plans_of(names, 8))
    seen = []
    fit = leave_out.calibrate

    def spy(inputs, gpu, **options):
        assert gpu.profile.gemm.measured == ()
        found = fit(inputs, gpu, **options)
        seen.append((inputs, found))
        return found

    monkeypatch.setattr(leave_out, "calibrate", spy)
    argv = ["validate", file, "--machine", "h200_host_8", "--json", "-"]
    assert main([*argv, "--as-is"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert seen == []
    assert main([*argv, "--calibrate-from", part, "--direction", "host>dev0"]) == 0
    document = json.loads(capsys.readouterr().out)
    given = read_inputs([Path(part)]).gemms["bf16"]
    for (inputs, found), workload in zip(seen, workloads, strict=True):
        assert any(is_piece(s.n, s.k, workload) for s in given)
        left = inputs.gemms["bf16"]
        assert set(left) == {s for s in given if not is_piece(s.n, s.k, workload)}
        assert {(g.n, g.k) for g in found.table} == {(s.n, s.k) for s in left}
        assert not any(
            is_piece(m.params.get("n"), m.params.get("k"), workload) for m in inputs.measurements
        )
        assert {g.name for g in found.groups if g.fit} >= {"gemm.bf16", "contention"}
    assert set(document) == set(plain)
    assert set(document["summary"]) == set(plain["summary"])
    assert (document["held_out"], plain["held_out"]) == (True, False)
    assert document["summary"]["mean_abs_error"] < 0.3
    assert [row["measured_s"] for row in document["rows"]] == [
        row["measured_s"] for row in plain["rows"]
    ]


def test_a_fit_that_cannot_do_without_the_workload_is_not_called_held_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else the rates in the profile would be used, which were fitted to the workload too."""
    name = "llama3-70b-tp8-gate-up-2k"
    workload = get_workload(name)
    file = write(tmp_path / "plans.jsonl", plans_of((name,), 8))
    rows = [f"{2**i},{workload.n},{workload.k},bf16,randn,{10 * 2**i}" for i in range(4, 14)]
    few = [f"{2**i},{2**i},{2**i},bf16,randn,{10 * 2**i}" for i in range(9, 12)]
    for number, more in enumerate(([], few)):
        gemms = tmp_path / f"gemms{number}.csv"
        gemms.write_text("\n".join(["M,N,K,dtype,init,time_us", *rows, *more]) + "\n")
        argv = ["validate", file, "--machine", "h200_host_8", "--calibrate-from", str(gemms)]
        assert main(argv) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert f"{name}: " in captured.err or "nothing to calibrate from" in captured.err
        assert "--as-is" in captured.err
    assert main(["validate", file, "--machine", "h200_host_8", "--direction", "host>dev0"]) == 2
    assert "goes with --calibrate-from only" in capsys.readouterr().err


def test_a_workload_is_left_out_of_logs_and_of_all_kinds_of_records(tmp_path: Path) -> None:
    given = read_inputs([Path(gemm_csv(tmp_path / "a.csv")), RUNS / "parts.jsonl.gz"])
    workload = Workload(name="w", pattern="all_gather_gemm", m=8192, n=8192, k=8192)
    left = leave_out.without_workload(given, workload)
    gone = [m for m in given.measurements if is_piece(m.params.get("n"), m.params.get("k"), workload)]
    assert {m.kind for m in gone} >= {"gemm", "contention"}
    assert [m for m in given.measurements if m not in gone] == list(left.measurements)
    kept = [s for s in given.gemms["bf16"] if not is_piece(s.n, s.k, workload)]
    assert list(left.gemms["bf16"]) == kept
    assert 0 < len(kept) < len(given.gemms["bf16"])
    only = leave_out.without_workload(
        read_inputs([Path(gemm_csv(tmp_path / "b.csv", count=1))]),
        replace(workload, n=made_gemms(count=1)[0].params["n"], k=2**14),
    )
    assert only.gemms == {}


def test_a_start_has_the_shapes_of_its_table() -> None:
    start = read_start("h200_8")
    assert start.gpu.profile.gemm.measured == load_machine("h200_8").profile.gemm.measured
    assert isinstance(start.gpu.profile.gemm.measured[0], MeasuredGemm)
    assert start.gpu.profile.gemm.measured_file == ""
    assert start.latency_s == pytest.approx(0.5e-6)
    assert math.isclose(read_start("mi300x_8").latency_s, load_machine("mi300x_8").links[0].latency_s)

"""Make the synthetic logs of notebook 5 again: python notebooks/data/make_logs.py.

Nothing here was measured. An MI300X that does not exist stands behind them: `mi300x_8` with arithmetic
14 % slower, GEMM start-up 3 us longer, copy kernels 12 % slower and copy engines 8 % slower. Its times,
as the simulator gives them, with 2 % of noise from a fixed seed, are written in the formats of
rccl-tests, hipblaslt-bench and torch.profiler. `nvbandwidth.txt` states rates of links that are as
made up. Calibrating from the logs must therefore find that gpu again.
"""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ficco_sim.collective import run_collective
from ficco_sim.costs import CostModel, GemmShape
from ficco_sim.machine import Machine, load_machine
from ficco_sim.sensitivity import changed_machine
from ficco_sim.units import KIB, MIB, US

Noisy = Callable[[float], float]
FOLDER = Path(__file__).parent
NOISE, SEED = 0.02, 7
PEAK, STARTUP_S, CORE, DMA = 0.86, 3e-6, 0.88, 0.92
GEMMS = [
    (m, n, k)
    for m in (128, 512, 1024, 2048, 4096, 8192, 16384)
    for n, k in ((1280, 8192), (7168, 8192), (8192, 3584), (4608, 12288), (3584, 4096))
]
NOTE = "synthetic: times of a simulated gpu with noise, see make_logs.py"


def truth() -> Machine:
    """The gpu behind the logs."""
    machine = changed_machine(load_machine("mi300x_8"), ("peak",), PEAK)
    profile = machine.profile
    rates = {
        dtype: replace(r, startup_s=r.startup_s + STARTUP_S) for dtype, r in profile.gemm.rates.items()
    }
    return replace(
        machine,
        profile=replace(
            profile,
            gemm=replace(profile.gemm, rates=rates),
            core_copy=replace(profile.core_copy, bytes_per_s=profile.core_copy.bytes_per_s * CORE),
            copy=replace(profile.copy, engine_bytes_per_s=profile.copy.engine_bytes_per_s * DMA),
        ),
    )


def main() -> None:
    """Write all four."""
    rng = random.Random(SEED)  # noqa: S311 - no secret
    machine = truth()

    def noisy(time_s: float) -> float:
        return time_s * rng.lognormvariate(0, NOISE)

    write("hipblaslt_bench.txt", hipblaslt(machine, noisy))
    write("rccl_all_gather.txt", rccl(machine, noisy))
    write("torch_trace.json", trace(machine, noisy))
    write("nvbandwidth.txt", nvbandwidth(rng))


def write(name: str, text: str) -> None:
    """A file of this folder."""
    (FOLDER / name).write_text(text)


def hipblaslt(machine: Machine, noisy: Noisy) -> str:
    """GEMMs alone; column-major there, so that its m are our columns."""
    model = CostModel(machine).gemm_model
    header = (
        "[0]:transA,transB,grouped_gemm,batch_count,m,n,k,alpha,lda,stride_a,beta,ldb,stride_b,ldc,"
        "stride_c,ldd,stride_d,a_type,b_type,c_type,d_type,compute_type,scaleA,scaleB,scaleC,scaleD,"
        "amaxD,activation_type,bias_vector,bias_type,rotating_buffer,hipblaslt-Gflops,hipblaslt-GB/s,us"
    )
    lines = [f"# {NOTE}", "Device ID 0 : AMD Instinct MI300X gfx942:sramecc+:xnack- (synthetic)"]
    for m, n, k in GEMMS:
        time_s = noisy(model.cost(GemmShape((m,), n, k, "bf16")).time_s)
        gbytes = 2 * (m * k + k * n + m * n) / time_s / 1e9
        lines += [
            header,
            f"    T,N,0,1,{n},{m},{k},1,{k},{n * k},0,{k},{m * k},{n},{m * n},{n},{m * n},bf16_r,"
            f"bf16_r,bf16_r,bf16_r,f32_r,0,0,0,0,0,none,0,bf16_r,512,"
            f"{2 * m * n * k / time_s / 1e9:.0f},{gbytes:.1f},{time_s / US:.2f}",
        ]
    return "\n".join(lines) + "\n"


def rccl(machine: Machine, noisy: Noisy) -> str:
    """All-gathers by copy kernels."""
    lines = [
        f"# {NOTE}",
        "# rccl-tests: Collective test starting: all_gather_perf",
        "# nThread 1 nGpus 8 minBytes 1048576 maxBytes 1073741824 step: 4(factor) warmup iters: 5 "
        "iters: 20 agg iters: 1 validation: 1 graph: 0",
        "#",
        "# Using devices",
        *(
            f"#  Rank  {g} Group  0 Pid   1000 on       node device  {g} [0x{g}5] MI300X"
            for g in range(8)
        ),
        "#",
        "#                                                              out-of-place"
        "                       in-place          ",
        "#       size         count      type   redop    root     time   algbw   busbw  #wrong"
        "     time   algbw   busbw  #wrong ",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)       "
        "      (us)  (GB/s)  (GB/s)         ",
    ]
    for size in (MIB * 4**i for i in range(6)):
        result, _, _ = run_collective("all_gather", size, machine, engine="core")
        cells = []
        for _ in range(2):
            time_s = noisy(result.time_s)
            algbw = size / time_s / 1e9
            cells.append(f"{time_s / US:9.2f} {algbw:7.2f} {algbw * 7 / 8:7.2f}       0")
        lines.append(f"{size:12d} {size // 16:13d}  bfloat16    none      -1 {cells[0]} {cells[1]}")
    lines += ["# Errors with asterisks indicate errors that have exceeded the maximum threshold.",
              "# Out of bounds values : 0 OK", ""]  # fmt: skip
    return "\n".join(lines)


def trace(machine: Machine, noisy: Noisy) -> str:
    """Copies between two gpus by a DMA engine, one after another on a stream."""
    model = machine.profile.copy
    rate = min(model.engine_bytes_per_s, machine.links[0].usable_bytes_per_s)
    fixed_s = model.setup_s + model.completion_s + machine.links[0].latency_s
    events = []
    now_s = 1e-3
    for size in (64 * KIB * 2**i for i in range(11)):
        for _ in range(3):
            time_s = noisy(fixed_s + size / rate)
            events.append(
                {
                    "ph": "X", "cat": "gpu_memcpy", "name": "Memcpy PtoP (Device -> Device)", "pid": 0,
                    "tid": 20, "ts": round(now_s / US, 3), "dur": round(time_s / US, 3),
                    "args": {"device": 0, "stream": 20, "bytes": size},
                }
            )  # fmt: skip
            now_s += time_s + 20e-6
    document = {"schemaVersion": 1, "note": NOTE, "displayTimeUnit": "ms", "traceEvents": events}
    return json.dumps(document, indent=1) + "\n"


def nvbandwidth(rng: random.Random) -> str:
    """Rates of copies between eight gpus behind a switch: a rate, but neither size nor time."""
    lines = ["nvbandwidth Version: v0.8", f"Built from Git version: none ({NOTE})", ""]
    lines += [
        "CUDA Runtime Version: 13000",
        "CUDA Driver Version: 13000",
        "Driver Version: 580.00.00",
        "",
    ]
    lines += [f"Device {g}: NVIDIA H200 (00000000:0{g}:00)" for g in range(8)]
    lines += ["", "Running device_to_device_memcpy_read_ce.",
              "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)",
              " " * 4 + "".join(f"{g:10d}" for g in range(8))]  # fmt: skip
    total = 0.0
    for a in range(8):
        cells = []
        for b in range(8):
            rate = 388 * rng.lognormvariate(0, NOISE / 4)
            total += 0 if a == b else rate
            cells.append(f"{'N/A':>10}" if a == b else f"{rate:10.2f}")
        lines.append(f" {a}  " + "".join(cells))
    lines += ["", f"SUM device_to_device_memcpy_read_ce {total:.2f}", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()

"""Print the tables of docs/published.md: public overlap results beside what the simulator predicts.

Run it as ``python docs/published.py``, or with ``--write`` to put the tables into the page; half a
minute. Nothing here feeds back into a profile.
"""

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from ficco_sim.comparison import Comparison, compare
from ficco_sim.costs import CostModel, GemmShape, Submission
from ficco_sim.machine import Machine, load_machine
from ficco_sim.schedules import collective, make_plan, side_by_side
from ficco_sim.sim import simulate
from ficco_sim.trace import Trace
from ficco_sim.units import KIB, MIB, MS, US
from ficco_sim.workload import Workload, get_workload

PAGE = Path(__file__).parent / "published.md"
MARKER, END = "<!-- made by python docs/published.py: {} -->", "<!-- end -->"

# flux#90, 8 H100: M against milliseconds of torch (all-gather by NCCL, then GEMM) and of flux
FLUX_MS = {
    1024: (0.247, 0.250),
    2048: (0.454, 0.426),
    4096: (0.867, 0.673),
    8192: (1.692, 1.315),
    16384: (3.387, 2.804),
    32768: (6.831, 5.819),
}
FLUX_N, FLUX_K = 7168, 8192
FLUX_LIKE = "hetero-batched-1d"

# arXiv 2412.14335, 30 scenarios on 8 MI300X: share of the ideal speed-up
CONCCL_SHARE = {"naive": 0.21, "tuned": 0.42, "dma": 0.72}
CONCCL_GEMMS = (
    "llama3-70b-tp8-qkv-8k",
    "llama3-70b-tp8-gate-up-8k",
    "llama3-405b-tp8-qkv-8k",
    "llama3-405b-tp8-gate-up-8k",
    "gpt3-175b-tp8-mlp-up-2k",
    "llama3-8b-fsdp8-gate-up-8k",
    "llama3-8b-cp8-scores-128k",  # bound by memory
)
CONCCL_MIB = (64, 128, 256, 512, 1024, 2048)
CONCCL_LEAST_IDEAL = 1.2
CONCCL_EQUAL = 1.15
CONCCL_CLASSES = ("all", "GEMM longer", "about equal", "all-gather longer")

# notes on arXiv 2412.14335: compute units taken from a compute-bound GEMM, and how much slower it gets
UNITS_SLOWDOWN = {32: 0.17, 64: 0.27}

# pytorch/pytorch#172714, 8 H100: GEMM 8192^3 fp16 beside 64 MiB shards, speed-up over no overlap
H100_SIDE_BY_SIDE = {"core": 1.47, "dma": 1.67}

# AMD-DMA-Latte PERFORMANCE.md, MI300X: bytes of one copy against percent of time in copy and in sync
LATTE_SHARES = {
    "4 KB": (4 * KIB, "29-30", "35-36"),
    "64 KB": (64 * KIB, "46", "27"),
    "256 KB": (256 * KIB, "62", "18"),
    "1 MB": (MIB, "79", "10"),
    "2 MB": (2 * MIB, "89", "5"),
    "4 MB": (4 * MIB, "93", "3"),
    "8 MB": (8 * MIB, "97", "1"),
    "16 MB": (16 * MIB, "98", "1"),
}
LATTE_FIXED_COPY_S = 2.05 * US  # of the copy phase, derived from the same shares
# likewise, all-gather of 8 MI300X by bytes in all: speed-up over pcpy of pcpy and b2b, prelaunched
LATTE_GATHERS = {
    "1 KB": (KIB, 2.87, 4.10),
    "128 KB": (128 * KIB, 3.48, 4.58),
    "1 MB": (MIB, 3.22, 1.84),
    "4 MB": (4 * MIB, 2.29, 0.65),
    "16 MB": (16 * MIB, 1.54, 0.27),
    "64 MB": (64 * MIB, 1.11, 0.17),
    "1 GB": (1024 * MIB, 1.02, 0.15),
}
# arXiv 2511.06605: all-gather by DMA over that by RCCL, in time
LATTE_RCCL = {
    "64 MB": (64 * MIB, "par to 16 % faster", "0.86 to 1.00"),
    "1 KB": (KIB, "4.5 times slower; 30 % slower once optimised", "4.5; 1.30"),
}

# pytorch/pytorch#179770 (case B52): M against microseconds of fused and of plain, fp8, N 16384, K 7168
ASYNC_US = {
    32: (249.8, 96.2),
    128: (246.2, 74.1),
    512: (252.0, 96.0),
    1024: (262.0, 140.0),
    2048: (301.0, 247.0),
    4096: (452.0, 461.0),
    8192: (840.0, 905.0),
    16384: (1630.0, 1795.0),
}
ASYNC_N, ASYNC_K, ASYNC_GPUS = 16384, 7168, 8
# pytorch/pytorch#143160: microseconds of NCCL then cuBLAS, and of decomposed async TP
ASYNC_GATHER = (Workload(name="g", pattern="all_gather_gemm", m=2048, n=3584, k=8192), 301.0, 354.0)


@functools.cache
def _machine(name: str) -> Machine:
    return load_machine(name)


def _seconds(
    schedule: str,
    workload: Workload,
    machine: Machine,
    engine: str,
    submission: Submission = "graph",
) -> float:
    plan = make_plan(schedule, workload, machine.num_gpus, {"engine": engine})
    return simulate(plan, machine, CostModel(machine, submission=submission)).makespan_s


def _percent(predicted: float, published: float) -> str:
    return f"{predicted / published - 1:+.0%}"


# flux


@dataclass(frozen=True, slots=True, kw_only=True)
class FluxRow:
    """A shape of flux's sweep; published and predicted seconds.

    Parameters
    ----------
    torch_s, flux_s
        Published: one after the other, and overlapped.
    serial_s
        All-gather by copy kernels, then one GEMM.
    like_s, shard_s, best_s
        The schedule that stands for flux; shard-p2p; the fastest of all. Copies by DMA.
    """

    m: int
    torch_s: float
    flux_s: float
    serial_s: float
    like_s: float
    shard_s: float
    best: str
    best_s: float
    ideal_s: float

    @property
    def published(self) -> float:
        """Speed-up of flux over torch."""
        return self.torch_s / self.flux_s

    @property
    def like(self) -> float:
        """Speed-up of the schedule that stands for flux."""
        return self.serial_s / self.like_s

    @property
    def agrees(self) -> bool:
        """Whether both call overlap a gain, or both a loss."""
        return (self.like > 1) == (self.published > 1)


def _fastest_s(result: Comparison, schedule: str) -> float:
    return min(r.makespan_s for r in result.results if r.schedule == schedule)


@functools.cache
def flux_row(m: int) -> FluxRow:
    """Predict one shape of the sweep."""
    machine = _machine("h100_8")
    workload = Workload(name=f"flux-{m}", pattern="all_gather_gemm", m=m, n=FLUX_N, k=FLUX_K)
    result = compare(workload, machine)
    best = next(r for r in result.results if r.schedule != "serial")
    torch_ms, flux_ms = FLUX_MS[m]
    return FluxRow(
        m=m,
        torch_s=torch_ms * MS,
        flux_s=flux_ms * MS,
        serial_s=_seconds("serial", workload, machine, "core"),
        like_s=_fastest_s(result, FLUX_LIKE),
        shard_s=_fastest_s(result, "shard-p2p"),
        best=best.title.replace(" with ", ", "),
        best_s=best.makespan_s,
        ideal_s=result.ideal_s,
    )


def flux_line(row: FluxRow) -> str:
    """A row of the table."""
    return (
        f"| {row.m} | {row.torch_s / MS:.3f} | {row.serial_s / MS:.3f} "
        f"({_percent(row.serial_s, row.torch_s)}) | {row.flux_s / MS:.3f} | {row.like_s / MS:.3f} "
        f"({_percent(row.like_s, row.flux_s)}) | {row.best_s / MS:.3f} "
        f"({_percent(row.best_s, row.flux_s)}) {row.best} | {row.shard_s / MS:.3f} | "
        f"{row.ideal_s / MS:.3f} | {row.published:.2f}x | {row.like:.2f}x "
        f"({_percent(row.like, row.published)}) | {'yes' if row.agrees else 'no'} |"
    )


def flux_table() -> list[str]:
    """All shapes, and means."""
    rows = [flux_row(m) for m in FLUX_MS]
    same = sum(row.agrees for row in rows)

    def mean(pairs: Sequence[tuple[float, float]]) -> str:
        return f"{fmean(abs(a / b - 1) for a, b in pairs):.0%}"

    return [
        "| M | torch, ms | serial | flux, ms | closest | best of all | shard-p2p | ideal | speed-up "
        "published | closest | same sign |",
        "|---" * 11 + "|",
        *(flux_line(row) for row in rows),
        f"| mean error | | {mean([(r.serial_s, r.torch_s) for r in rows])} | | "
        f"{mean([(r.like_s, r.flux_s) for r in rows])} | "
        f"{mean([(r.best_s, r.flux_s) for r in rows])} | | | | "
        f"{mean([(r.like, r.published) for r in rows])} | {same} of {len(rows)} |",
    ]


# independent GEMM and all-gather


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """A GEMM beside an all-gather that it does not need.

    Parameters
    ----------
    gemm_s, comm_s
        Each alone, the all-gather by copy kernels.
    speedup
        Over one after the other with copy kernels; by way of overlapping, see `CONCCL_SHARE`.
    """

    gemm_s: float
    comm_s: float
    speedup: dict[str, float]

    @property
    def ideal(self) -> float:
        """Speed-up of perfect overlap."""
        return (self.gemm_s + self.comm_s) / max(self.gemm_s, self.comm_s)

    def share(self, way: str) -> float:
        """Of the ideal speed-up, as ConCCL defines it."""
        return (self.speedup[way] - 1) / (self.ideal - 1)

    @property
    def kind(self) -> str:
        """Which of the two is longer, by ConCCL's line of 15 %."""
        ratio = self.gemm_s / self.comm_s
        if ratio > CONCCL_EQUAL:
            return "GEMM longer"
        return "all-gather longer" if ratio < 1 / CONCCL_EQUAL else "about equal"


def unhindered(machine: Machine) -> Machine:
    """The machine with copy kernels that keep their pace beside a GEMM: they were launched first."""
    core = replace(machine.profile.core_copy, slowdown_beside_gemm=1.0)
    return replace(machine, profile=replace(machine.profile, core_copy=core))


def beside(machine: Machine, workload: Workload, gathered_bytes: int) -> Beside:
    """Simulate the three ways, and one after the other."""
    cols = 8192
    rows = gathered_bytes // workload.element_bytes // cols

    def run(where: Machine, engine: str, *, overlap: bool = True) -> Trace:
        plan = side_by_side(
            workload, where.num_gpus, gathered_rows=rows, gathered_cols=cols,
            engine=engine, overlap=overlap,
        )  # fmt: skip
        return simulate(plan, where)

    serial = run(machine, "core", overlap=False)
    ways = {"naive": (machine, "core"), "tuned": (unhindered(machine), "core"), "dma": (machine, "dma")}
    return Beside(
        gemm_s=max(s.duration_s for s in serial.spans if s.kind == "gemm"),
        comm_s=max(s.end_s for s in serial.spans if s.kind == "transfer"),
        speedup={way: serial.makespan_s / run(*where).makespan_s for way, where in ways.items()},
    )


@functools.cache
def conccl_scenarios() -> tuple[Beside, ...]:
    """GEMMs and all-gathers of which perfect overlap would gain something worth sharing."""
    found = []
    for name in CONCCL_GEMMS:
        gemm = replace(get_workload(name), pattern="gemm")
        for mib in CONCCL_MIB:
            scenario = beside(_machine("mi300x_8"), gemm, mib * MIB)
            if scenario.ideal >= CONCCL_LEAST_IDEAL:
                found.append(scenario)
    return tuple(found)


def conccl_line(kind: str) -> str:
    """Mean shares over the scenarios of a class."""
    some = [s for s in conccl_scenarios() if kind in ("all", s.kind)]
    shares = " | ".join(f"{fmean(s.share(way) for s in some):.0%}" for way in CONCCL_SHARE)
    most = max(s.speedup["dma"] for s in some)
    return f"| {kind}, {len(some)} | {fmean(s.ideal for s in some):.2f}x | {shares} | {most:.2f}x |"


def conccl_table() -> list[str]:
    """Published shares, and ours by class."""
    return [
        "| scenarios | mean ideal | copy kernels | copy kernels, first served | DMA | most, DMA |",
        "|---" * 6 + "|",
        "| published, 30 | - | "
        + " | ".join(f"{share:.0%}" for share in CONCCL_SHARE.values())
        + " | 1.67x |",
        *(conccl_line(kind) for kind in CONCCL_CLASSES),
    ]


def units_slowdown(units: int) -> float:
    """By how much a GEMM of 8192 cubed slows without some compute units."""
    machine = _machine("mi300x_8")
    shape = GemmShape((8192,), 8192, 8192, "bf16")
    model = CostModel(machine).gemm_model
    fewer = model.cost(shape, machine.gpu.num_compute_units - units)
    return fewer.time_s / model.cost(shape).time_s - 1


def parts_lines() -> list[tuple[str, str, str]]:
    """What, published, predicted: the pieces of which such overlap is made."""
    lines = [
        (
            f"MI300X, compute-bound GEMM without {units} of 304 compute units",
            f"{slowdown:.0%} slower",
            f"{units_slowdown(units):.0%} slower",
        )
        for units, slowdown in UNITS_SLOWDOWN.items()
    ]
    workload = Workload(name="g", pattern="gemm", m=8192, n=8192, k=8192, dtype="fp16")
    ours = beside(_machine("h100_8"), workload, 8 * 64 * MIB)
    for way, engine in (("naive", "core"), ("dma", "dma")):
        name = "copy kernels" if engine == "core" else "copy engines"
        lines.append(
            (
                f"8 H100, GEMM 8192 cubed fp16 beside shards of 64 MiB, {name} (*)",
                f"{H100_SIDE_BY_SIDE[engine]:.2f}x",
                f"{ours.speedup[way]:.2f}x",
            )
        )
    return lines


def parts_table() -> list[str]:
    """See `parts_lines`."""
    rows = [f"| {' | '.join(line)} |" for line in parts_lines()]
    return ["| what | published | predicted |", "|---|---|---|", *rows]


# small copies by DMA


def gather_s(machine: Machine, total_bytes: int, engine: str = "dma") -> float:
    """Time of an all-gather, every shard on a link of its own."""
    gpus = machine.num_gpus
    workload = Workload(
        name="ag", pattern="all_gather", m=gpus, n=1, k=max(1, total_bytes // gpus // 2)
    )
    return simulate(collective(workload, gpus, engine=engine), machine).makespan_s


@functools.cache
def copy_shares(num_bytes: int) -> tuple[float, float]:
    """Shares of one copy's time in its copy phase and its sync phase."""
    machine = _machine("mi300x_8")
    copy = machine.profile.copy
    total_s = gather_s(machine, machine.num_gpus * num_bytes)
    bytes_s = total_s - copy.setup_s - machine.links[0].latency_s - copy.completion_s
    return (LATTE_FIXED_COPY_S + bytes_s) / total_s, copy.completion_s / total_s


def shares_line(size: str) -> str:
    """Phases of one copy."""
    num_bytes, copy, sync = LATTE_SHARES[size]
    ours_copy, ours_sync = copy_shares(num_bytes)
    return f"| {size} | {copy} % | {ours_copy:.0%} | {sync} % | {ours_sync:.0%} |"


def shares_table() -> list[str]:
    """Phases of one copy by size."""
    return [
        "| one copy (*) | copy, published | predicted | sync, published | predicted |",
        "|---" * 5 + "|",
        *map(shares_line, LATTE_SHARES),
    ]


@functools.cache
def one_engine(num_bytes: int) -> float:
    """Speed-up of all copies of an all-gather on one engine over an engine each; below 1, a loss."""
    machine = _machine("mi300x_8")
    single = replace(machine, gpu=replace(machine.gpu, num_dma_engines=1))
    return gather_s(machine, num_bytes) / gather_s(single, num_bytes)


def gather_line(size: str) -> str:
    """One engine against seven."""
    num_bytes, seven, one = LATTE_GATHERS[size]
    ours = one_engine(num_bytes)
    agrees = "yes" if (ours > 1) == (one > seven) else "no"
    return f"| {size} | {one / seven:.2f} | {ours:.2f} | {agrees} |"


def gather_table() -> list[str]:
    """One engine against seven by size."""
    return [
        "| all-gather of | one engine over seven, published | predicted | same sign |",
        "|---" * 4 + "|",
        *map(gather_line, LATTE_GATHERS),
    ]


def rccl_line(size: str) -> str:
    """DMA against copy kernels."""
    num_bytes, text, ratio = LATTE_RCCL[size]
    machine = _machine("mi300x_8")
    ours = gather_s(machine, num_bytes) / gather_s(machine, num_bytes, "core")
    return f"| {size} | {text} ({ratio}) | {ours:.2f} |"


def rccl_table() -> list[str]:
    """DMA against copy kernels, in time."""
    return [
        "| all-gather of | DMA over RCCL, published time | predicted |",
        "|---|---|---|",
        *map(rccl_line, LATTE_RCCL),
    ]


# async TP


@functools.cache
def async_seconds(workload: Workload, submission: Submission = "eager") -> tuple[float, float]:
    """Seconds of one after the other, and of shard-level overlap.

    The all-gather is one library call, so that one submission comes before it; that of the GEMM
    hides behind it. In `shard-p2p` every copy and GEMM is a submission.
    """
    machine = _machine("h100_8")
    submit_s = CostModel(machine, submission=submission).submit_s
    serial_s = _seconds("serial", workload, machine, "core") + submit_s
    return serial_s, _seconds("shard-p2p", workload, machine, "dma", submission)


def async_workload(m: int, n: int) -> Workload:
    """The case's shape, with its all-gather in place of its reduce-scatter."""
    return Workload(name=f"b52-{m}", pattern="all_gather_gemm", m=m, n=n, k=ASYNC_K, dtype="fp8")


def async_ratios(m: int) -> tuple[float, float]:
    """Speed-ups with all of N on each gpu, and with its share of N."""
    whole, part = (async_seconds(async_workload(m, n)) for n in (ASYNC_N, ASYNC_N // ASYNC_GPUS))
    return whole[0] / whole[1], part[0] / part[1]


def async_line(m: int) -> str:
    """One M: published and predicted speed-ups."""
    fused_us, plain_us = ASYNC_US[m]
    published = plain_us / fused_us
    whole, part = async_ratios(m)
    agree = sum((ours > 1) == (published > 1) for ours in (whole, part))
    return f"| {m} | {published:.2f}x | {whole:.2f}x | {part:.2f}x | {agree} of 2 |"


def break_even(n: int, submission: Submission = "eager") -> str:
    """Between which powers of two overlap begins to pay, and pays from there on."""
    least = 0
    for m in (2**i for i in range(15, 4, -1)):
        serial_s, overlapped_s = async_seconds(async_workload(m, n), submission)
        if serial_s <= overlapped_s:
            return f"{m} to {least}" if least else f"above {m}"
        least = m
    return f"below {least}"


def gather_lines() -> list[str]:
    """The row with an all-gather."""
    workload, *published_us = ASYNC_GATHER
    eager, captured = (async_seconds(workload, how) for how in ("eager", "graph"))
    lines = [
        f"| {what}, us | {truth:.0f} | {a / US:.0f} ({_percent(a / US, truth)}) | "
        f"{b / US:.0f} ({_percent(b / US, truth)}) |"
        for what, truth, a, b in zip(
            ("NCCL, then cuBLAS", "decomposed async TP"), published_us, eager, captured, strict=True
        )
    ]
    speedups = [a / b for a, b in (published_us, eager, captured)]
    return [*lines, "| speed-up | " + " | ".join(f"{x:.2f}x" for x in speedups) + " |"]


def async_table() -> list[str]:
    """The sweep, its break-even, and the row with an all-gather."""
    whole, part = ASYNC_N, ASYNC_N // ASYNC_GPUS
    captured = [break_even(n, "graph") for n in (whole, part)]
    return [
        f"| M | published | predicted, n = {whole} | n = {part} | same sign |",
        "|---" * 5 + "|",
        *map(async_line, ASYNC_US),
        f"| break-even | 2048 to 4096 | {break_even(whole)} | {break_even(part)} | |",
        f"| break-even, captured | - | {' | '.join(captured)} | |",
        "",
        "| all-gather, M 2048, N 3584, K 8192, bf16 | published | predicted, eager | captured |",
        "|---" * 4 + "|",
        *gather_lines(),
    ]


TABLES: dict[str, Callable[[], list[str]]] = {
    "flux": flux_table,
    "conccl": conccl_table,
    "parts": parts_table,
    "shares": shares_table,
    "gather": gather_table,
    "rccl": rccl_table,
    "async": async_table,
}


def write(page: str) -> str:
    """The page with all tables made anew."""
    for name, table in TABLES.items():
        marker = MARKER.format(name)
        before, _, rest = page.partition(marker)
        _, _, after = rest.partition(END)
        lines = "\n".join(table())
        page = f"{before}{marker}\n{lines}\n{END}{after}"
    return page


def main() -> None:
    """Print the tables, or write them into the page."""
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(write(PAGE.read_text()))
        return
    for name, table in TABLES.items():
        print(f"{name}\n" + "\n".join(table()) + "\n")  # noqa: T201


if __name__ == "__main__":
    main()

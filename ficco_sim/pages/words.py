"""Schedules and causes in plain words, for readers who know gpus but not the paper."""

from ficco_sim.comparison import Result
from ficco_sim.machine import Machine
from ficco_sim.metrics import Cause
from ficco_sim.schedules import FICCO
from ficco_sim.workload import Workload

__all__ = [
    "CAUSES",
    "GLOSSARY",
    "PARTS",
    "REMEDIES",
    "describe_operator",
    "describe_result",
    "sentence",
    "short",
]

LONGEST_NAME = 34  # characters of a name in a figure

CAUSES: dict[Cause, str] = {
    "compute-bound": "the GEMM itself: nearly all communication is hidden behind it",
    "link-bound": "the links between gpus: compute waits for data",
    "decomposition": "cutting: smaller GEMMs, copies and commands take longer than the whole at once",
    "contention": "contention: copies and GEMMs slow each other while they overlap",
    "submission": "the host, which submits tasks more slowly than gpus finish them",
}
REMEDIES: dict[Cause, str] = {
    "compute-bound": "A faster GEMM would help; a better schedule would not.",
    "link-bound": "Faster links, or a schedule that keeps more of them busy, would help.",
    "decomposition": "Fewer chunks lose less to cutting but hide less; a library with faster small "
    "GEMMs would help.",
    "contention": "Copies by other engines, or more memory bandwidth, would help.",
    "submission": "Capture the plan in a graph, or cut it into fewer tasks.",
}
PARTS = {
    "gemm_s": "whole GEMM alone",
    "decomposition_s": "lost to cutting (DIL)",
    "contention_s": "lost to contention (CIL)",
    "exposed_comm_s": "waiting for transfers",
    "submission_s": "waiting for the host",
}
_SIMPLE = {
    "serial": "All communication first, then one whole GEMM: no overlap.",
    "shard-p2p": "Whole shards from one peer at a time, a GEMM for each: overlap without finer cuts, "
    "one link of a gpu busy at a time.",
    "shard-ring": "Whole shards passed on round a ring, a GEMM for each.",
}
_UNIFORM = {
    "uniform": "all steps are alike",
    "hetero": "a gpu multiplies its own shard whole first, while the first chunks are on their way",
}
_GRANULARITY = {
    "fused": "one GEMM a step over all chunks gathered side by side",
    "unfused": "one GEMM for each chunk as it arrives",
    "batched": "one batched GEMM a step, written in place",
}
_SHAPE = {"1d": "slices of rows", "2d": "slices of columns, whose products add up"}
_ENGINES = {
    "dma": "DMA copy engines move the data",
    "core": "copy kernels on compute units move the data",
}

GLOSSARY = (
    ("schedule", "the order in which pieces are sent and multiplied on every gpu"),
    ("serial", "communication first, then the GEMM: what speed-ups are measured by"),
    ("shard, chunk", "a gpu's own rows of the gathered matrix; a piece of a shard"),
    ("makespan", "time from the start to the end of the last task on the last gpu"),
    ("ideal", "the longer of the whole GEMM alone and the whole communication alone: a bound that "
     "perfect overlap would reach, not a schedule"),
    ("of ideal", "(speed-up - 1) / (ideal speed-up - 1)"),
    ("exposed", "time in which a gpu's compute queue waits for a transfer"),
    ("DIL", "decomposition loss: time of the parts alone / time of the whole alone; 1 is no loss"),
    ("CIL", "contention loss: time under overlap / time of the same tasks alone; 1 is no loss"),
    ("held back by", "the largest loss; or, within 5 % of the ideal, what bounds that"),
    ("10-90 %", "interval of the makespan over draws of what the fitted costs leave open"),
    ("labels", "measured: by a run or a benchmark; stated: by a maker or paper; derived: computed "
     "from such; estimated: our guess; emulated: stands for something that was not run"),
)  # fmt: skip


def sentence(words: str) -> str:
    """Words with a capital letter first; abbreviations stay as they are."""
    return words[:1].upper() + words[1:]


def short(name: str) -> str:
    """A name that fits beside an axis."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}\u2026"


def describe_operator(workload: Workload | None, machine: Machine | None) -> str:
    """What is computed, and on what, in a sentence; nothing if it is not known."""
    if workload is None or machine is None:
        return ""
    w, gpus = workload, f"{machine.num_gpus} {machine.gpu.name}"
    if w.pattern == "all_gather_gemm":
        return (
            f"The operator: A [{w.m}, {w.k}] {w.dtype} lies in {machine.num_gpus} shards of rows, one "
            f"on each of {gpus}; every gpu gathers all of A and multiplies it by its own "
            f"B [{w.k}, {w.n}]."
        )
    if w.pattern == "all_to_all_gemm":
        return (
            f"The operator: {w.m} rows of {w.k} {w.dtype} elements are exchanged among {gpus}, each to "
            f"the gpu of its expert, which multiplies what it gets by its own B [{w.k}, {w.n}]."
        )
    return ""


def describe_result(result: Result) -> str:
    """What a schedule does, in one or two sentences."""
    if result.schedule in _SIMPLE:
        return _SIMPLE[result.schedule]
    if result.schedule not in FICCO or result.engine not in _ENGINES:
        return ""
    uniformity, granularity, shape = result.schedule.split("-")
    queues = (
        f" GEMMs take turns on {result.compute_queues} compute queues."
        if result.compute_queues > 1
        else ""
    )
    return (
        f"Every shard is cut into {result.num_chunks} chunks, {_SHAPE[shape]}; in each step a gpu "
        f"receives one chunk from every peer, so that all its links can be busy at once; "
        f"{_UNIFORM[uniformity]}; {_GRANULARITY[granularity]}. "
        f"{sentence(_ENGINES[result.engine])}.{queues}"
    )

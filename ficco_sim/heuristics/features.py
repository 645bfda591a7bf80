"""What rules decide on: a workload and a machine in about thirty numbers."""

from collections.abc import Callable
from dataclasses import dataclass, fields

from ficco_sim.errors import ScenarioError
from ficco_sim.grid import COMPARED
from ficco_sim.heuristics.machines import dtype_features, machine_features
from ficco_sim.machine import Machine
from ficco_sim.units import format_bytes, format_flops, format_rate, format_seconds
from ficco_sim.workload import Workload

__all__ = ["FEATURE_NAMES", "Features", "features_of", "format_feature"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """A workload on a machine, from data-sheet values and fitted rates; nothing is simulated.

    Parameters
    ----------
    m, n, k
        Elements: gathered rows (all-to-all: of the busiest gpu), local columns, contraction.
    num_gpus
        p.
    is_exchange
        1 for an all-to-all, 0 for an all-gather.
    imbalance
        Rows of the busiest gpu over the mean; 1 unless an all-to-all is skewed.
    flops, gemm_bytes
        Of the whole GEMM of a gpu: 2 m n k, and the paper's MT, operands read and C written once.
    otb_flops_per_byte
        The paper's OTB, ``flops / gemm_bytes``.
    peak_flops_per_s, hbm_bytes_per_s
        Of the data sheet, for the element type.
    sustained_flops_per_s
        The profile's main loop on its best macro tile.
    roofline_s
        ``max(flops / peak, gemm_bytes / hbm)``.
    gemm_s
        Estimate of the whole GEMM: ``max(flops / sustained, gemm_bytes / hbm) + launch``, as if its
        last wave were full.
    gemm_waves
        Macro tiles of C over the compute units, not rounded: what the GEMM can be cut into.
    gathered_bytes, shard_bytes, received_bytes
        A as a gpu multiplies it; the part of one owner; what arrives from all peers.
    peer_bytes_per_s, all_peers_bytes_per_s, next_bytes_per_s
        Received by a gpu from one peer after another, from all at once, from the next gpu only; see
        `ficco_sim.heuristics.machines.MachineFeatures`.
    comm_s
        Estimate of the whole communication: ``received / all_peers + copy_step``.
    peer_comm_s
        The same from one peer at a time, a command each.
    gemm_to_comm
        ``gemm_s / comm_s``; 1e9 if nothing is moved.
    copy_command_s, copy_step_s
        Commands of one copy; of one copy from every peer on the engines that a gpu has.
    launch_s, event_wait_s
        Start-up of a GEMM with the gap before it; wait for a task on another queue.
    """

    m: int
    n: int
    k: int
    num_gpus: int
    is_exchange: int
    imbalance: float
    flops: int
    gemm_bytes: int
    otb_flops_per_byte: float
    peak_flops_per_s: float
    sustained_flops_per_s: float
    hbm_bytes_per_s: float
    roofline_s: float
    gemm_s: float
    gemm_waves: float
    gathered_bytes: int
    shard_bytes: float
    received_bytes: int
    peer_bytes_per_s: float
    all_peers_bytes_per_s: float
    next_bytes_per_s: float
    comm_s: float
    peer_comm_s: float
    gemm_to_comm: float
    copy_command_s: float
    copy_step_s: float
    launch_s: float
    event_wait_s: float


FEATURE_NAMES: tuple[str, ...] = tuple(f.name for f in fields(Features))
NOTHING_MOVES = 1e9  # stands for an endless ratio, which JSON cannot say

UNITS: tuple[tuple[str, Callable[[float], str]], ...] = (
    ("_flops_per_byte", lambda x: f"{x:.0f} FLOP/B"),
    ("_flops_per_s", lambda x: f"{x / 1e12:.0f} TFLOP/s"),
    ("_bytes_per_s", format_rate),
    ("_bytes", format_bytes),
    ("flops", format_flops),
    ("_s", format_seconds),
    ("", lambda x: f"{x:.4g}" if isinstance(x, float) else str(x)),
)
"""Endings of features' names, the longest first, and how such a value is written."""

_last: tuple[Workload, Machine, Features] | None = None


def features_of(workload: Workload, machine: Machine) -> Features:
    """Features of a workload on a machine; microseconds, once the machine has been seen.

    Raises
    ------
    ScenarioError, MachineError
        If no schedule can be run: no GEMM after communication, tokens for another number of gpus, an
        element type that the gpu has no rates for, or gpus that no path joins.
    """
    global _last  # noqa: PLW0603 - rules of one scenario ask one after another
    last = _last
    if last is not None and last[0] is workload and last[1] is machine:
        return last[2]
    features = _compute(workload, machine)
    _last = (workload, machine, features)
    return features


def _compute(workload: Workload, machine: Machine) -> Features:
    if workload.pattern not in COMPARED:
        raise ScenarioError(
            f"workload {workload.name!r}: nothing to choose for the pattern {workload.pattern}, only "
            f"for {' and '.join(COMPARED)}"
        )
    tokens = workload.tokens
    p = machine.num_gpus
    if tokens is not None and len(tokens) != p:
        raise ScenarioError(
            f"workload {workload.name!r}: its tokens are for {len(tokens)} gpus, not {p}"
        )
    place = machine_features(machine)
    gpu = dtype_features(place, workload.dtype)
    m, n, k = workload.m, workload.n, workload.k
    flops, gemm_bytes, gathered = workload.flops, workload.gemm_bytes, workload.gathered_bytes
    row_bytes = k * workload.element_bytes
    if tokens is None:
        received = (m - m // p) * row_bytes
        all_peers = place.gather_bytes_per_s
    else:
        columns = [sum(column) - column[g] for g, column in enumerate(zip(*tokens, strict=True))]
        received = max(columns) * row_bytes
        all_peers = place.exchange_bytes_per_s
    hbm_s = gemm_bytes / place.hbm_bytes_per_s
    launch_s = gpu.startup_s + place.queue_gap_s
    gemm_s = max(flops / gpu.sustained_flops_per_s, hbm_s) + launch_s
    copy_step_s = -(-(p - 1) // place.num_dma_engines) * place.copy_command_s
    comm_s = received / all_peers + copy_step_s if received else 0.0
    a, b = gpu.tile
    return Features(
        m=m,
        n=n,
        k=k,
        num_gpus=p,
        is_exchange=int(tokens is not None),
        imbalance=workload.imbalance,
        flops=flops,
        gemm_bytes=gemm_bytes,
        otb_flops_per_byte=flops / gemm_bytes,
        peak_flops_per_s=gpu.peak_flops_per_s,
        sustained_flops_per_s=gpu.sustained_flops_per_s,
        hbm_bytes_per_s=place.hbm_bytes_per_s,
        roofline_s=max(flops / gpu.peak_flops_per_s, hbm_s),
        gemm_s=gemm_s,
        gemm_waves=-(-m // a) * -(-n // b) / place.num_compute_units,
        gathered_bytes=gathered,
        shard_bytes=gathered / p,
        received_bytes=received,
        peer_bytes_per_s=place.peer_bytes_per_s,
        all_peers_bytes_per_s=all_peers,
        next_bytes_per_s=place.next_bytes_per_s,
        comm_s=comm_s,
        peer_comm_s=received / place.peer_bytes_per_s + (p - 1) * place.copy_command_s,
        gemm_to_comm=gemm_s / comm_s if comm_s else NOTHING_MOVES,
        copy_command_s=place.copy_command_s,
        copy_step_s=copy_step_s,
        launch_s=launch_s,
        event_wait_s=place.event_wait_s,
    )


def format_feature(name: str, value: float) -> str:
    """Write the value of a feature, or a threshold for it, with its unit.

    Examples
    --------
    >>> format_feature("comm_s", 0.00036715)
    '367.15 us'
    >>> format_feature("gemm_to_comm", 3.95123)
    '3.951'
    """
    return next(write for ending, write in UNITS if name.endswith(ending))(value)

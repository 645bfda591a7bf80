"""GEMMs alone, and several side by side.

Shape legend: M rows, N columns of B, K contraction.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ficco_sim.records import Scalar
from ficco_sim.schedules import make_plan
from ficco_sim.workload import ALIGNMENT, DTYPE_BYTES, OUTPUT_DTYPE, Workload
from hw_validate import operations
from hw_validate.microbench.bench import Bench, Slot, in_turn, needed_bytes
from hw_validate.microbench.case import Built, Case, Named, compute_lane, span_s, window_s
from hw_validate.microbench.copies import beside, beside_needs
from hw_validate.microbench.setup import Setup, place_name
from hw_validate.microbench.shapes import GemmShape, busiest_gpu, off_grid, pieces_of, shapes_of
from hw_validate.operations import TORCH_DTYPES
from hw_validate.program import Launch, Step

__all__ = ["GemmWork", "equal_pieces", "gemm_cases", "gemms_cases"]

GUESSED_FLOPS_PER_S = {"bf16": 700e12, "fp16": 700e12, "fp8": 1200e12, "fp32": 50e12}
GUESSED_HBM_BYTES_PER_S = 3e12
GUESSED_START_S = 4e-6
LEAST_SAMPLE_S = 100e-6  # events are good to about a microsecond
MAX_REPEATS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmWork:
    """The same GEMM several times: one B, but a fresh A and C each time, as pieces of a plan have.

    `GemmWork.of` chooses how often.
    """

    shape: GemmShape
    dtype: str
    repeats: int
    setup: Setup

    @staticmethod
    def of(
        shape: GemmShape, dtype: str, setup: Setup, least_s: float, reserved_bytes: int = 0
    ) -> "GemmWork":
        """So many that they take a while together, but no more than memory allows.

        Parameters
        ----------
        least_s
            How long they take at least, at guessed rates.
        reserved_bytes
            Of the memory budget, for other things.
        """
        once = GemmWork(shape=shape, dtype=dtype, repeats=1, setup=setup)
        repeats = min(MAX_REPEATS, max(1, math.ceil(least_s / once.estimate_s)))
        room = setup.budget_bytes - reserved_bytes
        while repeats > 1 and replace(once, repeats=repeats).nbytes > room:
            repeats //= 2
        return replace(once, repeats=repeats)

    @property
    def params(self) -> dict[str, Scalar]:
        """What identifies it."""
        shape = self.shape
        return {
            "m": shape.m,
            "n": shape.n,
            "k": shape.k,
            "dtype": self.dtype,
            "entries": shape.entries,
            "apart": shape.apart,
            "a_pitch": shape.a_pitch,
            "accumulate": shape.accumulate,
            "repeats": self.repeats,
            "init": self.setup.init,
            "device": place_name(self.setup.device),
        }

    @property
    def needs(self) -> dict[Slot, int]:
        """Elements of A, B and C."""
        shape = self.shape
        in_block = shape.apart // shape.m
        rows = math.ceil(self.repeats / in_block) * shape.entries * shape.apart
        a, b, c = self._slots()
        return {a: rows * shape.a_pitch, b: shape.k * shape.n, c: rows * shape.n}

    @property
    def nbytes(self) -> int:
        """Bytes of A, B and C."""
        return sum(needed_bytes(self.needs).values())

    @property
    def estimate_s(self) -> float:
        """A guess of the time of all repeats."""
        shape = self.shape
        read = (shape.entries * shape.m * shape.k + shape.k * shape.n) * DTYPE_BYTES[self.dtype]
        moved = read + shape.entries * shape.m * shape.n * DTYPE_BYTES[OUTPUT_DTYPE[self.dtype]]
        busy_s = max(shape.flops / GUESSED_FLOPS_PER_S[self.dtype], moved / GUESSED_HBM_BYTES_PER_S)
        return self.repeats * (GUESSED_START_S + busy_s)

    @property
    def peak_flops_per_s(self) -> float | None:
        """The rate that the device cannot exceed, if it is known."""
        return self.setup.peaks.flops_per_s.get(self.dtype)

    @property
    def unusable(self) -> tuple[str, ...]:
        """Why torch has no such GEMM."""
        step = ALIGNMENT.get(self.dtype, 1)
        texts = [
            f"{name} = {size} is no multiple of {step}, which {self.dtype} needs"
            for name, size in (("n", self.shape.n), ("k", self.shape.k))
            if size % step
        ]
        if self.dtype == "fp8" and self.shape.accumulate:
            texts.append("torch has no fp8 GEMM that accumulates into its output")
        return tuple(texts)

    def launches(self, bench: Bench) -> list[Launch]:
        """A launch for each repeat."""
        shape = self.shape
        slot_a, slot_b, slot_c = self._slots()
        if self.dtype == "fp8":  # its matrix units want the second factor stored by columns
            b_KN = bench.take(slot_b, 0, shape.n, shape.k).t()
        else:
            b_KN = bench.take(slot_b, 0, shape.k, shape.n)
        in_block = shape.apart // shape.m
        made = []
        for i in range(self.repeats):
            # further repeats fill the gaps between the entries first, as the steps of a plan do
            start = (i // in_block) * shape.entries * shape.apart + (i % in_block) * shape.m
            rows = [start + entry * shape.apart for entry in range(shape.entries)]
            entries = [
                (
                    bench.take(slot_a, row * shape.a_pitch, shape.m, shape.k, shape.a_pitch),
                    bench.take(slot_c, row * shape.n, shape.m, shape.n),
                )
                for row in rows
            ]
            made.append(operations.gemm(entries, b_KN, accumulates=shape.accumulate, name=str(shape)))
        return made

    def _slots(self) -> tuple[Slot, Slot, Slot]:
        kind, out = TORCH_DTYPES[self.dtype], TORCH_DTYPES[OUTPUT_DTYPE[self.dtype]]
        place, fill = self.setup.device, self.setup.init
        return (
            Slot(place=place, name="a", dtype=kind, fill=fill),
            Slot(place=place, name="b", dtype=kind, fill=fill),
            Slot(place=place, name="c", dtype=out, fill="zeros"),
        )


def gemm_cases(setup: Setup) -> Named:
    """Whole operators, all their pieces, and shapes off that grid; a sample is one GEMM's time."""
    named: Named = []
    for dtype in setup.dtypes:
        for workload in setup.workloads:
            shapes = shapes_of(replace(workload, dtype=dtype), setup.num_gpus, setup.num_chunks)
            named.append((f"gemm {workload.name} {dtype}", _alone(shapes, dtype, setup)))
        others = off_grid(setup.seed, setup.sizes.random_shapes)
        named.append((f"gemm off the grid {dtype}", _alone(others, dtype, setup)))
    return named


def gemms_cases(setup: Setup) -> Named:
    """Equal pieces of a workload, round robin over queues; a sample is the time of all."""
    return [
        (
            f"gemms {workload.name} {dtype}",
            [
                _side_by_side(shape, dtype, queues, setup)
                for shape in equal_pieces(replace(workload, dtype=dtype), setup)
                for queues in setup.sizes.queues
            ],
        )
        for dtype in setup.dtypes
        for workload in setup.workloads
    ]


def equal_pieces(workload: Workload, setup: Setup) -> list[GemmShape]:
    """The largest GEMM of a chunk, for each number of chunks."""
    if workload.pattern not in ("all_gather_gemm", "all_to_all_gemm"):
        return []
    gpus = setup.num_gpus if workload.tokens is None else len(workload.tokens)
    found: dict[GemmShape, None] = {}
    for chunks in setup.num_chunks:
        plan = make_plan("uniform-unfused-1d", workload, gpus, {"num_chunks": chunks})
        found[max(pieces_of(plan, busiest_gpu(plan)))] = None
    return list(found)


def _alone(shapes: Iterable[GemmShape], dtype: str, setup: Setup) -> list[Case]:
    return [_one(GemmWork.of(shape, dtype, setup, LEAST_SAMPLE_S)) for shape in shapes]


def _one(work: GemmWork) -> Case:
    def build(bench: Bench) -> Built:
        launch = in_turn(work.launches(bench))
        gemm = Step(id="gemm", lane=compute_lane(work.setup.device), launch=launch)
        steps = [beside(bench, work.setup), gemm]
        return Built(
            prepared=bench.prepare(steps), sample=lambda run: span_s(run, "gemm") / work.repeats
        )

    return Case(
        kind="gemm",
        params=work.params,
        build=build,
        estimate_s=work.estimate_s,
        needs={**work.needs, **beside_needs(work.setup)},
        flops=work.shape.flops,
        peak_flops_per_s=work.peak_flops_per_s,
        unusable=work.unusable,
    )


def _side_by_side(shape: GemmShape, dtype: str, queues: int, setup: Setup) -> Case:
    work = GemmWork(shape=shape, dtype=dtype, repeats=setup.sizes.queued_gemms, setup=setup)

    def build(bench: Bench) -> Built:
        launches = work.launches(bench)
        steps = [
            Step(
                id=f"gemms{queue}",
                lane=compute_lane(setup.device, queue),
                launch=in_turn(launches[queue::queues]),
            )
            for queue in range(min(queues, len(launches)))
        ]
        prepared = bench.prepare([beside(bench, setup), *steps])
        return Built(prepared=prepared, sample=lambda run: window_s(run, "gemms"))

    return Case(
        kind="gemms",
        params={**work.params, "queues": queues},
        build=build,
        estimate_s=work.estimate_s,
        needs={**work.needs, **beside_needs(setup)},
        flops=work.repeats * shape.flops,
        peak_flops_per_s=work.peak_flops_per_s,
        unusable=work.unusable,
    )

"""Copies between places, by copy engines and by the copy kernel, and within a device's memory."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ficco_sim.records import Scalar
from hw_validate.microbench.bench import Bench, Slot, in_turn
from hw_validate.microbench.case import Built, Case, Named, compute_lane, span_s, window_s
from hw_validate.microbench.setup import Flow, Setup, parse_direction, place_name
from hw_validate.program import Lane, Launch, Pair, Step

__all__ = [
    "TINY_BYTES",
    "Copies",
    "Rows",
    "beside",
    "beside_needs",
    "copy_cases",
    "core_cases",
    "flow_lane",
    "local_cases",
    "tiny_copy",
]

GUESSED_BYTES_PER_S = {"host": 50e9, "peer": 300e9, "same": 300e9}
GUESSED_CORE_BLOCK_BYTES_PER_S = 5e9  # of one block
GUESSED_LOCAL_BYTES_PER_S = 1.5e12  # copied, so that as much is read and written again
GUESSED_COMMAND_S = 4e-6
LEAST_LOCAL_S = 50e-6
MAX_LOCAL_REPEATS = 16
TINY_BYTES = 256
SERIES = ("copy_s", "back_s")
"""Names of the times of the first flow and of the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """How the bytes of one copy lie: rows that are a pitch apart at either end, in bytes."""

    rows: int
    row_bytes: int
    src_pitch: int
    dst_pitch: int

    @staticmethod
    def contiguous(nbytes: int) -> "Rows":
        """All in one row."""
        return Rows(rows=1, row_bytes=nbytes, src_pitch=nbytes, dst_pitch=nbytes)

    @property
    def nbytes(self) -> int:
        """Bytes that are copied."""
        return self.rows * self.row_bytes

    @property
    def params(self) -> dict[str, Scalar]:
        """What identifies it."""
        return {
            "nbytes": self.nbytes,
            "rows": self.rows,
            "row_bytes": self.row_bytes,
            "pitch": self.src_pitch,
            "dst_pitch": self.dst_pitch,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """Equal copies in one direction or two at once, each between bytes of its own.

    Parameters
    ----------
    engine, blocks
        ``dma``, or ``core`` with so many blocks of the copy kernel.
    regions
        After so many copies of a flow the same bytes are copied again.
    """

    direction: str
    rows: Rows
    engine: str
    blocks: int | None
    regions: int

    @property
    def flows(self) -> tuple[Flow, ...]:
        """One for each direction at once."""
        return parse_direction(self.direction)

    @property
    def params(self) -> dict[str, Scalar]:
        """What identifies it, but for how many copies there are."""
        first = self.flows[0]
        return {
            "direction": self.direction,
            "src": place_name(first.src),
            "dst": place_name(first.dst),
            "engine": self.engine,
            "blocks": self.blocks,
            **self.rows.params,
        }

    @property
    def labels(self) -> tuple[str, ...]:
        """What is not what it stands for."""
        if self.engine == "dma" and any(flow.family == "same" for flow in self.flows):
            return ("memcpy within one device: by a kernel, or by a slow engine",)
        return ()

    @property
    def needs(self) -> dict[Slot, int]:
        """Elements of the source and of the destination of each flow."""
        found = {}
        for i, flow in enumerate(self.flows):
            src, dst = _slots(flow, i)
            found[src] = self.regions * self.rows.rows * self.rows.src_pitch
            found[dst] = self.regions * self.rows.rows * self.rows.dst_pitch
        return found

    @property
    def one_s(self) -> float:
        """A guess of the time of one copy."""
        rate = min(GUESSED_BYTES_PER_S[flow.family] for flow in self.flows)
        if self.blocks is not None:
            rate = min(rate, self.blocks * GUESSED_CORE_BLOCK_BYTES_PER_S)
        return GUESSED_COMMAND_S + self.rows.nbytes / rate

    def launches(self, bench: Bench, index: int, count: int) -> list[Launch]:
        """Launches of so many copies of a flow."""
        flow = self.flows[index]
        bench.connect(flow.device, flow.src, flow.dst)
        made = [
            self._launch(bench, flow, _pair(bench, _slots(flow, index), self.rows, region))
            for region in range(min(count, self.regions))
        ]
        return [made[i % len(made)] for i in range(count)]

    def _launch(self, bench: Bench, flow: Flow, pair: Pair) -> Launch:
        if self.blocks is not None:
            return bench.backend.core_copy([pair], flow.device, self.blocks)
        return bench.backend.transfer(*pair, self.engine, flow.device)


def flow_lane(flow: Flow, number: int) -> Lane:
    """A queue for copies; see `compute_lane`."""
    return Lane(gpu=0, device=flow.device, name=f"dma{number}")


def tiny_copy(direction: str) -> Copies:
    """A copy so small that it is all command."""
    return Copies(
        direction=direction, rows=Rows.contiguous(TINY_BYTES), engine="dma", blocks=None, regions=1
    )


def beside(bench: Bench, setup: Setup) -> Step:
    """A tiny copy on a lane of its own, to put beside GEMMs that run alone.

    A graph with a single chain is launched in another way than one with branches, as those of plans
    are, and its kernels follow each other at another distance: 5 % of a GEMM of 9 us on an H200.
    """
    copies = _beside(setup)
    (launch,) = copies.launches(bench, 0, 1)
    return Step(id="tiny", lane=flow_lane(copies.flows[0], 0), launch=launch)


def beside_needs(setup: Setup) -> dict[Slot, int]:
    """What `beside` takes of each slot."""
    return _beside(setup).needs


def _beside(setup: Setup) -> Copies:
    return tiny_copy(f"host>{place_name(setup.device)}")


def copy_cases(setup: Setup) -> Named:
    """Copies by copy engines: contiguous, of rows, and several over several streams."""
    sizes = setup.sizes
    named: Named = []
    for direction in setup.all_directions:
        cases = [
            _several(_dma(direction, Rows.contiguous(nbytes), 1), 1, 1, setup)
            for nbytes in sizes.copy_bytes
        ]
        one_way = len(parse_direction(direction)) == 1
        cases += [
            _several(_dma(direction, rows, 1), 1, 1, setup)
            for rows in _strided(
                sizes.strided_bytes if one_way else sizes.strided_bytes[-1:],
                sizes.row_bytes,
                sizes.pitch_rows,
            )
        ]
        if one_way:
            cases += [
                _several(_dma(direction, Rows.contiguous(nbytes), count), count, streams, setup)
                for nbytes, count, streams in itertools.product(
                    sizes.count_bytes, sizes.counts, sizes.streams
                )
                if streams <= count
            ]
        named.append((f"copy {direction}", cases))
    return named


def core_cases(setup: Setup) -> Named:
    """Copies by the copy kernel, with more and more blocks."""
    return [
        (
            f"core {direction}",
            [
                _several(
                    Copies(
                        direction=direction,
                        rows=Rows.contiguous(nbytes),
                        engine="core",
                        blocks=blocks,
                        regions=1,
                    ),
                    1,
                    1,
                    setup,
                )
                for nbytes in setup.sizes.core_bytes
                for blocks in setup.sizes.blocks
            ],
        )
        for direction in setup.all_directions
    ]


def local_cases(setup: Setup) -> Named:
    """Copies within the device by one kernel, of one piece or many, whole or by rows."""
    sizes = setup.sizes
    cases = [
        _local(Rows.contiguous(nbytes // pieces // 16 * 16), pieces, setup)
        for nbytes in sizes.local_bytes
        for pieces in sizes.local_pieces
    ]
    cases += [
        _local(rows, 1, setup)
        for rows in _strided(sizes.local_bytes[1::2], sizes.local_row_bytes, sizes.pitch_rows)
    ]
    return [("local copies", cases)]


def _dma(direction: str, rows: Rows, regions: int) -> Copies:
    return Copies(direction=direction, rows=rows, engine="dma", blocks=None, regions=regions)


def _strided(sizes: Sequence[int], row_bytes: Sequence[int], pitch_rows: Sequence[int]) -> list[Rows]:
    """Rows that are apart at both ends, as in A, and at the source only, as in a staging buffer."""
    return [
        Rows(rows=size // width, row_bytes=width, src_pitch=apart * width, dst_pitch=dst_pitch)
        for size, width, apart in itertools.product(sizes, row_bytes, pitch_rows)
        for dst_pitch in (apart * width, width)
    ]


def _several(copies: Copies, count: int, streams: int, setup: Setup) -> Case:
    """Copies round robin over streams; a sample is the time of all."""
    flows = copies.flows

    def build(bench: Bench) -> Built:
        steps = []
        for index, flow in enumerate(flows):
            launches = copies.launches(bench, index, count)
            steps += [
                Step(
                    id=f"{SERIES[index]}{stream}",
                    lane=flow_lane(flow, index * streams + stream),
                    launch=in_turn(launches[stream::streams]),
                )
                for stream in range(streams)
            ]
        names = SERIES[: len(flows)]
        return Built(
            prepared=bench.prepare(steps),
            sample=window_s,
            series=lambda run: {name: window_s(run, name) for name in names},
        )

    return Case(
        kind="copy",
        params={**copies.params, "count": count, "streams": streams},
        build=build,
        estimate_s=count * copies.one_s,
        needs=copies.needs,
        # between places nothing is faster than the memory at an end; within one, caches are
        nbytes=0 if any(flow.family == "same" for flow in flows) else count * copies.rows.nbytes,
        peak_bytes_per_s=setup.peaks.hbm_bytes_per_s,
        labels=copies.labels,
    )


def _local(rows: Rows, pieces: int, setup: Setup) -> Case:
    """One kernel over several pieces, a few times over bytes of their own; a sample is one kernel."""
    moved = pieces * rows.nbytes
    one_s = GUESSED_COMMAND_S + moved / GUESSED_LOCAL_BYTES_PER_S
    taken = pieces * rows.rows * (rows.src_pitch + rows.dst_pitch)
    repeats = min(MAX_LOCAL_REPEATS, int(LEAST_LOCAL_S / one_s), setup.budget_bytes // taken)
    repeats = max(1, repeats)
    device = setup.device
    slots = _slots(Flow(src=device, dst=device), 0)

    def build(bench: Bench) -> Built:
        launches = [
            bench.backend.local_copy(
                [_pair(bench, slots, rows, i * pieces + piece) for piece in range(pieces)], device
            )
            for i in range(repeats)
        ]
        steps = [Step(id="local", lane=compute_lane(device), launch=in_turn(launches))]
        return Built(prepared=bench.prepare(steps), sample=lambda run: span_s(run, "local") / repeats)

    return Case(
        kind="local_copy",
        params={
            **rows.params,
            "nbytes": moved,
            "pieces": pieces,
            "repeats": repeats,
            "device": place_name(device),
        },
        build=build,
        estimate_s=repeats * one_s,
        needs={
            slots[0]: repeats * pieces * rows.rows * rows.src_pitch,
            slots[1]: repeats * pieces * rows.rows * rows.dst_pitch,
        },
    )


def _slots(flow: Flow, index: int) -> tuple[Slot, Slot]:
    return (
        Slot(place=flow.src, name=f"src{index}", dtype=torch.uint8, fill="bytes"),
        Slot(place=flow.dst, name=f"dst{index}", dtype=torch.uint8, fill="zeros"),
    )


def _pair(bench: Bench, slots: tuple[Slot, Slot], rows: Rows, region: int) -> Pair:
    def view(slot: Slot, pitch: int) -> Tensor:
        return bench.take(slot, region * rows.rows * pitch, rows.rows, rows.row_bytes, pitch)

    return view(slots[0], rows.src_pitch), view(slots[1], rows.dst_pitch)

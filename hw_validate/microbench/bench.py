"""Memory and prepared steps of one group: every case in it uses the same bytes in turn."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from hw_validate.placement import HOST
from hw_validate.program import Backend, Launch, Prepared, Step

__all__ = ["Bench", "Slot", "in_turn", "needed_bytes"]

BLOCK = 2**24  # elements drawn at a time: single precision needs space


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """Memory for one role at a place: a flat tensor, as large as the neediest case asks for.

    Parameters
    ----------
    fill
        ``randn``: new numbers throughout. ``bytes``: one random block over and over, quick enough for
        pinned memory. ``zeros``.
    """

    place: int
    name: str
    dtype: torch.dtype
    fill: Literal["randn", "bytes", "zeros"]


def needed_bytes(needs: Mapping[Slot, int]) -> dict[int, int]:
    """Bytes by place, of elements by slot."""
    total: dict[int, int] = {}
    for slot, count in needs.items():
        total[slot.place] = total.get(slot.place, 0) + count * slot.dtype.itemsize
    return total


class Bench:
    """What the cases of a group are built with; `close` gives everything back.

    Parameters
    ----------
    needs
        Elements of each slot.
    seed
        Of what fills them.

    Raises
    ------
    HardwareError
        If there is not so much memory.
    """

    def __init__(self, backend: Backend, needs: Mapping[Slot, int], seed: int) -> None:
        self.backend = backend
        self._open = contextlib.ExitStack()
        self._tensors: dict[Slot, Tensor] = {}
        for slot, count in needs.items():
            flat = backend.empty(slot.place, 1, count, slot.dtype, transposed=False).view(-1)
            self._tensors[slot] = flat
            _fill(flat, slot, seed)
        backend.synchronize()

    def take(self, slot: Slot, start: int, rows: int, cols: int, pitch: int | None = None) -> Tensor:
        """A matrix in a slot, from an element on; rows lie ``pitch`` elements apart."""
        apart = cols if pitch is None else pitch
        return self._tensors[slot].as_strided((rows, cols), (apart, 1), start)

    def prepare(self, steps: Sequence[Step], *, graph: bool = True, spans: bool = True) -> Prepared:
        """Make steps ready, after one run in which libraries load and take their workspaces."""
        warm = self.backend.prepare(steps, graph=False, spans=False)
        try:
            warm.run()
        finally:
            warm.close()
        made = self.backend.prepare(steps, graph=graph, spans=spans)
        self._open.callback(made.close)
        return made

    def connect(self, device: int, *places: int) -> None:
        """Make sure that a device reaches places directly."""
        for place in places:
            if place != HOST:
                self.backend.connect(device, place)

    def close(self) -> None:
        """Give back graphs and memory."""
        self._open.close()
        self._tensors.clear()


def in_turn(launches: Sequence[Launch]) -> Launch:
    """One launch of several, in order."""
    if len(launches) == 1:
        return launches[0]
    given = tuple(launches)

    def launch(stream: int) -> None:
        for one in given:
            one(stream)

    return launch


def _fill(flat: Tensor, slot: Slot, seed: int) -> None:
    if slot.fill == "zeros":
        flat.zero_()
        return
    generator = torch.Generator(device=flat.device)
    generator.manual_seed(seed)
    block: Tensor | None = None
    for start in range(0, flat.numel(), BLOCK):
        part = flat[start : start + BLOCK]
        if slot.fill == "bytes":
            if block is None:
                block = torch.randint(
                    0, 256, part.shape, dtype=flat.dtype, device=flat.device, generator=generator
                )
            part.copy_(block[: part.numel()])
        else:
            part.copy_(torch.randn(part.shape, device=flat.device, generator=generator))

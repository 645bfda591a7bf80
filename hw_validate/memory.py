"""Inputs and buffers of plans on their places.

Gpus that only hold data have all of what the gpus share in one tensor a place, so that any
of its rows can be read there, forwarded ones too.
"""

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ficco_sim.errors import PlanError
from ficco_sim.plan import Buffer, Plan, Region
from ficco_sim.reference import OWN, Arrays
from hw_validate.links import Round
from hw_validate.operations import TORCH_DTYPES
from hw_validate.placement import Placement
from hw_validate.program import Backend, Pair

__all__ = ["Arena", "Inputs", "Memory", "inputs_from_arrays", "random_inputs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Input matrices of a plan.

    Parameters
    ----------
    shared
        Whole matrices that the gpus share, by name of the buffer; each gpu starts with its part.
    own
        Matrices that a gpu has for itself, by gpu and name.
    init
        How they were filled: ``randn``, or ``given``.
    """

    shared: dict[str, Tensor]
    own: dict[tuple[int, str], Tensor]
    init: str = "randn"

    def whole(self, gpu: int, name: str) -> Tensor:
        """The matrix of which a gpu's buffer holds its part."""
        found = self.own.get((gpu, name))
        return self.shared[name] if found is None else found


def random_inputs(
    plan: Plan,
    placement: Placement,
    seed: int = 0,
    *,
    device: str = "cpu",
    init: str = "randn",
) -> Inputs:
    """Standard normal inputs for the gpus that compute, and for what they read from others.

    Parameters
    ----------
    device
        Where the numbers are drawn and kept: ``cpu`` or ``cuda:0``.
    init
        ``randn``, or ``zeros`` to see what they do to clocks and power; results are never right to
        calibrate from then.
    """
    generator = torch.Generator(device=device)
    generator.manual_seed(seed)
    sizes = {(b.gpu, b.name): b for b in plan.buffers}
    shared: dict[str, Tensor] = {}
    own: dict[tuple[int, str], Tensor] = {}

    def draw(buffer: Buffer) -> Tensor:
        shape = (buffer.rows, buffer.cols)
        if init == "zeros":
            return torch.zeros(shape, device=device).to(TORCH_DTYPES[buffer.dtype])
        made = torch.empty(shape, device=device, dtype=TORCH_DTYPES[buffer.dtype])
        step = max(1, 2**26 // max(1, buffer.cols))  # rows at a time: single precision needs space
        for row in range(0, buffer.rows, step):
            rows = min(step, buffer.rows - row)
            block = torch.randn((rows, buffer.cols), generator=generator, device=device)
            made[row : row + rows] = block.to(made.dtype)
        return made

    needed = {
        (region.gpu, region.buffer)
        for task in plan.tasks
        if task.queue.gpu in placement.computing
        for region in task.reads
    }
    # what several gpus sum is needed from all of them to check the result
    summed = {"part"} if plan.workload.pattern in ("reduce_scatter", "all_reduce") else set()
    for region in plan.inputs:
        key = (region.gpu, region.buffer)
        if region.buffer not in OWN:
            if region.buffer not in shared:
                shared[region.buffer] = draw(sizes[key])
        elif key not in own and (
            region.gpu in placement.computing or key in needed or region.buffer in summed
        ):
            own[key] = draw(sizes[key])
    return Inputs(shared=shared, own=own, init=init)


def inputs_from_arrays(plan: Plan, arrays: Arrays) -> Inputs:
    """Inputs from those of `ficco_sim.reference.make_inputs`."""
    sizes = {(b.gpu, b.name): b for b in plan.buffers}
    shared: dict[str, Tensor] = {}
    own: dict[tuple[int, str], Tensor] = {}
    for region in plan.inputs:
        key = (region.gpu, region.buffer)
        kind = TORCH_DTYPES[sizes[key].dtype]
        given = torch.from_numpy(arrays[key])
        if region.buffer in OWN:
            own[key] = given.to(kind)
            continue
        whole = shared.setdefault(region.buffer, torch.full(given.shape, math.nan, dtype=kind))
        rows, cols = slice(*region.rows), slice(*region.cols)
        whole[rows, cols] = given[rows, cols].to(kind)
    return Inputs(shared=shared, own=own, init="given")


@dataclass(slots=True)
class Arena:
    """Tensors by place and size, kept so that plans of one workload share them."""

    backend: Backend
    tensors: dict[tuple[int, str, int, int, str], Tensor] = field(default_factory=dict)

    def tensor(self, place: int, slot: str, buffer: Buffer) -> Tensor:
        """The tensor of a slot, made when first asked for; its content is undefined."""
        key = (place, slot, buffer.rows, buffer.cols, buffer.dtype)
        found = self.tensors.get(key)
        if found is None:
            # fp8 matrix units want the second factor stored by columns
            transposed = buffer.dtype == "fp8" and buffer.name == "b"
            kind = TORCH_DTYPES[buffer.dtype]
            found = self.backend.empty(place, buffer.rows, buffer.cols, kind, transposed=transposed)
            self.tensors[key] = found
        return found

    @property
    def nbytes(self) -> int:
        """Bytes held on all places."""
        return sum(t.numel() * t.element_size() for t in self.tensors.values())


class Memory:
    """The buffers of one plan.

    Parameters
    ----------
    plan, placement
        What runs, and where.
    arena
        Where its tensors come from.

    Raises
    ------
    PlanError
        If a gpu that computes reads what a gpu that only holds data would have to compute.
    HardwareError
        If there is not enough memory, or a device cannot read a place directly.
    """

    def __init__(self, plan: Plan, placement: Placement, arena: Arena) -> None:
        self.plan = plan
        self.placement = placement
        self._arena = arena
        self._sizes = {(b.gpu, b.name): b for b in plan.buffers}
        self._tensors: dict[tuple[int, str], Tensor] = {}
        self._slices: dict[tuple[int, str, tuple[int, int]], Tensor] = {}
        self._input_names = {region.buffer for region in plan.inputs}
        self._made: dict[tuple[int, str], list[Region]] = {}  # what gpus that only hold would write
        for task in plan.tasks:
            if task.queue.gpu not in placement.computing:
                for region in task.writes:
                    self._made.setdefault((region.gpu, region.buffer), []).append(region)
        for gpu in range(plan.num_gpus):
            if gpu in placement.computing:
                for buffer in plan.buffers:
                    if buffer.gpu == gpu:
                        slot = f"{gpu}.{buffer.name}"
                        self._tensors[gpu, buffer.name] = arena.tensor(
                            placement.places[gpu], slot, buffer
                        )
        for task in plan.tasks:
            if task.queue.gpu not in placement.computing:
                continue
            for region in task.reads:
                self._hold(region)
                arena.backend.connect(placement.places[task.queue.gpu], placement.places[region.gpu])

    def _hold(self, region: Region) -> None:
        key = (region.gpu, region.buffer)
        if region.gpu in self.placement.computing:
            return
        shared = region.buffer not in OWN
        if region.buffer not in self._input_names or (
            not shared and any(region.overlaps(made) for made in self._made.get(key, ()))
        ):
            raise PlanError(
                f"{self.plan.schedule}: gpu {region.gpu} only holds data, but {region} would have to "
                "be made there; let it compute (--map)"
            )
        if key in self._tensors:
            return
        self._tensors[key] = self._held_tensor(region, self._sizes[key])

    def _held_tensor(self, region: Region, buffer: Buffer, part: str = "") -> Tensor:
        """What all gpus share once a place, what a gpu has for itself once a gpu."""
        slot = f"{region.gpu}.{region.buffer}" if region.buffer in OWN else region.buffer
        return self._arena.tensor(self.placement.places[region.gpu], f"held.{slot}{part}", buffer)

    def add(self, buffer: Buffer) -> None:
        """One more buffer of a gpu that computes, poisoned like the others."""
        slot = f"{buffer.gpu}.{buffer.name}"
        place = self.placement.places[buffer.gpu]
        self._tensors[buffer.gpu, buffer.name] = self._arena.tensor(place, slot, buffer)

    def of_round(self, together: Round, device: int) -> tuple[list[Pair], list[Pair]]:
        """Where the bytes of a round are and go to, and those of its filler, if links are idle."""
        pairs = [(self._slice(t.src), self.view(t.dst)) for t in together.transfers]
        if not together.num_idle:
            return pairs, []
        src = together.transfers[0].src
        rows, cols = (stop - start for start, stop in (src.rows, src.cols))
        buffer = replace(self._sizes[src.gpu, src.buffer], rows=together.num_idle * rows, cols=cols)
        filler = [self._arena.tensor(place, "filler", buffer) for place in (together.place, device)]
        return pairs, [(filler[0], filler[1])]

    def _slice(self, region: Region) -> Tensor:
        """A region of what is only held, in a copy of its columns alone: one row behind another."""
        buffer = self._sizes[region.gpu, region.buffer]
        if region.cols == (0, buffer.cols):
            return self.view(region)
        key = (region.gpu, region.buffer, region.cols)
        if key not in self._slices:
            first, stop = region.cols
            part = replace(buffer, cols=stop - first)
            self._slices[key] = self._held_tensor(region, part, f".{first}-{stop}")
        return self._slices[key][slice(*region.rows)]

    def view(self, region: Region) -> Tensor:
        """The rectangle of a region."""
        return self._tensors[region.gpu, region.buffer][slice(*region.rows), slice(*region.cols)]

    def whole(self, gpu: int, name: str) -> Tensor:
        """The whole matrix of a buffer."""
        return self._tensors[gpu, name]

    def load(self, inputs: Inputs) -> None:
        """Fill every buffer with NaN, then the input regions with inputs.

        What the gpus share is whole where it is only held.
        """
        for (gpu, _), tensor in self._tensors.items():
            if gpu in self.placement.computing:
                tensor.fill_(math.nan)
        for region in self.plan.inputs:
            key = (region.gpu, region.buffer)
            if region.gpu in self.placement.computing:
                rows, cols = slice(*region.rows), slice(*region.cols)
                self._tensors[key][rows, cols] = inputs.whole(*key)[rows, cols].to(
                    self._tensors[key].device
                )
        self._load_held(inputs)
        self._arena.backend.synchronize()

    def _load_held(self, inputs: Inputs) -> None:
        filled = set()
        for (gpu, name), tensor in self._tensors.items():
            if gpu in self.placement.computing or id(tensor) in filled:
                continue
            filled.add(id(tensor))
            tensor.copy_(inputs.whole(gpu, name))
        for (gpu, name, cols), tensor in self._slices.items():
            if id(tensor) not in filled:
                filled.add(id(tensor))
                tensor.copy_(inputs.whole(gpu, name)[:, slice(*cols)])

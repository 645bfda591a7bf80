"""Families of machines: which nodes a rule such as "torus" joins. Knows no bandwidth."""

import math
from typing import Literal, TypeAlias

from ficco_sim.errors import MachineError

__all__ = ["FAMILIES", "Family", "Pair", "family_pairs"]

Family: TypeAlias = Literal["full_mesh", "ring", "torus", "hypercube", "switch", "links"]
Pair: TypeAlias = tuple[int, int]

FAMILIES: tuple[Family, ...] = ("full_mesh", "ring", "torus", "hypercube", "switch", "links")
MAX_GPUS = 1024
SWITCH_NAME = "nvswitch"


def family_pairs(
    family: Family, num_gpus: int, extents: tuple[int, ...] | None, *, both_ways: bool
) -> tuple[tuple[str, ...], list[Pair]]:
    """Names of the switches, and the source and destination of each directed link.

    Parameters
    ----------
    family
        Any but ``links``.
    num_gpus
        Gpus are numbered from 0, switches follow.
    extents
        Torus only: gpus along each dimension, the last dimension counting fastest.
    both_ways
        Ring and torus: also to the previous gpu along each dimension.

    Raises
    ------
    MachineError
        If the family cannot have this number of gpus.
    """
    if family == "full_mesh":
        return (), [(i, j) for i in range(num_gpus) for j in range(num_gpus) if i != j]
    if family == "switch":
        return (SWITCH_NAME,), [p for i in range(num_gpus) for p in ((i, num_gpus), (num_gpus, i))]
    if family == "hypercube":
        if num_gpus & (num_gpus - 1):
            raise MachineError(f"num_gpus: {num_gpus} must be a power of 2 in a hypercube")
        bits = range(num_gpus.bit_length() - 1)
        return (), [(i, i ^ (1 << bit)) for i in range(num_gpus) for bit in bits]
    assert family != "links"
    return (), _torus_pairs((num_gpus,) if extents is None else extents, num_gpus, both_ways=both_ways)


def _torus_pairs(extents: tuple[int, ...], num_gpus: int, *, both_ways: bool) -> list[Pair]:
    """Neighbours along each dimension; with 2 along a dimension both are the same gpu."""
    size = math.prod(extents)
    if size != num_gpus:
        raise MachineError(f"extents: {list(extents)} make {size} gpus, num_gpus is {num_gpus}")
    pairs: dict[Pair, None] = {}
    stride = 1
    for extent in reversed(extents):
        for i in range(num_gpus):
            at = i // stride % extent
            for step in (1, -1) if both_ways else (1,):
                j = i + ((at + step) % extent - at) * stride
                if j != i:
                    pairs[i, j] = None
        stride *= extent
    return list(pairs)

"""Machines of a family, made from a few numbers."""

import math

from ficco_sim.errors import MachineError
from ficco_sim.families import FAMILIES, Family
from ficco_sim.machine import MachineFile, Topology, build_machine

__all__ = ["make_machine_file"]


def make_machine_file(
    family: Family,
    *,
    gpu: str,
    bandwidth_bytes_per_s: float,
    latency_s: float,
    num_gpus: int | None = None,
    extents: tuple[int, ...] | None = None,
    both_ways: bool = True,
    usable_bytes_per_s: float | None = None,
    name: str | None = None,
) -> MachineFile:
    """A machine file with links of one kind.

    Parameters
    ----------
    family
        Any of `FAMILIES` but ``links``.
    gpu
        Name of a file in ``topologies/gpus``.
    bandwidth_bytes_per_s, usable_bytes_per_s, latency_s
        Of each link or port, per direction; all bandwidth is usable unless told otherwise.
    num_gpus, extents
        The number of gpus; a torus takes gpus along each dimension instead.
    both_ways
        False: gpus of a ring or torus have links to the next gpu only.

    Raises
    ------
    MachineError
        Naming the argument, its value and the rule.
    """
    if family not in FAMILIES or family == "links":
        raise MachineError(
            f"family: {family!r} is unknown; one of: {', '.join(f for f in FAMILIES if f != 'links')}"
        )
    if (extents is not None) != (family == "torus"):
        raise MachineError("extents: needed for a torus and for no other family")
    if extents is not None:
        size = math.prod(extents)
        if num_gpus not in (None, size):
            raise MachineError(f"num_gpus: {num_gpus}, but extents {list(extents)} make {size}")
        num_gpus = size
    if num_gpus is None:
        raise MachineError(f"num_gpus: needed for a {family}")
    topology = Topology(
        family=family,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        usable_bytes_per_s=usable_bytes_per_s,
        latency_s=latency_s,
        extents=extents,
        both_ways=both_ways,
    )
    shape = "x".join(map(str, extents)) if extents else str(num_gpus)
    oneway = "" if both_ways else "_oneway"
    file = MachineFile(
        format_version=1,
        name=name or f"{family}_{shape}{oneway}",
        description=f"{num_gpus} {gpu} gpus, {family} {shape}{' one way' if oneway else ''} "
        "(hypothetical)",
        num_gpus=num_gpus,
        gpu=gpu,
        topology=topology,
        sources={"topology": "estimated: as given to ficco topology make"},
    )
    build_machine(file, file.name)  # what was asked for must be a machine
    return file

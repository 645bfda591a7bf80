"""ASTRA-sim network files: a list of dimensions, each a ring, fully connected or behind a switch.

The machine is the product of its dimensions, the first counting fastest. ``bandwidth`` is GB/s per
link and direction, ``latency`` ns per link. A ring of two has one link each way.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ficco_sim import io
from ficco_sim.errors import FileError
from ficco_sim.machine import LinkEntry, Topology
from ficco_sim.readers.assemble import make_file
from ficco_sim.readers.known import default_gpu
from ficco_sim.readers.text import Faults, shown
from ficco_sim.readers.types import MAX_GPUS, MAX_LISTED_LINKS, Notes, Options, Reading
from ficco_sim.units import GB, GIB

__all__ = ["is_astra_sim", "read_astra_sim"]

KEYS = ("topology", "npus_count", "bandwidth", "latency")
BLOCKS = {"ring": "ring", "fullyconnected": "full_mesh", "switch": "switch"}
NS_PER_S = 1e9  # dividing by it is exact where multiplying by 1e-9 is not
MAX_GB_PER_S, MAX_NS = 1e6, 1e9
MAX_TEXT = 2**17  # files have a few lines; the parser needs a second for this much


@dataclass(frozen=True, slots=True)
class Dimension:
    """One dimension: its shape, gpus along it, and rate and latency of its links."""

    block: str
    size: int
    bandwidth_bytes_per_s: float
    latency_s: float


def is_astra_sim(text: str) -> bool:
    """Whether the text has the keys of a network file."""
    found = {key for key in KEYS if re.search(rf"(?m)^{key}\s*:", text)}
    return "npus_count" in found or len(found) >= 3


def read_astra_sim(text: str, where: str, options: Options, notes: Notes) -> Reading:
    """Read a network file.

    Raises
    ------
    FileError
        Naming file, line, key, value and rule.
    """
    dims = _dimensions(text, where, options, notes)
    num_gpus = math.prod(d.size for d in dims)
    gpu, _ = default_gpu(options, notes)
    notes.facts["num_gpus"] = num_gpus
    notes.facts["dimensions"] = [f"{d.block} of {d.size}" for d in dims]
    share = options.usable_share or 1.0
    source = "stated: the ASTRA-sim network file that was read"
    topology, kind = _topology(dims, num_gpus, share, where)
    return Reading(file=make_file(where, gpu, num_gpus, topology, source, notes), kind=kind)


def _topology(dims: list[Dimension], num_gpus: int, share: float, where: str) -> tuple[Topology, str]:
    first = dims[0]
    alike = len({(d.bandwidth_bytes_per_s, d.latency_s) for d in dims}) == 1
    rings = all(d.block == "ring" or (d.size == 2 and d.block == "full_mesh") for d in dims)
    usable = first.bandwidth_bytes_per_s * share if share < 1 else None
    common: dict[str, Any] = {
        "bandwidth_bytes_per_s": first.bandwidth_bytes_per_s,
        "usable_bytes_per_s": usable,
        "latency_s": first.latency_s,
    }
    if len(dims) == 1:
        family: Any = first.block
        return Topology(family=family, **common), "mesh" if family == "full_mesh" else family
    if alike and rings:
        extents = tuple(d.size for d in reversed(dims))
        return Topology(family="torus", extents=extents, **common), "torus"
    switches: list[str] = []
    links: list[LinkEntry] = []
    for entry in _product(dims, num_gpus, share, switches):
        if len(links) >= MAX_LISTED_LINKS:
            raise FileError(f"{where}: more than {MAX_LISTED_LINKS:,} links; they cannot be listed")
        links.append(entry)
    return Topology(family="links", switches=tuple(switches), links=tuple(links)), "links"


def _product(
    dims: list[Dimension], num_gpus: int, share: float, switches: list[str]
) -> Iterator[LinkEntry]:
    """Links along each line of each dimension; names of switches are added to ``switches``."""
    stride = 1
    for position, dim in enumerate(dims):

        def link(i: int, j: int | str, dim: Dimension = dim) -> LinkEntry:
            rate = dim.bandwidth_bytes_per_s
            return LinkEntry(
                src=i,
                dst=j,
                bandwidth_bytes_per_s=rate,
                usable_bytes_per_s=rate * share if share < 1 else None,
                latency_s=dim.latency_s,
            )

        for start in (g for g in range(num_gpus) if g // stride % dim.size == 0):
            line = [start + i * stride for i in range(dim.size)]
            if dim.block == "switch":
                switches.append(f"switch{position}_{start}")
                yield from (link(g, switches[-1]) for g in line)
            elif dim.block == "full_mesh" or dim.size == 2:
                yield from (link(a, b) for i, a in enumerate(line) for b in line[i + 1 :])
            else:
                yield from (link(a, b) for a, b in zip(line, line[1:] + line[:1], strict=True))
        stride *= dim.size


def _dimensions(text: str, where: str, options: Options, notes: Notes) -> list[Dimension]:
    if len(text) > MAX_TEXT:
        raise FileError(f"{where}: {len(text):,} characters; at most {MAX_TEXT:,} are read")
    document = io.parse_yaml(text, where)
    if not isinstance(document, dict):
        raise FileError(f"{where}: line 1: not a mapping with the keys {', '.join(KEYS)}")
    faults = Faults(where)
    lists: dict[str, list[Any]] = {}
    for key in KEYS:
        value = document.get(key)
        if key not in document:
            faults.add(1, f"the key {key} is missing")
        elif not isinstance(value, list) or not value:
            faults.add(
                _line(text, key), f"{key}: {shown(value)} must be a list, an entry per dimension"
            )
        else:
            lists[key] = value
    faults.check()
    count = len(lists["topology"])
    for key in KEYS[1:]:
        if len(lists[key]) != count:
            faults.add(
                _line(text, key),
                f"{key} has {_values(len(lists[key]))}, topology has {count} dims "
                f"(line {_line(text, 'topology')})",
            )
    faults.check()
    unknown = [str(key) for key in document if key not in KEYS]
    if unknown:
        notes.warn(f"keys that are not read: {', '.join(unknown)[:200]}")
    blocks = [_block(text, i, v, faults) for i, v in enumerate(lists["topology"])]
    sizes = [_size(text, i, v, faults) for i, v in enumerate(lists["npus_count"])]
    rates = [_number(text, "bandwidth", i, v, faults) for i, v in enumerate(lists["bandwidth"])]
    delays = [_number(text, "latency", i, v, faults) for i, v in enumerate(lists["latency"])]
    faults.check()
    if math.prod(sizes) > MAX_GPUS:
        line = _line(text, "npus_count")
        raise FileError(
            f"{where}: line {line}: npus_count makes {math.prod(sizes):,} gpus, over {MAX_GPUS}"
        )
    unit = GIB if options.gib else GB
    notes.assume(
        "1 GB/s is 2**30 bytes/s, as in old versions of ASTRA-sim; 7.4 % more than 10**9, which later "
        "versions and this project mean"
        if options.gib
        else "1 GB/s is 10**9 bytes/s; old versions of ASTRA-sim took 2**30, and so came out 7.4 % "
        "faster: --gib reads it so"
    )
    dims = []
    for i, (block, size) in enumerate(zip(blocks, sizes, strict=True)):
        if size == 1:
            notes.warn(f"dimension {i} has one gpu (npus_count[{i}] = 1); it is left out")
            continue
        dims.append(
            Dimension(
                block,
                size,
                options.bandwidth_bytes_per_s or rates[i] * unit,
                delays[i] / NS_PER_S if options.latency_s is None else options.latency_s,
            )
        )
    if not dims:
        line = _line(text, "npus_count")
        raise FileError(f"{where}: line {line}: npus_count makes one gpu; at least 2 are needed")
    return dims


def _values(count: int) -> str:
    return f"{count} value{'s' if count > 1 else ''}"


def _block(text: str, index: int, value: Any, faults: Faults) -> str:
    block = BLOCKS.get(value.lower()) if isinstance(value, str) else None
    if block is None:
        faults.add(
            _line(text, "topology", index),
            f"topology[{index}]: {shown(value)} is unknown; known are Ring, FullyConnected, Switch",
        )
    return block or ""


def _size(text: str, index: int, value: Any, faults: Faults) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_GPUS:
        faults.add(
            _line(text, "npus_count", index),
            f"npus_count[{index}]: {shown(value)} must be a whole number from 1 to {MAX_GPUS}",
        )
        return 1
    return value


def _number(text: str, key: str, index: int, value: Any, faults: Faults) -> float:
    unit, most = ("GB/s", MAX_GB_PER_S) if key == "bandwidth" else ("ns", MAX_NS)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= most or (value == 0 and key == "bandwidth"):
        least = "more than 0" if key == "bandwidth" else "0 or more"
        faults.add(
            _line(text, key, index),
            f"{key}[{index}]: {shown(value)} must be a number of {unit}, {least} and at most {most:g}",
        )
        return 1.0
    return float(value)


def _line(text: str, key: str, index: int | None = None) -> int:
    """The line of a key, or of an entry of its list where each has a line of its own."""
    lines = text.split("\n")
    start = next((n for n, line in enumerate(lines) if re.match(rf"[\"']?{key}[\"']?\s*:", line)), 0)
    after = lines[start].partition(":")[2].partition("#")[0].strip()
    if index is None or after:
        return start + 1
    entries = [n for n, line in enumerate(lines[start + 1 :], start + 1) if re.match(r"\s*-\s", line)]
    return (entries[index] if index < len(entries) else start) + 1

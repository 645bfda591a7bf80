"""What readers take and give."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from ficco_sim.machine import MachineFile

__all__ = ["Direct", "Imported", "Interpretation", "Matrix", "Notes", "Options", "Pair", "Reading"]

Pair: TypeAlias = tuple[int, int]
Interpretation: TypeAlias = Literal["switch", "mesh"]
MAX_GPUS = 1024
MAX_LISTED_LINKS = 5_000  # what a machine file can list and still be read in seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user knows better than the file; None leaves it to the reader.

    Parameters
    ----------
    gpu
        Name of a file in ``topologies/gpus``.
    bandwidth_bytes_per_s, latency_s
        Of one physical link, one direction.
    usable_share
        Part of the bandwidth that protocol leaves, above 0 and at most 1.
    interpret
        Whether links of equal width between all gpus go to a switch or straight to each peer.
    pcie
        Whether paths over PCIe become links; None: only where the other links leave gpus apart.
    gib
        Read GB/s of ASTRA-sim files as 2**30 bytes/s, as its older versions did.
    """

    gpu: str | None = None
    bandwidth_bytes_per_s: float | None = None
    latency_s: float | None = None
    usable_share: float | None = None
    interpret: Interpretation | None = None
    pcie: bool | None = None
    gib: bool = False


@dataclass(slots=True)
class Notes:
    """Collects what was read, what was assumed and what looks odd, while a reader works."""

    facts: dict[str, Any] = field(default_factory=dict)
    assumptions: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def assume(self, text: str) -> None:
        """Note an assumption, once."""
        if text not in self.assumptions:
            self.assumptions.append(text)

    def warn(self, text: str) -> None:
        """Note a warning, once."""
        if text not in self.warnings:
            self.warnings.append(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The machine that a reader made, and how it understood it: switch, mesh, ring, torus or links."""

    file: MachineFile
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A machine read from a foreign format.

    Parameters
    ----------
    file
        The machine, ready to be written as YAML.
    format
        The format that was read.
    kind
        How the links were understood: switch, mesh, ring, torus or links.
    facts
        What the text says: counts of gpus, NICs, pairs of each type.
    assumptions
        What it does not say and was assumed, each with where the value is from.
    warnings
        What may be wrong or was left out.
    """

    file: MachineFile
    format: str
    kind: str
    facts: Mapping[str, Any]
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Direct:
    """Direct links between two gpus: how many, on which line, and their total rate if it is printed."""

    width: int
    line: int
    bandwidth_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """What a tool prints about each pair of gpus (i < j).

    Parameters
    ----------
    link_name
        What direct links are called: NVLink or xGMI.
    direct, pcie
        Direct links; and the kind of path over PCIe of pairs without one.
    host_groups
        For each gpu the part of the host that it hangs on, "" if not printed.
    gpu_names
        Names of gpus as printed, by gpu.
    link_bytes_per_s, links_per_gpu
        Rate and number of physical links, if printed.
    """

    num_gpus: int
    maker: Literal["nvidia", "amd"]
    link_name: str
    direct: Mapping[Pair, Direct]
    pcie: Mapping[Pair, str]
    host_groups: tuple[str, ...]
    gpu_names: Mapping[int, str]
    link_bytes_per_s: float | None = None
    links_per_gpu: int | None = None

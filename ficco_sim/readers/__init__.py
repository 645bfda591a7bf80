"""Readers of topologies in foreign formats: from text to a machine file, and what was assumed."""

import math
from collections.abc import Callable
from typing import Literal, TypeAlias

from ficco_sim.errors import FileError, MachineError
from ficco_sim.machine import build_machine
from ficco_sim.readers.astra_sim import is_astra_sim, read_astra_sim
from ficco_sim.readers.graph import is_graphml, is_node_link, read_graphml, read_node_link
from ficco_sim.readers.own import is_own, read_own
from ficco_sim.readers.rocm_smi import is_rocm_smi, read_rocm_smi
from ficco_sim.readers.topo_m import is_topo_m, read_topo_m
from ficco_sim.readers.types import Imported, Interpretation, Notes, Options, Reading

__all__ = ["FORMATS", "Format", "Imported", "Interpretation", "detect_format", "read_topology"]

Format: TypeAlias = Literal["topo_m", "rocm_smi", "astra_sim", "graphml", "node_link", "ficco"]
Reader: TypeAlias = Callable[[str, str, Options, Notes], Reading]

# in the order of detection: the surest sign first
READERS: dict[Format, tuple[Callable[[str], bool], Reader]] = {
    "graphml": (is_graphml, read_graphml),
    "node_link": (is_node_link, read_node_link),
    "rocm_smi": (is_rocm_smi, read_rocm_smi),
    "topo_m": (is_topo_m, read_topo_m),
    "astra_sim": (is_astra_sim, read_astra_sim),
    "ficco": (is_own, read_own),
}
FORMATS: tuple[Format, ...] = tuple(READERS)
MATRICES = ("topo_m", "rocm_smi")
MAX_TEXT = 4 * 2**20


def detect_format(text: str, where: str) -> Format:
    """The format that a text looks like.

    Raises
    ------
    FileError
        If it looks like none.
    """
    for name, (fits, _) in READERS.items():
        if fits(text):
            return name
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    raise FileError(
        f"{where}: looks like none of the formats {', '.join(FORMATS)}; it begins with {first[:60]!r}"
    )


def read_topology(
    text: str,
    where: str,
    *,
    format: Format | None = None,  # noqa: A002 - the word for it
    gpu: str | None = None,
    bandwidth_bytes_per_s: float | None = None,
    latency_s: float | None = None,
    usable_share: float | None = None,
    interpret: Interpretation | None = None,
    pcie: bool | None = None,
    gib: bool = False,
) -> Imported:
    """Read a topology from text in any of the known formats.

    Parameters
    ----------
    text
        What a tool printed, or a file holds.
    where
        The file's name; it opens every error message.
    format
        One of `FORMATS`; found by the content unless given.
    gpu, bandwidth_bytes_per_s, latency_s, usable_share, interpret, pcie, gib
        What the user knows better; see `ficco_sim.readers.types.Options`.

    Raises
    ------
    FiccoError
        Naming file, line, value and rule.
    """
    text = text.removeprefix("\ufeff")  # a mark that Windows puts before UTF-8
    if len(text) > MAX_TEXT:
        raise FileError(f"{where}: {len(text):,} characters; at most {MAX_TEXT:,} are read")
    for name, value, most in (
        ("bandwidth_bytes_per_s", bandwidth_bytes_per_s, 1e18),
        ("usable_share", usable_share, 1.0),
    ):
        if value is not None and not (math.isfinite(value) and 0 < value <= most):
            raise MachineError(f"{name}: {value} must be more than 0 and at most {most:g}")
    if latency_s is not None and not 0 <= latency_s <= 1:
        raise MachineError(f"latency_s: {latency_s} must be from 0 to 1")
    if format is not None and format not in READERS:
        raise MachineError(f"format: {format!r} is unknown; one of: {', '.join(FORMATS)}")
    options = Options(
        gpu=gpu,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        latency_s=latency_s,
        usable_share=usable_share,
        interpret=interpret,
        pcie=pcie,
        gib=gib,
    )
    chosen = format or detect_format(text, where)
    _check_options(chosen, options, where)
    notes = Notes()
    reading = READERS[chosen][1](text, where, options, notes)
    build_machine(reading.file, where)  # what the reader made must be a machine
    return Imported(
        file=reading.file,
        format=chosen,
        kind=reading.kind,
        facts=notes.facts,
        assumptions=tuple(notes.assumptions),
        warnings=tuple(notes.warnings),
    )


def _check_options(chosen: Format, options: Options, where: str) -> None:
    if chosen not in MATRICES:
        for name in ("interpret", "pcie"):
            if getattr(options, name) is not None:
                raise MachineError(
                    f"{where}: {name}: only for {' and '.join(MATRICES)}; {chosen} lists its links"
                )
    if options.gib and chosen != "astra_sim":
        raise MachineError(f"{where}: gib: only for astra_sim, not {chosen}")

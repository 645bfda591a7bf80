"""What tools do not print about links: counts and rates by gpu, from ``topologies/links``."""

import functools
from dataclasses import dataclass
from typing import ClassVar, Literal

from ficco_sim import io
from ficco_sim.errors import MachineError
from ficco_sim.profile import check_numbers
from ficco_sim.readers.types import Matrix, Notes, Options

__all__ = ["KnownFile", "KnownGpu", "choose_gpu", "default_gpu", "known_file", "known_source"]

STRICT = {"extra": "forbid", "strict": True}
SAME_RATE = 0.05  # printed rates are line rates and differ a little from those of data sheets


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownGpu:
    """Links of a gpu type: how many it has, and rate and latency of one, per direction."""

    __pydantic_config__: ClassVar = STRICT
    maker: Literal["nvidia", "amd"]
    names: tuple[str, ...]
    num_links: int
    bandwidth_bytes_per_s: float
    latency_s: float
    pcie_bytes_per_s: float
    usable_bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        check_numbers(self, may_be_zero=("latency_s",))


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownHost:
    """Paths through a host: rate between sockets, latency of each bridge or switch."""

    __pydantic_config__: ClassVar = STRICT
    socket_bytes_per_s: float
    latency_s: float

    def __post_init__(self) -> None:
        check_numbers(self, may_be_zero=("latency_s",))


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFile:
    """The content of ``topologies/links/known.yaml``."""

    __pydantic_config__: ClassVar = STRICT
    format_version: Literal[1]
    default_gpu: str
    gpus: dict[str, KnownGpu]
    host: KnownHost
    sources: dict[str, str]


@functools.cache
def known_file() -> KnownFile:
    """Read the file once."""
    return io.load(io.data_folder() / "links" / "known.yaml", KnownFile)


def known_source(key: str) -> str:
    """Where a number of the file is from; ``key`` is dotted, for example ``host.latency_s``."""
    return known_file().sources[key]


def default_gpu(options: Options, notes: Notes) -> tuple[str, KnownGpu]:
    """The gpu asked for, else the default, which is noted as an assumption."""
    known = known_file()
    if options.gpu is not None:
        return options.gpu, _known_gpu(options.gpu)
    notes.assume(f"gpu type {known.default_gpu}: the text names none; --gpu chooses another")
    return known.default_gpu, known.gpus[known.default_gpu]


def _known_gpu(name: str) -> KnownGpu:
    gpus = known_file().gpus
    if name not in gpus:
        raise MachineError(f"gpu: {name!r} is unknown; one of: {', '.join(sorted(gpus))}")
    return gpus[name]


def choose_gpu(matrix: Matrix, options: Options, notes: Notes, where: str) -> tuple[str, KnownGpu]:
    """The gpu type that was asked for or is named in the text, else one whose links fit the matrix.

    Raises
    ------
    MachineError
        If the text names gpus of several types, or no known gpu has enough links.
    """
    named = _named(matrix, notes, where)
    if options.gpu is not None:
        gpu = _known_gpu(options.gpu)
        if named is not None and named != options.gpu:
            notes.warn(f"gpu type {options.gpu} as asked, though the text names a {named}")
        return options.gpu, gpu
    if named is not None:
        notes.facts["gpu"] = named
        return named, known_file().gpus[named]
    return _fitting(matrix, notes, where)


def _named(matrix: Matrix, notes: Notes, where: str) -> str | None:
    found: dict[str, int] = {}
    for gpu, text in sorted(matrix.gpu_names.items()):
        words = text.upper().replace("-", " ").replace("/", " ").replace("_", " ").split()
        match = next((n for n, k in known_file().gpus.items() if set(k.names) & set(words)), None)
        if match is None:
            notes.warn(
                f"gpu {gpu} is a {text[:60]!r}, of which no gpu file is known; --gpu names one to use"
            )
            return None
        found.setdefault(match, gpu)
    if len(found) > 1:
        listed = ", ".join(f"gpu {g} is a {name}" for name, g in found.items())
        raise MachineError(f"{where}: gpus of several types ({listed}); a machine has one type")
    return next(iter(found), None)


def _fitting(matrix: Matrix, notes: Notes, where: str) -> tuple[str, KnownGpu]:
    """A gpu with as many links as the matrix uses: straight to each peer, else through a switch."""
    candidates = {n: k for n, k in known_file().gpus.items() if k.maker == matrix.maker}
    rate = matrix.link_bytes_per_s
    if rate is not None:
        near = {
            n: k for n, k in candidates.items() if abs(k.bandwidth_bytes_per_s / rate - 1) <= SAME_RATE
        }
        candidates = near or candidates
    used = [0] * matrix.num_gpus
    for (i, j), direct in matrix.direct.items():
        used[i] += direct.width
        used[j] += direct.width
    most = max(used)
    widest = max((d.width for d in matrix.direct.values()), default=0)
    # as many links as the text lists or as are used exactly, else the least that is enough
    exact = [matrix.links_per_gpu] if matrix.links_per_gpu else [most, widest]
    tests: list[tuple[int, bool]] = [*((c, True) for c in exact), (most, False), (widest, False)]
    fitting: dict[str, KnownGpu] = {}
    for count, same in tests:
        fitting = {
            n: k
            for n, k in candidates.items()
            if k.num_links == count or (not same and k.num_links > count)
        }
        if fitting:
            break
    if not fitting:
        line = max(matrix.direct.values(), key=lambda d: d.width).line
        raise MachineError(
            f"{where}: line {line}: {widest} {matrix.link_name} links between two gpus; no known gpu "
            "has as many; give --gpu, --bandwidth and --interpret"
        )
    name = min(fitting, key=lambda n: fitting[n].num_links)
    others = [n for n, k in fitting.items() if n != name and k.num_links == fitting[name].num_links]
    alike = f" ({', '.join(others)} would fit as well)" if others else ""
    notes.assume(
        f"gpu type {name}: the text names none, and its {fitting[name].num_links} links fit"
        f"{alike}; --gpu chooses another"
    )
    return name, fitting[name]

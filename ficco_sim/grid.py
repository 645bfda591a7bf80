"""Which schedules are tried on a workload, and with which knobs."""

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from ficco_sim.errors import ScenarioError
from ficco_sim.schedules import FICCO

__all__ = ["COMPARED", "Grid", "chunk_counts"]

COMPARED: dict[str, tuple[str, ...]] = {
    "all_gather_gemm": ("serial", "shard-p2p", "shard-ring", *FICCO),
    "all_to_all_gemm": ("serial", "shard-p2p", *FICCO),
}
ENGINES = ("dma", "core")
GATHERS = ("direct", "copy")
MAX_CHUNKS = 1024
MAX_QUEUES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Schedules and knobs to try; serial always takes part, since all others are measured by it.

    Parameters
    ----------
    schedules
        Names; None for all in `COMPARED`. Those that a pattern does not have are left out for it.
    num_chunks
        Chunks per shard of FiCCO schedules; None for 2, 4 and the number of gpus.
    compute_queues
        Queues of unfused GEMMs; schedules with one GEMM a step have one queue whatever this says.
    engines
        Who moves the data: ``dma``, ``core`` or both.
    gather
        See `ficco_sim.schedules.ficco.ficco_schedule`.

    Raises
    ------
    ScenarioError
        If a value is unknown, out of range or given twice; the message names it.
    """

    schedules: tuple[str, ...] | None = None
    num_chunks: tuple[int, ...] | None = None
    compute_queues: tuple[int, ...] = (1, 4)
    engines: tuple[str, ...] = ("dma",)
    gather: str = "direct"

    def __post_init__(self) -> None:
        known = tuple(dict.fromkeys(name for names in COMPARED.values() for name in names))
        if self.schedules is not None:
            _check_names("schedules", self.schedules, known)
        _check_names("engines", self.engines, ENGINES)
        _check_names("gather", (self.gather,), GATHERS)
        if self.num_chunks is not None:
            _check_counts("num_chunks", self.num_chunks, MAX_CHUNKS)
        _check_counts("compute_queues", self.compute_queues, MAX_QUEUES)

    def points(self, pattern: str, num_gpus: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """Schedules and knobs to try for a pattern; serial first."""
        for name in COMPARED[pattern]:
            if self.schedules is not None and name not in ("serial", *self.schedules):
                continue
            for engine in self.engines:
                if name not in FICCO:
                    yield name, {"engine": engine}
                    continue
                for num_chunks in self.num_chunks or chunk_counts(num_gpus):
                    for queues in self.compute_queues if "-unfused-" in name else (1,):
                        knobs = {"num_chunks": num_chunks, "compute_queues": queues}
                        yield name, knobs | {"engine": engine, "gather": self.gather}

    def knobs_for(self, taken: Collection[str], num_gpus: int) -> Iterator[dict[str, Any]]:
        """Knobs to try for a schedule that takes those named; others stay as it has them."""
        values: dict[str, tuple[Any, ...]] = {
            "num_chunks": self.num_chunks or chunk_counts(num_gpus),
            "compute_queues": self.compute_queues,
            "engine": self.engines,
            "gather": (self.gather,),
        }
        tried = {name: found for name, found in values.items() if name in taken}
        for point in itertools.product(*tried.values()):
            yield dict(zip(tried, point, strict=True))

    def most_chunks(self, num_gpus: int) -> int:
        """The largest number of chunks that a shard is cut into."""
        return max(self.num_chunks or chunk_counts(num_gpus))


def chunk_counts(num_gpus: int) -> tuple[int, ...]:
    """Chunks per shard that are tried unless others are asked for."""
    return tuple(sorted({2, 4, num_gpus}))


def _check_names(key: str, values: tuple[str, ...], known: tuple[str, ...]) -> None:
    for value in values:
        if value not in known:
            raise ScenarioError(f"{key}: {value!r} is unknown; one of: {', '.join(known)}")
    _check_list(key, values)


def _check_counts(key: str, values: tuple[int, ...], most: int) -> None:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise ScenarioError(f"{key}: {value!r} must be a whole number from 1 to {most}")
    _check_list(key, values)


def _check_list(key: str, values: tuple[Any, ...]) -> None:
    if not values:
        raise ScenarioError(f"{key}: at least one is needed")
    for value in values:
        if values.count(value) > 1:
            raise ScenarioError(f"{key}: {value!r} occurs twice")

"""Published values, which figures show as marks beside our own; they are data, with a source each."""

import functools
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from ficco_sim import io
from ficco_sim.errors import ScenarioError
from ficco_sim.workload import STRICT

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Series", "published", "published_frame"]

How: TypeAlias = Literal["stated", "log", "notes", "figure", "derived", "simulator"]
HOW_WORDS: dict[How, str] = {
    "stated": "published",
    "log": "published log",
    "notes": "published, by notes of others",
    "figure": "published, read off a figure",
    "derived": "derived from published values",
    "simulator": "another simulator",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One published value, or several along an axis.

    Parameters
    ----------
    unit
        Of the values: ``x`` (a ratio), ``share`` or ``s``.
    at
        What the first number of each point is.
    how
        How the value came to us; see `words`.
    value, points
        One of both.

    Raises
    ------
    ScenarioError
        If there is neither a value nor a point, or both.
    """

    __pydantic_config__: ClassVar = STRICT
    name: str
    what: str
    unit: Literal["x", "share", "s"]
    machine: str
    how: How
    source: str
    at: str = ""
    value: float | None = None
    points: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        if (self.value is None) != bool(self.points):
            raise ScenarioError(f"{self.name}: value, points: one of them is needed")

    @property
    def number(self) -> float:
        """The value of a series that has one only."""
        assert self.value is not None, self.name
        return self.value

    @property
    def words(self) -> str:
        """How the value came to us, for legends."""
        return HOW_WORDS[self.how]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFile:
    """The content of data/published.yaml."""

    __pydantic_config__: ClassVar = STRICT
    format_version: Literal[1]
    series: tuple[Series, ...]


@functools.cache
def _all() -> dict[str, Series]:
    file = resources.files("ficco_sim") / "data" / "published.yaml"
    with resources.as_file(file) as path:
        return {series.name: series for series in io.load(path, PublishedFile).series}


def published(name: str) -> Series:
    """A published value or series by name.

    Raises
    ------
    ScenarioError
        If there is none of this name; the message lists the names.
    """
    if name not in _all():
        raise ScenarioError(f"published: {name!r} is unknown; one of: {', '.join(_all())}")
    return _all()[name]


def published_frame() -> "pd.DataFrame":
    """All published values, a row per value: ``name, what, machine, at, value, unit, how, source``."""
    import pandas as pd

    rows = [
        {
            "name": series.name,
            "what": series.what,
            "machine": series.machine,
            "at": "" if at is None else f"{at:g} {series.at}",
            "value": value,
            "unit": series.unit,
            "how": series.words,
            "source": series.source,
        }
        for series in _all().values()
        for at, value in (series.points or ((None, series.number),))
    ]
    return pd.DataFrame(rows)

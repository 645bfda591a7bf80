"""Square tables of gpus in text: lines without colours, rows under a header, and their faults."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ficco_sim.errors import FileError
from ficco_sim.readers.types import MAX_GPUS, Pair

__all__ = ["Faults", "Table", "lines_of", "shown"]

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
GPU = re.compile(r"GPU(\d{1,6})\Z")


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, from 1, without terminal colours."""
    for number, line in enumerate(text.split("\n"), start=1):
        yield number, ANSI.sub("", line).rstrip("\r")


def shown(value: object) -> str:
    """A value from a file, short enough for a message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def gpu_index(token: str) -> int | None:
    """The number in ``GPU3``, None if the word is another."""
    match = GPU.match(token)
    return int(match.group(1)) if match else None


class Faults:
    """Collects what is wrong with a file, so that all of it is told at once."""

    MOST = 8

    def __init__(self, where: str) -> None:
        self.where = where
        self._found: list[str] = []

    def add(self, line: int, message: str) -> None:
        """Note a fault of a line."""
        self._found.append(f"{self.where}: line {line}: {message}")

    def check(self) -> None:
        """Raise a FileError that lists the faults, if there are any."""
        if self._found:
            more = len(self._found) - self.MOST
            tail = [f"{self.where}: and {more} more"] if more > 0 else []
            raise FileError("\n".join([*self._found[: self.MOST], *tail]))


@dataclass(slots=True, kw_only=True)
class Table:
    """A table with a column and a row for each gpu, and maybe further columns.

    Parameters
    ----------
    line
        Of the header.
    labels
        Names of the gpus, ``GPU0`` and so on, in the header's order.
    more
        Further columns that each row must fill, such as NICs.
    rows
        Line number and words of each row, by label.
    """

    line: int
    labels: tuple[str, ...]
    more: tuple[str, ...] = ()
    rows: dict[str, tuple[int, list[str]]] = field(default_factory=dict)

    def add_row(self, number: int, words: Sequence[str], faults: Faults) -> None:
        """Take a row, its label first."""
        label, cells = words[0], list(words[1:])
        if label not in self.labels and label not in self.more:
            faults.add(number, f"row {label}, which the header (line {self.line}) does not name")
        elif label in self.rows:
            faults.add(number, f"row {label} again; the first is line {self.rows[label][0]}")
        else:
            self.rows[label] = (number, cells)

    def check(self, faults: Faults) -> None:
        """Note missing and short rows; raise if the header itself is wrong."""
        if len(set(self.labels)) < len(self.labels) or len(self.labels) > MAX_GPUS:
            faults.add(
                self.line,
                f"the header names {len(self.labels)} gpus, some twice or more than {MAX_GPUS}",
            )
            faults.check()
        needed = len(self.labels) + len(self.more)
        for label in self.labels:
            if label not in self.rows:
                faults.add(self.line, f"the header names {label} but no {label} row follows")
            elif len(self.rows[label][1]) < needed:
                number, cells = self.rows[label]
                faults.add(
                    number, f"row {label} has {len(cells)} values, the header names {needed} columns"
                )

    def cell(self, pair: Pair) -> str:
        """The word in row and column of two gpus, counted in the header's order."""
        return self.rows[self.labels[pair[0]]][1][pair[1]]

    def row_line(self, index: int) -> int:
        """Line number of a gpu's row."""
        return self.rows[self.labels[index]][0]

    def check_symmetric(self, faults: Faults, what: str = "") -> None:
        """Note pairs whose two directions disagree; only for tables whose rows are complete."""
        for i in range(len(self.labels)):
            for j in range(i):
                there, back = self.cell((j, i)), self.cell((i, j))
                if there != back:
                    a, b = self.labels[j], self.labels[i]
                    faults.add(
                        self.row_line(i),
                        f"{a}-{b} is {shown(there)} one way (line {self.row_line(j)}) and "
                        f"{shown(back)} the other{what}",
                    )

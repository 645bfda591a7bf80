"""Events of a Chrome trace, decoded one after the other: memory holds one at a time."""

import json
import re
from collections.abc import Iterator
from typing import Any

from ficco_sim.errors import FileError
from ficco_sim.readers.logs.types import Notes
from ficco_sim.readers.text import shown

__all__ = ["decode_events"]

DECODER = json.JSONDecoder(parse_float=str, parse_constant=str)  # digits of times are kept
BLANK = re.compile(r"[ \t\r\n]*")
TOKEN_CHARS = 8  # of the longest piece, such as false or \u1234, that a cut can leave unfinished


class _CutError(Exception):
    """The text ends before the JSON does."""


def decode_events(text: str, where: str, notes: Notes) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line and content of each event; a warning if the file was cut off.

    Numbers with a point or an exponent are given as text, so that none of their digits is lost.

    Raises
    ------
    FileError
        Naming file and line: no JSON, no list of events, or cut off before the first one's end.
    """
    reader = _Reader(text, where)
    found = 0
    try:
        for position, event in reader.events():
            if isinstance(event, dict):
                found += 1
                yield reader.line_of(position), event
    except _CutError:
        cut = text.count("\n", 0, reader.position) + 1
        message = f"line {cut}: the file ends inside a value"
        if not found:
            raise FileError(f"{where}: {message}; no complete event before it") from None
        notes.warn(
            f"{message}: cut off; only the {found:,} complete events before it are read, and times are "
            "of that part"
        )
    except RecursionError as error:
        raise FileError(f"{where}: nested too deeply") from error


class _Reader:
    """Walks through the outermost layers of a trace and decodes one event at a time."""

    def __init__(self, text: str, where: str) -> None:
        self.text = text
        self.where = where
        self.position = 0
        self._line = 1
        self._counted = 0

    def line_of(self, position: int) -> int:
        """Line of a position, which must not be before the last one asked for."""
        self._line += self.text.count("\n", self._counted, position)
        self._counted = position
        return self._line

    def events(self) -> Iterator[tuple[int, Any]]:
        """Position and content of each event."""
        if self._next() == "[":
            yield from self._items()
        elif self._next() == "{":
            yield from self._of_object()
        else:
            raise self._wrong("must be a mapping or a list")
        if self._next(at_end=True):
            raise self._wrong("nothing may follow")

    def _of_object(self) -> Iterator[tuple[int, Any]]:
        found = False
        self._take("{")
        while self._next() != "}":
            if self._next() != '"':
                raise self._wrong("a key is needed")
            key = self._value()
            self._take(":")
            if key != "traceEvents":
                self._value()
            elif found or self._next() != "[":
                raise self._wrong("traceEvents must be one list")
            else:
                found = True
                yield from self._items()
            if self._next() != "}":
                self._take(",")
        self._take("}")
        if not found:
            raise FileError(f"{self.where}: no list traceEvents in it")

    def _items(self) -> Iterator[tuple[int, Any]]:
        self._take("[")
        while self._next() != "]":
            start = self.position
            value = self._value()
            yield start, value
            if self._next() != "]":
                self._take(",")
        self._take("]")

    def _next(self, *, at_end: bool = False) -> str:
        """The character that comes next, after blanks."""
        match = BLANK.match(self.text, self.position)
        assert match
        self.position = match.end()
        if self.position == len(self.text) and not at_end:
            raise _CutError
        return self.text[self.position : self.position + 1]

    def _take(self, character: str) -> None:
        if self._next() != character:
            raise self._wrong(f"{character!r} is needed")
        self.position += 1

    def _value(self) -> Any:
        self._next()
        try:
            value, self.position = DECODER.raw_decode(self.text, self.position)
        except json.JSONDecodeError as error:
            self.position = error.pos
            unfinished = error.msg.startswith("Unterminated string")
            if unfinished or len(self.text.rstrip()) - error.pos < TOKEN_CHARS:
                raise _CutError from error
            raise self._wrong(error.msg) from error
        except ValueError as error:  # a number of thousands of digits
            raise self._wrong(str(error)) from error
        return value

    def _wrong(self, rule: str) -> FileError:
        line = self.text.count("\n", 0, self.position) + 1
        there = shown(self.text[self.position : self.position + 20])
        return FileError(f"{self.where}: line {line}: not JSON of a trace at {there}: {rule}")

"""Tables that nccl-tests prints: runs, their ranks, and rows by the columns of the header above.

The header is ``size count [type [redop [root]]]``, then a group of time, algbw, busbw and #wrong
(long ago: error) for each of out-of-place and in-place, in the order that the line above it tells.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ficco_sim.errors import FileError
from ficco_sim.readers.logs.cells import PER_SECOND, half_step, to_count, to_number, to_seconds
from ficco_sim.readers.logs.types import Notes
from ficco_sim.readers.text import lines_of, shown
from ficco_sim.units import GB, GIB

__all__ = ["Place", "Row", "Section", "is_nccl_tests", "read_sections"]

# what mpirun --tag-output and srun --label put before each line
LABEL = re.compile(r"\s*(?:\[\d{1,6},\d{1,6}\]<std(?:out|err)>:|\d{1,6}:(?: |\Z))")
RANK = re.compile(
    r"#\s*Rank\s+(\d{1,6})\s+(?:Group\s+(\d{1,6})\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+"
    r"\[[^\]]*\]\s*(.*)"
)
PROGRAM = re.compile(r"\b([a-z_]{4,20}?)(?:_test)?_perf(?:_mpi)?\b")
AVERAGE = re.compile(r"#\s*Avg bus bandwidth\s*:\s*(\S+)")
OUT_OF_BOUNDS = re.compile(r"#\s*Out of bounds values\s*:\s*(\S+)")
PLACES = re.compile(r"(out-of-place|in-place)")
START = ("# nThread", "# nthread", "# Using devices", "# Collective test starting")
TEXT_COLUMNS = ("type", "redop", "root")
PLACE_COLUMNS = ("time", "algbw", "busbw")
WRONG_COLUMNS = ("#wrong", "error")
RATES = {"MB/s": 10**6, "GB/s": GB, "GiB/s": GIB}
NUM_FIRST = 2  # size and count
BLANK_GROUP = 20  # spaces; a group takes 30 or more


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Columns of a table.

    Parameters
    ----------
    texts
        Those of `TEXT_COLUMNS` that it has.
    places
        Of each group, in order: out-of-place or in-place.
    names
        Columns of each group.
    ends
        Where the header's word for the time ends, for each group.
    stamped
        Whether date and time of day end each row.
    """

    line: int
    texts: tuple[str, ...]
    places: tuple[str, ...]
    names: tuple[tuple[str, ...], ...]
    ends: tuple[int, ...]
    aligned: bool
    stamped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One group of a row; seconds and bytes/s, and by how much rounding may have changed them."""

    time_s: float
    time_step_s: float
    algbw: float
    algbw_step: float
    busbw: float
    busbw_step: float
    wrong: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of a table; None and no entry where a column is blank."""

    line: int
    size: int
    count: int
    dtype: str | None
    redop: str | None
    root: int | None
    places: Mapping[str, Place]


@dataclass(slots=True)
class Section:
    """One run: its ranks, and the rows of its table."""

    line: int
    last_line: int = 0
    program: str | None = None
    ranks: dict[int, tuple[int, int]] = field(default_factory=dict)  # line and group by rank
    hosts: set[str] = field(default_factory=set)
    gpus: set[str] = field(default_factory=set)
    above: tuple[int, str] = (0, "")  # the line that names the groups
    header: Header | None = None
    time_per_s: float | None = None
    rate_unit: float | None = None
    rows: list[Row] = field(default_factory=list)
    average: float | None = None
    ended: bool = False


def is_nccl_tests(text: str) -> bool:
    """Whether a line of the text is such a table's header, or starts such a run."""
    return any(
        line.startswith("# nThread") or _is_names(line.split())
        for line in (LABEL.sub("", line, count=1) for _, line in lines_of(text))
    )


def _is_names(words: Sequence[str]) -> bool:
    """Whether these are the names of columns."""
    bare = [word for word in words if word != "#"]
    return bare[:2] == ["size", "count"] and "busbw" in bare


def read_sections(text: str, where: str, programs: Collection[str], notes: Notes) -> Iterator[Section]:
    """The runs in a text, one after the other.

    Parameters
    ----------
    programs
        Names of collectives by which a run may call itself.

    Raises
    ------
    FileError
        Naming file, line, value and rule: unknown columns, or ranks that occur twice.
    """
    section = Section(line=1)
    whole = text.endswith("\n")
    lines = list(lines_of(text))
    for number, raw in lines:
        line = LABEL.sub("", raw, count=1)
        words = line.split()
        program = PROGRAM.search(line)
        starts = line.startswith(START) or RANK.match(line) or _is_names(words)
        if section.rows and (starts or (program and section.ended and "concluded" not in line)):
            yield section
            section = Section(line=number)
        section.last_line = number
        if program and program.group(1) in programs and not (section.rows and section.program):
            section.program = program.group(1)
        if rank := RANK.match(line):
            _add_rank(section, number, rank, where)
        elif _is_names(words):
            section.header = _header(number, line, section.above, where)
        elif PLACES.search(line) and line.startswith("#"):
            section.above = (number, line)
        elif line.startswith("#") and "(B)" in words:
            _add_units(section, number, words, where)
        elif average := AVERAGE.match(line):
            section.ended = True
            section.average = to_number(average.group(1))
        elif failed := OUT_OF_BOUNDS.match(line):
            section.ended = True
            if failed.group(1) != "0":
                notes.warn(f"line {number}: out of bounds values: {shown(failed.group(1))}")
        elif len(words) > NUM_FIRST and all(to_count(word) is not None for word in words[:NUM_FIRST]):
            if section.header is None:
                raise FileError(f"{where}: line {number}: a row without a header above it")
            last = number == len(lines) and not whole
            _add_row(section, number, line, notes, where, last=last)
    yield section


def _add_rank(section: Section, line: int, match: re.Match[str], where: str) -> None:
    rank, group = int(match.group(1)), int(match.group(2) or 0)
    if rank in section.ranks:
        raise FileError(
            f"{where}: line {line}: rank {rank} again; the first is line {section.ranks[rank][0]}: "
            "jobs beside each other that do not know of each other (built without MPI?), no "
            "communication between them was measured"
        )
    section.ranks[rank] = (line, group)
    section.hosts.add(match.group(3))
    section.gpus.add(match.group(4).strip())


def _header(line: int, names_line: str, above: tuple[int, str], where: str) -> Header:
    layout = f"{where}: line {line}: unknown column layout: "
    found = [m for m in re.finditer(r"\S+", names_line) if m.group() != "#"]
    names = [match.group().lower() for match in found]
    if "cputime" in names:
        raise FileError(
            f"{where}: line {line}: cputime is what the host took, not the collective; leave out -C"
        )
    starts = [i for i, name in enumerate(names) if name == "time"]
    if not starts:
        raise FileError(f"{layout}no column 'time'")
    texts = tuple(names[NUM_FIRST : starts[0]])
    if texts != tuple(name for name in TEXT_COLUMNS if name in texts):
        raise FileError(f"{layout}{' '.join(texts)} between count and time; known: type, redop, root")
    stamped = names[-1] == "timestamp"
    ends = [*starts[1:], len(names) - stamped]
    groups = tuple(tuple(names[a:b]) for a, b in zip(starts, ends, strict=True))
    for group in groups:
        if group[:3] != PLACE_COLUMNS or len(group) < 4 or group[3] not in WRONG_COLUMNS:
            raise FileError(f"{layout}{' '.join(group)}; known: time algbw busbw, then #wrong or error")
    places = tuple(PLACES.findall(above[1]))
    if len(places) != len(groups) or len(set(places)) != len(places):
        raise FileError(
            f"{layout}{len(groups)} groups of columns, but the line above (line {above[0] or '?'}) "
            f"names {', '.join(places) or 'none'}; it must name each as out-of-place or in-place"
        )
    return Header(
        line=line,
        texts=texts,
        places=places,
        names=groups,
        ends=tuple(found[i].end() for i in starts),
        aligned="  " in names_line.strip("# \t"),
        stamped=stamped,
    )


def _add_units(section: Section, line: int, words: Sequence[str], where: str) -> None:
    units = [word.strip("()") for word in words if word.startswith("(")]
    times = {PER_SECOND[unit] for unit in units if unit in PER_SECOND}
    rates = {RATES[unit] for unit in units if unit in RATES}
    if len(times) != 1 or len(rates) != 1:
        raise FileError(
            f"{where}: line {line}: units {shown(' '.join(units))}; needed are one of time ((us)) and "
            "one of bandwidth ((GB/s))"
        )
    section.time_per_s, section.rate_unit = times.pop(), rates.pop()


def _add_row(section: Section, line: int, text: str, notes: Notes, where: str, *, last: bool) -> None:
    """Take a row; one that does not fill its columns is refused."""
    header = section.header
    assert header is not None
    if section.time_per_s is None:
        raise FileError(
            f"{where}: line {line}: a row, but no line of units '(B) (elements) ... (us)' under the "
            f"header (line {header.line})"
        )
    row = _row(section, header, line, text)
    if isinstance(row, Row):
        section.rows.append(row)
        return
    cut = ": cut off, the file ends inside it" if last else ""
    notes.refuse(line, row + cut)
    if last:
        notes.warn(f"line {line}: cut off in the middle: not used")


def _row(section: Section, header: Header, line: int, text: str) -> Row | str:
    """A row, or why it is none."""
    found = list(re.finditer(r"\S+", text))
    if header.stamped:
        found = found[:-2]
    words = [match.group() for match in found]
    at = NUM_FIRST
    texts: dict[str, str] = {}
    for name in header.texts[:2]:
        if name != "root" and at < len(words) and words[at][0].isalpha():
            texts[name] = words[at]
            at += 1
    widths = [len(names) for names in header.names]
    possible = {sum(widths), *widths}
    if "root" in header.texts and len(words) - at - 1 in possible and len(words) - at not in possible:
        texts["root"] = words[at]
        at += 1
    rest = found[at:]
    if len(rest) == sum(widths):
        chosen = list(range(len(widths)))
    else:
        group = _filled_group(header, rest, text)
        if group is None:
            return f"{len(words)} values do not fill the columns of the header (line {header.line})"
        chosen = [group]
    places: dict[str, Place] = {}
    for i in chosen:
        cells = [match.group() for match in rest[: widths[i]]]
        rest = rest[widths[i] :]
        place = _place(section, cells)
        if isinstance(place, str):
            return f"{header.places[i]}: {place}"
        places[header.places[i]] = place
    root = texts.get("root")
    if root is not None and not re.fullmatch(r"-?[0-9]{1,6}", root):
        return f"root {shown(root)} must be a whole number"
    return Row(
        line=line,
        size=int(words[0]),
        count=int(words[1]),
        dtype=texts.get("type"),
        redop=texts.get("redop"),
        root=None if root is None else int(root),
        places=places,
    )


def _filled_group(header: Header, rest: Sequence[re.Match[str]], text: str) -> int | None:
    """The one group that a row fills, by where it stands; None if that cannot be told."""
    fitting = [i for i, names in enumerate(header.names) if len(names) == len(rest)]
    if not fitting or not header.aligned:
        return None
    end = rest[0].end()
    group = min(fitting, key=lambda i: abs(header.ends[i] - end))
    distance = abs(header.ends[group] - end)
    others = [abs(header.ends[i] - end) for i in range(len(header.ends)) if i != group]
    if others and 2 * distance > min(others):
        return None
    before = text[: rest[0].start()]
    blank = len(before) - len(before.rstrip())
    return group if group == 0 or blank >= BLANK_GROUP else None


def _place(section: Section, cells: Sequence[str]) -> Place | str:
    assert section.time_per_s is not None
    assert section.rate_unit is not None
    time_s = to_seconds(cells[0], section.time_per_s)
    algbw, busbw = to_number(cells[1]), to_number(cells[2])
    wrong = to_number(cells[3])
    if time_s is None:
        return f"time {shown(cells[0])} must be a number above 0"
    if algbw is None or busbw is None:
        return f"algbw {shown(cells[1])} and busbw {shown(cells[2])} must be numbers"
    if wrong is None and cells[3] != "N/A":
        return f"#wrong {shown(cells[3])} must be a number or N/A"
    return Place(
        time_s=time_s,
        time_step_s=half_step(cells[0]) / section.time_per_s,
        algbw=algbw * section.rate_unit,
        algbw_step=half_step(cells[1]) * section.rate_unit,
        busbw=busbw * section.rate_unit,
        busbw_step=half_step(cells[2]) * section.rate_unit,
        wrong=wrong,
    )

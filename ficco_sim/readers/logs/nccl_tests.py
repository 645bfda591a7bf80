"""nccl-tests and rccl-tests (old and new layouts), and the tests of mscclpp that print alike.

Columns are found by the header: ``size count [type [redop [root]]]``, then a group of time, algbw,
busbw and #wrong (long ago: error) for each of out-of-place and in-place, in the order that the line
above it tells. Rows whose numbers do not agree with each other are refused.
"""

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ficco_sim.errors import FileError
from ficco_sim.readers.logs.cells import (
    PER_SECOND,
    half_step,
    normal_dtype,
    to_count,
    to_number,
    to_seconds,
)
from ficco_sim.readers.logs.types import CollectivePoint, Log, Notes
from ficco_sim.readers.text import lines_of, shown
from ficco_sim.units import GB, GIB, format_seconds

__all__ = ["is_nccl_tests", "read_nccl_tests"]

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
ASSUMED_BYTES = 4  # of an element where no type is printed, as by mscclpp, which tests with int32

ELEMENT_BYTES = {
    **dict.fromkeys(("int8", "uint8", "char", "fp8", "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2"), 1),
    **dict.fromkeys(("half", "bfloat16"), 2),
    **dict.fromkeys(("float", "int", "int32", "uint32"), 4),
    **dict.fromkeys(("double", "int64", "uint64"), 8),
}
# largest difference from the right result that the old layout's program took for rounding
ROUNDING = {"half": 1e-2, "bfloat16": 1e-2, "float": 1e-5, "double": 1e-12}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A collective: which part of its size crosses a gpu's links, and how it prints."""

    name: str
    links: int  # times (N-1)/N of the size; 0: the whole size, once
    sharded: bool  # whether count is that of a shard
    reduces: bool
    rooted: bool


KINDS = {
    "all_gather": Kind(name="all_gather", links=1, sharded=True, reduces=False, rooted=False),
    "reduce_scatter": Kind(name="reduce_scatter", links=1, sharded=True, reduces=True, rooted=False),
    "alltoall": Kind(name="all_to_all", links=1, sharded=True, reduces=False, rooted=False),
    "alltoallv": Kind(name="all_to_all_v", links=1, sharded=True, reduces=False, rooted=False),
    "all_reduce": Kind(name="all_reduce", links=2, sharded=False, reduces=True, rooted=False),
    "broadcast": Kind(name="broadcast", links=0, sharded=False, reduces=False, rooted=True),
    "reduce": Kind(name="reduce", links=0, sharded=False, reduces=True, rooted=True),
    "gather": Kind(name="gather", links=1, sharded=True, reduces=False, rooted=True),
    "scatter": Kind(name="scatter", links=1, sharded=True, reduces=False, rooted=True),
    "sendrecv": Kind(name="send_recv", links=0, sharded=False, reduces=False, rooted=False),
}
KINDS |= {"allgather": KINDS["all_gather"], "allreduce": KINDS["all_reduce"]}  # as mscclpp spells
INFERRED = ("all_gather", "reduce_scatter", "alltoall", "all_reduce", "broadcast", "reduce", "sendrecv")


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


def read_nccl_tests(text: str, where: str) -> Log:
    """Read the tables of one or more runs.

    Raises
    ------
    FileError
        Naming file, line, value and rule: no table, unknown columns, or nothing was communicated,
        as when several jobs of one rank each run beside each other.
    """
    notes = Notes()
    sections = list(_sections(text, where, notes))
    if all(section.header is None for section in sections):
        raise FileError(
            f"{where}: no table of results: none of the lines is '# size count ... time algbw busbw'"
        )
    for section in sections:
        if section.header is not None:
            _take(section, where, notes)
        elif section.ranks:
            notes.warn(f"line {section.line}: a run without a table")
    zero = [p.time_s for p in _points(notes) if p.total_bytes == 0 and not p.in_place]
    if zero:
        launch_s = statistics.median(zero)
        notes.facts["launch_overhead_s"] = launch_s
        notes.warn(
            f"{len(zero)} rows of 0 bytes measure the launch ({format_seconds(launch_s)}), no bandwidth"
        )
    if not notes.points:
        notes.warn("no row can be used: no calibration from this file")
    return notes.log("nccl_tests")


def _points(notes: Notes) -> list[CollectivePoint]:
    return [point for point in notes.points if isinstance(point, CollectivePoint)]


def _is_names(words: Sequence[str]) -> bool:
    """Whether these are the names of columns."""
    bare = [word for word in words if word != "#"]
    return bare[:2] == ["size", "count"] and "busbw" in bare


def _sections(text: str, where: str, notes: Notes) -> Iterator[Section]:
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
        if program and program.group(1) in KINDS and not (section.rows and section.program):
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
    if section.header is not None and not section.ended:
        notes.warn(f"line {len(lines)}: the log ends before the summary of the run: was it cut off?")
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


def _take(section: Section, where: str, notes: Notes) -> None:
    """Turn the rows of a run into points."""
    _check_average(section, notes)
    if not section.rows:
        notes.warn(f"line {section.line}: a run without a complete row")
        return
    num_gpus = _num_gpus(section, where, notes)
    names = [section.program] if section.program else _possible(section, num_gpus, where)
    kinds = [KINDS[name] for name in names]
    if len({(kind.links, kind.sharded) for kind in kinds}) > 1:
        raise FileError(
            f"{where}: line {section.line}: the collective is not named, and the rows fit "
            f"{', '.join(names)}"
        )
    kind = kinds[0]
    if len(kinds) > 1:
        notes.warn(f"line {section.line}: the collective is not named; the rows fit {', '.join(names)}")
    elif section.program is None:
        notes.warn(f"line {section.line}: the collective is not named; the rows fit {names[0]} alone")
    factor = _factor(kind, num_gpus)
    for row in section.rows:
        shard = _shard_bytes(row, kind, num_gpus)
        if isinstance(shard, str):
            notes.refuse(row.line, shard)
            continue
        for name, place in row.places.items():
            if reason := _fault(row, place, factor):
                notes.refuse(row.line, f"{name}: {reason}")
                continue
            notes.points.append(
                CollectivePoint(
                    collective=kind.name if len(kinds) == 1 else "unknown",
                    num_gpus=num_gpus,
                    total_bytes=row.size,
                    shard_bytes=shard,
                    dtype=normal_dtype(row.dtype) or row.dtype if row.dtype else None,
                    time_s=place.time_s,
                    algbw_bytes_per_s=place.algbw,
                    busbw_bytes_per_s=place.busbw,
                    bus_factor=factor,
                    in_place=name == "in-place",
                    checked=place.wrong is not None,
                    line=row.line,
                )
            )
    facts = {
        "line": section.line,
        "collective": kind.name if len(kinds) == 1 else "unknown",
        "num_gpus": num_gpus,
        "num_rows": len(section.rows),
        "gpus": sorted(section.gpus),
        "num_hosts": len(section.hosts),
    }
    notes.facts.setdefault("runs", []).append(facts)


def _check_average(section: Section, notes: Notes) -> None:
    """Warn if rows are missing: the summary is the mean over all of them."""
    rates = [place.busbw / GB for row in section.rows for place in row.places.values()]
    if section.average is None or not rates:
        return
    mean = statistics.fmean(rates)
    if abs(mean - section.average) > 0.006 + 1e-5 * section.average:
        notes.warn(
            f"line {section.line}: the mean bus bandwidth of the rows is {mean:.6g} GB/s, the summary "
            f"says {section.average:.6g}: rows are missing or damaged"
        )


def _num_gpus(section: Section, where: str, notes: Notes) -> int:
    """Ranks that take part in one collective."""
    if section.ranks:
        groups: dict[int, int] = {}
        for _, group in section.ranks.values():
            groups[group] = groups.get(group, 0) + 1
        sizes = set(groups.values())
        if len(groups) == 1:
            num_gpus = max(section.ranks) + 1
            if num_gpus > len(section.ranks):
                notes.warn(f"{num_gpus - len(section.ranks)} of ranks 0 to {num_gpus - 1} not listed")
        elif len(sizes) > 1:
            raise FileError(
                f"{where}: line {section.line}: groups of {', '.join(map(str, sorted(sizes)))} ranks; "
                "all must be of one size"
            )
        else:
            num_gpus = sizes.pop()
            notes.warn(f"{len(groups)} groups of {num_gpus} ranks at the same time: links are shared")
        if len(section.hosts) > 1:
            notes.warn(
                f"ranks on {len(section.hosts)} hosts: the network between them is part of all times"
            )
    else:
        num_gpus = _counted_gpus(section, where, notes)
    if num_gpus < 2:
        raise FileError(f"{where}: line {section.line}: 1 rank: no communication was measured")
    return num_gpus


def _counted_gpus(section: Section, where: str, notes: Notes) -> int:
    """Gpus by size over count, where no ranks are listed: right for collectives with shards."""
    counted = {
        row.size / (row.count * _element_bytes(row)) for row in section.rows if row.size and row.count
    }
    num_gpus = counted.pop() if len(counted) == 1 else 0.0
    if num_gpus < 2 or num_gpus != int(num_gpus):
        raise FileError(
            f"{where}: line {section.line}: no lines '# Rank ...' before the table, and size over "
            "count does not tell the number of gpus"
        )
    typed = all(row.dtype for row in section.rows)
    assumed = "" if typed else f", elements of {ASSUMED_BYTES} bytes assumed as no type is printed"
    notes.warn(f"ranks are not listed; size over count gives {num_gpus:.0f} gpus{assumed}")
    return int(num_gpus)


def _element_bytes(row: Row) -> int:
    return ELEMENT_BYTES.get(row.dtype or "", ASSUMED_BYTES)


def _possible(section: Section, num_gpus: int, where: str) -> list[str]:
    """Names of the collectives that most rows fit; of several, the one that the file's name has."""
    fits: dict[str, int] = {}
    for name in INFERRED:
        kind = KINDS[name]
        fits[name] = sum(_fits(row, kind, num_gpus) for row in section.rows)
    most = max(fits.values())
    names = [name for name, count in fits.items() if count == most]
    if not most:
        raise FileError(
            f"{where}: line {section.line}: the collective is not named, and size, count, algbw and "
            f"busbw fit none on {num_gpus} gpus"
        )
    # an all-to-all in place cannot be checked, and old versions took that for wrong
    in_place = [row.places["in-place"].wrong for row in section.rows if "in-place" in row.places]
    out = [row.places["out-of-place"].wrong for row in section.rows if "out-of-place" in row.places]
    if in_place and out and all(wrong == 0 for wrong in out):
        unchecked = all(wrong is None or wrong >= 1 for wrong in in_place)
        names = [name for name in names if (name == "alltoall") == unchecked] or names
    # people name their logs after what they ran
    file = re.split(r"[/\\]", where)[-1].lower()
    spelled = [name for name in names if name in file or name.replace("_", "") in file]
    return spelled if len(spelled) == 1 else names


def _fits(row: Row, kind: Kind, num_gpus: int) -> bool:
    if isinstance(_shard_bytes(row, kind, num_gpus), str):
        return False
    if row.redop is not None and (row.redop != "none") != kind.reduces:
        return False
    if row.root is not None and (row.root >= 0) != kind.rooted:
        return False
    factor = _factor(kind, num_gpus)
    return not any(_disagreement(row, place, factor) for place in row.places.values())


def _factor(kind: Kind, num_gpus: int) -> float:
    return kind.links * (num_gpus - 1) / num_gpus if kind.links else 1.0


def _shard_bytes(row: Row, kind: Kind, num_gpus: int) -> int | str | None:
    """Bytes of a shard, None for collectives without; or why size and count do not agree."""
    if row.dtype is not None and row.dtype not in ELEMENT_BYTES:
        return f"type {shown(row.dtype)} is unknown: size and count cannot be compared"
    counted = row.count * _element_bytes(row)
    if not kind.sharded:
        return None if counted == row.size else _uneven(row, counted, "size")
    if counted * num_gpus == row.size:
        return counted
    # some versions print the count of the whole
    if counted == row.size and row.size % num_gpus == 0:
        return row.size // num_gpus
    return _uneven(row, counted, f"size over {num_gpus} gpus")


def _uneven(row: Row, counted: int, what: str) -> str:
    return f"size {row.size}, count {row.count}: {counted} bytes counted are not {what}"


def _fault(row: Row, place: Place, factor: float) -> str | None:
    """Why numbers of a row are not used."""
    if place.wrong is not None and place.wrong > ROUNDING.get(row.dtype or "", 0.0):
        return f"the check of the result failed (#wrong or error {place.wrong:g})"
    return _disagreement(row, place, factor)


def _disagreement(row: Row, place: Place, factor: float) -> str | None:
    slack = 1 + 1e-3
    longest, shortest = place.time_s + place.time_step_s, place.time_s - place.time_step_s
    least = row.size / longest / slack - place.algbw_step
    most = row.size / shortest * slack + place.algbw_step if shortest > 0 else math.inf
    if not least <= place.algbw <= most:
        return (
            f"algbw {place.algbw / GB:.6g} is not size over time, "
            f"{row.size / place.time_s / GB:.6g} GB/s"
        )
    rounding = place.busbw_step + place.algbw_step * factor + 1e-3 * place.busbw
    if abs(place.busbw - place.algbw * factor) > rounding:
        return f"busbw {place.busbw / GB:.6g} is not algbw {place.algbw / GB:.6g} x {factor:.6g}"
    return None

"""nccl-tests and rccl-tests (old and new layouts), and the tests of mscclpp that print alike.

Rows whose numbers (size, count, time, algbw, busbw) do not agree with each other are refused.
"""

import math
import re
import statistics
from dataclasses import dataclass

from ficco_sim.errors import FileError
from ficco_sim.readers.logs.cells import normal_dtype
from ficco_sim.readers.logs.nccl_table import Place, Row, Section, read_sections
from ficco_sim.readers.logs.types import CollectivePoint, Log, Notes
from ficco_sim.readers.text import shown
from ficco_sim.units import GB, format_seconds

__all__ = ["read_nccl_tests"]

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


def read_nccl_tests(text: str, where: str) -> Log:
    """Read the tables of one or more runs.

    Raises
    ------
    FileError
        Naming file, line, value and rule: no table, unknown columns, or nothing was communicated,
        as when several jobs of one rank each run beside each other.
    """
    notes = Notes()
    sections = list(read_sections(text, where, KINDS, notes))
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


def _take(section: Section, where: str, notes: Notes) -> None:
    """Turn the rows of a run into points."""
    _check_average(section, notes)
    if not section.ended:
        notes.warn(f"line {section.last_line}: the log ends before the summary of the run: cut off?")
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

"""``rocm-smi --showtopo`` (weight, hops, type, NUMA) and ``rocm-smi --shownodesbw`` (bandwidth)."""

import re
from collections import Counter
from itertools import combinations

from ficco_sim.errors import FileError
from ficco_sim.readers.assemble import assemble, list_pairs
from ficco_sim.readers.text import Faults, Table, gpu_index, lines_of, shown
from ficco_sim.readers.types import Direct, Matrix, Notes, Options, Pair, Reading

__all__ = ["is_rocm_smi", "read_rocm_smi"]

TABLES = {
    "weight between two gpus": "weight",
    "hops between two gpus": "hops",
    "link type between two gpus": "type",
    "bandwidth between two gpus": "bandwidth",
}
GPU_LINE = re.compile(r"GPU\[(\d{1,6})\]\s*:\s*(.*)")
NUMA = re.compile(r"\(Topology\) Numa Node:\s*(-?\d{1,6})\Z")
CARD = re.compile(r"(?:Card [Ss]eries|Card [Mm]odel|Device Name):\s*(.+)\Z")
UNITS = re.compile(r"Units:\s*(\S+)")
RANGE = re.compile(r"(\d{1,9})-(\d{1,9})\Z")
BYTES_PER_S = {"mps": 1e6}  # rocm-smi's name for MB/s
NOT_LINKED = "0-0"


def is_rocm_smi(text: str) -> bool:
    """Whether the text has a title that rocm-smi prints."""
    return "ROCm System Management" in text or any(
        (_title(line) or "").lower() in TABLES for _, line in lines_of(text)
    )


def _title(line: str) -> str | None:
    """The words between two runs of ``=``, None if the line has none around it."""
    bare = line.strip()
    return bare.strip("=").strip() if bare.startswith("===") and bare.endswith("===") else None


def read_rocm_smi(text: str, where: str, options: Options, notes: Notes) -> Reading:
    """Read the tables of link types or bandwidths, or both.

    Raises
    ------
    FileError
        Naming file, line, value and rule: a table is missing or damaged, or tables disagree.
    """
    faults = Faults(where)
    tables, numa, cards, unit = _sections(text, faults)
    faults.check()
    if "type" not in tables and "bandwidth" not in tables:
        raise FileError(
            f"{where}: holds neither the table 'Link Type between two GPUs' (--showtopo) nor "
            f"'Bandwidth between two GPUs' (--shownodesbw); it has {', '.join(tables) or 'none'}"
        )
    labels = next(iter(tables.values())).labels
    for name, table in tables.items():
        if table.labels != labels:
            faults.add(
                table.line, f"the {name} table has {len(table.labels)} gpus, another {len(labels)}"
            )
        table.check(faults)
    for gpu, (line, _) in {**numa, **cards}.items():
        if gpu >= len(labels):
            faults.add(line, f"GPU[{gpu}], but the tables have {len(labels)} gpus")
    faults.check()
    if [gpu_index(label) for label in labels] != list(range(len(labels))):
        notes.warn(f"the header names {', '.join(labels)}; they become gpus 0 to {len(labels) - 1}")
    for name, table in tables.items():
        if name == "bandwidth":
            table.check_symmetric(faults, "; both directions must be equal")
        else:
            table.check_symmetric(faults)
    faults.check()
    direct, pcie = _types(tables, len(labels), notes, faults)
    rate: float | None = None
    if "bandwidth" in tables:
        measured, rate = _bandwidths(tables["bandwidth"], unit, notes, faults)
        faults.check()
        _note_disagreement(direct, measured, notes)
        apart = (p for p in combinations(range(len(labels)), 2) if p not in measured)
        direct, pcie = measured, {p: pcie.get(p, "PCIE") for p in apart}
    faults.check()
    for i, j in pcie:
        if i in numa and j in numa and numa[i][1] != numa[j][1]:
            pcie[i, j] = "SYS"
    if numa and len(numa) < len(labels):
        notes.warn(f"NUMA nodes are given for {len(numa)} of {len(labels)} gpus")
    matrix = Matrix(
        num_gpus=len(labels),
        maker="amd",
        link_name="xGMI",
        direct=direct,
        pcie=pcie,
        host_groups=tuple(f"node {numa[g][1]}" if g in numa else "" for g in range(len(labels))),
        gpu_names={gpu: name for gpu, (_, name) in cards.items()},
        link_bytes_per_s=rate,
    )
    return assemble(matrix, options, notes, where)


Numbered = dict[int, tuple[int, str]]


def _sections(
    text: str, faults: Faults
) -> tuple[dict[str, Table], Numbered, Numbered, tuple[int, str] | None]:
    """Tables by name; NUMA node and card name with its line by gpu; line and name of the unit."""
    tables: dict[str, Table] = {}
    numa: Numbered = {}
    cards: Numbered = {}
    unit: tuple[int, str] | None = None
    section, table = "", None
    for number, line in lines_of(text):
        words = line.split()
        if not words:
            continue
        if (title := _title(line)) is not None:
            section, table = TABLES.get(title.lower(), ""), None
            if section in tables:
                faults.add(
                    number, f"a second {section} table; the first is line {tables[section].line}"
                )
                faults.check()
        elif gpu_index(words[0]) is not None:
            is_header = all(gpu_index(word) is not None for word in words)
            if not section:
                continue  # a table that says nothing of links
            if is_header and table is None:
                table = tables[section] = Table(line=number, labels=tuple(words))
            elif is_header and len(words) > 1:
                faults.add(number, f"a second header in the {section} table")
            elif table is None:
                faults.add(number, f"row {words[0]} of the {section} table without a header above it")
            else:
                table.add_row(number, words, faults)
        elif match := GPU_LINE.match(line.strip()):
            gpu, rest = int(match.group(1)), match.group(2)
            if node := NUMA.match(rest):
                numa[gpu] = (number, node.group(1))
            elif card := CARD.match(rest):
                cards.setdefault(gpu, (number, card.group(1)))
        elif match := UNITS.search(line):
            unit = (number, match.group(1))
    return tables, numa, cards, unit


def _types(
    tables: dict[str, Table], num_gpus: int, notes: Notes, faults: Faults
) -> tuple[dict[Pair, Direct], dict[Pair, str]]:
    """Pairs joined by an xGMI link, and paths over PCIe of the others."""
    direct: dict[Pair, Direct] = {}
    pcie: dict[Pair, str] = {}
    table = tables.get("type")
    if table is None:
        return direct, pcie
    pairs = list(combinations(range(num_gpus), 2))
    far: list[Pair] = []
    for pair in pairs:
        word, line = table.cell(pair), table.row_line(pair[0])
        if word == "PCIE":
            pcie[pair] = _path(tables, pair)
        elif word != "XGMI":
            name = f"{table.labels[pair[0]]}-{table.labels[pair[1]]}"
            faults.add(line, f"{name} is {shown(word)}; known are XGMI and PCIE")
        elif "hops" in tables and tables["hops"].cell(pair) != "1":
            far.append(pair)
            pcie[pair] = "PCIE"
        else:
            direct[pair] = Direct(width=1, line=line)
    if far:
        notes.warn(
            f"{len(far)} pairs are XGMI over several hops, so not direct links: {list_pairs(far)}"
        )
    notes.facts["pairs"] = dict(Counter(table.cell(pair) for pair in pairs))
    return direct, pcie


def _path(tables: dict[str, Table], pair: Pair) -> str:
    """Pairs whose PCIe path has more than two hops cross sockets, unless NUMA nodes say otherwise."""
    hops = tables["hops"].cell(pair) if "hops" in tables else "2"
    return "SYS" if hops not in ("1", "2") else "PCIE"


def _bandwidths(
    table: Table, unit: tuple[int, str] | None, notes: Notes, faults: Faults
) -> tuple[dict[Pair, Direct], float]:
    """Links of each pair, their total rate and the rate of one, in bytes/s."""
    if unit is None:
        notes.assume("bandwidths are in MB/s: rocm-smi prints mps, the line is missing here")
        scale = BYTES_PER_S["mps"]
    elif unit[1] not in BYTES_PER_S:
        faults.add(unit[0], f"unit {shown(unit[1])}; known is mps, which is MB/s")
        return {}, 0.0
    else:
        scale = BYTES_PER_S[unit[1]]
    direct: dict[Pair, Direct] = {}
    least: dict[Pair, int] = {}
    for pair in combinations(range(len(table.labels)), 2):
        word, line = table.cell(pair), table.row_line(pair[0])
        if word == NOT_LINKED:
            continue
        name = f"{table.labels[pair[0]]}-{table.labels[pair[1]]}"
        match = RANGE.match(word)
        if match is None or not 0 < int(match.group(1)) <= int(match.group(2)):
            faults.add(line, f"{name} is {shown(word)}, not least-most such as 50000-100000, nor 0-0")
            continue
        low, high = int(match.group(1)), int(match.group(2))
        if high % low or high // low > 64:
            faults.add(line, f"{name} is {shown(word)}: the most must be 1 to 64 times the least")
            continue
        least[pair] = low
        direct[pair] = Direct(width=high // low, line=line, bandwidth_bytes_per_s=high * scale)
    rates = set(least.values())
    if len(rates) > 1:
        notes.warn(f"links have several least bandwidths: {', '.join(map(str, sorted(rates)[:6]))}")
    widths = Counter(
        direct[p].width if p in direct else 0 for p in combinations(range(len(table.labels)), 2)
    )
    notes.facts["pairs_by_width"] = {str(w): n for w, n in sorted(widths.items(), reverse=True)}
    return direct, min(rates, default=1) * scale


def _note_disagreement(typed: dict[Pair, Direct], measured: dict[Pair, Direct], notes: Notes) -> None:
    gone = sorted(set(typed) - set(measured))
    if gone:
        notes.warn(
            f"{len(gone)} pairs are XGMI by type but 0-0 by bandwidth; the bandwidth counts: "
            f"{list_pairs(gone)}"
        )

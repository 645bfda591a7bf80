"""``nvidia-smi topo -m``: the matrix of link types, and ``nvidia-smi nvlink -s`` pasted below it."""

import re
from collections import Counter
from itertools import combinations

from ficco_sim.errors import FileError
from ficco_sim.readers.assemble import assemble
from ficco_sim.readers.text import Faults, Table, gpu_index, lines_of, shown
from ficco_sim.readers.types import Direct, Matrix, Notes, Options, Pair, Reading

__all__ = ["is_topo_m", "read_topo_m"]

PCIE_PATHS = ("PIX", "PXB", "PHB", "NODE", "SYS", "SOC")  # SOC: SYS in old versions
P2P_STATUS = frozenset({"OK", "CNS", "GNS", "TNS", "NS", "U", "DR", "CNR"})
NVLINK = re.compile(r"NV(\d{1,4})\Z")
GPU_LINE = re.compile(r"GPU (\d{1,6}): (.+)")
LINK_LINE = re.compile(r"Link (\d{1,6}): +(?:([0-9.]{1,20}) GB/s|(<inactive>))$")
AFFINITY = ("CPU", "NUMA", "GPU")  # first words of the columns after gpus and NICs


def is_topo_m(text: str) -> bool:
    """Whether a line of the text looks like the header or a row of the matrix."""
    return any(_label(line) is not None for _, line in lines_of(text))


def _label(line: str) -> str | None:
    words = line.split()
    return words[0] if words and gpu_index(words[0]) is not None else None


def read_topo_m(text: str, where: str, options: Options, notes: Notes) -> Reading:
    """Read the matrix of link types.

    Raises
    ------
    FileError
        Naming file, line, value and rule: no matrix, missing or short rows, directions that
        disagree, unknown words, or a P2P status table, which looks alike.
    """
    faults = Faults(where)
    table = _table(text, where, faults)
    _refuse_p2p_status(table, where)
    table.check(faults)
    if all(label in table.rows for label in table.labels):
        _check_cells(table, faults)
    else:
        _check_directions_seen(table, faults)
    faults.check()
    names, rates, inactive = _nvlink_status(text, len(table.labels), faults)
    faults.check()
    _note_labels(table, notes)
    if inactive:
        notes.warn(f"{inactive} links are inactive; they are not counted")
    matrix = _matrix(table, names, rates, where, notes)
    return assemble(matrix, options, notes, where)


def _table(text: str, where: str, faults: Faults) -> Table:
    table: Table | None = None
    after = ""  # first line behind the header that is no row
    for number, line in lines_of(text):
        words = line.split()
        if not words:
            continue
        if words[0].startswith("Legend"):
            break  # what follows explains, or is another tool's output
        is_header = gpu_index(words[0]) is not None and (
            len(words) == 1 or gpu_index(words[1]) is not None or words[1] in AFFINITY
        )
        if is_header and table is not None:
            faults.add(number, f"a second header; the first is line {table.line}")
            faults.check()
        elif is_header:
            table = _header(number, words)
        elif table is not None and words[0] in (*table.labels, *table.more):
            table.add_row(number, words, faults)
        elif gpu_index(words[0]) is not None:
            if table is None:
                raise FileError(
                    f"{where}: line {number}: row {words[0]} without a header line above it"
                )
            table.add_row(number, words, faults)
        elif table is not None and not after and not table.rows:
            after = f"line {number}: holds no matrix: {shown(line.strip())} follows the header"
    if table is None:
        raise FileError(f"{where}: holds no matrix: no header line with GPU0")
    if not table.rows:
        raise FileError(f"{where}: {after or f'line {table.line}: holds no matrix, only its header'}")
    return table


def _header(number: int, words: list[str]) -> Table:
    gpus = [w for w in words if gpu_index(w) is not None]
    rest = words[len(gpus) :] if words[: len(gpus)] == gpus else [w for w in words if w not in gpus]
    end = next((i for i, word in enumerate(rest) if word in AFFINITY), len(rest))
    return Table(line=number, labels=tuple(gpus), more=tuple(rest[:end]))


def _refuse_p2p_status(table: Table, where: str) -> None:
    for number, cells in table.rows.values():
        words = set(cells[: len(table.labels)])
        if words & P2P_STATUS and not any(NVLINK.match(w) or w in PCIE_PATHS for w in words):
            raise FileError(
                f"{where}: line {number}: P2P status table, not a link matrix: it says which pairs may "
                "copy directly, not over what; give the output of nvidia-smi topo -m"
            )


def _check_cells(table: Table, faults: Faults) -> None:
    for i, label in enumerate(table.labels):
        number, cells = table.rows[label]
        for j, word in enumerate(cells[: len(table.labels)]):
            _check_cell(table, (i, j), word, number, faults)
    if all(len(table.rows[label][1]) >= len(table.labels) for label in table.labels):
        table.check_symmetric(faults)


def _check_cell(table: Table, pair: Pair, word: str, number: int, faults: Faults) -> None:
    i, j = pair
    name = f"{table.labels[i]}-{table.labels[j]}"
    if (word == "X") != (i == j):
        faults.add(number, f"{name} is {shown(word)}; X marks a gpu itself and nothing else")
    elif i != j and word not in PCIE_PATHS:
        match = NVLINK.match(word)
        if match is None or int(match.group(1)) < 1:
            faults.add(
                number, f"{name} is {shown(word)}; known are X, NV1 and more, {', '.join(PCIE_PATHS)}"
            )


def _check_directions_seen(table: Table, faults: Faults) -> None:
    """With a row missing, still tell which of the pairs that are there disagree."""
    there = [
        i
        for i, label in enumerate(table.labels)
        if label in table.rows and len(table.rows[label][1]) >= len(table.labels)
    ]
    for i, j in combinations(there, 2):
        a, b = table.cell((i, j)), table.cell((j, i))
        if a != b:
            faults.add(
                table.row_line(j),
                f"{table.labels[i]}-{table.labels[j]} is {shown(a)} one way (line {table.row_line(i)}) "
                f"and {shown(b)} the other",
            )


def _note_labels(table: Table, notes: Notes) -> None:
    numbers = [gpu_index(label) for label in table.labels]
    if numbers != list(range(len(numbers))):
        notes.warn(
            f"the header names {', '.join(table.labels)}; they become gpus 0 to {len(numbers) - 1}"
        )
    missing = [name for name in table.more if name not in table.rows]
    if missing:
        notes.warn(f"NICs without a row of their own: {', '.join(missing)}")


def _nvlink_status(
    text: str, num_gpus: int, faults: Faults
) -> tuple[dict[int, str], dict[int, list[float]], int]:
    """Names, and rates of the active links in bytes/s, by gpu; and the number of inactive links."""
    names: dict[int, str] = {}
    rates: dict[int, list[float]] = {}
    inactive = 0
    gpu: int | None = None
    for number, line in lines_of(text):
        bare = line.strip()
        if match := GPU_LINE.match(bare):
            gpu = int(match.group(1))
            names[gpu] = match.group(2).partition("(UUID")[0].strip()
            if gpu >= num_gpus:
                faults.add(number, f"GPU {gpu}, but the matrix has {num_gpus} gpus")
        elif match := LINK_LINE.match(bare):
            if gpu is None:
                faults.add(number, "a link of no gpu: no line such as 'GPU 0: ...' above it")
                continue
            inactive += match.group(3) is not None
            try:
                rate = float(match.group(2) or 1) * 1e9
            except ValueError:
                rate = 0.0
            if not 0 < rate <= 1e13:
                faults.add(number, f"link rate {shown(match.group(2))} GB/s must be more than 0")
            elif match.group(3) is None:
                rates.setdefault(gpu, []).append(rate)
    return names, rates, inactive


def _matrix(
    table: Table,
    names: dict[int, str],
    rates: dict[int, list[float]],
    where: str,
    notes: Notes,
) -> Matrix:
    num_gpus = len(table.labels)
    direct: dict[Pair, Direct] = {}
    pcie: dict[Pair, str] = {}
    for pair in combinations(range(num_gpus), 2):
        word = table.cell(pair)
        if match := NVLINK.match(word):
            direct[pair] = Direct(width=int(match.group(1)), line=table.row_line(pair[0]))
        else:
            pcie[pair] = word
    notes.facts["pairs"] = dict(Counter(table.cell(p) for p in combinations(range(num_gpus), 2)))
    notes.facts["num_nics"] = len(table.more)
    used = num_gpus + len(table.more)
    groups = tuple(_host_group(table.rows[label][1][used:]) for label in table.labels)
    every = {rate for values in rates.values() for rate in values}
    if len(every) > 1:
        listed = ", ".join(f"{rate / 1e9:g}" for rate in sorted(every)[:6])
        notes.warn(f"nvlink status prints link rates of {listed} GB/s; the least is used")
    if rates and len(rates) < num_gpus:
        notes.warn(f"nvlink status lists links of {len(rates)} of {num_gpus} gpus")
    counts = {gpu: len(values) for gpu, values in rates.items()}
    for (i, j), links in direct.items():
        for gpu in (i, j):
            if gpu in counts and links.width > counts[gpu]:
                raise FileError(
                    f"{where}: line {links.line}: {links.width} links between gpu {i} and gpu {j}, but "
                    f"the nvlink status lists {counts[gpu]} active links of gpu {gpu}"
                )
    return Matrix(
        num_gpus=num_gpus,
        maker="nvidia",
        link_name="NVLink",
        direct=direct,
        pcie=pcie,
        host_groups=groups,
        gpu_names=names,
        link_bytes_per_s=min(every, default=None),
        links_per_gpu=max(counts.values(), default=None),
    )


def _host_group(affinity: list[str]) -> str:
    """The NUMA node if it is a single one, else the CPUs that the gpu is close to."""
    if len(affinity) > 1 and affinity[1].isdigit():
        return f"node {affinity[1]}"
    return affinity[0] if affinity else ""

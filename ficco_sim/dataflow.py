"""Where the data of every output comes from, followed symbolically through a plan.

Each rectangle of a buffer carries a value: a block of an input matrix, or a partial product (rows of
A times a set of intervals of k, with one gpu's B). Transfers and copies move values, GEMMs make and
extend products. The plan is right if every output ends with the value that its workload asks for.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ficco_sim.plan import Gemm, Interval, LocalCopy, Plan, Region, Task, Transfer

__all__ = ["find_wrong_data"]


@dataclass(frozen=True, slots=True)
class _Value:
    """What a rectangle holds: element (r, c) of the buffer is element (r + down, c + right) of it.

    ``matrix`` is the name of an input, or ``"product"``; ``gpu`` is the owner of an input that each
    gpu has for itself, and of the B in a product; ``left`` is matrix and owner of the other factor of
    a product, ``k`` its summed intervals. Of a reduction ``"part"``, ``k`` are the gpus summed.
    """

    matrix: str
    gpu: int
    down: int
    right: int
    k: tuple[Interval, ...] = ()
    left: tuple[str, int] = ("", -1)


@dataclass(frozen=True, slots=True)
class _Piece:
    rows: Interval
    cols: Interval
    value: _Value
    task: str


Store = dict[tuple[int, str], list[_Piece]]
Finding = tuple[tuple[str, ...], str]


def find_wrong_data(plan: Plan, ordered: Sequence[Task]) -> Iterator[Finding]:
    """Compare what every output ends with to what the workload asks for.

    Parameters
    ----------
    plan
        Free of races and of reads of unwritten data.
    ordered
        Its tasks in any legal order.

    Yields
    ------
    tasks, message
        The tasks that made the wrong data, and a sentence.
    """
    store: Store = defaultdict(list)
    shared = _inputs_shared_by_gpus(plan)
    for region in plan.inputs:
        owner = -1 if region.buffer in shared else region.gpu
        value = _Value(region.buffer, owner, 0, 0)
        if region.buffer == "part":
            value = _Value("part", -1, 0, 0, ((region.gpu, region.gpu + 1),))
        _put(store, region, [(region.rows, region.cols, value)], "")
    for task in ordered:
        match task:
            case Transfer():
                _move(store, task.src, task.dst, task.id)
            case LocalCopy():
                for src, dst in zip(task.src, task.dst, strict=True):
                    if not task.accumulate:
                        _move(store, src, dst, task.id)
                        continue
                    fault = _add(store, src, dst, task.id)
                    if fault:
                        yield fault
                        return
            case Gemm():
                fault = _multiply(store, task)
                if fault:
                    yield fault
                    return
    for region in plan.outputs:
        for piece, wanted in (
            (piece, wanted)
            for rows, wanted in _wanted(plan, region, shared)
            for piece in _get(store, replace(region, rows=rows))
        ):
            if piece.value != wanted:
                yield (
                    (piece.task,) if piece.task else (),
                    f"output gpu {region.gpu} {region.buffer}[{piece.rows[0]}:{piece.rows[1]}, "
                    f"{piece.cols[0]}:{piece.cols[1]}] ends with {_say(piece, piece.value)} from "
                    f"task {piece.task or 'none'}; the workload wants {_say(piece, wanted)}",
                )


OWN = frozenset({"b", "send", "part"})  # inputs that each gpu has for itself


def _inputs_shared_by_gpus(plan: Plan) -> set[str]:
    """Inputs that are one matrix over all gpus."""
    return {region.buffer for region in plan.inputs} - OWN


def _wanted(plan: Plan, region: Region, shared: set[str]) -> Iterator[tuple[Interval, _Value]]:
    """What the rows of an output must hold."""
    if region.buffer in shared:
        yield region.rows, _Value(region.buffer, -1, 0, 0)
        return
    if region.buffer == "part":
        yield region.rows, _Value("part", -1, 0, 0, ((0, plan.num_gpus),))
        return
    gpu, k = region.gpu, ((0, plan.workload.k),)
    tokens = plan.workload.tokens
    multiplied = plan.workload.pattern != "all_to_all"
    if tokens is None:
        yield region.rows, _Value("product", gpu, 0, 0, k, ("a", -1))
        return
    at = 0
    for src, row in enumerate(tokens):
        rows = (at, at + row[gpu])
        if rows[0] < rows[1]:
            down = sum(row[:gpu]) - at
            product = _Value("product", gpu, down, 0, k, ("send", src))
            yield rows, product if multiplied else _Value("send", src, down, 0)
        at = rows[1]


def _say(piece: _Piece, value: _Value) -> str:
    rows = (piece.rows[0] + value.down, piece.rows[1] + value.down)
    cols = (piece.cols[0] + value.right, piece.cols[1] + value.right)
    if value.matrix == "part":
        gpus = ", ".join(f"{lo} to {hi - 1}" for lo, hi in value.k)
        return f"rows {rows[0]}:{rows[1]} summed over gpus {gpus}"
    if value.matrix != "product":
        return f"{value.matrix}[{rows[0]}:{rows[1]}, {cols[0]}:{cols[1]}]"
    k = ", ".join(f"{lo}:{hi}" for lo, hi in value.k)
    name, owner = value.left
    left = name if owner < 0 else f"{name}(gpu {owner})"
    return f"{left}[{rows[0]}:{rows[1]}] @ b(gpu {value.gpu})[:, {cols[0]}:{cols[1]}] over k in {k}"


def _get(store: Store, region: Region) -> list[_Piece]:
    """The pieces of a region, clipped to it."""
    (top, bottom), (west, east) = region.rows, region.cols
    found = []
    for piece in store[region.gpu, region.buffer]:
        rows, cols = piece.rows, piece.cols
        if rows[0] < bottom and top < rows[1] and cols[0] < east and west < cols[1]:
            if rows[0] < top or rows[1] > bottom or cols[0] < west or cols[1] > east:
                rows = (max(rows[0], top), min(rows[1], bottom))
                cols = (max(cols[0], west), min(cols[1], east))
                piece = _Piece(rows, cols, piece.value, piece.task)  # noqa: PLW2901
            found.append(piece)
    return found


def _put(
    store: Store, region: Region, values: list[tuple[Interval, Interval, _Value]], task: str
) -> None:
    """Write values over a region; what was there is cut away."""
    key = (region.gpu, region.buffer)
    (top, bottom), (west, east) = region.rows, region.cols
    kept = []
    for piece in store[key]:
        rows, cols = piece.rows, piece.cols
        if not (rows[0] < bottom and top < rows[1] and cols[0] < east and west < cols[1]):
            kept.append(piece)
            continue
        middle = (max(rows[0], top), min(rows[1], bottom))
        for part_rows, part_cols in (
            ((rows[0], top), cols),
            ((bottom, rows[1]), cols),
            (middle, (cols[0], west)),
            (middle, (east, cols[1])),
        ):
            if part_rows[0] < part_rows[1] and part_cols[0] < part_cols[1]:
                kept.append(replace(piece, rows=part_rows, cols=part_cols))
    kept += [_Piece(rows, cols, value, task) for rows, cols, value in values]
    store[key] = kept


def _move(store: Store, src: Region, dst: Region, task: str) -> None:
    _put(store, dst, _shifted(store, src, dst), task)


def _add(store: Store, src: Region, dst: Region, task: str) -> Finding | None:
    """Apply an addition; returns a finding if it adds what does not belong together."""
    merged, fault = _accumulate(_get(store, dst), _shifted(store, src, dst), task)
    if fault is None:
        _put(store, dst, merged, task)
    return fault


def _shifted(store: Store, src: Region, dst: Region) -> list[tuple[Interval, Interval, _Value]]:
    """The values of a region as they are once copied to another place."""
    down, right = dst.rows[0] - src.rows[0], dst.cols[0] - src.cols[0]
    moved = []
    for piece in _get(store, src):
        value = piece.value
        if down or right:
            value = replace(value, down=value.down - down, right=value.right - right)
        rows = (piece.rows[0] + down, piece.rows[1] + down)
        cols = (piece.cols[0] + right, piece.cols[1] + right)
        moved.append((rows, cols, value))
    return moved


def _multiply(store: Store, task: Gemm) -> Finding | None:
    """Apply a GEMM; returns a finding if its operands do not belong together."""
    b_pieces = _get(store, task.b)
    b_value = b_pieces[0].value
    if any(piece.value != b_value for piece in b_pieces) or b_value.matrix != "b":
        return (task.id,), f"task {task.id}: {task.b} does not hold one block of B"
    k_of_b = (task.b.rows[0] + b_value.down, task.b.rows[1] + b_value.down)
    for a, c in zip(task.a, task.c, strict=True):
        products: list[tuple[Interval, Interval, _Value]] = []
        for piece in _get(store, a):
            # a row's columns may come in several pieces as long as they continue each other
            k = (piece.cols[0] + piece.value.right, piece.cols[1] + piece.value.right)
            wanted_k = (k_of_b[0] + piece.cols[0] - a.cols[0], k_of_b[0] + piece.cols[1] - a.cols[0])
            if piece.value.matrix not in ("a", "send") or k != wanted_k:
                return (
                    (piece.task, task.id) if piece.task else (task.id,),
                    f"task {task.id} multiplies {_say(piece, piece.value)}, put there by task "
                    f"{piece.task or 'none'}, with rows {k_of_b[0]}:{k_of_b[1]} of B",
                )
            down = c.rows[0] - a.rows[0]
            rows = (piece.rows[0] + down, piece.rows[1] + down)
            right = task.b.cols[0] + b_value.right - c.cols[0]
            left = (piece.value.matrix, piece.value.gpu)
            value = _Value("product", b_value.gpu, piece.value.down - down, right, (k,), left)
            products.append((rows, c.cols, value))
        merged, fault = _merge_k(products, task)
        if fault:
            return fault
        if task.accumulate:
            merged, fault = _accumulate(_get(store, c), merged, task.id)
            if fault:
                return fault
        _put(store, c, merged, task.id)
    return None


def _merge_k(
    products: list[tuple[Interval, Interval, _Value]], task: Gemm
) -> tuple[list[tuple[Interval, Interval, _Value]], Finding | None]:
    """Join the products of one row interval over its pieces of k."""
    intervals = sorted(rows for rows, _, _ in products)
    if all(a[1] <= b[0] for a, b in pairwise(intervals)):
        return products, None
    # cut all rows at all edges, then join what lies on the same rows
    edges = sorted({edge for rows, _, _ in products for edge in rows})
    joined = []
    for rows in pairwise(edges):
        here = [p for p in products if p[0][0] <= rows[0] and rows[1] <= p[0][1]]
        if not here:
            continue
        value = here[0][2]
        if any(replace(p[2], k=value.k) != value for p in here):
            return [], ((task.id,), f"task {task.id}: one row of its input mixes rows of A")
        k = _union([interval for p in here for interval in p[2].k])
        joined.append((rows, here[0][1], replace(value, k=k or ())))
    return joined, None


def _accumulate(
    before: list[_Piece], products: list[tuple[Interval, Interval, _Value]], task: str
) -> tuple[list[tuple[Interval, Interval, _Value]], Finding | None]:
    """Add values to what lies there; a finding if they are of different rows or are there already."""
    result = []
    for rows, _, value in products:
        for piece in before:
            common = (max(rows[0], piece.rows[0]), min(rows[1], piece.rows[1]))
            if common[0] >= common[1]:
                continue
            k = _union([*piece.value.k, *value.k])
            summable = value.matrix in ("product", "part")
            if replace(piece.value, k=()) != replace(value, k=()) or k is None or not summable:
                say = _Piece(common, piece.cols, value, task)
                return [], (
                    (piece.task, task) if piece.task else (task,),
                    f"task {task} adds {_say(say, value)} to {_say(piece, piece.value)} from task "
                    f"{piece.task or 'none'}",
                )
            result.append((common, piece.cols, replace(value, k=k)))
    return result, None


def _union(intervals: list[Interval]) -> tuple[Interval, ...] | None:
    """Join touching intervals; None if two overlap, for then a product is added twice."""
    joined: list[Interval] = []
    for lo, hi in sorted(intervals):
        if joined and lo < joined[-1][1]:
            return None
        if joined and lo == joined[-1][1]:
            joined[-1] = (joined[-1][0], hi)
        else:
            joined.append((lo, hi))
    return tuple(joined)

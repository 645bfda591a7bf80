"""Chrome traces of torch.profiler (Kineto): what gpus computed and communicated, and both at once.

Only kernels and copies on gpus count. Waiting (``cuda_sync``), calls of the host and annotations are
neither compute nor communication. Times are in us whatever ``displayTimeUnit`` says: that is for
viewers.
"""

import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, TypeAlias

from ficco_sim.errors import FileError
from ficco_sim.readers.logs.cells import normal_dtype
from ficco_sim.readers.logs.chrome_json import decode_events
from ficco_sim.readers.logs.intervals import Cover, Interval
from ficco_sim.readers.logs.plausible import Shape, above_peak
from ficco_sim.readers.logs.types import (
    CopyPoint,
    Engine,
    GemmPoint,
    Log,
    Notes,
    OverlapPart,
    TraceOverlap,
)
from ficco_sim.readers.text import shown
from ficco_sim.units import format_seconds
from ficco_sim.workload import MAX_DIM

__all__ = ["Work", "classify", "is_torch_trace", "read_events", "read_torch_trace"]

Event: TypeAlias = Mapping[str, Any]

MICROSECONDS = re.compile(r"(-?)([0-9]{1,18})(?:\.([0-9]{0,40}))?\Z")
EXPONENT = re.compile(r"-?[0-9]{1,20}(?:\.[0-9]{1,40})?[eE][+-]?[0-9]{1,2}\Z")
MAX_NS = 10**21  # start; more than 30,000 years
MAX_DURATION_NS = 10**15  # 11 days
PER_SECOND = 1e9  # ns

COPY_CATEGORIES = ("gpu_memcpy", "memcpy")
KERNEL = "kernel"
COLLECTIVE_NAMES = (
    *("nccl", "rccl", "mscclpp", "nvshmem"),
    *("cross_device_reduce", "one_shot_all_reduce", "two_shot_all_reduce", "multimem_all"),
)
KINDS = {
    "reducescatter": "reduce_scatter",
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "alltoall": "all_to_all",
    "sendrecv": "send_recv",
    "broadcast": "broadcast",
    "crossdevicereduce": "all_reduce",
}
BLIT_NAMES = ("copybuffer",)  # copy kernels of ROCm's runtime
LOCAL_COPY_NAMES = ("direct_copy_kernel",)  # torch copies within a gpu
FILL_NAMES = ("fillbuffer",)  # as memset, which is neither
PEER_NAMES = ("ptop", "peer", "p2p")
HOST_NAMES = ("host", "htod", "dtoh", "htoh", "htoa", "atoh", "pageable", "pinned")
LOCAL_NAMES = ("dtod",)

# where the dimensions of A and B stand among an operator's inputs, and those of what is added
GEMM_OPS: dict[str, tuple[int, int, int | None]] = {
    "aten::mm": (0, 1, None),
    "aten::_scaled_mm": (0, 1, None),
    "aten::bmm": (0, 1, None),
    "aten::addmm": (1, 2, 0),
    "aten::baddbmm": (1, 2, 0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What an event on a gpu is.

    Parameters
    ----------
    kind
        ``compute``; ``copy``; or a collective.
    name
        ``copy``, or which collective: ``all_gather``, ...
    engine
        ``dma``: a copy engine; ``core``: compute units.
    peer
        Of a copy: whether it is between gpus; None where its name does not tell.
    """

    kind: Literal["compute", "copy", "collective"]
    name: str
    engine: Engine
    peer: bool | None = False


@functools.lru_cache(maxsize=4096)
def classify(category: str, name: str) -> Work | None:
    """What an event is by its category and name; None: neither compute, nor copy, nor collective.

    Examples
    --------
    >>> classify("kernel", "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)").name
    'all_gather'
    >>> classify("kernel", "__amd_rocclr_copyBuffer").engine
    'core'
    >>> classify("cuda_sync", "Stream Wait Event") is None
    True
    """
    category, name = category.lower(), name.lower()
    if category in COPY_CATEGORIES or (category == KERNEL and "sdma" in name):
        return Work(kind="copy", name="copy", engine="dma", peer=_is_peer(name))
    if category != KERNEL or any(part in name for part in FILL_NAMES):
        return None
    if any(part in name for part in COLLECTIVE_NAMES):
        bare = name.replace("_", "")
        what = next((word for part, word in KINDS.items() if part in bare), "collective")
        return Work(kind="collective", name=what, engine="core")
    if any(part in name for part in BLIT_NAMES):
        return Work(kind="copy", name="copy", engine="core", peer=None)
    if any(part in name for part in LOCAL_COPY_NAMES):
        return Work(kind="copy", name="copy", engine="core", peer=False)
    return Work(kind="compute", name="compute", engine="core")


def _is_peer(name: str) -> bool | None:
    if any(part in name for part in PEER_NAMES):
        return True
    return False if any(part in name for part in (*HOST_NAMES, *LOCAL_NAMES)) else None


def is_torch_trace(text: str) -> bool:
    """Whether the text is JSON with trace events."""
    start = text[:64].lstrip()[:1]
    return (start == "{" and '"traceEvents"' in text) or (start == "[" and '"ph"' in text[:4096])


def read_torch_trace(
    text: str, where: str, *, peak_flops_per_s: Mapping[str, float] | None = None
) -> Log:
    """Read a trace: overlap on each gpu, copies between gpus, and GEMMs if shapes were recorded.

    A file that was cut off gives its complete events, with a warning.

    Parameters
    ----------
    peak_flops_per_s
        Of the gpu, by dtype: GEMMs above it are refused.

    Raises
    ------
    FileError
        Naming file, line and rule: no JSON, no list of events, or nothing that ran on a gpu.
    """
    notes = Notes()
    return read_events(
        decode_events(text, where, notes), where, notes=notes, peak_flops_per_s=peak_flops_per_s
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """A copy between gpus, or maybe so."""

    line: int
    name: str
    engine: Engine
    span: Interval
    nbytes: int | None
    src: int | None
    dst: int | None


@dataclass(slots=True)
class Gpu:
    """What ran on a gpu."""

    compute: list[Interval] = field(default_factory=list)
    comm: dict[tuple[str, Engine], list[Interval]] = field(default_factory=dict)
    copies: list[Copied] = field(default_factory=list)


Key: TypeAlias = tuple[str, str]  # process and device


@dataclass(slots=True)
class Launches:
    """GEMMs that the host called, and kernels by the call that launched them.

    Parameters
    ----------
    seen
        Ids of all calls: one that occurs twice, as in merged traces, tells nothing.
    """

    gemms: dict[int, tuple[int, Shape, bool]] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    twice: set[int] = field(default_factory=set)
    kernels: dict[int, list[tuple[Key, Interval]]] = field(default_factory=dict)


def read_events(
    events: Iterable[tuple[int, Event]],
    where: str,
    *,
    notes: Notes | None = None,
    peak_flops_per_s: Mapping[str, float] | None = None,
) -> Log:
    """As `read_torch_trace`, of events that are decoded already.

    Parameters
    ----------
    events
        Line and content of each; ``ts`` and ``dur`` are numbers or text in us.

    Raises
    ------
    FileError
        If none of them ran on a gpu.
    """
    notes = notes or Notes()
    gpus: dict[Key, Gpu] = {}
    launches = Launches()
    num_events = 0
    for line, event in events:
        num_events += 1
        if event.get("ph", "X") != "X":
            continue
        category, name = event.get("cat"), event.get("name")
        if not isinstance(category, str) or not isinstance(name, str):
            continue
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        if category.lower() in ("cpu_op", "operator"):
            _add_call(line, name, args, launches)
        elif (work := classify(category, name[:400])) is not None:
            _add_work(line, event, args, work, gpus, launches, notes)
    if not gpus:
        raise FileError(
            f"{where}: none of {num_events:,} events is a kernel or copy on a gpu: was the trace taken "
            "without the gpu's activities?"
        )
    notes.facts |= {"num_events": num_events, "num_gpus": len(gpus)}
    covers = {key: _covers(gpu) for key, gpu in gpus.items()}
    labels = _labels(list(gpus))
    overlaps = []
    for key in sorted(gpus):
        compute, comm = covers[key]
        overlaps.append(_overlap(labels[key], gpus[key], compute, comm))
        notes.points.extend(_copy_point(copied, compute) for copied in gpus[key].copies)
    _add_gemms(launches, covers, peak_flops_per_s, notes)
    _warn_of_copies(notes)
    return notes.log("torch_trace", tuple(overlaps))


def _add_work(
    line: int,
    event: Event,
    args: Event,
    work: Work,
    gpus: dict[Key, Gpu],
    launches: Launches,
    notes: Notes,
) -> None:
    span = _span(event)
    if span is None:
        notes.refuse(
            line,
            f"{shown(event['name'])}: ts {shown(event.get('ts'))}, dur {shown(event.get('dur'))}: not "
            "a start and a duration of at most 11 days in us",
        )
        return
    if span[0] == span[1]:
        return
    process, device = (str(event.get("pid"))[:40], str(args.get("device", event.get("pid")))[:40])
    gpu = gpus.setdefault((process, device), Gpu())
    if work.kind == "compute":
        gpu.compute.append(span)
        call = _whole(args.get("External id", args.get("external id")))
        if call is not None:
            launches.kernels.setdefault(call, []).append(((process, device), span))
        return
    src, dst = _whole(args.get("fromDevice")), _whole(args.get("toDevice"))
    between = src != dst if src is not None and dst is not None else work.peer
    if work.kind == "copy" and between is False:
        return
    gpu.comm.setdefault((work.name, work.engine), []).append(span)
    if work.kind == "copy":
        gpu.copies.append(
            Copied(
                line=line,
                name=event["name"][:80],
                engine=work.engine,
                span=span,
                nbytes=_whole(args.get("bytes", args.get("Bytes"))) or None,
                src=src,
                dst=dst,
            )
        )
        if between is None:
            notes.facts["num_copies_of_unknown_ends"] = (
                notes.facts.get("num_copies_of_unknown_ends", 0) + 1
            )


def _span(event: Event) -> Interval | None:
    start, duration = _nanoseconds(event.get("ts")), _nanoseconds(event.get("dur"))
    if start is None or duration is None or not 0 <= duration <= MAX_DURATION_NS:
        return None
    return (start, start + duration) if abs(start) <= MAX_NS else None


def _nanoseconds(value: Any) -> int | None:
    """Microseconds, as a number or as text, in whole ns; None if it is no such number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if isinstance(value, int):
        return value * 1000 if abs(value) < MAX_NS else None
    text = str(value)
    if match := MICROSECONDS.match(text):
        sign, whole, part = match.groups()
        nanoseconds = int(whole) * 1000 + int(f"{part or ''}000"[:3])
        return -nanoseconds if sign else nanoseconds
    if EXPONENT.match(text) and (exact := Decimal(text)) < MAX_NS:
        return int(exact * 1000)
    return None


def _whole(value: Any) -> int | None:
    """A whole number that is not negative, None if it is none."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}(?:\.0{1,6})?", value):
        return int(value.split(".")[0])
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**18:
        return value
    return None


def _covers(gpu: Gpu) -> tuple[Cover, Cover]:
    """Time of compute, and time of communication of any kind."""
    return Cover(gpu.compute), Cover(span for spans in gpu.comm.values() for span in spans)


def _labels(keys: list[Key]) -> dict[Key, str]:
    """Names of gpus: the device alone, unless several processes have one of that number."""
    devices = Counter(device for _, device in keys)
    return {
        (process, device): device if devices[device] == 1 else f"process {process}, device {device}"
        for process, device in keys
    }


def _overlap(label: str, gpu: Gpu, compute: Cover, comm: Cover) -> TraceOverlap:
    parts = []
    for (kind, engine), spans in sorted(gpu.comm.items()):
        cover = Cover(spans)
        parts.append(
            OverlapPart(
                kind=kind,
                engine=engine,
                count=len(spans),
                busy_s=cover.length / PER_SECOND,
                overlap_s=compute.overlap(cover) / PER_SECOND,
            )
        )
    return TraceOverlap(
        gpu=label,
        compute_s=compute.length / PER_SECOND,
        comm_s=comm.length / PER_SECOND,
        overlap_s=compute.overlap(comm) / PER_SECOND,
        parts=tuple(parts),
    )


def _copy_point(copied: Copied, compute: Cover) -> CopyPoint:
    start, end = copied.span
    time_s = (end - start) / PER_SECOND
    return CopyPoint(
        name=copied.name,
        src=copied.src,
        dst=copied.dst,
        nbytes=copied.nbytes,
        time_s=time_s,
        bytes_per_s=copied.nbytes / time_s if copied.nbytes else None,
        engine=copied.engine,
        overlap_s=compute.common(start, end) / PER_SECOND,
        line=copied.line,
    )


def _warn_of_copies(notes: Notes) -> None:
    copies = [point for point in notes.points if isinstance(point, CopyPoint)]
    on_core = [copy for copy in copies if copy.engine == "core"]
    if on_core:
        notes.warn(
            f"{len(on_core)} of {len(copies)} copies ({on_core[0].name}) ran on compute units for "
            f"{format_seconds(sum(copy.time_s or 0.0 for copy in on_core))}, beside compute for "
            f"{format_seconds(sum(copy.overlap_s for copy in on_core))}: they compete with it, and do "
            "not support a claim about copies offloaded to DMA engines"
        )
    if unknown := notes.facts.get("num_copies_of_unknown_ends"):
        notes.warn(f"{unknown} copies do not tell between which gpus they ran: taken for communication")


def _add_call(line: int, name: str, args: Event, launches: Launches) -> None:
    call = _whole(args.get("External id", args.get("external id")))
    if call is None:
        return
    if call in launches.seen:
        launches.twice.add(call)
    launches.seen.add(call)
    gemm = _gemm(name, args)
    if gemm is not None:
        launches.gemms[call] = (line, *gemm)


def _gemm(name: str, args: Event) -> tuple[Shape, bool] | None:
    """Shape of a product, and whether it adds to a matrix of its own size; None if not recorded."""
    places = GEMM_OPS.get(name)
    sizes, types = args.get("Input Dims"), args.get("Input type")
    if places is None or not isinstance(sizes, list) or not isinstance(types, list):
        return None
    first, second, added = places
    if max(first, second) >= min(len(sizes), len(types)):
        return None
    a, b = sizes[first], sizes[second]
    if not _are_sizes(a) or not _are_sizes(b) or len(a) != len(b) or not 2 <= len(a) <= 3:
        return None
    dtype = normal_dtype(str(types[first]))
    if dtype is None or normal_dtype(str(types[second])) != dtype:
        return None
    if a[-1] != b[-2] or a[:-2] != b[:-2]:
        return None
    shape = Shape(m=a[-2], n=b[-1], k=a[-1], batch=a[0] if len(a) == 3 else 1, dtype=dtype)
    return shape, added is not None and sizes[added] == [*a[:-1], b[-1]]


def _are_sizes(sizes: Any) -> bool:
    return isinstance(sizes, list) and all(
        isinstance(size, int) and not isinstance(size, bool) and 0 < size <= MAX_DIM for size in sizes
    )


def _add_gemms(
    launches: Launches,
    covers: Mapping[Key, tuple[Cover, Cover]],
    peaks: Mapping[str, float] | None,
    notes: Notes,
) -> None:
    for call, (line, shape, accumulate) in launches.gemms.items():
        kernels = launches.kernels.get(call, [])
        gpus = {key for key, _ in kernels}
        if call in launches.twice or len(gpus) != 1:
            continue
        spans = Cover(span for _, span in kernels)
        comm = covers[gpus.pop()][1]
        time_s = spans.length / PER_SECOND
        if reason := above_peak(shape, time_s, peaks):
            notes.refuse(line, reason)
            continue
        notes.points.append(
            GemmPoint(
                m=shape.m,
                n=shape.n,
                k=shape.k,
                dtype=shape.dtype,
                time_s=time_s,
                batch=shape.batch,
                accumulate=accumulate,
                overlap_s=comm.overlap(spans) / PER_SECOND,
                line=line,
            )
        )

"""A workload: the operator that a schedule overlaps, with its shape and element type."""

import functools
import itertools
from collections import Counter
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from ficco_sim import io
from ficco_sim.errors import ScenarioError, WorkloadError

__all__ = [
    "DTYPE_BYTES",
    "OUTPUT_DTYPE",
    "PATTERNS",
    "Pattern",
    "Recipe",
    "Workload",
    "WorkloadSet",
    "get_workload",
    "load_workload_set",
    "load_workloads",
    "named_workloads",
    "skewed",
    "split",
    "workload_from_options",
]

Pattern: TypeAlias = Literal[
    "all_gather_gemm",
    "all_to_all_gemm",
    "all_gather",
    "all_to_all",
    "reduce_scatter",
    "all_reduce",
    "gemm",
]

DTYPE_BYTES = {"bf16": 2, "fp16": 2, "fp8": 1, "fp32": 4}
ALIGNMENT = {"fp8": 16}
"""Elements of which n and k must be multiples on the matrix units; shorter ones are padded."""
OUTPUT_DTYPE = {"bf16": "bf16", "fp16": "fp16", "fp8": "bf16", "fp32": "fp32"}
PATTERNS: tuple[Pattern, ...] = get_args(Pattern)
EXCHANGES = ("all_to_all_gemm", "all_to_all")
COLLECTIVES: tuple[Pattern, ...] = ("all_gather", "all_to_all", "reduce_scatter", "all_reduce")
MAX_DIM = 10**9
MAX_DEGREE = 1024
MAX_SKEW = 10
MAX_WORKLOADS = 100_000  # in one file
STRICT = {"extra": "forbid", "strict": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One operator on each gpu: ``C [m, n] = A [m, k] @ B [k, n]``.

    Parameters
    ----------
    name
        Short and unique.
    pattern
        ``all_gather_gemm``: A is sharded by rows over the gpus and gathered; each has its own B.
        ``all_to_all_gemm``: gpu g receives ``tokens[src][g]`` rows of A from each src.
        ``gemm``: nothing is gathered. ``all_gather``, ``all_to_all``, ``reduce_scatter``,
        ``all_reduce``: nothing is multiplied; each gpu ends with all of A, with the rows that others
        send it, with its shard of the sum of all gpus' A, or with all of that sum.
    m, n, k
        Elements: rows of the gathered A (all-to-all: rows on the busiest gpu), local columns of B,
        contraction.
    dtype
        Of A and B; C has ``OUTPUT_DTYPE[dtype]``.
    tokens
        All-to-all only: rows from each source gpu (outer) to each destination gpu (inner).
    model, layer, parallelism, num_tokens, source
        Where the shape comes from.

    Raises
    ------
    WorkloadError
        If a field is out of range; the message names it.
    """

    __pydantic_config__: ClassVar = STRICT
    name: str
    pattern: Pattern
    m: int
    n: int
    k: int
    dtype: str = "bf16"
    tokens: tuple[tuple[int, ...], ...] | None = None
    model: str = ""
    layer: str = ""
    parallelism: str = ""
    num_tokens: int | None = None
    source: str = ""

    def __post_init__(self) -> None:
        if self.pattern not in PATTERNS:
            raise WorkloadError(f"pattern: {self.pattern!r} is unknown; one of {', '.join(PATTERNS)}")
        if not isinstance(self.dtype, str) or self.dtype not in DTYPE_BYTES:
            raise WorkloadError(f"dtype: {self.dtype!r} is unknown; one of {', '.join(DTYPE_BYTES)}")
        for key in ("m", "n", "k"):
            _check_count(key, getattr(self, key), 1)
        if self.num_tokens is not None:
            _check_count("num_tokens", self.num_tokens, 1)
        if (self.tokens is not None) != (self.pattern in EXCHANGES):
            raise WorkloadError(f"tokens: needed for {', '.join(EXCHANGES)} and no other pattern")
        if self.tokens is not None:
            self._check_tokens(self.tokens)

    def _check_tokens(self, tokens: tuple[tuple[int, ...], ...]) -> None:
        if not isinstance(tokens, tuple) or not all(isinstance(row, tuple) for row in tokens):
            raise WorkloadError("tokens: a tuple of rows is needed, each a tuple of whole numbers")
        num_gpus = len(tokens)
        for src, row in enumerate(tokens):
            if len(row) != num_gpus:
                raise WorkloadError(
                    f"tokens[{src}]: {len(row)} values; a square matrix of {num_gpus} is needed"
                )
            for dst, value in enumerate(row):
                _check_count(f"tokens[{src}][{dst}]", value, 0)
        busiest = max((sum(row[dst] for row in tokens) for dst in range(num_gpus)), default=0)
        if self.m != busiest:
            raise WorkloadError(
                f"m: {self.m} must be the rows of the busiest gpu, {busiest} in the tokens"
            )

    @property
    def flops(self) -> int:
        """Floating-point operations on one gpu, 2 m n k; 0 if nothing is computed."""
        return 0 if self.pattern in COLLECTIVES else 2 * self.m * self.n * self.k

    @property
    def imbalance(self) -> float:
        """Rows of the busiest gpu over the mean; 1 unless an all-to-all is skewed."""
        if self.tokens is None:
            return 1.0
        total = sum(sum(row) for row in self.tokens)
        return self.m * len(self.tokens) / total

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of A and B."""
        return DTYPE_BYTES[self.dtype]

    @property
    def gathered_bytes(self) -> int:
        """Bytes of A on one gpu once it is complete, the gpu's own part included."""
        return self.m * self.k * self.element_bytes

    @property
    def gemm_bytes(self) -> int:
        """Least HBM bytes of the GEMM: A and B read once, C written once."""
        read = (self.m * self.k + self.k * self.n) * self.element_bytes
        return read + self.m * self.n * DTYPE_BYTES[OUTPUT_DTYPE[self.dtype]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A whole operator ``[m, k] @ [k, n]`` before it is spread over gpus."""

    __pydantic_config__: ClassVar = STRICT
    m: int
    n: int
    k: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A whole operator and how it is spread, from which each gpu's part follows.

    Parameters
    ----------
    whole
        For ``tp`` the operator over all gpus; for ``ep`` one expert's matrix, with the tokens that each
        gpu holds as m.
    tp
        Tensor parallelism: n is spread over so many gpus; rows are gathered.
    ep
        Expert parallelism: each gpu has its share of the experts and sends each token to ``top_k``.
    skew
        For ``ep``: how unevenly tokens choose, see `skewed`.
    """

    __pydantic_config__: ClassVar = STRICT
    name: str
    whole: Shape
    tp: int | None = None
    ep: int | None = None
    top_k: int = 1
    skew: float = 0.0
    dtype: str = "bf16"
    model: str = ""
    layer: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        if (self.tp is None) == (self.ep is None):
            raise WorkloadError("tp, ep: give one of them")
        for key in ("tp", "ep", "top_k"):
            value = getattr(self, key)
            if value is not None and not 1 <= value <= MAX_DEGREE:
                raise WorkloadError(f"{key}: {value} must be from 1 to {MAX_DEGREE}")
        self.workload()

    def workload(self) -> Workload:
        """The part of one gpu."""
        m, n, k = self.whole.m, self.whole.n, self.whole.k
        if self.tp is not None:
            largest = -(-n // self.tp)  # the largest part sets the time
            return Workload(
                name=self.name,
                pattern="all_gather_gemm",
                m=m,
                n=largest,
                k=k,
                dtype=self.dtype,
                parallelism=f"TP{self.tp}",
                num_tokens=m,
                model=self.model,
                layer=self.layer,
                source=self.source,
            )
        assert self.ep is not None
        rows = m * self.top_k
        tokens = tuple(tuple(hi - lo for lo, hi in split(rows, self.ep)) for _ in range(self.ep))
        even = Workload(
            name=self.name,
            pattern="all_to_all_gemm",
            m=max(sum(column) for column in zip(*tokens, strict=True)),
            n=n,
            k=k,
            dtype=self.dtype,
            tokens=tokens,
            parallelism=f"EP{self.ep}, top {self.top_k}",
            num_tokens=m,
            model=self.model,
            layer=self.layer,
            source=self.source,
        )
        return skewed(even, self.skew)


def aligned(size: int, dtype: str) -> int:
    """A size of n or k as the matrix units take it: rounded up where the type asks for it."""
    step = ALIGNMENT.get(dtype, 1)
    return -(-size // step) * step


def remarks(workload: Workload, num_gpus: int, num_chunks: int) -> list[str]:
    """What a reader of the results must know about a shape: padding, and chunks that stay empty."""
    found = []
    for name in ("n", "k"):
        size = getattr(workload, name)
        padded = aligned(size, workload.dtype)
        if padded != size:
            found.append(
                f"{name} = {size} is padded to {padded}: {workload.dtype} needs multiples of "
                f"{ALIGNMENT[workload.dtype]} (FLOP x {padded / size:.4f})"
            )
    rows = workload.m if workload.tokens is None else max(map(max, workload.tokens))
    parts = num_chunks if workload.tokens is not None else num_gpus * num_chunks
    if rows < parts:
        found.append(
            f"{rows:,} rows cannot be cut into {parts} chunks: {parts - rows} of them are empty and "
            "make no task"
        )
    return found


def skewed(workload: Workload, skew: float) -> Workload:
    """The same all-to-all with some gpus' experts more in demand.

    Parameters
    ----------
    skew
        0 leaves the tokens as they are; with s gpu g draws a share in proportion to
        ``(g + 1) ** -s`` of what each gpu sends.

    Raises
    ------
    WorkloadError
        If the workload is no all-to-all or the skew is out of range.
    """
    if workload.tokens is None:
        raise WorkloadError(f"skew: {workload.name!r} is no all-to-all")
    if not 0 <= skew <= MAX_SKEW:
        raise WorkloadError(f"skew: {skew} must be from 0 to {MAX_SKEW}")
    if skew == 0:
        return workload
    weights = [(g + 1.0) ** -skew for g in range(len(workload.tokens))]
    total = sum(weights)
    rows = []
    for row in workload.tokens:
        # cut at rounded edges, so that no row is lost
        edges = [0, *(round(sum(row) * sum(weights[: g + 1]) / total) for g in range(len(row)))]
        rows.append(tuple(b - a for a, b in itertools.pairwise(edges)))
    busiest = max(sum(column) for column in zip(*rows, strict=True))
    return replace(workload, tokens=tuple(rows), m=busiest, name=f"{workload.name}-skew{skew:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a set of workloads was made: a maker of `ficco_sim.scenarios` and its arguments."""

    __pydantic_config__: ClassVar = STRICT
    maker: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSet:
    """The content of a workload file: parts of one gpu, or whole operators and their degrees.

    Parameters
    ----------
    name, made_by
        Of a set of scenarios: what it is called, and how it can be made again.
    """

    __pydantic_config__: ClassVar = STRICT
    format_version: Literal[1]
    name: str = ""
    made_by: Recipe | None = None
    workloads: tuple[Workload, ...] = ()
    operators: tuple[Operator, ...] = ()

    def all_workloads(self) -> tuple[Workload, ...]:
        """What each gpu has to do, for every entry."""
        return (*self.workloads, *(operator.workload() for operator in self.operators))

    def __post_init__(self) -> None:
        if not self.workloads and not self.operators:
            raise WorkloadError("workloads, operators: both lists are empty")
        names = Counter(w.name for w in self.workloads) + Counter(o.name for o in self.operators)
        if names.total() > MAX_WORKLOADS:
            raise WorkloadError(f"workloads: {names.total():,} are more than {MAX_WORKLOADS:,}")
        for name, count in names.items():
            if count > 1:
                raise WorkloadError(f"workloads: the name {name!r} occurs twice")


def load_workload_set(path: Path) -> WorkloadSet:
    """Read a YAML or JSON file of workloads."""
    return io.load(path, WorkloadSet)


def load_workloads(path: Path) -> tuple[Workload, ...]:
    """Read the workloads of a YAML or JSON file."""
    return load_workload_set(path).all_workloads()


@functools.cache
def named_workloads() -> dict[str, Workload]:
    """The workloads that come with the package, by name."""
    file = resources.files("ficco_sim") / "data" / "workloads.yaml"
    with resources.as_file(file) as path:
        return {w.name: w for w in load_workloads(path)}


def get_workload(name: str) -> Workload:
    """Look up a named workload, or read a file that holds exactly one.

    Raises
    ------
    WorkloadError
        If the name is unknown; the message lists the valid ones.
    """
    if name.endswith((".yaml", ".yml", ".json")):
        workloads = load_workloads(Path(name))
        if len(workloads) > 1:
            names = ", ".join(w.name for w in workloads)
            raise WorkloadError(f"{name}: holds several workloads ({names}); keep the one to use")
        return workloads[0]
    known = named_workloads()
    if name not in known:
        raise WorkloadError(f"workload {name!r} is unknown; one of: {', '.join(known)}")
    return known[name]


def workload_from_options(
    name: str | None, gemm: str | None, dtype: str, skew: float | None = None
) -> Workload:
    """The workload that ``--workload``, ``--gemm``, ``--dtype`` and ``--skew`` name or describe.

    Raises
    ------
    ScenarioError, WorkloadError
        If the options do not fit together or a value is out of range; the message names the option.
    """
    if (name is None) == (gemm is None):
        raise ScenarioError("give one of --workload and --gemm")
    if name is not None:
        found = get_workload(name)
        return found if skew is None else skewed(found, skew)
    if skew is not None:
        raise ScenarioError("--skew: only for a --workload with an all-to-all")
    assert gemm is not None
    parts = gemm.split(",")
    if len(parts) != 3:
        raise ScenarioError(f"--gemm: {gemm!r} must be three sizes M,N,K")
    sizes = []
    for key, text in zip("MNK", parts, strict=True):
        try:
            sizes.append(int(text))
        except ValueError:
            raise ScenarioError(
                f"--gemm: {key} = {text.strip()[:40]!r} must be a whole number"
            ) from None
    m, n, k = sizes
    name = f"gemm-{m}x{n}x{k}"
    try:
        return Workload(name=name, pattern="all_gather_gemm", m=m, n=n, k=k, dtype=dtype)
    except WorkloadError as error:
        option = "--dtype" if str(error).startswith("dtype") else "--gemm"
        raise WorkloadError(f"{option}: {error}") from error


def _check_count(key: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise WorkloadError(f"{key}: {value!r} must be a whole number")
    if not least <= value <= MAX_DIM:
        raise WorkloadError(f"{key}: {value} must be from {least} to {MAX_DIM:,}")


def split(total: int, parts: int) -> tuple[tuple[int, int], ...]:
    """Cut ``range(total)`` into half-open intervals that differ by at most one, larger ones first.

    Examples
    --------
    >>> split(10, 4)
    ((0, 3), (3, 6), (6, 8), (8, 10))
    """
    if parts < 1 or total < 0:
        raise WorkloadError(f"cannot cut {total} into {parts} parts")
    size, larger = divmod(total, parts)
    starts = [i * size + min(i, larger) for i in range(parts + 1)]
    return tuple(itertools.pairwise(starts))

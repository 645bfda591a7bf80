"""Random scenarios from the dimensions of published transformers."""

import functools
import random
from dataclasses import dataclass
from importlib import resources
from typing import ClassVar, Literal

from ficco_sim import io
from ficco_sim.errors import ScenarioError
from ficco_sim.scenarios.sets import ScenarioSet, check_list
from ficco_sim.workload import MAX_WORKLOADS, STRICT, Recipe, Workload

__all__ = ["random_models"]

LAYERS = ("qkv", "up", "fsdp", "cp")
WEIGHTS = {"qkv": 3, "up": 3, "fsdp": 3, "cp": 1}
"""How often each kind is drawn: attention scores are one GEMM of many in a layer."""
TOKEN_STEP = 256
MAX_LOCAL_TOKENS = 32_768  # of one gpu, in FSDP
MAX_LOCAL_QUERIES = 4_096  # of one gpu, in context parallelism
MAX_FAILURES = 1_000  # draws in a row that give no new shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Dimensions of one transformer; ``ffn`` is the width of its MLP, gated ones have two of them."""

    __pydantic_config__: ClassVar = STRICT
    name: str
    hidden: int
    ffn: int
    gated: bool
    heads: int
    kv_heads: int
    head_dim: int
    source: str

    @property
    def up(self) -> tuple[str, int]:
        """Name and output features of the MLP's first product."""
        return ("gate-up", 2 * self.ffn) if self.gated else ("mlp-up", self.ffn)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """The content of data/models.yaml."""

    __pydantic_config__: ClassVar = STRICT
    format_version: Literal[1]
    models: tuple[Model, ...]


@functools.cache
def _models() -> tuple[Model, ...]:
    file = resources.files("ficco_sim") / "data" / "models.yaml"
    with resources.as_file(file) as path:
        return io.load(path, ModelFile).models


def random_models(
    *,
    count: int = 100,
    seed: int = 0,
    num_gpus: int = 8,
    layers: tuple[str, ...] = LAYERS,
    min_tokens: int = 256,
    max_tokens: int = 131_072,
) -> ScenarioSet:
    """Draw layers of published transformers, with tokens that are uniform on a log scale.

    Kinds of layers, drawn 3 : 3 : 3 : 1. ``qkv`` and ``up``: tensor parallel, m tokens gathered, n the
    gpu's columns, k hidden. ``fsdp``: the weight of q/k/v, of the MLP's first or second product is
    gathered (m its output features, k its input features), n local tokens, up to 32,768. ``cp``:
    attention scores of one key head, m gathered keys, n local queries (up to 4,096) times query heads
    per key head, k the head's dimension. All in bf16; no shape occurs twice.

    Parameters
    ----------
    count
        How many scenarios.
    seed
        The same arguments and seed give the same set.
    num_gpus
        Degree of parallelism.
    layers
        Kinds to draw from.
    min_tokens, max_tokens
        Range of tokens, rounded to multiples of 256.

    Raises
    ------
    ScenarioError
        If an argument is out of range, or there are not so many different shapes.
    """
    _check(count, seed, num_gpus, layers, min_tokens, max_tokens)
    rng = random.Random(seed)  # noqa: S311 - no secret
    weighted = [layer for layer in layers for _ in range(WEIGHTS[layer])]
    models = _models()
    found: dict[tuple[int, int, int], Workload] = {}
    failures = 0
    while len(found) < count:
        # random() alone is promised to give the same numbers in every version of Python
        model = models[int(rng.random() * len(models))]
        layer = weighted[int(rng.random() * len(weighted))]
        share, which = rng.random(), rng.random()
        workload = _draw(model, layer, share, which, num_gpus, (min_tokens, max_tokens))
        shape = (workload.m, workload.n, workload.k)
        failures = failures + 1 if shape in found else 0
        if failures > MAX_FAILURES:
            raise ScenarioError(
                f"count: {count} different shapes cannot be drawn from these layers and tokens; "
                f"{len(found)} were found"
            )
        found.setdefault(shape, workload)
    return ScenarioSet(
        name=f"random-{count}-seed{seed}",
        workloads=tuple(found.values()),
        made_by=Recipe(
            maker="random",
            arguments={
                "count": count,
                "seed": seed,
                "num_gpus": num_gpus,
                "layers": list(layers),
                "min_tokens": min_tokens,
                "max_tokens": max_tokens,
            },
        ),
    )


def _draw(
    model: Model, layer: str, share: float, which: float, num_gpus: int, tokens: tuple[int, int]
) -> Workload:
    """One layer; ``share`` and ``which`` are uniform from 0 to 1 and pick tokens and matrix."""
    up, up_features = model.up
    if layer == "fsdp":
        local = _tokens(share, tokens[0], min(tokens[1], MAX_LOCAL_TOKENS))
        qkv_features = (model.heads + 2 * model.kv_heads) * model.head_dim
        what, m, k = (
            ("qkv", qkv_features, model.hidden),
            (up, up_features, model.hidden),
            ("mlp-down", model.hidden, model.ffn),
        )[int(which * 3)]
        return _workload(model, f"fsdp{num_gpus}-{what}-{local}", m, local, k, f"FSDP{num_gpus}", local)
    gathered = _tokens(share, *tokens)
    if layer == "cp":
        queries = _tokens(which, TOKEN_STEP, min(gathered, MAX_LOCAL_QUERIES))
        n = queries * model.heads // model.kv_heads
        name = f"cp{num_gpus}-scores-{gathered}-{queries}"
        return _workload(model, name, gathered, n, model.head_dim, f"CP{num_gpus}", gathered)
    if layer == "qkv":
        # key heads are copied where there are fewer of them than gpus
        heads = -(-model.heads // num_gpus) + 2 * -(-model.kv_heads // num_gpus)
        what, n = "qkv", heads * model.head_dim
    else:
        what, n = up, -(-up_features // num_gpus)
    name = f"tp{num_gpus}-{what}-{gathered}"
    return _workload(model, name, gathered, n, model.hidden, f"TP{num_gpus} + SP", gathered)


def _workload(
    model: Model, name: str, m: int, n: int, k: int, parallelism: str, num_tokens: int
) -> Workload:
    return Workload(
        name=f"{model.name}-{name}",
        pattern="all_gather_gemm",
        m=m,
        n=n,
        k=k,
        model=model.name,
        parallelism=parallelism,
        num_tokens=num_tokens,
    )


def _tokens(share: float, least: int, most: int) -> int:
    """A multiple of 256 from least to most; its logarithm is uniform in ``share``."""
    tokens: float = least * (most / least) ** share
    return max(least, min(most, round(tokens / TOKEN_STEP) * TOKEN_STEP))


def _check(
    count: int, seed: int, num_gpus: int, layers: tuple[str, ...], min_tokens: int, max_tokens: int
) -> None:
    for key, value in (
        ("count", count),
        ("seed", seed),
        ("num_gpus", num_gpus),
        ("min_tokens", min_tokens),
        ("max_tokens", max_tokens),
    ):
        if isinstance(value, bool) or not isinstance(value, int):
            raise ScenarioError(f"{key}: {value!r} must be a whole number")
    check_list("layers", layers)
    if not 1 <= count <= MAX_WORKLOADS:
        raise ScenarioError(f"count: {count} must be from 1 to {MAX_WORKLOADS:,}")
    if not 0 <= seed < 2**63:
        raise ScenarioError(f"seed: {seed} must be from 0 to 2**63 - 1")
    if not 2 <= num_gpus <= 1024:
        raise ScenarioError(f"num_gpus: {num_gpus} must be from 2 to 1024")
    for layer in layers:
        if layer not in LAYERS:
            raise ScenarioError(f"layers: {layer!r} is unknown; one of: {', '.join(LAYERS)}")
    if not layers or len(set(layers)) < len(layers):
        raise ScenarioError("layers: at least one is needed, and none twice")
    for key, value in (("min_tokens", min_tokens), ("max_tokens", max_tokens)):
        if value % TOKEN_STEP or not TOKEN_STEP <= value <= 2**24:
            raise ScenarioError(
                f"{key}: {value} must be a multiple of {TOKEN_STEP} from {TOKEN_STEP} to {2**24:,}"
            )
    if min_tokens > max_tokens:
        raise ScenarioError(f"min_tokens: {min_tokens} must not exceed max_tokens, {max_tokens}")

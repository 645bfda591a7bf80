"""A synthetic grid over OTB and MT, of the kind that the FiCCO paper draws its 16 scenarios from.

OTB is FLOP over HBM bytes of the GEMM and MT are those bytes (`Workload.gemm_bytes`). With e bytes an
element, MT = e (M K + K N + M N) and 1/OTB = (e/2) (1/M + 1/N + 1/K). Two numbers leave one of M, N, K
open: it is fixed by the aspect K/M. Each aspect then has up to two shapes, with a narrow and a wide N.
"""

import itertools
from collections.abc import Callable, Sequence

from ficco_sim.errors import ScenarioError
from ficco_sim.scenarios.sets import ScenarioSet, check_list
from ficco_sim.units import MIB
from ficco_sim.workload import MAX_WORKLOADS, Recipe, Workload

__all__ = ["synthetic_grid"]

OTB = (256, 512, 1024, 2048, 4096)
"""FLOP per byte: those of the named workloads are from 124 to 6,955."""
MT_MIB = (64, 128, 256, 512, 1024, 2048)
"""MiB: those of the named workloads are from 25 to 7,840."""
ASPECTS = (0.125, 0.5, 2.0, 8.0)
SIDES = ("narrow", "wide")
M_STEP, N_STEP, K_STEP = 256, 64, 64
MAX_SIZE = 131_072
"""Of M, N and K, the longest context of the models: small OTB with large MT would need millions."""
TOLERANCE = 0.1
"""Largest relative difference of a shape's OTB and MT from those of its cell, due to rounding."""
DTYPE, ELEMENT_BYTES = "bf16", 2
STEPS = 200


def synthetic_grid(
    *,
    otb: Sequence[float] = OTB,
    mt_mib: Sequence[float] = MT_MIB,
    aspects: Sequence[float] = ASPECTS,
) -> ScenarioSet:
    """Shapes for each cell of OTB and MT, with K below and above M, and N narrow and wide.

    Sizes are rounded, M to multiples of 256, N and K of 64, and at most 131,072. Cells without such a
    shape within 10 % of their OTB and MT are left out and named in the notes: a cube has the least MT
    of all shapes with an OTB, 54 OTB^2 bytes in bf16, so that a large OTB has no small MT.

    Parameters
    ----------
    otb
        FLOP per byte of the GEMM.
    mt_mib
        HBM bytes of the GEMM in MiB.
    aspects
        K over M; above 1 they are the paper's case M < K.

    Raises
    ------
    ScenarioError
        If a value is out of range or no cell has a shape.
    """
    for key, values, least, most in (
        ("otb", otb, 1, 1e5),
        ("mt_mib", mt_mib, 0.01, 1e6),
        ("aspects", aspects, 1e-3, 1e3),
    ):
        _check(key, values, least, most)
    if len(otb) * len(mt_mib) * len(aspects) * len(SIDES) > MAX_WORKLOADS:
        raise ScenarioError(f"otb, mt_mib, aspects: more than {MAX_WORKLOADS:,} shapes")
    found: dict[tuple[int, int, int], Workload] = {}
    missing = []
    for flop_per_byte, mib in itertools.product(otb, mt_mib):
        before = len(found)
        for aspect, side in itertools.product(aspects, SIDES):
            name = f"otb{flop_per_byte:g}-mt{mib:g}mib-km{aspect:g}-{side}"
            shape = _shape(flop_per_byte, mib * MIB, aspect, side)
            if shape is not None and shape not in found:
                m, n, k = shape
                found[shape] = Workload(
                    name=name, pattern="all_gather_gemm", m=m, n=n, k=k, dtype=DTYPE,
                    layer="synthetic",
                )  # fmt: skip
        if len(found) == before:
            missing.append(f"{flop_per_byte:g} FLOP/byte with {mib:g} MiB")
    if not found:
        raise ScenarioError("otb, mt_mib: no shape has these values; a cube has the least MT of all")
    notes = (f"no shape for OTB of {'; '.join(missing)}",) if missing else ()
    return ScenarioSet(
        name="grid",
        workloads=tuple(found.values()),
        made_by=Recipe(
            maker="grid",
            arguments={"otb": list(otb), "mt_mib": list(mt_mib), "aspects": list(aspects)},
        ),
        notes=notes,
    )


def _shape(otb: float, mt_bytes: float, aspect: float, side: str) -> tuple[int, int, int] | None:
    """Rounded sizes with about this OTB and MT; None if there are none."""
    # in elements rather than bytes: 1/M + 1/N + 1/K = 1/reach and M K + K N + M N = area
    reach, area = otb * ELEMENT_BYTES / 2, mt_bytes / ELEMENT_BYTES
    least_m = reach * (1 + 1 / aspect)  # here N is infinite

    def n_of(m: float) -> float:
        return reach * m / (m - least_m)

    def area_of(excess: float) -> float:
        m = least_m * (1 + excess)
        return aspect * m * m + n_of(m) * m * (1 + aspect)

    lowest = _lowest(area_of, 1e-9, 1e9)
    if area_of(lowest) > area:
        return None
    excess = _crossing(area_of, area, lowest, 1e-9 if side == "wide" else 1e9)
    m = least_m * (1 + excess)
    n, k = n_of(m), aspect * m
    if max(m, n, k) > MAX_SIZE:
        return None
    candidates = itertools.product(_around(m, M_STEP), _around(n, N_STEP), _around(k, K_STEP))
    error, best = min((_error(otb, mt_bytes, *sizes), sizes) for sizes in candidates)
    # rounding must not turn M < K into M >= K
    kept = aspect == 1 or (best[2] > best[0]) == (aspect > 1)
    return best if error <= TOLERANCE and kept else None


def _lowest(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function with one minimum has it, by thirds on a log scale."""
    for _ in range(STEPS):
        third = (high / low) ** (1 / 3)
        if function(low * third) < function(high / third):
            high /= third
        else:
            low *= third
    return low


def _crossing(function: Callable[[float], float], value: float, below: float, above: float) -> float:
    """Where a function reaches a value from a place below it to one above, by halves on a log scale."""
    for _ in range(STEPS):
        middle = (below * above) ** 0.5
        if function(middle) < value:
            below = middle
        else:
            above = middle
    return above


def _around(size: float, step: int) -> tuple[int, int]:
    low = max(1, int(size // step))
    return low * step, (low + 1) * step


def _error(otb: float, mt_bytes: float, m: int, n: int, k: int) -> float:
    """Largest relative difference from the wanted OTB and MT."""
    made = Workload(name="try", pattern="all_gather_gemm", m=m, n=n, k=k, dtype=DTYPE)
    actual = made.flops / made.gemm_bytes
    return max(abs(actual / otb - 1), abs(made.gemm_bytes / mt_bytes - 1))


def _check(key: str, values: Sequence[float], least: float, most: float) -> None:
    check_list(key, values)
    if not values:
        raise ScenarioError(f"{key}: at least one is needed")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise ScenarioError(f"{key}: {value!r} must be a number from {least:g} to {most:g}")
        if values.count(value) > 1:
            raise ScenarioError(f"{key}: {value!r} occurs twice")

"""The rule of the FiCCO paper (arXiv 2512.10236, section V-C), with all it leaves implicit explicit.

What the paper says, by public reviews of it; its text could not be had: a GEMM's OTB x MT is compared
with a machine-level value, said to be the peak FLOP/s, and above 5 times that value the choice is
hetero-unfused-1d. What is our reading: M < K picks uniform-fused-2d, because rows are then the short
side, and cutting rows would hurt; below the machine's value the choice is uniform-fused-1d, and from
there to 5 times the value hetero-fused-1d, so that larger GEMMs are cut finer (into c, c + 1, and
1 + (p - 1) c parts). That the M < K branch exists is said (a referee asks whether the test set has the
case), that it comes first is not.

OTB x MT is FLOP and the peak is FLOP/s, so the paper's comparison has a hidden time of 1 s. Here the
machine's value is peak FLOP/s x tau.
"""

from collections.abc import Callable

from ficco_sim.heuristics.decision import Decision
from ficco_sim.heuristics.features import Features
from ficco_sim.heuristics.rule import FeatureRule, Values
from ficco_sim.units import format_flops, format_seconds

__all__ = ["DEFAULT_FACTOR", "DEFAULT_TAU_S", "published", "published_literal", "published_time"]

DEFAULT_TAU_S = 1e-3
"""Ours: puts 5 x peak x tau for MI300X at 6.5 TFLOP, among the largest GEMMs of models in use."""
DEFAULT_FACTOR = 5.0
"""The paper's, set by hand."""


def published() -> FeatureRule:
    """The paper's rule; parameters ``tau_s`` and ``factor``."""
    return FeatureRule(
        name="published",
        description="The paper's rule: M < K picks 2d, else OTB x MT against peak FLOP/s x tau.",
        function=_by_flops,
        parameters={"tau_s": DEFAULT_TAU_S, "factor": DEFAULT_FACTOR},
    )


def published_literal() -> FeatureRule:
    """The paper's rule with its numbers compared as they stand: tau is 1 s."""
    return FeatureRule(
        name="published-literal",
        description="The paper's rule read literally: FLOP against FLOP/s, that is, tau = 1 s.",
        function=_by_flops,
        parameters={"tau_s": 1.0, "factor": DEFAULT_FACTOR},
    )


def published_time() -> FeatureRule:
    """The paper's rule on a time: the GEMM's roofline time against tau; see `Features.roofline_s`.

    The same as `published` where the GEMM is bound by FLOP; where it is bound by memory it counts as
    larger.
    """
    return FeatureRule(
        name="published-time",
        description="The paper's rule on a time: M < K picks 2d, else the roofline time against tau.",
        function=_by_time,
        parameters={"tau_s": DEFAULT_TAU_S, "factor": DEFAULT_FACTOR},
    )


def _by_flops(f: Features, values: Values) -> Decision:
    # OTB x MT is FLOP; as a product of rounded numbers it would not be exact
    unit = f.peak_flops_per_s * values["tau_s"]
    return _choose(f, values["factor"], f.flops, unit, ("OTB x MT", format_flops))


def _by_time(f: Features, values: Values) -> Decision:
    words = ("roofline time", format_seconds)
    return _choose(f, values["factor"], f.roofline_s, values["tau_s"], words)


def _choose(
    f: Features, factor: float, size: float, unit: float, words: tuple[str, Callable[[float], str]]
) -> Decision:
    """The branches, in order; ``words`` are the name of the size and how it is written."""
    if f.m < f.k:
        return Decision(schedule="uniform-fused-2d", reason=f"M {f.m} < K {f.k}: rows are few")
    what, show = words
    said = f"{what} {show(size)}"
    if size > unit * factor:
        return Decision(
            schedule="hetero-unfused-1d", reason=f"{said} is above {factor:g} x {show(unit)}"
        )
    if size >= unit:
        return Decision(
            schedule="hetero-fused-1d",
            reason=f"{said} is from {show(unit)} to {factor:g} x as much",
        )
    return Decision(schedule="uniform-fused-1d", reason=f"{said} is below {show(unit)}")

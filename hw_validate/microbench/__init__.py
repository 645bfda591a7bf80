"""Microbenchmarks of every parameter of the cost models: GEMMs, copies, contention, launching."""

from hw_validate.microbench.contention import Slowdown, slowdowns
from hw_validate.microbench.evidence import copies_by_engine, engine_findings, peer_findings
from hw_validate.microbench.setup import Setup, Sizes, default_directions
from hw_validate.microbench.suite import SETS, suite

__all__ = [
    "SETS",
    "Setup",
    "Sizes",
    "Slowdown",
    "copies_by_engine",
    "default_directions",
    "engine_findings",
    "peer_findings",
    "slowdowns",
    "suite",
]

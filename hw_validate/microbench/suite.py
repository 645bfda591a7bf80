"""Sets of microbenchmarks by name, as groups for a campaign."""

from collections.abc import Callable, Iterable

from ficco_sim.errors import ScenarioError
from hw_validate.campaign import Group
from hw_validate.microbench.case import Named, grouped
from hw_validate.microbench.contention import contention_cases
from hw_validate.microbench.copies import copy_cases, core_cases, local_cases
from hw_validate.microbench.gemms import gemm_cases, gemms_cases
from hw_validate.microbench.launch import launch_cases
from hw_validate.microbench.setup import Setup

__all__ = ["SETS", "suite"]

_MAKERS: dict[str, Callable[[Setup], Named]] = {
    "launch": launch_cases,
    "copy": copy_cases,
    "core": core_cases,
    "local": local_cases,
    "contention": contention_cases,
    "gemms": gemms_cases,
    "gemm": gemm_cases,
}
SETS = tuple(_MAKERS)
"""Names of all sets, the quick ones first."""


def suite(sets: Iterable[str], setup: Setup) -> list[Group]:
    """Groups of the named sets, in the order of the names; no two cases have the same key.

    Raises
    ------
    ScenarioError
        If a set is unknown, a workload does not fit the number of gpus, or a set has no cases.
    """
    groups: list[Group] = []
    seen: set[str] = set()
    for name in dict.fromkeys(sets):
        if name not in _MAKERS:
            raise ScenarioError(f"--sets: {name!r} is unknown; one of {', '.join(SETS)}")
        before = len(groups)
        for title, cases in _MAKERS[name](setup):
            new = {case.key: case for case in cases if case.key not in seen}
            seen |= new.keys()
            groups += grouped(title, list(new.values()), setup)
        if len(groups) == before:
            raise ScenarioError(f"--sets: {name}: nothing to measure; give a workload with a GEMM")
    return groups

"""Results that other verbs wrote, recognised by what is in them, and the page that each makes.

Files may be anyone's: their size is bounded, keys and types are checked, and what a figure or a sum
could not take (times of 0, nothing in a list) is refused.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ficco_sim import io
from ficco_sim.errors import FileError
from ficco_sim.laboratory import Evaluation, Portability, Tuning
from ficco_sim.pages.document import Document
from ficco_sim.pages.portability_page import portability_document
from ficco_sim.pages.rules_page import rules_document
from ficco_sim.pages.subject import Subject, read_comparison
from ficco_sim.pages.sweep_page import sweep_document
from ficco_sim.pages.tuning_page import tuning_document
from ficco_sim.pages.validate_page import validate_document
from ficco_sim.validation import Validation

__all__ = ["MAX_PAGE_BYTES", "read_result"]

MAX_PAGE_BYTES = 5 * 10**6
MAX_RESULT_BYTES = 64 * 2**20
TABLES = (".csv", ".parquet")
# the keys by which each is told, and the command that writes it
KINDS = {
    "results": "ficco compare",
    "workloads": "ficco validate",
    "rules": "ficco heuristic evaluate",
    "plateaus": "ficco heuristic tune",
    "cells": "ficco heuristic portability",
}


def read_result(path: Path, *, command: str) -> Subject | Document:
    """What a page is made of, from a file that a verb wrote with ``--json``, or a table of a sweep.

    Parameters
    ----------
    command
        The command line that makes the page, without folders.

    Raises
    ------
    FileError
        If the file is none of these, or not as that verb writes it.
    """
    if path.suffix in TABLES:
        from ficco_sim.sweep.table import read_sweep

        return sweep_document(read_sweep(path), name=path.name, command=command)
    where = str(path)
    document = io.parse_json(io.read_text(path, MAX_RESULT_BYTES), where)
    kinds = [key for key in KINDS if isinstance(document, dict) and key in document]
    if len(kinds) != 1:
        listed = ", ".join(f"{key} ({verb} --json)" for key, verb in KINDS.items())
        raise FileError(
            f"{path}: must have one of the keys {listed}; or be a .csv table of ficco sweep"
        )
    given = {"name": path.name, "command": command}
    match kinds[0]:
        case "results":
            return read_comparison(document, where, command=command)
        case "workloads":
            return validate_document(_validation(document, where), **given)
        case "rules":
            return rules_document(_evaluation(document, where), **given)
        case "plateaus":
            return tuning_document(_tuning(document, where), **given)
        case _:
            return portability_document(_portability(document, where), **given)


def _validation(document: dict[str, Any], where: str) -> Validation:
    found = io.decode(document, Validation, where)
    _not_empty(found, where, "rows", "workloads", "schedules")
    for list_name in ("rows", "worst"):
        for i, row in enumerate(getattr(found, list_name)):
            for key in ("measured_s", "simulated_s"):
                if not getattr(row, key) > 0:
                    raise FileError(f"{where}: {list_name}[{i}].{key}: must be more than 0")
    return found


def _evaluation(document: dict[str, Any], where: str) -> Evaluation:
    rules = document["rules"]
    if isinstance(rules, list):  # scenarios are not in the file
        rules = [r | {"judgements": []} if isinstance(r, dict) else r for r in rules]
    found = io.decode(document | {"rules": rules}, Evaluation, where)
    _not_empty(found, where, "rules", "machines")
    for i, report in enumerate(found.rules):
        if not report.by_machine:
            raise FileError(f"{where}: rules[{i}].by_machine: must not be empty")
    return found


def _tuning(document: dict[str, Any], where: str) -> Tuning:
    found = io.decode(document, Tuning, where)
    _not_empty(found, where, "parameters", "points", "machines")
    named = [("untuned", found.untuned.values), ("picked", found.picked.values)]
    named += [(f"points[{i}]", point.values) for i, point in enumerate(found.points)]
    for i, plateau in enumerate(found.plateaus):
        named.append((f"plateaus[{i}].at", plateau.at.values))
        if not plateau.ranges:
            raise FileError(f"{where}: plateaus[{i}].ranges: must not be empty")
        if plateau.measure not in ("accuracy", "accuracy_within_noise", "mean_regret"):
            raise FileError(f"{where}: plateaus[{i}].measure: {plateau.measure[:40]!r} is no measure")
    _check_values(named, found.parameters, where)
    if not any(point.values[found.parameters[0]] > 0 for point in found.points):
        raise FileError(f"{where}: points: no value of {found.parameters[0]} is more than 0")
    return found


def _portability(document: dict[str, Any], where: str) -> Portability:
    found = io.decode(document, Portability, where)
    _not_empty(found, where, "machines", "cells", "parameters")
    _check_values(
        [(f"tuned[{i}]", row.values) for i, row in enumerate(found.tuned)], found.parameters, where
    )
    pairs = {(c.tuned_on, c.judged_on) for c in found.cells}
    for row in {c.tuned_on for c in found.cells}:
        for column in found.machines:
            if (row, column) not in pairs:
                raise FileError(
                    f"{where}: cells: none is tuned on {row[:60]!r}, judged on {column[:60]!r}"
                )
    return found


def _not_empty(found: object, where: str, *keys: str) -> None:
    for key in keys:
        if not getattr(found, key):
            raise FileError(f"{where}: {key}: must not be empty")
    for place, value in _numbers(found):
        if not math.isfinite(value):
            raise FileError(f"{where}: {place}: {value} must be finite")


def _numbers(found: object) -> Iterator[tuple[str, float]]:
    """Every number in plain data, with its key."""
    stack = [("", io.to_plain(found))]
    while stack:
        place, value = stack.pop()
        if isinstance(value, dict):
            stack += [(f"{place}.{key}".lstrip("."), item) for key, item in value.items()]
        elif isinstance(value, list):
            stack += [(f"{place}[{i}]", item) for i, item in enumerate(value)]
        elif isinstance(value, float):
            yield place, value


def _check_values(
    named: list[tuple[str, dict[str, float]]], parameters: tuple[str, ...], where: str
) -> None:
    for place, values in named:
        if set(values) != set(parameters):
            raise FileError(f"{where}: {place}.values: must have {', '.join(parameters)} and no other")

"""A set of scenarios as a file, which says how it was made."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ficco_sim import io
from ficco_sim.errors import ScenarioError
from ficco_sim.workload import Recipe, Workload, WorkloadSet, load_workload_set, named_workloads

__all__ = ["ScenarioSet", "load_scenarios", "named"]

YAML_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioSet:
    """Workloads with unique names, what the set is called, and how it was made.

    Parameters
    ----------
    made_by
        The maker and its arguments; None for files that were written by hand.
    notes
        What the maker left out and why; not written to files.
    """

    name: str
    workloads: tuple[Workload, ...]
    made_by: Recipe | None = None
    notes: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        self.file()  # refuses names that occur twice, and too many workloads

    def file(self) -> WorkloadSet:
        """The content of the set's file; any workload file is a set, and a set is one."""
        return WorkloadSet(
            format_version=1, name=self.name, made_by=self.made_by, workloads=self.workloads
        )

    def to_text(self, suffix: str) -> str:
        """The text of the set's file: JSON for ``.json``, else YAML."""
        if suffix == ".json":
            return io.dump_json(self.file())
        return io.dump_yaml(self.file())

    def save(self, path: Path) -> None:
        """Write the set whole or not at all; equal sets give equal bytes.

        Raises
        ------
        FileError, ScenarioError
            If the file cannot be written, or could not be read back because it is too large for YAML.
        """
        check_suffix(path)
        text = self.to_text(path.suffix)
        if path.suffix != ".json" and len(text.encode()) > io.MAX_YAML_BYTES:
            raise ScenarioError(
                f"{path}: {len(self.workloads):,} scenarios take more than {io.MAX_YAML_BYTES:,} bytes "
                "of YAML, the most that is read; choose a name that ends in .json"
            )
        io.write_text(path, text)


def check_suffix(path: Path) -> None:
    """Refuse a name that would be read back in another format than it was written."""
    if path.suffix not in (".json", *YAML_SUFFIXES):
        raise ScenarioError(f"{path}: a set of scenarios ends in .json, .yaml or .yml")


def check_list(key: str, value: Any) -> None:
    """Refuse what a file gives for a list."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ScenarioError(f"{key}: {value!r} must be a list")


def load_scenarios(path: Path) -> ScenarioSet:
    """Read a set of scenarios, or any file of workloads.

    Raises
    ------
    FileError
        Naming the file, the key, the value and the rule.
    """
    check_suffix(path)
    content = load_workload_set(path)
    return ScenarioSet(
        name=content.name or path.stem, workloads=content.all_workloads(), made_by=content.made_by
    )


def named(*, all_to_all: bool = False) -> ScenarioSet:
    """The workloads that come with the package: all-gathers, and exchanges if asked for."""
    if not isinstance(all_to_all, bool):
        raise ScenarioError(f"all_to_all: {all_to_all!r} must be true or false")
    patterns = ("all_gather_gemm", "all_to_all_gemm") if all_to_all else ("all_gather_gemm",)
    return ScenarioSet(
        name="named",
        workloads=tuple(w for w in named_workloads().values() if w.pattern in patterns),
        made_by=Recipe(maker="named", arguments={"all_to_all": all_to_all}),
    )

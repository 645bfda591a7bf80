"""Make docs/cli.md, the help of every verb, and docs/machines.md, the table of machines.

Run it as ``python docs/generate.py``; with ``--check`` it writes nothing, prints what differs and exits
with 1 if a page is stale.
"""

import difflib
import io as text_io
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from cyclopts import App
from rich.console import Console

from ficco_sim import io
from ficco_sim.cli import app as ficco
from ficco_sim.machine import Machine, MachineFile, build_machine, named_machines
from ficco_sim.profile import GpuFile
from ficco_sim.units import GB, format_rate, format_seconds
from hw_validate.__main__ import app as hw_validate

DOCS = Path(__file__).parent
WIDTH = 100  # characters of a line of help, whatever the terminal
NOTE = "<!-- made by python docs/generate.py; do not edit -->"
LABELS = ("measured", "stated", "derived", "estimated", "emulated")
CLI_HEAD = f"""# The command line

{NOTE}

What `--help` prints, verb by verb. Exit codes: 0 fine, 2 the input is at fault, 1 we are (please
report it), 130 interrupted. What `--json` holds is in [files](files.md)."""
MACHINES_HEAD = f"""# Machines

{NOTE}

All that `--machine` knows by name; the files are in [topologies](../topologies/README.md), which also
says what the keys mean. Links are directed: a pair of gpus that a cable joins has two. Rates are per
direction, of a link or port, GB is 1e9 bytes; usable is what protocol leaves, and what the simulator
takes. Labels say where a number is from: measured (by the project or in a published log), stated (by
a maker, a maintainer or a paper), derived (by arithmetic from such values), estimated, emulated
(stands for something that was not run); several where one text is the source of all links.

| machine | gpus | gpu file | family | links | bandwidth | usable | latency of a link |
|---|---|---|---|---|---|---|---|"""
GPUS_HEAD = """
## Gpus

Dense peaks in TFLOP/s. The labels are those of all numbers of the line.

| gpu file | gpu | peaks, TFLOP/s | compute units | memory | HBM | DMA engines | label |
|---|---|---|---|---|---|---|---|"""
MODELS_HEAD = """
## Labels of the cost models

By group of parameters; where a group has several labels, with the number of parameters of each.

| gpu file | gemm | copy | core_copy | local_copy | launch | contention |
|---|---|---|---|---|---|---|"""
FITS_HEAD = """
## Errors of the fits

Mean of |predicted / measured - 1| over points left out of the fit, and how many there were; what is
not listed was not fitted.

| gpu file | regime | date | mean error |
|---|---|---|---|"""
GROUPS = ("copy", "core_copy", "local_copy", "launch", "contention")


def help_of(app: App, words: tuple[str, ...]) -> str:
    """What ``--help`` prints, without colour and the same on any terminal."""
    text = text_io.StringIO()
    console = Console(file=text, width=WIDTH, color_system=None, force_terminal=False, _environ={})
    app.help_print(list(words), console=console)
    return "\n".join(line.rstrip() for line in text.getvalue().strip().splitlines())


def verbs(app: App, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every verb, those of groups of verbs before their own."""
    for name in sorted(app):
        if not name.startswith("-"):
            yield (*words, name)
            yield from verbs(app[name], (*words, name))


def cli_page() -> str:
    """The text of docs/cli.md."""
    lines = [CLI_HEAD]
    for program, app in (("ficco", ficco), ("python -m hw_validate", hw_validate)):
        for words in ((), *verbs(app)):
            level = "##" if not words else "###"
            lines += ["", f"{level} {' '.join((program, *words))}", ""]
            lines += ["```text", help_of(app, words), "```"]
    return "\n".join(lines) + "\n"


def source_of(key: str, sources: dict[str, str]) -> str:
    """The source of a key, which may stand under a key above it."""
    parts = key.split(".")
    found = (sources.get(".".join(parts[:length])) for length in range(len(parts), 0, -1))
    return next(text for text in found if text is not None)


def label_of(key: str, sources: dict[str, str]) -> str:
    """The first word of the source of a key; all labels in it if it is the source of all links."""
    text = source_of(key, sources)
    if text == sources.get("topology"):
        return ", ".join(label for label in LABELS if label in text)
    return text.partition(":")[0]


def leaves(value: Any, key: str) -> Iterator[str]:
    """Dotted keys of the parameters that a file gives below a key."""
    if isinstance(value, dict):
        for name in value:
            yield from leaves(value[name], f"{key}.{name}")
    elif key != "gpu.name":
        yield key


def labels(value: Any, key: str, sources: dict[str, str]) -> str:
    """Labels of a group of parameters, with the number of each where they differ."""
    counts = Counter(label_of(leaf, sources) for leaf in leaves(value, key))
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{counts[name]} {name}" for name in LABELS if counts[name])


def machine_row(name: str, file: MachineFile, machine: Machine) -> str:
    """A line of the table of machines."""
    links = sorted(machine.links, key=lambda link: -link.bandwidth_bytes_per_s)
    cells = []
    for key, show in (
        ("bandwidth_bytes_per_s", format_rate),
        ("usable_bytes_per_s", format_rate),
        ("latency_s", format_seconds),
    ):
        values = dict.fromkeys(show(getattr(link, key)) for link in links)
        cells.append(f"{', '.join(values)} ({label_of(f'topology.{key}', file.sources)})")
    return (
        f"| `{name}` | {machine.num_gpus} | {file.gpu} | {family(machine)} | {len(links)} | "
        f"{' | '.join(cells)} |"
    )


def family(machine: Machine) -> str:
    """How gpus are wired, with the extents of a torus and the number of switches."""
    name = machine.family
    if machine.extents:
        name += " " + " x ".join(map(str, machine.extents))
    if machine.switches and machine.family == "links":
        name += f", {len(machine.switches)} switches"
    return name


def gpu_rows(name: str, file: GpuFile, document: Any) -> tuple[str, str, str]:
    """The lines of a gpu: its data sheet, the labels of its parameters, and the errors of its fits."""
    gpu, profile = file.gpu, document["profile"]
    peaks = ", ".join(f"{dtype} {v / 1e12:g}" for dtype, v in gpu.peak_flops_per_s.items())
    facts = (
        f"| `{name}` | {gpu.name} | {peaks} | {gpu.num_compute_units} | {gpu.hbm_bytes / GB:g} GB | "
        f"{format_rate(gpu.hbm_bytes_per_s)} | {gpu.num_dma_engines} | "
        f"{labels(document['gpu'], 'gpu', file.sources)} |"
    )
    gemm = "; ".join(
        f"{dtype} {labels(rates, f'profile.gemm.rates.{dtype}', file.sources)}"
        for dtype, rates in profile["gemm"]["rates"].items()
    )
    told = (labels(profile[group], f"profile.{group}", file.sources) for group in GROUPS)
    fits = "; ".join(
        f"{group} {fit.mean_error:.1%} of {fit.num_points}{'' if fit.held_out else ' (not held out)'}"
        for group, fit in file.profile.fits.items()
    )
    return (
        facts,
        f"| `{name}` | {gemm} | {' | '.join(told)} |",
        f"| `{name}` | {file.profile.regime} | {file.profile.date} | {fits or 'none'} |",
    )


def source_lines(name: str, sources: dict[str, str]) -> list[str]:
    """Sources of one file."""
    return ["", f"### {name}", "", *(f"- `{key}` {text}" for key, text in sources.items())]


def machines_page() -> str:
    """The text of docs/machines.md."""
    folder = io.data_folder()
    files = {name: io.load(folder / f"{name}.yaml", MachineFile) for name in named_machines()}
    paths = {path.stem: path for path in sorted((folder / "gpus").glob("*.yaml"))}
    gpus = {name: io.load(path, GpuFile) for name, path in paths.items()}
    rows = [gpu_rows(name, file, io.read_document(paths[name])) for name, file in gpus.items()]
    lines = [MACHINES_HEAD]
    for name, file in files.items():
        inlined = replace(file, gpu=gpus[file.gpu]) if isinstance(file.gpu, str) else file
        lines.append(machine_row(name, file, build_machine(inlined, str(paths[str(file.gpu)]))))
    for head, column in ((GPUS_HEAD, 0), (MODELS_HEAD, 1), (FITS_HEAD, 2)):
        lines += [head, *(row[column] for row in rows)]
    lines += ["", "## Sources of machines"]
    for name, file in files.items():
        lines += source_lines(f"{name}: {file.description}", file.sources)
    lines += ["", "## Sources of gpus"]
    for name, gpu in gpus.items():
        lines += source_lines(f"{name}: {gpu.gpu.name}", gpu.sources)
    return "\n".join(lines) + "\n"


PAGES = {"cli.md": cli_page, "machines.md": machines_page}


def stale(name: str) -> list[str]:
    """Lines that differ between a page and what it should be; none if it is up to date."""
    path = DOCS / name
    before = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    after = PAGES[name]().splitlines()
    return list(difflib.unified_diff(before, after, f"docs/{name}", "generated", lineterm="", n=1))


def main(arguments: list[str]) -> int:
    """Write the pages, or check them; returns the exit code."""
    if arguments not in ([], ["--check"]):
        sys.stderr.write("generate.py: the only argument is --check\n")
        return 2
    differences: list[str] = []
    for name, make in PAGES.items():
        if arguments:
            differences += stale(name)
        else:
            io.write_text(DOCS / name, make())
    if differences:
        sys.stdout.write("\n".join(differences) + "\nRenew them: python docs/generate.py\n")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

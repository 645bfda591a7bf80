"""Verbs about topologies: show, import and make."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from cyclopts import App, Parameter

from ficco_sim.cli.support import find_machine, whole_numbers
from ficco_sim.command import JsonOption, byte_count, console, say, write_json
from ficco_sim.errors import ScenarioError
from ficco_sim.units import parse_seconds

if TYPE_CHECKING:
    from ficco_sim.machine import Machine, MachineFile
    from ficco_sim.readers import Imported
    from ficco_sim.topology import Description

app = App(name="topology", help="Show, import and make topologies of machines.", version_flags=[])

GpuOption: TypeAlias = Annotated[
    str | None, Parameter(help="Gpu type, a file in topologies/gpus, for example mi300x.")
]
BandwidthOption: TypeAlias = Annotated[
    str | None, Parameter(help="Of one physical link, per direction and second, for example 64GB.")
]
LatencyOption: TypeAlias = Annotated[
    str | None, Parameter(help="Of a link, for example 0.5us or 500ns.")
]
OutOption: TypeAlias = Annotated[
    Path | None, Parameter(help="Write the machine to a .yaml file, for --machine FILE.")
]
PictureOption: TypeAlias = Annotated[
    Path | None, Parameter(help="Draw the machine to a .png, .svg or .pdf file.")
]


@app.command
def show(
    machine: Annotated[
        str, Parameter(help="Name of a machine (see: ficco list machines) or a YAML or JSON file.")
    ],
    *,
    route: Annotated[
        str | None, Parameter(help="Two gpus, for example 0,5: how bytes go from one to the other.")
    ] = None,
    plot: PictureOption = None,
    json: JsonOption = None,
) -> None:
    """Show links, distances and bandwidths of a machine."""
    from ficco_sim import topology
    from ficco_sim.io import to_plain
    from ficco_sim.topology.words import path_line

    _check_outputs(json, plot, None)
    place = find_machine(machine)
    ends = None if route is None else _two_gpus(route)
    told = topology.describe(place)
    document: dict[str, Any] = to_plain(told)
    lines = []
    if ends is not None:
        taken, by_hardware = topology.find_path(place, *ends)
        widest = topology.widest_path(place, *ends)
        document["route"] = {
            "src": ends[0],
            "dst": ends[1],
            "by_hardware": by_hardware,
            "path": to_plain(taken),
            "widest_path": to_plain(widest),
        }
        how = "taken by hardware" if by_hardware else "shortest, for plans to relay along"
        lines = [path_line(f"  route {route}, {how}", taken), path_line("  widest path", widest)]
    _finish(place, told, document, lines, json, plot, None)


@app.command(name="import")
def import_(
    file: Annotated[
        str,
        Parameter(
            help="What nvidia-smi topo -m or rocm-smi --showtopo / --shownodesbw printed, an ASTRA-sim "
            "network file, GraphML, node-link JSON or a machine file; - reads the standard input.",
            allow_leading_hyphen=True,
        ),
    ],
    *,
    format: Annotated[  # noqa: A002 - the option's name
        Literal["topo_m", "rocm_smi", "astra_sim", "graphml", "node_link", "ficco"] | None,
        Parameter(help="Format of the file; found by its content unless given."),
    ] = None,
    gpu: GpuOption = None,
    bandwidth: BandwidthOption = None,
    latency: LatencyOption = None,
    usable_share: Annotated[
        float | None, Parameter(help="Part of the bandwidth that protocol leaves, for example 0.73.")
    ] = None,
    interpret: Annotated[
        Literal["switch", "mesh"] | None,
        Parameter(help="How to read equal links between all gpus, where the reader is wrong."),
    ] = None,
    pcie: Annotated[
        bool | None,
        Parameter(help="Paths over PCIe as links; only where gpus would be cut off, unless given."),
    ] = None,
    gib: Annotated[
        bool, Parameter(help="ASTRA-sim: 1 GB/s is 2**30 bytes/s, as in its old versions.")
    ] = False,
    out: OutOption = None,
    plot: PictureOption = None,
    json: JsonOption = None,
) -> None:
    """Read a topology that another tool printed; say what was read and what was assumed."""
    from ficco_sim.io import to_plain
    from ficco_sim.machine import build_machine
    from ficco_sim.readers import read_topology
    from ficco_sim.topology import describe

    _check_outputs(json, plot, out)
    text, where = _read(file)
    imported = read_topology(
        text,
        where,
        format=format,
        gpu=gpu,
        bandwidth_bytes_per_s=_rate(bandwidth),
        latency_s=_seconds(latency),
        usable_share=usable_share,
        interpret=interpret,
        pcie=pcie,
        gib=gib,
    )
    place = build_machine(imported.file, where)
    told = describe(place)
    document: dict[str, Any] = to_plain(told)
    document |= {
        "format": imported.format,
        "kind": imported.kind if told.kind == "links" else told.kind,
        "facts": to_plain(dict(imported.facts)),
        "assumptions": list(imported.assumptions),
        "warnings": [*imported.warnings, *told.warnings],
    }
    _finish(place, told, document, _import_lines(imported), json, plot, (out, imported.file))


@app.command
def make(
    family: Annotated[
        Literal["full_mesh", "ring", "torus", "hypercube", "switch"],
        Parameter(help="How gpus are joined."),
    ],
    *,
    num_gpus: int | None = None,
    extents: Annotated[
        str | None, Parameter(help="Torus only: gpus along each dimension, for example 4,4.")
    ] = None,
    gpu: Annotated[str, Parameter(help="Gpu type, a file in topologies/gpus.")] = "mi300x",
    bandwidth: Annotated[
        str, Parameter(help="Of each link or port, per direction and second, for example 64GB.")
    ],
    latency: Annotated[str, Parameter(help="Of a link, for example 0.5us or 500ns.")],
    one_way: Annotated[bool, Parameter(help="Ring and torus: links to the next gpu only.")] = False,
    name: Annotated[str | None, Parameter(help="Name of the machine.")] = None,
    out: OutOption = None,
    plot: PictureOption = None,
    json: JsonOption = None,
) -> None:
    """Make a machine of a family.

    Parameters
    ----------
    num_gpus
        How many gpus; a torus takes --extents instead.
    """
    from ficco_sim.io import to_plain
    from ficco_sim.machine import build_machine
    from ficco_sim.topology import describe, make_machine_file

    _check_outputs(json, plot, out)
    rate, latency_s = _rate(bandwidth), _seconds(latency)
    assert rate is not None
    assert latency_s is not None
    file = make_machine_file(
        family,
        gpu=gpu,
        bandwidth_bytes_per_s=rate,
        latency_s=latency_s,
        num_gpus=num_gpus,
        extents=whole_numbers("--extents", extents),
        both_ways=not one_way,
        name=name,
    )
    place = build_machine(file, file.name)
    told = describe(place)
    _finish(place, told, to_plain(told), [], json, plot, (out, file))


def _check_outputs(json: str | None, plot: Path | None, out: Path | None) -> None:
    from ficco_sim.cli.support import check_outputs
    from ficco_sim.io import check_target

    check_outputs(json, None, plot)
    if out is not None:
        if out.suffix not in (".yaml", ".yml"):
            raise ScenarioError(f"--out: {out}: a machine file ends in .yaml")
        check_target(out)


def _finish(
    place: "Machine",
    told: "Description",
    document: dict[str, Any],
    lines: list[str],
    json: str | None,
    plot: Path | None,
    written: "tuple[Path | None, MachineFile] | None",
) -> None:
    """Write and print what was asked for."""
    from ficco_sim.topology.words import summary_lines

    notes = []
    if plot is not None:
        from ficco_sim.topology import draw

        draw(place, plot, told)
        notes.append(f"picture: {plot}")
    if written is not None and written[0] is not None:
        from ficco_sim.io import dump_yaml, write_text

        write_text(written[0], dump_yaml(written[1]))
        notes.append(f"wrote {written[0]}; use it with --machine {written[0]}")
    elif written is not None:
        notes.append("not written; --out FILE.yaml keeps it")
    if write_json(document, json):
        return
    say(console(), [*summary_lines(told), *lines, *notes])


def _import_lines(imported: "Imported") -> list[str]:
    lines = [f"  read as {imported.format}: " + "; ".join(
        f"{key} {value}" for key, value in imported.facts.items()
    )]  # fmt: skip
    lines += [f"  assumed: {text}" for text in imported.assumptions]
    return lines + [f"  warning: {text}" for text in imported.warnings]


def _read(file: str) -> tuple[str, str]:
    from ficco_sim.io import read_text
    from ficco_sim.readers import MAX_TEXT

    if file != "-":
        return read_text(Path(file), 4 * MAX_TEXT), file  # UTF-8 takes up to 4 bytes a character
    try:
        return sys.stdin.read(MAX_TEXT + 1), "standard input"
    except UnicodeDecodeError as error:
        raise ScenarioError(f"standard input: not UTF-8 text (byte {error.start})") from error


def _rate(text: str | None) -> float | None:
    return None if text is None else float(byte_count("--bandwidth", text.removesuffix("/s")))


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = parse_seconds(text)
    except ValueError as error:
        raise ScenarioError(f"--latency: {error}") from error
    if not 0 <= seconds <= 1:
        raise ScenarioError(f"--latency: {text[:40]!r} must be from 0 to 1 s")
    return seconds


def _two_gpus(text: str) -> tuple[int, int]:
    numbers = whole_numbers("--route", text)
    if numbers is None or len(numbers) != 2:
        raise ScenarioError(f"--route: {text[:40]!r} must be two gpus, such as 0,5")
    return numbers[0], numbers[1]

"""Options that several verbs share."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from cyclopts import Parameter

DEFAULT_MACHINE = "mi300x_8"

MachineOption: TypeAlias = Annotated[
    str, Parameter(help="Name of a machine (see: ficco list machines) or a YAML or JSON file.")
]
CostsOption: TypeAlias = Annotated[
    Literal["profile", "ideal"],
    Parameter(help="profile: fitted costs. ideal: only links and dependencies count."),
]
SubmissionOption: TypeAlias = Annotated[
    Literal["graph", "eager"],
    Parameter(help="graph: plans are captured. eager: the host submits task by task."),
]
EngineOption: TypeAlias = Annotated[
    Literal["dma", "core"], Parameter(help="Who moves data: DMA engines or copy kernels.")
]
ClockOption: TypeAlias = Annotated[
    float | None,
    Parameter(
        name="--sm-clock-ghz",
        help="Clock of the compute units, as of a gpu at its power limit. Unless given, GEMMs "
        "take what they took when measured; the machine's GEMM fits must know their clock.",
    ),
]
GatherOption: TypeAlias = Annotated[
    Literal["direct", "copy"],
    Parameter(help="Fused schedules: transfers write to the staging buffer, or a copy does."),
]
IntervalsOption: TypeAlias = Annotated[
    bool, Parameter(help="Simulate again with draws of what is not known of the costs.")
]
TraceOption: TypeAlias = Annotated[
    Path | None,
    Parameter(
        help="Write a trace to open in ui.perfetto.dev: Chrome's format, compressed if the name ends "
        "in .gz, or Perfetto's own if it ends in .pftrace."
    ),
]
PlotOption: TypeAlias = Annotated[
    Path | None, Parameter(help="Draw the timeline to a .png, .svg or .pdf file.")
]

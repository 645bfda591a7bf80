"""Options that several verbs share."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from cyclopts import Parameter

DEFAULT_MACHINE = "mi300x_8"

MachineOption: TypeAlias = Annotated[
    str, Parameter(help="Name of a machine (see: ficco list machines) or a YAML or JSON file.")
]
WorkloadOption: TypeAlias = Annotated[
    str | None,
    Parameter(help="Name of a workload (see: ficco list workloads) or a YAML or JSON file with one."),
]
GemmOption: TypeAlias = Annotated[
    str | None, Parameter(help="Shape M,N,K instead of a workload: gathered rows, local columns, k.")
]
DtypeOption: TypeAlias = Annotated[
    str, Parameter(help="Element type for --gemm: bf16, fp16, fp8 or fp32.")
]
SkewOption: TypeAlias = Annotated[
    float | None,
    Parameter(help="All-to-all: gpu g draws a share of the tokens in proportion to (g+1)^-skew."),
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
GatherOption: TypeAlias = Annotated[
    Literal["direct", "copy"],
    Parameter(help="Fused schedules: transfers write to the staging buffer, or a copy does."),
]
JsonOption: TypeAlias = Annotated[
    str | None,
    Parameter(
        help="Write the result as JSON to a file, or to the standard output with -.",
        allow_leading_hyphen=True,
    ),
]
TraceOption: TypeAlias = Annotated[
    Path | None, Parameter(help="Write a Chrome trace, to open in ui.perfetto.dev.")
]
PlotOption: TypeAlias = Annotated[
    Path | None, Parameter(help="Draw the timeline to a .png, .svg or .pdf file.")
]

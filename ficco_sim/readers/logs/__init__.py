"""Readers of logs of measurements: from text to points that cost models can be calibrated with."""

from collections.abc import Callable, Mapping
from typing import get_args

from ficco_sim.errors import FileError
from ficco_sim.readers.logs.fit import AlphaBeta, fit_alpha_beta, fit_line
from ficco_sim.readers.logs.gemm_csv import is_gemm_csv, read_gemm_csv
from ficco_sim.readers.logs.hipblaslt_bench import is_hipblaslt_bench, read_hipblaslt_bench
from ficco_sim.readers.logs.nccl_table import is_nccl_tests
from ficco_sim.readers.logs.nccl_tests import read_nccl_tests
from ficco_sim.readers.logs.nvbandwidth import is_nvbandwidth, read_nvbandwidth
from ficco_sim.readers.logs.rocm_bandwidth import is_rocm_bandwidth, read_rocm_bandwidth
from ficco_sim.readers.logs.torch_trace import is_torch_trace, read_torch_trace
from ficco_sim.readers.logs.types import (
    CollectivePoint,
    CopyPoint,
    GemmPoint,
    Log,
    LogFormat,
    OverlapPart,
    Refused,
    TraceOverlap,
)

__all__ = [
    "LOG_FORMATS",
    "AlphaBeta",
    "CollectivePoint",
    "CopyPoint",
    "GemmPoint",
    "Log",
    "LogFormat",
    "OverlapPart",
    "Refused",
    "TraceOverlap",
    "detect_log_format",
    "fit_alpha_beta",
    "fit_line",
    "read_log",
]

LOG_FORMATS: tuple[LogFormat, ...] = get_args(LogFormat)
MAX_TRACE = 256 * 2**20  # characters
MAX_TEXT = 32 * 2**20

# in the order of detection: the surest sign first
DETECTORS: dict[LogFormat, Callable[[str], bool]] = {
    "torch_trace": is_torch_trace,
    "nvbandwidth": is_nvbandwidth,
    "rocm_bandwidth": is_rocm_bandwidth,
    "nccl_tests": is_nccl_tests,
    "hipblaslt_bench": is_hipblaslt_bench,
    "gemm_csv": is_gemm_csv,
}


def detect_log_format(text: str, where: str) -> LogFormat:
    """The format that a text looks like.

    Raises
    ------
    FileError
        If it looks like none.
    """
    if len(text) > MAX_TEXT and not is_torch_trace(text):
        raise FileError(f"{where}: {len(text):,} characters; at most {MAX_TEXT:,} are read")
    for name, fits in DETECTORS.items():
        if fits(text):
            return name
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    raise FileError(
        f"{where}: looks like none of the formats {', '.join(LOG_FORMATS)}; it begins with "
        f"{first[:60]!r}"
    )


def read_log(
    text: str,
    where: str,
    *,
    format: LogFormat | None = None,  # noqa: A002 - the word for it
    peak_flops_per_s: Mapping[str, float] | None = None,
) -> Log:
    """Read measured points from a log in any of the known formats.

    Parameters
    ----------
    text
        What a tool printed, or a file holds.
    where
        The file's name; it opens every error message.
    format
        One of `LOG_FORMATS`; found by the content unless given.
    peak_flops_per_s
        Of the gpu, by dtype: faster GEMMs are refused. Without it those that no gpu reaches.

    Raises
    ------
    FileError
        Naming file, line, value and rule.
    """
    text = text.removeprefix("\ufeff")  # a mark that Windows puts before UTF-8
    if format is not None and format not in LOG_FORMATS:
        raise FileError(f"{where}: format {format!r} is unknown; one of: {', '.join(LOG_FORMATS)}")
    most = MAX_TRACE if format in (None, "torch_trace") else MAX_TEXT
    if len(text) > most:
        raise FileError(f"{where}: {len(text):,} characters; at most {most:,} are read")
    chosen = format or detect_log_format(text, where)
    if chosen == "nccl_tests":
        return read_nccl_tests(text, where)
    if chosen == "nvbandwidth":
        return read_nvbandwidth(text, where)
    if chosen == "rocm_bandwidth":
        return read_rocm_bandwidth(text, where)
    if chosen == "hipblaslt_bench":
        return read_hipblaslt_bench(text, where, peak_flops_per_s=peak_flops_per_s)
    if chosen == "gemm_csv":
        return read_gemm_csv(text, where, peak_flops_per_s=peak_flops_per_s)
    return read_torch_trace(text, where, peak_flops_per_s=peak_flops_per_s)

"""Layer: readers. Any text gives a log of sound numbers or one clear error, and quickly."""

import contextlib
import dataclasses
import math
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reader_support import case_text

from ficco_sim.errors import FileError
from ficco_sim.io import dump_json
from ficco_sim.readers.logs import LOG_FORMATS, fit_alpha_beta, read_log

CASES = {
    **dict.fromkeys(("B22", "B23", "B25", "B26", "B27", "B28", "B29"), "nccl_tests"),
    "B30": "nvbandwidth",
    **dict.fromkeys(("B60", "B61"), "rocm_bandwidth"),
    "B32": "hipblaslt_bench",
    **dict.fromkeys(("B33", "B35", "B51"), "torch_trace"),
    **dict.fromkeys(("B46", "B47"), "gemm_csv"),
}
JSON = dump_json(
    {
        "nvbandwidth": {
            "testcases": [
                {
                    "name": "device_to_device_memcpy_read_ce",
                    "status": "Passed",
                    "bandwidth_description": "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)",
                    "bandwidth_matrix": [["N/A", "26.3"], ["26.4", "N/A"]],
                    "sum": 52.7,
                }
            ]
        }
    }
)
TEXTS = {
    **{case: (name, case_text(case)) for case, name in CASES.items()},
    "json": ("nvbandwidth", JSON),
}
FUZZ = settings(max_examples=settings().max_examples // 4, suppress_health_check=[HealthCheck.too_slow])
PIECES = """
0 -1 1e999 nan inf N/A 1e-05 99999999999999999999999999 1_000 # #wrong size count time busbw (us) (GB/s)
"traceEvents": [ ] { } "ts" "dur" null true , : m,n,k,dtype,time_us transA,transB us float bf16 none
Running SUM Waiving Rank 0 Group Pid on device D/D KB MB Device: Gpu ==== Benchmark Result
"""
WORDS = st.sampled_from([*PIECES.split(), "\n", "\t", "\x00", "\x1b[4m", "\ud7ff", '"', "\u0661"])


def numbers(value):
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from numbers(getattr(value, field.name))
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from numbers(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from numbers(item)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield value


def read(text: str, name: str | None = None):
    log = read_log(text, "file", format=name)
    assert all(math.isfinite(number) and number >= 0 for number in numbers(log))
    for point in log.points:
        assert point.line >= 1
    if log.format == "nccl_tests":
        with contextlib.suppress(FileError):
            fit = fit_alpha_beta(log.points)
            assert fit.latency_s >= 0
            assert 0 < fit.bytes_per_s < math.inf
    return log


@FUZZ
@given(
    text=st.one_of(st.text(max_size=300), st.lists(WORDS, max_size=60).map(" ".join)),
    name=st.sampled_from([None, *LOG_FORMATS]),
)
def test_any_text_gives_a_log_or_an_error(text, name):
    with contextlib.suppress(FileError):
        read(text, name)


@pytest.mark.parametrize("case", TEXTS)
@FUZZ
@given(data=st.data())
def test_a_truncated_file_gives_no_other_numbers(case, data):
    name, text = TEXTS[case]
    end = data.draw(st.integers(0, len(text)))
    with contextlib.suppress(FileError):
        read(text[:end], data.draw(st.sampled_from([None, name])))


@pytest.mark.parametrize(
    "case",
    [case for case in TEXTS if CASES.get(case) in ("nccl_tests", "nvbandwidth", "rocm_bandwidth")],
)
def test_a_row_cut_off_anywhere_is_right_or_absent(case):
    """No collective or copy has a number that the whole file does not have."""
    name, text = TEXTS[case]
    try:
        whole = {
            dataclasses.replace(p, collective="") if name == "nccl_tests" else p
            for p in read(text).points
        }
    except FileError:
        whole = set()
    for end in range(0, len(text), 3):
        with contextlib.suppress(FileError):
            for point in read(text[:end], name).points:
                known = dataclasses.replace(point, collective="") if name == "nccl_tests" else point
                assert known in whole


@pytest.mark.parametrize("case", TEXTS)
def test_each_line_missing_on_its_own(case):
    name, text = TEXTS[case]
    lines = text.splitlines(keepends=True)
    for i in range(len(lines)):
        with contextlib.suppress(FileError):
            read("".join(lines[:i] + lines[i + 1 :]), name)


@pytest.mark.parametrize("case", TEXTS)
@FUZZ
@given(data=st.data())
def test_a_file_with_lines_gone_or_moved(case, data):
    name, text = TEXTS[case]
    lines = text.splitlines(keepends=True)
    chosen = data.draw(st.lists(st.sampled_from(lines), max_size=len(lines)))
    with contextlib.suppress(FileError):
        read("".join(chosen), data.draw(st.sampled_from([None, name])))


@pytest.mark.parametrize("case", TEXTS)
@FUZZ
@given(data=st.data())
def test_a_damaged_file_gives_a_log_or_an_error(case, data):
    name, text = TEXTS[case]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        until = at + data.draw(st.integers(0, 12))
        new = data.draw(st.one_of(st.text(max_size=8), WORDS))
        text = text[:at] + new + text[until:]
    with contextlib.suppress(FileError):
        read(text, data.draw(st.sampled_from([None, name])))


@pytest.mark.parametrize("case", TEXTS)
def test_formats_are_found_by_content(case):
    name, text = TEXTS[case]
    with contextlib.suppress(FileError):
        assert read(text).format == name
        assert read("\ufeff" + text.replace("\n", "\r\n")).points == read(text).points


def test_an_error_names_the_formats():
    with pytest.raises(
        FileError, match=r"notes.txt: looks like none .*nccl_tests.* begins with 'hello'"
    ):
        read_log("\nhello\n", "notes.txt")


SIZE = 200_000
HEAD = case_text("B22").split("     1048576")[0]
LONG = {
    "blank": ("nccl_tests", "\n" * SIZE),
    "spaces": ("nvbandwidth", " " * SIZE + "x"),
    "colours": ("gemm_csv", "\x1b[" * SIZE),
    "sections": ("nccl_tests", "# nThread\n# Using devices\n" * (SIZE // 10)),
    "ranks": (
        "nccl_tests",
        "".join(f"#  Rank {r} Pid 1 on a device 0 [0] x\n" for r in range(SIZE // 10)),
    ),
    "words": ("nccl_tests", HEAD + "1 1 " + "1 " * SIZE),
    "rows": ("nccl_tests", HEAD + "1 1 float none -1 1 1 1 0 1 1 1 0\n" * (SIZE // 10)),
    "labels": ("nccl_tests", "a_" * SIZE + "_perf"),
    "columns": (
        "nccl_tests",
        "# out-of-place\n# size count " + "time algbw busbw #wrong " * (SIZE // 10),
    ),
    "matrix": (
        "nvbandwidth",
        "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n" + " ".join(map(str, range(SIZE))),
    ),
    "titles": ("nvbandwidth", "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n" * (SIZE // 10)),
    "banners": ("rocm_bandwidth", "=" * SIZE + " Benchmark Result\n" + "= " * SIZE),
    "devices": (
        "rocm_bandwidth",
        "Device: 1,  x, y" * (SIZE // 20) + "\nDevice: 2,  x\n" * (SIZE // 20),
    ),
    "square": (
        "rocm_bandwidth",
        "Unidirectional copy peak bandwidth GB/s\nD/D "
        + " ".join(map(str, range(SIZE // 4)))
        + "\n1 2\n" * SIZE,
    ),
    "header": ("hipblaslt_bench", "transA,transB," + "x," * SIZE),
    "commas": ("gemm_csv", "m,n,k," + "," * SIZE),
    "quotes": ("gemm_csv", 'm,n,k,dtype,us\n"' + '""' * SIZE),
    "same": ("gemm_csv", "m,n,k,dtype,us\n" + "8192,8192,8192,bf16,2000\n" * (SIZE // 4)),
    "shapes": (
        "gemm_csv",
        "m,n,k,dtype,us\n"
        + "".join(f"{4096 + i},4096,4096,bf16,{300 + i}\n" for i in range(SIZE // 10)),
    ),
    "brackets": ("torch_trace", '{"traceEvents":' + "[" * SIZE),
    "text": ("torch_trace", '{"traceEvents": ["' + "a" * SIZE),
    "gpus": (
        "torch_trace",
        '{"traceEvents": ['
        + ",".join(
            f'{{"cat": "kernel", "name": "a", "pid": {i}, "ts": {i}, "dur": 1}}'
            for i in range(SIZE // 10)
        )
        + "]}",
    ),
}


@pytest.mark.parametrize("kind", LONG)
def test_long_text_takes_no_long_time(kind):
    name, text = LONG[kind]
    start_s = time.process_time()
    with contextlib.suppress(FileError):
        read(text, name)
    assert time.process_time() - start_s < 4

"""Layer: readers. Chrome traces of torch.profiler as public reports have them, and variations."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reader_support import case_text

from ficco_sim.errors import FileError
from ficco_sim.readers.logs import read_log
from ficco_sim.readers.logs.intervals import Cover
from ficco_sim.readers.logs.torch_trace import classify


def kernel(name: str, start, duration, *, cat="kernel", gpu=0, **args):
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": gpu,
        "tid": 7,
        "ts": start,
        "dur": duration,
        "args": {"device": gpu, "stream": 7, **args},
    }


def copy(start, duration, name="Memcpy PtoP (Device -> Device)", **more):
    return kernel(name, start, duration, cat="gpu_memcpy", **more)


def call(name: str, dims, kind="c10::BFloat16", external=1):
    args = {"External id": external, "Input Dims": dims, "Input type": [kind] * len(dims)}
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 9, "ts": 1, "dur": 2, "args": args}


def read(*events, **options):
    return read_log(json.dumps({"traceEvents": list(events)}), "trace.json", **options)


def test_b33_waiting_is_not_compute():
    log = read_log(case_text("B33"), "b33.json")
    assert log.format == "torch_trace"
    (gpu,) = log.overlaps
    assert gpu.compute_s == pytest.approx(800e-6)
    assert gpu.comm_s == pytest.approx(500e-6)
    assert gpu.overlap_s == pytest.approx(300e-6)
    assert gpu.overlap_s / gpu.comm_s == pytest.approx(0.6)
    parts = {(p.kind, p.engine): (p.count, p.busy_s, p.overlap_s) for p in gpu.parts}
    assert parts["copy", "dma"] == pytest.approx((2, 300e-6, 250e-6))
    assert parts["all_gather", "core"] == pytest.approx((1, 200e-6, 50e-6))
    assert len(log.copies()) == 2  # not the one within the gpu
    assert log.warnings == ()


def test_b35_cut_off():
    log = read_log(case_text("B35"), "b35.json")
    assert log.facts["num_events"] == 2
    assert any("line 36" in text and "cut off" in text for text in log.warnings)
    (gpu,) = log.overlaps
    assert gpu.compute_s == pytest.approx(400.5e-6)  # whatever displayTimeUnit says
    (point,) = log.copies()
    assert point.nbytes == 15_000_000
    assert point.bytes_per_s == pytest.approx(50e9)
    assert point.overlap_s == pytest.approx(200.75e-6)  # ts is the text "1000.250"


def test_b51_copies_on_compute_units():
    log = read_log(case_text("B51"), "b51.json")
    (gpu,) = log.overlaps
    assert gpu.compute_s == pytest.approx(1000e-6)
    found = [(p.engine, p.time_s, p.overlap_s) for p in log.copies()]
    assert found == [
        ("core", pytest.approx(400e-6), pytest.approx(400e-6)),
        ("core", pytest.approx(200e-6), pytest.approx(100e-6)),
        ("dma", pytest.approx(300e-6), 0),
    ]
    assert log.copies()[2].nbytes == 19_200_000
    assert log.copies()[2].bytes_per_s == pytest.approx(64e9)
    assert any("2 of 3 copies" in text and "DMA" in text for text in log.warnings)


def test_display_unit_and_time_as_text_change_nothing():
    events = json.loads(case_text("B33"))["traceEvents"]
    right = read(*events).overlaps
    for unit in ("ms", "ns"):
        as_text = [{**e, "ts": f"{e['ts']}.000"} if "ts" in e else e for e in events]
        text = json.dumps({"displayTimeUnit": unit, "traceEvents": as_text})
        assert read_log(text, "a").overlaps == right
    assert read_log(json.dumps(events), "a").overlaps == right  # a bare list


def test_times_since_1970_keep_their_nanoseconds():
    log = read(
        kernel("gemm", "1700000000000000.123", "10.001"),
        copy("1700000000000005.123", "10.002", bytes=1),
    )
    assert log.overlaps[0].overlap_s == pytest.approx(5.001e-6, rel=1e-12)
    text = (
        '{"traceEvents": [{"ph":"X","cat":"kernel","name":"a","ts":1700000000000000.125,"dur":1.25e1}]}'
    )
    assert read_log(text, "a").overlaps[0].compute_s == pytest.approx(12.5e-6, rel=1e-12)


@pytest.mark.parametrize(
    ("category", "name", "expected"),
    [
        ("kernel", "ncclKernel_AllReduce_RING_LL_Sum_half", ("collective", "all_reduce", "core")),
        ("kernel", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", None),
        ("kernel", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", None),
        (
            "Kernel",
            "void vllm::cross_device_reduce_2stage<__half, 8>",
            ("collective", "all_reduce", "core"),
        ),
        ("kernel", "mscclpp::allgather6", ("collective", "all_gather", "core")),
        ("kernel", "nvjet_hsh_256x128", ("compute", "compute", "core")),
        ("gpu_memcpy", "Memcpy PtoP (Device -> Device)", ("copy", "copy", "dma")),
        ("kernel", "__amd_rocclr_copyBufferRect", ("copy", "copy", "core")),
    ],
)
def test_names(category, name, expected):
    work = classify(category, name)
    assert work is not None
    if expected is None:
        assert work.kind == "collective"
    else:
        assert (work.kind, work.name, work.engine) == expected


@pytest.mark.parametrize(
    ("category", "name"),
    [
        ("cuda_sync", "Context Sync"),
        ("cuda_runtime", "cudaMemcpyAsync"),
        ("gpu_user_annotation", "nccl:all_reduce"),
        ("user_annotation", "Memcpy PtoP"),
        ("gpu_memset", "Memset (Device)"),
        ("kernel", "__amd_rocclr_fillBufferAligned"),
    ],
)
def test_what_is_no_work(category, name):
    assert classify(category, name) is None


@pytest.mark.parametrize(
    "name",
    [
        "Memcpy HtoD (Pinned -> Device)",
        "Memcpy DtoH (Device -> Pageable)",
        "Memcpy DtoD (Device -> Device)",
    ],
)
def test_copies_with_the_host_or_within_a_gpu_are_no_communication(name):
    log = read(kernel("gemm", 0, 10), copy(0, 5, name))
    assert log.overlaps[0].comm_s == 0
    assert log.points == ()


def test_the_ends_of_a_copy_win_over_its_name():
    ends = {"fromDevice": 0, "inDevice": 0, "toDevice": 3, "bytes": 1000}
    (point,) = read(copy(0, 5, "Memcpy DtoD (Device -> Device)", **ends)).copies()
    assert (point.src, point.dst, point.nbytes) == (0, 3, 1000)
    assert read(kernel("a", 0, 1), copy(0, 5, **{**ends, "toDevice": 0})).copies() == ()


def test_each_gpu_overlaps_with_itself_only():
    log = read(kernel("gemm", 0, 100), copy(0, 50, gpu=1), kernel("gemm", 40, 20, gpu=1))
    assert [(g.gpu, g.overlap_s) for g in log.overlaps] == [("0", 0), ("1", pytest.approx(10e-6))]


def test_gpus_of_merged_traces_are_told_apart():
    events = [{**kernel("gemm", 0, 100), "pid": pid} for pid in ("rank 0", "rank 1")]
    assert [g.gpu for g in read(*events).overlaps] == [
        "process rank 0, device 0",
        "process rank 1, device 0",
    ]


@pytest.mark.parametrize(
    ("name", "dims", "expected"),
    [
        ("aten::mm", [[4096, 1024], [1024, 2048]], (4096, 2048, 1024, 1, False)),
        ("aten::addmm", [[2048], [4096, 1024], [1024, 2048], [], []], (4096, 2048, 1024, 1, False)),
        ("aten::addmm", [[4096, 2048], [4096, 1024], [1024, 2048]], (4096, 2048, 1024, 1, True)),
        ("aten::bmm", [[8, 512, 128], [8, 128, 256]], (512, 256, 128, 8, False)),
    ],
)
def test_gemms_whose_shapes_are_recorded(name, dims, expected):
    log = read(
        call(name, dims),
        kernel("nvjet", 10, 90, **{"External id": 1}),
        kernel("splitKreduce", 100, 10, **{"External id": 1}),
        kernel("other", 200, 10, **{"External id": 2}),
        copy(50, 10),
    )
    (point,) = log.gemms()
    assert (point.m, point.n, point.k, point.batch, point.accumulate) == expected
    assert point.time_s == pytest.approx(100e-6)
    assert point.overlap_s == pytest.approx(10e-6)
    assert point.dtype == "bf16"


@pytest.mark.parametrize(
    "bad",
    [
        call("aten::mm", [[4096, 1024], [512, 2048]]),
        call("aten::mm", [[4096, 1024]]),
        call("aten::mm", [[4096, -1], [-1, 2048]]),
        call("aten::mm", [[4096, 1024], [1024, 2048]], kind="long int"),
        call("aten::mm", "[[4096, 1024], [1024, 2048]]"),
        call("aten::add", [[4096, 1024], [1024, 2048]]),
    ],
)
def test_calls_that_tell_no_gemm(bad):
    assert read(bad, kernel("nvjet", 10, 90, **{"External id": 1})).gemms() == ()


def test_ids_that_occur_twice_tell_nothing():
    gemm = call("aten::mm", [[4096, 1024], [1024, 2048]])
    other = call("aten::add", [[4]])
    assert read(gemm, other, kernel("nvjet", 10, 90, **{"External id": 1})).gemms() == ()


def test_a_gemm_above_the_peak_is_refused():
    log = read(
        call("aten::mm", [[4096, 4096], [4096, 4096]]),
        kernel("nvjet", 10, 90, **{"External id": 1}),
        peak_flops_per_s={"bf16": 989e12},
    )
    assert log.gemms() == ()
    assert "above the gpu's peak" in log.refused[0].reason


@pytest.mark.parametrize(
    ("start", "duration"),
    [("x", 1), (1, "x"), (None, 1), (1, None), (1, -1), (True, 1), ("nan", 1), (1, "inf"), (1, 10**13)],
)
def test_events_without_times_are_refused(start, duration):
    log = read(kernel("gemm", 0, 10), kernel("bad", start, duration))
    assert log.overlaps[0].compute_s == pytest.approx(10e-6)
    assert "'bad'" in log.refused[0].reason
    assert log.num_refused == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"traceEvents": [\n{"ph": "X", "name": "a"b"},\n{"ph": "M"}]}',
            "line 2: not JSON of a trace",
        ),
        ('{"traceEvents": {}}', "must be one list"),
        ('{"traceEvents": [], "traceEvents": []}', "must be one list"),
        ('{"a": "\\"traceEvents\\""}', "no list traceEvents"),
        ('{"traceEvents": []} x', "nothing may follow"),
        ('{"traceEvents": []', "no complete event"),
        ('{"traceEvents": [1, 2, {}]}', "none of 1 events is a kernel"),
        ('{"traceEvents": [' + "[" * 10**5, "nested too deeply"),
        ('{"traceEvents": [' + "1" * 10**4 + "]}" + " " * 9 + "x", "line 1: not JSON"),
    ],
)
def test_damaged_files_are_errors(text, message):
    with pytest.raises(FileError, match=f"a.json: .*{message}"):
        read_log(text, "a.json", format="torch_trace")


def test_a_cut_anywhere_gives_the_events_before_it():
    text = json.dumps({"traceEvents": [kernel("gemm", 100 * i, 50) for i in range(3)], "end": 1})
    for end in range(len(text) - 1):
        try:
            log = read_log(text[:end], "a", format="torch_trace")
        except FileError:
            continue
        assert log.overlaps[0].compute_s == pytest.approx(50e-6 * log.facts["num_events"])
        assert any("cut off" in warning for warning in log.warnings)


spans = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)).map(lambda s: (s[0], s[0] + s[1])))


@given(first=spans, second=spans)
def test_covers_are_sets_of_moments(first, second):
    def moments(intervals):
        return {t for start, end in intervals for t in range(start, end)}

    a, b = Cover(first), Cover(second)
    assert a.length == len(moments(first))
    assert a.overlap(b) == b.overlap(a) == len(moments(first) & moments(second))
    assert a.common(10, 30) == len(moments(first) & set(range(10, 30)))


def test_large_traces_take_time_in_proportion():
    def seconds(count: int) -> float:
        text = json.dumps({"traceEvents": [kernel("gemm", 2 * i, 1) for i in range(count)]}, indent=1)
        start_s = time.process_time()
        read_log(text, "a")
        return time.process_time() - start_s

    seconds(100)
    assert seconds(40_000) < 12 * seconds(10_000) + 0.1

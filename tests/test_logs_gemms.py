"""Layer: readers. Timed GEMMs of hipblaslt-bench and of CSV files, and those that cannot be true."""

import pytest
from reader_support import case_text

from ficco_sim.errors import FileError
from ficco_sim.readers.logs import read_log


def read_csv(text: str, **options):
    return read_log(text, "gemms.csv", format="gemm_csv", **options)


def timed(
    flops_per_s: float, *shapes: tuple[int, int, int], header: str = "m,n,k,dtype,time_us"
) -> str:
    rows = [f"{m},{n},{k},bf16,{2e6 * m * n * k / flops_per_s:.3f}" for m, n, k in shapes]
    return "\n".join([header, *rows, ""])


CUBES = tuple((2**p, 2**p, 2**p) for p in range(10, 15))


def test_b32_three_records_by_name():
    log = read_log(case_text("B32"), "b32.txt")
    assert log.format == "hipblaslt_bench"
    assert log.refused == ()
    found = [(p.dtype, p.m, p.n, p.k, p.op, p.line) for p in log.gemms()]
    assert found == [
        ("fp32", 4096, 4096, 4096, "NN", 12),
        ("bf16", 7168, 4096, 18432, "NN", 17),
        ("fp8", 4096, 65536, 14336, "TN", 21),
    ]
    assert [p.time_s for p in log.gemms()] == pytest.approx([1021.7e-6, 1602.4e-6, 7400.5e-6])
    rates = [p.flops / p.time_s / 1e9 for p in log.gemms()]
    assert rates == pytest.approx([134_520, 675_444, 1.0400e6], rel=1e-3)
    assert [p.clock_hz for p in log.gemms()] == [None, 1211e6, None]
    assert any("init unknown" in text for text in log.warnings)
    assert log.facts["gpu"].startswith("AMD Instinct MI300X")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (",1602.4 ", ",160.4 ", "not 2 m n k"),
        (",675444,", ",575444,", "not 2 m n k"),
        (",7168,4096,18432,", ",7168,4096,8432,", "not 2 m n k"),
        (",1602.4 ", "", "37 values under 38 columns"),
        (",1602.4 ", ",-1602.4", "must be a number above 0"),
        (",675444,", ",nan,", "must be a number"),
        ("N,N,0,1,7168,", "N,N,0,1,0,", "m '0' must be"),
        ("N,N,0,1,7168,", "N,N,1,1,7168,", "grouped"),
        ("bf16_r,bf16_r,bf16_r,bf16_r,f32_r", "i8_r,i8_r,i32_r,i32_r,i32_r", "no element type"),
        ("bf16_r,bf16_r,bf16_r,bf16_r,f32_r", "f32_r,f32_r,f32_r,f32_r,xf32_r", "another type"),
    ],
)
def test_damaged_records_are_refused(old, new, message):
    text = case_text("B32")
    assert old in text
    log = read_log(text.replace(old, new), "b32.txt")
    assert [p.line for p in log.gemms()] == [12, 21]
    assert [r.line for r in log.refused] == [17]
    assert message in log.refused[0].reason


def test_records_above_the_gpus_peak_are_refused():
    log = read_log(case_text("B32"), "b32.txt", peak_flops_per_s={"bf16": 600e12})
    assert [p.line for p in log.gemms()] == [12, 21]
    assert "above the gpu's peak (600)" in log.refused[0].reason


def test_beta_and_batches():
    header = "[0]:transA,transB,grouped_gemm,batch_count,m,n,k,beta,a_type,b_type,hipblaslt-Gflops,us\n"
    row = "    N,T,0,8,1024,512,2048,1,f16_r,f16_r,171799,100\n"
    (point,) = read_log(header + row, "a").gemms()
    assert (point.batch, point.accumulate, point.dtype, point.op) == (8, True, "fp16", "NT")
    assert point.flops == 8 * 2 * 1024 * 512 * 2048


def test_columns_in_another_order():
    text = "us,transB,n,k,m,b_type,a_type,transA\n10,N,128,256,512,bf16_r,bf16_r,N\n"
    (point,) = read_log(text, "a").gemms()
    assert (point.m, point.n, point.k, point.time_s) == (512, 128, 256, pytest.approx(10e-6))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("transA,transB,m,n,k\n", "line 1: no column us"),
        ("transA,transB,m,n,k,us,us\n", "line 1: column 'us' twice"),
        ("N,N,1,1,1,1,1,1,1\n", "line 1: a record without a header"),
        ("\n", "no header"),
    ],
)
def test_headers_must_be_sure(text, message):
    with pytest.raises(FileError, match=f"a.txt: {message}"):
        read_log(text, "a.txt", format="hipblaslt_bench")


def test_b46_zeros_and_randn_are_two_populations():
    log = read_log(case_text("B46"), "b46.csv")
    assert log.format == "gemm_csv"
    (point,) = log.gemms()
    assert (point.init, point.count, point.line) == ("randn", 3, 5)
    assert point.time_s == pytest.approx(4278.3e-6)
    (told,) = log.facts["populations"]
    assert told["median_s"] == pytest.approx({"zeros": 3727.2e-6, "randn": 4278.3e-6})
    assert told["flops_per_s"]["zeros"] == pytest.approx(295e12, rel=1e-3)
    assert told["flops_per_s"]["randn"] == pytest.approx(257e12, rel=1e-3)
    assert told["ratio"] == pytest.approx(1.148, abs=1e-3)
    assert any("only timings of randn matrices are used, not of zeros" in text for text in log.warnings)
    assert [r.line for r in log.refused] == [2, 3, 4]


def test_timings_of_several_gpus_are_not_one_gpus():
    text = "m,n,k,dtype,time_us,gpu\n" + "".join(
        f"{512 * i},512,512,bf16,{9 + i},{gpu}\n" for i, gpu in enumerate(("A100", "A100", "MI210"), 1)
    )
    with pytest.raises(FileError) as caught:
        read_csv(text)
    assert str(caught.value) == (
        "gemms.csv: line 4: column gpu: timings of 'MI210' after those of 'A100' in line 2; a file "
        "must be of one gpu"
    )
    assert len(read_csv(text.replace("MI210", "A100")).gemms()) == 3


def test_b46_without_init_warns():
    lines = [line.split(",") for line in case_text("B46").splitlines()]
    text = "\n".join(",".join(cells[:4] + cells[5:]) for cells in lines) + "\n"
    log = read_csv(text)
    assert any("6 of 6 timings do not tell" in warning for warning in log.warnings)
    assert log.gemms()[0].init is None


@pytest.mark.parametrize(
    ("inits", "kept"),
    [
        (("zeros", "randn"), {"randn"}),
        (("zeros", "uniform"), {"uniform"}),
        (("normal", "uniform"), {"randn"}),
        (("", "randn"), {"randn"}),
        (("zeros", "zeros"), {"zeros"}),
        (("uniform", "hpl"), {"uniform", "hpl"}),
        (("unknown", "nan"), {None}),
    ],
)
def test_populations(inits, kept):
    rows = "".join(f"4096,4096,4096,bf16,{init},{400 + i}\n" for i, init in enumerate(inits))
    log = read_csv("m,n,k,dtype,init,time_us\n" + rows)
    assert {point.init for point in log.gemms()} == kept
    if "randn" not in kept:
        assert log.warnings


def test_b47_not_synchronised():
    log = read_log(case_text("B47"), "b47.csv")
    assert log.points == ()
    assert [r.line for r in log.refused] == [2, 3, 4, 5]
    for refused, rate in zip(log.refused[1:], ("11,359", "91,626", "715,130"), strict=True):
        assert f"{rate} TFLOP/s is above" in refused.reason
    assert "182 TFLOP/s is suspicious" in log.refused[0].reason
    assert any("no calibration" in text for text in log.warnings)


def test_honest_times_are_kept():
    log = read_csv(timed(700e12, *CUBES))
    assert len(log.points) == len(CUBES)
    assert log.refused == ()


def test_one_wrong_time_does_not_spoil_the_others():
    text = timed(700e12, *CUBES, *((2 * m, n, k) for m, n, k in CUBES))
    for wrong in ("16384,16384,16384,bf16,12", "1152,1024,1024,bf16,9000"):
        log = read_csv(f"{text}{wrong}\n")
        assert [r.line for r in log.refused] == [2 * len(CUBES) + 2]


def test_times_need_not_grow_where_reading_the_matrix_takes_them():
    rows = "".join(f"{m},8192,8192,bf16,{40 + m / 50:.2f}\n" for m in (1, 2, 4, 8, 16, 32, 64))
    log = read_csv("m,n,k,dtype,time_us\n" + rows)
    assert len(log.points) == 7
    assert log.refused == ()


def test_the_peak_of_the_gpu():
    text = timed(900e12, *CUBES)
    assert read_csv(text, peak_flops_per_s={"bf16": 989e12}).refused == ()
    log = read_csv(text, peak_flops_per_s={"bf16": 312e12})
    assert len(log.refused) == len(CUBES)
    assert "above the gpu's peak (312)" in log.refused[0].reason


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("time_us", 1e-6),
        ("us", 1e-6),
        ("Time (us)", 1e-6),
        ("time[ms]", 1e-3),
        ("latency_ms", 1e-3),
        ("duration_ns", 1e-9),
        ("median_us", 1e-6),
        ("avg_time_ms", 1e-3),
        ("kernel_time_us", 1e-6),
        ("time_s", 1.0),
        ("seconds", 1.0),
        ("time_\u00b5s", 1e-6),
        ("time_\u03bcs", 1e-6),
    ],
)
def test_units_of_time(name, seconds):
    text = f"M,N,K,dtype,{name}\n4096,4096,4096,bfloat16,{250e-6 / seconds!r}\n"
    (point,) = read_csv(text).gemms()
    assert point.time_s == pytest.approx(250e-6)
    assert point.dtype == "bf16"


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("m,n,k,dtype,time", "'time' tells no unit"),
        ("m,n,k,dtype,flops", "no column of time"),
        ("m,n,k,dtype,time_us,min_time_ms,latency_ms", "are all times"),
        ("m,n,k,time_us", "no column dtype"),
        ("m,n,m,k,dtype,time_us", "column 'm' twice"),
    ],
)
def test_columns_must_be_sure(header, message):
    with pytest.raises(FileError, match=f"gemms.csv: line 1: .*{message}"):
        read_csv(header + "\n")


def test_other_column_orders_delimiters_and_ends():
    right = read_csv(timed(700e12, *CUBES)).points
    rows = [line.split(",") for line in timed(700e12, *CUBES).splitlines()]
    for delimiter, end in ((";", "\r\n"), ("\t", "\n"), (",", "\r\n")):
        lines = [delimiter.join(cells[::-1]) for cells in rows]
        assert read_log("\ufeff" + end.join([*lines, ""]), "a.csv").points == right


def test_tables_behind_each_other_and_comments():
    text = "# measured today\n" + timed(700e12, *CUBES) + "\n" + timed(700e12, *CUBES)
    log = read_csv(text)
    assert log.refused == ()
    assert [point.count for point in log.gemms()] == [2] * len(CUBES)


def test_timings_of_a_shape_become_their_median():
    rows = "".join(
        f"4096,4096,4096,bf16,{i},{time}\n" for i, time in enumerate((900, 251, 250, 249, 252))
    )
    (point,) = read_csv("m,n,k,dtype,iter,time_us\n" + rows).gemms()
    assert (point.count, point.time_s) == (5, pytest.approx(251e-6))


def test_batches_and_accumulation():
    text = (
        "m,n,k,batch,accumulate,dtype,time_us\n512,512,4096,8,true,half,50\n512,512,4096,8,0,half,45\n"
    )
    first, second = read_csv(text).gemms()
    assert (first.batch, first.accumulate, second.accumulate) == (8, True, False)


@pytest.mark.parametrize("column", ["tflops", "gflops"])
def test_a_rate_that_contradicts_its_time_is_refused(column):
    rate = 2 * 4096**3 / 250e-6 / (1e12 if column == "tflops" else 1e9)
    header = f"m,n,k,dtype,time_us,{column}\n"
    assert read_csv(f"{header}4096,4096,4096,bf16,250,{rate:.1f}\n").refused == ()
    log = read_csv(f"{header}4096,4096,4096,bf16,25,{rate:.1f}\n")
    assert "disagree" in log.refused[0].reason


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("0,1,1,bf16,1", "m '0'"),
        ("-1,1,1,bf16,1", "m '-1'"),
        ('"1,024",1,1,bf16,1', "m '1,024'"),
        ("1.5,1,1,bf16,1", "m '1.5'"),
        ("1_0,1,1,bf16,1", "m '1_0'"),
        ("\u0661,1,1,bf16,1", "m "),
        ("99999999999,1,1,bf16,1", "m '99999999999'"),
        ("8,8,8,int8,1", "dtype 'int8'"),
        ("8,8,8,bf16,0", "time '0'"),
        ("8,8,8,bf16,-3", "time '-3'"),
        ("8,8,8,bf16,nan", "time 'nan'"),
        ("8,8,8,bf16,inf", "time 'inf'"),
        ("8,8,8,bf16,1e400", "time '1e400'"),
        ("8,8,8,bf16", "4 values under 5 columns"),
        ("8,8,8,bf16,1,1", "6 values under 5 columns"),
    ],
)
def test_rows_that_are_no_timings(row, message):
    log = read_csv(timed(700e12, *CUBES) + row + "\n")
    assert len(log.points) == len(CUBES)
    assert [r.line for r in log.refused] == [len(CUBES) + 2]
    assert message in log.refused[0].reason


def test_tables_that_once_had_gaps():
    assert read_csv("m,n,k,dtype,us\n8192.0,8192.0,8192.0,fp16,4000\n").gemms()[0].m == 8192


def test_a_last_line_without_end_warns():
    log = read_csv(timed(700e12, *CUBES).rstrip("\n"))
    assert any(f"line {len(CUBES) + 1}: no line end" in text for text in log.warnings)


def test_an_empty_file_is_an_error():
    with pytest.raises(FileError, match="no line of column names"):
        read_csv("\n")
    with pytest.raises(FileError, match="looks like none of the formats torch_trace"):
        read_log("", "a.csv")
    with pytest.raises(FileError, match="format 'x' is unknown"):
        read_log("", "a.csv", format="x")

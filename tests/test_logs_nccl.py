"""Layer: readers. Tables of nccl-tests, rccl-tests and mscclpp of public logs, and variations."""

import csv
import re

import pytest
from reader_support import case_text

from ficco_sim.errors import FileError
from ficco_sim.readers.logs import fit_alpha_beta, fit_line, read_log

FACTORS = {"all_reduce": 2, "alltoall": 1, "all_gather": 1, "reduce_scatter": 1, "broadcast": 0}


def read(text: str, where: str = "log.txt", **options):
    return read_log(text, where, format="nccl_tests", **options)


def read_case(case: str, where: str = "log.txt"):
    log = read_log(case_text(case), where)
    assert log.format == "nccl_tests"
    return log


def out_of_place(log):
    return [point for point in log.collectives() if not point.in_place]


def in_place(log):
    return [point for point in log.collectives() if point.in_place]


def make(
    program: str = "all_gather",
    num_gpus: int = 4,
    sizes=(2**20, 2**24, 2**28),
    alpha_us: float = 15.0,
    bus_gb: float = 200.0,
    dtype: str = "float",
    element_bytes: int = 4,
    *,
    per_iteration: bool = False,
) -> str:
    """A log in the newest layout, its numbers printed as the tool prints them."""
    lines = [
        "# nccl-tests version 2.18.0 nccl-headers=22907 nccl-library=22907",
        f"# Collective test starting: {program}_perf",
        f"# nThread 1 nGpus {num_gpus} minBytes 1 maxBytes 2 step: 2(factor) warmup iters: 5",
        "#",
        "# Using devices",
        *(
            f"#  Rank {r:2} Group  0 Pid {100 + r} on hostA device {r:2} [0000:0{r}:00] NVIDIA H100"
            for r in range(num_gpus)
        ),
        "#",
    ]
    extra = ("i_min", "i_max", "i_p99", "i_cv%") if per_iteration else ()
    names = ("time", "algbw", "busbw", "#wrong", *extra) * 2
    units = ("(us)", "(GB/s)", "(GB/s)", "", *(["(us)"] * 3 + ["(%)"] if per_iteration else ())) * 2
    head = f"# {'':>10}  {'':>12}  {'':>8}  {'':>6}  {'':>6}"
    lines.append(f"{head}           out-of-place                       in-place          ")
    first = f"# {'size':>10}  {'count':>12}  {'type':>8}  {'redop':>6}  {'root':>6}"
    lines.append(first + "".join(f"  {name:>7}" for name in names))
    first = f"# {'(B)':>10}  {'(elements)':>12}  {'':>8}  {'':>6}  {'':>6}"
    lines.append(first + "".join(f"  {unit:>7}" for unit in units))
    links = FACTORS[program]
    factor = links * (num_gpus - 1) / num_gpus if links else 1.0
    rates = []
    for size in sizes:
        shards = num_gpus if program in ("all_gather", "alltoall", "reduce_scatter") else 1
        count = size // element_bytes // shards
        redop = "sum" if "reduce" in program else "none"
        row = f"{size:12}  {count:12}  {dtype:>8}  {redop:>6}  {0 if program == 'broadcast' else -1:>6}"
        for _ in range(2):
            time_us = alpha_us + size * factor / (bus_gb * 1e3)
            algbw = size / time_us / 1e3
            rates.append(algbw * factor)
            row += f"  {time_us:7.2f}  {algbw:6.2f}  {algbw * factor:6.2f}  {0:6}"
            row += "".join(f"  {time_us:7.2f}" for _ in extra)
        lines.append(row)
    lines += [
        "# Out of bounds values : 0 OK",
        f"# Avg bus bandwidth    : {sum(rates) / len(rates):g} ",
        "#",
        f"# Collective test concluded: {program}_perf",
    ]
    return "\n".join(lines) + "\n"


def test_b22_noise_lines_are_no_rows():
    log = read_case("B22")
    rows = out_of_place(log)
    assert [point.total_bytes for point in rows] == [2**20, 2**22, 2**24, 2**26]
    assert len(in_place(log)) == 4
    for point in log.collectives():
        assert (point.collective, point.num_gpus, point.dtype) == ("all_gather", 8, "bf16")
        assert point.shard_bytes == point.total_bytes // 8
        assert point.checked
    assert [point.line for point in rows] == [21, 22, 24, 25]
    assert rows[0].time_s == pytest.approx(22.62e-6)
    mean = sum(point.busbw_bytes_per_s for point in log.collectives()) / 8
    assert mean == pytest.approx(180.985e9, rel=1e-5)
    assert log.warnings == ()
    assert log.refused == ()
    fit = fit_alpha_beta(log.points)
    assert fit.latency_s == pytest.approx(20.0e-6, rel=1e-3)
    assert fit.bytes_per_s == pytest.approx(350e9, rel=1e-3)
    fit = fit_alpha_beta(log.points, in_place=True)
    assert fit.latency_s == pytest.approx(18.0e-6, rel=1e-3)
    assert fit.bytes_per_s == pytest.approx(352e9, rel=1e-3)


def test_b23_in_place_is_not_checked():
    log = read_case("B23")
    assert [point.checked for point in out_of_place(log)] == [True] * 3
    assert [point.checked for point in in_place(log)] == [False] * 3
    last = out_of_place(log)[-1]
    assert last.collective == "all_to_all"
    assert last.busbw_bytes_per_s == pytest.approx(187.25e9)
    assert last.busbw_bytes_per_s == pytest.approx(last.algbw_bytes_per_s * 7 / 8, rel=1e-4)
    assert [point.shard_bytes * 8 for point in out_of_place(log)] == [2**20, 2**22, 2**24]
    assert log.facts["runs"][0]["gpus"] == ["AMD Instinct MI300X"]


def test_b25_the_first_group_is_blank():
    log = read_case("B25", "mscclpp_alltoall.txt")
    assert in_place(log) == []
    assert [point.time_s for point in out_of_place(log)] == pytest.approx([1821.3e-6, 7186.2e-6])
    last = out_of_place(log)[-1]
    assert (last.num_gpus, last.collective, last.dtype) == (8, "all_to_all", None)
    assert last.algbw_bytes_per_s == pytest.approx(149.42e9)
    assert last.busbw_bytes_per_s == pytest.approx(130.74e9)
    assert any("8 gpus" in text and "4 bytes assumed" in text for text in log.warnings)


def test_b25_without_a_name_the_collective_is_unknown():
    log = read_case("B25")
    assert {point.collective for point in log.collectives()} == {"unknown"}
    assert fit_alpha_beta(log.points).bytes_per_s > 0  # the share on the links is known all the same
    assert any("not named" in text and "all_gather" in text for text in log.warnings)


def test_b25_without_its_spaces_is_refused_not_shifted():
    text = "\n".join(re.sub(" +", " ", line) for line in case_text("B25").split("\n"))
    log = read(text)
    assert log.points == ()
    assert [refused.line for refused in log.refused] == [8, 9]


def test_b26_rows_of_0_bytes_measure_the_launch():
    log = read_case("B26")
    assert len(out_of_place(log)) == 6
    assert [point.total_bytes for point in out_of_place(log)] == [0, 0, 0, 128, 256, 512]
    assert {point.collective for point in log.collectives()} == {"reduce_scatter"}
    assert log.facts["launch_overhead_s"] == pytest.approx(5.70e-6)
    assert any("3 rows of 0 bytes" in text for text in log.warnings)
    with pytest.raises(FileError, match="time does not grow with size"):
        fit_alpha_beta(log.points)


def test_rows_of_0_bytes_do_not_change_a_fit():
    log = read(make(sizes=(0, 0, 2**20, 2**24, 2**28)))
    assert len(out_of_place(log)) == 5
    fit = fit_alpha_beta(log.points)
    assert fit.count == 3
    assert fit.latency_s == pytest.approx(15e-6, rel=1e-2)
    assert fit.bytes_per_s == pytest.approx(200e9, rel=1e-2)


def test_b27_jobs_of_one_rank_are_refused():
    with pytest.raises(FileError, match=r"B27: line 8: rank 0 again; the first is line 7.*without MPI"):
        read_log(case_text("B27"), "B27")


def test_one_rank_alone_is_refused():
    text = "".join(line for line in case_text("B27").splitlines(True) if "Pid   2066" not in line)
    with pytest.raises(FileError, match="1 rank: no communication was measured"):
        read(text)


def test_b28_a_failed_check_is_not_used():
    log = read_case("B28")
    assert in_place(log) == []
    assert [(refused.line, "check" in refused.reason) for refused in log.refused] == [
        (16, True),
        (17, True),
    ]
    first, second = out_of_place(log)
    assert (first.collective, first.num_gpus) == ("all_to_all", 8)
    assert (first.total_bytes, first.shard_bytes) == (268_435_456, 33_554_432)
    assert first.time_s == pytest.approx(2620.4e-6)
    assert first.busbw_bytes_per_s == pytest.approx(89.64e9)
    assert second.time_s == pytest.approx(5208.9e-6)


def test_b29_a_line_cut_off_is_not_used():
    log = read_case("B29")
    assert len(out_of_place(log)) == 2
    assert [refused.line for refused in log.refused] == [20]
    assert any("line 20: cut off" in text for text in log.warnings)
    assert any("line 20: the log ends before the summary" in text for text in log.warnings)
    assert not any(point.busbw_bytes_per_s == 44e9 for point in log.collectives())
    assert {point.collective for point in log.collectives()} == {"all_reduce"}


def test_a_shortened_rate_in_the_middle_is_refused():
    log = read(case_text("B22").replace("  270.86  237.00", "  270.86   23.70"))
    assert [refused.line for refused in log.refused] == [24]
    assert "busbw 23.7 is not algbw 270.86 x 0.875" in log.refused[0].reason
    assert any("the mean bus bandwidth" in text for text in log.warnings)


def test_a_changed_time_is_refused():
    log = read(case_text("B22").replace("   61.94  ", "   61.04  "))
    assert "algbw 270.86 is not size over time" in log.refused[0].reason


def test_b44_is_a_line():
    rows = csv.DictReader(case_text("B44").splitlines())
    fit = fit_line([(int(row["bytes"]), float(row["time_us"]) * 1e-6) for row in rows])
    assert fit.latency_s == pytest.approx(30e-6, rel=1e-3)
    assert fit.bytes_per_s == pytest.approx(300e9, rel=1e-3)
    assert fit.worst_error < 1e-3
    assert fit.time_s(2**21) == pytest.approx(36.99e-6, rel=1e-3)
    assert 2 * fit.time_s(2**20) == pytest.approx(66.99e-6, rel=1e-3)
    times = [n * fit.time_s(2**26 / n) * 1e6 for n in (1, 2, 4, 8)]
    assert times == pytest.approx([253.7, 283.7, 343.7, 463.7], rel=1e-3)


@pytest.mark.parametrize("program", FACTORS)
@pytest.mark.parametrize("num_gpus", [2, 4, 8, 6])
@pytest.mark.parametrize("per_iteration", [False, True])
def test_collectives(program, num_gpus, per_iteration):
    sizes = [num_gpus * 2**power for power in (18, 22, 26)]
    log = read(make(program, num_gpus, sizes, per_iteration=per_iteration))
    assert log.refused == ()
    assert log.warnings == ()
    assert len(log.points) == 6
    fit = fit_alpha_beta(log.points)
    assert fit.latency_s == pytest.approx(15e-6, rel=1e-2)
    assert fit.bytes_per_s == pytest.approx(200e9, rel=1e-2)


@pytest.mark.parametrize(
    ("program", "expected"),
    [("all_reduce", "all_reduce"), ("reduce_scatter", "reduce_scatter"), ("broadcast", "broadcast")],
)
def test_a_collective_that_is_not_named(program, expected):
    text = re.sub(r"# Collective test.*\n", "", make(program))
    log = read(text)
    assert {point.collective for point in log.collectives()} == {expected}
    assert any("not named" in warning for warning in log.warnings)


def test_all_gather_is_told_from_all_to_all_by_its_check():
    log = read(re.sub(r"# Collective test.*\n", "", make("all_gather")))
    assert {point.collective for point in log.collectives()} == {"all_gather"}


def test_several_runs_behind_each_other():
    log = read(
        make("all_gather") + "$ ./build/all_reduce_perf -b 1M\n" + make("all_reduce", num_gpus=2)
    )
    assert [run["collective"] for run in log.facts["runs"]] == ["all_gather", "all_reduce"]
    assert [run["num_gpus"] for run in log.facts["runs"]] == [4, 2]
    assert log.warnings == ()
    with pytest.raises(FileError, match="must not be mixed"):
        fit_alpha_beta(log.points)


def test_groups_of_ranks():
    text = make(num_gpus=4)
    for rank in range(4):
        line = next(line for line in text.splitlines() if f"Rank  {rank}" in line)
        other = line.replace(f"Rank  {rank} Group  0", f"Rank  {rank + 4} Group  1")
        text = text.replace(line, f"{line}\n{other}")
    log = read(text)
    assert {point.num_gpus for point in log.collectives()} == {4}
    assert any("2 groups of 4 ranks" in warning for warning in log.warnings)


def test_several_hosts():
    log = read(make().replace("on hostA device  3", "on hostB device  3"))
    assert any("2 hosts" in warning for warning in log.warnings)


@pytest.mark.parametrize("case", ["B22", "B23", "B25", "B26", "B28"])
def test_line_ends_colours_and_labels(case):
    text = case_text(case)
    right = read(text).points
    lines = text.splitlines()
    variants = {
        "windows": "\ufeff" + "\r\n".join(lines) + "\r\n",
        "colours": "".join(f"\x1b[32m{line}\x1b[0m\n" for line in lines),
        "mpirun": "".join(f"[1,0]<stdout>:{line}\n" for line in lines),
        "srun": "".join(f"0: {line}\n" for line in lines),
    }
    for name, variant in variants.items():
        log = read_log(variant, "log.txt")
        assert log.points == right, name
        assert log.format == "nccl_tests"


def test_other_units():
    text = make().replace("(us)", "(ms)")
    assert read(text).points == ()  # the numbers then disagree with the size
    with pytest.raises(FileError, match=r"line 13: units"):
        read(make().replace("(us)", "(ticks)"))


def test_seconds_and_megabytes_are_read_as_such():
    lines = make(sizes=(2**28,)).splitlines(keepends=True)
    row = next(i for i, line in enumerate(lines) if line.strip()[:1].isdigit())
    size, count, dtype, redop, root, *cells = lines[row].split()
    cells = [
        f"{float(cell) / 1e3:.5f}" if i % 4 == 0 else f"{float(cell) * 1e3:.0f}" if i % 4 < 3 else cell
        for i, cell in enumerate(cells)
    ]
    lines[row] = "  ".join(("", size, count, dtype, redop, root, *cells)) + "\n"
    text = "".join(lines).replace("(us)", "(ms)").replace("(GB/s)", "(MB/s)")
    point = read(text).points[0]
    assert point.time_s == pytest.approx(15e-6 + 2**28 * 0.75 / 200e9, rel=1e-3)


def test_timestamps_at_the_end_of_rows():
    lines = make().splitlines()
    for i, line in enumerate(lines):
        if " busbw" in line:
            lines[i] += "           timestamp"
        elif line.strip()[:1].isdigit():
            lines[i] += "  2025-01-31 12:00:00"
    log = read("\n".join(lines) + "\n")
    assert log.points == read(make()).points


def test_cpu_time_is_refused():
    with pytest.raises(FileError, match="line 12: cputime"):
        read(make().replace("   time", "cputime"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("out-of-place", "somewhere", "unknown column layout"),
        ("  algbw", "  speed", "unknown column layout"),
        ("  redop", "  flags", "unknown column layout"),
        ("   time", "   span", "no column 'time'"),
    ],
)
def test_unknown_layouts_are_refused(old, new, message):
    with pytest.raises(FileError, match=rf"log.txt: line 12: .*{message}"):
        read(make().replace(old, new))


def test_missing_ranks():
    text = re.sub(r"#  Rank +2.*\n", "", make("all_reduce"))
    log = read(text)  # the rates tell that there are 4
    assert {point.num_gpus for point in log.collectives()} == {4}
    assert any("1 of ranks 0 to 3 not listed" in warning for warning in log.warnings)
    without_last = read(re.sub(r"#  Rank +3.*\n", "", make("all_reduce")))
    assert without_last.points == ()
    with pytest.raises(FileError, match=r"no lines '# Rank"):
        read(re.sub(r"#  Rank.*\n", "", make("all_reduce")))
    counted = read(re.sub(r"#  Rank.*\n", "", make("all_gather")))
    assert {point.num_gpus for point in counted.collectives()} == {4}


def test_wrong_results_are_not_used():
    text = make().replace("     0", "     7", 1)
    log = read(text)
    assert len(log.refused) == 1
    assert "#wrong or error 7" in log.refused[0].reason


def test_rounding_of_the_old_layout_is_no_error():
    text = make("all_reduce").replace("#wrong", " error").replace("       0\n", "   2e-07\n")
    assert read(text).refused == ()


def test_failed_summary_warns():
    log = read(make().replace("values : 0 OK", "values : 3 FAILED"))
    assert any("out of bounds" in warning for warning in log.warnings)


def test_rows_without_header_are_refused():
    text = re.sub(r"#.*size.*\n", "", make())
    with pytest.raises(FileError, match="line 13: a row without a header"):
        read(text)


@pytest.mark.parametrize("timed", [[], [(1e6, 1e-5)], [(1e6, 1e-5), (1e6, 2e-5)]])
def test_a_fit_needs_two_sizes(timed):
    with pytest.raises(FileError, match="two sizes"):
        fit_line(timed)


def test_a_fit_has_no_negative_latency():
    fit = fit_line([(1e6, 4e-6), (2e6, 10e-6), (4e6, 20e-6)])
    assert fit.latency_s == 0
    assert fit.bytes_per_s == pytest.approx(2e11, rel=0.2)

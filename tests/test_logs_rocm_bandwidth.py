"""Layer: readers. Logs of rocm-bandwidth-test as public pages have them, and variations.

B60 is a node with 4 MI210 (documentation of ARCHER2), B61 two MI50 (a tutorial of LLNL on mpibind) and
a host with an accelerator (documentation of AMD's network set-up), some sizes of each.
"""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reader_support import case_text
from strategies import examples

from ficco_sim.cli import main
from ficco_sim.errors import FileError
from ficco_sim.machine import load_machine
from ficco_sim.readers.logs import read_log
from ficco_sim.units import KIB, MIB

MATRIX = case_text("B60")
SIZES = case_text("B61")
ONE_WAY = SIZES.replace("Bidirectional", "Unidirectional")
HEAD = (
    "================    Unidirectional Benchmark Result    ================\n"
    "================ Src Device Id: 2 Src Device Type: Gpu ================\n"
    "================ Dst Device Id: 5 Dst Device Type: Gpu ================\n\n"
    "Data Size      Avg Time(us)   Avg BW(GB/s)   Min Time(us)   Peak BW(GB/s)\n"
)


def row(nbytes: int, time_us: float) -> str:
    """A line as the tool prints it."""
    size = f"{nbytes // KIB} KB" if nbytes < MIB else f"{nbytes // MIB} MB"
    rate = nbytes / time_us / 1e3
    return "".join(f"{cell:15}" for cell in (size, *[f"{time_us:.3f}", f"{rate:.3f}"] * 2)) + "\n"


def test_a_matrix_gives_the_rates_between_gpus():
    log = read_log(MATRIX, "b60.txt")
    assert log.format == "rocm_bandwidth"
    assert log.facts["gpus"] == ["4", "5", "6", "7"]
    one = {(p.src, p.dst): p.bytes_per_s for p in log.copies() if p.direction == "one-way"}
    two = {(p.src, p.dst): p.bytes_per_s for p in log.copies() if p.direction == "two-way"}
    assert set(one) == set(two) == {(i, j) for i in range(4, 8) for j in range(4, 8) if i != j}
    assert one[4, 6] == pytest.approx(42.112e9)
    assert two[7, 5] == pytest.approx(80.940e9 / 2)  # the tool prints the sum of both directions
    assert log.facts["with_hosts"] == 2 * 2 * 16
    assert {p.engine for p in log.copies()} == {"dma"}
    assert log.refused == ()


def test_each_direction_of_a_link_is_slower_than_its_data_sheet():
    """What the reader makes of a log must be possible on the machine that it is of."""
    links = {link.bandwidth_bytes_per_s for link in load_machine("mi210_4").links}
    for point in read_log(MATRIX, "b60.txt").copies():
        assert point.bytes_per_s < min(links)


def test_without_the_list_of_devices_gpus_are_those_that_copy_to_themselves():
    text = re.sub(r" *Device: .*\n", "", MATRIX)
    assert read_log(text, "a").points == tuple(
        type(p)(**{f: getattr(p, f) for f in p.__slots__} | {"line": p.line - 8})
        for p in read_log(MATRIX, "b").points
    )
    alone = text[text.index("Bidirectional") :]
    log = read_log(alone, "a")
    assert log.points == ()
    assert "list of devices is missing" in log.refused[0].reason


def test_times_of_copies_both_ways_are_of_both():
    log = read_log(SIZES, "b61.txt")
    points = log.copies()
    assert {(p.src, p.dst, p.direction) for p in points} == {(2, 3, "two-way")}
    assert len(points) == 10
    last = points[-1]
    assert (last.nbytes, last.time_s) == (512 * MIB, pytest.approx(19186.689e-6))
    assert last.bytes_per_s == pytest.approx(55.963e9 / 2, rel=1e-4)
    assert log.facts["with_hosts"] == 5


def test_a_direction_that_the_numbers_contradict_is_refused():
    log = read_log(ONE_WAY, "a")
    assert log.points == ()
    assert "the direction is another" in log.refused[0].reason
    assert log.num_refused == 10


@examples(40)
@given(
    sizes=st.lists(st.integers(0, 19), min_size=1, max_size=12, unique=True),
    fixed_us=st.floats(1.0, 30.0),
    rate=st.floats(1.0, 400.0),
)
def test_what_the_tool_would_print_is_read_back(sizes, fixed_us, rate):
    nbytes = [KIB << power for power in sorted(sizes)]
    times_us = [fixed_us + size / rate / 1e3 for size in nbytes]
    text = HEAD + "".join(row(*pair) for pair in zip(nbytes, times_us, strict=True))
    log = read_log(text, "a")
    assert log.refused == ()
    assert [p.nbytes for p in log.copies()] == nbytes
    for point, time_us in zip(log.copies(), times_us, strict=True):
        assert (point.src, point.dst, point.direction) == (2, 5, "one-way")
        assert point.time_s * 1e6 == pytest.approx(time_us, abs=6e-4)


def test_a_machine_is_calibrated_from_such_times(tmp_path, capsys):
    """The fit finds the costs that the times were made from."""
    sizes = [KIB << power for power in range(20)]
    log = tmp_path / "log.txt"
    log.write_text(HEAD + "".join(row(n, 8.0 + n / 42.0e3) for n in sizes))
    out = tmp_path / "mine.yaml"
    assert main(["calibrate", str(log), "--machine", "mi210_4", "--out", str(out)]) == 0
    assert "HSA_ENABLE_SDMA" in " ".join(capsys.readouterr().out.split())
    copy = load_machine(str(out)).profile.copy
    assert copy.engine_bytes_per_s == pytest.approx(42e9, rel=0.01)
    latency_s = load_machine("mi210_4").links[0].latency_s
    assert copy.setup_s + copy.completion_s + latency_s == pytest.approx(8e-6, rel=0.01)


def test_only_copies_from_and_to_hosts_are_no_calibration(tmp_path, capsys):
    log = tmp_path / "log.txt"
    log.write_text(SIZES[SIZES.rindex("=====    Unid") - 20 :])
    out = tmp_path / "mine.yaml"
    assert main(["calibrate", str(log), "--out", str(out)]) == 2
    assert "no copies between gpus can be used" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(("damage", "words"), [
    (lambda t: t.replace("42.112 ", "42.1 "), "different numbers of decimals"),
    (lambda t: t.replace("42.112 ", "x "), "'x' must be a number or N/A"),
    (lambda t: t.replace("42.112 ", " "), "row 4 has 7 values for 8 columns"),
    (lambda t: t.replace("  5         28.169", "  9         28.169"), "must be those of"),
    (lambda t: t.replace("D/D       0           1 ", "D/D       0           0 "), "some twice"),
])  # fmt: skip
def test_a_damaged_matrix_is_refused_whole(damage, words):
    log = read_log(damage(MATRIX), "a")
    assert "one-way" not in {p.direction for p in log.copies()}
    assert any(words in refused.reason for refused in log.refused), log.refused


@pytest.mark.parametrize(("damage", "words"), [
    (lambda t: t.replace("65.293 ", "165.293 "), "a value is damaged"),
    (lambda t: t.replace("65.293 ", "-1 "), "must be numbers, the time above 0"),
    (lambda t: t.replace("1 MB ", "1 XB "), "size '1 XB' must be above 0"),
    (lambda t: t.replace("  65.191  ", "    "), "cut off?"),
])  # fmt: skip
def test_a_damaged_row_is_refused_and_the_others_kept(damage, words):
    log = read_log(damage(SIZES), "a")
    assert len(log.points) == 9
    assert words in log.refused[0].reason


def test_other_columns_are_refused():
    log = read_log(SIZES.replace("Avg Time(us)", "Avg Time(ms)", 1), "a")
    assert "must be the columns Data Size Avg Time(us)" in log.refused[0].reason
    assert log.points == ()


def test_the_matrix_of_another_tool_is_not_taken_for_one():
    """TransferBench has the same title with more after it."""
    with pytest.raises(FileError, match="looks like none of the formats"):
        read_log("Unidirectional copy peak bandwidth GB/s [Local read / Remote write]\n", "a")


def test_a_log_without_tables_is_an_error():
    with pytest.raises(FileError, match=r"a\.txt: no table of times or rates of copies in it"):
        read_log("RocmBandwidthTest Version: 2.6.0\n\n Invalid Request\n", "a.txt")

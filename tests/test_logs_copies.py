"""Layer: readers. Tables of nvbandwidth as public logs have them, as text and JSON, and variations."""

import re

import pytest
from reader_support import case_text

from ficco_sim.errors import FileError
from ficco_sim.io import dump_json
from ficco_sim.readers.logs import read_log

ONE_WAY = "device_to_device_memcpy_read_ce"
TWO_WAY = "device_to_device_bidirectional_memcpy_read_ce"


def rates(log, name: str) -> dict[tuple[int, int], float]:
    return {(p.src, p.dst): p.bytes_per_s / 1e9 for p in log.copies() if p.name == name}


def table(title: str, key: str, values, *, sum_line: bool = True) -> str:
    lines = [title, "    " + "  ".join(f"{j:8}" for j in range(len(values[0])))]
    for i, row in enumerate(values):
        cells = [f"{'N/A' if v is None else f'{v:.2f}':>8}" for v in row]
        lines.append(f" {i}  " + "  ".join(cells))
    total = sum(v or 0 for row in values for v in row)
    return "\n".join([*lines, "", f"SUM {key} {total:.2f}" if sum_line else "", ""]) + "\n"


def make(name: str, title: str, values, **options) -> str:
    head = f"nvbandwidth Version: v0.8\n\nRunning {name}.\n"
    return head + table(title, name, values, **options)


def square(num_gpus: int, rate: float = 100.0):
    return [[None if i == j else rate + i + j / 10 for j in range(num_gpus)] for i in range(num_gpus)]


def test_b30_one_way():
    log = read_log(case_text("B30"), "b30.txt")
    assert log.format == "nvbandwidth"
    found = rates(log, ONE_WAY)
    assert len(found) == 12
    assert all(i != j for i, j in found)
    assert (found[0, 1], found[1, 0]) == pytest.approx((26.36, 26.34))
    assert sum(found.values()) == pytest.approx(281.60, abs=0.3)
    points = [p for p in log.copies() if p.name == ONE_WAY]
    assert {(p.direction, p.engine) for p in points} == {("one-way", "dma")}
    assert points[0].line == 16


def test_b30_two_way():
    log = read_log(case_text("B30"), "b30.txt")
    first, second = rates(log, f"{TWO_WAY} Read1"), rates(log, f"{TWO_WAY} Read2")
    assert first[0, 1] == pytest.approx(24.25)
    assert second[1, 0] == pytest.approx(23.99)
    assert len(first) == len(second) == 12
    assert len(log.points) == 36  # the sums of both directions are no rates of links
    assert max(p.bytes_per_s for p in log.copies()) < 27e9
    assert {p.direction for p in log.copies() if TWO_WAY in p.name} == {"two-way"}


def test_b30_a_waived_test_is_not_zero():
    log = read_log(case_text("B30"), "b30.txt")
    assert log.facts["waived"] == ["device_to_device_memcpy_write_sm"]
    assert any("write_sm was waived" in text for text in log.warnings)
    assert not any("write_sm" in p.name for p in log.copies())
    assert log.facts["gpus"]["3"] == "NVIDIA RTX A6000"
    assert log.refused == ()


def test_arrows():
    values = square(3)
    name = "device_to_device_memcpy_write_sm"
    there = read_log(make(name, "memcpy SM GPU(row) -> GPU(column) bandwidth (GB/s)", values), "a")
    back = read_log(make(name, "memcpy SM GPU(row) <- GPU(column) bandwidth (GB/s)", values), "a")
    assert rates(there, name)[0, 2] == pytest.approx(100.2)
    assert rates(back, name)[2, 0] == pytest.approx(100.2)
    assert {p.engine for p in there.copies()} == {"core"}


def test_pairs_without_peer_access():
    values = square(4)
    values[0][2] = values[2][0] = None
    log = read_log(make(ONE_WAY, "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)", values), "a")
    assert len(log.points) == 10
    assert log.facts["no_peer_access"] == [{"test": ONE_WAY, "pairs": [[0, 2], [2, 0]]}]
    assert any("2 directed pairs" in text for text in log.warnings)


def test_other_tables_are_only_named():
    text = (
        make(
            "host_to_device_memcpy_ce",
            "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)",
            [[50.0] * 4],
        )
        + make(
            "device_to_device_latency_sm",
            "Device to Device Latency SM GPU(row) <-> GPU(column) (ns)",
            square(4),
        )
        + make(
            "all_to_one_write_ce",
            "memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)",
            [[300.0] * 4],
        )
        + make(ONE_WAY, "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)", square(4))
    )
    log = read_log(text, "a")
    assert len(log.points) == 12
    assert {p.name for p in log.copies()} == {ONE_WAY}
    assert "host_to_device_memcpy_ce" in log.facts["not_read"]
    assert "all_to_one_write_ce" in log.facts["not_read"]


def test_newer_waiving():
    text = "nvbandwidth Version: v0.6\n\nRunning device_to_device_memcpy_write_ce.\nWaived: \n"
    log = read_log(text, "a")
    assert log.facts["waived"] == ["device_to_device_memcpy_write_ce"]
    assert any("no calibration" in warning for warning in log.warnings)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("26.36     22.00", "2.36     22.00", "add up to"),
        ("26.36     22.00", "26.36", "row 0 has 3 values"),
        ("26.36     22.00", "26.36    -22.00", "must be a number"),
        ("26.36     22.00", "26.36     1e999", "must be a number"),
        (" 3      22.10     22.20     26.34       N/A\n", "", "rows '0 1 2' must be"),
        ("            0         1         2         3\n 0        N/A     26.36", "X", "columns"),
    ],
)
def test_damaged_tables_are_refused_whole(old, new, message):
    log = read_log(case_text("B30").replace(old, new, 1), "b30.txt")
    assert rates(log, ONE_WAY) == {}
    assert len(log.points) == 24
    assert len(log.refused) == 1
    assert message in log.refused[0].reason
    assert ONE_WAY in log.refused[0].reason


def test_a_table_without_its_sum_warns():
    title = "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)"
    log = read_log(make(ONE_WAY, title, square(2), sum_line=False), "a")
    assert len(log.points) == 2
    assert any("line 4" in text and "no sum" in text for text in log.warnings)


def test_a_file_without_tables_is_an_error():
    with pytest.raises(FileError, match=r"log: no table of bandwidths"):
        read_log("nvbandwidth Version: v0.8\nInvalid testcase\n", "log")


def test_a_run_without_its_line_is_named_by_the_sum():
    text = re.sub(r"Running .*\n", "", case_text("B30"))
    log = read_log(text, "a")
    assert len(log.points) == 36
    assert len(rates(log, ONE_WAY)) == 12


@pytest.mark.parametrize("variant", ["windows", "colours"])
def test_line_ends_and_colours(variant):
    lines = case_text("B30").splitlines()
    text = (
        "\ufeff" + "\r\n".join(lines)
        if variant == "windows"
        else "".join(f"\x1b[1m{line}\x1b[0m\n" for line in lines)
    )
    assert read_log(text, "a").points == read_log(case_text("B30"), "a").points


def json_case(name: str, title: str, values, **more) -> dict:
    cells = [["N/A" if v is None else f"{v:g}" for v in row] for row in values]
    return {
        "name": name,
        "status": "Passed",
        "bandwidth_description": title,
        "bandwidth_matrix": cells,
        "sum": sum(v or 0 for row in values[-len(values[0]) :] for v in row),
        **more,
    }


def as_json(*cases) -> str:
    return dump_json({"nvbandwidth": {"version": "v0.8", "testcases": list(cases)}})


def test_json():
    stacked = [*square(3, 20.0), *square(3, 30.0), *square(3, 50.0)]
    text = as_json(
        json_case(ONE_WAY, "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)", square(3)),
        json_case(TWO_WAY, "memcpy CE CPU(row) <-> GPU(column) Total bandwidth (GB/s)", stacked),
        {"name": "device_to_device_memcpy_write_sm", "status": "Waived"},
        {"name": "device_to_device_memcpy_read_sm", "status": "Error"},
    )
    log = read_log(text, "a.json")
    assert log.format == "nvbandwidth"
    assert rates(log, ONE_WAY)[0, 1] == pytest.approx(100.1)
    assert rates(log, f"{TWO_WAY} Read1")[0, 1] == pytest.approx(20.1)
    assert rates(log, f"{TWO_WAY} Read2")[1, 0] == pytest.approx(30.1)
    assert len(log.points) == 18
    assert log.facts["waived"] == ["device_to_device_memcpy_write_sm"]
    assert "status 'Error'" in log.refused[0].reason


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"nvbandwidth": {"error": "no gpu"}}', "testcases: must be a list"),
        ('{"nvbandwidth": {"testcases": [1]}}', r"testcases\[0\]: must be a mapping"),
        (
            '{"nvbandwidth": {"testcases": [{"name": "a", "status": "Passed"}]}}',
            r"testcases\[0\]: bandwidth_matrix",
        ),
        ('{"nvbandwidth": {"testcases": [', "line 1: not JSON"),
    ],
)
def test_damaged_json_is_an_error(text, message):
    with pytest.raises(FileError, match=f"a.json: .*{message}"):
        read_log(text, "a.json")

"""Layer: harness without a gpu. Emulated and real runs side by side, with known differences."""

import csv
import io
import json
from dataclasses import fields, replace

import pytest
from test_hw_summary import SESSION, plan, write

from ficco_sim.errors import ScenarioError
from ficco_sim.records import Records
from hw_validate.__main__ import main
from hw_validate.beside import Beside, Pair, lay_beside

REAL = {"map": "0=dev0,1=dev1,2=dev2,3=dev3", "emulates": "own"}
MESH = {"map": "0=dev0,1-3=dev1:shard", "emulates": "mesh"}


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def records(*measurements, **environment):
    session = replace(SESSION, environment={**SESSION.environment, **environment})
    return Records(sessions=(session,), measurements=measurements)


def hw(capsys, *arguments, code=0):
    assert main([str(argument) for argument in arguments]) == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.out + captured.err
    return captured


def emulated_and_real():
    """Fused chunks: 10 %, 20 %, 30 % too long. The emulation picks shard-p2p, which loses."""
    emulated = [plan("serial", 10), plan("shard-p2p", 5)]
    real = [plan("serial", 12, **REAL), plan("shard-p2p", 20, **REAL)]
    for chunks, factor in ((2, 1.1), (4, 1.2), (8, 1.3)):
        emulated.append(plan("hetero-fused-1d", 8 * factor, num_chunks=chunks))
        real.append(plan("hetero-fused-1d", 8, num_chunks=chunks, **REAL))
    return records(*emulated), records(*real)


def test_differences_by_schedule_are_those_put_in():
    found = lay_beside(*emulated_and_real())
    assert len(found.pairs) == 5
    rows = {row.schedule: row for row in found.schedules}
    assert set(rows) == {"serial", "shard-p2p", "hetero-fused-1d"}
    assert all(row.maps == "host beside own" for row in rows.values())
    fused = rows["hetero-fused-1d"]
    assert fused.num_plans == 3
    spread = fused.difference
    assert [spread.low, spread.median, spread.high] == pytest.approx([0.1, 0.2, 0.3])
    assert [spread.p10, spread.p90] == pytest.approx([0.12, 0.28])
    assert fused.worst == "gemm-64x16x32 hetero-fused-1d c8 q1 in 3"
    gain = fused.speedup_difference
    # serial is 10 emulated and 12 real: speed-ups are off by that, too
    assert gain.median == pytest.approx(10 / 9.6 / (12 / 8) - 1)
    assert fused.same_sign == pytest.approx(2 / 3)  # with eight chunks the emulation loses
    assert rows["serial"].difference.median == pytest.approx(10 / 12 - 1)
    assert rows["serial"].speedup_difference.median == 0
    assert rows["shard-p2p"].same_sign == 0


def test_choosing_by_the_emulation_costs_what_it_costs_for_real():
    (winner,) = lay_beside(*emulated_and_real()).winners
    assert winner.first_best == "shard-p2p"
    assert winner.second_best.startswith("hetero-fused-1d")
    assert winner.regret == pytest.approx(20 / 8 - 1)


def test_the_worst_come_first_too_short_or_too_long():
    first = records(*(plan("hetero-fused-1d", t, num_chunks=c) for t, c in ((5, 2), (30, 4), (10, 8))))
    second = records(*(plan("hetero-fused-1d", 10, num_chunks=c, **REAL) for c in (2, 4, 8)))
    found = lay_beside(first, second)
    assert [pair.num_chunks for pair in found.worst] == [4, 2, 8]  # three times, half, equal
    assert found.schedules[0].worst.endswith("c4 q1 in 3")
    assert found.pairs[0].speedup_difference is None  # no serial plan
    assert found.schedules[0].speedup_difference is found.schedules[0].same_sign is None


@pytest.mark.parametrize(
    "other",
    [
        {"workload": "another"},
        {"m": 128},
        {"dtype": "fp16"},
        {"num_gpus": 8},
        {"num_chunks": 4},
        {"compute_queues": 4},
        {"copy_queues": 1},
        {"engine": "core", "core_blocks": 16},
        {"submission": "eager"},
    ],
)
def test_only_the_same_plan_is_matched(other):
    first = records(plan("serial", 10), plan("hetero-fused-1d", 8))
    second = records(plan("serial", 9, **REAL), plan("hetero-fused-1d", 7, **REAL, **other))
    found = lay_beside(first, second)
    assert [pair.schedule for pair in found.pairs] == ["serial"]
    assert (found.only_first, found.only_second) == (1, 1)
    with pytest.raises(ScenarioError, match="no plan in common: 1 plans and 1"):
        lay_beside(records(plan("hetero-fused-1d", 8)), records(plan("hetero-fused-1d", 7, **other)))


def test_equal_maps_go_together_others_each_with_each():
    both = records(plan("serial", 10), plan("serial", 11, **MESH))
    again = lay_beside(both, both)
    assert {pair.maps for pair in again.pairs} == {"host beside host", "mesh beside mesh"}
    assert all(pair.difference == 0 for pair in again.pairs)
    real = lay_beside(both, records(plan("serial", 10, **REAL)))
    assert {pair.maps: round(pair.difference, 3) for pair in real.pairs} == {
        "host beside own": 0.0,
        "mesh beside own": 0.1,
    }


def test_one_pair_of_maps_can_be_asked_for(capsys, tmp_path):
    first = [plan("serial", 10), plan("serial", 11, **MESH)]
    found = lay_beside(records(*first), records(*first), maps=("mesh", "host"))
    assert [pair.maps for pair in found.pairs] == ["mesh beside host"]
    assert found.pairs[0].difference == pytest.approx(0.1)
    path = write(tmp_path / "a.jsonl", first)
    given = ["beside", path, "--against", path, "--maps"]
    assert "1 pairs" in hw(capsys, *given, "host, mesh").out
    assert "here on host and own" in hw(capsys, *given, "host,own", code=2).err
    assert "--maps: 'host' must be two names" in hw(capsys, *given, "host", code=2).err


def test_passes_are_put_together_and_what_is_no_usable_plan_is_left_out():
    first = records(plan("serial", 9, 10), plan("serial", 11, 12, sequence=1), plan("shard-p2p"))
    second = records(
        plan("serial", 10.5, **REAL), plan("shard-p2p", 5, **REAL), plan("serial", 1, kind="straight")
    )
    found = lay_beside(first, second)
    (pair,) = found.pairs
    assert pair.first_s == pytest.approx(10.5e-3)
    assert (found.only_first, found.only_second) == (0, 1)


def test_conditions_that_differ_are_named():
    first = records(plan("serial", 10), driver="1", torch="2", date="today")
    second = records(plan("serial", 10, **REAL), driver="3", torch="2")
    found = lay_beside(first, second)
    assert found.unequal == ("driver",)
    assert found.first_labels == found.second_labels == ("emulated: by hand",)


def test_on_the_command_line(capsys, tmp_path):
    first, second = emulated_and_real()
    paths = [write(tmp_path / f"{n}.jsonl", r.measurements) for n, r in (("a", first), ("b", second))]
    text = hw(capsys, "beside", paths[0], "--against", paths[1]).out
    assert "+20.0%" in text
    assert "5 pairs" in text
    assert "choosing by the first set costs 150.0% in the median over 1 cases" in text
    assert "first set: emulated: by hand" in text
    document = json.loads(hw(capsys, "beside", paths[0], "--against", paths[1], "--json", "-").out)
    assert list(document) == [field.name for field in fields(Beside)]
    assert len(document["pairs"]) == 5
    table = hw(capsys, "beside", paths[0], "--against", paths[1], "--csv", "-").out
    rows = list(csv.DictReader(io.StringIO(table)))
    assert list(rows[0]) == [field.name for field in fields(Pair)]
    assert [float(row["first_s"]) for row in rows][:2] == pytest.approx([10e-3, 5e-3])
    assert rows[0]["num_chunks"] == ""
    error = hw(capsys, "beside", paths[0], "--against", "absent.jsonl", code=2).err
    assert "absent.jsonl" in error
    both = ["--csv", "-", "--json", "-"]
    assert "only one" in hw(capsys, "beside", paths[0], "--against", paths[1], *both, code=2).err

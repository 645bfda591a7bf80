"""Layer: thresholds tuned on hand-made outcomes, and moved between machines; nothing is simulated."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laboratory_support import FUSED, UNFUSED, by_rows, outcomes, rule, simple

from ficco_sim.errors import RuleError, ScenarioError
from ficco_sim.heuristics import RULES
from ficco_sim.io import dump_json
from ficco_sim.laboratory import Axis, judge_all, parse_axis, portability, summarize, tune
from ficco_sim.laboratory.missing import best_splits, used_features
from ficco_sim.laboratory.portability import OTHERS, UNTUNED
from ficco_sim.laboratory.thresholds import middle, thresholds
from ficco_sim.laboratory.tune import assign_folds

ROWS = Axis(name="rows", low=10, high=10_000, count=31)
THRESHOLD = rule(by_rows, rows=7)
seconds = st.floats(1e-4, 1.0)


def stepped(at=100, count=20, machine="h200_2", low=16):
    """Unfused wins from some rows on, else serial does; one scenario for each step of 1.5."""
    rows = [round(low * 1.5**i / 2) * 2 for i in range(count)]
    return [
        simple(
            serial=1.0 if m < at else 2.0,
            fused=5.0,
            unfused=2.0 if m < at else 1.0,
            name=f"model{i % 7}-tp8-{m}",
            m=m,
            machine=machine,
        )
        for i, m in enumerate(rows)
    ]


@st.composite
def tables(draw, machine="h200_2"):
    rows = draw(st.lists(st.integers(2, 9000), min_size=2, max_size=10, unique=True))
    return [
        simple(*(draw(seconds) for _ in range(3)), name=f"m{i % 4}-tp8-{m}", m=m, machine=machine)
        for i, m in enumerate(rows)
    ]


# --- values to try


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("tau_s=1us:100us:3", [1e-6, 1e-5, 1e-4]),
        ("ficco_from_bytes=1MiB:4MiB:3", [2**20, 2**21, 2**22]),
        ("factor=2:8:3", [2, 4, 8]),
        ("factor=3:3:1", [3]),
        ("rate_bytes_per_s=1e9:1e10:2", [1e9, 1e10]),
    ],
)
def test_ranges_are_evenly_spaced_in_the_logarithm(text, values):
    assert parse_axis(text).values() == pytest.approx(values)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tau_s", "must be NAME=LOW:HIGH:COUNT"),
        ("tau_s=1us:2us", "must be NAME=LOW:HIGH:COUNT"),
        ("tau_s=1:2us:4", "must be a time"),
        ("x=a:2:4", "could not convert"),
        ("x=1:2:many", "invalid literal"),
        ("x=0:2:4", "must be above 0 and not fall"),
        ("x=3:2:4", "must be above 0 and not fall"),
        ("x=1:inf:4", "must be above 0 and not fall"),
        ("x=nan:2:4", "must be above 0 and not fall"),
        ("x=1:2:0", "0 values; must be from 1"),
        ("x=1:2:1", "one value is for a range without length"),
        ("x=2:2:3", "one value is for a range without length"),
    ],
)
def test_ranges_that_cannot_be_are_refused(text, words):
    with pytest.raises(RuleError, match=words):
        parse_axis(text)


def test_a_rules_own_value_is_tried_too():
    grid = thresholds(THRESHOLD, [ROWS])
    assert grid.values[0][0] == 7
    assert grid.points()[grid.own] == {"rows": 7}
    assert len(grid.points()) == 32


def test_parameters_that_cannot_be_tuned_are_refused():
    for axes, words in (
        ([], "at least one is needed; rule made has rows"),
        ([ROWS, ROWS], "rows is given twice"),
        ([Axis(name="tau_s", low=1, high=2, count=2)], "no parameter 'tau_s'"),
    ):
        with pytest.raises(RuleError, match=words):
            thresholds(THRESHOLD, axes)
    two = rule(by_rows, rows=1, other=1)
    many = [Axis(name=name, low=1, high=9, count=200) for name in ("rows", "other")]
    with pytest.raises(RuleError, match="combinations; at most 10,000 are tried"):
        thresholds(two, many)


def test_the_middle_of_the_largest_connected_part_is_taken():
    import numpy as np

    assert middle(np.array([1, 0, 1, 1, 1, 0, 1, 1], dtype=bool), (8,)) == 3
    assert middle(np.array([1, 0, 0, 1], dtype=bool), (4,)) == 0
    grid = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 1]], dtype=bool)
    assert middle(grid.ravel(), grid.shape) == 5


# --- tuning


def test_a_known_threshold_is_found_with_its_plateau():
    found = tune(THRESHOLD, outcomes(*stepped(at=100)), [ROWS])
    # rows of the scenarios are ..., 80, 122, ...: every threshold between them is right
    assert 81 <= found.picked.values["rows"] <= 122
    assert (found.picked.accuracy, found.picked.mean_regret) == (1, 0)
    assert found.untuned.values == {"rows": 7}
    assert found.untuned.mean_regret > 0
    strict = found.plateaus[0]
    assert (strict.measure, strict.at.accuracy, strict.tolerance) == ("accuracy", 1, 0.05)
    low, high = strict.ranges[0].low, strict.ranges[0].high
    # one scenario of 20 may be wrong: rows from 54 to 182
    assert 54 < low <= 81
    assert 122 < high <= 184
    assert not strict.ranges[0].ends
    assert found.held_out.accuracy >= 0.9
    assert found.held_out.picked[0].low > 50
    assert len(found.folds) == 5
    assert sum(fold.num_test for fold in found.folds) == 20


def test_a_plateau_that_goes_on_says_so():
    found = tune(THRESHOLD, outcomes(*stepped(at=1)), [ROWS])
    regret = next(p for p in found.plateaus if p.measure == "mean_regret")
    assert regret.ranges[0].ends


def test_points_agree_with_judgements():
    made = stepped()
    for point in tune(THRESHOLD, outcomes(*made), [ROWS]).points[::7]:
        s = summarize(judge_all(THRESHOLD.with_parameters(**point.values), made))
        assert point.mean_regret == pytest.approx(s.mean_regret)
        assert point.accuracy == s.accuracy.share
        assert point.accuracy_within_noise == s.accuracy_within_noise.share
        assert point.mean_schedule_regret == pytest.approx(s.mean_schedule_regret)


def test_faults_of_some_values_are_counted_and_not_picked():
    def function(f, values):
        return "fast" if values["rows"] > 1000 else by_rows(f, values)

    made = stepped()
    found = tune(rule(function, rows=7), outcomes(*made), [ROWS])
    assert {p.num_faults for p in found.points if p.values["rows"] > 1000} == {len(made)}
    assert found.picked.num_faults == 0


def test_several_parameters_make_a_grid():
    def function(f, values):
        return UNFUSED if values["rows"] <= f.m < values["most"] else "serial"

    axes = [ROWS, Axis(name="most", low=10, high=1e6, count=6)]
    found = tune(rule(function, rows=10, most=10), outcomes(*stepped()), axes)
    assert len(found.points) == 31 * 6
    assert found.parameters == ("rows", "most")
    assert found.picked.mean_regret == 0
    assert {r.name for r in found.plateaus[0].ranges} == {"rows", "most"}


def test_folds_keep_the_layers_of_a_model_together():
    made = [*stepped(), *stepped(machine="h200_8")]
    together, folds = assign_folds(made, 5, 0)
    assert together == "model"
    assert sorted(i for fold in folds for i in fold) == list(range(len(made)))
    models = [{made[i].model for i in fold} for fold in folds]
    assert sum(map(len, models)) == len(set().union(*models)) == 7
    together, folds = assign_folds(made, 10, 0)
    names = [{made[i].workload.name for i in fold} for fold in folds]
    assert together == "workload"
    assert sum(map(len, names)) == 20
    assert assign_folds(made, 5, 1) != assign_folds(made, 5, 0)


def test_too_few_scenarios_are_not_cross_validated():
    found = tune(THRESHOLD, outcomes(simple()), [ROWS])
    assert found.held_out is None
    assert found.folds == ()
    assert "too few scenarios" in found.notes[-1]
    three = tune(THRESHOLD, outcomes(*stepped(count=3)), [ROWS])
    assert len(three.folds) == 3
    assert "3 folds" in three.notes[-1]
    for folds in (1, 101):
        with pytest.raises(ScenarioError, match=f"folds: {folds} must be from 2 to 100"):
            tune(THRESHOLD, outcomes(*stepped()), [ROWS], folds=folds)


@settings(max_examples=20, deadline=None)
@given(tables())
def test_tuning_never_loses_on_what_it_is_tuned_on(found):
    axes = [Axis(name="rows", low=1, high=10_000, count=20)]
    tuned = tune(THRESHOLD, outcomes(*found), axes, folds=2)
    assert tuned.picked.mean_regret <= tuned.untuned.mean_regret + 1e-12
    assert tuned.picked.mean_regret == pytest.approx(min(p.mean_regret for p in tuned.points))
    for point in tuned.points:
        assert point.accuracy_within_noise >= point.accuracy
        assert point.mean_regret >= point.mean_schedule_regret - 1e-12
    for plateau in tuned.plateaus:
        for r in plateau.ranges:
            assert r.low <= plateau.at.values[r.name] <= r.high


@settings(max_examples=5, deadline=None)
@given(tables(), tables(machine="h200_8"))
def test_the_same_seed_gives_the_same_reports_byte_for_byte(here, there):
    both, axes = outcomes(*here, *there), [Axis(name="rows", low=1, high=10_000, count=5)]

    def text():
        return dump_json(tune(THRESHOLD, both, axes, seed=2)) + dump_json(
            portability(THRESHOLD, both, axes, seed=2)
        )

    assert text() == text()


# --- portability


def cell(found, tuned_on, judged_on):
    return next(c for c in found.cells if (c.tuned_on, c.judged_on) == (tuned_on, judged_on))


def test_a_threshold_that_moves_between_machines_is_regained_by_tuning():
    both = outcomes(*stepped(at=100), *stepped(at=2000, machine="h200_8"))
    found = portability(THRESHOLD, both, [ROWS])
    assert found.machines == ("h200_2", "h200_8")
    assert [t.machine for t in found.tuned] == [UNTUNED, "h200_2", "h200_8"]
    assert 81 <= found.tuned[1].values["rows"] <= 122
    assert 1230 < found.tuned[2].values["rows"] <= 2100
    for name in found.machines:
        assert cell(found, name, name).mean_regret == 0
        assert cell(found, name, name).regained == 0
    moved = cell(found, "h200_2", "h200_8")
    assert moved.bad
    assert not moved.stays_bad
    # 7 scenarios lie between the thresholds, each with a regret of 1
    assert moved.mean_regret == moved.regained == pytest.approx(7 / 20)
    # with two machines all others are the other one
    assert cell(found, OTHERS, "h200_8") == replace(moved, tuned_on=OTHERS)
    assert found.missing == ()
    assert found.used == ("m",)


def test_a_machine_where_no_threshold_helps_names_the_missing_feature():
    narrow = [
        simple(2.0, 5.0, 1.0, name=f"n{m}-{i}", m=m, n=64 << i, machine="h200_8")
        for m in (64, 512, 4096)
        for i in range(3)
    ]
    wide = [
        simple(1.0, 5.0, 2.0, name=f"w{m}-{i}", m=m, n=4096 << i, machine="h200_8")
        for m in (64, 512, 4096)
        for i in range(3)
    ]
    never = rule(lambda f, _v: UNFUSED if f.m > 0 else "serial", rows=7)
    found = portability(never, outcomes(*stepped(at=1), *narrow, *wide), [ROWS])
    assert cell(found, "h200_8", "h200_8").stays_bad
    (gap,) = found.missing
    assert gap.machine == "h200_8"
    split = gap.splits[0]
    assert split.feature == "n"
    assert (split.gain_share, split.told) == (pytest.approx(1), "wrong")
    assert 256 < split.threshold < 4096
    assert {split.told_above, split.told_at_most} == {0, 1}
    assert abs(split.spearman) > 0.5
    assert "m" not in {s.feature for s in gap.splits}


def test_splits_are_those_of_information_gain():
    features = {"a": [1, 2, 3, 4, 5, 6], "b": [1, 1, 1, 1, 1, 1], "c": [1, 2, 1, 2, 1, 2]}
    wrong = [False, False, True, True, True, True]
    (first,) = best_splits(features, wrong, [0, 0, 1, 1, 1, 1])
    whole = -(1 / 3) * math.log2(1 / 3) - (2 / 3) * math.log2(2 / 3)
    assert (first.feature, first.threshold) == ("a", 2.5)
    assert (first.gain_bits, first.gain_share) == (pytest.approx(whole), pytest.approx(1))
    assert (first.num_at_most, first.num_above) == (2, 4)


def test_where_all_are_wrong_the_split_is_on_the_median_regret():
    (split,) = best_splits({"a": [1, 2, 3, 4]}, [True] * 4, [0.1, 0.2, 0.8, 0.9])
    assert (split.told, split.threshold, split.told_above) == ("above the median regret", 2.5, 1)
    assert best_splits({"a": [1, 1, 1, 1]}, [True] * 4, [0.1, 0.2, 0.8, 0.9]) == ()
    assert best_splits({"a": [1, 2, 3, 4]}, [True] * 4, [0.1] * 4) == ()


def test_features_that_a_rule_reads_are_seen():
    assert used_features(RULES["published"], [simple()]) == ("m", "k", "flops", "peak_flops_per_s")
    assert used_features(RULES["oracle"], [simple()]) == ()

    def fails_late(f, _values):
        return [f.n, f.no_such]

    assert used_features(rule(fails_late), [simple()]) == ("n",)


def test_one_machine_has_nothing_to_be_moved_to():
    with pytest.raises(ScenarioError, match="at least two machines are needed; all is of h200_2"):
        portability(THRESHOLD, outcomes(simple()), [ROWS])


@settings(max_examples=15, deadline=None)
@given(tables(), tables(machine="h200_8"))
def test_the_diagonal_is_the_best_of_its_column(here, there):
    found = portability(
        THRESHOLD, outcomes(*here, *there), [Axis(name="rows", low=1, high=10_000, count=10)]
    )
    for name in found.machines:
        best = cell(found, name, name)
        column = [c for c in found.cells if c.judged_on == name]
        assert len(column) == 4
        assert best.regained == 0
        for c in column:
            assert c.mean_regret >= best.mean_regret - 1e-12
            assert c.regained == pytest.approx(c.mean_regret - best.mean_regret)
            assert c.accuracy_within_noise >= c.accuracy


def test_a_rule_may_pick_a_schedule_by_a_name_that_is_always_the_best():
    found = tune(
        rule(lambda _f, _v: FUSED, x=1), outcomes(simple(3.0, 1.0, 2.0)), [parse_axis("x=1:2:2")]
    )
    assert found.picked.accuracy == 1

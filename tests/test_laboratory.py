"""Layer: rules judged on hand-made outcomes, with known right answers; nothing is simulated."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laboratory_support import (
    FUSED,
    UNFUSED,
    by_rows,
    machine_of,
    oracle,
    outcome,
    outcomes,
    plan,
    rule,
    simple,
    write_table,
)

from ficco_sim.errors import FiccoError, MachineError, ScenarioError
from ficco_sim.heuristics import RULES, Decision
from ficco_sim.io import dump_json
from ficco_sim.laboratory import (
    among,
    bootstrap_mean,
    evaluate,
    from_records,
    from_sweep,
    joined,
    judge,
    judge_all,
    small_sets,
    summarize,
    wilson,
)
from ficco_sim.laboratory.judge import SIMULATED_NOISE, plan_for
from ficco_sim.laboratory.measured import LEAST_NOISE, spread
from ficco_sim.records import read_records

RUNS = Path(__file__).parent.parent / "hw_validate" / "runs"
ALWAYS_FUSED = RULES[f"always-{FUSED}"]
ALWAYS_UNFUSED = RULES[f"always-{UNFUSED}"]
SERIAL = RULES["always-serial"]

seconds = st.floats(1e-5, 1.0)


@st.composite
def tables(draw, least=1, most=12):
    """Outcomes whose rows of A differ."""
    rows = draw(st.lists(st.integers(2, 5000), min_size=least, max_size=most, unique=True))
    return [
        simple(*(draw(seconds) for _ in range(3)), name=f"model{i % 4}-tp8-{m}", m=m)
        for i, m in enumerate(rows)
    ]


# --- one scenario


@pytest.mark.parametrize(
    ("answer", "verdict", "regret", "loss"),
    [(UNFUSED, "right", 0, 0), (FUSED, "wrong", 0.5, 2 - 4 / 3), ("serial", "wrong", 1, 1)],
)
def test_a_choice_is_held_against_the_best(answer, verdict, regret, loss):
    j = judge(rule(lambda _f, _v: answer), simple())
    assert (j.chosen, j.best_schedule, j.verdict, j.fault) == (answer, UNFUSED, verdict, None)
    assert (j.best_s, j.best_speedup, j.noise) == (2, 2, SIMULATED_NOISE)
    assert (j.regret, j.schedule_regret) == (pytest.approx(regret), pytest.approx(regret))
    assert j.loss == pytest.approx(loss)
    assert j.exact


def test_within_the_noise_but_not_best_is_unsure():
    near = simple(fused=2.03)
    assert judge(ALWAYS_FUSED, near).verdict == "unsure" if SIMULATED_NOISE > 0.015 else "wrong"
    assert judge(ALWAYS_FUSED, near, noise=0.01).verdict == "wrong"
    assert judge(ALWAYS_FUSED, replace(near, noise=0.014)).verdict == "wrong"
    assert judge(ALWAYS_FUSED, replace(near, noise=0.016)).verdict == "unsure"


def test_a_schedule_that_ties_for_the_best_is_right():
    j = judge(ALWAYS_FUSED, simple(fused=2.0))
    assert (j.verdict, j.best_schedule, j.regret) == ("right", FUSED, 0)


def test_the_right_schedule_with_other_knobs_is_right_and_has_regret():
    found = outcome(plan("serial", 4.0), plan(FUSED, 2.0, 8), plan(FUSED, 3.0, 2))
    j = judge(ALWAYS_FUSED, found)
    assert (j.verdict, j.regret, j.schedule_regret) == ("right", 0.5, 0)
    assert j.right_within_noise
    assert not j.plan_within_noise
    assert judge(ALWAYS_FUSED, found, knobs="best").regret == 0


@pytest.mark.parametrize(
    ("wish", "title", "exact"),
    [
        ({}, f"{FUSED} c2", True),
        ({"num_chunks": 4}, f"{FUSED} c4", True),
        ({"num_chunks": 6}, f"{FUSED} c8", False),  # 8/6 is less than 6/4
        ({"num_chunks": 100}, f"{FUSED} c8", False),
        ({"num_chunks": 3, "engine": "core"}, f"{FUSED} c2 core", False),
        ({"num_chunks": 2, "engine": "core"}, f"{FUSED} c2 core", True),
    ],
)
def test_the_nearest_knobs_stand_for_those_that_were_not_tried(wish, title, exact):
    found = outcome(
        plan("serial", 9.0), plan(FUSED, 3.0, 2), plan(FUSED, 4.0, 4), plan(FUSED, 5.0, 8),
        plan(FUSED, 1.0, 2, engine="core"), plan(FUSED, 0.5, 2, variant="copy_queues 1"),
    )  # fmt: skip
    chosen = plan_for(Decision(schedule=FUSED, **wish), found)
    assert (chosen.plan, chosen.exact) == (title, exact)
    assert summarize([judge(rule(lambda _f, _v: Decision(schedule=FUSED, **wish)), found)])


def test_an_engine_that_a_rule_leaves_open_is_the_one_that_was_tried():
    found = outcome(plan("serial", 9.0, engine="core"), plan(FUSED, 3.0, 2, engine="core"))
    assert plan_for(Decision(schedule=FUSED), found).exact
    assert not plan_for(Decision(schedule=FUSED, engine="dma"), found).exact


def thrower(_f, _v):
    raise KeyError("no")


FAULTS = {
    "raised": thrower,
    "unknown schedule": lambda _f, _v: "fast",
    "impossible": lambda _f, _v: "all-gather",  # multiplies nothing
    "bad knob": lambda _f, _v: Decision(schedule=FUSED, num_chunks=0),
    "not tried": lambda _f, _v: "shard-ring",
}


@pytest.mark.parametrize("kind", FAULTS)
def test_faults_of_each_kind_are_counted_and_cost_what_serial_costs(kind):
    made = rule(FAULTS[kind])
    j = judge(made, simple())
    assert (j.fault, j.chosen, j.regret, j.verdict) == (kind, "serial", 1.0, "wrong")
    assert j.message
    report = evaluate([made], outcomes(simple(), simple(name="v", m=2048))).rules[0]
    assert report.fault_counts == {name: 2 * (name == kind) for name in FAULTS}
    assert [(row.kind, row.count) for row in report.faults] == [(kind, 2)]
    assert report.total.num_faults == report.total.num_wrong == 2


def test_a_fault_is_wrong_even_where_serial_is_best():
    j = judge(rule(thrower), simple(serial=1.0))
    assert (j.verdict, j.regret, j.right_strict, j.right_within_noise) == ("wrong", 0, False, False)


# --- many


def test_the_summary_of_a_table_with_known_answers():
    found = [
        simple(name="a"),  # right
        simple(name="b", fused=1.98),  # unsure: 2.0 is 1 % longer
        simple(name="c", fused=1.0),  # wrong, regret 1
        simple(name="d", serial=1.0, fused=4.0, unfused=4.0),  # wrong, regret 3
    ]
    s = summarize(judge_all(ALWAYS_UNFUSED, found))
    assert (s.num_right, s.num_unsure, s.num_wrong, s.num_faults) == (1, 1, 2, 0)
    assert (s.accuracy.share, s.accuracy_within_noise.share) == (0.25, 0.5)
    assert (s.accuracy.low, s.accuracy.high) == wilson(1, 4)
    assert s.mean_regret == pytest.approx((0 + 2 / 1.98 - 1 + 1 + 3) / 4)
    assert s.median_regret == pytest.approx((1 + 2 / 1.98 - 1) / 2)
    assert (s.max_regret, s.worst) == (3, "d on h200_2")
    assert s.mean_loss_when_wrong == pytest.approx(((4 - 2) + (1 - 0.25)) / 2)
    assert s.mean_regret_low < s.mean_regret < s.mean_regret_high
    assert s.mean_speedup == pytest.approx((2 * 2 * 2 * 0.25) ** 0.25)
    report = evaluate([ALWAYS_UNFUSED], outcomes(*found)).rules[0]
    assert {(c.best, c.chosen): c.count for c in report.confusion} == {
        (FUSED, UNFUSED): 2, (UNFUSED, UNFUSED): 1, ("serial", UNFUSED): 1
    }  # fmt: skip


def test_rules_to_compare_with_are_serial_and_the_best_that_never_changes():
    found = evaluate([ALWAYS_FUSED], outcomes(simple(), simple(name="b", m=2048)))
    assert [(r.rule, r.reference) for r in found.rules] == [
        (ALWAYS_FUSED.name, False), (SERIAL.name, True), (ALWAYS_UNFUSED.name, True)
    ]  # fmt: skip


def test_parts_by_machine_and_set_add_up():
    found = [
        simple(name="a"),
        simple(name="a", machine="h200_8"),
        simple(name="b", machine="h200_8", set_name="other"),
    ]
    report = evaluate([ALWAYS_UNFUSED], outcomes(*found)).rules[0]
    assert [(s.name, s.num_scenarios) for s in report.by_machine] == [("h200_2", 1), ("h200_8", 2)]
    assert [(s.name, s.num_scenarios) for s in report.by_set] == [("made", 2), ("other", 1)]


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        (13, 16, 0.570, 0.934),
        (81, 263, 0.255, 0.366),  # R. G. Newcombe (1998), Stat. Med. 17, 857-872, table I, method 3
        (15, 148, 0.062, 0.161),
        (0, 20, 0.0, 0.161),
        (1, 29, 0.006, 0.172),
    ],
)
def test_wilson_intervals_are_the_published_ones(successes, trials, low, high):
    assert wilson(successes, trials) == (pytest.approx(low, abs=6e-4), pytest.approx(high, abs=6e-4))


def test_wilson_refuses_what_is_no_share():
    for successes, trials in ((1, 0), (3, 2), (-1, 2)):
        with pytest.raises(ScenarioError, match="is no share"):
            wilson(successes, trials)


@given(st.integers(1, 500), st.data())
def test_wilson_intervals_hold_their_share_and_mirror(trials, data):
    successes = data.draw(st.integers(0, trials))
    low, high = wilson(successes, trials)
    assert 0 <= low <= successes / trials <= high <= 1
    mirrored = wilson(trials - successes, trials)
    assert mirrored == (pytest.approx(1 - high), pytest.approx(1 - low))


def test_the_bootstrap_of_a_mean_is_as_wide_as_theory_says():
    values = [0.0, 1.0] * 200
    low, high = bootstrap_mean(values, 0)
    assert (low, high) == (pytest.approx(0.451, abs=0.006), pytest.approx(0.549, abs=0.006))
    assert bootstrap_mean(values, 0) == (low, high)
    assert bootstrap_mean([0.1, 0.5, 0.7], 0) != bootstrap_mean([0.1, 0.5, 0.8], 0)


@settings(max_examples=25, deadline=None)
@given(tables())
def test_an_oracle_has_no_regret_and_no_rule_has_less(found):
    s = summarize(judge_all(oracle(*found), found))
    assert (s.mean_regret, s.max_regret, s.accuracy.share, s.num_inexact) == (0, 0, 1, 0)
    for name in (SERIAL, ALWAYS_FUSED, RULES["published"], rule(thrower)):
        for knobs in ("rule", "best"):
            judgements = judge_all(name, found, knobs=knobs)
            assert all(j.regret >= j.schedule_regret >= 0 for j in judgements)
            s = summarize(judgements)
            assert s.accuracy_within_noise.share >= s.accuracy.share
            assert s.num_right + s.num_unsure + s.num_wrong == len(found)
            assert s.max_regret >= s.p90_regret >= 0


@settings(max_examples=10, deadline=None)
@given(tables(least=2))
def test_the_same_seed_gives_the_same_report_byte_for_byte(found):
    def text():
        rules = [RULES["published"], RULES["size-threshold"]]
        return dump_json(evaluate(rules, outcomes(*found), seed=3, draws=20).to_plain())

    assert text() == text()


# --- small sets


def judged(right, wrong):
    made = rule(by_rows, rows=100)
    found = [simple(name=f"r{i}", m=100 + i) for i in range(right)]
    found += [simple(name=f"w{i}", m=2 + i) for i in range(wrong)]
    return judge_all(made, found)


def test_small_sets_are_those_of_the_hypergeometric_distribution():
    found = small_sets(judged(60, 40), draws=4000, seed=1)
    assert found.accuracy == 0.6
    assert found.mean == pytest.approx(0.6, abs=0.01)
    # scipy.stats.hypergeom(100, 60, 16): sf(12) and pmf(13)
    assert found.share_at_least == pytest.approx(0.0499, abs=0.012)
    assert found.share_equal == pytest.approx(0.0354, abs=0.01)
    assert sum(found.counts) == 4000
    assert found.share_below + found.share_at_least == pytest.approx(1)
    assert [q for q, _ in found.quantiles] == [0.025, 0.25, 0.5, 0.75, 0.975]


def test_all_of_16_scenarios_are_always_the_same_set():
    found = small_sets(judged(13, 3), draws=10)
    assert (found.lowest, found.highest, found.share_equal) == (13 / 16, 13 / 16, 1)


def test_too_few_scenarios_have_no_small_sets_and_draws_are_bounded():
    assert small_sets(judged(10, 5)) is None
    with pytest.raises(ScenarioError, match="draws: 0 must be from 1"):
        small_sets(judged(10, 6), draws=0)
    with pytest.raises(ScenarioError, match="seed: -1 must not be negative"):
        small_sets(judged(10, 6), seed=-1)


# --- where outcomes come from


def test_a_table_reads_back_as_the_same_outcomes(tmp_path):
    made = [simple(name="a"), simple(name="b", machine="h200_8", m=64)]
    found = from_sweep(write_table(tmp_path / "t.csv", *made))
    for was, is_ in zip(made, found.outcomes, strict=True):
        assert is_.tried == was.tried
        assert is_.features == was.features
        assert (is_.serial_s, is_.set_name, is_.source) == (was.serial_s, "t", "simulated")
    assert found.source == "simulated"
    assert found.places == ("h200_2", "h200_8")


def test_machines_that_do_not_come_with_the_package_must_be_given(tmp_path):
    mine = replace(machine_of("h200_2"), name="mine")
    path = write_table(tmp_path / "t.csv", replace(simple(), machine=mine))
    with pytest.raises(MachineError, match="machine 'mine' is unknown; give its file with --machine"):
        from_sweep(path)
    assert from_sweep(path, {"mine": mine}).places == ("mine",)
    wrong = replace(machine_of("h200_8"), name="mine")
    with pytest.raises(MachineError, match="has 2 gpus in the table, and 8 in its file"):
        from_sweep(path, {"mine": wrong})


def test_outcomes_without_serial_are_refused():
    with pytest.raises(ScenarioError, match="w on h200_2: serial was not tried"):
        outcome(plan(FUSED, 1.0, 2))
    with pytest.raises(ScenarioError, match=r"serial_s: 0\.5 is less than any plan's makespan"):
        outcome(plan(FUSED, 1.0, 2), serial_s=0.5)


def test_an_exchange_that_is_not_named_is_left_out_with_a_note(tmp_path):
    path = write_table(tmp_path / "t.csv", simple(name="a"), simple(name="b"))
    lines = [
        line.replace("all_gather_gemm", "all_to_all_gemm") if line.startswith("b,") else line
        for line in path.read_text().splitlines(keepends=True)
    ]
    path.write_text("".join(lines))
    found = from_sweep(path)
    assert [o.workload.name for o in found.outcomes] == ["a"]
    (note,) = found.notes
    assert "left out: b: a table does not hold who sends how much to whom" in note


def test_choices_among_some_schedules_only():
    found = among(outcomes(simple(), simple(name="b", m=64)), ["serial", FUSED])
    assert judge(ALWAYS_FUSED, found.outcomes[0]).verdict == "right"
    assert judge(ALWAYS_UNFUSED, found.outcomes[0]).fault == "not tried"
    without = among(outcomes(simple(serial=1.0)), [FUSED])
    assert judge(SERIAL, without.outcomes[0]).regret == 0  # a fault, but not faster than the best
    assert [r.rule for r in evaluate([ALWAYS_FUSED], without).rules] == [ALWAYS_FUSED.name] * 2
    with pytest.raises(ScenarioError, match="--among: shard-ring: not tried anywhere; tried were"):
        among(outcomes(simple()), ["shard-ring", FUSED])


def test_sets_that_share_scenarios_say_so():
    found = joined([outcomes(simple()), outcomes(simple(set_name="other"))])
    assert found.notes == ("1 scenarios are in several sets, and count in each",)
    with pytest.raises(ScenarioError, match="no scenario can be judged"):
        joined([])


def test_the_noise_must_be_a_number_from_0_up():
    for noise in (-0.1, float("nan"), float("inf")):
        with pytest.raises(ScenarioError, match=r"noise: .* must be a finite number from 0 up"):
            judge(SERIAL, simple(), noise=noise)


@pytest.fixture(scope="module")
def records():
    paths = [RUNS / "h200_x2" / f"{name}.jsonl.gz" for name in ("dma", "repeated")]
    return [(path, read_records(path)) for path in paths]


def test_measured_plans_load_with_their_medians_and_noise(records):
    found = from_records(records, machine_of("h200_8"), emulates="switch")
    assert sum(len(o.tried) for o in found.outcomes) == 1304
    assert len(found.outcomes) == 15
    assert found.source == "measured (emulated)"
    assert {o.place for o in found.outcomes} == {"h200_8 (measured switch dma)"}
    assert all(o.noise >= LEAST_NOISE for o in found.outcomes)
    s = summarize(judge_all(SERIAL, found.outcomes))
    assert s.mean_regret > 0.05
    assert s.noise_low >= LEAST_NOISE
    first = found.outcomes[0]
    samples = [
        x
        for _, r in records
        for m in r.measurements
        if m.kind == "plan"
        and (m.params["workload"], m.params["emulates"]) == (first.workload.name, "switch")
        and m.params["schedule"] == "serial"
        for x in m.samples_s
    ]
    assert (
        sorted(samples)[len(samples) // 2 - 1] <= first.serial_s <= sorted(samples)[len(samples) // 2]
    )


def test_records_refuse_other_machines_and_maps(records):
    with pytest.raises(MachineError, match="h200_2: it has 2 gpus, the measured plans have 8"):
        from_records(records, machine_of("h200_2"), emulates="switch")
    with pytest.raises(ScenarioError, match="--map ring: no plans of it in the records, only of mesh"):
        from_records(records, machine_of("h200_8"), emulates="ring")
    with pytest.raises(FiccoError, match="records of several maps"):
        from_records(records, machine_of("h200_8"))


def test_the_spread_is_half_the_interquartile_range():
    assert spread([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(1 / 3)

"""Layer: formulas. Features, built-in rules, how their answers are checked; few tests simulate."""

import timeit
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples

from ficco_sim.comparison import compare, gemm_to_communication
from ficco_sim.costs import CostModel
from ficco_sim.errors import FiccoError, MachineError, RuleError, ScenarioError
from ficco_sim.grid import COMPARED, Grid
from ficco_sim.heuristics import (
    FEATURE_NAMES,
    RULES,
    Decision,
    FeatureRule,
    RuleFault,
    decide,
    default_knobs,
    features_of,
    machine_features,
    pick_all,
)
from ficco_sim.machine import load_machine, named_machines
from ficco_sim.schedules import make_plan
from ficco_sim.workload import Workload, get_workload, named_workloads, skewed

QUICK = [rule for name, rule in RULES.items() if name != "oracle"]
FINER = ("uniform-fused-1d", "hetero-fused-1d", "hetero-unfused-1d")
sizes = st.integers(1, 2**17)


def gather(m: int, n: int, k: int, dtype: str = "bf16") -> Workload:
    return Workload(name="drawn", pattern="all_gather_gemm", m=m, n=n, k=k, dtype=dtype)


@pytest.fixture(scope="module")
def mesh():
    return load_machine("mi300x_8")


def chosen(name: str, workload: Workload, machine, **values: float) -> str:
    decision = decide(RULES[name].with_parameters(**values), workload, machine)
    assert isinstance(decision, Decision)
    return decision.schedule


def test_features_are_those_of_the_definitions(mesh):
    f = features_of(gather(8192, 7168, 8192), mesh)
    assert f.flops == 2 * 8192 * 7168 * 8192
    assert f.gemm_bytes == 2 * (8192 * 8192 + 8192 * 7168 + 8192 * 7168)
    assert f.otb_flops_per_byte == f.flops / f.gemm_bytes
    assert f.roofline_s == f.flops / mesh.gpu.peak_flops_per_s["bf16"]
    assert f.received_bytes == 7 * 1024 * 8192 * 2
    assert f.shard_bytes * 8 == f.gathered_bytes
    assert f.all_peers_bytes_per_s == 7 * f.peer_bytes_per_s
    assert f.copy_step_s == f.copy_command_s  # an engine for each of 7 peers
    assert f.launch_s < f.gemm_s
    assert f.gemm_to_comm == f.gemm_s / f.comm_s


def test_a_gemm_bound_by_memory_has_the_time_of_its_bytes(mesh):
    f = features_of(gather(64, 8192, 8192), mesh)
    assert f.roofline_s == f.gemm_bytes / f.hbm_bytes_per_s > f.flops / f.peak_flops_per_s


def test_rows_that_do_not_divide_are_received_by_the_gpu_that_owns_fewest(mesh):
    assert features_of(gather(15, 64, 64), mesh).received_bytes == 14 * 64 * 2
    assert features_of(gather(7, 64, 64), mesh).received_bytes == 7 * 64 * 2


def test_an_exchange_counts_what_the_busiest_gpu_receives(mesh):
    even = get_workload("mixtral-8x7b-ep8-gate-up-2k")
    f, g = features_of(even, mesh), features_of(skewed(even, 1.0), mesh)
    assert f.is_exchange == g.is_exchange == 1
    assert f.imbalance == pytest.approx(1)
    assert g.imbalance == pytest.approx(g.m / f.m, rel=1e-3)
    assert f.received_bytes == f.gathered_bytes * 7 / 8
    assert g.received_bytes > f.received_bytes


@pytest.mark.parametrize(
    ("name", "gather_share", "exchange_share", "peer_share", "next_share"),
    [
        ("mi300x_8", 7, 7, 1, 1),
        ("ring_8", 2, 7 / 8, 1 / 2, 1),  # each link carries 8 of the 28 halves of pairs
        ("ring_8_oneway", 1, 1 / 4, 1 / 4, 1 / 7),
        ("h200_8", 1, 1, 1, 1),
        ("hypercube_8", 3, 7 / 4, 1, 1),
    ],
)
def test_rates_follow_from_the_topology(name, gather_share, exchange_share, peer_share, next_share):
    machine = load_machine(name)
    link = machine.links[0].usable_bytes_per_s
    f = machine_features(machine)
    assert f.gather_bytes_per_s == pytest.approx(gather_share * link, rel=0.02)
    assert f.exchange_bytes_per_s == pytest.approx(exchange_share * link, rel=0.02)
    assert f.peer_bytes_per_s == pytest.approx(peer_share * link, rel=0.02)
    assert f.next_bytes_per_s == pytest.approx(next_share * link, rel=0.02)


def test_one_engine_serves_one_link_at_a_time():
    machine = load_machine("a100_4")
    f = machine_features(machine)
    assert f.num_dma_engines == 1
    assert f.gather_bytes_per_s == f.peer_bytes_per_s == machine.links[0].usable_bytes_per_s


@pytest.mark.parametrize("machine", ["mi300x_8", "h200_8", "mi210_4", "ring_8", "torus_2x4"])
@pytest.mark.parametrize("shape", [(32768, 1280, 8192), (8192, 3584, 4096)])
def test_the_estimated_ratio_is_near_the_simulated_one(machine, shape):
    place, workload = load_machine(machine), gather(*shape)
    simulated = gemm_to_communication(workload, place, CostModel(place))
    assert features_of(workload, place).gemm_to_comm == pytest.approx(simulated, rel=0.25)


def test_a_machine_of_one_gpu_moves_nothing():
    machine = replace(load_machine("mi300x_8"), num_gpus=1, links=())
    f = features_of(gather(512, 512, 512), machine)
    assert f.received_bytes == f.comm_s == f.peer_comm_s == 0
    assert f.gemm_to_comm == 1e9
    for rule in QUICK:
        assert isinstance(decide(rule, gather(512, 512, 512), machine), Decision)


@pytest.mark.parametrize("name", ["torus_4x4x4", "torus_4x4", "ring_8", "mi300x_8", "h200_8"])
def test_large_machines_are_judged_by_the_routes_of_one_gpu(name, monkeypatch):
    machine = load_machine(name)
    exact = machine_features(machine)
    monkeypatch.setattr("ficco_sim.heuristics.machines.MAX_ROUTED_GPUS", 1)
    quick = machine_features(replace(machine, description="another object"))
    assert quick.gather_bytes_per_s == exact.gather_bytes_per_s
    assert quick.exchange_bytes_per_s == pytest.approx(exact.exchange_bytes_per_s)
    assert quick.next_bytes_per_s == exact.next_bytes_per_s
    assert quick.peer_bytes_per_s == pytest.approx(exact.peer_bytes_per_s, rel=0.5)


def test_a_pick_takes_microseconds(mesh):
    pairs = [gather(8192, 7168, 8192), gather(4096, 1280, 8192)]

    def picks():
        for workload in pairs:  # another each time, so that features are computed anew
            decide(RULES["published"], workload, mesh)

    seconds = min(timeit.repeat(picks, number=200, repeat=5)) / 400
    assert seconds < 200e-6  # about 9 us on an idle machine


def test_scenarios_that_nothing_can_run_are_errors_and_no_faults(mesh):
    exchange = get_workload("mixtral-8x7b-ep8-gate-up-2k")
    rule = RULES["always-serial"]
    with pytest.raises(ScenarioError, match="tokens are for 8 gpus, not 4"):
        decide(rule, exchange, load_machine("a100_4"))
    with pytest.raises(MachineError, match="no GEMM rates for 'fp8'"):
        decide(rule, gather(64, 64, 64, "fp8"), load_machine("a100_4"))
    pure = Workload(name="x", pattern="all_gather", m=64, n=1, k=64)
    with pytest.raises(ScenarioError, match="nothing to choose for the pattern all_gather"):
        decide(rule, pure, mesh)
    apart = replace(mesh, links=mesh.links[:7], family="links")
    with pytest.raises(MachineError):
        decide(rule, gather(64, 64, 64), apart)


def test_the_branches_of_the_published_rule(mesh):
    peak = mesh.gpu.peak_flops_per_s["bf16"]
    workload = gather(8192, 8192, 8192)
    seconds = workload.flops / peak
    assert chosen("published", gather(8191, 8192, 8192), mesh, tau_s=1e-9) == "uniform-fused-2d"
    assert chosen("published", workload, mesh, tau_s=seconds * 1.001) == "uniform-fused-1d"
    assert chosen("published", workload, mesh, tau_s=seconds * 0.999) == "hetero-fused-1d"
    assert chosen("published", workload, mesh, tau_s=seconds / 4.999) == "hetero-fused-1d"
    assert chosen("published", workload, mesh, tau_s=seconds / 5.001) == "hetero-unfused-1d"
    assert chosen("published", workload, mesh, tau_s=seconds / 5.001, factor=6) == "hetero-fused-1d"


@given(m=st.integers(1, 2**18), n=st.integers(1, 2**16), k=st.integers(1, 2**15))
def test_the_literal_rule_never_picks_unfused(mesh, m, n, k):
    # 131,072 x 13,312 x 16,384 is the largest GEMM of the named workloads
    assert chosen("published-literal", gather(m, n, k), mesh) != "hetero-unfused-1d"


def test_the_literal_rule_picks_one_schedule_of_three_for_all_named_workloads(mesh):
    for workload in named_workloads().values():
        wanted = "uniform-fused-2d" if workload.m < workload.k else "uniform-fused-1d"
        assert chosen("published-literal", workload, mesh) == wanted


@examples(60)
@given(m=sizes, n=sizes, k=sizes, tau_s=st.floats(1e-7, 1.0))
def test_a_gemm_twice_as_wide_is_judged_alike_with_twice_the_tau(mesh, m, n, k, tau_s):
    one = chosen("published", gather(m, n, k), mesh, tau_s=tau_s)
    assert chosen("published", gather(m, 2 * n, k), mesh, tau_s=2 * tau_s) == one


@examples(60)
@given(m=sizes, n=sizes, k=sizes, tau_s=st.floats(1e-7, 1.0))
def test_a_gpu_twice_as_fast_is_judged_alike_with_half_the_tau(mesh, m, n, k, tau_s):
    peaks = {dtype: 2 * peak for dtype, peak in mesh.gpu.peak_flops_per_s.items()}
    fast = replace(mesh, gpu=replace(mesh.gpu, peak_flops_per_s=peaks))
    one = chosen("published", gather(m, n, k), mesh, tau_s=tau_s)
    assert chosen("published", gather(m, n, k), fast, tau_s=tau_s / 2) == one


@examples(60)
@given(m=sizes, n=sizes, k=sizes, tau_s=st.floats(1e-7, 0.1), more=st.floats(1, 100))
@pytest.mark.parametrize("name", ["published", "published-time"])
def test_a_larger_tau_never_cuts_finer(mesh, name, m, n, k, tau_s, more):
    less, much = (chosen(name, gather(m, n, k), mesh, tau_s=tau) for tau in (tau_s, tau_s * more))
    assert less == much or FINER.index(much) < FINER.index(less)


@examples(60)
@given(m=sizes, n=sizes, k=sizes, tau_s=st.floats(1e-7, 1.0))
def test_the_time_rule_differs_only_where_memory_sets_the_time(mesh, m, n, k, tau_s):
    workload = gather(m, n, k)
    f = features_of(workload, mesh)
    one, other = (chosen(name, workload, mesh, tau_s=tau_s) for name in ("published", "published-time"))
    compute_s = f.flops / f.peak_flops_per_s
    at_edge = min(abs(compute_s / (x * tau_s) - 1) for x in (1, 5)) < 1e-9
    if f.roofline_s == compute_s and not at_edge:
        assert one == other
    elif one != other:
        assert FINER.index(other) > FINER.index(one) or at_edge


def test_the_size_rule_has_two_thresholds(mesh):
    assert chosen("size-threshold", gather(2048, 16384, 7168), mesh) == "serial"
    assert chosen("size-threshold", gather(4096, 16384, 7168), mesh) == "hetero-unfused-1d"
    assert chosen("size-threshold", gather(8192, 4096, 128), mesh) == "shard-p2p"
    small = chosen(
        "size-threshold", gather(512, 4096, 128), mesh, serial_below_rows=0, ficco_from_bytes=0
    )
    assert small == "hetero-unfused-1d"


@pytest.mark.parametrize("name", named_machines())
def test_built_in_rules_pick_what_can_be_run(name):
    machine = load_machine(name)
    for workload in named_workloads().values():
        fits = workload.tokens is None or len(workload.tokens) == machine.num_gpus
        if not fits or workload.dtype not in machine.profile.gemm.rates:
            with pytest.raises(FiccoError):
                decide(RULES["published"], workload, machine)
            continue
        for rule in QUICK:
            answer = decide(rule, workload, machine)
            if isinstance(answer, RuleFault):
                assert (rule.name, answer.kind) == ("always-shard-ring", "impossible")
                assert workload.pattern == "all_to_all_gemm"
            else:
                assert answer.schedule in COMPARED[workload.pattern]
                assert answer.reason


@pytest.mark.parametrize("pattern", COMPARED)
def test_plans_of_all_decisions_can_be_made(mesh, pattern):
    workload = gather(500, 64, 64)
    if pattern == "all_to_all_gemm":
        workload = get_workload("deepseek-v3-ep8-gate-up-4k")
    for rule in QUICK:
        answer = decide(rule, workload, mesh)
        if isinstance(answer, Decision):
            plan = make_plan(answer.schedule, workload, 8, answer.knobs(8))
            assert plan.schedule == answer.schedule


@pytest.mark.parametrize("num_gpus", [2, 4, 8, 16])
def test_default_knobs_are_among_those_that_are_compared(num_gpus):
    points = [(name, knobs) for name, knobs in Grid().points("all_gather_gemm", num_gpus)]
    for name in COMPARED["all_gather_gemm"]:
        wanted = default_knobs(name, num_gpus)
        assert any(n == name and wanted.items() <= knobs.items() for n, knobs in points)


def test_default_knobs_of_very_large_machines_leave_room():
    assert default_knobs("hetero-fused-1d", 1024)["num_chunks"] == 3
    assert default_knobs("hetero-fused-1d", 128)["num_chunks"] == 128


def rule_of(answer) -> FeatureRule:
    return FeatureRule(name="mine", description="", function=lambda _f, _v: answer)


def test_answers_may_be_names_decisions_or_dicts(mesh):
    workload = gather(4096, 4096, 4096)
    named = decide(rule_of("serial"), workload, mesh)
    assert named == Decision(schedule="serial")
    full = {"schedule": "hetero-unfused-1d", "num_chunks": 2, "compute_queues": 1, "engine": "core"}
    assert decide(rule_of(full), workload, mesh) == Decision(**full)
    assert decide(rule_of(Decision(**full)), workload, mesh).knobs(8) == {
        "num_chunks": 2, "compute_queues": 1, "engine": "core",
    }  # fmt: skip


def test_reasons_are_made_text(mesh):
    for answer in ({"schedule": "serial", "reason": 3}, Decision(schedule="serial", reason=3)):
        assert decide(rule_of(answer), gather(64, 64, 64), mesh).reason == "3"


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        ("fused", "unknown schedule", "'fused' is unknown"),
        (None, "unknown schedule", "returned NoneType"),
        (3, "unknown schedule", "returned int"),
        ({"num_chunks": 2}, "unknown schedule", "without the key 'schedule'"),
        (Decision(schedule=["serial"]), "unknown schedule", "['serial']"),
        ("all-gather", "impossible", "no plan for the pattern all_gather_gemm"),
        ({"schedule": "serial", "num_chunks": 2}, "bad knob", "serial has no such knob"),
        ({"schedule": "hetero-fused-1d", "num_chunks": 0}, "bad knob", "num_chunks: 0"),
        ({"schedule": "hetero-fused-1d", "num_chunks": True}, "bad knob", "num_chunks: True"),
        ({"schedule": "hetero-fused-1d", "num_chunks": 2.0}, "bad knob", "num_chunks: 2.0"),
        ({"schedule": "hetero-fused-1d", "num_chunks": 10**9}, "bad knob", "1000000000"),
        ({"schedule": "hetero-unfused-1d", "compute_queues": 65}, "bad knob", "compute_queues: 65"),
        ({"schedule": "serial", "engine": "rdma"}, "bad knob", "'rdma' must be dma or core"),
        ({"schedule": "serial", "engine": []}, "bad knob", "[]"),
        ({"schedule": "serial", "queues": 3}, "bad knob", "'queues'"),
    ],
)
def test_wrong_answers_are_faults_of_their_kind(mesh, answer, kind, words):
    fault = decide(rule_of(answer), gather(4096, 4096, 4096), mesh)
    assert isinstance(fault, RuleFault)
    assert (fault.rule, fault.kind) == ("mine", kind)
    assert words in fault.message


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ZeroDivisionError("no rows\nat all"), "ZeroDivisionError at test_heuristic_rules.py"),
        (ScenarioError("odd"), "odd"),
        (SystemExit(3), "SystemExit"),
        (RecursionError(), "RecursionError"),
    ],
)
def test_a_rule_that_throws_is_a_fault(mesh, error, words):
    def throw(_features, _values):
        raise error

    rule = FeatureRule(name="mine", description="", function=throw)
    fault = decide(rule, gather(4096, 4096, 4096), mesh)
    assert isinstance(fault, RuleFault)
    assert fault.kind == "raised"
    assert words in fault.message
    assert "\n" not in fault.message


def test_faults_do_not_stop_other_rules(mesh):
    picks = pick_all(gather(4096, 4096, 4096), mesh, [rule_of("x"), RULES["published"]])
    assert [pick.fault is None for pick in picks.picks] == [False, True]
    assert all(pick.seconds > 0 for pick in picks.picks)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"tau": 1.0}, "no parameter 'tau'; it has tau_s, factor"),
        ({"tau_s": -1.0}, "tau_s: -1.0 must be a finite number from 0 up"),
        ({"tau_s": float("nan")}, "nan"),
        ({"factor": float("inf")}, "inf"),
        ({"factor": True}, "True"),
        ({"factor": "5"}, "'5'"),
    ],
)
def test_wrong_parameters_are_refused(values, words):
    with pytest.raises(RuleError, match=r"rule published: .*") as caught:
        RULES["published"].with_parameters(**values)
    assert words in str(caught.value)


def test_rules_without_parameters_say_so():
    for name in ("oracle", "always-serial"):
        assert not RULES[name].parameters
        with pytest.raises(RuleError, match="it has none"):
            RULES[name].with_parameters(tau_s=1.0)


def test_other_parameters_leave_the_rule_itself_alone():
    rule = RULES["published"]
    other = rule.with_parameters(tau_s=2.0)
    assert (rule.parameters["tau_s"], other.parameters["tau_s"]) == (1e-3, 2.0)
    assert other.parameters["factor"] == rule.parameters["factor"] == 5
    assert other.with_parameters(tau_s=1e-3).parameters == rule.parameters


def test_decisions_are_the_same_whatever_was_asked_before(mesh):
    ring = load_machine("ring_8")
    cases = [(w, m) for w in list(named_workloads().values())[:8] for m in (mesh, ring)]
    once = [[decide(rule, w, m) for rule in QUICK] for w, m in cases]
    again = [[decide(rule, w, m) for rule in QUICK] for w, m in reversed(cases)]
    assert once == again[::-1]


def test_the_oracle_is_the_best_of_compare():
    machine, workload = load_machine("h200_2"), gather(4096, 1280, 2048)
    decision = decide(RULES["oracle"], workload, machine)
    assert isinstance(decision, Decision)
    best = compare(workload, machine, intervals=False).results[0]
    assert decision.schedule == best.schedule
    assert decision.engine == best.engine
    knobs = decision.knobs(2)
    assert knobs.get("num_chunks", 1) == best.num_chunks
    assert knobs.get("compute_queues", 1) == best.compute_queues
    assert f"{best.speedup:.2f}x of serial" in decision.reason


def test_names_of_features_are_all_numbers(mesh):
    f = features_of(gather(4096, 4096, 4096), mesh)
    for name in FEATURE_NAMES:
        assert isinstance(getattr(f, name), (int, float))

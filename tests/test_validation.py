"""Measured plans beside simulated ones, by made-up and real records. Layer: simulator, command."""

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ficco_sim import io
from ficco_sim.cli import main
from ficco_sim.costs import CostModel
from ficco_sim.errors import FiccoError, ScenarioError
from ficco_sim.machine import Machine, load_machine
from ficco_sim.measured_plans import (
    computing_gpus,
    measured_spans,
    part_of_plan,
    plan_of,
    trace_of_measurement,
    workload_of,
)
from ficco_sim.plan import Gemm, Plan, Transfer
from ficco_sim.profile import ContentionProfile
from ficco_sim.records import (
    Measurement,
    Records,
    Sensors,
    Session,
    SpanSeries,
    measurement_key,
    read_records,
)
from ficco_sim.schedules import make_plan
from ficco_sim.sim import simulate
from ficco_sim.trace import Span
from ficco_sim.validation import (
    PlanRow,
    choose_plans,
    leave_one_out,
    plot_validation,
    rows_csv,
    summary_lines,
    validate,
)
from ficco_sim.workload import Workload

RUNS = Path(__file__).parent.parent / "hw_validate" / "runs" / "h200"
HOST_MAP = "0=dev0,1-7=host"
OFF = Sensors(sm_clock_hz=None, power_w=None, temperature_c=None)
SMALL = Workload(name="small", pattern="all_gather_gemm", m=2048, n=1024, k=1024, dtype="bf16")
LONG = Workload(name="long", pattern="all_gather_gemm", m=2048, n=4096, k=2048, dtype="bf16")
PLANS: tuple[tuple[str, dict[str, int]], ...] = (
    ("serial", {}),
    ("shard-p2p", {}),
    ("uniform-fused-1d", {"num_chunks": 2, "copy_queues": 1}),
    ("hetero-unfused-1d", {"num_chunks": 2, "compute_queues": 4}),
    ("uniform-fused-2d", {"num_chunks": 4}),
)
KNOBS = ("num_chunks", "compute_queues", "copy_queues", "engine", "gather")


@pytest.fixture(scope="module")
def machine() -> Machine:
    return load_machine("h200_host_8")


def record(
    plan: Plan,
    samples_s: Sequence[float],
    spans: Sequence[Span] = (),
    *,
    where: str = HOST_MAP,
    emulates: str = "host",
    sequence: int = 0,
    unusable: tuple[str, ...] = (),
    **other: object,
) -> Measurement:
    """What a run of a plan would have recorded."""
    w = plan.workload
    params = {
        "workload": w.name, "pattern": w.pattern, "m": w.m, "n": w.n, "k": w.k, "dtype": w.dtype,
        "num_gpus": plan.num_gpus, "schedule": plan.schedule,
        **{name: plan.knobs.get(name) for name in KNOBS},
        "map": where, "emulates": emulates, "submission": "graph", "core_blocks": None, **other,
    }  # fmt: skip
    series = SpanSeries(
        task_ids=tuple(span.task_id for span in spans),
        start_ns=tuple(round(span.start_s * 1e9) for span in spans),
        end_ns=tuple(round(span.end_s * 1e9) for span in spans),
    )
    return Measurement(
        kind="plan",
        key=measurement_key("plan", params),
        params=params,
        samples_s=tuple(samples_s),
        spans=series if spans else None,
        before=OFF,
        after=OFF,
        labels=() if emulates == "own" else ("emulated: gpus 1 to 7 only hold data",),
        sequence=sequence,
        unusable=unusable,
        session="made-up",
    )


def made_up(
    machine: Machine,
    distortions: dict[str, float] | None = None,
    workloads: Sequence[Workload] = (SMALL,),
    change: Callable[[Sequence[Span]], Sequence[Span]] = lambda spans: spans,
) -> Records:
    """Records of plans as simulated, but that the makespans are so many times as long."""
    costs = CostModel(machine)
    found = []
    for workload in workloads:
        for name, knobs in PLANS:
            plan = make_plan(name, workload, 8, knobs)
            trace = simulate(part_of_plan(plan, {0}), machine, costs)
            time_s = trace.makespan_s * (distortions or {}).get(name, 1.0)
            samples = (time_s * 0.9, time_s, time_s * 1.5)
            found.append(record(plan, samples, change(trace.spans), sequence=len(found)))
    return records_of(found)


def records_of(measurements: Sequence[Measurement]) -> Records:
    session = Session(
        session="made-up",
        started="2026-11-30T12:00:00Z",
        regime="burst",
        init="randn",
        command="none",
        environment={"device": "none"},
    )
    return Records(sessions=(session,), measurements=tuple(measurements))


def write(path: Path, records: Records) -> str:
    lines = [json.dumps(io.to_plain(item)) for item in (*records.sessions, *records.measurements)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def row_of(rows: Sequence[PlanRow], schedule: str, workload: str = "small") -> PlanRow:
    return next(row for row in rows if row.schedule == schedule and row.workload == workload)


# what comes out


def test_plans_of_another_number_of_copy_queues_are_left_out(machine: Machine) -> None:
    made = made_up(machine)
    kept = choose_plans(made, copy_queues=1).plans
    # serial and shard-level schedules have no choice, and are in any comparison
    assert [m.params["schedule"] for (m,) in kept] == ["serial", "shard-p2p", "uniform-fused-1d"]
    with pytest.raises(ScenarioError, match=r"--copy-queues 3: no such plans; .*7 \(2 plans\)"):
        choose_plans(made, copy_queues=3)


@pytest.mark.parametrize(
    ("series", "late"),
    [
        ({}, False),
        ({"host_submit_s": (99e-6,) * 3}, False),
        ({"host_submit_s": (5e-3,) * 3}, True),  # held back for 0.1 ms then
        ({"host_submit_s": (5e-3,) * 3, "late_submit_s": (0.0,) * 3}, False),
        ({"late_submit_s": (1e-3,) * 3}, True),
    ],
)
def test_plans_still_submitted_while_they_ran_are_left_out(
    machine: Machine,
    series: dict[str, tuple[float, ...]],
    late: bool,  # noqa: FBT001
) -> None:
    made = made_up(machine)
    first, *others = made.measurements
    made = records_of([replace(first, series=series), *others])
    chosen = choose_plans(made)
    assert chosen.num_late == late
    assert len(chosen.plans) == len(PLANS) - late
    remarks = validate(chosen, machine).remarks
    assert any("1 plans are left out: the host still" in r for r in remarks) == late
    assert len(choose_plans(made, max_late=1e6).plans) == len(PLANS)
    if late:
        with pytest.raises(ScenarioError, match="the host still submitted all 1 plans"):
            choose_plans(records_of(made.measurements[:1]))


def test_plans_are_simulated_at_the_clock_that_was_read(machine: Machine) -> None:
    """A mean over the workload's plans: single readings are rough."""
    reference_hz = machine.profile.gemm.sm_clock_hz
    assert reference_hz is not None
    plain = made_up(machine, workloads=(LONG,))
    readings = [replace(OFF, sm_clock_hz=reference_hz * share) for share in (0.7, 0.9)]
    clocked = records_of(
        [
            replace(m, before=readings[i % 2], after=readings[i % 2])
            for i, m in enumerate(plain.measurements)
        ]
    )
    found = validate(choose_plans(clocked), machine)
    mean_hz = reference_hz * (3 * 0.7 + 2 * 0.9) / 5
    costs = CostModel(machine, sm_clock_hz=mean_hz)
    plan = part_of_plan(make_plan("serial", LONG, 8, {}), {0})
    simulated_s = simulate(plan, machine, costs).makespan_s
    assert row_of(found.rows, "serial", "long").simulated_s == pytest.approx(simulated_s, rel=1e-12)
    assert row_of(found.rows, "serial", "long").error > 0.01
    (remark,) = (r for r in found.remarks if "at the clocks that were read" in r)
    assert f"{mean_hz / 1e9:.3g} GHz" in remark
    # a gpu that was read while it slept tells nothing
    asleep = replace(OFF, sm_clock_hz=reference_hz / 6)
    slept = records_of([replace(m, before=asleep, after=asleep) for m in plain.measurements])
    rows = validate(choose_plans(slept), machine).rows
    assert row_of(rows, "serial", "long").error == pytest.approx(0, abs=1e-12)


def test_what_was_simulated_itself_has_no_error(machine: Machine) -> None:
    found = validate(choose_plans(made_up(machine)), machine)
    assert [row.schedule for row in found.rows] == [name for name, _ in PLANS]
    for row in found.rows:
        assert row.error == pytest.approx(0, abs=1e-12)
        assert all(part.error == pytest.approx(0, abs=1e-4) for part in row.parts)
        assert all(kind.error == pytest.approx(0, abs=1e-3) for kind in row.kinds)
    s = found.summary
    assert (s.num_plans, s.num_workloads) == (len(PLANS), 1)
    assert (s.mean_regret, s.agreement, s.agreement_within_noise) == (0, 1, 1)
    assert s.rank_correlation == pytest.approx(1)
    assert s.kendall == pytest.approx(1)


def test_known_distortions_give_exactly_these_errors(machine: Machine) -> None:
    slower = {"serial": 1.25, "shard-p2p": 0.8, "uniform-fused-1d": 1.0, "hetero-unfused-1d": 2.0}
    found = validate(choose_plans(made_up(machine, slower)), machine, num_worst=2)
    errors = {name: 1 / slower.get(name, 1.0) - 1 for name, _ in PLANS}
    for name, error in errors.items():
        row = row_of(found.rows, name)
        assert row.error == pytest.approx(error)
        assert sum(part.error for part in row.parts) == pytest.approx(error, abs=1e-9)
        assert sum(part.measured_share for part in row.parts) == pytest.approx(1)
        assert sum(part.measured_s for part in row.parts) == pytest.approx(row.measured_s)
    sizes = [abs(error) for error in errors.values()]
    assert found.summary.mean_abs_error == pytest.approx(sum(sizes) / 5)
    assert found.summary.median_abs_error == pytest.approx(sorted(sizes)[2])
    # between the two largest: 0.25 and 0.5
    assert found.summary.p90_abs_error == pytest.approx(0.25 + 0.6 * 0.25)
    assert found.summary.max_abs_error == pytest.approx(0.5)
    assert found.summary.bias == pytest.approx(sum(errors.values()) / 5)
    assert [row.schedule for row in found.worst] == ["hetero-unfused-1d", "shard-p2p"]
    (serial,) = (row for row in found.schedules if row.schedule == "serial")
    assert (serial.num_plans, serial.bias) == (1, pytest.approx(-0.2))
    assert sum(serial.part_errors.values()) == pytest.approx(serial.bias)
    assert found.workloads[0].serial_error == pytest.approx(-0.2)


def test_regret_and_winners(machine: Machine) -> None:
    """Where the simulated winner was slowed, its measured time over the best is the regret."""
    best = validate(choose_plans(made_up(machine)), machine)
    order = sorted(best.rows, key=lambda row: row.simulated_s)
    winner, second = order[0], order[1]
    slower = {winner.schedule: 3.0}
    (row,) = validate(choose_plans(made_up(machine, slower)), machine).workloads
    assert (row.simulated_best, row.measured_best) == (winner.title, second.title)
    assert row.regret == pytest.approx(3 * winner.simulated_s / second.simulated_s - 1)
    assert (row.agreement, row.agreement_within_noise, row.num_tied) == (0, 0, 1)
    serial = row_of(best.rows, "serial")
    assert row.serial_regret == pytest.approx(serial.simulated_s / second.simulated_s - 1)
    # the first of five comes last: 4 of 10 pairs are in the wrong order
    if winner.simulated_s * 3 > order[-1].simulated_s:
        assert row.kendall == pytest.approx(1 - 2 * 4 / 10)
        assert row.spearman == pytest.approx(0)


def test_plans_that_tie_share_the_regret(machine: Machine) -> None:
    """GEMMs so short that queues do not matter: the simulator cannot tell, the measurement could."""
    plans = [
        make_plan("hetero-unfused-1d", SMALL, 8, {"num_chunks": 2, "compute_queues": q}) for q in (1, 4)
    ]
    one = simulate(part_of_plan(plans[0], {0}), machine).makespan_s
    four = simulate(part_of_plan(plans[1], {0}), machine).makespan_s
    assert one == pytest.approx(four, rel=1e-9)
    measured = [record(plan, (one * f,)) for plan, f in zip(plans, (1.0, 1.2), strict=True)]
    (row,) = validate(choose_plans(records_of(measured)), machine).workloads
    assert (row.num_tied, row.agreement) == (2, 0.5)
    assert row.regret == pytest.approx(0.1)
    assert (row.spearman, row.kendall) == (None, None)


def test_the_error_arises_where_the_runs_differ(machine: Machine) -> None:
    """A GEMM that ran longer at the end of a serial plan makes the model's GEMM too short."""

    def longer(spans: Sequence[Span]) -> Sequence[Span]:
        return [
            replace(s, end_s=s.start_s + 2 * s.duration_s) if s.kind == "gemm" else s for s in spans
        ]

    plan = make_plan("serial", SMALL, 8, {})
    trace = simulate(part_of_plan(plan, {0}), machine)
    spans = longer(trace.spans)
    measured_s = max(span.end_s for span in spans)
    found = validate(choose_plans(records_of([record(plan, (measured_s,), spans)])), machine)
    errors = {part.name: part.error for part in found.rows[0].parts}
    (gemm_s,) = (span.duration_s for span in trace.spans if span.kind == "gemm")
    assert errors["gemm"] == pytest.approx(-gemm_s / measured_s, abs=1e-4)
    assert errors["transfer"] == pytest.approx(0, abs=1e-4)
    (kind,) = (kind for kind in found.rows[0].kinds if kind.kind == "gemm")
    assert kind.error == pytest.approx(-0.5, abs=1e-3)


def test_only_shares_of_the_instrumented_run_count(machine: Machine) -> None:
    """Events between tasks lengthen that run as a whole: the parts stay those of the plain one."""

    def stretched(spans: Sequence[Span]) -> Sequence[Span]:
        return [replace(s, start_s=2 * s.start_s, end_s=2 * s.end_s) for s in spans]

    found = validate(choose_plans(made_up(machine, change=stretched)), machine)
    for row in found.rows:
        assert row.instrumented_s == pytest.approx(2 * row.measured_s, rel=1e-3)
        assert all(part.error == pytest.approx(0, abs=1e-3) for part in row.parts)
    assert any("100.0% longer" in remark for remark in found.remarks)


def test_passes_of_one_plan_are_put_together(machine: Machine) -> None:
    plan = make_plan("serial", SMALL, 8, {})
    both = [record(plan, (1e-3, 2e-3), sequence=0), record(plan, (3e-3, 4e-3, 5e-3), sequence=1)]
    found = validate(choose_plans(records_of(both)), machine)
    (row,) = found.rows
    assert (row.measured_s, row.num_samples) == (3e-3, 5)
    assert (row.parts, row.kinds, row.instrumented_s) == ((), (), None)
    assert any("without spans" in remark for remark in found.remarks)
    assert found.workloads[0].serial_regret == 0


def test_plans_whose_gpus_all_compute() -> None:
    two = load_machine("h200_2")
    plan = make_plan("hetero-unfused-1d", SMALL, 2, {"num_chunks": 2})
    trace = simulate(plan, two)
    measured = record(plan, (trace.makespan_s,), trace.spans, where="0=dev0,1=dev1", emulates="own")
    found = validate(choose_plans(records_of([measured])), two)
    assert found.rows[0].gpus == (0, 1)
    assert found.rows[0].error == pytest.approx(0, abs=1e-12)
    assert found.labels == ()
    assert not any("ran, so only" in remark for remark in found.remarks)


def test_leave_one_out_simulates_with_the_machine_of_each_refit(machine: Machine) -> None:
    records = made_up(machine, workloads=(SMALL, LONG))
    asked: list[Workload] = []

    def refit(excluded: Workload) -> Machine:
        asked.append(excluded)
        return machine if excluded == SMALL else machine.with_links(scale=0.5)

    found = leave_one_out(choose_plans(records), refit)
    assert asked == [SMALL, LONG]
    assert found.held_out
    assert row_of(found.rows, "serial").error == pytest.approx(0, abs=1e-12)
    assert row_of(found.rows, "serial", "long").error > 0.3
    assert not any("held out" in remark for remark in found.remarks)
    assert found.summary.num_workloads == 2


# plans made again from records


def test_part_of_a_plan_is_what_the_computing_gpu_runs() -> None:
    plan = make_plan("shard-ring", SMALL, 8, {})
    part = part_of_plan(plan, {0})
    assert {task.queue.gpu for task in part.tasks} == {0}
    assert sum(isinstance(task, Transfer) for task in part.tasks) == 7
    assert sum(isinstance(task, Gemm) for task in part.tasks) == 8
    ids = {task.id for task in part.tasks}
    assert all(set(task.deps) <= ids for task in part.tasks)
    assert part_of_plan(plan, range(8)) is plan


@pytest.mark.parametrize("name", [name for name, _ in PLANS])
def test_on_a_switch_the_part_takes_as_long_as_in_the_whole(machine: Machine, name: str) -> None:
    """Where data going out costs nothing: all gpus are alike, and each waits at its own port."""
    quiet = replace(
        machine,
        profile=replace(
            machine.profile,
            contention=ContentionProfile(dma_in=0.8, dma_out=0.0, core_in=0.0, core_out=0.0),
        ),
    )
    plan = make_plan(name, SMALL, 8, dict(PLANS)[name])
    whole = simulate(plan, quiet)
    part = simulate(part_of_plan(plan, {0}), quiet)
    end_s = max(span.end_s for span in whole.spans if span.queue.gpu == 0)
    assert part.makespan_s == pytest.approx(end_s, rel=0.03)


def test_a_record_gives_its_plan_and_trace(machine: Machine) -> None:
    plan = make_plan("uniform-fused-1d", SMALL, 8, {"num_chunks": 2, "copy_queues": 1})
    run = simulate(part_of_plan(plan, {0}), machine)
    measured = record(plan, (1e-3,), run.spans)
    assert plan_of(measured) == plan
    assert workload_of(measured) == SMALL
    assert computing_gpus(measured) == {0}
    trace = trace_of_measurement(measured, "here")
    assert (trace.source, trace.machine, trace.plan_fingerprint) == ("gpu", "here", plan.fingerprint)
    assert [s.task_id for s in trace.spans] == [s.task_id for s in run.spans]
    assert [(s.nbytes, s.flops) for s in trace.spans] == [(s.nbytes, s.flops) for s in run.spans]


@pytest.mark.parametrize(
    ("where", "gpus"),
    [
        ("0=dev0,1-7=dev1:shard", {0}),
        ("0-7=dev0", set(range(8))),
        ("0=dev0,1=dev1,2-7=host", {0, 1}),
        ("0=dev0,1-3=host:link,4-7=dev1:link", {0}),
    ],
)
def test_gpus_that_compute(where: str, gpus: set[int]) -> None:
    assert computing_gpus(record(make_plan("serial", SMALL, 8, {}), (1.0,), where=where)) == gpus


# what is refused


def test_records_of_other_things_are_refused(machine: Machine) -> None:
    plan = make_plan("serial", SMALL, 8, {})
    fine = record(plan, (1e-3,))
    with pytest.raises(ScenarioError, match="no measured plans in the records: they hold nothing"):
        choose_plans(records_of([]))
    bad = record(plan, (), unusable=("it broke",))
    with pytest.raises(ScenarioError, match="no usable plan: all 1 are marked unusable: it broke"):
        choose_plans(records_of([bad]))
    other = record(plan, (1e-3,), emulates="self")
    with pytest.raises(
        ScenarioError, match=r"several maps: host \(1 plans\), self .*choose with --map"
    ):
        choose_plans(records_of([fine, other]))
    assert choose_plans(records_of([fine, other]), emulates="self").plans == ((other,),)
    with pytest.raises(ScenarioError, match=r"--map mesh: no such plans; the records hold host"):
        choose_plans(records_of([fine]), emulates="mesh")
    core = record(make_plan("serial", SMALL, 8, {"engine": "core"}), (1e-3,), core_blocks=16)
    with pytest.raises(ScenarioError, match=r"several engines: dma \(1 plans\), core .*--engine"):
        choose_plans(records_of([fine, core]))
    with pytest.raises(ScenarioError, match=r"several ways of submission: .*--submission"):
        choose_plans(records_of([fine, record(plan, (1e-3,), submission="eager")]))
    few = record(make_plan("serial", SMALL, 4, {}), (1e-3,), where="0=dev0,1-3=host")
    with pytest.raises(ScenarioError, match="several num_gpus: 8"):
        choose_plans(records_of([fine, few]))
    with pytest.raises(ScenarioError, match="the plans are for 4 gpus, machine h200_host_8 has 8"):
        validate(choose_plans(records_of([few])), machine)
    kept = choose_plans(records_of([fine, replace(bad, sequence=1)]))
    assert (kept.num_unusable, kept.plans) == (1, ((fine,),))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"map": "somewhere"}, "map: 'somewhere' is no place of gpus"),
        ({"map": "0-7=host"}, "no gpu computes"),
        ({"schedule": "unheard-of"}, "schedule 'unheard-of' is unknown"),
        ({"m": "many"}, "params: m: 'many' must be a whole number"),
        ({"k": None}, "params: 'k' is missing"),
        ({"pattern": "all_to_all_gemm"}, "none of the named workloads"),
    ],
)
def test_records_that_name_no_plan_are_refused(
    machine: Machine, change: dict[str, object], message: str
) -> None:
    measured = record(make_plan("serial", SMALL, 8, {}), (1e-3,), **change)
    with pytest.raises(FiccoError, match=message):
        validate(choose_plans(records_of([measured])), machine)


def test_spans_of_another_plan_are_refused(machine: Machine) -> None:
    serial, other = (make_plan(name, SMALL, 8, {}) for name in ("serial", "uniform-unfused-1d"))
    spans = simulate(part_of_plan(other, {0}), machine).spans
    measured = record(serial, (1e-3,), spans)
    with pytest.raises(ScenarioError, match="is not in the plan that its parameters give"):
        validate(choose_plans(records_of([measured])), machine)
    with pytest.raises(ScenarioError, match="measured without spans"):
        measured_spans(record(serial, (1e-3,)), serial)
    with pytest.raises(ScenarioError, match="no measurement of a plan"):
        plan_of(replace(measured, kind="gemm", key=measurement_key("gemm", measured.params)))


# the command


def test_command_writes_json_csv_and_a_picture(
    machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "runs.jsonl", made_up(machine, {"serial": 1.25}, (SMALL, LONG)))
    targets = {name: tmp_path / f"out.{name}" for name in ("json", "csv", "svg")}
    argv = ["validate", file, "--machine", "h200_host_8", "--worst", "3"]
    argv += [
        "--json",
        str(targets["json"]),
        "--csv",
        str(targets["csv"]),
        "--plot",
        str(targets["svg"]),
    ]
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert "10 plans of 2 workloads, map host, engine dma" in out
    assert "emulated: gpus 1 to 7 only hold data" in out
    assert "nothing was held out" in out
    document = json.loads(targets["json"].read_text())
    assert {"rows", "summary", "workloads", "schedules", "worst", "machine", "held_out"} <= set(
        document
    )
    keys = {"workload", "schedule", "num_chunks", "measured_s", "simulated_s", "error"}
    assert all(keys <= set(row) for row in document["rows"])
    totals = {"mean_abs_error", "p90_abs_error", "mean_regret", "rank_correlation"}
    assert totals <= set(document["summary"])
    assert document["summary"]["mean_abs_error"] == pytest.approx(2 * 0.2 / 10)
    assert len(document["worst"]) == 3
    assert {row["schedule"] for row in document["worst"][:2]} == {"serial"}
    table = list(csv.DictReader(targets["csv"].read_text().splitlines()))
    assert [float(row["error"]) for row in table] == [row["error"] for row in document["rows"]]
    assert float(table[0]["error_in_gemm"]) < 0
    picture = targets["svg"].read_text()
    assert picture.startswith("<?xml")
    assert main([*argv[:4], "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == document["rows"]
    assert main([*argv[:4], "--csv", "-"]) == 0
    assert capsys.readouterr().out == targets["csv"].read_text()
    assert main([*argv[:4], "--plot", str(tmp_path / "again.svg")]) == 0
    assert (tmp_path / "again.svg").read_text() == picture


def test_command_refuses_what_it_cannot_do(
    machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = made_up(machine)
    file = write(tmp_path / "runs.jsonl", records)
    session = replace(records.sessions[0], session="other", environment={"device": "another"})
    other = write(
        tmp_path / "other.jsonl",
        Records(
            sessions=(session,),
            measurements=tuple(replace(m, session="other") for m in records.measurements),
        ),
    )

    def fails(*argv: str) -> str:
        assert main(["validate", *argv]) == 2
        return capsys.readouterr().err

    assert "unequal conditions" in fails(file, other, "--machine", "h200_host_8")
    assert "occurs twice" in fails(file, file, "--machine", "h200_host_8")
    assert "machine h200_2 has 2" in fails(file, "--machine", "h200_2")
    assert "is unknown" in fails(file, "--machine", "nowhere")
    assert "no such file" in fails(str(tmp_path / "none.jsonl"), "--machine", "h200_host_8")
    assert "--map self" in fails(file, "--machine", "h200_host_8", "--map", "self")
    assert "must not be negative" in fails(file, "--machine", "h200_host_8", "--worst", "-1")
    here = ("--machine", "h200_host_8")
    assert "standard output" in fails(file, *here, "--json", "-", "--csv", "-")
    assert "a picture ends in" in fails(file, *here, "--plot", str(tmp_path / "a.txt"))
    assert "no folder" in fails(file, *here, "--csv", str(tmp_path / "none" / "a.csv"))
    assert "machine" in fails(file)


def test_a_slice_of_the_committed_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Real records end to end: two workloads from host memory on the machine that stands for it."""
    names = ("llama3-70b-tp8-gate-up-2k", "deepseek-v3-cp8-kv-up-32k")
    records = read_records(RUNS / "host-repeated.jsonl.gz")
    kept = tuple(
        replace(m, group_left=0) for m in records.measurements if m.params.get("workload") in names
    )
    file = write(tmp_path / "slice.jsonl", Records(sessions=records.sessions, measurements=kept))
    argv = ["validate", file, "--machine", "h200_host_8", "--json", "-"]
    assert main(argv) == 0
    fewer = json.loads(capsys.readouterr().out)
    (remark,) = (r for r in fewer["remarks"] if "the host still submitted them" in r)
    assert remark.startswith(f"{2 * 87 - len(fewer['rows'])} plans are left out")
    assert main([*argv, "--max-late", "10"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["workload"] for row in document["workloads"]] == list(names)
    assert len(document["rows"]) == 2 * 87
    assert all(row["num_samples"] == 16 for row in document["rows"])
    for row in document["rows"]:
        assert row["gpus"] == [0]
        assert sum(part["error"] for part in row["parts"]) == pytest.approx(row["error"], abs=1e-6)
    # a wrong unit or a plan that is not the measured one would be far off
    assert document["summary"]["mean_abs_error"] < 0.3
    assert document["summary"]["rank_correlation"] > 0.5


def test_workloads_are_left_out_where_the_fit_can_be_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The default where the profile's own files lie beside the runs, unchanged; else it says so."""
    runs = tmp_path / "eager.jsonl.gz"
    runs.write_bytes((RUNS / runs.name).read_bytes())
    argv = ["validate", str(runs), "--machine", "h200_host_8", "--submission", "graph", "--json", "-"]

    def document(*more: str) -> dict[str, Any]:
        assert main([*argv, *more]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    alone = document()
    assert not alone["held_out"]
    assert any("nothing was held out" in remark for remark in alone["remarks"])
    for name in ("parts.jsonl.gz", "parts-fp8.jsonl.gz"):
        (tmp_path / name).write_bytes((RUNS / name).read_bytes())
    left_out = document()
    assert left_out["held_out"]
    assert any("fitted anew" in r and "parts.jsonl.gz" in r for r in left_out["remarks"])
    assert left_out["summary"]["mean_abs_error"] != alone["summary"]["mean_abs_error"]
    assert document("--as-is")["rows"] == alone["rows"]
    given = document("--calibrate-from", str(tmp_path / "parts.jsonl.gz"), "--direction", "host>dev0")
    assert given["held_out"]
    # a file of the same name with another content is not what the profile was fitted to
    (tmp_path / "parts-fp8.jsonl.gz").write_bytes((RUNS / "parts.jsonl.gz").read_bytes())
    assert not document()["held_out"]
    assert main([*argv, "--as-is", "--calibrate-from", str(tmp_path / "parts.jsonl.gz")]) == 2
    assert "one of them" in capsys.readouterr().err


def test_every_committed_plan_can_be_made_again() -> None:
    """The first and last plan of each file: their spans are those of the part that ran."""
    for file in sorted(RUNS.glob("*.jsonl.gz")):
        plans = [m for m in read_records(file).usable if m.kind == "plan" and m.spans is not None]
        for measured in (plans[0], plans[-1]) if plans else ():
            part = part_of_plan(plan_of(measured), computing_gpus(measured))
            spans = measured_spans(measured, part)
            assert {span.task_id for span in spans} == {task.id for task in part.tasks}


def test_words_and_picture_of_a_validation(machine: Machine, tmp_path: Path) -> None:
    found = validate(choose_plans(made_up(machine, {"shard-p2p": 1.1})), machine, costs="profile")
    lines = summary_lines(found)
    assert "nothing held out" in lines[0]
    assert "worst 9.1%" in lines[1]
    assert rows_csv(found).count("\n") == len(PLANS) + 1
    plot_validation(found, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    titles = [row.title for row in found.rows]
    assert titles[2:4] == ["uniform-fused-1d c2 in 1", "hetero-unfused-1d c2 q4"]

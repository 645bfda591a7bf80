"""Layer: harness without a gpu. The records that come with the project are whole and can be trusted."""

import functools
import gzip
import json
import math
import re
import shlex
from datetime import datetime
from pathlib import Path

import pytest

import hw_validate
from ficco_sim.io import decode
from ficco_sim.measured_plans import plan_of, trace_of_measurement
from ficco_sim.plan import Gemm
from ficco_sim.records import merge_records, read_records
from hw_validate.__main__ import main
from hw_validate.dry_run import DryRun
from hw_validate.peaks import peaks_of
from hw_validate.placement import parse_placement
from hw_validate.summary import plan_rows

RUNS = Path(hw_validate.__file__).parent / "runs"
FILES = sorted(RUNS.rglob("*.jsonl.gz"))
MAX_BYTES = 8 * 2**20
PERSONAL = {
    "an absolute path": r"(?<![\w.<>])/(?:home|root|work|tmp|mnt|data|usr|opt|var|scratch|Users)\b",
    "a path of Windows": r"\b[A-Za-z]:\\\\",
    "an address of mail": r"[\w.+-]+@[\w-]+\.\w+",
    "an IP address": r"\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b",
    "a UUID": r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b",
    "an address on the PCI bus": r"\b[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b",
    "a name of host or user": r"(?i)hostname|username|\buser\b|\blogname\b",
}

if not FILES:
    pytest.skip(f"no records in {RUNS.name} yet", allow_module_level=True)

each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")


TIMED = [
    ("h200/core-host", "h200/eager"),
    ("h200_x2/dma", "h200_x2/eager"),
    ("h200_x2/eager", "h200_x2/repeated"),
]
"""Runs, and what the same script started right after them."""


@pytest.mark.parametrize(("name", "following"), TIMED)
def test_estimates_are_close_to_what_the_runs_took(name, following, capsys):
    """A dry run of the recorded command, beside the time until the next one started."""
    session, after = (records_of(RUNS / f"{each}.jsonl.gz").sessions[0] for each in (name, following))
    started, ended = (datetime.fromisoformat(each.started) for each in (session, after))
    words = [word for word in shlex.split(session.command)[1:] if word != "--resume"]
    at = words.index("--out")
    words[at : at + 2] = ["--dry-run", "--json", "-"]
    assert main(words) == 0
    dry = decode(json.loads(capsys.readouterr().out), DryRun, "dry run")
    assert 0.9 < dry.estimate_s / (ended - started).total_seconds() < 1.5


@functools.cache
def records_of(path):
    return read_records(path)


@functools.cache
def text_of(path):
    return gzip.decompress(path.read_bytes()).decode()


def busiest_flops(plan, computing):
    totals = dict.fromkeys(computing, 0)
    for task in plan.tasks:
        if isinstance(task, Gemm) and task.queue.gpu in totals:
            totals[task.queue.gpu] += task.flops
    return max(totals.values())


_PLANS = {}


def remade(m):
    """The plan of a measurement; the same one is made once, however it was run."""
    names = ("workload", "m", "n", "k", "dtype", "num_gpus", "schedule")
    knobs = ("num_chunks", "compute_queues", "copy_queues", "engine", "gather")
    identity = tuple(m.params.get(name) for name in (*names, *knobs))
    if identity not in _PLANS:
        _PLANS[identity] = plan_of(m)
    return _PLANS[identity]


def test_all_files_together_are_small():
    sizes = {path.name: path.stat().st_size for path in RUNS.rglob("*") if path.is_file()}
    assert sum(sizes.values()) < MAX_BYTES, sizes


@each_file
def test_a_file_is_whole_and_measured_what_it_says(path):
    records = records_of(path)
    assert records.measurements
    for session in records.sessions:
        assert session.environment["device"] != "cpu"
        assert session.command.startswith("hw_validate ")
        for key in ("driver", "torch", "compute_units"):
            assert session.environment[key]
    keys = [(m.session, m.key, m.sequence) for m in records.measurements]
    assert len(set(keys)) == len(keys)
    passes = re.search(r"--passes (\d+)", records.sessions[0].command)
    times = int(passes[1]) if passes else 1
    counts = {}
    for m in records.measurements:
        counts[m.key] = counts.get(m.key, 0) + 1
    assert set(counts.values()) == {times}


@each_file
def test_samples_are_sound(path):
    for m in records_of(path).measurements:
        if not m.usable:
            assert all(reason.strip() for reason in m.unusable)
            continue
        assert math.isfinite(m.median_s)
        assert m.median_s > 0
        assert len(m.samples_s) >= 5
        assert m.before.sm_clock_hz is None or 1e8 < m.before.sm_clock_hz < 5e9
        assert m.before.power_w is None or 20 < m.before.power_w < 2000


def peaks_for(path):
    found = peaks_of(records_of(path).sessions[0].environment["device"]).flops_per_s
    assert found
    return found


@each_file
def test_no_gemm_is_faster_than_the_peak(path):
    peaks = peaks_for(path)
    for m in records_of(path).usable:
        if m.kind == "gemm":
            p = m.params
            flops = 2 * p["m"] * p["n"] * p["k"] * p["entries"]
            assert m.median_s > flops / peaks[p["dtype"]], p


@each_file
def test_plans_can_be_made_again_and_fit_what_was_measured(path):
    peaks = peaks_for(path)
    for m in records_of(path).measurements:
        if m.kind in ("plan", "straight"):
            plan = remade(m)
            computing = parse_placement(m.params["map"], m.params["num_gpus"]).computing
            check_parameters(m, plan)
            if m.usable:
                assert m.median_s > busiest_flops(plan, computing) / peaks[m.params["dtype"]], m.params
            if m.spans is not None:
                check_spans(m, plan, computing)
            elif m.usable:
                assert m.kind == "straight" or m.params["submission"] == "eager"


def check_parameters(m, plan):
    workload = plan.workload
    assert (workload.name, workload.m, workload.n, workload.k) == tuple(
        m.params[name] for name in ("workload", "m", "n", "k")
    )
    for knob in plan.knobs.keys() & m.params.keys():
        assert m.params[knob] == plan.knobs[knob], (knob, m.params)


def check_spans(m, plan, computing):
    """They are of all tasks of the gpus that compute, once each, within an instrumented run."""
    expected = sorted(task.id for task in plan.tasks if task.queue.gpu in computing)
    assert sorted(m.spans.task_ids) == expected
    assert min(m.spans.start_ns) >= 0
    last_s = max(m.spans.end_ns) * 1e-9
    assert last_s <= max(m.series["instrumented_s"]) * 1.001 + 1e-6


@each_file
def test_what_is_not_what_it_stands_for_is_labelled(path):
    for m in records_of(path).measurements:
        if m.kind in ("plan", "straight"):
            placement = parse_placement(m.params["map"], m.params["num_gpus"])
            assert set(placement.labels) <= set(m.labels)
            assert m.evidence or not m.usable


@each_file
def test_a_trace_can_be_taken_from_it(path):
    plans = [m for m in records_of(path).usable if m.kind == "plan" and m.spans is not None]
    for m in plans[:1]:
        trace = trace_of_measurement(m, "x")
        assert trace.plan_fingerprint == remade(m).fingerprint
        assert len(trace.spans) == len(m.spans.task_ids)


@pytest.mark.parametrize("folder", sorted({path.parent for path in FILES}), ids=lambda p: p.name)
def test_files_of_one_regime_and_machine_can_be_put_together(folder):
    by_conditions = {}
    for path in FILES:
        if path.parent == folder:
            session = records_of(path).sessions[0]
            device = session.environment["device_id"]
            by_conditions.setdefault((session.regime, session.init, device), []).append(path)
    for paths in by_conditions.values():
        merged = merge_records([(path, records_of(path)) for path in paths])
        assert len(merged.measurements) == sum(len(records_of(p).measurements) for p in paths)
        rows = plan_rows(merged.measurements)
        for row in rows:
            # the ideal bounds every plan, but for the noise of two runs
            assert row.ideal_s is None or row.best_s > 0.9 * row.ideal_s, row


@pytest.mark.parametrize("what", PERSONAL)
def test_records_tell_nothing_of_people_and_machines(what):
    for path in (*FILES, *RUNS.rglob("*.json")):
        text = told(path) if path in FILES else path.read_text()
        found = re.search(PERSONAL[what], text)
        assert found is None, (path.name, found)


@functools.cache
def told(path):
    """All that is text in a file, each only once."""
    texts = set()

    def collect(value):
        if isinstance(value, str):
            texts.add(value)
        elif isinstance(value, dict):
            texts.update(value)
            for item in value.values():
                collect(item)
        elif isinstance(value, list) and value and not isinstance(value[0], (int, float)):
            for item in value:
                collect(item)

    for line in text_of(path).splitlines():
        collect(json.loads(line))
    return "\n".join(sorted(texts))

"""Layer: numpy. Timings that cannot be, or do not say what they seem to, are found out."""

import csv
import io
import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reader_support import case_text

from hw_validate.checks import (
    StreamSpan,
    above_peak,
    copy_rate,
    memory_flat,
    overlap,
    peer_fallback,
    stalled_steps,
)
from hw_validate.statistics import outliers, spread_warning, summarize

US = 1e-6
MIB = 2**20
H100_BF16 = 989e12

times = st.floats(1e-6, 1e-2)
spans = st.lists(
    st.tuples(st.sampled_from(["gemm", "copy"]), st.integers(0, 30), st.integers(1, 9)), max_size=12
)


def rows_of(case):
    return list(csv.DictReader(io.StringIO(case_text(case))))


def flops(row):
    return 2.0 * int(row["m"]) * int(row["n"]) * int(row["k"])


def severities(findings):
    return [finding.severity for finding in findings]


def serialised_case():
    records = [json.loads(line) for line in case_text("B48").splitlines()]
    environment = {key: value for key, value in records[0].items() if key != "record"}
    iterations = {}
    for record in records[1:]:
        span = StreamSpan(
            kind=record["kind"],
            stream=record["stream"],
            start_s=record["start_us"] * US,
            end_s=record["end_us"] * US,
        )
        iterations.setdefault(record["iter"], []).append(span)
    return list(iterations.values()), environment


def streams(*entries):
    return [
        StreamSpan(
            kind=kind, stream=kind if stream is None else stream, start_s=start * US, end_s=end * US
        )
        for kind, start, end, stream in entries
    ]


class TestCases:
    def test_b47_launch_times_are_rejected_by_line(self):
        rows = [(flops(row), float(row["time_us"]) * US) for row in rows_of("B47")]
        lines = [f"line {number}" for number in range(2, 6)]
        peak = [above_peak(*row, H100_BF16, line) for row, line in zip(rows, lines, strict=True)]
        assert peak[0] == []
        told = [finding.text.split(":")[:2] for findings in peak for finding in findings]
        assert told == [
            ["line 3", " 11,359 TFLOP/s is above the peak of 989"],
            ["line 4", " 91,626 TFLOP/s is above the peak of 989"],
            ["line 5", " 715,130 TFLOP/s is above the peak of 989"],
        ]
        assert severities(finding for findings in peak for finding in findings) == ["refuse"] * 3

    def test_b48_streams_that_never_overlap(self):
        iterations, environment = serialised_case()
        found = overlap(iterations, environment)
        for iteration in found.iterations:
            assert iteration.compute_s == pytest.approx(400 * US)
            assert iteration.comm_s == pytest.approx(300 * US)
            assert iteration.overlap_s == 0
        (finding,) = found.findings
        assert finding.severity == "refuse"
        for part in (
            "overlap 0 us of 300 us of communication in 3 of 3 iterations: serialised",
            "CUDA_DEVICE_MAX_CONNECTIONS=1 and TORCH_NCCL_ENABLE_TIMING=1",
            "no contention factor may be derived",
        ):
            assert part in finding.text
        assert "CUDA_DEVICE" not in overlap(iterations, {}).findings[0].text

    def test_b53_growing_memory_and_stalled_steps(self):
        rows = [json.loads(line) for line in case_text("B53").splitlines()]
        (finding,) = memory_flat([row["reserved_MiB"] * MIB for row in rows])
        assert "grows from 2,048 to 3,584 MiB over iterations 0-6" in finding.text
        found = stalled_steps([row["step_us"] * US for row in rows])
        assert found.steps == (2, 4)
        assert found.median_s == pytest.approx(5000 * US)
        assert "steps 2, 4 of 10 stalled: up to 5,900 us where the median is 5,000 us" in (
            found.findings[0].text
        )
        assert memory_flat([row["reserved_MiB"] * MIB for row in rows[6:]]) == []


class TestRates:
    def test_possible_timings_pass(self):
        assert above_peak(2 * 8192**3, 1.6e-3, H100_BF16, "gemm") == []
        assert copy_rate(64e6, 1e-3, 64e9, "copy") == []
        assert peer_fallback(390e9, 400e9, "copy") == []

    @pytest.mark.parametrize("time_s", [0.0, -1.0, float("nan"), float("inf")])
    def test_times_that_are_none_are_refused(self, time_s):
        for findings in (above_peak(1, time_s, 1, "here"), copy_rate(1, time_s, 1, "here")):
            assert severities(findings) == ["refuse"]
            assert findings[0].text.startswith("here: a time of")

    def test_copies_faster_than_the_link_are_refused(self):
        (finding,) = copy_rate(1e9, 1e-3, 450e9, "gpu 0 to 1")
        assert finding.severity == "refuse"
        assert finding.text.startswith("gpu 0 to 1: 1000.0 GB/s is above the 450.0 GB/s")

    def test_copies_through_the_host_are_refused(self):
        (finding,) = peer_fallback(40e9, 390e9, "gpu 0 to 1")
        assert (finding.severity, "through the host" in finding.text) == ("refuse", True)
        (finding,) = peer_fallback(200e9, 390e9, "gpu 0 to 1")
        assert (finding.severity, "through the host" in finding.text) == ("warn", False)


class TestOverlap:
    @given(entries=spans)
    def test_busy_times_are_those_of_a_brute_count(self, entries):
        ticks = {"gemm": np.zeros(60, bool), "copy": np.zeros(60, bool)}
        for kind, start, length in entries:
            ticks[kind][start : start + length] = True
        found = overlap([streams(*((k, s, s + n, None) for k, s, n in entries))], {})
        (iteration,) = found.iterations
        assert iteration.compute_s / US == pytest.approx(ticks["gemm"].sum())
        assert iteration.comm_s / US == pytest.approx(ticks["copy"].sum())
        both = (ticks["gemm"] & ticks["copy"]).sum()
        assert iteration.overlap_s / US == pytest.approx(both, abs=1e-9)
        assert ("refuse" in severities(found.findings)) == (both == 0)

    def test_jitter_of_timers_is_no_overlap(self):
        found = overlap([streams(("gemm", 0, 400, None), ("copy", 399.5, 700, None))], {})
        assert severities(found.findings) == ["refuse"]

    def test_one_stream_cannot_overlap(self):
        found = overlap([streams(("gemm", 0, 400, "s"), ("copy", 400, 700, "s"))], {})
        assert "both on one stream" in found.findings[0].text

    def test_single_serialised_iterations_are_left_out(self):
        good = streams(("gemm", 0, 400, None), ("copy", 100, 400, None))
        bad = streams(("gemm", 0, 400, None), ("copy", 400, 700, None))
        assert overlap([good] * 3, {}).findings == ()
        (finding,) = overlap([good, good, bad], {}).findings
        assert finding.severity == "warn"
        assert "1 of 3 iterations: serialised; leave those out" in finding.text

    def test_nothing_to_overlap(self):
        assert "no iteration has both" in overlap([], {}).findings[0].text
        assert "no iteration has both" in overlap([streams(("gemm", 0, 1, None))], {}).findings[0].text


class TestMemory:
    def test_flat_is_within_two_mib(self):
        assert memory_flat([]) == []
        assert memory_flat([100 * MIB, 102 * MIB, 101 * MIB]) == []
        (finding,) = memory_flat([100 * MIB, 102 * MIB, 103 * MIB, 103 * MIB])
        assert "grows from 100 to 103 MiB over iterations 0-2" in finding.text
        (finding,) = memory_flat([100 * MIB, 100 * MIB, 90 * MIB, 100 * MIB])
        assert "varies from 90 to 100 MiB over iterations 1-3" in finding.text

    def test_fast_steps_are_no_stalls(self):
        assert stalled_steps([5.0, 5.0, 1.0, 5.0]).steps == ()
        with pytest.raises(ValueError, match="there are none"):
            stalled_steps([])


class TestStatistics:
    @given(samples=st.lists(times, min_size=1, max_size=50))
    def test_quantiles_are_in_order(self, samples):
        summary = summarize(samples)
        ordered = [summary.min_s, summary.p20_s, summary.median_s, summary.p80_s, summary.max_s]
        assert all(a <= b * (1 + 1e-12) for a, b in pairwise(ordered))
        assert (summary.min_s, summary.max_s) == (min(samples), max(samples))
        assert summary.median_s == pytest.approx(np.median(samples))
        assert summary.spread == pytest.approx((summary.p80_s - summary.p20_s) / summary.median_s)

    def test_wide_samples_are_warned_of(self):
        assert spread_warning(summarize([1.0, 1.05, 1.1])) is None
        assert "above 10% it is not stable" in spread_warning(summarize([1.0, 1.2, 1.4]))
        assert spread_warning(summarize([1.0, 1.2, 1.4]), limit=0.5) is None

    @pytest.mark.parametrize("samples", [[], [1.0, float("nan")], [1.0, 0.0], [float("inf")]])
    def test_impossible_samples_are_errors(self, samples):
        with pytest.raises(ValueError, match="samples"):
            summarize(samples)

    @given(
        samples=st.lists(st.floats(0.99, 1.01), min_size=5, max_size=30),
        far=st.floats(1.5, 100) | st.floats(0.01, 0.5),
        unit=st.sampled_from([1e-6, 1.0, 1e6]),
    )
    def test_only_far_samples_are_outliers_in_any_unit(self, samples, far, unit):
        assert outliers([*(s * unit for s in samples), far * unit])[-1:] == (len(samples),)
        assert set(outliers([1.0] * 5 + samples)) <= set(range(5, 5 + len(samples)))

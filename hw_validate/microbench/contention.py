"""GEMMs beside copies: both alone, and together, in the same minutes.

A case is GEMMs on one queue and copies on others that last longer; how many copies that takes is
tried out when the case is made ready.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from ficco_sim.records import Measurement, Scalar, measurement_key
from ficco_sim.units import MIB
from hw_validate.checks import Finding, StreamSpan, overlap
from hw_validate.microbench.bench import Bench, Slot, in_turn
from hw_validate.microbench.case import Built, Case, Named, compute_lane, span_s
from hw_validate.microbench.copies import SERIES, Copies, Rows, beside, beside_needs, flow_lane
from hw_validate.microbench.gemms import GemmWork, equal_pieces
from hw_validate.microbench.setup import Setup, parse_direction
from hw_validate.microbench.shapes import GemmShape
from hw_validate.program import Run, Step

__all__ = ["Slowdown", "contention_cases", "covered_s", "slowdowns"]

Role: TypeAlias = Literal["gemm", "copy", "both"]

LEAST_COVERED = 0.9
"""Share of the GEMMs' time in which copies must be on their way in every direction."""

ALONE_COPIES = 16
MAX_COPIES = 512
TRIES = 3
REGIONS = 8
"""Copies between bytes of their own before the first are copied again: more than a cache holds."""
BLOCK_BYTES = MIB  # of a copy for each block of its kernel, so that a few end beside a GEMM


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowdown:
    """What a GEMM and copies do to one another.

    Parameters
    ----------
    params
        Of the measurement of both.
    gemm, copy, back
        Time beside the other over time alone, of the GEMM, of the first direction's copies and of the
        second's; None where a finding refuses it or there is no such direction.
    covered
        Share of the GEMMs' time in which copies were on their way.
    """

    params: Mapping[str, Scalar]
    gemm: float | None
    copy: float | None
    back: float | None
    covered: float
    findings: tuple[Finding, ...]


def contention_cases(setup: Setup) -> Named:
    """A large GEMM and some pieces, beside copies of every direction, by engines and by kernels."""
    m, n, k = setup.sizes.large_gemm
    families: dict[str, list[str]] = {}
    for direction in setup.all_directions:
        families.setdefault(parse_direction(direction)[0].family, []).append(direction)
    named: Named = []
    for dtype in setup.dtypes:
        shapes = dict.fromkeys([GemmShape(m=m, n=n, k=k)])
        for workload in setup.workloads:
            if len(shapes) > setup.sizes.contention_pieces:
                break
            shapes |= dict.fromkeys(equal_pieces(replace(workload, dtype=dtype), setup))
        for shape in list(shapes)[: 1 + setup.sizes.contention_pieces]:
            for family, directions in families.items():
                name = f"contention {shape.m}x{shape.n}x{shape.k} {dtype} {family}"
                named.append((name, _family(shape, dtype, family, directions, setup)))
    return named


def covered_s(run: Run) -> float:
    """Time of the GEMMs in which copies were on their way in every direction."""
    spans = _stream_spans(run.spans)
    gemm = [span for span in spans if span.kind == "gemm"]
    streams = {span.stream for span in spans} - {"gemm"}
    return min(
        overlap([[*gemm, *(span for span in spans if span.stream == stream)]], {})
        .iterations[0]
        .overlap_s
        for stream in streams
    )


def slowdowns(
    measurements: Sequence[Measurement], environment: Mapping[str, str] | None = None
) -> list[Slowdown]:
    """Slowdowns from measurements of GEMMs and copies, alone and together.

    Parameters
    ----------
    environment
        Environment variables of the session, for `hw_validate.checks.overlap`.

    Returns
    -------
    slowdowns
        One for each usable measurement of both; without numbers where they ran one after the other,
        or where one of them was not measured alone in the same session.
    """
    usable = [m for m in measurements if m.kind == "contention" and m.usable]
    return [_slowdown(m, usable, environment or {}) for m in usable if m.params.get("role") == "both"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """GEMMs, copies, or both."""

    work: GemmWork
    family: str
    copies: Copies | None
    role: Role

    def case(self) -> Case:
        work, copies = self.work, self.copies
        told = dict.fromkeys(_COPY_PARAMS) if copies is None else copies.params
        needs: dict[Slot, int] = {}
        estimate_s = 0.0
        if self.role != "copy":
            needs |= work.needs
            estimate_s = work.estimate_s
        if self.role == "gemm":
            needs |= beside_needs(work.setup)
        if copies is not None:
            needs |= copies.needs
            estimate_s = 2 * max(estimate_s, ALONE_COPIES * copies.one_s)
        measured = self.role != "copy"
        return Case(
            kind="contention",
            params={**work.params, **told, "family": self.family, "role": self.role},
            build=self.build,
            estimate_s=estimate_s,
            needs=needs,
            flops=work.shape.flops if measured else 0,
            peak_flops_per_s=work.peak_flops_per_s if measured else None,
            labels=() if copies is None else copies.labels,
            unusable=work.unusable,
        )

    def build(self, bench: Bench) -> Built:
        steps: list[Step] = []
        if self.role != "copy":
            launch = in_turn(self.work.launches(bench))
            steps.append(Step(id="gemm", lane=compute_lane(self.work.setup.device), launch=launch))
        if self.role == "gemm":
            steps.insert(0, beside(bench, self.work.setup))
            return Built(prepared=bench.prepare(steps), sample=self._gemm_s, series=self._series)
        if self.role == "copy":
            prepared = bench.prepare(self._copy_steps(bench, ALONE_COPIES))
            return Built(
                prepared=prepared, sample=lambda run: _copy_s(run, SERIES[0]), series=self._series
            )
        count, share = self._enough(bench, steps)
        prepared = bench.prepare([*self._copy_steps(bench, count), *steps])
        text = f"copies cover {share:.0%} of the GEMMs in a trial run with {count} copies a direction"
        low = f"{text}; below {LEAST_COVERED:.0%} slowdowns come out too small"
        return Built(
            prepared=prepared,
            spanned=prepared,
            sample=self._gemm_s,
            series=self._series,
            evidence=(text,),
            warnings=() if share >= LEAST_COVERED else (low,),
        )

    def _copy_steps(self, bench: Bench, count: int) -> list[Step]:
        assert self.copies is not None
        return [
            Step(id=f"{SERIES[index]}.{i}", lane=flow_lane(flow, index), launch=launch)
            for index, flow in enumerate(self.copies.flows)
            for i, launch in enumerate(self.copies.launches(bench, index, count))
        ]

    def _enough(self, bench: Bench, gemms: list[Step]) -> tuple[int, float]:
        """How many copies cover the GEMMs, and the share that those do."""
        count, share = 2, 0.0
        for attempt in range(TRIES):
            trial = bench.backend.prepare(
                [*self._copy_steps(bench, count), *gemms], graph=attempt > 0, spans=True
            )
            try:
                trial.run()  # libraries load, workspaces are taken
                run = trial.run()
            finally:
                trial.close()
            gemm_s = span_s(run, "gemm")
            share = covered_s(run) / gemm_s
            # the last attempt is measured; one to spare, as all of them jitter
            if attempt == TRIES - 1 or (attempt and share > 1 - (1 - LEAST_COVERED) / 2):
                break
            shortest_s = min(_copy_s(run, name) for name in self._names)
            wanted = math.ceil(1.5 * gemm_s / shortest_s) if shortest_s else MAX_COPIES
            count = min(MAX_COPIES, max(wanted, 2 * count))
        return count, share

    @property
    def _names(self) -> tuple[str, ...]:
        return () if self.copies is None else SERIES[: len(self.copies.flows)]

    def _gemm_s(self, run: Run) -> float:
        return span_s(run, "gemm") / self.work.repeats

    def _series(self, run: Run) -> dict[str, float]:
        found = {name: _copy_s(run, name) for name in self._names}
        if self._names:
            prefix = f"{self._names[0]}."
            found["copies_count"] = sum(step.startswith(prefix) for step in run.spans)
        if self.role != "copy":
            found["gemm_s"] = self._gemm_s(run)
        if self.role == "both":
            found["covered_s"] = covered_s(run)
        return found


_COPY_PARAMS = tuple(
    Copies(direction="host>dev0", rows=Rows.contiguous(1), engine="", blocks=None, regions=1).params
)


def _family(
    shape: GemmShape, dtype: str, family: str, directions: Sequence[str], setup: Setup
) -> list[Case]:
    sizes = setup.sizes
    reserved = 4 * REGIONS * sizes.contention_bytes
    work = GemmWork.of(shape, dtype, setup, sizes.contention_s, reserved)
    by_engine = [(direction, None) for direction in directions]
    by_kernel = [
        (direction, blocks)
        for direction in directions
        if [flow.dst for flow in parse_direction(direction)] == [setup.device]
        for blocks in sizes.contention_blocks
    ]
    cases = [_Case(work=work, family=family, copies=None, role="gemm").case()]
    for direction, blocks in [*by_engine, *by_kernel]:
        nbytes = sizes.contention_bytes
        if blocks is not None:
            nbytes = min(nbytes, blocks * BLOCK_BYTES)
        copies = Copies(
            direction=direction,
            rows=Rows.contiguous(nbytes),
            engine="dma" if blocks is None else "core",
            blocks=blocks,
            regions=REGIONS * sizes.contention_bytes // nbytes,
        )
        roles: tuple[Role, ...] = ("copy", "both")
        cases += [_Case(work=work, family=family, copies=copies, role=r).case() for r in roles]
    return cases


def _copy_s(run: Run, name: str) -> float:
    """Mean time of a direction's copies; beside GEMMs, of those wholly within their time, if any."""
    spans = [span for step, span in run.spans.items() if step.startswith(f"{name}.")]
    if "gemm" in run.spans:
        start_s, end_s = run.spans["gemm"]
        spans = [span for span in spans if start_s <= span[0] and span[1] <= end_s] or spans
    return statistics.fmean(end_s - start_s for start_s, end_s in spans)


def _stream_spans(spans: Mapping[str, tuple[float, float]]) -> list[StreamSpan]:
    return [
        StreamSpan(
            kind="gemm" if step == "gemm" else "copy",
            stream=step.split(".")[0],
            start_s=start_s,
            end_s=end_s,
        )
        for step, (start_s, end_s) in spans.items()
    ]


def _slowdown(
    both: Measurement, measured: Sequence[Measurement], environment: Mapping[str, str]
) -> Slowdown:
    findings: list[Finding] = []
    gemm = _alone(both, {"role": "gemm", **dict.fromkeys(_COPY_PARAMS)}, measured, findings)
    copy = _alone(both, {"role": "copy"}, measured, findings)
    window_s = statistics.median(both.series["gemm_s"]) * float(both.params["repeats"] or 1)
    covered = statistics.median(both.series["covered_s"]) / window_s
    if both.spans is not None:
        spans = {
            task: (start * 1e-9, end * 1e-9)
            for task, start, end in zip(
                both.spans.task_ids, both.spans.start_ns, both.spans.end_ns, strict=True
            )
        }
        findings += overlap([_stream_spans(spans)], environment).findings
    if covered < LEAST_COVERED:
        text = f"copies cover {covered:.0%} of the GEMMs' time, below {LEAST_COVERED:.0%}"
        findings.append(Finding(severity="warn", text=text))
    refused = any(finding.severity == "refuse" for finding in findings)

    def ratio(name: str, alone: Measurement | None) -> float | None:
        if refused or alone is None or name not in both.series:
            return None
        return statistics.median(both.series[name]) / statistics.median(alone.series[name])

    return Slowdown(
        params=both.params,
        gemm=ratio("gemm_s", gemm),
        copy=ratio(SERIES[0], copy),
        back=ratio(SERIES[1], copy),
        covered=covered,
        findings=tuple(findings),
    )


def _alone(
    both: Measurement,
    changed: Mapping[str, Scalar],
    measured: Sequence[Measurement],
    findings: list[Finding],
) -> Measurement | None:
    """The measurement with some params changed that was taken closest in time."""
    key = measurement_key("contention", {**both.params, **changed})
    found = [m for m in measured if m.key == key and m.session == both.session]
    if found:
        return min(found, key=lambda m: abs(m.sequence - both.sequence))
    text = f"the {changed['role']} was not measured alone in the same session"
    findings.append(Finding(severity="refuse", text=text))
    return None

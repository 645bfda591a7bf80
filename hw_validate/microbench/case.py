"""One microbenchmark before there is any hardware, and groups of them."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ficco_sim.records import Kind, Scalar, measurement_key
from ficco_sim.units import format_bytes
from hw_validate.campaign import Group
from hw_validate.measure import Subject
from hw_validate.microbench.bench import Bench, Slot, needed_bytes
from hw_validate.microbench.setup import Setup, place_name
from hw_validate.program import Backend, Lane, Prepared, Run

__all__ = ["Built", "Case", "Named", "compute_lane", "grouped", "span_s", "window_s"]

MAX_CASES = 40
"""Of a group: what a kill loses at most."""

GUESSED_RUNS = 22  # of each case: warm-up and rounds
GUESSED_BETWEEN_S = 1e-3  # around a run: caches evicted, devices synchronised
GUESSED_PREPARE_S = 30e-3  # of a case: a run to warm up, and a graph
GUESSED_FILL_BYTES_PER_S = 20e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A case on a backend: what runs, and what is read from a run; see `Subject`."""

    prepared: Prepared | None = None
    sample: Callable[[Run], float] = field(default=lambda run: run.makespan_s)
    series: Callable[[Run], dict[str, float]] = field(default=lambda _: {})
    spanned: Prepared | None = None
    evidence: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One thing to time.

    Parameters
    ----------
    params
        All that tells it from other cases.
    build
        Makes it ready.
    estimate_s
        A guess of how long one run takes.
    needs
        Elements that it takes of each slot.
    flops, peak_flops_per_s, nbytes, peak_bytes_per_s
        Work of one sample and the rate that it cannot exceed.
    unusable
        Why it cannot run; nothing is built then.
    """

    kind: Kind
    params: dict[str, Scalar]
    build: Callable[[Bench], Built]
    estimate_s: float
    needs: Mapping[Slot, int] = field(default_factory=dict)
    flops: int = 0
    peak_flops_per_s: float | None = None
    nbytes: int = 0
    peak_bytes_per_s: float | None = None
    labels: tuple[str, ...] = ()
    unusable: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Its identity in records."""
        return measurement_key(self.kind, self.params)

    def subject(self, bench: Bench) -> Subject:
        """The case on a backend."""
        built = Built() if self.unusable else self.build(bench)
        return Subject(
            kind=self.kind,
            params=self.params,
            prepared=built.prepared,
            spanned=built.spanned,
            sample=built.sample,
            series=built.series,
            flops=self.flops,
            peak_flops_per_s=self.peak_flops_per_s,
            nbytes=self.nbytes,
            peak_bytes_per_s=self.peak_bytes_per_s,
            labels=self.labels,
            evidence=built.evidence,
            warnings=built.warnings,
            unusable=self.unusable,
        )


def grouped(name: str, cases: Sequence[Case], setup: Setup) -> list[Group]:
    """Groups of at most `MAX_CASES` cases that together stay within the memory budget.

    A case that exceeds the budget by itself is recorded as unusable.
    """
    batches: list[list[Case]] = []
    needs: dict[Slot, int] = {}
    for given in cases:
        case = _within_budget(given, setup)
        joint = _union(needs, case.needs)
        if not batches or len(batches[-1]) == MAX_CASES or _excess(joint, setup):
            batches.append([])
            joint = dict(case.needs)
        batches[-1].append(case)
        needs = joint
    return [
        _group(name if len(batches) == 1 else f"{name} ({number} of {len(batches)})", batch, setup)
        for number, batch in enumerate(batches, start=1)
    ]


Named = list[tuple[str, list[Case]]]
"""Cases by the name of their group."""


def compute_lane(device: int, index: int = 0) -> Lane:
    """A queue for kernels. All lanes are of one gpu, so that a case is one graph on any devices."""
    return Lane(gpu=0, device=device, name=f"compute{index}")


def span_s(run: Run, step: str) -> float:
    """Duration of a step."""
    start_s, end_s = run.spans[step]
    return end_s - start_s


def window_s(run: Run, prefix: str = "") -> float:
    """From the first start to the last end of the steps whose ids begin so."""
    spans = [span for step, span in run.spans.items() if step.startswith(prefix)]
    return max(end_s for _, end_s in spans) - min(start_s for start_s, _ in spans)


def _group(name: str, cases: Sequence[Case], setup: Setup) -> Group:
    needs: dict[Slot, int] = {}
    for case in cases:
        needs = _union(needs, case.needs)

    @contextlib.contextmanager
    def opened(backend: Backend) -> Iterator[Sequence[Subject]]:
        bench = Bench(backend, needs, setup.seed)
        subjects: list[Subject] = []
        try:
            subjects += [case.subject(bench) for case in cases]
            yield subjects
        finally:
            bench.close()
            subjects.clear()  # they hold the memory, and the next group may be open before they go

    runs_s = sum(GUESSED_RUNS * (case.estimate_s + GUESSED_BETWEEN_S) for case in cases)
    fill_s = sum(needed_bytes(needs).values()) / GUESSED_FILL_BYTES_PER_S
    return Group(
        name=name,
        keys=tuple(case.key for case in cases),
        estimate_s=runs_s + fill_s + GUESSED_PREPARE_S * len(cases),
        open=opened,
    )


def _union(first: Mapping[Slot, int], second: Mapping[Slot, int]) -> dict[Slot, int]:
    return {slot: max(first.get(slot, 0), second.get(slot, 0)) for slot in {**first, **second}}


def _excess(needs: Mapping[Slot, int], setup: Setup) -> dict[int, int]:
    """Bytes of the places on which they exceed the budget."""
    return {place: count for place, count in needed_bytes(needs).items() if count > setup.budget_bytes}


def _within_budget(case: Case, setup: Setup) -> Case:
    too_much = _excess(case.needs, setup)
    if not too_much:
        return case
    texts = tuple(
        f"needs {format_bytes(count)} on {place_name(place)}; the budget is "
        f"{format_bytes(setup.budget_bytes)}"
        for place, count in too_much.items()
    )
    return replace(case, needs={}, unusable=(*case.unusable, *texts))

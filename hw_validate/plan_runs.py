"""Groups of plans to measure: every schedule and knob of a workload, against each other.

A group is one workload on one map. Its plans share inputs, buffers and the product they are checked
against; each is verified in the very form in which it is timed.
"""

import contextlib
import functools
import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from ficco_sim.errors import FiccoError, ScenarioError
from ficco_sim.plan import Buffer, Gemm, Plan, Transfer, buffer_bytes
from ficco_sim.records import Scalar, measurement_key
from ficco_sim.reference import OWN
from ficco_sim.schedules import FICCO, knobs_of, make_plan
from ficco_sim.workload import Workload
from hw_validate.campaign import Group
from hw_validate.collectives import (
    COLLECTIVES,
    Alternative,
    collective_labels,
    has_collective,
    prepare_collective,
    staging,
)
from hw_validate.environment import nccl_version
from hw_validate.evidence import Evidence, Examiner
from hw_validate.executor import Bound, bind, warm_up
from hw_validate.links import rounds_of
from hw_validate.maps import Map
from hw_validate.measure import Subject
from hw_validate.memory import Arena, Inputs, random_inputs
from hw_validate.placement import HOST, Placement
from hw_validate.program import Backend, Prepared
from hw_validate.straight import STRAIGHT, STRAIGHT_KINDS, StraightKind, prepare_straight
from hw_validate.verify import Products, verify

__all__ = [
    "COMPARED",
    "Choice",
    "PlanRun",
    "PlanSettings",
    "choices",
    "num_examined",
    "plan_group",
    "plan_groups",
    "plan_runs",
]

COMPARED = ("serial", "shard-p2p", "shard-ring", *FICCO)
FLOPS_PER_S = 500e12  # of all GEMMs of the committed runs on H200, small ones included
HOST_BYTES_PER_S, PEER_BYTES_PER_S = 50e9, 300e9
# fitted to wall times of committed runs, where one gpu computes; see tests/test_hw_committed.py
GROUP_S = 1.1  # inputs, pinned memory, the product in higher precision
TASK_S = 0.32e-3  # bound, captured twice, submitted twice to warm up and to verify, its spans read
RUN_S = 1.4e-3  # around one run: caches evicted, gate, events read
# guesses: what a further device adds to a group, to a plan (its sensors are read twice), to a run
GROUP_PER_DEVICE_S, PLAN_PER_DEVICE_S, RUN_PER_DEVICE_S = 0.5, 6e-3, 0.3e-3
CHECKED_BYTES_PER_S = 100e9  # a guess: results of other devices compared on the first one


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings:
    """Which plans of a workload are measured, and how.

    Parameters
    ----------
    copy_queues
        For FiCCO schedules; 0 stands for a queue a peer.
    submissions
        ``graph``, ``eager``, or both.
    spans
        Run an instrumented graph of each as well, for the spans of its tasks.
    straight
        Measure versions written straight in torch, without a plan, beside those that have one.
    tensor_copies
        Also straight versions that copy by ``Tensor.copy_``.
    collectives
        Also what a user has without plans: NCCL's all-gather and GEMMs.
    """

    num_gpus: int = 8
    schedules: tuple[str, ...] = COMPARED
    num_chunks: tuple[int, ...] = (2, 4, 8)
    compute_queues: tuple[int, ...] = (1, 4)
    copy_queues: tuple[int, ...] = (0,)
    engines: tuple[str, ...] = ("dma",)
    submissions: tuple[str, ...] = ("graph",)
    core_blocks: int = 16
    spans: bool = True
    straight: bool = False
    tensor_copies: bool = False
    collectives: bool = False
    init: str = "randn"
    seed: int = 0
    estimate_rounds: int = 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One plan, or an `Alternative` in the place of its schedule, and how it is run."""

    kind: Literal["plan", "collective"] | StraightKind
    schedule: str
    knobs: dict[str, int | str]
    submission: str


def choices(settings: PlanSettings) -> list[Choice]:
    """Every schedule with every value of the knobs that make a difference to it.

    Raises
    ------
    ScenarioError
        If a schedule is unknown.
    """
    found = []
    for name in settings.schedules:
        known = knobs_of(name)
        axes: list[list[tuple[str, int | str]]] = [[("engine", e) for e in settings.engines]]
        if "num_chunks" in known:
            axes.append([("num_chunks", c) for c in settings.num_chunks])
        if "compute_queues" in known:
            # only GEMMs that do not wait for one another gain from several queues
            queues = settings.compute_queues if "unfused" in name else settings.compute_queues[:1]
            axes.append([("compute_queues", q) for q in queues])
        if "copy_queues" in known:
            axes.append([("copy_queues", q) for q in settings.copy_queues])
        for values in itertools.product(*axes):
            knobs = {knob: value for knob, value in values if value}
            found += [
                Choice(kind="plan", schedule=name, knobs=knobs, submission=how)
                for how in settings.submissions
            ]
            if has_straight(name, knobs):
                wanted = {"straight": settings.straight, "straight_tensor_copy": settings.tensor_copies}
                found += [
                    Choice(kind=kind, schedule=name, knobs=knobs, submission="graph")
                    for kind in STRAIGHT_KINDS
                    if wanted[kind]
                ]
    return found + (_collectives(settings) if settings.collectives else [])


def _collectives(settings: PlanSettings) -> list[Choice]:
    found = []
    for how in COLLECTIVES:
        fixed: dict[str, int | str] = {"compute_queues": 1, "copy_queues": 1, "engine": "nccl"}
        chunks = [{}] if how == "nccl-serial" else [{"num_chunks": c} for c in settings.num_chunks]
        found += [
            Choice(kind="collective", schedule=how, knobs={**fixed, **cut}, submission="graph")
            for cut in chunks
        ]
    return found


def fits(schedule: str, workload: Workload) -> bool:
    """Whether a schedule is for such workloads: what a ring forwards, all gpus must want."""
    return workload.pattern == "all_gather_gemm" or schedule != "shard-ring"


def has_straight(schedule: str, knobs: Mapping[str, int | str]) -> bool:
    """Whether a schedule with such knobs is also written straight in torch."""
    return schedule in STRAIGHT and knobs["engine"] == "dma"


def plan_groups(
    workloads: Sequence[Workload],
    maps: Sequence[Map],
    settings: PlanSettings,
    *,
    peak_flops_per_s: Callable[[str], float | None] = lambda _: None,
) -> list[Group]:
    """A group for each workload on each map.

    Parameters
    ----------
    peak_flops_per_s
        The rate that a device cannot exceed, by element type.

    Raises
    ------
    ScenarioError, PlanError
        If a schedule does not fit a workload, or no workload and map has collectives that are wanted.
    """
    shared = _Shared()
    groups = [
        plan_group(workload, where, settings, peak_flops_per_s=peak_flops_per_s, shared=shared)
        for workload, where in itertools.product(workloads, maps)
    ]
    if settings.collectives and not any(has_collective(w) for w in workloads):
        raise ScenarioError("--collectives: none of the workloads gathers; torch has no other for it")
    if settings.collectives and all(w.placement("serial", settings.num_gpus).is_emulated for w in maps):
        raise ScenarioError("--collectives: every gpu needs a device of its own; add --map own")
    return groups


def plan_group(
    workload: Workload,
    where: Map,
    settings: PlanSettings,
    *,
    peak_flops_per_s: Callable[[str], float | None] = lambda _: None,
    shared: "_Shared | None" = None,
) -> Group:
    """The group of a workload on a map; see `plan_groups`."""
    runs = plan_runs(workload, where, settings)
    return Group(
        name=f"{workload.name} on {where.name}",
        keys=tuple(measurement_key(r.choice.kind, r.params) for r in runs),
        estimate_s=_estimate_s(runs, settings),
        open=_Opener(runs, where, settings, peak_flops_per_s, shared or _Shared()),
    )


def plan_runs(workload: Workload, where: Map, settings: PlanSettings) -> "list[PlanRun]":
    """All plans of a workload on a map, and the versions without a plan that apply.

    Raises
    ------
    ScenarioError, PlanError
        If there are none, or a schedule does not fit the workload.
    """
    suitable = [c for c in choices(settings) if fits(c.schedule, workload)]
    for choice in suitable:
        if (
            choice.knobs.get("engine") == "core"
            and where.placement(choice.schedule, settings.num_gpus).linked
        ):
            raise ScenarioError(f"--engine core: map {where.name} plays links by copy engines alone")
    runs = [PlanRun(workload, where, choice, settings) for choice in suitable]
    runs = [r for r in runs if r.applies]
    if not runs:
        raise ScenarioError("no plan to run: the lists of schedules and knobs leave none")
    return runs


def num_examined(maps: Sequence[Map], settings: PlanSettings) -> int:
    """Pairs of a device and a place that it reads, by each engine, that are looked at before."""
    found = {
        (engine, placement.places[gpu], place)
        for engine in settings.engines
        for where in maps
        for name in settings.schedules
        for placement in (where.placement(name, settings.num_gpus),)
        for gpu in placement.computing
        for peer, place in enumerate(placement.places)
        if peer != gpu
    }
    return len(found)


class PlanRun:
    """One plan of a group, and what identifies it."""

    def __init__(self, workload: Workload, where: Map, choice: Choice, settings: PlanSettings) -> None:
        self.choice = choice
        if choice.kind == "collective":  # on the buffers of a plan, and checked like it
            self.plan = _plan("serial", workload, settings.num_gpus, ())
            knobs: Mapping[str, Scalar] = choice.knobs
        else:
            given = tuple(choice.knobs.items())
            self.plan = _plan(choice.schedule, workload, settings.num_gpus, given)
            knobs = self.plan.knobs
        self.placement = where.placement(choice.schedule, settings.num_gpus)
        self.params: dict[str, Scalar] = {
            "workload": workload.name,
            "pattern": workload.pattern,
            "m": workload.m,
            "n": workload.n,
            "k": workload.k,
            "dtype": workload.dtype,
            "num_gpus": settings.num_gpus,
            "schedule": choice.schedule,
            **{name: knobs.get(name) for name in KNOBS},
            "map": self.placement.describe(),
            "emulates": where.name,
            "submission": choice.submission,
            "core_blocks": settings.core_blocks if choice.knobs.get("engine") == "core" else None,
            **_tokens(workload),
        }

    @property
    def applies(self) -> bool:
        """Whether there is such a version for the workload on the map."""
        workload = self.plan.workload
        if self.choice.kind == "plan":
            return True
        if self.choice.kind == "collective":
            return has_collective(workload) and not self.placement.is_emulated
        return (
            self.placement.computing == {0}
            and not self.placement.linked
            and workload.pattern == "all_gather_gemm"
            and workload.dtype != "fp8"  # torch.mm has none
        )

    @property
    def flops(self) -> int:
        """Work of the busiest gpu that computes."""
        totals = dict.fromkeys(self.placement.computing, 0)
        for task in self.plan.tasks:
            if isinstance(task, Gemm) and task.queue.gpu in totals:
                totals[task.queue.gpu] += task.flops
        return max(totals.values())

    @property
    def name(self) -> str:
        """What it is, with its knobs, for messages."""
        return f"{self.choice.schedule} {' '.join(f'{k}={v}' for k, v in self.choice.knobs.items())}"

    @property
    def num_tasks(self) -> int:
        """Tasks of the gpus that compute."""
        return sum(1 for task in self.plan.tasks if task.queue.gpu in self.placement.computing)

    @property
    def guessed_s(self) -> float:
        """A guess of its makespan: all work of the busiest device, one after the other."""
        places, sizes = self.placement.places, buffer_bytes(self.plan)
        busy_s = dict.fromkeys(self.placement.devices, 0.0)
        rounds = {each.id: each for each in rounds_of(self.plan, self.placement)}
        for task in self.plan.tasks:
            if task.queue.gpu not in self.placement.computing:
                continue
            if isinstance(task, Gemm):
                busy_s[places[task.queue.gpu]] += task.flops / FLOPS_PER_S
            elif isinstance(task, Transfer):
                nbytes = task.dst.num_elements * sizes[task.dst.gpu, task.dst.buffer]
                rate = HOST_BYTES_PER_S if places[task.src.gpu] == HOST else PEER_BYTES_PER_S
                copies = 1 + rounds[task.id].num_idle if task.id in rounds else 1
                busy_s[places[task.queue.gpu]] += copies * nbytes / rate
        return max(busy_s.values())

    @property
    def checked_bytes(self) -> int:
        """Bytes of inputs and results, in higher precision, that go between devices to verify it."""
        first, places = self.placement.devices[0], self.placement.places
        results = {(region.gpu, region.buffer) for region in self.plan.outputs}
        found = 0
        for buffer in self.plan.buffers:
            elsewhere = buffer.gpu in self.placement.computing and places[buffer.gpu] != first
            # inputs twice, in two bytes or less; results once, in four
            if elsewhere and (buffer.name in OWN or (buffer.gpu, buffer.name) in results):
                found += 4 * buffer.rows * buffer.cols
        return found

    @property
    def staged(self) -> list[Buffer]:
        """Buffers beside those of its plan."""
        if self.choice.kind != "collective":
            return []
        return staging(self.plan, *self.collective)

    @property
    def collective(self) -> tuple[Alternative, int]:
        """The version without a plan, and its chunks."""
        how = next(name for name in COLLECTIVES if name == self.choice.schedule)
        return how, int(self.choice.knobs.get("num_chunks", 1))


@functools.lru_cache(maxsize=256)
def _plan(
    schedule: str, workload: Workload, num_gpus: int, knobs: tuple[tuple[str, int | str], ...]
) -> Plan:
    """Made once for the maps and the versions of a workload."""
    return make_plan(schedule, workload, num_gpus, dict(knobs))


def _tokens(workload: Workload) -> dict[str, Scalar]:
    """What tells all-to-alls of one name and size apart: a digest of who sends how much to whom."""
    if workload.tokens is None:
        return {}
    return {"tokens": hashlib.sha256(repr(workload.tokens).encode()).hexdigest()[:12]}


KNOBS = ("num_chunks", "compute_queues", "copy_queues", "engine", "gather")


def _estimate_s(runs: Sequence[PlanRun], settings: PlanSettings) -> float:
    rounds = settings.estimate_rounds
    others = max(len({r.placement.places[g] for g in r.placement.computing}) for r in runs) - 1
    around_s = RUN_S + RUN_PER_DEVICE_S * others
    return (
        GROUP_S
        + (GROUP_PER_DEVICE_S + PLAN_PER_DEVICE_S * len(runs)) * others
        + TASK_S * sum(r.num_tasks for r in runs)
        + rounds * sum(r.guessed_s + around_s for r in runs)
        + sum(r.checked_bytes for r in runs) / CHECKED_BYTES_PER_S
    )


def _evidence(run: PlanRun, examiner: Examiner) -> Evidence:
    if run.choice.kind != "collective":
        return examiner.of_plan(run.placement, str(run.params["engine"]))
    if examiner.backend.kind != "gpu":
        return Evidence(texts=("not examined: the CPU plays all devices",))
    return Evidence(texts=(f"NCCL {nccl_version()}; which way it copies is its own choice",))


@dataclass(slots=True)
class _Shared:
    """What all groups of a run have in common: places are looked at once, not once a group."""

    examiner: Examiner | None = None

    def on(self, backend: Backend) -> Examiner:
        """The one examiner of a backend."""
        if self.examiner is None or self.examiner.backend is not backend:
            self.examiner = Examiner(backend)
        return self.examiner


@dataclass(slots=True)
class _Opener:
    """Opens a group: binds, captures and verifies its plans."""

    runs: list[PlanRun]
    where: Map
    settings: PlanSettings
    peak_flops_per_s: Callable[[str], float | None]
    shared: _Shared
    inputs: Inputs | None = field(default=None, init=False)

    @contextlib.contextmanager
    def __call__(self, backend: Backend) -> Iterator[Sequence[Subject]]:
        examiner = self.shared.on(backend)
        arena, products = Arena(backend), Products()
        subjects: list[Subject] = []
        with contextlib.ExitStack() as stack:
            stack.callback(self._forget)
            stack.callback(subjects.clear)  # with them goes the memory, before the next group's
            subjects.extend(
                self._subject(run, backend, arena, products, examiner, stack) for run in self.runs
            )
            yield subjects

    def _forget(self) -> None:
        self.inputs = None

    def _subject(
        self,
        run: PlanRun,
        backend: Backend,
        arena: Arena,
        products: Products,
        examiner: Examiner,
        stack: contextlib.ExitStack,
    ) -> Subject:
        prepared: Prepared | None = None
        spanned: Prepared | None = None
        evidence = _evidence(run, examiner)
        unusable = list(evidence.unusable)
        try:
            bound = bind(run.plan, run.placement, backend, arena)
            self._draw_inputs(run, backend)
            prepared, spanned = self._prepare(bound, run, stack)
            self._verify(bound, run, prepared, products)
        except FiccoError as error:
            prepared = spanned = None
            unusable.append(str(error))
        except torch.OutOfMemoryError as error:
            prepared = spanned = None
            unusable.append(f"not enough memory: {str(error).partition('. ')[0]}")
        return Subject(
            kind=run.choice.kind,
            params=run.params,
            prepared=prepared,
            spanned=spanned,
            series=lambda timed: {"host_submit_s": timed.host_s},
            flops=run.flops,
            peak_flops_per_s=self.peak_flops_per_s(run.plan.workload.dtype),
            labels=(
                *run.placement.labels,
                *self.where.labels,
                *backend.labels,
                *(collective_labels(backend) if run.choice.kind == "collective" else ()),
            ),
            evidence=evidence.texts,
            warnings=evidence.warnings,
            unusable=tuple(unusable),
        )

    def _draw_inputs(self, run: PlanRun, backend: Backend) -> None:
        if self.inputs is None:
            device = f"cuda:{run.placement.devices[0]}" if backend.kind == "gpu" else "cpu"
            # plans of one group may differ in who computes, if the map depends on the schedule
            everyone = frozenset().union(*(r.placement.computing for r in self.runs))
            self.inputs = random_inputs(
                run.plan,
                Placement(places=(run.placement.devices[0],) * run.plan.num_gpus, computing=everyone),
                self.settings.seed,
                device=device,
                init=self.settings.init,
            )

    def _prepare(
        self, bound: Bound, run: PlanRun, stack: contextlib.ExitStack
    ) -> tuple[Prepared, Prepared | None]:
        assert self.inputs is not None
        bound.memory.load(self.inputs)
        graph = run.choice.submission == "graph"
        if run.choice.kind == "collective":
            return self._prepare_collective(bound, run, stack)
        if run.choice.kind != "plan":
            copies = run.choice.kind == "straight_tensor_copy"
            made = prepare_straight(bound, tensor_copies=copies)
            stack.callback(made.close)
            return made, None
        warm_up(bound)
        prepared = bound.prepare(graph=graph)
        stack.callback(prepared.close)
        spanned = None
        if self.settings.spans and graph:
            spanned = bound.prepare(graph=True, spans=True)
            stack.callback(spanned.close)
        return prepared, spanned

    def _prepare_collective(
        self, bound: Bound, run: PlanRun, stack: contextlib.ExitStack
    ) -> tuple[Prepared, Prepared | None]:
        how, num_chunks = run.collective
        made: list[Prepared] = []
        for spans in (False, True) if self.settings.spans else (False,):
            made.append(prepare_collective(bound, how, num_chunks, spans=spans))
            stack.callback(made[-1].close)
        return made[0], made[1] if self.settings.spans else None

    def _verify(self, bound: Bound, run: PlanRun, prepared: Prepared, products: Products) -> None:
        assert self.inputs is not None
        bound.memory.load(self.inputs)
        prepared.run()
        verify(run.plan, run.placement, self.inputs, bound.outputs(), products)

"""Before numbers: data arrives from every place, at which rate, and whether a copy engine copies."""

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ficco_sim.errors import HardwareError
from ficco_sim.units import format_bytes, format_rate
from hw_validate.checks import Finding
from hw_validate.microbench.evidence import SURELY_FASTER, copies_by_engine
from hw_validate.microbench.setup import place_name
from hw_validate.placement import HOST, Placement
from hw_validate.program import Backend, Lane, Run, Step

__all__ = ["Evidence", "Examiner", "PlaceReport"]

SHAPE = (4096, 8192)
"""Of the bf16 matrix that is copied: 64 MiB."""
GEMM_SIZE, NUM_GEMMS = 8192, 3
"""Square GEMMs beside the copies: several ms on a gpu of this decade, on all its compute units."""
SAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of the places that a plan reads: for its record, and why to doubt its numbers."""

    texts: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    unusable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceReport:
    """Copies from a place to a device.

    Parameters
    ----------
    equal
        Whether random data arrived as it was.
    bytes_per_s
        Rate of one copy of `SHAPE`.
    copy_slowed, gemm_slowed
        Time beside the other over time alone.
    """

    direction: str
    engine: str
    equal: bool
    bytes_per_s: float
    copy_slowed: float
    gemm_slowed: float
    findings: tuple[Finding, ...]

    @property
    def text(self) -> str:
        """One line for the record."""
        nbytes = SHAPE[0] * SHAPE[1] * 2
        return (
            f"{self.direction} by {self.engine}: {format_bytes(nbytes)} "
            f"{'equal' if self.equal else 'NOT equal'}, {format_rate(self.bytes_per_s)}; beside a GEMM "
            f"on all compute units copies take {self.copy_slowed:.2f}x, the GEMM "
            f"{self.gemm_slowed:.2f}x"
        )


@dataclass(slots=True)
class Examiner:
    """Examines each pair of device and place once."""

    backend: Backend
    _found: dict[tuple[int, int, str], PlaceReport] = field(default_factory=dict)

    def of_plan(self, placement: Placement, engine: str) -> Evidence:
        """What is known of all places that the gpus which compute may read.

        Wrong data, missing peer access, and copies of the engine ``dma`` that a kernel does make
        numbers unusable; copies between devices no faster than from the host are warned of.
        """
        if self.backend.kind != "gpu":
            return Evidence(texts=("not examined: the CPU plays all devices",))
        texts: list[str] = []
        warnings: list[str] = []
        unusable: list[str] = []
        pairs = {
            (placement.places[gpu], placement.places[peer])
            for gpu in placement.computing
            for peer in range(placement.num_gpus)
            if peer != gpu
        }
        for device, place in sorted(pairs):
            try:
                report = self.of_place(device, place, engine)
            except HardwareError as error:
                unusable.append(str(error))
                continue
            texts.append(report.text)
            unusable += [f.text for f in report.findings if f.severity == "refuse"]
            warnings += [f.text for f in report.findings if f.severity == "warn"]
        return Evidence(texts=tuple(texts), warnings=tuple(warnings), unusable=tuple(unusable))

    def of_place(self, device: int, place: int, engine: str) -> PlaceReport:
        """Copies from a place to a device by an engine.

        Raises
        ------
        HardwareError
            If the device cannot read the place, or memory is missing.
        """
        key = (device, place, engine)
        if key not in self._found:
            self.backend.connect(device, place)
            report = self._examine(device, place, engine)
            if engine == "dma" and place not in (HOST, device):
                report = replace(report, findings=(*report.findings, *self._staged(report, device)))
            self._found[key] = report
        return self._found[key]

    def _staged(self, report: PlaceReport, device: int) -> list[Finding]:
        """Warn of copies between devices that are no faster than from the host."""
        try:
            host = self.of_place(device, HOST, "dma")
        except HardwareError:
            return []  # nothing to compare with
        if report.bytes_per_s >= SURELY_FASTER * host.bytes_per_s:
            return []
        text = (
            f"{report.direction}: {format_rate(report.bytes_per_s)} is no more than the "
            f"{format_rate(host.bytes_per_s)} of copies from the host: staged there, or linked by PCIe "
            "alone"
        )
        return [Finding(severity="warn", text=text)]

    def _examine(self, device: int, place: int, engine: str) -> PlaceReport:
        backend = self.backend
        kind = torch.bfloat16
        src = backend.empty(place, *SHAPE, kind, transposed=False)
        dst = backend.empty(device, *SHAPE, kind, transposed=False)
        a, b, c = (
            backend.empty(device, GEMM_SIZE, GEMM_SIZE, kind, transposed=False) for _ in range(3)
        )
        for drawn in (src, a, b):
            drawn.normal_()
        dst.fill_(float("nan"))
        backend.synchronize()
        launch = backend.transfer(src, dst, engine, device)
        copy_lane = Lane(gpu=0, device=device, name="examined.copy")
        gemm_lane = Lane(gpu=0, device=device, name="examined.gemm")

        def copies(count: int) -> Step:
            def run(stream: int) -> None:
                for _ in range(count):
                    launch(stream)

            return Step(id="copies", lane=copy_lane, launch=run)

        def gemms(_: int) -> None:
            for _ in range(NUM_GEMMS):
                torch.mm(a, b, out=c)

        gemm = Step(id="gemms", lane=gemm_lane, launch=gemms)
        self._median_s([gemm], "gemms", graph=False)  # libraries load outside of a capture
        copy_s = self._median_s([copies(1)], "copies")
        equal = bool(torch.equal(_on(src, device, backend), dst))
        gemm_s = self._median_s([gemm], "gemms")
        several = copies(max(1, round(gemm_s / copy_s)))
        slowed = self._slowed(several, gemm)
        if engine == "dma" and copies_by_engine(slowed[1], slowed[0], ""):
            # Clocks move by this much at times; what is so is so twice.
            slowed = min(slowed, self._slowed(several, gemm), key=max)
        direction = f"{place_name(place)}>{place_name(device)}"
        findings = []
        if not equal:
            text = f"{direction} by {engine}: data does not arrive as it was sent"
            findings.append(Finding(severity="refuse", text=text))
        if engine == "dma":
            findings += copies_by_engine(slowed[1], slowed[0], direction)
        return PlaceReport(
            direction=direction,
            engine=engine,
            equal=equal,
            bytes_per_s=src.numel() * src.element_size() / copy_s,
            copy_slowed=slowed[0],
            gemm_slowed=slowed[1],
            findings=tuple(findings),
        )

    def _median_s(self, steps: Sequence[Step], name: str, *, graph: bool = True) -> float:
        (runs,) = self._interleaved([steps], graph=graph)
        return statistics.median(_length(run, name) for run in runs)

    def _slowed(self, copies: Step, gemm: Step) -> tuple[float, float]:
        """Of copies and GEMMs: time beside the other over time alone, a moment before."""
        copies_runs, gemm_runs, both = self._interleaved([[copies], [gemm], [copies, gemm]])
        copy, gemms = (
            statistics.median(
                _length(together, step.id) / _length(alone, step.id)
                for together, alone in zip(both, runs, strict=True)
            )
            for step, runs in ((copies, copies_runs), (gemm, gemm_runs))
        )
        return copy, gemms

    def _interleaved(
        self, subjects: Sequence[Sequence[Step]], *, graph: bool = True
    ) -> list[list[Run]]:
        """Runs of each subject in turn, after one to warm up."""
        with ExitStack() as opened:
            prepared = []
            for steps in subjects:
                prepared.append(self.backend.prepare(steps, graph=graph, spans=True))
                opened.callback(prepared[-1].close)
            rounds = [[subject.run() for subject in prepared] for _ in range(SAMPLES + 1)]
        return [list(runs) for runs in zip(*rounds[1:], strict=True)]


def _length(run: Run, name: str) -> float:
    start_s, end_s = run.spans[name]
    return end_s - start_s


def _on(tensor: Tensor, device: int, backend: Backend) -> Tensor:
    return tensor.to(f"cuda:{device}") if backend.kind == "gpu" else tensor

"""All groups that there is data for, put into a machine's profile; the rest keeps its defaults."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from ficco_sim.calibrate.contention import fit_contention
from ficco_sim.calibrate.copies import copy_times, fit_copies
from ficco_sim.calibrate.core import collective_times, fit_core
from ficco_sim.calibrate.gemm import BadKernel, GemmFit, fit_gemm, measured_table, reference_clock
from ficco_sim.calibrate.inputs import Inputs
from ficco_sim.calibrate.launch import fit_launch
from ficco_sim.calibrate.local import fit_local
from ficco_sim.calibrate.robust import Errors, Fitted, NotFitted
from ficco_sim.costs.gemm import GemmModel
from ficco_sim.errors import ScenarioError
from ficco_sim.profile import MAX_REACH, MIN_REACH, Fit, GpuFile, MeasuredGemm, Profile

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["OTHER_GROUPS", "Calibration", "Group", "calibrate"]

PEERS = re.compile(r"dev(\d+)>dev(?!\1$)\d+")
WITHIN = re.compile(r"dev(\d+)>dev\1")
V = TypeVar("V", bound="DataclassInstance")
DIGITS = 5
NO_DIRECTION = "no copies between devices; --direction says which others stand for them"
ONLY_RATES = "{} copies in logs tell a rate but no size and time, which set-up and rate are fitted to"
REACH_KEY = "profile.gemm.correction_reach"
CORRECTION_REACH = 2.0  # octaves; held-out errors on H200 are least there and flat around it
REACH_SOURCE = f"derived: {CORRECTION_REACH:g} octaves, chosen for least held-out errors on H200"
CLOCK_KEY = "profile.gemm.sm_clock_hz"
CLOCK_SOURCE = "measured: the highest clock that was read beside GEMMs"
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One group of parameters.

    Parameters
    ----------
    name
        As in `Profile.fits`.
    fit
        None where the group keeps its defaults.
    reason
        Why it does.
    parts
        Held-out errors of some of its points.
    """

    name: str
    fit: Fit | None
    reason: str = ""
    parts: dict[str, Errors]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A gpu with fitted parameters.

    Parameters
    ----------
    gpu
        Its file; measured shapes are left to whoever writes the table.
    table
        Measured shapes, those of the machine before for types that were not fitted.
    bad_kernels
        Shapes for which the library is slow, slowest first.
    """

    gpu: GpuFile
    table: tuple[MeasuredGemm, ...]
    groups: tuple[Group, ...]
    bad_kernels: tuple[BadKernel, ...]
    notes: tuple[str, ...]


def calibrate(
    inputs: Inputs,
    gpu: GpuFile,
    *,
    direction: str | None = None,
    latency_s: float = 0.0,
    reach: float = CORRECTION_REACH,
    table: bool = True,
    keep: Collection[str] = (),
    held_out: bool = True,
    progress: Progress | None = None,
) -> Calibration:
    """Fit every group of parameters that the inputs have data for.

    Parameters
    ----------
    gpu
        Data sheet, starting values, and what is kept where nothing was measured, with the shapes of
        its table; see `read_start`.
    direction
        Which copies stand for those between gpus: ``dev1>dev0``, ``host>dev0``. By default those
        between devices if there are any.
    latency_s
        From a gpu to another, which a measured copy includes.
    reach
        See `GemmProfile.correction_reach`; 0 leaves the formula alone.
    table
        Put measured shapes into the profile; without them nothing corrects the formula either.
    keep
        Groups that keep their defaults whatever was measured.

    Raises
    ------
    ScenarioError
        If the inputs have data for no group, one to keep is unknown, or the reach is no distance.
    """
    if reach != 0 and not MIN_REACH <= reach <= MAX_REACH:
        raise ScenarioError(f"reach: {reach} must be 0 or from {MIN_REACH:g} to {MAX_REACH:g} octaves")
    profile = gpu.profile
    dtypes = dict.fromkeys([*inputs.gemms, *profile.gemm.rates])
    names = [*(f"gemm.{dtype}" for dtype in dtypes), *_MAKERS]
    for name in keep:
        if name not in names:
            raise ScenarioError(f"keep: {name!r} is unknown here; one of {', '.join(names)}")
    groups: list[Group] = []
    bad: list[BadKernel] = []
    rows: dict[str, tuple[MeasuredGemm, ...]] = {}
    sources = dict(gpu.sources)
    clock_hz = reference_clock(s for found in inputs.gemms.values() for s in found)
    start = replace(
        profile.gemm,
        measured=(),
        measured_file="",
        correction_reach=reach if table else 0.0,
        sm_clock_hz=profile.gemm.sm_clock_hz or clock_hz,
    )
    for done, name in enumerate(names):
        if progress is not None:
            progress(done, len(names), name)
        if name in keep:
            groups.append(Group(name=name, fit=None, reason="asked for", parts={}))
            continue
        found: GemmFit | Fitted[Any] | NotFitted
        dtype = name.removeprefix("gemm.")
        if name.startswith("gemm."):
            samples = inputs.gemms.get(dtype, ())
            found = fit_gemm(samples, start, gpu.gpu, inputs.provenance, held_out=held_out)
            if isinstance(found, GemmFit):
                rates = profile.gemm.rates | {dtype: _rounded(found.rates)}
                profile = replace(profile, gemm=replace(profile.gemm, rates=rates))
                bad += found.bad_kernels
                rows[dtype] = measured_table(samples)
        else:
            given = _Given(
                inputs=inputs, profile=profile, gpu=gpu, direction=direction, latency_s=latency_s
            )
            found = _MAKERS[name](given)
            if isinstance(found, Fitted):
                profile = replace(profile, **{name: _rounded(found.values)})
        if isinstance(found, NotFitted):
            reason = found.reason.removeprefix(f"{name}: ")
            groups.append(Group(name=name, fit=None, reason=reason, parts={}))
            continue
        fit = replace(
            found.fit,
            samples={
                key: tuple(_round(value) for value in drawn) for key, drawn in found.fit.samples.items()
            },
        )
        groups.append(Group(name=name, fit=fit, parts=_parts(found)))
        profile = replace(profile, fits=profile.fits | {name: fit})
        # what was said of single parameters of the group no longer holds
        key = _source_key(name, dtype)
        sources = {k: v for k, v in sources.items() if not k.startswith(f"{key}.")}
        sources[key] = _source(fit)
        if isinstance(found, Fitted):
            sources |= {f"{key}.{name}": text for name, text in found.not_fitted.items()}
    if not any(group.fit for group in groups):
        reasons = "; ".join(f"{g.name}: {g.reason}" for g in groups)
        raise ScenarioError("\n".join([f"nothing to calibrate from: {reasons}", *inputs.notes]))
    if rows:
        profile = replace(
            profile,
            gemm=replace(
                profile.gemm,
                correction_reach=start.correction_reach,
                sm_clock_hz=start.sm_clock_hz,
            ),
        )
        sources.pop(REACH_KEY, None)
        if start.sm_clock_hz is not None:
            sources.setdefault(CLOCK_KEY, CLOCK_SOURCE)
        if start.correction_reach > 0:
            sources[REACH_KEY] = REACH_SOURCE if reach == CORRECTION_REACH else "stated: as asked for"
    known = [g for g in gpu.profile.gemm.measured if g.dtype not in rows]
    profile = replace(
        profile,
        gemm=replace(profile.gemm, measured=(), measured_file=""),
        regime=inputs.provenance.regime if inputs.measurements else profile.regime,
        date=inputs.provenance.date,
    )
    return Calibration(
        gpu=replace(gpu, profile=profile, sources=sources),
        table=(*known, *(g for found in rows.values() for g in found)) if table else (),
        groups=tuple(groups),
        bad_kernels=tuple(sorted(bad, key=lambda kernel: -kernel.ratio)),
        notes=inputs.notes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """What the fits of all groups but GEMMs start from."""

    inputs: Inputs
    profile: Profile
    gpu: GpuFile
    direction: str | None
    latency_s: float

    @property
    def chosen(self) -> str | None:
        """The direction that was asked for, else the only one between devices."""
        if self.direction is not None:
            return self.direction
        found = {
            str(m.params.get("direction"))
            for m in self.inputs.measurements
            if m.kind == "copy" and PEERS.fullmatch(str(m.params.get("direction")))
        }
        return min(found, default=None)


def _copies(given: _Given) -> "Fitted[Any] | NotFitted":
    timed = [t for log in given.inputs.logs.values() for t in copy_times(log.copies())]
    if given.chosen is None and not timed:
        rates = sum(p.time_s is None for log in given.inputs.logs.values() for p in log.copies())
        return NotFitted(reason=ONLY_RATES.format(rates) if rates else NO_DIRECTION)
    if WITHIN.fullmatch(given.chosen or ""):
        return NotFitted(reason=f"{given.chosen}: a kernel copies within a device, no copy engine")
    return fit_copies(
        given.inputs.measurements,
        given.chosen or "",
        given.profile.copy,
        given.inputs.provenance,
        latency_s=given.latency_s,
        timed=timed,
    )


def _core(given: _Given) -> "Fitted[Any] | NotFitted":
    defaults = given.profile.core_copy
    logs = given.inputs.logs.values()
    timed = [t for log in logs for t in collective_times(log.collectives(), defaults.compute_units)]
    if given.chosen is None and not timed:
        return NotFitted(reason=NO_DIRECTION)
    found = fit_core(
        given.inputs.measurements, given.chosen or "", defaults, given.inputs.provenance, timed=timed
    )
    if isinstance(found, NotFitted):
        return found
    # the simulator adds the links' latency to the set-up

    def ours(setup_s: float) -> float:
        return max(setup_s - given.latency_s, 0.0)

    samples = found.fit.samples | {"setup_s": tuple(ours(s) for s in found.fit.samples["setup_s"])}
    return replace(
        found,
        values=replace(found.values, setup_s=ours(found.values.setup_s)),
        fit=replace(found.fit, samples=samples),
    )


def _contention(given: _Given) -> "Fitted[Any] | NotFitted":
    gpu, profile = given.gpu.gpu, given.profile
    return fit_contention(
        given.inputs.measurements,
        gpu.hbm_bytes_per_s,
        profile.contention,
        given.inputs.provenance,
        model=GemmModel(profile.gemm, gpu.num_compute_units, gpu.name),
        core_units=profile.core_copy.compute_units,
    )


_MAKERS: dict[str, Callable[[_Given], "Fitted[Any] | NotFitted"]] = {
    "copy": _copies,
    "core_copy": _core,
    "local_copy": lambda given: fit_local(given.inputs.measurements, given.inputs.provenance),
    "launch": lambda given: fit_launch(
        given.inputs.measurements, given.profile.launch, given.inputs.provenance
    ),
    "contention": _contention,
}
OTHER_GROUPS = tuple(_MAKERS)
"""All but GEMMs: they have nothing to do with any single workload's shapes."""


def _parts(found: "GemmFit | Fitted[Any]") -> dict[str, Errors]:
    if isinstance(found, GemmFit):
        return {} if found.large_errors is None else {"large": found.large_errors}
    return found.parts


def _source_key(name: str, dtype: str) -> str:
    """The key of a group in a gpu's file."""
    return f"profile.gemm.rates.{dtype}" if name.startswith("gemm.") else f"profile.{name}"


def _source(fit: Fit) -> str:
    """Where the numbers of a group are from, for the gpu's file."""
    files = ", ".join(source.file for source in fit.sources)
    where = f" on {fit.device}" if fit.device else ""
    how = "held-out" if fit.held_out else "fit"
    return (
        f"measured: fitted to {fit.num_points} points of {files}{where}, {fit.date}; {how} error mean "
        f"{fit.mean_error:.1%}, median {fit.median_error:.1%}, p90 {fit.p90_error:.1%}"
    )


def _rounded(values: V) -> V:
    """A group with its numbers to `DIGITS` digits: more are noise."""
    changed = {
        f.name: _round(value)
        for f in fields(values)
        if isinstance(value := getattr(values, f.name), float)
    }
    return replace(values, **changed)


def _round(value: float) -> float:
    return float(f"{float(value):.{DIGITS}g}")

"""How far costs can be trusted: draws of what a fit leaves open, and sizes outside of what it saw.

A draw is one way in which the costs of a machine may really be. Draw number i has

- for every fitted group with samples, the i-th sample of its parameters (`Fit.samples`);
- for every shape of a GEMM a factor ``exp(sigma z)``. The samples alone are far too narrow: they say
  how well the parameters are known, and hundreds of shapes pin them down, while the formula itself
  is 3 to 6 % off from shape to shape. ``sigma`` is ``1.4826 x`` the held-out median error of the
  element type's fit, which is the standard deviation if errors are normal; shapes in the table of
  measured ones have the repeatability of a measurement instead;
- one factor for all copies between gpus, with their links, and one for all copies within a gpu, as
  wide as the errors of their fits: what is wrong with a copy is the same for all of its size.

Factors come from the draw's number and the name of what they scale, so that all schedules meet the
same ones in the same draw: compare schedules draw by draw. What has no fit does not vary.

The normal numbers ``z`` are a Latin hypercube (McKay, Beckman and Conover 1979): in every `NUM_DRAWS`
draws each quantity takes the middle of each of as many equally likely parts once, in an order of its
own. A dozen draws then lie evenly round the fitted value; the width of what several quantities make
together still has an error of about 20 %.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from statistics import NormalDist
from typing import Any, TypeAlias, TypeVar

import numpy as np

from ficco_sim.costs.gemm import GemmShape
from ficco_sim.errors import MachineError
from ficco_sim.machine import Machine
from ficco_sim.profile import Fit, Profile
from ficco_sim.units import format_rate

__all__ = ["NUM_DRAWS", "UsedSizes", "drawn_machine", "gemm_errors", "interval"]

NUM_DRAWS = 12
MEDIAN_TO_SIGMA = 1.4826  # standard deviation over median of the absolute value, of normal numbers
REPEATABILITY = 0.01  # of a measured time minutes later, docs/hardware.md (median of 480 plans on H200)
LOW, HIGH = 0.1, 0.9
GROUP_WORDS = {
    "copy": "copy",
    "core_copy": "core-driven copy",
    "local_copy": "local copy",
    "contention": "copies beside GEMMs:",
}

ShapeError: TypeAlias = Callable[[GemmShape, bool], float]
Group = TypeVar("Group")


def interval(values: Sequence[float]) -> tuple[float, float]:
    """10th and 90th percentile of what draws gave."""
    # hazen: value i of n is quantile (i - 1/2) / n, as the draws are made
    low, high = np.quantile(values, [LOW, HIGH], method="hazen")
    return float(low), float(high)


def drawn_machine(machine: Machine, draw: int) -> Machine:
    """The machine with the parameters and links of a draw.

    Raises
    ------
    MachineError
        If a fit has samples of what is no parameter of its group, or impossible ones.
    """
    profile = machine.profile
    for name, fit in profile.fits.items():
        profile = _with_sample(profile, name, fit, draw)
    copies = _factor(profile.fits.get("copy"), "copy", draw)
    local = _factor(profile.fits.get("local_copy"), "local_copy", draw)
    copy, core, local_copy = profile.copy, profile.core_copy, profile.local_copy
    profile = replace(
        profile,
        copy=replace(
            copy,
            setup_s=copy.setup_s * copies,
            completion_s=copy.completion_s * copies,
            signal_s=copy.signal_s * copies,
            queue_s=copy.queue_s * copies,
            tick_s=copy.tick_s * copies,
            first_tick_s=copy.first_tick_s * copies,
            engine_bytes_per_s=copy.engine_bytes_per_s / copies,
        ),
        core_copy=replace(core, setup_s=core.setup_s * copies, bytes_per_s=core.bytes_per_s / copies),
        local_copy=replace(
            local_copy,
            startup_s=local_copy.startup_s * local,
            bytes_per_s=local_copy.bytes_per_s / local,
        ),
    )
    return replace(machine.with_links(scale=1 / copies), profile=profile)


def gemm_errors(fits: Mapping[str, Fit], draw: int) -> ShapeError:
    """A function of a shape, and whether it was measured: how much longer it takes in a draw."""

    def error(shape: GemmShape, measured: bool) -> float:  # noqa: FBT001 - one of two arguments
        fit = fits.get(f"gemm.{shape.dtype}")
        if fit is None:
            return 1.0
        sigma = REPEATABILITY if measured else _sigma(fit)
        return math.exp(sigma * _normal(repr(shape), draw))

    return error


class UsedSizes:
    """Least and largest sizes that simulated plans gave to the cost models, by group of parameters."""

    def __init__(self) -> None:
        self._ranges: dict[str, dict[str, tuple[int, int]]] = {}

    @property
    def groups(self) -> list[str]:
        """Groups of parameters that were used, in the order of `Profile.fits`."""
        return list(self._ranges)

    def add(self, group: str, **sizes: int) -> None:
        """What was asked of a group: ``m``, ``n`` and ``k``, ``nbytes``, or ``in_bytes_per_s``."""
        ranges = self._ranges.setdefault(group, {})
        for name, size in sizes.items():
            least, most = ranges.get(name, (size, size))
            ranges[name] = (min(least, size), max(most, size))

    def warnings(self, fits: Mapping[str, Fit]) -> list[str]:
        """One sentence per parameter and side of the range that its group was fitted to."""
        found = []
        for group, ranges in self._ranges.items():
            fit = fits.get(group)
            for name, (least, most) in ranges.items():
                if fit is None or name not in fit.valid:
                    continue
                low, high = fit.valid[name]
                what = f"{GROUP_WORDS.get(group, 'GEMM')} {name}"
                show = format_rate if name.endswith("_per_s") else "{:.0f}".format
                if least < low:
                    found.append(
                        f"{what} = {show(least)} is below {show(low)}, the least that {group} was "
                        "fitted to"
                    )
                if most > high:
                    found.append(
                        f"{what} = {show(most)} is above {show(high)}, the most that {group} was "
                        "fitted to"
                    )
        return found


def _with_sample(profile: Profile, name: str, fit: Fit, draw: int) -> Profile:
    """The profile with a sample of one group, if that has any."""
    if not fit.num_samples:
        return profile
    sample = {key: values[draw % len(values)] for key, values in fit.samples.items()}
    try:
        if not name.startswith("gemm."):
            return replace(profile, **{name: _replaced(getattr(profile, name), sample)})
        dtype = name.removeprefix("gemm.")
        rates = profile.gemm.rates
        rates = rates | {dtype: _replaced(rates[dtype], sample)}
    except MachineError as error:
        raise MachineError(f"fits.{name}.samples: {error}") from error
    return replace(profile, gemm=replace(profile.gemm, rates=rates))


def _replaced(group: Group, sample: Mapping[str, float]) -> Group:
    kept: dict[str, Any] = {f.name: getattr(group, f.name) for f in fields(group)}  # type: ignore[arg-type]
    for name, value in sample.items():
        if name not in kept:
            raise MachineError(f"{name!r} is unknown; one of {', '.join(kept)}")
        # such as compute units
        kept[name] = round(value) if isinstance(kept[name], int) else value
    return type(group)(**kept)


def _sigma(fit: Fit) -> float:
    return MEDIAN_TO_SIGMA * fit.median_error


def _factor(fit: Fit | None, name: str, draw: int) -> float:
    return 1.0 if fit is None else math.exp(_sigma(fit) * _normal(name, draw))


def _normal(name: str, draw: int) -> float:
    """A standard normal number for a quantity in a draw, see the file's head."""
    block, position = divmod(draw, NUM_DRAWS)
    # four bytes per part; Python's own hash() differs from run to run
    digest = hashlib.blake2b(f"{block} {name}".encode(), digest_size=4 * NUM_DRAWS).digest()
    order = sorted(range(NUM_DRAWS), key=lambda i: digest[4 * i : 4 * i + 4])
    return NormalDist().inv_cdf((order[position] + 0.5) / NUM_DRAWS)

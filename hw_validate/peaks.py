"""What a device cannot exceed, from the data sheets in `topologies/gpus`."""

import re
from dataclasses import dataclass, field

from ficco_sim import io

__all__ = ["Peaks", "peaks_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """Limits of a device: FLOP/s by element type, and bytes/s of its memory; empty if unknown."""

    name: str = ""
    flops_per_s: dict[str, float] = field(default_factory=dict)
    hbm_bytes_per_s: float | None = None


def peaks_of(device_name: str) -> Peaks:
    """The peaks of the gpu that a device's name contains; unknown ones are empty.

    Examples
    --------
    >>> peaks_of("NVIDIA H200").name
    'h200'
    >>> peaks_of("unheard of").flops_per_s
    {}
    """
    words = {word.lower() for word in re.split(r"[^A-Za-z0-9]+", device_name)}
    for path in sorted((io.data_folder() / "gpus").glob("*.yaml")):
        if path.stem in words:
            gpu = io.read_document(path)["gpu"]
            return Peaks(
                name=path.stem,
                flops_per_s=dict(gpu["peak_flops_per_s"]),
                hbm_bytes_per_s=float(gpu["hbm_bytes_per_s"]),
            )
    return Peaks()

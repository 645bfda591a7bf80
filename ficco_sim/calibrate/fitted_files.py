"""The files that a profile was fitted to, where they still lie, so that it can be fitted again."""

from collections.abc import Collection, Sequence
from pathlib import Path

from ficco_sim.calibrate.inputs import digest
from ficco_sim.profile import GpuFile

__all__ = ["files_of_gemm_fits"]


def files_of_gemm_fits(
    gpu: GpuFile, folders: Sequence[Path], dtypes: Collection[str]
) -> tuple[Path, ...]:
    """The files that GEMMs of some types were fitted to; none unless all lie unchanged in the folders.

    Raises
    ------
    FileError
        If a file of that name is there and cannot be read.
    """
    sources = {
        (source.file, source.sha256)
        for name, fit in gpu.profile.fits.items()
        if name.startswith("gemm.") and name.removeprefix("gemm.") in dtypes
        for source in fit.sources
    }
    found = []
    for file, sha256 in sorted(sources):
        # only the name: a profile from elsewhere must not choose what is read here
        candidates = [folder / Path(file).name for folder in dict.fromkeys(folders)]
        same = [path for path in candidates if path.is_file() and digest(path) == sha256]
        if not same:
            return ()
        found.append(same[0])
    return tuple(found)

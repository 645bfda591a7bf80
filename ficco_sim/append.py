"""Files that grow while a long job runs: one writer, and every piece whole or not at all."""

import contextlib
import fcntl
import os
from pathlib import Path

from ficco_sim.errors import FileError

__all__ = ["append", "lock"]


def lock(handle: int, path: Path) -> None:
    """Keep other processes from writing an open file, as long as it stays open.

    Raises
    ------
    FileError
        If another process has it.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise FileError(f"{path}: another process writes it; choose another name") from error
    except OSError:
        pass  # some network file systems have no locks


def append(handle: int, data: bytes, size: int, *, sync: bool) -> int:
    """Write all bytes at the end of an open file of ``size`` bytes, or leave it as it was.

    Parameters
    ----------
    sync
        Return once they are on disk.

    Returns
    -------
    int
        The new size.

    Raises
    ------
    OSError
        If they cannot be written.
    """
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(handle, rest) :]
        if sync:
            os.fsync(handle)
    except BaseException:  # also where the user interrupts
        with contextlib.suppress(OSError):  # what stays is cut when the job is resumed
            os.ftruncate(handle, size)
        raise
    return size + len(data)

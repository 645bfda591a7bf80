"""What worker processes of the tests do; they import it by its name."""

import os
import signal
from pathlib import Path


def double(setting):
    """The plainest work."""
    return lambda task: setting * task


def die_on_three(_setting):
    """One task kills its worker every time."""

    def work(task):
        if task == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return task

    return work


def die_once(setting):
    """One task kills its worker the first time only."""

    def work(task):
        mark = Path(setting)
        if task == 2 and not mark.exists():
            mark.touch()
            os._exit(7)
        return task

    return work


def note_process(setting):
    """Leaves the number of its process as the name of a file."""

    def work(task):
        (Path(setting) / str(os.getpid())).touch()
        return task

    return work

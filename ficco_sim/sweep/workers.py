"""Worker processes: each has one task at a time, and one that dies takes nothing with it.

Not `concurrent.futures`: there a worker that dies breaks the pool without saying which task it had,
and workers whose parent was killed wait for ever. Workers are spawned, not forked, so that none holds
the lock of the journal.
"""

import contextlib
import multiprocessing
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection, resource_tracker
from typing import Any, Generic, TypeVar

from ficco_sim.errors import SimulationError

__all__ = ["Died", "run_tasks"]

T = TypeVar("T")
TRIES = 2
"""Times that a task is started before it is given up: not every killed worker is the task's fault."""

CANNOT_START = (
    "a worker process ended before it could begin; a script that simulates with several jobs must have "
    "its own work under: if __name__ == '__main__'"
)


@dataclass(frozen=True, slots=True)
class Died:
    """What became of a task whose workers died."""

    reason: str


class _Worker(Generic[T]):
    """One process, and the task that it has."""

    def __init__(self, make: Callable[[Any], Callable[[T], Any]], setting: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, make, setting), daemon=True)
        with _interrupts_held():  # workers inherit that, and leave Ctrl-C to their parent
            self.process.start()
        theirs.close()  # the worker's end must be open in the worker alone, to see that it has gone
        self.ready = False  # whether it has said so
        self.task: T | None = None  # the one that it works on

    def send(self, task: T) -> None:
        self.task = task
        # a worker that has died meanwhile is noticed when its answer is read
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(task)

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


def run_tasks(
    make: Callable[[Any], Callable[[T], Any]], setting: Any, tasks: Sequence[T], jobs: int
) -> Generator[tuple[T, Any]]:
    """Results of ``make(setting)(task)`` as they come; workers are gone when the iterator closes.

    Parameters
    ----------
    make
        Called once in each process, there importable by its name; what it returns does the tasks.
    jobs
        Number of processes; with 1 the work is done in this one.

    Yields
    ------
    task, result
        `Died` as the result of a task whose workers died `TRIES` times.

    Raises
    ------
    SimulationError
        If a worker ends before it can begin.
    """
    if jobs == 1:
        work = make(setting)
        for task in tasks:
            yield task, work(task)
        return
    todo = list(reversed(tasks))
    died: list[T] = []
    workers: list[_Worker[T]] = []
    resource_tracker.ensure_running()  # it lets interrupts through when it starts
    try:
        for _ in range(min(jobs, len(tasks))):
            worker: _Worker[T] = _Worker(make, setting)
            workers.append(worker)
            worker.send(todo.pop())
        while busy := {w.connection: w for w in workers if w.task is not None}:
            for ready in connection.wait(list(busy)):
                worker = busy[ready]  # type: ignore[index]
                try:
                    result = worker.connection.recv()
                except (EOFError, ConnectionResetError):
                    if not worker.ready:
                        raise SimulationError(CANNOT_START) from None
                    given, worker.task = worker.task, None
                    assert given is not None
                    workers.remove(worker)
                    worker.process.join()
                    code = worker.process.exitcode
                    worker.stop()
                    died.append(given)
                    if died.count(given) < TRIES:
                        todo.append(given)
                    else:
                        yield given, Died(_reason(code))
                    worker = _Worker(make, setting)
                    workers.append(worker)
                else:
                    if not worker.ready:
                        worker.ready = True
                        continue
                    given, worker.task = worker.task, None
                    assert given is not None
                    yield given, result
                if todo:
                    worker.send(todo.pop())
    finally:
        for worker in workers:
            worker.stop()


def _work(theirs: Any, make: Callable[[Any], Callable[[Any], Any]], setting: Any) -> None:
    """What a worker does: tasks one after another until its parent has gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    work = make(setting)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        theirs.send("ready")
        while True:
            theirs.send(work(theirs.recv()))


def _reason(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        hint = ", perhaps out of memory" if -code == signal.SIGKILL else ""
        return f"its worker process died twice, killed by {name}{hint}"
    return f"its worker process died twice, with exit code {code}"


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """No interrupt reaches this thread, or a process that it starts, before the context ends."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

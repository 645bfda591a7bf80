"""Steps on the CPU: in order, or a thread a lane. For tests and for trying plans out."""

import threading
import time
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from ficco_sim.errors import HardwareError, PlanError
from hw_validate.program import Lane, Launch, Pair, Prepared, Run, Step, in_order

__all__ = ["CpuBackend"]

PATIENCE_S = 60.0  # a thread that waits longer is taken for stuck


class CpuBackend:
    """Plays any number of devices with tensors in the host's memory.

    Parameters
    ----------
    threads
        Run every lane in a thread of its own instead of all in one legal order.
    dead_peers
        Pairs (device, place) without access, to see what a machine without peer access does.
    """

    kind = "cpu"
    labels: tuple[str, ...] = ("emulated: all gpus on the CPU; times stand for nothing",)

    def __init__(self, *, threads: bool = False, dead_peers: Iterable[tuple[int, int]] = ()) -> None:
        self.threads = threads
        self.dead_peers = frozenset(dead_peers)

    def empty(self, place: int, rows: int, cols: int, kind: torch.dtype, *, transposed: bool) -> Tensor:
        """See `Backend.empty`; every place is the host's memory."""
        del place
        return (
            torch.empty(cols, rows, dtype=kind).t()
            if transposed
            else torch.empty(rows, cols, dtype=kind)
        )

    def transfer(self, src: Tensor, dst: Tensor, engine: str, device: int, *, share: int = 1) -> Launch:
        """See `Backend.transfer`."""
        del engine, device, share
        return lambda _: _copy(src, dst)

    def joint_transfer(self, pairs: Sequence[Pair], device: int) -> Launch:
        """See `Backend.joint_transfer`."""
        return self.local_copy(pairs, device)

    def local_copy(self, pairs: Sequence[Pair], device: int) -> Launch:
        """See `Backend.local_copy`."""
        del device

        def launch(_: int) -> None:
            for src, dst in pairs:
                _copy(src, dst)

        return launch

    def core_copy(self, pairs: Sequence[Pair], device: int, blocks: int) -> Launch:
        """See `Backend.core_copy`."""
        del blocks
        return self.local_copy(pairs, device)

    def connect(self, device: int, place: int) -> None:
        """See `Backend.connect`.

        Raises
        ------
        HardwareError
            If the pair is one of `dead_peers`.
        """
        if (device, place) in self.dead_peers:
            raise HardwareError(
                f"device {device} has no peer access to device {place}: copies would be staged in host "
                "memory; choose other devices with --map, or hold the data in the host ('=host')"
            )

    def prepare(self, steps: Sequence[Step], *, graph: bool, spans: bool) -> Prepared:
        """See `Backend.prepare`; there are no graphs here, both ways are the same."""
        del graph
        return _Prepared(in_order(steps), threads=self.threads, spans=spans)

    def synchronize(self) -> None:
        """See `Backend.synchronize`: nothing is left running after a run."""

    def flush(self) -> None:
        """See `Backend.flush`: times on the CPU stand for nothing."""

    def reserved_bytes(self) -> float:
        """See `Backend.reserved_bytes`; torch does not tell for the CPU."""
        return 0.0

    def heat(self, seconds: float) -> None:
        """See `Backend.heat`."""


def _copy(src: Tensor, dst: Tensor) -> None:
    dst.copy_(src)


class _Prepared:
    def __init__(self, steps: list[Step], *, threads: bool, spans: bool) -> None:
        self._steps = steps
        self._threads = threads
        self._spans = spans

    def run(self) -> Run:
        start_s = time.perf_counter()
        spans = self._in_threads() if self._threads else self._in_order()
        end_s = time.perf_counter()
        return Run(
            makespan_s=end_s - start_s,
            host_s=end_s - start_s,
            spans={k: (a - start_s, b - start_s) for k, (a, b) in spans.items()} if self._spans else {},
        )

    def close(self) -> None:
        self._steps = []

    def _in_order(self) -> dict[str, tuple[float, float]]:
        return {step.id: _timed(step) for step in self._steps}

    def _in_threads(self) -> dict[str, tuple[float, float]]:
        lanes: dict[Lane, list[Step]] = {}
        for step in self._steps:
            lanes.setdefault(step.lane, []).append(step)
        done = {step.id: threading.Event() for step in self._steps}
        spans: dict[str, tuple[float, float]] = {}
        failures: list[Exception] = []

        def work(members: list[Step]) -> None:
            try:
                for step in members:
                    for wait in step.waits:
                        _wait_for(done[wait], step.id, wait)
                    if failures:
                        return
                    spans[step.id] = _timed(step)
                    done[step.id].set()
            except Exception as error:  # noqa: BLE001 - raised again by the thread that waits
                failures.append(error)
                for event in done.values():
                    event.set()  # nobody waits for what will not come

        workers = [threading.Thread(target=work, args=(members,)) for members in lanes.values()]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if failures:
            raise failures[0]
        return spans


def _timed(step: Step) -> tuple[float, float]:
    start_s = time.perf_counter()
    step.launch(0)
    return start_s, time.perf_counter()


def _wait_for(event: threading.Event, step: str, wait: str) -> None:
    if not event.wait(PATIENCE_S):
        raise PlanError(f"step {step!r} waits for {wait!r} without end")

"""Work in progress at a rate that may change, and the one place that wakes whoever it finishes for.

Ties: everything that happens at one instant is taken in first; then, as the last thing at that
instant, rates are set anew once. Activities that end at the same instant are ended in the order in
which their rates were last set.
"""

from collections.abc import Callable

from simpy import Environment, Event
from simpy.events import EventPriority

__all__ = ["Activity", "Settler"]

LAST = EventPriority(2)  # after simpy's URGENT (0) and NORMAL (1) events of the same instant


class Activity:
    """Some amount of work, done at a rate.

    Attributes
    ----------
    remaining
        Amount left (bytes of a flow, seconds alone of a kernel).
    rate, alone_rate
        Amount per second, now and if no other engine's work contended.
    lost_s
        Time that contention has cost so far.
    done
        Event that fires when nothing remains.
    """

    __slots__ = ("alone_rate", "done", "last_s", "lost_s", "on_end", "rate", "remaining", "version")

    def __init__(self, amount: float, done: Event, now_s: float) -> None:
        self.remaining = amount
        self.rate = 0.0
        self.alone_rate = 0.0
        self.lost_s = 0.0
        self.last_s = now_s
        self.done = done
        self.version = 0

    def advance(self, now_s: float) -> None:
        """Account for the time since the rate was set."""
        elapsed = now_s - self.last_s
        if elapsed > 0.0:
            self.remaining -= self.rate * elapsed
            if self.rate < self.alone_rate:
                self.lost_s += elapsed * (1.0 - self.rate / self.alone_rate)
            self.last_s = now_s


class _Settle(Event):
    """Fires last at the present instant."""

    def __init__(self, env: Environment, callback: Callable[[Event], None]) -> None:
        super().__init__(env)
        self.callbacks = [callback]
        self._ok = True
        self._value = None
        env.schedule(self, priority=LAST)


class Settler:
    """Runs the re-planning steps once at the end of each instant that changed something.

    Parameters
    ----------
    env
        Clock and event queue.
    steps
        Called in order; each sets rates through `set_rate`.
    """

    def __init__(self, env: Environment) -> None:
        self.env = env
        self.steps: list[Callable[[float], None]] = []
        self.ended: list[Callable[[Activity], None]] = []
        self._pending = False
        self._wakes: dict[float, list[tuple[Activity, int]]] = {}

    def touch(self) -> None:
        """Ask for re-planning at the end of this instant."""
        if not self._pending:
            self._pending = True
            _Settle(self.env, self._settle)

    def set_rate(self, activity: Activity, rate: float, alone_rate: float) -> None:
        """Give an activity, advanced to now, a new rate and plan its end."""
        activity.alone_rate = alone_rate
        if rate == activity.rate:
            return
        activity.rate = rate
        activity.version += 1
        end_s = self.env.now + max(activity.remaining, 0.0) / rate
        self._wakes.setdefault(end_s, []).append((activity, activity.version))

    def _settle(self, _: Event) -> None:
        self._pending = False
        now = self.env.now
        for step in self.steps:
            step(now)
        wakes, self._wakes = self._wakes, {}
        for end_s, planned in wakes.items():
            timeout = self.env.timeout(end_s - now, planned)
            assert timeout.callbacks is not None
            timeout.callbacks.append(self._wake)

    def _wake(self, event: Event) -> None:
        planned: list[tuple[Activity, int]] = event.value or []
        for activity, version in planned:
            if activity.version == version:
                activity.advance(self.env.now)
                activity.version += 1
                activity.remaining = 0.0
                for callback in self.ended:
                    callback(activity)
                activity.done.succeed()

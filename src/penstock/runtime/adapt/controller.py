"""The adaptive loop of one operator: generic → instrumented → optimised → (deoptimised) → …

The controller says when the next task is profiled, and whether a choice may change now. The operator collects the
profile, a pure function decides, the operator swaps its kernels between two tasks and reports the change here.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from penstock.runtime.adapt.counters import CounterRates, Counters, thread_counters
from penstock.runtime.adapt.history import Adaptation, note_gain, record
from penstock.runtime.adapt.sensor import ROWS_OF_SMALL_TASK, Sensor

Start = Callable[[Callable[[], None]], None]
Report = Callable[[str, str, str, str], None]  # what, before, after, why


def in_background(work: Callable[[], None]) -> None:
    """Run on a thread of its own. Not a daemon: the process would crash if it exited while LLVM compiles."""
    threading.Thread(target=work, name="penstock-adapt").start()


@dataclass(frozen=True, slots=True)
class Policy:
    """How eagerly a run adapts. Tests set `patience` and `every` low, and the clock and `start` by hand.

    Nothing is instrumented before `patience` rows: small queries never pay. Then a sample of `sample` rows is profiled,
    again after `every` tasks of `task` rows, and ever more rarely while nothing changes.
    """

    patience: int = 1 << 22
    sample: int = 1 << 14
    task: int = 1 << 16
    every: int = 64
    wait: int = 1 << 22  # rows before a choice that failed may be made again; doubled each time
    clock: Callable[[], int] = time.perf_counter_ns
    start: Start = in_background
    counters: Callable[[], Counters] = thread_counters
    decide: Callable[..., object] | None = None  # replaces the operator's deciding function


USUAL = Policy()
MOST_RARELY = 16  # times `every`
LONGEST_WAIT = 1 << 40  # rows


@dataclass
class _Wait:
    """How long a choice that failed is not made again."""

    rows: int
    until: int


class Controller:
    """When one operator profiles its rows, what its sensors show, and which of its choices wait.

    `adaptations` is the list in the metrics of the run. `due` says whether the next task is profiled;
    `adaptive=False` profiles none.
    """

    def __init__(
        self, operator: str, policy: Policy, adaptations: list[Adaptation], adaptive: bool = True
    ) -> None:
        self.operator, self.policy, self.adaptations, self.adaptive = operator, policy, adaptations, adaptive
        self.sensor = Sensor()
        self._counters = CounterRates(policy.counters)
        self._merged = 0  # nanoseconds since the last task
        self.rows = self.usual_rows = 0  # in all, and in a push
        self.begun = policy.clock()
        self._next = policy.patience  # the row from which on a task is profiled
        self._gap = 1
        self._waits: dict[str, _Wait] = {}
        self._noted: deque[tuple[str, str, str, int]] = deque(maxlen=8)
        self._changed_at: int | None = None
        self._cost_before = 0.0
        self.due = adaptive and policy.patience == 0

    def begin(self) -> int:
        """Begin a task; return the time."""
        if self.adaptive:
            self._counters.start()
        return self.policy.clock()

    def merged(self, nanoseconds: int) -> None:
        """Record the time in which tables of workers were merged."""
        self._merged += nanoseconds

    def folded(self, rows: int, accepted: int, nanoseconds: int, unsensed: int = 0) -> None:
        """Record a task, and `unsensed` rows before it. A change beyond noise requests a new profile."""
        self.rows += rows + unsensed
        self.usual_rows = rows
        self.due = self.adaptive and self.rows >= self._next
        if rows < ROWS_OF_SMALL_TASK or not self.adaptive:
            return
        if self.sensor.take(rows, accepted, nanoseconds, self._others(rows)):
            self._gap, self._next = 1, max(self.rows, self.policy.patience)
            self.due = self.rows >= self._next
        if self._changed_at is not None and self.sensor.settled:
            if self._cost_before and self.sensor.cost:
                gain = self._cost_before / self.sensor.cost
                note_gain(self.adaptations, self._changed_at, self.operator, gain)
            self._changed_at = None

    def _others(self, rows: int) -> dict[str, float]:
        """What else was sensed of a task of so many rows."""
        found = self._counters.per_row(rows)
        if self._merged:
            found["merge ns"], self._merged = self._merged / rows, 0
        return found

    def profiled(self, changed: bool | None) -> None:
        """Schedule the next profile: soon after a change, ever later without one, at once if a kernel is compiled first."""
        if changed is None:
            self._next, self.due = self.rows + self.policy.task, False
            return
        self._gap = 1 if changed else min(2 * self._gap, MOST_RARELY)
        self._next, self.due = self.rows + self._gap * self.policy.every * self.policy.task, False

    def may(self, what: str) -> bool:
        """Whether a choice may change now: not while it waits because it has failed."""
        wait = self._waits.get(what)
        return wait is None or self.rows >= wait.until

    def change(self, what: str, before: str, after: str, why: str) -> None:
        """Report a change that was decided."""
        self._note(what, before, after, why)

    def give_way(self, what: str, before: str, after: str, why: str) -> None:
        """Report that an assumption failed. The choice waits before it is made again, each time twice as long."""
        if (what, before, after, self.rows) in self._noted:  # another worker has met the same
            return
        known = self._waits.get(what)
        rows = self.policy.wait if known is None else min(2 * known.rows, LONGEST_WAIT)
        self._waits[what] = _Wait(rows, self.rows + rows)
        self._note(what, before, after, why)

    def _note(self, what: str, before: str, after: str, why: str) -> None:
        self._noted.append((what, before, after, self.rows))
        seconds = (self.policy.clock() - self.begun) / 1e9
        if self._changed_at != self.rows:
            self._changed_at, self._cost_before = self.rows, self.sensor.cost
            self.sensor = Sensor()
        record(self.adaptations, Adaptation(self.operator, self.rows, seconds, what, before, after, why))

"""The adaptive loop of one operator, generic to optimised and back: sensors, the record of changes, pinned choices, the machine.

The controller says when the next task is profiled, and whether a choice may change now. The operator collects the
profile, a pure function decides, the operator swaps its kernels between two tasks and reports the change here.

The time per row and the share of accepted rows are followed as moving means. Noise is followed too: only a change well
beyond it counts, and only if two tasks in a row show it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from penstock.errors import EngineError
from penstock.runtime.adapt.counters import CounterRates, Counters, thread_counters
from penstock.runtime.adapt.known_plan import Schedule, Wait
from penstock.types.choices import one_of


@dataclass(frozen=True, slots=True)
class Adaptation:
    """One change of a running operator: `before` gave way to `after` when `row` rows had passed, for the reason `why`.

    `gain` is the time per row before divided by that after, once enough rows have passed to measure it.

    >>> str(Adaptation("views", 4096, 0.25, "key table", "hash", "dense", "keys lie in 0 … 99", 1.5))
    'views at row 4,096 (0.25 s): key table hash → dense, keys lie in 0 … 99; 1.50 x as fast'
    """

    operator: str
    row: int
    seconds: float
    what: str
    before: str
    after: str
    why: str
    gain: float | None = None

    def __str__(self) -> str:
        gain = "" if self.gain is None else f"; {self.gain:.2f} x as fast"
        change = f"{self.what} {self.before} → {self.after}, {self.why}{gain}"
        return f"{self.operator} at row {self.row:,} ({self.seconds:.2f} s): {change}"


MOST_KEPT = 1_000  # adaptations: back-off makes them rare, and a run may last for ever


def record(adaptations: list[Adaptation], change: Adaptation) -> None:
    """Append a change; beyond `MOST_KEPT`, forget the oldest half."""
    if len(adaptations) >= MOST_KEPT:
        del adaptations[: MOST_KEPT // 2]
    adaptations.append(change)


def note_gain(adaptations: list[Adaptation], since: int, operator: str, gain: float) -> None:
    """Set the gain of an operator's last changes, made at row `since`."""
    for place in range(len(adaptations) - 1, -1, -1):
        change = adaptations[place]
        if change.operator != operator:
            continue
        if change.row != since:
            return
        adaptations[place] = replace(change, gain=gain)


_WEIGHT = 0.2  # of the newest task
FEWEST_TASKS = 4  # tasks before a mean says anything
_BEYOND_NOISE = 4.0  # mean deviations
ROWS_OF_SMALL_TASK = 1 << 10  # smaller tasks measure what surrounds kernels

COST, KEPT = "ns", "kept"


class Limit(NamedTuple):
    """The least change that is worth a profile: a share of the mean, and a number."""

    relative: float
    absolute: float


# Hardware counters and probes double before they count: caches are shared with other programs.
LIMITS: dict[str, Limit] = {
    COST: Limit(0.25, 0.0),
    KEPT: Limit(0.0, 0.1),
    "probe length": Limit(1.0, 1.0),
    "merge ns": Limit(1.0, 1.0),
    "branch misses": Limit(1.0, 0.05),
    "cache misses": Limit(1.0, 0.05),
}


@dataclass(slots=True)
class SensorReading:
    """The moving mean of one sensor, and its noise: the mean deviation."""

    mean: float = 0.0
    noise: float = 0.0
    tasks: int = 0
    odd: int = 0  # values in a row beyond noise

    def is_odd(self, value: float, limit: Limit | None) -> int:
        """Follow a value, or count it as odd; return how many in a row are. Without a limit none is."""
        if limit is None or not self.differs(value, limit):
            self.follow(value)
            self.odd = 0
        else:
            self.odd += 1
        return self.odd

    def differs(self, value: float, limit: Limit) -> bool:
        """Whether a value lies beyond noise, by more than the limit."""
        least = max(_BEYOND_NOISE * self.noise, limit.relative * abs(self.mean), limit.absolute)
        return self.tasks >= FEWEST_TASKS and abs(value - self.mean) > least

    def follow(self, value: float) -> None:
        """Move the mean towards a value."""
        weight = 1 / (self.tasks + 1) if self.tasks < FEWEST_TASKS else _WEIGHT
        self.noise += weight * (abs(value - self.mean) - self.noise) if self.tasks else 0.0
        self.mean += weight * (value - self.mean)
        self.tasks += 1


@dataclass
class Sensor:
    """The readings of one operator, by name; `tasks` were measured since the last change."""

    tasks: int = 0
    readings: dict[str, SensorReading] = field(default_factory=dict)

    @property
    def cost(self) -> float:
        """The mean of nanoseconds per row."""
        return self.mean(COST)

    @property
    def kept(self) -> float:
        """The mean share of accepted rows."""
        return self.mean(KEPT)

    def mean(self, name: str) -> float:
        """The mean of one sensor; 0 without a reading."""
        found = self.readings.get(name)
        return 0.0 if found is None else found.mean

    @property
    def settled(self) -> bool:
        """Whether enough tasks were measured."""
        return self.tasks >= FEWEST_TASKS

    def take(
        self, rows: int, accepted: int, nanoseconds: int, others: Mapping[str, float] | None = None
    ) -> bool:
        """Measure a task, with the `others` sensors per row; return whether the rows, or what they cost, have changed."""
        values = {COST: nanoseconds / rows, KEPT: accepted / rows, **(others or {})}
        odd = [self._reading(name).is_odd(value, LIMITS.get(name)) for name, value in values.items()]
        if max(odd) < 2:
            self.tasks += max(odd) == 0
            return False
        self.tasks, self.readings = 1, {}
        for name, value in values.items():
            self._reading(name).follow(value)
        return True

    def _reading(self, name: str) -> SensorReading:
        return self.readings.setdefault(name, SensorReading())

    def note(self, name: str, value: float) -> None:
        """Follow a sensor that is read now and then, not with each task."""
        self._reading(name).follow(value)

    def show(self) -> str:
        """Render the means.

        >>> sensor = Sensor()
        >>> sensor.take(1_000, 250, 2_000, {"occupancy": 0.5})
        False
        >>> sensor.show()
        '2.00 ns per row, 25 % of the rows kept, occupancy 0.50'
        """
        if not self.readings:
            return "no task was measured yet"
        rest = [
            f"{name} {reading.mean:.3g}" if reading.mean < 0.01 else f"{name} {reading.mean:.2f}"
            for name, reading in self.readings.items()
            if name not in (COST, KEPT)
        ]
        return ", ".join([f"{self.cost:.2f} ns per row", f"{100 * self.kept:.0f} % of the rows kept", *rest])


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
        self.changes = 0

    def go_on(self, schedule: Schedule, runs: int, changes: Sequence[tuple[str, str, str]]) -> None:
        """Continue the schedule of earlier runs of the operator, and record the changes that they have led to."""
        self._next, self._gap = schedule.next, schedule.gap
        self._waits = {wait.what: _Wait(wait.rows, wait.left) for wait in schedule.waits}
        self.due = self.adaptive and self._next <= 0
        for what, before, after in changes:
            why = f"known from {runs} earlier run{'s' * (runs > 1)}"
            record(self.adaptations, Adaptation(self.operator, 0, 0.0, what, before, after, why))

    def schedule(self, unsensed: int = 0) -> Schedule:
        """What is left of the schedule, for the next run of the operator."""
        rows = self.rows + unsensed
        waits = [Wait(what, wait.rows, wait.until - rows) for what, wait in self._waits.items()]
        return Schedule(max(self._next - rows, 0), self._gap, tuple(waits))

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
        self.changes += 1
        seconds = (self.policy.clock() - self.begun) / 1e9
        if self._changed_at != self.rows:
            self._changed_at, self._cost_before = self.rows, self.sensor.cost
            self.sensor = Sensor()
        record(self.adaptations, Adaptation(self.operator, self.rows, seconds, what, before, after, why))


CHOICES: dict[str, tuple[str, ...]] = {
    "key table": ("dense", "hash"),
    "key table shared": ("private", "partitioned", "shared"),
    "sums": ("64 bits", "128 bits"),
    "null flags": ("none", "all"),
    "addition": ("row by row", "run by run"),
    "held": ("states per key", "rows"),
}
ORDER = "filter order"


def check_assumptions(assume: object) -> None:
    """Raise unless each name is that of a choice, and each value one that it has.

    >>> check_assumptions({"key table": "hash", "filter order": [[1], [0, 2]]})
    """
    if not isinstance(assume, Mapping):
        raise EngineError(f"assume must be a mapping such as {{'key table': 'hash'}}, not {assume!r:.60}")
    for name, value in assume.items():
        if name == ORDER:
            order_of(value)
        elif not isinstance(name, str) or name not in CHOICES:
            known = ", ".join(map(repr, (*CHOICES, ORDER)))
            raise EngineError(f"assume has no choice {name!r:.60}; the choices are {known}")
        elif not one_of(value, CHOICES[name]):
            allowed = " or ".join(map(repr, CHOICES[name]))
            raise EngineError(f"assume: {name} must be {allowed}, not {value!r:.60}")


def order_of(value: object) -> tuple[tuple[int, ...], ...]:
    """Return groups of conjuncts by number, each number once.

    >>> order_of([[2], [0, 1]])
    ((2,), (0, 1))
    """
    groups = value if isinstance(value, (list, tuple)) else ()
    found = tuple(tuple(group) if isinstance(group, (list, tuple)) else () for group in groups)
    numbers = [number for group in found for number in group]
    whole = all(isinstance(number, int) and not isinstance(number, bool) for number in numbers)
    if not all(found) or not whole or sorted(numbers) != list(range(len(numbers))) or not numbers:
        raise EngineError(
            f"assume: {ORDER} must list groups of conjuncts by number, such as [[1], [0, 2]], each once, not {value!r:.60}"
        )
    return found


_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, slots=True)
class Machine:
    """`private_cache` belongs to one core, `shared_cache` to all of a socket; both in bytes."""

    threads: int = 1
    private_cache: int = 1 << 20
    shared_cache: int = 32 << 20


def this_machine(threads: int, caches: Path = _CACHES) -> Machine:
    """Describe the machine as the system reports it, else with usual cache sizes."""
    sizes = _cache_sizes(caches)
    usual = Machine(threads)
    return Machine(threads, sizes.get(2, usual.private_cache), sizes.get(3, usual.shared_cache))


@cache
def _cache_sizes(folder: Path) -> dict[int, int]:
    """Read the size of each cache level; empty where the system has no such files."""
    found: dict[int, int] = {}
    for entry in sorted(folder.glob("index*")):
        try:
            level, size = int((entry / "level").read_text()), (entry / "size").read_text().strip()
            found[level] = int(size[:-1]) * _UNITS[size[-1]]
        except (OSError, ValueError, KeyError, IndexError):
            continue
    return found

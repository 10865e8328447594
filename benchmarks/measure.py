"""Measure contenders side by side: alternate them, keep the best, check that the answers agree.

A shared machine drifts by tens of per cent within a minute, so contenders take turns, forwards and
then backwards, and only ratios within one run are worth quoting. Processor time, of all threads
together, is kept beside the clock's: neighbours disturb it less.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from benchmarks.answers import agree, normalise
from penstock.calibration.machine import Clock, timed
from penstock.errors import UnsupportedError

MINIMUM_REPEAT = 3
QUICK = 0.1  # seconds: what a neighbour does meanwhile is a large part of less, so that the best of more is worth its time
NOT_AVAILABLE = "not available"


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to answer a question. `run` gives anything; `to_table` makes the answer comparable.

    Contenders with the same `question` must give the same answer; different questions (uniform keys,
    one hot key) may be timed side by side all the same. `rows` is given by contenders that are asked
    about fewer rows than the case has, because they are slow.
    """

    name: str
    run: Callable[[], Any]
    to_table: Callable[[Any], pa.Table] = lambda answer: answer
    threads: int = 1
    group: str = "penstock"
    question: str = ""
    rows: int | None = None


@dataclass(slots=True)
class Outcome:
    """What one contender did: its times in running order, its answer's fate, or why it failed."""

    name: str
    group: str
    threads: int
    question: str = ""
    rows: int | None = None
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    agrees: bool | None = None
    error: str | None = None

    @property
    def best(self) -> float | None:
        return min(self.seconds) if self.seconds and not self.error else None

    @property
    def best_cpu(self) -> float | None:
        return min(self.cpu_seconds) if self.cpu_seconds and not self.error else None


def compare(
    contenders: Sequence[Contender],
    repeat: int,
    progress: Callable[[str], None] = lambda _: None,
    processors: Clock = time.process_time,
    laps: int = 1,
) -> list[Outcome]:
    """Run each contender `repeat` times, in turns, both ways; the first answer to a question counts.

    The first round checks the answers and is not timed, so every contender is warm. `processors` tells the processor
    seconds used so far: those of this process, unless contenders work in others. In each turn quick contenders make so
    many laps, all of them as many: an odd number, or slow contenders would be run one way only.
    """
    assert laps % 2 == 1, "an even number of laps"
    with frozen_heap():
        return take_turns(contenders, repeat, progress, processors, laps)


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Keep what is alive now out of the collections between timings: they are many, and libraries are large."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def take_turns(
    contenders: Sequence[Contender],
    repeat: int,
    progress: Callable[[str], None],
    processors: Clock,
    laps: int = 1,
) -> list[Outcome]:
    """Check every contender, then time them, in turns."""
    outcomes = [Outcome(c.name, c.group, c.threads, c.question, c.rows) for c in contenders]
    pairs = list(zip(contenders, outcomes, strict=True))
    answers: dict[str, pa.Table] = {}
    for contender, outcome in pairs:
        progress(f"{contender.name}: check")
        check_answer(contender, outcome, answers)
    for turn in range(max(repeat, MINIMUM_REPEAT) * laps):
        for contender, outcome in pairs if turn % 2 == 0 else reversed(pairs):
            if turn % laps == 0 or (outcome.best or QUICK) < QUICK:
                progress(f"{contender.name}: round {turn // laps + 1}")
                time_once(contender, outcome, processors)
    return outcomes


def check_answer(contender: Contender, outcome: Outcome, answers: dict[str, pa.Table]) -> None:
    """Run once, untimed, and compare; a contender that raises becomes a failed row."""
    try:
        answer = normalise(contender.to_table(contender.run()))
    except UnsupportedError as error:
        outcome.error = f"{NOT_AVAILABLE}: {one_line(error)}"
        return
    except Exception as error:  # noqa: BLE001 - whatever a contender raises is a failed row, not a crash
        outcome.error = describe(error)
        return
    outcome.agrees = agree(answer, answers.setdefault(contender.question, answer))


def time_once(contender: Contender, outcome: Outcome, processors: Clock = time.process_time) -> None:
    """Add one timing, unless the contender has failed."""
    if outcome.error:
        return
    try:
        seconds, cpu_seconds = timed(contender.run, processors)
        outcome.seconds.append(seconds)
        outcome.cpu_seconds.append(cpu_seconds)
    except Exception as error:  # noqa: BLE001 - as above
        outcome.error = describe(error)


def describe(error: Exception) -> str:
    """Give an error as one short line."""
    return f"{type(error).__name__}: {one_line(error)}"[:200]


def one_line(error: Exception) -> str:
    """Give an error's message on one line."""
    return " ".join(str(error).split())

"""Turn outcomes into the figures the project promises, each with its target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from benchmarks.contenders import CPP_GROUP, PENSTOCK_GROUP, READING_GROUP
from benchmarks.measure import Outcome
from benchmarks.peers import PEER_GROUP

RIVALS = ("Polars", "DuckDB")
"""The peers that ratios are taken against; pandas is shown, but is no bar."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value and what it must reach: at least or at most `target`."""

    name: str
    value: float | None
    target: float | None = None
    at_least: bool = True
    unit: str = "x"

    @property
    def met(self) -> bool | None:
        if self.value is None or self.target is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target


@dataclass(frozen=True, slots=True)
class Case:
    """One table and everyone's outcome on it; `sweep` and `point` if it is one of a series."""

    name: str
    rows: int
    keys: int
    outcomes: tuple[Outcome, ...]
    figures: tuple[Figure, ...] = field(default=())
    sweep: str = ""
    point: float = 0.0


def fastest(outcomes: Iterable[Outcome]) -> float | None:
    """The shortest time of outcomes that finished with the right answer."""
    times = [o.best for o in outcomes if o.best is not None and o.agrees]
    return min(times, default=None)


def speed(case: Case, outcome: Outcome) -> float | None:
    """Rows a second, of the rows this contender was asked about; None if it failed or answered wrongly."""
    best = outcome.best
    return (outcome.rows or case.rows) / best if best and outcome.agrees else None


def library_speed(case: Case, library: str) -> float | None:
    """The greatest speed of the contenders whose name begins with a word."""
    found = (speed(case, outcome) for outcome in case.outcomes if first_word(outcome.name) == library)
    return max((value for value in found if value), default=None)


def first_word(name: str) -> str:
    """A contender's library: the first word of its name."""
    return name.split(maxsplit=1)[0].strip(",")


def of_group(outcomes: Sequence[Outcome], group: str, threads: int | None = None) -> list[Outcome]:
    """Outcomes of one group, at one thread count if given."""
    return [o for o in outcomes if o.group == group and threads in {None, o.threads}]


def rivals(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Outcomes of Polars and DuckDB."""
    return [o for o in of_group(outcomes, PEER_GROUP) if o.name.startswith(RIVALS)]


def least_cpu(outcomes: Iterable[Outcome]) -> float | None:
    """The least processor time of outcomes that finished with the right answer."""
    times = [o.best_cpu for o in outcomes if o.best_cpu is not None and o.agrees]
    return min(times, default=None)


def ratio(slow: float | None, fast: float | None) -> float | None:
    """How many times as fast: `slow / fast`, None if either is missing."""
    return slow / fast if slow and fast else None


def named(outcomes: Sequence[Outcome], name: str) -> float | None:
    """The best time of the contender of this name."""
    return fastest(o for o in outcomes if o.name == name)


def speed_figures(
    outcomes: Sequence[Outcome], threads: Sequence[int], rival_target: float
) -> tuple[Figure, ...]:
    """Ratios of one case: to C++ at each thread count, to the best rival, of most threads to one."""
    most = max(threads)
    against_cpp = (figure for count in threads for figure in cpp_figures(outcomes, count))
    ours = fastest(of_group(outcomes, PENSTOCK_GROUP, most))
    best_rival = Figure(
        f"Penstock {most} threads / best of Polars and DuckDB",
        ratio(fastest(rivals(outcomes)), ours),
        rival_target,
    )
    return (*against_cpp, best_rival, *scaling_figures(outcomes, threads))


def lap_by_lap(slow: Sequence[Outcome], fast: Sequence[Outcome]) -> float | None:
    """How many times as fast in the median lap, of one contender each: neighbours of the machine disturb both of a pair alike.

    The best of many laps tells more of a quiet machine, and which of the two happened to meet one.
    """
    if len(slow) != 1 or len(fast) != 1 or fastest(slow) is None or fastest(fast) is None:
        return None
    return median(theirs / ours for theirs, ours in zip(slow[0].seconds, fast[0].seconds, strict=False))


def cpp_figures(outcomes: Sequence[Outcome], threads: int) -> tuple[Figure, ...]:
    """Penstock against the C++ reference at the same thread count: the best laps, pairs of laps, processor time."""
    theirs, ours = (of_group(outcomes, group, threads) for group in (CPP_GROUP, PENSTOCK_GROUP))
    name = f"Penstock / C++, {threads} thread(s)"
    return (
        Figure(name, ratio(fastest(theirs), fastest(ours)), 0.95),
        Figure(f"{name}, lap by lap", lap_by_lap(theirs, ours)),
        Figure(f"{name}, by processor time", ratio(least_cpu(theirs), least_cpu(ours))),
    )


def scaling_figures(outcomes: Sequence[Outcome], threads: Sequence[int]) -> list[Figure]:
    """How much faster most threads are than one, for Penstock and for the reference."""
    most = max(threads)
    if 1 not in threads or most == 1:
        return []

    def gain(group: str) -> float | None:
        return ratio(fastest(of_group(outcomes, group, 1)), fastest(of_group(outcomes, group, most)))

    return [
        Figure(f"Penstock {most} threads / 1", gain(PENSTOCK_GROUP), 1.7),
        Figure(f"C++ {most} threads / 1", gain(CPP_GROUP)),
        Figure(f"C++ that reads the same columns and does nothing, {most} threads / 1", gain(READING_GROUP)),
    ]

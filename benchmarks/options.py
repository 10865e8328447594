"""What most suites are asked: how many rows, how often, on how many threads, beside whom."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SuiteOptions:
    """What to run. Joins have `rows` on each side; `quick` leaves out points, not questions."""

    rows: int
    repeat: int = 3
    threads: int = 2
    peers: tuple[str, ...] = ()
    quick: bool = False

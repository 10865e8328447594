"""The record of what a run has changed, and why."""

from __future__ import annotations

from dataclasses import dataclass, replace


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

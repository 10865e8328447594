"""The sliding-window algorithms of this package in plain Python: an introduction for readers, and an oracle for tests.

Each yields the state of every frame in turn. `merge(older, newer)` and `add(state, row)` return new states;
`remove(state, row)` undoes an `add` of the oldest row, `take(whole, older)` undoes a `merge`.

>>> frames = [(0, 2), (1, 4), (4, 4)]
>>> total = PlainMonoid(0, add=lambda s, x: s + x, merge=lambda a, b: a + b, remove=lambda s, x: s - x)
>>> [list(algorithm([1, 2, 3, 4], frames, total)) for algorithm in (recompute, subtract_on_evict, two_stacks)]
[[3, 9, 0], [3, 9, 0], [3, 9, 0]]
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from typing import Any

State = Any
Frames = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class PlainMonoid:
    """A monoid in plain Python."""

    identity: State
    add: Callable[[State, Any], State]
    merge: Callable[[State, State], State]
    remove: Callable[[State, Any], State] | None = None
    take: Callable[[State, State], State] | None = None

    def of(self, rows: Sequence[Any]) -> State:
        """Aggregate rows from the identity."""
        return reduce(self.add, rows, self.identity)


def recompute(rows: Sequence[Any], frames: Frames, algebra: PlainMonoid) -> Iterator[State]:
    """Aggregate every frame from its rows."""
    for lo, hi in frames:
        yield algebra.of(rows[lo:hi])


def subtract_on_evict(rows: Sequence[Any], frames: Frames, algebra: PlainMonoid) -> Iterator[State]:
    """Keep one state; subtract rows that leave and add rows that enter."""
    assert algebra.remove is not None
    state, first, last = algebra.identity, 0, 0
    for lo, hi in frames:
        if lo >= last:
            state, first, last = algebra.identity, lo, lo
        state = reduce(algebra.remove, rows[first:lo], state)
        state = reduce(algebra.add, rows[last:hi], state)
        first, last = lo, hi
        yield state


def prefix_sums(rows: Sequence[Any], frames: Frames, algebra: PlainMonoid) -> Iterator[State]:
    """Subtract the prefix at a frame's start from the prefix at its end; recompute from rows if that is not exact."""
    before = list(accumulate(rows, algebra.add, initial=algebra.identity))
    for lo, hi in frames:
        yield algebra.of(rows[lo:hi]) if algebra.take is None else algebra.take(before[hi], before[lo])


def two_stacks(rows: Sequence[Any], frames: Frames, algebra: PlainMonoid) -> Iterator[State]:
    """Compute each block of frames from suffixes of its first frame's rows and one state of the later rows."""
    f = 0
    while f < len(frames):
        mid = frames[f][1]
        later = (g for g in range(f + 1, len(frames)) if frames[g][0] >= mid)
        stop = next(later, len(frames))
        suffix: dict[int, State] = {}
        front, upto = algebra.identity, mid
        for lo, _ in reversed(frames[f:stop]):
            front = suffix[lo] = algebra.merge(algebra.of(rows[lo:upto]), front)
            upto = lo
        back, upto = algebra.identity, mid
        for lo, hi in frames[f:stop]:
            back = reduce(algebra.add, rows[upto:hi], back)
            upto = hi
            yield algebra.merge(suffix[lo], back)
        f = stop


def count_frames(size: int, every: int, rows: int) -> Frames:
    """List the full frames of a count window.

    >>> count_frames(size=3, every=2, rows=6)
    [(0, 3), (2, 5)]
    """
    return [(lo, lo + size) for lo in range(0, rows - size + 1, every)]


def panes(rows: Sequence[Any], size: int, every: int, algebra: PlainMonoid) -> Iterator[State]:
    """Two stacks over panes of `every` rows, for count windows; each row is added once.

    The stacks share one list. After a frame is emitted, the entering pane overwrites its suffix.
    """
    many, rest = divmod(size, every)
    frames = count_frames(size, every, len(rows))
    pane = [algebra.of(rows[p * every : (p + 1) * every]) for p in range(many)]
    back = algebra.identity
    for f, (lo, hi) in enumerate(frames):
        g = f % many
        if g == 0:
            for place in reversed(range(many - 1)):
                pane[place] = algebra.merge(pane[place], pane[place + 1])
            back = algebra.identity
        head = algebra.of(rows[hi - rest : hi])
        yield algebra.merge(pane[g], algebra.merge(back, head))
        pane[g] = algebra.merge(head, algebra.of(rows[hi : lo + (many + 1) * every]))
        back = algebra.merge(back, pane[g])


def running_panes(rows: Sequence[Any], size: int, every: int, algebra: PlainMonoid) -> Iterator[State]:
    """Keep one state over panes; subtract the pane that leaves and merge the pane that enters."""
    assert algebra.take is not None
    many, rest = divmod(size, every)
    ring = [algebra.of(rows[p * every : (p + 1) * every]) for p in range(many)]
    total = reduce(algebra.merge, ring, algebra.identity)
    for f, (lo, hi) in enumerate(count_frames(size, every, len(rows))):
        head = algebra.of(rows[hi - rest : hi])
        yield algebra.merge(total, head)
        total = algebra.take(total, ring[f % many])
        ring[f % many] = algebra.merge(head, algebra.of(rows[hi : lo + (many + 1) * every]))
        total = algebra.merge(total, ring[f % many])


@dataclass(frozen=True, slots=True)
class SortedRanks:
    """The ranks in a frame, sorted, and the count of each."""

    ranks: tuple[int, ...]
    counts: dict[int, int]

    @property
    def distinct(self) -> int:
        return len(self.counts)

    @property
    def mode(self) -> int:
        """The most frequent rank, the smallest of several, or -1 for an empty frame."""
        return min(self.counts, key=lambda rank: (-self.counts[rank], rank), default=-1)


def order_statistics(ranks: Sequence[int], frames: Frames) -> Iterator[SortedRanks]:
    """Keep a sorted list and a count of each rank; a negative rank means no value."""
    present: list[int] = []
    counts: Counter[int] = Counter()
    first = last = 0
    for lo, hi in frames:
        if lo >= last:
            present, counts, first, last = [], Counter(), lo, lo
        for rank in (rank for rank in ranks[first:lo] if rank >= 0):
            del present[bisect_left(present, rank)]
            counts[rank] -= 1
        for rank in (rank for rank in ranks[last:hi] if rank >= 0):
            insort(present, rank)
            counts[rank] += 1
        first, last = lo, hi
        yield SortedRanks(tuple(present), dict(+counts))

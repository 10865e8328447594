"""The interface of sliding-window algorithms: frames, states, and scratch memory, for every window type.

A *frame* is a range of rows, [lo[f], hi[f]), for one window of one key. Rows are partitioned by key and sorted by time.
Both bounds ascend from frame to frame. Across partitions, a frame starts at or after the end of the previous frame. So
an algorithm is independent of keys, times and window types: a window is a queue that rows enter at `hi` and leave at
`lo`. A frame may be empty.

An algorithm is a function of a `Slide` (or of a `CountSlide`, whose frames are arithmetic): it emits loops into the
kernel, calls `emit` once per frame, and returns the scratch memory that the kernel's caller must provide. `plain.py`
has the same algorithms in plain Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from penstock.algorithms.monoids import Monoid, Values
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I64, Buffer, Load, Operand, Value, Var, as_value, const, select

# A row's input to each monoid: its arguments, and the condition under which it counts (None: always).
Row = Sequence[tuple[Values, Value | None]]
States = Sequence[tuple[Var, ...]]
Memory = Sequence[tuple[Buffer, ...]]  # buffers for the states of each monoid
Emit = Callable[[Value, Sequence[Values]], None]


@dataclass(frozen=True, slots=True)
class SlideScratch:
    """A scratch buffer. If `length` is None it has as many elements as the longest frame has rows.

    If `whole`, it has one element more than the rows spanned by all frames of a call, whatever `length` is; calls with
    fewer rows are then faster.
    """

    buffer: Buffer
    length: int | None = None
    whole: bool = False


class Aggregation:
    """Monoids and the function that reads a row. Subclasses add frame bounds."""

    k: KernelBuilder
    monoids: Sequence[Monoid]
    row: Callable[[Value], Row]

    def of(self, monoids: Sequence[Monoid]) -> Aggregation:
        """Return the same rows with other monoids, one for each."""
        return _Rows(self.k, monoids, self.row)

    def identities(self, hint: str) -> States:
        """Declare states with their identities."""
        return [
            tuple(self.k.var(hint, state.identity, state.type) for state in monoid.states)
            for monoid in self.monoids
        ]

    def reset(self, states: States) -> None:
        """Reset states to their identities."""
        for monoid, several in zip(self.monoids, states, strict=True):
            for state, var in zip(monoid.states, several, strict=True):
                self.k.set(var, state.identity)

    def step(self, states: States, row: Value) -> None:
        """Add a row to the states."""
        for monoid, several, (values, active) in zip(self.monoids, states, self.row(row), strict=True):
            self.put(several, monoid.step(self.k, several, values), active)

    def step_before(self, states: States, row: Value) -> None:
        """Add a row that is older than the rows in the states; commutative monoids use a plain step."""
        if not any(monoid.ordered for monoid in self.monoids):
            self.step(states, row)
            return
        one = self.identities("one")
        self.step(one, row)
        self.assign(states, self.merged(one, states))

    def alone(self, row: Value) -> States:
        """Return the states of one row."""
        return self._bound(
            self._one(monoid, values, active)
            for monoid, (values, active) in zip(self.monoids, self.row(row), strict=True)
        )

    def _one(self, monoid: Monoid, values: Values, active: Value | None) -> Values:
        nothing = tuple(const(state.identity, state.type) for state in monoid.states)
        made = monoid.alone(self.k, values) if monoid.alone else monoid.step(self.k, nothing, values)
        if active is None:
            return made
        return tuple(select(active, new, none) for new, none in zip(made, nothing, strict=True))

    def remove(self, states: States, row: Value) -> None:
        """Subtract a row from the states that contain it."""
        for monoid, several, (values, active) in zip(self.monoids, states, self.row(row), strict=True):
            assert monoid.remove is not None, f"a row cannot be taken out of {monoid.name}"
            self.put(several, monoid.remove(self.k, several, values), active)

    def merged(self, older: Sequence[Values], newer: Sequence[Values]) -> States:
        """Merge two states into new variables."""
        joined = (m.merge(self.k, a, b) for m, a, b in zip(self.monoids, older, newer, strict=True))
        return self._bound(joined)

    def without(self, states: Sequence[Values], older: Sequence[Values]) -> States:
        """Undo a merge: return the states without an older part."""
        return self._bound(
            _taken(self.k, m, a, b) for m, a, b in zip(self.monoids, states, older, strict=True)
        )

    def entered(self, totals: Sequence[Values]) -> Sequence[Values]:
        """Convert the totals of a chunk from `in_chunk` monoids to states of the monoids proper."""
        return self._bound(
            self._one(monoid, total, None) if monoid.in_chunk else total
            for monoid, total in zip(self.monoids, totals, strict=True)
        )

    def assign(self, states: States, new: Sequence[Values]) -> None:
        """Assign new values to states."""
        for several, values in zip(states, new, strict=True):
            self.put(several, values)

    def put(self, states: tuple[Var, ...], new: Values, active: Value | None = None) -> None:
        """Assign new values to one monoid's states simultaneously, if `active`."""
        made = [self.k.var("next", value) for value in new]
        for var, value in zip(states, made, strict=True):
            self.k.set(var, value if active is None else select(active, value, var))

    # -- states in memory ------------------------------------------------------------------------------

    def memory(self, hint: str) -> Memory:
        """Declare a parameter buffer for each state."""
        return [tuple(self.k.buffer(hint, state.type) for state in monoid.states) for monoid in self.monoids]

    def local(self, hint: str, length: int) -> Memory:
        """Declare a kernel-local buffer for each state."""
        return [
            tuple(self.k.local(hint, state.type, length) for state in monoid.states)
            for monoid in self.monoids
        ]

    def load(self, memory: Memory, place: Operand, fresh: bool = False) -> States:
        """Load the states at a position into new variables."""
        at = as_value(place, I64)
        return self._bound(tuple(Load(buffer, at, fresh) for buffer in buffers) for buffers in memory)

    def store(self, memory: Memory, place: Operand, states: Sequence[Values]) -> None:
        """Store states at a position."""
        for buffers, values in zip(memory, states, strict=True):
            for buffer, value in zip(buffers, values, strict=True):
                self.k.store(buffer, place, value)

    def _bound(self, several: Iterable[Values]) -> States:
        return [tuple(self.k.var("state", value) for value in values) for values in several]


@dataclass(frozen=True)
class _Rows(Aggregation):
    """Rows without frames."""

    k: KernelBuilder
    monoids: Sequence[Monoid]
    row: Callable[[Value], Row]


@dataclass(frozen=True)
class Slide(Aggregation):
    """The frames [begin, end), the monoids, the function that reads a row, and the one that writes a result.

    `dense` is a hint, not a guarantee: there are about as many frames as rows, as for look-backs, so one or two rows
    enter and leave at a time. Otherwise many do.
    """

    k: KernelBuilder
    lo: Buffer
    hi: Buffer
    begin: Value
    end: Value
    monoids: Sequence[Monoid]
    row: Callable[[Value], Row]
    emit: Emit
    dense: bool = False


@dataclass(frozen=True)
class CountSlide(Aggregation):
    """Frames without stored bounds: frame f is the `size` rows from f * `every` on."""

    k: KernelBuilder
    size: int
    every: int
    begin: Value
    end: Value
    monoids: Sequence[Monoid]
    row: Callable[[Value], Row]
    emit: Emit

    def over(self, memory: Memory, size: int, emit: Emit) -> CountSlide:
        """Return a row-wise slide over stored states instead of rows, with `size` states per frame."""
        alone = lambda k, values: values  # noqa: E731 - a closure of one line
        joining = [
            replace(monoid, step=monoid.merge, remove=monoid.take, alone=alone) for monoid in self.monoids
        ]
        row = lambda r: [(tuple(buffer[r] for buffer in buffers), None) for buffers in memory]  # noqa: E731
        return replace(self, size=size, every=1, monoids=joining, row=row, emit=emit)


def scratch(memory: Memory, length: int | None = None) -> tuple[SlideScratch, ...]:
    """Return the scratch requirements of the buffers of all states."""
    return tuple(SlideScratch(buffer, length) for buffers in memory for buffer in buffers)


def _taken(k: KernelBuilder, monoid: Monoid, whole: Values, part: Values) -> Values:
    assert monoid.take is not None, f"a part cannot be taken out of {monoid.name}"
    return monoid.take(k, whole, part)

"""Sliding-window aggregation: what every algorithm is given, whatever the window type.

A *frame* is a range of rows, [lo[f], hi[f]), and stands for one window of one key. Rows lie in lanes: all
rows of a key side by side, in order of time. From frame to frame both bounds never fall, even where one key's
lane ends and the next begins: then a frame starts at or after the end of the one before. So an algorithm
needs to know neither keys nor times nor window types; windows are a queue that rows enter at `hi` and leave
at `lo`. A frame may be empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.kernels.monoids import Monoid, Values
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import Buffer, Value, Var, select

# What a row adds to each monoid: its arguments, and the condition under which it does (None: always).
Row = Sequence[tuple[Values, Value | None]]
States = Sequence[tuple[Var, ...]]


@dataclass(frozen=True)
class Slide:
    """The frames [begin, end), the monoids to aggregate, how to read a row and how to write a result."""

    k: KernelBuilder
    lo: Buffer
    hi: Buffer
    begin: Value
    end: Value
    monoids: Sequence[Monoid]
    row: Callable[[Value], Row]
    emit: Callable[[Value, Sequence[Values]], None]

    def identities(self, hint: str) -> States:
        """Declare states that hold nothing yet."""
        return [
            tuple(self.k.var(hint, state.identity, state.type) for state in monoid.states)
            for monoid in self.monoids
        ]

    def reset(self, states: States) -> None:
        """Forget everything."""
        for monoid, several in zip(self.monoids, states, strict=True):
            for state, var in zip(monoid.states, several, strict=True):
                self.k.set(var, state.identity)

    def step(self, states: States, row: Value) -> None:
        """Add a row to the states."""
        for monoid, several, (values, active) in zip(self.monoids, states, self.row(row), strict=True):
            self.put(several, monoid.step(self.k, several, values), active)

    def put(self, states: tuple[Var, ...], new: Values, active: Value | None = None) -> None:
        """Assign new contents to states, all at once, where `active`."""
        made = [self.k.var("next", value) for value in new]
        for var, value in zip(states, made, strict=True):
            self.k.set(var, value if active is None else select(active, value, var))

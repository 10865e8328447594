"""The aggregates of one span of an incremental signal: samples enter and leave that of their key once.

The aggregate is exact subtraction where all states allow it. Otherwise it is two stacks: `suffix[sample]` aggregates
the key's older samples from a sample on, and `state[key]` the newer ones (see algorithms/sliding/two_stacks.py); values
that are not finite leave with their sample, and no rounding error stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from penstock.algorithms.expressions.cells import Cell, narrow
from penstock.algorithms.keyed_states.kernel import KeyedSpec
from penstock.algorithms.monoids import Monoid
from penstock.algorithms.partials import Finish
from penstock.algorithms.sliding.slide import Aggregation, Memory, Row, States
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, I64, Buffer, Value, Var, const
from penstock.operators.signals.incremental.kernels.spec import IncrementalReduction

NONE = -1


@dataclass
class SpanStates(Aggregation):
    """The states of a span's reductions. Samples have numbers that never change; `base` is the number of the first one kept."""

    k: KernelBuilder
    spec: KeyedSpec
    row: Callable[[Value], Row]
    fail: Callable[[Value], None]
    base: Var
    monoids: tuple[Monoid, ...] = field(init=False)

    def __post_init__(self) -> None:
        k = self.k
        self.monoids = self.spec.monoids
        self.held, self.states = k.buffer("held", I64), self.memory("state")
        self.exact = all(monoid.take is not None for monoid in self.monoids)
        self.first, self.newest, self.middle = (k.buffer(n, I64) for n in ("first", "newest", "middle"))
        self.suffix: Memory | None = None
        if not self.exact:
            self.following, self.previous = k.buffer("following", I64), k.buffer("previous", I64)
            self.suffix = self.memory("suffix")

    def at(self, number: Value) -> Value:
        """The place of a sample among those kept."""
        return number - self.base

    def enter(self, key: Value, number: Value) -> None:
        k = self.k
        count = k.var("count", self.held[key])
        with k.if_(count.eq(0)):
            self._clear(key)
            k.store(self.first, key, number)
        if not self.exact:
            with k.if_(count > 0):
                k.store(self.following, self.at(self.newest[key]), number)
            k.store(self.previous, self.at(number), self.newest[key])
            k.store(self.newest, key, number)
        states = self.load(self.states, key)
        self.step(states, self.at(number))
        self.store(self.states, key, states)
        k.store(self.held, key, count + 1)

    def _clear(self, key: Value) -> None:
        self.k.store(self.middle, key, NONE)
        for monoid, buffers in zip(self.monoids, self.states, strict=True):
            for state, buffer in zip(monoid.states, buffers, strict=True):
                self.k.store(buffer, key, const(state.identity, state.type))

    def leave(self, key: Value, number: Value) -> None:
        """Take the oldest sample of a key out of its aggregate."""
        k = self.k
        if self.exact:
            rest = self.without(self.load(self.states, key), self.alone(self.at(number)))
            self.store(self.states, key, rest)
        else:
            with k.if_(self.middle[key] < 0):
                self._flip(key)
            with k.if_(self.middle[key].eq(number)):
                k.store(self.middle, key, NONE)
            k.store(self.first, key, self.following[self.at(number)])
        k.store(self.held, key, self.held[key] - 1)

    def _flip(self, key: Value) -> None:
        """Aggregate the suffixes of a key's samples, from the newest to the oldest."""
        k = self.k
        assert self.suffix is not None
        number, left = k.var("flipped", self.newest[key]), k.var("left", self.held[key])
        k.store(self.middle, key, number)
        suffix = self.identities("suffix_of")
        with k.while_(left > 0):
            place = k.var("place", self.at(number))
            self.assign(suffix, self.merged(self.alone(place), suffix))
            self.store(self.suffix, place, suffix)
            k.set(number, self.previous[place])
            k.set(left, left - 1)
        for monoid, buffers in zip(self.monoids, self.states, strict=True):
            for state, buffer in zip(monoid.states, buffers, strict=True):
                k.store(buffer, key, const(state.identity, state.type))

    def cells(self, key: Value, reductions: list[IncrementalReduction]) -> list[Cell]:
        """The results for a key; null where it has no samples."""
        k = self.k
        some = k.var("some", self.held[key] > 0, BOOL)
        states = self._total(key, some)
        finish = Finish(
            k, self.spec.partials, states, self.spec.may_be_null, lambda wrong: self.fail(wrong & some)
        )
        found = []
        for reduction in reductions:
            cell = finish.cell(reduction.reduction, reduction.type)
            found.append(Cell(k.var("reduced", cell.value), k.var("there", narrow(cell.valid, some))))
        return found

    def _total(self, key: Value, some: Value) -> States:
        total = self.identities("total")
        k = self.k
        with k.if_(some):
            self.assign(total, self.load(self.states, key))
            if self.suffix is not None:
                with k.if_(self.middle[key] >= 0):
                    front = self.load(self.suffix, k.var("front", self.at(self.first[key])))
                    self.assign(total, self.merged(front, total))
        return total


def has_values(there: Sequence[Buffer], place: Value) -> Value:
    """Whether a sample has a value in some column."""
    found: Value = const(False, BOOL)
    for buffer in there:
        found = found | buffer[place].ne(0)
    return found

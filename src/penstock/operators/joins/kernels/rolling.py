"""The kernel of rolling joins between pushes: one aggregate of right rows per key, which rows enter and leave once.

Left rows come in order of time, and so do the ends of their frames. Right rows are in a list per key, in order of time:
those that have entered the aggregate, then those that later frames reach. The aggregate is exact subtraction where all
states allow it. Otherwise it is two stacks: `suffix[row]` aggregates a key's older rows from a row on, and
`state[key]` the newer ones (see algorithms/sliding/frame_algorithms.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.algorithms.keyed_states.kernel import KeyedKernel, KeyedSpec, KeyedStates
from penstock.algorithms.sliding.slide import States
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I64, Value, const, maximum

NONE = -1


def rolling_join(spec: KeyedSpec) -> KeyedKernel:
    """Enter the right rows `lo … hi` into lists, then write the aggregates of `rows` left rows.

    A left row's frame has the right rows of its key from `since` to `until`, both included. A negative key has none.
    """
    return _RollingJoin("rolling_join", spec).kernel()


@dataclass
class _RollingJoin(KeyedStates):
    def __post_init__(self) -> None:
        super().__post_init__()
        k: KernelBuilder = self.k
        self.rows = k.scalar("rows")
        self.left_keys, self.since, self.until = (k.buffer(n, I64) for n in ("left_keys", "since", "until"))
        self.times, self.keys, self.links = (k.buffer(n, I64) for n in ("times", "keys", "links"))
        self.previous = k.buffer("previous", I64)
        self.first, self.entering, self.last = (k.buffer(n, I64) for n in ("first", "entering", "last"))
        self.newest, self.middle, self.held = (k.buffer(n, I64) for n in ("newest", "middle", "held"))
        self.states = self.memory("state")
        self.exact = all(monoid.take is not None for monoid in self.monoids)
        self.suffix = None if self.exact else self.memory("suffix")

    def kernel(self) -> KeyedKernel:
        k = self.k
        with k.for_(self.lo, self.hi, "row", scalar=True) as row:
            self._append(row, k.var("key", self.keys[row]))
        with k.for_(0, self.rows, "left_row", scalar=True) as left_row:
            key = k.var("left_key", self.left_keys[left_row])
            with k.if_(key >= 0):
                self._enter_until(key, k.var("upto", self.until[left_row]))
                self._evict_before(key, k.var("from", self.since[left_row]))
                with k.if_(self.held[key] <= 0):
                    self._empty(key)
                self.write(left_row, self._total(key))
            with k.else_():
                self.write(left_row, self.identities("nothing"))
        return self.built()

    def _append(self, row: Value, key: Value) -> None:
        """Append a row to the list of its key."""
        k = self.k
        k.store(self.links, row, NONE)
        k.store(self.previous, row, NONE)
        with k.if_(self.first[key] < 0):
            k.store(self.first, key, row)
            self._empty(key)
        with k.else_():
            k.store(self.links, self.last[key], row)
            k.store(self.previous, row, self.last[key])
        with k.if_(self.entering[key] < 0):
            k.store(self.entering, key, row)
        k.store(self.last, key, row)

    def _empty(self, key: Value) -> None:
        k = self.k
        k.store(self.held, key, 0)
        k.store(self.middle, key, NONE)
        self.clear(self.states, key)

    def _enter_until(self, key: Value, time: Value) -> None:
        k = self.k
        row = k.var("enters", self.entering[key])
        with k.while_((row >= 0) & (self.times[maximum(row, const(0, I64))] <= time)):
            self.add(self.states, key, row)
            k.store(self.newest, key, row)
            k.store(self.held, key, self.held[key] + 1)
            k.set(row, self.links[row])
        k.store(self.entering, key, row)

    def _evict_before(self, key: Value, time: Value) -> None:
        """Take the rows that are before a frame out of the aggregate: all of them have entered it."""
        k = self.k
        row = k.var("leaves", self.first[key])
        with k.while_((row >= 0) & (self.times[maximum(row, const(0, I64))] < time)):
            if self.exact:
                rest = self.without(self.load(self.states, key), self.alone(row))
                self.store(self.states, key, rest)
            else:
                with k.if_(self.middle[key] < 0):
                    self._flip(key)
                with k.if_(self.middle[key].eq(row)):
                    k.store(self.middle, key, NONE)
            k.store(self.held, key, self.held[key] - 1)
            k.set(row, self.links[row])
            k.store(self.first, key, row)

    def _flip(self, key: Value) -> None:
        """Aggregate the suffixes of a key's rows, from the newest to the oldest."""
        k = self.k
        assert self.suffix is not None
        row, left = k.var("flipped", self.newest[key]), k.var("left", self.held[key])
        suffix = self.identities("suffix_of")
        with k.while_(left > 0):
            self.assign(suffix, self.merged(self.alone(row), suffix))
            self.store(self.suffix, row, suffix)
            k.set(row, self.previous[row])
            k.set(left, left - 1)
        k.store(self.middle, key, self.newest[key])
        self.clear(self.states, key)

    def _total(self, key: Value) -> States:
        """The aggregate of a key."""
        states = self.load(self.states, key)
        if self.suffix is None:
            return states
        k = self.k
        front = self.identities("front")
        with k.if_(self.middle[key] >= 0):
            self.assign(front, self.load(self.suffix, k.var("front_row", self.first[key])))
        return self.merged(front, states)

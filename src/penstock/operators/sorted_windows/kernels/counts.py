"""The kernel that keeps the open window of rows of each key as a partial state, for windows that do not overlap.

Rows come in order. `seen[key]` counts the key's rows since its window began: the window is full after `size` rows, and
the next one begins after `every` rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.algorithms.keyed_states.kernel import KeyedKernel, KeyedSpec, KeyedStates
from penstock.loop.abi import KEYS
from penstock.loop.nodes import BOOL, I64, Value, const, select
from penstock.types.windows import Count


def counts(spec: KeyedSpec, window: Count) -> KeyedKernel:
    """Add rows and emit the windows that are full; if `final`, then also those that are not, key by key."""
    return _Counts("counts", spec, window).kernel()


@dataclass
class _Counts(KeyedStates):
    window: Count

    def __post_init__(self) -> None:
        super().__post_init__()
        k = self.k
        self.final, self.tail = k.scalar("final", BOOL), k.buffer("tail", I64)
        self.seen, self.start, self.last = (k.buffer(name, I64) for name in ("seen", "start", "last"))
        self.states = self.memory("state")
        self.size, self.every = k.literal(self.window.size, I64), k.literal(self.window.every, I64)

    def kernel(self) -> KeyedKernel:
        k = self.k
        with k.for_(self.lo, self.hi, "r", scalar=True) as r:
            time = k.var("time", self.columns.time_at(r))
            self.reserve_key(r)
            self.reserve_output(r)
            key = k.var("key", self.key_of(r))
            self._take(r, key, time)
        if self.window.partial:
            with k.while_(self.final & (self.tail[0] < self.head[KEYS])):
                self._cut(k.var("cut", self.tail[0]))
        return self.built()

    def _take(self, row: Value, key: Value, time: Value) -> None:
        k, size, every = self.k, self.size, self.every
        place = k.var("place", self.seen[key])
        with k.if_(place.eq(0)):
            k.store(self.start, key, time)
            self.clear(self.states, key)
        with k.if_(place < size):
            self.add(self.states, key, row)
            k.store(self.last, key, time)
            with k.if_(place.eq(size - 1)):
                self.emit(key, self.start[key], time, self.load(self.states, key))
        k.store(self.seen, key, select(place.eq(every - 1), const(0, I64), place + 1))

    def _cut(self, key: Value) -> None:
        """Emit a key's window that is not full."""
        k = self.k
        self.reserve_output(self.hi)
        with k.if_((self.seen[key] > 0) & (self.seen[key] < self.size)):
            self.emit(key, self.start[key], self.last[key], self.load(self.states, key))
        k.store(self.tail, 0, key + 1)

"""Kernels that write a pane table beside the keyed fold: without keys, with counters of what rows show, and from fragments.

The counts of a chunk whose rows are added in two calls are counted twice: a profile is a sample.

Fragments transfer state: between the tables of two threads, from a saved file, across a shuffle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from penstock.algorithms.expressions.cells import Cell, conjunction, is_true
from penstock.algorithms.expressions.lowering import Lowering, RowKernel, arenas
from penstock.algorithms.hash_table.kernels import combine, hash_word, key_word
from penstock.algorithms.monoids import Monoid, Values
from penstock.algorithms.sliding.frame_algorithms import has_floats
from penstock.analysis.predicates import conjuncts
from penstock.loop.abi import DONE, LANES, NEED_SLOTS, NEED_WIDE, STATUS
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import (
    BOOL,
    I64,
    U64,
    Bitcast,
    Buffer,
    Overflows,
    Unary,
    Value,
    Var,
    const,
    maximum,
    minimum,
    select,
)
from penstock.operators.pane_aggregate.kernels.fold_panes import (
    FOLD_CHUNK,
    CurrentPane,
    FoldFrame,
    PaneSlots,
    Update,
)
from penstock.physical.profile import BUCKET_WORDS, KEY_BUCKETS, ProfileLayout

MOST_STATES_IN_LANES = 8
LARGEST_IN_CHUNK = (1 << 63) // FOLD_CHUNK  # a chunk of values below this cannot overflow 64 bits

Totals = list[tuple[Var, ...]]


@dataclass
class ChunkReduction:
    """Reduces a chunk of `n` rows that lies in one pane.

    Inside the chunk a 64-bit sum may wrap: `magnitudes`, the disjunction of the bits of all values, bounds
    whether that can have happened. `matched` counts the rows that pass the filter.
    """

    frame: FoldFrame
    pane: CurrentPane
    n: Var
    monoids: list[Monoid] = field(init=False)
    matched: Var = field(init=False)
    magnitudes: list[Var | None] = field(init=False)

    def write(self) -> None:
        k, monoids = self.frame.k, self.frame.spec.monoids
        in_lanes = has_floats(monoids) and _light(monoids)
        self.monoids = [(monoid.in_chunk if in_lanes else None) or monoid for monoid in monoids]
        self.matched = k.var("matched", 0)
        self.magnitudes = [k.var("magnitude", 0) if monoid.guarded else None for monoid in monoids]
        total = self._in_lanes() if in_lanes else self._in_order()
        with k.if_(self.matched > 0):
            self._add_total(total)
        self.frame.tally(self.n, self.matched)

    def _in_order(self) -> Sequence[Values]:
        totals = self._identities("sum")
        with self.frame.k.for_(0, self.n, "r") as r:
            self._step(totals, self.frame.at + r)
        return totals

    def _in_lanes(self) -> Sequence[Values]:
        """Sum floats in LANES fixed lanes: the same order, hence the same result, on every CPU."""
        k, at = self.frame.k, self.frame.at
        lanes = [self._identities("lane") for _ in range(LANES)]
        with k.for_(0, self.n >> 3, "g") as g:
            for place, totals in enumerate(lanes):
                self._step(totals, at + g * LANES + place)
        with k.for_((self.n >> 3) << 3, self.n, "r") as r:
            self._step(lanes[0], at + r)
        merged: Sequence[Values] = lanes[0]
        for totals in lanes[1:]:
            merged = [m.merge(k, a, b) for m, a, b in zip(self.monoids, merged, totals, strict=True)]
        return merged

    def _identities(self, hint: str) -> Totals:
        return [
            tuple(self.frame.k.var(hint, state.identity, state.type) for state in monoid.states)
            for monoid in self.monoids
        ]

    def _step(self, totals: Totals, row: Value) -> None:
        k = self.frame.k
        at = k.var("row", row)
        passed = self.frame.passes(at)
        passed = None if passed is None else k.var("passed", passed)
        for m, (values, active) in enumerate(self.frame.contributions(at, passed)):
            self._step_one(m, totals[m], values, conjunction(passed, active))
        k.set(self.matched, self.matched + (const(1, I64) if passed is None else passed.to(I64)))

    def _step_one(self, m: int, total: tuple[Var, ...], values: Values, active: Value | None) -> None:
        k, magnitude = self.frame.k, self.magnitudes[m]
        if magnitude is not None:
            k.set(magnitude, magnitude | _magnitude(k, values[0]))
        stepped = [k.var("next", new) for new in self.monoids[m].step(k, total, values)]
        for target, new in zip(total, stepped, strict=True):
            k.set(target, new if active is None else select(active, new, target))

    # -- into the pane -----------------------------------------------------------------------------

    def _add_total(self, totals: Sequence[Values]) -> None:
        frame, k = self.frame, self.frame.k
        slot = frame.panes.find(k, self.pane.number, lambda: frame.leave(NEED_SLOTS, frame.at))
        place = k.var("place", slot * frame.width)
        updates = [self._update(m, place, total) for m, total in enumerate(totals)]
        for magnitude, update, total in zip(self.magnitudes, updates, totals, strict=True):
            if magnitude is not None:
                self._check(magnitude, update.old[0], total[0])
        for update in updates:
            for buffer, value in zip(update.buffers, update.new, strict=True):
                k.store(buffer, place, value)

    def _update(self, m: int, place: Value, total: Values) -> Update:
        """Merge a chunk's total into the pane, or step with it where the chunk's state is simpler."""
        k, monoid, buffers = self.frame.k, self.frame.spec.monoids[m], self.frame.states[m]
        old = tuple(k.var("old", buffer[place]) for buffer in buffers)
        plainer = self.monoids[m] is not monoid
        return Update(buffers, old, monoid.step(k, old, total) if plainer else monoid.merge(k, old, total))

    def _check(self, magnitude: Value, old: Value, total: Value) -> None:
        """Abandon the chunk if its 64-bit total may have wrapped, or overflows the pane's."""
        wraps = (magnitude >= LARGEST_IN_CHUNK) | Overflows("add", old, total)
        with self.frame.k.if_(wraps):
            self.frame.leave(NEED_WIDE, self.frame.at)


def _magnitude(k: KernelBuilder, value: Value) -> Value:
    """Bits that bound a value's magnitude; all bits if an unsigned value does not fit 64 signed bits."""
    bits = k.var("bits", value.to(I64))
    if value.type == U64:
        return select(bits < 0, const((1 << 63) - 1, I64), bits)
    return bits ^ (bits >> 63)


def _light(monoids: Sequence[Monoid]) -> bool:
    """Whether states are few enough to be repeated per lane: repetition costs compile time."""
    chosen = [monoid.in_chunk or monoid for monoid in monoids]
    return sum(len(monoid.states) for monoid in chosen if len(monoid.states) > 1) <= MOST_STATES_IN_LANES


_BUCKET_BITS = 8
assert KEY_BUCKETS == 1 << _BUCKET_BITS


@dataclass
class Instrument:
    """Counts rows in the parameter `profile`.

    `bucket_base` and `bucket_shift` divide the words of the first key into 256 ranges, of which the outer ones are open.
    """

    frame: FoldFrame

    def __post_init__(self) -> None:
        k = self.frame.k
        self.layout = ProfileLayout(len(conjuncts(self.frame.spec.where)), len(self.frame.spec.keys))
        self.words: Buffer = k.buffer("profile", I64)
        self.base, self.shift = k.scalar("bucket_base"), k.scalar("bucket_shift")
        self.last_time = k.var("last_time", self.frame.time_at(self.frame.at))
        self.last_hash = k.var("last_hash", 0, U64)

    def count(self, n: Value) -> None:
        """Count the next `n` rows."""
        k = self.frame.k
        self._add(0, n)
        with k.for_(0, n, "sampled", scalar=True) as place:
            row = k.var("row", self.frame.at + place)
            self._order(row)
            passed = self._conjuncts(row)
            if self.frame.spec.keys:
                with k.if_(passed):
                    self._keys(row)

    def _add(self, place: Value | int, by: Value | int) -> None:
        self.frame.k.store(self.words, place, self.words[place] + by)

    def _order(self, row: Value) -> None:
        k = self.frame.k
        time = k.var("time", self.frame.time_at(row))
        self._add(1, (time < self.last_time).to(I64))
        k.set(self.last_time, time)

    def _lowering(self, row: Value) -> Lowering:
        return self.frame.columns.lowering(row, lambda failed: None)  # the fold itself reports errors

    def _conjuncts(self, row: Value) -> Var:
        """Count the rows that pass each conjunct, alone and after those before it."""
        k = self.frame.k
        passed = k.var("passed", True, BOOL)
        mask = k.var("mask", 0)
        for number, conjunct in enumerate(conjuncts(self.frame.spec.where)):
            alone = k.var("alone", is_true(self._lowering(row).lower(conjunct)))
            k.set(passed, passed & alone)
            place = self.layout.conjunct(number)
            self._add(place, alone.to(I64))
            self._add(place + 1, passed.to(I64))
            if number < self.layout.masked:
                k.set(mask, mask | (alone.to(I64) << number))
        self._add(k.var("set", mask + self.layout.masks), 1)
        return passed

    def _keys(self, row: Value) -> None:
        k = self.frame.k
        cells = [self._lowering(row).lower(key) for key in self.frame.spec.keys]
        words = [k.var("word", key_word(cell.value)) for cell in cells]
        for number, (cell, word) in enumerate(zip(cells, words, strict=True)):
            self._range(number, cell, word)
        hashed = k.var("hash", _hash(words))
        self._add(2, hashed.ne(self.last_hash).to(I64))
        k.set(self.last_hash, hashed)
        self._register(hashed)
        self._bucket(words[0])

    def _range(self, number: int, cell: Cell, word: Value) -> None:
        k, place = self.frame.k, self.layout.key(number)
        for at, pick in ((place, minimum), (place + 1, maximum)):
            known = k.var("known", self.words[at])
            found = pick(known, word)
            k.store(self.words, at, found if cell.valid is None else select(cell.valid, found, known))

    def _register(self, hashed: Value) -> None:
        """Keep the longest run of zero bits below the highest bits, which number the register (HyperLogLog)."""
        k = self.frame.k
        at = k.var("register", Bitcast(hashed >> (64 - _BUCKET_BITS), I64) + self.layout.registers)
        rest = (hashed << _BUCKET_BITS) | const(1 << (_BUCKET_BITS - 1), U64)
        zeros = Bitcast(Unary("clz", rest), I64) + 1
        k.store(self.words, at, maximum(self.words[at], zeros))

    def _bucket(self, word: Value) -> None:
        """Count a key range, and vote for its most frequent word (Boyer and Moore)."""
        k = self.frame.k
        number = minimum(
            maximum((word - self.base) >> self.shift, const(0, I64)), const(KEY_BUCKETS - 1, I64)
        )
        at = k.var("bucket", number * BUCKET_WORDS + self.layout.buckets)
        self._add(at, 1)
        votes = k.var("votes", self.words[at + 2])
        same = k.var("same", self.words[at + 1].eq(word), BOOL)
        fresh = k.var("fresh", votes.eq(0), BOOL)
        k.store(self.words, at + 1, select(fresh, word, self.words[at + 1]))
        k.store(self.words, at + 2, select(fresh | same, votes + 1, votes - 1))


def _hash(words: Sequence[Value]) -> Value:
    hashed = hash_word(words[0])
    for word in words[1:]:
        hashed = combine(hashed, word)
    return hashed ^ (hashed >> 32)


def build_merge_fragments(monoids: Sequence[Monoid]) -> RowKernel:
    """Build the kernel for a list of monoids; keys arrive as groups of the target table."""
    k = KernelBuilder("absorb")
    lo, hi, columns = k.scalar("lo"), k.scalar("hi"), k.scalar("columns")
    head = k.buffer("head", I64)
    slots = PaneSlots.declare(k, head, columns, monoids)
    panes, keys = k.buffer("in_panes", I64), k.buffer("in_keys", I64)
    inputs = [tuple(k.buffer("in_state", state.type) for state in monoid.states) for monoid in monoids]
    with k.for_(lo, hi, "row") as row:
        slot = slots.find(k, k.var("pane", panes[row]), lambda: _stop(k, head, NEED_SLOTS, row))
        place = k.var("place", slot * columns + keys[row])
        _merge_cell(k, monoids, slots.states, inputs, place, row, lambda: _stop(k, head, NEED_WIDE, row))
    k.store(head, STATUS, DONE)
    k.ret(hi)
    return RowKernel(k.build(), arenas(k))


def build_merge_pane(monoids: Sequence[Monoid]) -> RowKernel:
    """Build the kernel that merges a pane of another table with the same groups into a pane of this one.

    `own` and `other` are the first cells of the two rows. No key is looked up, and empty cells are skipped.
    """
    k = KernelBuilder("blend")
    lo, hi, own, other = k.scalar("lo"), k.scalar("hi"), k.scalar("own"), k.scalar("other")
    head = k.buffer("head", I64)
    states = [tuple(k.buffer("state", state.type) for state in monoid.states) for monoid in monoids]
    inputs = [tuple(k.buffer("in_state", state.type) for state in monoid.states) for monoid in monoids]
    with k.for_(lo, hi, "key") as key, k.if_(inputs[0][0][other + key].to(I64).ne(0)):
        _merge_cell(
            k, monoids, states, inputs, own + key, other + key, lambda: _stop(k, head, NEED_WIDE, key)
        )
    k.store(head, STATUS, DONE)
    k.ret(hi)
    return RowKernel(k.build(), arenas(k))


def _merge_cell(
    k: KernelBuilder,
    monoids: Sequence[Monoid],
    states: Sequence[tuple[Buffer, ...]],
    inputs: Sequence[tuple[Buffer, ...]],
    place: Value,
    row: Value,
    overflow: Callable[[], None],
) -> None:
    """Merge one cell of states into another, wholly or not at all."""
    merged = []
    for monoid, own, other in zip(monoids, states, inputs, strict=True):
        a = tuple(k.var("a", buffer[place]) for buffer in own)
        b = tuple(k.var("b", buffer[row]) for buffer in other)
        if monoid.guarded:
            with k.if_(Overflows("add", a[0], b[0])):
                overflow()
        merged += [*zip(own, monoid.merge(k, a, b), strict=True)]
    for buffer, value in merged:
        k.store(buffer, place, value)


def _stop(k: KernelBuilder, head: Buffer, why: int, row: Value) -> None:
    k.store(head, STATUS, why)
    k.ret(row)

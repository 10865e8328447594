"""The kernel that keeps the rows that later look-backs hold, and one running aggregate for each key.

Rows come in order of time, so those of a span of time leave in that order too, whatever their key: one queue holds the
rows of all keys. The last rows of a key leave one by one as others of the key come. A held row is a slot, with the state
of that row alone. The running aggregate is exact subtraction where all states allow it. Otherwise it is two stacks:
`suffix[slot]` aggregates a key's older rows from a slot on, and `state[key]` the newer ones (see
algorithms/sliding/frame_algorithms.py); values that are not finite leave with their row, and no rounding error stays.

Rows of equal time see each other: a row's result is written once all rows of its time are held.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.algorithms.expressions.cells import Cell, is_true
from penstock.algorithms.keyed_states.kernel import RANKED, KeyedKernel, KeyedSpec, KeyedStates, TreeSpec
from penstock.algorithms.order_statistics.trees import OrderTree, float_word
from penstock.algorithms.partials import Finish
from penstock.algorithms.sliding.slide import States
from penstock.ir.nodes import Reduction
from penstock.loop.abi import NEED_SLOTS
from penstock.loop.nodes import BOOL, F64, I64, U8, U64, Bitcast, Value, Var, const, maximum, minimum
from penstock.types.windows import LookBack

# Words of `marks`: free slot, slots used, oldest and newest slot of the queue, rows ever held, rows held and written of
# this batch.
FREE, USED, OLDEST, NEWEST, NUMBER, HELD, WRITTEN = range(7)
NONE = -1


def keyed_kernel(spec: KeyedSpec, span: LookBack, restore: bool) -> KeyedKernel:
    """Hold rows and write a result for each; or, to `restore`, hold the rows that are in the first slots already."""
    kernel = _LookBack("look_back", spec, span)
    return kernel.restoring() if restore else kernel.kernel()


@dataclass
class _LookBack(KeyedStates):
    span: LookBack

    def __post_init__(self) -> None:
        super().__post_init__()
        k = self.k
        self.watermark, self.slots = k.scalar("watermark"), k.scalar("slots")
        self.size = k.literal(self.span.size or self.span.rows or 0, I64)
        self.marks = k.buffer("marks", I64)
        self.owner, self.time = k.buffer("owner", I64), k.buffer("time", I64)
        self.number, self.after = k.buffer("number", I64), k.buffer("after", I64)
        self.next, self.previous = k.buffer("next", I64), k.buffer("previous", I64)
        self.first, self.last = k.buffer("first", I64), k.buffer("last", I64)
        self.middle, self.held = k.buffer("middle", I64), k.buffer("held", I64)
        self.alone_states = self.memory("alone")
        self.states = self.memory("state")
        self.exact = all(monoid.take is not None for monoid in self.monoids)
        self.suffix = None if self.exact else self.memory("suffix")
        self.trees = {spec: OrderTree(k, place) for place, spec in enumerate(self.spec.trees)}

    def kernel(self) -> KeyedKernel:
        k, newest = self.k, self.span.closed in ("right", "both")
        held, written = k.var("held_rows", self.marks[HELD]), k.var("written", self.marks[WRITTEN])
        ahead, behind = (held, written) if newest else (written, held)
        with k.while_(behind < self.hi):
            time = k.var("time_now", self.columns.time_at(behind))
            more = k.var("more", ahead < self.hi, BOOL)
            if self.span.rows is None:
                k.set(more, self._is_at(ahead, time))
            else:
                k.set(more, more & (ahead <= behind))
            with k.while_(more):
                if newest:
                    self._hold(held, leads=True)
                else:
                    self._write(written, leads=True)
                k.set(more, self._is_at(ahead, time) if self.span.rows is None else const(False, BOOL))
            if newest:
                self._write(written, leads=False)
            else:
                self._hold(held, leads=False)
        if self.span.rows is None:
            self._evict_before(self.watermark)
        k.set(self.made, self.hi)
        return self.built()

    def _is_at(self, row: Var, time: Value) -> Value:
        """Return whether there is a row, and its time is the given one."""
        return (row < self.hi) & self.columns.time_at(_clamped(row, self.hi)).eq(time)

    def restoring(self) -> KeyedKernel:
        k = self.k
        with k.for_(0, self.marks[USED], "slot", scalar=True) as slot:
            key = k.var("key", self.owner[slot])
            self._link(slot, key)
        return self.built()

    # -- rows that come --------------------------------------------------------------------------------

    def _hold(self, row: Var, leads: bool) -> None:
        """Hold a row; one that `leads` is the first to read its key."""
        k, marks = self.k, self.marks
        with k.if_((marks[FREE] < 0) & (marks[USED] >= self.slots)):
            self.leave(NEED_SLOTS, row)
        key = self._key(row, leads)
        slot = k.var("slot", marks[FREE])
        with k.if_(slot < 0):
            k.set(slot, marks[USED])
            k.store(marks, USED, slot + 1)
        with k.else_():
            k.store(marks, FREE, self.after[slot])
        k.store(self.owner, slot, key)
        k.store(self.time, slot, self.columns.time_at(row))
        k.store(self.number, slot, marks[NUMBER])
        k.store(marks, NUMBER, marks[NUMBER] + 1)
        self.store(self.alone_states, slot, self.alone(row))
        for spec, tree in self.trees.items():
            tree.set(slot, *self._tree_value(spec, row))
        self._link(slot, key)
        if self.span.rows is not None:
            with k.if_(self.held[key] > self.size):
                self._evict(k.var("oldest", self.first[key]), key)
        k.set(row, row + 1)
        k.store(marks, HELD, row)

    def _tree_value(self, spec: TreeSpec, row: Value) -> tuple[Value, Value]:
        """The word of a row in a tree, and whether it has one."""
        lowering, there = self.columns.lowering(row, self._fail), None
        if spec.where is None:
            cell = lowering.lower(spec.value)
        else:
            there = is_true(lowering.lower(spec.where))
            with lowering.under(there):
                cell = lowering.lower(spec.value)
        known = const(True, BOOL) if cell.valid is None else cell.valid
        word = float_word(self.k, cell.value) if spec.floats else cell.value.to(I64)
        return word, known if there is None else there & known

    def _key(self, row: Value, leads: bool) -> Value:
        if not leads:
            return self.k.var("key", self.out_key[row])
        self.reserve_key(row)
        key = self.k.var("key", self.key_of(row))
        self.k.store(self.out_key, row, key)
        return key

    def _link(self, slot: Value, key: Value) -> None:
        """Append a slot to the queue and to its key, and add its state."""
        k, marks = self.k, self.marks
        k.store(self.after, slot, NONE)
        if self.span.rows is None:
            with k.if_(marks[NEWEST] < 0):
                k.store(marks, OLDEST, slot)
            with k.else_():
                k.store(self.after, marks[NEWEST], slot)
            k.store(marks, NEWEST, slot)
        count = k.var("count", self.held[key])
        with k.if_(count.eq(0)):
            k.store(self.first, key, slot)
            k.store(self.middle, key, NONE)
            self.clear(self.states, key)
        with k.else_():
            k.store(self.next, self.last[key], slot)
        k.store(self.next, slot, NONE)
        k.store(self.previous, slot, self.last[key])
        k.store(self.last, key, slot)
        k.store(self.held, key, count + 1)
        self.store(
            self.states, key, self.merged(self.load(self.states, key), self.load(self.alone_states, slot))
        )
        for tree in self.trees.values():
            tree.enter(slot, key)

    # -- rows that leave -------------------------------------------------------------------------------

    def _evict_before(self, time: Value) -> None:
        """Release the rows that a look-back at a time does not hold, of all keys."""
        k = self.k
        oldest = k.var("oldest", self.marks[OLDEST])
        going = k.var("going", self._has_left(oldest, time), BOOL)
        with k.while_(going):
            following = k.var("following", self.after[oldest])
            k.store(self.marks, OLDEST, following)
            with k.if_(following < 0):
                k.store(self.marks, NEWEST, NONE)
            self._evict(oldest, k.var("owned", self.owner[oldest]))
            k.set(oldest, following)
            k.set(going, self._has_left(oldest, time))

    def _has_left(self, slot: Value, time: Value) -> Value:
        """Compare unsigned: a held row is never later than the time, and the difference may exceed 63 bits."""
        size = Bitcast(self.size, U64)
        before = self.time[maximum(slot, const(0, I64))]
        apart = self.k.var("apart", Bitcast(time - before, U64))
        beyond = apart > size if self.span.closed in ("left", "both") else apart >= size
        return (slot >= 0) & (before < time) & beyond

    def _evict(self, slot: Value, key: Value) -> None:
        """Take the oldest row of a key out of its aggregate, and release its slot."""
        k = self.k
        for tree in self.trees.values():
            tree.leave(slot, key)
        if self.exact:
            rest = self.without(self.load(self.states, key), self.load(self.alone_states, slot))
            self.store(self.states, key, rest)
        else:
            with k.if_(self.middle[key] < 0):
                self._flip(key)
            with k.if_(self.middle[key].eq(slot)):
                k.store(self.middle, key, NONE)
        k.store(self.first, key, self.next[slot])
        k.store(self.held, key, self.held[key] - 1)
        k.store(self.owner, slot, NONE)
        k.store(self.after, slot, self.marks[FREE])
        k.store(self.marks, FREE, slot)

    def _flip(self, key: Value) -> None:
        """Aggregate the suffixes of a key's rows, from the newest to the oldest."""
        k = self.k
        assert self.suffix is not None
        slot, left = k.var("flipped", self.last[key]), k.var("left", self.held[key])
        suffix = self.identities("suffix_of")
        with k.while_(left > 0):
            self.assign(suffix, self.merged(self.load(self.alone_states, slot), suffix))
            self.store(self.suffix, slot, suffix)
            k.set(slot, self.previous[slot])
            k.set(left, left - 1)
        k.store(self.middle, key, self.last[key])
        self.clear(self.states, key)

    # -- results ---------------------------------------------------------------------------------------

    def _write(self, row: Var, leads: bool) -> None:
        """Write the result of a row."""
        k = self.k
        key = self._key(row, leads)
        if self.span.rows is None:
            self._evict_before(self.columns.time_at(row))
        with k.if_(self.held[key].eq(0)):
            self.clear(self.states, key)
            k.store(self.middle, key, NONE)
        self._write_results(row, key)
        k.set(row, row + 1)
        k.store(self.marks, WRITTEN, row)

    def _write_results(self, row: Value, key: Value) -> None:
        """Write the aggregates of a key as the results of a row."""
        if not self.trees:
            self.write(row, self._total(key))
            return
        k, spec = self.k, self.spec
        finish = Finish(k, spec.partials, self._total(key), spec.may_be_null, self._fail)
        for reduction, dtype, (values, valid) in zip(spec.reductions, spec.types, self.results, strict=True):
            ranked = reduction.function in RANKED
            cell = self._ranked(reduction, key) if ranked else finish.cell(reduction, dtype)
            k.store(values, row, cell.value.to(values.type))
            k.store(valid, row, const(1, U8) if cell.valid is None else cell.valid.to(U8))

    def _ranked(self, reduction: Reduction, key: Value) -> Cell:
        tree = self.trees[self.spec.tree_of(reduction)]
        if reduction.function == "count_distinct":
            return Cell(tree.distinct(key), None)
        fraction = dict(reduction.options).get("q", 0.5)
        assert isinstance(fraction, int | float)
        return Cell(*tree.quantile(key, const(float(fraction), F64)))

    def _total(self, key: Value) -> States:
        states = self.load(self.states, key)
        if self.suffix is None:
            return states
        k = self.k
        front = self.identities("front")
        with k.if_(self.middle[key] >= 0):
            self.assign(front, self.load(self.suffix, k.var("front_slot", self.first[key])))
        return self.merged(front, states)


def _clamped(row: Value, end: Value) -> Value:
    return maximum(minimum(row, end - 1), const(0, I64))

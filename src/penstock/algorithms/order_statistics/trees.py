"""Order statistics of values that come and go in any order: a balanced search tree for each key, whose nodes are slots.

A treap: nodes have random priorities, and no node has a higher one than its parent, so paths are short whatever comes in
whatever order. Each node counts the nodes below it, which finds the i-th smallest value; parents are linked, so a value
that leaves is not searched for. Coming, going and a quantile each cost the logarithm of the values held.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import (
    BOOL,
    F64,
    I64,
    U64,
    Bitcast,
    Buffer,
    Operand,
    Unary,
    Value,
    const,
    maximum,
    select,
)

NONE = -1
TREE_SLOTS = {"word": 0, "there": 0, "left": NONE, "right": NONE, "parent": NONE, "size": 0}
TREE_KEYS = {"root": NONE, "distinct": 0}
TREE_SAVED = ("word", "there")
_NAN = 0x7FF8 << 48
_MAGNITUDE = (1 << 63) - 1
_MIX = (-0x61C8864680B583EB, -0x4B47D0C5A20E2F0B)  # odd numbers with evenly spread bits


def tree_word(place: int, word: str) -> str:
    """The name of an array of a tree."""
    return f"tree{place}_{word}"


@dataclass
class OrderTree:
    """The trees of all keys over the values of one column."""

    k: KernelBuilder
    place: int
    slots: dict[str, Buffer] = field(init=False)
    keys: dict[str, Buffer] = field(init=False)

    def __post_init__(self) -> None:
        declare: Callable[[str], Buffer] = lambda word: self.k.buffer(tree_word(self.place, word), I64)  # noqa: E731
        self.slots = {word: declare(word) for word in TREE_SLOTS}
        self.keys = {word: declare(word) for word in TREE_KEYS}

    # -- values ----------------------------------------------------------------------------------------

    def set(self, slot: Value, word: Value, there: Value) -> None:
        """Give a slot its value; one that is not there is in no tree."""
        self.k.store(self.slots["word"], slot, select(there, word, const(0, I64)))
        self.k.store(self.slots["there"], slot, there.to(I64))

    def enter(self, slot: Value, key: Value) -> None:
        """Add a slot to the tree of a key, if its value is there."""
        k, tree = self.k, self.slots
        with k.if_(tree["there"][slot].ne(0)):
            word = k.var("word", tree["word"][slot])
            for name, value in (("left", NONE), ("right", NONE), ("size", 1)):
                k.store(tree[name], slot, value)
            above, at = k.var("above", NONE), k.var("at", self.keys["root"][key])
            is_left, known = k.var("is_left", False, BOOL), k.var("known", False, BOOL)
            with k.while_(at >= 0):
                k.set(above, at)
                k.store(tree["size"], at, tree["size"][at] + 1)
                k.set(known, known | tree["word"][at].eq(word))
                k.set(is_left, word < tree["word"][at])
                k.set(at, select(is_left, tree["left"][at], tree["right"][at]))
            k.store(tree["parent"], slot, above)
            with k.if_(above < 0):
                k.store(self.keys["root"], key, slot)
            with k.else_():
                with k.if_(is_left):
                    k.store(tree["left"], above, slot)
                with k.else_():
                    k.store(tree["right"], above, slot)
            with k.if_(~known):
                k.store(self.keys["distinct"], key, self.keys["distinct"][key] + 1)
            going = k.var("going", self._rises(slot, above), BOOL)
            with k.while_(going):
                self._rotate(slot, above, key)
                k.set(above, tree["parent"][slot])
                k.set(going, self._rises(slot, above))

    def leave(self, slot: Value, key: Value) -> None:
        """Take a slot out of the tree of its key."""
        k, tree = self.k, self.slots
        with k.if_(tree["there"][slot].ne(0)):
            going = k.var("sinking", self._is_inner(slot), BOOL)
            with k.while_(going):
                left, right = k.var("l", tree["left"][slot]), k.var("r", tree["right"][slot])
                higher = self._priority(left) > self._priority(right)
                self._rotate(k.var("child", select(higher, left, right)), slot, key)
                k.set(going, self._is_inner(slot))
            child = k.var("only", maximum(tree["left"][slot], tree["right"][slot]))
            above = k.var("above", tree["parent"][slot])
            self._replace(slot, child, above, key)
            with k.if_(child >= 0):
                k.store(tree["parent"], child, above)
            with k.while_(above >= 0):
                k.store(tree["size"], above, tree["size"][above] - 1)
                k.set(above, tree["parent"][above])
            with k.if_(~self._is_known(tree["word"][slot], key)):
                k.store(self.keys["distinct"], key, self.keys["distinct"][key] - 1)

    def _is_known(self, word: Value, key: Value) -> Value:
        """Return whether the tree of a key has a value."""
        k, tree = self.k, self.slots
        at, found = k.var("at", self.keys["root"][key]), k.var("found", False, BOOL)
        sought = k.var("sought", word)
        with k.while_((at >= 0) & ~found):
            k.set(found, tree["word"][at].eq(sought))
            k.set(at, select(sought < tree["word"][at], tree["left"][at], tree["right"][at]))
        return found

    # -- the shape of a tree -----------------------------------------------------------------------------

    def _rises(self, slot: Value, above: Value) -> Value:
        return (above >= 0) & (self._priority(above) < self._priority(slot))

    def _is_inner(self, slot: Value) -> Value:
        return (self.slots["left"][slot] >= 0) & (self.slots["right"][slot] >= 0)

    def _priority(self, slot: Value) -> Value:
        mixed = self.k.var("mixed", slot * const(_MIX[0], I64))
        return Bitcast((mixed ^ (mixed >> 29)) * const(_MIX[1], I64), U64)

    def _replace(self, slot: Value, other: Value, above: Value, key: Value) -> None:
        """Put another node, or none, in the place of a slot below `above`."""
        k, tree = self.k, self.slots
        with k.if_(above < 0):
            k.store(self.keys["root"], key, other)
        with k.else_():
            with k.if_(tree["left"][above].eq(slot)):
                k.store(tree["left"], above, other)
            with k.else_():
                k.store(tree["right"], above, other)

    def _rotate(self, child: Value, slot: Value, key: Value) -> None:
        """Put a child in the place of its parent, which becomes its child; the order of values stays."""
        k, tree = self.k, self.slots
        top = k.var("top", tree["parent"][slot])
        parent, middle = k.var("lowered", slot), k.var("middle", NONE)
        with k.if_(tree["left"][parent].eq(child)):
            k.set(middle, tree["right"][child])
            k.store(tree["left"], parent, middle)
            k.store(tree["right"], child, parent)
        with k.else_():
            k.set(middle, tree["left"][child])
            k.store(tree["right"], parent, middle)
            k.store(tree["left"], child, parent)
        with k.if_(middle >= 0):
            k.store(tree["parent"], middle, parent)
        k.store(tree["parent"], parent, child)
        k.store(tree["parent"], child, top)
        self._replace(parent, child, top, key)
        k.store(tree["size"], child, tree["size"][parent])
        below = self._size(tree["left"][parent]) + self._size(tree["right"][parent])
        k.store(tree["size"], parent, below + 1)

    def _size(self, slot: Value) -> Value:
        """The nodes of a subtree; NONE has none."""
        known = self.k.var("known_slot", slot)
        return select(known >= 0, self.slots["size"][maximum(known, const(0, I64))], const(0, I64))

    # -- statistics --------------------------------------------------------------------------------------

    def distinct(self, key: Value) -> Value:
        """The number of distinct values of a key."""
        return self.keys["distinct"][key]

    def quantile(self, key: Value, fraction: Operand) -> tuple[Value, Value]:
        """A quantile of the values of a key, which are words of floats; and whether there is one."""
        k = self.k
        count = k.var("count", self._size(self.keys["root"][key]))
        exact = k.var("exact", maximum(count - 1, const(0, I64)).to(F64) * fraction)
        whole = k.var("whole", Unary("floor", exact))
        between = k.var("between", exact - whole)
        wanted = k.var("wanted", whole.to(I64))
        low = k.var("low", const(0.0, F64))
        high = k.var("high", const(0.0, F64))
        with k.if_(count > 0):
            k.set(low, float_of(self._smallest(wanted, key)))
            k.set(high, low)
            with k.if_(between > 0.0):
                k.set(high, float_of(self._smallest(wanted + 1, key)))
        alone = between.eq(0.0) | low.eq(high)  # also for infinite neighbours
        return select(alone, low, low + (high - low) * between), count > 0

    def _smallest(self, rank: Value, key: Value) -> Value:
        """The word with so many others before it."""
        k, tree = self.k, self.slots
        at, left = k.var("at", self.keys["root"][key]), k.var("rank", rank)
        before = k.var("before", self._size(tree["left"][at]))
        with k.while_(left.ne(before)):
            with k.if_(left < before):
                k.set(at, tree["left"][at])
            with k.else_():
                k.set(left, left - before - 1)
                k.set(at, tree["right"][at])
            k.set(before, self._size(tree["left"][at]))
        return tree["word"][at]


def float_word(k: KernelBuilder, value: Value) -> Value:
    """An integer in the order of floats: both zeros are one value, and NaN is one value, the largest."""
    number = k.var("number", value.to(F64) + 0.0)
    bits = k.var("bits", select(number.eq(number), Bitcast(number, I64), const(_NAN, I64)))
    return bits ^ ((bits >> 63) & const(_MAGNITUDE, I64))


def float_of(word: Value) -> Value:
    """The float of such an integer."""
    return Bitcast(word ^ ((word >> 63) & const(_MAGNITUDE, I64)), F64)

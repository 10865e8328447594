"""The k-th smallest of the rows in a frame, by cursors that move a step at a time.

When a row enters or leaves, the place of a quantile moves by one at most. So a cursor that stands at the rank
of its place has never far to go: from one rank that occurs to the next. Which ranks occur is kept in bits, 64
to a word, with further bits that say which words are not empty, and so on: a step looks at two words a level,
mostly at one.

Cost: a count and a bit for each row that enters or leaves, and a step or none for an answer, whatever the
window's size. Memory: a count and a little more than a bit for each rank, all zeros before and after.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import F64, I64, U64, Bitcast, Buffer, Unary, Value, Var, const, select

_BITS = 6
_LEVELS = 5  # words of words …: more than 2 ** 30 ranks


def bits_length(distinct: int) -> int:
    """Give the words that the bits of that many ranks take, on all levels.

    >>> bits_length(1), bits_length(64), bits_length(65)
    (5, 5, 6)
    """
    words, total = distinct, 0
    for _ in range(_LEVELS):
        words = max(-(-words >> _BITS), 1)
        total += words
    return total


@dataclass(frozen=True)
class _Cursor:
    """Stands at a rank; `before` counts the rows whose ranks are smaller."""

    fraction: float
    rank: Var
    before: Var


class RankCursors:
    """Counts ranks, and finds the ranks at the places of some quantiles."""

    def __init__(self, k: KernelBuilder, distinct: Value, memory: Buffer, bits: Buffer) -> None:
        self.k, self.ranks, self.memory, self.bits = k, distinct, memory, bits
        self.count = k.var("count", 0)
        self.cursors: list[_Cursor] = []
        self.base = self._lay_out()

    def _lay_out(self) -> list[Value]:
        """Where the words of each level begin."""
        k, words = self.k, self.ranks
        bases: list[Value] = [const(0, I64)]
        for _ in range(_LEVELS):
            words = k.var("words", (words + 63) >> _BITS)
            k.set(words, select(words > 0, words, 1))
            bases.append(k.var("base", bases[-1] + words))
        self.end = bases[-1]
        return bases[:-1]

    def cursor(self, fraction: float) -> _Cursor:
        """Follow the quantile at a fraction; before any row enters."""
        made = _Cursor(fraction, self.k.var("rank", 0), self.k.var("before", 0))
        self.cursors.append(made)
        return made

    # -- rows ------------------------------------------------------------------------------------------

    def add(self, rank: Value) -> None:
        """Count a rank that enters."""
        k = self.k
        old = k.var("old", self.memory[rank])
        k.store(self.memory, rank, old + 1)
        new = k.var("new", old.eq(0))
        for level, base in enumerate(self.base):
            with k.if_(new):  # where a word has had a bit, those above know
                word = k.var("word", base + (rank >> (_BITS * (level + 1))))
                before = k.var("before", self.bits[word])
                k.store(self.bits, word, before | _bit(rank >> (_BITS * level)))
                k.set(new, before.eq(0))
        self._counted(rank, 1)

    def remove(self, rank: Value) -> None:
        """Count a rank that leaves."""
        k = self.k
        left = k.var("left", self.memory[rank] - 1)
        k.store(self.memory, rank, left)
        empty = k.var("empty", left.eq(0))
        for level, base in enumerate(self.base):
            with k.if_(empty):
                word = k.var("word", base + (rank >> (_BITS * (level + 1))))
                rest = k.var("rest", self.bits[word] & ~_bit(rank >> (_BITS * level)))
                k.store(self.bits, word, rest)
                k.set(empty, rest.eq(0))
        self._counted(rank, -1)

    def _counted(self, rank: Value, by: int) -> None:
        k = self.k
        k.set(self.count, self.count + by)
        for each in self.cursors:
            k.set(each.before, each.before + select(rank < each.rank, const(by, I64), const(0, I64)))

    def length(self) -> Value:
        return self.ranks

    def clear(self) -> None:
        """Count nothing."""
        k = self.k
        with k.for_(0, self.ranks, "i") as i:
            k.store(self.memory, i, 0)
        with k.for_(0, self.end, "i") as i:
            k.store(self.bits, i, 0)
        k.set(self.count, 0)
        for each in self.cursors:
            k.set(each.before, 0)
            k.set(each.rank, 0)

    # -- answers ---------------------------------------------------------------------------------------

    def neighbours(self, cursor: _Cursor) -> tuple[Var, Var, Var]:
        """Find the ranks on either side of a quantile's place, and how far the place lies between them.

        Of n ranks the place is fraction * (n - 1). Without meaning where nothing is counted.
        """
        k = self.k
        exact = k.var("exact", (self.count - 1).to(F64) * cursor.fraction)
        whole = k.var("whole", Unary("floor", exact))
        place, between = k.var("place", whole.to(I64)), k.var("between", exact - whole)
        upper = k.var("upper", cursor.rank)
        with k.if_(self.count > 0):
            self._move(cursor, place)
            k.set(upper, cursor.rank)
            here = self.memory[cursor.rank].to(I64)
            with k.if_((between > 0.0) & (cursor.before + here <= place + 1)):
                k.set(upper, self._next(cursor.rank))
        return cursor.rank, upper, between

    def _move(self, cursor: _Cursor, place: Value) -> None:
        k = self.k
        with k.while_(cursor.before > place):
            k.set(cursor.rank, self._previous(cursor.rank))
            k.set(cursor.before, cursor.before - self.memory[cursor.rank].to(I64))
        here = k.var("here", self.memory[cursor.rank].to(I64))
        with k.while_(cursor.before + here <= place):
            k.set(cursor.before, cursor.before + here)
            k.set(cursor.rank, self._next(cursor.rank))
            k.set(here, self.memory[cursor.rank].to(I64))

    def _next(self, rank: Value) -> Value:
        """The next rank that occurs; there is one."""
        return self._neighbour(rank, upwards=True)

    def _previous(self, rank: Value) -> Value:
        """The rank before that occurs; there is one."""
        return self._neighbour(rank, upwards=False)

    def _neighbour(self, rank: Value, upwards: bool) -> Value:
        """Go up the levels to a word that has a bit beside the rank's own, and down again to the nearest rank."""
        k = self.k
        node, level = k.var("node", rank), k.var("level", 0)
        found = k.var("found", const(0, U64))
        base = k.local("level_base", I64, _LEVELS)
        for place, each in enumerate(self.base):
            k.store(base, place, each)
        with k.while_(found.eq(0)):
            word = k.var("word", self.bits[base[level] + (node >> _BITS)])
            inside = Bitcast(node & 63, U64)
            # Shifting by one more separately: a shift by 64 would be a shift by 0.
            beyond = (word >> inside) >> const(1, U64) if upwards else word & (_bit(node) - const(1, U64))
            k.set(found, beyond)
            with k.if_(found.eq(0)):
                k.set(node, node >> _BITS)
                k.set(level, level + 1)
        if upwards:
            k.set(node, node + 1 + Bitcast(Unary("ctz", found), I64))
        else:
            k.set(node, ((node >> _BITS) << _BITS) + _highest(found))
        with k.while_(level > 0):
            k.set(level, level - 1)
            down = k.var("down", self.bits[base[level] + node])
            child = Bitcast(Unary("ctz", down), I64) if upwards else _highest(down)
            k.set(node, (node << _BITS) + child)
        return node


def _bit(node: Value) -> Value:
    return const(1, U64) << Bitcast(node & 63, U64)


def _highest(word: Value) -> Value:
    return const(63, I64) - Bitcast(Unary("clz", word), I64)

"""Moving quantiles: the k-th smallest row of a frame, found by cursors over a hierarchical bitmap of ranks.

Every row has a unique *place*: its rank in a stable sort of all rows. A row that enters or leaves moves a quantile
by at most one row, so a cursor moves at most to the next or the previous occupied place. A bitmap records the
occupied places, 64 to a word. Each level above has one bit per non-empty word of the level below. A step mostly
reads one word.

Integers within a small range serve as ranks without a sort. Equal values then share a rank, and a count per rank
replaces the single row.

Cost: one bit update per row that enters or leaves, and at most one step per result, independent of the window's size.
Memory: slightly more than one bit per row, plus one count per rank if ranks are shared; zero before and after use.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import (
    F64,
    I64,
    U64,
    Bitcast,
    Buffer,
    Unary,
    Value,
    Var,
    const,
    select,
)

_BITS = 6
_LEVELS = 5  # levels of the bitmap: more than 2 ** 30 places


def bits_length(places: int) -> int:
    """Return the bitmap's length in words for a number of places: all levels, with one empty word before, between and after.

    >>> bits_length(1), bits_length(64), bits_length(65)
    (11, 11, 12)
    """
    words, total = places, 1
    for _ in range(_LEVELS):
        words = max(-(-words >> _BITS), 1)
        total += words + 1
    return total


@dataclass(frozen=True)
class _Cursor:
    """The position of one quantile: a place, and in `before` the number of rows at smaller places.

    For `counted` rows, `wanted` is the target of `before`, and `between` is the quantile's fraction of the distance
    from the place to the next occupied one.
    """

    fraction: float
    place: Var
    before: Var
    counted: Var
    wanted: Var
    between: Var


class RankCursors:
    """A bitmap of occupied places, with cursors that follow quantiles."""

    def __init__(self, k: KernelBuilder, places: Value, bits: Buffer, counts: Buffer | None = None) -> None:
        self.k, self.places, self.bits, self.counts = k, places, bits, counts
        self.count = k.var("count", 0)
        self.cursors: list[_Cursor] = []
        self.base = self._lay_out()

    def _lay_out(self) -> list[Value]:
        """Return the first word of each level. An empty word separates levels, so steps need no bounds check."""
        k, words = self.k, self.places
        bases: list[Value] = [const(1, I64)]
        for _ in range(_LEVELS):
            words = k.var("words", (words + 63) >> _BITS)
            k.set(words, select(words > 0, words, 1))
            bases.append(k.var("base", bases[-1] + words + 1))
        self.end = bases[-1]
        return bases[:-1]

    def cursor(self, fraction: float) -> _Cursor:
        """Add a cursor for the quantile at a fraction. Call this before any row enters."""
        place, before, counted, wanted = (
            self.k.var(name, 0) for name in ("at", "before", "counted", "wanted")
        )
        made = _Cursor(fraction, place, before, counted, wanted, self.k.var("between", 0.0, F64))
        self.cursors.append(made)
        return made

    # -- rows ------------------------------------------------------------------------------------------

    def add(self, place: Value) -> None:
        """Occupy the place of a row that enters."""
        k = self.k
        if self.counts is not None:
            k.store(self.counts, place, self.counts[place] + 1)
        k.store(self.bits, self._word(0, place), self.bits[self._word(0, place)] | _bit(place))
        word = k.var("word", self._word(1, place))
        before = k.var("before", self.bits[word])
        k.store(self.bits, word, before | _bit(place >> _BITS))
        new = k.var("new", before.eq(0))
        for level in range(2, _LEVELS):
            with k.if_(new):  # if the word already had a bit, the levels above are up to date
                word = k.var("word", self._word(level, place))
                before = k.var("before", self.bits[word])
                k.store(self.bits, word, before | _bit(place >> (_BITS * level)))
                k.set(new, before.eq(0))
        self._counted(place, 1)

    def remove(self, place: Value) -> None:
        """Free the place of a row that leaves."""
        k = self.k
        gone = _bit(place)
        if self.counts is not None:
            left = k.var("left", self.counts[place] - 1)
            k.store(self.counts, place, left)
            gone = select(left.eq(0), gone, const(0, U64))
        for level in range(2):
            word = k.var("word", self._word(level, place))
            rest = k.var("rest", self.bits[word] & ~gone)
            k.store(self.bits, word, rest)
            gone = select(rest.eq(0), _bit(place >> (_BITS * (level + 1))), const(0, U64))
        empty = k.var("empty", rest.eq(0))
        for level in range(2, _LEVELS):
            with k.if_(empty):
                word = k.var("word", self._word(level, place))
                rest = k.var("rest", self.bits[word] & ~_bit(place >> (_BITS * level)))
                k.store(self.bits, word, rest)
                k.set(empty, rest.eq(0))
        self._counted(place, -1)

    def _word(self, level: int, place: Value) -> Value:
        return self.base[level] + (place >> (_BITS * (level + 1)))

    def _counted(self, place: Value, by: int) -> None:
        k = self.k
        k.set(self.count, self.count + by)
        for cursor in self.cursors:
            k.set(cursor.before, cursor.before + select(place < cursor.place, const(by, I64), const(0, I64)))

    def length(self) -> Value:
        return self.places

    def clear(self) -> None:
        """Free all places."""
        k = self.k
        if self.counts is not None:
            with k.for_(0, self.places, "i") as i:
                k.store(self.counts, i, 0)
        with k.for_(0, self.end, "i") as i:
            k.store(self.bits, i, 0)
        k.set(self.count, 0)
        for cursor in self.cursors:
            k.set(cursor.before, 0)
            k.set(cursor.place, 0)

    # -- answers ---------------------------------------------------------------------------------------

    def neighbours(self, cursor: _Cursor) -> tuple[Var, Var, Var]:
        """Return the places on either side of a quantile, and the quantile's fraction of the distance between them.

        The quantile of n ordered rows is at fraction * (n - 1). The result is undefined for an empty frame.
        """
        k, wanted = self.k, cursor.wanted
        with k.if_(self.count.ne(cursor.counted)):  # frames of equal length reuse the target
            exact = k.var("exact", (self.count - 1).to(F64) * cursor.fraction)
            whole = k.var("whole", Unary("floor", exact))
            k.set(wanted, whole.to(I64))
            k.set(cursor.between, exact - whole)
            k.set(cursor.counted, self.count)
        upper = k.var("upper", cursor.place)
        with k.if_(self.count > 0):
            self._move(cursor)
            k.set(upper, cursor.place)
            beyond = cursor.between > 0.0
            if self.counts is not None:
                beyond &= cursor.before + self._rows_at(cursor.place) <= wanted + 1
            with k.if_(beyond):
                k.set(upper, self._next(cursor.place))
        return cursor.place, upper, cursor.between

    def _move(self, cursor: _Cursor) -> None:
        if self.counts is not None:
            self._walk(cursor)
            return
        k = self.k
        less = cursor.wanted - cursor.before
        steps = k.var("steps", select(less < 0, less, less + 1 - self._rows_at(cursor.place)))
        there, node = self._step(cursor.place, steps)
        with k.if_((steps >= -1) & (steps <= 1) & there):
            k.set(cursor.place, node)
            k.set(cursor.before, cursor.wanted)
        with k.else_():
            self._walk(cursor)

    def _step(self, place: Value, steps: Value) -> tuple[Value, Value]:
        """Step by -1, 0 or +1 occupied place; return whether the target is in this word or the next, and the target.

        Branch-free: the direction is unpredictable when frames slide by one row.
        """
        k = self.k
        down, at = k.var("down", steps < 0), k.var("at", self._word(0, place))
        word, bit = k.var("word", self.bits[at]), k.var("bit", _bit(place))
        own = k.var("own", word & select(down, bit - const(1, U64), -(bit << const(1, U64))))
        some, beside = k.var("some", own.ne(0)), k.var("beside", at + select(down, const(-1, I64), 1))
        other = k.var("other", self.bits[beside])
        found = k.var("found", select(some, own, other))
        node = ((select(some, at, beside) - self.base[0]) << _BITS) + select(
            down, _end(found, upwards=False), _end(found, upwards=True)
        )
        stays = k.var("stays", steps.eq(0))
        # Load both words first: LLVM compiles a select between a register and a load to a branch.
        return (own | other | stays.to(U64)).ne(0), select(stays, place, node)

    def _walk(self, cursor: _Cursor) -> None:
        """Step until `before` reaches the target."""
        k = self.k
        with k.while_(cursor.before > cursor.wanted):
            k.set(cursor.place, self._previous(cursor.place))
            k.set(cursor.before, cursor.before - (1 if self.counts is None else self._rows_at(cursor.place)))
        here = k.var("here", self._rows_at(cursor.place))
        with k.while_(cursor.before + here <= cursor.wanted):
            k.set(cursor.before, cursor.before + here)
            k.set(cursor.place, self._next(cursor.place))
            k.set(here, 1 if self.counts is None else self._rows_at(cursor.place))

    def _rows_at(self, place: Value) -> Value:
        """Return the number of rows at a place: 0 or 1 unless places are shared."""
        if self.counts is not None:
            return self.counts[place].to(I64)
        word = self.bits[self._word(0, place)]
        return Bitcast((word >> Bitcast(place & 63, U64)) & const(1, U64), I64)

    def _next(self, place: Value) -> Value:
        """Return the next occupied place, which must exist."""
        return self._neighbour(place, upwards=True)

    def _previous(self, place: Value) -> Value:
        """Return the previous occupied place, which must exist."""
        return self._neighbour(place, upwards=False)

    def _neighbour(self, place: Value, upwards: bool) -> Value:
        """Search a place's word and the adjacent word, branch-free because the choice is unpredictable.

        If both are empty, climb to the first level with a further bit in the word, and descend from there.
        """
        k = self.k
        own = k.var("own", self._beside(self.base[0], place, upwards))
        word = k.var("at", (place >> _BITS) + (1 if upwards else -1))
        other = k.var("other", self.bits[self.base[0] + word])
        node = k.var(
            "node", select(own.ne(0), _child(place, own, upwards), (word << _BITS) + _end(other, upwards))
        )
        with k.if_((own | other).eq(0)):
            k.set(node, place)
            self._climb(node, upwards)
        return node

    def _beside(self, base: Value, node: Value, upwards: bool) -> Value:
        """Return the bits of a node's word above or below the node's bit."""
        word = self.k.var("word", self.bits[base + (node >> _BITS)])
        if not upwards:
            return word & (_bit(node) - const(1, U64))
        # Two shifts: a single shift by 64 would be a shift by 0.
        return (word >> Bitcast(node & 63, U64)) >> const(1, U64)

    def _climb(self, node: Var, upwards: bool) -> None:
        k, level = self.k, self.k.var("level", 0)
        found = k.var("found", const(0, U64))
        base = k.local("level_base", I64, _LEVELS)
        for place, value in enumerate(self.base):
            k.store(base, place, value)
        with k.while_(found.eq(0)):
            k.set(node, node >> _BITS)
            k.set(level, level + 1)
            k.set(found, self._beside(base[level], node, upwards))
        k.set(node, _child(node, found, upwards))
        with k.while_(level > 0):
            k.set(level, level - 1)
            down = k.var("down", self.bits[base[level] + node])
            k.set(node, (node << _BITS) + _end(down, upwards))


def _child(node: Value, beside: Value, upwards: bool) -> Value:
    """Return the nearest node among the bits on one side of a node."""
    if upwards:
        return node + 1 + _end(beside, upwards)
    return ((node >> _BITS) << _BITS) + _end(beside, upwards)


def _end(word: Value, upwards: bool) -> Value:
    """Return a word's lowest set bit if the search goes upwards, else its highest."""
    return Bitcast(Unary("ctz", word), I64) if upwards else _highest(word)


def _bit(node: Value) -> Value:
    return const(1, U64) << Bitcast(node & 63, U64)


def _highest(word: Value) -> Value:
    return const(63, I64) - Bitcast(Unary("clz", word), I64)

"""The instrumented fold: count what the rows of a chunk show, beside adding them (Grizzly, section 6.1).

The counts of a chunk whose rows are added in two calls are counted twice: a profile is a sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.algorithms.expressions.cells import Cell, is_true
from penstock.algorithms.expressions.lowering import Lowering
from penstock.algorithms.hash_table.group_kernels import key_word
from penstock.algorithms.hash_table.probe import combine, hash_word
from penstock.analysis.predicates import conjuncts
from penstock.loop.nodes import (
    BOOL,
    I64,
    U64,
    Bitcast,
    Buffer,
    Unary,
    Value,
    Var,
    const,
    maximum,
    minimum,
    select,
)
from penstock.operators.pane_aggregate.kernels.fold_steps.frame import FoldFrame
from penstock.physical.profile import BUCKET_WORDS, KEY_BUCKETS, ProfileLayout

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

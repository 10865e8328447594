"""Radix sort of runs: pieces of a column that fit the cache.

The two halves of one buffer alternate as source and target. The number of passes determines the first target, so that
the last pass always writes to the first half.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.algorithms.joins.kernels.key_words import CodeColumn
from penstock.loop.abi import DIGIT_BITS, JoinSpec
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I64, U32, U64, Buffer, Kernel, Value, Var, select

DIGITS = 1 << DIGIT_BITS

Word = Callable[[Value], Value]


def sort_run(spec: JoinSpec) -> Kernel:
    """Sort the rows `lo … hi` of a column by word, stably.

    `base` is at most the run's least word; `passes` is the number of digits of word - base. The run is at `lo … hi` of
    each half; the second half starts at `half`. For routed rows, `numbers` holds the row numbers.
    """
    k = KernelBuilder("sort_run")
    column, passes, half = CodeColumn.declare(k, spec), k.scalar("passes"), k.scalar("half")
    base, numbers = k.scalar("base", U64), k.buffer("numbers", U32) if spec.pairs and spec.routed else None
    words, rows = k.buffer("words", spec.word), k.buffer("rows", U32) if spec.pairs else None
    counts = k.local("counts", I64, DIGITS)
    run = _Run(k, spec, column, base.to(spec.word), words, rows, counts)
    target = k.var("target", select((passes & 1).eq(1), 0, half))
    run.move(column.word, (lambda i: i.to(U32)) if numbers is None else (lambda i: numbers[i]), target, None)
    with k.for_(1, passes, "pass", scalar=True) as step:
        source = k.var("source", target)
        k.set(target, half - target)
        shift = k.var("shift", step * DIGIT_BITS)
        given = None if rows is None else lambda i: rows[source + i]
        run.move(lambda i: words[source + i], given, target, shift)
    k.ret(column.hi)
    return k.build()


@dataclass(frozen=True)
class _Run:
    k: KernelBuilder
    spec: JoinSpec
    column: CodeColumn
    base: Value
    words: Buffer
    rows: Buffer | None
    counts: Buffer

    def move(self, word: Word, row: Word | None, target: Var, shift: Var | None) -> None:
        """Scatter the run to the other half by one digit."""
        k, counts, lo, hi = self.k, self.counts, self.column.lo, self.column.hi
        with k.for_(0, DIGITS, "d") as d:
            k.store(counts, d, 0)
        with k.for_(lo, hi, "i") as i:
            digit = k.var("digit", self._digit(word(i), shift))
            k.store(counts, digit, counts[digit] + 1)
        total = k.var("total", target + lo)
        with k.for_(0, DIGITS, "d") as d:
            here = k.var("here", counts[d])
            k.store(counts, d, total)
            k.set(total, total + here)
        with k.for_(lo, hi, "i") as i:
            moved = k.var("moved", word(i))
            digit = k.var("digit", self._digit(moved, shift))
            at = k.var("at", counts[digit])
            k.store(self.words, at, moved)
            if self.rows is not None and row is not None:
                k.store(self.rows, at, row(i))
            k.store(counts, digit, at + 1)

    def _digit(self, word: Value, shift: Var | None) -> Value:
        offset = word - self.base
        shifted = offset if shift is None else offset >> shift.to(self.spec.word)
        return (shifted & (DIGITS - 1)).to(I64)

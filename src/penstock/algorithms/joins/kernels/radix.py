"""The radix join: partition both sides by digits of their words into partitions that fit the cache.

Each thread builds a histogram of its portion, then scatters it to the positions given by all histograms. Partitions are
then joined one by one, each with a table that stays in the cache. Rows are written directly: write-combining sixteen
rows into a cache line was slower in most settings tried, since the loop IR has no non-temporal stores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.algorithms.joins.kernels.key_words import CodeColumn, Find, Pairs, Slots, dense, hashed
from penstock.loop.abi import SPARE, JoinSpec
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I64, U32, U64, Bitcast, Buffer, Kernel, Unary, Value, Var, const, maximum


def prj_histogram(spec: JoinSpec) -> Kernel:
    """Add the number of rows of each partition to `counts`."""
    k = KernelBuilder("prj_histogram")
    column, bits, counts = CodeColumn.declare(k, spec), k.scalar("bits"), k.buffer("counts", I64)
    mask = k.var("digit_mask", (const(1, I64) << bits) - 1)
    with column.rows() as (_, word):
        digit = k.var("digit", _digit(spec, word, mask))
        k.store(counts, digit, counts[digit] + 1)
    k.ret(column.hi)
    return k.build()


def prj_scatter(spec: JoinSpec) -> Kernel:
    """Scatter words (and row numbers) to their partitions; `cursors` holds each partition's next write position."""
    k = KernelBuilder("prj_scatter")
    column, bits, cursors = CodeColumn.declare(k, spec), k.scalar("bits"), k.buffer("cursors", I64)
    words = k.buffer("words", spec.word)
    rows = k.buffer("rows", U32) if spec.pairs else None
    mask = k.var("digit_mask", (const(1, I64) << bits) - 1)
    with column.rows() as (row, word):
        digit = k.var("digit", _digit(spec, word, mask))
        at = k.var("at", cursors[digit])
        k.store(words, at, word)
        if rows is not None:
            k.store(rows, at, row.to(U32))
        k.store(cursors, digit, at + 1)
    k.ret(column.hi)
    return k.build()


def _digit(spec: JoinSpec, word: Value, mask: Value) -> Value:
    return (word.to(I64) if spec.dense else Bitcast(hashed(word), I64)) & mask


@dataclass(frozen=True)
class _Side:
    """The partitions of one side: words, row numbers, and partition starts."""

    words: Buffer
    rows: Buffer | None
    begins: Buffer

    @staticmethod
    def declare(k: KernelBuilder, spec: JoinSpec, side: str) -> _Side:
        rows = k.buffer(f"{side}_rows", U32) if spec.pairs else None
        return _Side(k.buffer(f"{side}_words", spec.word), rows, k.buffer(f"{side}_begins", I64))


def prj_join(spec: JoinSpec) -> Kernel:
    """Join the partitions `lo … hi`. Scratch: `bounds`, `slots` (hashed), `places` and `runs` (for pairs)."""
    k = KernelBuilder("prj_join")
    lo, hi, bits, size = k.scalar("lo"), k.scalar("hi"), k.scalar("bits"), k.scalar("size")
    left, right = _Side.declare(k, spec, "left"), _Side.declare(k, spec, "right")
    table = _Table.declare(k, spec)
    total, pairs = k.var("total", 0), Pairs.declare(k) if spec.pairs else None
    with k.for_(lo, hi, "p", scalar=True) as p:
        begin, end = k.var("begin", left.begins[p]), k.var("end", left.begins[p + 1])
        other, last = k.var("other", right.begins[p]), k.var("last", right.begins[p + 1])
        with k.if_((begin < end) & (other < last)):
            find = table.open(bits, size, end - begin)
            table.build(left, begin, end, *find)
            if pairs is None:
                with k.for_(other, last, "j") as j:
                    found = find[0](k.var("word", right.words[j]))
                    k.set(total, total + table.bounds[found + 1].to(I64))
            else:
                table.group(left, begin, end)
                _emit(k, table, right, (other, last), find[0], pairs, p)
    if pairs is None:
        k.ret(total)
    else:
        pairs.finish(hi)
    return k.build()


def _emit(
    k: KernelBuilder,
    table: _Table,
    right: _Side,
    span: tuple[Value, Value],
    find: Find,
    pairs: Pairs,
    partition: Value,
) -> None:
    """Copy the runs that match the right rows. If the output is full, the next call redoes the whole partition."""
    assert right.rows is not None and table.runs is not None
    before = k.var("before", pairs.used)
    with k.for_(*span, "j") as j:
        place = k.var("place", find(k.var("word", right.words[j])))
        start, stop = (k.var("run", table.bounds[place + step].to(I64)) for step in (0, 1))
        with k.if_(pairs.used + (stop - start) > pairs.capacity):
            k.set(pairs.used, before)
            pairs.stop(partition)
        pairs.run(table.runs, start, stop, k.var("row", right.rows[j].to(I64)))


@dataclass(frozen=True)
class _Table:
    """The hash table of one partition, in memory reused for all partitions of a thread."""

    k: KernelBuilder
    spec: JoinSpec
    bounds: Buffer
    slots: Buffer | None
    places: Buffer | None
    runs: Buffer | None
    cells: Var

    @staticmethod
    def declare(k: KernelBuilder, spec: JoinSpec) -> _Table:
        bounds = k.buffer("bounds", U32)
        slots = None if spec.dense else k.buffer("slots", spec.word)
        places, runs = (k.buffer(name, U32) if spec.pairs else None for name in ("places", "runs"))
        return _Table(k, spec, bounds, slots, places, runs, k.var("cells", 0))

    def open(self, bits: Value, size: Value, rows: Value) -> tuple[Find, Find]:
        """Clear the table for a number of rows; return the functions that find and insert a word."""
        k = self.k
        if self.slots is None:
            k.set(self.cells, size)
            find = insert = dense(bits)
        else:
            mask = k.var("mask", _mask(rows))
            k.set(self.cells, mask + (1 + SPARE))
            with k.for_(0, mask + 1, "s") as s:
                k.store(self.slots, s, 0)
            slots = Slots(k, self.slots, mask)
            find, insert = slots.find, slots.insert
        with k.for_(0, self.cells + 1, "c") as c:
            k.store(self.bounds, c, 0)
        return find, insert

    def build(
        self, left: _Side, begin: Value, end: Value, find: Find, insert: Callable[[Value], Value]
    ) -> None:
        k = self.k
        with k.for_(begin, end, "i") as i:
            place = k.var("place", insert(k.var("word", left.words[i])))
            if self.places is not None:
                k.store(self.places, i - begin, place.to(U32))
            k.store(self.bounds, place + 1, self.bounds[place + 1] + 1)

    def group(self, left: _Side, begin: Value, end: Value) -> None:
        """Turn counts into runs of row numbers."""
        k = self.k
        assert self.places is not None and self.runs is not None and left.rows is not None
        total = k.var("total", const(0, U32))
        with k.for_(0, self.cells + 1, "c") as c:
            here = k.var("here", self.bounds[c])
            k.store(self.bounds, c, total)
            k.set(total, total + here)
        with k.for_(begin, end, "i") as i:
            place = k.var("place", self.places[i - begin].to(I64))
            at = k.var("at", self.bounds[place + 1])
            k.store(self.runs, at.to(I64), left.rows[i])
            k.store(self.bounds, place + 1, at + 1)


def _mask(rows: Value) -> Value:
    """Return the least power of two that is at least twice the rows, minus one."""
    wanted = Bitcast(maximum(rows, 2) * 2 - 1, U64)
    return Bitcast(const((1 << 64) - 1, U64) >> Unary("clz", wanted), I64)

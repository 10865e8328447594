"""The no-partitioning hash join: build one table of the left rows, probe it with the right rows; variants for order and unique keys.

Rows with equal words are contiguous, in a run that `bounds` delimits. Matches are copied from the run, so a key with a
thousand duplicates costs one probe. Counting needs only the lengths of runs. Threads share the table: each builds and
probes with a portion of the rows, with a barrier after each kernel.

    insert (hashed, shared)   count   starts   fill   probe

The table of right rows is built as in `no_partitioning.py`, but each thread fills the runs of a disjoint range of
places, so a run's rows stay in order. Left rows then store the start and end of their run. The run lengths determine
each row's output position, so the output is neither resized nor sorted.

    npj_insert npj_count npj_starts   fill_places   find_runs   expand_runs

It applies if codes span a small range and right codes are unique, so each left row has at most one match.

    mark_singles   find_singles
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.algorithms.joins.kernels.key_words import (
    SLOTS_PER_BLOCK,
    CodeColumn,
    Pairs,
    Slots,
    blocks,
    table_of,
)
from penstock.loop.abi import JoinSpec
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, I32, I64, U32, U64, Buffer, Kernel, Value, Var, const, maximum


@dataclass(frozen=True)
class Walk:
    """A loop over rows with the places of their words, a block at a time.

    All slots of a block are prefetched before the first is probed. A probe ends in unpredictable branches; without the
    prefetch, the processor would stall on memory once per row, not once per block.
    """

    k: KernelBuilder
    column: CodeColumn
    table: Slots | None
    fetched: Var
    sink: Buffer
    near: Buffer

    @staticmethod
    def declare(k: KernelBuilder, spec: JoinSpec) -> Walk:
        column, table = CodeColumn.declare(k, spec), table_of(k, spec)
        return Walk(
            k,
            column,
            table,
            k.var("fetched", const(0, U64)),
            k.buffer("sink", U64),
            k.local("near", I64, SLOTS_PER_BLOCK),
        )

    @contextmanager
    def blocks(self, bounds: Buffer | None = None) -> Iterator[tuple[Var, Var]]:
        with blocks(self.k, self.column.lo, self.column.hi) as (first, end):
            if self.table is not None:
                self._fetch(self.table, bounds, first, end)
            yield first, end

    def _fetch(self, table: Slots, bounds: Buffer | None, first: Value, end: Value) -> None:
        k = self.k
        with k.for_(first, end, "row") as row:
            near = k.var("start", table.near(self.column.word(row)))
            k.store(self.near, row - first, near)
            self.touch(table.slots[near])
            if bounds is not None:
                self.touch(bounds[near + 1])

    def touch(self, value: Value) -> None:
        """Prefetch a value by reading it."""
        self.k.set(self.fetched, self.fetched ^ value.to(U64))

    def place(self, first: Value, row: Value, insert: bool = False) -> Value:
        word = self.column.word(row)
        if self.table is None:
            return word.to(I64)
        near = self.near[row - first]
        return self.table.insert(word, near) if insert else self.table.find(word, near)

    def finish(self) -> None:
        """Store the prefetched values' XOR, so that the compiler keeps the reads."""
        self.k.store(self.sink, 0, self.fetched)


def npj_insert(spec: JoinSpec) -> Kernel:
    """Insert the words of some rows into the shared table."""
    k = KernelBuilder("npj_insert")
    walk = Walk.declare(k, spec)
    with walk.blocks() as (first, end), k.for_(first, end, "row") as row:
        walk.place(first, row, insert=True)
    walk.finish()
    k.ret(walk.column.hi)
    return k.build()


def npj_count(spec: JoinSpec) -> Kernel:
    """Count the rows of each place p in `bounds[p + 1]`; an unshared hash table is filled in the same pass."""
    k = KernelBuilder("npj_count")
    walk, bounds = Walk.declare(k, spec), k.buffer("bounds", U32)
    alone = not (spec.dense or spec.shared)
    places = k.buffer("places", U32) if alone and spec.pairs else None
    with walk.blocks(bounds) as (first, end), k.for_(first, end, "row") as row:
        place = walk.place(first, row, insert=alone)
        if places is not None:
            k.store(places, row, place.to(U32))
        increment(k, spec, bounds, place + 1)
    walk.finish()
    k.ret(walk.column.hi)
    return k.build()


def increment(k: KernelBuilder, spec: JoinSpec, cells: Buffer, at: Value) -> Value:
    """Increment a cell, and return its old value."""
    if spec.shared:
        old = k.atomic("add", cells, at, 1, "old")
        assert old is not None
        return old
    at = k.var("cell", at)
    old = k.var("old", cells[at])
    k.store(cells, at, old + 1)
    return old


def npj_starts() -> Kernel:
    """Turn counts into start positions; `fill` advances each start to the end of its run."""
    k = KernelBuilder("npj_starts")
    bounds, places = k.buffer("bounds", U32), k.scalar("places")
    total = k.var("total", const(0, U32))
    with k.for_(0, places, "p") as p:
        here = k.var("here", bounds[p])
        k.store(bounds, p, total)
        k.set(total, total + here)
    k.ret(total.to(I64))
    return k.build()


def npj_fill(spec: JoinSpec) -> Kernel:
    """Write row numbers into the runs of their places; for an unshared hash table, `count` has stored the places."""
    k = KernelBuilder("npj_fill")
    walk = Walk.declare(k, spec)
    known = None if spec.dense or spec.shared else k.buffer("places", U32)
    bounds, rows = k.buffer("bounds", U32), k.buffer("rows", U32)
    with walk.blocks() as (first, end), k.for_(first, end, "row") as row:
        place = walk.place(first, row) if known is None else known[row].to(I64)
        at = increment(k, spec, bounds, place + 1)
        k.store(rows, at.to(I64), row.to(U32))
    walk.finish()
    k.ret(walk.column.hi)
    return k.build()


def npj_probe(spec: JoinSpec) -> Kernel:
    """Probe with the right rows. For counting, `bounds[p + 1]` still holds the count of place p."""
    k = KernelBuilder("npj_probe")
    walk, bounds = Walk.declare(k, spec), k.buffer("bounds", U32)
    if spec.pairs:
        return _pair(k, walk, bounds)
    total = k.var("total", 0)
    with walk.blocks(bounds) as (first, end), k.for_(first, end, "row") as row:
        k.set(total, total + bounds[walk.place(first, row) + 1].to(I64))
    walk.finish()
    k.ret(total)
    return k.build()


def _pair(k: KernelBuilder, walk: Walk, bounds: Buffer) -> Kernel:
    """Copy runs a block at a time: load all bounds, then the first row of each run, then the runs."""
    rows, pairs = k.buffer("rows", U32), Pairs.declare(k)
    starts, stops = k.local("starts", U32, SLOTS_PER_BLOCK), k.local("stops", U32, SLOTS_PER_BLOCK)
    with walk.blocks(bounds) as (first, end):
        with k.for_(first, end, "row") as row:
            place = k.var("place", walk.place(first, row))
            k.store(starts, row - first, bounds[place])
            k.store(stops, row - first, bounds[place + 1])
        with k.for_(first, end, "row") as row:
            walk.touch(rows[starts[row - first].to(I64)])
        with k.for_(first, end, "row") as row:
            start = k.var("start", starts[row - first].to(I64))
            stop = k.var("stop", stops[row - first].to(I64))
            pairs.require(stop - start, row)
            pairs.run(rows, start, stop, row)
    walk.finish()
    pairs.finish(walk.column.hi)
    return k.build()


_ALONE = JoinSpec()  # threads own disjoint places, so no atomic operation is needed


def fill_places(spec: JoinSpec) -> Kernel:
    """Write row numbers into the runs of the places `from … to`, and skip other rows."""
    k = KernelBuilder("fill_places")
    walk = Walk.declare(k, spec)
    known = None if spec.dense or spec.shared else k.buffer("places", U32)
    bounds, rows, low, high = k.buffer("bounds", U32), k.buffer("rows", U32), k.scalar("from"), k.scalar("to")
    with walk.blocks() as (first, end), k.for_(first, end, "row") as row:
        place = k.var("mine", walk.place(first, row) if known is None else known[row].to(I64))
        with k.if_((place >= low) & (place < high)):
            at = increment(k, _ALONE, bounds, place + 1)
            k.store(rows, at.to(I64), row.to(U32))
    walk.finish()
    k.ret(walk.column.hi)
    return k.build()


def find_runs(spec: JoinSpec, outer: bool = False) -> Kernel:
    """Store each left row's run; return the number of pairs, where an unmatched row counts as one if `outer`."""
    k = KernelBuilder("find_runs")
    walk, bounds = Walk.declare(k, spec), k.buffer("bounds", U32)
    starts, stops = k.buffer("starts", U32), k.buffer("stops", U32)
    total = k.var("total", 0)
    with walk.blocks(bounds) as (first, end), k.for_(first, end, "row") as row:
        place = k.var("place", walk.place(first, row))
        start, stop = k.var("start", bounds[place]), k.var("stop", bounds[place + 1])
        k.store(starts, row, start)
        k.store(stops, row, stop)
        k.set(total, total + _pairs((stop - start).to(I64), outer))
    walk.finish()
    k.ret(total)
    return k.build()


def _pairs(length: Value, outer: bool) -> Value:
    return maximum(length, 1) if outer else length


def expand_runs(outer: bool = False) -> Kernel:
    """Write the pairs of the left rows `lo … hi` from position `at` on; -1 means no match."""
    k = KernelBuilder("expand_runs")
    starts, stops, rows = k.buffer("starts", U32), k.buffer("stops", U32), k.buffer("rows", U32)
    own, other = k.buffer("own", I32), k.buffer("other", I32)
    lo, hi, begin = k.scalar("lo"), k.scalar("hi"), k.scalar("at")
    at = k.var("used", begin)
    with k.for_(lo, hi, "row", scalar=True) as row:
        start, stop = k.var("start", starts[row].to(I64)), k.var("stop", stops[row].to(I64))
        base = k.var("base", at - start)
        with k.for_(start, stop, "j", scalar=True) as j:
            k.store(own, base + j, row.to(I32))
            k.store(other, base + j, rows[j].to(I32))
        k.set(at, base + stop)
        if outer:
            with k.if_(start.eq(stop)):
                k.store(own, at, row.to(I32))
                k.store(other, at, const(-1, I32))
                k.set(at, at + 1)
    k.ret(at)
    return k.build()


def mark_singles(spec: JoinSpec) -> Kernel:
    """Write row number + 1, or 0 if there is no row, for the codes `from … to`. Return 1 if a code occurs twice."""
    k = KernelBuilder("mark_singles")
    column, singles = CodeColumn.declare(k, spec), k.buffer("singles", U32)
    low, high = k.scalar("from"), k.scalar("to")
    with k.for_(low, high, "place") as place:
        k.store(singles, place, const(0, U32))
    twice = k.var("twice", False, BOOL)
    with blocks(k, column.lo, column.hi) as (first, end):
        with k.for_(first, end, "row", scalar=True) as row:
            place = k.var("place", column.word(row).to(I64))
            with k.if_((place >= low) & (place < high)):
                k.set(twice, twice | singles[place].ne(0))
                k.store(singles, place, row.to(U32) + 1)
        with k.if_(twice):
            k.ret(1)
    k.ret(0)
    return k.build()


def find_singles(spec: JoinSpec, outer: bool = False) -> Kernel:
    """Write the pairs of the left rows `lo … hi` from position `lo` on, and return their end.

    If `outer`, unmatched left rows are paired with -1.
    """
    k = KernelBuilder("find_singles")
    column, singles = CodeColumn.declare(k, spec), k.buffer("singles", U32)
    own, other = k.buffer("own", I32), k.buffer("other", I32)
    at = k.var("at", column.lo)
    with column.rows() as (row, word):
        found = k.var("found", singles[word.to(I64)])
        k.store(own, at, row.to(I32))
        k.store(other, at, found.to(I32) - 1)
        k.set(at, at + (1 if outer else found.ne(0).to(I64)))
    k.ret(at)
    return k.build()

"""The no-partitioning join: one table of the left rows, probed by the right ones.

Rows of one word lie side by side, in a run that `bounds` delimits: matches are copied from there, and a key
with a thousand duplicates costs one search. Counting needs no runs, only their lengths. Threads share the
table: each builds with and probes by a portion of the rows, with a barrier after each kernel.

    insert (hashed, shared)   count   starts   fill   probe
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.kernels.joins.hash_slots import Slots, table_of
from penstock.kernels.joins.key_words import BLOCK, Column, Pairs, blocks
from penstock.loop.build import KernelBuilder
from penstock.loop.join_abi import JoinSpec
from penstock.loop.nodes import I64, U32, U64, Buffer, Kernel, Value, Var, const


@dataclass(frozen=True)
class Walk:
    """Rows with the places of their words, a block at a time.

    All slots of a block are fetched before the first is looked at. A search ends in branches that nothing
    predicts; with its slot far away, the processor would wait for memory once a row, not once a block.
    """

    k: KernelBuilder
    column: Column
    table: Slots | None
    fetched: Var
    sink: Buffer
    near: Buffer

    @staticmethod
    def declare(k: KernelBuilder, spec: JoinSpec) -> Walk:
        column, table = Column.declare(k, spec), table_of(k, spec)
        return Walk(
            k,
            column,
            table,
            k.var("fetched", const(0, U64)),
            k.buffer("sink", U64),
            k.local("near", I64, BLOCK),
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
        """Read something only so that it is near when it is needed."""
        self.k.set(self.fetched, self.fetched ^ value.to(U64))

    def place(self, first: Value, row: Value, insert: bool = False) -> Value:
        word = self.column.word(row)
        if self.table is None:
            return word.to(I64)
        near = self.near[row - first]
        return self.table.insert(word, near) if insert else self.table.find(word, near)

    def finish(self) -> None:
        """Give what was only touched somewhere to go, or the compiler would not read it."""
        self.k.store(self.sink, 0, self.fetched)


def npj_insert(spec: JoinSpec) -> Kernel:
    """Put the words of some rows into the shared table."""
    k = KernelBuilder("npj_insert")
    walk = Walk.declare(k, spec)
    with walk.blocks() as (first, end), k.for_(first, end, "row") as row:
        walk.place(first, row, insert=True)
    walk.finish()
    k.ret(walk.column.hi)
    return k.build()


def npj_count(spec: JoinSpec) -> Kernel:
    """Count the rows of each place, in `bounds` one further on; alone, fill the table on the way."""
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
    """Add one to a cell, and give what it held."""
    if spec.shared:
        old = k.atomic("add", cells, at, 1, "old")
        assert old is not None
        return old
    at = k.var("cell", at)
    old = k.var("old", cells[at])
    k.store(cells, at, old + 1)
    return old


def npj_starts() -> Kernel:
    """Turn counts into starts: after `fill` has moved each start along its run, they are ends."""
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
    """Put row numbers into the runs of their places; alone, `count` has written the places down."""
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
    """Look the right rows up. Counting, `bounds` still holds counts, one place further on."""
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
    """Copy runs: a block's bounds first, then the first row of each run, then the runs."""
    rows, pairs = k.buffer("rows", U32), Pairs.declare(k)
    starts, stops = k.local("starts", U32, BLOCK), k.local("stops", U32, BLOCK)
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

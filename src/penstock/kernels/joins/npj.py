"""The no-partitioning join: one table of the left rows, probed by the right ones.

Rows of one word lie side by side, in a run that `bounds` delimits: matches are copied from there, and a key
with a thousand duplicates costs one search. Counting needs no runs, only their lengths. Threads share the
table: each builds with and probes by a portion of the rows, with a barrier after each kernel.

    insert (hashed, shared)   count   starts   fill   probe
"""

from __future__ import annotations

from penstock.kernels.joins.places import find_in, table_of
from penstock.kernels.joins.words import Column, Pairs
from penstock.loop.build import KernelBuilder
from penstock.loop.joins import JoinSpec
from penstock.loop.nodes import I64, U32, Buffer, Kernel, Value, const


def npj_insert(spec: JoinSpec) -> Kernel:
    """Put the words of some rows into the shared table."""
    k = KernelBuilder("npj_insert")
    column, table = Column.declare(k, spec), table_of(k, spec)
    with column.rows() as (_, word):
        table.insert(word)
    k.ret(column.hi)
    return k.build()


def npj_count(spec: JoinSpec) -> Kernel:
    """Count the rows of each place, in `bounds` one further on; alone, fill the table on the way."""
    k = KernelBuilder("npj_count")
    column = Column.declare(k, spec)
    alone = not (spec.dense or spec.shared)
    find = table_of(k, spec).insert if alone else find_in(k, spec)
    bounds = k.buffer("bounds", U32)
    places = k.buffer("places", U32) if alone and spec.pairs else None
    with column.rows() as (row, word):
        place = find(word)
        if places is not None:
            k.store(places, row, place.to(U32))
        increment(k, spec, bounds, place + 1)
    k.ret(column.hi)
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
    """Put row numbers into the runs of their places."""
    k = KernelBuilder("npj_fill")
    column = Column.declare(k, spec)
    known = None if spec.dense or spec.shared else k.buffer("places", U32)
    find = None if known is not None else find_in(k, spec)
    bounds, rows = k.buffer("bounds", U32), k.buffer("rows", U32)
    with column.rows() as (row, word):
        place = find(word) if known is None and find is not None else known[row].to(I64)  # type: ignore[index]  # one of the two is there
        at = increment(k, spec, bounds, place + 1)
        k.store(rows, at.to(I64), row.to(U32))
    k.ret(column.hi)
    return k.build()


def npj_probe(spec: JoinSpec) -> Kernel:
    """Look the right rows up. Counting, `bounds` still holds counts, one place further on."""
    k = KernelBuilder("npj_probe")
    column, find, bounds = Column.declare(k, spec), find_in(k, spec), k.buffer("bounds", U32)
    if not spec.pairs:
        total = k.var("total", 0)
        with column.rows() as (_, word):
            k.set(total, total + bounds[find(word) + 1].to(I64))
        k.ret(total)
        return k.build()
    rows, pairs = k.buffer("rows", U32), Pairs.declare(k)
    with column.rows() as (row, word):
        place = k.var("place", find(word))
        start, stop = k.var("start", bounds[place].to(I64)), k.var("stop", bounds[place + 1].to(I64))
        pairs.require(stop - start, row)
        pairs.run(rows, start, stop, row)
    pairs.finish(column.hi)
    return k.build()

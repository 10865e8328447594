"""Kernels that coalesce regularly spaced values into runs of equal values."""

from __future__ import annotations

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, I64, U8, Kernel, Type, Value, Var


def differing(a: Value, b: Value) -> Value:
    """Return whether two values differ: -0.0 equals 0.0, and NaN equals NaN whatever its sign and payload."""
    return a.ne(b) & (a.eq(a) | b.eq(b)) if a.type.is_float else a.ne(b)


def beginnings(type: Type, nullable: bool) -> Kernel:
    """Write the rows at which runs of values of a machine type begin; `valid` has one byte per row.

    `before` and `before_valid` hold the value before the first row. If `first` is not 0 there is none, and the first
    row begins a run. Every row is written and overwritten by the next unless it begins a run, which is branch-free.
    The kernel returns the number of runs. The output needs room for one more element than there are rows.
    """
    k = KernelBuilder("beginnings")
    rows, fresh = k.scalar("rows"), k.scalar("first").ne(0)
    places = k.buffer("places", I64)
    values, valid = k.buffer("values", type), k.buffer("valid", U8) if nullable else None
    last = k.var("last", k.buffer("before", type)[0])
    last_there = k.var("last_there", k.buffer("before_valid", U8)[0].ne(0) if nullable else True, BOOL)
    found = k.var("found", 0)
    with k.for_(0, rows, "row", scalar=True) as row:
        value = k.var("value", values[row])
        there = k.var("there", valid[row].ne(0) if valid is not None else True, BOOL)
        k.store(places, found, row)
        begins = _begins(k, value, there, last, last_there) | (fresh & row.eq(0))
        k.set(found, found + begins.to(I64))
        k.set(last, value)
        k.set(last_there, there)
    k.ret(found)
    return k.build()


def intervals(type: Type, nullable: bool) -> Kernel:
    """Write the intervals of a signal whose row r begins at `origin + r * stride`: starts, ends and first values.

    Nulls yield no interval. With `open` 1 the first interval has already begun; its start and value are in the output.
    The last interval has no end if the last row is not null. As in `beginnings`, every row is written and kept only if
    a run begins or ends. The kernel returns the number of begun intervals. The outputs need room for two more elements
    than there are rows.
    """
    k = KernelBuilder("intervals")
    rows, origin, stride, open_ = (k.scalar(name) for name in ("rows", "origin", "stride", "open"))
    starts, ends, out = k.buffer("starts", I64), k.buffer("ends", I64), k.buffer("out", type)
    values, valid = k.buffer("values", type), k.buffer("valid", U8) if nullable else None
    last = k.var("last", out[0])
    last_there = k.var("last_there", open_.ne(0), BOOL)
    found = k.var("found", open_)
    with k.for_(0, rows, "row", scalar=True) as row:
        value = k.var("value", values[row])
        there = k.var("there", valid[row].ne(0) if valid is not None else True, BOOL)
        time = k.var("time", origin + row * stride)
        begins = _begins(k, value, there, last, last_there)
        k.store(ends, found - (begins & last_there).to(I64), time)
        k.store(starts, found, time)
        k.store(out, found, value)
        k.set(found, found + (begins & there).to(I64))
        k.set(last, value)
        k.set(last_there, there)
    k.ret(found)
    return k.build()


def _begins(k: KernelBuilder, value: Value, there: Value, last: Var, last_there: Var) -> Value:
    """Return whether a run of values or of nulls begins."""
    return k.var("differs", there.ne(last_there) | (differing(value, last) & there))

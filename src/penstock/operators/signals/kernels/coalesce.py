"""Kernels that coalesce values into runs of equal values, and turn coalesced points into runs."""

from __future__ import annotations

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, I64, U8, Kernel, Type, Value, Var, minimum, select


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


NEVER_ENDS = (1 << 63) - 1


def runs() -> Kernel:
    """Write the partition, start, end and position of each point with a value; a partition's last run never ends.

    Every point is written, and overwritten by the next unless it has a value, so the outputs need room for one more.
    The kernel returns the number of runs.
    """
    k = KernelBuilder("runs")
    partitions, rows = k.scalar("partitions"), k.scalar("rows")
    bounds, times, valid = k.buffer("bounds", I64), k.buffer("times", I64), k.buffer("valid", U8)
    out_partition, out_place = k.buffer("out_partition", I64), k.buffer("out_place", I64)
    out_start, out_end = k.buffer("out_start", I64), k.buffer("out_end", I64)
    found = k.var("found", 0)
    with k.for_(0, partitions, "partition", scalar=True) as partition:
        end = k.var("end", bounds[partition + 1])
        with k.for_(bounds[partition], end, "i", scalar=True) as i:
            k.store(out_partition, found, partition)
            k.store(out_place, found, i)
            k.store(out_start, found, times[i])
            following = times[minimum(i + 1, rows - 1)]
            k.store(out_end, found, select(i + 1 < end, following, NEVER_ENDS))
            k.set(found, found + valid[i].ne(0).to(I64))
    k.ret(found)
    return k.build()

"""Keep the values that differ from the one before: regular values become runs."""

from __future__ import annotations

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, I64, TYPES, U8, Bitcast, Kernel, Type, Value


def differing(a: Value, b: Value) -> Value:
    """Tell two values apart by their bits, so that -0.0 is not 0.0; but NaN is NaN, whatever its sign and payload."""
    if not a.type.is_float:
        return a.ne(b)
    words = TYPES[f"i{a.type.bits}"]
    return Bitcast(a, words).ne(Bitcast(b, words)) & (a.eq(a) | b.eq(b))


def coalesce(type: Type, nullable: bool) -> Kernel:
    """Write where runs begin, and their values, of a machine type; `valid` has a byte for each.

    `before` and `before_valid` are what came just before the first row; with `first` not 0 nothing did, and the
    first row begins a run. Every row is written, and overwritten by the next unless it counts: that costs no branch.
    Returns how many runs begin. Room is needed for one more than there are rows.
    """
    k = KernelBuilder("coalesce")
    rows, first = k.scalar("rows"), k.scalar("first")
    values, out = k.buffer("values", type), k.buffer("out", type)
    places = k.buffer("places", I64)
    before = k.var("last", k.buffer("before", type)[0])
    valid = k.buffer("valid", U8) if nullable else None
    out_valid = k.buffer("out_valid", U8) if nullable else None
    before_valid = k.var("last_valid", k.buffer("before_valid", U8)[0]) if nullable else None
    found = k.var("found", 0)
    fresh = k.var("fresh", first.ne(0), BOOL)
    with k.for_(0, rows, "row", scalar=True) as row:
        value = k.var("value", values[row])
        differs: Value = differing(value, before)
        k.store(places, found, row)
        k.store(out, found, value)
        if valid is not None and out_valid is not None and before_valid is not None:
            there = k.var("there", valid[row])
            k.store(out_valid, found, there)
            differs = there.ne(before_valid) | (differs & there.ne(0))
            differs = k.var("differs", differs)  # before what it compares with moves on
            k.set(before_valid, there)
        k.set(found, found + (differs | fresh).to(I64))
        k.set(before, value)
        k.set(fresh, False)
    k.ret(found)
    return k.build()

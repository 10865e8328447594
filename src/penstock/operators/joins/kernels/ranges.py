"""Kernels that find matching rows in sorted partitions, and gather the columns of results by row number.

Both sides are partitioned by key (a partition is a `partition`) and sorted by a value, mostly time, within a partition. So
both ends of a row's range only move forward. Buffers of right values have one spare element, which is read but not
used.
"""

from __future__ import annotations

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I64, U64, Bitcast, Kernel, Type, Value, maximum, minimum


def find_ranges(listed: bool) -> Kernel:
    """Find, for each left row of the partitions `begin … end`, the range of right rows with values in [since, until].

    If `listed`, the bounds are columns of the left rows; otherwise they are the left value plus `lo` and plus `hi`.
    The range is written at the left row's original position, from `places`.
    """
    k = KernelBuilder("find_ranges")
    left, left_bounds = k.buffer("left", I64), k.buffer("left_bounds", I64)
    right, right_bounds = k.buffer("right", I64), k.buffer("right_bounds", I64)
    places, first, last = k.buffer("places", I64), k.buffer("first", I64), k.buffer("last", I64)
    begin, end = k.scalar("begin"), k.scalar("end")
    if listed:
        since, until = k.buffer("since", I64), k.buffer("until", I64)
    else:
        lo, hi = k.scalar("lo"), k.scalar("hi")
    with k.for_(begin, end, "partition") as partition:
        low = k.var("low", right_bounds[partition])
        high = k.var("high", low)
        stop = k.var("stop", right_bounds[partition + 1])
        with k.for_(left_bounds[partition], left_bounds[partition + 1], "row") as row:
            if listed:
                least, most = k.var("least", since[row]), k.var("most", until[row])
            else:
                least, most = k.var("least", left[row] + lo), k.var("most", left[row] + hi)
            with k.while_((low < stop) & (right[low] < least)):
                k.set(low, low + 1)
            with k.while_((high < stop) & (right[high] <= most)):
                k.set(high, high + 1)
            place = k.var("place", places[row])
            k.store(first, place, low)
            k.store(last, place, maximum(low, high))
    k.ret(0)
    return k.build()


def expand_ranges() -> Kernel:
    """Write a pair for each row `begin … end` and each right row in its range, from position `starts[row]` on.

    `places` maps a position in the sorted partitions to the original row.
    """
    k = KernelBuilder("expand_ranges")
    first, last, starts = k.buffer("first", I64), k.buffer("last", I64), k.buffer("starts", I64)
    places, own, other = k.buffer("places", I64), k.buffer("own", I64), k.buffer("other", I64)
    begin, end = k.scalar("begin"), k.scalar("end")
    with k.for_(begin, end, "row", scalar=True) as row:
        at = k.var("at", starts[row] - first[row])
        with k.for_(first[row], last[row], "place", scalar=True) as place:
            k.store(own, at + place, row)
            k.store(other, at + place, places[place])
    k.ret(0)
    return k.build()


def last_before(exact: bool) -> Kernel:
    """Find, for each left row, the last right row of its key at or before its time (before, unless `exact`), or -1.

    Rows are sorted by time. `known` holds the last row of each key: initially of the right rows before `begin`, or -1;
    finally of all right rows. Rows further than `reach` away do not match; a reach of -1 is unlimited.
    """
    k = KernelBuilder("last_before")
    sides = _Sides(k)
    at = k.var("at", k.scalar("begin"))
    with k.for_(0, sides.rows, "row") as row:
        time = k.var("time", sides.left[row])
        here = sides.right[minimum(at, sides.others - 1)]
        passed = here <= time if exact else here < time
        with k.while_((at < sides.others) & passed):
            k.store(sides.known, sides.right_keys[at], at)
            k.set(at, at + 1)
        found = k.var("found", sides.known[sides.left_keys[row]])
        sides.answer(row, found, time - sides.right[maximum(found, 0)])
    with k.while_(at < sides.others):
        k.store(sides.known, sides.right_keys[at], at)
        k.set(at, at + 1)
    k.ret(0)
    return k.build()


def next_after(exact: bool) -> Kernel:
    """Find, for each left row, the right row with the first time of its key at or after it; of equal times, the last.

    This mirrors `last_before`: rows are visited last to first, and only an earlier time replaces the entry in `known`.
    """
    k = KernelBuilder("next_after")
    sides = _Sides(k)
    at = k.var("at", sides.others - 1)
    with k.for_(0, sides.rows, "turn") as turn:
        row = k.var("row", sides.rows - 1 - turn)
        time = k.var("time", sides.left[row])
        here = maximum(at, 0)
        passed = sides.right[here] >= time if exact else sides.right[here] > time
        with k.while_((at >= 0) & passed):
            key = k.var("key", sides.right_keys[at])
            known = k.var("before", sides.known[key])
            with k.if_((known < 0) | (sides.right[at] < sides.right[maximum(known, 0)])):
                k.store(sides.known, key, at)
            k.set(at, at - 1)
        found = k.var("found", sides.known[sides.left_keys[row]])
        sides.answer(row, found, sides.right[maximum(found, 0)] - time)
    k.ret(0)
    return k.build()


class _Sides:
    """The parameters of both as-of kernels."""

    def __init__(self, k: KernelBuilder) -> None:
        self.k = k
        self.left, self.left_keys = k.buffer("left", I64), k.buffer("left_keys", I64)
        self.right, self.right_keys = k.buffer("right", I64), k.buffer("right_keys", I64)
        self.known, self.found = k.buffer("known", I64), k.buffer("found", I64)
        self.rows, self.others, self.reach = k.scalar("rows"), k.scalar("others"), k.scalar("reach")

    def answer(self, row: Value, found: Value, apart: Value) -> None:
        """Write the match if its distance is within `reach`. Unsigned: distances may exceed 63 bits, and -1 is no limit."""
        k = self.k
        near = Bitcast(apart, U64) <= Bitcast(self.reach, U64)
        k.store(self.found, row, -1)
        with k.if_((found >= 0) & near):
            k.store(self.found, row, found)


def gather(value: Type, place: Type) -> Kernel:
    """Write out[i] = values[places[i]] for i in `lo … hi`."""
    k = KernelBuilder("gather")
    values, places, out = k.buffer("values", value), k.buffer("places", place), k.buffer("out", value)
    with k.for_(k.scalar("lo"), k.scalar("hi"), "i") as i:
        k.store(out, i, values[places[i].to(I64)])
    k.ret(0)
    return k.build()


def gather_later(place: Type) -> Kernel:
    """Write the later of the two times of each pair of rows."""
    k = KernelBuilder("gather_later")
    left, right = k.buffer("left", I64), k.buffer("right", I64)
    own, other, out = k.buffer("own", place), k.buffer("other", place), k.buffer("out", I64)
    with k.for_(k.scalar("lo"), k.scalar("hi"), "i") as i:
        k.store(out, i, maximum(left[own[i].to(I64)], right[other[i].to(I64)]))
    k.ret(0)
    return k.build()

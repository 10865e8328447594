"""The no-partitioning join with pairs in result order: by left row, then by right row.

The table of right rows is built as in `no_partitioning.py`, but each thread fills the runs of a disjoint range of
places, so a run's rows stay in order. Left rows then store the start and end of their run. The run lengths determine
each row's output position, so the output is neither resized nor sorted.

    npj_insert npj_count npj_starts   fill_places   find_runs   expand_runs
"""

from __future__ import annotations

from penstock.algorithms.joins.kernels.no_partitioning import Walk, increment
from penstock.loop.abi import JoinSpec
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I32, I64, U32, Kernel, Value, const, maximum

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

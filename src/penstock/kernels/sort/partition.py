"""Put rows into lanes: a counting sort that keeps the order of rows within a lane.

Two passes over the rows, no comparison: `count_lanes` tells how many rows each lane has, the runtime turns
that into the places where lanes begin, and `fill_lanes` carries the rows there. Rows are read one after the
other and written to as many places as there are lanes: their lines stay in the cache, which is what makes
this several times faster than fetching rows lane by lane.
"""

from __future__ import annotations

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I64, Kernel, Type


def count_lanes() -> Kernel:
    """Add the rows `lo … hi` of each lane to `counts`, and note the first of each in `first`."""
    k = KernelBuilder("count_lanes")
    lanes, counts, first = k.buffer("lanes", I64), k.buffer("counts", I64), k.buffer("first", I64)
    lo, hi = k.scalar("lo"), k.scalar("hi")
    with k.for_(lo, hi, "i") as i:
        lane = k.var("lane", lanes[i])
        count = k.var("count", counts[lane])
        with k.if_(count.eq(0)):
            k.store(first, lane, i)
        k.store(counts, lane, count + 1)
    k.ret(hi)
    return k.build()


def fill_lanes(columns: tuple[Type, ...]) -> Kernel:
    """Carry columns of the rows `lo … hi`: `places` tells where each lane's next row goes."""
    k = KernelBuilder("fill_lanes")
    lanes, places = k.buffer("lanes", I64), k.buffer("places", I64)
    sources = [k.buffer("in", each) for each in columns]
    targets = [k.buffer("out", each) for each in columns]
    lo, hi = k.scalar("lo"), k.scalar("hi")
    with k.for_(lo, hi, "i") as i:
        lane = k.var("lane", lanes[i])
        place = k.var("place", places[lane])
        for source, target in zip(sources, targets, strict=True):
            k.store(target, place, source[i])
        k.store(places, lane, place + 1)
    k.ret(hi)
    return k.build()

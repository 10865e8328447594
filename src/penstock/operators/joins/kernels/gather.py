"""Gather kernels: fetch values by row number for the columns of a join's result."""

from __future__ import annotations

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I64, Kernel, Type, maximum


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

"""The kernel that samples a signal: for every instant of a list, the last point up to it."""

from __future__ import annotations

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I64, Kernel


def locate() -> Kernel:
    """Write, for each instant of each partition, the position of the last point at or before instant - `shift`, or -1."""
    k = KernelBuilder("locate")
    partitions, shift = k.scalar("partitions"), k.scalar("shift")
    instants, instant_bounds = k.buffer("instants", I64), k.buffer("instant_bounds", I64)
    times, bounds, out = k.buffer("times", I64), k.buffer("bounds", I64), k.buffer("out", I64)
    with k.for_(0, partitions, "partition", scalar=True) as partition:
        begin, end = k.var("begin", bounds[partition]), k.var("end", bounds[partition + 1])
        at = k.var("at", begin)
        when = k.var("when", 0)
        going = k.var("going", 0)
        with k.for_(instant_bounds[partition], instant_bounds[partition + 1], "row", scalar=True) as row:
            k.set(when, instants[row] - shift)
            k.set(going, 1)
            with k.while_(going.ne(0)):
                k.set(going, 0)
                with k.if_(at < end):
                    passed = k.var("passed", (times[at] <= when).to(I64))
                    k.set(at, at + passed)
                    k.set(going, passed)
            k.store(out, row, at - 1)
            with k.if_(at.eq(begin)):
                k.store(out, row, -1)
    k.ret(0)
    return k.build()

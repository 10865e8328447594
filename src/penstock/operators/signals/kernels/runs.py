"""The kernel that turns coalesced points (adjacent values differ) into runs."""

from __future__ import annotations

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I64, U8, Kernel, minimum, select

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

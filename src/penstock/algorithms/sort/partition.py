"""Partition rows by key (a partition is a `partition`): a stable counting sort.

Two passes over the rows, no comparison: `count_partitions` counts the rows of each partition, the runtime turns counts into
start positions, and `fill_partitions` scatters the rows. Rows are read sequentially and written to one position per
partition. The written cache lines stay in the cache, so this is several times faster than gathering rows partition by
partition. If there are too many partitions for that, `fill_many_partitions` first orders the rows of a chunk by groups of
partitions, so that it writes the cache lines of one group at a time.
"""

from __future__ import annotations

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I64, Buffer, Kernel, Type, Value, minimum

PARTITION_CHUNK = (
    1 << 16
)  # rows per chunk: with their columns they stay in a core's private cache, or nearly so
GROUP_BITS = (
    7  # log2 of the partitions per group: their cache lines, for several columns, stay in the L1 cache
)


def count_partitions() -> Kernel:
    """Add the number of rows `lo … hi` of each partition to `counts`, and store the first row of each in `first`."""
    k = KernelBuilder("count_partitions")
    partitions, counts, first = k.buffer("partitions", I64), k.buffer("counts", I64), k.buffer("first", I64)
    lo, hi = k.scalar("lo"), k.scalar("hi")
    with k.for_(lo, hi, "i") as i:
        partition = k.var("partition", partitions[i])
        count = k.var("count", counts[partition])
        with k.if_(count.eq(0)):
            k.store(first, partition, i)
        k.store(counts, partition, count + 1)
    k.ret(hi)
    return k.build()


def fill_partitions(columns: tuple[Type, ...]) -> Kernel:
    """Scatter the columns of the rows `lo … hi`; `places` holds each partition's next write position."""
    k = KernelBuilder("fill_partitions")
    partitions, places = k.buffer("partitions", I64), k.buffer("places", I64)
    sources = [k.buffer("in", column) for column in columns]
    targets = [k.buffer("out", column) for column in columns]
    lo, hi = k.scalar("lo"), k.scalar("hi")
    with k.for_(lo, hi, "i") as i:
        _carry(k, places, k.var("partition", partitions[i]), sources, targets, i)
    k.ret(hi)
    return k.build()


def fill_many_partitions(columns: tuple[Type, ...]) -> Kernel:
    """Scatter as `fill_partitions` does, via the buffer `held`, which orders a chunk's rows by group; `ends` has one entry per group."""
    k = KernelBuilder("fill_many_partitions")
    partitions, places = k.buffer("partitions", I64), k.buffer("places", I64)
    sources = [k.buffer("in", column) for column in columns]
    targets = [k.buffer("out", column) for column in columns]
    held = [k.buffer("held", column_type) for column_type in (I64, *columns)]
    lo, hi, groups, ends = k.scalar("lo"), k.scalar("hi"), k.scalar("groups"), k.buffer("ends", I64)
    begin = k.var("begin", lo)
    with k.while_(begin < hi):
        end = k.var("end", minimum(begin + PARTITION_CHUNK, hi))
        _begin_groups(k, partitions, begin, end, groups, ends)
        with k.for_(begin, end, "i") as i:
            group = k.var("group", partitions[i] >> GROUP_BITS)
            _carry(k, ends, group, [partitions, *sources], held, i)
        with k.for_(0, end - begin, "j") as j:
            _carry(k, places, k.var("partition", held[0][j]), held[1:], targets, j)
        k.set(begin, end)
    k.ret(hi)
    return k.build()


def _carry(
    k: KernelBuilder,
    places: Buffer,
    partition: Value,
    sources: list[Buffer],
    targets: list[Buffer],
    row: Value,
) -> None:
    """Copy a row to the next position of its partition."""
    place = k.var("place", places[partition])
    for source, target in zip(sources, targets, strict=True):
        k.store(target, place, source[row])
    k.store(places, partition, place + 1)


def _begin_groups(
    k: KernelBuilder, partitions: Buffer, begin: Value, end: Value, groups: Value, ends: Buffer
) -> None:
    """Count the rows of each group, and turn counts into start positions."""
    with k.for_(0, groups, "g") as g:
        k.store(ends, g, 0)
    with k.for_(begin, end, "i") as i:
        group = k.var("group", partitions[i] >> GROUP_BITS)
        k.store(ends, group, ends[group] + 1)
    total = k.var("total", 0)
    with k.for_(0, groups, "g") as g:
        count = k.var("count", ends[g])
        k.store(ends, g, total)
        k.set(total, total + count)

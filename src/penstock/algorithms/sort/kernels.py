"""Sort kernels: radix sort of row numbers, counting sort by key, ranks of sorted keys and of floats.

Keys move with the row numbers, so every pass reads sequentially. If both fit into one 64-bit word they move as one,
with the key above the row number.

Two passes over the rows, no comparison: `count_partitions` counts the rows of each partition, the runtime turns counts into
start positions, and `fill_partitions` scatters the rows. Rows are read sequentially and written to one position per
partition. The written cache lines stay in the cache, so this is several times faster than gathering rows partition by
partition. If there are too many partitions for that, `fill_many_partitions` first orders the rows of a chunk by groups of
partitions, so that it writes the cache lines of one group at a time.

A word packs the high bits of a float's sort key above the row number. Keys are shifted until the largest fills its
word, so that the highest bits distinguish them. Words are radix-sorted by their highest 32 bits; insertion sort orders
the few words that are equal there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.algorithms.expressions.cells import is_nan
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import (
    BOOL,
    F64,
    I32,
    I64,
    U64,
    Bitcast,
    Buffer,
    Kernel,
    Type,
    Unary,
    Value,
    Var,
    const,
    maximum,
    minimum,
    select,
)

DIGIT_BITS = 8
DIGITS = 1 << DIGIT_BITS


def radix_pass() -> Kernel:
    """Reorder keys and rows by one digit of (key - least), the one at `shift`."""
    k = KernelBuilder("radix_pass")
    keys, order = k.buffer("keys", I64), k.buffer("order", I64)
    sorted_keys, sorted_order = k.buffer("sorted_keys", I64), k.buffer("sorted_order", I64)
    counts, rows = k.buffer("counts", I64), k.scalar("rows")
    least, shift = k.scalar("least"), k.scalar("shift")
    with k.for_(0, DIGITS, "d") as d:
        k.store(counts, d, 0)
    with k.for_(0, rows, "i") as i:
        digit = k.var("digit", ((keys[i] - least) >> shift) & (DIGITS - 1))
        k.store(counts, digit, counts[digit] + 1)
    total = k.var("total", 0)
    with k.for_(0, DIGITS, "d") as d:
        here = k.var("here", counts[d])
        k.store(counts, d, total)
        k.set(total, total + here)
    with k.for_(0, rows, "i") as i:
        key = k.var("key", keys[i])
        digit = k.var("digit", ((key - least) >> shift) & (DIGITS - 1))
        place = k.var("place", counts[digit])
        k.store(sorted_keys, place, key)
        k.store(sorted_order, place, order[i])
        k.store(counts, digit, place + 1)
    k.ret(0)
    return k.build()


def sort_words() -> Kernel:
    """Write row numbers in key order to `words`. Return 1, or 0 if the sort failed.

    A word is (key - least) without its lowest `drop` bits, above the row number in `bits` bits. The radix sort uses the
    bits from `low` to `high`, two digits at a time. Insertion sort orders the few words that differ only below; it
    fails after `patience` steps. The sort also fails if keys that differ only in the dropped bits are out of order.
    """
    k = KernelBuilder("sort_words")
    keys, rows, mask = k.buffer("keys", I64), k.scalar("rows"), k.scalar("mask")
    words, spare = k.buffer("words", I64), k.buffer("spare", I64)
    low, high, patience = k.scalar("low"), k.scalar("high"), k.scalar("patience")
    _pack(k, keys, words, rows)
    shift = k.var("shift", low)
    counts = k.local("low_counts", I64, DIGITS), k.local("high_counts", I64, DIGITS)
    with k.while_(shift < high):
        _count_digits(k, words, rows, shift, counts)
        _carry_by_digit(k, words, spare, rows, lambda word: word >> shift, counts[0])
        _carry_by_digit(k, spare, words, rows, lambda word: (word >> shift) >> DIGIT_BITS, counts[1])
        k.set(shift, shift + 2 * DIGIT_BITS)
    found = settled(k, words, rows, patience)
    fallen = _unpacked(k, words, keys, rows, mask)
    k.ret((found & ~fallen).to(I64))
    return k.build()


def _pack(k: KernelBuilder, keys: Buffer, words: Buffer, rows: Value) -> None:
    least, drop, bits = k.scalar("least"), k.scalar("drop", U64), k.scalar("bits", U64)
    with k.for_(0, rows, "i") as i:
        key = ((keys[i] - least).to(U64) >> drop) << bits
        k.store(words, i, (key | i.to(U64)).to(I64))


def _count_digits(
    k: KernelBuilder, words: Buffer, rows: Value, shift: Value, counts: tuple[Buffer, Buffer]
) -> None:
    """Compute the start of each digit's words, for two digits in one pass."""
    with k.for_(0, DIGITS, "d") as d:
        for count in counts:
            k.store(count, d, 0)
    with k.for_(0, rows, "i") as i:
        word = k.var("word", words[i] >> shift)
        for place, count in enumerate(counts):
            digit = k.var("digit", (word >> (place * DIGIT_BITS)) & (DIGITS - 1))
            k.store(count, digit, count[digit] + 1)
    totals = [k.var("total", 0) for _ in counts]
    with k.for_(0, DIGITS, "d") as d:
        for total, count in zip(totals, counts, strict=True):
            here = k.var("here", count[d])
            k.store(count, d, total)
            k.set(total, total + here)


def _carry_by_digit(
    k: KernelBuilder,
    source: Buffer,
    target: Buffer,
    rows: Value,
    shifted: Callable[[Value], Value],
    places: Buffer,
) -> None:
    with k.for_(0, rows, "i") as i:
        word = k.var("word", source[i])
        digit = k.var("digit", shifted(word) & (DIGITS - 1))
        place = k.var("place", places[digit])
        k.store(target, place, word)
        k.store(places, digit, place + 1)


def settled(k: KernelBuilder, words: Buffer, rows: Value, patience: Value) -> Value:
    """Insertion-sort nearly sorted words; return whether `patience` steps were enough."""
    i, last, left = k.var("i", 1), k.var("last", words[0]), k.var("left", patience)
    with k.while_((i < rows) & (left >= 0)):
        word = k.var("word", words[i])
        with k.if_(word < last):
            place = k.var("place", i)
            with k.while_((place > 0) & (words[maximum(place - 1, 0)] > word)):
                k.store(words, place, words[place - 1])
                k.set(place, place - 1)
            k.store(words, place, word)
            k.set(left, left - (i - place))
        with k.else_():
            k.set(last, word)
        k.set(i, i + 1)
    return k.var("settled", left >= 0)


def _unpacked(k: KernelBuilder, words: Buffer, keys: Buffer, rows: Value, mask: Value) -> Value:
    """Reduce each word to its row number; return whether keys are out of order."""
    fallen, before = k.var("fallen", False, BOOL), k.var("before", keys[words[0] & mask])
    with k.for_(0, rows, "i") as i:
        row = k.var("row", words[i] & mask)
        key = k.var("key", keys[row])
        k.set(fallen, fallen | (key < before))
        k.set(before, key)
        k.store(words, i, row)
    return fallen


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
        _carry_row(k, places, k.var("partition", partitions[i]), sources, targets, i)
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
            _carry_row(k, ends, group, [partitions, *sources], held, i)
        with k.for_(0, end - begin, "j") as j:
            _carry_row(k, places, k.var("partition", held[0][j]), held[1:], targets, j)
        k.set(begin, end)
    k.ret(hi)
    return k.build()


def _carry_row(
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


_NAN_BITS = 0x7FF8000000000000


def float_words() -> Kernel:
    """Write integers that order like the floats: all NaNs are one value and the largest, -0.0 equals 0.0.

    The bit patterns of non-negative floats are ordered already; those of negative floats are in reverse order.
    """
    k = KernelBuilder("float_words")
    values, words, rows = k.buffer("values", F64), k.buffer("words", I64), k.scalar("rows")
    with k.for_(0, rows, "i") as i:
        k.store(words, i, float_word(k, values[i]))
    k.ret(0)
    return k.build()


def float_word(k: KernelBuilder, value: Value) -> Value:
    """Return the order-preserving integer of a float."""
    value = k.var("value", value + 0.0)
    bits = k.var("bits", select(is_nan(value), const(_NAN_BITS, I64), Bitcast(value, I64)))
    return bits ^ ((bits >> 63) & ((1 << 63) - 1))


def assign_ranks() -> Kernel:
    """Write the rank of each row's key, and the first row of each rank; return the number of ranks."""
    k = KernelBuilder("assign_ranks")
    keys, order = k.buffer("keys", I64), k.buffer("sorted_order", I64)
    ranks, first, rows = k.buffer("ranks", I64), k.buffer("first", I64), k.scalar("rows")
    found, before = k.var("found", 0), k.var("before", 0)
    with k.for_(0, rows, "i") as i:
        row = k.var("row", order[i])
        key = k.var("key", keys[row])
        new = k.var("new", (i.eq(0) | key.ne(before)).to(I64))
        k.set(found, found + new)
        k.store(ranks, row, found - 1)
        with k.if_(new.ne(0)):
            k.store(first, found - 1, row)
        k.set(before, key)
    k.ret(found)
    return k.build()


_SHIFTS = tuple(range(32, 64, DIGIT_BITS))


def place_floats() -> Kernel:
    """Write each row's rank to `places`, and the sorted values. Return 1, or 0 if the sort failed.

    Row numbers take `bits` bits. The sort fails if insertion takes more than `patience` steps, or if keys that differ
    only in the dropped bits are out of order.
    """
    k = KernelBuilder("place_floats")
    values, rows, bits = k.buffer("values", F64), k.scalar("rows"), k.scalar("bits", U64)
    words, spare = k.buffer("words", U64), k.buffer("spare", U64)
    mask = k.var("mask", (const(1, U64) << bits) - const(1, U64))
    counts = [k.local("counts", I32, DIGITS) for _ in _SHIFTS]
    _pack_floats(k, values, words, rows, mask)
    _count(k, words, rows, counts)
    for shift, count in zip(_SHIFTS, counts, strict=True):
        _carry_words(k, words, spare, rows, shift, count)
        words, spare = spare, words
    found = settled(k, words, rows, k.scalar("patience"))
    fallen = _placed(k, values, words, rows, mask)
    k.ret((found & ~fallen).to(I64))
    return k.build()


def _pack_floats(k: KernelBuilder, values: Buffer, words: Buffer, rows: Value, mask: Value) -> None:
    first = k.var("first", float_word(k, values[0]))
    least, most = k.var("least", first), k.var("most", first)
    with k.for_(0, rows, "i") as i:
        key = k.var("key", float_word(k, values[i]))
        k.store(words, i, Bitcast(key, U64))
        k.set(least, minimum(least, key))
        k.set(most, maximum(most, key))
    lead = k.var("lead", Unary("clz", Bitcast(most - least, U64) | mask))
    with k.for_(0, rows, "i") as i:
        spread = (words[i] - Bitcast(least, U64)) << lead
        k.store(words, i, (spread & ~mask) | Bitcast(i, U64))


def _count(k: KernelBuilder, words: Buffer, rows: Value, counts: Sequence[Buffer]) -> None:
    """Compute the start of each digit's words, for all digits in one pass."""
    for count in counts:
        with k.for_(0, DIGITS, "d") as d:
            k.store(count, d, 0)
    with k.for_(0, rows, "i") as i:
        word = k.var("word", words[i])
        for shift, count in zip(_SHIFTS, counts, strict=True):
            digit = _digit(k, word, shift)
            k.store(count, digit, count[digit] + 1)
    for count in counts:
        total = k.var("total", 0, I32)
        with k.for_(0, DIGITS, "d") as d:
            here = k.var("here", count[d])
            k.store(count, d, total)
            k.set(total, total + here)


def _carry_words(
    k: KernelBuilder, source: Buffer, target: Buffer, rows: Value, shift: int, places: Buffer
) -> None:
    with k.for_(0, rows, "i") as i:
        word = k.var("word", source[i])
        digit = _digit(k, word, shift)
        place = k.var("place", places[digit])
        k.store(target, place.to(I64), word)
        k.store(places, digit, place + 1)


def _placed(k: KernelBuilder, values: Buffer, words: Buffer, rows: Value, mask: Value) -> Value:
    """Write the ranks and the sorted values; return whether any value is out of order."""
    places, in_order = k.buffer("places", I32), k.buffer("in_order", F64)
    fallen = k.var("fallen", False, BOOL)
    before = k.var("before", const(-(1 << 63), I64))
    with k.for_(0, rows, "i") as i:
        row = k.var("row", Bitcast(words[i] & mask, I64))
        value = k.var("value", values[row])
        k.store(places, row, i.to(I32))
        k.store(in_order, i, value)
        key = k.var("key", float_word(k, value))
        k.set(fallen, fallen | (key < before))
        k.set(before, key)
    return fallen


def _digit(k: KernelBuilder, word: Value, shift: int) -> Var:
    return k.var("digit", Bitcast((word >> const(shift, U64)) & const(DIGITS - 1, U64), I64))


_BLOCK = 2048  # times between two checks of the result: long enough to vectorise


def falls() -> Kernel:
    """Return 1 if one of the times `lo` … `hi` is less than the one before it, else 0; `lo` must be at least 1."""
    k = KernelBuilder("falls")
    times, lo, hi = k.buffer("times", I64), k.scalar("lo"), k.scalar("hi")
    begin, fallen = k.var("begin", lo), k.var("fallen", 0)
    with k.while_((begin < hi) & fallen.eq(0)):
        end = k.var("end", minimum(begin + _BLOCK, hi))
        with k.for_(begin, end, "i") as i:
            k.set(fallen, fallen | (times[i] < times[i - 1]).to(I64))
        k.set(begin, end)
    k.ret(fallen)
    return k.build()

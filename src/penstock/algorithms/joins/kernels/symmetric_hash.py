"""The symmetric hash join: each arriving row is inserted into its side's table and probes the other side's table.

Both tables share their slots, so one probe does both. A slot is two words: the code, and two 32-bit numbers, one per
side. The number is the row count (counting), or the last row + 1 (pairing), from which `next` links to the previous
row. Both are 0 in a free slot.
"""

from __future__ import annotations

from penstock.algorithms.hash_table.kernels import probe
from penstock.algorithms.joins.kernels.key_words import SLOTS_PER_BLOCK, Pairs, blocks, hashed, to_place
from penstock.loop.abi import KEYS, NEED_KEYS, OUTPUT, SLOTS, STATUS, JoinSpec
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I64, U32, U64, Bitcast, Buffer, Kernel, Value, Var, const

LOW = (1 << 32) - 1


def shj_push(spec: JoinSpec, side: int) -> Kernel:
    """Insert and probe arriving rows of one side (0 left, 1 right). Stop if the table or the output is full.

    Rows are numbered from `base` on, or, if routed, by `numbers`.
    """
    k = KernelBuilder("shj_push")
    codes, lo, hi = k.buffer("codes", I64), k.scalar("lo"), k.scalar("hi")
    numbers = k.buffer("numbers", U32) if spec.routed and spec.pairs else None
    base = k.scalar("base") if spec.pairs and numbers is None else None
    table, mask, room = k.buffer("table", U64), k.scalar("mask"), k.scalar("key_capacity")
    chains = (k.buffer("own_next", U32), k.buffer("other_next", U32)) if spec.pairs else None
    pairs = Pairs.declare(k) if spec.pairs else None
    head = k.buffer("head", I64) if pairs is None else pairs.head
    keys, total = k.var("keys", head[KEYS]), k.var("total", head[OUTPUT])
    slots = k.local("near", I64, SLOTS_PER_BLOCK)
    fetched = k.var("fetched", const(0, U64))
    with blocks(k, lo, hi) as (first, end):
        with k.for_(first, end, "i") as i:
            slot = k.var("slot", to_place(hashed(Bitcast(codes[i], U64)), mask))
            k.store(slots, i - first, slot)
            k.set(fetched, fetched ^ table[(slot << 1) + 1])
        with k.for_(first, end, "i") as i:
            with k.if_(keys >= room):
                _stop(k, head, keys, total, pairs, i)
            code = k.var("code", Bitcast(codes[i], U64))
            at = search(k, table, mask, code, slots[i - first])
            held = k.var("held", table[at + 1])
            k.set(keys, keys + held.eq(0).to(I64))
            k.store(table, at, code)
            other = k.var("there", _half(held, 1 - side))
            if pairs is None or chains is None:
                k.set(total, total + other)
                k.store(table, at + 1, held + const(1 << (32 * side), U64))
            else:
                number = base + i if base is not None else numbers[i].to(I64)  # type: ignore[index]  # one of the two is set
                row = k.var("row", number)
                _emit(k, pairs, (chains[1], other), row, side, (keys, held, i))
                k.store(chains[0], row, _half(held, side).to(U32))
                k.store(table, at + 1, _with_half(held, side, row + 1))
    k.store(
        head, SLOTS, Bitcast(fetched, I64)
    )  # a dummy store that keeps the compiler from removing the prefetches above
    k.store(head, KEYS, keys)
    if pairs is not None:
        pairs.finish(hi)
    else:
        k.store(head, OUTPUT, total)
        k.store(head, STATUS, 0)
        k.ret(hi)
    return k.build()


def _stop(k: KernelBuilder, head: Buffer, keys: Var, total: Var, pairs: Pairs | None, row: Value) -> None:
    k.store(head, KEYS, keys)
    k.store(head, OUTPUT, total if pairs is None else pairs.used)
    k.store(head, STATUS, NEED_KEYS)
    k.ret(row)


def _emit(
    k: KernelBuilder,
    pairs: Pairs,
    chain: tuple[Buffer, Value],
    row: Value,
    side: int,
    undo: tuple[Var, Value, Value],
) -> None:
    """Emit a pair for each row of the other side's chain. If the output is full, undo this row's effects and stop."""
    following, first = chain
    keys, held, position = undo
    before, at = k.var("before", pairs.used), k.var("chained", first)
    with k.while_(at.ne(0)):
        with k.if_(pairs.used >= pairs.capacity):
            k.set(pairs.used, before)
            k.store(pairs.head, KEYS, keys - held.eq(0).to(I64))
            pairs.stop(position)
        pairs.add(*((row, at - 1) if side == 0 else (at - 1, row)))
        k.set(at, following[at - 1].to(I64))


def search(k: KernelBuilder, table: Buffer, mask: Value, code: Value, near: Value | None = None) -> Var:
    """Return the index of a code's slot, or of a free slot. `near` is the first slot of the probe, if known."""
    first = to_place(hashed(code), mask) if near is None else near
    slot = probe(k, first, mask, lambda slot: table[(slot << 1) + 1].ne(0) & table[slot << 1].ne(code))
    return k.var("at", slot << 1)


def _half(held: Value, side: int) -> Value:
    return Bitcast(held >> const(32, U64) if side else held & const(LOW, U64), I64)


def _with_half(held: Value, side: int, half: Value) -> Value:
    other = held & const(LOW if side else LOW << 32, U64)
    moved = Bitcast(half, U64)
    return other | (moved << const(32, U64) if side else moved)


def shj_grow() -> Kernel:
    """Rehash all slots into a larger, empty table."""
    k = KernelBuilder("shj_grow")
    table, slots = k.buffer("table", U64), k.scalar("slots")
    larger, mask = k.buffer("larger", U64), k.scalar("mask")
    with k.for_(0, slots, "s") as s:
        held = k.var("held", table[(s << 1) + 1])
        with k.if_(held.ne(0)):
            code = k.var("code", table[s << 1])
            at = search(k, larger, mask, code)
            k.store(larger, at, code)
            k.store(larger, at + 1, held)
    k.ret(slots)
    return k.build()


def route_count() -> Kernel:
    """Count the rows `lo … hi` of each worker group; the code's hash chooses the group (join-biclique)."""
    k = KernelBuilder("route_count")
    codes, lo, hi = k.buffer("codes", I64), k.scalar("lo"), k.scalar("hi")
    groups, counts = k.scalar("groups"), k.buffer("counts", I64)
    with k.for_(lo, hi, "i") as i:
        group = k.var("group", _group(codes[i], groups))
        k.store(counts, group, counts[group] + 1)
    k.ret(hi)
    return k.build()


def route_rows(spec: JoinSpec) -> Kernel:
    """Scatter codes, and row numbers if pairs are needed, to their groups."""
    k = KernelBuilder("route_rows")
    codes, lo, hi = k.buffer("codes", I64), k.scalar("lo"), k.scalar("hi")
    groups, cursors, base = k.scalar("groups"), k.buffer("cursors", I64), k.scalar("base")
    routed = k.buffer("routed", I64)
    numbers = k.buffer("numbers", U32) if spec.pairs else None
    with k.for_(lo, hi, "i") as i:
        group = k.var("group", _group(codes[i], groups))
        at = k.var("at", cursors[group])
        k.store(routed, at, codes[i])
        if numbers is not None:
            k.store(numbers, at, (base + i).to(U32))
        k.store(cursors, group, at + 1)
    k.ret(hi)
    return k.build()


def _group(code: Value, groups: Value) -> Value:
    """Map a hash evenly to any number of groups, by other bits than those that choose slots."""
    low = hashed(Bitcast(code, U64)) & const(LOW, U64)
    return Bitcast((low * Bitcast(groups, U64)) >> const(32, U64), I64)

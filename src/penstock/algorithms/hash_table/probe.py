"""Open addressing with linear probing: the find-or-insert loop shared by all tables."""

from __future__ import annotations

from collections.abc import Callable

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I64, U64, Bitcast, Buffer, Value, Var, const, maximum

# Odd 64-bit constants with well-mixed bits (splitmix64's and a golden-ratio multiplier).
_MIX = 0xBF58476D1CE4E5B9
_GOLDEN = 0x9E3779B97F4A7C15


def hash_word(word: Value) -> Value:
    """Mix 64 bits (as unsigned) so that the low bits depend on all."""
    x = (Bitcast(word, U64) if word.type == I64 else word.to(U64)) * const(_GOLDEN, U64)
    return (x ^ (x >> 32)) * const(_MIX, U64)


def combine(seed: Value, word: Value) -> Value:
    """Fold one more word into a hash."""
    return hash_word((seed ^ (seed >> 29)) + hash_word(word))


def find_or_insert(
    k: KernelBuilder,
    hashed: Value,
    buckets: Buffer,
    bucket_mask: Value,
    matches: Callable[[Value], Value],
    insert: Callable[[], Value],
) -> Var:
    """Find the entry of a key, or insert one: `matches(entry)` compares, `insert()` returns a new entry.

    A bucket holds entry + 1, or 0 if empty. The table is never full, so the loop terminates.
    """
    place = k.var("place", Bitcast(hashed ^ (hashed >> 32), I64) & bucket_mask)
    held = k.var("held", buckets[place].to(I64))
    going = held.ne(0) & ~matches(maximum(held - 1, const(0, I64)))
    with k.while_(going):
        k.set(place, (place + 1) & bucket_mask)
        k.set(held, buckets[place].to(I64))
    entry = k.var("entry", held - 1)
    with k.if_(held.eq(0)):
        k.set(entry, insert())
        k.store(buckets, place, (entry + 1).to(buckets.type))
    return entry

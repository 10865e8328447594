"""Open addressing with linear probing: the one probe loop, of the tables of keys, of texts and of joins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

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


@contextmanager
def probing(k: KernelBuilder, first: Value, mask: Value, going: Callable[[Value], Value]) -> Iterator[Var]:
    """Emit the loop of linear probing: the body runs at each place, from `first`, while `going(place)` holds."""
    place = k.var("place", first)
    with k.while_(going(place)):
        yield place
        k.set(place, (place + 1) & mask)


def probe(k: KernelBuilder, first: Value, mask: Value, taken: Callable[[Value], Value]) -> Var:
    """Return the first place that is not `taken`: that of the key, or a free one. No table is ever full."""
    with probing(k, first, mask, taken) as place:
        pass
    return place


def first_place(hashed: Value, mask: Value) -> Value:
    """Return where the probe of a 64-bit hash begins."""
    return Bitcast(hashed ^ (hashed >> 32), I64) & mask


def find_or_insert(
    k: KernelBuilder,
    hashed: Value,
    buckets: Buffer,
    bucket_mask: Value,
    matches: Callable[[Value], Value],
    insert: Callable[[], Value],
) -> Var:
    """Find the entry of a key, or insert one: `matches(entry)` compares, `insert()` returns a new entry.

    A bucket holds entry + 1, or 0 if empty.
    """

    def other(place: Value) -> Value:
        held = buckets[place].to(I64)
        return held.ne(0) & ~matches(maximum(held - 1, const(0, I64)))

    place = probe(k, first_place(hashed, bucket_mask), bucket_mask, other)
    entry = k.var("entry", buckets[place].to(I64) - 1)
    with k.if_(entry < 0):
        k.set(entry, insert())
        k.store(buckets, place, (entry + 1).to(buckets.type))
    return entry

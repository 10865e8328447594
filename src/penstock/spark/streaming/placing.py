"""Name shards so that Spark, which places groups by the hash of their names, gives each a partition of its own."""

from __future__ import annotations

from itertools import count

_MASK = 0xFFFFFFFF
_SEED = 42


def labels(shards: int, partitions: int) -> tuple[int, ...]:
    """Give the smallest numbers that fall into as many different partitions as there are.

    >>> labels(2, 2)
    (0, 2)
    """
    found: list[int] = []
    taken: set[int] = set()
    for number in count():
        if len(found) == shards:
            return tuple(found)
        place = spark_hash(number) % partitions
        if place not in taken:
            found.append(number)
            taken.add(place)
            if len(taken) == partitions:
                taken.clear()
    raise AssertionError


def spark_hash(number: int) -> int:
    """Hash a 32-bit integer as Spark does (Murmur3, x86, 32 bits), as a signed number.

    >>> spark_hash(1)
    -559580957
    """
    mixed = _mixed(_SEED, number & _MASK)
    mixed ^= 4
    mixed = ((mixed ^ (mixed >> 16)) * 0x85EBCA6B) & _MASK
    mixed = ((mixed ^ (mixed >> 13)) * 0xC2B2AE35) & _MASK
    mixed ^= mixed >> 16
    return mixed - (1 << 32) if mixed >> 31 else mixed


def _mixed(state: int, word: int) -> int:
    word = _rotated((word * 0xCC9E2D51) & _MASK, 15)
    word = (word * 0x1B873593) & _MASK
    return (_rotated(state ^ word, 13) * 5 + 0xE6546B64) & _MASK


def _rotated(word: int, by: int) -> int:
    return ((word << by) | (word >> (32 - by))) & _MASK

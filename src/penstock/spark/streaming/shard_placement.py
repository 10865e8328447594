"""Choose shard labels so that Spark's hash partitioning assigns each shard to a separate partition.

A label depends only on the number of the shard, so a restarted query with another number of partitions finds its state.
"""

from __future__ import annotations

from functools import cache

import numpy as np

_SEED = 42
# The remainder by this number determines those by 1 to 10, 12, 14 to 16, 18, 20, 21, 24, 28, 30, 32, … 64.
_ROUND = 20_160
_TRIED = 1 << 18


def labels(shards: int) -> tuple[int, ...]:
    """Return labels whose hashes have the remainders 0, 1, 2, … by every usual number of partitions.

    >>> labels(2) == labels(3)[:2]
    True
    >>> [int(spark_hash(np.array([label]))[0]) % 8 for label in labels(3)]
    [0, 1, 2]
    """
    return tuple(_label(number % _ROUND, number // _ROUND) for number in range(shards))


@cache
def _label(rest: int, turn: int) -> int:
    """Return the `turn`-th smallest number whose hash has the remainder `rest`."""
    begin = 0
    while True:
        numbers = np.arange(begin, begin + _TRIED)
        found = numbers[spark_hash(numbers) % _ROUND == rest]
        if turn < len(found):
            return int(found[turn])
        turn -= len(found)
        begin += _TRIED


def spark_hash(numbers: np.ndarray) -> np.ndarray:
    """Hash 32-bit integers as Spark does (Murmur3, x86, 32 bits), as signed numbers.

    >>> spark_hash(np.array([1])).tolist()
    [-559580957]
    """
    words = numbers.astype(np.uint32)
    mixed = _mixed(np.uint32(_SEED), words) ^ np.uint32(4)
    mixed = (mixed ^ (mixed >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    mixed = (mixed ^ (mixed >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    found: np.ndarray = (mixed ^ (mixed >> np.uint32(16))).view(np.int32).astype(np.int64)
    return found


def _mixed(state: np.uint32, words: np.ndarray) -> np.ndarray:
    words = _rotated(words * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return _rotated(state ^ words, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _rotated(words: np.ndarray, by: int) -> np.ndarray:
    found: np.ndarray = (words << np.uint32(by)) | (words >> np.uint32(32 - by))
    return found

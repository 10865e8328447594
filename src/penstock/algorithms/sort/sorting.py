"""Stable sorting of rows by integers, and ranks of values: kernels for many rows, else comparison sort."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa

from penstock.runtime.buffers import PAIR, indices, plain, room, to_arrow, values_view
from penstock.runtime.kernels import Call
from penstock.runtime.threads import run_on_threads

# Below this many rows, radix passes cost more than comparisons.
FEW_VALUES = 1 << 12
# If fewer than one row in MANY shares its first key, a comparison sort orders those rows by the other keys.
MANY = 4
# Fewer rows than this are not worth a second thread.
SORTED_STRETCH = 1 << 19
# Bits of a word without its sign; and how many of a key's lowest bits may be dropped.
WORD, MOST_DROPPED = 63, 20
# Up to MOST_ROWS rows are sorted by the highest SORTED_BITS bits first: few keys stay equal, and insertion sort orders
# those; it is abandoned after PATIENCE steps per row.
SORTED_BITS, MOST_ROWS, PATIENCE = 32, 1 << 24, 2


@dataclass(frozen=True)
class Sorter:
    """Stable sorting. `radix_pass` orders rows by one digit of `digit_bits` bits.

    `float_words` maps floats to integers of the same order; `assign_ranks` numbers sorted keys; `falls` detects a
    number less than its predecessor. `sort_words` sorts in one call if a key and a row number fit one word;
    `place_floats` does so for the positions of floats.
    """

    radix_pass: Call
    digit_bits: int
    float_words: Call
    assign_ranks: Call
    falls: Call
    sort_words: Call
    place_floats: Call

    def in_order(self, times: np.ndarray, threads: int = 1) -> bool:
        """Whether times never decrease; each thread checks a range of them."""
        if len(times) < FEW_VALUES:
            return bool((times[1:] >= times[:-1]).all())
        cuts = (
            np.linspace(1, len(times), max(min(threads, len(times) // SORTED_STRETCH), 1) + 1)
            .astype(int)
            .tolist()
        )
        fallen = np.zeros(len(cuts) - 1, np.int64)

        def look(place: int) -> None:
            given = {"times": np.ascontiguousarray(times), "lo": cuts[place], "hi": cuts[place + 1]}
            fallen[place] = self.falls(given)

        run_on_threads([partial(look, place) for place in range(len(fallen))])
        return not fallen.any()

    def order(self, *keys: np.ndarray) -> np.ndarray:
        """The positions of rows by the first key, then the others; equal rows keep their order."""
        if len(keys[0]) < FEW_VALUES:
            return np.lexsort(keys[::-1])
        order = self._by(keys[0])
        if len(keys) == 1:
            return order
        alike = _in_runs(keys[0][order])
        if MANY * len(alike) < len(order):  # few rows need the other keys
            rows = order[alike]
            order[alike] = rows[np.lexsort([key[rows] for key in reversed(keys)])]
            return order
        order = self._by(keys[-1])
        for key in reversed(keys[:-1]):
            order = order[self._by(key[order])]
        return order

    def ranks(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rank of each row among the distinct keys, and the first row of each rank."""
        rows = len(keys)
        ranks, first = room(rows), room(rows)
        if not rows:
            return ranks, first
        given = {"keys": np.ascontiguousarray(keys), "sorted_order": self._by(keys), "rows": rows}
        given |= {"ranks": ranks, "first": first}
        return ranks, first[: self.assign_ranks(given)]

    def placed(self, floats: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The position of each row in sort order, and the sorted numbers."""
        rows = len(floats)
        places, in_order = room(rows, np.int32), room(rows, np.float64)
        given = {"values": np.ascontiguousarray(floats), "rows": rows, "bits": (rows - 1).bit_length()}
        given |= {"words": room(rows, np.uint64), "spare": room(rows, np.uint64)}
        given |= {"patience": PATIENCE * rows, "places": places, "in_order": in_order}
        if rows and not self.place_floats(given):
            order = self.order(self.words(floats))
            places[order] = np.arange(rows, dtype=np.int32)
            in_order[:] = floats[order]
        return places, in_order

    def words(self, floats: np.ndarray) -> np.ndarray:
        """Integers in the order of the floats."""
        words = room(len(floats))
        self.float_words({"values": floats, "words": words, "rows": len(floats)})
        return words

    def _by(self, key: np.ndarray) -> np.ndarray:
        """The positions of rows by one key."""
        key = np.ascontiguousarray(key, np.int64)
        least, most = int(key.min()), int(key.max())
        found = self._packed(key, least, (most - least).bit_length())
        if found is not None:
            return found
        now, then = (key, np.arange(len(key))), (room(len(key)), room(len(key)))
        given = {"counts": np.empty(1 << self.digit_bits, np.int64), "rows": len(key), "least": least}
        for shift in range(0, (most - least).bit_length(), self.digit_bits):
            given |= {"keys": now[0], "order": now[1], "sorted_keys": then[0], "sorted_order": then[1]}
            self.radix_pass({**given, "shift": shift})
            spare = (room(len(key)), room(len(key))) if now[0] is key else now
            now, then = then, spare
        return now[1]

    def _packed(self, key: np.ndarray, least: int, span: int) -> np.ndarray | None:
        """Sort words that combine a key of `span` bits with its position; return the positions.

        A key that is too long loses its lowest bits. None if keys remain out of order, or are likely to.
        """
        rows = len(key)
        bits = (rows - 1).bit_length()
        drop = max(span + bits - WORD, 0)
        if drop > MOST_DROPPED:
            return None
        words, high = room(rows), bits + span - drop
        given = {
            "keys": key,
            "rows": rows,
            "least": least,
            "drop": drop,
            "bits": bits,
            "mask": (1 << bits) - 1,
        }
        given |= {"words": words, "spare": room(rows), "high": high, "patience": PATIENCE * rows}
        lows = {bits, max(high - SORTED_BITS, bits)} if rows <= MOST_ROWS else {bits}
        found = any(self.sort_words({**given, "low": low}) for low in sorted(lows, reverse=True))
        return words if found else None


def _in_runs(key: np.ndarray) -> np.ndarray:
    """The positions of rows that share a key with a neighbour."""
    equal = np.concatenate([[False], key[1:] == key[:-1], [False]])
    return np.flatnonzero(equal[1:] | equal[:-1])


_Values = TypeVar("_Values")

# Integers in a range of at most SPARSEST_RANKS times the number of rows are ranked by subtraction.
SPARSEST_RANKS = 2


def ranked(column: pa.Array, counts: np.ndarray | None, sorter: Sorter) -> tuple[np.ndarray, pa.Array]:
    """The rank of each row's value, -1 if the row is not selected, and the values by rank.

    NaN is one value and the largest; -0.0 becomes 0.0.
    """
    return _where(counts, plain(column), lambda known: _numbered(known, sorter))


def placed(
    column: pa.Array, counts: np.ndarray | None, sorter: Sorter
) -> tuple[np.ndarray, tuple[np.ndarray, bool]]:
    """The position of each row in sort order, -1 if the row is not selected, and the number at each position.

    Integers in a narrow range need no sorting: their positions are ranks, which equal values share; the flag is True then.
    """

    def numbers(known: pa.Array) -> tuple[np.ndarray, tuple[np.ndarray, bool]]:
        values = _numbers(known)
        narrow = _narrowly(values, np.int32)
        if narrow is not None:
            return narrow[0], (narrow[1].astype(np.float64), True)
        places, in_order = sorter.placed(values.astype(np.float64, copy=False))
        return places, (in_order, False)

    return _where(counts, plain(column), numbers)


def _where(
    counts: np.ndarray | None, column: pa.Array, number: Callable[[pa.Array], tuple[np.ndarray, _Values]]
) -> tuple[np.ndarray, _Values]:
    """Number the selected rows, and give the others -1."""
    if counts is None:
        return number(column)
    rows = np.flatnonzero(counts)
    known, values = number(column.take(indices(rows)))
    numbers = np.full(len(column), -1, known.dtype)
    numbers[rows] = known
    return numbers, values


def _numbered(column: pa.Array, sorter: Sorter) -> tuple[np.ndarray, pa.Array]:
    """Rank non-null values."""
    dtype = column.type
    if pa.types.is_string(dtype) or pa.types.is_large_string(dtype):
        return _of_texts(column)
    values = _numbers(column)
    if values.dtype == PAIR:
        return _of_pairs(values, dtype)
    narrow = _narrowly(values, np.int64)
    if narrow is not None:
        return narrow[0], to_arrow(narrow[1], None, dtype)
    return _of_numbers(values, dtype, sorter)


def _narrowly(values: np.ndarray, dtype: type[np.generic]) -> tuple[np.ndarray, np.ndarray] | None:
    """Rank integers by subtraction, and list the value of each rank, if their range is narrow."""
    if values.dtype.kind == "f" or not len(values):
        return None
    least, most = values.min(), values.max()
    span = int(most) - int(least)
    if span > SPARSEST_RANKS * len(values):
        return None
    ranks = values.astype(np.int64) - least.astype(np.int64)  # the difference may overflow their type
    return ranks.astype(dtype, copy=False), np.arange(span + 1).astype(values.dtype) + least


def _numbers(column: pa.Array) -> np.ndarray:
    if pa.types.is_boolean(column.type):
        bits: np.ndarray = column.to_numpy(zero_copy_only=False)
        return bits.astype(np.uint8)
    return values_view(column)


def _of_numbers(values: np.ndarray, dtype: pa.DataType, sorter: Sorter) -> tuple[np.ndarray, pa.Array]:
    ranks, first = sorter.ranks(_ordered_words(values, sorter))
    found = values[first]
    if found.dtype.kind == "f":
        found = found + 0.0  # turns -0.0 into 0.0, and changes nothing else
    return ranks, to_arrow(found, None, dtype)


def _ordered_words(values: np.ndarray, sorter: Sorter) -> np.ndarray:
    """Integers in the order of the values."""
    if values.dtype.kind == "f":
        return sorter.words(values.astype(np.float64, copy=False))
    if values.dtype.kind == "u" and values.dtype.itemsize == 8:
        flipped: np.ndarray = (values ^ np.uint64(1 << 63)).view(np.int64)
        return flipped
    return values.astype(np.int64, copy=False)


def _of_pairs(values: np.ndarray, dtype: pa.DataType) -> tuple[np.ndarray, pa.Array]:
    """Rank decimals of two words: by the upper one, then by the lower one without its sign."""
    words = values.view(np.int64).reshape(-1, 2)
    order = np.lexsort((words[:, 0].view(np.uint64), words[:, 1]))
    ordered = words[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum(new) - 1
    return ranks, to_arrow(np.ascontiguousarray(values[order[new]]), None, dtype)


def _of_texts(column: pa.Array) -> tuple[np.ndarray, pa.Array]:
    import pyarrow.compute as pc  # noqa: PLC0415 - takes 50 ms to load, and texts are rarely ranked

    coded = column.dictionary_encode()
    order = pc.sort_indices(coded.dictionary)  # by bytes
    rank = np.empty(len(order), np.int64)
    rank[order.to_numpy()] = np.arange(len(order))
    return rank[coded.indices.to_numpy()], coded.dictionary.take(order)

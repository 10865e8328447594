"""Stable sorting of rows by integers: radix sort in a kernel for many rows, else comparison sort."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from penstock.runtime.buffers import room
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

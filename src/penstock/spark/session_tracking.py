"""Track open sessions per key: chains of rows of one key, each within a gap of the previous row.

This repeats the definition of sessions, so that a task can decide when to stop reading. Texts are compared by 128-bit
keyed hashes with a random secret, all other keys by their exact words.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from secrets import token_bytes

import numpy as np
import pyarrow as pa

from penstock.runtime.key_encoding import is_text, words_of
from penstock.types.arrow import has_codes

_SECRET = token_bytes(32)


class Chains:
    """Track chains, and report whether a chain that began in [low, high) may continue.

    Unless `exact`, some rows may belong to no session. A chain may then be several sessions, so its start does not rule out
    a session of this slice.
    """

    def __init__(self, gap: int, low: int | None, high: int | None, exact: bool) -> None:
        self._gap, self._low, self._high, self._exact = gap, low, high, exact
        self._words: list[np.ndarray] = []
        self._last = np.zeros(0, np.int64)
        self._ours = np.zeros(0, bool)
        self._waiting: list[tuple[list[np.ndarray], np.ndarray]] = []

    def add(self, words: list[np.ndarray], ticks: np.ndarray) -> None:
        """Buffer rows until the watermark passes them."""
        if len(ticks):
            self._waiting.append((words, ticks))

    def open(self) -> bool:
        """Check whether a chain of this slice may continue."""
        return bool(self._ours.any())

    def advance(self, mark: int) -> None:
        """Process the buffered rows before a watermark, and drop chains that have ended."""
        ready, waiting = [], []
        for words, ticks in self._waiting:
            early = ticks < mark
            ready.append(([word[early] for word in words], ticks[early]))
            if not early.all():
                waiting.append(([word[~early] for word in words], ticks[~early]))
        self._waiting = waiting
        self._join(ready)
        alive = self._last + self._gap >= mark
        if self._high is not None and mark > self._high:  # new chains belong to later slices
            alive &= self._ours
        self._keep(alive)

    def _join(self, rows: Sequence[tuple[list[np.ndarray], np.ndarray]]) -> None:
        """Extend chains by rows later than all chains, and begin new ones."""
        if not rows:
            return
        known = [(self._words, self._last)] if len(self._last) else []
        columns = [
            np.concatenate(several) for several in zip(*(words for words, _ in (*known, *rows)), strict=True)
        ]
        ticks = np.concatenate([array for _, array in (*known, *rows)])
        ours = np.concatenate([self._ours, self._starts_here(ticks[len(self._last) :])])
        varying = [column for column in columns if len(column) and column.min() != column.max()]
        order = np.lexsort((ticks, *varying))
        columns, ticks, ours = [column[order] for column in columns], ticks[order], ours[order]
        begins = np.ones(len(ticks), bool)
        begins[1:] = np.diff(ticks) > self._gap
        another = np.ones(len(ticks), bool)
        another[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
        begins |= another
        first = np.flatnonzero(begins)[np.cumsum(begins) - 1]
        last_of_key = np.append(another[1:], True) if len(ticks) else another
        self._words, self._last = columns, ticks
        self._ours = ours[first]
        self._keep(last_of_key)

    def _starts_here(self, ticks: np.ndarray) -> np.ndarray:
        here = np.ones(len(ticks), bool)
        if self._low is not None and self._exact:
            here &= ticks >= self._low
        if self._high is not None:
            here &= ticks < self._high
        return here

    def _keep(self, chosen: np.ndarray) -> None:
        self._words = [word[chosen] for word in self._words]
        self._last, self._ours = self._last[chosen], self._ours[chosen]


def key_words(columns: Sequence[pa.Array], rows: int) -> list[np.ndarray]:
    """Encode keys as words: two keys are equal if and only if their words are."""
    nulls = np.zeros(rows, np.int64)
    words: list[np.ndarray] = []
    for place, column in enumerate(columns):
        null = column.is_null().to_numpy(zero_copy_only=False)
        nulls |= null.astype(np.int64) << place
        words += [np.where(null, np.int64(0), word) for word in _words(column)]
    return [*words, nulls]


def _words(column: pa.Array) -> list[np.ndarray]:
    plain = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_decimal(plain) and has_codes(plain):
        return _words(column.cast(pa.string()))
    if not is_text(plain):
        return [words_of(column.dictionary_decode() if plain is not column.type else column)]
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    hashes = np.frombuffer(b"".join(map(_hash, coded.dictionary.to_pylist())) or bytes(16), np.int64)
    places = coded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    return [hashes[0::2][places], hashes[1::2][places]]


def _hash(text: str | None) -> bytes:
    return blake2b((text or "").encode(), digest_size=16, key=_SECRET).digest()

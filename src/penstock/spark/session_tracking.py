"""Chains of rows of one key that follow each other within a gap: which of them are open, and where they began.

This repeats what sessions are, so that a task knows when it may stop to read. Keys are told apart exactly: texts by
hashes that nobody can foresee, everything else by its words.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from secrets import token_bytes

import numpy as np
import pyarrow as pa

from penstock.runtime.key_encoding import is_text, words_of

_SECRET = token_bytes(32)


class Chains:
    """Follow chains, and tell whether one that began from `low` to before `high` may go on.

    Unless `exact`, some rows may belong to no session: then a chain here may be several, and any may be ours.
    """

    def __init__(self, gap: int, low: int | None, high: int | None, exact: bool) -> None:
        self._gap, self._low, self._high, self._exact = gap, low, high, exact
        self._words: list[np.ndarray] = []
        self._last = np.zeros(0, np.int64)
        self._ours = np.zeros(0, bool)
        self._waiting: list[tuple[list[np.ndarray], np.ndarray]] = []

    def add(self, words: list[np.ndarray], ticks: np.ndarray) -> None:
        """Take rows; they are looked at when no earlier ones can come."""
        if len(ticks):
            self._waiting.append((words, ticks))

    def open(self) -> bool:
        """Tell whether a chain that is ours may go on."""
        return bool(self._ours.any())

    def advance(self, mark: int) -> None:
        """Look at the rows before a time; none of them comes any more."""
        ready, waiting = [], []
        for words, ticks in self._waiting:
            early = ticks < mark
            ready.append(([each[early] for each in words], ticks[early]))
            if not early.all():
                waiting.append(([each[~early] for each in words], ticks[~early]))
        self._waiting = waiting
        self._join(ready)
        alive = self._last + self._gap >= mark
        if self._high is not None and mark > self._high:  # what begins now is never ours
            alive &= self._ours
        self._keep(alive)

    def _join(self, rows: Sequence[tuple[list[np.ndarray], np.ndarray]]) -> None:
        """Lengthen chains by rows, all later than what chains hold, and begin new ones."""
        if not rows:
            return
        known = [(self._words, self._last)] if len(self._last) else []
        columns = [
            np.concatenate(several) for several in zip(*(words for words, _ in (*known, *rows)), strict=True)
        ]
        ticks = np.concatenate([each for _, each in (*known, *rows)])
        ours = np.concatenate([self._ours, self._starts_here(ticks[len(self._last) :])])
        varying = [each for each in columns if len(each) and each.min() != each.max()]
        order = np.lexsort((ticks, *varying))
        columns, ticks, ours = [each[order] for each in columns], ticks[order], ours[order]
        begins = np.ones(len(ticks), bool)
        begins[1:] = np.diff(ticks) > self._gap
        another = np.ones(len(ticks), bool)
        another[1:] = np.any([each[1:] != each[:-1] for each in columns], axis=0)
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
        self._words = [each[chosen] for each in self._words]
        self._last, self._ours = self._last[chosen], self._ours[chosen]


def key_words(columns: Sequence[pa.Array], rows: int) -> list[np.ndarray]:
    """Give keys as words: equal keys have equal words, others do not."""
    nulls = np.zeros(rows, np.int64)
    words: list[np.ndarray] = []
    for place, column in enumerate(columns):
        null = column.is_null().to_numpy(zero_copy_only=False)
        nulls |= null.astype(np.int64) << place
        words += [np.where(null, np.int64(0), each) for each in _words(column)]
    return [*words, nulls]


def _words(column: pa.Array) -> list[np.ndarray]:
    plain = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not is_text(plain):
        return [words_of(column.dictionary_decode() if plain is not column.type else column)]
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    hashes = np.frombuffer(b"".join(map(_hash, coded.dictionary.to_pylist())) or bytes(16), np.int64)
    places = coded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    return [hashes[0::2][places], hashes[1::2][places]]


def _hash(text: str | None) -> bytes:
    return blake2b((text or "").encode(), digest_size=16, key=_SECRET).digest()

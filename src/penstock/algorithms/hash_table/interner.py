"""Intern texts as integer codes: kernels process codes, not characters."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from penstock.loop.abi import DONE, KEYS, STATUS, WORDS
from penstock.runtime.buffers import longer, to_arrow, values_view
from penstock.runtime.hashing import bucket_count, buckets_for

Call = Callable[[Mapping[str, object]], int]
InternKernel = Callable[[bool, bool], Call]  # (large offsets, nullable) → kernel

MOST_TEXT = 1 << 24  # bytes of unused texts that may be kept: all texts of a stream would not fit
_ENTRY = 24  # bytes of overhead per text


class Interner:
    """Number distinct texts 0, 1, 2 … in order of first appearance.

    Each worker has a separate interner, so there is no lock; `translate` maps the codes of another interner.
    """

    def __init__(self, kernel: InternKernel) -> None:
        self._kernel = kernel
        self._head = np.zeros(WORDS, np.int64)
        self._capacity = 64
        self._offsets = np.zeros(self._capacity + 1, np.int64)
        self._hashes = np.zeros(self._capacity, np.uint64)
        self._text = np.zeros(1024, np.uint8)
        self._buckets = np.zeros(bucket_count(self._capacity), np.int32)

    def __len__(self) -> int:
        return int(self._head[KEYS])

    @property
    def nbytes(self) -> int:
        """The approximate size of the texts in bytes."""
        return int(self._offsets[len(self)]) + _ENTRY * len(self)

    def encode(self, array: pa.Array) -> np.ndarray:
        """The code of each text, -1 for null; new texts are added."""
        if pa.types.is_dictionary(array.type):
            return self._encode_dictionary(array)
        if pa.types.is_decimal(array.type):
            array = array.cast(pa.large_string())
        codes = np.empty(len(array), np.int32)
        arguments = _text_arguments(array)
        call = self._kernel(pa.types.is_large_string(array.type), "validity" in arguments)
        done = 0
        while done < len(array):
            done = call({**arguments, **self._arguments(), "lo": done, "hi": len(array), "out": codes})
            if self._head[STATUS] != DONE:
                self._grow(arguments, done)
        return codes

    def code_of(self, text: str) -> int:
        data = text.encode()
        offsets = pa.py_buffer(np.array([0, len(data)], np.int64))
        return int(
            self.encode(pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, pa.py_buffer(data)]))[0]
        )

    def texts(self) -> pa.Array:
        """All texts, by code."""
        count = len(self)
        end = int(self._offsets[count])
        offsets, data = self._offsets[: count + 1].copy(), self._text[:end].copy()
        return pa.Array.from_buffers(
            pa.large_string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        )

    def arena(self, role: str) -> np.ndarray:
        """The buffers in which kernels compare texts: "text_offsets" or "text"."""
        return self._offsets if role == "text_offsets" else self._text

    def decode(self, codes: np.ndarray, dtype: pa.DataType) -> pa.Array:
        """The texts of codes; negative codes become null."""
        index = to_arrow(codes.astype(np.int64), codes >= 0, pa.int64())
        found = self.texts().take(index)
        if pa.types.is_dictionary(dtype):
            return found.cast(dtype.value_type).dictionary_encode().cast(dtype)
        return found.cast(dtype)

    def translate(self, other: Interner, codes: np.ndarray) -> np.ndarray:
        """Map codes of another interner to this one, adding only the texts that occur."""
        if len(codes) == 0:
            return codes
        used, place = np.unique(codes, return_inverse=True)
        return self.encode(other.decode(used, pa.large_string()))[place]

    def _encode_dictionary(self, array: pa.DictionaryArray) -> np.ndarray:
        """Intern the dictionary, not the rows. If its indices equal the codes, return a view of the indices."""
        known = self.encode(array.dictionary.cast(pa.large_string()))
        index = array.indices.cast(pa.int32())
        if not index.null_count and bool((known == np.arange(len(known))).all()):
            return values_view(index)
        codes = to_arrow(known, known >= 0, pa.int32()).take(index)
        return values_view(codes.fill_null(-1))

    def _arguments(self) -> dict[str, object]:
        return {
            "head": self._head,
            "buckets": self._buckets,
            "bucket_mask": len(self._buckets) - 1,
            "key_capacity": self._capacity,
            "text_capacity": len(self._text),
            "hashes": self._hashes,
            "text_offsets": self._offsets,
            "text": self._text,
        }

    def _grow(self, arguments: dict[str, object], row: int) -> None:
        """At least double what is full: the entries, or the bytes for the text that did not fit."""
        offsets = arguments["offsets"]
        assert isinstance(offsets, np.ndarray)
        needed = int(self._offsets[len(self)]) + int(offsets[row + 1] - offsets[row])
        if needed > len(self._text):
            self._text = longer(self._text, max(2 * len(self._text), needed))
        if len(self) == self._capacity:
            self._capacity *= 2
            self._offsets = longer(self._offsets, self._capacity + 1)
            self._hashes = longer(self._hashes, self._capacity)
            self._buckets = buckets_for(self._hashes[: len(self)], bucket_count(self._capacity))


def text_bytes(interners: Mapping[str, Interner]) -> int:
    """The approximate size of the texts of all columns in bytes."""
    return sum([interner.nbytes for interner in interners.values()])


def _text_arguments(array: pa.Array) -> dict[str, object]:
    validity, offsets, data = array.buffers()
    width = np.int64 if pa.types.is_large_string(array.type) else np.int32
    found: dict[str, object] = {
        "offsets": np.frombuffer(offsets, width, len(array) + 1, array.offset * np.dtype(width).itemsize)
        if offsets is not None and len(offsets)
        else np.zeros(1, width),
        "bytes": np.frombuffer(data, np.uint8) if data is not None and len(data) else np.zeros(1, np.uint8),
    }
    if array.null_count:
        found["validity"] = np.frombuffer(validity, np.uint8)
        found["shift"] = array.offset
    return found

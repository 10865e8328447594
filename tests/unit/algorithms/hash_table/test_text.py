"""Texts inside kernels: equality with a literal, the order of bytes, numbers for distinct texts."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.algorithms.hash_table.keys import Interner
from penstock.algorithms.hash_table.text_kernels import comes_before, equals_literal, intern_kernel
from penstock.loop.build import KernelBuilder
from penstock.loop.interpret import interpret
from penstock.loop.nodes import I32, I64, U8, Kernel, Type
from tests.unit.algorithms.running import compiled, run

SMALL = settings(max_examples=25, deadline=None)
LITERAL = "straße → œuvre, Ω"  # 22 bytes, with characters of one, two and three
TEXTS = st.text("ab\0é→𝄞", max_size=12) | st.text(max_size=20)


def arena(texts: list[bytes]) -> dict[str, Any]:
    """Lay texts out as Arrow does, with room for the longest read."""
    ends = np.cumsum([0, *map(len, texts)])
    return {"offsets": ends, "data": np.frombuffer(b"".join(texts) + bytes(64), np.uint8)}


# --- equality with a literal --------------------------------------------------------------------------


@cache
def comparison(offsets_type: Type, length: int) -> Kernel:
    k = KernelBuilder("comparison")
    n, offsets, data, size = (
        k.scalar("n"),
        k.buffer("offsets", offsets_type),
        k.buffer("data", U8),
        k.scalar("size"),
    )
    literal, out = k.buffer("literal", U8), k.buffer("out", U8)
    with k.for_(0, n, "row") as row:
        k.store(out, row, equals_literal(k, offsets, data, size, row, literal, length).to(U8))
    k.ret(n)
    return k.build()


def neighbours(text: bytes) -> list[bytes]:
    """The text, what is shorter or longer by a little, and every change of one byte."""
    changed = [text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :] for at in range(len(text))]
    return [text, b"", text[:-1], text[1:], text + b"a", text + b"\0", text, text * 2, *changed, text]


def equal_rows(texts: list[bytes], literal: bytes, offsets_type: Type) -> list[bool]:
    laid = arena(texts)
    memory = {
        "n": len(texts),
        "offsets": laid["offsets"].astype(np.int64 if offsets_type == I64 else np.int32),
        "data": laid["data"],
        "size": len(laid["data"]),
        "literal": np.frombuffer(literal or b"\0", np.uint8),
        "out": np.zeros(len(texts) + 1, np.uint8),
    }
    after = run(comparison(offsets_type, len(literal)), memory)[1]
    return after["out"][: len(texts)].astype(bool).tolist()


@pytest.mark.parametrize("length", range(23))
def test_only_the_same_bytes_equal_a_literal_of_any_length(length: int) -> None:
    literal = LITERAL.encode()[:length]
    texts = neighbours(literal)
    assert equal_rows(texts, literal, I32 if length % 2 else I64) == [text == literal for text in texts]


@SMALL
@given(st.lists(TEXTS, max_size=8), st.sampled_from(["", "a", "é", "ab\0é→𝄞", "→→→→"]))
def test_any_texts_are_compared_by_their_bytes(texts: list[str], literal: str) -> None:
    encoded = [text.encode() for text in [*texts, literal]]
    assert equal_rows(encoded, literal.encode(), I32) == [text == literal.encode() for text in encoded]


# --- the order of bytes -------------------------------------------------------------------------------


@cache
def ordering() -> Kernel:
    k = KernelBuilder("ordering")
    n, a, b, out = k.scalar("n"), k.buffer("a", I32), k.buffer("b", I32), k.buffer("out", U8)
    with k.for_(0, n, "row") as row:
        first, second = k.var("first", a[row]), k.var("second", b[row])
        k.store(out, row, comes_before(k, "column", first, second).to(U8))
    k.ret(n)
    return k.build()


def check_order(texts: list[bytes]) -> None:
    pairs = [(a, b) for a in range(len(texts)) for b in range(len(texts))]
    laid = arena(texts)
    memory = {
        "n": len(pairs),
        "a": np.array([a for a, _ in pairs], np.int32),
        "b": np.array([b for _, b in pairs], np.int32),
        "out": np.zeros(len(pairs), np.uint8),
        "text_offsets": laid["offsets"].astype(np.int64),
        "text": laid["data"],
    }
    after = run(ordering(), memory)[1]
    assert after["out"].astype(bool).tolist() == [texts[a] < texts[b] for a, b in pairs]


def test_texts_with_equal_beginnings_are_ordered_by_what_follows() -> None:
    check_order([LITERAL.encode()[:length] for length in range(20)])
    check_order(
        [b"", b"\0", b"\0\0", b"a", b"a\0", b"ab", b"b", b"\x7f", "é".encode(), "→".encode(), b"\xff"]
    )


@SMALL
@given(st.lists(TEXTS, min_size=1, max_size=8, unique=True))
def test_any_texts_are_ordered_by_their_bytes(texts: list[str]) -> None:
    check_order([text.encode() for text in texts])


# --- numbers for texts --------------------------------------------------------------------------------


@cache
def interning(large: bool, nullable: bool) -> Kernel:
    return intern_kernel(I64 if large else I32, nullable)


BACKENDS: dict[str, Callable[[bool, bool], Any]] = {
    "interpreted": lambda large, nullable: partial(interpret, interning(large, nullable)),
    "quick": lambda large, nullable: compiled(interning(large, nullable))[0],
    "full": lambda large, nullable: compiled(interning(large, nullable))[-1],
}


def numbered(texts: list[str | None]) -> list[int]:
    known: dict[str, int] = {}
    return [-1 if text is None else known.setdefault(text, len(known)) for text in texts]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [pa.string(), pa.large_string()], ids=str)
@SMALL
@given(texts=st.lists(st.none() | TEXTS, max_size=30), skip=st.integers(0, 3))
def test_texts_are_numbered_as_they_appear(
    backend: str, dtype: pa.DataType, texts: list[str | None], skip: int
) -> None:
    interner = Interner(BACKENDS[backend])
    array = pa.array(texts, dtype)[skip:]
    assert interner.encode(array).tolist() == numbered(texts[skip:])
    distinct = list(dict.fromkeys(text for text in texts[skip:] if text is not None))
    assert interner.texts().to_pylist() == distinct
    assert interner.encode(pa.array(distinct, dtype)).tolist() == list(range(len(distinct)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_lengths_around_a_word_and_equal_beginnings_stay_apart_as_the_table_grows(backend: str) -> None:
    interner = Interner(BACKENDS[backend])
    texts = [(head * 20)[:length] + tail for head in "ab" for length in range(21) for tail in ("", "x", "é")]
    assert interner.encode(pa.array(texts * 2)).tolist() == numbered(texts * 2)

"""Kernels that compare and intern strings. Arrow strings are offsets into bytes, read in words of up to 8 bytes."""

from __future__ import annotations

from penstock.algorithms.hash_table.kernels import combine, first_place, hash_word, probing
from penstock.loop.abi import DONE, KEYS, NEED_KEYS, STATUS
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import (
    BOOL,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Buffer,
    Kernel,
    Peek,
    Type,
    Value,
    Var,
    const,
    maximum,
    minimum,
)

_WORDS: tuple[tuple[int, Type], ...] = ((8, U64), (4, U32), (2, U16), (1, U8))

# Longer literals are compared outside kernels: unrolled comparisons would bloat the loop.
LONGEST_LITERAL = 64


def equals_literal(
    k: KernelBuilder, offsets: Buffer, data: Buffer, size: Value, row: Value, literal: Buffer, length: int
) -> Value:
    """Return whether the string at `row` equals the literal, without a branch.

    A string of another length is read at a clamped offset and the result discarded, so no byte outside the buffer is
    read. The runtime guarantees that `size`, the data's length, is at least `length`.
    """
    begin = k.var("begin", offsets[row].to(I64))
    fits = (offsets[row + 1].to(I64) - begin).eq(const(length, I64))
    place = k.var("at", minimum(begin, size - length))
    same: Value = const(True, BOOL) if length == 0 else fits
    done = 0
    for width, type in _WORDS:
        while length - done >= width:
            same = same & Peek(data, place + done, type).eq(Peek(literal, const(done, I64), type))
            done += width
    return same if length else fits


def comes_before(k: KernelBuilder, column: str, a: Value, b: Value) -> Value:
    """Return whether one interned string of a column sorts before another, by bytes; negative codes are read as 0."""
    offsets = k.shared_buffer("text_offsets", column, I64)
    text = k.shared_buffer("text", column, U8)
    first, second = (k.var("text_code", maximum(code, const(0, I32)).to(I64)) for code in (a, b))
    p, q = k.var("p", offsets[first]), k.var("q", offsets[second])
    p_end, q_end = k.var("p_end", offsets[first + 1]), k.var("q_end", offsets[second + 1])
    going = k.var("going", first.ne(second))
    before = k.var("before", False, BOOL)
    with k.while_(going):
        ended = (p >= p_end) | (q >= q_end)
        with k.if_(ended):
            k.set(before, q_end - q > p_end - p)
            k.set(going, const(False, BOOL))
        with k.else_(), k.if_(text[p].ne(text[q])):
            k.set(before, text[p] < text[q])
            k.set(going, const(False, BOOL))
        k.set(p, p + 1)
        k.set(q, q + 1)
    return before


def intern_kernel(offsets_type: Type, nullable: bool, codes: Type = I32) -> Kernel:
    """Assign codes to the strings of a column in order of first appearance: `out[row]` is the code, -1 for null.

    The arena (`text_offsets`, `text`) holds each distinct string once, in the layout of an Arrow array, so codes are
    decoded by a plain `take`. Known strings are not copied.
    """
    return _Intern(offsets_type, nullable, codes).build()


class _Intern:
    def __init__(self, offsets_type: Type, nullable: bool, codes: Type) -> None:
        self.k = k = KernelBuilder("intern")
        self.lo, self.hi = k.scalar("lo"), k.scalar("hi")
        self.offsets, self.data = k.buffer("offsets", offsets_type), k.buffer("bytes", U8)
        self.validity = (k.buffer("validity", U8), k.scalar("shift")) if nullable else None
        self.head = k.buffer("head", I64)
        self.buckets, self.bucket_mask = k.buffer("buckets", I32), k.scalar("bucket_mask")
        self.capacity, self.room = k.scalar("key_capacity"), k.scalar("text_capacity")
        self.hashes = k.buffer("hashes", U64)
        self.text_offsets, self.text = k.buffer("text_offsets", I64), k.buffer("text", U8)
        self.codes, self.out = codes, k.buffer("out", codes)

    def build(self) -> Kernel:
        k = self.k
        with k.for_(self.lo, self.hi, "row") as row:
            self._row(row)
        k.store(self.head, STATUS, DONE)
        k.ret(self.hi)
        return k.build()

    def _row(self, row: Value) -> None:
        k = self.k
        if self.validity is None:
            self._intern(row)
            return
        bits, shift = self.validity
        with k.if_(~Peek(bits, row + shift, BOOL)):
            k.store(self.out, row, -1)
        with k.else_():
            self._intern(row)

    def _intern(self, row: Value) -> None:
        k = self.k
        begin = k.var("begin", self.offsets[row].to(I64))
        end = k.var("end", self.offsets[row + 1].to(I64))
        hashed = self._hash(begin, end)
        first, code = first_place(hashed, self.bucket_mask), k.var("code", -1)
        with probing(k, first, self.bucket_mask, lambda place: code < 0) as place:
            held = k.var("held", self.buckets[place].to(I64))
            with k.if_(held.eq(0)):
                self._insert(row, begin, end, hashed, place, code)
            with k.else_():
                self._compare(held - 1, begin, end, hashed, code)
        k.store(self.out, row, code.to(self.codes))

    def _hash(self, begin: Value, end: Value) -> Var:
        """Hash eight bytes at a time, then the remaining bytes; strings below eight bytes, as one word with their length."""
        k = self.k
        length, at = end - begin, k.var("at", begin)
        hashed = k.var("hash", 0, U64)
        with k.if_(length >= 8):
            k.set(hashed, hash_word(length))
            with k.while_(end - at >= 8):
                k.set(hashed, combine(hashed, Peek(self.data, at, U64)))
                k.set(at, at + 8)
        self.tail = _tail(k, self.data, at, end)
        with k.if_(length >= 8):
            k.set(hashed, combine(hashed, self.tail))
        with k.else_():
            k.set(hashed, hash_word((self.tail + (length.to(U64) << 56)).to(I64)))
        return hashed

    def _compare(self, entry: Value, begin: Value, end: Value, hashed: Value, code: Var) -> None:
        """Compare with a known string of the same hash and length, in words of the same sizes.

        Of strings of one length up to eight bytes, the hash is a bijection of their bytes (each step is invertible, one
        word at a time): equal hashes are equal strings.
        """
        k = self.k
        known = k.var("known", self.text_offsets[entry])
        known_end = k.var("known_end", self.text_offsets[entry + 1])
        alike = self.hashes[entry].eq(hashed) & (known_end - known).eq(end - begin)
        short = end - begin <= 8
        with k.if_(alike & short):
            k.set(code, entry)
        with k.else_(), k.if_(alike):
            at = k.var("at", begin)
            same = k.var("same", True, BOOL)
            with k.while_(same & (end - at >= 8)):
                k.set(same, Peek(self.data, at, U64).eq(Peek(self.text, known, U64)))
                k.set(at, at + 8)
                k.set(known, known + 8)
            with k.if_(same):
                k.set(same, self.tail.eq(_tail(k, self.text, known, known_end)))
            with k.if_(same):
                k.set(code, entry)

    def _insert(self, row: Value, begin: Value, end: Value, hashed: Value, place: Value, code: Var) -> None:
        k = self.k
        new = k.var("new", self.head[KEYS])
        used = k.var("used", self.text_offsets[new])
        with k.if_((new >= self.capacity) | (used + (end - begin) > self.room)):
            k.store(self.head, STATUS, NEED_KEYS)
            k.ret(row)
        with k.for_(0, end - begin, "b") as b:
            k.store(self.text, used + b, self.data[begin + b])
        k.store(self.text_offsets, new + 1, used + (end - begin))
        k.store(self.hashes, new, hashed)
        k.store(self.buckets, place, (new + 1).to(I32))
        k.store(self.head, KEYS, new + 1)
        k.set(code, new)


def _tail(k: KernelBuilder, data: Buffer, at: Value, end: Value) -> Var:
    """Return the fewer than eight bytes before `end` as one word, without reading bytes outside.

    For a given length, different bytes yield different words: the pieces may overlap, but cover all bytes.
    """
    left = k.var("left", end - at)
    tail = k.var("tail", 0, U64)
    with k.if_(left >= 4):
        k.set(tail, Peek(data, at, U32).to(U64) | (Peek(data, end - 4, U32).to(U64) << 32))
    with k.else_(), k.if_(left > 0):
        middle = data[at + (left >> 1)].to(U64) << 8
        k.set(tail, data[at].to(U64) | middle | (data[end - 1].to(U64) << 16))
    return tail

"""Damage to the bytes of a file: what disks, cut transfers and attackers leave behind."""

from __future__ import annotations

import random
import struct

NUMBERS = (0, 1, -1, 7, 127, 128, 255, 1 << 15, (1 << 31) - 1, -(1 << 31), 1 << 32, (1 << 63) - 1, -(1 << 63))
VARINTS = (b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01", b"\x80\x80\x80\x80\x08", b"\x00")
SWAPS = (
    (b":", b","),
    (b'"', b""),
    (b"{", b"["),
    (b"}", b""),
    (b",", b"\n"),
    (b"\n", b""),
    (b"1", b"-99999999999999999999"),
    (b"1", b"1e400"),
    (b"true", b"null"),
    (b"null", b"{}"),
)


def damaged(whole: bytes, dice: random.Random) -> bytes:
    """Damage a file in a few places, more often near its end, where many formats keep what describes the rest."""
    data = bytearray(whole)
    for _ in range(dice.choice((1, 1, 1, 2, 3, 8))):
        if data:
            dice.choice(KINDS)(data, _place(data, dice), dice)
    if dice.random() < 0.05:
        del data[_place(data, dice) :]
    return _as_long(data, whole) if whole[-4:] == b"PAR1" else bytes(data)


def _place(data: bytearray, dice: random.Random) -> int:
    if not data:
        return 0
    near = min(len(data), dice.choice((64, 1024, 8192, len(data))))
    return len(data) - 1 - dice.randrange(near)


def _as_long(data: bytearray, whole: bytes) -> bytes:
    """Let the length of a Parquet footer follow what was put in or taken out, else nothing behind it is looked at."""
    if data[-4:] == b"PAR1" and data[-8:-4] == whole[-8:-4] and len(data) != len(whole):
        length = struct.unpack("<i", whole[-8:-4])[0] + len(data) - len(whole)
        data[-8:-4] = struct.pack("<i", length)
    return bytes(data)


def _byte(data: bytearray, at: int, dice: random.Random) -> None:
    data[at] = dice.randrange(256)


def _bit(data: bytearray, at: int, dice: random.Random) -> None:
    data[at] ^= 1 << dice.randrange(8)


def _step(data: bytearray, at: int, dice: random.Random) -> None:
    """Change a number, a type or a length by little."""
    data[at] = (data[at] + dice.choice((-2, -1, 1, 2, 16, -16))) % 256


def _number(data: bytearray, at: int, dice: random.Random) -> None:
    width, form = dice.choice(((4, "<q"), (8, "<q")))
    data[at : at + width] = struct.pack(form, dice.choice(NUMBERS))[:width]


def _varint(data: bytearray, at: int, dice: random.Random) -> None:
    data[at : at + dice.randrange(3)] = dice.choice(VARINTS)


def _zeros(data: bytearray, at: int, dice: random.Random) -> None:
    width = dice.choice((1, 4, 16, 64))
    data[at : at + width] = bytes(len(data[at : at + width]))


def _insert(data: bytearray, at: int, dice: random.Random) -> None:
    data[at:at] = dice.randbytes(dice.choice((1, 2, 8)))


def _remove(data: bytearray, at: int, dice: random.Random) -> None:
    del data[at : at + dice.choice((1, 2, 8, 64))]


def _copy(data: bytearray, at: int, dice: random.Random) -> None:
    """Put some bytes of the file in another place of it."""
    width, source = dice.choice((1, 4, 16, 64)), dice.randrange(len(data))
    data[at : at + width] = data[source : source + width]


def _swap(data: bytearray, at: int, dice: random.Random) -> None:
    """Change a word of a text."""
    old, new = dice.choice(SWAPS)
    found = data.find(old, at)
    if found >= 0:
        data[found : found + len(old)] = new


KINDS = (_byte, _byte, _bit, _bit, _step, _number, _varint, _zeros, _insert, _remove, _copy, _swap)

"""Functions of strings. Lengths and positions count characters unless the name says bytes."""

from __future__ import annotations

from penstock.expr.arithmetic import Setting


def _option(setting: Setting, name: str) -> str:
    value = setting.options[name]
    assert isinstance(value, str)
    return value


def len_chars(setting: Setting, a: str) -> int:
    return len(a)


def len_bytes(setting: Setting, a: str) -> int:
    return len(a.encode())


def to_lower(setting: Setting, a: str) -> str:
    return a.lower()


def to_upper(setting: Setting, a: str) -> str:
    return a.upper()


def strip(setting: Setting, a: str) -> str:
    """Take the given characters off both ends; white space if none are given."""
    characters = setting.options.get("characters")
    return a.strip(characters if isinstance(characters, str) else None)


def slice_of(setting: Setting, a: str) -> str:
    """Take `length` characters from `offset`; a negative offset counts from the end."""
    offset, length = setting.options.get("offset", 0), setting.options.get("length")
    assert isinstance(offset, int)
    start = max(len(a) + offset, 0) if offset < 0 else offset
    return a[start:] if not isinstance(length, int) else a[start : start + length]


def replace(setting: Setting, a: str) -> str:
    return a.replace(_option(setting, "pattern"), _option(setting, "value"))


def starts_with(setting: Setting, a: str) -> bool:
    return a.startswith(_option(setting, "pattern"))


def ends_with(setting: Setting, a: str) -> bool:
    return a.endswith(_option(setting, "pattern"))


def contains(setting: Setting, a: str) -> bool:
    return _option(setting, "pattern") in a


def concat(setting: Setting, *parts: str) -> str:
    return "".join(parts)

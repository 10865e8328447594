"""String functions. Lengths and positions count characters unless the name says bytes."""

from __future__ import annotations

from penstock.expr.arithmetic import Setting


def _option(setting: Setting, name: str) -> str:
    value = setting.options[name]
    assert isinstance(value, str)
    return value


def _number(setting: Setting, name: str) -> int:
    value = setting.options[name]
    assert isinstance(value, int)
    return value


def len_chars(setting: Setting, a: str) -> int:
    return len(a)


def len_bytes(setting: Setting, a: str) -> int:
    return len(a.encode())


def to_lower(setting: Setting, a: str) -> str:
    return a.lower()


def to_upper(setting: Setting, a: str) -> str:
    return a.upper()


def to_title(setting: Setting, a: str) -> str:
    """Capitalise each word; a word is a run of letters."""
    return a.title()


def strip(setting: Setting, a: str) -> str:
    """Strip the given characters from both ends; white space if none are given."""
    characters = setting.options.get("characters")
    return a.strip(characters if isinstance(characters, str) else None)


def strip_start(setting: Setting, a: str) -> str:
    characters = setting.options.get("characters")
    return a.lstrip(characters if isinstance(characters, str) else None)


def strip_end(setting: Setting, a: str) -> str:
    characters = setting.options.get("characters")
    return a.rstrip(characters if isinstance(characters, str) else None)


def strip_prefix(setting: Setting, a: str) -> str:
    return a.removeprefix(_option(setting, "pattern"))


def strip_suffix(setting: Setting, a: str) -> str:
    return a.removesuffix(_option(setting, "pattern"))


def slice_of(setting: Setting, a: str) -> str:
    """Return `length` characters from `offset`; a negative offset counts from the end and may precede the text."""
    offset, length = setting.options.get("offset", 0), setting.options.get("length")
    assert isinstance(offset, int)
    start = len(a) + offset if offset < 0 else offset
    stop = start + length if isinstance(length, int) else len(a)
    return a[max(start, 0) : max(stop, 0)]


def head(setting: Setting, a: str) -> str:
    """Return the first `length` characters; if negative, all but the last `-length`."""
    return a[: _number(setting, "length")]


def tail(setting: Setting, a: str) -> str:
    """Return the last `length` characters; if negative, all but the first `-length`."""
    length = _number(setting, "length")
    return a[-length:] if length else ""


def pad_start(setting: Setting, a: str) -> str:
    return a.rjust(_number(setting, "length"), _option(setting, "fill"))


def pad_end(setting: Setting, a: str) -> str:
    return a.ljust(_number(setting, "length"), _option(setting, "fill"))


def zfill(setting: Setting, a: str) -> str:
    """Pad with zeros after the sign."""
    return a.zfill(_number(setting, "length"))


def reverse(setting: Setting, a: str) -> str:
    return a[::-1]


def replace(setting: Setting, a: str) -> str:
    most = setting.options.get("most", -1)
    assert isinstance(most, int)
    return a.replace(_option(setting, "pattern"), _option(setting, "value"), most)


def starts_with(setting: Setting, a: str) -> bool:
    return a.startswith(_option(setting, "pattern"))


def ends_with(setting: Setting, a: str) -> bool:
    return a.endswith(_option(setting, "pattern"))


def contains(setting: Setting, a: str) -> bool:
    return _option(setting, "pattern") in a


def concat(setting: Setting, *parts: str) -> str:
    return "".join(parts)

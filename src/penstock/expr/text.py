"""Text as scalar functions, and the regular expressions that they accept."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import pyarrow as pa

from penstock.errors import ExpressionTypeError
from penstock.expr.arithmetic import Setting
from penstock.types.arrow import from_physical

# --- Regular expressions by Arrow's RE2: run time is linear in the text for every pattern.
#
# Scalar definitions and columns use the same functions.

Options = Mapping[str, Any]
_SPECIAL = frozenset(r"\.+*?()|[]{}^$")
_GROUP = re.compile(r"\$(?:\$|(\d+)|\{(\d+)\})")


def is_literal(pattern: str) -> bool:
    """Return whether a pattern has no special characters.

    >>> is_literal("view"), is_literal("^view")
    (True, False)
    """
    return not _SPECIAL.intersection(pattern)


def quoted(text: str) -> str:
    r"""Escape a text so that a pattern matches it literally.

    >>> quoted("a.b")
    'a\\.b'
    """
    return "".join(f"\\{character}" if character in _SPECIAL else character for character in text)


def check(pattern: str) -> None:
    """Reject an invalid regular expression before any row is read."""
    import pyarrow.compute as pc  # noqa: PLC0415 - loaded on first use

    try:
        pc.match_substring_regex(from_physical([""], pa.string()), pattern=pattern)
    except pa.ArrowInvalid as error:
        raise ExpressionTypeError(
            f"{pattern!r:.60} is no regular expression ({str(error).rsplit(': ', 1)[-1]:.80}); "
            "write literal=True to take it as it is"
        ) from None


def rewritten(value: str) -> str:
    r"""Convert a replacement to RE2 syntax: users write groups as `$1` and `${1}`, a dollar as `$$`.

    >>> rewritten("${2}-$1"), rewritten("$$")
    ('\\2-\\1', '$')
    """
    plain = value.replace("\\", "\\\\")
    return _GROUP.sub(lambda found: f"\\{found[1] or found[2]}" if found[1] or found[2] else "$", plain)


def matches(texts: pa.Array, options: Options) -> pa.Array:
    """Return whether the pattern occurs."""
    import pyarrow.compute as pc  # noqa: PLC0415 - loaded on first use

    return pc.match_substring_regex(texts, pattern=options["pattern"])


def count_matches(texts: pa.Array, options: Options) -> pa.Array:
    """Count the non-overlapping matches of the pattern.

    Arrow's count treats the rest after a match as a new text, in which `^` matches again. So this replaces all matches
    by one byte and by nothing: the lengths differ by the number of matches.
    """
    import pyarrow.compute as pc  # noqa: PLC0415 - loaded on first use

    pattern = options["pattern"]
    marked, without = (
        pc.binary_length(pc.replace_substring_regex(texts, pattern=pattern, replacement=replacement))
        for replacement in ("x", "")
    )
    return pc.subtract(marked, without)


def replace_matches(texts: pa.Array, options: Options) -> pa.Array:
    """Replace all matches of the pattern, or at most `most` of them."""
    import pyarrow.compute as pc  # noqa: PLC0415 - loaded on first use

    most = options.get("most", -1)
    if most > 1:
        return _replace_some(texts, options["pattern"], options["value"], most)
    return pc.replace_substring_regex(
        texts, pattern=options["pattern"], replacement=options["value"], max_replacements=most
    )


def _replace_some(texts: pa.Array, pattern: str, value: str, most: int) -> pa.Array:
    """Replace the first `most` matches: mark every match with its old and new text, then restore the old text of the rest.

    Arrow's `max_replacements` treats the rest after a match as a new text, in which `^` matches again.
    """
    import pyarrow.compute as pc  # noqa: PLC0415 - loaded on first use

    new, old, end = _signs_outside([value, *texts.drop_null().to_pylist()])
    marked = pc.replace_substring_regex(
        texts, pattern=pattern, replacement=f"{new}{value}{old}\\0{end}"
    ).to_pylist()
    either = re.compile(f"{new}([^{old}]*){old}([^{end}]*){end}")

    def chosen(text: str) -> str:
        return either.sub(r"\2", either.sub(r"\1", text, count=most))

    return from_physical(
        [None if marked_text is None else chosen(marked_text) for marked_text in marked], texts.type
    )


def _signs_outside(texts: list[str]) -> list[str]:
    """Return three private-use characters of Unicode that occur in no text."""
    seen = set().union(*texts)
    return list(islice((sign for sign in map(chr, range(0xF0000, 0x10FFFE)) if sign not in seen), 3))


def find(texts: pa.Array, options: Options) -> pa.Array:
    """Return the byte position of the first match; null without a match."""
    import pyarrow.compute as pc  # noqa: PLC0415 - loaded on first use

    found = pc.find_substring_regex(texts, pattern=options["pattern"]).cast(pa.int64())
    return pc.if_else(pc.greater_equal(found, 0), found, pa.nulls(1, pa.int64())[0])


def extract(texts: pa.Array, options: Options) -> pa.Array:
    """Return a group of the first match, 0 being the whole match; null without a match."""
    import pyarrow.compute as pc  # noqa: PLC0415 - loaded on first use

    begin, end, _ = _signs_outside(texts.drop_null().to_pylist())
    marked = pc.replace_substring_regex(
        texts,
        pattern=options["pattern"],
        replacement=f"{begin}\\{options['group']}{end}",
        max_replacements=1,
    ).to_pylist()
    taken = [
        None if text is None or begin not in text else text.split(begin)[1].split(end)[0] for text in marked
    ]
    return from_physical(taken, texts.type)


def groups_of(pattern: str) -> int:
    """Count the groups of a pattern: the largest group number a replacement may use."""
    import pyarrow.compute as pc  # noqa: PLC0415 - loaded on first use

    for group in range(1, 10):
        try:
            pc.replace_substring_regex(
                from_physical([""], pa.string()), pattern=pattern, replacement=f"\\{group}"
            )
        except pa.ArrowInvalid:
            return group - 1
    return 9


def of_one(function: Callable[[pa.Array, Options], pa.Array]) -> Callable[[Setting, str], Any]:
    """Define a function of one text by the function of an array."""
    return lambda setting, a: function(from_physical([a], pa.string()), setting.options)[0].as_py()


# --- String functions. Lengths and positions count characters unless the name says bytes.


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

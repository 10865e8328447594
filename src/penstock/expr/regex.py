"""Regular expressions, by Arrow's RE2: they run in time that grows with the text alone, whatever is written.

One value or a whole column, it is the same function: `compute` and the definitions share it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import pyarrow as pa

from penstock.errors import ExpressionTypeError
from penstock.expr.arithmetic import Setting
from penstock.types.arrow import from_physical

Options = Mapping[str, Any]
_SPECIAL = frozenset(r"\.+*?()|[]{}^$")
_GROUP = re.compile(r"\$(?:\$|(\d+)|\{(\d+)\})")


def is_literal(pattern: str) -> bool:
    """Tell whether a pattern has no sign that means something but itself.

    >>> is_literal("view"), is_literal("^view")
    (True, False)
    """
    return not _SPECIAL.intersection(pattern)


def quoted(text: str) -> str:
    r"""Write a text so that a pattern matches just that.

    >>> quoted("a.b")
    'a\\.b'
    """
    return "".join(f"\\{each}" if each in _SPECIAL else each for each in text)


def check(pattern: str) -> None:
    """Refuse what is no regular expression, before any row is read."""
    import pyarrow.compute as pc  # noqa: PLC0415 - loads when a pattern is written

    try:
        pc.match_substring_regex(from_physical([""], pa.string()), pattern=pattern)
    except pa.ArrowInvalid as error:
        raise ExpressionTypeError(
            f"{pattern!r:.60} is no regular expression ({str(error).rsplit(': ', 1)[-1]:.80}); "
            "write literal=True to take it as it is"
        ) from None


def rewritten(value: str) -> str:
    r"""Write a replacement as RE2 does: groups are `$1` and `${1}` for users, a dollar is `$$`.

    >>> rewritten("${2}-$1"), rewritten("$$")
    ('\\2-\\1', '$')
    """
    plain = value.replace("\\", "\\\\")
    return _GROUP.sub(lambda found: f"\\{found[1] or found[2]}" if found[1] or found[2] else "$", plain)


def matches(texts: pa.Array, options: Options) -> pa.Array:
    """Tell whether the pattern occurs."""
    import pyarrow.compute as pc  # noqa: PLC0415 - loads when rows are there

    return pc.match_substring_regex(texts, pattern=options["pattern"])


def count_matches(texts: pa.Array, options: Options) -> pa.Array:
    """Count how often the pattern occurs, one place behind the other.

    Arrow's own count looks at the rest behind a match as at a text of its own, where `^` matches again. So all are replaced,
    by one byte and by none: the lengths differ by their number.
    """
    import pyarrow.compute as pc  # noqa: PLC0415 - loads when rows are there

    pattern = options["pattern"]
    marked, without = (
        pc.binary_length(pc.replace_substring_regex(texts, pattern=pattern, replacement=each))
        for each in ("x", "")
    )
    return pc.subtract(marked, without)


def replace_matches(texts: pa.Array, options: Options) -> pa.Array:
    """Replace what the pattern matches: everywhere, or at so many places at most."""
    import pyarrow.compute as pc  # noqa: PLC0415 - loads when rows are there

    most = options.get("most", -1)
    if most > 1:
        return _replace_some(texts, options["pattern"], options["value"], most)
    return pc.replace_substring_regex(
        texts, pattern=options["pattern"], replacement=options["value"], max_replacements=most
    )


def _replace_some(texts: pa.Array, pattern: str, value: str, most: int) -> pa.Array:
    """Replace the first matches alone: all are written down, old and new, and the old ones of the rest are taken.

    Arrow's own way looks at the rest behind a match as at a text of its own, where `^` matches again.
    """
    import pyarrow.compute as pc  # noqa: PLC0415 - loads when rows are there

    new, old, end = _signs_outside([value, *texts.drop_null().to_pylist()])
    marked = pc.replace_substring_regex(
        texts, pattern=pattern, replacement=f"{new}{value}{old}\\0{end}"
    ).to_pylist()
    either = re.compile(f"{new}([^{old}]*){old}([^{end}]*){end}")

    def chosen(text: str) -> str:
        return either.sub(r"\2", either.sub(r"\1", text, count=most))

    return from_physical([None if each is None else chosen(each) for each in marked], texts.type)


def _signs_outside(texts: list[str]) -> list[str]:
    """Find three signs, of those that Unicode leaves to private use, that no text has."""
    seen = set().union(*texts)
    return list(islice((sign for sign in map(chr, range(0xF0000, 0x10FFFE)) if sign not in seen), 3))


def find(texts: pa.Array, options: Options) -> pa.Array:
    """Give the byte at which the pattern first matches; null where it does not."""
    import pyarrow.compute as pc  # noqa: PLC0415 - loads when rows are there

    found = pc.find_substring_regex(texts, pattern=options["pattern"]).cast(pa.int64())
    return pc.if_else(pc.greater_equal(found, 0), found, pa.nulls(1, pa.int64())[0])


def extract(texts: pa.Array, options: Options) -> pa.Array:
    """Take what a group of the first match holds, 0 being all of it; null where nothing matches."""
    import pyarrow.compute as pc  # noqa: PLC0415 - loads when rows are there

    begin, end, _ = _signs_outside(texts.drop_null().to_pylist())
    marked = pc.replace_substring_regex(
        texts,
        pattern=options["pattern"],
        replacement=f"{begin}\\{options['group']}{end}",
        max_replacements=1,
    ).to_pylist()
    taken = [
        None if each is None or begin not in each else each.split(begin)[1].split(end)[0] for each in marked
    ]
    return from_physical(taken, texts.type)


def groups_of(pattern: str) -> int:
    """Count the groups of a pattern: the largest number that a replacement may name."""
    import pyarrow.compute as pc  # noqa: PLC0415 - loads when a pattern is written

    for group in range(1, 10):
        try:
            pc.replace_substring_regex(
                from_physical([""], pa.string()), pattern=pattern, replacement=f"\\{group}"
            )
        except pa.ArrowInvalid:
            return group - 1
    return 9


def of_one(function: Callable[[pa.Array, Options], pa.Array]) -> Callable[[Setting, str], Any]:
    """Define a function of one text by that of many."""
    return lambda setting, a: function(from_physical([a], pa.string()), setting.options)[0].as_py()

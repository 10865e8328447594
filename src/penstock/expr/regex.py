"""Regular expressions, by Arrow's RE2: they run in time that grows with the text alone, whatever is written.

One value or a whole column, it is the same function: `compute` and the definitions share it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
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
    """Count how often the pattern occurs, one place behind the other."""
    import pyarrow.compute as pc  # noqa: PLC0415 - loads when rows are there

    return pc.count_substring_regex(texts, pattern=options["pattern"])


def replace_matches(texts: pa.Array, options: Options) -> pa.Array:
    """Replace what the pattern matches: everywhere, or at so many places at most."""
    import pyarrow.compute as pc  # noqa: PLC0415 - loads when rows are there

    return pc.replace_substring_regex(
        texts,
        pattern=options["pattern"],
        replacement=options["value"],
        max_replacements=options.get("most", -1),
    )


def of_one(function: Callable[[pa.Array, Options], pa.Array]) -> Callable[[Setting, str], Any]:
    """Define a function of one text by that of many."""
    return lambda setting, a: function(from_physical([a], pa.string()), setting.options)[0].as_py()

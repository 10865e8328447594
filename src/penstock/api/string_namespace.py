"""The namespace of strings, `.str`, named as in Polars."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from penstock.api.expr import Expr, call
from penstock.api.literals import flag, literal
from penstock.errors import ExpressionTypeError
from penstock.expr import text as regex
from penstock.types.arrow import as_type, kind_of
from penstock.types.duration import is_whole


class Texts:
    """String functions. Lengths and offsets count characters. Patterns are regular expressions in RE2 syntax.

    >>> import penstock as pk
    >>> pk.col("kind").str.starts_with("view")
    <Expr starts_with(kind, pattern="view")>
    """

    __slots__ = ("_expr",)

    def __init__(self, expr: Expr) -> None:
        self._expr = expr

    def len_chars(self) -> Expr:
        """Count the characters."""
        return call("str_len_chars", self._expr)

    def len_bytes(self) -> Expr:
        """Count the bytes in UTF-8."""
        return call("str_len_bytes", self._expr)

    def to_lowercase(self) -> Expr:
        """Convert to lower case."""
        return call("to_lower", self._expr)

    def to_uppercase(self) -> Expr:
        """Convert to upper case."""
        return call("to_upper", self._expr)

    def to_titlecase(self) -> Expr:
        """Capitalise each word, with the rest in lower case; a word is a run of letters.

        >>> import pyarrow as pa, penstock as pk
        >>> names = pk.from_arrow(pa.table({"t": [0], "name": ["ADA o'neil"]}), time="t")
        >>> names.select(z=pk.col("name").str.to_titlecase()).collect()["z"][0]
        <pyarrow.StringScalar: "Ada O'Neil">
        """
        return call("to_title", self._expr)

    def to_integer(self) -> Expr:
        """Parse as a decimal integer."""
        return self._expr.cast("int64")

    def strip_chars(self, characters: str | None = None) -> Expr:
        """Strip characters from both ends; white space by default."""
        return self._stripped("strip", characters)

    def strip_chars_start(self, characters: str | None = None) -> Expr:
        """Strip characters from the start; white space by default."""
        return self._stripped("strip_start", characters)

    def strip_chars_end(self, characters: str | None = None) -> Expr:
        """Strip characters from the end; white space by default."""
        return self._stripped("strip_end", characters)

    def _stripped(self, function: str, characters: str | None) -> Expr:
        if characters is None:
            return call(function, self._expr)
        return call(function, self._expr, characters=_text(characters, "characters"))

    def strip_prefix(self, prefix: str) -> Expr:
        """Remove a prefix, if present."""
        return call("strip_prefix", self._expr, pattern=_text(prefix, "prefix"))

    def strip_suffix(self, suffix: str) -> Expr:
        """Remove a suffix, if present."""
        return call("strip_suffix", self._expr, pattern=_text(suffix, "suffix"))

    def starts_with(self, prefix: str) -> Expr:
        """Return whether the string starts with a prefix."""
        return call("starts_with", self._expr, pattern=_text(prefix, "prefix"))

    def ends_with(self, suffix: str) -> Expr:
        """Return whether the string ends with a suffix."""
        return call("ends_with", self._expr, pattern=_text(suffix, "suffix"))

    def contains(self, pattern: str, *, literal: bool = False) -> Expr:
        r"""Return whether a regular expression matches anywhere, or with `literal=True` whether a text occurs.

        >>> import penstock as pk
        >>> pk.col("url").str.contains(r"^/cart/\d+$")
        <Expr matches(url, pattern="^/cart/\\d+$")>
        """
        return call(_way("contains", "matches", pattern, literal), self._expr, pattern=pattern)

    def contains_any(self, patterns: Iterable[str]) -> Expr:
        """Return whether any of several texts occurs."""
        if isinstance(patterns, str) or not isinstance(patterns, Iterable):
            raise ExpressionTypeError(
                f"contains_any takes a list of texts, not a {type(patterns).__name__}; for one text there is contains"
            )
        found = [self.contains(pattern, literal=True) for pattern in patterns]
        return reduce(lambda one, other: one | other, found, self._expr != self._expr)

    def find(self, pattern: str, *, literal: bool = False) -> Expr:
        """Return the byte position of the first match of a regular expression or text; null without a match."""
        _way("", "", pattern, literal)
        return call("find", self._expr, pattern=regex.quoted(pattern) if literal else pattern)

    def extract(self, pattern: str, group_index: int = 1) -> Expr:
        r"""Return a group of the first match of a regular expression, 0 being the whole match; null without a match.

        >>> import penstock as pk
        >>> pk.col("url").str.extract(r"^/cart/(\d+)")
        <Expr extract(url, group=1, pattern="^/cart/(\\d+)")>
        """
        _way("", "", pattern, False)
        group, most = _whole(group_index, "group_index"), regex.groups_of(pattern)
        if not 0 <= group <= most:
            raise ExpressionTypeError(
                f"group_index is {group}, but the pattern has {most} groups that can be taken"
            )
        return call("extract", self._expr, group=group, pattern=pattern)

    def to_datetime(self, format: str | None = None, *, strict: bool = True) -> Expr:
        """Parse as a timestamp, by a format as in `dt.strftime`, or as ISO 8601."""
        return self._parsed("timestamp", format, strict)

    def to_date(self, format: str | None = None, *, strict: bool = True) -> Expr:
        """Parse as a date, by a format as in `dt.strftime`, or as ISO 8601."""
        return self._parsed("date", format, strict)

    def strptime(self, dtype: object, format: str | None = None, *, strict: bool = True) -> Expr:
        """Parse as a date or a timestamp, depending on `dtype`, as `to_date` and `to_datetime` do.

        >>> import pyarrow as pa, penstock as pk
        >>> texts = pk.from_arrow(pa.table({"t": [0], "day": ["31.01.2026"]}), time="t")
        >>> texts.select(z=pk.col("day").str.strptime("date", "%d.%m.%Y")).collect()["z"][0]
        <pyarrow.Date32Scalar: datetime.date(2026, 1, 31)>
        """
        goal = as_type(dtype)
        if kind_of(goal) not in ("timestamp", "date"):
            raise ExpressionTypeError(
                f"strptime reads times, as 'date' or 'timestamp[us]', not {goal}; use .cast for numbers"
            )
        return self._parsed(kind_of(goal), format, strict).cast(goal)

    def _parsed(self, goal: str, format: str | None, strict: bool) -> Expr:
        iso = "%Y-%m-%d" if goal == "date" else None
        flag(strict, "strict")
        if format is None and (strict or iso is None):
            return self._expr.cast(goal)
        return call(
            "parse_time",
            self._expr,
            format=_text(iso if format is None else format, "format"),
            goal=goal,
            strict=strict,
        )

    def count_matches(self, pattern: str, *, literal: bool = False) -> Expr:
        """Count the matches of a regular expression, or the occurrences of a text."""
        _way("", "", pattern, literal)
        wanted = regex.quoted(pattern) if literal else pattern
        return call("count_matches", self._expr, pattern=wanted)

    def replace(self, pattern: str, value: str, *, literal: bool = False, n: int = 1) -> Expr:
        """Replace the first `n` matches of a regular expression, or occurrences of a text; `$1` is its first group."""
        most = _whole(n, "n")
        return self._replaced(pattern, value, literal, {"most": most} if most >= 0 else {})

    def replace_all(self, pattern: str, value: str, *, literal: bool = False) -> Expr:
        """Replace every match of a regular expression, or every occurrence of a text; `$1` is its first group."""
        return self._replaced(pattern, value, literal, {})

    def _replaced(self, pattern: str, value: str, literal: bool, most: dict[str, object]) -> Expr:
        way = _way("replace", "replace_matches", pattern, literal)
        new = _text(value, "value")
        if not literal and "$" in new:
            way = "replace_matches"
        written = regex.rewritten(new) if way == "replace_matches" else new
        return call(way, self._expr, pattern=pattern, value=written, **most)

    def slice(self, offset: int, length: int | None = None) -> Expr:
        """Return a substring; a negative offset counts from the end."""
        start = _whole(offset, "offset")
        if length is None:
            return call("slice", self._expr, offset=start)
        if _whole(length, "length") < 0:
            raise ExpressionTypeError(f"length is {length}; it must not be negative")
        return call("slice", self._expr, offset=start, length=length)

    def head(self, n: int) -> Expr:
        """Return the first n characters; all but the last -n if n is negative."""
        return call("head", self._expr, length=_whole(n, "n"))

    def tail(self, n: int) -> Expr:
        """Return the last n characters; all but the first -n if n is negative."""
        return call("tail", self._expr, length=_whole(n, "n"))

    def pad_start(self, length: int, fill_char: str = " ") -> Expr:
        """Pad to a length at the start."""
        return call("pad_start", self._expr, length=_whole(length, "length"), fill=_character(fill_char))

    def pad_end(self, length: int, fill_char: str = " ") -> Expr:
        """Pad to a length at the end."""
        return call("pad_end", self._expr, length=_whole(length, "length"), fill=_character(fill_char))

    def zfill(self, length: int) -> Expr:
        """Pad to a length with zeros after the sign."""
        return call("zfill", self._expr, length=_whole(length, "length"))

    def reverse(self) -> Expr:
        """Reverse the characters."""
        return call("reverse", self._expr)

    def concat(self, *others: object) -> Expr:
        """Concatenate strings, as `+` does; null if any of them is null."""
        return call("concat", self._expr, *others)


def _way(plain: str, by_pattern: str, pattern: object, literal: object) -> str:
    """Choose between the text function and the regular-expression function; check the expression."""
    text = _text(pattern, "pattern")
    if not isinstance(literal, bool):
        raise ExpressionTypeError(f"literal is True or False, not a {type(literal).__name__}")
    if literal or regex.is_literal(text):
        return plain
    regex.check(text)
    return by_pattern


def _text(given: object, what: str) -> str:
    if not isinstance(given, str):
        raise ExpressionTypeError(f"{what} is a constant text here, not a {type(given).__name__}")
    return str(literal(given).value)


def _whole(given: object, what: str) -> int:
    if not is_whole(given) or not -MOST_CHARACTERS <= int(given) <= MOST_CHARACTERS:
        raise ExpressionTypeError(f"{what} is a whole number of characters here, not {given!r:.40}")
    return int(given)


def _character(given: object) -> str:
    if not isinstance(given, str) or len(given) != 1:
        raise ExpressionTypeError(f"fill_char is one character, not {given!r:.40}")
    return given


MOST_CHARACTERS = 1 << 20  # largest padded length

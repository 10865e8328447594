"""The namespaces of an expression: `.dt` for times and `.str` for strings, named as in Polars."""

from __future__ import annotations

from penstock.api.expr import Expr, call
from penstock.types.duration import Duration


class Times:
    """Parts of timestamps and dates, in the column's zone (UTC if it has none).

    >>> import penstock as pk
    >>> pk.col("ts").dt.truncate("1h")
    <Expr truncate(ts, every="1h")>
    """

    __slots__ = ("_expr",)

    def __init__(self, expr: Expr) -> None:
        self._expr = expr

    def year(self) -> Expr:
        """Give the year."""
        return call("year", self._expr)

    def iso_year(self) -> Expr:
        """Give the year the ISO week belongs to."""
        return call("iso_year", self._expr)

    def quarter(self) -> Expr:
        """Give the quarter, 1 to 4."""
        return call("quarter", self._expr)

    def month(self) -> Expr:
        """Give the month, 1 to 12."""
        return call("month", self._expr)

    def week(self) -> Expr:
        """Give the ISO week, 1 to 53."""
        return call("week", self._expr)

    def weekday(self) -> Expr:
        """Give the day of the week, Monday being 1."""
        return call("weekday", self._expr)

    def day(self) -> Expr:
        """Give the day of the month."""
        return call("day", self._expr)

    def ordinal_day(self) -> Expr:
        """Give the day of the year."""
        return call("ordinal_day", self._expr)

    def hour(self) -> Expr:
        """Give the hour of the day."""
        return call("hour", self._expr)

    def minute(self) -> Expr:
        """Give the minute of the hour."""
        return call("minute", self._expr)

    def second(self) -> Expr:
        """Give the whole second of the minute."""
        return call("second", self._expr)

    def millisecond(self) -> Expr:
        """Give the milliseconds since the whole second."""
        return call("millisecond", self._expr)

    def microsecond(self) -> Expr:
        """Give the microseconds since the whole second."""
        return call("microsecond", self._expr)

    def nanosecond(self) -> Expr:
        """Give the nanoseconds since the whole second."""
        return call("nanosecond", self._expr)

    def date(self) -> Expr:
        """Give the date."""
        return call("date", self._expr)

    def epoch(self) -> Expr:
        """Give the ticks since 1970-01-01 UTC, in the column's own unit."""
        return call("epoch_ticks", self._expr)

    def truncate(self, every: Duration) -> Expr:
        """Round down to a multiple of a duration since 1970-01-01 UTC."""
        return call("truncate", self._expr, every=every)


class Texts:
    """Functions of strings. Lengths and offsets count characters.

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
        """Write in lower case."""
        return call("to_lower", self._expr)

    def to_uppercase(self) -> Expr:
        """Write in upper case."""
        return call("to_upper", self._expr)

    def strip_chars(self, characters: str | None = None) -> Expr:
        """Take characters off both ends; white space unless others are given."""
        return call("strip", self._expr, **({} if characters is None else {"characters": characters}))

    def starts_with(self, prefix: str) -> Expr:
        """Tell whether the string begins so."""
        return call("starts_with", self._expr, pattern=prefix)

    def ends_with(self, suffix: str) -> Expr:
        """Tell whether the string ends so."""
        return call("ends_with", self._expr, pattern=suffix)

    def contains(self, literal: str) -> Expr:
        """Tell whether a text occurs in the string. It is taken literally."""
        return call("contains", self._expr, pattern=literal)

    def replace_all(self, pattern: str, value: str) -> Expr:
        """Replace every occurrence of a text, taken literally."""
        return call("replace", self._expr, pattern=pattern, value=value)

    def slice(self, offset: int, length: int | None = None) -> Expr:
        """Take a part; a negative offset counts from the end."""
        return call("slice", self._expr, offset=offset, **({} if length is None else {"length": length}))

    def concat(self, *others: object) -> Expr:
        """Append strings; null if any of them is."""
        return call("concat", self._expr, *others)

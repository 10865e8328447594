"""The namespace of times, `.dt`, named as in Polars. (Strings are in `string_namespace.py`.)"""

from __future__ import annotations

import pyarrow as pa

from penstock.api.expr import Expr, call
from penstock.api.literals import flag
from penstock.errors import ExpressionTypeError
from penstock.expr.nodes import Literal
from penstock.types.calendar import time_zone
from penstock.types.duration import Duration, nanoseconds, years_as_months


class Times:
    """Fields of timestamps and dates, in the column's zone (UTC if it has none).

    >>> import penstock as pk
    >>> pk.col("ts").dt.truncate("1h")
    <Expr truncate(ts, every="1h")>
    """

    __slots__ = ("_expr",)

    def __init__(self, expr: Expr) -> None:
        self._expr = expr

    def year(self) -> Expr:
        """Return the year."""
        return call("year", self._expr)

    def iso_year(self) -> Expr:
        """Return the year of the ISO week."""
        return call("iso_year", self._expr)

    def quarter(self) -> Expr:
        """Return the quarter, 1 to 4."""
        return call("quarter", self._expr)

    def month(self) -> Expr:
        """Return the month, 1 to 12."""
        return call("month", self._expr)

    def week(self) -> Expr:
        """Return the ISO week, 1 to 53."""
        return call("week", self._expr)

    def weekday(self) -> Expr:
        """Return the day of the week, 1 for Monday."""
        return call("weekday", self._expr)

    def day(self) -> Expr:
        """Return the day of the month."""
        return call("day", self._expr)

    def ordinal_day(self) -> Expr:
        """Return the day of the year."""
        return call("ordinal_day", self._expr)

    def hour(self) -> Expr:
        """Return the hour of the day."""
        return call("hour", self._expr)

    def minute(self) -> Expr:
        """Return the minute of the hour."""
        return call("minute", self._expr)

    def second(self, *, fractional: bool = False) -> Expr:
        """Return the second of the minute; as a float with its fraction if `fractional`."""
        whole = call("second", self._expr)
        return whole + self.nanosecond() / 1e9 if flag(fractional, "fractional") else whole

    def millisecond(self) -> Expr:
        """Return the milliseconds since the whole second."""
        return call("millisecond", self._expr)

    def microsecond(self) -> Expr:
        """Return the microseconds since the whole second."""
        return call("microsecond", self._expr)

    def nanosecond(self) -> Expr:
        """Return the nanoseconds since the whole second."""
        return call("nanosecond", self._expr)

    def date(self) -> Expr:
        """Return the date."""
        return call("date", self._expr)

    def epoch(self, time_unit: str = "us") -> Expr:
        """Return the time since 1970-01-01 UTC in "ns", "us", "ms", "s" or "d", rounded down."""
        return call("epoch_ticks", self._expr, unit=_unit(time_unit, ("ns", "us", "ms", "s", "d")))

    def timestamp(self, time_unit: str = "us") -> Expr:
        """Return the time since 1970-01-01 UTC in "ns", "us" or "ms", rounded down."""
        return self.epoch(_unit(time_unit, ("ns", "us", "ms")))

    def truncate(self, every: Duration) -> Expr:
        """Truncate to a multiple of a duration, in the local time of the column's zone; weeks begin on Monday.

        Quarters (`"1q"`) and years (`"1y"`) are converted to months, as in Polars.

        >>> import penstock as pk
        >>> pk.col("ts").dt.truncate("1y")
        <Expr truncate(ts, every="12mo")>
        """
        return call("truncate", self._expr, every=years_as_months(every))

    def round(self, every: Duration) -> Expr:
        """Round to the nearest multiple of a duration, halves up; otherwise as `truncate`. Months are not supported.

        >>> import datetime as dt, pyarrow as pa, penstock as pk
        >>> table = pa.table({"ts": [dt.datetime(2026, 1, 31, 12, 7, 30), dt.datetime(2026, 1, 31, 12, 22, 29)]})
        >>> quarters = pk.from_arrow(table, time="ts").select(near=pk.col("ts").dt.round("15m")).collect()
        >>> [near.strftime("%H:%M") for near in quarters["near"].to_pylist()]
        ['12:15', '12:15']
        """
        return call("round_time", self._expr, every=every)

    def offset_by(self, by: Duration) -> Expr:
        """Add a duration: months, weeks and days in the local time of the column's zone, the rest as elapsed time.

        Quarters (`"1q"`) and years (`"1y"`) are converted to months, as in Polars.

        >>> import penstock as pk
        >>> pk.col("ts").dt.offset_by("-1mo")
        <Expr offset_by(ts, by="-1mo")>
        """
        return call("offset_by", self._expr, by=years_as_months(by))

    def month_start(self) -> Expr:
        """Return the first day of the month; keep the time of day."""
        return call("month_start", self._expr)

    def month_end(self) -> Expr:
        """Return the last day of the month; keep the time of day."""
        return call("month_end", self._expr)

    def days_in_month(self) -> Expr:
        """Return the number of days of the month."""
        return call("day", self.month_end())

    def convert_time_zone(self, time_zone: str) -> Expr:
        """Convert to another zone, keeping the instant; a time without a zone is in UTC."""
        return call("convert_time_zone", self._expr, zone=_zone(time_zone))

    def replace_time_zone(self, time_zone: str | None) -> Expr:
        """Reinterpret the local time in another zone, or in none.

        An ambiguous local time becomes its first occurrence; a skipped one becomes the instant of the jump.
        """
        return call("replace_zone", self._expr, zone="" if time_zone is None else _zone(time_zone))

    def cast_time_unit(self, time_unit: str) -> Expr:
        """Convert to "ns", "us" or "ms", rounding down."""
        return call("cast_time_unit", self._expr, unit=_unit(time_unit, ("ns", "us", "ms")))

    def strftime(self, format: str) -> Expr:
        """Format the time, as C's strftime does: `strftime("%Y-%m-%d")`."""
        if not isinstance(format, str):
            raise ExpressionTypeError(
                f"strftime takes a format, such as '%Y-%m-%d', not a {type(format).__name__}"
            )
        return call("strftime", self._expr, format=format)

    def to_string(self, format: str | None = None) -> Expr:
        """Format the time as `strftime` does; without a format as ISO 8601, with a space ("iso") or a T ("iso:strict").

        >>> import datetime as dt, pyarrow as pa, penstock as pk
        >>> days = pk.from_arrow(pa.table({"ts": pa.array([dt.datetime(2026, 1, 31)], pa.timestamp("ms", "UTC"))}), time="ts")
        >>> days.select(at=pk.col("ts").dt.to_string()).collect()["at"].to_pylist()
        ['2026-01-31 00:00:00.000+00:00']
        """
        return self.strftime("iso" if format is None else format)

    def century(self) -> Expr:
        """Return the century: 2000 is in the 20th, 2001 in the 21st."""
        return (self.year() + 99) // 100

    def millennium(self) -> Expr:
        """Return the millennium: 2000 is in the 2nd, 2001 in the 3rd."""
        return (self.year() + 999) // 1000

    def is_leap_year(self) -> Expr:
        """Return whether the year is a leap year."""
        year = self.year()
        return ((year % 4 == 0) & (year % 100 != 0)) | (year % 400 == 0)

    def total_days(self, *, fractional: bool = False) -> Expr:
        """Return the whole days of a duration."""
        return self._total("d", fractional)

    def total_hours(self, *, fractional: bool = False) -> Expr:
        """Return the whole hours of a duration."""
        return self._total("h", fractional)

    def total_minutes(self, *, fractional: bool = False) -> Expr:
        """Return the whole minutes of a duration."""
        return self._total("m", fractional)

    def total_seconds(self, *, fractional: bool = False) -> Expr:
        """Return the whole seconds of a duration."""
        return self._total("s", fractional)

    def total_milliseconds(self, *, fractional: bool = False) -> Expr:
        """Return the whole milliseconds of a duration."""
        return self._total("ms", fractional)

    def total_microseconds(self, *, fractional: bool = False) -> Expr:
        """Return the whole microseconds of a duration."""
        return self._total("us", fractional)

    def total_nanoseconds(self, *, fractional: bool = False) -> Expr:
        """Return the nanoseconds of a duration."""
        return self._total("ns", fractional)

    def _total(self, unit: str, fractional: bool) -> Expr:
        """Convert to a unit, truncated towards zero unless `fractional`."""
        one = Expr(Literal(int(nanoseconds(f"1{unit}")), pa.duration("ns")))
        if flag(fractional, "fractional"):
            return self._expr / one
        return self._expr.sign() * (self._expr.abs() // one)


def _zone(given: object) -> str:
    if not isinstance(given, str):
        raise ExpressionTypeError(
            f"a time zone is written as 'Europe/Berlin' or '+02:00', not as a {type(given).__name__}"
        )
    time_zone(given)
    return given


def _unit(given: object, known: tuple[str, ...]) -> str:
    if not isinstance(given, str) or given not in known:
        raise ExpressionTypeError(f"time_unit is {given!r}; it is one of {', '.join(map(repr, known))}")
    return given

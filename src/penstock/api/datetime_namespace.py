"""The namespace of times, `.dt`, named as in Polars. (That of strings is in `texts.py`.)"""

from __future__ import annotations

import pyarrow as pa

from penstock.api.arguments import flag
from penstock.api.expr import Expr, call
from penstock.errors import ExpressionTypeError
from penstock.expr.nodes import Literal
from penstock.types.duration import Duration, nanoseconds, years_as_months
from penstock.types.wall_clock import time_zone


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

    def second(self, *, fractional: bool = False) -> Expr:
        """Give the whole second of the minute; with its fraction, as a float, if that is asked for."""
        whole = call("second", self._expr)
        return whole + self.nanosecond() / 1e9 if flag(fractional, "fractional") else whole

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

    def epoch(self, time_unit: str = "us") -> Expr:
        """Give the time since 1970-01-01 UTC in "ns", "us", "ms", "s" or "d", rounded down."""
        return call("epoch_ticks", self._expr, unit=_unit(time_unit, ("ns", "us", "ms", "s", "d")))

    def timestamp(self, time_unit: str = "us") -> Expr:
        """Give the time since 1970-01-01 UTC in "ns", "us" or "ms", rounded down."""
        return self.epoch(_unit(time_unit, ("ns", "us", "ms")))

    def truncate(self, every: Duration) -> Expr:
        """Round down to a multiple of a duration, on the clock of the column's zone; weeks begin on Monday.

        Quarters (`"1q"`) and years (`"1y"`) are months, as in Polars.

        >>> import penstock as pk
        >>> pk.col("ts").dt.truncate("1y")
        <Expr truncate(ts, every="12mo")>
        """
        return call("truncate", self._expr, every=years_as_months(every))

    def round(self, every: Duration) -> Expr:
        """Round to the nearest multiple of a duration, up from the middle on; else as `truncate` does. Not for months.

        >>> import datetime as dt, pyarrow as pa, penstock as pk
        >>> table = pa.table({"ts": [dt.datetime(2026, 1, 31, 12, 7, 30), dt.datetime(2026, 1, 31, 12, 22, 29)]})
        >>> quarters = pk.from_arrow(table, time="ts").select(near=pk.col("ts").dt.round("15m")).collect()
        >>> [near.strftime("%H:%M") for near in quarters["near"].to_pylist()]
        ['12:15', '12:15']
        """
        return call("round_time", self._expr, every=every)

    def offset_by(self, by: Duration) -> Expr:
        """Move by a duration: months, weeks and days on the clock of the column's zone, the rest as a length of time.

        Quarters (`"1q"`) and years (`"1y"`) are months, as in Polars.

        >>> import penstock as pk
        >>> pk.col("ts").dt.offset_by("-1mo")
        <Expr offset_by(ts, by="-1mo")>
        """
        return call("offset_by", self._expr, by=years_as_months(by))

    def month_start(self) -> Expr:
        """Give the first day of the month; the time of day stays."""
        return call("month_start", self._expr)

    def month_end(self) -> Expr:
        """Give the last day of the month; the time of day stays."""
        return call("month_end", self._expr)

    def days_in_month(self) -> Expr:
        """Count the days of the month."""
        return call("day", self.month_end())

    def convert_time_zone(self, time_zone: str) -> Expr:
        """Show the same instant on the clock of another zone; a time without one is of UTC."""
        return call("convert_time_zone", self._expr, zone=_zone(time_zone))

    def replace_time_zone(self, time_zone: str | None) -> Expr:
        """Take what the clock shows as it is on the clock of another zone, or of none.

        A time that clock shows twice is the first of the two, one that it jumps over is the jump.
        """
        return call("replace_zone", self._expr, zone="" if time_zone is None else _zone(time_zone))

    def cast_time_unit(self, time_unit: str) -> Expr:
        """Count in "ns", "us" or "ms"; to a coarser one, rounded down."""
        return call("cast_time_unit", self._expr, unit=_unit(time_unit, ("ns", "us", "ms")))

    def strftime(self, format: str) -> Expr:
        """Write the time, as C's strftime does: `strftime("%Y-%m-%d")`."""
        if not isinstance(format, str):
            raise ExpressionTypeError(
                f"strftime takes a format, such as '%Y-%m-%d', not a {type(format).__name__}"
            )
        return call("strftime", self._expr, format=format)

    def to_string(self, format: str | None = None) -> Expr:
        """Write the time, as `strftime` does; without a format as ISO 8601 does, with a space ("iso") or a T ("iso:strict").

        >>> import datetime as dt, pyarrow as pa, penstock as pk
        >>> days = pk.from_arrow(pa.table({"ts": pa.array([dt.datetime(2026, 1, 31)], pa.timestamp("ms", "UTC"))}), time="ts")
        >>> days.select(at=pk.col("ts").dt.to_string()).collect()["at"].to_pylist()
        ['2026-01-31 00:00:00.000+00:00']
        """
        return self.strftime("iso" if format is None else format)

    def century(self) -> Expr:
        """Give the century: 2000 is in the 20th, 2001 in the 21st."""
        return (self.year() + 99) // 100

    def millennium(self) -> Expr:
        """Give the millennium: 2000 is in the 2nd, 2001 in the 3rd."""
        return (self.year() + 999) // 1000

    def is_leap_year(self) -> Expr:
        """Tell whether the year has a 29th of February."""
        year = self.year()
        return ((year % 4 == 0) & (year % 100 != 0)) | (year % 400 == 0)

    def total_days(self, *, fractional: bool = False) -> Expr:
        """Count the whole days of a duration."""
        return self._total("d", fractional)

    def total_hours(self, *, fractional: bool = False) -> Expr:
        """Count the whole hours of a duration."""
        return self._total("h", fractional)

    def total_minutes(self, *, fractional: bool = False) -> Expr:
        """Count the whole minutes of a duration."""
        return self._total("m", fractional)

    def total_seconds(self, *, fractional: bool = False) -> Expr:
        """Count the whole seconds of a duration."""
        return self._total("s", fractional)

    def total_milliseconds(self, *, fractional: bool = False) -> Expr:
        """Count the whole milliseconds of a duration."""
        return self._total("ms", fractional)

    def total_microseconds(self, *, fractional: bool = False) -> Expr:
        """Count the whole microseconds of a duration."""
        return self._total("us", fractional)

    def total_nanoseconds(self, *, fractional: bool = False) -> Expr:
        """Count the nanoseconds of a duration."""
        return self._total("ns", fractional)

    def _total(self, unit: str, fractional: bool) -> Expr:
        """Count units, towards zero unless fractions are asked for."""
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

"""Parse durations, and convert them to ticks of a time column."""

from __future__ import annotations

import operator
import re
from datetime import timedelta
from fractions import Fraction
from numbers import Integral
from typing import Any, SupportsIndex, TypeGuard

from penstock.caches import CACHES
from penstock.errors import DurationError, UnsupportedError, WindowError
from penstock.types.arrow import kind_of
from penstock.types.time import NANOSECONDS, Time
from penstock.types.windows import CalendarStep

_UNITS = {**NANOSECONDS, "m": 60 * 10**9, "h": 3_600 * 10**9, "w": 7 * NANOSECONDS["d"]}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zµμ]+)\s*")
_YEARS = re.compile(r"(?<![\d.])(\d+)\s*([qy])(?![a-z])")
_MONTHS = {"q": 3, "y": 12}
_HOW = (
    "write one like '10s', '100ms', '1h30m' or '7d' (units ns us ms s m h d w, mo with tz=), or a timedelta"
)
_MOST_MONTHS = 9_999 * 12
_MOST_DAYS = 1 << 48  # more days than 64 bits count in seconds
_MONDAY = -3  # 1969-12-29, in days, as in `calendar.py`

Duration = str | int | timedelta


def nanoseconds(duration: object, what: str = "the duration") -> Fraction:
    """Parse a duration that includes a unit.

    >>> nanoseconds("1h30m")
    Fraction(5400000000000, 1)
    """
    match duration:
        case str():
            return _parse(duration, what)
        case timedelta():
            whole = (duration.days * 86_400 + duration.seconds) * 10**6 + duration.microseconds
            return Fraction(whole * 1_000 + getattr(duration, "nanoseconds", 0))  # pandas has these
        case _:
            raise DurationError(f"{what} is {_described(duration)}, which is not a duration; {_HOW}")


def _described(given: object) -> str:
    return (
        repr(given) if isinstance(given, (int, float, str, timedelta)) else f"of type {type(given).__name__}"
    )


@CACHES.results(most=256)  # a query parses its few durations many times
def _parse(text: str, what: str) -> Fraction:
    return sum((count * _unit(name, text, what) for count, name in _parts(text, what)), Fraction(0))


@CACHES.results(most=256)
def _parts(text: str, what: str) -> tuple[tuple[Fraction, str], ...]:
    """Split a duration into signed counts and the names of their units."""
    body = text.strip()
    sign = -1 if body.startswith("-") else 1
    body = body.removeprefix("-").removeprefix("+")
    parts, position = [], 0
    while found := _PART.match(body, position):
        parts.append((sign * Fraction(found[1]), found[2]))
        position = found.end()
    if position == 0 or position != len(body):
        raise DurationError(f"{what} is {text!r}, which is not a duration; {_HOW}")
    return tuple(parts)


def _unit(name: str, text: str, what: str) -> int:
    if name == "mo":
        raise UnsupportedError(
            f"{what} is {text!r}: months need tz=, since their lengths differ; "
            "give the window a time zone, such as tz='UTC', or use days or weeks"
        )
    try:
        return _UNITS[name.replace("µ", "u").replace("μ", "u")]
    except KeyError:
        raise DurationError(f"{what} is {text!r}: there is no unit {name!r}; {_HOW}") from None


def years_as_months(duration: Duration) -> Duration:
    """Rewrite quarters and years, which only calendar functions accept, as months.

    >>> years_as_months("1y2q"), years_as_months("36h")
    ('12mo6mo', '36h')
    """
    if not isinstance(duration, str):
        return duration
    return _YEARS.sub(lambda found: f"{int(found[1]) * _MONTHS[found[2]]}mo", duration)


def calendar_step(duration: object, unit: str | None, what: str) -> CalendarStep:
    """Parse the size or the step of wall-clock windows (tz=), in months or in ticks of `unit`.

    >>> calendar_step("3mo", "s", "size"), calendar_step("6h", "s", "size")
    (CalendarStep(months=3, ticks=0), CalendarStep(months=0, ticks=21600))
    """
    if unit is None:
        raise DurationError(
            f"{what} is {_described(duration)} in a time zone, but the time column counts in ticks without a unit; "
            "declare the unit of the column with unit="
        )
    step = _in_months(duration, what) or CalendarStep(ticks=_of_the_clock(duration, unit, what))
    if step.months <= 0 and step.ticks <= 0:
        raise WindowError(f"{what} is {_described(duration)}; it must be longer than zero")
    return step


def _in_months(duration: object, what: str) -> CalendarStep | None:
    parts = _parts(duration, what) if isinstance(duration, str) else []
    if all(name != "mo" for _, name in parts):
        return None
    if any(name != "mo" for _, name in parts):
        raise DurationError(f"{what} is {duration!r}: months and other units cannot be mixed; use one kind")
    months = sum((count for count, _ in parts), Fraction(0))
    if months.denominator != 1 or months > _MOST_MONTHS:
        raise DurationError(
            f"{what} is {duration!r}, which is not a whole number of months up to {_MOST_MONTHS:,}"
        )
    return CalendarStep(months=int(months))


def calendar_parts(duration: object, what: str) -> tuple[int, str]:
    """Parse a duration as a count of the largest unit that divides it; weeks and months stay as written.

    A bare number has no unit:

    >>> calendar_parts("2w", "size"), calendar_parts("1h30m", "size"), calendar_parts(5, "size")
    ((2, 'w'), (90, 'm'), (5, ''))
    """
    if is_whole(duration):
        return operator.index(duration), ""
    months = _in_months(duration, what)
    if months is not None:
        return months.months, "mo"
    length = nanoseconds(duration, what)
    weeks = isinstance(duration, str) and {name for _, name in _parts(duration, what)} == {"w"}
    units = ["w"] * weeks + ["d", "h", "m", "s", "ms", "us", "ns"]
    unit = next((name for name in units if length % _UNITS[name] == 0), "ns")
    return int(length / _UNITS[unit]), unit


def calendar_offset(duration: object, what: str) -> tuple[int, int, Any]:
    """Split a duration into months, days (whose length the clock may change), and a fixed length.

    >>> calendar_offset("-1mo2d", "by"), calendar_offset("1w36h", "by")
    ((-1, -2, '0s'), (0, 7, '36h'))
    """
    if not isinstance(duration, str):
        return 0, 0, duration
    parts = _parts(duration, what)
    months, weeks, days = (
        sum((n for n, name in parts if name == calendar_unit), Fraction(0))
        for calendar_unit in ("mo", "w", "d")
    )
    if months.denominator * weeks.denominator * days.denominator != 1:
        raise DurationError(f"{what} is {duration!r}: months, weeks and days are whole numbers here")
    if abs(months) > _MOST_MONTHS or abs(7 * weeks + days) > _MOST_DAYS:
        raise DurationError(f"{what} is {duration!r}, longer than a calendar counts")
    rest = "".join(f"{abs(n)}{name}" for n, name in parts if name not in ("mo", "w", "d"))
    sign = "-" if any(n < 0 for n, _ in parts) else ""
    return int(months), int(7 * weeks + days), sign + rest if rest else "0s"


def _of_the_clock(duration: object, unit: str, what: str) -> int:
    if is_whole(duration):
        raise DurationError(f"{what} is the bare number {duration}; with tz= {_HOW}")
    length = nanoseconds(duration, what)
    ticks = whole_ticks(length, unit, f"{what} is {_described(duration)}", "the time column")
    return _in_range(ticks, duration, what)


def to_ticks(duration: object, time: Time, what: str) -> int:
    """Convert a duration to ticks of a stream's time; `what` names it in errors.

    >>> import pyarrow as pa
    >>> to_ticks("10s", Time("ts", pa.timestamp("ms"), "ms"), "size")
    10000
    """
    if is_whole(duration):
        ticks = _bare(operator.index(duration), time, what)
        return _in_range(ticks, duration, what)
    if time.unit is None:
        raise DurationError(
            f"{what} is {_described(duration)}, but the time column {time.column!r} counts in ticks without a unit; "
            "give an integer number of ticks, or declare the unit of the column with unit="
        )
    ticks = whole_ticks(
        nanoseconds(duration, what), time.unit, f"{what} is {_described(duration)}", repr(time.column)
    )
    return _in_range(ticks, duration, what)


def week_begin(step: object, time: Time) -> int:
    """Return the origin of a step's grid in ticks: a Monday if the step is in whole weeks, else zero.

    >>> import pyarrow as pa
    >>> clock = Time("day", pa.date32(), "d")
    >>> week_begin("1w", clock), week_begin("7d", clock)
    (-3, 0)
    """
    if not isinstance(step, str) or time.unit is None or calendar_parts(step, "the step")[1] != "w":
        return 0
    return _MONDAY * NANOSECONDS["d"] // NANOSECONDS[time.unit]


def _in_range(ticks: int, duration: object, what: str) -> int:
    """Reject ticks that do not fit in 64 bits."""
    if abs(ticks) > 1 << 62:
        raise DurationError(f"{what} is {_described(duration)}, longer than 64-bit times can count")
    return ticks


def written(duration: timedelta) -> str:
    """Format a duration as users write it, largest units first.

    >>> written(timedelta(days=1, minutes=90, microseconds=5))
    '1d1h30m5us'
    """
    rest, parts = int(nanoseconds(duration)), []
    for name in ("d", "h", "m", "s", "ms", "us", "ns"):
        count, rest = divmod(rest, _UNITS[name])
        parts += [f"{count}{name}"] if count else []
    return "".join(parts)


def is_whole(given: object) -> TypeGuard[int]:
    """Return whether a value is an integer, including NumPy's; booleans and NumPy's timedeltas are not.

    >>> is_whole(3), is_whole(True), is_whole("3")
    (True, False, False)
    """
    if isinstance(
        given, (str, timedelta)
    ):  # checking a protocol would take longer than the rest of parsing a duration
        return False
    return isinstance(given, Integral) and isinstance(given, SupportsIndex) and not isinstance(given, bool)


def _bare(ticks: int, time: Time, what: str) -> int:
    if kind_of(time.type) not in ("int", "uint"):
        raise DurationError(
            f"{what} is the bare number {ticks}, but the time column {time.column!r} is {time.type}; "
            f"give a duration with a unit, such as '{ticks}{'s' if time.unit == 'd' else time.unit}'"
        )
    return ticks


def whole_ticks(length: Fraction, unit: str, what: str, of: str) -> int:
    """Convert nanoseconds to ticks; raise an error on a remainder."""
    ticks = length / NANOSECONDS[unit]
    if ticks.denominator != 1:
        raise DurationError(
            f"{what}, which is not a whole number of ticks of {of} (one tick is 1{unit}); "
            "use a coarser duration, or cast the column to a finer unit"
        )
    return int(ticks)

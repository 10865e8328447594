"""Convert SQL lengths of time to durations of the fluent API."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from sqlglot import exp

from penstock.api.sql.source_span import Text
from penstock.types.duration import Duration, nanoseconds
from penstock.types.time import Time

_WORDS = {
    "ns": "nanosecond nanoseconds ns",
    "us": "microsecond microseconds us µs",
    "ms": "millisecond milliseconds ms",
    "s": "second seconds sec secs s",
    "m": "minute minutes min mins m",
    "h": "hour hours h",
    "d": "day days d",
    "w": "week weeks w",
    "mo": "month months mo mon",
}
SQL_UNITS = {word: unit for unit, words in _WORDS.items() for word in words.split()}
_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([^\W\d_]+)\s*")
_HOW = "write one like '10 seconds', '100ms', INTERVAL '1' MINUTE"


@dataclass(frozen=True, slots=True)
class Length:
    """A length: a duration, or a bare number whose unit depends on the stream's time."""

    duration: str | None = None
    bare: str | None = None

    def on(self, time: Time) -> Duration:
        """Return the duration for a stream's time: bare numbers are seconds, or ticks if time has no unit."""
        if self.duration is not None:
            return self.duration
        assert self.bare is not None
        if time.unit is None and self.bare.isdigit():
            return int(self.bare)
        return f"{self.bare}s"


def spelled(words: str) -> str | None:
    """Convert '1 minute 30 seconds' to a duration; None if the text is not one.

    >>> spelled("1 minute 30 seconds"), spelled("10s"), spelled("ten")
    ('1m30s', '10s', None)
    """
    parts, position = [], 0
    while found := _PART.match(words, position):
        unit = SQL_UNITS.get(found[2].lower())
        if unit is None:
            return None
        parts.append(f"{found[1]}{unit}")
        position = found.end()
    return "".join(parts) if parts and position == len(words) else None


def interval(node: exp.Interval, text: Text) -> str:
    """Convert INTERVAL '10' SECOND, INTERVAL 10 SECONDS or INTERVAL '10 seconds'."""
    amount, unit = node.args.get("this"), node.args.get("unit")
    if not isinstance(amount, exp.Literal) or not (unit is None or isinstance(unit, exp.Var)):
        raise text.error(f"this interval cannot be read; {_HOW}", node)
    found = spelled(f"{amount.this} {'' if unit is None else unit.this}")
    if found is None:
        raise text.error(f"this interval cannot be read; {_HOW}", node)
    return found


def length(node: exp.Expression, text: Text) -> Length:
    """Convert a length argument: an interval, a text or a number."""
    if isinstance(node, exp.Interval):
        return Length(duration=interval(node, text))
    if not isinstance(node, exp.Literal):
        raise text.error(f"a length of time stands here; {_HOW}", node)
    if not node.is_string:
        return Length(bare=str(node.this))
    found = spelled(str(node.this))
    if found is None:
        raise text.error(f"this is not a length of time; {_HOW}", node)
    return Length(duration=found)


def as_timedelta(duration: str, text: Text, node: exp.Expression) -> timedelta:
    """Convert a duration to a timedelta, which expressions can add to times."""
    with text.at(node):
        length = nanoseconds(duration, "the interval")
    if length % 1000:
        raise text.error("an interval in an expression counts whole microseconds", node)
    return timedelta(microseconds=int(length // 1000))

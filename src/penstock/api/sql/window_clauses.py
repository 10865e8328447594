"""Window clauses: the grammar in brackets after a stream, as in CQL and SABER."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from penstock.api.sql.source_span import Text
from penstock.api.windows import AnyWindow, rows, session, sliding, tumbling, unbounded
from penstock.errors import SqlError
from penstock.types.duration import Duration, nanoseconds
from penstock.types.time import Time

# --- Convert SQL lengths of time to durations of the fluent API.

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
_HOW_LONG = "write one like '10 seconds', '100ms', INTERVAL '1' MINUTE"


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
        raise text.error(f"this interval cannot be read; {_HOW_LONG}", node)
    found = spelled(f"{amount.this} {'' if unit is None else unit.this}")
    if found is None:
        raise text.error(f"this interval cannot be read; {_HOW_LONG}", node)
    return found


def length(node: exp.Expression, text: Text) -> Length:
    """Convert a length argument: an interval, a text or a number."""
    if isinstance(node, exp.Interval):
        return Length(duration=interval(node, text))
    if not isinstance(node, exp.Literal):
        raise text.error(f"a length of time stands here; {_HOW_LONG}", node)
    if not node.is_string:
        return Length(bare=str(node.this))
    found = spelled(str(node.this))
    if found is None:
        raise text.error(f"this is not a length of time; {_HOW_LONG}", node)
    return Length(duration=found)


def as_timedelta(duration: str, text: Text, node: exp.Expression) -> timedelta:
    """Convert a duration to a timedelta, which expressions can add to times."""
    with text.at(node):
        length = nanoseconds(duration, "the interval")
    if length % 1000:
        raise text.error("an interval in an expression counts whole microseconds", node)
    return timedelta(microseconds=int(length // 1000))


_HOW = (
    "write [range 60 slide 1], [range '10s'], [rows 100 slide 10], [partition by k rows 1], [session 30] "
    "or [range unbounded]"
)


@dataclass(frozen=True, slots=True)
class Clause:
    """A window clause and its position. `kind` is range, rows, session or unbounded.

    `descriptor` is the time column that a table function names, TUMBLE(TABLE s, DESCRIPTOR(ts), size): its rows have
    the columns `window_start` and `window_end`.
    """

    kind: str
    size: Length = Length()
    slide: Length | None = None
    count: int = 0
    every: int | None = None
    partition: tuple[str, ...] = ()
    offset: Length | None = None
    descriptor: str = ""
    start: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)

    def window(self, time: Time) -> AnyWindow:
        """Return the window of the fluent API for a stream's time."""
        match self.kind:
            case "range":
                size = self.size.on(time)
                offset = None if self.offset is None else self.offset.on(time)
                return (
                    tumbling(size, offset)
                    if self.slide is None
                    else sliding(size, self.slide.on(time), offset)
                )
            case "rows":
                return rows(self.count, self.every)
            case "session":
                return session(self.size.on(time))
            case _:
                return unbounded()

    @property
    def counts(self) -> bool:
        """Whether the window counts rows: a filter then cannot move before it."""
        return self.kind == "rows"


def read_clause(tokens: Sequence[Token], start: int, end: int, text: Text) -> Clause:
    """Parse the tokens between `[` and `]`."""
    reader = Reader(list(tokens), start, end, text)
    clause = reader.clause()
    if reader.tokens:
        raise reader.wrong("is not expected here; leave it out")
    return clause


@dataclass
class Reader:
    """The remaining tokens; errors end with how a window is written."""

    tokens: list[Token]
    start: int
    end: int
    text: Text
    how: str = _HOW

    def clause(self) -> Clause:
        partition = self._partition()
        match self._word():
            case "range" if not partition:
                if self._next_is("unbounded"):
                    self._word()
                    return Clause("unbounded", start=self.start, end=self.end)
                size = self.length()
                slide = self.length() if self._take("slide") else None
                return Clause("range", size, slide, start=self.start, end=self.end)
            case "rows":
                count = self._count()
                every = self._count() if self._take("slide") else None
                return Clause(
                    "rows", count=count, every=every, partition=partition, start=self.start, end=self.end
                )
            case "session" if not partition:
                return Clause("session", self.length(), start=self.start, end=self.end)
            case _:
                raise self.text.error_at(f"this is not a window; {self.how}", self.start, self.end)

    def _partition(self) -> tuple[str, ...]:
        if not self._next_is("partition by") and not self._next_is("partition"):
            return ()
        if self._word() == "partition" and not self._take("by"):
            raise self.wrong("stands where BY is expected")
        names = [self.name()]
        while self.tokens and self.tokens[0].token_type == TokenType.COMMA:
            self.tokens.pop(0)
            names.append(self.name())
        return tuple(names)

    def length(self) -> Length:
        token = self.pop()
        if token.text.lower() == "interval":
            token = self.pop()
        unit = self._unit()
        if token.token_type == TokenType.NUMBER:
            return Length(bare=token.text) if unit is None else Length(duration=f"{token.text}{unit}")
        found = spelled(f"{token.text} {unit or ''}") if token.token_type == TokenType.STRING else None
        if found is None:
            self.tokens.insert(0, token)
            raise self.wrong("is not a length of time")
        return Length(duration=found)

    def _unit(self) -> str | None:
        if self.tokens and self.tokens[0].token_type != TokenType.STRING:
            found = SQL_UNITS.get(self.tokens[0].text.lower())
            if found is not None:
                self.tokens.pop(0)
            return found
        return None

    def _count(self) -> int:
        token = self.pop()
        if token.token_type != TokenType.NUMBER or not token.text.isdigit() or len(token.text) > 18:
            self.tokens.insert(0, token)
            raise self.wrong("is not a number of rows")
        return int(token.text)

    def name(self) -> str:
        token = self.pop()
        if token.token_type in (TokenType.NUMBER, TokenType.STRING, TokenType.COMMA):
            self.tokens.insert(0, token)
            raise self.wrong("is not the name of a column")
        return str(token.text)

    def _word(self) -> str:
        token = self.pop()
        return "" if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER) else str(token.text).lower()

    def pop(self) -> Token:
        if not self.tokens:
            raise self.text.error_at(f"the window ends too early; {self.how}", self.start, self.end)
        return self.tokens.pop(0)

    def _next_is(self, word: str) -> bool:
        return bool(self.tokens) and " ".join(self.tokens[0].text.lower().split()) == word

    def _take(self, word: str) -> bool:
        taken = self._next_is(word)
        if taken:
            self.tokens.pop(0)
        return taken

    def wrong(self, why: str) -> SqlError:
        if not self.tokens:
            return self.text.error_at(f"the window ends too early; {self.how}", self.start, self.end)
        token = self.tokens[0]
        return self.text.error_at(f"{token.text[:40]!r} {why}; {self.how}", token.start, token.end)

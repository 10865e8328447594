"""Windows and look-backs without their aggregates."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NoReturn

from penstock.errors import UnfinishedError


class Unfinished:
    """A query step without rows until its aggregates are given; any other attribute raises an error.

    >>> import penstock as pk
    >>> pk.stream("events", {"t": "int64"}, time="t").window(10).collect()
    Traceback (most recent call last):
    ...
    penstock.errors.UnfinishedError: a window has no 'collect': say what to compute, with .agg(...), .with_columns(...), .top_k(...) or .apply(...), and go on from there
    """

    __slots__ = ()
    what: ClassVar[str]
    ways: ClassVar[str] = ".agg(...) or .with_columns(...)"

    if not TYPE_CHECKING:  # type checkers must still report unknown names

        def __getattr__(self, name: str) -> NoReturn:
            raise UnfinishedError(
                f"{self.what} has no {name!r}: say what to compute, with {self.ways}, and go on from there"
            )

"""Windows and look-backs of which it is not said yet what to compute."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NoReturn

from penstock.errors import UnfinishedError


class Unfinished:
    """What has no rows of its own before it is said what to compute; who asks for them is told so.

    >>> import penstock as pk
    >>> pk.stream("events", {"t": "int64"}, time="t").window(10).collect()
    Traceback (most recent call last):
    ...
    penstock.errors.UnfinishedError: a window has no 'collect': say what to compute, with .agg(...), .with_columns(...), .top_k(...) or .apply(...), and go on from there
    """

    __slots__ = ()
    what: ClassVar[str]
    ways: ClassVar[str] = ".agg(...) or .with_columns(...)"

    if not TYPE_CHECKING:  # type checkers know the names that are there, and should go on telling the others

        def __getattr__(self, name: str) -> NoReturn:
            raise UnfinishedError(
                f"{self.what} has no {name!r}: say what to compute, with {self.ways}, and go on from there"
            )

"""Arguments that take one of a few strings, and lists of names that should differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from typing import TypeGuard


def one_of(given: object, choices: Container[str]) -> TypeGuard[str]:
    """Return whether an argument is one of the given strings.

    Only strings are compared: comparing an array or a data frame with a string has no single truth value.

    >>> one_of("first", ("first", "last")), one_of(None, ("first", "last"))
    (True, False)
    """
    return isinstance(given, str) and given in choices


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once, in the order of their first occurrence.

    >>> repeated(["a", "b", "a"])
    ['a']
    """
    return [name for name, count in Counter(names).items() if count > 1]

"""Arguments that take one of a few strings."""

from __future__ import annotations

from collections.abc import Container
from typing import TypeGuard


def one_of(given: object, choices: Container[str]) -> TypeGuard[str]:
    """Return whether an argument is one of the given strings.

    Only strings are compared: comparing an array or a data frame with a string has no single truth value.

    >>> one_of("first", ("first", "last")), one_of(None, ("first", "last"))
    (True, False)
    """
    return isinstance(given, str) and given in choices

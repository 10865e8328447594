"""Arguments that are one of a few texts."""

from __future__ import annotations

from collections.abc import Container
from typing import TypeGuard


def one_of(given: object, choices: Container[str]) -> TypeGuard[str]:
    """Tell whether an argument is one of some texts.

    It is not compared unless it is a text: an array or a data frame compared with one is neither true nor false.

    >>> one_of("first", ("first", "last")), one_of(None, ("first", "last"))
    (True, False)
    """
    return isinstance(given, str) and given in choices

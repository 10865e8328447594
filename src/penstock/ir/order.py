"""Equality and order of values as keys."""

from __future__ import annotations

import math
from typing import Any

Rank = tuple[Any, ...]


def ordering(value: Any) -> Rank:
    """Map a value to a tuple that sorts and hashes as the value does: null first, NaN last and a single key.

    Strings are kept: Python orders them by code point, which is the order of their UTF-8 bytes.
    """
    if value is None:
        return (0, 0)
    if isinstance(value, float) and math.isnan(value):
        return (2, 0)
    return (1, value)


def canonical(value: Any) -> Any:
    """Return the canonical value of a key: 0.0 for -0.0, which compares equal."""
    return 0.0 if isinstance(value, float) and value == 0 else value

"""Say when two values are one key, and which of two comes first."""

from __future__ import annotations

import math
from typing import Any

Rank = tuple[Any, ...]


def ordering(value: Any) -> Rank:
    """Map a value to something that sorts and hashes as the value does: null first, NaN last and one key.

    Strings need nothing special: Python orders them by code point, which is the order of their UTF-8 bytes.
    """
    if value is None:
        return (0, 0)
    if isinstance(value, float) and math.isnan(value):
        return (2, 0)
    return (1, value)


def canonical(value: Any) -> Any:
    """Choose the value that stands for a key: 0.0 for -0.0, which is equal to it."""
    return 0.0 if isinstance(value, float) and value == 0 else value

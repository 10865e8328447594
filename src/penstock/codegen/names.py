"""Generate all identifiers of generated code.

Generated text consists of numbers, keywords and these names. Names typed by a user (columns, streams,
aliases) and the hints of kernel builders never reach it, so quoting is unnecessary.
"""

from __future__ import annotations

ENTRY = "penstock_entry"
INNER = "penstock_kernel"


class NameCounter:
    """A counter of names: `%v1`, `%v2`, … for values and `b1`, `b2`, … for blocks."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def value(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def label(self) -> str:
        self._count += 1
        return f"b{self._count}"

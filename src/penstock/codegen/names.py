"""Hand out every identifier of generated code.

Generated text holds numbers, keywords and the names made here. Names that a user typed (columns,
streams, aliases) and even the hints of kernel builders never reach it, so nothing has to be quoted.
"""

from __future__ import annotations

ENTRY = "penstock_entry"
INNER = "penstock_kernel"


class Names:
    """Count up: `%v1`, `%v2`, … for values and `b1`, `b2`, … for blocks."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def value(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def label(self) -> str:
        self._count += 1
        return f"b{self._count}"

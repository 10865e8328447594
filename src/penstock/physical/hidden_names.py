"""Names for internal columns."""

from __future__ import annotations

from collections.abc import Collection


def hidden_name(taken: Collection[str], hint: str, place: int) -> str:
    """Return a column name that is not taken.

    >>> hidden_name(["arg0"], "arg", 0)
    'arg0_'
    """
    return next(
        candidate for n in range(len(taken) + 1) if (candidate := f"{hint}{place}{'_' * n}") not in taken
    )

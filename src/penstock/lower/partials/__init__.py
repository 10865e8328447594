"""Decide what a pane must remember for a set of reductions, and read results from it.

`needs.py` says which monoids, sharing whatever is the same; `algebra.py` which one for which types, and what a
row brings to it; `finish.py` how results follow from states.
"""

from __future__ import annotations

from penstock.lower.partials.algebra import monoid_of, values_added
from penstock.lower.partials.finish import Finish, compensated_total
from penstock.lower.partials.needs import (
    PRESENT,
    ROWS,
    MayBeNull,
    Partial,
    origin,
    partials_of,
)

__all__ = [
    "PRESENT",
    "ROWS",
    "Finish",
    "MayBeNull",
    "Partial",
    "compensated_total",
    "monoid_of",
    "origin",
    "partials_of",
    "values_added",
]

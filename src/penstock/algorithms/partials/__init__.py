"""The partial states of a set of reductions per pane, and the results computed from them.

`algebra.py` lists the partials, shared where equal, chooses the monoid for the argument types and computes the
contribution of a row; `custom.py` does so for aggregates of users; `finish.py` computes results from states.
"""

from __future__ import annotations

from penstock.algorithms.partials.algebra import (
    PRESENT,
    ROWS,
    MayBeNull,
    Partial,
    collapsing,
    monoid_of,
    origin,
    partials_of,
    values_added,
)
from penstock.algorithms.partials.finish import Finish, compensated_total

__all__ = [
    "PRESENT",
    "ROWS",
    "Finish",
    "MayBeNull",
    "Partial",
    "collapsing",
    "compensated_total",
    "monoid_of",
    "origin",
    "partials_of",
    "values_added",
]

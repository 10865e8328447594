"""The lowering rule of each scalar function; Arrow computes all others (`lower/host_columns.py`)."""

from __future__ import annotations

from penstock.lower.calls.arithmetic import ARITHMETIC
from penstock.lower.calls.comparison import COMPARISON
from penstock.lower.calls.logic import LOGIC
from penstock.lower.calls.numbers import NUMBERS
from penstock.lower.calls.times import TIMES
from penstock.lower.scope import Rule

CALLS: dict[str, Rule] = {**ARITHMETIC, **NUMBERS, **COMPARISON, **LOGIC, **TIMES}

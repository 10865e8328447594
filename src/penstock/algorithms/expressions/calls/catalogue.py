"""The lowering rule of each scalar function; Arrow computes all others (`algorithms/expressions/host_columns.py`)."""

from __future__ import annotations

from penstock.algorithms.expressions.calls.arithmetic import ARITHMETIC
from penstock.algorithms.expressions.calls.comparison import COMPARISON_CALLS
from penstock.algorithms.expressions.calls.logic import LOGIC
from penstock.algorithms.expressions.calls.numbers import NUMBER_CALLS
from penstock.algorithms.expressions.calls.times import TIMES
from penstock.algorithms.expressions.scope import Rule

CALLS: dict[str, Rule] = {**ARITHMETIC, **NUMBER_CALLS, **COMPARISON_CALLS, **LOGIC, **TIMES}

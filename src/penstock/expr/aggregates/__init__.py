"""Every aggregate: its type rule, its algebra, its options, and what it means in plain Python.

`catalogue.py` lists them, a line each; `sums.py`, `moments.py`, `order.py` and `choices.py` define them.
Those of users (`custom.py`) carry their definitions with them.
"""

from penstock.expr.aggregates.catalogue import AGGREGATES, algebra_of, reduce, result_type
from penstock.expr.aggregates.function import AggregateFunction
from penstock.expr.aggregates.sums import float_sum

__all__ = ["AGGREGATES", "AggregateFunction", "algebra_of", "float_sum", "reduce", "result_type"]

"""Aggregate functions: type rule, algebra, options, and reference definition in plain Python.

`catalogue.py` lists them, one per line; `sums.py`, `moments.py`, `order.py` and `choices.py` define them.
User-defined aggregates (`custom.py`) carry their definitions in an option.
"""

from penstock.expr.aggregates.catalogue import AGGREGATES, algebra_of, reduce, result_type
from penstock.expr.aggregates.function import AggregateFunction
from penstock.expr.aggregates.sums import float_sum

__all__ = ["AGGREGATES", "AggregateFunction", "algebra_of", "float_sum", "reduce", "result_type"]

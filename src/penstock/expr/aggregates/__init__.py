"""Aggregate functions: type rule, algebra, options, and reference definition in plain Python.

`catalogue.py` lists them, one per line; `definitions.py` defines them, and `function.py` says what one is.
User-defined aggregates carry their definitions in an option.
"""

from penstock.expr.aggregates.catalogue import AGGREGATES, algebra_of, reduce, result_type
from penstock.expr.aggregates.definitions import float_sum
from penstock.expr.aggregates.function import AggregateFunction

__all__ = ["AGGREGATES", "AggregateFunction", "algebra_of", "float_sum", "reduce", "result_type"]

"""Options of aggregates: constants, checked where the query is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from penstock.errors import ExpressionTypeError
from penstock.types.duration import is_whole


@dataclass(frozen=True, slots=True)
class Option:
    """A constant option of an aggregate. Without a default (None), the option is required."""

    name: str
    default: Any
    kind: Callable[[Any], Any]
    accepts: Callable[[Any], bool]
    wants: str

    def read(self, function: str, value: object) -> Any:
        """Check a value and return it in canonical form."""
        if self.accepts(value):
            return self.kind(value)
        raise ExpressionTypeError(f"{self.name} of {function} is {value!r}; {self.wants}")


def _is_small_count(value: object) -> bool:
    return is_whole(value) and 0 <= value < 1 << 31


def _is_fraction(value: Any) -> bool:
    number = is_whole(value) or (isinstance(value, Real) and not isinstance(value, Integral))
    return bool(number and 0 <= value <= 1)


def _flag(name: str, default: bool) -> Option:
    return Option(name, default, bool, lambda value: isinstance(value, bool), "write True or False")


DDOF = Option(
    "ddof", 1, int, _is_small_count, "write a whole number from 0 up: 1 for a sample, 0 for all there is"
)
Q = Option("q", None, float, _is_fraction, "write a number from 0 to 1, such as 0.5 for the median")
BIAS = _flag("bias", default=True)
FISHER = _flag("fisher", default=True)
IGNORE_NULLS = _flag("ignore_nulls", default=False)

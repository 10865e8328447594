"""What can be said to an aggregate beside its arguments: constants, checked as soon as they are written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from penstock.errors import ExpressionTypeError


@dataclass(frozen=True, slots=True)
class Option:
    """A constant an aggregate takes. One without a default is None there, and must be given."""

    name: str
    default: Any
    kind: Callable[[Any], Any]
    accepts: Callable[[Any], bool]
    wants: str

    def read(self, function: str, value: object) -> Any:
        """Pass the value on in one form, if it is one that is accepted."""
        if self.accepts(value):
            return self.kind(value)
        raise ExpressionTypeError(f"{self.name} of {function} is {value!r}; {self.wants}")


def _is_small_count(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and 0 <= int(value) < 1 << 31


def _is_fraction(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) <= 1


def _flag(name: str, default: bool) -> Option:
    return Option(name, default, bool, lambda value: isinstance(value, bool), "write True or False")


DDOF = Option(
    "ddof", 1, int, _is_small_count, "write a whole number from 0 up: 1 for a sample, 0 for all there is"
)
Q = Option("q", None, float, _is_fraction, "write a number from 0 to 1, such as 0.5 for the median")
BIAS = _flag("bias", default=True)
FISHER = _flag("fisher", default=True)
IGNORE_NULLS = _flag("ignore_nulls", default=False)

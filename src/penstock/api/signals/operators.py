"""The operators of signals: computed at each instant where all operands are defined."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.api.signals.graph import pointwise
from penstock.errors import UnknownColumnError

if TYPE_CHECKING:
    from penstock.api.signals.signal import Signal


class Operators:
    """The operators `a + b`, `a > 3`, `~a` … between signals and constants."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # == builds a signal, so there is no equality to hash by

    def __add__(self, other: object) -> Signal:
        return pointwise(operator.add, (self, other))

    def __radd__(self, other: object) -> Signal:
        return pointwise(operator.add, (other, self))

    def __sub__(self, other: object) -> Signal:
        return pointwise(operator.sub, (self, other))

    def __rsub__(self, other: object) -> Signal:
        return pointwise(operator.sub, (other, self))

    def __mul__(self, other: object) -> Signal:
        return pointwise(operator.mul, (self, other))

    def __rmul__(self, other: object) -> Signal:
        return pointwise(operator.mul, (other, self))

    def __truediv__(self, other: object) -> Signal:
        return pointwise(operator.truediv, (self, other))

    def __rtruediv__(self, other: object) -> Signal:
        return pointwise(operator.truediv, (other, self))

    def __floordiv__(self, other: object) -> Signal:
        return pointwise(operator.floordiv, (self, other))

    def __rfloordiv__(self, other: object) -> Signal:
        return pointwise(operator.floordiv, (other, self))

    def __mod__(self, other: object) -> Signal:
        return pointwise(operator.mod, (self, other))

    def __rmod__(self, other: object) -> Signal:
        return pointwise(operator.mod, (other, self))

    def __pow__(self, other: object) -> Signal:
        return pointwise(operator.pow, (self, other))

    def __rpow__(self, other: object) -> Signal:
        return pointwise(operator.pow, (other, self))

    def __and__(self, other: object) -> Signal:
        return pointwise(operator.and_, (self, other))

    def __rand__(self, other: object) -> Signal:
        return pointwise(operator.and_, (other, self))

    def __or__(self, other: object) -> Signal:
        return pointwise(operator.or_, (self, other))

    def __ror__(self, other: object) -> Signal:
        return pointwise(operator.or_, (other, self))

    def __xor__(self, other: object) -> Signal:
        return pointwise(operator.xor, (self, other))

    def __rxor__(self, other: object) -> Signal:
        return pointwise(operator.xor, (other, self))

    def __eq__(self, other: object) -> Signal:  # type: ignore[override]
        return pointwise(operator.eq, (self, other))

    def __ne__(self, other: object) -> Signal:  # type: ignore[override]
        return pointwise(operator.ne, (self, other))

    def __lt__(self, other: object) -> Signal:
        return pointwise(operator.lt, (self, other))

    def __le__(self, other: object) -> Signal:
        return pointwise(operator.le, (self, other))

    def __gt__(self, other: object) -> Signal:
        return pointwise(operator.gt, (self, other))

    def __ge__(self, other: object) -> Signal:
        return pointwise(operator.ge, (self, other))

    def __neg__(self) -> Signal:
        return pointwise(operator.neg, (self,))

    def __pos__(self) -> Signal:
        return pointwise(operator.pos, (self,))

    def __invert__(self) -> Signal:
        return pointwise(operator.invert, (self,))

    def __abs__(self) -> Signal:
        return pointwise(operator.abs, (self,))


# --- Several values of one instant as a record.


@dataclass(frozen=True, slots=True)
class SignalRecord:
    """The argument of a traced function for a signal of several values: `q.ask`, or `q["ask"]` for any name."""

    values_by_name: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        if name not in self.values_by_name:
            known = ", ".join(map(repr, self.values_by_name))
            raise UnknownColumnError(f"the signal has no value {name!r}; it has {known}")
        return self.values_by_name[name]

    def __getattr__(self, name: str) -> Any:
        return self[name]

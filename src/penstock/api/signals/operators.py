"""The operators of signals: computed at each instant where all operands are defined."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from penstock.api.signals.pointwise import pointwise

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

"""The aggregates as methods: `pk.col("price").mean()` is `pk.mean("price")`; see `aggregates.py`."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

_Value_co = TypeVar("_Value_co", covariant=True)


class _Aggregated(Protocol[_Value_co]):
    def __call__(self, function: str, *others: object, where: object, **options: object) -> _Value_co: ...


class Reducible(Generic[_Value_co]):
    """A value that can be reduced over a window's rows; the result is an expression or a signal."""

    __slots__ = ()
    _aggregated: _Aggregated[_Value_co]

    def sum(self, where: object = None) -> _Value_co:
        """Sum a window's values."""
        return self._aggregated("sum", where=where)

    def mean(self, where: object = None) -> _Value_co:
        """Average a window's values."""
        return self._aggregated("mean", where=where)

    def product(self, where: object = None) -> _Value_co:
        """Multiply a window's values."""
        return self._aggregated("product", where=where)

    def count(self, where: object = None) -> _Value_co:
        """Count a window's values that are not null."""
        return self._aggregated("count", where=where)

    def count_distinct(self, where: object = None) -> _Value_co:
        """Count a window's distinct values."""
        return self._aggregated("count_distinct", where=where)

    def min(self, where: object = None) -> _Value_co:
        """Return a window's smallest value."""
        return self._aggregated("min", where=where)

    def max(self, where: object = None) -> _Value_co:
        """Return a window's largest value."""
        return self._aggregated("max", where=where)

    def min_by(self, by: object, *, where: object = None) -> _Value_co:
        """Return the value where `by`, a column's name or an expression, is smallest."""
        return self._aggregated("min_by", by, where=where)

    def max_by(self, by: object, *, where: object = None) -> _Value_co:
        """Return the value where `by`, a column's name or an expression, is largest."""
        return self._aggregated("max_by", by, where=where)

    def median(self, where: object = None) -> _Value_co:
        """Return the middle value, or the mean of the two middle values."""
        return self._aggregated("median", where=where)

    def quantile(self, q: float, *, where: object = None) -> _Value_co:
        """Return the `q`-quantile of the values, `q` being from 0 to 1."""
        return self._aggregated("quantile", where=where, q=q)

    def mode(self, where: object = None) -> _Value_co:
        """Return the smallest of the most frequent values."""
        return self._aggregated("mode", where=where)

    def std(self, ddof: int = 1, *, where: object = None) -> _Value_co:
        """Return the standard deviation: of a sample, or of the population with `ddof=0`."""
        return self._aggregated("std", where=where, ddof=ddof)

    def var(self, ddof: int = 1, *, where: object = None) -> _Value_co:
        """Return the variance: of a sample, or of the population with `ddof=0`."""
        return self._aggregated("var", where=where, ddof=ddof)

    def skew(self, *, bias: bool = True, where: object = None) -> _Value_co:
        """Return the skewness of the values."""
        return self._aggregated("skew", where=where, bias=bias)

    def kurtosis(self, *, fisher: bool = True, bias: bool = True, where: object = None) -> _Value_co:
        """Return the kurtosis of the values."""
        return self._aggregated("kurtosis", where=where, fisher=fisher, bias=bias)

    def corr(self, other: object, *, where: object = None) -> _Value_co:
        """Return the correlation with another column or expression."""
        return self._aggregated("corr", other, where=where)

    def cov(self, other: object, ddof: int = 1, *, where: object = None) -> _Value_co:
        """Return the covariance with another column or expression."""
        return self._aggregated("cov", other, where=where, ddof=ddof)

    def first(self, *, ignore_nulls: bool = False, where: object = None) -> _Value_co:
        """Return the value of the first row."""
        return self._aggregated("first", where=where, ignore_nulls=ignore_nulls)

    def last(self, *, ignore_nulls: bool = False, where: object = None) -> _Value_co:
        """Return the value of the last row."""
        return self._aggregated("last", where=where, ignore_nulls=ignore_nulls)

    def any(self, where: object = None) -> _Value_co:
        """Return whether any value is true."""
        return self._aggregated("any", where=where)

    def all(self, where: object = None) -> _Value_co:
        """Return whether no value is false."""
        return self._aggregated("all", where=where)

    def list(self, where: object = None) -> _Value_co:
        """Collect the values in order."""
        return self._aggregated("list", where=where)

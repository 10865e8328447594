"""The aggregate functions: each reduces a window's rows to one value.

Strings name columns; `where=` filters the rows of one aggregate. Unless a function says otherwise, nulls are
skipped, and the result over no values is null. Many names shadow Python's built-ins, because users write
`pk.sum`.
"""

from __future__ import annotations

from penstock.api.expr import Expr, aggregate


def sum(value: object, *, where: object = None) -> Expr:
    """Sum a window's values; null if there are none. Integer sums are exact.

    >>> import penstock as pk
    >>> pk.sum(pk.col("price") * pk.col("size")) / pk.sum("size")
    <Expr sum(price * size) / sum(size)>
    """
    return aggregate("sum", value, where=where)


def mean(value: object, *, where: object = None) -> Expr:
    """Average a window's values; null if there are none.

    >>> import penstock as pk
    >>> pk.mean("price", where=pk.col("kind") == "bid")
    <Expr mean(price where kind == "bid")>
    """
    return aggregate("mean", value, where=where)


def product(value: object, *, where: object = None) -> Expr:
    """Multiply a window's values. Integer products are exact; one that does not fit is an error.

    >>> import penstock as pk
    >>> pk.product(1 + pk.col("rate")) - 1
    <Expr product(1 + rate) - 1>
    """
    return aggregate("product", value, where=where)


def count(value: object = None, *, where: object = None) -> Expr:
    """Count a window's rows, or its values that are not null.

    >>> import penstock as pk
    >>> pk.count(where=pk.col("kind") == "view")
    <Expr count(where kind == "view")>
    """
    return aggregate("count", *(() if value is None else (value,)), where=where)


def count_distinct(value: object, *, where: object = None) -> Expr:
    """Count a window's distinct values, without nulls.

    >>> import penstock as pk
    >>> pk.count_distinct("user")
    <Expr count_distinct(user)>
    """
    return aggregate("count_distinct", value, where=where)


def min(value: object, *, where: object = None) -> Expr:
    """Return a window's smallest value; NaN counts as the largest number.

    >>> import penstock as pk
    >>> pk.min("price")
    <Expr min(price)>
    """
    return aggregate("min", value, where=where)


def max(value: object, *, where: object = None) -> Expr:
    """Return a window's largest value; NaN counts as the largest number.

    >>> import penstock as pk
    >>> pk.max("price") - pk.min("price")
    <Expr max(price) - min(price)>
    """
    return aggregate("max", value, where=where)


def min_by(value: object, by: object, *, where: object = None) -> Expr:
    """Return the value of the row where `by` is smallest; of several such values the smallest.

    >>> import penstock as pk
    >>> pk.min_by("venue", "price")
    <Expr min_by(venue, price)>
    """
    return aggregate("min_by", value, by, where=where)


def max_by(value: object, by: object, *, where: object = None) -> Expr:
    """Return the value of the row where `by` is largest; of several such values the smallest.

    >>> import penstock as pk
    >>> pk.max_by("venue", pk.col("price") * pk.col("size"))
    <Expr max_by(venue, price * size)>
    """
    return aggregate("max_by", value, by, where=where)


def median(value: object, *, where: object = None) -> Expr:
    """Return the middle value, or the mean of the two middle values.

    >>> import penstock as pk
    >>> pk.median("latency")
    <Expr median(latency)>
    """
    return aggregate("median", value, where=where)


def quantile(value: object, q: float, *, where: object = None) -> Expr:
    """Return the `q`-quantile of the values, `q` being from 0 to 1, with linear interpolation.

    >>> import penstock as pk
    >>> pk.quantile("latency", 0.99)
    <Expr quantile(latency, 0.99)>
    """
    return aggregate("quantile", value, where=where, q=q)


def mode(value: object, *, where: object = None) -> Expr:
    """Return the most frequent value; of several the smallest.

    >>> import penstock as pk
    >>> pk.mode("kind")
    <Expr mode(kind)>
    """
    return aggregate("mode", value, where=where)


def std(value: object, ddof: int = 1, *, where: object = None) -> Expr:
    """Return the standard deviation: of a sample, or of the population with `ddof=0`. Null for too few values.

    >>> import penstock as pk
    >>> (pk.max("v") - pk.mean("v")) / pk.std("v", ddof=0)
    <Expr (max(v) - mean(v)) / std(v, ddof=0)>
    """
    return aggregate("std", value, where=where, ddof=ddof)


def var(value: object, ddof: int = 1, *, where: object = None) -> Expr:
    """Return the variance: of a sample, or of the population with `ddof=0`. Null for too few values.

    >>> import penstock as pk
    >>> pk.var("price")
    <Expr var(price)>
    """
    return aggregate("var", value, where=where, ddof=ddof)


def skew(value: object, *, bias: bool = True, where: object = None) -> Expr:
    """Return the skewness of the values; `bias=False` corrects for a sample, as pandas does.

    >>> import penstock as pk
    >>> pk.skew("gain", bias=False)
    <Expr skew(gain, bias=False)>
    """
    return aggregate("skew", value, where=where, bias=bias)


def kurtosis(value: object, *, fisher: bool = True, bias: bool = True, where: object = None) -> Expr:
    """Return the kurtosis of the values: 0 for a normal distribution, or 3 with `fisher=False`.

    >>> import penstock as pk
    >>> pk.kurtosis("gain")
    <Expr kurtosis(gain)>
    """
    return aggregate("kurtosis", value, where=where, fisher=fisher, bias=bias)


def corr(x: object, y: object, *, where: object = None) -> Expr:
    """Return the correlation of two values over the rows that have both; NaN if one of them is constant.

    >>> import penstock as pk
    >>> pk.corr("price", "size")
    <Expr corr(price, size)>
    """
    return aggregate("corr", x, y, where=where)


def cov(x: object, y: object, ddof: int = 1, *, where: object = None) -> Expr:
    """Return the covariance over the rows that have both values. Null for too few rows.

    >>> import penstock as pk
    >>> pk.cov("y", "x") / pk.var("x")
    <Expr cov(y, x) / var(x)>
    """
    return aggregate("cov", x, y, where=where, ddof=ddof)


def first(value: object, *, ignore_nulls: bool = False, where: object = None) -> Expr:
    """Return the value of a window's first row, or the first that is not null.

    >>> import penstock as pk
    >>> pk.first("price", ignore_nulls=True)
    <Expr first(price, ignore_nulls=True)>
    """
    return aggregate("first", value, where=where, ignore_nulls=ignore_nulls)


def last(value: object, *, ignore_nulls: bool = False, where: object = None) -> Expr:
    """Return the value of a window's last row, or the last that is not null.

    >>> import penstock as pk
    >>> pk.last("price") / pk.first("price") - 1
    <Expr (last(price) / first(price)) - 1>
    """
    return aggregate("last", value, where=where, ignore_nulls=ignore_nulls)


def any(value: object, *, where: object = None) -> Expr:
    """Return whether any value is true; null if there are no values.

    >>> import penstock as pk
    >>> pk.any(pk.col("status") >= 500)
    <Expr any(status >= 500)>
    """
    return aggregate("any", value, where=where)


def all(value: object, *, where: object = None) -> Expr:
    """Return whether no value is false; null if there are no values.

    >>> import penstock as pk
    >>> pk.all("healthy")
    <Expr all(healthy)>
    """
    return aggregate("all", value, where=where)


def list(value: object, *, where: object = None) -> Expr:
    """Collect the values in row order; an empty list if there are none.

    >>> import penstock as pk
    >>> pk.list("page", where=pk.col("kind") == "view")
    <Expr list(page where kind == "view")>
    """
    return aggregate("list", value, where=where)

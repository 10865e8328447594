"""The cache of compiled queries."""

from __future__ import annotations


def clear_cache(*, disk: bool = False) -> None:
    """Drop all that is kept between runs: compiled queries, their machine code, checked footers, open stores.

    This is rarely needed: caches are bounded, and queries that differ only in constants share code. Use it to free
    memory, or to include compilation in a measurement. Running queries continue; a query compiled earlier is compiled
    again at its next run.

    `disk=True` also deletes the code stored in files for later processes.

    >>> import pyarrow as pa, penstock as pk
    >>> rows = pk.from_arrow(pa.table({"t": [1, 2, 3], "v": [5, 6, 7]}), time="t")
    >>> large = rows.filter(pk.col("v") > 5)
    >>> large.collect().num_rows
    2
    >>> pk.clear_cache()
    >>> large.collect().num_rows
    2
    """
    from penstock.compile import forget  # noqa: PLC0415 - loaded on first use

    forget(disk)

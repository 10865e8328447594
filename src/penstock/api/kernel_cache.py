"""What queries leave behind for the next ones: compiled code."""

from __future__ import annotations


def clear_cache(*, disk: bool = False) -> None:
    """Forget compiled queries and free their machine code.

    Nobody needs to: caches are bounded, and queries that differ in constants alone share their code. It serves programs
    that want their memory back, and measurements that should include compiling. Queries that run go on, and a query that
    was compiled before is compiled again when it is next run.

    `disk=True` also deletes the code that is kept in files for later processes.

    >>> import pyarrow as pa, penstock as pk
    >>> rows = pk.from_arrow(pa.table({"t": [1, 2, 3], "v": [5, 6, 7]}), time="t")
    >>> large = rows.filter(pk.col("v") > 5)
    >>> large.collect().num_rows
    2
    >>> pk.clear_cache()
    >>> large.collect().num_rows
    2
    """
    from penstock.compile import forget  # noqa: PLC0415 - the compiler loads when it is needed

    forget(disk)

"""Sources for data in memory, or delivered through the Arrow C interfaces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.errors import SourceError
from penstock.sources.bound import Bound
from penstock.sources.conform import check, conformer, unchanged
from penstock.sources.rows import inferred, is_rows
from penstock.types.arrow import checked


@dataclass(frozen=True, slots=True)
class InMemory:
    """Record batches in memory, neither copied nor split."""

    schema: pa.Schema
    parts: tuple[pa.RecordBatch, ...]
    # Cached column selections, since runs read the same columns repeatedly. Only views are cached: cast columns would take memory.
    _views: dict[tuple[str, ...], list[pa.RecordBatch]] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def rows(self) -> int:
        return sum(part.num_rows for part in self.parts)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        names = tuple(self.schema.names if columns is None else columns)
        if names not in self._views:
            if not all(unchanged(part.schema, self.schema) for part in self.parts):
                return _conformed(iter(self.parts), self.schema, names)
            self._views[names] = [part.select(names) for part in self.parts]
        return iter(self._views[names])


@dataclass(frozen=True, slots=True)
class Exported:
    """An object that can export its data as an Arrow stream repeatedly, such as a database relation."""

    origin: Any
    schema: pa.Schema

    @property
    def rows(self) -> int | None:
        return len(self.origin) if hasattr(self.origin, "__len__") else None

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        names = self.schema.names if columns is None else columns
        return _conformed(pa.RecordBatchReader.from_stream(self.origin), self.schema, names)


@dataclass(slots=True)
class Once:
    """Batches that can be read once: a reader, or any iterator."""

    parts: Iterable[pa.RecordBatch]
    schema: pa.Schema
    rows: int | None = None
    _spent: bool = field(default=False)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        if self._spent:
            raise SourceError(
                "this stream of batches has been read before and cannot be read again; "
                "make a new one, or read it into a table first"
            )
        self._spent = True
        return _conformed(iter(self.parts), self.schema, self.schema.names if columns is None else columns)


def _conformed(
    parts: Iterable[pa.RecordBatch], schema: pa.Schema, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    for part in parts:
        if unchanged(part.schema, schema):
            yield part.select(columns)
        else:
            yield conformer(part.schema, schema, columns, "the data")(part)


def bind(data: Any) -> Bound:
    """Bind any Arrow-like object as data of a stream.

    >>> bind(pa.table({"a": [1, 2]})).rows, bind([{"a": 1}]).rows, bind({"a": [1, 2, 3]}).rows
    (2, 1, 3)
    """
    match data:
        case pa.Table():
            return InMemory(checked(data.schema), tuple(data.to_batches()))
        case pa.RecordBatch():
            return InMemory(checked(data.schema), (data,))
        case pa.RecordBatchReader():
            return Once(data, checked(data.schema))
        case [pa.RecordBatch(), *_] | (pa.RecordBatch(), *_):
            return _several(data)
    if is_frame(data):
        raise SourceError(
            "the rows of a Spark DataFrame have no order; make the stream with pk.from_spark(frame, time=...)"
        )
    if _in_memory(data):
        return bind(_exported(data, _snapshot))
    if hasattr(data, "__arrow_c_stream__"):
        return Exported(data, checked(_exported_schema(data)))
    if hasattr(data, "__arrow_c_array__"):
        return bind(_exported(data, pa.record_batch))
    if is_rows(data):
        return bind(inferred(data))
    raise SourceError(
        f"a {type(data).__name__} is not Arrow data; give a pyarrow table, record batch or reader, a data frame "
        "(anything with __arrow_c_stream__), a list of dicts, or a dict of lists or arrays"
    )


def _several(batches: Sequence[Any]) -> InMemory:
    """Bind batches as data with the columns of the first."""
    schema = checked(batches[0].schema)
    for place, batch in enumerate(batches):
        if not isinstance(batch, pa.RecordBatch):
            raise SourceError(
                f"a list of record batches is data, but number {place} is a {type(batch).__name__}; leave it out"
            )
        check(batch.schema, schema, f"number {place} of the record batches")
    return InMemory(schema, tuple(batches))


def is_frame(data: object) -> bool:
    """Check whether data is a Spark DataFrame, classic or Connect."""
    # Check the class: a Spark Column answers to every attribute.
    return type(data).__module__.startswith("pyspark.sql") and hasattr(type(data), "mapInArrow")


def _in_memory(data: object) -> bool:
    """Check whether data is a pandas or Polars frame, which is fully in memory."""
    return any(
        base.__name__ == "DataFrame" and base.__module__.partition(".")[0] in ("pandas", "polars")
        for base in type(data).__mro__
    )


def _snapshot(frame: Any) -> pa.Table:
    """Convert a data frame once, for all runs.

    Arrow arrays share memory with pandas columns, which can be modified in place: the copy keeps the bound values.
    No writer shares the memory of a Polars frame, so it is not copied.
    """
    mutable = not hasattr(frame, "lazy")
    return pa.RecordBatchReader.from_stream(frame.copy() if mutable else frame).read_all()


def _exported_schema(data: Any) -> pa.Schema:
    schema: pa.Schema = _exported(data, pa.RecordBatchReader.from_stream).schema
    return schema


def _exported(data: Any, read: Callable[[Any], Any]) -> Any:
    try:
        return read(data)
    except (pa.ArrowException, TypeError, ValueError) as reason:
        raise SourceError(f"the {type(data).__name__} cannot be exported as Arrow data: {reason}") from reason


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return a table of at most one chunk as a batch."""
    batches = table.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)

"""Sources of streams: declarations, files, and Arrow data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.api.literals import shown
from penstock.api.names import Unnamed
from penstock.api.source_options import Arrival, Every, Folder, LateTo, access_to, edges_of, time_of_source
from penstock.api.stream import Stream
from penstock.errors import (
    BindingError,
    DurationError,
    ExpressionTypeError,
    SchemaMismatchError,
    UnsupportedError,
)
from penstock.expr.typing import column_type
from penstock.plan.nodes import Edges, Source, Table
from penstock.sources.arrow import bind, is_frame
from penstock.sources.bound import Bound
from penstock.sources.malformed import DROP
from penstock.types.arrow import as_schema, kind_of, without_unions
from penstock.types.duration import Duration, to_ticks

if TYPE_CHECKING:
    from penstock.sources.paths import Paths


def stream(
    name: str | None,
    schema: object,
    *,
    time: str | Every | Arrival,
    sequence: str | None = None,
    lateness: Duration | None = None,
    unit: str | None = None,
    on_bad: str | None = None,
    late_to: LateTo | None = None,
    quarantine_to: Folder | None = None,
    idle_after: Duration | None = None,
) -> Stream:
    """Declare a stream whose data is bound when the query runs.

    In `run` and `open`, and in Spark streams, late rows go to `late_to=`: a folder, for Parquet files, or a function that
    takes a RecordBatch. Rows without a time are counted and dropped, with a warning unless on_bad="drop" is given; they
    are an error with on_bad="fail", and go to the folder `quarantine_to=` with on_bad="quarantine". A stream idle for
    `idle_after=` does not hold back the watermark of others.

    >>> import penstock as pk
    >>> events = pk.stream("events", {"ts": "timestamp[us]", "kind": "string"}, time="ts")
    >>> events.schema
    ts: timestamp[us]
    kind: string
    """
    edges = edges_of(on_bad, late_to, quarantine_to, idle_after)
    return stream_of(name, as_schema(schema), time, sequence, lateness, unit, on_bad, None, edges)


def from_arrow(
    data: Any,
    *,
    time: str | Every | Arrival,
    name: str | None = None,
    sequence: str | None = None,
    lateness: Duration | None = None,
    unit: str | None = None,
    on_bad: str | None = None,
    late_to: LateTo | None = None,
    quarantine_to: Folder | None = None,
    idle_after: Duration | None = None,
) -> Stream:
    """Make a stream of data in memory: a pyarrow table, batch or reader, any data frame that exports Arrow, or rows.

    Rows are a list of dicts, a dict of lists or NumPy arrays, or NumPy records.
    A pandas or Polars frame is converted once, here: later changes to it have no effect. Other objects that export
    Arrow, such as a DuckDB relation, are read again in each run.

    >>> import pyarrow as pa, penstock as pk
    >>> events = pk.from_arrow(pa.table({"t": [1, 2, 12], "v": [3, 4, 5]}), time="t")
    >>> events.window(10).agg(total=pk.sum("v")).collect().to_pydict()
    {'window_start': [0, 10], 'window_end': [10, 20], 'total': [7, 5]}
    """
    data = bind(data)
    edges = edges_of(on_bad, late_to, quarantine_to, idle_after)
    return stream_of(name, data.schema, time, sequence, lateness, unit, on_bad, data, edges)


def scan(
    paths: Paths,
    *,
    time: str | Every,
    format: str | None = None,
    schema: object = None,
    name: str | None = None,
    sequence: str | None = None,
    lateness: Duration | None = None,
    unit: str | None = None,
    on_bad: str | None = None,
    late_to: LateTo | None = None,
    quarantine_to: Folder | None = None,
    idle_after: Duration | None = None,
    version: int | None = None,
    snapshot: int | None = None,
    storage_options: Mapping[str, object] | None = None,
    filesystem: object = None,
    merge_schema: bool = False,
) -> Stream:
    r"""Make a stream of files: a path, a folder, a glob or a list of them, read when the query runs.

    Paths may be URIs of object stores (`s3:// s3a:// gs:// abfss:// az://`), of Hadoop (`hdfs://`) or of this machine
    (`file://`). Credentials come from `storage_options=` (names as in Delta and Polars: `access_key_id, secret_access_key,
    region, endpoint`, …), else from the running Spark session (`spark.hadoop.fs.*`), else from the environment of the
    process that reads; `filesystem=` takes a file system of pyarrow or fsspec instead.

    The format (parquet, arrow, csv or json) is inferred from the names unless given; `schema=` sets the types of text
    formats, otherwise inferred from the first file. With merge_schema=True the columns are those of all files, each in the
    type that holds its values everywhere. A column that a file lacks is null in its rows. Folders named `column=value` become columns.
    With format="delta" or "iceberg", the path is that of a table, optionally at a `version=` or a `snapshot=`.
    Lines of CSV and JSON that do not match the schema are malformed, like rows without a time: counted and dropped
    (with a warning unless on_bad="drop" is given), an error with on_bad="fail", or written to `quarantine_to=` with
    on_bad="quarantine".

    >>> import pathlib, tempfile, penstock as pk
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "a.csv").write_text("t,v\n1,3\n2,4\n")
    ...     pk.scan(folder + "/*.csv", time="t").filter(pk.col("v") > 3).collect().to_pydict()
    {'t': [2], 'v': [4]}
    """
    from penstock.sources.dataset import Files, open_data  # noqa: PLC0415 - loaded on first use

    access = access_to(paths, storage_options, filesystem)
    declared = None if schema is None else as_schema(schema)
    data = open_data(paths, format, declared, version, snapshot, access, merge_schema)
    if isinstance(data, Files) and isinstance(time, str):
        data = replace(data, needs=time)
    edges = edges_of(on_bad, late_to, quarantine_to, idle_after)
    return stream_of(name, data.schema, time, sequence, lateness, unit, on_bad, data, edges)


def table(data: Any, *, name: str | None = None) -> Stream:
    """Make a static table: rows without time, for joins with streams.

    >>> import pyarrow as pa, penstock as pk
    >>> ads = pk.table(pa.table({"ad": [1, 2], "campaign": ["x", "y"]}))
    >>> views = pk.from_arrow(pa.table({"t": [5, 6], "ad": [2, 3]}), time="t")
    >>> views.join(ads, on="ad", how="left").collect().to_pydict()
    {'ad': [2, 3], 't': [5, 6], 'campaign': ['y', None]}
    """
    bound: Bound = import_module("penstock.spark.bound").bound_frame(data) if is_frame(data) else bind(data)
    known = Unnamed("table") if name is None else _checked_name(name)
    return Stream(Table(known, without_unions(bound.schema)), {known: bound})


def stream_of(
    name: str | None,
    schema: pa.Schema,
    time: str | Every | Arrival,
    sequence: str | None,
    lateness: Duration | None,
    unit: str | None,
    on_bad: str | None,
    data: Bound | None,
    edges: Edges | None = None,
) -> Stream:
    """Make the stream of a source, checking its options."""
    readable, clock = time_of_source(without_unions(schema), time, unit)
    if sequence is not None:
        if not isinstance(sequence, str):
            raise ExpressionTypeError(
                f"sequence= names a column, but it is {shown(sequence)}; write sequence='number'"
            )
        _require_order(sequence, column_type(sequence, readable))
    late = 0 if lateness is None else to_ticks(lateness, clock, "lateness")
    if late < 0:
        raise DurationError(f"lateness is {lateness!r}; it must not be negative")
    known = Unnamed("stream") if name is None else _checked_name(name)
    said = replace(edges or edges_of(on_bad), lateness_given=lateness is not None)
    if isinstance(time, Arrival):
        said = _arriving(said, time, data)
    source = Source(known, readable, clock, sequence, late, on_bad or DROP, said)
    return Stream(source, {} if data is None else {known: data})


def _arriving(edges: Edges, time: Arrival, data: Bound | None) -> Edges:
    """Set the clock of arrival times, and reject options without a meaning for them."""
    if data is not None:
        raise UnsupportedError(
            "data that is already there has no time of arrival; name its time column as time=, or declare the stream "
            "with pk.stream(..., time=pk.arrival()) and push rows"
        )
    if edges.lateness_given or edges.late_to is not None or edges.idle_after is not None:
        raise DurationError(
            "rows stamped on arrival are never late, and their time moves with the clock; "
            "leave out lateness=, late_to= and idle_after="
        )
    return replace(edges, arrival=time.clock)


def _require_order(sequence: str, dtype: pa.DataType) -> None:
    """Reject a sequence column whose type has no order."""
    if kind_of(dtype) in ("other", "null") and not pa.types.is_time(dtype):
        raise SchemaMismatchError(
            f"the sequence {sequence!r} is {dtype}, whose values have no order here; "
            "choose a column of integers, times or strings"
        )


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise BindingError(f"a stream is named by a string that is not empty, not by {name!r}")
    return name

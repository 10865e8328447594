"""Names of columns that are no text are refused with an error of ours, whatever they come in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk

TABLE = pa.table({"t": [1, 2], "vvvv": [1, 2]})
BAD = pa.field(b"v\xff", pa.int64())
SCHEMA = pa.schema([pa.field("t", pa.int64()), BAD])
NESTED = pa.schema([pa.field("t", pa.int64()), pa.field("s", pa.struct([BAD]))])
ROWS = pa.Table.from_arrays([pa.array([1]), pa.array([1])], schema=SCHEMA)
DEEP = pa.Table.from_arrays([pa.array([1]), pa.nulls(1, NESTED.field("s").type)], schema=NESTED)


def write_arrow(path: Path) -> None:
    with pa.ipc.new_file(str(path), TABLE.schema) as writer:
        writer.write_table(TABLE)


FILES: dict[str, Callable[[Path], object]] = {
    "a.parquet": lambda path: pq.write_table(TABLE, path),
    "b.parquet": lambda path: pq.write_table(TABLE, path, store_schema=False),
    "a.arrow": write_arrow,
    "a.csv": lambda path: path.write_text("t,vvvv\n1,2\n"),
    "a.json": lambda path: path.write_text('{"t": 1, "vvvv": 2}\n'),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_with_such_a_name_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    FILES[name](path)
    path.write_bytes(path.read_bytes().replace(b"vvvv", b"vv\xffv"))
    for made in (pk.scan, pk.scan_stream):
        with pytest.raises(pk.PenstockError, match=name):
            made(path, time="t")  # type: ignore[operator]
        with pytest.raises(pk.PenstockError, match=name):
            made(path, time="t", schema={"t": "int64"}, format=path.suffix[1:], on_bad="fail").collect()  # type: ignore[operator]


@pytest.mark.parametrize("table", [ROWS, DEEP], ids=["a column", "inside of a column"])
@pytest.mark.parametrize(
    "use",
    [
        lambda table: pk.from_arrow(table, time="t"),
        lambda table: pk.from_arrow(table.to_reader(), time="t"),
        pk.table,
        lambda table: pk.stream("s", table.schema, time="t"),
        lambda table: pk.stream("s", {"t": "int64"}, time="t").collect(table),
        lambda table: pk.stream("s", {"t": "int64"}, time="t").open().push(table.to_batches()[0]),
        lambda table: list(pk.stream("s", {"t": "int64"}, time="t").run(table.to_batches())),
    ],
    ids=["from_arrow", "a reader", "table", "stream", "collect", "push", "run"],
)
def test_arrow_data_with_such_a_name_is_refused(use: Callable[[pa.Table], object], table: pa.Table) -> None:
    with pytest.raises(pk.SchemaMismatchError, match="column name that is not valid UTF-8"):
        use(table)

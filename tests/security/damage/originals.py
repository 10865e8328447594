"""Good files of every format that is read, each in a folder of its own, to be damaged one at a time."""

from __future__ import annotations

import datetime
import decimal
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

ROWS = 60
START = datetime.datetime(2026, 1, 1)


@dataclass(frozen=True)
class Original:
    """What is scanned, how, and the files of it that are damaged."""

    path: str
    victims: tuple[str, ...]
    options: dict[str, Any]
    by: str = "who"


def table(rows: int = ROWS) -> pa.Table:
    """Columns that queries read, of types that differ in how they are stored."""
    numbers = range(rows)
    return pa.table(
        {
            "t": pa.array([START + datetime.timedelta(seconds=i) for i in numbers], pa.timestamp("us")),
            "who": [None if i % 11 == 0 else f"name-{i % 7}" for i in numbers],
            "v": pa.array([None if i % 13 == 0 else i for i in numbers], pa.int64()),
            "f": pa.array([i / 3 for i in numbers], pa.float64()),
            "flag": [i % 2 == 0 for i in numbers],
        }
    )


DECLARED = {field.name: str(field.type) for field in table().schema}


def wide(rows: int = ROWS) -> pa.Table:
    """A table with most of the types that Parquet and Arrow files have."""
    numbers = range(rows)
    day = datetime.date(2026, 1, 1)
    more = {
        "small": pa.array([i % 100 for i in numbers], pa.uint8()),
        "half": pa.array([float(i) for i in numbers], pa.float32()),
        "day": pa.array([day + datetime.timedelta(days=i) for i in numbers], pa.date32()),
        "clock": pa.array([datetime.time(i % 24) for i in numbers], pa.time64("us")),
        "price": pa.array([decimal.Decimal(i) / 4 for i in numbers], pa.decimal128(12, 2)),
        "raw": pa.array([bytes([i % 256]) * (i % 5) for i in numbers], pa.binary()),
        "fixed": pa.array([bytes([i % 256]) * 4 for i in numbers], pa.binary(4)),
        "word": pa.array([f"w{i % 3}" for i in numbers]).dictionary_encode(),
        "items": pa.array([list(range(i % 4)) for i in numbers], pa.list_(pa.int32())),
    }
    made = table(rows)
    for name, column in more.items():
        made = made.append_column(name, column)
    return made


def nested(rows: int = ROWS) -> pa.Table:
    numbers = range(rows)
    pairs = pa.array([{"a": i, "b": {"c": f"x{i % 3}"}} for i in numbers])
    maps = pa.array([[("k", i)] * (i % 3) for i in numbers], pa.map_(pa.string(), pa.int64()))
    lists = pa.array([[{"x": i}] * (i % 3) for i in numbers], pa.list_(pa.struct({"x": pa.int64()})))
    return table(rows).append_column("pair", pairs).append_column("map", maps).append_column("lists", lists)


def parquet(folder: Path) -> list[Original]:
    """Codecs, encodings, page indexes, statistics, checksums, old and new pages, nested columns."""
    plain: dict[str, dict[str, Any]] = {
        "snappy": {"compression": "snappy", "row_group_size": 20},
        "zstd": {"compression": "zstd", "data_page_version": "2.0", "write_page_index": True},
        "gzip": {"compression": "gzip", "write_page_checksum": True, "use_dictionary": False},
        "lz4": {"compression": "lz4", "data_page_size": 64, "write_batch_size": 8},
        "brotli": {"compression": "brotli", "version": "1.0"},
        "none": {"compression": "none", "write_statistics": False},
        "legacy": {"use_deprecated_int96_timestamps": True},
        "sorted": {"sorting_columns": [pq.SortingColumn(0)], "store_schema": False, "row_group_size": 7},
        "delta": {
            "use_dictionary": False,
            "column_encoding": {
                "t": "DELTA_BINARY_PACKED",
                "who": "DELTA_BYTE_ARRAY",
                "v": "DELTA_BINARY_PACKED",
                "f": "BYTE_STREAM_SPLIT",
                "flag": "RLE",
            },
        },
    }
    for name, options in plain.items():
        pq.write_table(table(), folder / f"{name}.parquet", **options)
    pq.write_table(wide(), folder / "wide.parquet", row_group_size=25, write_page_index=True)
    pq.write_table(nested(), folder / "nested.parquet", row_group_size=25)
    declared = [original for original in _each(folder, schema=DECLARED) if "legacy" not in original.path]
    return _each(folder) + declared


def arrow(folder: Path) -> list[Original]:
    for name, data, codec in (
        ("plain", table(), None),
        ("lz4", table(), "lz4"),
        ("zstd", wide(), "zstd"),
        ("wide", wide(), None),
        ("nested", nested(), None),
    ):
        options = pa.ipc.IpcWriteOptions(compression=codec)
        for kind, make in (("file", pa.ipc.new_file), ("stream", pa.ipc.new_stream)):
            with make(folder / f"{name}-{kind}.arrow", data.schema, options=options) as writer:
                writer.write_table(data, max_chunksize=25)
    return _each(folder)


def text_csv(folder: Path) -> list[Original]:
    csv.write_csv(table(), folder / "comma.csv")
    csv.write_csv(table(), folder / "tab.tsv", csv.WriteOptions(delimiter="\t"))
    return _each(folder) + _each(folder, schema=DECLARED)


def text_json(folder: Path) -> list[Original]:
    lines = (json.dumps({**row, "t": row["t"].isoformat()}) for row in table().to_pylist())
    (folder / "lines.jsonl").write_text("\n".join(lines) + "\n")
    deep = ({"t": i, "who": "a", "v": i, "f": 0.5, "o": {"p": [i], "q": {"r": "s"}}} for i in range(ROWS))
    (folder / "deep.jsonl").write_text("".join(json.dumps(row) + "\n" for row in deep))
    return _each(folder) + _each(folder, schema=DECLARED)[1:]


def delta(folder: Path) -> list[Original]:
    """A table of two versions with a checkpoint, and one with deletion vectors in a file."""
    import deltalake

    where = folder / "table"
    deltalake.write_deltalake(where, table())
    deltalake.DeltaTable(where).create_checkpoint()
    deltalake.write_deltalake(where, table(), mode="append")
    return [_table(where, format="delta"), _deleted_in_delta(folder / "deleted")]


def _deleted_in_delta(folder: Path) -> Original:
    from tests.unit.sources.lake import test_delta as made

    folder.mkdir()
    data = folder / "a.parquet"
    pq.write_table(made.many(ROWS), data, row_group_size=25)
    vector = made.in_a_file(folder, [3, 5, 40])
    made.write_log(folder, [{**made.add(data, ROWS), "deletionVector": vector}], ["deletionVectors"])
    return replace(_table(folder, format="delta"), by="k")


def iceberg(folder: Path) -> list[Original]:
    """A table of two snapshots, and tables with position deletes in a Parquet file and in a vector."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("test", uri="sqlite:///:memory:", warehouse=f"file://{folder}")
    try:
        catalog.create_namespace("n")
        plain = _appended(catalog, "plain")
        listed, vector = _appended(catalog, "listed"), _appended(catalog, "vector")
    finally:
        catalog.close()
    return [_current(plain), _listed_deletes(listed, folder), _vector_deletes(vector, folder)]


def _appended(catalog: Any, name: str) -> Any:
    made = catalog.create_table(f"n.{name}", table().schema)
    made.append(table())
    made.append(table())
    return made


def _listed_deletes(table: Any, folder: Path) -> Original:
    from tests.unit.sources.lake import test_iceberg as made

    (file, *_) = (task.file.file_path for task in table.scan().plan_files())
    rows = pa.table({"file_path": [file, file], "pos": pa.array([3, 5], pa.int64())})
    where = folder / "deletes.parquet"
    pq.write_table(rows, where)
    made.commit_deletes(table, made.delete_file(table, where, made.m.DataFileContent.POSITION_DELETES))
    return _current(table, where)


def _vector_deletes(table: Any, folder: Path) -> Original:
    from tests.unit.sources.lake import test_iceberg as made

    (file, *_) = (task.file.file_path for task in table.scan().plan_files())
    where = folder / "vector.puffin"
    where.write_bytes(made.puffin(file, [1, 3]))
    kind, form = made.m.DataFileContent.POSITION_DELETES, made.m.FileFormat.PUFFIN
    made.commit_deletes(table, made.delete_file(table, where, kind, None, form))
    return _current(table, where)


def _current(table: Any, *beside: Path) -> Original:
    """Damage what the current snapshot is read from."""
    where = Path(table.location().removeprefix("file://"))
    newest = max(where.glob("metadata/*.metadata.json"))
    snapshot = json.loads(newest.read_text())["snapshots"][-1]
    listing = Path(snapshot["manifest-list"].removeprefix("file://"))
    manifests = [path for path in where.rglob("*.avro") if not path.name.startswith(("snap-", "list"))]
    victims = [newest, listing, *sorted(manifests), *sorted(where.rglob("*.parquet")), *beside]
    return Original(str(where), tuple(map(str, victims)), {"format": "iceberg"})


def _each(folder: Path, **options: Any) -> list[Original]:
    return [Original(str(path), (str(path),), options) for path in sorted(folder.iterdir())]


def _table(folder: Path, **options: Any) -> Original:
    victims = tuple(str(path) for path in sorted(folder.rglob("*")) if path.is_file())
    return Original(str(folder), victims, options)


FORMATS: dict[str, Callable[[Path], list[Original]]] = {
    "parquet": parquet,
    "arrow": arrow,
    "csv": text_csv,
    "json": text_json,
    "delta": delta,
    "iceberg": iceberg,
}


def originals(format: str, folder: Path) -> list[Original]:
    """Write the good files of a format into a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return FORMATS[format](folder)

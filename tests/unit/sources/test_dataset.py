"""A table written as files of any shape is read back as it was, by every decoder, less what cannot pass."""

from __future__ import annotations

import math
import tempfile
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.errors import SchemaMismatchError, SourceError
from penstock.expr.evaluate import evaluator
from penstock.expr.nodes import Call, Column, Literal
from penstock.sources import parquet_decode
from penstock.sources.dataset import Dataset
from penstock.sources.prefetch import read, read_ahead
from penstock.types.arrow import physical_values

DECODERS = ("arrow", "polars")
EVERY_TYPE = pa.table(
    {
        "bool": [True, None, False],
        **{f"i{bits}": pa.array([-(2 ** (bits - 1)), None, 2 ** (bits - 1) - 1], f"int{bits}") for bits in (8, 16, 32, 64)},
        **{f"u{bits}": pa.array([0, None, 2**bits - 1], f"uint{bits}") for bits in (8, 16, 32, 64)},
        "f32": pa.array([math.nan, None, -math.inf], pa.float32()),
        "f64": [-0.0, None, 1e300],
        "date": [date(1, 1, 1), None, date(9999, 12, 31)],
        **{f"t_{unit}": pa.array([-1, None, 10**12], pa.timestamp(unit)) for unit in ("ms", "us", "ns")},
        "utc": pa.array([-1, None, 1], pa.timestamp("us", "UTC")),
        "paris": pa.array([-1, None, 1], pa.timestamp("us", "Europe/Paris")),
        "offset": pa.array([-1, None, 1], pa.timestamp("us", "+02:00")),
        "duration": pa.array([timedelta(1), None, timedelta(-1)], pa.duration("us")),
        "text": ["", None, "\U0001f600 é"],
        "large": pa.array(["x" * 100, None, ""], pa.large_string()),
        "coded": pa.array(["a", None, "b"]).dictionary_encode(),
        "bytes": [b"\x00", None, b"\xff"],
        "decimal": [Decimal("1.5"), None, Decimal("-2.25")],
        "list": [[1, None], None, []],
        "struct": [{"a": 1}, None, {"a": None}],
        "time": pa.array([1, None, 2], pa.time64("us")),
        "nothing": pa.nulls(3),
    }
)  # fmt: skip


def rows_of(data: pa.Table | pa.RecordBatch) -> list[dict[str, object]]:
    """Rows as the interpreters see them: times as ticks."""
    columns = [physical_values(column) for column in data.columns]
    return [dict(zip(data.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def whole(parts, schema):
    return pa.Table.from_batches(parts, schema=schema)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("name", EVERY_TYPE.column_names)
def test_every_type_is_read_alike_by_every_decoder(tmp_path, decoder, name):
    pq.write_table(EVERY_TYPE.select([name]), tmp_path / "a.parquet", row_group_size=2)
    data = Dataset.of(tmp_path)
    parts = [batch for fragment in data.fragments for batch in read(fragment, data.schema, decoder=decoder)]
    made = whole(parts, data.schema)
    assert made.num_rows == 3
    made.validate(full=True)
    expected = EVERY_TYPE.select([name]).cast(data.schema)
    assert made.slice(1).equals(expected.slice(1))
    assert repr(made.to_pylist()) == repr(expected.to_pylist())  # NaN and -0.0 among them


@pytest.mark.parametrize("name", ["f64", "t_us", "text", "i8", "u64", "bool"])
def test_polars_decodes_the_common_types(tmp_path, monkeypatch, name):
    """Else the tests above would compare Arrow with itself."""
    pq.write_table(EVERY_TYPE.select([name]), tmp_path / "a.parquet")
    (fragment,) = Dataset.of(tmp_path).fragments
    made = []
    monkeypatch.setattr(
        parquet_decode,
        "_by_polars",
        lambda *args, inner=parquet_decode._by_polars: made.append(inner(*args)) or made[-1],
    )
    list(read(fragment, Dataset.of(tmp_path).schema, decoder="polars"))
    assert len(made) == 1 and made[0] is not None


VALUES = {
    "t": st.integers(-50, 50) | st.none(),
    "k": st.integers(0, 3),
    "x": st.sampled_from([-1.5, -0.0, 0.0, 2.0, math.inf, math.nan, None]),
    "s": st.sampled_from(["", "a", "b", "é", None]),
    "b": st.sampled_from([True, False, None]),
}
SCHEMA = pa.schema(
    {"t": pa.timestamp("us"), "k": pa.int64(), "x": pa.float64(), "s": pa.string(), "b": pa.bool_()}
)
TABLES = st.lists(st.fixed_dictionaries(VALUES), max_size=20).map(
    lambda rows: pa.table({name: [row[name] for row in rows] for name in VALUES}, schema=SCHEMA)
)
PREDICATES = st.sampled_from(
    [
        None,
        Call("ge", (Column("t"), Literal(10, pa.timestamp("us")))),
        Call("and", (Call("lt", (Column("t"), Literal(0, pa.timestamp("us")))), Call("eq", (Column("k"), Literal(1, pa.int64()))))),
        Call("gt", (Column("x"), Literal(1.0, pa.float64()))),
        Call("eq", (Column("s"), Literal("b", pa.string()))),
        Call("or", (Column("b"), Call("is_null", (Column("t"),)))),
    ]
)  # fmt: skip


@st.composite
def written(draw):
    """Draw a table, and ways to write it: into which files, row groups, columns and statistics."""
    table = draw(TABLES)
    cuts = sorted(draw(st.lists(st.integers(0, table.num_rows), max_size=3)))
    parts = [table.slice(a, b - a) for a, b in zip([0, *cuts], [*cuts, table.num_rows], strict=True)]
    ways = [
        (
            draw(st.permutations(table.column_names)),
            draw(st.integers(1, 9)),
            draw(st.booleans()),
            draw(st.booleans()),
        )
        for _ in parts
    ]
    return table, list(zip(parts, ways, strict=True))


def write(folder, files):
    for number, (part, (columns, rows, statistics, plain)) in enumerate(files):
        more = part.select(columns).append_column("more", pa.nulls(part.num_rows, pa.int8()))
        pq.write_table(
            more,
            Path(folder) / f"{number}.parquet",
            row_group_size=rows,
            write_statistics=statistics,
            use_dictionary=not plain,
            compression="none" if plain else "zstd",
        )


def rows_that_pass(table, predicate):
    keep = (lambda row, _: True) if predicate is None else evaluator(predicate, SCHEMA)
    return [repr(row) for row in rows_of(table) if keep(row, ()) is True]


@given(written(), PREDICATES, st.permutations(SCHEMA.names), st.integers(1, 3))
def test_any_table_in_any_files_is_read_back(made, predicate, columns, threads):
    table, files = made
    with tempfile.TemporaryDirectory() as folder:
        write(folder, files)
        data = Dataset.of(folder, time="t", schema=SCHEMA)
        parts = list(read_ahead(data.fragments, SCHEMA, columns, predicate, threads))
        polars = [
            part
            for value in data.fragments
            for part in read(value, SCHEMA, columns, predicate, None, "polars")
        ]
        times = [(value, list(read(value, SCHEMA, ["t"]))) for value in data.fragments]
    assert data.rows == table.num_rows
    schema = pa.schema([SCHEMA.field(name) for name in columns])
    for value in (parts, polars):
        back = whole(value, schema).select(SCHEMA.names)
        assert rows_that_pass(back, predicate) == rows_that_pass(table, predicate)
        assert predicate is not None or back.num_rows == table.num_rows
    for fragment, batches in times:
        _assert_encloses(fragment, [row["t"] for batch in batches for row in rows_of(batch)])


def _assert_encloses(fragment, times):
    known = [time for time in times if time is not None]
    assert fragment.rows == len(times)
    if fragment.time_min is not None:
        assert (fragment.time_min, fragment.time_max) == (min(known), max(known))


def test_row_groups_that_cannot_pass_are_not_read(tmp_path):
    pq.write_table(pa.table({"t": list(range(100))}), tmp_path / "a.parquet", row_group_size=10)
    data = Dataset.of(tmp_path)
    late = Call("ge", (Column("t"), Literal(75, pa.int64())))
    assert whole(data.batches(["t"], late), data.schema)["t"].to_pylist() == list(range(70, 100))


@pytest.mark.parametrize(
    "dtype", [pa.int32(), pa.uint64(), pa.date32(), pa.timestamp("ms"), pa.timestamp("ns", "UTC")], ids=str
)
def test_times_of_any_type_are_ranges_of_ticks(tmp_path, dtype):
    pq.write_table(pa.table({"t": pa.array([5, 3, 9], pa.int32()).cast(pa.int64()).cast(pa.int32() if dtype.bit_width == 32 else pa.int64()).cast(dtype)}), tmp_path / "a.parquet")  # fmt: skip
    (fragment,) = Dataset.of(tmp_path, time="t").fragments
    assert (fragment.time_min, fragment.time_max, fragment.rows) == (3, 9, 3)


def test_ranges_are_in_ticks_of_the_declared_type(tmp_path):
    pq.write_table(pa.table({"t": pa.array([5, 3], pa.timestamp("ms"))}), tmp_path / "a.parquet")
    (fragment,) = Dataset.of(tmp_path, time="t", schema=pa.schema({"t": pa.timestamp("us")})).fragments
    assert (fragment.time_min, fragment.time_max) == (3000, 5000)


def test_unsigned_times_above_the_middle_are_not_negative(tmp_path):
    pq.write_table(pa.table({"t": pa.array([2**31, 2**32 - 1], pa.uint32())}), tmp_path / "a.parquet")
    (fragment,) = Dataset.of(tmp_path, time="t").fragments
    assert (fragment.time_min, fragment.time_max) == (2**31, 2**32 - 1)


@pytest.mark.parametrize(("descending", "expected"), [(False, True), (True, None)])
def test_a_declared_sorting_is_told(tmp_path, descending, expected):
    order = [pq.SortingColumn(1, descending=descending)]
    table = pa.table({"k": [1, 1], "t": [1, 2]})
    pq.write_table(table, tmp_path / "a.parquet", sorting_columns=order)
    assert Dataset.of(tmp_path, time="t").fragments[0].ordered is expected
    assert Dataset.of(tmp_path, time="k").fragments[0].ordered is None


def test_columns_whose_names_could_be_paths_or_patterns_are_read(tmp_path):
    table = pa.table({"a.b": [1, 2], "a": [{"b": 3}, {"b": 4}], "^x.*$": [5, 6], "*": [7, 8], "": [9, 10]})
    pq.write_table(table, tmp_path / "a.parquet")
    data = Dataset.of(tmp_path, time="a.b")
    assert data.fragments[0].time_min in (None, 1)
    for decoder in DECODERS:
        (batch,) = read(data.fragments[0], data.schema, ["^x.*$", "*", "a.b", ""], decoder=decoder)
        assert batch.to_pydict() == {"^x.*$": [5, 6], "*": [7, 8], "a.b": [1, 2], "": [9, 10]}


@pytest.mark.parametrize("name", ["~.parquet", "*.parquet", "[a].parquet", "a b#c?.parquet", "x=1.parquet", "%41.parquet", "s3:a.parquet"])  # fmt: skip
def test_hostile_names_are_names(tmp_path, monkeypatch, name):
    for number, value in enumerate([name, "A.parquet", "other.parquet"]):
        pq.write_table(pa.table({"t": [number]}), tmp_path / value)
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path / name, name):
        data = Dataset.of(path)
        for decoder in DECODERS:
            assert [
                b["t"].to_pylist() for f in data.fragments for b in read(f, data.schema, decoder=decoder)
            ] == [[0]]


def test_files_and_row_groups_without_rows_are_read(tmp_path):
    schema = pa.schema({"t": pa.int64()})
    pq.write_table(schema.empty_table(), tmp_path / "a.parquet")
    with pq.ParquetWriter(tmp_path / "b.parquet", schema) as out:
        for rows in ([], [1], [], [2, 3]):
            out.write_table(pa.table({"t": rows}, schema=schema))
    data = Dataset.of(tmp_path, time="t")
    assert data.rows == 3
    for decoder in DECODERS:
        parts = [part for fragment in data.fragments for part in read(fragment, schema, decoder=decoder)]
        assert whole(parts, schema)["t"].to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_text_files_of_no_bytes_hold_no_rows(tmp_path, suffix):
    (tmp_path / f"a.{suffix}").touch()
    (tmp_path / f"b.{suffix}").write_text("t\n1\n" if suffix == "csv" else '{"t": 1}\n', encoding="utf-8")
    assert pk.scan(tmp_path, time="t").collect()["t"].to_pylist() == [1]


def test_a_long_row_group_is_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_decode, "LARGEST_ROW_GROUP", 7)
    assert parquet_decode.most_rows(pa.schema({"t": pa.int64()}), ["t"]) == 7
    pq.write_table(pa.table({"t": list(range(20))}), tmp_path / "a.parquet")
    data = Dataset.of(tmp_path)
    parts = list(data.batches())
    assert [part.num_rows for part in parts] == [7, 7, 6]
    assert whole(parts, data.schema)["t"].to_pylist() == list(range(20))


def test_fewer_rows_of_wide_tables_are_held():
    schema = pa.schema({f"c{number}": pa.int64() if number % 2 else pa.string() for number in range(100)})
    assert parquet_decode.row_bytes(schema, schema.names) == 50 * 8 + 50 * 32
    assert parquet_decode.most_rows(schema, schema.names) == parquet_decode.HELD // 2000
    assert (
        parquet_decode.most_rows(schema, ["c1"])
        == parquet_decode.most_rows(schema, [])
        == parquet_decode.LARGEST_ROW_GROUP
    )


def test_a_page_damaged_after_planning_names_the_file(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"t": list(range(10_000))}), path, compression="snappy", use_dictionary=False)
    data = Dataset.of(path)
    raw = bytearray(path.read_bytes())
    raw[20:400] = b"\xff" * 380
    path.write_bytes(raw)
    for decoder in DECODERS:
        with pytest.raises(SourceError, match=r"a\.parquet"):
            list(read(data.fragments[0], data.schema, decoder=decoder))


def test_a_file_gone_after_planning_is_named(tmp_path):
    pq.write_table(pa.table({"t": [1]}), tmp_path / "a.parquet")
    data = Dataset.of(tmp_path)
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(SourceError, match=r"a\.parquet"):
        list(data.batches())


def test_a_type_that_drifts_is_an_error_unless_it_is_narrower(tmp_path):
    pq.write_table(pa.table({"t": pa.array([1], pa.int64())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"t": pa.array([2], pa.int32())}), tmp_path / "b.parquet")
    assert whole(Dataset.of(tmp_path).batches(), pa.schema({"t": pa.int64()}))["t"].to_pylist() == [1, 2]
    pq.write_table(pa.table({"t": pa.array([2.0])}), tmp_path / "c.parquet")
    with pytest.raises(SchemaMismatchError, match=r"c\.parquet"):
        Dataset.of(tmp_path)


def test_files_may_differ_in_what_they_promise_about_nulls(tmp_path):
    strict = pa.schema([pa.field("t", pa.int64(), nullable=False)])
    pq.write_table(pa.table({"t": [1]}, schema=strict), tmp_path / "a.parquet")
    pq.write_table(pa.table({"t": [2]}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"t": [3]}, schema=strict), tmp_path / "c.parquet")
    assert pk.scan(tmp_path, time="t").collect()["t"].to_pylist() == [1, 2, 3]


def test_an_iterator_given_up_early_ends_its_threads(tmp_path):
    pq.write_table(pa.table({"t": list(range(1000))}), tmp_path / "a.parquet", row_group_size=10)
    batches = Dataset.of(tmp_path).batches()
    assert next(batches).num_rows > 0
    batches.close()
    assert next(batches, None) is None


def test_what_polars_cannot_read_arrow_reads(tmp_path, monkeypatch):
    pq.write_table(pa.table({"t": [1, 2]}), tmp_path / "a.parquet")
    data = Dataset.of(tmp_path)

    def broken(*args, **kwargs):
        raise pl.exceptions.ComputeError("no")

    monkeypatch.setattr(pl, "scan_parquet", broken)
    assert [batch.num_rows for batch in read(data.fragments[0], data.schema, decoder="polars")] == [2]


def test_polars_is_loaded_for_large_scans_only():
    assert (
        parquet_decode.decoder_for(None)
        == parquet_decode.decoder_for(parquet_decode.ROWS_WORTH_POLARS - 1)
        == "arrow"
    )
    assert parquet_decode.decoder_for(parquet_decode.ROWS_WORTH_POLARS) == "polars"
    assert parquet_decode.decoder_for(parquet_decode.WORTH_ALONE, parquet_decode.WORTH_ALONE) == "polars"


def test_old_timestamps_of_96_bits_are_read(tmp_path):
    times = pa.array([datetime(2026, 1, 1), None], pa.timestamp("ns"))
    pq.write_table(pa.table({"t": times}), tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    data = Dataset.of(tmp_path, time="t")
    assert data.fragments[0].time_min is None
    for decoder in DECODERS:
        assert (
            whole(read(data.fragments[0], data.schema, decoder=decoder), data.schema)["t"].combine_chunks()
            == times
        )

"""Arrow data of any origin is bound without copies, and brought to the declared schema or refused."""

from __future__ import annotations

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock as pk
from penstock.errors import OverflowError as PenstockOverflow
from penstock.errors import SchemaMismatchError, SourceError
from penstock.sources.arrow import bind
from penstock.sources.conform import check, conformer, harmless

TABLE = pa.table({"a": pa.array([1, 2, 3], pa.int64()), "s": ["x", "y", None]})


class OnlyArray:
    """The least an object can be to count as Arrow data."""

    def __arrow_c_array__(self, requested_schema=None):
        return TABLE.to_batches()[0].__arrow_c_array__(requested_schema)


ORIGINS = {
    "table": lambda: TABLE,
    "batch": lambda: TABLE.to_batches()[0],
    "list of batches": TABLE.to_batches,
    "reader": TABLE.to_reader,
    "polars": lambda: pl.from_arrow(TABLE),
    "pandas": lambda: pd.DataFrame({"a": [1, 2, 3], "s": ["x", "y", None]}),
    "duckdb": lambda: duckdb.sql("select * from (values (1::bigint, 'x'), (2, 'y'), (3, null)) t(a, s)"),
    "array protocol": OnlyArray,
}


@pytest.mark.parametrize("origin", ORIGINS)
def test_data_of_any_origin_is_read(origin):
    bound = bind(ORIGINS[origin]())
    assert bound.schema.names == ["a", "s"]
    assert bound.rows in {3, None}
    read = pa.Table.from_batches(bound.batches(["s", "a"]))
    assert read.to_pydict() == {"s": ["x", "y", None], "a": [1, 2, 3]}


@pytest.mark.parametrize("origin", [origin_name for origin_name in ORIGINS if origin_name != "reader"])
def test_data_that_is_there_can_be_read_again(origin):
    bound = bind(ORIGINS[origin]())
    assert (
        [batch.num_rows for batch in bound.batches()] == [batch.num_rows for batch in bound.batches()] == [3]
    )


def test_a_reader_is_read_once_and_says_so_the_second_time():
    bound = bind(TABLE.to_reader())
    list(bound.batches())
    with pytest.raises(SourceError, match="read before"):
        bound.batches()


def test_batches_in_memory_are_neither_copied_nor_cut():
    table = pa.table({"a": pa.array(range(300_000))})
    (batch,) = bind(table).batches(["a"])
    assert batch.column(0).buffers()[1].address == table.column(0).chunk(0).buffers()[1].address


def test_no_column_at_all_still_counts_rows():
    assert [batch.num_rows for batch in bind(TABLE).batches([])] == [3]


@pytest.mark.parametrize("data", [3, "table", None, [1, 2], {1, 2}])
def test_what_is_not_arrow_data_is_refused(data):
    with pytest.raises(SourceError, match="not Arrow data"):
        bind(data)


DICT = pa.dictionary(pa.int32(), pa.string())
HARMLESS = [
    (pa.int8(), pa.int64()),
    (pa.uint8(), pa.int16()),
    (pa.uint64(), pa.int64()),
    (pa.uint32(), pa.uint64()),
    (pa.float32(), pa.float64()),
    (pa.large_string(), pa.string()),
    (pa.string_view(), pa.string()),
    (DICT, pa.string()),
    (pa.string(), DICT),
    (pa.dictionary(pa.int8(), pa.large_string()), DICT),
    (pa.timestamp("s"), pa.timestamp("us")),
    (pa.timestamp("us", "Etc/UTC"), pa.timestamp("us", "UTC")),
    (pa.duration("s"), pa.duration("ms")),
    (pa.null(), pa.int64()),
]
HARMFUL = [
    (pa.int64(), pa.int32()),
    (pa.uint64(), pa.int32()),
    (pa.int64(), pa.float64()),
    (pa.float64(), pa.float32()),
    (pa.string(), pa.int64()),
    (pa.bool_(), pa.int64()),
    (pa.timestamp("us"), pa.timestamp("s")),
    (pa.timestamp("us"), pa.timestamp("us", "UTC")),
    (pa.date32(), pa.timestamp("us")),
]


@pytest.mark.parametrize(("given", "declared"), HARMLESS, ids=str)
def test_a_harmless_difference_is_cast_away(given, declared):
    assert harmless(given, declared)
    values = ["1", None] if pa.types.is_string(declared) or pa.types.is_dictionary(declared) else [None, None]
    array = pa.array(values, pa.string()).cast(given) if values[0] else pa.nulls(2, given)
    batch = pa.record_batch({"x": array})
    made = conformer(batch.schema, pa.schema({"x": declared}), ["x"], "the data")(batch)
    assert made.schema.field("x").type == declared
    assert made.column("x").to_pylist() == values


@pytest.mark.parametrize(("given", "declared"), HARMFUL, ids=str)
def test_any_other_difference_is_refused_naming_column_and_types(given, declared):
    with pytest.raises(SchemaMismatchError, match=r"column 'x' of the data is .* but the stream declares"):
        check(pa.schema({"x": given}), pa.schema({"x": declared}), "the data")


def test_a_missing_column_is_named_with_the_nearest_there_is():
    with pytest.raises(SchemaMismatchError, match=r"no column 'value'.*it has 'valeu'"):
        check(pa.schema({"valeu": pa.int64()}), pa.schema({"value": pa.int64()}), "the data")


def test_a_column_that_is_there_twice_is_refused():
    with pytest.raises(SchemaMismatchError, match="2 columns named 'x'"):
        check(pa.schema([("x", pa.int64()), ("x", pa.int64())]), pa.schema({"x": pa.int64()}), "the data")


@pytest.mark.parametrize(
    ("array", "declared"),
    [
        (pa.array([2**60], pa.timestamp("s")), pa.timestamp("ns")),
        (pa.array([2**63], pa.uint64()), pa.int64()),
    ],
)
def test_values_that_overflow_on_the_way_to_the_declared_type_are_refused(array, declared):
    batch = pa.record_batch({"x": array})
    with pytest.raises(PenstockOverflow, match="'x'"):
        conformer(batch.schema, pa.schema({"x": declared}), ["x"], "the data")(batch)


def test_columns_that_promise_no_nulls_are_columns_like_others():
    strict = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("s", pa.string())])
    table = pa.table({"a": [1, 2], "s": ["x", None]}, schema=strict)
    events = pk.from_arrow(table, time="a")
    assert events.collect().to_pydict() == table.to_pydict()
    assert events.collect(TABLE.slice(0, 1)).num_rows == 1
    assert events.union(pk.from_arrow(TABLE, time="a")).collect().num_rows == 5


class Celsius(pa.ExtensionType):
    """A type of a user's own, as pyarrow's manual defines one."""

    def __init__(self):
        super().__init__(pa.int64(), "tests.celsius")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type, serialized):
        return cls()


def _inside(dtype, value):
    return pa.array([value, None, value], dtype)


UNTOUCHED = {
    "lists of text": _inside(pa.large_list(pa.string_view()), ["x", None]),
    "vectors of text": _inside(pa.list_(pa.string_view(), 2), ["x", "y"]),
    "views of lists": _inside(pa.list_view(pa.string_view()), ["x"]),
    "structs of text": _inside(pa.struct({"s": pa.string_view()}), {"s": "x"}),
    "maps to bytes": _inside(pa.map_(pa.string_view(), pa.binary_view()), [("x", b"y")]),
    "structs in lists": _inside(pa.list_(pa.struct({"s": pa.string_view()})), [{"s": "x"}]),
    "runs": pc.run_end_encode(pa.array([1, 1, None])),
    "runs of text": pc.run_end_encode(pa.array(["x", "x", None], pa.large_string())),
    "an extension": pa.ExtensionArray.from_storage(Celsius(), pa.array([20, None, 21])),
}


@pytest.mark.parametrize("column", UNTOUCHED.values(), ids=UNTOUCHED)
@pytest.mark.parametrize(
    "query",
    [
        lambda e: e.filter(pk.col("a") > 0),
        lambda e: e.window(10, every=5).with_columns(n=pk.count()).filter(pk.col("window_start") == 0),
        lambda e: e.join(e.select("k", b="a"), on="k", within=(0, 0)),
    ],
    ids=["filter", "window", "join"],
)
def test_encodings_that_arrow_takes_no_rows_from_pass_through(column, query):
    table = pa.table({"a": [1, 2, 3], "k": [1, 2, 3], "p": column})
    found = query(pk.from_arrow(table, time="a")).collect()
    values = column.storage if isinstance(column.type, pa.ExtensionType) else column
    assert found.column("p").to_pylist() == values.to_pylist()


def test_text_inside_lists_and_structs_of_polars_passes_through():
    frame = pl.DataFrame({"t": [1, 2], "l": [["x"], None], "s": [{"u": "v"}, {"u": None}]})
    found = pk.from_arrow(frame, time="t").filter(pk.col("t") > 0).to_polars()
    assert found.equals(frame)


def test_a_null_in_a_dictionary_is_a_null():
    texts = pa.array(["x", None, "x", None]).dictionary_encode(null_encoding="encode")
    assert texts.dictionary.null_count == 1
    events = pk.from_arrow(pa.table({"a": [1, 2, 3, 4], "s": texts}), time="a")
    counted = events.window(10).agg(n=pk.count("s"), all=pk.list("s")).collect()
    assert counted.select(["n", "all"]).to_pylist() == [{"n": 2, "all": ["x", "x"]}]
    assert events.filter(pk.col("s").is_null()).collect()["a"].to_pylist() == [2, 4]
    assert events.join(events.select("s"), on="s", within=(-9, 9)).collect().num_rows == 4
    nothing = pk.from_arrow(pa.table({"a": [1], "s": texts.slice(1, 1)}), time="a")
    assert nothing.window(10).agg(m=pk.min("s")).collect()["m"].to_pylist() == [None]


def test_a_null_in_an_ordered_dictionary_leaves_its_type():
    texts = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["x", None]), ordered=True)
    found = pk.from_arrow(pa.table({"a": [1, 2], "s": texts}), time="a").collect()
    assert found["s"].type == texts.type
    assert found["s"].to_pylist() == ["x", None]


def test_batches_of_a_list_have_the_columns_of_the_first():
    first = pa.record_batch({"t": [1], "v": [1]})
    narrow = pa.record_batch({"v": pa.array([2], pa.int8()), "t": [2]})
    assert pk.from_arrow([first, narrow], time="t").collect()["v"].to_pylist() == [1, 2]
    with pytest.raises(SchemaMismatchError, match="number 1 of the record batches has no column 'v'"):
        pk.from_arrow([first, first.select(["t"])], time="t")
    with pytest.raises(SchemaMismatchError, match="column 'v' of number 1 of the record batches is string"):
        pk.from_arrow([first, pa.record_batch({"t": [2], "v": ["x"]})], time="t")
    with pytest.raises(SourceError, match="number 1 is a Table"):
        pk.from_arrow([first, pa.table({"t": [2], "v": [1]})], time="t")

"""Keys of any type and number: strings, dictionaries, floats, nulls, three at once."""

from __future__ import annotations

import datetime as dt
import math

import pyarrow as pa
import pytest

import penstock as pk

TIME = pa.timestamp("s")


def totals(table: pa.Table, *keys: str) -> dict[object, int]:
    query = pk.from_arrow(table, time="ts").window("10s", by=list(keys)).agg(total=pk.sum("v"))
    rows = query.collect().to_pylist()
    return {
        (row[keys[0]] if len(keys) == 1 else tuple(row[key] for key in keys)): row["total"] for row in rows
    }


def keyed(values: list[object], dtype: pa.DataType | None = None) -> pa.Table:
    n = len(values)
    return pa.table(
        {"ts": pa.array([0] * n, TIME), "k": pa.array(values, dtype), "v": [2**i for i in range(n)]}
    )


def test_string_keys_with_unicode_and_empty_strings() -> None:
    values = ["", "a", "é", "e\u0301", "🎈", "", "a", None, "a" * 1000, "a" * 999 + "b", "\x00", "\x00\x00"]
    assert totals(keyed(values), "k") == {
        "": 33, "a": 66, "é": 4, "e\u0301": 8, "🎈": 16, None: 128, "a" * 1000: 256, "a" * 999 + "b": 512,
        "\x00": 1024, "\x00\x00": 2048,
    }  # fmt: skip


def test_null_keys_form_a_group() -> None:
    assert totals(keyed([None, 1, None], pa.int64()), "k") == {None: 5, 1: 2}


def test_nan_is_one_key_and_the_sign_of_zero_does_not_count() -> None:
    result = totals(keyed([math.nan, -math.nan, 0.0, -0.0, math.inf]), "k")
    assert len(result) == 3
    assert result[0.0] == 12
    assert result[math.inf] == 16
    assert next(total for key, total in result.items() if isinstance(key, float) and math.isnan(key)) == 3


@pytest.mark.parametrize("dtype", [pa.int8(), pa.int16(), pa.int32(), pa.int64()], ids=str)
def test_signed_keys_at_their_limits(dtype: pa.DataType) -> None:
    top = 2 ** (dtype.bit_width - 1) - 1
    result = totals(keyed([top, -top - 1, 0, -1, top], dtype), "k")
    assert result == {top: 17, -top - 1: 2, 0: 4, -1: 8}


@pytest.mark.parametrize("dtype", [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()], ids=str)
def test_unsigned_keys_at_their_limits(dtype: pa.DataType) -> None:
    top = 2**dtype.bit_width - 1
    assert totals(keyed([top, 0, top - 1, top], dtype), "k") == {top: 9, 0: 2, top - 1: 4}


def test_boolean_date_duration_and_timestamp_keys() -> None:
    assert totals(keyed([True, False, None, True]), "k") == {True: 9, False: 2, None: 4}
    day = dt.date(2024, 2, 29)
    assert totals(keyed([day, dt.date(1969, 1, 1), day]), "k") == {day: 5, dt.date(1969, 1, 1): 2}
    hour = dt.timedelta(hours=1)
    assert totals(keyed([hour, -hour, hour]), "k") == {hour: 5, -hour: 2}
    moment = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    assert totals(keyed([moment, moment, None], pa.timestamp("us", "UTC")), "k") == {moment: 3, None: 4}


def test_three_keys_of_mixed_types() -> None:
    table = pa.table(
        {
            "ts": pa.array([0] * 6, TIME),
            "s": ["a", "a", "b", None, "a", None],
            "i": pa.array([1, 1, 1, None, 2, None], pa.int16()),
            "f": [0.5, 0.5, math.nan, None, 0.5, None],
            "v": [1, 2, 4, 8, 16, 32],
        }
    )
    result = totals(table, "s", "i", "f")
    assert result[("a", 1, 0.5)] == 3
    assert result[("a", 2, 0.5)] == 16
    assert result[(None, None, None)] == 40
    assert len(result) == 4


def test_strings_that_run_together_are_different_keys() -> None:
    table = pa.table(
        {"ts": pa.array([0, 0, 0], TIME), "a": ["ab", "a", ""], "b": ["c", "bc", "abc"], "v": [1, 2, 4]}
    )
    assert totals(table, "a", "b") == {("ab", "c"): 1, ("a", "bc"): 2, ("", "abc"): 4}


def test_dictionaries_that_differ_between_chunks() -> None:
    first = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int8()), pa.array(["x", "y"]))
    second = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.array(["y", "x"]))
    third = pa.DictionaryArray.from_arrays(pa.array([2], pa.int8()), pa.array(["z", "z", "x"]))
    keys = pa.chunked_array([first, second, third])
    table = pa.table({"ts": pa.array([0] * 7, TIME), "k": keys, "v": [1, 2, 4, 8, 16, 32, 64]})
    assert totals(table, "k") == {"x": 1 + 4 + 16 + 64, "y": 2 + 8, None: 32}


def test_dictionaries_with_repeated_unused_and_null_values() -> None:
    keys = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3]), pa.array(["x", None, "x", "y", "unused"]))
    table = pa.table({"ts": pa.array([0] * 4, TIME), "k": keys, "v": [1, 2, 4, 8]})
    assert totals(table, "k") == {"x": 5, None: 2, "y": 8}


def test_large_strings_and_string_views_are_strings_too() -> None:
    for dtype in (pa.large_string(), pa.string_view()):
        assert totals(keyed(["a", "longer than twelve bytes", "a"], dtype), "k") == {
            "a": 5,
            "longer than twelve bytes": 2,
        }


def test_many_keys_in_one_window() -> None:
    n = 50_000
    table = pa.table(
        {"ts": pa.array([0] * n, TIME), "k": [(i * 7_919) % 25_000 * 10**9 for i in range(n)], "v": [1] * n}
    )
    result = totals(table, "k")
    assert len(result) == 25_000
    assert set(result.values()) == {2}


def test_a_key_may_be_the_time_column_of_another_unit() -> None:
    table = keyed([1, 2, 1], pa.int64()).append_column("hour", pa.array([0, 3_600, 0], pa.timestamp("s")))
    result = pk.from_arrow(table, time="ts").window("10s", by=["hour"]).agg(s=pk.sum("v")).collect()
    assert sorted(result["s"].to_pylist()) == [2, 5]


def test_no_keys_and_an_empty_list_are_the_same() -> None:
    stream = pk.from_arrow(keyed([1, 2]), time="ts")
    results = [
        stream.window("10s", **by).agg(s=pk.sum("v")).collect() for by in ({}, {"by": []}, {"by": None})
    ]
    assert results[0].equals(results[1]) and results[1].equals(results[2])


@pytest.mark.parametrize(
    "values", [[2**63 - 1], [-(2**63)], [2**63 - 1, 2**63 - 4], [2**63 - 1, -(2**63), 0]]
)
def test_keys_at_the_ends_of_64_bits_are_keys_like_others(values: list[object]) -> None:
    assert totals(keyed(values, pa.int64()), "k") == {value: 2**i for i, value in enumerate(values)}


@pytest.mark.parametrize(
    "window", [pk.tumbling("10s"), pk.session("10s"), pk.rows(2)], ids=["grid", "session", "rows"]
)
@pytest.mark.parametrize("least", [2**64 - 3, 2**63, 2**63 - 1, 0])
def test_unsigned_keys_beyond_the_signed_range_in_every_kind_of_window(least: int, window: object) -> None:
    table = keyed([least, least + 1, least + 1, least], pa.uint64())
    counted = pk.from_arrow(table, time="ts").window(window, by="k").agg(n=pk.count())
    assert {row["k"]: row["n"] for row in counted.collect().to_pylist()} == {least: 2, least + 1: 2}

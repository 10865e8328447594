"""What tasks hand to each other is what they meant, in fewer bytes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StateError
from penstock.state import format
from penstock.state.format import _BASES, _SCHEMA, encode_table, pack, unpack
from tests.oracle.effort import effort

ROWS = 20_000
TYPES = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
TIMES = [
    pa.timestamp("us"),
    pa.timestamp("ns", "UTC"),
    pa.date32(),
    pa.date64(),
    pa.duration("ms"),
    pa.time64("us"),
]
OTHERS = [pa.string(), pa.large_string(), pa.float64(), pa.bool_(), pa.binary(16), pa.list_(pa.int64())]


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pack few rows too."""
    monkeypatch.setattr(format, "ROWS_WORTH_PACKING", 0)


def bounds(kind: pa.DataType) -> tuple[int, int]:
    info = np.iinfo(kind.to_pandas_dtype())
    return int(info.min), int(info.max)


@st.composite
def columns(draw: st.DrawFn, rows: int) -> pa.Array:
    """Whole numbers from anywhere in a type's range, in runs or not, some of them null."""
    kind = draw(st.sampled_from(TYPES))
    low, high = bounds(kind)
    begin = draw(st.integers(low, high))
    near = st.integers(begin, min(begin + draw(st.sampled_from([0, 3, 255, 256, 65_536, 1 << 33])), high))
    several = draw(st.lists(near, min_size=1, max_size=6))
    length = draw(st.sampled_from([1, 5, 40]))
    values: list[int | None] = [several[number // length % len(several)] for number in range(rows)]
    if rows and draw(st.booleans()) and draw(st.booleans()):
        values[draw(st.integers(0, rows - 1))] = None
    return pa.array(values, kind)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.sampled_from([0, 1, 2, 100]))
    made = [draw(columns(rows)) for _ in range(draw(st.integers(1, 3)))]
    return pa.table(made, names=["same"] * len(made))


@effort(60)
@given(tables(), st.integers(0, 3))
def test_a_table_arrives_as_it_was(table: pa.Table, skipped: int) -> None:
    part = table.slice(skipped)
    assert unpack(pack(part), "it") == part


def test_few_rows_are_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(format, "ROWS_WORTH_PACKING", 10)
    few, many = (pa.table({"v": range(rows)}) for rows in (9, 10))
    assert pack(few) == encode_table(few, "lz4")
    assert pack(many) != encode_table(many, "lz4")
    assert unpack(pack(few), "it") == few


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_the_ends_of_a_type_arrive(kind: pa.DataType) -> None:
    low, high = bounds(kind)
    for values in ([low, high], [low, low + 1], [high, high - 1], [low], [high] * 50):
        table = pa.table({"v": pa.array(values * 20, kind)})
        assert unpack(pack(table), "it") == table


@pytest.mark.parametrize("kind", TIMES, ids=str)
def test_times_arrive(kind: pa.DataType) -> None:
    days = pa.array(np.arange(3_000) % 40 * (1 if kind == pa.date32() else 86_400_000))
    width = pa.int32() if kind == pa.date32() else pa.int64()
    typed = pa.table({"t": days.cast(width).view(kind)})
    found = unpack(pack(typed), "it")
    assert found.schema == typed.schema
    assert found == typed


@pytest.mark.parametrize("kind", OTHERS, ids=str)
def test_other_columns_arrive_too(kind: pa.DataType) -> None:
    texts: dict[Any, list[Any]] = {
        pa.float64(): [1.5, -0.0, None],
        pa.bool_(): [True, None, False],
        pa.binary(16): [bytes(range(16)), None, b"\xff" * 16],
        pa.list_(pa.int64()): [[1], None, []],
    }
    table = pa.table({"n": range(3), "o": pa.array(texts.get(kind, ["a", None, ""]), kind)})
    assert unpack(pack(table), "it") == table


def test_numbers_of_128_bits_arrive_from_the_middle_of_an_array() -> None:
    random = np.random.default_rng(1)
    data = pa.py_buffer(random.integers(-(1 << 62), 1 << 62, 2 * ROWS))
    table = pa.table({"sum": pa.Array.from_buffers(pa.binary(16), ROWS, [None, data])})
    for part in (table, table.slice(7, 100)):
        assert unpack(pack(part), "it") == part


def test_runs_and_small_numbers_take_few_bytes() -> None:
    panes = np.repeat(np.arange(10) + (1 << 50), ROWS // 10)
    table = pa.table(
        {"pane": panes, "key": np.arange(ROWS) % 300 + (1 << 40), "one": np.ones(ROWS, np.int64)}
    )
    assert len(pack(table)) < 3 * ROWS


def test_a_table_whose_runs_end_where_nobody_looked_arrives() -> None:
    table = pa.table({"v": np.append(np.zeros(ROWS, np.int64), np.arange(ROWS))})
    assert unpack(pack(table), "it") == table


@pytest.mark.parametrize(
    "about",
    [
        {_SCHEMA: b"no schema", _BASES: b"[0]"},
        {_SCHEMA: pa.schema({"a": pa.int64(), "b": pa.int64()}).serialize().to_pybytes(), _BASES: b"[0]"},
        {_SCHEMA: pa.schema({"a": pa.binary(16)}).serialize().to_pybytes(), _BASES: b"[0]"},
        {_SCHEMA: pa.schema([]).serialize().to_pybytes(), _BASES: b"[0]"},
        {_SCHEMA: pa.schema({"a": pa.int64()}).serialize().to_pybytes(), _BASES: b"[0, 0]"},
        {
            _SCHEMA: pa.schema({"a": pa.int64()}).serialize().to_pybytes(),
            _BASES: json.dumps([1 << 80]).encode(),
        },
        {_SCHEMA: pa.schema({"a": pa.int64()}).serialize().to_pybytes(), _BASES: b"{"},
        {_SCHEMA: pa.schema({"a": pa.int64()}).serialize().to_pybytes()},
        {_SCHEMA: pa.schema({"a": pa.string()}).serialize().to_pybytes(), _BASES: b"[0]"},
    ],
)
def test_what_was_not_packed_is_refused(about: dict[bytes, bytes]) -> None:
    table = pa.table({"0": pa.array([1, 2], pa.uint8())}).replace_schema_metadata(about)
    with pytest.raises(StateError, match="is not what a task packs"):
        unpack(encode_table(table), "it")


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(StateError, match="no well-formed Arrow stream"):
        unpack(b"nothing", "it")

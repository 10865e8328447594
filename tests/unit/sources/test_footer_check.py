"""Footers that Arrow cannot be asked about are refused: asking ends the process."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.sources import footer_check
from penstock.sources.footer_check import check_footer
from penstock.sources.thrift import DamagedError, head, list_head, struct, value

ROWS = 30


def table(**columns: pa.Array) -> pa.Table:
    return pa.table({"t": pa.array(range(ROWS), pa.int64()), **columns})


def footer_of(data: pa.Table, path: Path, **options: object) -> bytes:
    pq.write_table(data, path, **options)
    whole = path.read_bytes()
    length = int.from_bytes(whole[-8:-4], "little")
    return whole[-8 - length : -8]


def replaced(path: Path, footer: bytes) -> None:
    """Give a file another footer."""
    whole = path.read_bytes()
    length = int.from_bytes(whole[-8:-4], "little")
    path.write_bytes(whole[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def places(footer: bytes) -> dict[int, tuple[int, int]]:
    """Find where each field of a footer begins, with its head, and ends."""
    found, at = {}, 0
    kind, number, after = head(footer, 0, 0)
    while kind:
        end = value(footer, after, kind, 1)[1]
        found[number], at = (at, end), end
        kind, number, after = head(footer, at, number)
    return found


def of_two(schema: bytes, groups: bytes) -> bytes:
    """Join the schema of one footer and the row groups of another."""
    return schema[: places(schema)[4][0]] + groups[places(groups)[4][0] :]


def first_chunk(footer: bytes) -> tuple[int, int]:
    """Find where the first column chunk begins and ends."""
    _, _, groups = head(footer, places(footer)[4][0], 3)
    _, _, group = list_head(footer, groups)
    _, _, columns = head(footer, group, 0)
    _, _, begin = list_head(footer, columns)
    return begin, struct(footer, begin)[1]


def too_few_columns(path: Path) -> bytes:
    first = pa.table({"a": pa.array(range(ROWS), pa.int64())})
    one = footer_of(first, path)
    return of_two(footer_of(first.append_column("t", first["a"]), path), one)


def other_type(path: Path) -> bytes:
    narrow = footer_of(pa.table({"t": pa.array(range(ROWS), pa.int32())}), path)
    return of_two(footer_of(table(), path), narrow)


def short_statistics(path: Path) -> bytes:
    good = footer_of(table(), path)
    high = (ROWS - 1).to_bytes(8, "little")
    assert b"\x08" + high in good
    return good.replace(b"\x08" + high, b"\x04" + high[:4])


def empty_statistics(path: Path) -> bytes:
    good = footer_of(table(), path)
    high = (ROWS - 1).to_bytes(8, "little")
    return good.replace(b"\x28\x08" + high, b"\x28\x00")


def no_such_codec(path: Path) -> bytes:
    good = footer_of(table(), path, compression="snappy")
    assert good.count(b"\x18\x01t\x15\x02") == 1
    return good.replace(b"\x18\x01t\x15\x02", b"\x18\x01t\x15\x7e")


def sizes_of_other_levels(path: Path) -> bytes:
    required = pa.schema([pa.field("t", pa.int64(), nullable=False)])
    one = footer_of(table(), path)
    return of_two(footer_of(table().cast(required), path), one)


def encrypted_column(path: Path) -> bytes:
    good = footer_of(table(), path)
    _, end = first_chunk(good)
    return good[: end - 1] + b"\x5c\x1c\x00\x00" + good[end - 1 :]


def endless_list(path: Path) -> bytes:
    good = footer_of(table(), path)
    begin, _ = places(good)[4]
    return good[: begin + 1] + b"\xfc\xff\xff\xff\xff\x07" + good[begin + 2 :]


def deep_schema(path: Path) -> bytes:
    depth = 100_000
    group = b"\x48\x01g\x15\x02\x00"
    elements = b"\x19\xfc" + _varint(depth + 1) + group * depth + b"\x15\x02\x38\x01v\x00"
    footer_of(table(), path)
    return b"\x15\x04" + elements + b"\x16\x00\x19\x0c\x00"


def twice_the_schema(path: Path) -> bytes:
    good = footer_of(table(), path)
    begin, end = places(good)[2]
    return good[:end] + b"\x09\x04" + good[begin + 1 : end] + good[end:]


def _varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


CASES = (
    too_few_columns,
    other_type,
    short_statistics,
    empty_statistics,
    no_such_codec,
    sizes_of_other_levels,
    encrypted_column,
    endless_list,
    deep_schema,
    twice_the_schema,
)


@pytest.mark.parametrize("damage", CASES, ids=lambda item: item.__name__)
def test_a_footer_that_arrow_cannot_be_asked_about_is_refused_by_the_name_of_its_file(
    tmp_path: Path, damage
) -> None:
    path = tmp_path / "a.parquet"
    bad = damage(path)
    with pytest.raises(DamagedError):
        check_footer(bad)
    replaced(path, bad)
    with pytest.raises(pk.SourceError, match=r"a\.parquet.*footer is damaged"):
        pk.scan(path, time="t").filter(pk.col("t") > 3).collect()


def many_types() -> pa.Table:
    day = datetime.date(2026, 1, 1)
    return table(
        text=pa.array([None if i % 3 else "x" * i for i in range(ROWS)]),
        number=pa.array([i / 7 for i in range(ROWS)]),
        flag=pa.array([i % 2 == 0 for i in range(ROWS)]),
        day=pa.array([day] * ROWS),
        fixed=pa.array([b"abcd"] * ROWS, pa.binary(4)),
        nested=pa.array([{"a": [1], "b": {"c": "d"}}] * ROWS),
        nothing=pa.nulls(ROWS, pa.int64()),
    )


OPTIONS = (
    {},
    {"version": "1.0", "use_deprecated_int96_timestamps": True},
    {"write_statistics": False},
    {"write_page_index": True, "data_page_version": "2.0"},
    {"sorting_columns": [pq.SortingColumn(0)], "store_schema": False},
)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_good_footers_pass(tmp_path: Path, options) -> None:
    footer = footer_of(many_types(), tmp_path / "a.parquet", row_group_size=1, **options)
    leaves = check_footer(footer)
    schema = pq.read_schema(tmp_path / "a.parquet")
    assert len(schema) <= len(leaves)
    assert [leaf.name for leaf in leaves] == [
        pq.read_metadata(tmp_path / "a.parquet").schema.column(place).physical_type
        for place in range(len(leaves))
    ]
    assert check_footer(footer) == leaves


def test_column_chunks_that_are_alike_are_read_field_by_field_only_at_first(
    tmp_path: Path, monkeypatch
) -> None:
    footer = footer_of(many_types(), tmp_path / "a.parquet", row_group_size=1)
    check_footer(footer)
    strange = []
    plain = footer_check._chunk
    monkeypatch.setattr(footer_check, "_chunk", lambda *given: strange.append(1) or plain(*given))
    check_footer(footer)
    chunks = ROWS * len(pq.read_metadata(tmp_path / "a.parquet").schema)
    assert len(strange) < chunks // 4


@given(st.data())
def test_what_was_learnt_accepts_nothing_that_reading_field_by_field_refuses(tmp_path_factory, data) -> None:
    path = tmp_path_factory.mktemp("footers") / "a.parquet"
    good = footer_of(many_types(), path, row_group_size=3)
    check_footer(good)
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    learnt = _verdict(bytes(damaged))
    footer_check._shapes.cache_clear()
    assert learnt == _verdict(bytes(damaged))


def _verdict(footer: bytes) -> object:
    try:
        return check_footer(footer)
    except DamagedError:
        return None


def test_a_file_that_is_shorter_than_its_footer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    footer_of(table(), path)
    path.write_bytes(b"PAR1" + (1 << 20).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(pk.SourceError, match=r"a\.parquet"):
        pk.scan(path, time="t")

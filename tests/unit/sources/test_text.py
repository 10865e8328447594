"""Records of text are divided and judged as Arrow does it, whatever the blocks, and cheaply."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import csv

from penstock.errors import SchemaMismatchError, SourceError
from penstock.sources import readers, text, text_formats
from penstock.sources.malformed import FAILURES
from penstock.sources.text import TextReader
from penstock.sources.text_formats import UNCLOSED, Csv, JsonLines, Record, dialect

COMMA = dialect(b",")
TYPES: dict[str, pa.DataType] = {
    "int8": pa.int8(),
    "int64": pa.int64(),
    "uint32": pa.uint32(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us"),
    "zoned": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "decimal": pa.decimal128(10, 2),
    "duration": pa.duration("s"),
}
VALUES = [
    "nan",
    "NaN(1)",
    "-inf",
    "Infinity",
    "0x1F",
    "+1",
    "1.",
    ".5",
    "TRUE",
    "False",
    "NULL",
    "N/A",
    "12:00",
    "2026-01-01",
    "2026-01-01T00:00:00",
    "2026-01-01T00:00:00.5Z",
    "2026-01-01T00:00:00+01:00",
    "128",
    "-129",
    "4294967295",
    "-1",
    "9223372036854775808",
    "1e400",
    "-0",
    "007",
    "0xffffffffffffffff",
]
TEXTS = st.text(st.sampled_from('0123456789+-.:eExX TtZznaifty_"\\ü'), max_size=12) | st.sampled_from(
    [*VALUES, " 7 ", "\t1", "2026-01-01 00:00:00"]
)
PIECES = st.lists(st.sampled_from([b"a", b",", b'"', b'""', b"\n", b"\r\n", b"\r", b"1"]), max_size=24).map(
    b"".join
)


def accepted(format: Any, text: bytes) -> bool:
    try:
        return bool(format.decode(text).num_rows == 1)
    except FAILURES:
        return False


NEARLY_TIMES = st.tuples(
    st.sampled_from(
        ["2026-01-31", "2026-02-30", "0000-02-29", "2026-1-1", "20260101", "1767225600", "9999-12-31", ""]
    ),
    st.sampled_from(["", "T", " ", "t"]),
    st.sampled_from(["", "10", "10:20", "1020", "24:00", "10:20:30", "10:20:60"]),
    st.sampled_from(["", ".", ".5", ".123", ".1234", ".123456", ".1234567", ".123456789"]),
    st.sampled_from(["", "Z", "z", "+01", "-0100", "+01:00", "+25:00", " "]),
).map("".join)


@pytest.mark.parametrize("name", TYPES)
@given(value=TEXTS | NEARLY_TIMES)
def test_a_field_that_arrow_reads_is_never_called_malformed(name: str, value: str) -> None:
    if value == "" or any(character in value for character in '"\\'):
        return
    column = Csv.of("a.csv", ("v", "w"), pa.schema({"v": TYPES[name]}))
    text = f"{value},".encode()
    assert not accepted(column, text) or column.reason(Record(0, 1, text)) is None


@pytest.mark.parametrize("name", TYPES)
@given(
    value=(TEXTS | NEARLY_TIMES).map(json.dumps)
    | TEXTS
    | st.sampled_from(["null", "true", "{}", "[]", "[1]", '{"a": 1}', "1e3", '"\\ud800"', "01", "1.0", "-"])
)
@example(value='"' + "[" * 3000)
def test_a_line_that_arrow_reads_is_never_called_malformed(name: str, value: str) -> None:
    lines = JsonLines.of(pa.schema({"v": TYPES[name]}))
    text = f'{{"v": {value}}}'.encode()
    assert not accepted(lines, text) or lines.reason(Record(0, 1, text)) is None


def test_values_that_arrow_does_not_read_are_told_without_asking_it() -> None:
    text = Csv.of("a.csv", ("t", "v"), pa.schema({"v": pa.int8(), "t": pa.timestamp("us")}))
    for record, reason in {
        b"2026-01-01,1": None,
        b"2026-01-01,300": "column 'v': not a valid int8",
        b"soon,1": "column 't': not a valid timestamp[us]",
        b"2026-02-30,1": "column 't': not a valid timestamp[us]",
        b"1767225600,1": "column 't': not a valid timestamp[us]",
        b"2026-01-01 10:20:30.1234567,1": "column 't': not a valid timestamp[us]",
        b"2026-01-01 10:20:30Z,1": "column 't': not a valid timestamp[us]",
        b"1": "expected 2 columns, found 1",
        b"\xff,1": "column 't': it is not valid UTF-8",
    }.items():
        assert text.reason(Record(0, 1, record)) == reason


@given(text=PIECES)
def test_records_and_fields_are_those_that_arrow_sees(text: bytes) -> None:
    if not COMMA.is_closed(text):
        return
    seen: list[Any] = []
    options = csv.ParseOptions(
        newlines_in_values=True, invalid_row_handler=lambda row: seen.append(row) or "skip"
    )
    records = [record for record in COMMA.records(text, 0, 1, 2) if record.reason is None]
    try:
        table = csv.read_csv(
            io.BytesIO(text),
            csv.ReadOptions(column_names=["a", "b"], block_size=1 << 20, use_threads=False),
            options,
            csv.ConvertOptions(column_types={"a": pa.binary(), "b": pa.binary()}),
        )
    except pa.ArrowInvalid:  # of nothing but empty lines
        assert not records
        return
    rows = [COMMA.fields(record.text) for record in records]
    assert [list(row.values()) for row in table.to_pylist()] == [row for row in rows if len(row) == 2]


@given(text=PIECES)
def test_a_text_is_cut_where_a_record_ends(text: bytes) -> None:
    cut = COMMA.complete(text)
    assert COMMA.is_closed(text[:cut])
    whole = list(COMMA.records(text[:cut], 0, 1, 2)) if cut else []
    if COMMA.is_closed(text):
        assert [record.text for record in COMMA.records(text, 0, 1, 2)][: len(whole)] == [
            record.text for record in whole
        ]


def all_of(path: Path, format: str, schema: pa.Schema, block: int) -> tuple[list[Any], list[Any]]:
    made = list(TextReader(format, schema, None, block)(str(path)))
    rows = [row for batch, _ in made for row in batch.to_pylist()]
    return rows, [(record.offset, record.row, record.reason) for _, bad in made for record in bad]


@given(
    lines=st.lists(
        st.sampled_from(['1,"a"', '2,"b\nc"', '3,"d', "4,e", "x,f", '5,5" pipe', "6", '7,"g"h', ""]),
        max_size=12,
    ),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    block=st.integers(1, 60),
)
def test_what_is_a_row_does_not_depend_on_blocks(
    lines: list[str], end: str, block: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("blocks") / "a.csv"
    path.write_bytes(("t,s" + end + end.join(lines) + end).encode())
    schema = pa.schema({"t": pa.int64(), "s": pa.string()})
    assert all_of(path, "csv", schema, block) == all_of(path, "csv", schema, 1 << 20)


@pytest.mark.parametrize(
    ("text", "rows", "bad"),
    [
        pytest.param(
            't,s\n1,"a\n2,b\n3,"c"\n',
            [2, 3],
            [(0, "line 2: a quote is not closed")],
            id="a quote that is left open",
        ),
        pytest.param('t,s\n1,a\n2,"b\n', [1], [(1, f"line 3: {UNCLOSED}")], id="at the end"),
        pytest.param(
            't,s\n1,"a\nb"\nx,c\n',
            [1],
            [(1, "line 4: column 't': not a valid int64")],
            id="lines are counted",
        ),
        pytest.param(
            "t,s\r1,a\rx,b\r", [1], [(1, "line 3: column 't': not a valid int64")], id="old ends of lines"
        ),
        pytest.param("\ufefft,s\n\n1,a\n\n", [1], [], id="a byte order mark, and empty lines"),
    ],
)
@pytest.mark.parametrize("block", [1, 5, 1 << 20])
def test_lines_behind_a_malformed_one_are_read(
    tmp_path: Path, text: str, rows: list[int], bad: list[Any], block: int
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode())
    found, malformed = all_of(path, "csv", pa.schema({"t": pa.int64(), "s": pa.string()}), block)
    assert [row["t"] for row in found] == rows
    assert [(offset, reason) for offset, _, reason in malformed] == bad


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
@pytest.mark.parametrize(
    "line",
    [
        b'{"t": 2, "s": "',
        b'{"t": 2',
        b"}",
        b'{"t": 2}{"t": 3}',
        b'{"t": 2, "s": "a\xff"}',
        b'{"t": 2, "x\xff": 1}',
        b"[]",
    ],
)
def test_a_line_of_json_that_is_no_row_ends_at_its_end(tmp_path: Path, line: bytes, block: int) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'{"t": 1}\n' + line + b'\n{"t": 4, "s": "d"}\n\n{"t": 5}')
    rows, bad = all_of(path, "json", pa.schema({"t": pa.int64(), "s": pa.string()}), block)
    assert [row["t"] for row in rows] == [1, 4, 5]
    ((offset, row, reason),) = bad
    assert (offset, row) == (1, line)
    assert reason.startswith("line 2: ")


def test_a_type_that_text_cannot_have_is_an_error_and_not_a_file_of_malformed_records(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("t,v\n1,2\n")
    with pytest.raises(SchemaMismatchError, match=r"a\.csv.*not supported"):
        all_of(path, "csv", pa.schema({"t": pa.int64(), "v": pa.list_(pa.int64())}), 1 << 20)


@pytest.mark.parametrize("line", ["rubbish", "x1,2", "99999999999999999999,2", '1,"2', "1,1,1"])
def test_a_file_of_malformed_lines_takes_few_tries(
    tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, lines = tmp_path / "a.csv", 20_000
    path.write_text("t,v\n" + f"{line}\n" * lines)
    tries = 0
    real = text_formats.read_csv

    def counted(*args: Any, **options: Any) -> pa.Table:
        nonlocal tries
        tries += 1
        return real(*args, **options)

    monkeypatch.setattr(text_formats, "read_csv", counted)
    rows, bad = all_of(path, "csv", pa.schema({"t": pa.int64(), "v": pa.int64()}), 1 << 24)
    assert (len(rows), len(bad)) == (0, lines)
    assert tries < 200


@pytest.mark.parametrize("block", [16, 50])
def test_a_quote_that_is_never_closed_holds_no_more_than_a_part_of_the_file(
    tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "_LONGEST", 64)
    path = tmp_path / "a.csv"
    path.write_text('t,s\n0,"a\n' + "".join(f"{number},b\n" for number in range(1, 200)))
    made = list(TextReader("csv", pa.schema({"t": pa.int64(), "s": pa.string()}), None, block)(str(path)))
    assert [t for batch, _ in made for t in batch["t"].to_pylist()] == list(range(1, 200))
    assert [(record.offset, record.row) for _, bad in made for record in bad] == [(0, b'0,"a')]
    assert len(made) > 5


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "_LINE", 1000)
    path = tmp_path / "a.json"
    path.write_text("x" * 2000)
    with pytest.raises(SourceError, match=r"a\.json' cannot be read: a line is longer"):
        list(TextReader("json", pa.schema({"t": pa.int64()}), None, 100)(str(path)))


def test_a_record_of_which_no_column_can_be_read_is_not_blamed_on_its_first_column(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(b'{"t": 1, "k": "a"}\n{"t": 2, "k": "\\ud800"}\n')
    schema = pa.schema({"t": pa.int64(), "k": pa.string()})
    _, malformed = all_of(path, "json", schema, 1 << 20)
    assert [reason for _, _, reason in malformed] == ["line 2: it does not fit its format"]


def test_types_of_csv_are_learned_past_records_that_are_not_utf_8(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"t,k\n1,a\n2\xff,b\n3,\xfe\n\xff,d,e\n5,e\n")
    schema = readers.stored_schema(str(path), "csv", None)
    assert schema == pa.schema({"t": pa.int64(), "k": pa.string()})
    rows, malformed = all_of(path, "csv", schema, 1 << 20)
    assert ([row["t"] for row in rows], len(malformed)) == ([1, 5], 3)
    assert capfd.readouterr().err == ""

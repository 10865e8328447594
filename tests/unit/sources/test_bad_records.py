"""Records that are no rows are told apart, whatever the format, the size of blocks and their number."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.sources.fragment import Fragment
from penstock.sources.live_files import LiveReader

SCHEMA = pa.schema({"t": pa.int64(), "v": pa.int32(), "s": pa.string()})


def reader(on_bad: str = "drop", block: int = 1 << 20) -> LiveReader:
    return LiveReader(SCHEMA, ("t", "v", "s"), "t", on_bad, block)


def all_of(made: Any) -> tuple[list[dict[str, Any]], list[tuple[int, bytes | None]]]:
    pairs = list(made)
    rows = [row for batch, _ in pairs for row in batch.to_pylist()]
    return rows, [(value.offset, value.row) for _, bad in pairs for value in bad]


GOOD = st.builds(
    lambda t, v, s: {"t": t, "v": v, "s": s},
    st.integers(-(2**63), 2**63 - 1),
    st.none() | st.integers(-(2**31), 2**31 - 1),
    st.text(max_size=4),
)
BAD_JSON = st.sampled_from(
    [b"{", b"rubbish", b'{"t": "x"}', b'{"v": 1}', b'{"t": 1, "v": 3000000000}', b'{"t": null}', b"\xff"]
)


@given(
    records=st.lists(GOOD | BAD_JSON, max_size=12),
    block=st.integers(1, 80),
    end=st.sampled_from([b"", b"\n", b"\n\n"]),
)
def test_lines_of_json_are_rows_or_are_named(
    records: list[Any], block: int, end: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("lines") / "a.json"
    lines = [record if isinstance(record, bytes) else json.dumps(record).encode() for record in records]
    path.write_bytes(b"\n".join(lines) + end)
    rows, bad = all_of(reader(block=block)(Fragment(str(path), "json")))
    assert rows == [record for record in records if not isinstance(record, bytes)]
    numbers = [(number, record) for number, record in enumerate(records) if isinstance(record, bytes)]
    assert [number for number, _ in bad] == [number for number, _ in numbers]


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_lines_of_csv_are_rows_or_are_named_and_quotes_hold_lines_together(
    tmp_path: Path, block: int
) -> None:
    text = b't,v,s\n1,2,"a\nb"\nx,2,c\n,3,d\n4,5\n6,7,e\n'
    path = tmp_path / "a.csv"
    path.write_bytes(text)
    rows, bad = all_of(reader(block=block)(Fragment(str(path), "csv")))
    assert [(row["t"], row["s"]) for row in rows] == [(1, "a\nb"), (6, "e")]
    assert [number for number, _ in bad] == [1, 2, 3]


def test_compressed_text_and_folders_of_partitions_are_read_like_others(tmp_path: Path) -> None:
    folder = tmp_path / "s=here"
    folder.mkdir()
    with gzip.open(folder / "a.csv.gz", "wb") as file:
        file.write(b"t,v\n1,2\nrubbish\n3,4\n")
    rows, bad = all_of(reader()(Fragment(str(folder / "a.csv.gz"), "csv", partition=(("s", "here"),))))
    assert [(row["t"], row["s"]) for row in rows] == [(1, "here"), (3, "here")]
    assert bad == [(1, b"rubbish")]


def test_a_file_that_cannot_be_read_is_one_record_of_a_quarantine_and_else_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1 no more")
    rows, bad = all_of(reader("quarantine")(Fragment(str(path), "parquet")))
    assert (rows, bad) == ([], [(0, None)])
    with pytest.raises(pk.SourceError, match=r"a\.parquet"):
        all_of(reader("drop")(Fragment(str(path), "parquet")))
    with pytest.raises(pk.SourceError, match=r"gone\.csv.*No such file"):
        all_of(reader("quarantine")(Fragment(str(tmp_path / "gone.csv"), "csv")))


def test_a_table_without_the_declared_columns_is_an_error_unless_quarantined(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("t,v\n1,2\n")
    with pytest.raises(pk.SchemaMismatchError, match=r"a\.csv' has no column 's'"):
        all_of(reader("drop")(Fragment(str(path), "csv")))
    assert all_of(reader("quarantine")(Fragment(str(path), "csv"))) == ([], [(0, b"1,2")])


def test_rows_without_a_time_are_numbered_as_they_lie_in_their_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"t": [1, None, 3, None], "v": [1, 2, 3, 4], "s": list("abcd")}), path)
    rows, bad = all_of(reader()(Fragment(str(path), "parquet")))
    assert [row["t"] for row in rows] == [1, 3]
    assert [number for number, _ in bad] == [1, 3]
    assert json.loads(bad[1][1] or b"") == {"t": None, "v": 4, "s": "d"}

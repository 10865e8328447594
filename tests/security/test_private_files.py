"""Files that hold rows are their owner's alone, whatever the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import penstock as pk
from penstock.cli.output import WRITERS, write_table
from penstock.sources.side_output import put, put_next

TABLE = pa.table({"t": [1, 2]})


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_late_rows_and_malformed_ones_are_kept_for_their_owner_alone(tmp_path: Path) -> None:
    folders = {"late_to": tmp_path / "a" / "late", "quarantine_to": tmp_path / "b" / "bad"}
    source = pk.stream("s", {"t": "int64"}, time="t", on_bad="quarantine", **folders)
    with source.window(10).agg(n=pk.count()).open() as live:
        live.push(pa.record_batch({"t": pa.array([1, None, 50])}))
        live.push(pa.record_batch({"t": pa.array([2, 60])}))
    for folder in folders.values():
        (file,) = folder.iterdir()
        assert mode(file) == 0o600
        assert (mode(folder), mode(folder.parent)) == (0o700, 0o700)


def test_a_file_that_takes_the_place_of_another_is_as_private(tmp_path: Path) -> None:
    for _ in range(2):
        put(str(tmp_path / "folder"), "rows", TABLE)
        put_next(str(tmp_path / "folder"), "next", TABLE)
    found = sorted((tmp_path / "folder").iterdir())
    assert [path.name for path in found] == ["next-000000.parquet", "next-000001.parquet", "rows.parquet"]
    assert {mode(path) for path in found} == {0o600}


def test_nothing_is_left_behind_where_rows_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.write_table", full)
    with pytest.raises(pk.SourceError, match="No space left"):
        put(str(tmp_path / "folder"), "rows", TABLE)
    assert list((tmp_path / "folder").iterdir()) == []


@pytest.mark.parametrize("suffix", WRITERS)
def test_results_are_their_owners_alone(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"result{suffix}"
    write_table(TABLE, path)
    assert mode(path) == 0o600
    assert pk.scan(path, time="t").collect()["t"].to_pylist() == [1, 2]

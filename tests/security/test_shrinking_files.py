"""Files that others shorten while they are read: an error that names the file, where a mapped one would end the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk
from tests.law.source import ROOT

READ = """
import os, sys, pyarrow as pa, penstock as pk
from penstock.sources.prefetch import read
from penstock.sources.fragment import Fragment
path, format, decoder = sys.argv[1:]
schema = pa.schema({"t": pa.int64(), "v": pa.int64()})
batches = read(Fragment(path, format), schema, decoder=decoder)
rows = next(batches).num_rows
os.truncate(path, 4096)
try:
    rows += sum(batch.num_rows for batch in batches)
    print("answer", rows)
except pk.SourceError as error:
    print("refused" if path in str(error) else "unnamed")
"""
ROWS = 1_200_000  # more than are decoded together


def table() -> pa.Table:
    return pa.table({name: pa.array(range(2 * ROWS), pa.int64()) for name in ("t", "v")})


def read_while_it_shrinks(path: Path, decoder: str = "arrow") -> str:
    format = path.suffix[1:]
    command = [sys.executable, "-c", READ, str(path), format, decoder]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT / "src", timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("decoder", ["arrow", "polars"])
def test_a_parquet_file_that_shrinks_is_refused(tmp_path: Path, decoder: str) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(table(), path, row_group_size=ROWS, use_dictionary=False, compression="none")
    assert read_while_it_shrinks(path, decoder) == "refused"


@pytest.mark.parametrize("make", [pa.ipc.new_file, pa.ipc.new_stream])
def test_an_arrow_file_that_shrinks_is_refused(tmp_path: Path, make) -> None:
    path = tmp_path / "a.arrow"
    with make(path, table().schema) as writer:
        writer.write_table(table(), max_chunksize=ROWS)
    assert read_while_it_shrinks(path) == "refused"


def test_an_arrow_stream_that_was_cut_between_two_batches_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    with pa.ipc.new_stream(path, table().schema) as writer:
        writer.write_table(table().slice(0, 20), max_chunksize=10)
    whole = path.read_bytes()
    assert whole.endswith(b"\xff\xff\xff\xff\x00\x00\x00\x00")
    path.write_bytes(whole[:-8])
    with pytest.raises(pk.SourceError, match=r"a\.arrow.*rows may be missing"):
        pk.scan(path, time="t").collect()

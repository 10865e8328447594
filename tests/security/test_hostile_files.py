"""Files that lie: cut short, overwritten, or with offsets that point outside their buffers.

Each is read in a process of its own: a crash of native code must fail the test, not end the run.
"""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.law.source import ROOT

READ = """
import sys, faulthandler, penstock as pk
faulthandler.enable()
for path in sys.argv[1:]:
    try:
        pk.scan(path, time="t").window(pk.tumbling(10), by="who").agg(n=pk.count(), s=pk.sum("v")).collect()
        print("answer")
    except pk.PenstockError as error:
        print("refused", type(error).__name__)
"""


def read_all(paths: list[Path]) -> list[str]:
    command = [sys.executable, "-c", READ, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT / "src", timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def table() -> pa.Table:
    rows = range(50)
    return pa.table(
        {
            "t": pa.array(rows, pa.int64()),
            "who": [f"name-{i % 7}" for i in rows],
            "v": pa.array(rows, pa.int64()),
        }
    )


def write(path: Path) -> bytes:
    if path.suffix == ".parquet":
        pq.write_table(table(), path)
    else:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table().schema) as writer:
            writer.write_table(table())
    return path.read_bytes()


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_a_file_cut_anywhere_is_refused(tmp_path: Path, suffix: str) -> None:
    whole = write(tmp_path / f"whole{suffix}")
    paths = [tmp_path / f"cut{size}{suffix}" for size in range(0, len(whole) - 1, max(1, len(whole) // 12))]
    for path in paths:
        path.write_bytes(whole[: int(path.stem[3:])])
    assert set(read_all(paths)) == {"refused SourceError"}


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_a_file_with_bytes_overwritten_is_read_or_refused_but_never_crashes(
    tmp_path: Path, suffix: str
) -> None:
    whole = write(tmp_path / f"whole{suffix}")
    dice = random.Random(7)
    paths = []
    for number in range(40):
        damaged = bytearray(whole)
        for _ in range(3):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        paths.append(tmp_path / f"damaged{number}{suffix}")
        paths[-1].write_bytes(damaged)
    outcomes = read_all(paths)
    assert len(outcomes) == len(paths)
    assert {outcome.split()[0] for outcome in outcomes} <= {"answer", "refused"}


def test_string_offsets_that_point_outside_the_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "offsets.arrow"
    whole = write(path)
    offsets = struct.pack("<4i", 0, 6, 12, 18)  # "name-0", "name-1", "name-2" are six bytes each
    at = whole.index(offsets)
    far = struct.pack("<4i", 0, 6, 2_000_000_000, 18)
    path.write_bytes(whole[:at] + far + whole[at + len(far) :])
    assert read_all([path]) == ["refused SourceError"]


@pytest.mark.parametrize("name", ["it's [1].parquet", "новый 💧.parquet", "a;b&c$(d).parquet", "-rf.parquet"])
def test_a_file_of_awkward_name_is_read(tmp_path: Path, name: str) -> None:
    write(tmp_path / name)
    assert read_all([tmp_path / name]) == ["answer"]

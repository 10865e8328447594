"""Files are written in one step, and what killed writers leave behind is removed by the next one."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import penstock as pk
from penstock.atomic_write import draft, replace_file
from tests.law.source import ROOT

KILLED = """
import os, signal, sys
from pathlib import Path
from penstock.atomic_write import draft
with draft(Path(sys.argv[1])) as (file, path):
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_writer(target: Path) -> None:
    """Leave behind what a writer leaves that is killed between writing and renaming."""
    before = set(target.parent.iterdir())
    done = subprocess.run([sys.executable, "-c", KILLED, str(target)], check=False, cwd=ROOT / "src")
    assert done.returncode == -signal.SIGKILL
    assert len(set(target.parent.iterdir()) - before) == 1


def test_a_file_takes_the_place_of_the_old_one_and_is_its_owners_alone(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"old")
    replace_file(target, lambda file: file.write(b"new"))
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [target]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"old")

    def fail(file):
        file.write(b"half")
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        replace_file(target, fail)
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("name", ["a", "x" * 250, "é" * 100])
def test_the_next_writer_of_a_file_removes_what_killed_ones_left(tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    killed_writer(target)
    killed_writer(target)
    replace_file(target, lambda file: file.write(b"new"))
    assert list(tmp_path.iterdir()) == [target]


def test_what_belongs_to_others_is_left_alone(tmp_path: Path) -> None:
    killed_writer(tmp_path / "other")
    (tmp_path / ".mine.tmp").write_bytes(b"")
    before = set(tmp_path.iterdir())
    replace_file(tmp_path / "a", lambda file: file.write(b"new"))
    assert set(tmp_path.iterdir()) == {*before, tmp_path / "a"}


def test_writers_of_one_file_at_the_same_time_do_not_disturb_each_other(tmp_path: Path) -> None:
    target = tmp_path / "a"
    with draft(target) as (file, path):
        replace_file(target, lambda other: other.write(b"second"))
        file.write(b"first")
        file.flush()
        path.replace(target)
    assert target.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [target]


def test_a_saved_state_removes_what_a_killed_save_left(tmp_path: Path) -> None:
    stream = pk.stream("s", {"t": "int64", "v": "int64"}, time="t")
    live = stream.window(pk.tumbling(10)).agg(n=pk.count()).open()
    target = tmp_path / "state"
    killed_writer(target)
    live.save(target)
    assert list(tmp_path.iterdir()) == [target]

"""What is left on disk after a query holds neither its text nor its rows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.law.source import ROOT
from tests.security.hostile import HOSTILE, MARK

CODE = """
from tests.security.hostile import HOSTILE
from tests.security.test_hostile_names import query_of
for text in HOSTILE.values():
    query_of(text).collect()
"""


def test_cached_kernels_hold_neither_names_nor_literals_nor_rows(tmp_path: Path) -> None:
    environment = {**os.environ, "PENSTOCK_CACHE_DIR": str(tmp_path / "cache")}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    subprocess.run([sys.executable, "-c", CODE], env=environment, cwd=tmp_path, check=True, timeout=300)
    files = list((tmp_path / "cache").iterdir())
    assert files
    assert [path.name for path in files if MARK in path.name or MARK.encode() in path.read_bytes()] == []


def test_names_do_not_change_what_is_compiled(tmp_path: Path) -> None:
    """Kernels are found by what they compute: seventeen queries that differ in text share their code."""
    assert len(HOSTILE) > 10
    environment = {**os.environ, "PENSTOCK_CACHE_DIR": str(tmp_path / "cache")}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    subprocess.run([sys.executable, "-c", CODE], env=environment, cwd=tmp_path, check=True, timeout=300)
    assert len(list((tmp_path / "cache").iterdir())) < len(HOSTILE)

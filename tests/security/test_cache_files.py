"""What is left on disk after a query holds neither its text nor its rows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.law.source import ROOT
from tests.security.hostile import HOSTILE, MARK

CODE = """
import sys
from pathlib import Path
from penstock.codegen.cache import KernelCache
from penstock.codegen.native import compile_kernel
from penstock.compile import compile_plan
from penstock.explain import kernels
from tests.security.hostile import HOSTILE
from tests.security.test_hostile_names import query_of

cache = KernelCache(Path(sys.argv[1]))
for text in HOSTILE.values():
    for kernel in kernels(compile_plan(query_of(text).plan).physical("bounded")):
        compile_kernel(kernel, cache)
"""


@pytest.fixture(scope="module")
def cached(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Compile every hostile query in a process of its own; give the files it leaves behind."""
    folder = tmp_path_factory.mktemp("kernels") / "cache"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    subprocess.run([sys.executable, "-c", CODE, str(folder)], env=environment, check=True, timeout=300)
    return list(folder.iterdir())


def test_cached_kernels_hold_neither_names_nor_literals(cached: list[Path]) -> None:
    assert cached
    assert [path.name for path in cached if MARK in path.name or MARK.encode() in path.read_bytes()] == []


def test_queries_that_differ_in_text_alone_share_their_kernels(cached: list[Path]) -> None:
    assert 0 < len(cached) < len(HOSTILE)

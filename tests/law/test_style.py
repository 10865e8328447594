"""Linter, formatter and type checker, so that `make test` alone is the whole of CI."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.law.source import ROOT


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [("ruff", "check", "."), ("ruff", "format", "--check", "."), ("mypy",)],
    ids=" ".join,
)
def test_the_tool_finds_nothing(command: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr

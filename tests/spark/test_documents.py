"""The guide to Spark, run block by block on one session."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

import penstock as pk

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "how_to" / "spark.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


def test_the_guide_runs_and_prints_what_it_says(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pk, "spark_session", lambda: spark)
    names: dict[str, object] = {"__name__": "__example__"}
    blocks = BLOCK.findall(GUIDE.read_text(encoding="utf-8"))
    assert len(blocks) >= 4
    for code, output in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "docs/how_to/spark.md", "exec"), names)
        assert not output or printed.getvalue().strip() == output.strip()

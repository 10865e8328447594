"""The tables of docs/limits.md are true: what they say is refused, is."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

import penstock as pk

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "limits.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(.+)` \| `(\w+)` \| .+ \|$", re.MULTILINE)


def names() -> dict[str, object]:
    events = pa.table(
        {
            "ts": pa.array([0, 1], pa.timestamp("us")),
            "who": ["a", "b"],
            "v": pa.array([1, 2], pa.int64()),
            "x": [0.5, 1.5],
        }
    )
    ticks = pa.table({"t": pa.array([0, 1], pa.int64())})
    return {"pk": pk, "events": pk.from_arrow(events, time="ts"), "ticks": pk.from_arrow(ticks, time="t")}


def test_the_tables_are_found() -> None:
    assert len(ROW.findall(TEXT)) > 10


@pytest.mark.parametrize(("code", "error"), ROW.findall(TEXT))
def test_what_the_page_says_is_refused_is_refused_before_any_row_is_read(code: str, error: str) -> None:
    with pytest.raises(getattr(pk, error)) as caught:
        eval(code, names()).collect()
    assert len(str(caught.value)) > 20

"""The guide lists every function that SQL knows."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.api.sql.aggregates import SQL_AGGREGATES
from penstock.api.sql.scalars import SQL_FUNCTIONS

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "how_to" / "sql.md").read_text(encoding="utf-8")


def test_the_guide_lists_the_functions_that_there_are() -> None:
    section = PAGE.partition("## Functions")[2].partition("## What differs")[0]
    words = {word for quoted in re.findall(r"`([^`]+)`", section) for word in re.findall(r"\w+", quoted)}
    assert {*SQL_FUNCTIONS, *SQL_AGGREGATES} - words == set()

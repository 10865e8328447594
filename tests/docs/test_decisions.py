"""The index of decisions lists every record, and records are at most a page."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "decisions"
RECORDS = sorted(path.name for path in FOLDER.glob("[0-9]*.md"))
INDEX = (FOLDER / "README.md").read_text(encoding="utf-8")
PAGE_WORDS = 600


def test_the_index_lists_every_record_once() -> None:
    listed = re.findall(r"^\* \[[^\]]*\]\((\d{4}-[\w-]+\.md)\)", INDEX, re.MULTILINE)
    assert sorted(listed) == RECORDS


def test_no_record_is_longer_than_a_page() -> None:
    words = {name: len((FOLDER / name).read_text(encoding="utf-8").split()) for name in RECORDS}
    assert {name: count for name, count in words.items() if count > PAGE_WORDS} == {}


def test_the_index_gives_the_titles_of_the_records() -> None:
    listed = dict(re.findall(r"^\* \[(\d+\. [^\n]*)\]\((\d{4}-[\w-]+\.md)\)", INDEX, re.MULTILINE))
    titles = {(FOLDER / name).read_text(encoding="utf-8").partition("\n")[0][2:]: name for name in RECORDS}
    assert listed == titles


def test_a_record_that_the_index_calls_superseded_says_by_which() -> None:
    superseded = re.findall(r"\]\((\d{4}-[\w-]+\.md)\) \(superseded by (\d+)\)", INDEX)
    missing = [
        name
        for name, by in superseded
        if f"Superseded by [{by}]" not in (FOLDER / name).read_text(encoding="utf-8")
    ]
    assert superseded and missing == []

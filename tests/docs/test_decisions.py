"""The index of decisions lists every record, and records are at most a page."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "decisions"
RECORDS = sorted(path.name for path in FOLDER.glob("[0-9]*.md"))
PAGE_WORDS = 500


def test_the_index_lists_every_record_once() -> None:
    listed = re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", (FOLDER / "README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == RECORDS


def test_no_record_is_longer_than_a_page() -> None:
    words = {name: len((FOLDER / name).read_text(encoding="utf-8").split()) for name in RECORDS}
    assert {name: count for name, count in words.items() if count > PAGE_WORDS} == {}


def test_every_record_says_context_decision_and_consequence() -> None:
    for name in RECORDS:
        text = (FOLDER / name).read_text(encoding="utf-8").lower()
        assert all(part in text for part in ("context", "decision", "consequence")), name

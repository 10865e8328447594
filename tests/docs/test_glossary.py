"""Each term of the glossary is defined once, and used in the code."""

from __future__ import annotations

import re
from collections import Counter

from tests.law.source import ROOT, SRC, python_files

TERMS = [
    term.strip()
    for row in re.findall(
        r"^\| ([^|]+) \|", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    if row not in {"word", "---"}
    for term in row.split(",")
]


def test_a_term_is_defined_once() -> None:
    assert [term for term, count in Counter(TERMS).items() if count > 1] == []


def test_a_term_is_used_in_the_code() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in python_files(SRC)).lower()
    patterns = {term: r"[\s_-]*".join(map(re.escape, re.split(r"[ -]", term.lower()))) for term in TERMS}
    assert [term for term, pattern in patterns.items() if not re.search(pattern, code)] == []

"""Every Python block of the documents is run, and prints what the text block after it says.

A block is left out only under a comment that says why: `<!-- not run: reason -->`.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LEFT_OUT = re.compile(r"<!-- not run: \S.* -->\s*\Z")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


@dataclass(frozen=True, slots=True)
class Example:
    line: int
    code: str
    output: str | None


def examples(text: str) -> Iterator[Example]:
    """Pair each Python block with the text block that follows it directly, if one does."""
    fences = list(FENCE.finditer(text))
    for fence, after in zip_longest(fences, fences[1:]):
        if fence[1] != "python" or LEFT_OUT.search(text[: fence.start()]):
            continue
        follows = after is not None and after[1] == "text" and not text[fence.end() : after.start()].strip()
        yield Example(
            text[: fence.start()].count("\n") + 1, fence[2], after[2] if after and follows else None
        )


def label(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def with_examples() -> list[Path]:
    return [path for path in DOCUMENTS if any(examples(path.read_text(encoding="utf-8")))]


@pytest.mark.parametrize("path", with_examples(), ids=label)
def test_the_examples_of_a_document_run_and_print_what_it_says(path: Path, tmp_path: Path) -> None:
    names: dict[str, object] = {"__name__": "__example__"}
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        for example in examples(path.read_text(encoding="utf-8")):
            run(example, path, names)
    finally:
        os.chdir(here)


def run(example: Example, path: Path, names: dict[str, object]) -> None:
    """Run one block among the names of those before it; line numbers are the document's."""
    code = compile("\n" * example.line + example.code, label(path), "exec")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, names)
    if example.output is not None:
        assert printed.getvalue().strip() == example.output.strip(), f"{label(path)}:{example.line}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=label)
def test_every_link_to_a_file_leads_somewhere(path: Path) -> None:
    links = [link for link in LINK.findall(path.read_text(encoding="utf-8")) if "://" not in link]
    assert [link for link in links if not (path.parent / link).exists()] == []


FILE_NAME = re.compile(r"`((?:src|tests|docs|scripts)/[\w./-]+|\w+/[\w/]+\.py)`")


@pytest.mark.parametrize(
    "path", [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", ROOT / "README.md"], ids=label
)
def test_every_file_a_guide_names_exists(path: Path) -> None:
    named = FILE_NAME.findall(path.read_text(encoding="utf-8"))
    assert named
    assert [value for value in named if not exists(value)] == []


def exists(name: str) -> bool:
    return (ROOT / name).exists() or (ROOT / "src" / "penstock" / name).exists()


def test_the_readme_shows_a_quick_start_of_at_most_twenty_lines() -> None:
    first = next(examples((ROOT / "README.md").read_text(encoding="utf-8")))
    assert len(first.code.strip().splitlines()) <= 20


@pytest.mark.parametrize("name", re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
def test_every_make_target_is_documented(name: str) -> None:
    guides = "".join((ROOT / text).read_text(encoding="utf-8") for text in ("README.md", "CONTRIBUTING.md"))
    assert f"make {name}" in guides

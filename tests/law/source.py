"""Where the source is, and its files as syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "penstock"
BENCHMARKS = ROOT / "benchmarks"


def python_files(*folders: Path) -> list[Path]:
    return sorted(path for folder in folders or (SRC, BENCHMARKS) for path in folder.rglob("*.py"))


def label(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=label(path))


def dotted(node: ast.expr) -> str:
    """Give `a.b.c` for an attribute chain, "" for anything else."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            before = dotted(value)
            return f"{before}.{attr}" if before else ""
        case _:
            return ""


def imports_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and name of every module imported, also inside functions."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, name.name) for name in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield node.lineno, module

"""Identifiers use the field's vocabulary: a loop variable says what it holds, and a class name says which one is meant."""

from __future__ import annotations

import ast
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.law.source import BENCHMARKS, ROOT, SRC, label, python_files, tree_of

# Words of the former private dialect: docs/glossary.md has the terms used instead.
DIALECT = frozenset(
    re.findall(
        r"\w+",
        "parcel parcels pile piles gate gates shelf lounge lend lent hire hired nobody told went stray strays "
        "workshop resting glance asks sees wants knows",
    )
)
# Programs neither know nor tell: no docstring, comment or message of the package personifies them.
PERSONIFIED = re.compile(
    r"\b(nobody|somebody|told|hired|lent|lounge|parcels?|piles?|knows|wants|sees|whom|went)\b", re.IGNORECASE
)
# One concept per verb at every level of compilation: `plan.Join` becomes `ir.Join`, which becomes `physical.Join`.
GRAMMARS = (
    "expr/nodes.py",
    "plan/nodes.py",
    "ir/nodes.py",
    "ir/nodes.py",
    "ir/signals/nodes.py",
    "physical/nodes.py",
    "loop/nodes.py",
    "types/windows.py",
)
FOLDERS = (SRC, BENCHMARKS, ROOT / "tests")


def identifiers(tree: ast.Module) -> Iterator[str]:
    """Yield every name that the file gives to something."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.MatchAs(name=str(name)):
                yield name


def words_of(name: str) -> set[str]:
    return set(re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower().split("_"))


def of_the_dialect(tree: ast.Module) -> list[str]:
    return sorted({name for name in identifiers(tree) if words_of(name) & DIALECT})


def test_no_identifier_of_the_package_is_of_the_private_dialect() -> None:
    found = {label(path): of_the_dialect(tree_of(path)) for path in python_files(SRC)}
    assert {path: names for path, names in found.items() if names} == {}


def test_no_module_of_the_package_is_named_in_the_private_dialect() -> None:
    assert [label(path) for path in python_files(SRC) if words_of(path.stem) & DIALECT] == []


def variables(tree: ast.Module) -> set[str]:
    stored = (
        node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    return {node.id for node in stored} | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}


@pytest.mark.parametrize("folder", FOLDERS, ids=label)
def test_no_loop_variable_is_called_each(folder: Path) -> None:
    assert [label(path) for path in python_files(folder) if "each" in variables(tree_of(path))] == []


@pytest.mark.parametrize(
    "code",
    [
        "for gate in x: pass",
        "[pile for pile in x]",
        "class Parcel: pass",
        "def f(gate): pass",
        "self.glance = 1",
    ],
)
def test_the_check_for_words_of_the_dialect_finds_them(code: str) -> None:
    assert of_the_dialect(ast.parse(code))


def prose_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the comments and the strings of a file, with their lines."""
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type in (tokenize.COMMENT, tokenize.STRING):
                yield token.start[0], token.string


def test_prose_of_the_package_personifies_no_program() -> None:
    found = [
        f"{label(path)}:{line}"
        for path in python_files(SRC)
        for line, text in prose_of(path)
        if PERSONIFIED.search(text)
    ]
    assert found == []


def public_classes() -> Counter[str]:
    files = [path for path in python_files(SRC) if path.relative_to(SRC).as_posix() not in GRAMMARS]
    nodes = (node for path in files for node in tree_of(path).body if isinstance(node, ast.ClassDef))
    return Counter(node.name for node in nodes if not node.name.startswith("_"))


def test_a_class_name_means_one_class() -> None:
    assert [name for name, count in public_classes().items() if count > 1] == []


def constants() -> Iterator[tuple[str, str, str]]:
    """Yield file, name and value of the public constants that are numbers or texts."""
    for path in python_files(SRC):
        for node in tree_of(path).body:
            match node:
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                ) if name.isupper() and not name.startswith("_"):
                    yield label(path), name, ast.unparse(value)


def test_a_public_constant_has_one_value() -> None:
    values: dict[str, set[str]] = {}
    for _, name, value in constants():
        values.setdefault(name, set()).add(value)
    assert {name: found for name, found in values.items() if len(found) > 1} == {}

"""What outlives a run is known: module-level containers are listed with their bound, and no function is dead."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.law.source import BENCHMARKS, ROOT, SRC, dotted, python_files, tree_of

# Containers that belong to the process beside `penstock.caches.CACHES`, each with what bounds it.
PROCESS_WIDE = {
    "expr/interning.py:_NODES": "equal expressions are one object; an entry leaves with its last user",
    "runtime/adapt/counters.py:_own": "counters of the processor, of one thread",
    "runtime/buffers.py:_VIEWS": "views of columns; an entry leaves with its batch",
    "runtime/threads.py:_pools": "threads that wait; as many as one query used at once",
}
# Functions that remember results: `functools.cache` is for what is made once, such as the compiler's target.
REMEMBERING = {"caches.py", "storage/access.py"}  # the latter's belongs to an open file
CONTAINERS = {"dict", "list", "set", "defaultdict", "deque", "OrderedDict", "WeakValueDictionary", "WeakKeyDictionary", "local", "threading.local"}  # fmt: skip
# Called by a library or by users, never by the package: methods of protocols, commands, and verbs of the API without a caller here.
CALLED_FROM_OUTSIDE = {
    "addInPlace", "demo", "doctor", "list_state", "new_output", "onQueryIdle", "onQueryProgress", "onQueryStarted", "onQueryTerminated", "pushFilters", "read_int_bytes_dict", "read_ints", "readall", "seekable", "show_state", "skip_int", "streamReader",
}  # fmt: skip
PUBLIC = ("api", "__init__.py")


def containers(tree: ast.Module) -> Iterator[str]:
    """Yield the names of module-level containers that start empty, to be filled while the process runs."""
    for node in tree.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                empty = (isinstance(value, ast.Dict) and not value.keys) or (
                    isinstance(value, ast.List) and not value.elts
                )
                made = isinstance(value, ast.Call) and not value.args and dotted(value.func) in CONTAINERS
                if empty or made:
                    yield name


def rebound(tree: ast.Module) -> list[str]:
    return [name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names]


def test_every_container_of_the_process_is_listed() -> None:
    found = {
        f"{path.relative_to(SRC).as_posix()}:{name}"
        for path in python_files(SRC)
        for name in containers(tree_of(path))
    }
    assert found == set(PROCESS_WIDE)


def test_results_that_are_kept_can_be_dropped() -> None:
    found = {
        path.relative_to(SRC).as_posix()
        for path in python_files(SRC)
        if "lru_cache" in path.read_text(encoding="utf-8")
    }
    assert found == REMEMBERING


def test_no_function_rebinds_a_name_of_its_module() -> None:
    assert [path.name for path in python_files(SRC) if rebound(tree_of(path))] == []


@pytest.mark.parametrize(
    ("code", "found"),
    [("_X = {}", 1), ("_X: list[int] = []", 1), ("_X = threading.local()", 1), ("X = {1: 2}", 0)],
)
def test_a_planted_container_is_found(code: str, found: int) -> None:
    assert len(list(containers(ast.parse(code)))) == found


def uses(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name):
                yield name
            case ast.Constant(value=str(name)) if name.isidentifier():
                yield name


def test_no_function_of_the_package_is_dead() -> None:
    used = Counter(
        name for path in python_files(SRC, BENCHMARKS, ROOT / "tests") for name in uses(tree_of(path))
    )
    defined = {
        node.name
        for path in python_files(SRC)
        if path.relative_to(SRC).parts[0] not in PUBLIC
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("__")
    }
    assert {name for name in defined if not used[name]} - CALLED_FROM_OUTSIDE == set()

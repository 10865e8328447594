"""No module imports itself by way of others; what a function imports to break such a ring is listed with its reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import pytest

from tests.law.source import SRC, python_files, tree_of

MUTUAL = "streams, signals and expressions have verbs in files of their own, which return streams, signals and expressions"
RUN = "declaring a query loads nothing that runs one"
LIBRARY = "loaded with its library, for data in its format alone"
CALENDAR = "sums of times and durations are calendar arithmetic, whose rules are those of arithmetic"

# Imports inside functions that close a ring of modules, by (importing, imported) package or module.
# `import penstock` is light, and declaring a query loads neither compiler nor runtime: verbs import what runs them.
ALLOWED: dict[tuple[str, str], str] = {
    ("penstock.api.expr", "penstock.api.datetime_namespace"): MUTUAL,
    ("penstock.api.expr", "penstock.api.string_namespace"): MUTUAL,
    ("penstock.api.expr", "penstock.api.struct_namespace"): MUTUAL,
    ("penstock.api.join_verbs", "penstock.api.stream"): MUTUAL,
    ("penstock.api.signals.graph", "penstock.api.signals.signal"): MUTUAL,
    ("penstock.api.stream", "penstock.api.signals.source"): MUTUAL,
    ("penstock.api.lazy_imports", "penstock.api.execute"): RUN,
    ("penstock.api.live_verbs", "penstock.api.background"): RUN,
    ("penstock.api.live_verbs", "penstock.api.live"): RUN,
    ("penstock.api.live_verbs", "penstock.api.running"): RUN,
    ("penstock.expr.arithmetic", "penstock.expr.calendar"): CALENDAR,
    ("penstock.sources.dataset", "penstock.sources.lake.delta"): LIBRARY,
    ("penstock.sources.dataset", "penstock.sources.lake.iceberg"): LIBRARY,
    ("penstock.storage.filesystems", "penstock.storage.webhdfs"): LIBRARY,
    ("penstock.spark.deploy.preflight", "penstock.spark.frame"): LIBRARY,
}


def modules() -> dict[str, ast.Module]:
    named = {
        path.relative_to(SRC.parent).with_suffix("").as_posix().replace("/", "."): path
        for path in python_files(SRC)
    }
    return {name.removesuffix(".__init__"): tree_of(path) for name, path in named.items()}


def internal_imports(
    tree: ast.AST, known: frozenset[str], deferred: bool = False
) -> Iterator[tuple[str, bool]]:
    """Yield the modules of the package that a file imports, and whether a function does; not those for types alone."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
            case ast.ImportFrom(module=str(module), names=names):
                for name in names:
                    full = f"{module}.{name.name}"
                    found = full if full in known else module
                    if found in known:
                        yield found, deferred
            case ast.Import(names=names):
                yield from ((name.name, deferred) for name in names if name.name in known)
        inside = deferred or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from internal_imports(node, known, inside)


def import_graph(trees: Mapping[str, ast.Module]) -> dict[str, dict[str, bool]]:
    """Each module's imports within the package: True if only functions import it."""
    graph: dict[str, dict[str, bool]] = {}
    for name, tree in trees.items():
        edges = graph[name] = {}
        for found, deferred in internal_imports(tree, frozenset(trees)):
            if found != name:
                edges[found] = edges.get(found, True) and deferred
    return graph


def reachable(graph: Mapping[str, Mapping[str, bool]], start: str, *, at_import: bool) -> set[str]:
    seen: set[str] = set()
    rest = [start]
    while rest:
        for name, deferred in graph[rest.pop()].items():
            if name not in seen and not (deferred and at_import):
                seen.add(name)
                rest.append(name)
    return seen


def rings_at_import(graph: Mapping[str, Mapping[str, bool]]) -> list[str]:
    return [name for name in graph if name in reachable(graph, name, at_import=True)]


def deferred_in_rings(graph: Mapping[str, Mapping[str, bool]]) -> set[tuple[str, str]]:
    """The imports inside functions through which a module reaches itself."""
    return {
        (name, found)
        for name, edges in graph.items()
        for found, deferred in edges.items()
        if deferred and name in reachable(graph, found, at_import=False)
    }


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert rings_at_import(import_graph(modules())) == []


def test_no_import_inside_a_function_hides_a_ring() -> None:
    found = deferred_in_rings(import_graph(modules()))
    assert found - set(ALLOWED) == set(), "merge the modules, or move what both need below them"


def test_every_excuse_for_a_deferred_import_is_still_needed() -> None:
    assert set(ALLOWED) - deferred_in_rings(import_graph(modules())) == set()


@pytest.mark.parametrize(("second", "hidden"), [("import a", False), ("def f():\n    import a", True)])
def test_a_planted_ring_is_found(second: str, hidden: bool) -> None:
    graph = import_graph({"a": ast.parse("import b"), "b": ast.parse(second)})
    assert rings_at_import(graph) == ([] if hidden else ["a", "b"])
    assert deferred_in_rings(graph) == ({("b", "a")} if hidden else set())

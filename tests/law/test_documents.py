"""What is public is explained, and every example in a docstring is true."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import pkgutil

import pytest

import benchmarks
import penstock as pk
from penstock import errors
from tests.law.source import label, python_files, tree_of

OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL


def modules() -> list[str]:
    packages = (pk, benchmarks)
    found = [
        package for own in packages for package in pkgutil.walk_packages(own.__path__, f"{own.__name__}.")
    ]
    left_out = ("penstock.spark", "penstock.__main__", "benchmarks.__main__")
    return sorted(module_info.name for module_info in found if not module_info.name.startswith(left_out))


def examples_of(name: str) -> list[doctest.DocTest]:
    module = importlib.import_module(name)
    return [
        doc_test for doc_test in doctest.DocTestFinder(exclude_empty=True).find(module) if doc_test.examples
    ]


@pytest.mark.parametrize("name", ["penstock", *modules()])
def test_the_examples_of_a_module_are_true(name: str) -> None:
    failures: list[str] = []
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    for example in examples_of(name):
        runner.run(example, out=failures.append)
    assert not failures, "".join(failures)


def documented(name: str) -> bool:
    """Constants and dunder names carry no docstring of their own."""
    value = getattr(pk, name)
    return not name.startswith("__") and (inspect.isclass(value) or callable(value))


def public_names() -> list[str]:
    return sorted(name for name in pk.__all__ if documented(name))


@pytest.mark.parametrize("name", public_names())
def test_every_public_name_says_what_it_is_for(name: str) -> None:
    text = inspect.getdoc(getattr(pk, name)) or ""
    assert text.strip().splitlines()[0:1], f"pk.{name} has no docstring"


def needs_example(name: str) -> bool:
    """An error is shown by raising it; its example is the message in tests/unit."""
    value = getattr(pk, name)
    return not (inspect.isclass(value) and issubclass(value, Exception))


@pytest.mark.parametrize("name", [name for name in public_names() if needs_example(name)])
def test_every_public_name_shows_an_example(name: str) -> None:
    assert ">>>" in (inspect.getdoc(getattr(pk, name)) or ""), f"pk.{name} shows no example"


def test_every_public_name_exists() -> None:
    assert [name for name in pk.__all__ if not hasattr(pk, name)] == []
    assert set(pk.__all__) <= set(dir(pk))


def test_every_error_of_ours_can_be_caught_by_its_public_name() -> None:
    classes = [
        error
        for _, error in inspect.getmembers(errors, inspect.isclass)
        if error.__module__ == errors.__name__
    ]
    assert [error.__name__ for error in classes if getattr(pk, error.__name__, None) is not error] == []


def test_every_file_opens_with_what_is_in_it() -> None:
    assert [label(path) for path in python_files() if not ast.get_docstring(tree_of(path))] == []

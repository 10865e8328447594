"""Load a query from `file.py:name`, or the only query of `file.py`. A function is called with flags from its signature."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.cli.flags import call_with_flags
from penstock.cli.guard import CommandError
from penstock.errors import PenstockError

MODULE_NAME = "__penstock_query__"


class QueryFileError(PenstockError, RuntimeError):
    """The user's file raised while it was loaded or its query was built."""


def load_query(target: str, flags: Sequence[str]) -> Any:
    """Return the query that `file.py:name` names, or the only query of `file.py`."""
    path, name = split_target(target)
    module = load_module(path)
    name = name or sole_query(module, path)
    found = attribute(module, name, path)
    if inspect.isfunction(found):
        found = guarded(path, lambda: call_with_flags(found, flags, f"{path.name}:{name}"))
    elif flags:
        raise CommandError(f"{target} is not a function, so it takes no flags: {' '.join(flags)}")
    if not callable(getattr(found, "collect", None)):
        raise CommandError(f"{target} is not a query but {type(found).__name__}: give it a penstock query")
    return found


def split_target(target: str) -> tuple[Path, str]:
    """Split at the last colon, so that drive letters survive. The name is empty if only a file is given."""
    file, _, name = (target, "", "") if target.endswith(".py") else target.rpartition(":")
    if not file or not (name or file == target):
        raise CommandError(f"{target!r} does not name a query: write FILE.py:NAME, e.g. q.py:views")
    path = Path(file)
    if not path.is_file():
        raise CommandError(f"there is no file {file}")
    return path, name


def load_module(path: Path) -> ModuleType:
    """Import a file by its path, with its folder importable as for `python file.py`."""
    spec = importlib.util.spec_from_file_location(MODULE_NAME, path)
    loader = spec.loader if spec else None
    if spec is None or loader is None:
        raise CommandError(f"{path} is not a Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE_NAME] = module  # dataclasses and get_type_hints look up their module
    sys.path.insert(0, str(path.resolve().parent))
    guarded(path, lambda: loader.exec_module(module))
    return module


def attribute(module: ModuleType, name: str, path: Path) -> Any:
    """Return a module's attribute, or raise an error that lists the queries."""
    try:
        return getattr(module, name)
    except AttributeError:
        there = ", ".join(sorted(query_names(module))) or "none"
        raise CommandError(f"{path} defines no {name!r}; queries and functions there: {there}") from None


def sole_query(module: ModuleType, path: Path) -> str:
    """Return the name of the only query of a file, or of its only function if it has no query."""
    names = query_names(module)
    queries = [name for name in names if not inspect.isfunction(getattr(module, name))] or names
    if len(queries) != 1:
        there = ", ".join(sorted(names)) or "none"
        raise CommandError(f"name the query, as in {path}:views; queries and functions there: {there}")
    return queries[0]


def query_names(module: ModuleType) -> list[str]:
    """List the names of possible queries in a module."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not inspect.isclass(value) and is_candidate(value, module)
    ]


def is_candidate(value: object, module: ModuleType) -> bool:
    """Check whether a value is a query, or a function defined in this file."""
    if inspect.isfunction(value):
        return value.__module__ == module.__name__
    return not inspect.ismodule(value) and hasattr(value, "collect")


def guarded(path: Path, call: Callable[[], Any]) -> Any:
    """Call the user's code, and convert its errors to one line with the location in the file."""
    try:
        return call()
    except PenstockError:
        raise
    except Exception as error:
        raise QueryFileError(f"{where(path, error)}: {type(error).__name__}: {error}") from error


def where(path: Path, error: Exception) -> str:
    """Return the deepest line of the user's file in the traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename) == path]
    return f"{path}, line {lines[-1]}" if lines else str(path)

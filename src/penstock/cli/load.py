"""Load a query from `file.py:name`, or the only query of `file.py`. A function is called with flags from its signature."""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import sys
import traceback
import types
import typing
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NoReturn

from penstock.cli.guard import CommandError
from penstock.errors import DurationError, PenstockError
from penstock.types.duration import nanoseconds

# --- Parse flags from a function's annotated arguments: `def views(day: date, top: int = 10)`.


def _length(text: str) -> timedelta:
    """Parse a duration in query notation, such as 1h30m."""
    return timedelta(microseconds=float(nanoseconds(text) / 1000))


FLAG_READERS: dict[Any, Callable[[str], Any]] = {
    str: str,
    int: int,
    float: float,
    Path: Path,
    Decimal: Decimal,
    date: date.fromisoformat,
    datetime: datetime.fromisoformat,
    time: time.fromisoformat,
    timedelta: _length,
    inspect.Parameter.empty: str,
    Any: str,
}


class FlagParser(argparse.ArgumentParser):
    """An argument parser that raises `CommandError`."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing and exiting."""
        raise CommandError(f"{self.prog}: {message}; {self.format_usage().strip()}")


def call_with_flags(function: Callable[..., Any], flags: Sequence[str], name: str) -> Any:
    """Call `function` with arguments parsed from `flags`."""
    parser = FlagParser(prog=name, description=inspect.getdoc(function), allow_abbrev=False)
    hints = typing.get_type_hints(function)
    for parameter in inspect.signature(function).parameters.values():
        add_flag(parser, parameter, hints.get(parameter.name, parameter.annotation))
    values = vars(parser.parse_args(flags))
    return function(**values)


def add_flag(parser: FlagParser, parameter: inspect.Parameter, annotation: Any) -> None:
    """Add the flag of one parameter. Variadic parameters get none; positional-only ones are an error."""
    if parameter.kind in {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
        return
    if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
        raise CommandError(f"{parser.prog}: {parameter.name!r} is positional-only, so no flag can set it")
    required = parameter.default is inspect.Parameter.empty
    parser.add_argument(
        f"--{parameter.name.replace('_', '-')}",
        dest=parameter.name,
        required=required,
        default=None if required else parameter.default,
        **reading(parser.prog, parameter.name, bare(annotation)),
    )


def bare(annotation: Any) -> Any:
    """Remove None from `X | None`."""
    if typing.get_origin(annotation) not in {typing.Union, types.UnionType}:
        return annotation
    others = [part for part in typing.get_args(annotation) if part is not type(None)]
    return others[0] if len(others) == 1 else annotation


def reading(prog: str, name: str, annotation: Any) -> dict[str, Any]:
    """Return the argparse settings for a value of this type."""
    if annotation is bool:
        return {"action": argparse.BooleanOptionalAction}
    if annotation in FLAG_READERS:
        return {"type": named(FLAG_READERS[annotation], annotation)}
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return choice({str(part): part for part in parts})
    if origin is list and parts and bare(parts[0]) in FLAG_READERS:
        return {"nargs": "+", "type": named(FLAG_READERS[parts[0]], parts[0])}
    if inspect.isclass(annotation) and issubclass(annotation, Enum):
        return choice({str(member.value): member for member in annotation})
    raise CommandError(f"{prog}: no flag can be read for {name!r} of type {annotation}")


def named(reader: Callable[[str], Any], annotation: Any) -> Callable[[str], Any]:
    """Return a reader for argparse whose error names the type: "invalid date value: 'x'"."""

    def read(text: str) -> Any:
        try:
            return reader(text)
        except (ValueError, ArithmeticError, DurationError) as error:
            raise argparse.ArgumentTypeError(f"{text!r} is not a valid {annotation.__name__}") from error

    return read


def choice(values: dict[str, Any]) -> dict[str, Any]:
    """Return the argparse settings for a choice among a few values."""

    def read(text: str) -> Any:
        if text not in values:
            raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(values)}")
        return values[text]

    return {"type": read, "metavar": "{" + ",".join(values) + "}"}


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
        raise CommandError(f"there is no file {file}; name one as FILE.py:NAME")
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

"""Parse flags from a function's annotated arguments: `def views(day: date, top: int = 10)`."""

from __future__ import annotations

import argparse
import inspect
import types
import typing
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NoReturn

from penstock.cli.guard import CommandError
from penstock.errors import DurationError
from penstock.types.duration import nanoseconds


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

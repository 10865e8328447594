"""Reading the tables of docs/semantics.md."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from math import inf, nan
from pathlib import Path
from typing import Any

import pyarrow as pa

import penstock as pk
from penstock.types.arrow import parse_type, physical_values, value_type

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "semantics.md").read_text(encoding="utf-8")
NAMES = {"null": None, "nan": nan, "inf": inf, "-inf": -inf}


@dataclass(frozen=True)
class Example:
    expression: Any
    columns: dict[str, tuple[pa.DataType, list[Any]]]
    result: str

    @property
    def schema(self) -> pa.Schema:
        return pa.schema({name: dtype for name, (dtype, _) in self.columns.items()})

    @property
    def error(self) -> type[Exception] | None:
        return getattr(pk, self.result) if self.result.endswith("Error") else None

    @property
    def value(self) -> tuple[Any, pa.DataType]:
        text, name = re.fullmatch(r"(.+?) ([a-z]+[0-9]*(?:\[.*\])?)", self.result).groups()
        dtype = as_listed(name)
        return read(text, dtype), dtype


@dataclass(frozen=True)
class Cell(Example):
    """An example of the matrix of aggregates and situations, which says values but no types."""

    @property
    def value(self) -> tuple[Any, None]:
        return eval(self.result, {"null": None, "nan": nan, "inf": inf}), None


def table(heading: str) -> list[list[str]]:
    """Give the cells of the table whose header line is `heading`, without their backquotes."""
    body = TEXT.split(f"| {heading} |\n", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    return [
        [cell.strip().strip("`").replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in body
    ]


def as_listed(name: str) -> pa.DataType:
    """Read the name of a type, or of a list of one."""
    listed = re.fullmatch(r"list\[(.+)\]", name)
    return pa.list_(parse_type(listed[1])) if listed else parse_type(name)


def read(text: str, dtype: pa.DataType) -> Any:
    """Read a value as the interpreter has it: times as ticks."""
    if text in NAMES:
        return NAMES[text]
    if pa.types.is_timestamp(dtype) or pa.types.is_date(dtype):
        naive = pa.timestamp(dtype.unit) if pa.types.is_timestamp(dtype) else dtype
        return physical_values(pa.array([text]).cast(naive))[0]
    return ast.literal_eval(text)


def columns(text: str) -> dict[str, tuple[pa.DataType, list[Any]]]:
    """Read `a int64 = 1, 2; b string = 'x'`."""
    found = {}
    for part in text.split("; "):
        name, dtype, values = re.fullmatch(r"(\w+) (.+?) =(?: (.+))?", part).groups()
        parsed = parse_type(dtype)
        found[name] = (
            parsed,
            [read(value, value_type(parsed)) for value in (values or "").split(", ") if value],
        )
    return found


def examples(heading: str) -> list[Any]:
    """Read a tested table of expressions as parameters."""
    import pytest

    found = []
    for expression, given, result in table(heading):
        example = Example(expression_of(expression), columns(given), result)
        found.append(pytest.param(example, id=f"{expression}: {given}".replace("::", ":")))
    return found


def expression_of(text: str) -> Any:
    return eval(text, {"pk": pk, "nan": nan, "a": pk.col("a"), "b": pk.col("b")})


def matrix() -> list[Any]:
    """Read the matrix of aggregates and situations as parameters, a cell each."""
    import pytest

    situations = {name: columns(rows) for name, rows in table("situation | rows")}
    heading = " | ".join(["aggregate", *situations])
    return [
        pytest.param(Cell(expression_of(aggregate), rows, result), id=f"{aggregate} of {name}")
        for aggregate, *results in table(heading)
        for (name, rows), result in zip(situations.items(), results, strict=True)
    ]


def same(left: Any, right: Any) -> bool:
    """Compare values, NaN equal to itself and types apart."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and isinstance(right, float) and left != left:
        return right != right
    return type(left) is type(right) and left == right

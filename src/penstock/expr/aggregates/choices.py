"""Aggregates that depend on row order, and aggregates of booleans."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.expr.aggregates.function import Rows, Settings, Types, known


def first(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> Any:
    return next(iter(_eligible(rows, settings)), None)


def last(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> Any:
    return next(reversed(_eligible(rows, settings)), None)


def _eligible(rows: Rows, settings: Settings) -> list[Any]:
    return known(rows) if settings["ignore_nulls"] else [value for (value,) in rows]


def collect(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> list[Any]:
    return known(rows)


def either(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> bool | None:
    values = known(rows)
    return any(values) if values else None


def every(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> bool | None:
    values = known(rows)
    return all(values) if values else None

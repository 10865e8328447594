"""Compare tables row by row, in any order: floats within a bound, all else to the bit."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa


def assert_same(expected: pa.Table, actual: pa.Table, what: str) -> None:
    """Check that two results hold the same rows."""
    assert actual.column_names == expected.column_names, what
    assert actual.num_rows == expected.num_rows, f"{what}: {actual.num_rows} rows are not {expected.num_rows}"
    floats = {field.name for field in expected.schema if pa.types.is_floating(field.type)}
    left, right = _ordered(expected, floats), _ordered(actual, floats)
    for one, other in zip(left, right, strict=True):
        assert all(_close(one[name], other[name], name in floats) for name in one), (
            f"{what}: {one} is not {other}"
        )


def _ordered(table: pa.Table, floats: set[str]) -> list[dict[str, Any]]:
    """Order rows by what is exact, then roughly by the rest."""
    rows = table.to_pylist()
    exact = [name for name in table.column_names if name not in floats]

    def rank(row: dict[str, Any]) -> tuple[str, ...]:
        rough = (_rough(row[name]) for name in sorted(floats))
        return (*(repr(row[name]) for name in exact), *rough)

    return sorted(rows, key=rank)


def _rough(value: float | None) -> str:
    return repr(value) if value is None or not math.isfinite(value) else f"{value:.6e}"


def _close(one: Any, other: Any, is_float: bool) -> bool:
    if one is None or other is None or not is_float:
        return bool(one == other)
    return (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)

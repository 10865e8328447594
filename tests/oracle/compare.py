"""Compare results: exact values bit-equal, approximate ones within their bound, windows in order."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tests.oracle.approx import Approx
from tests.oracle.brute import Cells, key_cell
from tests.oracle.data import Row
from tests.oracle.scalars import Cell, same

Bucket = tuple[object, ...]


def exact_columns(rows: Sequence[Cells]) -> list[str]:
    """Name the columns in which no cell is an approximation."""
    if not rows:
        return []
    return [name for name in rows[0] if not any(isinstance(row[name], Approx) for row in rows)]


def _bucket(row: Cells | Row, names: list[str]) -> Bucket:
    return tuple(key_cell(row[name]) for name in names)


def _buckets(rows: Sequence[Cells] | Sequence[Row], names: list[str]) -> dict[Bucket, list[Cells]]:
    found: dict[Bucket, list[Cells]] = {}
    for row in rows:
        found.setdefault(_bucket(row, names), []).append(row)  # type: ignore[arg-type]
    return found


def assert_same_rows(expected: Sequence[Cells], actual: Sequence[Row], what: str = "engine") -> None:
    """Check that two results hold the same rows, in any order."""
    if expected and actual:
        assert list(expected[0]) == list(actual[0]), f"{what}: {list(actual[0])} are not {list(expected[0])}"
    names = exact_columns(expected)
    left, right = _buckets(expected, names), _buckets(actual, names)
    missing = [key for key in left if len(right.get(key, ())) != len(left[key])]
    extra = [key for key in right if key not in left]
    assert not missing and not extra, _difference(names, missing, extra, what)
    for key, rows in left.items():
        _match(rows, right[key], what)


def _difference(names: list[str], missing: list[Bucket], extra: list[Bucket], what: str) -> str:
    def lines(keys: list[Bucket]) -> str:
        return "\n".join(f"    {key}" for key in keys[:6])

    return f"{what} differs in {names}\n  expected only:\n{lines(missing)}\n  {what} only:\n{lines(extra)}"


def _match(expected: list[Cells], actual: list[Cells], what: str) -> None:
    """Pair rows that agree in everything exact; each expected row must admit one of its own."""
    rest = list(actual)
    for row in sorted(expected, key=_looseness):
        fitting = next((other for other in rest if _admits(row, other)), None)
        assert fitting is not None, f"{what}: no row fits\n  expected {row}\n  among {rest}"
        rest.remove(fitting)


def _looseness(row: Cells) -> float:
    return sum(cell.error for cell in row.values() if isinstance(cell, Approx))


def _admits(expected: Cells, actual: Cells) -> bool:
    return all(same(cell, actual[name]) for name, cell in expected.items())


def assert_windows_in_order(table: pa.Table) -> None:
    """Check the promised order: by window_end, then window_start."""
    ends = table["window_end"].cast(_ticks(table["window_end"].type)).to_pylist()
    begins = table["window_start"].cast(_ticks(table["window_start"].type)).to_pylist()
    pairs = list(zip(ends, begins, strict=True))
    assert pairs == sorted(pairs), "windows are out of order"


def _ticks(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_date32(dtype):
        return pa.int32()
    return pa.int64() if pa.types.is_temporal(dtype) else dtype


def as_expected(rows: Sequence[Row]) -> Sequence[dict[str, Cell]]:
    """Take one engine's rows as the expectation for another's."""
    return rows  # type: ignore[return-value]

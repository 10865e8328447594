"""The interfaces of data bound to a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeGuard

import pyarrow as pa

from penstock.expr.nodes import Expr
from penstock.sources.malformed import Arrived, Malformed
from penstock.storage.access import LOCAL, Access
from penstock.types.windows import Steps


class Bound(Protocol):
    """Data that can be read from the beginning, by column."""

    @property
    def schema(self) -> pa.Schema:
        """Return the columns with the types in which they are delivered."""

    @property
    def rows(self) -> int | None:
        """Return the number of rows, if it is known without reading them."""

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Read the named columns, in that order; all columns if none are named."""


class Prunable(Protocol):
    """Data that can skip pieces in which no row passes a predicate."""

    @property
    def rows(self) -> int | None:
        """Return the number of rows, including skipped ones, if it is known."""

    def typed(self, types: Mapping[str, pa.DataType]) -> Prunable:
        """Return the same data with other types of some columns: structs with fewer fields, which alone are decoded."""

    def batches(
        self,
        columns: Sequence[str] | None = None,
        predicate: Expr | None = None,
        threads: int | None = None,
        steps: Steps | None = None,
        malformed: Malformed | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Read the named columns in order. The result may include rows that fail the predicate, and a time may be replaced
        by another time in the same of the steps. Malformed records go to `malformed`; by default they are an error.
        """


class Unplaced(Protocol):
    """Data whose rows have no position: rows of equal time and sequence are ordered by their values."""

    def ordered(self, columns: Sequence[str], by: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read the named columns, with rows ordered by the values of the columns in `by`, those that the query reads."""

    def ties(self, batch: pa.RecordBatch) -> int:
        """Count the rows of an ordered batch that only their values order."""


class OnFiles(Protocol):
    """Data in files, planned before it is read."""

    def dataset(self, time: str | None = None) -> Prunable:
        """Inspect and check every file, and find its fragments."""


class Present(Protocol):
    """Unbounded data whose current content can be read."""

    def present(self, time: str, on_bad: str) -> Iterator[Arrived]:
        """Read the current content, with its malformed records."""


def access_of(data: object) -> Access:
    """Return how the files of data are reached; of a live source behind a history, those of the live one."""
    sides = (getattr(data, "live", None), getattr(data, "history", None), data)
    found = (getattr(side, "access", None) for side in sides)
    return next((item for item in found if isinstance(item, Access) and item.given), LOCAL)


# These checks run for every batch. `isinstance` with a protocol takes a hundred times as long.


def is_unplaced(data: Bound) -> TypeGuard[Unplaced]:
    """Check whether rows have no position."""
    return hasattr(data, "ordered")


def is_on_files(data: Bound) -> TypeGuard[OnFiles]:
    """Check whether data is planned before it is read."""
    return hasattr(data, "dataset")


def is_present(data: Bound) -> TypeGuard[Present]:
    """Check whether data is unbounded, with a readable current content."""
    return hasattr(data, "present")

"""What a query needs from data bound to a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeGuard

import pyarrow as pa

from penstock.expr.nodes import Expr
from penstock.sources.malformed import Arrived, Malformed
from penstock.types.windows import Steps


class Bound(Protocol):
    """Data that can be read from the beginning, column by column."""

    @property
    def schema(self) -> pa.Schema:
        """The columns there are, under the types they are delivered in."""

    @property
    def rows(self) -> int | None:
        """How many rows there are, if that is known without reading them."""

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Read the named columns, in that order; all of them if none are named."""


class Prunable(Protocol):
    """Data that can leave out pieces in which surely no row passes a predicate."""

    @property
    def rows(self) -> int | None:
        """How many rows there are, those left out included, if that is known."""

    def batches(
        self,
        columns: Sequence[str] | None = None,
        predicate: Expr | None = None,
        threads: int | None = None,
        steps: Steps | None = None,
        malformed: Malformed | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Read the named columns in order; rows that fail the predicate may be among them, and times that lie in one of
        the steps may be replaced by another of it. What is no row goes to `malformed`, by default it is an error.
        """


class Unplaced(Protocol):
    """Data whose rows have no position: those of one time and sequence are ordered by their values."""

    def ordered(self, columns: Sequence[str], by: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read the named columns, rows being ordered by the values of some of them: those a query looks at."""

    def ties(self, batch: pa.RecordBatch) -> int:
        """Count the rows of an ordered batch that only their values put in order."""


class OnFiles(Protocol):
    """Data that lies in files and is planned before it is read."""

    def dataset(self, time: str | None = None) -> Prunable:
        """Look into every file, checking it and finding its pieces."""


class Present(Protocol):
    """Data that goes on, of which that can be read which is there now."""

    def present(self, time: str, on_bad: str) -> Iterator[Arrived]:
        """Read what is there, and tell what was no row."""


# Asked of every batch of every run: `isinstance` takes a hundred times as long to look through a protocol.


def is_unplaced(data: Bound) -> TypeGuard[Unplaced]:
    """Tell whether rows have no position."""
    return hasattr(data, "ordered")


def is_on_files(data: Bound) -> TypeGuard[OnFiles]:
    """Tell whether data is planned before it is read."""
    return hasattr(data, "dataset")


def is_present(data: Bound) -> TypeGuard[Present]:
    """Tell whether data goes on."""
    return hasattr(data, "present")

"""Read backwards from a time slice to the last right row of each key that an as-of join needs.

A task reads its slice. Before it pushes left rows, it looks up their keys among the keys with a known right row before the
slice. For the missing keys it reads the right stream's files backwards, piece by piece, until every key has a row or no piece is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.analysis.slice_boundaries import Carry, carry_in
from penstock.caches import CACHES
from penstock.compile import Compiled, compile_plan
from penstock.expr.nodes import Column, Expr, Field
from penstock.plan.nodes import Filter, Plan, Project, Source
from penstock.plan.schema import sources_of
from penstock.runtime.buffers import flags, indices
from penstock.runtime.engine import Engine
from penstock.spark.rows import StreamRows, rows_of_part, rows_of_piece, run_through
from penstock.spark.slices import Part, Piece

MOST_HELD = 4  # pushes; more would use memory, and rows that arrive out of order are sorted anyway


def rows_with_carry(compiled: Compiled, part: Part, before: Iterable[Part]) -> Iterator[StreamRows]:
    """Read a slice. Before left rows, yield the right rows that they need from before the slice."""
    if part.low is None:
        yield from rows_of_part(compiled, part)
        return
    carry = carry_in(compiled.program)
    assert carry is not None
    own, earlier = _divided(part.pieces, before, carry.right)
    back = CarryInSearch(compiled, carry, earlier)
    # The first right rows are buffered, so that the older rows carried in precede them.
    held: list[StreamRows] | None = []
    for rows in rows_of_part(compiled, replace(part, pieces=own)):
        if rows.stream == carry.left:
            yield from back.needed_by(rows.batches)
        elif held is not None and len(held) < MOST_HELD:
            held.append(rows)
            continue
        yield from held or ()
        held = None
        yield rows
    yield from held or ()


def _divided(
    own: Sequence[Piece], before: Iterable[Part], stream: str
) -> tuple[tuple[Piece, ...], Iterator[Piece]]:
    """Return the pieces of a slice, and a stream's pieces before it, nearest first, without duplicate row groups.

    Earlier pieces that end at the slice's first time are added to the slice: rows of equal time are ordered by arrival.
    """
    starts = [piece.fragment.time_min or 0 for piece in own if piece.stream == stream]
    first, taken = min(starts, default=None), list(own)
    earlier = _backwards(before, stream, _row_groups(own))
    for piece in earlier:
        if first is None or (piece.fragment.time_max or 0) < first:
            return tuple(taken), _chained(piece, earlier)
        taken.insert(0, piece)
    return tuple(taken), iter(())


def _chained(first: Piece, rest: Iterator[Piece]) -> Iterator[Piece]:
    yield first
    yield from rest


def _row_groups(pieces: Iterable[Piece]) -> set[tuple[str, int]]:
    return {
        (piece.fragment.path, number)
        for piece in pieces
        for number in range(*(piece.fragment.row_groups or (0, 0)))
    }


def _backwards(before: Iterable[Part], stream: str, read: set[tuple[str, int]]) -> Iterator[Piece]:
    """List a stream's pieces from the last to the first, without row groups already read."""
    for part in before:
        for piece in reversed([piece for piece in part.pieces if piece.stream == stream]):
            left = sorted(number for path, number in _row_groups([piece]) if (path, number) not in read)
            read |= _row_groups([piece])
            for number in reversed(left):
                yield replace(piece, fragment=replace(piece.fragment, row_groups=(number, number + 1)))


class CarryInSearch:
    """The keys whose last right row before the slice is resolved, present or absent, and the unread pieces."""

    def __init__(self, compiled: Compiled, carry: Carry, pieces: Iterator[Piece]) -> None:
        self._compiled, self._carry, self._pieces = compiled, carry, pieces
        self._source = next(source for source in sources_of(compiled.plan) if source.name == carry.right)
        self._known = KeySet()

    def needed_by(self, batches: Sequence[pa.RecordBatch]) -> Iterator[StreamRows]:
        """Read back until every key of the left rows is resolved. Yields, per key, the rows of the last piece that holds it."""
        missing = self._known.lacking(
            [_keys(batch, [one for one, _ in self._carry.keys]) for batch in batches]
        )
        while missing is not None:
            piece = next(self._pieces, None)
            if piece is None:
                self._known.add(missing)
                return
            yield StreamRows(self._carry.right, self._new(piece))
            missing = self._known.lacking([missing])

    def _new(self, piece: Piece) -> list[pa.RecordBatch]:
        """Return the rows of a piece whose keys did not occur nearer to the slice."""
        names = [other for _, other in self._carry.keys]
        batches = list(self._counting(piece))
        keys = [_keys(batch, names) for batch in batches]
        chosen = [
            batch.filter(flags(self._known.lacks(key))) for batch, key in zip(batches, keys, strict=True)
        ]
        self._known.add(*keys)
        return [batch for batch in chosen if batch.num_rows]

    def _counting(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """Read the rows of a piece that pass the filter before the join."""
        groups = rows_of_piece(self._compiled, piece, self._source)
        if self._carry.where is None:
            yield from (batch for rows in groups for batch in rows.batches)
            return
        session = _filtered(self._source, self._compiled.columns[self._source.name], self._carry.where).open(
            Engine(threads=1), bounded=True
        )
        yield from run_through(session, groups)
        yield from session.finish()


@CACHES.results(most=32)
def _filtered(source: Source, columns: tuple[str, ...], where: Expr) -> Compiled:
    kept = tuple(Field(name, Column(name)) for name in columns)
    plan: Plan = Project(Filter(source, where), kept, source.time.column)
    return compile_plan(plan)


# --- keys ---------------------------------------------------------------------------------------------------


def _keys(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Return key columns named 0, 1 …, dictionary-decoded. Without keys, all rows have the same one."""
    if not names:
        return pa.RecordBatch.from_arrays([pa.array(np.zeros(batch.num_rows, np.int8))], ["0"])
    columns = [batch.column(name) for name in names]
    plain = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column for column in columns
    ]
    return pa.RecordBatch.from_arrays(plain, [str(place) for place in range(len(names))])


class KeySet:
    """A set of keys of one or several columns. A key with a null is never missing: it matches no row.

    >>> keys = KeySet()
    >>> keys.add(pa.record_batch({"0": [1, 2]}))
    >>> keys.lacks(pa.record_batch({"0": [2, 3, None]})).tolist()
    [False, True, False]
    """

    def __init__(self) -> None:
        self._held: pa.Table | None = None
        self._values: list[pa.Array] = []
        self._codes: pa.Array | None = None

    def add(self, *keys: pa.RecordBatch) -> None:
        """Add keys."""
        new = [key.filter(flags(self.lacks(key))) for key in keys]
        if not any(batch.num_rows for batch in new):
            return
        held = [] if self._held is None else [self._held]
        self._held = _distinct(pa.concat_tables([*held, pa.Table.from_batches(new)]))
        self._values = [column.unique() for column in self._held.columns]
        self._codes = None
        if len(self._values) > 1:
            self._codes = self._coded(self._held.to_batches()[0])

    def lacks(self, keys: pa.RecordBatch) -> np.ndarray:
        """Return a mask of the rows whose key has no null and is not in the set."""
        import pyarrow.compute as pc  # noqa: PLC0415 - loads when a join is sliced

        whole: np.ndarray = np.logical_and.reduce([_mask(column.is_valid()) for column in keys.columns])
        if self._held is None:
            return whole
        if len(self._values) == 1:
            found = _mask(pc.is_in(keys.column(0), value_set=self._values[0]))
        else:
            found = _mask(pc.is_in(self._coded(keys), value_set=self._codes))
        missing: np.ndarray = whole & ~found
        return missing

    def lacking(self, several: Sequence[pa.RecordBatch]) -> pa.RecordBatch | None:
        """Return the distinct keys that are not in the set; None if all are."""
        missing = [
            reduction.filter(flags(lacks)) for reduction in several if (lacks := self.lacks(reduction)).any()
        ]
        return _distinct(pa.Table.from_batches(missing)).to_batches()[0] if missing else None

    def _coded(self, keys: pa.RecordBatch) -> pa.Array:
        """Encode keys by the indices of their values in the set; -1 where a value is unknown."""
        import pyarrow.compute as pc  # noqa: PLC0415 - as above

        codes = np.zeros(keys.num_rows, np.int64)
        unknown = np.zeros(keys.num_rows, bool)
        for column, values in zip(keys.columns, self._values, strict=True):
            places = pc.index_in(column, value_set=values).fill_null(-1).to_numpy()
            unknown |= places < 0
            codes = codes * len(values) + places
        return indices(np.where(unknown, -1, codes))


def _mask(array: pa.Array) -> np.ndarray:
    found: np.ndarray = array.to_numpy(zero_copy_only=False)
    return found


def _distinct(table: pa.Table) -> pa.Table:
    return table.group_by(table.column_names, use_threads=False).aggregate([]).combine_chunks()

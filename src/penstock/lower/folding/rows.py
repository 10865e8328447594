"""Step 2 of the fold: the rows of a chunk that pass the filter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.kernels.select import select_rows
from penstock.loop.abi import LANES
from penstock.loop.nodes import I32, I64, U8, Buffer, Value, Var
from penstock.lower.folding.frame import CHUNK, Frame


@dataclass(frozen=True)
class Chosen:
    """`count` rows of the chunk: all of them, or those that are listed, by their numbers in the batch."""

    frame: Frame
    count: Var
    rows: Buffer | None = None

    def row(self, j: Value) -> Value:
        """The j-th of them, as a row of the batch."""
        return self.frame.at + j if self.rows is None else self.rows[j].to(I64)


def select_chunk(frame: Frame, n: Var, meanwhile: Callable[[Value], None] | None = None) -> Chosen:
    """Apply the filter to a chunk, doing something else to each row in the same loop."""
    if frame.spec.where is None:
        return Chosen(frame, n)
    k = frame.k
    rows = k.local("chosen", I32, CHUNK + LANES)
    positions = k.shared_buffer("positions", "", U8)

    def passes(r: Value) -> Value:
        found = frame.passes(frame.at + r)
        assert found is not None
        return found

    return Chosen(frame, select_rows(k, frame.at, n, passes, rows, positions, meanwhile), rows)

"""What orders rows of one time while they wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.runtime.buffers import indices
from penstock.runtime.flow import Flow
from penstock.runtime.lanes.ranks import ranked
from penstock.runtime.lanes.rows import joined_sequences
from penstock.runtime.lanes.sorting import Sorter


@dataclass(frozen=True)
class Ties:
    """What orders held rows of one time: their sequence, and the branch of a union that they came through."""

    sequence: pa.Array | None
    branch: np.ndarray

    def followed_by(self, flows: Sequence[Flow]) -> Ties:
        counts = [flow.batch.num_rows for flow in flows]
        several = [
            (self.sequence, len(self.branch)),
            *zip((flow.sequence for flow in flows), counts, strict=True),
        ]
        branches = np.repeat(np.array([flow.branch for flow in flows], np.int64), counts)
        return Ties(joined_sequences(several), np.concatenate([self.branch, branches]))

    def chosen(self, which: np.ndarray) -> Ties:
        """Some of the rows, by their places."""
        sequence = None if self.sequence is None else self.sequence.take(indices(which))
        return Ties(sequence, self.branch[which])

    @property
    def are_none(self) -> bool:
        """Whether rows of one time are in the order they came in."""
        return self.sequence is None and not self.branch.any()

    def order(self, times: np.ndarray, sorter: Sorter) -> np.ndarray:
        """The places of the rows by time, sequence, branch and arrival."""
        ranks = [] if self.sequence is None else [ranked(self.sequence, _known(self.sequence), sorter)[0]]
        return sorter.order(times, *ranks, *([self.branch] if self.branch.any() else []))

    def flows(self, table: pa.Table, *, apart: bool = True) -> list[Flow]:
        """The rows on their way, with what orders them: `apart` by branch, or in the order they stand in."""
        batches = table.combine_chunks().to_batches()
        begins = np.cumsum([0, *(batch.num_rows for batch in batches)])
        return [
            made
            for batch, begin in zip(batches, begins, strict=False)
            for made in self.chosen(np.arange(begin, begin + batch.num_rows)).on_their_way(batch, apart)
        ]

    def on_their_way(self, batch: pa.RecordBatch, apart: bool) -> list[Flow]:
        """A batch of all the rows, or one for each branch."""
        whole = Flow(batch, sequence=self.sequence)
        branches = np.unique(self.branch)
        if len(branches) == 1 or not apart:
            return [replace(whole, branch=int(branches[0]))]
        places = {int(each): np.flatnonzero(self.branch == each) for each in branches}
        return [
            replace(whole.filtered(batch.take(indices(chosen)), chosen), branch=each)
            for each, chosen in places.items()
        ]


def _known(array: pa.Array) -> np.ndarray:
    known: np.ndarray = array.is_valid().to_numpy(zero_copy_only=False)
    return known


NO_TIES = Ties(None, np.zeros(0, np.int64))

"""Look-backs over data at rest: states per key or sorted rows, chosen by the first rows before any is processed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.physical import nodes as ph
from penstock.physical.choose_window import HELD_STATES, held_for, revised
from penstock.runtime.adapt.controller import Adaptation, record
from penstock.runtime.buffers import indices
from penstock.runtime.stage import Stage, TimedBatch
from penstock.state.state_table import StateTable

SAMPLED_ROWS = 1 << 12
FEWEST_ROWS = 1 << 14  # fewer rows are processed in less time than a sample of them takes
_SEED = (
    0  # the same rows of equal data are sampled: places at even distances could follow a rhythm of the keys
)


@dataclass
class LookBackAtRest:
    """Begins with the first rows, as one of two stages: results are the same."""

    node: ph.Node
    stages: Mapping[ph.Held, Callable[[], Stage]]
    adaptations: list[Adaptation]
    held: ph.Held = HELD_STATES
    stage: Stage | None = field(init=False, default=None)

    @property
    def variant(self) -> ph.Node:
        """The node as it runs."""
        return self.node

    def push(self, port: int, timed_batches: list[TimedBatch]) -> list[TimedBatch]:
        if self.stage is None:
            self._choose([timed_batch.batch for timed_batch in timed_batches])
        return self._begun().push(port, timed_batches)

    def advance(self, port: int, watermark: int) -> tuple[Iterable[TimedBatch], int]:
        return self._begun().advance(port, watermark)

    def save(self) -> Mapping[str, StateTable]:
        return self._begun().save()

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        self._begun().load(tables)

    def _begun(self) -> Stage:
        if self.stage is None:
            self.stage = self.stages[self.held]()
        return self.stage

    def _choose(self, batches: Sequence[pa.RecordBatch]) -> None:
        assert isinstance(self.node.op, ph.LookBack)
        rows, distinct = sum(batch.num_rows for batch in batches), None
        if rows >= FEWEST_ROWS:
            distinct = distinct_keys(batches, self.node.op.keys)
        if distinct is None:
            return
        held, why = held_for(rows, SAMPLED_ROWS, distinct)
        if held != self.held:
            record(self.adaptations, Adaptation(self.node.id, 0, 0.0, "held", self.held, held, why))
            self.held = held
            self.node = revised(self.node, held, why)


def distinct_keys(batches: Sequence[pa.RecordBatch], keys: Sequence[str]) -> int | None:
    """Count the keys in a sample of rows; None where Arrow does not group values of their types."""
    if not keys:
        return 1
    table = pa.Table.from_batches([batch.select(list(keys)) for batch in batches])
    places = np.random.default_rng(_SEED).integers(0, table.num_rows, SAMPLED_ROWS)
    try:
        return int(table.take(indices(np.sort(places))).group_by(list(keys)).aggregate([]).num_rows)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowKeyError):
        return None

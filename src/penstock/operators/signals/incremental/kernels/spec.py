"""The specialisation of the kernels of an incremental signal, and the layout of the memory they share with the driver.

A *track* holds the samples of one sampled object, those of all keys in order of time. A *cursor* is a position on a
track: it passes each sample some ticks later, or when the span of a grid begins or ends for the sample. All of these
are ascending functions of time, so a cursor passes the samples in the order in which they came, whatever their key.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.algorithms.keyed_states.kernel import KeyedSpec
from penstock.expr import nodes as ex
from penstock.ir.nodes import Reduction
from penstock.loop.machine import machine_type
from penstock.loop.nodes import U8, Type
from penstock.types.time import Time

ROLLING, WINDOW, PER = "rolling", "window", "per"  # spans
SHIFTED, ENTERS, LEAVES = (
    "shifted",
    "enters",
    "leaves",
)  # how a cursor moves: the latter two on the grid of a span


@dataclass(frozen=True, slots=True)
class Cursor:
    """A position on a track; `span` is the one on whose grid it moves."""

    track: int
    moves: str = SHIFTED
    span: int = 0


@dataclass(frozen=True, slots=True)
class IncrementalAccess:
    """The value of a track behind a cursor: some columns of it, under the names by which fields read them.

    `expires` is the cursor at which a sample ceases to hold, if the next one has not come.
    """

    track: int
    cursor: int
    columns: tuple[tuple[str, str], ...]
    expires: int | None


@dataclass(frozen=True, slots=True)
class SpanSpec:
    """Samples of a track between two cursors. `kind` is rolling, window or per."""

    kind: str
    track: int
    enters: int
    leaves: int


@dataclass(frozen=True)
class IncrementalReduction:
    """A reduction over a span. It is null where the span has no samples, counts included."""

    reduction: Reduction
    type: pa.DataType
    span: int


@dataclass(frozen=True)
class EventSpec:
    """What the kernels of a signal read, keep and write.

    `rows` are the schemas of rows that enter each track, `values` those of the track's object; a row has a value of
    name n in column `columns[track][n]`. `reductions` are those that fields read, None the others;
    `reduced` are the types of all.
    """

    keys: pa.Schema
    times: tuple[Time, ...]
    rows: tuple[pa.Schema, ...]
    values: tuple[pa.Schema, ...]
    columns: tuple[tuple[str, ...], ...]
    cursors: tuple[Cursor, ...]
    accesses: tuple[IncrementalAccess, ...]
    spans: tuple[SpanSpec, ...]
    reductions: tuple[IncrementalReduction | None, ...]
    reduced: tuple[pa.DataType, ...]
    fields: tuple[ex.Field, ...]
    scope: pa.Schema
    result: pa.Schema
    ends: bool

    def aggregates(self, span: int) -> KeyedSpec:
        """The states of the reductions over a span."""
        found = [
            reduction for reduction in self.reductions if reduction is not None and reduction.span == span
        ]
        track = self.spans[span].track
        return KeyedSpec(
            self.values[track],
            self.times[track],
            (),
            tuple(reduction.reduction for reduction in found),
            tuple(reduction.type for reduction in found),
        )

    def subtracts(self, span: int) -> bool:
        """Whether samples leave the states of a span by exact subtraction."""
        return all(monoid.take is not None for monoid in self.aggregates(span).monoids)

    # -- memory: the types of the buffers declared under each hint, in order ---------------------------

    @property
    def cells(self) -> dict[str, tuple[Type, ...]]:
        """The types of cells per key and per sample, by the hint of their parameters."""
        states = [self._states(span) for span in range(len(self.spans))]
        held = [
            self.values[access.track].field(column).type
            for access in self.accesses
            for _, column in access.columns
        ]
        return {
            "state": tuple(type for several in states for type in several),
            "held_value": tuple(map(_machine, held)),
            "held_there": (U8,) * len(held),
            "open_value": tuple(map(_machine, self.result.types)),
            "open_there": (U8,) * len(self.result.types),
        }

    def sample_cells(self, track: int) -> dict[str, tuple[Type, ...]]:
        """The types of cells per sample of a track."""
        values = self.values[track].types
        return {"sample_value": tuple(map(_machine, values)), "sample_there": (U8,) * len(values)}

    def suffix_cells(self, span: int) -> tuple[Type, ...]:
        """The types of the states of suffixes, one for each sample of a span's track."""
        return () if self.subtracts(span) else self._states(span)

    def _states(self, span: int) -> tuple[Type, ...]:
        return tuple(state.type for monoid in self.aggregates(span).monoids for state in monoid.states)


def _machine(dtype: pa.DataType) -> Type:
    found = machine_type(dtype)
    assert found is not None, f"{dtype} is not a machine type"
    return found

"""The memory of an incremental signal's kernels: its layout, samples by track, values, open intervals, and span aggregates.

A *track* holds the samples of one sampled object, those of all keys in order of time. A *cursor* is a position on a
track: it passes each sample some ticks later, or when the span of a grid begins or ends for the sample. All of these
are ascending functions of time, so a cursor passes the samples in the order in which they came, whatever their key.

The aggregate is exact subtraction where all states allow it. Otherwise it is two stacks: `suffix[sample]` aggregates
the key's older samples from a sample on, and `state[key]` the newer ones (see algorithms/sliding/frame_algorithms.py); values
that are not finite leave with their sample, and no rounding error stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.algorithms.expressions.cells import Cell, narrow
from penstock.algorithms.keyed_states.kernel import KeyedSpec
from penstock.algorithms.monoids import Monoid
from penstock.algorithms.partials import Finish
from penstock.algorithms.sliding.slide import Aggregation, Memory, Row, States
from penstock.expr import nodes as ex
from penstock.ir.nodes import Reduction
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, I64, U8, Buffer, Operand, Type, Value, Var, const
from penstock.loop.numbers import machine_type
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


# Words of `marks`: the instant, keys touched there, those evaluated, the instant's number, the oldest and the newest open
# interval; then three words for each track, and one for each cursor.
NOW, TOUCHED, EVALUATED, INSTANT, OLDEST, NEWEST, TRACKS = range(7)
BASE, END, PER_TRACK = 0, 1, 2
NONE = -1


@dataclass(frozen=True)
class EventTrack:
    """The samples of a track: key, time, values; and for each key the number of the newest."""

    base: Var
    key: Buffer
    time: Buffer
    values: Sequence[Buffer]
    there: Sequence[Buffer]
    newest: Buffer


def tracks(k: KernelBuilder, spec: EventSpec, marks: Buffer) -> list[EventTrack]:
    """Declare the samples of all tracks."""
    found = []
    for place in range(len(spec.rows)):
        types = spec.sample_cells(place)
        track = EventTrack(
            k.var("base", marks[TRACKS + PER_TRACK * place + BASE]),
            k.buffer("sample_key", I64),
            k.buffer("sample_time", I64),
            [k.buffer("sample_value", type) for type in types["sample_value"]],
            [k.buffer("sample_there", U8) for _ in types["sample_there"]],
            k.buffer("newest_sample", I64),
        )
        found.append(track)
    return found


@dataclass(frozen=True)
class HeldValues:
    """The value of each key behind a cursor, by the name under which fields read it, and the number and time of the sample."""

    number: Buffer
    time: Buffer
    columns: dict[str, tuple[Buffer, Buffer]]


def held_values(k: KernelBuilder, spec: EventSpec) -> list[HeldValues]:
    """Declare the values of all accesses."""
    found = []
    for access in spec.accesses:
        schema = spec.values[access.track]
        number, time = k.buffer("held_number", I64), k.buffer("held_time", I64)
        columns = {}
        for name, column in access.columns:
            machine = machine_type(schema.field(column).type)
            assert machine is not None
            columns[name] = k.buffer("held_value", machine), k.buffer("held_there", U8)
        found.append(HeldValues(number, time, columns))
    return found


class OpenIntervals:
    """The keys that have an open interval, in order of its start: a list whose ends are words of `marks`."""

    def __init__(self, k: KernelBuilder, marks: Buffer) -> None:
        self.k, self.marks = k, marks
        self.older, self.newer = k.buffer("older", I64), k.buffer("newer", I64)

    def append(self, key: Value) -> None:
        """Add a key, whose interval begins now."""
        k, marks = self.k, self.marks
        last = k.var("last_open", marks[NEWEST])
        k.store(self.older, key, last)
        k.store(self.newer, key, NONE)
        with k.if_(last < 0):
            k.store(marks, OLDEST, key)
        with k.else_():
            k.store(self.newer, last, key)
        k.store(marks, NEWEST, key)

    def remove(self, key: Value) -> None:
        k = self.k
        before, after = k.var("before", self.older[key]), k.var("after", self.newer[key])
        self._join(before, after, OLDEST, self.newer)
        self._join(after, before, NEWEST, self.older)

    def _join(self, one: Value, other: Value, end: Operand, links: Buffer) -> None:
        """Link one neighbour to the other; without it, the other is at the end."""
        k = self.k
        with k.if_(one < 0):
            k.store(self.marks, end, other)
        with k.else_():
            k.store(links, one, other)


@dataclass
class SpanStates(Aggregation):
    """The states of a span's reductions. Samples have numbers that never change; `base` is the number of the first one kept."""

    k: KernelBuilder
    spec: KeyedSpec
    row: Callable[[Value], Row]
    fail: Callable[[Value], None]
    base: Var
    monoids: tuple[Monoid, ...] = field(init=False)

    def __post_init__(self) -> None:
        k = self.k
        self.monoids = self.spec.monoids
        self.held, self.states = k.buffer("held", I64), self.memory("state")
        self.exact = all(monoid.take is not None for monoid in self.monoids)
        self.first, self.newest, self.middle = (k.buffer(n, I64) for n in ("first", "newest", "middle"))
        self.suffix: Memory | None = None
        if not self.exact:
            self.following, self.previous = k.buffer("following", I64), k.buffer("previous", I64)
            self.suffix = self.memory("suffix")

    def at(self, number: Value) -> Value:
        """The place of a sample among those kept."""
        return number - self.base

    def enter(self, key: Value, number: Value) -> None:
        k = self.k
        count = k.var("count", self.held[key])
        with k.if_(count.eq(0)):
            self._clear(key)
            k.store(self.first, key, number)
        if not self.exact:
            with k.if_(count > 0):
                k.store(self.following, self.at(self.newest[key]), number)
            k.store(self.previous, self.at(number), self.newest[key])
            k.store(self.newest, key, number)
        states = self.load(self.states, key)
        self.step(states, self.at(number))
        self.store(self.states, key, states)
        k.store(self.held, key, count + 1)

    def _clear(self, key: Value) -> None:
        self.k.store(self.middle, key, NONE)
        for monoid, buffers in zip(self.monoids, self.states, strict=True):
            for state, buffer in zip(monoid.states, buffers, strict=True):
                self.k.store(buffer, key, const(state.identity, state.type))

    def leave(self, key: Value, number: Value) -> None:
        """Take the oldest sample of a key out of its aggregate."""
        k = self.k
        if self.exact:
            rest = self.without(self.load(self.states, key), self.alone(self.at(number)))
            self.store(self.states, key, rest)
        else:
            with k.if_(self.middle[key] < 0):
                self._flip(key)
            with k.if_(self.middle[key].eq(number)):
                k.store(self.middle, key, NONE)
            k.store(self.first, key, self.following[self.at(number)])
        k.store(self.held, key, self.held[key] - 1)

    def _flip(self, key: Value) -> None:
        """Aggregate the suffixes of a key's samples, from the newest to the oldest."""
        k = self.k
        assert self.suffix is not None
        number, left = k.var("flipped", self.newest[key]), k.var("left", self.held[key])
        k.store(self.middle, key, number)
        suffix = self.identities("suffix_of")
        with k.while_(left > 0):
            place = k.var("place", self.at(number))
            self.assign(suffix, self.merged(self.alone(place), suffix))
            self.store(self.suffix, place, suffix)
            k.set(number, self.previous[place])
            k.set(left, left - 1)
        for monoid, buffers in zip(self.monoids, self.states, strict=True):
            for state, buffer in zip(monoid.states, buffers, strict=True):
                k.store(buffer, key, const(state.identity, state.type))

    def cells(self, key: Value, reductions: list[IncrementalReduction]) -> list[Cell]:
        """The results for a key; null where it has no samples."""
        k = self.k
        some = k.var("some", self.held[key] > 0, BOOL)
        states = self._total(key, some)
        finish = Finish(
            k, self.spec.partials, states, self.spec.may_be_null, lambda wrong: self.fail(wrong & some)
        )
        found = []
        for reduction in reductions:
            cell = finish.cell(reduction.reduction, reduction.type)
            found.append(Cell(k.var("reduced", cell.value), k.var("there", narrow(cell.valid, some))))
        return found

    def _total(self, key: Value, some: Value) -> States:
        total = self.identities("total")
        k = self.k
        with k.if_(some):
            self.assign(total, self.load(self.states, key))
            if self.suffix is not None:
                with k.if_(self.middle[key] >= 0):
                    front = self.load(self.suffix, k.var("front", self.at(self.first[key])))
                    self.assign(total, self.merged(front, total))
        return total


def has_values(there: Sequence[Buffer], place: Value) -> Value:
    """Whether a sample has a value in some column."""
    found: Value = const(False, BOOL)
    for buffer in there:
        found = found | buffer[place].ne(0)
    return found

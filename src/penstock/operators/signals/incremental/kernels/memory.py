"""The memory of an incremental signal's kernels: samples by track, the values that hold, and the open intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.loop.build import KernelBuilder
from penstock.loop.machine import machine_type
from penstock.loop.nodes import I64, U8, Buffer, Operand, Value, Var
from penstock.operators.signals.incremental.kernels.spec import EventSpec

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

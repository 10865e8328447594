"""The kernel of an incremental signal: samples enter, then time moves from event to event, over all keys.

An event is that a cursor passes a sample: its value is accessed, it enters or leaves a span, or ceases to hold. At an
instant the kernel applies all events, and then compares the value of each key they touch with that of its open interval.
An interval ends where the value changes. So the work is that of the samples that come, and of the events that pass.

Events are applied once all samples before `limit` are known. The open intervals of all keys are a list in order of their
starts, so that the earliest is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from penstock.algorithms.expressions.cells import Cell
from penstock.algorithms.expressions.lowering import Lowering
from penstock.algorithms.keyed_states.kernel import KeyedKernel, KeyedSpec, KeyedStates
from penstock.algorithms.partials.algebra import contribution
from penstock.algorithms.sliding.slide import Row
from penstock.loop.abi import NEED_OUTPUT
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, I64, U8, Value, Var, const, minimum, select
from penstock.operators.signals.incremental.kernels.memory import (
    END,
    ENTERS,
    EVALUATED,
    INSTANT,
    LEAVES,
    NOW,
    PER_TRACK,
    SHIFTED,
    TOUCHED,
    TRACKS,
    WINDOW,
    Cursor,
    EventSpec,
    EventTrack,
    HeldValues,
    IncrementalAccess,
    OpenIntervals,
    SpanStates,
    has_values,
    held_values,
    tracks,
)
from penstock.operators.signals.kernels.coalesce import differing

NEVER = (1 << 63) - 1


def events(spec: EventSpec, nullable: frozenset[str], track: int, *, time: bool, silent: bool) -> KeyedKernel:
    """Enter the rows `lo … hi` into a track; then, with `time`, apply the events before `limit`.

    `silent`: evaluate nothing, because the values up to `limit` are known.
    """
    rows = KeyedSpec(
        spec.rows[track], spec.times[track], tuple(spec.keys.names), (), tuple(spec.result.types), nullable
    )
    kernel = _Events("signal_events", rows, spec, track, silent)
    return kernel.kernel(time=time)


@dataclass
class _Events(KeyedStates):
    signal: EventSpec
    into: int
    silent: bool
    whens: list[Var] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        k, signal = self.k, self.signal
        self.limit = k.scalar("limit")
        self.marks = k.buffer("marks", I64)
        self.offsets = [k.scalar("offset") for _ in signal.cursors]
        self.sizes = [k.scalar("size") for _ in signal.spans]
        self.steps = [k.scalar("step") for _ in signal.spans]
        self.delays = [k.scalar("delay") for _ in signal.spans]
        self.tracks = tracks(k, signal, self.marks)
        self.accesses = held_values(k, signal)
        self.spans = [
            SpanStates(
                k,
                signal.aggregates(place),
                self._contributions(place),
                self._fail,
                self.tracks[span.track].base,
            )
            for place, span in enumerate(signal.spans)
        ]
        self.touched, self.stamp = k.buffer("touched", I64), k.buffer("stamp", I64)
        self.start, self.open = k.buffer("start", I64), k.buffer("open", I64)
        self.in_order = OpenIntervals(k, self.marks)
        types = signal.cells
        self.value = [k.buffer("open_value", type) for type in types["open_value"]]
        self.there = [k.buffer("open_there", U8) for _ in self.value]
        self.at, self.count = k.var("at", 0), k.var("count", 0)
        self.now, self.instant = k.var("now", 0), k.var("instant", 0)

    def kernel(self, *, time: bool) -> KeyedKernel:
        k = self.k
        self._enter_rows()
        if time:
            for var, word in self._progress():
                k.set(var, self.marks[word])
            self._apply()
            self._save_progress()
        return self.built()

    def _progress(self) -> list[tuple[Var, int]]:
        return [(self.now, NOW), (self.count, TOUCHED), (self.at, EVALUATED), (self.instant, INSTANT)]

    def _save_progress(self) -> None:
        for var, word in self._progress():
            self.k.store(self.marks, word, var)

    # -- samples -------------------------------------------------------------------------------------

    def _contributions(self, span: int) -> Callable[[Value], Row]:
        """Return the function that reads what a sample contributes to the states of a span."""
        place = self.signal.spans[span].track
        track, schema = self.tracks[place], self.signal.values[place]
        partials = self.signal.aggregates(span).partials

        def row(slot: Value) -> Row:
            def cell(name: str) -> Cell:
                number = schema.get_field_index(name)
                return Cell(track.values[number][slot], track.there[number][slot].ne(0))

            lowering = Lowering(self.k, schema, cell, self._fail, _no_text, lambda name: cell(name).valid)
            return [contribution(lowering, partial) for partial in partials]

        return row

    def _enter_rows(self) -> None:
        """Append rows to the track. Of rows of one key and time the last one counts: they come together."""
        k, track, place = self.k, self.tracks[self.into], TRACKS + PER_TRACK * self.into
        end = k.var("end", self.marks[place + END])
        with k.for_(self.lo, self.hi, "row", scalar=True) as row:
            k.store(self.marks, place + END, end)
            self.reserve_key(row)
            key, time = k.var("key", self.key_of(row)), k.var("time", self.columns.time_at(row))
            number = k.var("number", track.newest[key])
            again = k.var("again", number >= track.base, BOOL)
            with k.if_(again):
                k.set(again, track.time[number - track.base].eq(time))
            with k.if_(~again):
                k.set(number, end)
                k.set(end, end + 1)
                k.store(track.newest, key, number)
            self._write_sample(track, k.var("slot", number - track.base), key, time, row)
        k.store(self.marks, place + END, end)

    def _write_sample(self, track: EventTrack, slot: Value, key: Value, time: Value, row: Value) -> None:
        k = self.k
        k.store(track.key, slot, key)
        k.store(track.time, slot, time)
        names = self.signal.columns[self.into]
        for name, values, there in zip(names, track.values, track.there, strict=True):
            cell = self.columns.cell(name, row)
            k.store(values, slot, cell.value)
            k.store(there, slot, const(1, U8) if cell.valid is None else cell.valid.to(U8))

    # -- events --------------------------------------------------------------------------------------

    def _apply(self) -> None:
        """Go from event to event; stop where there is no room for a result."""
        k = self.k
        self.whens = [k.var("when", NEVER) for _ in self.signal.cursors]
        for place in range(len(self.signal.cursors)):
            self._look_ahead(place)
        going = k.var("going", True, BOOL)
        with k.while_(going):
            if not self.silent:
                self._evaluate_touched()
            soonest: Value = self.whens[0]
            for when in self.whens[1:]:
                soonest = minimum(soonest, when)
            k.set(self.now, soonest)
            k.set(going, self.now < self.limit)
            with k.if_(going):
                k.set(self.instant, self.instant + 1)
                k.set(self.at, 0)
                k.set(self.count, 0)
                for place in range(len(self.signal.cursors)):
                    with k.while_(self.whens[place] <= self.now):
                        self._pass(place)

    def _position(self, place: int) -> int:
        """The word of a cursor's position."""
        return TRACKS + PER_TRACK * len(self.tracks) + place

    def _end(self, track: int) -> int:
        """The word of a track's end."""
        return TRACKS + PER_TRACK * track + END

    def _look_ahead(self, place: int) -> None:
        """Find the instant of a cursor's next event."""
        k, cursor = self.k, self.signal.cursors[place]
        number = k.var("ahead", self.marks[self._position(place)])
        k.set(self.whens[place], NEVER)
        with k.if_(number < self.marks[self._end(cursor.track)]):
            track = self.tracks[cursor.track]
            k.set(self.whens[place], self._instant_of(place, cursor, track.time[number - track.base]))

    def _instant_of(self, place: int, cursor: Cursor, time: Value) -> Value:
        k = self.k
        if cursor.moves == SHIFTED:
            return time + self.offsets[place]
        span = cursor.span
        size, step, delay = self.sizes[span], self.steps[span], self.delays[span]
        windows = self.signal.spans[span].kind == WINDOW
        if cursor.moves == ENTERS:
            begins = _floor(k, time, step)
            return begins + step + delay if windows else begins + delay
        assert cursor.moves == LEAVES
        return _floor(k, time + size if windows else time, step) + step + delay

    def _pass(self, place: int) -> None:
        """Apply the event of a cursor, and move it."""
        k, cursor = self.k, self.signal.cursors[place]
        track = self.tracks[cursor.track]
        number = k.var("passed", self.marks[self._position(place)])
        slot = k.var("place", number - track.base)
        key = k.var("key_passed", track.key[slot])
        for access, held in zip(self.signal.accesses, self.accesses, strict=True):
            if access.expires == place:
                self._expire(held, key, number)
            if access.cursor == place:
                self._hold(access, held, key, number)
        self._move_samples(place, key, number, slot)
        if not self.silent:
            self._touch(key)
        k.store(self.marks, self._position(place), number + 1)
        self._look_ahead(place)

    def _hold(self, access: IncrementalAccess, held: HeldValues, key: Value, number: Value) -> None:
        k, track = self.k, self.tracks[access.track]
        slot = k.var("held_slot", number - track.base)
        k.store(held.number, key, number)
        k.store(held.time, key, track.time[slot])
        for name, column in access.columns:
            source = self.signal.values[access.track].get_field_index(column)
            values, there = held.columns[name]
            k.store(values, key, track.values[source][slot])
            k.store(there, key, track.there[source][slot])

    def _expire(self, held: HeldValues, key: Value, number: Value) -> None:
        """A sample ceases to hold, unless another one has come."""
        k = self.k
        with k.if_(held.number[key].eq(number)):
            for _, there in held.columns.values():
                k.store(there, key, 0)

    def _move_samples(self, place: int, key: Value, number: Value, slot: Value) -> None:
        """A sample that has a value enters and leaves the spans of a cursor."""
        moving = [
            (span, states, span.enters == place)
            for span, states in zip(self.signal.spans, self.spans, strict=True)
            if place in (span.enters, span.leaves)
        ]
        if not moving:
            return
        track = self.tracks[moving[0][0].track]
        with self.k.if_(has_values(track.there, slot)):
            for _, states, enters in moving:
                (states.enter if enters else states.leave)(key, number)

    def _touch(self, key: Value) -> None:
        k = self.k
        with k.if_(self.stamp[key].ne(self.instant)):
            k.store(self.stamp, key, self.instant)
            k.store(self.touched, self.count, key)
            k.set(self.count, self.count + 1)

    # -- values --------------------------------------------------------------------------------------

    def _evaluate_touched(self) -> None:
        k = self.k
        with k.while_(self.at < self.count):
            with k.if_(self.made >= self.capacity):
                self._save_progress()
                self.leave(NEED_OUTPUT, self.hi)
            self._evaluate(k.var("key_touched", self.touched[self.at]))
            k.set(self.at, self.at + 1)

    def _evaluate(self, key: Value) -> None:
        """Compare the value of a key with that of its open interval."""
        k = self.k
        cells = self._values(key)
        differs: Value = const(False, BOOL)
        defined: Value = const(False, BOOL)
        for (value, there), old, was in zip(cells, self.value, self.there, strict=True):
            defined = defined | there
            differs = differs | there.ne(was[key].ne(0)) | (differing(value, old[key]) & there)
        some = k.var("defined", defined)
        with k.if_(k.var("changed", differs)):
            if self.signal.ends:
                with k.if_(self.open[key].ne(0)):
                    self._result(
                        key,
                        self.start[key],
                        [(o[key], w[key]) for o, w in zip(self.value, self.there, strict=True)],
                    )
                    self.in_order.remove(key)
            for (value, there), old, was in zip(cells, self.value, self.there, strict=True):
                k.store(old, key, value)
                k.store(was, key, there.to(U8))
            k.store(self.open, key, some.to(I64))
            with k.if_(some):
                k.store(self.start, key, self.now)
                if self.signal.ends:
                    self.in_order.append(key)
                else:
                    self._result(key, self.now, [(value, there.to(U8)) for value, there in cells])

    def _values(self, key: Value) -> Sequence[tuple[Value, Value]]:
        """The fields of a key now, and whether they are there."""
        k, signal = self.k, self.signal
        reduced = self._reduced(key)
        lowering = Lowering(
            k,
            signal.scope,
            lambda name: self._accessed(name, key),
            self._fail,
            _no_text,
            lambda name: self._accessed(name, key).valid,
            reduced,
            signal.reduced,
        )
        found = []
        for field_, buffer in zip(signal.fields, self.value, strict=True):
            cell = lowering.lower(field_.expr)
            there = const(True, BOOL) if cell.valid is None else cell.valid
            found.append((k.var("field", cell.value.to(buffer.type)), k.var("field_there", there)))
        return found

    def _reduced(self, key: Value) -> list[Cell]:
        """The reductions of a key; those that no field reads are null."""
        reductions = self.signal.reductions
        found = [Cell(const(0, I64), const(False, BOOL)) for _ in reductions]
        for span, states in enumerate(self.spans):
            own = [
                (n, reduction)
                for n, reduction in enumerate(reductions)
                if reduction is not None and reduction.span == span
            ]
            cells = states.cells(key, [reduction for _, reduction in own])
            for (number, _), cell in zip(own, cells, strict=True):
                found[number] = cell
        return found

    def _accessed(self, name: str, key: Value) -> Cell:
        values, there = next(held.columns[name] for held in self.accesses if name in held.columns)
        return Cell(values[key], there[key].ne(0))

    def _result(self, key: Value, start: Value, cells: Sequence[tuple[Value, Value]]) -> None:
        k = self.k
        for buffer, word in zip((self.out_key, *self.out_times), (key, start, self.now), strict=True):
            k.store(buffer, self.made, word)
        for (value, there), (values, valid) in zip(cells, self.results, strict=True):
            k.store(values, self.made, value.to(values.type))
            k.store(valid, self.made, there)
        k.set(self.made, self.made + 1)


def _floor(k: KernelBuilder, time: Value, step: Value) -> Value:
    """The last multiple of a step up to a time, which may be negative."""
    rest = k.var("rest", time.rem(step))
    return time - rest - select(rest < 0, step, 0)


def _no_text(name: str, text: str) -> Cell:
    raise AssertionError(f"{name} is a text, which kernels over signals do not read")

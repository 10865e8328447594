"""Emit the states of reductions: of entries, of panes in SIMD lanes, and of spans chained from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from penstock.algorithms.expressions.cells import Cell, conjunction
from penstock.algorithms.expressions.lowering import Lowering
from penstock.algorithms.monoids import Values
from penstock.algorithms.monoids.base import either as chosen
from penstock.algorithms.monoids.moments import distance
from penstock.algorithms.partials import values_added
from penstock.algorithms.partials.algebra import MOMENTS
from penstock.expr import nodes as ex
from penstock.ir.signals.nodes import Expression
from penstock.loop.abi import LANES, NEED_WIDE
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import F64, I64, U64, Value, Var, const, select
from penstock.operators.signals.positional.kernels.plan import no_text
from penstock.operators.signals.positional.kernels.reductions import (
    LIGHT_MOMENTS,
    Group,
    Track,
    TrackAlgebra,
    is_long_sum,
)
from penstock.operators.signals.positional.kernels.writer import Array, BlockWriter, Here

Contribution = Callable[[Value], tuple[Values, Value | None]]
Step = Callable[[Value, tuple[Var, ...]], None]


@dataclass(frozen=True, slots=True)
class Entries:
    """Consecutive entries, the contribution of each, and the maximum number of SIMD lanes."""

    first: Value
    count: int
    bring: Contribution
    lanes: int = LANES

    def in_lanes(self, most: int) -> Entries:
        return replace(self, lanes=min(self.lanes, most))


def reduced(k: KernelBuilder, algebra: TrackAlgebra, entries: Entries, kind: str) -> Values:
    """The state of all entries."""
    if kind in MOMENTS:
        return _moments(k, algebra, entries, MOMENTS.index(kind) + 2)
    monoid = algebra.monoid
    start = tuple((part.identity, part.type) for part in monoid.states)

    def step(entry: Value, state: tuple[Var, ...]) -> None:
        values, active = entries.bring(entry)
        new = monoid.step(k, state, values)
        new = new if active is None else chosen(k.var("active", active), new, state)
        for var, value in zip(state, [k.var("new", value) for value in new], strict=True):
            k.set(var, value)

    # Integers may be added in any order: LLVM chooses their lanes.
    exact = not any(part.type.is_float for part in monoid.states)
    lanes = _in_lanes(k, entries.in_lanes(1) if exact else entries, start, step)
    return _joined(lanes, lambda a, b: monoid.merge(k, a, b))


def _in_lanes(
    k: KernelBuilder, entries: Entries, start: Sequence[tuple[float, object]], step: Step
) -> list[Values]:
    """Reduce entry i in lane i mod the number of lanes; few entries use one lane."""
    lanes = entries.lanes if entries.count >= 2 * entries.lanes else 1
    states = [tuple(k.var("lane", value, type) for value, type in start) for _ in range(lanes)]  # type: ignore[arg-type]
    whole = entries.count // lanes
    with k.for_(0, whole, "g") as group:
        first = k.var("entry", entries.first + group * lanes)
        for lane, state in enumerate(states):
            step(first + lane if lane else first, state)
    for rest in range(entries.count - whole * lanes):
        step(k.var("entry", entries.first + (whole * lanes + rest)), states[rest])
    return list(states)


def _joined(lanes: Sequence[Values], merge: Callable[[Values, Values], Values]) -> Values:
    """Merge neighbours pairwise, in a tree."""
    while len(lanes) > 1:
        lanes = [merge(a, b) for a, b in zip(lanes[::2], lanes[1::2], strict=True)]
    return lanes[0]


def _added(a: Values, b: Values) -> Values:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _moments(k: KernelBuilder, algebra: TrackAlgebra, entries: Entries, order: int) -> Values:
    """Compute moments in two passes over the pane: the mean, then powers of the distances from it.

    The error of the mean equals the mean of the distances; it is corrected to the first order.
    """
    total, count = _totals(k, algebra, entries)
    n = k.var("n", count.to(F64))
    mean = k.var("mean", total.div(n))

    def step(entry: Value, state: tuple[Var, ...]) -> None:
        values, active = entries.bring(entry)
        off = distance(k, values[0], mean)
        far = k.var("far", off if active is None else select(active, off, 0.0))
        power: Value = far
        for place, var in enumerate(state):
            if place:
                power = k.var("power", power * far)
            k.set(var, var + power)

    # Several independent sums saturate the processor with half the lanes, and the code is half as long.
    lanes = _in_lanes(k, entries.in_lanes(LANES // 2) if order > 2 else entries, [(0.0, F64)] * order, step)
    off, *powers = (k.var("sum", value) for value in _joined(lanes, _added))
    share = k.var("share", off.div(n))
    new = [powers[0] - off * share]
    if order > 2:
        new.append(powers[1] - powers[0] * share * 3)
    if order > 3:
        new.append(powers[2] - powers[1] * share * 4)
    # A mean of one float includes the correction.
    light = algebra.monoid.name in LIGHT_MOMENTS
    state = (count, mean + share, const(0.0, F64), *new) if light else (count, mean, share, *new)
    if algebra.known:
        return state
    nothing = tuple(const(part.identity, part.type) for part in algebra.monoid.states)
    return chosen(count.eq(0), nothing, state)


def _totals(k: KernelBuilder, algebra: TrackAlgebra, entries: Entries) -> tuple[Value, Value]:
    """The sum and the number of all values."""

    def step(entry: Value, state: tuple[Var, ...]) -> None:
        values, active = entries.bring(entry)
        value = values[0].to(F64)
        k.set(state[0], state[0] + (value if active is None else select(active, value, 0.0)))
        if len(state) > 1:
            k.set(state[1], state[1] + (const(1, I64) if active is None else active.to(I64)))

    start: list[tuple[float, object]] = [(0.0, F64)] if algebra.known else [(0.0, F64), (0, I64)]
    total, *count = _joined(_in_lanes(k, entries, start, step), _added)
    return total, k.var("count", count[0] if count else const(entries.count, I64))


def prepare(writer: BlockWriter, group: Group) -> None:
    """Emit the states that the spans of a group are merged from."""
    for track in writer.plan.tracks(group):
        algebra = writer.plan.algebras[track]
        if algebra.monoid.guarded and is_long_sum(track.partial, group.schema):
            _guard(writer, track, group.length * algebra.per_entry)
        for length in sorted(writer.plan.read_lengths(track, group.length)):
            _ensure(writer, track, length)


def release(writer: BlockWriter, group: Group) -> None:
    """Release the memory of states without further readers."""
    for track in writer.plan.tracks(group):
        for length in writer.plan.read_lengths(track, group.length):
            _release(writer, track, length)


def _release(writer: BlockWriter, track: Track, length: int) -> None:
    writer.readers[track, length] -= 1
    if writer.readers[track, length] == 0:
        for array in writer.levels.pop((track, length), ()):
            writer.pool.give_back(array)


def states_at(writer: BlockWriter, group: Group, here: Here) -> list[Values]:
    """The states of all partials of a group at a place."""
    entry = _read_at(writer, group, here)
    found = []
    for partial, algebra in zip(group.partials, group.algebras, strict=True):
        if algebra.words:
            found.append(_state(writer, group.track(partial), group.length, entry))
        else:
            found.append(algebra.complete((), group.length))
    return found


def _read_at(writer: BlockWriter, group: Group, here: Here) -> Value:
    if group.lag == 0:
        return writer.entry(here, group.pane, group.shift)
    panes = group.every // group.pane
    window = writer.entry(here, group.every, group.shift)
    if group.every == group.pane:
        return window - 1
    absolute = (window + writer.base(group.every)) * panes
    return writer.k.var("pane", absolute - writer.base(group.pane) - 1)


# --- chains -------------------------------------------------------------------------------------------------


def _ensure(writer: BlockWriter, track: Track, length: int) -> None:
    """Compute the states of a length into memory, unless they exist or are read from entries directly."""
    if (track, length) in writer.levels or (length == 1 and _is_plain(writer, track)):
        return
    if length == 1 and track.pane > writer.plan.step(track.source):
        _panes(writer, track)
        return
    parts = {part.length for part in writer.plan.chains[track].get(length, ())}
    for part in sorted(parts):
        _ensure(writer, track, part)
    k = writer.k
    arrays = _arrays(writer, track, length)
    start, stop = writer.bounds(track.pane, writer.plan.level_needs[track, length])
    in_arrays = writer.brief and bool(parts) and all(_is_in_arrays(writer, track, part) for part in parts)
    with (
        writer.whole_turns(start, stop)
        if in_arrays
        else k.for_(start, stop, "e", brief=writer.brief) as entry
    ):
        state = _state(writer, track, length, entry)
        _keep(writer, track, arrays, entry, state)
    writer.levels[track, length] = arrays
    for part in parts:
        _release(writer, track, part)


def _is_in_arrays(writer: BlockWriter, track: Track, length: int) -> bool:
    """Whether states lie in arrays of the kernel, which may be read past their end, and not in samples."""
    if (track, length) in writer.levels:
        return True
    stored = writer.stored.get(track.source)
    made = isinstance(writer.plan.positions.program[track.source].body, Expression)
    return made and stored is not None and length == 1 and _is_plain(writer, track)


def _state(writer: BlockWriter, track: Track, length: int, entry: Value) -> Values:
    """Read or merge the state of a length of entries."""
    algebra = writer.plan.algebras[track]
    arrays = writer.levels.get((track, length))
    if arrays is not None:
        return algebra.complete(tuple(array[entry] for array in arrays), length)
    parts = writer.plan.chains[track].get(length)
    if parts is None:
        return _entry_state(writer, track, entry)
    states = [_state(writer, track, part.length, entry - part.back if part.back else entry) for part in parts]
    return algebra.merged(writer.k, states)


def _arrays(writer: BlockWriter, track: Track, length: int) -> list[Array]:
    need = writer.plan.level_needs[track, length]
    return [writer.array(track.pane, need, word) for word in writer.plan.algebras[track].words]


def _keep(writer: BlockWriter, track: Track, arrays: list[Array], entry: Value, state: Values) -> None:
    for array, word in zip(arrays, writer.plan.algebras[track].stored(state), strict=True):
        writer.k.store(array.buffer, array.place(entry), word)


# --- entries ------------------------------------------------------------------------------------------------


def _is_plain(writer: BlockWriter, track: Track) -> bool:
    """Whether an entry's state is cheap enough to be recomputed at every read."""
    algebra = writer.plan.algebras[track]
    whole = track.pane == writer.plan.step(track.source)
    return whole and algebra.known and all(isinstance(arg, ex.Column) for arg in track.partial.args)


def _entry_state(writer: BlockWriter, track: Track, entry: Value) -> Values:
    k, monoid = writer.k, writer.plan.algebras[track].monoid
    values, active = contribution(writer, track)(entry)
    if monoid.name == "plain_float_sum" and active is None:
        return (values[0].to(monoid.states[0].type),)
    identity = tuple(const(part.identity, part.type) for part in monoid.states)
    state = monoid.step(k, identity, values)
    return state if active is None else chosen(k.var("active", active), state, identity)


def contribution(writer: BlockWriter, track: Track) -> Callable[[Value], tuple[Values, Value | None]]:
    """The values that a sample adds to a state, and the condition under which it does."""
    schema = writer.plan.schemas[track.source]

    def at(entry: Value) -> tuple[Values, Value | None]:
        lowering = Lowering(
            writer.k, schema, lambda name: writer.cell(track.source, name, entry), writer.fail, no_text
        )
        partial = track.partial
        where: Cell | None = None if partial.where is None else lowering.lower(partial.where)
        cells = [lowering.lower(arg) for arg in partial.args]
        values, active = values_added(partial, cells, where)
        return values, conjunction(active, writer.sample(track.source, entry))

    return at


def _panes(writer: BlockWriter, track: Track) -> None:
    """Reduce the entries of each pane."""
    k, own = writer.k, writer.plan.step(track.source)
    entries_per_pane = track.pane // own
    arrays = _arrays(writer, track, 1)
    start, stop = writer.bounds(track.pane, writer.plan.level_needs[track, 1])
    algebra = writer.plan.algebras[track]
    lanes = 1 if writer.plan.edge else LANES  # edges are short: compile time dominates
    with k.for_(start, stop, "pane", scalar=True) as pane:
        first = k.var("first", (pane + writer.base(track.pane)) * entries_per_pane - writer.base(own))
        entries = Entries(first, entries_per_pane, contribution(writer, track), lanes)
        state = reduced(k, algebra, entries, track.partial.kind)
        _keep(writer, track, arrays, pane, state)
    writer.levels[track, 1] = arrays


def _guard(writer: BlockWriter, track: Track, samples: int) -> None:
    """Check the magnitude of 64-bit sums; where they might overflow, request a run with 128 bits."""
    k, plan = writer.k, writer.plan
    need, own = plan.needs[track.source], plan.step(track.source)
    start, stop = writer.bounds(own, need)
    largest = k.var("largest", 0, U64)
    with k.for_(start, stop, "e") as entry:
        values, active = contribution(writer, track)(entry)
        value = values[0]
        size = value if value.type == U64 else (value ^ (value >> 63)).to(U64)
        k.set(largest, largest | (size if active is None else size * active.to(U64)))
    with k.if_(largest >= const((1 << 63) // samples, U64)):
        k.set(writer.status, NEED_WIDE)

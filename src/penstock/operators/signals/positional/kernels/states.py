"""Emit the states of reductions: of entries, of panes, and of spans chained from them."""

from __future__ import annotations

from collections.abc import Callable

from penstock.algorithms.expressions.cells import Cell, conjunction
from penstock.algorithms.expressions.lowering import Lowering
from penstock.algorithms.monoids import Values
from penstock.algorithms.monoids.base import either as chosen
from penstock.algorithms.partials import values_added
from penstock.expr import nodes as ex
from penstock.ir.signals.nodes import Expression
from penstock.loop.abi import LANES, NEED_WIDE
from penstock.loop.nodes import I64, U64, Value, const
from penstock.operators.signals.positional.kernels.memory import Array
from penstock.operators.signals.positional.kernels.panes import Entries, reduced
from penstock.operators.signals.positional.kernels.plan import no_text
from penstock.operators.signals.positional.kernels.reductions import Group, Track, is_long_sum
from penstock.operators.signals.positional.kernels.writer import BlockWriter, Here


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


__all__ = ["I64", "prepare", "states_at"]

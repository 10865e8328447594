"""Build the stage of an incremental signal, and bind its kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.algorithms.kernel_factory import KernelFactory, once
from penstock.algorithms.keyed_states.table import KeyedCall
from penstock.expr import nodes as ex
from penstock.ir.nodes import Reduction
from penstock.ir.signals import nodes as temporal
from penstock.ir.signals.scope import reduced_type, scope
from penstock.loop.abi import numbered
from penstock.loop.nodes import I64, Type
from penstock.operators.signals.accesses import SignalAccess, SpanReading
from penstock.operators.signals.build_reductions import span_reading
from penstock.operators.signals.incremental.kernels.events import events
from penstock.operators.signals.incremental.kernels.memory import (
    ENTERS,
    LEAVES,
    PER,
    ROLLING,
    WINDOW,
    Cursor,
    EventSpec,
    IncrementalAccess,
    IncrementalReduction,
    SpanSpec,
)
from penstock.operators.signals.incremental.samples import HeldAccess, Moves
from penstock.operators.signals.incremental.stage import RESTORING
from penstock.operators.signals.sampling import stored
from penstock.runtime.kernels import Call, TextKernels
from penstock.types.time import Time


@dataclass(frozen=True)
class TrackRows:
    """A sampled object, and the rows that enter its track."""

    this: temporal.Object
    schema: pa.Schema
    time: Time

    @property
    def hold(self) -> temporal.Hold:
        assert isinstance(self.this.body, temporal.Sampled)
        return self.this.body.hold


@dataclass
class Cursors:
    """The cursors of a signal; those that pass the same samples at the same instants are one."""

    found: list[tuple[Cursor, int]] = field(default_factory=list)

    def add(self, cursor: Cursor, offset: int = 0) -> int:
        if (cursor, offset) not in self.found:
            self.found.append((cursor, offset))
        return self.found.index((cursor, offset))


@dataclass
class EventProgram:
    """The kernels of an expression over samples, built on demand (the driver's `SignalKernels`)."""

    name: str
    spec: EventSpec
    moves: Moves
    kernel_factory: KernelFactory
    _kernels: dict[tuple[frozenset[str], str], KeyedCall] = field(default_factory=dict)

    @property
    def keys(self) -> tuple[pa.Field, ...]:
        return tuple(self.spec.keys)

    @property
    def columns(self) -> tuple[str, ...]:
        return ()

    @property
    def states(self) -> tuple[Type, ...]:
        return ()

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return tuple(self.spec.result.types)

    @property
    def index(self) -> Call | None:
        return self.kernel_factory.index(len(self.spec.keys)) if len(self.spec.keys) else None

    @property
    def texts(self) -> TextKernels:
        return self.kernel_factory.texts

    @property
    def cells(self) -> Mapping[str, tuple[Type, ...]]:
        return self._cells

    @property
    def samples(self) -> Sequence[Mapping[str, Type]]:
        return self._samples

    def __post_init__(self) -> None:
        self._cells, self._samples = self.spec.cells, _sample_cells(self.spec)

    def kernel(self, nullable: frozenset[str], variant: str) -> KeyedCall:
        return once(self._kernels, (nullable, variant), lambda: self._compiled(nullable, variant))

    def _compiled(self, nullable: frozenset[str], variant: str) -> KeyedCall:
        spec, track = self.spec, int(variant) if variant.isdigit() else 0
        applies, silent = not variant.isdigit(), variant == RESTORING
        made = events(spec, nullable, track, time=applies, silent=silent)
        call = self.kernel_factory.call((spec, nullable, variant), lambda: made.kernel)
        return KeyedCall(call, made.bindings, made.outputs)


def _sample_cells(spec: EventSpec) -> list[Mapping[str, Type]]:
    """The cells of samples of each track, by the names that the kernel's builder gives its parameters."""
    found: list[Mapping[str, Type]] = []
    values, stacks, suffixes = 0, 0, 0
    for track in range(len(spec.rows)):
        own: dict[str, Type] = {numbered("sample_key", track): I64, numbered("sample_time", track): I64}
        types = spec.sample_cells(track)
        for hint, several in types.items():
            own |= {numbered(hint, values + place): type for place, type in enumerate(several)}
        values += len(types["sample_value"])
        found.append(own)
    for place, span in enumerate(spec.spans):
        suffix = spec.suffix_cells(place)
        if suffix:
            linked = {numbered("following", stacks): I64, numbered("previous", stacks): I64}
            states = {numbered("suffix", suffixes + n): type for n, type in enumerate(suffix)}
            found[span.track] = {**found[span.track], **linked, **states}
            stacks, suffixes = stacks + 1, suffixes + len(suffix)
    return found


def event_program(
    name: str,
    program: temporal.Program,
    tracks: Sequence[TrackRows],
    accesses: Sequence[SignalAccess],
    ends: bool,
    kernel_factory: KernelFactory,
) -> EventProgram:
    """Return the kernels of a program, which is one expression over sampled objects."""
    output = program[program.output]
    body = output.body
    assert isinstance(body, temporal.Expression)
    places = {track.this.name: place for place, track in enumerate(tracks)}
    cursors = Cursors()
    read = {n.index for f in body.fields for n in ex.walk(f.expr) if isinstance(n, ex.Reduced)}
    readings = tuple(
        dict.fromkeys(span_reading(over) for number, over in enumerate(body.reductions) if number in read)
    )
    spans = tuple(_span(place, reading, places, cursors) for place, reading in enumerate(readings))
    held = [access for access in accesses if access.columns]
    specs = tuple(_access(access, tracks[places[access.source]], places, cursors) for access in held)
    schemas = {obj.name: obj.schema for obj in program.objects}
    types = tuple(reduced_type(over, schemas[over.source]) for over in body.reductions)
    spec = EventSpec(
        program.keys,
        tuple(track.time for track in tracks),
        tuple(track.schema for track in tracks),
        tuple(track.this.schema for track in tracks),
        tuple(tuple(map(stored, track.this.schema.names)) for track in tracks),
        tuple(cursor for cursor, _ in cursors.found),
        specs,
        spans,
        tuple(
            _reduction(over, types[number], readings) if number in read else None
            for number, over in enumerate(body.reductions)
        ),
        types,
        body.fields,
        pa.schema(list(scope(body, schemas))),
        output.schema,
        ends,
    )
    moves = Moves(
        tuple(cursor.track for cursor, _ in cursors.found),
        tuple(offset for _, offset in cursors.found),
        readings,
        tuple(dict.fromkeys(map(span_reading, body.reductions))),
        tuple(access.shift for access in accesses),
        tuple(
            HeldAccess(spec_.track, spec_.cursor, tuple(stored(column) for _, column in spec_.columns))
            for spec_ in specs
        ),
    )
    return EventProgram(name, spec, moves, kernel_factory)


def _span(place: int, reading: SpanReading, places: Mapping[str, int], cursors: Cursors) -> SpanSpec:
    track = places[reading.source]
    if reading.kind == ROLLING:
        enters = cursors.add(Cursor(track), reading.delay)
        leaves = cursors.add(Cursor(track), reading.delay + reading.size)
        return SpanSpec(ROLLING, track, enters, leaves)
    kind = WINDOW if reading.kind == WINDOW else PER
    return SpanSpec(
        kind, track, cursors.add(Cursor(track, ENTERS, place)), cursors.add(Cursor(track, LEAVES, place))
    )


def _access(
    access: SignalAccess, rows: TrackRows, places: Mapping[str, int], cursors: Cursors
) -> IncrementalAccess:
    track, lasting = places[access.source], rows.hold.lasting
    cursor = cursors.add(Cursor(track), access.shift)
    expires = None if lasting is None else cursors.add(Cursor(track), access.shift + lasting)
    return IncrementalAccess(track, cursor, access.columns, expires)


def _reduction(
    over: temporal.WindowReduction, dtype: pa.DataType, readings: Sequence[SpanReading]
) -> IncrementalReduction:
    reduction = Reduction(over.function, over.args, over.where, over.options)
    return IncrementalReduction(reduction, dtype, readings.index(span_reading(over)))

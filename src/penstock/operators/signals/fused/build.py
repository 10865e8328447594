"""Bind temporal expressions over stored times to one fused kernel: its tracks, cursors and assumptions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.algorithms.kernel_factory import KernelFactory
from penstock.algorithms.sorted_partitions.build import QUESTIONS
from penstock.expr import nodes as ex
from penstock.ir.nodes import Reduction
from penstock.ir.signals import nodes as temporal
from penstock.ir.signals.nodes import at
from penstock.ir.signals.scope import reduced_type, scope
from penstock.loop.numbers import machine_type
from penstock.operators.signals.accesses import SignalAccess, SpanReading
from penstock.operators.signals.build_reductions import span_reading
from penstock.operators.signals.fused.driver import (
    ALL_MARKS,
    CHANGES,
    NO_MARKS,
    SOME_MARKS,
    FusedCall,
    FusedStep,
    PointTrack,
    TrackFacts,
)
from penstock.operators.signals.fused.kernels.changes import (
    EVER,
    GRIDS,
    LAST,
    PER,
    ROLLING,
    WINDOW,
    AccessSpec,
    ChangesSpec,
    FusedSpec,
    ReductionSpec,
    Span,
)
from penstock.operators.signals.fused.kernels.kernel import (
    PREFIX_SUMS,
    RECOMPUTE,
    SIGNAL_ALGORITHMS,
    build_fused,
)
from penstock.operators.signals.objects import BEGINNING_OF_KEYS, ObjectStep
from penstock.physical.choose_window import FRAME_ENDS
from penstock.runtime.kernels import OutputCall


@dataclass(frozen=True)
class FusedExpression:
    """An expression that one kernel can compute, with the further accesses that only contribute marks."""

    this: temporal.Object
    body: temporal.Expression
    program: temporal.Program
    accesses: tuple[SignalAccess, ...]
    algorithms: tuple[str | None, ...]

    @property
    def schemas(self) -> dict[str, pa.Schema]:
        return {obj.name: obj.schema for obj in self.program.objects}

    @property
    def lenient(self) -> bool:
        """Whether the expression has a value where all its inputs are null."""
        return any(access.source == BEGINNING_OF_KEYS for access in self.accesses)

    @property
    def spans(self) -> tuple[SpanReading, ...]:
        return tuple(dict.fromkeys(span_reading(reduction) for reduction in self.body.reductions))

    @property
    def sources(self) -> tuple[str, ...]:
        read = [*(access.source for access in self.accesses), *(span.source for span in self.spans)]
        return tuple(dict.fromkeys(read))

    def step(
        self, kernel_factory: KernelFactory, threads: int, staged: Callable[[], ObjectStep], *, sampled: bool
    ) -> FusedStep:
        """Return the step; a run builds its kernels once the facts about the data are known."""

        def call(facts: tuple[TrackFacts, ...], writes: str) -> FusedCall:
            return _Variant(self, dict(zip(self.sources, facts, strict=True)), writes).call(kernel_factory)

        columns = tuple(zip(self.this.schema.names, self.this.schema.types, strict=True))
        return FusedStep(self.accesses, self.spans, self.sources, columns, call, staged, threads, sampled)

    def show(self, kernel_factory: KernelFactory, writes: str) -> None:
        """Build the kernel for the common case: all points are samples, and none is null."""
        usual = TrackFacts(True, ALL_MARKS, frozenset(), frozenset())
        _Variant(self, dict.fromkeys(self.sources, usual), writes).call(kernel_factory)

    def reductions(self) -> tuple[ReductionSpec, ...]:
        spans, schemas = self.spans, self.schemas
        return tuple(
            ReductionSpec(
                Reduction(reduction.function, reduction.args, reduction.where, reduction.options),
                reduced_type(reduction, schemas[reduction.source]),
                spans.index(span_reading(reduction)),
                algorithm,
            )
            for reduction, algorithm in zip(self.body.reductions, self.algorithms, strict=True)
        )


def fused_expression(
    this: temporal.Object,
    program: temporal.Program,
    accesses: Sequence[SignalAccess],
    chosen: tuple[str, ...],
) -> FusedExpression | None:
    """Return an expression in a form that one kernel computes, or None if that is impossible.

    `chosen` holds the algorithms of its reductions. All columns must be machine values, and all reductions must have states of fixed size. Objects whose intervals may
    overlap are excluded: they have no single point at a time.
    """
    body = this.body
    assert isinstance(body, temporal.Expression)
    sources = {access.source for access in accesses} | {reduction.source for reduction in body.reductions}
    known = [obj for obj in program.objects if obj.name in sources]
    if any(machine_type(t) is None for known_object in (this, *known) for t in known_object.schema.types):
        return None
    read = {n.index for f in body.fields for n in ex.walk(f.expr) if isinstance(n, ex.Reduced)}
    reduced = [reduction for number, reduction in enumerate(body.reductions) if number in read]
    if any(_overlaps(known_object) for known_object in known) or any(
        reduction.function in _OTHERS for reduction in reduced
    ):
        return None
    algorithms = tuple(
        _algorithm(reduction, algorithm) if number in read else None
        for number, (reduction, algorithm) in enumerate(zip(body.reductions, chosen, strict=True))
    )
    if not all(algorithm in (None, PREFIX_SUMS, *SIGNAL_ALGORITHMS) for algorithm in algorithms):
        return None
    return FusedExpression(this, body, program, tuple(accesses), algorithms)


_OTHERS = QUESTIONS | {"first", "last", "list"}


def _overlaps(this: temporal.Object) -> bool:
    return isinstance(this.body, temporal.Sampled) and this.body.hold.until is not None


def _algorithm(over: temporal.WindowReduction, chosen: str) -> str:
    """Return the algorithm; recompute windows that do not overlap, and counts of rows, which are free."""
    return RECOMPUTE if isinstance(over.span, temporal.Per) or chosen == FRAME_ENDS else chosen


@dataclass
class _Variant:
    """The builder of one kernel variant, with deduplicated tracks and cursors."""

    of: FusedExpression
    facts: dict[str, TrackFacts]
    writes: str
    tracks: list[PointTrack] = field(default_factory=list)
    cursors: list[tuple[int, int]] = field(default_factory=list)
    marking: list[bool] = field(default_factory=list)

    def call(self, kernel_factory: KernelFactory) -> FusedCall:
        accesses = [
            self._access(number, access)
            for number, access in enumerate(self.of.accesses)
            if self._counts(number)
        ]
        spans = [self._span(span) for span in self.of.spans]
        fused = FusedSpec(
            ChangesSpec(
                tuple(self._marks(track) for track in self.tracks),
                tuple(track for track, _ in self.cursors),
                tuple(self.marking),
                tuple(spans),
            ),
            tuple(self.of.schemas.get(track.source, pa.schema([])) for track in self.tracks),
            tuple(self._nullable(track) for track in self.tracks),
            tuple(accesses),
            self.of.reductions(),
            self.of.body.fields,
            pa.schema(list(scope(self.of.body, self.of.schemas))),
            self.writes,
        )
        return self._made(fused, kernel_factory, spans)

    def _made(self, fused: FusedSpec, kernel_factory: KernelFactory, spans: list[Span]) -> FusedCall:
        made = build_fused(fused)
        call = kernel_factory.call(fused, lambda: made.kernel)
        return FusedCall(
            OutputCall(call, made.outputs, ()),
            tuple(self.tracks),
            tuple(marks == SOME_MARKS for marks in fused.changes.tracks),
            tuple(self.cursors),
            tuple(
                (span.track, over.size, over.step, over.delay, span.kind in GRIDS)
                for span, over in zip(spans, self.of.spans, strict=True)
            ),
            made.bindings,
            tuple((scratch.buffer.name, scratch.buffer.type) for scratch in made.scratch),
            any(span.kind == WINDOW for span in spans),
        )

    def _counts(self, number: int) -> bool:
        """Return whether the kernel needs an access. The last accesses only contribute marks and change no value.

        A lenient object needs them all: it begins with the first mark of its inputs, which may precede the first
        sample.
        """
        return self.writes != CHANGES or number < len(self.of.body.accesses) or self.of.lenient

    def _marks(self, track: PointTrack) -> str:
        return NO_MARKS if track.samples else self.facts[track.source].marks

    def _nullable(self, track: PointTrack) -> frozenset[str]:
        facts = self.facts[track.source]
        return facts.sampled if track.samples else facts.nullable

    def _track(self, source: str, samples: bool) -> int:
        track = PointTrack(source, samples and not self.facts[source].alike)
        if track not in self.tracks:
            self.tracks.append(track)
        return self.tracks.index(track)

    def _cursor(self, track: int, offset: int, marking: bool = False) -> int:
        if (track, offset) not in self.cursors:
            self.cursors.append((track, offset))
            self.marking.append(False)
        found = self.cursors.index((track, offset))
        self.marking[found] |= marking
        return found

    def _access(self, number: int, access: SignalAccess) -> AccessSpec:
        track = self._track(access.source, samples=False)
        marking = self.facts[access.source].marks != NO_MARKS
        names = tuple(column for name, column in access.columns if name == at(number, column))
        return AccessSpec(self._cursor(track, access.shift, marking), track, names, self._always(access))

    def _always(self, access: SignalAccess) -> bool:
        """Return whether an access has a point at every instant: it has the only source and the least offset."""
        offsets = [*(access.shift for access in self.of.accesses), *(span.delay for span in self.of.spans)]
        return (
            len(self.of.sources) == 1
            and access.shift == min(offsets)
            and not any(span.kind in GRIDS for span in self.of.spans)
        )

    def _span(self, span: SpanReading) -> Span:
        track = self._track(span.source, samples=True)
        match span.kind:
            case "rolling":
                enter, leave = self._cursor(track, span.delay), self._cursor(track, span.delay + span.size)
                return Span(ROLLING, track, enter, leave)
            case "last" | "ever" as kind:
                return Span(LAST if kind == LAST else EVER, track, self._cursor(track, span.delay))
            case kind:
                return Span(WINDOW if kind == WINDOW else PER, track)

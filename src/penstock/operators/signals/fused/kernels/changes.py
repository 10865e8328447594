"""The specialisation of an expression's kernel, and the instants at which its inputs change, a block at a time.

A *track* is the points or samples of a signal, partitioned by key (a partition is a `partition`) and sorted by time. A
*cursor* is a position on a track that passes each of its times `offset` ticks later. An access is one cursor. A span
in time is two cursors, at which samples enter and leave. Cursors that always move together are shared. Nothing changes
between two instants.

A cursor passes at most one time of its track at an instant, so it moves without a branch: the order in which cursors
move is unpredictable. Grids move rarely, and by many samples at once.

The positions at each instant are written to buffers of one block, which stay in the cache; `consume` reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from penstock.algorithms.sliding.slide import SlideScratch
from penstock.expr import nodes as ex
from penstock.ir.nodes import Reduction
from penstock.loop.abi import Binding, OutputColumn
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, I64, U8, Buffer, Kernel, Value, Var, const, maximum, minimum, select

INSTANTS_PER_BLOCK = 512
NEVER_AGAIN = (1 << 63) - 1
FIRST = -(1 << 62)  # before any instant of a walk

# Only ROLLING spans end by a cursor: LAST is the last n samples, EVER all samples, WINDOW and PER are on a grid.
ROLLING, LAST, EVER, WINDOW, PER = "rolling", "last", "ever", "window", "per"
GRIDS = (WINDOW, PER)

# Which points of a track are marks.
ALL_MARKS, SOME_MARKS, NO_MARKS = "all", "some", "none"


@dataclass(frozen=True, slots=True)
class Span:
    """A span of samples of a track: `enter` and `leave` are its cursors, or None if the kind has none."""

    kind: str
    track: int
    enter: int | None = None
    leave: int | None = None


@dataclass(frozen=True, slots=True)
class ChangesSpec:
    """The kernel's inputs: the marks of each track, the track of each cursor and whether its marks count, and spans."""

    tracks: tuple[str, ...]
    cursors: tuple[int, ...]
    marking: tuple[bool, ...]
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class _Partition:
    """A track's rows of one partition. `last` is a readable position even if the partition is empty."""

    times: Buffer
    begin: Var
    end: Var
    last: Var


@dataclass(frozen=True)
class _Cursor:
    """A position on a track: `at` relative to `base`, with its next instant in `when`.

    `ahead` holds the block's times from `base` on, terminated by "never", so a step needs no bounds check. Each step
    adds the offset to the load: LLVM would fold a bare load into the select and turn that into a branch.
    """

    ahead: Buffer
    base: Var
    at: Var
    when: Var


@dataclass(frozen=True)
class _Grid:
    lo: Var
    hi: Var
    when: Var


Consume = Callable[[Var, Var], None]


class Changes:
    """The loop over instants, emitted into a kernel: `partitions` calls back once per partition and once per block."""

    def __init__(self, k: KernelBuilder, spec: ChangesSpec) -> None:
        self.k, self.spec = k, spec
        self.partition_lo, self.partition_hi = k.scalar("partition_lo"), k.scalar("partition_hi")
        self.since, self.before = k.scalar("since"), k.scalar("before")
        self.times = [k.buffer("times", I64) for _ in spec.tracks]
        self.bounds = [k.buffer("bounds", I64) for _ in spec.tracks]
        self.marks = [k.buffer("marks", U8) if track == SOME_MARKS else None for track in spec.tracks]
        self.offsets = [k.scalar("offset") for _ in spec.cursors]
        self.sizes = [k.scalar("size") for _ in spec.spans]
        self.steps = [k.scalar("step") if span.kind in GRIDS else None for span in spec.spans]
        self.delays = [k.scalar("delay") if span.kind in GRIDS else None for span in spec.spans]
        self.instants, self.marked = (
            k.local("instant", I64, INSTANTS_PER_BLOCK),
            k.local("mark", U8, INSTANTS_PER_BLOCK),
        )
        self.places = [k.local("place", I64, INSTANTS_PER_BLOCK) for _ in spec.cursors]
        self.ahead = [k.local("ahead", I64, INSTANTS_PER_BLOCK + 2) for _ in spec.cursors]
        self._bounds = [self._span_buffers(span) for span in spec.spans]
        self.begins: list[Var] = []

    def _span_buffers(self, span: Span) -> tuple[Buffer, Buffer]:
        """Return the buffers of a span's bounds; bounds given by cursors share the cursors' buffers."""
        k = self.k
        hi = self.places[span.enter] if span.enter is not None else k.local("hi", I64, INSTANTS_PER_BLOCK)
        lo = self.places[span.leave] if span.leave is not None else k.local("lo", I64, INSTANTS_PER_BLOCK)
        return lo, hi

    def frames(self, span: int) -> tuple[Buffer, Buffer]:
        """Return the buffers with a span's first sample, and the one after its last, at each instant of the block."""
        return self._bounds[span]

    def partitions(self, start: Callable[[Var], None], consume: Consume) -> None:
        """Emit the loop over partitions: `start(partition)` begins one, `consume(partition, n)` processes a block of n instants."""
        k = self.k
        with k.for_(self.partition_lo, self.partition_hi, "partition", scalar=True) as partition:
            tracks = [self._track(place, partition) for place in range(len(self.spec.tracks))]
            self.begins = [track.begin for track in tracks]
            start(partition)
            cursors = [self._cursor(place, tracks) for place in range(len(self.spec.cursors))]
            grids = {
                place: self._grid(place, tracks[span.track])
                for place, span in enumerate(self.spec.spans)
                if span.kind in GRIDS
            }
            now, n = k.var("now", FIRST), k.var("n", 0)
            with k.while_(now < self.before):
                for place, cursor in enumerate(cursors):
                    self._read_ahead(place, tracks, cursor)
                k.set(now, self._soonest(cursors, grids))
                k.set(n, 0)
                with k.while_((now < self.before) & (n < INSTANTS_PER_BLOCK)):
                    self._instant(tracks, cursors, grids, now, n)
                    k.set(n, n + 1)
                    k.set(now, self._soonest(cursors, grids))
                with k.if_(n > 0):
                    self._place(cursors, n)
                    consume(partition, n)

    def _track(self, place: int, partition: Var) -> _Partition:
        k, bounds = self.k, self.bounds[place]
        begin, end = k.var("begin", bounds[partition]), k.var("end", bounds[partition + 1])
        return _Partition(self.times[place], begin, end, k.var("last", maximum(end - 1, 0)))

    def _instant(
        self, tracks: list[_Partition], cursors: list[_Cursor], grids: dict[int, _Grid], now: Var, n: Var
    ) -> None:
        """Advance cursors and grids past `now`, and write all positions."""
        k = self.k
        mark = k.var("mark", False, BOOL)
        for place, cursor in enumerate(cursors):
            self._pass(place, tracks[self.spec.cursors[place]], cursor, now, mark)
            k.store(self.places[place], n, cursor.at)
        for place, grid in grids.items():
            with k.if_(grid.when <= now):
                self._move_grid(place, tracks[self.spec.spans[place].track], grid, now, mark)
            lo, hi = self._bounds[place]
            k.store(lo, n, grid.lo)
            k.store(hi, n, grid.hi)
        k.store(self.instants, n, now)
        k.store(self.marked, n, mark.to(U8))

    # -- cursors -------------------------------------------------------------------------------------

    def _cursor(self, place: int, tracks: list[_Partition]) -> _Cursor:
        k, track = self.k, tracks[self.spec.cursors[place]]
        at = k.var("at", track.begin)
        with k.if_(self.since > FIRST):
            self._seek(track, at, self.since - self.offsets[place])
        return _Cursor(self.ahead[place], at, k.var("at", 0), k.var("when", NEVER_AGAIN))

    def _read_ahead(self, place: int, tracks: list[_Partition], cursor: _Cursor) -> None:
        """Copy the next times of a track: a cursor passes at most one per instant of a block."""
        k, track, offset = self.k, tracks[self.spec.cursors[place]], self.offsets[place]
        k.set(cursor.base, cursor.base + cursor.at)
        k.set(cursor.at, 0)
        many = k.var("many", minimum(track.end - cursor.base, INSTANTS_PER_BLOCK + 1))
        with k.for_(0, many, "i") as i:
            k.store(cursor.ahead, i, track.times[cursor.base + i])
        k.store(cursor.ahead, many, const(NEVER_AGAIN, I64) - offset)
        k.set(cursor.when, cursor.ahead[0] + offset)

    def _place(self, cursors: list[_Cursor], n: Var) -> None:
        """Convert positions relative to the block to positions on tracks."""
        k = self.k
        with k.for_(0, n, "i") as i:
            for place, cursor in enumerate(cursors):
                k.store(self.places[place], i, self.places[place][i] + cursor.base)
            for place, span in enumerate(self.spec.spans):
                if span.kind in (LAST, EVER):
                    self._write_first(place, span, i)

    def _write_first(self, place: int, span: Span, i: Var) -> None:
        """Write the first sample of a LAST or EVER span."""
        lo, hi = self._bounds[place]
        first: Value = self.begins[span.track]
        if span.kind == LAST:
            first = maximum(first, hi[i] - self.sizes[place])
        self.k.store(lo, i, first)

    def _seek(self, track: _Partition, at: Var, time: Value) -> None:
        """Move `at` to the first position with a time not before `time`, by binary search."""
        k = self.k
        wanted, upto = k.var("wanted", time), k.var("upto", track.end)
        with k.while_(at < upto):
            middle = k.var("middle", (at + upto) >> 1)
            earlier = k.var("earlier", track.times[middle] < wanted)
            k.set(at, select(earlier, middle + 1, at))
            k.set(upto, select(earlier, upto, middle))

    def _pass(self, place: int, track: _Partition, cursor: _Cursor, now: Var, mark: Var) -> None:
        k = self.k
        due = k.var("due", cursor.when.eq(now))
        if self.spec.marking[place]:
            counts: Value = due
            marks = self.marks[self.spec.cursors[place]]
            if marks is not None:
                counts = due & marks[minimum(cursor.base + cursor.at, track.last)].ne(0)
            k.set(mark, mark | counts)
        following = cursor.ahead[cursor.at + 1] + self.offsets[place]
        k.set(cursor.when, select(due, following, cursor.when))
        k.set(cursor.at, cursor.at + due.to(I64))

    # -- grids ---------------------------------------------------------------------------------------

    def _grid(self, place: int, track: _Partition) -> _Grid:
        k = self.k
        grid = _Grid(k.var("lo", track.begin), k.var("hi", track.begin), k.var("when", NEVER_AGAIN))
        with k.if_(track.begin < track.end):
            k.set(grid.when, self._enters(place, track.times[track.begin]))
        with k.if_((self.since > FIRST) & (grid.when < self.since)):
            passed = k.var("passed", False, BOOL)
            self._move_grid(place, track, grid, k.var("before", self.since - 1), passed)
        return grid

    def _parameters(self, place: int) -> tuple[Var, Var]:
        step, delay = self.steps[place], self.delays[place]
        assert step is not None and delay is not None
        return step, delay

    def _enters(self, place: int, time: Value) -> Value:
        """Return the instant at which a sample of this time enters a window."""
        step, delay = self._parameters(place)
        start = self._floor(time, step) + delay
        return start + step if self.spec.spans[place].kind == WINDOW else start

    def _move_grid(self, place: int, track: _Partition, grid: _Grid, now: Var, mark: Var) -> None:
        """Advance to the window that contains `now`."""
        k = self.k
        step, delay = self._parameters(place)
        start = k.var("start", self._floor(now - delay, step))
        hop = self.spec.spans[place].kind == WINDOW
        oldest = k.var("oldest", start - self.sizes[place] if hop else start)
        newest = k.var("newest", start if hop else start + step)
        if not hop:  # all samples of a window leave when the next begins
            k.set(grid.lo, grid.hi)
        self._skip(track, grid.lo, oldest)
        k.set(grid.hi, maximum(grid.hi, grid.lo))
        self._skip(track, grid.hi, newest)
        holds = k.var("holds", grid.lo < grid.hi)
        k.set(mark, mark | (holds & now.eq(start + delay)))
        k.set(grid.when, NEVER_AGAIN)
        with k.if_(holds):
            k.set(grid.when, start + step + delay)
        with k.else_(), k.if_(grid.hi < track.end):
            k.set(grid.when, self._enters(place, track.times[grid.hi]))

    def _skip(self, track: _Partition, at: Var, time: Var) -> None:
        k = self.k
        with k.while_((at < track.end) & (track.times[minimum(at, track.last)] < time)):
            k.set(at, at + 1)

    def _floor(self, time: Value, step: Value) -> Value:
        """Return the last multiple of a step up to a time, which may be negative."""
        rest = self.k.var("rest", time.rem(step))
        return time - rest - select(rest < 0, step, 0)

    def _soonest(self, cursors: list[_Cursor], grids: dict[int, _Grid]) -> Value:
        whens = [*(cursor.when for cursor in cursors), *(grid.when for grid in grids.values())]
        soonest: Value = whens[0]
        for other in whens[1:]:
            soonest = minimum(soonest, other)
        return soonest


INSTANTS, CHANGES, SAMPLES = "instants", "changes", "samples"


@dataclass(frozen=True)
class AccessSpec:
    """The value of a track before a cursor: `columns` are those that fields read; `always`: the value exists."""

    cursor: int
    track: int
    columns: tuple[str, ...]
    always: bool


@dataclass(frozen=True)
class ReductionSpec:
    """A reduction over a span and its algorithm: None if its result is not read."""

    reduction: Reduction
    type: pa.DataType
    span: int
    algorithm: str | None


@dataclass(frozen=True)
class FusedSpec:
    """The specialisation of the kernel. `schemas` and `nullable` are of tracks; `scope` is what fields read.

    `writes` selects the instants: all; the changes, without instants whose value equals the previous one and
    those before the partition's `emitted`; or the samples alone.
    """

    changes: ChangesSpec
    schemas: tuple[pa.Schema, ...]
    nullable: tuple[frozenset[str], ...]
    accesses: tuple[AccessSpec, ...]
    reductions: tuple[ReductionSpec, ...]
    fields: tuple[ex.Field, ...]
    scope: pa.Schema
    writes: str


@dataclass(frozen=True)
class FusedKernel:
    """The kernel, the bindings of each track's columns, the columns it writes, and its scratch memory."""

    kernel: Kernel
    bindings: tuple[tuple[Binding, ...], ...]
    outputs: tuple[OutputColumn, ...]
    scratch: tuple[SlideScratch, ...]

"""The kernels that list the instants at which an expression's inputs change, and sample a signal at a list of instants.

The loop counter jumps to the next instant at which a point of an access begins, or a sample enters or leaves a span.
Nothing changes in between. For each instant the kernel writes the time, whether it is a mark, the point of each access,
and the samples of each span as a frame of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I64, U8, Buffer, Kernel, Value, Var, maximum, minimum, select

NEVER_AGAIN = (1 << 63) - 1

# How samples enter and leave: ROLLING by time, EVER all samples, LAST the last n samples, WINDOW and PER on a grid.
ROLLING, EVER, LAST, WINDOW, PER = "rolling", "ever", "last", "window", "per"


@dataclass(frozen=True, slots=True)
class WalkSpec:
    """The number of accesses, and the kinds of spans."""

    accesses: int
    spans: tuple[str, ...]


@dataclass(frozen=True)
class _Cursor:
    """A position in a sorted list of times: the next element, the end, and the instant of the next element."""

    times: Buffer
    at: Var
    end: Var
    when: Var


def walk(spec: WalkSpec) -> Kernel:
    """Build the kernel for the partitions `partition_lo` … `partition_hi` and the instants from `since` to `before`.

    With `emit` 0 it only counts. It returns the number of instants. Changes before `since` are skipped: the positions
    at an instant depend only on times, so the loop can begin anywhere.
    """
    return _Walk(spec).build()


class _Walk:
    def __init__(self, spec: WalkSpec) -> None:
        self.spec = spec
        self.k = k = KernelBuilder("walk")
        self.partition_lo, self.partition_hi, self.emit = (
            k.scalar("partition_lo"),
            k.scalar("partition_hi"),
            k.scalar("emit"),
        )
        self.since, self.before = k.scalar("since"), k.scalar("before")
        self.times = [k.buffer("times", I64) for _ in range(spec.accesses)]
        self.marks = [k.buffer("marks", U8) for _ in range(spec.accesses)]
        self.bounds = [k.buffer("bounds", I64) for _ in range(spec.accesses)]
        self.shifts = [k.scalar("shift") for _ in range(spec.accesses)]
        self.samples = [k.buffer("samples", I64) for _ in spec.spans]
        self.sample_bounds = [k.buffer("sample_bounds", I64) for _ in spec.spans]
        self.delays = [k.scalar("delay") for _ in spec.spans]
        self.sizes = [k.scalar("size") for _ in spec.spans]
        self.steps = [k.scalar("step") for _ in spec.spans]
        self.out_times, self.out_marks = k.buffer("out_times", I64), k.buffer("out_marks", U8)
        self.out_bounds = k.buffer("out_bounds", I64)
        self.out_points = [k.buffer("out_point", I64) for _ in range(spec.accesses)]
        self.out_lo = [k.buffer("out_lo", I64) for _ in spec.spans]
        self.out_hi = [k.buffer("out_hi", I64) for _ in spec.spans]

    def build(self) -> Kernel:
        k = self.k
        done = k.var("done", 0)
        with k.for_(self.partition_lo, self.partition_hi, "partition", scalar=True) as partition:
            self._partition(partition, done)
            with k.if_(self.emit.ne(0)):
                k.store(self.out_bounds, partition + 1, done)
        k.ret(done)
        return k.build()

    def _partition(self, partition: Var, done: Var) -> None:
        k = self.k
        begins = [k.var("begin", bounds[partition]) for bounds in self.bounds]
        points = [
            self._cursor(times, begin, k.var("end", bounds[partition + 1]), shift)
            for times, begin, bounds, shift in zip(self.times, begins, self.bounds, self.shifts, strict=True)
        ]
        firsts = [k.var("first", bounds[partition]) for bounds in self.sample_bounds]
        spans = [self._span(place, first, partition) for place, first in enumerate(firsts)]
        self.grids = {
            place: k.var("grid", NEVER_AGAIN) for place, kind in enumerate(self.spec.spans) if kind == WINDOW
        }
        now = k.var("now", self.since - 1)
        passed = k.var("passed", 0, U8)
        for place, point in enumerate(points):
            with k.while_(point.when <= now):
                self._move(place, point)
        for place, (enter, leave) in enumerate(spans):
            self._pass_samples(place, enter, leave, now, passed)
        k.set(now, self._soonest(points, spans))
        with k.while_(now < self.before):
            mark = k.var("mark", 0, U8)
            for place, point in enumerate(points):
                self._pass_point(place, point, now, mark)
            for place, (enter, leave) in enumerate(spans):
                self._pass_samples(place, enter, leave, now, mark)
            with k.if_(self.emit.ne(0)):
                self._write(done, now, mark, list(zip(points, begins, strict=True)), spans)
            k.set(done, done + 1)
            k.set(now, self._soonest(points, spans))

    # -- points --------------------------------------------------------------------------------------

    def _cursor(self, times: Buffer, at: Value, end: Var, shift: Value) -> _Cursor:
        k = self.k
        place, when = k.var("at", at), k.var("when", NEVER_AGAIN)
        with k.if_(place < end):
            k.set(when, times[place] + shift)
        return _Cursor(times, place, end, when)

    def _pass_point(self, place: int, point: _Cursor, now: Var, mark: Var) -> None:
        k = self.k
        with k.if_(point.when.eq(now)):
            k.set(mark, mark | self.marks[place][point.at])
            self._move(place, point)

    def _move(self, place: int, point: _Cursor) -> None:
        k = self.k
        k.set(point.at, point.at + 1)
        k.set(point.when, NEVER_AGAIN)
        with k.if_(point.at < point.end):
            k.set(point.when, point.times[point.at] + self.shifts[place])

    # -- spans ---------------------------------------------------------------------------------------

    def _span(self, place: int, first: Var, partition: Var) -> tuple[_Cursor, _Cursor]:
        k = self.k
        end = k.var("send", self.sample_bounds[place][partition + 1])
        samples = self.samples[place]
        enter = _Cursor(samples, k.var("hi", first), end, k.var("enters", NEVER_AGAIN))
        with k.if_(enter.at < end):
            k.set(enter.when, self._enters(place, samples[enter.at]))
        leave = _Cursor(samples, k.var("lo", first), end, k.var("leaves", NEVER_AGAIN))
        return enter, leave

    def _enters(self, place: int, time: Value) -> Value:
        step, delay = self.steps[place], self.delays[place]
        match self.spec.spans[place]:
            case "window":
                return _floor(self.k, time, step) + step + delay
            case "per":
                return _floor(self.k, time, step) + delay
            case _:
                return time + delay

    def _leaves(self, place: int, time: Value) -> Value:
        size, step, delay = self.sizes[place], self.steps[place], self.delays[place]
        match self.spec.spans[place]:
            case "window":
                return _floor(self.k, time + size, step) + step + delay
            case "per":
                return _floor(self.k, time, step) + step + delay
            case _:
                return time + size + delay

    def _pass_samples(self, place: int, enter: _Cursor, leave: _Cursor, now: Var, mark: Var) -> None:
        k, kind = self.k, self.spec.spans[place]
        changed = k.var("changed", (enter.when <= now) | (leave.when <= now))
        with k.if_(changed):
            self._advance(enter, now, enter.end, lambda time: self._enters(place, time))
            if kind == LAST:
                k.set(leave.at, maximum(leave.at, enter.at - self.sizes[place]))
            elif kind != EVER:
                self._advance(leave, now, enter.at, lambda time: self._leaves(place, time))
        if kind in (WINDOW, PER):
            step, delay = self.steps[place], self.delays[place]
            grid = k.var("floor", _floor(k, now - delay, step) + delay)
            holds = k.var("holds", leave.at < enter.at)
            k.set(mark, mark | (now.eq(grid) & holds).to(U8))
            if kind == WINDOW:
                k.set(self.grids[place], select(holds, grid + step, NEVER_AGAIN))

    def _advance(self, cursor: _Cursor, now: Var, end: Value, when: Callable[[Value], Value]) -> None:
        """Advance past all elements due by `now`, and set the instant of the next."""
        k = self.k
        k.set(cursor.when, NEVER_AGAIN)
        going = k.var("going", (cursor.at < end).to(I64))
        with k.while_(going.ne(0)):
            due = k.var("due", when(cursor.times[cursor.at]))
            k.set(going, 0)
            with k.if_(due <= now):
                k.set(cursor.at, cursor.at + 1)
                k.set(going, (cursor.at < end).to(I64))
            with k.else_():
                k.set(cursor.when, due)

    # -- instants ------------------------------------------------------------------------------------

    def _soonest(self, points: list[_Cursor], spans: list[tuple[_Cursor, _Cursor]]) -> Value:
        whens: list[Value] = [*(point.when for point in points), *self.grids.values()]
        for enter, leave in spans:
            whens += [enter.when, leave.when]
        soonest = whens[0]
        for other in whens[1:]:
            soonest = minimum(soonest, other)
        return soonest

    def _write(
        self,
        done: Var,
        now: Var,
        mark: Var,
        points: list[tuple[_Cursor, Var]],
        spans: list[tuple[_Cursor, _Cursor]],
    ) -> None:
        k = self.k
        k.store(self.out_times, done, now)
        k.store(self.out_marks, done, mark)
        for out, (point, begin) in zip(self.out_points, points, strict=True):
            k.store(out, done, select(point.at > begin, point.at - 1, -1))
        for lo, hi, (enter, leave) in zip(self.out_lo, self.out_hi, spans, strict=True):
            k.store(lo, done, leave.at)
            k.store(hi, done, enter.at)


def _floor(k: KernelBuilder, time: Value, step: Value) -> Value:
    """Return the last multiple of a step up to a time, which may be negative."""
    rest = k.var("rest", time.rem(step))
    return time - rest - select(rest < 0, step, 0)


def locate() -> Kernel:
    """Write, for each instant of each partition, the position of the last point at or before instant - `shift`, or -1."""
    k = KernelBuilder("locate")
    partitions, shift = k.scalar("partitions"), k.scalar("shift")
    instants, instant_bounds = k.buffer("instants", I64), k.buffer("instant_bounds", I64)
    times, bounds, out = k.buffer("times", I64), k.buffer("bounds", I64), k.buffer("out", I64)
    with k.for_(0, partitions, "partition", scalar=True) as partition:
        begin, end = k.var("begin", bounds[partition]), k.var("end", bounds[partition + 1])
        at = k.var("at", begin)
        when = k.var("when", 0)
        going = k.var("going", 0)
        with k.for_(instant_bounds[partition], instant_bounds[partition + 1], "row", scalar=True) as row:
            k.set(when, instants[row] - shift)
            k.set(going, 1)
            with k.while_(going.ne(0)):
                k.set(going, 0)
                with k.if_(at < end):
                    passed = k.var("passed", (times[at] <= when).to(I64))
                    k.set(at, at + passed)
                    k.set(going, passed)
            k.store(out, row, at - 1)
            with k.if_(at.eq(begin)):
                k.store(out, row, -1)
    k.ret(0)
    return k.build()

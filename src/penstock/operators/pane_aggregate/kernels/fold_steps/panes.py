"""Step 1 of the fold: find the pane of a chunk's rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import cast

from penstock.algorithms.expressions.calendar import floor_div
from penstock.loop.abi import LANES
from penstock.loop.nodes import BOOL, I64, Buffer, Value, Var, const, minimum, select
from penstock.operators.pane_aggregate.kernels.fold_steps.frame import FoldFrame

ROWS_BETWEEN_TESTS = 256  # rows whose times are read between two tests for the end of the pane
SHORTEST_RUN = 32  # minimum rows of a run in one pane that is worth a separate chunk


class CurrentPane:
    """The pane of the current row; `single` while all rows of the chunk lie in it."""

    def __init__(self, frame: FoldFrame) -> None:
        self.frame = frame
        k = frame.k
        self.number, self.begin, self.end = (k.var(name, 0) for name in ("pane", "begin", "end"))
        panes = frame.spec.panes
        self.every = const(panes.every, I64)  # a constant, since each row out of order divides by it
        self.offset = k.literal(panes.offset, I64)
        self.middle = k.literal(panes.cut, I64) if panes.cut else None
        self.single = k.var("single", True, BOOL)
        self.orderly = k.var("orderly", True, BOOL)

    def enter(self, time: Value) -> None:
        """Move to the pane that contains a time."""
        k, errors = self.frame.k, self.frame.errors
        at = k.var("time", time)
        k.set(self.number, floor_div(at - self.offset, self.every))
        k.set(self.begin, self.number * self.every + self.offset)
        k.set(self.end, self.begin + self.every)
        if self.middle is not None:
            self._halve(at, self.middle)
        k.set(errors, errors | ~self.inside(at))  # bounds beyond 64 bits have wrapped around

    def _halve(self, at: Value, cut: Value) -> None:
        """Move to the part before or after the cut: panes 2n and 2n + 1."""
        k = self.frame.k
        middle, behind = k.var("middle", self.begin + cut), k.var("behind", at - self.begin >= cut)
        k.set(self.number, self.number * 2 + behind.to(I64))
        k.set(self.end, select(behind, self.end, middle))
        k.set(self.begin, select(behind, middle, self.begin))

    def inside(self, time: Value) -> Value:
        return (time >= self.begin) & (time < self.end)

    def cut(self, n: Var) -> None:
        """Cut a chunk of regular rows at the end of its pane, computed without reading the rows."""
        period = self.frame.spec.time.period
        assert period is not None
        left = (self.end - self.frame.time_at(self.frame.at) + (period - 1)).div(period)
        self.frame.k.set(n, minimum(n, left))

    def reach(self, n: Var) -> None:
        """Cut a chunk at the end of its pane by binary search, assuming rows in order.

        `decide` verifies the order; after a chunk with rows out of order, the next chunk is not cut.
        """
        frame, k = self.frame, self.frame.k
        with k.if_(self.orderly & (frame.time_at(frame.at + n - 1) >= self.end)):
            inside, beyond = k.var("inside", 0), k.var("beyond", n - 1)
            with k.while_(beyond - inside > 1):
                middle = k.var("middle", (inside + beyond) >> 1)
                before = k.var("before", frame.time_at(frame.at + middle) < self.end, BOOL)
                k.set(inside, select(before, middle, inside))
                k.set(beyond, select(before, beyond, middle))
            k.set(self.orderly, beyond >= SHORTEST_RUN)
            with k.if_(self.orderly):
                k.set(n, beyond)

    def decide(self, watch: PaneWatch) -> None:
        """Record whether all rows lie in the pane."""
        k = self.frame.k
        k.set(self.single, watch.all_inside)
        k.set(self.orderly, self.single)

    def watch(self, lanes: Buffer | None = None) -> PaneWatch:
        k = self.frame.k
        return PaneWatch(self, k.var("outside", 0), k.var("last", self.end - 1), lanes)

    def watch_lanes(self) -> PaneWatch:
        """Watch rows of which several are read at once, in SIMD lanes."""
        k = self.frame.k
        lanes = k.local("lanes", I64, LANES)
        with k.for_(0, LANES, "lane", parallel=True) as lane:
            k.store(lanes, lane, 0)
        return self.watch(lanes)

    def check(self, n: Var) -> None:
        """Read the times of the rows, `ROWS_BETWEEN_TESTS` at a time, up to the pane's end.

        The chunk is cut there if at least `SHORTEST_RUN` rows remain in it.
        """
        k = self.frame.k
        watch, seen = self.watch(), k.var("seen", 0)
        with k.while_((seen < n) & watch.all_inside):
            upto = k.var("upto", minimum(seen + ROWS_BETWEEN_TESTS, n))
            with k.for_(seen, upto, "r") as r:
                watch.row(r)
            with k.if_(watch.all_inside):
                k.set(seen, upto)
        k.set(self.single, watch.all_inside)
        with k.if_(~self.single):
            run = self._run(n, seen)
            with k.if_(run >= SHORTEST_RUN):
                k.set(n, run)
                k.set(self.single, const(True, BOOL))

    def _run(self, n: Var, seen: Value) -> Var:
        """Count the rows in the pane before the first row outside; the first `seen` rows are inside."""
        frame = self.frame
        run = frame.k.var("run", seen)
        more = (run < n) & self.inside(frame.time_at(frame.at + minimum(run, n - 1)))
        with frame.k.while_(more):
            frame.k.set(run, run + 1)
        return run


@dataclass(frozen=True)
class PaneWatch:
    """Records, row by row, whether all times of a chunk lie in the pane: `outside` stays at or above 0.

    A time outside makes `time - begin` or `last - time` negative, and one of them stays negative where a
    difference wraps around. A sign costs less than two comparisons and their conjunction.
    """

    pane: CurrentPane
    outside: Var
    last: Var
    lanes: Buffer | None = None  # the same as `outside`, per SIMD lane

    def row(self, r: Value) -> None:
        self.pane.frame.k.set(self.outside, self.outside | self._signs(r))

    def lane(self, r: Value, lane: Value) -> None:
        assert self.lanes is not None
        self.pane.frame.k.store(self.lanes, lane, self.lanes[lane] | self._signs(r))

    def _signs(self, r: Value) -> Value:
        frame = self.pane.frame
        time = frame.k.var("time", frame.time_at(frame.at + r))
        return (time - self.pane.begin) | (self.last - time)

    @property
    def all_inside(self) -> Value:
        lanes = [] if self.lanes is None else [self.lanes[lane] for lane in range(LANES)]
        return reduce(or_, lanes, cast(Value, self.outside)) >= 0

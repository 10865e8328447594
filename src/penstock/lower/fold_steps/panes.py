"""Step 1 of the fold: the pane that the rows of a chunk fall into."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import cast

from penstock.loop.abi import LANES
from penstock.loop.nodes import BOOL, I64, Buffer, Value, Var, const, minimum, select
from penstock.lower.calendar import floor_div
from penstock.lower.fold_steps.frame import Frame

STRETCH = 256  # rows whose times are looked at before the question is asked whether the pane has ended
SHORTEST_RUN = 32  # below this, a run of rows in one pane is not worth a chunk of its own


class CurrentPane:
    """The pane of the row at hand; `single` while all rows of the chunk lie in it."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        k = frame.k
        self.number, self.begin, self.end = (k.var(name, 0) for name in ("pane", "begin", "end"))
        panes = frame.spec.panes
        self.every = const(panes.every, I64)  # a constant: rows out of order divide by it, each
        self.offset = k.literal(panes.offset, I64)
        self.middle = k.literal(panes.cut, I64) if panes.cut else None
        self.single = k.var("single", True, BOOL)
        self.orderly = k.var("orderly", True, BOOL)

    def enter(self, time: Value) -> None:
        """Go to the pane that holds a time."""
        k, errors = self.frame.k, self.frame.errors
        at = k.var("time", time)
        k.set(self.number, floor_div(at - self.offset, self.every))
        k.set(self.begin, self.number * self.every + self.offset)
        k.set(self.end, self.begin + self.every)
        if self.middle is not None:
            self._halve(at, self.middle)
        k.set(errors, errors | ~self.inside(at))  # bounds beyond 64 bits have wrapped around

    def _halve(self, at: Value, cut: Value) -> None:
        """Go to the part before or behind the cut: panes 2n and 2n + 1."""
        k = self.frame.k
        middle, behind = k.var("middle", self.begin + cut), k.var("behind", at - self.begin >= cut)
        k.set(self.number, self.number * 2 + behind.to(I64))
        k.set(self.end, select(behind, self.end, middle))
        k.set(self.begin, select(behind, middle, self.begin))

    def inside(self, time: Value) -> Value:
        return (time >= self.begin) & (time < self.end)

    def cut(self, n: Var) -> None:
        """Cut a chunk of regular rows where its pane ends: that needs no look at the rows."""
        period = self.frame.spec.time.period
        assert period is not None
        left = (self.end - self.frame.time_at(self.frame.at) + (period - 1)).div(period)
        self.frame.k.set(n, minimum(n, left))

    def reach(self, n: Var) -> None:
        """Cut a chunk where its pane ends, if its rows are in order: a look at few of them tells.

        Whether they are, `decide` finds out, and after a chunk whose rows were not, the next is not cut.
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

    def decide(self, watch: Watch) -> None:
        """Say whether all rows lie in the pane."""
        k = self.frame.k
        k.set(self.single, watch.all_inside)
        k.set(self.orderly, self.single)

    def watch(self, lanes: Buffer | None = None) -> Watch:
        k = self.frame.k
        return Watch(self, k.var("outside", 0), k.var("last", self.end - 1), lanes)

    def watch_lanes(self) -> Watch:
        """Watch rows of which some are looked at together."""
        k = self.frame.k
        lanes = k.local("lanes", I64, LANES)
        with k.for_(0, LANES, "lane", parallel=True) as lane:
            k.store(lanes, lane, 0)
        return self.watch(lanes)

    def check(self, n: Var) -> None:
        """Look at the times of the rows, a stretch at a time and not beyond the pane's end.

        The chunk is cut there, if that leaves enough rows.
        """
        k = self.frame.k
        watch, seen = self.watch(), k.var("seen", 0)
        with k.while_((seen < n) & watch.all_inside):
            upto = k.var("upto", minimum(seen + STRETCH, n))
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
        """How many rows lie in the pane before the first that does not; `seen` ones do."""
        frame = self.frame
        run = frame.k.var("run", seen)
        more = (run < n) & self.inside(frame.time_at(frame.at + minimum(run, n - 1)))
        with frame.k.while_(more):
            frame.k.set(run, run + 1)
        return run


@dataclass(frozen=True)
class Watch:
    """Notes, row by row, whether all times of a chunk lie in the pane: `outside` stays at or above 0.

    A time outside makes `time - begin` or `last - time` negative, and one of them stays so where a difference wraps
    around: a sign costs less than two comparisons and what gathers them.
    """

    pane: CurrentPane
    outside: Var
    last: Var
    lanes: Buffer | None = None  # the same as `outside`, by lane of the rows that are looked at together

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

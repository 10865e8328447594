"""Write a block's instants: all of them, those at which the value changes, or the samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import (
    BOOL,
    I64,
    U8,
    Buffer,
    Operand,
    Value,
    Var,
    const,
    minimum,
)
from penstock.operators.signals.fused.kernels import changes
from penstock.operators.signals.kernels.coalesce import differing

# The value and validity buffers of fields, and the function that computes them: `compute(i, to, place)`.
Fields = Sequence[tuple[Buffer, Buffer]]
Compute = Callable[[Value, Fields, Value], None]


@dataclass(frozen=True)
class PointTarget:
    """The destination of points: their times and fields; `done` points are written already."""

    k: KernelBuilder
    walk: changes.Changes
    times: Buffer
    fields: Fields
    done: Var
    compute: Compute


class EveryInstant:
    """All instants as points, with their marks."""

    def __init__(self, target: PointTarget) -> None:
        self.target = target
        self.marks = target.k.buffer("out_marks", U8)

    def start(self, partition: Var) -> None:
        """Do nothing: there is no state per partition."""

    def write(self, partition: Var, n: Var) -> None:
        to, k = self.target, self.target.k
        with k.for_(0, n, "i") as i:
            place = k.var("to", to.done + i)
            k.store(to.times, place, to.walk.instants[i])
            k.store(self.marks, place, to.walk.marked[i])
            to.compute(i, to.fields, place)
        k.set(to.done, to.done + n)


class EveryChange:
    """The instants whose value differs from the previous one, from the partition's `emitted` on.

    Fields are computed one place further on, after the last ones of the previous block. Neighbours are
    therefore compared in one loop without a loop-carried dependency. Few instants remain as a rule.
    """

    def __init__(self, target: PointTarget) -> None:
        self.target = target
        k, length = target.k, changes.INSTANTS_PER_BLOCK
        self.emitted, self.follows = k.buffer("emitted", I64), k.scalar("follows")
        self.block = [
            (k.local("value", values.type, length + 1), k.local("valid", U8, length + 1))
            for values, _ in target.fields
        ]
        self.differs, self.chosen = k.local("differs", U8, length), k.local("chosen", I64, length)
        self.fresh = k.var("fresh", True, BOOL)

    def start(self, partition: Var) -> None:
        """Start a partition with nothing written, unless this call continues where a previous one stopped."""
        to, k = self.target, self.target.k
        k.set(self.fresh, True)
        with k.if_(self.follows.ne(0) & partition.eq(to.walk.partition_lo)):
            k.set(self.fresh, False)
            _copy(k, to.fields, to.done - 1, self.block, 0)
        with k.else_():
            for values, valid in self.block:
                k.store(values, 0, const(0, values.type))
                k.store(valid, 0, 0)

    def write(self, partition: Var, n: Var) -> None:
        to, k = self.target, self.target.k
        since = k.var("emitted", self.emitted[partition])
        with k.for_(0, n, "i") as i:
            to.compute(i, self.block, i + 1)
        with k.for_(0, n, "i") as i:
            counts = to.walk.instants[i] >= since
            k.store(self.differs, i, (self._differs(i) & counts).to(U8))
        with k.if_(self.fresh):
            self._begin(since, n)
        _write_chosen(to, n, (self.differs, self.chosen), self.block, 1)
        _copy(k, self.block, n, self.block, 0)

    def _differs(self, i: Value) -> Value:
        differs: Value = const(False, BOOL)
        for values, valid in self.block:
            there = valid[i + 1]
            differs = differs | there.ne(valid[i])
            differs = differs | (differing(values[i + 1], values[i]) & there.ne(0))
        return differs

    def _begin(self, since: Var, n: Var) -> None:
        """Select the first instant from `since` on, whatever its predecessor."""
        k, at = self.target.k, self.target.k.var("at", 0)
        with k.while_((at < n) & (self.target.walk.instants[minimum(at, n - 1)] < since)):
            k.set(at, at + 1)
        with k.if_(at < n):
            k.store(self.differs, at, 1)
            k.set(self.fresh, False)


class EverySample:
    """The marks with a value: the input of reductions, where nothing else is read."""

    def __init__(self, target: PointTarget) -> None:
        self.target = target
        k, length = target.k, changes.INSTANTS_PER_BLOCK
        self.block = [
            (k.local("value", values.type, length), k.local("valid", U8, length))
            for values, _ in target.fields
        ]
        self.counts, self.chosen = k.local("counts", U8, length), k.local("chosen", I64, length)

    def start(self, partition: Var) -> None:
        """Do nothing: there is no state per partition."""

    def write(self, partition: Var, n: Var) -> None:
        to, k = self.target, self.target.k
        with k.for_(0, n, "i") as i:
            to.compute(i, self.block, i)
        with k.for_(0, n, "i") as i:
            there: Value = const(False, BOOL)
            for _, valid in self.block:
                there = there | valid[i].ne(0)
            k.store(self.counts, i, (there & to.walk.marked[i].ne(0)).to(U8))
        _write_chosen(to, n, (self.counts, self.chosen), self.block, 0)


def _write_chosen(to: PointTarget, n: Var, choice: tuple[Buffer, Buffer], block: Fields, first: int) -> None:
    """Write the selected instants; their fields lie in the block from `first` on."""
    k, (counts, chosen) = to.k, choice
    found = k.var("found", 0)
    with k.for_(0, n, "i", scalar=True) as i:
        k.store(chosen, found, i)  # branch-free: the next store overwrites it unless it counts
        k.set(found, found + counts[i].to(I64))
    with k.for_(0, found, "j") as j:
        place, goal = k.var("place", chosen[j]), k.var("to", to.done + j)
        k.store(to.times, goal, to.walk.instants[place])
        _copy(k, block, place + first if first else place, to.fields, goal)
    k.set(to.done, to.done + found)


def _copy(k: KernelBuilder, source: Fields, place: Value, target: Fields, to: Operand) -> None:
    for (values, valid), (out, out_valid) in zip(source, target, strict=True):
        k.store(out, to, values[place])
        k.store(out_valid, to, valid[place])

"""Write a block's instants: all of them, or those at which the value changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.kernels.signals import changes
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, I64, TYPES, U8, Bitcast, Buffer, Type, Value, Var, const

# The values and validities of fields, and what computes them: `compute(i, to, place)`.
Fields = Sequence[tuple[Buffer, Buffer]]
Compute = Callable[[Value, Fields, Value], None]


@dataclass(frozen=True)
class Target:
    """Where points go: their times and fields, `done` being how many there are already."""

    k: KernelBuilder
    walk: changes.Changes
    times: Buffer
    fields: Fields
    done: Var
    compute: Compute


class EveryInstant:
    """All instants as points, with their marks."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.marks = target.k.buffer("out_marks", U8)

    def start(self, lane: Var) -> None:
        """Nothing is remembered of a lane."""

    def write(self, lane: Var, n: Var) -> None:
        to, k = self.target, self.target.k
        with k.for_(0, n, "i") as i:
            place = k.var("to", to.done + i)
            k.store(to.times, place, to.walk.instants[i])
            k.store(self.marks, place, to.walk.marked[i])
            to.compute(i, to.fields, place)
        k.set(to.done, to.done + n)


class EveryChange:
    """The instants whose value is not that of the one before, from the lane's `emitted` on."""

    def __init__(self, target: Target) -> None:
        self.target = target
        k, length = target.k, changes.BLOCK
        self.emitted, self.follows = k.buffer("emitted", I64), k.scalar("follows")
        types = [values.type for values, _ in target.fields]
        self.block = [(k.local("value", type, length), k.local("valid", U8, length)) for type in types]
        self.before = [(k.var("before", const(0, _bits(type))), k.var("was", 0, U8)) for type in types]
        self.fresh = k.var("fresh", True, BOOL)

    def start(self, lane: Var) -> None:
        """Nothing has been written of a lane, unless this call goes on where another has stopped."""
        to, k = self.target, self.target.k
        k.set(self.fresh, True)
        with k.if_(self.follows.ne(0) & lane.eq(to.walk.lane_lo)):
            k.set(self.fresh, False)
            for (out, out_valid), (before, was) in zip(to.fields, self.before, strict=True):
                k.set(before, _as_bits(k.var("value", out[to.done - 1])))
                k.set(was, out_valid[to.done - 1])

    def write(self, lane: Var, n: Var) -> None:
        to, k = self.target, self.target.k
        since = k.var("emitted", self.emitted[lane])
        with k.for_(0, n, "i") as i:
            to.compute(i, self.block, i)
        with k.for_(0, n, "i", scalar=True) as i:
            self._one(i, since)

    def _one(self, i: Var, since: Var) -> None:
        """Write every instant, to be overwritten by the next unless it counts: that costs no branch."""
        to, k = self.target, self.target.k
        when = k.var("when", to.walk.instants[i])
        k.store(to.times, to.done, when)
        differs = k.var("differs", self.fresh)
        for (block, block_valid), (out, out_valid), (before, was) in zip(
            self.block, to.fields, self.before, strict=True
        ):
            there = k.var("there", block_valid[i])
            value = k.var("value", block[i])
            bits = k.var("bits", _as_bits(value))
            k.set(differs, differs | there.ne(was) | (bits.ne(before) & there.ne(0)))
            k.store(out, to.done, value)
            k.store(out_valid, to.done, there)
            k.set(before, bits)
            k.set(was, there)
        counts = k.var("counts", when >= since)
        k.set(to.done, to.done + (differs & counts).to(I64))
        k.set(self.fresh, self.fresh & ~counts)


def _bits(type: Type) -> Type:
    """Values are told apart by their bits: NaN is itself, and -0.0 is not 0.0."""
    return TYPES[f"i{type.bits}"] if type.is_float else type


def _as_bits(value: Value) -> Value:
    return Bitcast(value, _bits(value.type)) if value.type.is_float else value

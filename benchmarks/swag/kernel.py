"""Compile Penstock's loop over count windows and call it on NumPy arrays, without the engine around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.swag.subjects import Aggregate, Numbers, Subject
from penstock.algorithms.monoids import Monoid, Values, float_sum, integer_sum, least
from penstock.algorithms.sliding.count_slide import count_slide
from penstock.algorithms.sliding.slide import CountSlide
from penstock.codegen.native import Argument, NativeKernel, compile_kernel
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import F64, I32, I64, Buffer, Type, Value, const

TYPES: dict[str, Type] = {"int32": I32, "int64": I64, "float64": F64}


@dataclass(frozen=True, slots=True)
class CountKernel:
    """A compiled loop over windows of `size` rows, with the memory it works in."""

    native: NativeKernel
    size: int
    every: int
    scratch: dict[str, Argument]

    def __call__(self, data: Numbers, out: Numbers) -> int:
        """Aggregate full windows into `out`, and give their number."""
        windows = windows_of(data.size, self.size, self.every)
        self.native(self.scratch | {"data": data, "out": out, "begin": 0, "end": windows})
        return windows


def windows_of(rows: int, size: int, every: int) -> int:
    """How many windows of `size` rows are full."""
    return 0 if rows < size else (rows - size) // every + 1


def count_kernel(subject: Subject, size: int, every: int) -> CountKernel:
    """Write and compile the loop for one aggregate."""
    k = KernelBuilder("swag")
    data, out = k.buffer("data", TYPES[subject.dtype]), k.buffer("out", TYPES[subject.result])
    begin, end = k.scalar("begin"), k.scalar("end")
    slide = CountSlide(
        k=k,
        size=size,
        every=every,
        begin=begin,
        end=end,
        monoids=[monoid_of(subject)],
        row=lambda row: [((data[row],), None)],
        emit=lambda frame, states: k.store(out, frame, finished(subject, size, states)),
    )
    needs = count_slide(slide)
    scratch = {need.buffer.name: memory(need.buffer, need.length or size) for need in needs}
    return CountKernel(compile_kernel(k.build()), size, every, scratch)


def monoid_of(subject: Subject) -> Monoid:
    """Choose what a window remembers of its rows."""
    if subject.aggregate is Aggregate.MIN:
        return least(TYPES[subject.dtype])
    return float_sum() if subject.dtype == "float64" else integer_sum(wide=False)


def finished(subject: Subject, size: int, states: Sequence[Values]) -> Value:
    """Read the answer from the state; no row is null, so all of `size` count."""
    (state,) = states
    total = state[0] if len(state) == 1 else state[0] + state[1]
    return total.to(F64).div(const(float(size), F64)) if subject.aggregate is Aggregate.AVG else total


def memory(buffer: Buffer, length: int) -> Argument:
    """Make the memory of a scratch buffer."""
    names = {(type.kind, type.bits): name for name, type in TYPES.items()}
    return np.empty(length, names[buffer.type.kind, buffer.type.bits])

"""What the algorithms are tried on: monoids with their plain twins, rows for them, and programs of frames."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, nan
from typing import Any

import numpy as np
from hypothesis import strategies as st

from penstock.algorithms import monoids
from penstock.algorithms.monoids import Monoid, StateField, Values
from penstock.algorithms.sliding.plain import Frames, PlainMonoid
from penstock.algorithms.sliding.slide import Emit, Row
from penstock.loop.build import KernelBuilder
from penstock.loop.interpret import dtype_of
from penstock.loop.nodes import F64, I32, I64, U8, Buffer, Type, Value, select

SMALL, LARGE = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True)
class Subject:
    """A monoid, the types of its arguments, values to draw rows from, and the same algebra in Python."""

    name: str
    make: Callable[[], Monoid]
    types: tuple[Type, ...]
    draw: Callable[[random.Random], tuple[Any, ...]]
    algebra: PlainMonoid
    finish: Callable[[tuple[Any, ...]], Any] = lambda state: state[0]
    nulls: bool = False  # a third of the rows add nothing

    def rows(self, count: int, seed: int) -> list[tuple[Any, ...] | None]:
        """Draw rows; None is one that adds nothing."""
        dice = random.Random(seed)
        return [None if self.nulls and dice.random() < 0.3 else self.draw(dice) for _ in range(count)]

    def columns(self, rows: Sequence[tuple[Any, ...] | None]) -> dict[str, Any]:
        """Lay rows out as the buffers that `read` declares, one element longer than needed."""
        active = [row is not None for row in rows] + [False]
        filled = [(0,) * len(self.types) if row is None else row for row in [*rows, None]]
        columns = {
            "x" if place == 0 else f"x.{place}": np.array([row[place] for row in filled], dtype_of(type))
            for place, type in enumerate(self.types)
        }
        return columns | {"active": np.array(active, np.uint8)}

    def read(self, k: KernelBuilder) -> Callable[[Value], Row]:
        """Declare the columns; give the function that reads a row."""
        columns = [k.buffer("x", type) for type in self.types]
        active = k.buffer("active", U8)
        return lambda r: [(tuple(column[r] for column in columns), active[r].ne(0) if self.nulls else None)]


def writer(k: KernelBuilder, monoid: Monoid) -> Emit:
    """Declare an output for each state; give the function that writes a frame's states."""
    out = [k.buffer("out", state.type) for state in monoid.states]

    def emit(f: Value, states: Sequence[Values]) -> None:
        for buffer, value in zip(out, states[0], strict=True):
            k.store(buffer, f, value)

    return emit


def outputs(monoid: Monoid) -> list[tuple[str, Type]]:
    names = ("out" if place == 0 else f"out.{place}" for place in range(len(monoid.states)))
    return [(name, state.type) for name, state in zip(names, monoid.states, strict=True)]


def read(data: Any, place: int, type: Type) -> Any:
    """Give one number of a buffer."""
    if type.bits == 128:
        return (int(data[2 * place + 1]) << 64) | (int(data[2 * place]) & ((1 << 64) - 1))
    return data[place].item()


# -- algebras -------------------------------------------------------------------------------------------


def _skipping_nulls(add: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda state, row: state if row is None else add(state, row)


SUM = PlainMonoid(
    0,
    _skipping_nulls(lambda s, row: s + row[0]),
    lambda a, b: a + b,
    _skipping_nulls(lambda s, row: s - row[0]),
    lambda a, b: a - b,
)
COUNT = PlainMonoid(
    0,
    _skipping_nulls(lambda s, row: s + 1),
    lambda a, b: a + b,
    _skipping_nulls(lambda s, row: s - 1),
    lambda a, b: a - b,
)


def _ordered(value: float) -> tuple[bool, float]:
    return (True, 0.0) if math.isnan(value) else (False, value)


def extreme(pick: Callable[..., Any], identity: Any) -> PlainMonoid:
    def merge(a: Any, b: Any) -> Any:
        return pick(a, b, key=_ordered)

    return PlainMonoid(identity, _skipping_nulls(lambda s, row: merge(s, row[0])), merge)


# Floats keep all values: the sum of a frame is that of `exact_sum`, whatever the order.
FLOATS = PlainMonoid((), lambda s, row: (*s, row[0]), lambda a, b: a + b)


def exact_sum(values: Sequence[float]) -> float:
    odd = {value for value in values if not math.isfinite(value)}
    return math.fsum(values) if not odd else odd.pop() if len(odd) == 1 else nan


def _reading(state: tuple[float, ...]) -> float:
    total, lost = state
    return total + lost if math.isfinite(lost) else total


# x → a x + b, the older map first: turns and shifts of the line do not commute.
def _compose(older: Any, newer: Any) -> Any:
    return older[0] * newer[0], older[1] * newer[0] + newer[1]


def _uncompose(whole: Any, older: Any) -> Any:
    return whole[0] * older[0], whole[1] - whole[0] * older[0] * older[1]


AFFINE = PlainMonoid((1, 0), _compose, _compose, _uncompose, _uncompose)


def affine() -> Monoid:
    """Compositions of x → a x + b where a is 1 or -1."""
    return Monoid(
        "affine",
        (StateField(I64, 1), StateField(I64, 0)),
        lambda k, a, b: _compose(a, b),
        lambda k, a, b: _compose(a, b),
        remove=lambda k, a, b: _uncompose(a, b),
        take=lambda k, a, b: _uncompose(a, b),
        ordered=True,
    )


def last_float() -> Monoid:
    """The newest value, a float: lanes would mix up which that is."""
    return Monoid(
        "last_float",
        (StateField(F64, 0.0), StateField(U8, 0)),
        lambda k, state, values: (values[0], state[1] | 1),
        lambda k, a, b: (select(b[1].ne(0), b[0], a[0]), a[1] | b[1]),
        ordered=True,
    )


def last_integer() -> Monoid:
    """The newest value; SMALL stands for none."""
    return Monoid(
        "last_integer",
        (StateField(I64, SMALL),),
        lambda k, state, values: (values[0],),
        lambda k, a, b: (select(b[0].eq(SMALL), a[0], b[0]),),
        ordered=True,
    )


LAST_INTEGER = PlainMonoid(SMALL, lambda s, row: row[0], lambda a, b: a if b == SMALL else b)
LAST = PlainMonoid((0.0, 0), lambda s, row: (row[0], 1), lambda a, b: b if b[1] else a)


SUBJECTS = [
    Subject(
        "wide sum",
        lambda: monoids.integer_sum(True),
        (I64,),
        lambda dice: (dice.choice([SMALL, LARGE, 0, 1, -1, dice.randrange(SMALL, LARGE)]),),
        SUM,
        nulls=True,
    ),
    Subject("count", monoids.count, (I32,), lambda dice: (1,), COUNT, nulls=True),
    Subject(
        "least",
        lambda: monoids.least(I32),
        (I32,),
        lambda dice: (dice.randrange(-5, 50),),
        extreme(min, (1 << 31) - 1),
        nulls=True,
    ),
    Subject(
        "least float",
        lambda: monoids.least(F64),
        (F64,),
        lambda dice: (dice.choice([inf, nan, nan, nan, 1.5, dice.random()]),),
        extreme(min, nan),
    ),
    Subject(
        "greatest float",
        lambda: monoids.greatest(F64),
        (F64,),
        lambda dice: (dice.choice([-inf, inf, nan, 1.5, -2.5, dice.random()]),),
        extreme(max, -inf),
    ),
    Subject(
        "float sum",
        monoids.float_sum,
        (F64,),
        lambda dice: (dice.choice([1e16, -1e16, 1.0, 0.1, dice.gauss(0, 1e3)]),),
        FLOATS,
        _reading,
    ),
    Subject(
        "float sum of odd values",
        monoids.float_sum,
        (F64,),
        lambda dice: (dice.choice([inf, -inf, nan, *(dice.gauss(0, 1) for _ in range(12))]),),
        FLOATS,
        _reading,
    ),
    Subject(
        "affine maps",
        affine,
        (I64, I64),
        lambda dice: (dice.choice([-1, 1]), dice.randrange(-9, 9)),
        AFFINE,
        lambda state: state,
    ),
    Subject("last integer", last_integer, (I64,), lambda dice: (dice.randrange(99),), LAST_INTEGER),
    Subject("last float", last_float, (F64,), lambda dice: (dice.random(),), LAST, lambda state: state),
]


def same(subject: Subject, found: Any, expected: Any) -> bool:
    """Whether a kernel's result is the twin's: exactly, but for sums of floats, within 1e-12 of all they add."""
    if subject.algebra is not FLOATS:
        return bool(found == expected or (found != found and expected != expected))
    total = exact_sum(expected)
    room = 1e-12 * math.fsum(abs(value) for value in expected if math.isfinite(value))
    return abs(found - total) <= room if math.isfinite(total) else repr(found) == repr(total)


# -- frames ---------------------------------------------------------------------------------------------


def sawtooth(tooth: int, teeth: int) -> Frames:
    """Rows come one by one until there are `tooth`, then leave one by one."""
    frames = []
    for start in range(0, tooth * teeth, tooth):
        frames += [(start, start + rows) for rows in range(tooth + 1)]
        frames += [(start + gone, start + tooth) for gone in range(tooth + 1)]
    return frames


def sliding(size: int, every: int, many: int, first: int = 0) -> Frames:
    return [(first + f * every, first + f * every + size) for f in range(many)]


PROGRAMS: dict[str, Frames] = {
    "nothing": [],
    "one empty frame": [(0, 0)],
    "sawtooth": sawtooth(9, 3),
    "thirds": sliding(9, 3, 12),
    "thirds of many rows": sliding(99, 33, 7),
    "row by row": sliding(5, 1, 30),
    "row by row for long, with a stumble": [*sliding(5, 1, 150), (152, 158), *sliding(6, 1, 70, 160)],
    "side by side": sliding(4, 4, 6),
    "with gaps": sliding(3, 5, 6),
    "the same again": [(1, 6)] * 4 + [(2, 6)] * 3 + [(6, 6)] * 2,
    "lanes": [*sliding(6, 2, 5), (14, 14), (14, 20), (15, 21), (21, 60), (60, 61), (60, 61)],
}


@st.composite
def fifo(draw: st.DrawFn) -> Frames:
    """Rows come and go, a few or many at a time; now and then a lane ends and another begins further on."""
    few = st.integers(0, 3) | st.sampled_from([0, 10, 40])
    lo = hi = draw(few)
    frames = []
    for leave, come, jump in draw(st.lists(st.tuples(few, few, st.booleans()), max_size=25)):
        lo = hi + leave if jump and leave % 2 else lo + leave
        hi = max(lo, hi) + come
        frames.append((lo, hi))
    return frames


def bounds(frames: Frames) -> dict[str, Any]:
    """Lay frames out as buffers."""
    lows, highs = ([frame[side] for frame in frames] + [0] for side in (0, 1))
    return {"lo": np.array(lows, np.int64), "hi": np.array(highs, np.int64)}


def longest(frames: Frames) -> int:
    return max((hi - lo for lo, hi in frames), default=0)


def end(frames: Frames) -> int:
    return frames[-1][1] if frames else 0


def frame_buffers(k: KernelBuilder) -> tuple[Buffer, Buffer]:
    return k.buffer("lo", I64), k.buffer("hi", I64)

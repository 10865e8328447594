"""Fold rows into the states of a monoid, in every form that must come to the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.algorithms.monoids import Monoid, Values
from penstock.algorithms.monoids.base import named
from penstock.loop.abi import numbered
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import Buffer, Kernel, Type, Value
from tests.unit.algorithms.running import run
from tests.unit.codegen.compare import array, zeros

FORMS = (
    "whole",
    "merged to the left",
    "merged to the right",
    "merged backwards",
    "merged with the identity",
)
LEFT = ("removed row by row", "taken at once")
TEXTS = ["", "a", "ab", "b", "é", "ab\0"]  # the arena of text monoids, by code

Make = Callable[[], Monoid]
Rows = Sequence[tuple[Any, ...]]


def folded(make: Make, types: tuple[Type, ...], rows: Rows, cuts: tuple[int, int]) -> list[list[Any]]:
    """Give the states of each form, the rows being cut into three stretches."""
    return _run(_folding(make, types), make, types, rows, cuts, len(FORMS))


def left_over(make: Make, types: tuple[Type, ...], rows: Rows, cut: int) -> list[list[Any]]:
    """Give the states when rows before a cut have left again, one by one and all at once."""
    return _run(_leaving(make, types), make, types, rows, (cut, cut), len(LEFT))


def _run(
    kernel: Kernel, make: Make, types: tuple[Type, ...], rows: Rows, cuts: tuple[int, int], forms: int
) -> list[list[Any]]:
    states = make().states
    memory = _memory(types, rows, cuts)
    outs = [numbered("out", place) for place in range(len(states))]
    memory |= {name: zeros(state.type, forms) for name, state in zip(outs, states, strict=True)}
    after = run(kernel, memory)[1]
    return [
        [_read(after[name], form, state.type) for name, state in zip(outs, states, strict=True)]
        for form in range(forms)
    ]


def _memory(types: tuple[Type, ...], rows: Rows, cuts: tuple[int, int]) -> dict[str, Any]:
    first, second = sorted(min(cut, len(rows)) for cut in cuts)
    bounds = {numbered("bound", n): bound for n, bound in enumerate((0, first, second, len(rows)))}
    columns = {
        numbered("values", place): array(type, [*(row[place] for row in rows), 0])
        for place, type in enumerate(types)
    }
    ends = np.cumsum([0, *(len(text.encode()) for text in TEXTS)])
    texts = np.frombuffer("".join(TEXTS).encode() + bytes(64), np.uint8)
    return {**bounds, **columns, "text_offsets": ends.astype(np.int64), "text": texts}


def _read(data: Any, place: int, type: Type) -> Any:
    if type.bits == 128:
        return (int(data[2 * place + 1]) << 64) | (int(data[2 * place]) & ((1 << 64) - 1))
    return data[place].item()


@cache
def _folding(make: Make, types: tuple[Type, ...]) -> Kernel:
    k, monoid = KernelBuilder("folding"), make()
    values, bounds, out = _parameters(k, monoid, types)
    whole = _fold(k, monoid, values, bounds[0], bounds[3])
    a, b, c = (_fold(k, monoid, values, *pair) for pair in pairwise(bounds))
    nothing = _fold(k, monoid, values, bounds[0], bounds[0])

    def merged(x: Values, y: Values) -> Values:
        return named(k, "state", monoid.merge(k, x, y))

    forms = (
        whole,
        merged(merged(a, b), c),
        merged(a, merged(b, c)),
        merged(c, merged(b, a)),
        merged(nothing, merged(whole, nothing)),
    )
    return _stored(k, out, forms)


@cache
def _leaving(make: Make, types: tuple[Type, ...]) -> Kernel:
    k, monoid = KernelBuilder("leaving"), make()
    values, bounds, out = _parameters(k, monoid, types)
    assert monoid.remove is not None and monoid.take is not None
    shrunk = _fold(k, monoid, values, bounds[0], bounds[3])
    with k.for_(bounds[0], bounds[1], "i") as i:
        left = named(k, "state", monoid.remove(k, shrunk, tuple(value[i] for value in values)))
        for state, new in zip(shrunk, left, strict=True):
            k.set(state, new)
    whole = _fold(k, monoid, values, bounds[0], bounds[3])
    gone = _fold(k, monoid, values, bounds[0], bounds[1])
    return _stored(k, out, (shrunk, monoid.take(k, whole, gone)))


def _parameters(
    k: KernelBuilder, monoid: Monoid, types: tuple[Type, ...]
) -> tuple[list[Buffer], list[Value], list[Buffer]]:
    values = [k.buffer("values", type) for type in types]
    bounds: list[Value] = [k.scalar("bound") for _ in range(4)]
    return values, bounds, [k.buffer("out", state.type) for state in monoid.states]


def _fold(k: KernelBuilder, monoid: Monoid, values: list[Buffer], start: Value, stop: Value) -> Any:
    states = tuple(k.var("state", state.identity, state.type) for state in monoid.states)
    with k.for_(start, stop, "i") as i:
        stepped = named(k, "state", monoid.step(k, states, tuple(value[i] for value in values)))
        for state, new in zip(states, stepped, strict=True):
            k.set(state, new)
    return states


def _stored(k: KernelBuilder, out: list[Buffer], forms: Sequence[Values]) -> Kernel:
    for form, states in enumerate(forms):
        for buffer, state in zip(out, states, strict=True):
            k.store(buffer, form, state)
    k.ret(0)
    return k.build()

"""Turn a predicate over a chunk of rows into the list of rows that pass, without branches."""

from __future__ import annotations

from collections.abc import Callable

from penstock.loop.abi import LANES
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I32, I64, U8, U64, Buffer, Peek, Unary, Value, Var, const, minimum

TURN_BITS = 8
TURN = 1 << TURN_BITS  # rows

# Multiplying eight 0/1 bytes by this gathers them, in order, into the top byte.
_GATHER = 0x0102040810204080


def select_rows(
    k: KernelBuilder,
    start: Value,
    n: Value,
    passes: Callable[[Value], Value],
    chosen: Buffer,
    positions: Buffer,
    meanwhile: Callable[[Value], None] | None = None,
) -> Var:
    """Fill `chosen` with the rows start + r, r < n, for which `passes(r)`, and return how many there are.

    Two loops: the predicate into a byte mask (vectorised), then eight rows at a time through a table
    of positions. Each step writes eight entries and keeps as many as were set, so `chosen` needs LANES spare entries.
    They take turns every few rows: the second reads no column, and would let memory wait. `meanwhile(r)` is done in the
    first loop too: memory streams that are read side by side arrive together, one after the other they are waited for twice.
    """
    mask = k.local("mask", U8, TURN + LANES)
    count = k.var("count", 0)
    with k.for_(0, (n + (TURN - 1)) >> TURN_BITS, "turn") as turn:
        done = k.var("done", turn * TURN)
        rows = k.var("rows", minimum(n - done, const(TURN, I64)))
        with k.for_(0, rows, "i") as i:
            r = k.var("r", done + i)
            if meanwhile is not None:
                meanwhile(r)
            k.store(mask, i, passes(r).to(U8))
        with k.for_(rows, rows + LANES, "i") as i:
            k.store(mask, i, 0)
        with k.for_(0, (rows + (LANES - 1)) >> 3, "g") as g:
            eight = Peek(mask, g * LANES, U64)
            bits = k.var("bits", ((eight * const(_GATHER, U64)) >> 56).to(I64))
            first = k.var("first", (start + done + g * LANES).to(I32))
            with k.for_(0, LANES, "lane") as lane:
                k.store(chosen, count + lane, positions[bits * LANES + lane].to(I32) + first)
            k.set(count, count + Unary("popcount", bits))
    return count


def chunk_length(left: Value, chunk: int) -> Value:
    return minimum(left, const(chunk, I64))

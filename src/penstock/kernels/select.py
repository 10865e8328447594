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
) -> Var:
    """Fill `chosen` with the rows start + r, r < n, for which `passes(r)`, and return how many there are.

    Two loops: the predicate into a byte mask (vectorised), then eight rows at a time through a table
    of positions. Each step writes eight entries and keeps as many as were set, so `chosen` needs LANES spare entries.
    They take turns every few rows: the second reads no column, and would let memory wait.
    """
    mask = k.local("mask", U8, TURN + LANES)
    count = k.var("count", 0)
    with k.for_(0, _turns(n), "turn") as turn:
        done = k.var("done", turn * TURN)
        rows = k.var("rows", minimum(n - done, const(TURN, I64)))
        with k.for_(0, rows, "i") as i:
            k.store(mask, i, passes(k.var("r", done + i)).to(U8))
        _list(k, mask, rows, start + done, chosen, count, positions)
    return count


def select_in_halves(
    k: KernelBuilder,
    start: Value,
    n: Value,
    passes: Callable[[Value], Value],
    chosen: Buffer,
    positions: Buffer,
    meanwhile: Callable[[Value], None],
    second: int,
) -> tuple[Var, Var]:
    """Do the same, but look at both halves of the rows side by side, and list those of the second half from chosen[second] on.

    `meanwhile(r)` is done in the same loop. Streams of memory that are read side by side arrive together; one after the other
    they are waited for each by itself.
    """
    masks = k.local("mask", U8, TURN // 2 + LANES), k.local("mask", U8, TURN // 2 + LANES)
    counts = k.var("count", 0), k.var("count", 0)
    half = k.var("half", (n + 1) >> 1)

    def look(way: int, i: Value, r: Value) -> None:
        meanwhile(r)
        k.store(masks[way], i, passes(r).to(U8))

    with k.for_(0, _turns(n), "turn") as turn:
        done = k.var("done", turn * (TURN // 2))
        rows = k.var("rows", minimum(half - done, const(TURN // 2, I64)))
        pairs = k.var("pairs", minimum(n - half - done, rows))  # as many, but for one row if n is odd
        with k.for_(0, pairs, "i") as i:
            look(0, i, k.var("r", done + i))
            look(1, i, k.var("r", half + done + i))
        with k.for_(pairs, rows, "i") as i:
            look(0, i, k.var("r", done + i))
        _list(k, masks[0], rows, start + done, chosen, counts[0], positions)
        _list(k, masks[1], pairs, start + half + done, chosen, counts[1], positions, second)
    return counts


def _turns(n: Value) -> Value:
    return (n + (TURN - 1)) >> TURN_BITS


def _list(
    k: KernelBuilder,
    mask: Buffer,
    rows: Value,
    start: Value,
    chosen: Buffer,
    count: Var,
    positions: Buffer,
    begin: int = 0,
) -> None:
    """Append the rows whose bytes of the mask are set to the list that begins at chosen[begin]."""
    with k.for_(rows, rows + LANES, "i") as i:
        k.store(mask, i, 0)
    with k.for_(0, (rows + (LANES - 1)) >> 3, "g") as g:
        eight = Peek(mask, g * LANES, U64)
        bits = k.var("bits", ((eight * const(_GATHER, U64)) >> 56).to(I64))
        first = k.var("first", (start + g * LANES).to(I32))
        with k.for_(0, LANES, "lane") as lane:
            k.store(chosen, count + begin + lane, positions[bits * LANES + lane].to(I32) + first)
        k.set(count, count + Unary("popcount", bits))


def chunk_length(left: Value, chunk: int) -> Value:
    return minimum(left, const(chunk, I64))

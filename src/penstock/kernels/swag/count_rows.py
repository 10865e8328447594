"""Count windows that move row by row: frame f is the `size` rows from f on.

    running      monoids that can `remove`: one running state
    two_passes   any monoid: two stacks, backwards over `size` rows for the suffixes, then forwards over as many
    short_rows   small frames of light monoids: every frame from its own rows, many frames at a time
    lanes        large frames of light monoids: two stacks, LANES neighbouring frames at a time

A running minimum is a chain of comparisons, which compilers turn into branches that adversarial data defeats.
The last two forms have no chain from row to row. The *eight* of a row is the aggregate of it and the seven
rows after it (LANES is 8), and all eights are independent of each other. A frame's rows are the eights 0, 8, 16,
… rows after its start, and the `size` % LANES rows after those, its tail; so frames that start LANES apart
share eights, and LANES neighbouring frames are as many independent chains: what a vector holds.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.kernels.monoids import Monoid, Values
from penstock.kernels.swag.fold import fold_known
from penstock.kernels.swag.slide import CountSlide, Memory, Scratch, States, scratch
from penstock.loop.abi import LANES
from penstock.loop.nodes import I64, Value, const, maximum, minimum

_CHUNK = 512  # rows whose eights are made at a time: they stay in the cache
LONGEST_SHORT = 128  # rows: from their eights, frames up to this long cost no more than stacks do
_LIGHT = 4


def light(monoids: Sequence[Monoid]) -> bool:
    """Whether states are so small that writing them out for every lane pays."""
    return len(monoids) <= _LIGHT and all(len(monoid.states) == 1 for monoid in monoids)


def running(slide: CountSlide) -> tuple[Scratch, ...]:
    """Write the loop over frames that let one row in and one out."""
    k = slide.k
    states = slide.identities("state")
    fold_known(slide, states, slide.begin, slide.size - 1)
    with k.for_(slide.begin, slide.end, "f") as f:
        slide.step(states, k.var("row", f + (slide.size - 1)))
        slide.emit(f, states)
        slide.remove(states, f)
    return ()


def two_passes(slide: CountSlide) -> tuple[Scratch, ...]:
    """Write the loop over blocks of `size` frames: suffixes of the block's rows, then the rows after it."""
    k, size = slide.k, slide.size
    suffix = slide.memory("suffix")
    block = k.var("block", slide.begin)
    with k.while_(block < slide.end):
        _suffixes(slide, suffix, block)
        slide.emit(block, slide.load(suffix, 0))
        back = slide.identities("back")
        with k.for_(1, minimum(slide.end - block, size), "g") as g:
            slide.step(back, k.var("row", block + g + (size - 1)))
            slide.emit(k.var("f", block + g), slide.merged(slide.load(suffix, g), back))
        k.set(block, block + size)
    return scratch(suffix, size)


def _suffixes(slide: CountSlide, suffix: Memory, block: Value) -> None:
    """Write the aggregates of a block's rows, from each of them to the last."""
    k, last = slide.k, slide.size - 1
    front = slide.identities("front")
    with k.for_(0, slide.size, "distance") as distance:
        slide.assign(front, slide.merged(_few(slide, block + last - distance, 1), front))
        slide.store(suffix, const(last, I64) - distance, front)


def short_rows(slide: CountSlide) -> tuple[Scratch, ...]:
    """Write the loop over frames that are made of a few eights and a tail."""
    k = slide.k
    many, tail = divmod(slide.size, LANES)
    eights = slide.local("eights", _CHUNK + LANES * many) if many else ()
    first = k.var("first", slide.begin)
    with k.while_(first < slide.end):
        count = k.var("count", minimum(slide.end - first, _CHUNK))
        if many:
            _eights(slide, eights, first, const(0, I64), count + LANES * (many - 1))
        with k.for_(0, count, "i") as i:
            parts = [slide.load(eights, i + LANES * each) for each in range(many)]
            parts += [_few(slide, first + i + LANES * many, tail)] if tail else []
            slide.emit(k.var("f", first + i), _joined(slide, parts))
        k.set(first, first + count)
    return ()


def lanes(slide: CountSlide) -> tuple[Scratch, ...]:
    """Write the loop over blocks of as many frames as a frame's eights have rows.

    Frames are taken LANES at a time, as many as there are; the last few are made from their own rows.
    """
    k, many = slide.k, slide.size // LANES
    suffix, prefix = slide.memory("suffix"), slide.local("prefix", _CHUNK + LANES)
    block = k.var("block", slide.begin)
    with k.while_(slide.end - block >= LANES):
        _suffixes_of_eights(slide, suffix, block)
        count = k.var("count", minimum((slide.end - block) & -LANES, LANES * many))
        _forward(slide, suffix, prefix, block, count)
        k.set(block, block + count)
    with k.for_(block, slide.end, "f") as f:
        states = slide.identities("state")
        fold_known(slide, states, f, slide.size)
        slide.emit(f, states)
    return scratch(suffix, LANES * (many + 1))


def _suffixes_of_eights(slide: CountSlide, suffix: Memory, block: Value) -> None:
    """Join each eight of a block's rows with those LANES, 2 LANES, … rows on; chunk by chunk, the last first."""
    k, rows = slide.k, slide.size // LANES * LANES
    for lane in range(LANES):
        slide.store(suffix, rows + lane, slide.identities("none"))
    stop = k.var("stop", rows)
    with k.while_(stop > 0):
        start = k.var("start", maximum(stop - _CHUNK, 0))
        _eights(slide, suffix, block, start, stop)
        with k.for_(0, (stop - start).div(LANES), "distance") as distance:
            group = k.var("group", stop - LANES - distance * LANES)
            _join_group(slide, suffix, group, group, group + LANES)
        k.set(stop, start)


def _forward(slide: CountSlide, suffix: Memory, prefix: Memory, block: Value, count: Value) -> None:
    """Emit `count` frames of a block, joining suffixes with the eights that follow and the tails.

    At [i], `prefix` holds the eights after the block up to, but without, the one that i's own suffix would be
    followed by; so the chunk's first LANES places are what the chunk before it hands on.
    """
    k, rows = slide.k, slide.size // LANES * LANES
    for lane in range(LANES):
        slide.store(prefix, lane, slide.identities("none"))
    done = k.var("done", 0)
    with k.while_(done < count):
        frames = k.var("frames", minimum(count - done, _CHUNK))
        entering = k.var("entering", block + rows + done - LANES)
        _eights(slide, prefix, entering, const(LANES, I64), frames)
        with k.for_(1, frames.div(LANES), "g") as g:
            _join_group(slide, prefix, g * LANES, (g - 1) * LANES, g * LANES)
        _emit_chunk(slide, suffix, prefix, block, done, frames)
        k.set(done, done + frames)
        with k.if_(done < count):
            _hand_on(slide, prefix, frames, entering)


def _emit_chunk(
    slide: CountSlide, suffix: Memory, prefix: Memory, block: Value, done: Value, frames: Value
) -> None:
    k, (many, tail) = slide.k, divmod(slide.size, LANES)
    with k.for_(0, frames, "i") as i:
        frame = k.var("f", block + done + i)
        parts = [slide.load(suffix, done + i), slide.load(prefix, i)]
        parts += [_few(slide, frame + LANES * many, tail)] if tail else []
        slide.emit(frame, _joined(slide, parts))


def _hand_on(slide: CountSlide, prefix: Memory, frames: Value, entering: Value) -> None:
    """Put the chunk's last group, and the eights that follow it, where the next chunk begins."""
    for lane in range(LANES):
        before = slide.load(prefix, frames - LANES + lane)
        slide.store(prefix, lane, slide.merged(before, _few(slide, entering + frames + lane, LANES)))


def _join_group(slide: CountSlide, memory: Memory, into: Value, older: Value, newer: Value) -> None:
    """Join two groups of LANES states."""
    pairs = [(slide.load(memory, older + lane), slide.load(memory, newer + lane)) for lane in range(LANES)]
    for lane, (a, b) in enumerate(pairs):
        slide.store(memory, into + lane, slide.merged(a, b))


def _eights(slide: CountSlide, memory: Memory, first: Value, start: Value, stop: Value) -> None:
    """Write the eights of the rows from `first` + `start` to [start, stop)."""
    with slide.k.for_(start, stop, "i") as i:
        slide.store(memory, i, _few(slide, first + i, LANES))


def _few(slide: CountSlide, start: Value, count: int) -> States:
    """Reduce a few rows without a loop."""
    states, row = slide.identities("few"), slide.k.var("row", start)
    for each in range(count):
        slide.step(states, slide.k.var("row", row + each))
    return states


def _joined(slide: CountSlide, parts: Sequence[Sequence[Values]]) -> Sequence[Values]:
    total = parts[0]
    for part in parts[1:]:
        total = slide.merged(total, part)
    return total

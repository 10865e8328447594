"""Count windows over rows without keys, in panes: frame f is the `size` rows from f * `every` on.

Frame bounds are arithmetic, so the kernels search nothing, and every loop length is known at build time.

    apart           frames do not overlap: each is reduced from its rows
    count_rows.py   frames move row by row
    running_panes   monoids that can `take`: one running state over panes
    short_panes     few panes per frame, light monoids: every frame from its panes, many frames per vector
    long_panes      many panes of few rows, light monoids: `lanes` of `count_rows.py`, over panes instead of rows
    panes           any monoid: two stacks over panes

A pane has `every` rows. Each row is reduced once. If `every` does not divide `size`, a frame ends within a pane: it
consists of `size // every` panes and the *head* of the next pane, its first `size % every` rows.

Cost: at most two steps per row and three merges per frame, independent of the size. Memory: one state per pane of a
frame, or per row if `every` is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from penstock.algorithms.monoids import Monoid, Values
from penstock.algorithms.sliding.count_rows import (
    FRAMES_PER_CHUNK,
    LONG_PANE,
    VECTORS,
    Blocks,
    ChunkRuns,
    few_rows,
    few_runs,
    lanes,
    longest_chain,
    running,
    short_rows,
    two_passes,
)
from penstock.algorithms.sliding.frame_algorithms import LONGEST_CHAIN, fold_known, fold_streams, light
from penstock.algorithms.sliding.slide import CountSlide, SlideScratch, States, scratch
from penstock.loop.abi import LANES
from penstock.loop.nodes import I64, Const, Value, Var, const, minimum, select

STREAMS = 4  # long panes read concurrently
Pieces = Sequence[tuple[int, int]]  # (offset, rows) within a pane
Use = Callable[[Value, Sequence[States]], None]


def reduced(slide: CountSlide, start: Value, count: int) -> States:
    """Return new states that aggregate `count` rows."""
    states = slide.identities("reduced")
    fold_known(slide, states, slide.k.var("start", start), count)
    return states


def each_reduced(slide: CountSlide, first: Value, count: Value, pieces: Pieces, use: Use) -> None:
    """Reduce the pieces of every pane: interleaved streams of distant panes first, then the remaining panes."""
    k, streams = slide.k, _streams(slide)
    per_stream = k.var("per_stream", count.div(streams))
    with k.for_(0, per_stream, "i", scalar=True) as i:
        panes = [k.var("pane", first + (i + per_stream * stream)) for stream in range(streams)]
        for pane, *parts in zip(panes, *_side_by_side(slide, panes, pieces), strict=True):
            use(pane, parts)
    if streams > 1 and not (isinstance(count, Const) and int(count.value) % streams == 0):
        _one_by_one(slide, first + per_stream * streams, first + count, pieces, use)


def _one_by_one(slide: CountSlide, begin: Value, end: Value, pieces: Pieces, use: Use) -> None:
    with slide.k.for_(begin, end, "pane", scalar=True) as pane:
        use(pane, _alone(slide, pane, pieces))


def _alone(slide: CountSlide, pane: Value, pieces: Pieces) -> Sequence[States]:
    return [states for (states,) in _side_by_side(slide, [pane], pieces)]


def _side_by_side(slide: CountSlide, panes: Sequence[Value], pieces: Pieces) -> Sequence[Sequence[States]]:
    """Reduce each piece of all panes interleaved. The reduction order of a pane is independent of their number."""
    return [_streamed(slide, panes, offset, rows) for offset, rows in pieces]


def _streamed(slide: CountSlide, panes: Sequence[Value], offset: int, rows: int) -> Sequence[States]:
    starts = [slide.k.var("start", pane * slide.every + offset) for pane in panes]
    streams = [(slide.identities("reduced"), start) for start in starts]
    fold_streams(slide, streams, rows)
    return [states for states, _ in streams]


def _streams(slide: CountSlide) -> int:
    """Return the number of panes to read concurrently: several streams hide memory latency."""
    rows = min(slide.size, slide.every)
    return STREAMS if rows >= LONG_PANE and light(slide.monoids) else 1


class PaneChunk:
    """The panes of a chunk of frames, and the heads of the panes that follow, stored one position later."""

    def __init__(self, slide: CountSlide, frames: int) -> None:
        self.slide, self.frames, k = slide, frames, slide.k
        self.many, self.rest = divmod(slide.size, slide.every)
        self.streams = _streams(slide) > 1
        self.whole = slide.local("pane", frames + self.many + VECTORS)
        self.heads = slide.local("head", frames + 1)
        with k.for_(0, self.many - 1, "p") as p:
            slide.store(self.whole, p, self._pane(slide.begin + p))
        if self.rest:
            last = k.var("last", slide.begin + (self.many - 1))
            slide.store(self.heads, 0, self._rows(last, 0, self.rest))

    def _pane(self, pane: Value) -> States:
        """Reduce a pane in the order used for entering panes: its head, then the rest."""
        if not self.rest:
            return self._rows(pane, 0, self.slide.every)
        head = self._rows(pane, 0, self.rest)
        return self.slide.merged(head, self._rows(pane, self.rest, self.slide.every - self.rest))

    def _rows(self, pane: Value, offset: int, rows: int) -> States:
        slide = self.slide
        if self.streams:
            return _alone(slide, pane, [(offset, rows)])[0]
        return reduced(slide, pane * slide.every + offset, rows)

    def filled(self, first: Value, count: Value) -> CountSlide:
        """Reduce the `count` entering panes; return a row-wise slide over all panes of the chunk."""
        self._enter_far_apart(first, count) if self.streams else self._enter(first, count)
        over = self.slide.over(self.whole, self.many, lambda i, states: self._frame(first, i, states))
        return replace(over, begin=const(0, I64), end=count)

    def _enter_far_apart(self, first: Value, count: Value) -> None:
        """Reduce panes without their heads, and the heads of the following panes; then merge both."""
        k, slide, every = self.slide.k, self.slide, self.slide.every
        pieces = [(self.rest, every - self.rest), *([(every, self.rest)] if self.rest else [])]
        entering = k.var("entering", first + (self.many - 1))

        def keep(pane: Value, parts: Sequence[States]) -> None:
            slide.store(self.whole, pane - first, parts[0])
            if self.rest:
                slide.store(self.heads, pane - entering + 1, parts[1])

        if isinstance(count, Const):
            each_reduced(slide, entering, count, pieces, keep)
        else:  # the last chunk: too few panes to pay for compiling streams
            _one_by_one(slide, entering, k.var("end", entering + count), pieces, keep)
        if self.rest:
            self._join_heads(count)

    def _join_heads(self, count: Value) -> None:
        slide = self.slide
        with slide.k.for_(0, count, "i") as i:
            place = slide.k.var("place", i + (self.many - 1))
            joined = slide.merged(slide.load(self.heads, i), slide.load(self.whole, place))
            slide.store(self.whole, place, joined)

    def _enter(self, first: Value, count: Value) -> None:
        k, slide, many = self.slide.k, self.slide, self.many
        made = few_rows if slide.every <= LANES else reduced  # short panes vectorise across panes
        with k.for_(0, count, "i", scalar=slide.every > LANES) as i:
            row = k.var("row", (first + i + (many - 1)) * slide.every + self.rest)
            states = made(slide, row, slide.every - self.rest)
            if self.rest:
                states = slide.merged(slide.load(self.heads, i), states)
                slide.store(self.heads, i + 1, made(slide, row + (slide.every - self.rest), self.rest))
            slide.store(self.whole, i + (many - 1), states)

    def _frame(self, first: Value, i: Value, states: Sequence[Values]) -> None:
        slide = self.slide
        whole = slide.merged(states, slide.load(self.heads, i + 1)) if self.rest else states
        slide.emit(slide.k.var("f", first + i), whole)

    def hand_on(self) -> None:
        """Move the panes and the head that the next chunk shares to the front."""
        k, slide = self.slide.k, self.slide
        with k.for_(0, self.many - 1, "p") as p:
            slide.store(self.whole, p, slide.load(self.whole, p + self.frames))
        if self.rest:
            slide.store(self.heads, 0, slide.load(self.heads, self.frames))


# Reducing a pane of up to _SHORTEST rows costs as much as merging it; up to _MOST_PANES panes stay in the cache.
_SHORTEST, _MOST_PANES = 4, 2048


def count_slide(slide: CountSlide) -> tuple[SlideScratch, ...]:
    """Emit the loop over frames in the form that suits the size, the slide and the monoids."""
    k = slide.k
    with k.if_(slide.begin < slide.end):
        if not any(monoid.hasty for monoid in slide.monoids):
            return _written(slide)
        doubt = k.var("doubt", 0)
        needs = _written(hastened(slide, doubt))
        with k.if_(doubt.ne(0)):
            return (*needs, *_written(slide))


def _written(slide: CountSlide) -> tuple[SlideScratch, ...]:
    lighter = lightened(slide)
    return form_of(lighter)(lighter)


def hastened(slide: CountSlide, doubt: Var) -> CountSlide:
    """Aggregate by the hasty monoids, and set `doubt` if a result may be wrong; the caller then recomputes all frames.

    `doubt` is a 64-bit mask, as wide as the values, so that the loop vectorises.
    """
    several = [monoid.hasty for monoid in slide.monoids]

    def emit(f: Value, totals: Sequence[Values]) -> None:
        for hasty, total in zip(several, totals, strict=True):
            if hasty:
                slide.k.set(doubt, doubt | select(hasty.doubtful(total), const(-1, I64), const(0, I64)))
        slide.emit(f, totals)

    hastier = [
        hasty.monoid if hasty else monoid for hasty, monoid in zip(several, slide.monoids, strict=True)
    ]
    return replace(slide, monoids=hastier, emit=emit)


def lightened(slide: CountSlide) -> CountSlide:
    """Use the cheaper `in_chunk` monoids if no chain of additions in a frame exceeds `LONGEST_CHAIN`."""
    lighter = [monoid.in_chunk or monoid for monoid in slide.monoids]
    if lighter == list(slide.monoids) or _chain(slide, lighter) > LONGEST_CHAIN:
        return slide
    emit = lambda f, totals: slide.emit(f, slide.entered(totals))  # noqa: E731 - a closure of one line
    return replace(slide, monoids=lighter, emit=emit)


def _chain(slide: CountSlide, monoids: Sequence[Monoid]) -> int:
    """Bound the chain of dependent additions behind a frame's result."""
    if slide.every > 1:
        return slide.every // LANES + slide.size // slide.every
    return longest_chain(replace(slide, monoids=monoids)) if light(monoids) else slide.size


def form_of(slide: CountSlide) -> Callable[[CountSlide], tuple[SlideScratch, ...]]:
    """Choose the loop's form."""
    if slide.every >= slide.size:
        return apart
    if slide.every == 1:
        return _row_by_row(slide)
    if all(monoid.take for monoid in slide.monoids):
        return running_panes
    if not light(slide.monoids):
        return panes
    many = slide.size // slide.every
    if few_runs(slide, many):
        return short_panes
    short = slide.every <= _SHORTEST and slide.size % slide.every == 0
    return long_panes if short and many <= _MOST_PANES else panes


def _row_by_row(slide: CountSlide) -> Callable[[CountSlide], tuple[SlideScratch, ...]]:
    if all(monoid.remove for monoid in slide.monoids):
        return running
    if not light(slide.monoids):
        return two_passes
    return short_rows if few_runs(slide, slide.size) else lanes


def apart(slide: CountSlide) -> tuple[SlideScratch, ...]:
    """Emit the loop over frames that share no rows."""
    count = slide.k.var("count", slide.end - slide.begin)
    emit = lambda f, parts: slide.emit(f, parts[0])  # noqa: E731 - a closure of one line
    each_reduced(slide, slide.begin, count, [(0, slide.size)], emit)
    return ()


def running_panes(slide: CountSlide) -> tuple[SlideScratch, ...]:
    """Emit the loop that adds one pane and subtracts one per frame; a ring buffer holds the panes."""
    k, ring = slide.k, _Panes(slide)
    total = slide.identities("total")
    with k.for_(0, ring.many - 1, "p") as p:
        slide.assign(total, slide.merged(total, ring.fill(p, slide.begin + p)))
    ring.take_head(slide.begin + (ring.many - 1))
    place = k.var("place", ring.many - 1)
    with k.for_(slide.begin, slide.end, "f") as f:
        slide.assign(total, slide.merged(total, ring.complete(place, f + (ring.many - 1))))
        ring.take_head(f + ring.many)
        slide.emit(f, ring.with_head(total))
        k.set(place, select(place.eq(ring.many - 1), 0, place + 1))
        slide.assign(total, slide.without(total, slide.load(ring.slots, place)))
    return scratch(ring.slots, ring.many)


def short_panes(slide: CountSlide) -> tuple[SlideScratch, ...]:
    """Emit the loop over chunks of frames: reduce the entering panes, then merge the few panes of each frame."""
    k = slide.k
    chunk = PaneChunk(slide, FRAMES_PER_CHUNK)
    runs = ChunkRuns(slide, chunk.many)
    first = k.var("first", slide.begin)
    with k.while_(slide.end - first > FRAMES_PER_CHUNK):
        whole = const(FRAMES_PER_CHUNK, I64)
        runs.emit(chunk.filled(first, whole), const(0, I64), whole, const(runs.length, I64))
        chunk.hand_on()
        k.set(first, first + FRAMES_PER_CHUNK)
    count = k.var("count", slide.end - first)
    runs.emit(chunk.filled(first, count), const(0, I64), count, count + runs.beyond)
    return ()


def long_panes(slide: CountSlide) -> tuple[SlideScratch, ...]:
    """Emit the loop over blocks of frames: reduce the entering panes, then slide over panes as `lanes` does over rows.

    Memory holds only the entering panes, from position 0 on; row numbers of `blocks` are relative to it. The leaving
    panes are in the buffers of `blocks`.
    """
    k, entering = slide.k, _Entering(slide)
    blocks, block = entering.blocks, entering.block
    with k.if_(slide.end - block >= blocks.width):
        entering.reduce(const(0, I64), const(entering.span + blocks.width - 1, I64), block)
        with k.for_(0, blocks.panes, "p") as p:
            blocks.add_pane(p, k.var("first", p * blocks.rows))
    with k.while_(slide.end - block >= blocks.width):
        entering.enter()
        count = k.var("count", minimum((slide.end - block) & -blocks.width, entering.span))
        blocks.block(const(-entering.span, I64), count)
        entering.hand_on()
        k.set(block, block + count)
    with k.for_(block, slide.end, "f") as f:
        slide.emit(f, reduced(slide, f * slide.every, slide.size))
    return blocks.needs


class _Entering:
    """The panes that enter while a block of frames is emitted, and the lookahead after them."""

    def __init__(self, slide: CountSlide) -> None:
        self.slide, k = slide, slide.k
        many = slide.size // slide.every
        self.memory = slide.local("pane", many + VECTORS)
        self.block = k.var("block", slide.begin)
        self.left, self.ready = k.var("left", 0), k.var("ready", 0)
        over = slide.over(self.memory, many, self._emit)
        self.blocks = Blocks(replace(over, end=self.left))
        self.span = self.blocks.panes * self.blocks.rows
        self.beyond = many - self.span - 1

    def _emit(self, frame: Value, states: Sequence[Values]) -> None:
        self.slide.emit(self.slide.k.var("f", frame + (self.block + self.span)), states)

    def reduce(self, start: Value, stop: Value, first: Value) -> None:
        """Reduce panes into the positions start … stop; position 0 is pane `first`."""
        k, slide = self.slide.k, self.slide
        with k.for_(start, stop, "i") as i:
            slide.store(self.memory, i, few_rows(slide, (first + i) * slide.every, slide.every))

    def enter(self) -> None:
        """Reduce a block's missing panes, without reading rows past the last frame."""
        k, slide = self.slide.k, self.slide
        k.set(self.left, slide.end - self.block - self.span)
        ahead = minimum(slide.end - self.block, self.span + self.blocks.width)
        self.reduce(self.ready, k.var("stop", ahead + self.beyond), k.var("first", self.block + self.span))

    def hand_on(self) -> None:
        """Move the lookahead panes to the front for the next block."""
        k, slide = self.slide.k, self.slide
        ahead = self.beyond + self.blocks.width
        with k.for_(0, ahead, "i") as i:
            slide.store(self.memory, i, slide.load(self.memory, i + self.span))
        k.set(self.ready, ahead)


def panes(slide: CountSlide) -> tuple[SlideScratch, ...]:
    """Emit the loop over blocks of as many frames as a frame has panes.

    A flip turns the panes of the block's first frame into suffixes, in place. After a frame is emitted, the entering
    pane overwrites its suffix, so the slots hold the next block's panes when the block ends.
    """
    k, front = slide.k, _Panes(slide)
    last = front.many - 1
    with k.for_(0, last, "p") as p:
        front.fill(p, slide.begin + p)
    front.take_head(slide.begin + last)
    block = k.var("block", slide.begin)
    with k.while_(block < slide.end):
        front.complete(last, block + last)
        front.flip()
        front.take_head(block + front.many)
        slide.emit(block, front.with_head(slide.load(front.slots, 0)))
        _newer_panes(slide, front, block)
        k.set(block, block + front.many)
    return scratch(front.slots, front.many)


def _newer_panes(slide: CountSlide, front: _Panes, block: Value) -> None:
    """Add panes one by one, and emit the frames of a block after its first."""
    k = slide.k
    back = slide.identities("back")
    with k.for_(1, minimum(slide.end - block, front.many), "g") as g:
        entering = k.var("entering", block + g + front.many)
        slide.assign(back, slide.merged(back, front.complete(g - 1, entering - 1)))
        front.take_head(entering)
        newer = front.with_head(back)
        slide.emit(k.var("f", block + g), slide.merged(slide.load(front.slots, g), newer))


class _Panes:
    """The panes of a frame in memory, and the head of the pane that has not entered yet."""

    def __init__(self, slide: CountSlide) -> None:
        self.slide = slide
        self.many, self.rest = divmod(slide.size, slide.every)
        self.slots = slide.memory("pane")
        self.head = slide.identities("head") if self.rest else ()

    def fill(self, place: Value, pane: Value) -> States:
        """Reduce a pane into a slot."""
        states = reduced(self.slide, pane * self.slide.every, self.slide.every)
        self.slide.store(self.slots, place, states)
        return states

    def take_head(self, pane: Value) -> None:
        """Reduce the head of a pane: the rows that end a frame."""
        if self.rest:
            self.slide.assign(self.head, reduced(self.slide, pane * self.slide.every, self.rest))

    def with_head(self, states: Sequence[Values]) -> Sequence[Values]:
        return self.slide.merged(states, self.head) if self.rest else states

    def complete(self, place: Value | int, pane: Value) -> States:
        """Reduce the rows of a pane after its head, and store the whole pane in a slot."""
        every = self.slide.every
        states = reduced(self.slide, pane * every + self.rest, every - self.rest)
        if self.rest:
            states = self.slide.merged(self.head, states)
        self.slide.store(self.slots, place, states)
        return states

    def flip(self) -> None:
        """Turn panes into suffix aggregates."""
        k, slide = self.slide.k, self.slide
        front = slide.load(self.slots, self.many - 1)
        with k.for_(1, self.many, "distance") as distance:
            place = k.var("place", const(self.many - 1, I64) - distance)
            slide.assign(front, slide.merged(slide.load(self.slots, place), front))
            slide.store(self.slots, place, front)

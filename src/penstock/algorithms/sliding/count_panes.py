"""Pane reduction for count windows: one pane at a time, or several interleaved streams of distant panes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from penstock.algorithms.monoids import Values
from penstock.algorithms.sliding.accumulate import fold_known, fold_streams, light
from penstock.algorithms.sliding.count_rows import LONG_PANE, VECTORS, few_rows
from penstock.algorithms.sliding.slide import CountSlide, States
from penstock.loop.abi import LANES
from penstock.loop.nodes import I64, Const, Value, const

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

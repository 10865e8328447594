"""Count windows that move row by row: frame f is the `size` rows from f on.

    running      monoids that can `remove`: one running state
    two_passes   any monoid: two stacks, backwards over `size` rows for the suffixes, then forwards over as many
    short_rows   small frames of light monoids: every frame from its own rows, many frames at a time
    lanes        large frames of light monoids: two stacks, LANES neighbouring frames at a time, over panes

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
from penstock.loop.nodes import I64, Value, const, minimum

_CHUNK = 512  # frames whose eights are made at a time: they stay in the cache
_NARROWEST, _WIDEST = 8, 16  # groups of a pane: likewise
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
    """Write the loop over frames taken LANES at a time, as far as they go; the last few from their own rows."""
    k, chunks = slide.k, _Chunks(slide)
    block = k.var("block", slide.begin)
    with k.if_(slide.end - block >= LANES), k.for_(0, chunks.panes, "p") as p:
        chunks.add_pane(p, k.var("first", block + p * chunks.rows))
    with k.while_(slide.end - block >= LANES):
        count = k.var("count", minimum((slide.end - block) & -LANES, chunks.panes * chunks.rows))
        chunks.block(block, count)
        k.set(block, block + count)
    with k.for_(block, slide.end, "f") as f:
        states = slide.identities("state")
        fold_known(slide, states, f, slide.size)
        slide.emit(f, states)
    return scratch(chunks.whole, LANES * (chunks.panes + 1))


class _Chunks:
    """Two stacks over panes of LANES frames side by side, and within the first and last pane, over eights.

    A group is LANES states, of neighbouring frames. A pane is some groups of eights, of `rows` rows; frames
    are `panes` of them, `over` eights more, and a tail. The memory for a frame is one group a pane, in `whole`:
    pane by pane, each joined with all after it when a block begins. A block is as many frames as panes have
    rows, and a chunk the frames that start in one pane. A chunk's own pane is joined eight by eight in `suffix`,
    what comes after the block in `prefix`, from the eights in `eights`.
    """

    def __init__(self, slide: CountSlide) -> None:
        self.slide = slide
        groups = slide.size // LANES
        width = _pane_width(groups)
        self.panes, self.over, self.rows = groups // width, groups % width, width * LANES
        self.whole = slide.memory("whole")
        self.suffix, self.prefix = (slide.local(hint, self.rows + LANES) for hint in ("suffix", "prefix"))
        self.eights = slide.local("eights", self.rows + LANES * self.over)

    def add_pane(self, place: Value, first: Value) -> None:
        """Reduce the pane of the rows from `first` on."""
        _eights(self.slide, self.eights, first, const(0, I64), const(self.rows, I64))
        self._join_pane(place)

    def _join_pane(self, place: Value) -> None:
        """Join the pane whose eights are made, and keep what it comes to."""
        with self.slide.k.for_(1, self.rows // LANES, "g") as g:
            _join(
                self.slide, self.eights, g * LANES, (self.eights, (g - 1) * LANES), (self.eights, g * LANES)
            )
        _copy(self.slide, self.whole, place * LANES, self.eights, const(self.rows - LANES, I64))

    def block(self, block: Value, count: Value) -> None:
        """Emit `count` frames from `block` on."""
        k, slide = self.slide.k, self.slide
        _clear(slide, self.whole, self.panes * LANES)
        with k.for_(0, self.panes, "distance") as distance:
            group = k.var("group", const((self.panes - 1) * LANES, I64) - distance * LANES)
            _join(slide, self.whole, group, (self.whole, group), (self.whole, group + LANES))
        _clear(slide, self.prefix, 0)
        done, place = k.var("done", 0), k.var("place", 0)
        with k.while_(done < count):
            frames = k.var("frames", minimum(count - done, self.rows))
            self._chunk(k.var("first", block + done), frames, place)
            k.set(done, done + frames)
            k.set(place, place + 1)

    def _chunk(self, first: Value, frames: Value, place: Value) -> None:
        k = self.slide.k
        entering = k.var("entering", first + self.panes * self.rows)
        self._front(first, place)
        self._back(entering, frames)
        self._emit(first, frames)
        with k.if_(self.slide.end - (first + frames) >= LANES):
            self._hand_on(entering, place)

    def _front(self, first: Value, place: Value) -> None:
        """Join the eights of the chunk's own pane with all after them in the block."""
        k, slide = self.slide.k, self.slide
        _eights(slide, self.suffix, first, const(0, I64), const(self.rows, I64))
        _copy(slide, self.suffix, const(self.rows, I64), self.whole, (place + 1) * LANES)
        with k.for_(0, self.rows // LANES, "distance") as distance:
            group = k.var("group", const(self.rows - LANES, I64) - distance * LANES)
            _join(slide, self.suffix, group, (self.suffix, group), (self.suffix, group + LANES))

    def _back(self, entering: Value, frames: Value) -> None:
        """Join the eights after the block with all before them; what the chunk before handed on is first."""
        k, slide = self.slide.k, self.slide
        _eights(slide, self.eights, entering, const(0, I64), frames + LANES * (self.over - 1))
        with k.for_(1, frames.div(LANES), "g") as g:
            before = k.var("before", (g - 1) * LANES)
            _join(slide, self.prefix, g * LANES, (self.prefix, before), (self.eights, before))

    def _emit(self, first: Value, frames: Value) -> None:
        k, slide = self.slide.k, self.slide
        whole, tail = slide.size // LANES * LANES, slide.size % LANES
        with k.for_(0, frames, "i") as i:
            frame = k.var("f", first + i)
            parts = [slide.load(self.suffix, i), slide.load(self.prefix, i)]
            parts += [slide.load(self.eights, i + LANES * each) for each in range(self.over)]
            parts += [_few(slide, frame + whole, tail)] if tail else []
            slide.emit(frame, _joined(slide, parts))

    def _hand_on(self, entering: Value, place: Value) -> None:
        """Complete the pane that has entered: it follows what the next chunk emits, and is in the next block."""
        slide, last = self.slide, const(self.rows - LANES, I64)
        if not self.over:
            _eights(slide, self.eights, entering, last, const(self.rows, I64))
        _join(slide, self.prefix, const(0, I64), (self.prefix, last), (self.eights, last))
        self._join_pane(place)


def _pane_width(groups: int) -> int:
    """Choose how many groups make a pane: of some widths, the widest that leaves the fewest over."""
    return min(
        range(min(_NARROWEST, groups), min(_WIDEST, groups) + 1), key=lambda width: (groups % width, -width)
    )


Group = tuple[Memory, Value]


def _join(slide: CountSlide, memory: Memory, into: Value, older: Group, newer: Group) -> None:
    """Join two groups."""
    pairs = [
        (slide.load(older[0], older[1] + lane), slide.load(newer[0], newer[1] + lane))
        for lane in range(LANES)
    ]
    for lane, (a, b) in enumerate(pairs):
        slide.store(memory, into + lane, slide.merged(a, b))


def _copy(slide: CountSlide, memory: Memory, into: Value, source: Memory, place: Value) -> None:
    for lane in range(LANES):
        slide.store(memory, into + lane, slide.load(source, place + lane))


def _clear(slide: CountSlide, memory: Memory, place: int) -> None:
    for lane in range(LANES):
        slide.store(memory, place + lane, slide.identities("none"))


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

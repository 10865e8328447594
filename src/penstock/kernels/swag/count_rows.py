"""Count windows that move row by row: frame f is the `size` rows from f on.

    running      monoids that can `remove`: one running state
    two_passes   any monoid: two stacks, backwards over `size` rows for the suffixes, then forwards over as many
    short_rows   small frames of light monoids: every frame from its own rows, many frames at a time
    lanes        large frames of light monoids: two stacks over panes, for several neighbouring frames at a time

A running minimum is a chain of comparisons, which compilers turn into branches that adversarial data defeats.
The last two forms have no chain from row to row. The *run* of a row is the aggregate of it and the few rows after
it, as many as a vector has lanes; all runs are independent of each other. A frame's rows are the runs 0, 1, 2, …
widths after its start, and the rows after those, its *tail*. So frames that start a width apart share runs,
and neighbouring frames are as many independent chains: what a vector holds.

Loops over a chunk of frames are written twice: with a length that is known and suits vectors, and for the last
frames, which end where the rows do.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.kernels.monoids import Monoid, Values
from penstock.kernels.swag.fold import LONGEST_CHAIN, fold_known, has_floats
from penstock.kernels.swag.slide import Aggregation, CountSlide, Memory, Scratch, States, scratch
from penstock.loop.nodes import I64, Operand, Value, const, minimum

CHUNK = 512  # frames of a chunk of short ones: their runs stay in the cache
_VECTORS = 32  # loops of a multiple of this many turns leave no rest to do one by one
_NARROWEST, _WIDEST = 8, 16  # groups of a pane
_MOST_MONOIDS = 4


def light(monoids: Sequence[Monoid]) -> bool:
    """Whether states are so small that writing them out for every lane pays."""
    return len(monoids) <= _MOST_MONOIDS and all(len(monoid.states) == 1 for monoid in monoids)


def width_of(monoids: Sequence[Monoid]) -> int:
    """How many states are as wide as a vector, at the least."""
    return 4 if any(state.type.bits > 32 for monoid in monoids for state in monoid.states) else 8


def few_runs(slide: CountSlide, size: int) -> bool:
    """Whether frames of a size have so few runs that joining them costs no more than stacks do."""
    width = width_of(slide.monoids)
    return size <= 2 * width * width


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
    """Write the loop over frames that are made of a few runs and a tail."""
    k, runs = slide.k, Runs(slide, slide.size)
    first = k.var("first", slide.begin)
    with k.while_(slide.end - first >= CHUNK + _VECTORS):
        runs.emit(slide, first, const(CHUNK, I64), const(runs.length, I64))
        k.set(first, first + CHUNK)
    with k.while_(first < slide.end):
        count = k.var("count", minimum(slide.end - first, CHUNK))
        runs.emit(slide, first, count, count + runs.beyond)
        k.set(first, first + count)
    return ()


class Runs:
    """The runs of a chunk of frames that have few of them. The last starts `beyond` rows after the last frame."""

    def __init__(self, part: Aggregation, size: int) -> None:
        self.width = width_of(part.monoids)
        self.many, self.tail = divmod(size, self.width)
        self.beyond = (self.many - 1) * self.width
        self.length = -(-(CHUNK + self.beyond) // _VECTORS) * _VECTORS
        self.memory = part.local("runs", self.length)

    def emit(self, slide: CountSlide, first: Value, count: Value, made: Value) -> None:
        """Make runs, then emit `count` frames."""
        k = slide.k
        if self.many:
            _runs(slide, self.memory, first, const(0, I64), made)
        with k.for_(0, count, "i") as i:
            parts = [slide.load(self.memory, i + self.width * each) for each in range(self.many)]
            parts += [_few(slide, first + i + self.width * self.many, self.tail)] if self.tail else []
            slide.emit(k.var("f", first + i), _joined(slide, parts))


def lanes(slide: CountSlide) -> tuple[Scratch, ...]:
    """Write the loop over frames taken a width at a time, as far as they go; the last few from their own rows."""
    k, chunks = slide.k, _Chunks(slide)
    block = k.var("block", slide.begin)
    with k.if_(slide.end - block >= chunks.width), k.for_(0, chunks.panes, "p") as p:
        chunks.add_pane(p, k.var("first", block + p * chunks.rows))
    with k.while_(slide.end - block >= chunks.width):
        count = k.var("count", minimum((slide.end - block) & -chunks.width, chunks.panes * chunks.rows))
        chunks.block(block, count)
        k.set(block, block + count)
    with k.for_(block, slide.end, "f") as f:
        states = slide.identities("state")
        fold_known(slide, states, f, slide.size)
        slide.emit(f, states)
    return scratch(chunks.whole, chunks.width * (chunks.panes + 1))


class _Chunks:
    """Two stacks over panes of several frames side by side, and within the first and last pane, over runs.

    A group is as many states as a vector has lanes, those of neighbouring frames. A pane is some groups of
    runs, of `rows` rows; frames are `panes` of them, `over` runs more, and a tail. The memory for a frame is
    one group a pane, in `whole`: pane by pane, each joined with all after it when a block begins. A block is
    as many frames as the panes have rows, and a chunk the frames that start in one pane. A chunk's own pane
    is joined run by run in `suffix`, what comes after the block in `prefix`, from the runs in `runs`.
    """

    def __init__(self, slide: CountSlide) -> None:
        self.slide, self.width = slide, width_of(slide.monoids)
        groups = slide.size // self.width
        self.groups = _pane_width(groups, LONGEST_CHAIN // 2 if has_floats(slide.monoids) else groups)
        self.panes, self.over = divmod(groups, self.groups)
        self.rows = self.groups * self.width
        self.whole = slide.memory("whole")
        self.suffix, self.prefix = (
            slide.local(hint, self.rows + self.width) for hint in ("suffix", "prefix")
        )
        self.runs = slide.local("runs", self.rows + self.width * self.over)

    def add_pane(self, place: Value, first: Value) -> None:
        """Reduce the pane of the rows from `first` on."""
        _runs(self.slide, self.runs, first, const(0, I64), const(self.rows, I64))
        self._keep_pane(place)

    def _keep_pane(self, place: Value) -> None:
        """Join the pane whose runs are made, and keep what it comes to."""
        with self.slide.k.for_(1, self.groups, "g") as g:
            self._join(
                self.runs, g * self.width, (self.runs, (g - 1) * self.width), (self.runs, g * self.width)
            )
        self._copy(self.whole, place * self.width, self.runs, const(self.rows - self.width, I64))

    def block(self, block: Value, count: Value) -> None:
        """Emit `count` frames from `block` on."""
        k = self.slide.k
        self._clear(self.whole, self.panes * self.width)
        self._join_backwards(self.whole, self.panes)
        self._clear(self.prefix, 0)
        first, place = k.var("first", block), k.var("place", 0)
        with k.while_(first < block + count):
            self._front(first, place)
            with k.if_(self.slide.end - first >= self.rows + self.width):
                self._chunk(first, place)
            with k.else_():
                self._last_chunk(first)
            k.set(first, first + self.rows)
            k.set(place, place + 1)

    def _chunk(self, first: Value, place: Value) -> None:
        """Emit a whole chunk; the pane that enters meanwhile follows it, and belongs to the next block."""
        rows, last = const(self.rows, I64), const(self.rows - self.width, I64)
        self._back(first, const(self.rows + self.width * self.over, I64), self.groups)
        self._emit(first, rows)
        self._join(self.prefix, const(0, I64), (self.prefix, last), (self.runs, last))
        self._keep_pane(place)

    def _last_chunk(self, first: Value) -> None:
        """Emit what is left, a whole number of groups, and read no row beyond."""
        k = self.slide.k
        groups = k.var("groups", minimum((self.slide.end - first).div(self.width), self.groups))
        self._back(first, (groups + (self.over - 1)) * self.width, groups)
        self._emit(first, groups * self.width)

    def _front(self, first: Value, place: Value) -> None:
        """Join the runs of the chunk's own pane with all after them in the block."""
        _runs(self.slide, self.suffix, first, const(0, I64), const(self.rows, I64))
        self._copy(self.suffix, const(self.rows, I64), self.whole, (place + 1) * self.width)
        self._join_backwards(self.suffix, self.groups)

    def _back(self, first: Value, made: Value, groups: Operand) -> None:
        """Join the runs after the block with all before them; what the chunk before handed on comes first."""
        k = self.slide.k
        _runs(self.slide, self.runs, k.var("entering", first + self.panes * self.rows), const(0, I64), made)
        with k.for_(1, groups, "g") as g:
            before = k.var("before", (g - 1) * self.width)
            self._join(self.prefix, g * self.width, (self.prefix, before), (self.runs, before))

    def _emit(self, first: Value, frames: Value) -> None:
        k, slide = self.slide.k, self.slide
        tail = slide.size % self.width
        with k.for_(0, frames, "i") as i:
            frame = k.var("f", first + i)
            parts = [slide.load(self.suffix, i), slide.load(self.prefix, i)]
            parts += [slide.load(self.runs, i + self.width * each) for each in range(self.over)]
            parts += [_few(slide, frame + (slide.size - tail), tail)] if tail else []
            slide.emit(frame, _joined(slide, parts))

    def _join_backwards(self, memory: Memory, groups: int) -> None:
        """Join each group with all after it."""
        k = self.slide.k
        with k.for_(0, groups, "distance") as distance:
            group = k.var("group", (const(groups - 1, I64) - distance) * self.width)
            self._join(memory, group, (memory, group), (memory, group + self.width))

    def _join(
        self, into: Memory, place: Value, older: tuple[Memory, Value], newer: tuple[Memory, Value]
    ) -> None:
        """Join two groups."""
        slide = self.slide
        groups = [
            [slide.load(memory, at + lane) for lane in range(self.width)] for memory, at in (older, newer)
        ]
        for lane, (a, b) in enumerate(zip(*groups, strict=True)):
            slide.store(into, place + lane, slide.merged(a, b))

    def _copy(self, into: Memory, place: Value, source: Memory, at: Value) -> None:
        for lane in range(self.width):
            self.slide.store(into, place + lane, self.slide.load(source, at + lane))

    def _clear(self, memory: Memory, place: int) -> None:
        for lane in range(self.width):
            self.slide.store(memory, place + lane, self.slide.identities("none"))


def _pane_width(groups: int, most_panes: int) -> int:
    """Choose how many groups make a pane: of some widths, the widest that leaves the fewest over."""
    least = min(max(_NARROWEST, groups // most_panes), groups)
    most = min(max(_WIDEST, 2 * least), groups)
    return min(range(least, most + 1), key=lambda width: (groups % width, -width))


def _runs(slide: CountSlide, memory: Memory, first: Value, start: Value, stop: Value) -> None:
    """Write the runs of the rows from `first` + `start` on to [start, stop)."""
    with slide.k.for_(start, stop, "i") as i:
        slide.store(memory, i, _few(slide, first + i, width_of(slide.monoids)))


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

"""Count windows that move row by row: frame f is the `size` rows from f on.

    running      monoids that can `remove`: one running state
    two_passes   any monoid: two stacks, backwards over `size` rows for the suffixes, then forwards over as many
    short_rows   small frames of light monoids: every frame from its rows, many frames per vector
    lanes        large frames of light monoids: two stacks over panes, several neighbouring frames per vector

A running minimum is a chain of comparisons. Compilers turn it into branches, which adversarial data mispredicts.
The last two forms have no dependency from row to row. The *run* of a row aggregates as many consecutive rows, from
that row on, as a vector has lanes. Runs are independent. A frame consists of the runs at 0, 1, 2, … widths after its
start, and of the remaining rows, its *tail*. Frames that start a width apart share runs. Neighbouring frames are
independent chains, one per vector lane.

Loops over a chunk of frames are emitted twice: with a constant length that suits vectors, and for the last frames,
which end with the rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.algorithms.monoids import Monoid, Values
from penstock.algorithms.sliding.frame_algorithms import fold_known, has_floats
from penstock.algorithms.sliding.slide import Aggregation, CountSlide, Memory, SlideScratch, States, scratch
from penstock.loop.nodes import I32, I64, Value, const, minimum

FRAMES_PER_CHUNK = 512  # short frames per chunk: their runs stay in the cache
VECTORS = 32  # loops with a multiple of this trip count have no scalar remainder
LONG_PANE = 16  # rows from which several streams are faster than one, see docs/decisions/0078
_NARROWEST, _WIDEST = 4, 8  # groups of a pane
PANES_PER_SWEEP = 2048  # panes, a power of two: long enough for negligible cost, short enough for the accuracy of float sums
_CACHE = 1 << 18  # bytes assumed to stay in the cache
Group = Sequence[States]


def width_of(monoids: Sequence[Monoid]) -> int:
    """Return the number of vector lanes: 4 if a state is wider than 32 bits, else 8."""
    return 4 if any(state.type.bits > 32 for monoid in monoids for state in monoid.states) else 8


def few_runs(slide: CountSlide, size: int) -> bool:
    """Return whether merging the runs of a frame of `size` rows or panes costs no more than two stacks."""
    square = width_of(slide.monoids) ** 2
    # Measured. Pane reduction adds work; memory-bound panes leave time for more merges.
    most = 5 * square // 4 if slide.every == 1 else 2 * square if slide.every < LONG_PANE else 4 * square
    return size <= most


def running(slide: CountSlide) -> tuple[SlideScratch, ...]:
    """Emit the loop that adds one row and removes one per frame."""
    k = slide.k
    states = slide.identities("state")
    fold_known(slide, states, slide.begin, slide.size - 1)
    with k.for_(slide.begin, slide.end, "f") as f:
        slide.step(states, k.var("row", f + (slide.size - 1)))
        slide.emit(f, states)
        slide.remove(states, f)
    return ()


def two_passes(slide: CountSlide) -> tuple[SlideScratch, ...]:
    """Emit the loop over blocks of `size` frames: suffixes of the block's rows, then the rows after it."""
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
    """Store the suffix aggregates of a block's rows."""
    k, last = slide.k, slide.size - 1
    front = slide.identities("front")
    with k.for_(0, slide.size, "distance") as distance:
        slide.assign(front, slide.merged(few_rows(slide, block + last - distance, 1), front))
        slide.store(suffix, const(last, I64) - distance, front)


def short_rows(slide: CountSlide) -> tuple[SlideScratch, ...]:
    """Emit the loop that merges each frame from a few runs and a tail."""
    k, runs = slide.k, ChunkRuns(slide, slide.size)
    first = k.var("first", slide.begin)
    with k.while_(slide.end - first >= FRAMES_PER_CHUNK + VECTORS):
        runs.emit(slide, first, const(FRAMES_PER_CHUNK, I64), const(runs.length, I64))
        k.set(first, first + FRAMES_PER_CHUNK)
    with k.while_(first < slide.end):
        count = k.var("count", minimum(slide.end - first, FRAMES_PER_CHUNK))
        runs.emit(slide, first, count, count + runs.beyond)
        k.set(first, first + count)
    return ()


class ChunkRuns:
    """The runs of a chunk of short frames. The last run starts `beyond` rows after the start of the last frame."""

    def __init__(self, part: Aggregation, size: int) -> None:
        self.width = width_of(part.monoids)
        self.many, self.tail = divmod(size, self.width)
        self.beyond = (self.many - 1) * self.width
        self.length = -(-(FRAMES_PER_CHUNK + self.beyond) // VECTORS) * VECTORS
        self.memory = part.local("runs", self.length)

    def emit(self, slide: CountSlide, first: Value, count: Value, made: Value) -> None:
        """Compute `made` runs, then emit `count` frames."""
        k = slide.k
        if self.many:
            _runs(slide, self.memory, first, const(0, I64), made)
        with k.for_(0, count, "i") as i:
            parts = [slide.load(self.memory, i + self.width * index) for index in range(self.many)]
            parts += [few_rows(slide, first + i + self.width * self.many, self.tail)] if self.tail else []
            slide.emit(k.var("f", first + i), _joined(slide, parts))


def lanes(slide: CountSlide) -> tuple[SlideScratch, ...]:
    """Emit the loop over groups of `width` frames; reduce the remaining frames row by row."""
    k, chunks = slide.k, Blocks(slide)
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
    return chunks.needs


class Blocks:
    """Two stacks for several neighbouring frames at once: over panes, and over runs in the first and last pane.

    A group is one state per vector lane, for neighbouring frames. A pane is `groups` groups of runs, `rows` rows in
    all. A frame is `panes` panes, `over` further runs and a tail. A block is `panes * rows` frames. A chunk is the
    frames that start in one pane.

    `whole` holds one group per pane. At the start of a block each pane is merged with all later panes. The result is
    stored one position later: storing a select back to the position it was loaded from makes compilers emit a
    conditional store, which is far slower. `suffix` holds the suffixes of the runs of a chunk's first pane. `prefix`
    holds the prefixes of the runs after the block, which are in `runs`. The runs of a pane are needed twice, when it
    enters and when it leaves: `kept` caches them if they fit into the cache.

    Every float addition loses precision, so chains of additions are bounded: the runs of a pane are added to the total
    of the panes before it (`_Before`), and panes are added stretch by stretch. See `longest_chain`.
    """

    def __init__(self, slide: CountSlide) -> None:
        self.slide, self.width = slide, width_of(slide.monoids)
        groups = slide.size // self.width
        self.groups = _pane_width(groups)
        self.panes, self.over = divmod(groups, self.groups)
        self.rows = self.groups * self.width
        self.whole = slide.memory("whole")
        self.kept = slide.memory("kept") if self._keeps else ()
        self.suffix, self.prefix = (slide.local(hint, self.rows) for hint in ("suffix", "prefix"))
        self.runs = slide.local("runs", self.rows + self.width * self.over)
        self.older = self.none()
        self.before = _Before(self) if has_floats(slide.monoids) else None

    @property
    def _keeps(self) -> bool:
        """Return whether runs are cached. Wide states outside the cache are recomputed: rows cost no more to read."""
        bits = [state.type.bits for monoid in self.slide.monoids for state in monoid.states]
        return max(bits) <= I32.bits or self.slide.size * sum(bits) <= 8 * _CACHE

    @property
    def needs(self) -> tuple[SlideScratch, ...]:
        """The scratch memory of panes and of cached runs."""
        whole = scratch(self.whole, self.width * (self.panes + 2))
        return (*whole, *scratch(self.kept, self.panes * self.rows))

    def add_pane(self, place: Value, first: Value) -> None:
        """Reduce the pane of the rows from `first` on."""
        _runs(self.slide, self.runs, first, const(0, I64), const(self.rows, I64))
        pane = _Pane(self, place)
        with self.slide.k.for_(0, self.groups, "g", scalar=True) as g:
            pane.take(g, self.load(self.runs, g * self.width))
        pane.keep()

    def block(self, block: Value, count: Value) -> None:
        """Emit `count` frames from `block` on."""
        k = self.slide.k
        self.store(self.whole, const((self.panes + 1) * self.width, I64), self.none())
        self._join_panes()
        self.forget(self.older)
        if self.before:
            self.before.start()
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
        """Emit a whole chunk, and store the pane that enters for the next block."""
        self._enter(first, const(self.rows + self.width * self.over, I64))
        pane = _Pane(self, place)
        with self.slide.k.for_(0, self.groups, "g", scalar=True) as g:
            pane.take(g, self._follow(g))
        pane.keep()
        if self.before:
            self.before.add(place, pane.total)
        self._emit(first, const(self.rows, I64))

    def _last_chunk(self, first: Value) -> None:
        """Emit the remaining whole groups without reading rows past the end: the last run is not computed."""
        k = self.slide.k
        groups = k.var("groups", minimum((self.slide.end - first).div(self.width), self.groups))
        self._enter(first, (groups + (self.over - 1)) * self.width)
        with k.for_(0, groups - 1, "g", scalar=True) as g:
            self._follow(g)
        self.store(self.prefix, k.var("last", (groups - 1) * self.width), self.older)
        self._emit(first, groups * self.width)

    def _enter(self, first: Value, made: Value) -> None:
        """Compute the runs after the block that a chunk's frames reach."""
        entering = self.slide.k.var("entering", first + self.panes * self.rows)
        _runs(self.slide, self.runs, entering, const(0, I64), made)

    def _follow(self, group: Value) -> Group:
        """Store the prefix before a group of runs after the block, then add the group to it."""
        entering = self.load(self.runs, group * self.width)
        self.store(self.prefix, group * self.width, self.older)
        self.advance(self.older, entering)
        return entering

    def _front(self, first: Value, place: Value) -> None:
        """Merge each run of the chunk's first pane with everything after it in the block."""
        k = self.slide.k
        kept = k.var("kept", place * self.rows)
        if not self.kept:
            _runs(self.slide, self.prefix, first, const(0, I64), const(self.rows, I64))
        newer = self.load(self.whole, (place + 2) * self.width)
        with k.for_(0, self.groups, "distance", scalar=True) as distance:
            group = k.var("group", (const(self.groups - 1, I64) - distance) * self.width)
            own = self.load(self.kept, kept + group) if self.kept else self.load(self.prefix, group)
            self.precede(own, newer)
            self.store(self.suffix, group, newer)

    def _emit(self, first: Value, frames: Value) -> None:
        k, slide = self.slide.k, self.slide
        tail = slide.size % self.width
        with k.for_(0, frames, "i") as i:
            frame = k.var("f", first + i)
            parts = [slide.load(self.suffix, i), slide.load(self.prefix, i)]
            parts += [slide.load(self.runs, i + self.width * index) for index in range(self.over)]
            parts += [few_rows(slide, frame + (slide.size - tail), tail)] if tail else []
            slide.emit(frame, _joined(slide, parts))

    def _join_panes(self) -> None:
        """Merge each pane with all later panes: first those of its stretch, then the later stretches."""
        k = self.slide.k
        end, later, newer = k.var("end", self.panes), self.none(), self.none()
        with k.while_(end > 0):
            count = k.var("count", minimum(end, PANES_PER_SWEEP))
            self.forget(newer)
            with k.for_(0, count, "distance", scalar=True) as distance:
                group = k.var("group", (end - 1 - distance) * self.width)
                self.precede(self.load(self.whole, group), newer)
                both = self.joined(newer, later) if self.panes > PANES_PER_SWEEP else newer
                self.store(self.whole, group + self.width, both)
            self.precede(newer, later)
            k.set(end, end - count)

    # -- groups ----------------------------------------------------------------------------------------

    def none(self) -> Group:
        return [self.slide.identities("none") for _ in range(self.width)]

    def load(self, memory: Memory, place: Value) -> Group:
        return [self.slide.load(memory, place + lane) for lane in range(self.width)]

    def store(self, memory: Memory, place: Value, group: Group) -> None:
        for lane, states in enumerate(group):
            self.slide.store(memory, place + lane, states)

    def forget(self, group: Group) -> None:
        for states in group:
            self.slide.reset(states)

    def joined(self, older: Group, newer: Group) -> Group:
        return [self.slide.merged(a, b) for a, b in zip(older, newer, strict=True)]

    def precede(self, older: Group, newer: Group) -> None:
        """Merge `older` into `newer`, in place."""
        for a, b in zip(older, newer, strict=True):
            self.slide.assign(b, self.slide.merged(a, b))

    def advance(self, older: Group, newer: Group) -> None:
        """Merge `newer` into `older`, in place."""
        for a, b in zip(older, newer, strict=True):
            self.slide.assign(a, self.slide.merged(a, b))


class _Before:
    """The total of the panes between a block and a chunk's entering rows: whole stretches, and the last stretch."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks, self.whole, self.last = blocks, blocks.none(), blocks.none()

    def start(self) -> None:
        """Reset both totals."""
        self.blocks.forget(self.whole)
        self.blocks.forget(self.last)

    def add(self, place: Value, pane: Group) -> None:
        """Add a pane, and restart the prefix of runs from the total of panes."""
        blocks, k = self.blocks, self.blocks.slide.k
        blocks.advance(self.last, pane)
        with k.if_(((place + 1) & (PANES_PER_SWEEP - 1)).eq(0)):
            blocks.advance(self.whole, self.last)
            blocks.forget(self.last)
        for older, states in zip(blocks.older, blocks.joined(self.whole, self.last), strict=True):
            blocks.slide.assign(older, states)


class _Pane:
    """A pane that is aggregated group by group; its runs are cached if `Blocks.kept` exists."""

    def __init__(self, blocks: Blocks, place: Value) -> None:
        k = blocks.slide.k
        self.blocks, self.place, self.total = blocks, place, blocks.none()
        self.kept = k.var("kept", place * blocks.rows)

    def take(self, group: Value, entering: Group) -> None:
        """Add a group of runs."""
        blocks = self.blocks
        if blocks.kept:
            blocks.store(blocks.kept, self.kept + group * blocks.width, entering)
        blocks.advance(self.total, entering)

    def keep(self) -> None:
        """Store the pane's total."""
        self.blocks.store(self.blocks.whole, self.place * self.blocks.width, self.total)


def longest_chain(slide: CountSlide) -> int:
    """Bound the chain of dependent merges behind a frame's result by `lanes`: stretches, panes, groups, rows."""
    width = width_of(slide.monoids)
    panes = slide.size // width // _NARROWEST
    return panes // PANES_PER_SWEEP + min(panes, PANES_PER_SWEEP) + _WIDEST + 2 * width


def _pane_width(groups: int) -> int:
    """Choose the groups per pane: the width with the smallest remainder, and the widest of those."""
    widths = range(min(_NARROWEST, groups), min(_WIDEST, groups) + 1)
    return min(widths, key=lambda width: (groups % width, -width))


def _runs(slide: CountSlide, memory: Memory, first: Value, start: Value, stop: Value) -> None:
    """Store the runs of the rows `first + start` … `first + stop` at [start, stop)."""
    with slide.k.for_(start, stop, "i") as i:
        slide.store(memory, i, few_rows(slide, first + i, width_of(slide.monoids)))


def few_rows(slide: CountSlide, start: Value, count: int) -> States:
    """Reduce a few rows, unrolled."""
    row = slide.k.var("row", start)
    states = slide.alone(row)
    for index in range(1, count):
        slide.step(states, slide.k.var("row", row + index))
    return states


def _joined(slide: CountSlide, parts: Sequence[Sequence[Values]]) -> Sequence[Values]:
    total = parts[0]
    for part in parts[1:]:
        total = slide.merged(total, part)
    return total

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
from penstock.kernels.swag.accumulate import fold_known, has_floats
from penstock.kernels.swag.slide import Aggregation, CountSlide, Memory, Scratch, States, scratch
from penstock.loop.nodes import I32, I64, Value, const, minimum

CHUNK = 512  # frames of a chunk of short ones: their runs stay in the cache
VECTORS = 32  # loops of a multiple of this many turns leave no rest to do one by one
LONG_PANE = 16  # rows: so many are read faster in several streams than in one, see docs/decisions/0078
_NARROWEST, _WIDEST = 4, 8  # groups of a pane
STRETCH = 2048  # panes, a power of two: long enough to cost nothing, short enough for sums of floats
_CACHE = 1 << 18  # bytes that stay near
Group = Sequence[States]


def width_of(monoids: Sequence[Monoid]) -> int:
    """How many states are as wide as a vector, at the least."""
    return 4 if any(state.type.bits > 32 for monoid in monoids for state in monoid.states) else 8


def few_runs(slide: CountSlide, size: int) -> bool:
    """Whether frames have so few runs that joining them costs no more than stacks do, `size` being their rows or panes."""
    square = width_of(slide.monoids) ** 2
    # Measured. Panes take work of their own; those that wait for memory leave time to join more.
    most = 5 * square // 4 if slide.every == 1 else 2 * square if slide.every < LONG_PANE else 4 * square
    return size <= most


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
        slide.assign(front, slide.merged(few_rows(slide, block + last - distance, 1), front))
        slide.store(suffix, const(last, I64) - distance, front)


def short_rows(slide: CountSlide) -> tuple[Scratch, ...]:
    """Write the loop over frames that are made of a few runs and a tail."""
    k, runs = slide.k, Runs(slide, slide.size)
    first = k.var("first", slide.begin)
    with k.while_(slide.end - first >= CHUNK + VECTORS):
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
        self.length = -(-(CHUNK + self.beyond) // VECTORS) * VECTORS
        self.memory = part.local("runs", self.length)

    def emit(self, slide: CountSlide, first: Value, count: Value, made: Value) -> None:
        """Make runs, then emit `count` frames."""
        k = slide.k
        if self.many:
            _runs(slide, self.memory, first, const(0, I64), made)
        with k.for_(0, count, "i") as i:
            parts = [slide.load(self.memory, i + self.width * each) for each in range(self.many)]
            parts += [few_rows(slide, first + i + self.width * self.many, self.tail)] if self.tail else []
            slide.emit(k.var("f", first + i), _joined(slide, parts))


def lanes(slide: CountSlide) -> tuple[Scratch, ...]:
    """Write the loop over frames taken a width at a time, as far as they go; the last few from their own rows."""
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
    """Two stacks over panes of several frames side by side, and within the first and last pane, over runs.

    A group is as many states as a vector has lanes, those of neighbouring frames. A pane is some groups of
    runs, of `rows` rows; frames are `panes` of them, `over` runs more, and a tail. The memory for a frame is
    one group a pane, in `whole`: pane by pane, each joined with all after it when a block begins, one place on: what
    is chosen between a place and something else had better not be stored there, lest compilers store it only where it
    is something else, which takes far longer. A block is
    as many frames as the panes have rows, and a chunk the frames that start in one pane. A chunk's own pane
    is joined run by run in `suffix`, what comes after the block in `prefix`, from the runs in `runs`. Runs
    of a pane are asked for twice, when it enters and when it is left: `kept` holds them as long as they stay in
    the cache.

    Floats lose with every addition, so none is added to what came of too many: within a pane to the panes
    before it (`_Before`), and among panes stretch by stretch. See `longest_chain`.
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
        """Wide states that have left the cache are made again: reading rows costs no more than reading them."""
        bits = [state.type.bits for monoid in self.slide.monoids for state in monoid.states]
        return max(bits) <= I32.bits or self.slide.size * sum(bits) <= 8 * _CACHE

    @property
    def needs(self) -> tuple[Scratch, ...]:
        """The memory of panes, and of runs that are kept."""
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
        """Emit a whole chunk; the pane that enters meanwhile follows it, and belongs to the next block."""
        self._enter(first, const(self.rows + self.width * self.over, I64))
        pane = _Pane(self, place)
        with self.slide.k.for_(0, self.groups, "g", scalar=True) as g:
            pane.take(g, self._follow(g))
        pane.keep()
        if self.before:
            self.before.add(place, pane.total)
        self._emit(first, const(self.rows, I64))

    def _last_chunk(self, first: Value) -> None:
        """Emit what is left, a whole number of groups, and read no row beyond: the last run is not made."""
        k = self.slide.k
        groups = k.var("groups", minimum((self.slide.end - first).div(self.width), self.groups))
        self._enter(first, (groups + (self.over - 1)) * self.width)
        with k.for_(0, groups - 1, "g", scalar=True) as g:
            self._follow(g)
        self.store(self.prefix, k.var("last", (groups - 1) * self.width), self.older)
        self._emit(first, groups * self.width)

    def _enter(self, first: Value, made: Value) -> None:
        """Make the runs of the rows after the block that frames of a chunk reach."""
        entering = self.slide.k.var("entering", first + self.panes * self.rows)
        _runs(self.slide, self.runs, entering, const(0, I64), made)

    def _follow(self, group: Value) -> Group:
        """Join a group of runs after the block with all before it, which is what its frames ask for."""
        entering = self.load(self.runs, group * self.width)
        self.store(self.prefix, group * self.width, self.older)
        self.advance(self.older, entering)
        return entering

    def _front(self, first: Value, place: Value) -> None:
        """Join the runs of the chunk's own pane with all after them in the block."""
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
            parts += [slide.load(self.runs, i + self.width * each) for each in range(self.over)]
            parts += [few_rows(slide, frame + (slide.size - tail), tail)] if tail else []
            slide.emit(frame, _joined(slide, parts))

    def _join_panes(self) -> None:
        """Join each pane with all after it: those of its stretch, and the stretches after that."""
        k = self.slide.k
        end, later, newer = k.var("end", self.panes), self.none(), self.none()
        with k.while_(end > 0):
            count = k.var("count", minimum(end, STRETCH))
            self.forget(newer)
            with k.for_(0, count, "distance", scalar=True) as distance:
                group = k.var("group", (end - 1 - distance) * self.width)
                self.precede(self.load(self.whole, group), newer)
                both = self.joined(newer, later) if self.panes > STRETCH else newer
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
        """Join a group with the one before, in its place."""
        for a, b in zip(older, newer, strict=True):
            self.slide.assign(b, self.slide.merged(a, b))

    def advance(self, older: Group, newer: Group) -> None:
        """Join a group with the next, in its place."""
        for a, b in zip(older, newer, strict=True):
            self.slide.assign(a, self.slide.merged(a, b))


class _Before:
    """The panes after a block that a chunk comes after: whole stretches of them, and those of the last stretch."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks, self.whole, self.last = blocks, blocks.none(), blocks.none()

    def start(self) -> None:
        """There are none."""
        self.blocks.forget(self.whole)
        self.blocks.forget(self.last)

    def add(self, place: Value, pane: Group) -> None:
        """Go on to the next pane, whose runs are added to the few sums that this one was."""
        blocks, k = self.blocks, self.blocks.slide.k
        blocks.advance(self.last, pane)
        with k.if_(((place + 1) & (STRETCH - 1)).eq(0)):
            blocks.advance(self.whole, self.last)
            blocks.forget(self.last)
        for older, states in zip(blocks.older, blocks.joined(self.whole, self.last), strict=True):
            blocks.slide.assign(older, states)


class _Pane:
    """A pane that is joined group by group, its runs kept where there is memory for them."""

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
        """Remember what the pane comes to."""
        self.blocks.store(self.blocks.whole, self.place * self.blocks.width, self.total)


def longest_chain(slide: CountSlide) -> int:
    """How many joins, one after another, may have led to a frame's result by `lanes`: stretches, panes, groups, rows."""
    width = width_of(slide.monoids)
    panes = slide.size // width // _NARROWEST
    return panes // STRETCH + min(panes, STRETCH) + _WIDEST + 2 * width


def _pane_width(groups: int) -> int:
    """Choose how many groups make a pane: of some widths, the widest that leaves the fewest over."""
    widths = range(min(_NARROWEST, groups), min(_WIDEST, groups) + 1)
    return min(widths, key=lambda width: (groups % width, -width))


def _runs(slide: CountSlide, memory: Memory, first: Value, start: Value, stop: Value) -> None:
    """Write the runs of the rows from `first` + `start` on to [start, stop)."""
    with slide.k.for_(start, stop, "i") as i:
        slide.store(memory, i, few_rows(slide, first + i, width_of(slide.monoids)))


def few_rows(slide: CountSlide, start: Value, count: int) -> States:
    """Reduce a few rows without a loop."""
    row = slide.k.var("row", start)
    states = slide.alone(row)
    for each in range(1, count):
        slide.step(states, slide.k.var("row", row + each))
    return states


def _joined(slide: CountSlide, parts: Sequence[Sequence[Values]]) -> Sequence[Values]:
    total = parts[0]
    for part in parts[1:]:
        total = slide.merged(total, part)
    return total

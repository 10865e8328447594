"""The phases of the sort-merge joins: sort runs that fit the cache, merge runs, match equal words of sorted columns.

The two halves of one buffer alternate as source and target. The number of passes determines the first target, so that
the last pass always writes to the first half.

Merges are stable: rows with equal words keep the order of their runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.algorithms.joins.kernels.key_words import CodeColumn, Pairs
from penstock.loop.abi import DIGIT_BITS, MOST_SORTED_RUNS, OTHER, JoinSpec
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I64, U32, U64, Buffer, Kernel, Value, Var, const, maximum, minimum, select

DIGITS = 1 << DIGIT_BITS

Word = Callable[[Value], Value]


def sort_run(spec: JoinSpec) -> Kernel:
    """Sort the rows `lo … hi` of a column by word, stably.

    `base` is at most the run's least word; `passes` is the number of digits of word - base. The run is at `lo … hi` of
    each half; the second half starts at `half`. For routed rows, `numbers` holds the row numbers.
    """
    k = KernelBuilder("sort_run")
    column, passes, half = CodeColumn.declare(k, spec), k.scalar("passes"), k.scalar("half")
    base, numbers = k.scalar("base", U64), k.buffer("numbers", U32) if spec.pairs and spec.routed else None
    words, rows = k.buffer("words", spec.word), k.buffer("rows", U32) if spec.pairs else None
    counts = k.local("counts", I64, DIGITS)
    run = _Run(k, spec, column, base.to(spec.word), words, rows, counts)
    target = k.var("target", select((passes & 1).eq(1), 0, half))
    run.move(column.word, (lambda i: i.to(U32)) if numbers is None else (lambda i: numbers[i]), target, None)
    with k.for_(1, passes, "pass", scalar=True) as step:
        source = k.var("source", target)
        k.set(target, half - target)
        shift = k.var("shift", step * DIGIT_BITS)
        given = None if rows is None else lambda i: rows[source + i]
        run.move(lambda i: words[source + i], given, target, shift)
    k.ret(column.hi)
    return k.build()


@dataclass(frozen=True)
class _Run:
    k: KernelBuilder
    spec: JoinSpec
    column: CodeColumn
    base: Value
    words: Buffer
    rows: Buffer | None
    counts: Buffer

    def move(self, word: Word, row: Word | None, target: Var, shift: Var | None) -> None:
        """Scatter the run to the other half by one digit."""
        k, counts, lo, hi = self.k, self.counts, self.column.lo, self.column.hi
        with k.for_(0, DIGITS, "d") as d:
            k.store(counts, d, 0)
        with k.for_(lo, hi, "i") as i:
            digit = k.var("digit", self._digit(word(i), shift))
            k.store(counts, digit, counts[digit] + 1)
        total = k.var("total", target + lo)
        with k.for_(0, DIGITS, "d") as d:
            here = k.var("here", counts[d])
            k.store(counts, d, total)
            k.set(total, total + here)
        with k.for_(lo, hi, "i") as i:
            moved = k.var("moved", word(i))
            digit = k.var("digit", self._digit(moved, shift))
            at = k.var("at", counts[digit])
            k.store(self.words, at, moved)
            if self.rows is not None and row is not None:
                k.store(self.rows, at, row(i))
            k.store(counts, digit, at + 1)

    def _digit(self, word: Value, shift: Var | None) -> Value:
        offset = word - self.base
        shifted = offset if shift is None else offset >> shift.to(self.spec.word)
        return (shifted & (DIGITS - 1)).to(I64)


@dataclass(frozen=True)
class _Moves:
    """The source and target buffers of a merge."""

    k: KernelBuilder
    words: Buffer
    rows: Buffer | None
    to_words: Buffer
    to_rows: Buffer | None

    @staticmethod
    def declare(k: KernelBuilder, spec: JoinSpec) -> _Moves:
        words, to_words = k.buffer("words", spec.word), k.buffer("to_words", spec.word)
        rows, to_rows = (k.buffer(name, U32) if spec.pairs else None for name in ("rows", "to_rows"))
        return _Moves(k, words, rows, to_words, to_rows)

    def move(self, at: Value, to: Value, word: Value | None = None) -> None:
        self.k.store(self.to_words, to, self.words[at] if word is None else word)
        if self.rows is not None and self.to_rows is not None:
            self.k.store(self.to_rows, to, self.rows[at])


def merge_two(spec: JoinSpec) -> Kernel:
    """Merge the runs `a … a_end` and `b … b_end` into `to …`.

    Each iteration takes the least and the greatest remaining row: two dependency chains that the processor overlaps.
    No run is exhausted as long as at most half of the shorter run's rows are taken this way.
    """
    k = KernelBuilder("merge_two")
    moves = _Moves.declare(k, spec)
    a, a_end = (k.var("a", k.scalar("from_a")), k.var("a_end", k.scalar("end_a")))
    b, b_end = (k.var("b", k.scalar("from_b")), k.var("b_end", k.scalar("end_b")))
    to = k.var("to", k.scalar("target"))
    end = k.var("end", to + (a_end - a) + (b_end - b))
    last = k.var("last", end)
    safe = k.var("safe", minimum(a_end - a, b_end - b) >> 1)
    with k.while_(safe > 0):
        with k.for_(0, safe, "turn", scalar=True):
            _least(k, moves, a, b, to)
            _greatest(k, moves, a_end, b_end, last)
        k.set(safe, minimum(a_end - a, b_end - b) >> 1)
    with k.while_((a < a_end) & (b < b_end)):
        _least(k, moves, a, b, to)
    for at, stop in ((a, a_end), (b, b_end)):
        with k.for_(at, stop, "rest") as rest:
            moves.move(rest, to + (rest - at))
        k.set(to, to + (stop - at))
    k.ret(end)
    return k.build()


def _least(k: KernelBuilder, moves: _Moves, a: Var, b: Var, to: Var) -> None:
    """Take the lesser of two heads, without a branch, which would be unpredictable."""
    x, y = k.var("x", moves.words[a]), k.var("y", moves.words[b])
    second = k.var("second", (y < x).to(I64))
    moves.move(select(second.ne(0), b, a), to, minimum(y, x))
    k.set(a, a + 1 - second)
    k.set(b, b + second)
    k.set(to, to + 1)


def _greatest(k: KernelBuilder, moves: _Moves, a_end: Var, b_end: Var, last: Var) -> None:
    x, y = k.var("x", moves.words[a_end - 1]), k.var("y", moves.words[b_end - 1])
    first = k.var("first", (y < x).to(I64))
    moves.move(select(first.ne(0), a_end, b_end) - 1, last - 1, maximum(x, y))
    k.set(a_end, a_end - first)
    k.set(b_end, b_end - 1 + first)
    k.set(last, last - 1)


def merge_many(spec: JoinSpec) -> Kernel:
    """Merge runs, a power of two of them (some may be empty), into `target …`.

    `cursors` and `ends` delimit them. A tree node stores the loser of its match. The winner's successor is compared
    with the losers on the path to the root. An exhausted run is represented by the greatest word and a run number that
    no run has.
    """
    k = KernelBuilder("merge_many")
    moves = _Moves.declare(k, spec)
    cursors, ends = k.buffer("cursors", I64), k.buffer("ends", I64)
    runs, to, total = k.scalar("runs"), k.scalar("target"), k.scalar("total")
    tree = _Tree(
        k,
        spec,
        moves.words,
        cursors,
        ends,
        k.local("lost", spec.word, MOST_SORTED_RUNS),
        k.local("lost_run", I64, MOST_SORTED_RUNS),
    )
    word, run = tree.start(runs)
    with k.for_(to, to + total, "out", scalar=True) as out:
        at = k.var("at", cursors[run])
        moves.move(at, out, word)
        k.store(cursors, run, at + 1)
        node = k.var("node", (run + runs) >> 1)
        tree.head(run, word, run)
        with k.while_(node > 0):
            tree.play(node, word, run)
            k.set(node, node >> 1)
        # An exhausted run wins only after all runs are exhausted.
        k.set(run, run & (MOST_SORTED_RUNS - 1))
    k.ret(to + total)
    return k.build()


@dataclass(frozen=True)
class _Tree:
    k: KernelBuilder
    spec: JoinSpec
    words: Buffer
    cursors: Buffer
    ends: Buffer
    lost: Buffer
    lost_run: Buffer

    def head(self, of: Value, word: Var, run: Var) -> None:
        """Set (word, run) to the next row of a run."""
        k = self.k
        number = k.var("number", of)
        at, end = k.var("at", self.cursors[number]), k.var("end", self.ends[number])
        k.set(word, const((1 << self.spec.word.bits) - 1, self.spec.word))
        k.set(run, number + MOST_SORTED_RUNS)
        with k.if_(at < end):
            k.set(word, self.words[at])
            k.set(run, number)

    def play(self, node: Value, word: Var, run: Var) -> None:
        """Compare (word, run) with a node's loser: keep the lesser in (word, run), and store the greater in the node."""
        k = self.k
        other, its = k.var("other", self.lost[node]), k.var("its", self.lost_run[node])
        wins = k.var("wins", (other < word) | (other.eq(word) & (its < run)))
        k.store(self.lost, node, select(wins, word, other))
        k.store(self.lost_run, node, select(wins, run, its))
        k.set(word, select(wins, other, word))
        k.set(run, select(wins, its, run))

    def start(self, runs: Value) -> tuple[Var, Var]:
        """Initialise the tree: each run moves up until it reaches an empty node, which stores it. Return the winner."""
        k = self.k
        empty = 2 * MOST_SORTED_RUNS
        with k.for_(0, runs, "n") as n:
            k.store(self.lost_run, n, empty)
            k.store(self.lost, n, 0)
        word, run = k.var("word", const(0, self.spec.word)), k.var("run", 0)
        with k.for_(0, runs, "r", scalar=True) as r:
            self.head(r, word, run)
            node = k.var("node", (r + runs) >> 1)
            with k.while_((node > 0) & self.lost_run[node].ne(empty)):
                self.play(node, word, run)
                k.set(node, node >> 1)
            with k.if_(node > 0):
                k.store(self.lost, node, word)
                k.store(self.lost_run, node, run)
        k.set(run, run & (MOST_SORTED_RUNS - 1))
        return word, run


@dataclass(frozen=True)
class _Side:
    words: Buffer
    rows: Buffer | None
    begin: Var
    end: Var

    @staticmethod
    def declare(k: KernelBuilder, spec: JoinSpec, side: str) -> _Side:
        words = k.buffer(f"{side}_words", spec.word)
        rows = k.buffer(f"{side}_rows", U32) if spec.pairs else None
        return _Side(words, rows, k.scalar(f"{side}_lo"), k.scalar(f"{side}_hi"))

    def row(self, at: Value) -> Value:
        assert self.rows is not None
        return self.rows[at].to(I64)

    def group_end(self, k: KernelBuilder, at: Value, word: Value) -> Var:
        """Return the end of the rows with one word."""
        end, last = k.var("end", at + 1), self.end - 1
        with k.while_((end < self.end) & self.words[minimum(end, last)].eq(word)):
            k.set(end, end + 1)
        return end


Group = Callable[[Var, Var, Var, Var], None]


def match_sorted(spec: JoinSpec) -> Kernel:
    """Count or pair the rows with equal words. If the output is full, return the left position and store the right one."""
    k = KernelBuilder("match_sorted")
    left, right = _Side.declare(k, spec, "left"), _Side.declare(k, spec, "right")
    if not spec.pairs:
        total = k.var("total", 0)
        _walk(k, left, right, lambda i, ie, j, je: k.set(total, total + (ie - i) * (je - j)))
        k.ret(total)
        return k.build()
    pairs = Pairs.declare(k)

    def group(i: Var, i_end: Var, j: Var, j_end: Var) -> None:
        _require(k, pairs, (i, i_end), (j, j_end))
        assert right.rows is not None
        with k.for_(i, i_end, "l", scalar=True) as l:
            row, base = k.var("row", left.row(l)), k.var("base", pairs.used - j)
            with k.for_(j, j_end, "r") as r:
                k.store(pairs.left, base + r, row)
                k.store(pairs.right, base + r, right.row(r))
            k.set(pairs.used, base + j_end)

    _walk(k, left, right, group)
    pairs.finish(left.end)
    return k.build()


def match_across(spec: JoinSpec) -> Kernel:
    """Pair the rows with equal words from different runs; `left_runs` and `right_runs` hold each row's run."""
    k = KernelBuilder("match_across")
    left, right = _Side.declare(k, spec, "left"), _Side.declare(k, spec, "right")
    left_runs, right_runs = k.buffer("left_runs", U32), k.buffer("right_runs", U32)
    pairs = Pairs.declare(k)

    def group(i: Var, i_end: Var, j: Var, j_end: Var) -> None:
        _require(k, pairs, (i, i_end), (j, j_end))
        with k.for_(i, i_end, "l", scalar=True) as l:
            row = k.var("row", left.row(l))
            run = k.var("run", left_runs[row])
            with k.for_(j, j_end, "r") as r:
                other = k.var("other", right.row(r))
                with k.if_(right_runs[other].ne(run)):
                    pairs.add(row, other)

    _walk(k, left, right, group)
    pairs.finish(left.end)
    return k.build()


def _walk(k: KernelBuilder, left: _Side, right: _Side, group: Group) -> None:
    """Emit the merge loop; call `group` with the bounds of both sides' rows for each common word."""
    i, j = k.var("i", left.begin), k.var("j", right.begin)
    with k.while_((i < left.end) & (j < right.end)):
        a, b = k.var("a", left.words[i]), k.var("b", right.words[j])
        with k.if_(a.eq(b)):
            i_end, j_end = left.group_end(k, i, a), right.group_end(k, j, b)
            group(i, i_end, j, j_end)
            k.set(i, i_end)
            k.set(j, j_end)
        with k.else_():
            k.set(i, i + (a < b).to(I64))
            k.set(j, j + (b < a).to(I64))


def _require(k: KernelBuilder, pairs: Pairs, left: tuple[Var, Var], right: tuple[Var, Var]) -> None:
    k.store(pairs.head, OTHER, right[0])
    pairs.require((left[1] - left[0]) * (right[1] - right[0]), left[0])

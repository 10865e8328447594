"""Merge sorted runs: two at a time from both ends, or many at a time with a loser tree.

Merges are stable: rows with equal words keep the order of their runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.loop.abi import MOST_SORTED_RUNS, JoinSpec
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I64, U32, Buffer, Kernel, Value, Var, const, maximum, minimum, select


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

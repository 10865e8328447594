"""The merge phase of the sort-merge joins: match equal words of two sorted columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.algorithms.joins.kernels.key_words import Pairs
from penstock.loop.abi import OTHER, JoinSpec
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I64, U32, Buffer, Kernel, Value, Var, minimum


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

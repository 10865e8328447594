"""The kernel of order statistics: quantiles, mode and count of distinct values over frames of ranked rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.kernels.swag.order_statistics import (
    RankCounts,
    Ranked,
    RankPeaks,
    Structure,
    order_statistics,
)
from penstock.kernels.swag.rank_cursors import RankCursors
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import F64, I32, I64, U64, Kernel, Type, Value, select

_S = TypeVar("_S", RankPeaks, RankCounts)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a frame's ranks: "quantile" (at `fraction`), "mode" or "count_distinct"."""

    kind: str
    fraction: float = 0.0


def build_rank_slide(questions: tuple[Question, ...]) -> Kernel:
    """Write the kernel that answers some questions, with one structure for all that need the same.

    Results go to `out` buffers in the order of the questions: for a quantile its value, interpolated between
    `values` by rank, and whether there is one; else the one answer, a mode of nothing being -1.
    """
    return _RankSlide(questions).write()


@dataclass
class _RankSlide:
    questions: tuple[Question, ...]
    k: KernelBuilder = field(default_factory=lambda: KernelBuilder("rank_slide"))
    structures: dict[str, Structure] = field(default_factory=dict)

    def write(self) -> Kernel:
        k = self.k
        frames = k.buffer("lo", I64), k.buffer("hi", I64)
        span = k.scalar("begin"), k.scalar("end")
        ranks, self.distinct = k.buffer("ranks", I64), k.scalar("distinct")
        self.values = k.buffer("values", F64)
        answers = [self._answer(each) for each in self.questions]
        columns = [Ranked(ranks, list(self.structures.values()))]

        def emit(frame: Value) -> None:
            for answer in answers:
                answer(frame)

        order_statistics(k, frames, span, columns, emit)
        k.ret(0)
        return k.build()

    def _answer(self, question: Question) -> Callable[[Value], None]:
        match question.kind:
            case "quantile":
                return self._quantile(question.fraction)
            case "mode":
                peaks = self._structure("peaks", RankPeaks)
                return self._written(lambda: [peaks.mode()], [I64])
            case _:
                counts = self._structure("counts", RankCounts)
                return self._written(lambda: [counts.distinct], [I64])

    def _quantile(self, fraction: float) -> Callable[[Value], None]:
        cursors = self._cursors()
        cursor = cursors.cursor(fraction)

        def values() -> list[Value]:
            lower, upper, between = cursors.neighbours(cursor)
            some = self.k.var("some", cursors.count > 0)
            low, high = (self.k.var("value", self.values[select(some, rank, 0)]) for rank in (lower, upper))
            exact = between.eq(0.0) | low.eq(high)  # of infinite neighbours too
            return [select(exact, low, low + (high - low) * between), some.to(I64)]

        return self._written(values, [F64, I64])

    def _cursors(self) -> RankCursors:
        """One count of ranks for all quantiles."""
        if "cursors" not in self.structures:
            memory, bits = self.k.buffer("memory", I32), self.k.buffer("bits", U64)
            self.structures["cursors"] = RankCursors(self.k, self.distinct, memory, bits)
        found = self.structures["cursors"]
        assert isinstance(found, RankCursors)
        return found

    def _structure(self, name: str, kind: type[_S]) -> _S:
        if name not in self.structures:
            self.structures[name] = kind(self.k, self.distinct, self.k.buffer("memory", I32))
        found = self.structures[name]
        assert isinstance(found, kind)
        return found

    def _written(self, values: Callable[[], list[Value]], types: list[Type]) -> Callable[[Value], None]:
        buffers = [self.k.buffer("out", each) for each in types]

        def write(frame: Value) -> None:
            for buffer, value in zip(buffers, values(), strict=True):
                self.k.store(buffer, frame, value)

        return write

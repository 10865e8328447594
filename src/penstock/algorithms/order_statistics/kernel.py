"""The kernel of order statistics: quantiles, mode and count of distinct values over frames of ranked rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.algorithms.order_statistics.rank_cursors import RankCursors
from penstock.algorithms.order_statistics.sliding import (
    RankCounts,
    Ranked,
    RankPeaks,
    Structure,
    order_statistics,
)
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import F64, I32, I64, U8, U64, Kernel, Type, Value, select

_S = TypeVar("_S", RankPeaks, RankCounts)


@dataclass(frozen=True, slots=True)
class RankStatistic:
    """A statistic of a frame's ranks: "quantile" (at `fraction`), "mode" or "count_distinct"."""

    kind: str
    fraction: float = 0.0


def build_rank_slide(questions: tuple[RankStatistic, ...], shared: bool = False) -> Kernel:
    """Build the kernel for several statistics, with one structure for all that need the same.

    Quantiles read the `places` of rows, distinct unless they are `shared`, and interpolate between the
    `values` there; the others read `ranks`, which equal values share. Results go to `out` buffers in the
    order of the questions: for a quantile its value and validity; else one value, with -1 for the mode of no
    rows.
    """
    return _RankSlide(questions, shared).write()


@dataclass
class _RankSlide:
    questions: tuple[RankStatistic, ...]
    shared: bool
    k: KernelBuilder = field(default_factory=lambda: KernelBuilder("rank_slide"))
    structures: dict[str, Structure] = field(default_factory=dict)
    cursors: RankCursors | None = None

    def write(self) -> Kernel:
        k = self.k
        frames = k.buffer("lo", I64), k.buffer("hi", I64)
        span, base = (k.scalar("begin"), k.scalar("end")), k.scalar("base")
        self.distinct, self.many = k.scalar("distinct"), k.scalar("many")
        answers = [self._answer(question) for question in self.questions]
        columns = [Ranked(k.buffer("places", I32), [self.cursors])] if self.cursors else []
        if self.structures:
            columns.append(Ranked(k.buffer("ranks", I64), list(self.structures.values())))

        def emit(frame: Value) -> None:
            for answer in answers:
                answer(frame)

        order_statistics(k, frames, span, columns, emit, base)
        k.ret(0)
        return k.build()

    def _answer(self, question: RankStatistic) -> Callable[[Value], None]:
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
            low, high = (self.k.var("value", self.values[select(some, place, 0)]) for place in (lower, upper))
            exact = between.eq(0.0) | low.eq(high)  # also for infinite neighbours
            return [select(exact, low, low + (high - low) * between), some.to(U8)]

        return self._written(values, [F64, U8])

    def _cursors(self) -> RankCursors:
        """Return the cursors, shared by all quantiles."""
        if self.cursors is None:
            self.values = self.k.buffer("values", F64)
            counts = self.k.buffer("counts", I32) if self.shared else None
            self.cursors = RankCursors(self.k, self.many, self.k.buffer("bits", U64), counts)
        return self.cursors

    def _structure(self, name: str, kind: type[_S]) -> _S:
        if name not in self.structures:
            self.structures[name] = kind(self.k, self.distinct, self.k.buffer("memory", I32))
        found = self.structures[name]
        assert isinstance(found, kind)
        return found

    def _written(self, values: Callable[[], list[Value]], types: list[Type]) -> Callable[[Value], None]:
        buffers = [self.k.buffer("out", dtype) for dtype in types]

        def write(frame: Value) -> None:
            for buffer, value in zip(buffers, values(), strict=True):
                self.k.store(buffer, frame, value)

        return write

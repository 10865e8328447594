"""The driver of the radix join: partition both sides on all threads, then join partitions on any free thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from penstock.algorithms.joins.joiner import Lazy, PairsOut, WindowCodes, fill, portions, slots_for, together
from penstock.loop.abi import SPARE
from penstock.runtime.threads import run_on_threads

TABLE_BYTES = 1 << 17  # a partition's table leaves room in the second-level cache for the probing rows
MOST_BITS = 10  # with twice the write targets, a wide row took three times as long
PORTIONS = 4  # of the partitions, per thread: skew makes some slower than others


@dataclass(frozen=True)
class Partitioned:
    """One side, partitioned."""

    words: np.ndarray
    rows: np.ndarray | None
    begins: np.ndarray

    def arguments(self, side: str) -> dict[str, Any]:
        return {f"{side}_words": self.words, f"{side}_rows": self.rows, f"{side}_begins": self.begins}


class Radix(Lazy):
    """Cache-sized partitions. `bits` fixes their number at 2^bits; by default it follows from the table size."""

    name = "prj"

    def __init__(self, *args: Any, bits: int | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._bits = bits

    def count(self, window: WindowCodes) -> int:
        given, portions_ = self._partition(window)
        join = self.kernels("prj_join", window.spec)
        counts: list[int] = []
        with self.phase("probe"):
            self._partitions_joined(window, given, portions_, lambda values, _: counts.append(join(values)))
        return sum(counts)

    def pairs(self, window: WindowCodes) -> tuple[np.ndarray, np.ndarray]:
        given, portions_ = self._partition(window)
        join = self.kernels("prj_join", window.spec)
        outs = [PairsOut(len(window.probe) // window.threads + 1) for _ in range(window.threads)]
        with self.phase("probe"):
            self._partitions_joined(
                window, given, portions_, lambda values, thread: fill(join, values, outs[thread])
            )
        return together([out.taken for out in outs])

    def bits(self, window: WindowCodes) -> int:
        """Return the number of bits with which a partition's table fits into TABLE_BYTES."""
        if self._bits is not None:
            return self._bits
        size = (
            4 * window.span
            if window.spec.dense
            else (12 if window.spec.wide else 8) * slots_for(len(window.build))
        )
        return min(max((size // TABLE_BYTES).bit_length(), 0), MOST_BITS)

    def _partition(self, window: WindowCodes) -> tuple[dict[str, Any], list[tuple[int, int]]]:
        bits = self.bits(window)
        with self.phase("partition"):
            left, right = (
                self._cut(window, side, codes, bits)
                for side, codes in (("left", window.build), ("right", window.probe))
            )
        size = (window.span >> bits) + 1 if window.spec.dense else 0
        given = {**left.arguments("left"), **right.arguments("right"), "bits": bits, "size": size}
        parts = min(1 << bits, PORTIONS * window.threads) if window.threads > 1 else 1
        return given, portions(1 << bits, parts)

    def _cut(self, window: WindowCodes, side: str, codes: np.ndarray, bits: int) -> Partitioned:
        """Count, then scatter; each thread handles a portion of the rows."""
        spec, arena, threads = window.spec, self.arena, window.threads
        counts = np.zeros((threads, 1 << bits), np.int64)
        words = arena.array(f"{side} words", len(codes), np.uint64 if spec.wide else np.uint32)
        rows = arena.array(f"{side} rows", len(codes), np.uint32) if spec.pairs else None
        given = {"codes": codes, "least": window.least, "bits": bits, "words": words, "rows": rows}
        histogram, scatter = (self.kernels(name, spec) for name in ("prj_histogram", "prj_scatter"))
        spans = list(enumerate(portions(len(codes), threads)))
        run_on_threads(
            [partial(histogram, {**given, "lo": lo, "hi": hi, "counts": counts[t]}) for t, (lo, hi) in spans]
        )
        ends = np.cumsum(counts.T.ravel())
        cursors = np.ascontiguousarray((ends - counts.T.ravel()).reshape(-1, threads).T)
        run_on_threads(
            [partial(scatter, {**given, "lo": lo, "hi": hi, "cursors": cursors[t]}) for t, (lo, hi) in spans]
        )
        return Partitioned(words, rows, np.concatenate([[0], ends.reshape(-1, threads)[:, -1]]))

    def _partitions_joined(
        self,
        window: WindowCodes,
        given: dict[str, Any],
        waiting: list[tuple[int, int]],
        work: Callable[[dict[str, Any], int], None],
    ) -> None:
        """Run the work on portions of the partitions; each thread takes portions until none is left."""
        largest = int(np.diff(given["left_begins"]).max())
        scratch = [self._scratch(window, given, thread, largest) for thread in range(window.threads)]

        def run(thread: int) -> None:
            while waiting:
                try:
                    lo, hi = waiting.pop()
                except IndexError:  # another thread took the last portion
                    return
                work({**given, **scratch[thread], "lo": lo, "hi": hi}, thread)

        run_on_threads([partial(run, thread) for thread in range(window.threads)])

    def _scratch(
        self, window: WindowCodes, given: dict[str, Any], thread: int, largest: int
    ) -> dict[str, Any]:
        spec, arena = window.spec, self.arena
        slots = slots_for(largest)
        cells = given["size"] if spec.dense else slots + SPARE
        made: dict[str, Any] = {"bounds": arena.array(f"bounds {thread}", cells + 1, np.uint32)}
        if not spec.dense:
            made["slots"] = arena.array(f"slots {thread}", slots, np.uint64 if spec.wide else np.uint32)
        if spec.pairs:
            made |= {name: arena.array(f"{name} {thread}", largest, np.uint32) for name in ("places", "runs")}
        return made

"""The driver of the no-partitioning join: threads build one table from portions of one side, then probe it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from penstock.algorithms.joins.lazy import Lazy
from penstock.algorithms.joins.memory import PairsOut, fill, portions, slots_for, together
from penstock.algorithms.joins.window_keys import WindowCodes, shared
from penstock.loop.abi import SPARE, JoinSpec
from penstock.runtime.threads import run_on_threads


class NoPartitioning(Lazy):
    """One table for the window."""

    name = "npj"

    def count(self, window: WindowCodes) -> int:
        given = self._build(window)
        probe = self.kernels("npj_probe", shared(window))
        counts: list[int] = []
        with self.phase("probe"):
            on_portions(
                len(window.probe),
                window.threads,
                lambda lo, hi: counts.append(probe({**given, "codes": window.probe, "lo": lo, "hi": hi})),
            )
        return sum(counts)

    def pairs(self, window: WindowCodes) -> tuple[np.ndarray, np.ndarray]:
        given, spec = self._build(window), shared(window)
        given |= self._runs(window, given, spec)
        probe = self.kernels("npj_probe", spec)
        outs = [PairsOut(hi - lo + 1) for lo, hi in portions(len(window.probe), window.threads)]
        with self.phase("probe"):
            run_on_threads(
                [
                    partial(fill, probe, {**given, "codes": window.probe, "lo": lo, "hi": hi}, out)
                    for (lo, hi), out in zip(portions(len(window.probe), window.threads), outs, strict=True)
                ]
            )
        return together([out.taken for out in outs])

    def _build(self, window: WindowCodes) -> dict[str, Any]:
        """Insert the rows of the build side into slots, and count the rows of each slot."""
        spec, rows, arena = shared(window), len(window.build), self.arena
        slots = slots_for(rows)
        cells = window.span + 1 if spec.dense else slots + SPARE
        given: dict[str, Any] = {"codes": window.build, "least": window.least, "sink": np.empty(1, np.uint64)}
        with self.phase("build"):
            given["bounds"] = arena.zeros("bounds", cells + 1, np.uint32)
            if not spec.dense:
                width = np.uint64 if spec.wide else np.uint32
                given |= {"slots": arena.zeros("slots", slots, width), "mask": slots - 1}
            if spec.pairs and not (spec.dense or spec.shared):
                given["places"] = arena.array("places", rows, np.uint32)
            if spec.shared and not spec.dense:
                self._probe_ranges("npj_insert", spec, window, given)
            self._probe_ranges("npj_count", spec, window, given)
        return given

    def _runs(self, window: WindowCodes, given: dict[str, Any], spec: JoinSpec) -> dict[str, Any]:
        """Store the rows of each slot contiguously."""
        with self.phase("build"):
            bounds, rows = given["bounds"], self.arena.array("rows", len(window.build) + 1, np.uint32)
            self.kernels("npj_starts", JoinSpec())({"bounds": bounds, "places": len(bounds)})
            self._probe_ranges("npj_fill", spec, window, {**given, "rows": rows})
        return {"rows": rows}

    def _probe_ranges(self, name: str, spec: JoinSpec, window: WindowCodes, given: dict[str, Any]) -> None:
        call = self.kernels(name, spec)
        on_portions(len(window.build), window.threads, lambda lo, hi: call({**given, "lo": lo, "hi": hi}))


def on_portions(rows: int, threads: int, work: Callable[[int, int], Any]) -> None:
    """Call `work` on every row, one portion per thread."""
    run_on_threads([partial(work, lo, hi) for lo, hi in portions(rows, threads)])

"""Sliding state between emissions: the merged panes of the last window, from which the next one goes on.

A window of 100 panes then costs as many merges as panes entered since the last emission, and one more for each pane
now and then (a flip of the two stacks), instead of 100.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.algorithms.hash_table.keys import Keys
from penstock.algorithms.window_grid import WindowGrid
from penstock.loop.abi import CUT, ENTERED, LEFT, PUSHED
from penstock.operators.pane_aggregate.table import PaneTable
from penstock.runtime.buffers import filled
from penstock.runtime.kernels import OutputCall


@dataclass(eq=False)
class SlidingCursor:
    """The scratch rows of the emit kernel, and the panes it had reached after window `upto`.

    It is a cache: saved state has panes only. It is valid while the panes it has merged keep their rows and the key
    table its columns. Panes of emitted windows change only when partly late rows come; the stage drops it then, and the
    worker when cells of another table are merged into its own.
    """

    kernel: OutputCall
    keys: Keys
    columns: int
    depth: int
    rows: dict[str, np.ndarray]
    upto: int = 0
    cut: int = 0  # the first pane behind the cut
    end: int = 0  # the first pane behind the last window
    left: int = 0  # the first pane that has not been dropped

    @classmethod
    def new(cls, kernel: OutputCall, table: PaneTable, deepest: int) -> SlidingCursor:
        """A cursor that has merged no pane; the stacks have room to grow deeper."""
        columns = table.keys.columns
        depth = 1 << deepest.bit_length()
        rows = {"cursor": np.array([0, -1, 0, 0])}
        for scratch in kernel.scratch:
            cells = (depth if scratch.deep else 1) * columns
            rows[scratch.parameter] = filled(scratch.type, 0, cells)
        return cls(kernel, table.keys, columns, depth, rows)

    def fits(self, kernel: OutputCall, table: PaneTable, deepest: int, after: int) -> bool:
        """Whether windows behind `after` go on from here."""
        same = self.kernel is kernel and self.keys is table.keys and self.columns == table.keys.columns
        return same and self.upto == after and deepest <= self.depth

    def find(self, panes: np.ndarray) -> None:
        """Set the places the kernel had reached among the panes that are there now, in order."""
        cut, end, left = panes.searchsorted([self.cut, self.end, self.left]).tolist()
        cursor = self.rows["cursor"]
        cursor[PUSHED], cursor[CUT], cursor[ENTERED], cursor[LEFT] = end, cut, end, left

    def stop(self, windows: WindowGrid, last: int, upto: int) -> None:
        """Remember the panes reached after the window numbered `last`, the last one up to `upto`."""
        start = last * windows.step
        self.upto = upto
        self.cut, self.end = (start // windows.span + 1) * windows.span, start + windows.span
        self.left = (upto + 1) * windows.step

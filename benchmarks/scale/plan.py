"""The planner that Spark jobs use, over fragments alone."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.physical.choose_strategy import Halo
from penstock.sources.fragment import Fragment
from penstock.spark.slices import Piece, time_slices

NO_HALO = Halo(0, 0)


def cut_by_time(fragments: Sequence[Fragment], tasks: int) -> list[list[Fragment]]:
    """Cut a lake into slices of time with about as many rows each."""
    pieces = [Piece("events", fragment, 0) for fragment in fragments]
    return [[piece.fragment for piece in part.pieces] for part in time_slices(pieces, NO_HALO, tasks)]

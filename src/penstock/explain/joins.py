"""Explain how a windowed join finds its pairs: the algorithm the query names, or the decision tree that picks one."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.algorithms.joins.adapt.choose_join import JoinChooser
from penstock.algorithms.joins.adapt.tree import IN_ORDER
from penstock.operators.joins.algorithm_pairs import ROWS_JOINED_BY_PARTITION
from penstock.operators.joins.build_algorithms import join_chooser
from penstock.physical.nodes import Join
from penstock.runtime.join_metrics import JoinReport
from penstock.types.windows import LEFT_ROW_KINDS, InWindow, Session, windows_overlap

EARLY = "in run and open: pairs as rows arrive, in no order; rows without a partner when their window ends"


def join_reasons(op: Join, fused: bool = False, report: JoinReport | None = None) -> list[str]:
    """Return lines about the join algorithm, or none if there is no choice. `report` holds the last choice."""
    if not (isinstance(op.pairing, InWindow) and op.on):
        return []
    if fused:
        return [
            "fused: counts and sums of both sides multiply, no pair is made; keys meet once for each window"
        ]
    early = [EARLY] if op.eager else []
    if op.algorithm != "auto":
        return [f"pairs by {op.algorithm}, as asked for, one window at a time", *early]
    if windows_overlap(op.pairing):
        shared = "windows overlap: each pair is found once, in partitions, and given for every window that holds it"
        if op.how in LEFT_ROW_KINDS:
            return [shared]
        many = (
            "where windows are large and there are more results than rows in windows, one window at a time:"
        )
        return [shared, many, *_choices(op, join_chooser(), report)]
    if isinstance(op.pairing.left, Session):
        return [
            "sessions of different keys lie across each other: pairs are found in partitions, all at once"
        ]
    return [*early, *_choices(op, join_chooser(), report)]


def _choices(op: Join, chooser: JoinChooser, report: JoinReport | None) -> Iterator[str]:
    """Yield the decision trees, with the path that the last window took."""
    seen = None if report is None or report.chosen is None else report.chosen.seen
    if op.eager:
        yield "there, a tree picks for each window by what was seen of the one before,"
        yield f"for {op.optimise} ({chooser.origin}):"
        yield from chooser.show(op.optimise, seen).splitlines()
        yield "in collect, where all rows are there and pairs are given in order:"
    yield f"windows below {ROWS_JOINED_BY_PARTITION:,} rows in partitions, many at once"
    if op.how in LEFT_ROW_KINDS:
        yield "larger ones by npj, one at a time: who meets anybody is a search, no pair is made"
        return
    yield f"larger ones one at a time, by what a tree picks for each of what is seen of it ({chooser.origin}):"
    yield from chooser.show(IN_ORDER, None if op.eager else seen).splitlines()
